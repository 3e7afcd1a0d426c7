//! What users are given: the schema for their editors, and the examples. Neither may drift from the reader.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{EXAMPLES, FULL, parse};
use crate::config::{confirm, policy, tree};
use crate::workflow::{act, inside, read, steps};

const SCHEMA: &str = include_str!("../../../../../docs/workflow.schema.json");
const REFERENCE: &str = include_str!("../../../../../docs/workflows.md");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn as_json(text: &str) -> Value {
    tree::parse(text).0.map_or(Value::Null, |node| node.to_json())
}

#[test]
fn the_schema_accepts_what_the_reader_accepts() {
    let validator = jsonschema::options().offline().build(&schema()).unwrap();
    for text in EXAMPLES.iter().copied().chain([FULL]).chain(blocks().iter().map(String::as_str)) {
        assert!(parse(text).is_ok(), "{:#?}\n{text}", parse(text).err());
        let json = as_json(text);
        let errors: Vec<String> = validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{text}");
    }
}

/// The whole files in the reference.
fn blocks() -> Vec<String> {
    let blocks = REFERENCE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("workflow: ") && block.contains("steps:")).map(str::to_owned).collect()
}

#[test]
fn the_reference_has_an_example_and_names_every_field() {
    assert!(!blocks().is_empty());
    let lists =
        [read::TOP, read::BUDGET, steps::STEP, act::UNDO, act::WAY, act::WAIT, act::CALL, inside::PARALLEL, inside::MAP, inside::SCOPE];
    for field in lists.into_iter().flatten() {
        assert!(REFERENCE.contains(&format!("`{field}`")), "{field}");
    }
}

#[test]
fn the_schema_refuses_what_it_can() {
    let validator = jsonschema::options().offline().build(&schema()).unwrap();
    let step = |fields: &str| format!("workflow: w\nsteps: [{{ id: a, {fields} }}]");
    let files = [
        "steps: [{ id: a, tool: t }]".to_owned(),
        "workflow: w".to_owned(),
        "workflow: w\nsteps: []".to_owned(),
        "workflow: w\nsteps: [{ tool: t }]".to_owned(),
        "workflow: w\nretain: 5\nsteps: [{ id: a, tool: t }]".to_owned(),
        step(""),
        step("tol: t"),
        step("tool: t, sleep: 1s"),
        step("sleep: 1s, args: {}"),
        step("tool: t, timeout: 10"),
        step("tool: t, undo: { tool: u }"),
        step("tool: t, confirm: maybe"),
        step("tool: t, on_failure: ignore"),
        step("decision: []"),
        step("decision: [{ when: x }]"),
        step("decision: [{ when: x, then: [], else: [] }]"),
        step("parallel: { join: 2, branches: [[{ id: b, tool: t }]] }"),
        step("parallel: { branches: [] }"),
        step("parallel: { branches: [[]] }"),
        step("map: { over: 5, steps: [{ id: b, tool: t }] }"),
        step("map: { over: [], as: steps, steps: [{ id: b, tool: t }] }"),
        step("map: { over: [], concurrency: 1001, steps: [{ id: b, tool: t }] }"),
        step("scope: { steps: [{ id: b }] }"),
        step("sleep: 10"),
        step("wait: {}"),
        step("wait: { signal: a, approval: b }"),
        step("wait: { approval: b, correlation: c }"),
        step("timeout: 1h, wait: { approval: b }"),
        step("call: { input: {} }"),
    ];
    for text in files {
        assert!(!validator.is_valid(&as_json(&text)), "{text}");
        assert!(parse(&text).is_err(), "{text}");
    }
}

#[test]
fn the_schema_names_the_fields_the_reader_knows() {
    let schema = schema();
    let check = |pointer: &str, known: &[&str]| {
        let place = schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
        let properties = place["properties"].as_object().unwrap();
        let named: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(named, known.iter().copied().collect(), "{pointer}");
        assert_eq!(place["additionalProperties"], Value::Bool(false), "{pointer}");
        for (name, property) in properties {
            let said = property.get("description").or_else(|| property.get("$ref"));
            assert!(said.is_some(), "{pointer}/{name} has no description");
        }
    };
    check("", read::TOP);
    check("/$defs/budget", read::BUDGET);
    check("/$defs/step", steps::STEP);
    check("/$defs/undo", act::UNDO);
    check("/$defs/wait", act::WAIT);
    check("/$defs/call", act::CALL);
    check("/$defs/way", act::WAY);
    check("/$defs/parallel", inside::PARALLEL);
    check("/$defs/parallel/properties/join/anyOf/1", inside::JOIN);
    check("/$defs/map", inside::MAP);
    check("/$defs/scope", inside::SCOPE);
    check("/$defs/retry/anyOf/1", policy::RETRY);
    check("/$defs/confirm/anyOf/1", confirm::CONFIRM);
    // Exactly one kind, and what belongs to a tool only beside one.
    let kinds: Vec<&str> =
        schema["$defs"]["step"]["oneOf"].as_array().unwrap().iter().map(|k| k["required"][0].as_str().unwrap()).collect();
    assert_eq!(kinds, steps::KINDS);
    let of_tool: BTreeSet<&str> = schema["$defs"]["step"]["dependentRequired"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(of_tool, steps::OF_TOOL.iter().copied().collect());
}
