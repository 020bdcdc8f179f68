//! One worker process: started, ordered step by step, waited for with a deadline, killed, given up.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout_at;

use super::outcome::Outcome;
use super::protocol::{Command, Line, Report};
use crate::types::Deadline;

/// After a kill, how long the kernel may take to let a process go before we say that it is stuck.
const GRACE: Duration = Duration::from_millis(700);

/// Which program is a worker: our own, by the link that survives its replacement on the disk.
#[derive(Clone, Debug)]
pub struct Program(pub PathBuf);

impl Default for Program {
    fn default() -> Self {
        Self(PathBuf::from("/proc/self/exe"))
    }
}

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one; it waits for its first order.
    ///
    /// No code runs between fork and exec, so the runtime can use `posix_spawn`. There is no parent-death signal
    /// (it fires at the end of a thread): an orphan ends at the end of its orders.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(program: &Program) -> io::Result<Self> {
        let mut child = tokio::process::Command::new(&program.0)
            .arg("worker")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("the worker has no pipes");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let reports = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        Ok(Self { child, orders, reports })
    }

    /// Orders one step and waits for its end, at most until the deadline, or that of a section in which the worker
    /// must not be killed. `progress` hears of bytes done of bytes in all. After any end but [`Outcome::Done`] or
    /// [`Outcome::Failed`] the worker is gone or given up.
    pub async fn order(
        &mut self,
        command: &Command,
        deadline: Deadline,
        progress: impl FnMut(u64, u64),
    ) -> Outcome<Report> {
        match self.exchange(command, deadline, progress).await {
            Ok(Some(Report::Failed(failure))) => Outcome::Failed(failure),
            Ok(Some(report)) => Outcome::Done(report),
            Ok(None) => self.kill().await,
            Err(error) => {
                let end = tokio::time::timeout(GRACE, self.child.wait()).await;
                let status =
                    end.ok().and_then(Result::ok).map_or_else(String::new, |status| format!(" ({status})"));
                let _ = self.child.start_kill();
                Outcome::Crashed(format!("{error}{status}"))
            }
        }
    }

    /// Ends the worker; returns once it has let the device's lock go, or is given up.
    pub async fn end(mut self) {
        let _ = self.orders.shutdown().await;
        drop(self.orders);
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
        }
    }

    /// The answer to an order; `None`: it did not come in time.
    async fn exchange(
        &mut self,
        command: &Command,
        deadline: Deadline,
        mut progress: impl FnMut(u64, u64),
    ) -> io::Result<Option<Report>> {
        // Later than our own kill, which tells us more.
        let seconds = u32::try_from(deadline.left().as_secs()).unwrap_or(u32::MAX - 2) + 2;
        let mut line = serde_json::to_vec(&Line { seconds, command })?;
        line.push(b'\n');
        let Ok(written) = timeout_at(deadline.at().into(), self.orders.write_all(&line)).await else {
            return Ok(None);
        };
        written?;
        let mut section: Option<Deadline> = None;
        loop {
            let limit = section.map_or(deadline, |section| section.max(deadline));
            let Ok(line) = timeout_at(limit.at().into(), self.reports.next_line()).await else {
                return Ok(None);
            };
            let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the worker ended without an answer");
            match serde_json::from_str(&line?.ok_or_else(ended)?)? {
                Report::Progress(done, of) => progress(done, of),
                Report::Marked(ms) => section = Some(Deadline::after(Duration::from_millis(ms))),
                // What follows is its answer, which tells more than a kill.
                Report::Unmarked => section = Some(Deadline::after(GRACE)),
                report => {
                    if let Report::Locked(repairs) = &report {
                        repairs
                            .iter()
                            .for_each(|repair| tracing::warn!(%repair, "an earlier worker was killed"));
                    }
                    return Ok(Some(report));
                }
            }
        }
    }

    async fn kill(&mut self) -> Outcome<Report> {
        let pid = self.child.id().unwrap_or_default();
        let _ = self.child.start_kill();
        match tokio::time::timeout(GRACE, self.child.wait()).await {
            Ok(_) => Outcome::TimedOut,
            Err(_) => {
                let wchan = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
                Outcome::Stuck { pid, wchan }
            }
        }
    }
}
