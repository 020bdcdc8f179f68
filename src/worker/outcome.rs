//! How a step ended, seen from outside.

use super::protocol::Failure;

/// How a step ended.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// The worker did it and says what it saw.
    Done(T),
    /// The worker could not do it.
    Failed(Failure),
    /// The worker ended, or said what makes no sense, before it answered.
    Crashed(String),
    /// It overran its deadline and was killed; it is gone.
    TimedOut,
    /// It overran its deadline, was killed, and is still there: it keeps the device's lock.
    Stuck {
        /// Its process id.
        pid: u32,
        /// Where in the kernel it sleeps, as `/proc/<pid>/wchan` says.
        wchan: String,
    },
}

impl<T> Outcome<T> {
    /// The same end with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(change(value)),
            Self::Failed(failure) => Outcome::Failed(failure),
            Self::Crashed(why) => Outcome::Crashed(why),
            Self::TimedOut => Outcome::TimedOut,
            Self::Stuck { pid, wchan } => Outcome::Stuck { pid, wchan },
        }
    }
}
