//! Bytes in, bytes out; the recipe as a whole is tried on a twin in `tests/flr.rs`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::*;
use crate::types::Roots;

/// A configuration space with every capability that we know something of, none enabled.
struct Space(Vec<u8>);

const CAPABILITIES: [(u8, usize); 6] =
    [(0x01, 0x40), (0x03, 0x48), (0x05, 0x50), (0x10, 0x70), (0x11, 0xb0), (0x13, 0xc0)];
const EXTENDED: [(u16, usize); 19] = [
    (0x01, 0x100),
    (0x03, 0x140),
    (0x04, 0x150),
    (0x0d, 0x160),
    (0x0f, 0x170),
    (0x10, 0x180),
    (0x13, 0x1c0),
    (0x15, 0x1d0),
    (0x17, 0x200),
    (0x18, 0x210),
    (0x19, 0x220),
    (0x1b, 0x230),
    (0x1e, 0x240),
    (0x1f, 0x250),
    (0x24, 0x260),
    (0x26, 0x290),
    (0x2a, 0x2c0),
    (0x2e, 0x2e0),
    (0x2f, 0x300),
];

impl Space {
    fn whole() -> Self {
        let mut space = Self(vec![0; 4096]);
        space.put(0x00, &[0x34, 0x12, 0xea, 0xc1]);
        space.put(0x06, &[0x10, 0x00]);
        space.put(0x34, &[0x40]);
        for (index, (id, at)) in CAPABILITIES.iter().enumerate() {
            let next = CAPABILITIES.get(index + 1).map_or(0, |(_, next)| u8::try_from(*next).unwrap());
            space.put(*at, &[*id, next]);
        }
        for (index, (id, at)) in EXTENDED.iter().enumerate() {
            let next = EXTENDED.get(index + 1).map_or(0, |(_, next)| u32::try_from(*next).unwrap());
            space.put(*at, &(next << 20 | 1 << 16 | u32::from(*id)).to_le_bytes());
        }
        // MSI: wide, maskable; express: version 2, capable of the reset; advanced features too; two resizable BARs.
        space.put(0x52, &[0x80, 0x01]);
        space.put(0x72, &[0x02, 0x00]);
        space.put(0x74, &(1_u32 << 28).to_le_bytes());
        space.put(0xc3, &[0b11]);
        space.put(0x1d8, &[2 << 5]);
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    fn without_express_reset(self) -> Self {
        self.with(0x74, &[0; 4])
    }

    fn config(&self) -> ConfigSpace {
        ConfigSpace::from_bytes(self.0.clone()).unwrap()
    }
}

/// Attributes by name.
type Files<'a> = &'a [(&'a str, &'a [u8])];

fn captured(tree: &str) -> ConfigSpace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs");
    ConfigSpace::from_bytes(fs::read(folder.join(tree).join("0000:04:00.0/config")).unwrap()).unwrap()
}

fn put_file(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    File::create(path).unwrap().write_all(content).unwrap();
}

/// A function of files.
fn function(root: &Path, files: Files<'_>) -> Function {
    let function = Function::at(&Roots::below(root), "0000:04:00.0".parse().unwrap());
    files.iter().for_each(|(name, content)| put_file(&function.path(name), content));
    function
}

/// An NVMe function before, and after a reset by its bit of Device Control that nobody had restored, both as Linux
/// showed them.
#[test]
fn what_a_real_reset_took_is_seen_and_written_back() {
    let (before, after) = (captured("01-boot-unbound"), captured("07-raw-flr-not-restored"));
    let told = compare::differences(&before, &after).unwrap();
    assert_eq!(
        told,
        "0x004 was 0x00100107 and is 0x00100000, 0x010 was 0xfe200004 and is 0x00000004, \
         0x020 was 0xf400000c and is 0x0000000c, 0x03c was 0x0000010b and is 0x00000100"
    );
    let root = tempfile::tempdir().unwrap();
    let function = function(root.path(), &[("config", after.bytes())]);
    let registers = Registers::open(&function).unwrap();
    assert_eq!(restore::write_back(&registers, &before, false).unwrap(), 4);
    let restored = ConfigSpace::read(&function).unwrap();
    assert_eq!(restored.bytes(), before.bytes());
    assert_eq!(restore::write_back(&registers, &before, false).unwrap(), 0, "nothing is written twice");
}

