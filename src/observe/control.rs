//! The control socket: operators' commands to the daemon of this node.
//!
//! One line of JSON asks, one line answers, then the connection closes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::unix::Socket;

const LONGEST_REQUEST: usize = 64 << 10;
const LONGEST_ANSWER: u64 = 16 << 20;
/// For a client to say its line, and to take ours.
const TALK: Duration = Duration::from_secs(2);
const WORK: Duration = Duration::from_secs(30);
/// The daemon's own limits end first, so that its words are heard.
const CALL: Duration = Duration::from_secs(40);

/// What an operator asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// All devices and what holds them.
    Status,
    /// End a device's quarantine.
    QuarantineRelease {
        /// The device.
        device: String,
        /// Why, in the operator's words; kept on record.
        reason: String,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done; with what was asked for.
    Done(serde_json::Value),
    /// It was not done, and why.
    Refused(String),
}

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error(
        "no daemon answers on {}: is `cleanslate run` running on this node, with this --run?",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// It is not for us.
    #[error("not allowed to speak to the daemon on {}: expected root or the daemon's own user", .0.display())]
    NotAllowed(PathBuf),
    /// No answer in time.
    #[error("the daemon on {} did not answer within {} s", path.display(), CALL.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
    },
    /// The conversation broke off.
    #[error("speaking to the daemon on {} failed: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What came back is no answer.
    #[error(
        "the daemon on {} answered what this command does not understand: {problem}; are both of one \
         version?",
        path.display()
    )]
    Garbled {
        /// The socket.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

/// `<run>/control.sock`.
#[must_use]
pub fn path(run: &Path) -> PathBuf {
    run.join("control.sock")
}

/// Answers clients, each on a task of its own, until `stop`.
///
/// # Errors
/// When the socket cannot be taken into this runtime.
pub async fn serve<F>(
    socket: &Socket,
    handle: impl Fn(Request) -> F + Send + Sync + 'static,
    stop: CancellationToken,
) -> io::Result<()>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let handle = Arc::new(handle);
    let mut connections = std::pin::pin!(socket.connections()?);
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(client) = connections.next() => {
                let handle = handle.clone();
                clients.spawn(async move {
                    if let Err(error) = converse(client, &*handle).await {
                        debug!(%error, "client of the control socket lost");
                    }
                });
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

async fn converse<F: Future<Output = Answer>>(
    mut client: UnixStream,
    handle: &impl Fn(Request) -> F,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(&mut client).take(LONGEST_REQUEST as u64 + 1);
    timeout(TALK, reader.read_until(b'\n', &mut line)).await??;
    let answer = match understand(&line) {
        Ok(request) => timeout(WORK, handle(request)).await.unwrap_or_else(|_| {
            Answer::Refused(format!("not done within {} s; it may still happen", WORK.as_secs()))
        }),
        Err(problem) => Answer::Refused(problem),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    timeout(TALK, client.write_all(&line)).await?
}

fn understand(line: &[u8]) -> Result<Request, String> {
    if line.len() > LONGEST_REQUEST {
        return Err(format!("the request is too long: expected at most {LONGEST_REQUEST} bytes"));
    }
    serde_json::from_slice(line).map_err(|error| {
        format!(
            "the request cannot be understood: {error}; expected one line of JSON, for example \
             {{\"op\":\"status\"}}"
        )
    })
}

/// Asks the daemon whose `--run` folder this is.
///
/// # Errors
/// When there is none, or it does not answer.
pub async fn call(run: &Path, request: &Request) -> Result<Answer, ControlError> {
    let path = path(run);
    let line = match timeout(CALL, ask(&path, request)).await {
        Ok(line) => line.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ControlError::NoDaemon(path.clone())
            }
            io::ErrorKind::PermissionDenied => ControlError::NotAllowed(path.clone()),
            _ => ControlError::Io { path: path.clone(), source },
        })?,
        Err(_) => return Err(ControlError::TimedOut { path }),
    };
    serde_json::from_slice(&line).map_err(|error| ControlError::Garbled { path, problem: error.to_string() })
}

async fn ask(path: &Path, request: &Request) -> io::Result<Vec<u8>> {
    let mut daemon = UnixStream::connect(path).await?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    daemon.write_all(&line).await?;
    let mut answer = Vec::new();
    daemon.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
    if answer.is_empty() {
        let words = "it closed the connection without an answer; its log says why";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
