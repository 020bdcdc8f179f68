//! A real BAR: mapped, a window at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;

use super::map::Map;
use super::{Bar, Memory};
use crate::pci::sysfs::Function;

/// Bytes mapped at once: the page tables of a whole large BAR would take more memory than all else that we do.
const WINDOW: u64 = 256 << 20;

/// A BAR's memory. Writes go through its write-combining mapping where it has one, reads through the other, which no
/// cache answers.
#[derive(Debug)]
pub struct MappedMemory {
    size: u64,
    writer: Windows,
    reader: Windows,
    /// The last word written: reading it back brings home what is still on its way.
    last: u64,
    _enabled: Enabled,
}

impl MappedMemory {
    /// Enables the function and opens its BAR.
    ///
    /// # Errors
    /// `EBUSY`: the function belongs to a driver. `EINVAL`: something in the kernel has claimed the BAR. `EPERM`: the
    /// kernel is locked down.
    pub fn open(function: &Function, bar: Bar) -> io::Result<Self> {
        let enabled = Enabled::new(function)?;
        let (combined, plain) = bar.files(function);
        let mut memory = Self {
            size: bar.size,
            writer: Windows::new(OpenOptions::new().read(true).write(true).open(combined)?, bar.size, true),
            reader: Windows::new(File::open(plain)?, bar.size, false),
            last: 0,
            _enabled: enabled,
        };
        // What does not let itself be mapped says so before anything is written.
        memory.writer.at(0)?;
        memory.reader.at(0)?;
        Ok(memory)
    }
}

impl Memory for MappedMemory {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let first = offset / 8;
        let words = bytes.as_chunks::<8>().0;
        let word = |number: u64| {
            let place = usize::try_from(number - first).ok().and_then(|index| words.get(index));
            place.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        self.fill(first..first + words.len() as u64, word)
    }

    fn fence(&mut self) -> io::Result<()> {
        Map::fence();
        self.read(8 * self.last, &mut [0; 8])
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (number, word) in (offset / 8..).zip(bytes.as_chunks_mut::<8>().0) {
            let (map, at, _) = self.reader.at(number)?;
            *word = map.word(at)?.to_le_bytes();
        }
        Ok(())
    }

    fn fill(&mut self, words: Range<u64>, word: impl Fn(u64) -> u64) -> io::Result<()> {
        let Range { mut start, end } = words;
        while start < end {
            let (map, at, room) = self.writer.at(start)?;
            let piece = start..end.min(start + room);
            self.last = piece.end - 1;
            start = piece.end;
            map.fill(at, piece, &word)?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        words: Range<u64>,
        expected: impl Fn(u64) -> u64,
        mut other: impl FnMut(u64, u64),
    ) -> io::Result<u64> {
        let Range { mut start, end } = words;
        let mut visited = 0;
        while start < end {
            let (map, at, room) = self.reader.at(start)?;
            let piece = start..end.min(start + room);
            start = piece.end;
            visited += map.check(at, piece, &expected, &mut other)?;
        }
        Ok(visited)
    }
}

/// A file mapped where it is used.
#[derive(Debug)]
struct Windows {
    file: File,
    size: u64,
    writable: bool,
    /// Where the mapped window begins, in bytes.
    window: Option<(u64, Map)>,
}

impl Windows {
    fn new(file: File, size: u64, writable: bool) -> Self {
        Self { file, size, writable, window: None }
    }

    /// The mapping that has this word, where in it the word is, and how many there are from it on.
    fn at(&mut self, word: u64) -> io::Result<(&mut Map, usize, u64)> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, format!("there is no word {word}"));
        let inside = |offset: &u64| offset.checked_add(8).is_some_and(|end| end <= self.size);
        let offset = word.checked_mul(8).filter(inside).ok_or_else(outside)?;
        let start = offset - offset % WINDOW;
        let length = WINDOW.min(self.size - start);
        if self.window.as_ref().is_none_or(|(mapped, _)| *mapped != start) {
            // The old one goes first: two windows are never mapped.
            self.window = None;
        }
        let (_, map) = match self.window.take() {
            Some(window) => self.window.insert(window),
            None => self.window.insert((start, Map::new(&self.file, start, length, self.writable)?)),
        };
        let at = usize::try_from(offset - start).map_err(io::Error::other)?;
        Ok((map, at, (length - (offset - start)) / 8))
    }
}

/// The function decodes memory as long as this lives. The kernel counts who asked for it.
#[derive(Debug)]
struct Enabled(Function);

impl Enabled {
    fn new(function: &Function) -> io::Result<Self> {
        function.set("enable", "1")?;
        Ok(Self(function.clone()))
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        // A count that stays too high keeps an unused function decoding, and no more.
        let _ = self.0.set("enable", "0");
    }
}

#[cfg(test)]
mod tests;
