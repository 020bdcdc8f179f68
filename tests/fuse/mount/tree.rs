//! What is in a device's folder, and which inode each thing has.

use std::time::UNIX_EPOCH;

use cleanslate::sim::Device;
use fuser::{FileAttr, FileType, INodeNo};

use super::slot::Slot;

/// Inodes of one device; no two devices share any, so that an open file of one that is gone stays dead.
const SHIFT: u32 = 16;

/// What something in a device's folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    Config,
    Reset,
    /// `resource0`.
    Memory,
    /// `resource0_wc`.
    Combined,
    Link(String),
    /// An attribute by its path.
    Text(&'static str),
}

/// An entry of a device's folder, or of `power` in it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) parent: u64,
    pub(super) kind: Kind,
}

/// The number of a device's own folder.
pub(super) const FOLDER: u64 = 0;
const POWER: u64 = 1;

/// Which device an inode is of, and which entry of it; the root has device 0.
pub(super) fn split(inode: INodeNo) -> (u64, u64) {
    (inode.0 >> SHIFT, inode.0 & ((1 << SHIFT) - 1))
}

pub(super) fn inode(device: u64, number: u64) -> INodeNo {
    INodeNo(device << SHIFT | number)
}

impl Slot {
    /// Everything in the device's folder.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |name: &str, number, kind| Entry { name: name.to_owned(), number, parent: FOLDER, kind };
        let mut entries = vec![
            entry("power", POWER, Kind::Folder),
            entry("config", 2, Kind::Config),
            entry("reset", 3, Kind::Reset),
            entry("resource0", 4, Kind::Memory),
            entry("resource0_wc", 5, Kind::Combined),
        ];
        for (number, (name, target)) in (6..).zip(&self.links) {
            entries.push(entry(name, number, Kind::Link(target.clone())));
        }
        for (number, (path, _)) in (16..).zip(self.device.attributes()) {
            let mut entry = entry(path, number, Kind::Text(path));
            if let Some(name) = path.strip_prefix("power/") {
                (entry.name, entry.parent) = (name.to_owned(), POWER);
            }
            entries.push(entry);
        }
        entries
    }

    pub(super) fn kind(&self, number: u64) -> Option<Kind> {
        match number {
            FOLDER => Some(Kind::Folder),
            number => self.entries().into_iter().find(|entry| entry.number == number).map(|entry| entry.kind),
        }
    }
}

impl Kind {
    /// Whether it can be read, and whether it can be written.
    pub(super) fn access(&self) -> (bool, bool) {
        match self {
            Self::Folder | Self::Link(_) => (true, false),
            Self::Config | Self::Memory | Self::Combined => (true, true),
            Self::Reset => (false, true),
            Self::Text(name) => (true, Device::is_setting(name)),
        }
    }

    pub(super) fn attributes(&self, inode: INodeNo, memory: u64) -> FileAttr {
        let (kind, perm, size) = match self {
            Self::Folder => (FileType::Directory, 0o755, 0),
            Self::Link(target) => (FileType::Symlink, 0o777, target.len() as u64),
            Self::Config => (FileType::RegularFile, 0o644, 4096),
            Self::Reset => (FileType::RegularFile, 0o200, 4096),
            Self::Memory | Self::Combined => (FileType::RegularFile, 0o600, memory),
            Self::Text(_) if self.access().1 => (FileType::RegularFile, 0o644, 4096),
            Self::Text(_) => (FileType::RegularFile, 0o444, 4096),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}
