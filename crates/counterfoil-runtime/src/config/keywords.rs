//! Slips in the keywords of a JSON Schema.
//!
//! A validator ignores a keyword it does not know, so `requird` would silently require nothing. Only what looks like a slip of a
//! known keyword is reported: others are somebody's extension.

use super::mistake::Mistake;
use super::node::{Node, Value};
use super::read::Spot;
use super::suggest::nearest;

/// Those that hold a schema. Words in a text: as lists they would be longer than the code.
const SCHEMA: &str = "additionalItems additionalProperties contains contentSchema else if items not propertyNames then \
    unevaluatedItems unevaluatedProperties";
/// Those that hold schemas by name.
const SCHEMAS_BY_NAME: &str = "$defs definitions dependentSchemas patternProperties properties";
const SCHEMA_LISTS: &str = "allOf anyOf oneOf prefixItems";
const PLAIN: &str = "$anchor $comment $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary const \
    contentEncoding contentMediaType default dependencies dependentRequired deprecated description enum examples \
    exclusiveMaximum exclusiveMinimum format id maxContains maxItems maxLength maxProperties maximum minContains minItems \
    minLength minProperties minimum multipleOf pattern readOnly required title type uniqueItems writeOnly";
/// OpenAPI's: of no effect, but no slips either.
const OPEN_API: &str = "discriminator example externalDocs nullable xml";

fn is_one_of(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

pub fn check(spot: &Spot<'_>) {
    schema(spot.node, &spot.path, spot);
}

fn schema(node: &Node, path: &str, spot: &Spot<'_>) {
    let Value::Map(entries) = &node.value else { return };
    for (key, value) in entries {
        let name = key.text.as_str();
        let path = format!("{path}.{name}");
        if is_one_of(SCHEMA, name) {
            schema(value, &path, spot);
            // Older drafts give `items` a list.
            list(value, &path, spot);
        } else if is_one_of(SCHEMA_LISTS, name) {
            list(value, &path, spot);
        } else if is_one_of(SCHEMAS_BY_NAME, name) {
            let Value::Map(schemas) = &value.value else { continue };
            schemas.iter().for_each(|(key, value)| schema(value, &format!("{path}.{}", key.text), spot));
        } else if !is_one_of(PLAIN, name) && !is_one_of(OPEN_API, name) {
            let known = [SCHEMA, SCHEMAS_BY_NAME, SCHEMA_LISTS, PLAIN].into_iter().flat_map(str::split_whitespace);
            if let Some(meant) = nearest(name, known) {
                let message = "not a keyword of JSON Schema; it would be ignored";
                spot.report.add(Mistake::new(key.place, &path, message).suggest(Some(meant)));
            }
        }
    }
}

fn list(node: &Node, path: &str, spot: &Spot<'_>) {
    let Value::List(items) = &node.value else { return };
    items.iter().enumerate().for_each(|(i, item)| schema(item, &format!("{path}[{i}]"), spot));
}
