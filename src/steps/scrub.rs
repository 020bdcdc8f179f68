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
use std::time::{Duration, Instant};

use super::failure;
use crate::pci::bar::{self, Bar, FileMemory, MappedMemory, Memory};
use crate::pci::sysfs::Function;
use crate::types::{Roots, Scrub, ScrubPass};
use crate::worker::{Code, Failure};

/// Bytes written or compared at once; one planted error in each.
const CHUNK: u64 = 1 << 20;
/// Time between two reports of progress.
const REPORT: Duration = Duration::from_millis(250);
/// A scrub goes over the memory so many times.
const PASSES: u64 = 4;

/// Scrubs BARs one after the other; what is reported is their sum.
pub(super) fn bars(
    roots: &Roots,
    function: &Function,
    wanted: &[u8],
    mut progress: impl FnMut(u64, u64) -> io::Result<()>,
) -> Result<Scrub, Failure> {
    let io = |error: io::Error| failure(Code::Io, &error);
    let no = |text: String| Failure { code: Code::NoMemory, errno: None, text };
    let known = bar::bars(function).map_err(io)?;
    let find = |index: &u8| {
        let bar = known.iter().find(|bar| bar.index == *index && bar.prefetchable);
        bar.ok_or_else(|| no(format!("BAR{index} is no prefetchable memory BAR of this device")))
    };
    let wanted = wanted.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let of: u64 = wanted.iter().map(|bar| bar.size).sum();
    let mut whole: Option<Scrub> = None;
    for bar in wanted {
        let before = whole.as_ref().map_or(0, |whole| whole.size);
        let mut progress = |done, _| progress(before + done, of);
        let nonce = nonce().map_err(io)?;
        // The kernel's BAR files can be mapped, and not read; a twin's are files.
        let scrub = if roots.are_simulated() {
            memory_of(&mut FileMemory::open(function, *bar).map_err(io)?, nonce, &mut progress)
        } else {
            let mut memory = MappedMemory::open(function, *bar).map_err(|error| unmapped(*bar, &error))?;
            memory_of(&mut memory, nonce, &mut progress)
        };
        let scrub = scrub.map_err(io)?;
        whole = Some(match whole {
            None => scrub,
            Some(before) => before.and(&scrub),
        });
    }
    whole.ok_or_else(|| no("the policy names no BAR".to_owned()))
}

/// What follows when a BAR cannot be mapped: what belongs to a driver is held, not broken.
fn unmapped(bar: Bar, error: &io::Error) -> Failure {
    let Failure { code, errno, text } = failure(Code::Io, error);
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL) => Failure {
            code: Code::Driver,
            errno,
            text: format!("held: BAR{} belongs to a driver of the kernel ({text}); unbind it", bar.index),
        },
        _ => Failure { code, errno, text: format!("BAR{} cannot be mapped: {text}", bar.index) },
    }
}

