use std::fs::{self, File};
use std::path::Path;

use super::*;
use crate::types::Roots;

fn memory(root: &Path, size: u64) -> MappedMemory {
    let function = Function::at(&Roots::below(root), "0000:04:00.0".parse().unwrap());
    fs::create_dir_all(function.folder()).unwrap();
    File::create(function.path("resource0")).unwrap().set_len(size).unwrap();
    File::create(function.path("enable")).unwrap();
    let bar = Bar { index: 0, start: 1 << 40, size, prefetchable: true, wide: true };
    MappedMemory::open(&function, bar).unwrap()
}

fn same(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn words_are_where_bytes_are() {
    let root = tempfile::tempdir().unwrap();
    let mut memory = memory(root.path(), 1 << 16);
    // Whatever the alignment of their ends, and whatever is left over for no block.
    for (start, end) in [(0, 8192), (3, 4), (5, 77), (63, 65), (8, 136), (8191, 8192), (17, 17)] {
        memory.fill(0..8192, |_| 0).unwrap();
        memory.fill(start..end, same).unwrap();
        memory.fence().unwrap();
        let file = fs::read(
            Function::at(&Roots::below(root.path()), "0000:04:00.0".parse().unwrap()).path("resource0"),
        );
        let words: Vec<_> =
            file.unwrap().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let wanted = (0..8192).map(|number| if (start..end).contains(&number) { same(number) } else { 0 });
        assert!(words.iter().copied().eq(wanted), "{start}..{end}");

        let mut others = Vec::new();
        assert_eq!(memory.check(start..end, same, |number, _| others.push(number)).unwrap(), end - start);
        assert!(others.is_empty(), "{others:?}");
        memory
            .check(0..8192, |_| 0, |number, word| others.push(number + u64::from(word != same(number))))
            .unwrap();
        // Word 0 of the pattern is zero.
        assert!(others.into_iter().eq((start..end).filter(|number| *number != 0)));
    }
    memory.write(24, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut read = [0; 16];
    memory.read(24, &mut read).unwrap();
    assert_eq!(read[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_memory_larger_than_a_window_is_one_memory() {
    let root = tempfile::tempdir().unwrap();
    let mut memory = memory(root.path(), WINDOW + 4096);
    let edge = WINDOW / 8;
    memory.fill(edge - 100..edge + 100, same).unwrap();
    memory.fence().unwrap();
    let mut others = 0;
    assert_eq!(memory.check(edge - 100..edge + 100, same, |_, _| others += 1).unwrap(), 200);
    assert_eq!(memory.check(edge - 101..edge + 101, |_| 0, |_, _| others += 1).unwrap(), 202);
    assert_eq!(others, 200);
    let (mut before, mut after) = ([0; 8], [0; 8]);
    memory.read(WINDOW - 8, &mut before).unwrap();
    memory.read(WINDOW, &mut after).unwrap();
    assert_eq!((before, after), (same(edge - 1).to_le_bytes(), same(edge).to_le_bytes()));
}

#[test]
fn there_is_nothing_beyond_its_end() {
    let root = tempfile::tempdir().unwrap();
    let mut memory = memory(root.path(), 4096);
    assert!(memory.fill(500..513, same).is_err());
    assert!(memory.check(512..513, same, |_, _| {}).is_err());
    assert!(memory.read(4096, &mut [0; 8]).is_err());
    assert!(memory.write(u64::MAX - 7, &[0; 8]).is_err());
}

#[test]
fn a_function_that_cannot_be_enabled_is_not_mapped() {
    let root = tempfile::tempdir().unwrap();
    let function = Function::at(&Roots::below(root.path()), "0000:04:00.0".parse().unwrap());
    fs::create_dir_all(function.folder()).unwrap();
    File::create(function.path("resource0")).unwrap().set_len(4096).unwrap();
    let bar = Bar { index: 0, start: 1 << 40, size: 4096, prefetchable: true, wide: true };
    assert!(MappedMemory::open(&function, bar).is_err());
}
