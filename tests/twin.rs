//! The folder twin is what other tests trust; here it is tested itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cleanslate::sim::{Counts, DeviceSpec, Fault, Folder};
use cleanslate::types::PciAddress;

const MEMORY: usize = 64 << 10;

struct Twin {
    folder: Folder,
    root: tempfile::TempDir,
}

fn address() -> PciAddress {
    "0000:3b:00.0".parse().unwrap()
}

fn twin(fields: &str) -> Twin {
    let root = tempfile::tempdir().unwrap();
    let spec: DeviceSpec = format!("0000:3b:00.0,memory={MEMORY}{fields}").parse().unwrap();
    Twin { folder: Folder::create(root.path(), vec![spec]).unwrap(), root }
}

impl Twin {
    fn path(&self, file: &str) -> PathBuf {
        self.folder.roots().pci_device(address()).join(file)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn config(&self) -> Vec<u8> {
        fs::read(self.path("config")).unwrap()
    }

    fn counts(&self) -> Counts {
        self.folder.counts(address()).unwrap()
    }

    fn resets(&self) -> u32 {
        self.counts().resets
    }

    /// Writes `1` to `reset`; how long that took.
    fn reset(&self) -> Duration {
        reset(&self.path("reset"))
    }

    fn session(&self, byte: u8) {
        let file = OpenOptions::new().write(true).open(self.path("resource0_wc")).unwrap();
        file.write_all_at(&[byte; MEMORY], 0).unwrap();
    }

    fn set(&self, fault: Option<Fault>) {
        self.folder.set_fault(address(), fault).unwrap();
    }
}

fn reset(path: &PathBuf) -> Duration {
    let begun = Instant::now();
    OpenOptions::new().write(true).open(path).unwrap().write_all(b"1").unwrap();
    begun.elapsed()
}

/// A writer in a process of its own, blocked by the time this returns.
fn blocked_writer(twin: &Twin) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "exec 3>\"$1\"; echo opened; printf 1 >&3; echo written", "sh"])
        .arg(twin.path("reset"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "opened\n");
    child
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}

#[test]
fn a_writer_waits_until_the_reset_is_done() {
    let twin = twin(",reset_ms=100");
    let took = twin.reset();
    let recorded = fs::read_to_string(twin.root.path().join("counts.json")).unwrap();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert_eq!(recorded, r#"{"0000:3b:00.0":{"resets":1,"scrubs":0}}"#);
    assert_eq!(twin.resets(), 1);
}

#[test]
fn each_of_many_writers_waits_for_its_own_reset() {
    let twin = twin(",reset_ms=2");
    for resets in 1..=200 {
        assert!(twin.reset() >= Duration::from_millis(2));
        assert_eq!(twin.resets(), resets);
    }
}

#[test]
fn writers_at_once_all_get_through_and_none_early() {
    let twin = twin(",reset_ms=5");
    for _ in 0..20 {
        let paths: Vec<_> = (0..8).map(|_| twin.path("reset")).collect();
        let before = twin.resets();
        let writers: Vec<_> = paths.into_iter().map(|path| thread::spawn(move || reset(&path))).collect();
        for writer in writers {
            assert!(writer.join().unwrap() >= Duration::from_millis(5));
        }
        let resets = twin.resets() - before;
        assert!((1..=8).contains(&resets), "{resets}");
    }
}

#[test]
fn devices_reset_side_by_side() {
    let root = tempfile::tempdir().unwrap();
    let spec = |n: u32| format!("0000:0{n}:00.0,memory=4096,reset_ms=200").parse().unwrap();
    let folder = Folder::create(root.path(), (0..8).map(spec).collect()).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        for n in 0..8 {
            let path = folder.roots().pci_device(spec(n).address).join("reset");
            scope.spawn(move || reset(&path));
        }
    });
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
}

