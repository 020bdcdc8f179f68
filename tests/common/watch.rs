use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Kills a process at the n-th change below a state folder: a file made, renamed or removed.
pub(crate) struct Killer {
    watcher: JoinHandle<Vec<String>>,
    ask: PipeWriter,
    told: Receiver<bool>,
}

impl Killer {
    pub(crate) fn aim(state: &Path, pid: Pid, change: usize) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let what = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        for folder in ["claims", "releasing", "devices", "quarantine"] {
            inotify.add_watch(&state.join(folder), what).unwrap();
        }
        let (asked, ask) = std::io::pipe().unwrap();
        let (tell, told) = channel();
        let watcher = std::thread::spawn(move || watch(&inotify, asked, &tell, pid, change));
        Self { watcher, ask, told }
    }

    /// Whether it has shot, at anything that had happened before this call.
    pub(crate) fn has_shot(&mut self) -> bool {
        self.ask.write_all(&[0]).unwrap();
        self.told.recv().unwrap()
    }

    /// The changes up to the kill, or up to now if there were fewer.
    pub(crate) fn seen(self) -> Vec<String> {
        drop(self.ask);
        self.watcher.join().unwrap()
    }
}

fn watch(
    inotify: &Inotify,
    mut asked: PipeReader,
    tell: &Sender<bool>,
    pid: Pid,
    change: usize,
) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let mut fds = [inotify.as_fd(), asked.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, PollTimeout::NONE).unwrap();
        let question = fds[1].any().unwrap_or(false);
        for event in inotify.read_events().into_iter().flatten() {
            if seen.len() == change {
                continue;
            }
            seen.push(format!("{:?} {:?}", event.mask, event.name.unwrap_or_default()));
            if seen.len() == change {
                kill(pid, Signal::SIGKILL).unwrap();
            }
        }
        if question {
            if asked.read(&mut [0]).unwrap() == 0 {
                return seen;
            }
            tell.send(seen.len() == change).unwrap();
        }
    }
}
