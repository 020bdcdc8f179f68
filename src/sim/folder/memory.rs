use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sim::Target;
use crate::sim::layout::Layout;

/// A device's memory, `resource0`, and what `resource0_wc` is a name of: the same file or, for faults, a decoy.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    size: u64,
    wc: PathBuf,
    named: Target,
    real: PathBuf,
    decoy: PathBuf,
}

impl Memory {
    /// Makes zeroed memory of `size` bytes in a device's `folder`; `decoy` is where the decoy is kept.
    pub(super) fn create(files: &Layout, folder: &Path, decoy: PathBuf, size: u64) -> io::Result<Self> {
        let blank = |path: &Path| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)?;
            file.set_len(size)?;
            io::Result::Ok(file)
        };
        let (real, wc) = (folder.join("resource0"), folder.join("resource0_wc"));
        let file = blank(&real)?;
        blank(&decoy)?;
        files.name(&wc, &real)?;
        Ok(Self { file, size, wc, named: Target::Memory, real, decoy })
    }

    /// Where a session of writes that begins now goes.
    pub(super) fn named(&self) -> Target {
        self.named
    }

    /// Lets the next session of writes go to `target`.
    pub(super) fn name(&mut self, files: &Layout, target: Target) -> io::Result<()> {
        if self.named != target {
            files.name(&self.wc, if target == Target::Memory { &self.real } else { &self.decoy })?;
            self.named = target;
        }
        Ok(())
    }

    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("beyond {} bytes", self.size)));
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Fills it with what memory holds when power comes.
    pub(super) fn noise(&self) -> io::Result<()> {
        let mut content = vec![0; usize::try_from(self.size).map_err(io::Error::other)?];
        getrandom::fill(&mut content).map_err(io::Error::other)?;
        self.file.write_all_at(&content, 0)
    }
}
