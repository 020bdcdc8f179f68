//! The same for a scrub, by running one that leaves the check out: careless in the way in which real ones have been.

use std::io;

use cleanslate::pci::bar::{self, FileMemory, Memory};
use cleanslate::pci::sysfs::Function;
use cleanslate::proof::verdict::of_scrub;
use cleanslate::sim::Fault;
use cleanslate::steps::scrub::{Pass, memory_of};
use cleanslate::types::{Scrub, ScrubPass};

use super::walk::{MEMORY, Stage, address};

const CHUNKS: u64 = MEMORY >> 20;

/// A part of a memory, as if it were all.
struct Window<'a> {
    of: &'a mut FileMemory,
    start: u64,
    size: u64,
}

impl Memory for Window<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.of.write(self.start + offset, bytes)
    }

    fn fence(&mut self) -> io::Result<()> {
        self.of.fence()
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.of.read(self.start + offset, bytes)
    }
}

fn open(stage: &Stage) -> FileMemory {
    let function = Function::at(&stage.bench.roots, address());
    FileMemory::open(&function, bar::bars(&function).unwrap()[0]).unwrap()
}

fn whole(memory: &mut impl Memory) -> Scrub {
    memory_of(memory, 7, &mut |_, _| Ok(())).unwrap()
}

/// Claims to be about all of the memory.
fn boast(scrub: &Scrub) -> Scrub {
    let pass =
        |pass: &ScrubPass| ScrubPass { words_visited: MEMORY / 8, canaries_found: CHUNKS, ..pass.clone() };
    Scrub {
        size: MEMORY,
        bytes_written: 2 * MEMORY,
        chunks: CHUNKS,
        pattern: pass(&scrub.pattern),
        zero: pass(&scrub.zero),
        canaries_left: scrub.canaries_left,
    }
}

/// Looks for zeros at the end only, and counts no planted errors.
fn looks_for_zeros(memory: &mut FileMemory) -> Scrub {
    let (pattern, zero) = (Pass::pattern(7), Pass::zeros(7));
    let mut done = |_| Ok(());
    pattern.fill(memory, &mut done).unwrap();
    zero.fill(memory, &mut done).unwrap();
    let pass = zero.check(memory, &mut done).unwrap();
    boast(&Scrub {
        size: 0,
        bytes_written: 0,
        chunks: 0,
        pattern: pass.clone(),
        zero: pass,
        canaries_left: 0,
    })
}

/// Fills and checks one half after the other.
fn by_halves(memory: &mut FileMemory) -> Scrub {
    let size = MEMORY / 2;
    let lower = whole(&mut Window { of: memory, start: 0, size });
    lower.and(&whole(&mut Window { of: memory, start: size, size }))
}

/// Leaves out the last part, from the middle on or less.
fn but_for_the_end(memory: &mut FileMemory, size: u64) -> Scrub {
    boast(&whole(&mut Window { of: memory, start: 0, size }))
}

#[tokio::test]
async fn a_careless_scrub_lets_each_fault_pass() {
    type Careless = fn(&mut FileMemory) -> Scrub;
    let cases: [(Fault, &str, Careless); 5] = [
        (Fault::DropWrites, "no pattern checked, no planted errors counted", looks_for_zeros),
        (Fault::SkipFill, "no pattern checked", looks_for_zeros),
        (Fault::Alias, "checked before everything was filled", by_halves),
        (Fault::SkipChunk, "not every chunk visited", |memory| but_for_the_end(memory, MEMORY / 4 * 3)),
        (Fault::StuckBit, "not every word visited", |memory| but_for_the_end(memory, MEMORY / 2)),
    ];
    for (fault, careless_how, careless) in cases {
        if fault.needs_fuse() && !crate::IS_FUSE {
            continue;
        }
        let stage = Stage::set().await;
        stage.mount.set_fault(address(), Some(fault)).unwrap();
        let found = of_scrub(&whole(&mut open(&stage)));
        assert!(!found.is_good(), "{fault:?}");
        // Anew, and as careless as said.
        let stage = Stage::set().await;
        stage.mount.set_fault(address(), Some(fault)).unwrap();
        let missed = of_scrub(&careless(&mut open(&stage)));
        assert!(missed.is_good(), "{fault:?}, {careless_how}: {missed:?}");
        println!("{fault:?}: found ({found:?}); {careless_how}: passes");
    }
}
