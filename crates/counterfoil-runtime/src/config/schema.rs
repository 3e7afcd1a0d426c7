//! `input` and `output`: JSON Schemas, compiled here so that a bad one is found at start.
//!
//! Nothing is fetched: a `$ref` stays inside its schema. What a schema knows about its arguments is also used to catch
//! a `key` or `redact` path that names none of them.

use counterfoil_core::policy::ArgPath;
use serde_json::Value as Json;

use super::keywords;
use super::mistake::Mistake;
use super::node::{Key, Node, Value};
use super::read::Spot;
use super::suggest::nearest;

/// A schema of arguments is a page; what is larger was meant for something else.
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// More than these say the same thing again.
const REPORTED_MAX: usize = 10;

const DRAFTS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
];

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

pub fn read(spot: &Spot<'_>) -> Option<Json> {
    spot.entries()?;
    let schema = spot.node.to_json();
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        spot.wrong(format!("this schema is {bytes} bytes long; at most {SCHEMA_BYTES_MAX}"));
        return None;
    }
    keywords::check(spot);
    if foreign(spot.node, spot) || violations(&schema, spot) {
        return None;
    }
    if let Err(error) = jsonschema::options().offline().build(&schema) {
        let at = spot.node.nearest_to(error.schema_path().as_str());
        spot.report.add(Mistake::new(at.place, &spot.path, format!("not a valid JSON Schema: {error}")));
        return None;
    }
    Some(schema)
}

/// Reports what the draft's own schema says of this one.
fn violations(schema: &Json, spot: &Spot<'_>) -> bool {
    let Ok(validator) = jsonschema::meta::validator_for(schema) else { return false };
    let mut any = false;
    for error in validator.iter_errors(schema).take(REPORTED_MAX) {
        any = true;
        let pointer = error.instance_path().as_str();
        let at = spot.node.nearest_to(pointer);
        let path = format!("{}{}", spot.path, pointer.replace('/', "."));
        let mistake = |message: String| Mistake::new(at.place, &path, message);
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        // The validator's words for the two most common slips are about its own insides.
        spot.report.add(match at.as_str() {
            Some(_) if parent.ends_with("/properties") => {
                mistake(format!("found {}; a property is a map, as in {{ type: string }}", at.found()))
            }
            Some(word) if name == "type" => mistake(format!("{word:?} is not a type")).allowed(TYPES).suggest(nearest(word, TYPES)),
            _ => mistake(format!("not valid in a JSON Schema: {error}")),
        });
    }
    any
}

/// Reports what leads out of the schema: references, and drafts that the validator would have to look up.
fn foreign(node: &Node, spot: &Spot<'_>) -> bool {
    match &node.value {
        Value::List(items) => items.iter().filter(|item| foreign(item, spot)).count() > 0,
        Value::Map(entries) => {
            let leads_out = |(key, value): &&(Key, Node)| {
                let path = format!("{}.{}", spot.path, key.text);
                let mistake = |message: &str| Mistake::new(value.place, &path, message);
                let wrong = match (key.text.as_str(), value.as_str()) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target)) if !target.starts_with('#') => {
                        mistake("leads out of this schema; nothing is fetched, so copy it below $defs and write \"#/$defs/NAME\"")
                    }
                    ("$schema", Some(draft)) if !is_draft(draft) => mistake("not a known draft of JSON Schema").allowed(DRAFTS),
                    _ => return foreign(value, spot),
                };
                spot.report.add(wrong);
                true
            };
            entries.iter().filter(leads_out).count() > 0
        }
        _ => false,
    }
}

fn is_draft(text: &str) -> bool {
    DRAFTS.iter().any(|draft| draft.trim_end_matches('#') == text.trim_end_matches('#'))
}

/// What a schema says about a path of arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Known<'s> {
    /// It is declared, or the schema leaves it open.
    Yes,
    /// The schema lists the members of this object, and `part` is none of them.
    No { part: String, members: Vec<&'s str> },
}

pub fn knows<'s>(schema: &'s Json, path: &ArgPath) -> Known<'s> {
    let mut at = schema;
    for part in &path.0 {
        // Whatever combines or refers may declare more than `properties` shows.
        let open = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"];
        let Some(object) = at.as_object().filter(|object| !open.iter().any(|keyword| object.contains_key(*keyword))) else {
            return Known::Yes;
        };
        let Some(properties) = object.get("properties").and_then(Json::as_object) else { return Known::Yes };
        let required = object.get("required").and_then(Json::as_array);
        match properties.get(part) {
            Some(below) => at = below,
            None if required.is_some_and(|names| names.iter().any(|name| name == part)) => return Known::Yes,
            // An explicit `additionalProperties` other than false says that more is expected.
            None if object.get("additionalProperties").is_some_and(|more| *more != Json::Bool(false)) => return Known::Yes,
            None => return Known::No { part: part.clone(), members: properties.keys().map(String::as_str).collect() },
        }
    }
    Known::Yes
}

/// Reports paths of `spot` (a list) that the input schema does not know.
pub fn check_paths(spot: &Spot<'_>, schema: &Json) {
    let Value::List(items) = &spot.node.value else { return };
    for (i, item) in items.iter().enumerate() {
        let Some(text) = item.as_str() else { continue };
        let Some(path) = ArgPath::parse(text.strip_prefix("args.").unwrap_or(text)) else { continue };
        if let Known::No { part, members } = knows(schema, &path) {
            let message = format!("the input schema has no argument {part:?}");
            let mistake = Mistake::new(item.place, &format!("{}[{i}]", spot.path), message);
            spot.report.add(mistake.suggest(nearest(&part, members.iter().copied())).allowed(members));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_schema_knows_of_its_arguments() {
        let schema = json!({ "type": "object", "required": ["loose"], "properties": {
            "order_id": {},
            "card": { "properties": { "number": { "type": "string" } }, "additionalProperties": false },
            "meta": { "additionalProperties": { "type": "string" }, "properties": {} },
            "either": { "oneOf": [] },
        }});
        let check = |path: &str, known: bool| {
            let known_here = knows(&schema, &ArgPath::parse(path).unwrap()) == Known::Yes;
            assert_eq!(known_here, known, "{path}");
        };
        check("order_id", true);
        check("order_id.anything", true);
        check("orderid", false);
        check("card.number", true);
        check("card.numbr", false);
        check("meta.trace", true);
        check("either.x", true);
        check("loose", true);
        assert_eq!(knows(&json!({"required": ["a"]}), &ArgPath::parse("b").unwrap()), Known::Yes);
    }
}
