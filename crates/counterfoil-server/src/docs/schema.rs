//! A schema for people: its type on one line, its members as a list.

use serde_json::Value;

use super::html::{code, escaped, line};

/// The type, as short as it can be said; a schema with a name is a link to it.
pub fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
        return format!("<a href=\"#schema-{0}\">{0}</a>", escaped(name));
    }
    if !schema["const"].is_null() {
        return code(&plain(&schema["const"]));
    }
    for one_of in ["anyOf", "oneOf"] {
        if let Some(kinds) = schema[one_of].as_array() {
            return kinds.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| code(&plain(word))).collect::<Vec<_>>().join(" <span class=\"or\">|</span> ");
    }
    let words = match &schema["type"] {
        Value::String(word) => vec![word.as_str()],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => return "anything".into(),
    };
    let words = words.into_iter().map(|word| match word {
        "array" if !schema["items"].is_null() => format!("list of {}", kind(&schema["items"])),
        word => word.into(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

/// What bounds a value, beside its type.
pub fn bounds(schema: &Value) -> String {
    let mut said = Vec::new();
    for (name, word) in
        [("format", ""), ("minimum", "at least "), ("maximum", "at most "), ("pattern", "matches "), ("default", "default ")]
    {
        if !schema[name].is_null() {
            said.push(format!("{word}{}", code(&plain(&schema[name]))));
        }
    }
    said.join(", ")
}

/// What a schema holds: its members, or its alternatives. Nothing for a plain value.
pub fn members(schema: &Value) -> String {
    let alternatives = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(alternatives) = alternatives.filter(|all| all.iter().any(|one| one["properties"].is_object())) {
        return alternatives.iter().map(members).collect::<Vec<_>>().join("<p class=\"either\">or</p>");
    }
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    // The document names required members in the order in which they are best read.
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let optional = properties.keys().map(String::as_str).filter(|name| !required.contains(name));
    let rows = required.iter().copied().filter(|name| properties.contains_key(*name)).chain(optional);
    let rows = rows.map(|name| member(name, &properties[name], required.contains(&name)));
    format!("<dl class=\"members\">{}</dl>", rows.collect::<String>())
}

fn member(name: &str, schema: &Value, required: bool) -> String {
    let optional = if required { "" } else { " <span class=\"optional\">optional</span>" };
    let told = schema["description"].as_str().map(|text| format!("<p>{}</p>", line(text))).unwrap_or_default();
    let bounds = Some(bounds(schema)).filter(|bounds| !bounds.is_empty()).map(|bounds| format!("<p class=\"bounds\">{bounds}</p>"));
    let inner = if schema["$ref"].is_null() { members(schema) } else { String::new() };
    format!(
        "<dt><code>{}</code> <span class=\"kind\">{}</span>{optional}</dt><dd>{told}{}{inner}</dd>",
        escaped(name),
        kind(schema),
        bounds.unwrap_or_default()
    )
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_said_shortly() {
        let check = |schema: Value, said: &str| assert_eq!(kind(&schema), said);
        check(json!({}), "anything");
        check(json!({ "type": ["string", "null"] }), "string or null");
        check(json!({ "$ref": "#/components/schemas/Effect" }), "<a href=\"#schema-Effect\">Effect</a>");
        check(json!({ "type": "array", "items": { "type": "integer" } }), "list of integer");
        check(json!({ "anyOf": [{ "const": true }, { "type": "null" }] }), "<code>true</code> or null");
    }
}
