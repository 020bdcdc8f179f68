//! Faults from outside: `strace` kills a process, or lets its system calls fail or wait, at exactly the n-th of a kind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What to run a program with, so that a thread of it gets `fault` at its system calls of these numbers: `when` is
/// `3`, or `3+`. `threads`: not only the first one. What the program executes itself is left alone. The program is
/// a child as if started directly.
pub(crate) fn wrapper(threads: bool, call: &str, fault: &str, when: &str) -> Vec<String> {
    let mut words = vec!["strace", "-D", "-qq", "-o", "/dev/null"];
    if threads {
        words.extend(["-f", "-b", "execve"]);
    }
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{fault}:when={when}"));
    words.extend(["-e", &trace, "-e", &inject]);
    words.into_iter().map(str::to_owned).collect()
}

/// Threads of a process under the eyes of an strace; they go on without it once this is dropped.
pub(crate) struct Tracer {
    strace: Child,
    calls: tempfile::NamedTempFile,
    _told: BufReader<ChildStderr>,
}

impl Tracer {
    /// The same for threads that run; each has its own count. Returns once they are traced.
    pub(crate) fn attach(threads: &[Pid], call: &str, fault: &str, when: &str) -> Self {
        let mut command = Command::new("strace");
        let calls = tempfile::NamedTempFile::new().unwrap();
        command.arg("-o").arg(calls.path()).args(["-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:{fault}:when={when}")]);
        for thread in threads {
            command.args(["-p", &thread.to_string()]);
        }
        let mut strace = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(strace.stderr.take().unwrap());
        for _ in threads {
            let mut line = String::new();
            while !line.contains("attached") {
                line.clear();
                assert!(told.read_line(&mut line).unwrap() > 0, "strace does not trace");
            }
        }
        Self { strace, calls, _told: told }
    }

    /// Ends it; how many calls got what.
    pub(crate) fn injected(mut self) -> usize {
        self.end();
        let calls = fs::read_to_string(self.calls.path()).unwrap();
        calls.lines().filter(|line| line.contains("(INJECTED") || line.contains("(DELAYED")).count()
    }

    fn end(&mut self) {
        if self.strace.try_wait().unwrap().is_none() {
            // It lets go of what it traces, which a SIGKILL would leave stopped for a moment.
            kill(Pid::from_raw(self.strace.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
            self.strace.wait().unwrap();
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}
