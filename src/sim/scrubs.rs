/// Counts scrubs by what the memory holds after a session of writes: one is a session that left nothing of what
/// was there, followed by one that left only zeros.
///
/// A session ends at the latest when the next begins, which is never reported late. That it was closed only says
/// that it is worth a look, and that this look is final: a close is late when a process that forks just then still
/// has the file. A session that the next one overtook before such a look is `unseen`, and taken for what its place
/// says, fill and zero in turn. So a slow twin misses none and counts none twice.
#[derive(Debug)]
pub(super) struct Scrubs {
    settled: u32,
    before: Vec<u8>,
    filled: bool,
    unseen: u32,
    session: Option<Session>,
}

#[derive(Debug, Default)]
struct Session {
    look: Option<Look>,
    over: bool,
}

#[derive(Debug)]
struct Look {
    content: Vec<u8>,
    zero: bool,
}

/// Smallest piece that counts as left over: a line that a write-combining buffer may lose as a whole.
const LINE: usize = 64;

impl Scrubs {
    /// None yet, of a memory that holds `content`.
    pub(super) fn over(content: Vec<u8>) -> Self {
        Self { settled: 0, before: content, filled: false, unseen: 0, session: None }
    }

    pub(super) fn count(&self) -> u32 {
        let look = self.session.as_ref().and_then(|session| session.look.as_ref());
        self.settled + look.map_or(0, |look| self.completed_by(look))
    }

    /// A session of writes begins.
    pub(super) fn begin(&mut self) {
        match self.session.replace(Session::default()) {
            None => {}
            Some(Session { look: Some(look), over: true }) => {
                self.settled += self.completed_by(&look);
                // An unseen session may have been the fill, and this one the zeros with the planted errors in them,
                // which differ from what was there before the fill in a few words only.
                self.filled =
                    !look.zero && (self.unseen > 0 || differs_everywhere(&self.before, &look.content));
                self.before = look.content;
                self.unseen = 0;
            }
            Some(_) => self.unseen += 1,
        }
    }

    /// The memory holds `content`; `over`: nobody can write to it before the next session.
    pub(super) fn look(&mut self, content: Vec<u8>, over: bool) {
        if let Some(session) = &mut self.session {
            let zero = content.chunks(4096).all(|page| page == &[0; 4096][..page.len()]);
            *session = Session { look: Some(Look { content, zero }), over };
        }
    }

    /// Whether a look would tell something new.
    pub(super) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.over)
    }

    /// Something other than a session changed the memory to `content`.
    pub(super) fn start_over(&mut self, content: Vec<u8>) {
        *self = Self { settled: self.count(), ..Self::over(content) };
    }

    fn completed_by(&self, look: &Look) -> u32 {
        (u32::from(self.filled) + self.unseen + u32::from(look.zero)) / 2
    }
}

fn differs_everywhere(before: &[u8], after: &[u8]) -> bool {
    before.chunks(LINE).zip(after.chunks(LINE)).all(|(old, new)| old != new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count after each session; `None`: nobody looked.
    fn counts<const N: usize>(sessions: [Option<u8>; N]) -> [u32; N] {
        let mut scrubs = Scrubs::over(vec![7; 4096]);
        sessions.map(|byte| {
            scrubs.begin();
            if let Some(byte) = byte {
                scrubs.look(vec![byte; 4096], true);
            }
            scrubs.count()
        })
    }

    #[test]
    fn fill_then_zero_is_one() {
        assert_eq!(counts([1, 0, 0, 2, 3, 0].map(Some)), [0, 1, 1, 1, 1, 2]);
        assert_eq!(counts([7, 0].map(Some)), [0, 0], "nothing overwritten");
    }

    #[test]
    fn a_line_left_is_no_fill() {
        let mut partly = vec![1; 4096];
        partly[4032..].fill(7);
        let mut scrubs = Scrubs::over(vec![7; 4096]);
        for content in [partly, vec![0; 4096]] {
            scrubs.begin();
            scrubs.look(content, true);
        }
        assert_eq!(scrubs.count(), 0);
    }

    #[test]
    fn unseen_sessions_count_in_turn() {
        assert_eq!(counts([None, Some(0)]), [0, 1]);
        assert_eq!(counts([None, None, None, Some(0)]), [0, 0, 0, 2]);
        assert_eq!(counts([None, None, Some(1), Some(0)]), [0, 0, 1, 2]);
        assert_eq!(counts([Some(1), None, Some(2), Some(0)])[2..], [1, 2]);
    }

    /// Pattern, zeros with planted errors, the errors mended: as `steps::scrub` does it.
    #[test]
    fn three_sessions_are_one_whichever_of_them_are_seen() {
        let mut planted = vec![0; 4096];
        planted[1000] = 9;
        for unseen in 0..16 {
            let mut scrubs = Scrubs::over(vec![0; 4096]);
            for (round, pattern) in [(0, 1_u8), (1, 2)] {
                for (place, content) in
                    [vec![pattern; 4096], planted.clone(), vec![0; 4096]].into_iter().enumerate()
                {
                    scrubs.begin();
                    if place == 2 || unseen >> (2 * round + place) & 1 == 0 {
                        scrubs.look(content, true);
                    }
                }
                assert_eq!(scrubs.count(), u32::from(pattern), "{unseen:b}");
            }
        }
    }

    #[test]
    fn an_unseen_fill_counts_where_only_planted_errors_differ_from_before() {
        let mut planted = vec![0; 4096];
        planted[0] = 1;
        let mut scrubs = Scrubs::over(vec![0; 4096]);
        scrubs.begin();
        scrubs.begin();
        scrubs.look(planted, true);
        assert_eq!(scrubs.count(), 0);
        scrubs.begin();
        scrubs.look(vec![0; 4096], true);
        assert_eq!(scrubs.count(), 1);
    }

    #[test]
    fn a_look_too_early_is_replaced_by_the_next() {
        let mut scrubs = Scrubs::over(vec![0; 4096]);
        scrubs.begin();
        scrubs.look(vec![0; 4096], false);
        scrubs.look(vec![1; 4096], true);
        scrubs.begin();
        scrubs.look(vec![1; 4096], false);
        assert_eq!(scrubs.count(), 0);
        scrubs.look(vec![0; 4096], false);
        assert_eq!(scrubs.count(), 1);
        scrubs.start_over(vec![0; 4096]);
        scrubs.begin();
        scrubs.look(vec![0; 4096], true);
        assert_eq!(scrubs.count(), 1);
    }
}
