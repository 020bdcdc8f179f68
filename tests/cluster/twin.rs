//! The simulated device: a twin served by a process on the node, asked over its standard input.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

/// The device that most tests are about.
pub(crate) const ADDRESS: &str = "0000:3b:00.0";
/// The other one.
pub(crate) const OTHER: &str = "0000:5e:00.0";

/// What the twin itself has counted, whatever the daemon says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Counts {
    /// Resets that happened.
    pub(crate) resets: u64,
    /// Times that the whole memory was overwritten and then zeroed.
    pub(crate) scrubs: u64,
}

impl Counts {
    /// After so many cleanings more.
    pub(crate) fn and(self, cleanings: u64) -> Self {
        Self { resets: self.resets + cleanings, scrubs: self.scrubs + cleanings }
    }
}

/// A running twin.
pub(crate) struct Twin {
    commands: RefCell<ChildStdin>,
    answers: RefCell<Lines<BufReader<ChildStdout>>>,
    // Ends with the node.
    _process: Child,
}

impl Twin {
    /// Starts it on the node, whose end is its own.
    pub(crate) fn start(mut enter: Command) -> Self {
        let mut child = enter
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/target/release/examples/twin"))
            .args(["--root", "/run/twin", "--device", ADDRESS, OTHER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start the twin");
        let commands = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let twin = Self { commands: RefCell::new(commands), answers: RefCell::new(answers), _process: child };
        assert_eq!(twin.answer(), "twin ready");
        twin
    }

    /// What the device has been through up to now.
    pub(crate) fn counts(&self) -> Counts {
        let answer = self.command(&format!("counts {ADDRESS}"));
        let counts = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("twin: {answer}"));
        serde_json::from_str(counts).expect("counts are JSON")
    }

    /// Leaves something in the memory, as a tenant does.
    pub(crate) fn leave(&self, offset: u64, text: &str) {
        assert_eq!(self.command(&format!("leave {ADDRESS} {offset} {text}")), "ok");
    }

    /// Gives the device a fault, or `none`.
    pub(crate) fn fault(&self, name: &str) {
        assert_eq!(self.command(&format!("fault {ADDRESS} {name}")), "ok");
    }

    fn command(&self, line: &str) -> String {
        writeln!(self.commands.borrow_mut(), "{line}").expect("the twin runs");
        self.answer()
    }

    fn answer(&self) -> String {
        self.answers.borrow_mut().next().expect("the twin runs").expect("the twin speaks UTF-8")
    }
}
