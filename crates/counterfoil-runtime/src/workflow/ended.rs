//! Which steps have ended whenever another begins: what [`Plan::before`] says, for all steps at once.

use std::collections::HashMap;

use counterfoil_core::run::behind::Behind;
use counterfoil_core::run::plan::{BlockId, NodeId, Plan, Shape};

pub struct Ended<'p> {
    plan: &'p Plan,
    /// What has ended once a step has, as far as it is in the same block or inside of it.
    behind: Behind,
}

impl<'p> Ended<'p> {
    /// `asked` are the steps that [`Ended::before`] will be asked for.
    pub fn new(plan: &'p Plan, asked: impl IntoIterator<Item = NodeId>) -> Self {
        let blocks = plan.nodes().map(|(_, node)| node.block).max().map_or(0, |last| last.0 + 1);
        // The blocks inside a step come after its own.
        let order: Vec<NodeId> = (0..blocks).rev().flat_map(|block| in_order(plan, BlockId(block))).collect();
        let directly = |node: NodeId| plan.node(node).needs.iter().copied().chain(inside(plan, node));
        Self { plan, behind: Behind::new(asked, &order, directly) }
    }

    /// Whether `step` has ended when `node` begins: a need of `node`, or of a step around it, has it behind itself.
    pub fn before(&self, node: NodeId, step: NodeId) -> bool {
        let mut needs = std::iter::once(node).chain(self.plan.around(node)).flat_map(|n| &self.plan.node(n).needs);
        needs.any(|need| self.behind.reaches(*need, step))
    }
}

/// Directly inside, unless it is once per item.
fn inside(plan: &Plan, node: NodeId) -> impl Iterator<Item = NodeId> {
    let blocks = match &plan.node(node).shape {
        Shape::Act | Shape::Map { .. } => Vec::new(),
        Shape::Parallel { branches, .. } => branches.clone(),
        Shape::Scope { body, .. } => vec![*body],
    };
    blocks.into_iter().flat_map(|block| plan.block(block).nodes.iter().copied())
}

/// The steps of a block, each after those it needs.
fn in_order(plan: &Plan, block: BlockId) -> Vec<NodeId> {
    let nodes = &plan.block(block).nodes;
    let mut waiting: HashMap<NodeId, usize> = nodes.iter().map(|node| (*node, plan.node(*node).needs.len())).collect();
    let mut order: Vec<NodeId> = nodes.iter().copied().filter(|node| waiting[node] == 0).collect();
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
