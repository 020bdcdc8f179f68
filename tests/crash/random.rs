//! Numbers that are the same for the same seed.

/// splitmix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Another one that depends on this and on a number.
    pub(crate) fn branch(&self, number: u64) -> Self {
        let mut other = Self(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        other.next();
        other
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below this.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// One of so many times out of a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}
