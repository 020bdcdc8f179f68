//! What sysfs does and a folder cannot: errors, read-back, memory that nobody decodes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::thread;
use std::time::Duration;

use cleanslate::sim::{Counts, DeviceSpec, Fault};
use nix::errno::Errno;

use crate::Mount;
use crate::hangs::reader;
use crate::twin::{MEMORY, Twin, address, twin, until};

const COMMAND: u64 = 0x04;
const DEVICE_CONTROL: u64 = 0x68;

fn write(twin: &Twin, file: &str, text: &str) -> Result<(), Errno> {
    let written = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(twin.path(file))
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| errno(&error))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap())
}

#[test]
fn what_is_written_to_config_space_reads_back_at_once_through_its_masks() {
    let twin = twin("");
    let config = OpenOptions::new().read(true).write(true).open(twin.path("config")).unwrap();
    let word = |at| {
        let mut bytes = [0; 2];
        config.read_exact_at(&mut bytes, at).unwrap();
        u16::from_le_bytes(bytes)
    };
    for _ in 0..500 {
        for (value, reads) in [(0xffff_u16, 0x0547), (0x0000, 0x0000), (0x0400, 0x0400), (0x0006, 0x0006)] {
            config.write_all_at(&value.to_le_bytes(), COMMAND).unwrap();
            assert_eq!(word(COMMAND), reads, "{value:#x}");
        }
        // Two writes that leave what was there are two.
        config.write_all_at(&[0xff, 0xff], 0).unwrap();
        assert_eq!(word(0), 0x1234);
    }
    config.write_all_at(&[0x1f, 0xa8], DEVICE_CONTROL).unwrap();
    assert_eq!(word(0), 0xffff, "it does not answer from this very moment");
    assert_eq!(config.read_at(&mut [0; 8], 4096).unwrap(), 0);
    until("it answers", || word(0) == 0x1234);
    assert_eq!((word(DEVICE_CONTROL), twin.resets()), (0x2810, 1));
}

#[test]
fn a_write_that_the_kernel_refuses_has_its_error() {
    let twin = twin("");
    for (file, text, wanted) in [
        ("reset", "2", Errno::EINVAL),
        ("reset", "yes", Errno::EINVAL),
        ("reset_method", "flr,bus", Errno::EINVAL),
        ("reset_method", "FLR", Errno::EINVAL),
        ("reset_method", "cxl_bus", Errno::EINVAL),
        ("power/control", "off", Errno::EINVAL),
        ("d3cold_allowed", "maybe", Errno::EINVAL),
        ("vendor", "0x10de", Errno::EACCES),
        ("current_link_width", "32", Errno::EACCES),
    ] {
        assert_eq!(write(&twin, file, text), Err(wanted), "{file} {text:?}");
    }
    assert_eq!((twin.text("reset_method"), twin.resets()), ("flr bus\n".into(), 0), "and changes nothing");
    let unreadable = File::open(twin.path("reset")).unwrap_err();
    assert_eq!(errno(&unreadable), Errno::EACCES);
    let mode = fs::Permissions::from_mode(0o666);
    assert_eq!(errno(&fs::set_permissions(twin.path("reset"), mode).unwrap_err()), Errno::EPERM);

    for (text, reads) in
        [("bus\n", "bus\n"), ("bus flr", "bus flr\n"), ("default", "flr bus\n"), ("\n", "\n")]
    {
        write(&twin, "reset_method", text).unwrap();
        assert_eq!(twin.text("reset_method"), reads);
    }
    assert_eq!(write(&twin, "reset", "1"), Err(Errno::ENOTTY), "no method is left");
    write(&twin, "reset_method", "default").unwrap();
    write(&twin, "reset", "1\n").unwrap();
    write(&twin, "reset", "0x1").unwrap();
    assert_eq!(twin.resets(), 2);

    write(&twin, "enable", "0").unwrap();
    assert_eq!(twin.text("enable"), "0\n");
    twin.mount.bind(address(), Some("nvme")).unwrap();
    assert_eq!(write(&twin, "enable", "1"), Err(Errno::EBUSY), "it belongs to a driver");
    twin.set(Some(Fault::Busy));
    assert_eq!(write(&twin, "reset", "1"), Err(Errno::EBUSY));
    assert_eq!(twin.resets(), 2);
}

#[test]
fn a_mount_that_is_read_only_takes_no_write() {
    let root = tempfile::tempdir().unwrap();
    let mount = Mount::read_only(root.path(), vec![DeviceSpec::new(address())]).unwrap();
    let twin = Twin { mount, root };
    assert_eq!(twin.config().len(), 4096);
    for file in ["reset", "reset_method", "config"] {
        assert_eq!(write(&twin, file, "1"), Err(Errno::EROFS), "{file}");
    }
}

