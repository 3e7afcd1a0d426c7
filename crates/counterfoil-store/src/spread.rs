//! Maps and sets of streams, with a hash that costs next to nothing.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use counterfoil_core::StreamId;

pub type Map<T> = HashMap<StreamId, T, Spread>;
pub type Set = HashSet<StreamId, Spread>;

/// Streams are digests: eight of their bytes are a good hash already. A secret per process keeps callers, who
/// choose what is digested, from filling one bucket.
#[derive(Clone)]
pub struct Spread {
    secret: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { secret: RandomState::new().hash_one(0) | 1 }
    }
}

impl BuildHasher for Spread {
    type Hasher = Spreading;
    fn build_hasher(&self) -> Spreading {
        Spreading { secret: self.secret, hash: 0 }
    }
}

pub struct Spreading {
    secret: u64,
    hash: u64,
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        // Called with the 32 bytes, and with their length in front, which says nothing.
        if let Some(eight) = bytes.first_chunk::<8>() {
            let wide = u128::from(u64::from_le_bytes(*eight) ^ self.secret) * u128::from(self.secret);
            self.hash = (wide >> 64) as u64 ^ wide as u64;
        }
    }
    fn write_usize(&mut self, _: usize) {}
    fn finish(&self) -> u64 {
        self.hash
    }
}
