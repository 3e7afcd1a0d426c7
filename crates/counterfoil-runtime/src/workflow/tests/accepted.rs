//! What is read from good files.

use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::policy::Jitter;
use counterfoil_core::run::confirm::{OnDrift, When};
use counterfoil_core::run::plan::{Join, OnFailure, Shape};

use super::{EXAMPLES, FULL, good};
use crate::template::Scope;
use crate::workflow::{Nap, RETAIN, StepSpec, WaitFor, Workflow};

/// The one in the design.
const TRIP: &str = r#"
workflow: book-trip
input: { type: object, required: [customer] }
steps:
  - id: flight
    tool: book_flight
    args: { customer: "${input.customer}" }
    undo: { tool: cancel_flight, args: { booking: "${result.id}" } }
  - id: hotel
    tool: book_hotel
    args: { nights: 3 }
    retry: { attempts: 3 }
    timeout: 20s
    undo: { tool: cancel_hotel, args: { booking: "${result.id}" } }
  - id: check
    decision:
      - { when: "steps.hotel.result.price > 500", then: [boss] }
      - { else: [pay] }
  - id: boss
    needs: [check]
    wait: { approval: "A trip of ${steps.hotel.result.price}", timeout: 24h }
  - id: pay
    needs: [check, boss]
    tool: charge_card
    args: { order_id: "${run.id}", cents: "${steps.hotel.result.price * 100}" }
  - id: tell
    parallel:
      join: all
      branches:
        - [{ id: mail, tool: send_mail, args: { to: "${input.customer}" } }]
        - [{ id: log, tool: append_log, args: { run: "${run.id}" } }]
output: { booking: "${steps.flight.result.id}" }
"#;

fn step<'w>(workflow: &'w Workflow, id: &str) -> &'w StepSpec {
    workflow.step(workflow.plan.find(id).expect(id))
}

#[test]
fn the_examples() {
    let names: Vec<String> = EXAMPLES.iter().map(|text| good(text).name.to_string()).collect();
    assert_eq!(names, ["book-trip", "file-pipeline", "pay-invoice", "make-items"]);
    let trip = good(TRIP);
    assert_eq!((trip.steps.len(), trip.retain, trip.timeout), (8, RETAIN, None));
    assert_eq!((trip.text.as_ref(), trip.digest), (TRIP, Digest32::of(TRIP.as_bytes())));
}