#[test]
fn the_order_is_that_of_the_recipe() {
    let before = Space::whole().config();
    let (express, msi) = (0x70, 0x50);
    let wanted = [
        vec![express + 0x08, express + 0x10, express + 0x28, express + 0x30],
        vec![0x1d8, 0x1e0, 0x176, 0x236, 0x1cc, 0x1c4, 0x214, 0x166, 0x108, 0x10c, 0x114, 0x118],
        vec![0x24c, 0x248, 0x258, 0x208, 0x308],
        vec![0x1a0, 0x1a4, 0x1a8, 0x1ac, 0x1b0, 0x1b4, 0x1b8, 0x190, 0x188, 0x44],
        (0x10..0x40).step_by(4).rev().collect(),
        vec![0x0c, msi + 0x04, msi + 0x08, msi + 0x0c, msi + 0x10, msi + 0x02, 0xb2, 0x04],
    ]
    .concat();
    assert_eq!(restore::places(&before), wanted);
}

#[test]
fn the_first_version_of_the_express_capability_ends_early() {
    let places = restore::places(&Space::whole().with(0x72, &[0x01, 0x00]).config());
    assert_eq!(places[..3], [0x78, 0x80, 0x1d8]);
    let integrated = restore::places(&Space::whole().with(0x72, &[0x92, 0x00]).config());
    assert_eq!(integrated[..3], [0x78, 0x98, 0x1d8], "no link");
}

/// Each of the 32,768 bits flipped: the ones that may be other are these and no others.
#[test]
fn every_bit_counts_but_for_the_exceptions() {
    let space = Space::whole();
    let before = space.config();
    let mut free = Vec::new();
    for at in (0..4096).step_by(4) {
        let mut bits = 0_u32;
        for bit in 0..32 {
            let mut other = Space(space.0.clone());
            other.0[at + bit / 8] ^= 1 << (bit % 8);
            if compare::differences(&before, &other.config()).is_none() {
                bits |= 1 << bit;
            }
        }
        if bits != 0 {
            free.push((at, bits));
        }
    }
    let exceptions = [
        (0x004, 0xf908_0000),
        (0x044, 0x0000_8000),
        (0x048, 0xffff_0000),
        (0x04c, 0xffff_ffff),
        (0x078, 0x006f_0000),
        (0x080, 0xffff_0000),
        (0x0a0, 0xffff_0000),
        (0x104, 0xffff_ffff),
        (0x110, 0xffff_ffff),
        (0x118, 0x0000_081f),
        (0x11c, 0xffff_ffff),
        (0x120, 0xffff_ffff),
        (0x124, 0xffff_ffff),
        (0x128, 0xffff_ffff),
        (0x154, 0x0000_00ff),
        (0x158, 0xffff_ffff),
        (0x188, 0x0001_0000),
        (0x1c4, 0x0103_0000),
        (0x228, 0xffff_ffff),
        (0x29c, 0xffff_ffff),
        (0x2a0, 0xffff_ffff),
        (0x2a4, 0xffff_ffff),
        (0x2a8, 0xffff_ffff),
        (0x2cc, 0xffff_ffff),
        (0x2ec, 0xffff_ffff),
    ];
    assert_eq!(free, exceptions);
    let first_version = space.with(0x72, &[0x01, 0x00]);
    let other = Space(first_version.0.clone()).with(0xa2, &[1]);
    assert!(compare::differences(&first_version.config(), &other.config()).is_some(), "no Link Status 2");
}

