//! A violation as a person reads it: how far an order could be found, the answer that nothing explains, and both on one time line.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::search::{Search, Stuck, Taken};
use crate::history::{Operation, Text};
use crate::model::Model;

/// Of the order found so far only its end is shown: what is wrong is nearly always near.
const PREFIX_SHOWN: usize = 12;
/// Operations of unknown outcome that were not needed, the newest: any of them might have been the explanation and is not.
const UNKNOWN_SHOWN: usize = 6;
const BAR_WIDTH: usize = 48;

#[derive(Debug, Clone)]
pub struct Report {
    pub key: Text,
    /// How many operations the longest order holds.
    pub linearized: usize,
    /// How many answered operations there are in all.
    pub answered: usize,
    /// The operation whose answer nothing explains.
    pub culprit: String,
    text: String,
}

impl Report {
    pub fn new<M: Model>(key: Text, search: &Search<'_, M>, stuck: &Stuck) -> Self {
        let culprit = search.answered[stuck.frontier];
        let shown = &stuck.path[stuck.path.len().saturating_sub(PREFIX_SHOWN)..];
        let mut text = String::new();
        let hidden = stuck.path.len() - shown.len();
        writeln!(text, "key {key}: not linearizable").expect("a string takes everything");
        writeln!(text, "longest order found: {} operations, ending in", stuck.path.len()).expect("a string takes everything");
        for (index, taken) in shown.iter().enumerate() {
            writeln!(text, "  {:>4}. {}", hidden + index + 1, line(search.operation(*taken))).expect("a string takes everything");
        }
        writeln!(text, "after it: {}", stuck.states[0]).expect("a string takes everything");
        if stuck.states.len() > 1 {
            writeln!(text, "or another order, and: {}", stuck.states[1..].join("; or ")).expect("a string takes everything");
        }
        writeln!(text, "no order explains\n        {}", line(culprit)).expect("a string takes everything");
        text.push_str(&timeline(&rows(search, stuck, shown)));
        Self { key, linearized: stuck.path.len(), answered: search.answered.len(), culprit: line(culprit), text }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn line<O: fmt::Display, R: fmt::Display>(operation: &Operation<O, R>) -> String {
    let Operation { client, op, invoked, answer, .. } = operation;
    match answer {
        Some((answered, ret)) => format!("client {client}: {op} -> {ret}  [{}..{} us]", invoked.micros, answered.micros),
        None => format!("client {client}: {op} -> (unknown)  [{}.. us]", invoked.micros),
    }
}

struct Row {
    mark: char,
    from: u64,
    /// `None`: open.
    to: Option<u64>,
    label: String,
}

/// The end of the order, then the culprit, then what was under way with it and is in no order yet.
fn rows<M: Model>(search: &Search<'_, M>, stuck: &Stuck, shown: &[Taken]) -> Vec<Row> {
    let culprit = search.answered[stuck.frontier];
    let end = culprit.answer.as_ref().map_or(u64::MAX, |(moment, _)| moment.tick);
    let begun = |taken: &Taken| search.operation(*taken).invoked.tick <= end && !stuck.path.contains(taken);
    let others = (stuck.frontier + 1..search.answered.len()).map(Taken::Answered).filter(begun);
    let unknown = (0..search.unknown.len()).rev().map(Taken::Unknown).filter(begun).take(UNKNOWN_SHOWN);
    let row = |mark: char, taken: Taken| {
        let operation = search.operation(taken);
        let to = operation.answer.as_ref().map(|(moment, _)| moment.tick);
        let ret = operation.answer.as_ref().map_or("(unknown)".to_string(), |(_, ret)| ret.to_string());
        Row { mark, from: operation.invoked.tick, to, label: format!("c{} {} -> {ret}", operation.client, operation.op) }
    };
    let mut rows: Vec<_> = shown.iter().map(|taken| row(' ', *taken)).collect();
    rows.push(row('!', Taken::Answered(stuck.frontier)));
    rows.extend(others.chain(unknown).map(|taken| row('?', taken)));
    rows
}

/// One bar per operation; ticks in between that concern none of them are left out.
fn timeline(rows: &[Row]) -> String {
    let mut ticks: BTreeMap<u64, usize> = rows.iter().flat_map(|row| [Some(row.from), row.to]).flatten().map(|tick| (tick, 0)).collect();
    let steps = ticks.len().max(2) - 1;
    for (rank, place) in ticks.values_mut().enumerate() {
        *place = rank * (BAR_WIDTH - 1) / steps;
    }
    let mut text = String::from("time line (! not explained, ? under way with it):\n");
    for row in rows {
        let from = ticks[&row.from];
        let (to, end) = row.to.map_or((BAR_WIDTH - 1, '>'), |to| (ticks[&to], ']'));
        let bar: String = (0..BAR_WIDTH)
            .map(|place| match place {
                _ if place == from => '[',
                _ if place == to => end,
                _ if from < place && place < to => '-',
                _ => ' ',
            })
            .collect();
        writeln!(text, "  {} {bar} {}", row.mark, row.label).expect("a string takes everything");
    }
    text
}
