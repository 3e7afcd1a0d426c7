//! Seeded random numbers (splitmix64): small, the same on every machine, and no dependency. Not for secrets.

#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, `n`. The bias of the remainder is of no concern for a choice among a few.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "nothing to choose from");
        (self.draw() % n as u64) as usize
    }

    /// True `percent` times out of a hundred.
    pub fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < percent as usize
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// An index, chosen in proportion to its weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut rest = self.below(weights.iter().sum::<u32>() as usize) as u32;
        for (index, weight) in weights.iter().enumerate() {
            if rest < *weight {
                return index;
            }
            rest -= weight;
        }
        unreachable!("the rest is below the sum of the weights")
    }
}
