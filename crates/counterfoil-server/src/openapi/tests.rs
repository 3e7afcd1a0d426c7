//! The document is whole, agrees with the router, and its examples are what its schemas say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::*;
use crate::guard::OPEN;
use crate::router;

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// Method, path and operation.
fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, item)| {
            let item = item.as_object().expect("a path item");
            let known = |name: &str| METHODS.contains(&name) || name == "parameters";
            assert!(item.keys().all(|name| known(name)), "{path}: {:?}", item.keys());
            item.iter()
                .filter(|(name, _)| *name != "parameters")
                .map(|(method, operation)| (method.to_uppercase(), path.clone(), operation))
        })
        .collect()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(to) => {
            document.pointer(to.strip_prefix('#').expect("a reference into the document")).unwrap_or_else(|| panic!("{to} is nowhere"))
        }
        None => value,
    }
}

/// Every object of the document, with the path to it.
fn walk<'a>(value: &'a Value, at: &str, see: &mut impl FnMut(&str, &'a Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            see(at, members);
            members.iter().for_each(|(name, value)| walk(value, &format!("{at}/{}", name.replace('/', "~1")), see));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, value)| walk(value, &format!("{at}/{i}"), see)),
        _ => {}
    }
}

/// A schema of the document as one of its own: what it refers to is beside it.
fn compiled(document: &Value, schema: &Value) -> jsonschema::Validator {
    let whole =
        json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema], "components": document["components"] });
    jsonschema::options().should_validate_formats(true).build(&whole).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// Every place that has a schema and examples: media types, parameters, headers.
fn check_examples(document: &Value) -> usize {
    let mut checked = 0;
    walk(document, "", &mut |at, holder| {
        let Some(schema) = holder.get("schema") else { return };
        let validator = compiled(document, schema);
        let named =
            holder.get("examples").and_then(Value::as_object).into_iter().flatten().map(|(_, named)| &resolved(document, named)["value"]);
        // What an event stream holds is checked by what its events hold.
        let plain = holder.get("example").filter(|_| !at.ends_with("text~1event-stream"));
        for example in named.chain(plain) {
            let mistakes: Vec<String> = validator.iter_errors(example).map(|error| format!("{}: {error}", error.instance_path())).collect();
            assert!(mistakes.is_empty(), "{at}: {example}: {mistakes:?}");
            checked += 1;
        }
    });
    checked
}

#[test]
fn the_document_and_the_router_have_the_same_routes() {
    let documented: BTreeSet<_> = operations(document()).into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(documented, router::tests::table());
}

#[test]
fn what_needs_no_token_is_said_to_need_none() {
    let open = |operation: &Value| operation["security"] == json!([]);
    for (_, path, operation) in operations(document()) {
        assert_eq!(open(operation), OPEN.contains(&path.as_str()), "{path}");
        assert_eq!(open(operation), operation["responses"]["401"].is_null(), "{path}");
    }
}

#[test]
fn the_version_is_that_of_the_program() {
    assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document()["openapi"], "3.1.0");
}

