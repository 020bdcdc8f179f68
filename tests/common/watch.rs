use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Kills a process at the n-th change below a state folder: a file made, renamed or removed.
pub(crate) struct Killer {
    watcher: JoinHandle<Vec<String>>,
    off: std::io::PipeWriter,
}

impl Killer {
    pub(crate) fn aim(state: &Path, pid: Pid, change: usize) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let what = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        for folder in ["claims", "releasing", "devices", "quarantine"] {
            inotify.add_watch(&state.join(folder), what).unwrap();
        }
        let (told, off) = std::io::pipe().unwrap();
        let watcher = std::thread::spawn(move || {
            let mut seen = Vec::new();
            loop {
                let mut fds = [inotify.as_fd(), told.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                poll(&mut fds, PollTimeout::NONE).unwrap();
                let ended = fds[1].any().unwrap_or(false);
                for event in inotify.read_events().into_iter().flatten() {
                    seen.push(format!("{:?} {:?}", event.mask, event.name.unwrap_or_default()));
                    if seen.len() == change {
                        kill(pid, Signal::SIGKILL).unwrap();
                        return seen;
                    }
                }
                if ended {
                    return seen;
                }
            }
        });
        Self { watcher, off }
    }

    /// The changes up to the kill, or up to now if there were fewer.
    pub(crate) fn seen(self) -> Vec<String> {
        drop(self.off);
        self.watcher.join().unwrap()
    }
}
