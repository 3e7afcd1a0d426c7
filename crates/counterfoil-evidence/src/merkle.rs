//! The Merkle tree of RFC 6962 and RFC 9162: hashes, what a proof is made of, and how it is checked.
//!
//! A tree of n leaves is split at the largest power of two below n. A proof is a list of subtrees that the verifier cannot know: here they are named
//! ([`Span`]), so that whoever keeps the tree may fetch their hashes in whatever way he keeps them. Nothing here trusts a proof: each check rebuilds
//! the root, and uses up every hash that it was given.

use counterfoil_core::ids::Digest32;
use sha2::{Digest, Sha256};

/// Hash of a leaf: another prefix than an inner node has, so that no leaf can be taken for one.
pub fn leaf_hash(bytes: &[u8]) -> Digest32 {
    Digest32(Sha256::new().chain_update([0]).chain_update(bytes).finalize().into())
}

pub fn node_hash(left: &Digest32, right: &Digest32) -> Digest32 {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    Digest32::of(&bytes)
}

/// The root of no leaves.
pub fn empty_root() -> Digest32 {
    Digest32::of(b"")
}

/// The leaves from `from` up to, and without, `to`: a subtree of some tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    pub from: u64,
    pub to: u64,
}

impl Span {
    pub fn whole(size: u64) -> Self {
        Self { from: 0, to: size }
    }

    pub fn len(self) -> u64 {
        self.to - self.from
    }

    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// Its two halves. It has two leaves at least.
    fn halves(self) -> (Self, Self) {
        // The largest power of two that is smaller than the length.
        let left = 1u64 << (self.len() - 1).ilog2();
        (Self { to: self.from + left, ..self }, Self { from: self.from + left, ..self })
    }

    /// It as complete subtrees, largest first: all that is stored of a tree are these.
    pub fn complete(self) -> Vec<Complete> {
        let mut at = self.from;
        let mut parts = Vec::new();
        while at < self.to {
            let left = self.to - at;
            let level = left.ilog2();
            parts.push(Complete { level, index: at >> level });
            at += 1 << level;
        }
        parts
    }
}

/// A subtree of 2^level leaves that begins at a multiple of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Complete {
    pub level: u32,
    pub index: u64,
}

/// The hash of a span from those of its complete subtrees, largest first. They are joined from the right. `None`: there is none.
pub fn join(parts: impl DoubleEndedIterator<Item = Digest32>) -> Option<Digest32> {
    parts.rev().reduce(|right, left| node_hash(&left, &right))
}

/// What proves that `leaf` is in a tree of `size` leaves: its siblings, from the leaf up.
pub fn inclusion(leaf: u64, size: u64) -> Vec<Span> {
    let mut siblings = Vec::new();
    let mut span = Span::whole(size);
    while span.len() > 1 {
        let (left, right) = span.halves();
        let (inside, beside) = if leaf < left.to { (left, right) } else { (right, left) };
        siblings.push(beside);
        span = inside;
    }
    siblings.reverse();
    siblings
}

/// The root that an inclusion proof leads to. `None`: it is no proof for such a leaf of such a tree.
pub fn root_of_inclusion(leaf: Digest32, index: u64, size: u64, proof: &[Digest32]) -> Option<Digest32> {
    if index >= size || inclusion(index, size).len() != proof.len() {
        return None;
    }
    let mut siblings = inclusion(index, size).into_iter().zip(proof);
    Some(siblings.by_ref().fold(leaf, |hash, (span, beside)| match span.from > index {
        true => node_hash(&hash, beside),
        false => node_hash(beside, &hash),
    }))
}

/// What proves that a tree of `new` leaves begins with that of `old` leaves, as RFC 9162 orders it.
pub fn consistency(old: u64, new: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    if old == 0 || old >= new {
        return spans;
    }
    let (mut span, mut known) = (Span::whole(new), true);
    // Down to the subtree that ends where the old tree ended. Its root is the old one if it began there too.
    while span.to != old {
        let (left, right) = span.halves();
        if old <= left.to {
            spans.push(right);
            span = left;
        } else {
            spans.push(left);
            span = right;
            known = false;
        }
    }
    if !known {
        spans.push(span);
    }
    spans.reverse();
    spans
}

