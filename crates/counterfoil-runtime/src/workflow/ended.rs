//! Which steps have ended whenever another begins: what [`Plan::before`] says, for all steps at once.
//!
//! Asking the plan for each step of a long chain would take the square of its length. Here every step that is asked for has one bit, and every step
//! a row of them; so ten thousand steps that all refer to each other take megabytes and milliseconds.

use std::collections::HashMap;

use counterfoil_core::run::plan::{BlockId, NodeId, Plan, Shape};

pub struct Ended<'p> {
    plan: &'p Plan,
    /// Of the steps that may be asked for.
    bits: HashMap<NodeId, usize>,
    words: usize,
    /// By number: what has ended once this step has, as far as it is in the same block or inside of it.
    rows: Vec<Vec<u64>>,
}

impl<'p> Ended<'p> {
    pub fn new(plan: &'p Plan, asked: impl IntoIterator<Item = NodeId>) -> Self {
        let mut bits = HashMap::new();
        for node in asked {
            let next = bits.len();
            bits.entry(node).or_insert(next);
        }
        let words = bits.len().div_ceil(64);
        let mut ended = Self { plan, bits, words, rows: Vec::new() };
        ended.fill();
        ended
    }

    /// Whether `step` has ended when `node` begins: a need of `node`, or of a step around it, has it behind itself.
    pub fn before(&self, node: NodeId, step: NodeId) -> bool {
        let Some(bit) = self.bits.get(&step) else { return false };
        let mut from = std::iter::once(node).chain(self.plan.around(node)).flat_map(|n| &self.plan.node(n).needs);
        from.any(|need| self.rows[need.0 as usize][bit / 64] >> (bit % 64) & 1 == 1)
    }

    fn fill(&mut self) {
        let blocks = self.plan.nodes().map(|(_, node)| node.block).max().map_or(0, |last| last.0 + 1);
        self.rows = vec![Vec::new(); self.plan.nodes().count()];
        // The blocks inside a step come after its own.
        for block in (0..blocks).rev().map(BlockId) {
            for node in in_order(self.plan, block) {
                self.rows[node.0 as usize] = self.row(node);
            }
        }
    }

    fn row(&self, node: NodeId) -> Vec<u64> {
        let mut row = vec![0; self.words];
        if let Some(bit) = self.bits.get(&node) {
            row[bit / 64] |= 1 << (bit % 64);
        }
        for behind in self.plan.node(node).needs.iter().copied().chain(self.inside(node)) {
            row.iter_mut().zip(&self.rows[behind.0 as usize]).for_each(|(word, more)| *word |= more);
        }
        row
    }

    /// Directly inside, unless it is once per item.
    fn inside(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let blocks = match &self.plan.node(node).shape {
            Shape::Act | Shape::Map { .. } => Vec::new(),
            Shape::Parallel { branches, .. } => branches.clone(),
            Shape::Scope { body, .. } => vec![*body],
        };
        blocks.into_iter().flat_map(|block| self.plan.block(block).nodes.iter().copied())
    }
}

/// The steps of a block, each after those it needs.
fn in_order(plan: &Plan, block: BlockId) -> Vec<NodeId> {
    let mut waiting: HashMap<NodeId, usize> = plan.block(block).nodes.iter().map(|node| (*node, plan.node(*node).needs.len())).collect();
    let mut order: Vec<NodeId> = plan.block(block).nodes.iter().copied().filter(|node| waiting[node] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        for dependent in &plan.node(order[next]).dependents {
            let left = waiting.get_mut(dependent).expect("who needs a step is beside it");
            *left -= 1;
            if *left == 0 {
                order.push(*dependent);
            }
        }
        next += 1;
    }
    order
}
