//! Which steps are behind which others, for all of a plan at once.
//!
//! Asking for each step of a long chain on its own would take the square of its length. Here every step that is asked for has one bit and every
//! step a row of them: ten thousand steps that all ask for each other take megabytes and milliseconds. Nothing is known of steps that were not
//! asked for.

use std::collections::HashMap;

use super::plan::NodeId;

/// By step: which of those asked for it is, or has behind itself.
#[derive(Debug)]
pub struct Behind {
    bits: HashMap<NodeId, usize>,
    rows: Vec<Vec<u64>>,
}

/// Some of the steps that were asked for.
#[derive(Debug, Clone)]
pub struct Several(Vec<u64>);

impl Behind {
    /// `order` has every step once, after those that `directly` says are just behind it.
    pub fn new<I: IntoIterator<Item = NodeId>>(
        asked: impl IntoIterator<Item = NodeId>,
        order: &[NodeId],
        directly: impl Fn(NodeId) -> I,
    ) -> Self {
        let mut bits = HashMap::new();
        for node in asked {
            let next = bits.len();
            bits.entry(node).or_insert(next);
        }
        let mut behind = Self { rows: vec![Vec::new(); order.len()], bits };
        for node in order {
            let Several(mut row) = behind.several([*node]);
            for one in directly(*node) {
                row.iter_mut().zip(&behind.rows[one.0 as usize]).for_each(|(word, more)| *word |= more);
            }
            behind.rows[node.0 as usize] = row;
        }
        behind
    }

    /// Those of `nodes` that were asked for.
    pub fn several(&self, nodes: impl IntoIterator<Item = NodeId>) -> Several {
        let mut words = vec![0; self.bits.len().div_ceil(64)];
        for bit in nodes.into_iter().filter_map(|node| self.bits.get(&node)) {
            words[bit / 64] |= 1 << (bit % 64);
        }
        Several(words)
    }

    /// Whether `step` is `from` or behind it.
    pub fn reaches(&self, from: NodeId, step: NodeId) -> bool {
        self.bits.get(&step).is_some_and(|bit| self.rows[from.0 as usize][bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Whether any of `several` is `from` or behind it.
    pub fn reaches_any(&self, from: NodeId, several: &Several) -> bool {
        self.rows[from.0 as usize].iter().zip(&several.0).any(|(row, word)| row & word != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than a word of bits, and than two.
    const STEPS: u32 = 150;

    fn step(number: u32) -> NodeId {
        NodeId(number)
    }

    #[test]
    fn of_a_chain_every_step_has_behind_itself_those_before_it() {
        let order: Vec<NodeId> = (0..STEPS).map(step).collect();
        let behind = Behind::new(order.clone(), &order, |node| node.0.checked_sub(1).map(NodeId));
        for (from, to) in (0..STEPS).flat_map(|from| (0..STEPS).map(move |to| (from, to))) {
            assert_eq!(behind.reaches(step(from), step(to)), to <= from, "from {from} to {to}");
        }
        let some = behind.several([step(70), step(140)]);
        for from in 0..STEPS {
            assert_eq!(behind.reaches_any(step(from), &some), from >= 70, "from {from}");
        }
    }

    #[test]
    fn nothing_is_known_of_what_was_not_asked_for() {
        let order: Vec<NodeId> = (0..3).map(step).collect();
        let behind = Behind::new([step(1)], &order, |node| node.0.checked_sub(1).map(NodeId));
        let reached: Vec<bool> = (0..3).map(|to| behind.reaches(step(2), step(to))).collect();
        assert_eq!(reached, [false, true, false]);
    }
}