/// A tree as someone saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub size: u64,
    pub root: Digest32,
}

/// Whether the proof shows that `new` begins with `old`.
pub fn is_consistent(old: Seen, new: Seen, proof: &[Digest32]) -> bool {
    if old.size > new.size || old.size == 0 || old.size == new.size {
        let trivial = old.size == 0 && old.root == empty_root() || old.size == new.size && old.root == new.root;
        return trivial && proof.is_empty();
    }
    let spans = consistency(old.size, new.size);
    if spans.len() != proof.len() {
        return false;
    }
    let mut parts = spans.iter().zip(proof);
    // A power of two is a subtree by itself: the old root is where the proof begins.
    let (mut old_root, mut new_root, end) = match old.size.is_power_of_two() {
        true => (old.root, old.root, old.size),
        false => match parts.next() {
            Some((span, hash)) => (*hash, *hash, span.to),
            None => return false,
        },
    };
    debug_assert_eq!(end, old.size);
    for (span, hash) in parts {
        if span.from >= old.size {
            new_root = node_hash(&new_root, hash);
        } else {
            old_root = node_hash(hash, &old_root);
            new_root = node_hash(hash, &new_root);
        }
    }
    old_root == old.root && new_root == new.root
}

/// What proves that all of `leaves` (ascending, none twice) are in a tree of `size`: the largest subtrees without any of them, from left to right.
pub fn cover(leaves: &[u64], size: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    cover_in(Span::whole(size), leaves, &mut spans);
    spans
}

fn cover_in(span: Span, leaves: &[u64], spans: &mut Vec<Span>) {
    match (leaves.len(), span.len()) {
        (_, 0) => {}
        (0, _) => spans.push(span),
        (_, 1) => {}
        // Nothing beside them.
        (all, length) if all as u64 == length => {}
        _ => {
            let (left, right) = span.halves();
            let split = leaves.partition_point(|leaf| *leaf < left.to);
            cover_in(left, &leaves[..split], spans);
            cover_in(right, &leaves[split..], spans);
        }
    }
}

/// The root that a cover leads to. `None`: leaves are not ascending or lie outside, or there are too few or too many hashes.
pub fn root_of_cover(leaves: &[(u64, Digest32)], size: u64, cover: &[Digest32]) -> Option<Digest32> {
    let ascending = leaves.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !ascending || leaves.last().is_some_and(|(last, _)| *last >= size) {
        return None;
    }
    if size == 0 {
        return cover.is_empty().then(empty_root);
    }
    let mut rest = cover.iter();
    let root = root_in(Span::whole(size), leaves, &mut rest)?;
    rest.next().is_none().then_some(root)
}

fn root_in(span: Span, leaves: &[(u64, Digest32)], rest: &mut std::slice::Iter<'_, Digest32>) -> Option<Digest32> {
    match (leaves, span.len()) {
        ([], _) => rest.next().copied(),
        ([(_, hash), ..], 1) => Some(*hash),
        _ => {
            let (left, right) = span.halves();
            let split = leaves.partition_point(|(leaf, _)| *leaf < left.to);
            let left = root_in(left, &leaves[..split], rest)?;
            let right = root_in(right, &leaves[split..], rest)?;
            Some(node_hash(&left, &right))
        }
    }
}

/// A tree that leaves are added to, as little as is needed to know its root: one hash for each bit of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Of its complete subtrees, largest first.
    parts: Vec<Digest32>,
}

impl Frontier {
    pub fn new(size: u64, parts: Vec<Digest32>) -> Option<Self> {
        (parts.len() == size.count_ones() as usize).then_some(Self { size, parts })
    }