/// The kernel serializes them, and each has its own reset.
#[test]
fn every_writer_has_a_reset_of_its_own() {
    let twin = twin(",reset_ms=20");
    let writers: Vec<_> = (0..8).map(|_| twin.path("reset")).collect();
    thread::scope(|scope| {
        writers.iter().for_each(|path| drop(scope.spawn(|| crate::twin::reset(path))));
    });
    assert_eq!(twin.resets(), 8);
    let file = OpenOptions::new().write(true).open(twin.path("reset")).unwrap();
    file.write_all_at(b"1", 0).unwrap();
    file.write_all_at(b"1", 0).unwrap();
    assert_eq!(twin.resets(), 10, "through one open file too");
}

#[test]
fn memory_of_a_device_that_is_dead_or_decodes_nothing_reads_all_ones_and_takes_no_write() {
    let twin = twin("");
    twin.mount.leave(address(), 0, b"secret").unwrap();
    let memory = || fs::read(twin.path("resource0")).unwrap();
    let is_out_of_reach = || {
        twin.session(7);
        memory() == [0xff; MEMORY] && twin.mount.memory(address()).unwrap().starts_with(b"secret\0")
    };
    twin.set(Some(Fault::Dead));
    assert!(is_out_of_reach());
    twin.set(Some(Fault::BarsLost));
    twin.reset();
    assert!(is_out_of_reach());
    twin.set(None);
    let config = OpenOptions::new().write(true).open(twin.path("config")).unwrap();
    config.write_all_at(&[0x04, 0x00], COMMAND).unwrap();
    assert!(is_out_of_reach(), "memory decoding is off");
    config.write_all_at(&[0x06, 0x00], COMMAND).unwrap();
    assert!(memory().starts_with(b"secret\0"));
    assert_eq!(twin.counts(), Counts { resets: 1, scrubs: 0 });
}

#[test]
fn an_open_file_of_a_device_that_is_gone_stays_dead() {
    let twin = twin(",fault=hang-reset");
    let config = OpenOptions::new().read(true).write(true).open(twin.path("config")).unwrap();
    let vendor = File::open(twin.path("vendor")).unwrap();
    let mut writer = twin.writer();
    let mut reading = reader(&twin);
    thread::park_timeout(Duration::from_millis(100));
    let dead = || {
        let mut bytes = [0; 4];
        for result in [config.read_at(&mut bytes, 0), config.write_at(&[0], 4), vendor.read_at(&mut bytes, 0)]
        {
            assert_eq!(errno(&result.unwrap_err()), Errno::ENODEV);
        }
    };
    twin.mount.remove(address()).unwrap();
    assert!(!writer.wait().unwrap().success() && !reading.wait().unwrap().success(), "both are told at once");
    dead();
    assert!(!twin.path("config").exists());

    let other = crate::twin::twin("");
    let config = OpenOptions::new().read(true).open(other.path("config")).unwrap();
    other.mount.replace(address(), 0xbeef).unwrap();
    assert_eq!(errno(&config.read_at(&mut [0; 4], 0).unwrap_err()), Errno::ENODEV);
    assert_eq!(&other.config()[0x144..0x14c], 0xbeef_u64.to_le_bytes());
    dead();
}

#[test]
fn memory_lies_as_its_fault_says() {
    let twin = twin("");
    let write = || {
        let ones: Vec<u8> = (0..MEMORY).map(|at| u8::try_from(at / (MEMORY / 4)).unwrap()).collect();
        let file = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
        file.write_all_at(&ones, 0).unwrap();
        drop(file);
        fs::read(twin.path("resource0")).unwrap()
    };
    let quarters = |bytes: &[u8]| [0, 1, 2, 3].map(|quarter| bytes[quarter * MEMORY / 4 + 1]);
    assert_eq!(quarters(&write()), [0, 1, 2, 3]);
    twin.set(Some(Fault::Alias));
    assert_eq!(quarters(&write()), [2, 3, 2, 3]);
    twin.set(Some(Fault::StuckBit));
    let stuck = write();
    assert_eq!((stuck[MEMORY / 2], quarters(&stuck)), (2 | 8, [0, 1, 2, 3]));
    twin.session(0xff);
    twin.set(Some(Fault::SkipChunk));
    assert_eq!(quarters(&write()), [0, 1, 2, 0xff]);
}
