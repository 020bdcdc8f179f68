use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The binary under test with these arguments and no environment.
pub(crate) fn program<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleanslate"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(super) fn start(wrapper: &[String], arguments: &[String], log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = match wrapper {
            [] => program(arguments),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(env!("CARGO_BIN_EXE_cleanslate")).args(arguments);
                // Nothing of the environment but where the first program is found.
                command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
                command.stdin(Stdio::null());
                command
            }
        };
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Its thread of this name, or all others.
    pub(crate) fn threads(&self, name: &str, others: bool) -> Vec<Pid> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten();
        let is_wanted = |task: &PathBuf| {
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            !comm.is_empty() && (comm.trim_end() == name) != others
        };
        let wanted = tasks.map(|task| task.unwrap().path()).filter(is_wanted);
        wanted
            .map(|task| Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap()))
            .collect()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap())
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub(super) async fn terminate(mut self, patience: Duration) -> ExitStatus {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(begun.elapsed() < patience, "SIGTERM does not end it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the workers that outlived their daemon. A lock file says who has its lock; that it is true shows in the
/// process's open files.
pub(super) fn end_lock_holders(run: &Path) {
    let begun = Instant::now();
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let path = entry.path();
        while path.extension().is_some_and(|end| end == "lock") && is_locked(&path) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let pid = text.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid.filter(|pid| has_open(*pid, &path)) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            if begun.elapsed() > Duration::from_secs(2) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Takes a device's lock as another driver would.
pub(crate) fn flock(node: &super::Node, device: usize) -> File {
    let path = node.path("run").join(format!("{}.lock", super::at(device)));
    let file = File::options().create(true).append(true).open(path).unwrap();
    let begun = Instant::now();
    while file.try_lock().is_err() {
        assert!(begun.elapsed() < super::PATIENCE, "a worker keeps the lock");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    file
}

pub(crate) fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Whether a process has this file open.
pub(crate) fn has_open(pid: i32, path: &Path) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.map(|entry| fs::read_link(entry.path())).any(|target| target.is_ok_and(|target| target == path))
}
