//! The kernel's requests. None waits here: what takes its time keeps its reply in the slot, so that one thread serves
//! all devices whatever hangs.

use std::ffi::OsStr;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use cleanslate::sim::Target;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::Shared;
use super::state::{State, text};
use super::tree::Kind;

/// Nothing is cached: names and contents change without the kernel's doing.
const NEVER: Duration = Duration::ZERO;

#[derive(Debug)]
pub(super) struct Devices(pub(super) Arc<Shared>);

impl Devices {
    /// Everything up to now has happened; whatever is done next may give the clock something to wait for.
    fn now(&self) -> (MutexGuard<'_, State>, Instant) {
        let mut state = self.0.lock();
        let now = Instant::now();
        state.advance(now);
        self.0.changed.notify_one();
        (state, now)
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        if inode == INodeNo::ROOT {
            return Ok(Kind::Folder.attributes(inode, 0));
        }
        let mut state = self.0.lock();
        let (slot, kind) = state.of(inode)?;
        Ok(kind.attributes(inode, slot.device.spec().memory))
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let entries = self.0.lock().entries(parent)?;
        let found = entries.into_iter().find(|(_, known, _)| **known == *name);
        self.attributes(found.ok_or(Errno::ENOENT)?.0)
    }

    fn open(&self, inode: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let (mut state, _) = self.now();
        let (slot, kind) = state.of(inode)?;
        let (reads, writes) = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => (true, false),
            OpenAccMode::O_WRONLY => (false, true),
            OpenAccMode::O_RDWR => (true, true),
        };
        let (readable, writable) = kind.access();
        if reads && !readable || writes && !writable {
            return Err(Errno::EACCES);
        }
        let session = (writes && kind == Kind::Combined).then(|| slot.device.target());
        if let Some(target) = session {
            slot.device.session_begins(target);
        }
        let handle = state.open(session);
        if session.is_some() {
            state.of(inode)?.0.session = Some(handle);
        }
        Ok(handle)
    }
}

impl Filesystem for Devices {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attributes) => reply.entry(&NEVER, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    /// Truncation is ignored, as sysfs does; nothing else can be set.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Ok(attributes) if mode.or(uid).or(gid).is_none() => reply.attr(&NEVER, &attributes),
            Ok(_) => reply.error(Errno::EPERM),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.0.lock().of(inode) {
            Ok((_, Kind::Link(target))) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open(inode, flags) {
            // Without the second the kernel would let one writer of a file in at a time.
            Ok(handle) => reply.opened(
                FileHandle(handle),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (mut state, _) = self.now();
        let (Ok(at), Ok(size)) = (usize::try_from(offset), usize::try_from(size)) else {
            return reply.error(Errno::EINVAL);
        };
        let name = match state.of(inode) {
            Ok((slot, Kind::Config)) => return slot.read_config(at, size, reply),
            Ok((slot, Kind::Memory | Kind::Combined)) => return reply.data(&slot.read_memory(at, size)),
            Ok((_, Kind::Text(name))) => name,
            Ok(_) => return reply.error(Errno::EACCES),
            Err(errno) => return reply.error(errno),
        };
        let fresh = state.of(inode).map(|(slot, _)| text(&slot.device, name)).unwrap_or_default();
        let Some(open) = state.opened(handle.0) else { return reply.error(Errno::EBADF) };
        if at == 0 {
            open.text = fresh;
        }
        let end = open.text.len().min(at.saturating_add(size));
        reply.data(open.text.get(at..end).unwrap_or_default());
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (mut state, now) = self.now();
        let Ok(at) = usize::try_from(offset) else { return reply.error(Errno::EINVAL) };
        let session = state.opened(handle.0).and_then(|open| open.session);
        match state.of(inode) {
            Ok((slot, Kind::Config)) => slot.write_config(at, bytes.to_vec(), now, reply),
            Ok((slot, Kind::Memory | Kind::Combined)) => {
                slot.session = session.map(|_| handle.0).or(slot.session);
                reply.written(slot.write_memory(session.unwrap_or(Target::Memory), at, bytes));
            }
            Ok((slot, Kind::Reset)) => slot.store("reset", bytes, reply),
            Ok((slot, Kind::Text(name))) => slot.store(name, bytes, reply),
            Ok(_) => return reply.error(Errno::EACCES),
            Err(errno) => return reply.error(errno),
        }
        // What has just come may be due at once.
        state.advance(now);
    }

    /// Unlike a release, this comes before `close` returns, whoever else has a copy of the descriptor.
    fn flush(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if let Ok((slot, _)) = self.now().0.of(inode) {
            slot.closed(handle.0);
        }
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.lock().close_file(handle.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = match self.0.lock().entries(inode) {
            Ok(entries) => entries,
            Err(errno) => return reply.error(errno),
        };
        let dots = [".", ".."].map(|name| (inode, name.to_owned(), Kind::Folder));
        let all = (1..).zip(dots.into_iter().chain(entries));
        for (next, (inode, name, kind)) in all.skip_while(|(next, _)| *next <= offset) {
            let kind = match kind {
                Kind::Folder => FileType::Directory,
                Kind::Link(_) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