    pub fn push(&mut self, leaf: Digest32) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            let left = self.parts.pop().expect("there is a part for each bit of the size");
            hash = node_hash(&left, &hash);
        }
        self.parts.push(hash);
        self.size += 1;
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn root(&self) -> Digest32 {
        join(self.parts.iter().copied()).unwrap_or_else(empty_root)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves(n: u64) -> Vec<Digest32> {
        (0..n).map(|i| leaf_hash(&i.to_be_bytes())).collect()
    }

    /// The definition, as the RFC has it.
    fn naive(leaves: &[Digest32]) -> Digest32 {
        match leaves {
            [] => Digest32::of(b""),
            [one] => *one,
            _ => {
                let mut split = 1;
                while split * 2 < leaves.len() {
                    split *= 2;
                }
                node_hash(&naive(&leaves[..split]), &naive(&leaves[split..]))
            }
        }
    }

    fn hashes(spans: &[Span], leaves: &[Digest32]) -> Vec<Digest32> {
        spans.iter().map(|span| naive(&leaves[span.from as usize..span.to as usize])).collect()
    }

    /// Values of RFC 6962's own reference implementation.
    #[test]
    fn known_roots() {
        let inputs: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut tree = Frontier::default();
        assert_eq!(tree.root().to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for (input, root) in inputs.iter().zip(roots) {
            tree.push(leaf_hash(input));
            assert_eq!(tree.root().to_string(), root);
        }
    }

    #[test]
    fn every_proof_of_every_small_tree_holds() {
        let all = leaves(70);
        for size in 1..=all.len() as u64 {
            let tree = &all[..size as usize];
            let root = naive(tree);
            for leaf in 0..size {
                let proof = hashes(&inclusion(leaf, size), tree);
                assert_eq!(root_of_inclusion(tree[leaf as usize], leaf, size, &proof), Some(root));
                let elsewhere = root_of_inclusion(tree[leaf as usize], (leaf + 1) % size, size, &proof);
                assert!(size == 1 || elsewhere != Some(root), "leaf {leaf} of {size} is also at the next place");
            }
            for old in 0..=size {
                let before = Seen { size: old, root: naive(&tree[..old as usize]) };
                let proof = hashes(&consistency(old, size), tree);
                assert!(is_consistent(before, Seen { size, root }, &proof), "{old} → {size}");
                let other = Seen { root: leaf_hash(b"another"), ..before };
                assert!(!is_consistent(other, Seen { size, root }, &proof), "{old} → {size}, of another tree");
                if old < size {
                    let forked = Seen { size, root: leaf_hash(b"another") };
                    assert!(old == 0 || !is_consistent(before, forked, &proof), "{old} → {size}, into another tree");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_frontier_knows_the_root(size in 0u64..600) {
            let all = leaves(size);
            let mut tree = Frontier::default();
            all.iter().for_each(|leaf| tree.push(*leaf));
            prop_assert_eq!(tree.root(), naive(&all));
            let parts = Span::whole(size).complete().iter().map(|part| {
                let from = (part.index << part.level) as usize;
                naive(&all[from..from + (1 << part.level)])
            }).collect();
            prop_assert_eq!(Frontier::new(size, parts), Some(tree));
        }

        #[test]
        fn a_cover_proves_all_its_leaves_and_no_others(size in 1u64..600, picks in proptest::collection::btree_set(0u64..600, 0..40), flip in any::<proptest::sample::Index>()) {
            let all = leaves(size);
            let picked: Vec<u64> = picks.into_iter().filter(|leaf| *leaf < size).collect();
            let proof = hashes(&cover(&picked, size), &all);
            let known: Vec<(u64, Digest32)> = picked.iter().map(|leaf| (*leaf, all[*leaf as usize])).collect();
            prop_assert_eq!(root_of_cover(&known, size, &proof), Some(naive(&all)));
            let mut longer = proof.clone();
            longer.push(leaf_hash(b"one more"));
            prop_assert_eq!(root_of_cover(&known, size, &longer), None);
            if !known.is_empty() {
                let mut other = known.clone();
                other[flip.index(known.len())].1 = leaf_hash(b"another");
                prop_assert_ne!(root_of_cover(&other, size, &proof), Some(naive(&all)));
            }
        }
    }
}