#[test]
fn a_killed_writer_leaves_nothing_behind() {
    let twin = twin(",reset_ms=50");
    for round in 1..=20 {
        let mut writer = blocked_writer(&twin);
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(twin.reset() >= Duration::from_millis(50));
        assert_eq!(twin.resets(), 2 * round, "the hardware finishes what was begun");
    }
}

#[test]
fn a_hung_reset_never_returns_and_counts_nothing() {
    let twin = twin(",fault=hang-reset");
    let mut writer = blocked_writer(&twin);
    thread::park_timeout(Duration::from_millis(200));
    assert!(writer.try_wait().unwrap().is_none());
    writer.kill().unwrap();
    writer.wait().unwrap();
    twin.set(None);
    assert_eq!(twin.resets(), 0);
    twin.reset();
    assert_eq!(twin.resets(), 1);
}

#[test]
fn clearing_a_hang_lets_the_writer_go() {
    let twin = twin(",fault=hang-reset");
    let (returned, is_returned) = mpsc::channel();
    thread::scope(|scope| {
        let path = twin.path("reset");
        scope.spawn(move || returned.send(reset(&path)));
        assert!(is_returned.recv_timeout(Duration::from_millis(200)).is_err());
        twin.set(None);
        is_returned.recv_timeout(Duration::from_secs(10)).unwrap();
    });
    assert_eq!(twin.resets(), 1);
}

#[test]
fn a_slow_reset_takes_what_the_spec_says() {
    let twin = twin(",fault=slow-reset,reset_ms=300");
    assert!(twin.reset() >= Duration::from_millis(300));
}

#[test]
fn dropping_the_folder_ends_it_at_once_and_frees_writers() {
    let twin = twin(",fault=hang-reset");
    let mut writer = blocked_writer(&twin);
    let begun = Instant::now();
    drop(twin.folder);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(!writer.wait().unwrap().success());
}

#[test]
fn scrubs_are_counted_without_a_miss_200_times() {
    let twin = twin("");
    for scrubs in 1..=200 {
        twin.session(u8::try_from(scrubs % 255 + 1).unwrap());
        fs::read(twin.path("resource0")).unwrap();
        twin.session(0);
        fs::read(twin.path("resource0")).unwrap();
        assert_eq!(twin.counts().scrubs, scrubs);
    }
}

#[test]
fn scrubs_in_a_row_are_counted_however_late_the_twin_looks() {
    let twin = twin("");
    for scrub in 1..=200_u32 {
        twin.session(u8::try_from(scrub % 255 + 1).unwrap());
        twin.session(0);
    }
    assert_eq!(twin.counts().scrubs, 200);
}

/// A process that forks has a copy of what another thread closes meanwhile, so the kernel reports that close late.
#[test]
fn a_close_that_is_reported_late_changes_no_count() {
    let twin = twin("");
    for scrubs in 1..=20 {
        let fill = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
        fill.write_all_at(&[1; MEMORY], 0).unwrap();
        let zero = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
        zero.write_all_at(&[0; MEMORY / 2], 0).unwrap();
        drop(fill);
        assert_eq!(twin.counts().scrubs, scrubs - 1);
        zero.write_all_at(&[0; MEMORY], 0).unwrap();
        assert_eq!(twin.counts().scrubs, scrubs);
        drop(zero);
        assert_eq!(twin.counts().scrubs, scrubs);
    }
}

#[test]
fn counts_reach_the_file_unasked() {
    let twin = twin("");
    twin.session(1);
    twin.session(0);
    let counts = twin.root.path().join("counts.json");
    until("counted", || {
        fs::read_to_string(&counts).unwrap() == r#"{"0000:3b:00.0":{"resets":0,"scrubs":1}}"#
    });
}

#[test]
fn half_a_scrub_is_none() {
    let twin = twin("");
    twin.folder.leave(address(), 4096, b"secret").unwrap();
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "zeroed only");
    twin.session(1);
    twin.folder.leave(address(), 0, b"secret").unwrap();
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "a tenant came between");
    let partly = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
    partly.write_all_at(&[1; MEMORY / 2], 0).unwrap();
    drop(partly);
    assert_eq!(twin.counts().scrubs, 0);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "filled in part");
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 1);
}

