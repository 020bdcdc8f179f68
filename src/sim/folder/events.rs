use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

/// What happened to files, in the order of the kernel, which reports an opening before the call returns.
#[derive(Debug)]
pub(super) struct Events {
    inotify: Inotify,
    queue: VecDeque<InotifyEvent>,
}

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { inotify, queue: VecDeque::new() })
    }

    /// A descriptor that is readable when there are events.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.inotify.as_fd().try_clone_to_owned()
    }

    pub(super) fn watch(&self, path: &Path, what: AddWatchFlags) -> io::Result<WatchDescriptor> {
        Ok(self.inotify.add_watch(path, what)?)
    }

    /// The next event up to now.
    pub(super) fn next(&mut self) -> io::Result<Option<InotifyEvent>> {
        if self.queue.is_empty() {
            self.pull()?;
        }
        Ok(self.queue.pop_front())
    }

    /// All events up to now that [`next`](Self::next) has not given yet.
    pub(super) fn later(&mut self) -> io::Result<impl Iterator<Item = &InotifyEvent>> {
        self.pull()?;
        Ok(self.queue.iter())
    }

    fn pull(&mut self) -> io::Result<()> {
        loop {
            match self.inotify.read_events() {
                Ok(events) => self.queue.extend(events),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
