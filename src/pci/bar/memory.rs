//! What a scrub needs of a memory.

use std::io;
use std::ops::Range;

/// Words that are made or looked at in one piece where a memory has no way of its own.
const PIECE: u64 = 8192;

/// Memory that a scrub can write and read back, as bytes or as words of 64 bits, little endian, numbered from its
/// start.
pub trait Memory {
    /// Bytes, a multiple of 8.
    fn size(&self) -> u64;

    /// Writes whole words at an offset.
    ///
    /// # Errors
    /// The device refused.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once everything written so far has reached the device.
    ///
    /// # Errors
    /// The device refused.
    fn fence(&mut self) -> io::Result<()>;

    /// Reads whole words at an offset, from the device and not from a cache.
    ///
    /// # Errors
    /// The device refused.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes words, each a function of its number.
    ///
    /// # Errors
    /// As [`Memory::write`].
    fn fill(&mut self, words: Range<u64>, word: impl Fn(u64) -> u64) -> io::Result<()> {
        let mut buffer = Vec::new();
        for piece in pieces(words) {
            buffer.clear();
            buffer.extend(piece.clone().map(|number| word(number).to_le_bytes()));
            self.write(8 * piece.start, buffer.as_flattened())?;
        }
        Ok(())
    }

    /// Reads words and tells of each that is not what it should be, with its number; how many it has read.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn check(
        &mut self,
        words: Range<u64>,
        expected: impl Fn(u64) -> u64,
        mut other: impl FnMut(u64, u64),
    ) -> io::Result<u64> {
        let mut buffer = Vec::new();
        let mut visited = 0;
        for piece in pieces(words) {
            let count = usize::try_from(piece.end - piece.start).map_err(io::Error::other)?;
            // What stays unread must not look like what was expected.
            buffer.clear();
            buffer.resize(count, [0xa5; 8]);
            self.read(8 * piece.start, buffer.as_flattened_mut())?;
            for (number, bytes) in piece.zip(&buffer) {
                let value = u64::from_le_bytes(*bytes);
                visited += 1;
                if value != expected(number) {
                    other(number, value);
                }
            }
        }
        Ok(visited)
    }
}

fn pieces(words: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { mut start, end } = words;
    std::iter::from_fn(move || {
        let piece = start..end.min(start.saturating_add(PIECE));
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}
