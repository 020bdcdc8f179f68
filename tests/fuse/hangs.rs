//! Whoever waits in the kernel, and is killed there.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use cleanslate::sim::{DeviceSpec, Fault};
use cleanslate::types::Roots;

use crate::Mount;
use crate::twin::{MEMORY, Twin, address, twin, until, writer_to};

/// What `/proc` says of a process: its state, and where in the kernel it sleeps.
fn state(process: &Child) -> (char, String) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
    (state, fs::read_to_string(format!("/proc/{}/wchan", process.id())).unwrap())
}

/// Reads config space in a process of its own.
pub(crate) fn reader(twin: &Twin) -> Child {
    Command::new("od")
        .args(["-An", "-tx1", "-N4"])
        .arg(twin.path("config"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// As a writer in `pci_dev_wait`: SIGKILL is taken note of, and nothing ends before the kernel lets go.
#[test]
fn who_is_killed_in_a_reset_that_hangs_stays_in_state_d() {
    let twin = twin(",fault=hang-reset");
    let mut writer = twin.writer();
    println!("waiting: {:?}", state(&writer));
    writer.kill().unwrap();
    until("it is in state D", || state(&writer).0 == 'D');
    thread::park_timeout(Duration::from_millis(500));
    assert!(writer.try_wait().unwrap().is_none());
    let (letter, place) = state(&writer);
    println!("killed: {letter} in {place}");
    assert_eq!((letter, twin.resets()), ('D', 0));

    // The kernel knows by now that this file system takes no interrupts.
    let mut second = twin.writer();
    println!("waiting after one was killed: {:?}", state(&second));
    assert_eq!(twin.mount.writers(address()).unwrap(), 2);
    twin.set(None);
    let status = writer.wait().unwrap();
    assert!(!status.success(), "{status}");
    assert!(second.wait().unwrap().success());
    assert_eq!(twin.resets(), 2, "what was begun is carried out");
    assert!(twin.reset() >= Duration::from_millis(20));
}

/// `pci_cfg_access_lock`: whoever reads config space of a device in its reset waits with it.
#[test]
fn config_space_waits_for_a_reset_of_the_kernels_and_other_files_do_not() {
    let twin = twin(",fault=hang-reset");
    let mut writer = twin.writer();
    let mut killed = reader(&twin);
    let mut patient = reader(&twin);
    thread::park_timeout(Duration::from_millis(200));
    killed.kill().unwrap();
    until("the reader is in state D", || state(&killed).0 == 'D');
    println!("a reader, killed: {:?}", state(&killed));
    assert!(patient.try_wait().unwrap().is_none());
    // Cached attributes never block, nor does opening what another one waits for.
    assert_eq!((twin.text("vendor"), twin.text("power_state")), ("0x1234\n".into(), "D0\n".into()));
    drop(OpenOptions::new().write(true).open(twin.path("reset")).unwrap());
    let control = OpenOptions::new().write(true).truncate(true).open(twin.path("power/control"));
    control.unwrap().write_all(b"on").unwrap();
    assert!(fs::metadata(twin.path("config")).is_ok());
    assert_eq!(fs::read(twin.path("resource0")).unwrap(), [0xff; MEMORY], "nobody decodes it");

    twin.set(None);
    assert!(writer.wait().unwrap().success());
    let mut read = String::new();
    patient.stdout.take().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read.trim(), "34 12 ea c1");
    assert!(patient.wait().unwrap().success() && !killed.wait().unwrap().success());
}

/// Not a test of its own: what `a_test_that_is_killed_leaves_nothing` kills.
#[test]
#[ignore = "waits to be killed"]
fn waits_to_be_killed() {
    let folder = std::env::var_os("TWIN_TO_BE_KILLED").unwrap();
    let spec = DeviceSpec { fault: Some(Fault::HangReset), ..DeviceSpec::new(address()) };
    let _mount = Mount::create(Path::new(&folder), vec![spec]).unwrap();
    loop {
        thread::park();
    }
}

/// No process in state D, and no mount once the next test comes.
#[test]
fn a_test_that_is_killed_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("twin");
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hangs::waits_to_be_killed"])
        .env("TWIN_TO_BE_KILLED", &folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reset = Roots::below(&folder).pci_device(address()).join("reset");
    until("it is mounted", || reset.exists());
    let mut writer = writer_to(&reset);
    let call = || fs::read_to_string(format!("/proc/{}/syscall", writer.id())).unwrap();
    until("it writes", || call().starts_with(&format!("{} ", libc::SYS_write)));
    thread::park_timeout(Duration::from_millis(100));
    writer.kill().unwrap();
    until("it is in state D", || state(&writer).0 == 'D');
    let is_mounted = || fs::read_to_string("/proc/self/mounts").unwrap().contains(folder.to_str().unwrap());
    assert!(is_mounted());

    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!writer.wait().unwrap().success());
    drop(twin(""));
    assert!(!is_mounted());
}
