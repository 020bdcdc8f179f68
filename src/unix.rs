//! Unix sockets that only root and our own user can speak to.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{self, Stream};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

/// `sun_path` has 108 bytes, of which the last is its end.
pub const LONGEST_PATH: usize = 107;
/// Descriptors run out for all callers at once; without a pause the accept loop would take a whole core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket; dropping it removes its file, unless another instance has put its own there.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    file: (u64, u64),
    listener: StdListener,
}

/// A socket that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel takes no such path.
    #[error(
        "the socket path {} has {} bytes: at most {LONGEST_PATH} are possible; choose a shorter folder or \
         driver name",
        path.display(),
        path.as_os_str().len()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// Somebody serves it.
    #[error(
        "cannot listen on {}: somebody answers there; another instance is running, or --pod-uid is not this \
         pod's",
        path.display()
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Something else has its name.
    #[error("cannot listen on {}: it is there and no socket; remove it", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl SocketError {
    /// For `map_err`: what was tried with which file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Socket {
    /// Listens; what a dead instance left at this path is removed first.
    ///
    /// # Errors
    /// When somebody answers there already, or the system refuses.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(SocketError::TooLong { path: path.to_owned() });
        }
        remove_stale(path)?;
        let listener = StdListener::bind(path).map_err(SocketError::io("listen on", path))?;
        let prepared = || {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            file_at(path)
        };
        let file = prepared().map_err(SocketError::io("set up the socket", path))?;
        Ok(Self { path: path.to_owned(), file, listener })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Callers, each root or our own user; others are dropped, and the stream never ends.
    ///
    /// # Errors
    /// When the descriptor cannot be doubled or given to this thread's runtime.
    pub fn connections(&self) -> io::Result<impl Stream<Item = UnixStream> + Send + use<>> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        Ok(stream::unfold(listener, async |listener| Some((accept(&listener).await, listener))))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if file_at(&self.path).is_ok_and(|file| file == self.file)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(path = %self.path.display(), %error, "socket not removed");
        }
    }
}

async fn accept(listener: &UnixListener) -> UnixStream {
    let own = nix::unistd::geteuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if peer.uid() == 0 || peer.uid() == own => return stream,
                Ok(peer) => {
                    warn!(
                        uid = peer.uid(),
                        pid = peer.pid(),
                        "caller dropped: neither root nor our own user"
                    );
                }
                Err(error) => warn!(%error, "caller dropped: its user is not known"),
            },
            Err(error) => {
                warn!(%error, "no connection accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Removes the socket of an instance that is gone: one that refuses a connection.
///
/// # Errors
/// When somebody answers there, it is no socket, or it cannot be removed.
pub fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = || SocketError::io("look at the socket", path);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata if metadata.as_ref().is_ok_and(|it| !it.file_type().is_socket()) => {
            return Err(SocketError::NoSocket { path: path.to_owned() });
        }
        metadata => metadata.map_err(failed())?,
    };
    // Without waiting: a live listener whose queue is full would hold a blocking connect for ever.
    let probe = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None)
        .and_then(|probe| connect(probe.as_raw_fd(), &UnixAddr::new(path)?));
    match probe {
        Err(Errno::ECONNREFUSED) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SocketError::io("remove the stale socket", path)(error))
            }
            _ => Ok(()),
        },
        Err(Errno::ENOENT) => Ok(()),
        Ok(()) | Err(Errno::EAGAIN) => Err(SocketError::Taken { path: path.to_owned() }),
        Err(errno) => Err(failed()(errno.into())),
    }
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests;
