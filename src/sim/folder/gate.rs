use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, WatchDescriptor};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::events::Events;

/// A full FIFO: who writes to it waits until it is opened, as a writer of sysfs `reset` waits for the device.
///
/// Each reset has a gate of its own. A fresh one takes its place in the folder as soon as somebody has come, since
/// an opened gate lets everybody through: the next to come finds a closed one, however soon.
#[derive(Debug)]
pub(super) struct Gate {
    fifo: File,
    pub(super) watch: WatchDescriptor,
    /// Writers who came and whose reset is not done yet.
    pub(super) owed: u32,
}

impl Gate {
    /// Makes a closed gate at `path`, by way of `draft` on the same file system.
    pub(super) fn put(path: &Path, draft: &Path, events: &Events) -> io::Result<Self> {
        mkfifo(draft, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let nonblocking = || {
            let mut options = OpenOptions::new();
            options.custom_flags(libc::O_NONBLOCK);
            options
        };
        let fifo = nonblocking().read(true).open(draft)?;
        // A pipe of one page is quick to fill.
        fcntl(&fifo, FcntlArg::F_SETPIPE_SZ(4096))?;
        fill(&nonblocking().write(true).open(draft)?)?;
        // Only now, so that our own open is not taken for a writer; and before the mode, since to watch is to read.
        let watch = events.watch(draft, AddWatchFlags::IN_OPEN | AddWatchFlags::IN_CLOSE_WRITE)?;
        fs::set_permissions(draft, fs::Permissions::from_mode(0o200))?;
        fs::rename(draft, path)?;
        Ok(Self { fifo, watch, owed: 0 })
    }

    /// Lets its writers through.
    pub(super) fn open(&self) -> io::Result<()> {
        loop {
            match (&self.fifo).read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether nobody who came is still there. A gate must outlive its writers, or their write fails.
    pub(super) fn is_left(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.fifo.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO)?;
        Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }
}

fn fill(mut fifo: &File) -> io::Result<()> {
    loop {
        match fifo.write(&[0; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
