//! A mapped piece of a file, which may be a device's memory: the only place that speaks to memory by address.
//!
//! Words are written by streaming stores, which fill a write-combining buffer and never wait for a read of what they
//! replace, and read by volatile loads as wide as a vector: on an uncached mapping each is one transaction. Both are
//! compiled twice on x86-64, the second time for AVX2, which makes the words in half the time.
#![allow(unsafe_code, reason = "mapped memory, device memory at that, has no safe interface")]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Words that are read before they are compared.
const BLOCK: usize = 64;
/// Bytes of a line of the write-combining buffer; the mapping's start is aligned to it.
const LINE: usize = 64;

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u64>,
    length: NonZeroUsize,
}

impl Map {
    /// Maps `length` bytes of a file from `offset`, which is a multiple of a page.
    pub(super) fn new(file: &File, offset: u64, length: u64, writable: bool) -> io::Result<Self> {
        let length = usize::try_from(length).ok().and_then(NonZeroUsize::new).ok_or_else(outside)?;
        let offset = offset.try_into().map_err(io::Error::other)?;
        let access =
            if writable { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        // SAFETY: without an address and without MAP_FIXED the kernel takes a place where nothing is, so no memory
        // that Rust knows of changes. The mapping is only reached through this value, by volatile or streaming access.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(Self { start: start.cast(), length })
    }

    /// Writes words from byte `at`, which is a multiple of 8.
    pub(super) fn fill(&mut self, at: usize, words: Range<u64>, word: impl Fn(u64) -> u64) -> io::Result<()> {
        let to = self.place(at, &words)?.as_ptr();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; `place` has found all of the words inside the mapping.
            unsafe { fill_avx2(to, words, word) };
            return Ok(());
        }
        // SAFETY: `place` has found all of the words inside the mapping.
        unsafe { fill_plain(to, words, word) };
        Ok(())
    }

    /// Reads words from byte `at`, which is a multiple of 8, and tells of those that are other; how many it has read.
    pub(super) fn check(
        &self,
        at: usize,
        words: Range<u64>,
        expected: impl Fn(u64) -> u64,
        other: &mut impl FnMut(u64, u64),
    ) -> io::Result<u64> {
        let from = self.place(at, &words)?.as_ptr();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; `place` has found all of the words inside the mapping.
            return Ok(unsafe { check_avx2(from, words, expected, other) });
        }
        // SAFETY: `place` has found all of the words inside the mapping.
        Ok(unsafe { check_words::<Vector>(from, words, expected, other) })
    }

    /// The word at byte `at`, which is a multiple of 8.
    pub(super) fn word(&self, at: usize) -> io::Result<u64> {
        let from = self.place(at, &(0..1))?;
        // SAFETY: `place` has found the word inside the mapping, and aligned.
        Ok(u64::from_le(unsafe { from.read_volatile() }))
    }

    /// Orders all streaming stores before whatever comes later.
    pub(super) fn fence() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Where these words are, if all of them are here.
    fn place(&self, at: usize, words: &Range<u64>) -> io::Result<NonNull<u64>> {
        let count = words.end.checked_sub(words.start).and_then(|count| usize::try_from(count).ok());
        let end = count.and_then(|count| count.checked_mul(8)).and_then(|bytes| bytes.checked_add(at));
        if !at.is_multiple_of(8) || end.is_none_or(|end| end > self.length.get()) {
            return Err(outside());
        }
        // SAFETY: `at` is not beyond the mapping's end, as was just seen.
        Ok(unsafe { self.start.byte_add(at) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping as it was made, and nothing can reach it any more.
        let _ = unsafe { munmap(self.start.cast(), self.length.get()) };
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "beyond the mapping")
}

/// The words of a line.
type Words = [u64; LINE / 8];

/// What a vector of the oldest x86-64 processor holds, else a word.
#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Vector = u64;

/// # Safety
/// The processor has AVX2, and there are that many aligned words at `to` that can be written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fill_avx2(to: *mut u64, words: Range<u64>, word: impl Fn(u64) -> u64) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    let stream = |to: *mut u64, line: &Words| {
        for (index, half) in line.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: the line is there, and aligned; `Map::fence` orders its stores for later reads.
            unsafe {
                _mm256_stream_si256(
                    to.cast::<__m256i>().add(index),
                    _mm256_loadu_si256(half.as_ptr().cast()),
                );
            };
        }
    };
    // SAFETY: the caller's.
    unsafe { fill_words(to, words, word, stream) }
}

