//! A set of small numbers: which operations a configuration has taken.

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bits(Box<[u64]>);

impl Bits {
    pub fn empty(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)].into())
    }

    pub fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    pub fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & !theirs == 0)
    }
}
