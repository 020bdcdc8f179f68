use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::WatchDescriptor;

use super::events::Events;
use super::gate::Gate;
use crate::sim::layout::Layout;

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
    pub(super) fn put(files: &Layout, events: &Events, folder: &Path) -> io::Result<Self> {
        let path = folder.join("reset");
        let closed = Gate::put(&path, &files.aside("gate"), events)?;
        Ok(Self { path, closed, waiting: VecDeque::new(), due: None, done: Vec::new() })
    }

    /// The file of `watch` was opened: if it is a gate, a writer has come.
    pub(super) fn opened(
        &mut self,
        files: &Layout,
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

    /// Who has come and waits for a reset that is not done.
    pub(super) fn writers(&self) -> usize {
        self.waiting.iter().map(|gate| gate.owed as usize).sum()
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::Barrier;
    use std::thread;

    use nix::sys::inotify::AddWatchFlags;

    use super::*;

    struct Fixture {
        gates: Gates,
        files: Layout,
        events: Events,
        root: tempfile::TempDir,
    }

    fn fixture() -> Fixture {
        let root = tempfile::tempdir().unwrap();
        let (files, events) = (Layout::create(root.path()).unwrap(), Events::new().unwrap());
        Fixture { gates: Gates::put(&files, &events, root.path()).unwrap(), files, events, root }
    }

    impl Fixture {
        fn come(&self) -> File {
            File::options().write(true).open(self.root.path().join("reset")).unwrap()
        }

        fn take_events(&mut self) {
            while let Some(event) = self.events.next().unwrap() {
                if !event.mask.contains(AddWatchFlags::IN_OPEN) {
                    continue;
                }
                self.gates.opened(&self.files, &self.events, event.wd).unwrap();
            }
        }

        fn resets(&mut self, takes: Option<Duration>) -> u32 {
            self.gates.advance(Instant::now(), takes).unwrap()
        }
    }

    #[test]
    fn who_comes_to_one_gate_after_another_is_owed_a_reset_each() {
        let mut fixture = fixture();
        fixture.come();
        let _second = fixture.come();
        fixture.take_events();
        assert_eq!(fixture.resets(None), 0, "it hangs, and the second is still there");
        assert_eq!(fixture.resets(Some(Duration::ZERO)), 2);
    }

    #[test]
    fn who_left_a_hanging_gate_is_owed_nothing() {
        let mut fixture = fixture();
        fixture.come();
        fixture.take_events();
        assert_eq!((fixture.resets(None), fixture.resets(Some(Duration::ZERO))), (0, 0));
    }

    #[test]
    fn who_shares_a_gate_gets_through_too() {
        let mut fixture = fixture();
        let both_came = Barrier::new(3);
        let (mut first, mut second) = (fixture.come(), fixture.come());
        thread::scope(|scope| {
            let writers = [&mut first, &mut second].map(|gate| {
                let both_came = &both_came;
                scope.spawn(move || {
                    both_came.wait();
                    gate.write_all(b"1").unwrap();
                })
            });
            both_came.wait();
            fixture.take_events();
            thread::park_timeout(Duration::from_millis(50));
            assert!(writers.iter().all(|writer| !writer.is_finished()));
            assert!(fixture.resets(Some(Duration::ZERO)) > 0);
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                fixture.gates.release().unwrap();
            }
        });
        drop((first, second));
        fixture.gates.release().unwrap();
        assert!(fixture.gates.done.is_empty());
    }
}
