use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::lock;
use super::service::Service;

/// The thread that lets a folder go on by itself.
pub(super) struct Server {
    pub(super) service: Arc<Mutex<Service>>,
    /// Readable when something has happened to a file.
    pub(super) events: OwnedFd,
    /// Readable when there may be something else to wait for, at its end when there is nothing left to serve.
    pub(super) woken: PipeReader,
}

impl Server {
    pub(super) fn serve(mut self) {
        if let Err(error) = self.run() {
            tracing::error!(%error, "twin stops");
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut next = None;
        while self.wait(next)? {
            next = lock(&self.service).catch_up()?;
        }
        Ok(())
    }

    /// Waits for an event or `next`; false at the end.
    fn wait(&mut self, next: Option<Instant>) -> io::Result<bool> {
        // Rounded up, since a wait that ends early would spin.
        let left = next.map(|next| next.saturating_duration_since(Instant::now()).as_millis() + 1);
        let timeout = left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        let mut fds = [self.events.as_fd(), self.woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_woken = fds[1].any().unwrap_or(false);
        Ok(!is_woken || self.woken.read(&mut [0; 64])? > 0)
    }
}
