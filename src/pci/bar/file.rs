//! A BAR served as a file by a twin.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{Bar, Memory};
use crate::pci::sysfs::Function;

/// A BAR served as a file. Writes go through `resourceN_wc` where there is one, reads through `resourceN`, as the two
/// mappings of a real BAR do.
#[derive(Debug)]
pub struct FileMemory {
    size: u64,
    combined: PathBuf,
    writer: Option<File>,
    reader: File,
}

impl FileMemory {
    /// Opens a BAR's file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(function: &Function, bar: Bar) -> io::Result<Self> {
        let (combined, plain) = bar.files(function);
        Ok(Self { size: bar.size, combined, writer: None, reader: File::open(plain)? })
    }
}

impl Memory for FileMemory {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => OpenOptions::new().write(true).open(&self.combined)?,
        };
        writer.write_all_at(bytes, offset)?;
        self.writer = Some(writer);
        Ok(())
    }

    fn fence(&mut self) -> io::Result<()> {
        self.writer = None;
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact_at(bytes, offset)
    }
}
