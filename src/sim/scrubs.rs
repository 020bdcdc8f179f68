/// Counts scrubs by what the memory holds when a write session ends: one is a session that left nothing of what
/// was there, followed by one that left only zeros.
#[derive(Debug)]
pub(super) struct Scrubs {
    before: Vec<u8>,
    filled: bool,
    unseen: u32,
}

/// Smallest piece that counts as left over: a line that a write-combining buffer may lose as a whole.
const LINE: usize = 64;

impl Scrubs {
    /// Nothing counts as overwritten yet, of a memory that holds `content`.
    pub(super) fn over(content: Vec<u8>) -> Self {
        Self { before: content, filled: false, unseen: 0 }
    }

    /// A session ended with `content` in memory; returns the scrubs that this completes.
    ///
    /// `None`: the next session began before anyone looked. Such sessions are taken for what their order says,
    /// fill and zero in turn, and the next one that was looked at closes the account; so a slow twin misses
    /// none and counts none twice.
    pub(super) fn session(&mut self, content: Option<Vec<u8>>) -> u32 {
        let Some(content) = content else {
            self.unseen += 1;
            return 0;
        };
        let zero = is_zero(&content);
        let in_turn = u32::from(self.filled) + self.unseen + u32::from(zero);
        let filled = !zero && differs_everywhere(&self.before, &content);
        *self = Self { before: content, filled, unseen: 0 };
        in_turn / 2
    }
}

fn is_zero(content: &[u8]) -> bool {
    content.chunks(LINE).all(|line| line == &[0; LINE][..line.len()])
}

fn differs_everywhere(before: &[u8], after: &[u8]) -> bool {
    before.len() == after.len() && before.chunks(LINE).zip(after.chunks(LINE)).all(|(old, new)| old != new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(byte: u8) -> Option<Vec<u8>> {
        Some(vec![byte; 4096])
    }

    #[test]
    fn fill_then_zero_is_one() {
        let mut scrubs = Scrubs::over(vec![7; 4096]);
        let sessions = [memory(1), memory(0), memory(0), memory(2), memory(3), memory(0)];
        assert_eq!(sessions.map(|content| scrubs.session(content)), [0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn what_left_a_line_is_no_fill() {
        let mut partly = vec![1; 4096];
        partly[4032..].fill(7);
        let mut scrubs = Scrubs::over(vec![7; 4096]);
        assert_eq!([Some(partly), memory(0)].map(|content| scrubs.session(content)), [0, 0]);
    }

    #[test]
    fn unseen_sessions_count_in_turn() {
        for (unseen, first, then) in
            [(1, memory(0), 1), (3, memory(0), 2), (2, memory(1), 1), (4, memory(1), 2)]
        {
            let mut scrubs = Scrubs::over(vec![7; 4096]);
            for _ in 0..unseen {
                assert_eq!(scrubs.session(None), 0);
            }
            assert_eq!(scrubs.session(first), then, "after {unseen} unseen");
        }
        let mut scrubs = Scrubs::over(vec![7; 4096]);
        assert_eq!(
            [memory(1), None, memory(2), memory(0)].map(|content| scrubs.session(content)),
            [0, 0, 1, 1]
        );
    }
}
