//! Every way in which a memory or its verification can lie, and the proof that it is seen.

use super::*;

const SIZE: u64 = 3 * CHUNK + 4096;

/// A memory with one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// None.
    Honest,
    /// Writes are lost.
    DropsWrites,
    /// The first pass is lost, the second lands: a check for zeros alone would pass.
    SkipsFill,
    /// Writes to one chunk are lost.
    SkipsChunk(u64),
    /// Two chunks are one memory.
    Aliases(u64, u64),
    /// There is less memory than it says, again and again: an address line that is not there.
    Wraps(u64),
    /// One bit is stuck at one.
    StuckBit(u64),
    /// Reads return without reading.
    ReadsNothing,
    /// Reads return what was expected, as a kernel that was launched and never ran would report.
    EchoesExpectation,
    /// Everything reads as zero.
    ReadsZero,
    /// The planted errors of the zero pass stay.
    DropsRepair,
}

struct Twin {
    bytes: Vec<u8>,
    lie: Lie,
    session: u32,
    last: Vec<(u64, Vec<u8>)>,
}

impl Twin {
    fn new(lie: Lie) -> Self {
        let bytes =
            b"a tenant's weights ".iter().copied().cycle().take(usize::try_from(SIZE).unwrap()).collect();
        Self { bytes, lie, session: 0, last: Vec::new() }
    }

    fn place(&self, offset: u64) -> usize {
        let chunk = offset / CHUNK;
        let at = match self.lie {
            Lie::Aliases(from, to) if chunk == from => to * CHUNK + offset % CHUNK,
            Lie::Wraps(size) => offset % size,
            _ => offset,
        };
        usize::try_from(at).unwrap()
    }
}

impl Memory for Twin {
    fn size(&self) -> u64 {
        SIZE
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.last.retain(|(at, _)| *at != offset);
        self.last.push((offset, bytes.to_vec()));
        let lost = match self.lie {
            Lie::DropsWrites => true,
            Lie::SkipsFill => self.session == 0,
            Lie::SkipsChunk(chunk) => offset / CHUNK == chunk,
            Lie::DropsRepair => self.session == 2,
            _ => false,
        };
        if !lost {
            for (word, bytes) in (offset..).step_by(8).zip(bytes.chunks_exact(8)) {
                let at = self.place(word);
                self.bytes[at..at + 8].copy_from_slice(bytes);
            }
        }
        if let Lie::StuckBit(at) = self.lie {
            self.bytes[usize::try_from(at).unwrap()] |= 1;
        }
        Ok(())
    }

    fn fence(&mut self) -> io::Result<()> {
        self.session += 1;
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.lie {
            Lie::ReadsNothing => {}
            Lie::ReadsZero => bytes.fill(0),
            Lie::EchoesExpectation => {
                // What stands there without the planted error: the word beside it, computed anew.
                let zero = self.session >= 2;
                let pass = if zero { Pass::zeros(NONCE) } else { Pass::pattern(NONCE) };
                for (word, slot) in (offset / 8..).zip(bytes.chunks_exact_mut(8)) {
                    slot.copy_from_slice(&pass.expected(word).to_le_bytes());
                }
            }
            _ => {
                for (word, slot) in (offset..).step_by(8).zip(bytes.chunks_exact_mut(8)) {
                    let at = self.place(word);
                    slot.copy_from_slice(&self.bytes[at..at + 8]);
                }
            }
        }
        Ok(())
    }
}

const NONCE: u64 = 0x0123_4567_89ab_cdef;

fn run(lie: Lie) -> (Scrub, Twin) {
    let mut twin = Twin::new(lie);
    let scrub = memory_of(&mut twin, NONCE, &mut |_, _| Ok(())).unwrap();
    (scrub, twin)
}

