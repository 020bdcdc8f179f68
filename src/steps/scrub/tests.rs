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
            let at = self.place(offset);
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
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
                let pass = Pass { nonce: if zero { mix(NONCE) } else { NONCE }, zero };
                for (word, slot) in (offset / 8..).zip(bytes.chunks_exact_mut(8)) {
                    slot.copy_from_slice(&pass.expected(word).to_le_bytes());
                }
            }
            _ => {
                let at = self.place(offset);
                bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
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
fn the_offset_of_a_wrong_word_is_told_and_its_content_is_not() {
    let (scrub, _) = run(Lie::SkipsChunk(2));
    assert_eq!(scrub.pattern.first_error, Some(2 * CHUNK));
    let told = scrub.gap().unwrap();
    assert!(told.contains("0x200000") && !told.contains("weights"), "{told}");
}

#[test]
fn another_run_has_another_pattern_and_other_planted_errors() {
    let (one, other) = (Pass { nonce: 1, zero: false }, Pass { nonce: 2, zero: false });
    assert!((0..64).all(|word| one.expected(word) != other.expected(word)));
    assert!((0..16).any(|chunk| one.canary(chunk, CHUNK / 8).0 != other.canary(chunk, CHUNK / 8).0));
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
