//! Tests of the reader of workflow files.

mod accepted;
mod documents;
mod expressions;
mod fuzz;
mod kinds;
mod large;
mod mistakes;
mod structure;

use crate::workflow::Workflow;

/// The examples users are given.
const EXAMPLES: [&str; 4] = [
    include_str!("../../../../../examples/workflows/trip.yaml"),
    include_str!("../../../../../examples/workflows/pipeline.yaml"),
    include_str!("../../../../../examples/workflows/approval.yaml"),
    include_str!("../../../../../examples/workflows/fanout.yaml"),
];

/// Every kind of step and every field.
const FULL: &str = include_str!("golden/full.yaml");

/// The workflow, or what is said about it.
fn parse(text: &str) -> Result<Workflow, Vec<String>> {
    Workflow::parse(text, "w.yaml").map_err(|errors| errors.lines().map(|line| line.replacen("w.yaml:", "", 1)).collect())
}

fn good(text: &str) -> Workflow {
    parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

/// What is said about a workflow with these steps, which begin in line 3 and column 3.
fn check(steps: &str, expected: &[&str]) {
    let mut text = String::from("workflow: w\nsteps:\n");
    for line in steps.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    assert_eq!(parse(&text).err().unwrap_or_default(), expected, "\n{text}");
}
