use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::WatchDescriptor;

use super::events::Events;
use super::files::Files;
use super::gate::Gate;

/// The writers of a device's `reset`, one reset after the other.
///
/// `closed` stands in the folder. Who comes to it takes it to `waiting`, whose first has its next reset due at `due`
/// unless the device hangs. With all its resets done a gate is in `done`, opened, until its writers have left.
#[derive(Debug)]
pub(super) struct Gates {
    path: PathBuf,
    closed: Gate,
    waiting: VecDeque<Gate>,
    due: Option<Instant>,
    done: Vec<Gate>,
}

impl Gates {
    /// Makes `reset` in `folder`.
    pub(super) fn put(files: &Files, events: &Events, folder: &Path) -> io::Result<Self> {
        let path = folder.join("reset");
        let closed = Gate::put(&path, &files.aside("gate"), events)?;
        Ok(Self { path, closed, waiting: VecDeque::new(), due: None, done: Vec::new() })
    }

    /// The file of `watch` was opened: if it is a gate, a writer has come.
    pub(super) fn opened(
        &mut self,
        files: &Files,
        events: &Events,
        watch: WatchDescriptor,
    ) -> io::Result<()> {
        if self.closed.watch == watch {
            let fresh = Gate::put(&self.path, &files.aside("gate"), events)?;
            self.waiting.push_back(std::mem::replace(&mut self.closed, fresh));
        }
        if let Some(gate) = self.waiting.iter_mut().find(|gate| gate.watch == watch) {
            gate.owed += 1;
        }
        Ok(())
    }

    /// Goes on to `now`, where a reset that begins takes `takes` or never returns; how many were completed.
    pub(super) fn advance(&mut self, now: Instant, takes: Option<Duration>) -> io::Result<u32> {
        let mut resets = 0;
        while let Some(first) = self.waiting.front_mut() {
            match (self.due, takes) {
                (Some(due), _) if now < due => break,
                (Some(_), _) => {
                    resets += 1;
                    self.due = None;
                    first.owed -= 1;
                    if first.owed == 0 {
                        self.done.extend(self.waiting.pop_front());
                    }
                }
                (None, Some(takes)) => self.due = Some(now + takes),
                (None, None) if first.is_left()? => drop(self.waiting.pop_front()),
                (None, None) => break,
            }
        }
        Ok(resets)
    }

    /// When the reset that is going on will be done.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Lets the writers through whose resets are done. Whoever shares a gate comes through one by one.
    pub(super) fn release(&mut self) -> io::Result<()> {
        for gate in std::mem::take(&mut self.done) {
            gate.open()?;
            if !gate.is_left()? {
                self.done.push(gate);
            }
        }
        Ok(())
    }
}