#[test]
fn a_full_file_is_read_whole() {
    let workflow = good(FULL);
    assert_eq!((workflow.name.as_str(), workflow.description.as_deref()), ("everything", Some("All that can be written.")));
    assert_eq!((workflow.timeout, workflow.effects_max), (Some(Duration::from_secs(7200)), Some(50)));
    assert_eq!(workflow.tools.as_ref().unwrap().iter().map(|t| t.as_str()).collect::<Vec<_>>(), ["a", "b", "c/d"]);
    assert_eq!(workflow.retain, Duration::from_secs(7 * 86_400));
    assert_eq!((workflow.confirm.when, workflow.confirm.on_drift()), (None, OnDrift::Human));
    assert!(workflow.input.is_some() && workflow.output.is_some());

    let StepSpec::Tool(one) = step(&workflow, "one") else { panic!() };
    assert_eq!((one.tool.as_str(), one.confirm.when(), one.confirm.on_drift()), ("a", When::Always, OnDrift::Strict));
    let retry = one.retry.unwrap();
    assert_eq!((retry.attempts, retry.first, retry.jitter), (9, Duration::from_secs(1), Jitter::Off));
    let undo = one.undo.as_ref().unwrap();
    assert_eq!((undo.tool.as_str(), undo.retry.unwrap().attempts), ("b", 1));
    let scope = Scope::new().with("input", &serde_json::json!({ "n": 4 })).with("run", &serde_json::json!({ "id": "r" }));
    assert_eq!(one.args.render(&scope).unwrap(), serde_json::json!({ "n": 4, "list": [1, "x-r", null], "deep": { "yes": true } }));
    let StepSpec::Tool(two) = step(&workflow, "two") else { panic!() };
    assert_eq!((two.args.render(&scope).unwrap(), two.confirm.when()), (serde_json::json!({}), When::Never));

    let StepSpec::Decision { when } = step(&workflow, "choose") else { panic!() };
    assert_eq!(when.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    assert!(matches!(step(&workflow, "three"), StepSpec::Sleep(Nap::For(time)) if *time == Duration::from_secs(3600)));
    assert!(matches!(step(&workflow, "b3"), StepSpec::Sleep(Nap::Until(expr)) if expr.source() == "input.n"));
    assert!(matches!(step(&workflow, "b4"), StepSpec::Scope { tools: Some(tools) } if tools.len() == 1));
    assert!(matches!(step(&workflow, "each"), StepSpec::Map { item, .. } if item == "row"));
    assert!(matches!(step(&workflow, "cells"), StepSpec::Map { item, .. } if item == "item"));
    let StepSpec::Wait(came) = step(&workflow, "came") else { panic!() };
    assert!(matches!(&came.on, WaitFor::Signal { name, correlation: Some(_) } if name == "paid"));
    assert_eq!(came.timeout, Some(Duration::from_secs(24 * 3600)));
    assert!(matches!(step(&workflow, "nested"), StepSpec::Call { workflow, .. } if workflow.as_str() == "other/one"));
    assert!(
        matches!(step(&workflow, "yes"), StepSpec::Wait(wait) if matches!(wait.on, WaitFor::Approval { .. }) && wait.timeout.is_none())
    );
}

#[test]
fn the_plan_is_as_written() {
    let workflow = good(FULL);
    let plan = &workflow.plan;
    let node = |id: &str| plan.node(plan.find(id).expect(id));
    assert_eq!((node("one").on_failure, node("one").timeout), (OnFailure::Continue, Some(Duration::from_secs(20))));
    assert_eq!(node("choose").skips.iter().map(Vec::len).collect::<Vec<_>>(), [2, 3, 1]);
    assert!(matches!(&node("both").shape, Shape::Parallel { join: Join::Some(2), branches } if branches.len() == 3));
    assert!(matches!(node("each").shape, Shape::Map { at_once: 4, .. }) && matches!(node("cells").shape, Shape::Map { at_once: 1, .. }));
    assert!(matches!(node("b4").shape, Shape::Scope { effects_max: Some(1), .. }));
    // How long is waited is the wait's own; the plan's timeout would be a failure.
    assert_eq!((node("came").timeout, node("came").skips.len()), (None, 2));
    // Every step stands where the plan has it.
    for (id, node) in plan.nodes() {
        let inside = !matches!(node.shape, Shape::Act);
        let spec = workflow.step(id);
        assert_eq!(inside, matches!(spec, StepSpec::Parallel | StepSpec::Map { .. } | StepSpec::Scope { .. }), "{}", node.id);
    }
}

#[test]
fn a_wait_has_as_many_ways_as_are_written() {
    let ways = |fields: &str| {
        let steps = "- { id: a, needs: [w], tool: t }\n  - { id: b, needs: [w], tool: t }\n";
        let workflow = good(&format!("workflow: w\nsteps:\n  - {{ id: w, wait: {{ approval: x, {fields} }} }}\n  {steps}"));
        let skips = &workflow.plan.node(workflow.plan.find("w").unwrap()).skips;
        skips.iter().map(|s| s.iter().map(|n| workflow.plan.node(*n).id.to_string()).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert!(ways("").is_empty());
    assert_eq!(ways("then: [a]"), [""]);
    assert_eq!(ways("otherwise: [b]"), ["b", ""]);
    assert_eq!(ways("then: [a], otherwise: [b]"), ["b", "a"]);
    assert_eq!(ways("then: [a], otherwise: []"), ["", "a"]);
}

#[test]
fn a_file_is_loaded_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.yaml");
    let missing = Workflow::load(&path).unwrap_err();
    assert_eq!(missing.mistakes()[0].to_string(), "there is no such file");
    std::fs::write(&path, TRIP).unwrap();
    assert_eq!(Workflow::load(&path).unwrap().name.as_str(), "book-trip");
}
