//! Sockets under a shortage of descriptors and with a caller that is neither root nor our own user. Both need a
//! process of their own, which is this test binary started again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cleanslate::unix::Socket;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SOCKET: &str = "CLEANSLATE_TEST_SOCKET";

/// Greets every caller with one byte and keeps the connection until the caller closes it.
fn greet(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = Socket::bind(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
        let mut connections = std::pin::pin!(socket.connections().unwrap());
        while let Some(mut caller) = connections.next().await {
            tokio::spawn(async move {
                caller.write_all(b"k").await.unwrap();
                let _ = caller.read(&mut [0]).await;
            });
        }
    });
}

fn greeted(stream: &mut UnixStream) -> std::io::Result<usize> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read(&mut [0])
}

fn connect(path: &Path) -> UnixStream {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::yield_now();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
#[ignore = "started by the test below"]
fn inner_server() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    greet(&PathBuf::from(std::env::var(SOCKET).unwrap()));
}

#[test]
fn without_descriptors_it_waits_and_says_so_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("x.sock"), dir.path().join("log"));
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" inner_server --exact --ignored --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(SOCKET, &path)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let child = Killed(child);
    let mut callers: Vec<UnixStream> = (0..60).map(|_| connect(&path)).collect();
    greeted(&mut callers[0]).unwrap();

    let begun = Instant::now();
    let ticks = cpu_ticks(child.0.id());
    while begun.elapsed() < Duration::from_secs(1) {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let used = cpu_ticks(child.0.id()) - ticks;
    assert!(used < 20, "{used} ticks of processor time in a second: the accept loop spins");
    let lines = fs::read_to_string(&log).unwrap();
    let complaints = lines.lines().filter(|line| line.contains("Too many open files")).count();
    assert!((5..=30).contains(&complaints), "{complaints} complaints in a second:\n{lines}");

    let mut last = callers.pop().unwrap();
    callers.truncate(10);
    assert_eq!(greeted(&mut last).unwrap(), 1, "the queued caller is served once descriptors are free");
}

#[test]
#[ignore = "started by the test below"]
fn inner_caller() {
    let mut stream = UnixStream::connect(std::env::var(SOCKET).unwrap()).unwrap();
    let _ = stream.write_all(b"x");
    println!("greeted with {} bytes", greeted(&mut stream).unwrap_or(0));
}

#[test]
fn a_caller_of_another_user_is_dropped() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root to start a process of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let (path, exe) = (dir.path().join("x.sock"), dir.path().join("caller"));
    fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let server = path.clone();
    std::thread::spawn(move || greet(&server));
    assert_eq!(greeted(&mut connect(&path)).unwrap(), 1);

    let call = |user: &str| -> Output {
        Command::new("setpriv")
            .args(["--reuid", user, "--regid", user, "--clear-groups"])
            .arg(&exe)
            .args(["inner_caller", "--exact", "--ignored", "--nocapture"])
            .env(SOCKET, &path)
            .output()
            .unwrap()
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let nobody = call("65534");
    assert!(said(&nobody).contains("greeted with 0 bytes"), "{nobody:?}");
    let root = call("0");
    assert!(said(&root).contains("greeted with 1 bytes"), "{root:?}");
    assert_eq!(greeted(&mut connect(&path)).unwrap(), 1);
}
