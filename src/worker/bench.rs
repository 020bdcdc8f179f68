//! Where workers run.

use std::io;
use std::path::PathBuf;

use super::outcome::Outcome;
use super::process::{Program, Worker};
use super::protocol::{Command, Expected, Order, Report};
use crate::types::{Deadline, PciAddress, Roots, Token};

/// Everything that is the same for all workers of a node.
#[derive(Clone, Debug, Default)]
pub struct Bench {
    /// Our own program.
    pub program: Program,
    /// The kernel's views.
    pub roots: Roots,
    /// Where locks are.
    pub run: PathBuf,
}

impl Bench {
    /// Starts a worker.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(&self) -> io::Result<Worker> {
        Worker::start(&self.program)
    }

    /// The order that gives a worker its device.
    #[must_use]
    pub fn order(&self, address: PciAddress, token: Option<Token>, expected: Option<Expected>) -> Command {
        let (roots, run) = (self.roots.clone(), self.run.clone());
        Command::Lock(Order { address, token, expected, roots, run })
    }

    /// Runs orders in a worker of their own, one after the other, until one does not succeed. What an earlier worker
    /// had left to repair takes nothing off their time.
    pub async fn run(&self, orders: &[Command], mut deadline: Deadline) -> Outcome<Report> {
        let limit = deadline.left();
        let mut worker = match self.start() {
            Ok(worker) => worker,
            Err(error) => return Outcome::Crashed(format!("cannot start a worker: {error}")),
        };
        let mut last = Outcome::Crashed("no orders".to_owned());
        for order in orders {
            last = worker.order(order, deadline, |_, _| {}).await;
            match &last {
                Outcome::Done(Report::Locked(repairs)) if !repairs.is_empty() => {
                    deadline = Deadline::after(limit);
                }
                Outcome::Done(_) => {}
                _ => break,
            }
        }
        worker.end().await;
        last
    }
}
