//! What users are given: the starter, and the schema for their editors. Neither may drift from the reader.

use std::collections::BTreeSet;

use serde_json::Value;

use super::config::{environment, parse};
use crate::config::{Config, Environment, STARTER, command, confirm, file, github, http, policy, tool, top, tree, verify};

const SCHEMA: &str = include_str!("../../../../../docs/counterfoil.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn as_json(text: &str) -> Value {
    tree::parse(text).0.map_or(Value::Null, |node| node.to_json())
}

/// The starter with its commented example in force.
fn uncommented() -> String {
    let uncomment = |line: &str| {
        let line = line.replacen("# env:", "env:", 1);
        match line.strip_prefix("  # ") {
            Some(rest) => format!("  {rest}\n"),
            None => format!("{line}\n"),
        }
    };
    STARTER.lines().map(uncomment).collect()
}

#[test]
fn the_starter_works_as_it_stands() {
    let config = Config::parse(STARTER, "counterfoil.yaml", &Environment::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["write_note", "remove_note", "today"]);
    assert_eq!(config.store, "sqlite:counterfoil.db");
}

#[test]
fn the_commented_example_works_too() {
    let config = parse(&uncommented()).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    let names: Vec<_> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["write_note", "remove_note", "today", "charge_card", "refund_card"]);
}

#[test]
fn the_schema_accepts_what_the_reader_accepts() {
    let validator = jsonschema::options().offline().build(&schema()).unwrap();
    let uncommented = uncommented();
    let files = ["", "tools:\n", STARTER, &uncommented, include_str!("golden/full.yaml")];
    for text in files {
        assert!(parse(text).is_ok(), "{text}");
        let json = as_json(text);
        let errors: Vec<String> = validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{text}");
    }
}

#[test]
fn the_schema_refuses_what_it_can() {
    let validator = jsonschema::options().offline().build(&schema()).unwrap();
    let tool = |fields: &str| format!("tools: {{ t: {{ command: [echo], {fields} }} }}");
    let files = [
        "tols: {}".to_owned(),
        "mode: enforced".to_owned(),
        "tools: { t: { description: x } }".to_owned(),
        "tools: { t: { command: echo hi } }".to_owned(),
        "tools: { t: { http: { url: \"http://x\" } } }".to_owned(),
        "tools: { t: { file: { root: x } } }".to_owned(),
        tool("timeout: 10"),
        tool("timout: 10s"),
        tool("retry: { attempts: 0 }"),
        tool("breaker: { window: 5000 }"),
        tool("limits: { queue: 1 }"),
        tool("undo: { tool: x }"),
        tool("file: { root: x, delete: { path: y } }"),
        tool("client: {}"),
        "tools: { t: { client: { argv: [x] } } }".to_owned(),
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
    };
    let tool_at = |field: &str| format!("/$defs/tool/properties/{field}");
    check("", top::TOP);
    check("/properties/egress", top::EGRESS);
    check("/$defs/tool", tool::TOOL);
    check("/$defs/tool/properties/client", tool::CLIENT);
    check("/$defs/http", http::HTTP);
    check("/$defs/command/anyOf/1", command::COMMAND);
    check("/$defs/file", file::FILE);
    check("/$defs/file/properties/write", file::WRITE);
    check("/$defs/file/properties/delete", file::DELETE);
    check("/$defs/file/properties/move", file::MOVE);
    check(&tool_at("retry/anyOf/1"), policy::RETRY);
    check(&tool_at("breaker/anyOf/1"), policy::BREAKER);
    check(&tool_at("limits"), policy::LIMITS);
    check(&tool_at("probe"), tool::PROBE);
    check(&tool_at("verify"), verify::VERIFY);
    check(&tool_at("verify/properties/file"), verify::FILE);
    check(&tool_at("verify/properties/github"), github::GITHUB);
    check(&tool_at("verify/properties/version/anyOf/1"), verify::VERSION);
    check(&tool_at("confirm/anyOf/1"), confirm::CONFIRM);
    check(&tool_at("undo"), tool::UNDO);
    assert!(environment().get("BANK_TOKEN").is_some());
}