/// Scrubs one memory. `progress` hears of bytes done of the memory's size, over all passes.
///
/// # Errors
/// The memory cannot be written or read. What reads back wrong is no error here: it is counted.
pub fn memory_of(
    memory: &mut impl Memory,
    nonce: u64,
    progress: &mut impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<Scrub> {
    let size = memory.size();
    let mut meter = Meter { moved: 0, told: Instant::now(), size, progress };
    let pattern = Pass::pattern(nonce);
    let zero = Pass::zeros(nonce);
    let mut bytes_written = pattern.fill(memory, &mut |bytes| meter.add(bytes))?;
    let first = pattern.check(memory, &mut |bytes| meter.add(bytes))?;
    bytes_written += zero.fill(memory, &mut |bytes| meter.add(bytes))?;
    let second = zero.check(memory, &mut |bytes| meter.add(bytes))?;
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
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    nonce: u64,
    zero: bool,
}

impl Pass {
    /// The pass that writes what depends on this run and on the place.
    #[must_use]
    pub fn pattern(nonce: u64) -> Self {
        Self { nonce, zero: false }
    }

    /// The pass that writes zeros; the nonce is for the planted errors.
    #[must_use]
    pub fn zeros(nonce: u64) -> Self {
        // Other places than in the pass before.
        Self { nonce: mix(!nonce), zero: true }
    }

    /// Unlike any other chunk's, and any other run's.
    fn key(&self, chunk: u64) -> u64 {
        mix(self.nonce ^ mix(chunk))
    }

    fn expected(&self, word: u64) -> u64 {
        if self.zero { 0 } else { pattern(self.key(word / (CHUNK / 8)), word) }
    }

    /// The word that gets the planted error of a chunk, and what stands there.
    fn canary(&self, chunk: u64, words: u64) -> (u64, u64) {
        let random = mix(self.nonce.wrapping_add(chunk).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let word = chunk * (CHUNK / 8) + random % words;
        // Differs from the expected word in at least one bit.
        (word, self.expected(word) ^ (random | 1))
    }

    /// Fills the memory, with one planted error a chunk; how many bytes were written. `done` hears of each chunk's.
    ///
    /// # Errors
    /// The memory cannot be written, or `done` says so.
    pub fn fill(
        &self,
        memory: &mut impl Memory,
        done: &mut impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut written = 0;
        for (chunk, start, length) in chunks(memory.size()) {
            let (first, end) = (start / 8, (start + length) / 8);
            let (canary, planted) = self.canary(chunk, length / 8);
            let key = self.key(chunk);
            for words in [first..canary, canary + 1..end] {
                // One loop each, so that neither asks at every word which it is.
                if self.zero {
                    memory.fill(words, |_| 0)?;
                } else {
                    memory.fill(words, |word| pattern(key, word))?;
                }
            }
            memory.fill(canary..canary + 1, |_| planted)?;
            written += length;
            done(length)?;
        }
        memory.fence()?;
        Ok(written)
    }

    /// Checks the memory against what [`fill`](Self::fill) wrote. `done` hears of each chunk's bytes.
    ///
    /// # Errors
    /// The memory cannot be read, or `done` says so.
    pub fn check(
        &self,
        memory: &mut impl Memory,
        done: &mut impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<ScrubPass> {
        let mut pass = ScrubPass::default();
        for (chunk, start, length) in chunks(memory.size()) {
            let (canary, planted) = self.canary(chunk, length / 8);
            let words = start / 8..(start + length) / 8;
            let other = |word, value| {
                if word == canary && value == planted {
                    pass.canaries_found += 1;
                } else {
                    pass.errors += 1;
                    pass.first_error.get_or_insert(8 * word);
                }
            };
            let key = self.key(chunk);
            let visited = if self.zero {
                memory.check(words, |_| 0, other)?
            } else {
                memory.check(words, |word| pattern(key, word), other)?
            };
            pass.words_visited += visited;
            done(length)?;
        }
        Ok(pass)
    }

    /// Overwrites the planted errors and counts those that stay.
    fn mend(&self, memory: &mut impl Memory) -> io::Result<u64> {
        let places: Vec<_> =
            chunks(memory.size()).map(|(chunk, _, length)| 8 * self.canary(chunk, length / 8).0).collect();
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
    moved: u64,
    told: Instant,
    size: u64,
    progress: &'a mut P,
}

impl<P: FnMut(u64, u64) -> io::Result<()>> Meter<'_, P> {
    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.moved += bytes;
        if self.told.elapsed() >= REPORT {
            self.told = Instant::now();
            (self.progress)(self.moved / PASSES, self.size)?;
        }
        Ok(())
    }
}

/// A word of the pattern, under its chunk's key. Cheap enough to be made as fast as memory takes it: one multiplication
/// of 32 bits, which vectors have.
fn pattern(key: u64, word: u64) -> u64 {
    let place = (word & 0xffff_ffff).wrapping_mul(0x9e37_79b1).wrapping_add(key);
    place ^ place >> 29
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
