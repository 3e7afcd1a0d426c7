//! Numbers nobody has used before, without asking the operating system each time.
//!
//! [`Fresh`] is seeded once per runtime, from the system's randomness unless somebody names the seed, and then counted on: unique, well spread, and
//! not secret. What must not be guessed is [`unguessable`], and asks each time.

use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil_core::Timestamp;

pub struct Fresh {
    /// Half of every id: no two runtimes share it.
    seed: u64,
    /// Where this runtime's own sequence began.
    start: u64,
    count: AtomicU64,
}

impl Fresh {
    pub fn new() -> Self {
        let (seed, start) = uuid::Uuid::new_v4().as_u64_pair();
        Self { seed, start, count: AtomicU64::new(0) }
    }

    /// The same numbers for the same seed. Unique only as far as seeds are.
    pub fn seeded(seed: u64) -> Self {
        Self { seed: spread(seed), start: spread(!seed), count: AtomicU64::new(0) }
    }

    fn next(&self) -> u64 {
        spread(self.start.wrapping_add(self.count.fetch_add(1, Ordering::Relaxed)))
    }

    /// For an id that is short and need only be new.
    pub fn number(&self) -> u64 {
        self.next()
    }

    /// 16 bytes for a key that is new each time.
    pub fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.seed.to_be_bytes());
        nonce[8..].copy_from_slice(&self.next().to_be_bytes());
        nonce
    }

    /// A version 7 UUID.
    pub fn uuid(&self, now: Timestamp) -> String {
        let mut random = [0; 10];
        random[..2].copy_from_slice(&self.seed.to_be_bytes()[..2]);
        random[2..].copy_from_slice(&self.next().to_be_bytes());
        let millis = u64::try_from(now.0 / 1000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string()
    }

    /// Between 0 and 1, for the retry schedule.
    pub fn jitter(&self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}

/// 32 bytes of the system's randomness (244 random bits, the rest says that they are UUIDs): for salts and secrets.
pub fn unguessable() -> [u8; 32] {
    let (a, b) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(a.as_bytes());
    bytes[16..].copy_from_slice(b.as_bytes());
    bytes
}

/// Splitmix64: one to one, so what is counted up stays distinct.
fn spread(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nothing_comes_twice() {
        let fresh = [Fresh::new(), Fresh::new()];
        let nonces: HashSet<[u8; 16]> = (0..20_000).map(|n| fresh[n % 2].nonce()).collect();
        assert_eq!(nonces.len(), 20_000);
        let id = fresh[0].uuid(Timestamp::from_millis(1_700_000_000_000));
        assert!(uuid::Uuid::parse_str(&id).is_ok_and(|id| id.get_version_num() == 7), "{id}");
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&fresh[0].jitter())));
    }
}