#[test]
fn an_honest_memory_is_zero_after_a_whole_scrub() {
    let (scrub, twin) = run(Lie::Honest);
    assert_eq!(scrub.gap(), None, "{scrub:?}");
    assert_eq!(scrub.chunks, 4);
    assert_eq!(scrub.bytes_written, 2 * SIZE);
    assert!(twin.bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn every_lie_is_found() {
    let lies = [
        Lie::DropsWrites,
        Lie::SkipsFill,
        Lie::SkipsChunk(0),
        Lie::SkipsChunk(3),
        Lie::Aliases(1, 2),
        Lie::Aliases(2, 0),
        Lie::StuckBit(0),
        Lie::StuckBit(SIZE - 8),
        Lie::ReadsNothing,
        Lie::EchoesExpectation,
        Lie::ReadsZero,
        Lie::DropsRepair,
    ];
    for lie in lies {
        let (scrub, _) = run(lie);
        let gap = scrub.gap();
        assert!(gap.is_some(), "{lie:?} passed: {scrub:?}");
        // A verification that echoes what is expected has no errors: only the planted ones give it away.
        if lie == Lie::EchoesExpectation {
            assert_eq!(scrub.pattern.errors + scrub.zero.errors, 0);
            assert!(gap.unwrap().contains("did not run whole"));
        }
    }
}

#[test]
fn memory_that_wraps_is_found_whatever_its_size() {
    for size in (3..22).map(|bit| 1 << bit) {
        let (scrub, _) = run(Lie::Wraps(size));
        assert!(scrub.pattern.errors > 0 && scrub.gap().is_some(), "{size} bytes passed: {scrub:?}");
    }
}

#[test]
fn the_offset_of_a_wrong_word_is_told_and_its_content_is_not() {
    let (scrub, _) = run(Lie::SkipsChunk(2));
    assert_eq!(scrub.pattern.first_error, Some(2 * CHUNK));
    let told = scrub.gap().unwrap();
    assert!(told.contains("0x200000") && !told.contains("weights"), "{told}");
}

#[test]
fn another_run_has_another_pattern_and_other_planted_errors() {
    let words = CHUNK / 8;
    let (one, other, zeros) = (Pass::pattern(1), Pass::pattern(2), Pass::zeros(1));
    assert!((0..words).all(|word| one.expected(word) != other.expected(word)));
    assert!((0..16).any(|chunk| one.canary(chunk, words).0 != other.canary(chunk, words).0));
    assert!((0..16).any(|chunk| one.canary(chunk, words).0 != zeros.canary(chunk, words).0));
}

#[test]
fn the_pattern_tells_places_apart_and_uses_every_bit() {
    let pass = Pass::pattern(NONCE);
    let words: std::collections::BTreeSet<_> = (0..1 << 12)
        .flat_map(|chunk| (0..64).map(move |at| pass.expected(chunk * (CHUNK / 8) + 2000 * at)))
        .collect();
    assert_eq!(words.len(), 1 << 18);
    for bit in 0..64 {
        let ones = words.iter().filter(|word| **word >> bit & 1 == 1).count();
        assert!((100_000..162_000).contains(&ones), "bit {bit}: {ones} ones of 262144");
    }
}

/// What a real BAR goes through, over a file.
#[test]
fn a_mapped_memory_is_scrubbed_and_what_is_wrong_in_it_is_found() {
    let root = tempfile::tempdir().unwrap();
    let function = mapped(root.path(), SIZE);
    let bar = Bar { index: 0, start: 1 << 40, size: SIZE, prefetchable: true, wide: true };
    let mut memory = MappedMemory::open(&function, bar).unwrap();
    let file = function.path("resource0");
    assert_eq!(std::fs::read_to_string(function.path("enable")).unwrap(), "1");

    let mut told = Vec::new();
    let scrub = memory_of(&mut memory, NONCE, &mut |done, of| {
        told.push((done, of));
        Ok(())
    });
    assert_eq!(scrub.unwrap().gap(), None);
    assert!(told.iter().all(|(done, of)| done <= of && *of == SIZE));
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0));

    let pass = Pass::pattern(NONCE);
    pass.fill(&mut memory, &mut |_| Ok(())).unwrap();
    let canary = 8 * pass.canary(2, CHUNK / 8).0;
    for (at, found) in [(0, 0), (2 * CHUNK + 24, 2 * CHUNK + 24), (SIZE - 8, SIZE - 8), (canary, canary)] {
        let whole = pass.check(&mut memory, &mut |_| Ok(())).unwrap();
        assert_eq!((whole.errors, whole.canaries_found, whole.words_visited), (0, 4, SIZE / 8));
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&file).unwrap();
        let mut word = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut word, at).unwrap();
        let spoilt = (u64::from_le_bytes(word) ^ 1 << 40).to_le_bytes();
        std::os::unix::fs::FileExt::write_all_at(&file, &spoilt, at).unwrap();
        let pass = pass.check(&mut memory, &mut |_| Ok(())).unwrap();
        assert_eq!((pass.errors, pass.first_error), (1, Some(found)));
        std::os::unix::fs::FileExt::write_all_at(&file, &word, at).unwrap();
    }
    drop(memory);
    assert_eq!(std::fs::read_to_string(function.path("enable")).unwrap(), "0");
}

#[test]
fn what_belongs_to_a_driver_is_held_and_not_broken() {
    let bar = Bar { index: 2, start: 1, size: 4096, prefetchable: true, wide: true };
    for (errno, code) in [
        (libc::EBUSY, Code::Driver),
        (libc::EINVAL, Code::Driver),
        (libc::EPERM, Code::Permission),
        (libc::EIO, Code::Io),
    ] {
        let failure = unmapped(bar, &io::Error::from_raw_os_error(errno));
        assert_eq!(failure.code, code);
        assert!(failure.text.contains("BAR2"), "{failure:?}");
    }
}

fn mapped(root: &std::path::Path, size: u64) -> Function {
    let function = Function::at(&Roots::below(root), "0000:04:00.0".parse().unwrap());
    std::fs::create_dir_all(function.folder()).unwrap();
    std::fs::File::create(function.path("resource0")).unwrap().set_len(size).unwrap();
    std::fs::hard_link(function.path("resource0"), function.path("resource0_wc")).unwrap();
    std::fs::File::create(function.path("enable")).unwrap();
    function
}

#[test]
fn memories_without_a_whole_word_are_no_proof() {
    let nothing = Scrub {
        size: 0,
        bytes_written: 0,
        chunks: 0,
        pattern: ScrubPass::default(),
        zero: ScrubPass::default(),
        canaries_left: 0,
    };
    assert!(nothing.gap().is_some());
}
