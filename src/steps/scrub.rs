//! Overwriting a device's memory, and showing that it was overwritten.
//!
//! ```text
//!   fill all with pattern(nonce, offset), one planted error a chunk ─▶ check all ─▶
//!   fill all with zeros,                  one planted error a chunk ─▶ check all ─▶ mend the planted words
//! ```
//!
//! Everything is filled before anything is checked, so two chunks that alias one memory are seen. A check counts
//! the words that it visited and must find exactly the planted error in every chunk: one that did not run, or
//! skipped a chunk, finds none.

use std::io;

use super::failure;
use crate::pci::bar::{self, FileMemory, Memory};
use crate::pci::sysfs::Function;
use crate::types::{Roots, Scrub, ScrubPass};
use crate::worker::{Code, Failure};

/// Bytes written or compared at once; one planted error in each.
const CHUNK: u64 = 1 << 20;
/// Bytes between two reports of progress.
const REPORT: u64 = 64 << 20;

/// Scrubs BARs one after the other; what is reported is their sum.
pub(super) fn bars(
    roots: &Roots,
    function: &Function,
    wanted: &[u8],
    mut progress: impl FnMut(u64, u64) -> io::Result<()>,
) -> Result<Scrub, Failure> {
    let io = |error: io::Error| failure(Code::Io, &error);
    let no = |text: String| Failure { code: Code::NoMemory, errno: None, text };
    if !roots.are_simulated() {
        // The kernel's BAR files can be mapped, not read.
        return Err(no(
            "mapping a real BAR is not built yet: only a twin's memory can be scrubbed".to_owned()
        ));
    }
    let known = bar::bars(function).map_err(io)?;
    let mut whole: Option<Scrub> = None;
    for index in wanted {
        let bar = known.iter().find(|bar| bar.index == *index && bar.prefetchable);
        let bar =
            bar.ok_or_else(|| no(format!("BAR{index} is no prefetchable memory BAR of this device")))?;
        let mut memory = FileMemory::open(function, *bar).map_err(io)?;
        let nonce = nonce().map_err(io)?;
        let scrub = memory_of(&mut memory, nonce, &mut progress).map_err(io)?;
        whole = Some(match whole {
            None => scrub,
            Some(before) => before.and(&scrub),
        });
    }
    whole.ok_or_else(|| no("the policy names no BAR".to_owned()))
}

/// Scrubs one memory.
///
/// # Errors
/// The memory cannot be written or read. What reads back wrong is no error here: it is counted.
pub fn memory_of(
    memory: &mut impl Memory,
    nonce: u64,
    progress: &mut impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<Scrub> {
    let size = memory.size();
    let mut report = Meter { done: 0, told: 0, of: 4 * size, progress };
    let pattern = Pass { nonce, zero: false };
    let zero = Pass { nonce: mix(nonce), zero: true };
    let mut bytes_written = pattern.fill(memory, &mut report)?;
    let first = pattern.check(memory, &mut report)?;
    bytes_written += zero.fill(memory, &mut report)?;
    let second = zero.check(memory, &mut report)?;
    let canaries_left = zero.mend(memory)?;
    Ok(Scrub {
        size,
        bytes_written,
        chunks: size.div_ceil(CHUNK),
        pattern: first,
        zero: second,
        canaries_left,
    })
}

/// One pass over the memory.
struct Pass {
    nonce: u64,
    zero: bool,
}

impl Pass {
    fn expected(&self, word: u64) -> u64 {
        if self.zero { 0 } else { mix(self.nonce ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)) }
    }

    /// Where the planted error of a chunk is, in words from the chunk's start, and what stands there.
    fn canary(&self, chunk: u64, words: u64) -> (u64, u64) {
        let random = mix(self.nonce.wrapping_add(chunk).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let at = random % words;
        // Differs from the expected word in at least one bit.
        (at, self.expected(chunk * (CHUNK / 8) + at) ^ (random | 1))
    }

    fn fill(
        &self,
        memory: &mut impl Memory,
        report: &mut Meter<'_, impl FnMut(u64, u64) -> io::Result<()>>,
    ) -> io::Result<u64> {
        let mut written = 0;
        let mut buffer = Vec::new();
        for (chunk, start, length) in chunks(memory.size()) {
            let first = start / 8;
            let (at, planted) = self.canary(chunk, length / 8);
            buffer.clear();
            for word in 0..length / 8 {
                let value = if word == at { planted } else { self.expected(first + word) };
                buffer.extend_from_slice(&value.to_le_bytes());
            }
            memory.write(start, &buffer)?;
            written += length;
            report.add(length)?;
        }
        memory.fence()?;
        Ok(written)
    }

    fn check(
        &self,
        memory: &mut impl Memory,
        report: &mut Meter<'_, impl FnMut(u64, u64) -> io::Result<()>>,
    ) -> io::Result<ScrubPass> {
        let mut pass = ScrubPass::default();
        let mut buffer = Vec::new();
        for (chunk, start, length) in chunks(memory.size()) {
            let (at, planted) = self.canary(chunk, length / 8);
            // What stays unread must not look like what was expected.
            buffer.clear();
            buffer.resize(usize::try_from(length).map_err(io::Error::other)?, 0xa5);
            memory.read(start, &mut buffer)?;
            for (word, bytes) in (0..).zip(buffer.as_chunks::<8>().0) {
                let value = u64::from_le_bytes(*bytes);
                pass.words_visited += 1;
                if word == at && value == planted {
                    pass.canaries_found += 1;
                } else if value != self.expected(start / 8 + word) {
                    pass.errors += 1;
                    pass.first_error.get_or_insert(start + 8 * word);
                }
            }
            report.add(length)?;
        }
        Ok(pass)
    }

    /// Overwrites the planted errors and counts those that stay.
    fn mend(&self, memory: &mut impl Memory) -> io::Result<u64> {
        let places: Vec<_> = chunks(memory.size())
            .map(|(chunk, start, length)| start + 8 * self.canary(chunk, length / 8).0)
            .collect();
        for place in &places {
            memory.write(*place, &[0; 8])?;
        }
        memory.fence()?;
        let mut left = 0;
        for place in places {
            let mut word = [0xa5; 8];
            memory.read(place, &mut word)?;
            left += u64::from(word != [0; 8]);
        }
        Ok(left)
    }
}

/// Number, start and length of every chunk; lengths are multiples of 8.
fn chunks(size: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (0..size.div_ceil(CHUNK)).map(move |chunk| {
        let start = chunk * CHUNK;
        (chunk, start, CHUNK.min(size - start) & !7)
    })
}

struct Meter<'a, P> {
    done: u64,
    told: u64,
    of: u64,
    progress: &'a mut P,
}

impl<P: FnMut(u64, u64) -> io::Result<()>> Meter<'_, P> {
    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.done += bytes;
        if self.done - self.told >= REPORT {
            self.told = self.done;
            (self.progress)(self.done, self.of)?;
        }
        Ok(())
    }
}

/// SplitMix64's finalizer: neighbouring words have nothing in common.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn nonce() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests;