/// # Safety
/// There are that many aligned words at `to` that can be written.
unsafe fn fill_plain(to: *mut u64, words: Range<u64>, word: impl Fn(u64) -> u64) {
    let stream = |to: *mut u64, line: &Words| {
        #[cfg(target_arch = "x86_64")]
        for (index, pair) in line.as_chunks::<2>().0.iter().enumerate() {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            // SAFETY: the line is there, and aligned; `Map::fence` orders its stores for later reads.
            unsafe {
                _mm_stream_si128(to.cast::<__m128i>().add(index), _mm_loadu_si128(pair.as_ptr().cast()));
            };
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (index, word) in line.iter().enumerate() {
            // SAFETY: the line is there.
            unsafe { to.add(index).write_volatile(*word) };
        }
    };
    // SAFETY: the caller's.
    unsafe { fill_words(to, words, word, stream) }
}

/// # Safety
/// There are that many aligned words at `to` that can be written; `stream` writes a line's where it is told.
#[inline(always)]
unsafe fn fill_words(
    mut to: *mut u64,
    words: Range<u64>,
    word: impl Fn(u64) -> u64,
    stream: impl Fn(*mut u64, &Words),
) {
    let Range { mut start, end } = words;
    let mut line: Words = [0; _];
    while start < end {
        let written = if to.addr().is_multiple_of(LINE) && end - start >= line.len() as u64 {
            for (number, slot) in (start..).zip(&mut line) {
                *slot = word(number).to_le();
            }
            stream(to, &line);
            line.len()
        } else {
            // SAFETY: there is a word at `to`.
            unsafe { to.write_volatile(word(start).to_le()) };
            1
        };
        // SAFETY: behind what was written, at most at the end of what is there.
        to = unsafe { to.add(written) };
        start += written as u64;
    }
}

/// # Safety
/// The processor has AVX2, and there are that many aligned words at `from` that can be read.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn check_avx2(
    from: *const u64,
    words: Range<u64>,
    expected: impl Fn(u64) -> u64,
    other: &mut impl FnMut(u64, u64),
) -> u64 {
    // SAFETY: the caller's.
    unsafe { check_words::<std::arch::x86_64::__m256i>(from, words, expected, other) }
}

/// # Safety
/// There are that many aligned words at `from` that can be read; `V` is a plain vector that divides a line.
#[inline(always)]
unsafe fn check_words<V>(
    mut from: *const u64,
    words: Range<u64>,
    expected: impl Fn(u64) -> u64,
    other: &mut impl FnMut(u64, u64),
) -> u64 {
    let Range { mut start, end } = words;
    let mut visited = 0;
    let mut block = [0; BLOCK];
    while start < end {
        let read = if from.addr().is_multiple_of(LINE) && end - start >= BLOCK as u64 {
            // SAFETY: there are a block's words at `from`, the first of a line, hence aligned for vectors.
            unsafe { load::<V>(from, &mut block) };
            BLOCK
        } else {
            // SAFETY: there is a word at `from`.
            block[0] = unsafe { from.read_volatile() };
            1
        };
        let numbered = (start..).zip(&block[..read]);
        let differ = numbered.clone().fold(0, |bits, (number, word)| bits | word.to_le() ^ expected(number));
        if differ != 0 {
            let wrong = numbered.filter(|(number, word)| word.to_le() != expected(*number));
            wrong.for_each(|(number, word)| other(number, word.to_le()));
        }
        // SAFETY: behind what was read, at most at the end of what is there.
        from = unsafe { from.add(read) };
        start += read as u64;
        visited += read as u64;
    }
    visited
}

/// Reads a block, a vector at a time, each exactly once.
///
/// # Safety
/// There are a block's words at `from`, aligned for `V`, which is a plain vector that divides a block.
#[inline(always)]
unsafe fn load<V>(from: *const u64, block: &mut [u64; BLOCK]) {
    let to = block.as_mut_ptr().cast::<V>();
    for index in 0..size_of::<[u64; BLOCK]>() / size_of::<V>() {
        // SAFETY: as many vectors as the block has; the block itself need not be aligned for them.
        unsafe { to.add(index).write_unaligned(from.cast::<V>().add(index).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor without AVX2 does the same.
    #[test]
    fn both_builds_write_and_read_the_same() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let mut map = Map::new(&file, 0, 4096, true).unwrap();
        let word = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (first, last) in [(0, 512), (5, 133), (7, 300)] {
            let at = usize::try_from(8 * first).unwrap();
            let start = map.place(at, &(first..last)).unwrap().as_ptr();
            let mut others = Vec::new();
            // SAFETY: `place` has found all of the words inside the mapping.
            unsafe { fill_plain(start, first..last, word) };
            map.check(at, first..last, word, &mut |number, _| others.push(number)).unwrap();
            assert!(others.is_empty(), "{others:?}");
            map.fill(at, first..last, |number| !word(number)).unwrap();
            // SAFETY: as above.
            let visited = unsafe {
                check_words::<Vector>(start, first..last, |number| !word(number), &mut |number, _| {
                    others.push(number);
                })
            };
            assert_eq!((visited, &others[..]), (last - first, &[][..]));
            // SAFETY: as above.
            unsafe { check_words::<Vector>(start, first..last, word, &mut |number, _| others.push(number)) };
            assert!(others.into_iter().eq(first..last));
        }
    }
}
