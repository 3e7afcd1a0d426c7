//! Which streams may be in the file: so that for a stream that was never written it need not be asked.
//!
//! A Bloom filter in layers. It may say "perhaps" for a stream that is not there (about one in a hundred), never "no" for one that it was given. It is
//! filled from the file's index page by page, on the way of loads that found nothing; until that is through, it says "perhaps" to everything. An append
//! believes it under the write lock, when the index in memory has caught up with every process: what must stay true is that each stream that leaves that index is put in.

use counterfoil_core::StreamId;

/// Streams of the first layer; each further one holds twice as many.
const FIRST_LAYER: usize = 1 << 17;
const BITS_PER_STREAM: usize = 10;
const PROBES: u64 = 6;

#[derive(Default)]
pub struct Filter {
    layers: Vec<Layer>,
}

struct Layer {
    bits: Vec<u64>,
    room: usize,
}

impl Filter {
    pub fn insert(&mut self, stream: &StreamId) {
        if self.may_hold(stream) {
            return;
        }
        if self.layers.last().is_none_or(|layer| layer.room == 0) {
            let room = FIRST_LAYER << self.layers.len();
            self.layers.push(Layer { bits: vec![0; room * BITS_PER_STREAM / 64], room });
        }
        let layer = self.layers.last_mut().expect("made above");
        layer.room -= 1;
        let total = layer.bits.len() as u64 * 64;
        for bit in places(stream, total) {
            layer.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    pub fn may_hold(&self, stream: &StreamId) -> bool {
        self.layers.iter().any(|layer| {
            let total = layer.bits.len() as u64 * 64;
            places(stream, total).all(|bit| layer.bits[(bit / 64) as usize] & (1 << (bit % 64)) != 0)
        })
    }
}

/// Streams are digests: their own bytes are the hashes.
fn places(stream: &StreamId, total: u64) -> impl Iterator<Item = u64> {
    let word = |at: usize| u64::from_le_bytes(stream.0[at..at + 8].try_into().expect("eight bytes"));
    let (first, step) = (word(8), word(16) | 1);
    (0..PROBES).map(move |n| first.wrapping_add(step.wrapping_mul(n)) % total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(n: u64) -> StreamId {
        let mut bytes = [0; 32];
        let mut state = n;
        for chunk in bytes.chunks_exact_mut(8) {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
        StreamId(bytes)
    }

    #[test]
    fn it_never_denies_what_it_was_given_and_rarely_confirms_what_it_was_not() {
        let mut filter = Filter::default();
        let given = FIRST_LAYER as u64 * 3;
        (0..given).for_each(|n| filter.insert(&stream(n)));
        assert!((0..given).all(|n| filter.may_hold(&stream(n))));
        let false_alarms = (given..given + 20_000).filter(|n| filter.may_hold(&stream(*n))).count();
        assert!(false_alarms < 1_000, "{false_alarms} of 20000");
    }
}
