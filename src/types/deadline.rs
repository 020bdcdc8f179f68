use std::time::{Duration, Instant};

/// A point in time by which something must have ended; passed down instead of a duration, so that waits add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// The same, earlier by `span`.
    #[must_use]
    pub fn earlier(self, span: Duration) -> Self {
        Self(self.0.checked_sub(span).unwrap_or(self.0))
    }

    /// The instant itself.
    #[must_use]
    pub fn at(self) -> Instant {
        self.0
    }

    /// What is left; zero once it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}