#[test]
fn what_a_tenant_left_survives_a_reset() {
    let twin = twin("");
    twin.folder.leave(address(), 8, b"secret").unwrap();
    twin.reset();
    assert_eq!(&fs::read(twin.path("resource0")).unwrap()[8..14], b"secret");
    assert!(twin.folder.leave(address(), MEMORY as u64 - 5, b"secret").is_err());
}

#[test]
fn dropped_writes_reach_nothing() {
    let twin = twin(",fault=drop-writes");
    twin.folder.leave(address(), 0, b"secret").unwrap();
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0);
    assert_eq!(&twin.folder.memory(address()).unwrap()[..6], b"secret");
    twin.set(None);
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 1);
}

#[test]
fn a_skipped_fill_leaves_zeros_and_no_scrub() {
    let twin = twin(",fault=skip-fill");
    for _ in 0..20 {
        twin.folder.leave(address(), 0, b"secret").unwrap();
        twin.session(1);
        assert_eq!(twin.counts().scrubs, 0);
        assert_eq!(&twin.folder.memory(address()).unwrap()[..6], b"secret");
        twin.session(0);
        assert_eq!(twin.counts().scrubs, 0);
        assert!(twin.folder.memory(address()).unwrap().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_dead_device_reads_all_ones_but_keeps_what_the_kernel_cached() {
    let twin = twin("");
    let healthy = twin.config();
    twin.set(Some(Fault::Dead));
    assert_eq!(twin.config(), [0xff; 4096]);
    assert_eq!((twin.text("vendor"), twin.text("current_link_width")), ("0x1234\n".into(), "63\n".into()));
    twin.set(None);
    assert_eq!((twin.config(), twin.text("current_link_width")), (healthy, "16\n".into()));
}

#[test]
fn what_a_reset_breaks_is_broken_when_it_returns() {
    let twin = twin(",fault=die-at-reset");
    assert_ne!(twin.config(), [0xff; 4096]);
    twin.reset();
    assert_eq!(twin.config(), [0xff; 4096]);
    twin.set(Some(Fault::BarsLost));
    let (before, resource) = (twin.config(), twin.text("resource"));
    twin.reset();
    let after = twin.config();
    assert_eq!((&after[4..6], &after[0x10..0x28]), (&[0; 2][..], &[0; 24][..]));
    assert_eq!((&after[..4], &after[0x28..]), (&before[..4], &before[0x28..]));
    assert_eq!(twin.text("resource"), resource);
}

const COMMAND: usize = 0x04;
const DEVICE_CONTROL: usize = 0x68;

/// Writes to config space, as `setpci` does.
fn poke(twin: &Twin, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(twin.path("config")).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// Initiates a function level reset and waits until config space shows that it is over.
fn reset_by_config(twin: &Twin) {
    let before = twin.resets();
    poke(twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
    until("reset", || twin.resets() > before);
}

#[test]
fn a_reset_by_config_write_is_seen_each_of_500_times() {
    let twin = twin(",reset_ms=1");
    let healthy = twin.config();
    for resets in 1..=500 {
        poke(&twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
        until("reset", || {
            let config = twin.config();
            config[..4] == healthy[..4] && config[DEVICE_CONTROL..DEVICE_CONTROL + 2] == [0x10, 0x28]
        });
        assert_eq!(twin.resets(), resets);
    }
}

#[test]
fn a_reset_by_config_write_takes_what_the_specification_says() {
    let twin = twin("");
    let healthy = twin.config();
    reset_by_config(&twin);
    let after = twin.config();
    assert_eq!((&after[COMMAND..COMMAND + 2], &after[0x14..0x18]), (&[0; 2][..], &[0; 4][..]));
    assert_eq!(after[0x10], 0x0c, "what the BAR is cannot be written");
    assert_eq!((after[0xa3], after[0x3c]), (0, 0), "MSI-X, interrupt line");
    assert_eq!(after[0x70..0x74], healthy[0x70..0x74], "the link goes on");
    assert_eq!((&after[..4], &after[0x140..0x14c]), (&healthy[..4], &healthy[0x140..0x14c]));
    for (at, was) in healthy.iter().enumerate().filter(|(at, was)| after[*at] != **was) {
        poke(&twin, at, &[*was]);
    }
    twin.resets();
    assert_eq!(twin.config(), healthy, "all of it can be restored");
}

#[test]
fn what_cannot_be_written_comes_back() {
    let twin = twin("");
    let healthy = twin.config();
    for (at, bytes) in [(0x00, &[0; 4][..]), (0x06, &[0xff; 2]), (0x34, &[0]), (0x64, &[0; 4]), (0x800, &[1])]
    {
        poke(&twin, at, bytes);
        until("undone", || twin.config() == healthy);
    }
}

#[test]
fn not_ready_is_all_ones_or_retry_status() {
    for (fault, first) in [("slow-reset", [0xff; 4]), ("retry-status", [0x01, 0x00, 0xff, 0xff])] {
        let twin = twin(&format!(",fault={fault},reset_ms=300"));
        let healthy = twin.config();
        poke(&twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
        until("reset", || twin.config()[..4] == first);
        assert_eq!(twin.config()[4..], [0xff; 4092]);
        assert_eq!(twin.resets(), 0);
        until("ready", || twin.config()[..4] == healthy[..4]);
        assert_eq!(twin.resets(), 1);
    }
}

#[test]
fn a_lost_restore_a_reset_that_is_none_and_a_pending_transaction() {
    let lost = twin(",fault=lose-restore");
    let file = OpenOptions::new().read(true).write(true).open(lost.path("config")).unwrap();
    reset_by_config(&lost);
    file.write_all_at(&[0x06, 0x00], COMMAND as u64).unwrap();
    assert_eq!(lost.config()[COMMAND], 0, "whoever had it open writes to nobody");
    poke(&lost, COMMAND, &[0x06]);
    until("undone", || lost.config()[COMMAND] == 0);

    let none = twin(",fault=no-reset");
    let healthy = none.config();
    poke(&none, DEVICE_CONTROL, &[0x1f, 0xa8]);
    until("taken", || none.config() == healthy);
    assert_eq!(none.resets(), 0);

    let pending = twin(",fault=keep-pending");
    assert_eq!(pending.config()[0x6a], 1 << 5);
    reset_by_config(&pending);
    assert_eq!(pending.config()[0x6a], 1 << 5);
}

#[test]
fn config_space_agrees_with_the_attributes() {
    let twin = twin(",vendor=10de,device=0x2330,class=030200,serial=123456789abcdef0");
    let config = twin.config();
    let dword = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    assert_eq!(config.len(), 4096);
    assert_eq!((dword(0), dword(8)), (0x2330_10de, 0x0302_0001));
    assert_eq!((twin.text("vendor"), twin.text("device")), ("0x10de\n".into(), "0x2330\n".into()));
    assert_eq!(twin.text("class"), "0x030200\n");
    let bar = u64::from(dword(0x14)) << 32 | u64::from(dword(0x10) & !0xf);
    let first = format!("{bar:#018x} {:#018x} 0x000000000014220c", bar + MEMORY as u64 - 1);
    let resource = twin.text("resource");
    assert_eq!((resource.lines().count(), resource.lines().next().unwrap()), (13, &*first));
    let (mut capabilities, mut at) = (vec![], usize::from(config[0x34]));
    while at != 0 {
        capabilities.push(config[at]);
        at = usize::from(config[at + 1]);
    }
    assert_eq!(capabilities, [0x01, 0x05, 0x10, 0x11]);
    assert_eq!((dword(0x60) >> 16 & 0xf, dword(0x64) >> 28 & 1), (2, 1), "version 2, FLR");
    assert_eq!((dword(0x100), dword(0x104), dword(0x110)), (0x1402_0001, 0, 0), "AER, clean");
    assert_eq!((dword(0x140), dword(0x144), dword(0x148)), (0x1501_0003, 0x9abc_def0, 0x1234_5678));
    assert_eq!(twin.text("aer_dev_fatal").lines().last(), Some("TOTAL_ERR_FATAL 0"));
    assert!(!twin.path("driver").exists());
}

#[test]
fn a_bound_device_has_its_links_and_its_node() {
    let twin = twin(",driver=vfio-pci");
    let end = |link: &str| {
        let target = fs::canonicalize(twin.path(link)).unwrap();
        target.file_name().unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(end("driver"), "vfio-pci");
    let group = end("iommu_group");
    assert!(twin.folder.roots().dev.join("vfio").join(&group).exists());
    assert!(twin.path("iommu_group/devices/0000:3b:00.0/vendor").exists());
}

#[test]
fn processes_reboots_and_cards_come_and_go() {
    let twin = twin(",fault=bars-lost,driver=vfio-pci");
    let roots = twin.folder.roots();
    twin.folder.hold(address(), 77, "trainer", "0::/kubepods/pod1").unwrap();
    let process = roots.proc.join("77");
    assert_eq!(fs::read_to_string(process.join("comm")).unwrap(), "trainer\n");
    assert_eq!(fs::read_to_string(process.join("cgroup")).unwrap(), "0::/kubepods/pod1\n");
    assert_eq!(
        fs::canonicalize(process.join("fd/3")).unwrap(),
        fs::canonicalize(twin.path("resource0")).unwrap()
    );
    twin.folder.let_go(77).unwrap();
    assert!(!process.exists());

    twin.folder.hold(address(), 78, "trainer", "").unwrap();
    let (boot, config) = (fs::read(roots.boot_id()).unwrap(), twin.config());
    twin.reset();
    twin.folder.reboot().unwrap();
    assert!(!roots.proc.join("78").exists());
    assert_ne!(fs::read(roots.boot_id()).unwrap(), boot);
    assert_eq!(twin.config(), config);
    assert!(twin.folder.memory(address()).unwrap().iter().any(|byte| *byte != 0));

    twin.folder.replace(address(), 0xbeef).unwrap();
    assert_eq!(&twin.config()[0x144..0x14c], 0xbeef_u64.to_le_bytes());
    twin.reset();
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts(), Counts { resets: 1, scrubs: 1 });

    twin.folder.remove(address()).unwrap();
    assert!(!twin.path("vendor").exists() && !roots.dev.join("vfio/1").exists());
    assert!(twin.folder.counts(address()).is_err());
}

#[test]
fn specs_that_make_no_sense_are_refused_with_the_reason() {
    for (text, why) in [
        ("3b:00.0", "is no PCI address"),
        ("0000:3b:00.0,memory=5", "no multiple of 4096"),
        ("0000:3b:00.0,fault=bored", "only hang-reset, dead"),
        ("0000:3b:00.0,colour=red", "no field \"colour\""),
        ("0000:3b:00.0,vendor=10de0", "too large"),
        ("0000:3b:00.0,class=1030200", "more than 24 bits"),
    ] {
        let error = text.parse::<DeviceSpec>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let root = tempfile::tempdir().unwrap();
    let nothing = DeviceSpec { memory: 0, ..DeviceSpec::new(address()) };
    assert!(Folder::create(root.path(), vec![nothing]).is_err());
}

#[test]
fn another_tree_is_never_overwritten() {
    let twin = twin("");
    assert!(Folder::create(twin.root.path(), vec![]).is_err());
    assert!(File::open(twin.path("vendor")).is_ok());
}