/// No part hides what another says.
#[test]
fn the_parts_do_not_overlap() {
    let mut seen = BTreeMap::new();
    for part in PARTS {
        let part: Value = serde_json::from_str(part).unwrap();
        let named = |list: &Value| list.as_object().map(|list| list.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let paths = named(&part["paths"]).into_iter();
        let components = named(&part["components"]).into_iter();
        let components =
            components.flat_map(|kind| named(&part["components"][&kind]).into_iter().map(move |name| format!("{kind}/{name}")));
        for name in paths.chain(components) {
            *seen.entry(name).or_insert(0) += 1;
        }
    }
    let twice: Vec<_> = seen.into_iter().filter(|(_, times)| *times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_reference_leads_somewhere_and_everything_shared_is_used() {
    let mut used = BTreeSet::new();
    walk(document(), "", &mut |at, members| {
        if let Some(to) = members.get("$ref").and_then(Value::as_str) {
            let pointer = to.strip_prefix('#').unwrap_or_else(|| panic!("{at}: {to} is elsewhere"));
            assert!(document().pointer(pointer).is_some(), "{at}: {to} is nowhere");
            used.insert(pointer.to_owned());
        }
    });
    for (kind, components) in document()["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys().filter(|_| kind != "securitySchemes") {
            assert!(used.contains(&format!("/components/{kind}/{name}")), "nothing uses {kind}/{name}");
        }
    }
}

#[test]
fn every_operation_is_told_whole() {
    let tags: BTreeSet<&str> = document()["tags"].as_array().unwrap().iter().filter_map(|tag| tag["name"].as_str()).collect();
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(document()) {
        let at = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{at} has no operationId"));
        assert!(ids.insert(id), "{id} is there twice");
        for told in ["summary", "description"] {
            assert!(operation[told].as_str().is_some_and(|text| !text.is_empty()), "{at} has no {told}");
        }
        let tag = operation["tags"][0].as_str().unwrap_or_default();
        assert!(tags.contains(tag), "{at}: the tag {tag:?} is not listed");

        let shared = document()["paths"][&path]["parameters"].as_array().cloned().unwrap_or_default();
        let own = operation["parameters"].as_array().cloned().unwrap_or_default();
        let parameters: Vec<&Value> = shared.iter().chain(&own).map(|parameter| resolved(document(), parameter)).collect();
        let in_path: BTreeSet<&str> = parameters.iter().filter(|p| p["in"] == "path").filter_map(|p| p["name"].as_str()).collect();
        let written: BTreeSet<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(in_path, written, "{at}");
        assert!(parameters.iter().all(|p| p["in"] != "path" || p["required"] == true), "{at}");

        let responses = operation["responses"].as_object().unwrap_or_else(|| panic!("{at} has no responses"));
        assert!(responses.keys().any(|status| status.starts_with('2')), "{at} never succeeds");
        for (status, response) in responses {
            let response = resolved(document(), response);
            assert!(response["description"].is_string() && response["content"].is_object(), "{at} {status}");
            // Whatever is refused has a code, and an example for each.
            let problem = &response["content"]["application/problem+json"];
            if let Some(codes) = problem["schema"]["allOf"][1]["properties"]["code"]["enum"].as_array() {
                let shown = problem["examples"].as_object().unwrap().values().map(|example| &resolved(document(), example)["value"]);
                let shown: BTreeSet<String> = shown.map(|value| value["code"].to_string()).collect();
                assert_eq!(shown, codes.iter().map(Value::to_string).collect(), "{at} {status}");
                assert_eq!(problem["schema"]["allOf"][1]["properties"]["status"]["const"].to_string(), *status, "{at}");
            }
        }
        for status in ["400", "403", "421"] {
            assert!(responses.contains_key(status), "{at}: the guard answers {status} on every route");
        }
        if method != "GET" {
            for status in ["408", "413", "415"] {
                assert!(responses.contains_key(status), "{at} takes a body, and answers {status}");
            }
            assert!(parameters.iter().any(|p| p["name"] == "Idempotency-Key"), "{at}");
        }
    }
}

#[test]
fn every_schema_compiles_and_every_example_is_what_its_schema_says() {
    for name in document()["components"]["schemas"].as_object().unwrap().keys() {
        compiled(document(), &json!({ "$ref": format!("#/components/schemas/{name}") }));
    }
    assert!(check_examples(document()) > 100, "examples were left out");
}

#[test]
fn an_event_is_what_its_schema_says() {
    for path in ["/v1/events", "/v1/runs/{run}/events"] {
        let stream = &document()["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"];
        let data = stream["example"].as_str().unwrap().lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let sent = resolved(document(), &stream["schema"]);
        let validator = compiled(document(), &sent["properties"]["data"]["contentSchema"]);
        assert!(validator.is_valid(&serde_json::from_str(data).unwrap()), "{path}");
        assert!(!validator.is_valid(&json!({})), "{path}");
    }
}

/// How runs and their steps fail: in the `error` of an answer, not as a problem.
const FAILURES_OF_RUNS: [&str; 14] = [
    "world_drifted",
    "step_timeout",
    "run_timeout",
    "budget_exceeded",
    "tool_not_allowed",
    "expression_failed",
    "no_way_chosen",
    "approval_denied",
    "wait_timeout",
    "diverged",
    "unknown_workflow",
    "step_stopped",
    "undo_refused",
    "compensation_failed",
];

/// Whoever meets a code finds a page for it.
#[test]
fn every_code_has_a_page() {
    let listed = include_str!("../../../../docs/errors/README.md");
    let codes = document()["components"]["examples"].as_object().unwrap().values().filter_map(|example| example["value"]["code"].as_str());
    for code in codes.chain(["method_not_allowed", "no_such_route", "function_diverged"]).chain(FAILURES_OF_RUNS) {
        assert!(listed.contains(&format!("| `{code}` |")), "{code} is not in docs/errors/README.md");
    }
}

/// A tool is put as it is written in the config, without what touches this machine.
#[test]
fn a_tool_is_specified_as_in_the_config() {
    let config: Value = serde_json::from_str(include_str!("../../../../docs/counterfoil.schema.json")).unwrap();
    let config: Value = serde_json::from_str(&renamed(&config["$defs"].to_string())).unwrap();
    let schemas = &document()["components"]["schemas"];
    let mut tool = config["tool"].clone();
    // The mode is the operator's word.
    without(&mut tool, &["command", "file", "mode"]);
    tool["oneOf"].as_array_mut().unwrap().retain(|one| one["required"] == json!(["http"]) || one["required"] == json!(["client"]));
    let probe = &mut tool["properties"]["probe"];
    without(probe, &["command"]);
    probe.as_object_mut().unwrap().remove("oneOf");
    probe["required"].as_array_mut().unwrap().push(json!("http"));
    let verify = &mut tool["properties"]["verify"];
    without(verify, &["command", "file"]);
    verify["oneOf"].as_array_mut().unwrap().retain(|one| one["required"] == json!(["http"]) || one["required"] == json!(["github"]));
    tool["description"] = schemas["ToolSpec"]["description"].clone();
    assert_eq!(schemas["ToolSpec"], tool);
    for (name, schema) in NAMES.iter().skip(1).map(|(name, ours)| (name, &schemas[ours])) {
        assert_eq!(*schema, config[name], "{name}");
    }
}

fn without(schema: &mut Value, members: &[&str]) {
    let properties = schema["properties"].as_object_mut().unwrap();
    members.iter().for_each(|member| drop(properties.remove(*member)));
}

const NAMES: [(&str, &str); 9] = [
    ("tool", "ToolSpec"),
    ("http", "ToolHttp"),
    ("expression", "ToolExpression"),
    ("template", "ToolTemplate"),
    ("duration", "ToolDuration"),
    ("off", "ToolOff"),
    ("arg_path", "ToolArgument"),
    ("statuses", "ToolStatuses"),
    ("status", "ToolStatus"),
];

fn renamed(schema: &str) -> String {
    NAMES.iter().fold(schema.to_owned(), |text, (name, ours)| {
        text.replace(&format!("\"#/$defs/{name}\""), &format!("\"#/components/schemas/{ours}\""))
    })
}