#[test]
fn a_function_is_reset_by_us_only_where_nothing_is_in_the_way() {
    let root = tempfile::tempdir().unwrap();
    let way_of = |space: &Space, files: Files<'_>| {
        let _ = fs::remove_dir_all(root.path().join("sys"));
        way(&function(root.path(), files), &space.config())
    };
    let flr: (&str, &[u8]) = ("reset_method", b"flr bus\n");
    let express = Way::Express { control: 0x78, status: 0x7a };
    assert_eq!(way_of(&Space::whole(), &[flr]), Ok(express));
    assert_eq!(way_of(&Space::whole(), &[flr, ("sriov_numvfs", b"0\n")]), Ok(express));
    let advanced: (&str, &[u8]) = ("reset_method", b"af_flr\n");
    assert_eq!(
        way_of(&Space::whole().without_express_reset(), &[advanced]),
        Ok(Way::Advanced { control: 0xc4, status: 0xc5 })
    );
    let refusals: &[(Space, Files<'_>, &str)] = &[
        (Space::whole(), &[], "does not trust its flr (reset_method \"\")"),
        (Space::whole(), &[("reset_method", b"bus\n")], "does not trust its flr (reset_method \"bus\")"),
        (Space::whole(), &[("reset_method", b"device_specific flr\n")], "a reset of its own for this model"),
        (Space::whole().without_express_reset(), &[flr], "does not trust its af_flr"),
        (Space::whole().without_express_reset().with(0xc3, &[0b01]), &[flr], "no function level reset"),
        (Space::whole().with(0x0e, &[0x81]), &[flr], "header type 1 is no endpoint's"),
        (Space::whole(), &[flr, ("physfn", b"")], "virtual function"),
        (Space::whole().with(0x177, &[0x80]), &[flr], "(ATS) is on"),
        (Space::whole().with(0x188, &[0x01]), &[flr], "virtual functions enabled"),
        (Space::whole(), &[flr, ("sriov_numvfs", b"2\n")], "virtual functions enabled"),
        (Space::whole().with(0x300, &[0x23, 0x00, 0x01, 0x00, 0x98, 0x1e]), &[flr], "CXL"),
        (Space::whole().with(0x44, &[0x03]), &[flr], "sleeps in D3"),
    ];
    for (space, files, why) in refusals {
        let told = way_of(space, files).unwrap_err();
        assert!(told.contains(why), "{told:?} for {why:?}");
    }
}

/// A register that holds ones is no sign by itself; together with the ids it is.
#[test]
fn nothing_is_written_back_to_a_function_that_went_away() {
    let before = Space::whole().with(0x10, &[0x0c, 0, 0, 0xf4]).config();
    let ones = Space::whole().with(0x30, &[0xff; 4]);
    for (now, written) in [(Space(vec![0xff; 4096]), None), (ones.with(0x0c, &[0xff; 4]), Some(3))] {
        let root = tempfile::tempdir().unwrap();
        let function = function(root.path(), &[("config", &now.0)]);
        let result = restore::write_back(&Registers::open(&function).unwrap(), &before, true);
        match written {
            Some(written) => assert_eq!(result.unwrap(), written),
            None => {
                assert!(matches!(result, Err(NotReset::Unread(Unread::Lost))), "{result:?}");
                assert!(fs::read(function.path("config")).unwrap() == now.0, "it was written to");
            }
        }
    }
}

/// Uncorrectable Error Status is cleared by ones: what is written is what was logged, and only where that is ours.
#[test]
fn logged_errors_are_cleared_where_they_are_ours() {
    let before = Space::whole().with(0x104, &[0x00, 0x40, 0x00, 0x00]).config();
    for (ours, written) in [(false, [0; 4]), (true, [0x00, 0x40, 0x00, 0x00])] {
        let root = tempfile::tempdir().unwrap();
        let function = function(root.path(), &[("config", &Space::whole().0)]);
        restore::write_back(&Registers::open(&function).unwrap(), &before, ours).unwrap();
        assert_eq!(&fs::read(function.path("config")).unwrap()[0x104..0x108], written);
    }
}
