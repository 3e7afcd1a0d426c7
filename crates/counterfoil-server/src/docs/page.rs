//! The page: the groups, each operation with what it takes and gives, the schemas, the codes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::curl::curl;
use super::html::{block, code, escaped, line, prose};
use super::schema::{bounds, kind, members};
use super::{SCRIPT, STYLE};

/// In this order on a path.
const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// Of a body that is shown where it is sent.
const MEMBERS_MAX: usize = 12;

pub fn page(document: &Value) -> String {
    let info = &document["info"];
    let groups: Vec<Group> = list(&document["tags"]).map(|tag| Group::new(document, tag)).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title} API</title><style>{STYLE}</style></head><body>\
         <a class=\"skip\" href=\"#content\">To the content</a>\
         <header><p class=\"brand\">{title} <span>API {version}</span></p><a class=\"raw\" href=\"/openapi.json\">openapi.json</a></header>\
         <div class=\"columns\"><nav aria-label=\"Contents\"><p class=\"filter\" hidden><label for=\"filter\">Find</label><input id=\"filter\" type=\"search\" autocomplete=\"off\" placeholder=\"path, word or code\"></p>{nav}</nav>\
         <main id=\"content\" tabindex=\"-1\"><section class=\"intro\"><h1>{title}</h1><p class=\"lede\">{summary}</p>{description}{token}</section>\
         {sections}{schemas}{codes}</main></div><script>{SCRIPT}</script></body></html>",
        title = escaped(text(&info["title"])),
        version = escaped(text(&info["version"])),
        summary = line(text(&info["summary"])),
        description = prose(text(&info["description"])),
        token = prose("With a token, add `-H \"Authorization: Bearer $TOKEN\"` to the commands below."),
        nav = nav(&groups),
        sections = groups.iter().map(|group| section(document, group)).collect::<String>(),
        schemas = schemas(document),
        codes = codes(document),
    )
}

struct Group<'a> {
    name: &'a str,
    description: &'a str,
    operations: Vec<Operation<'a>>,
}

struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    item: &'a Value,
    told: &'a Value,
}

impl<'a> Group<'a> {
    fn new(document: &'a Value, tag: &'a Value) -> Self {
        let name = text(&tag["name"]);
        let of_path = |(path, item): (&'a String, &'a Value)| {
            let methods = METHODS.into_iter().filter(move |method| item[method]["tags"][0] == name);
            methods.map(move |method| Operation { method, path, item, told: &item[method] })
        };
        let operations = document["paths"].as_object().into_iter().flatten().flat_map(of_path).collect();
        Self { name, description: text(&tag["description"]), operations }
    }
}

fn nav(groups: &[Group<'_>]) -> String {
    let link = |o: &Operation<'_>| {
        let (id, summary) = (escaped(text(&o.told["operationId"])), escaped(text(&o.told["summary"])));
        format!("<li data-for=\"{id}\"><a href=\"#{id}\"><span class=\"verb {0}\">{0}</span> {summary}</a></li>", o.method)
    };
    let group = |g: &Group<'_>| {
        let links: String = g.operations.iter().map(link).collect();
        format!("<p><a href=\"#group-{0}\">{0}</a></p><ul>{links}</ul>", escaped(g.name))
    };
    let groups: String = groups.iter().map(group).collect();
    format!("{groups}<p><a href=\"#schemas\">Schemas</a></p><p><a href=\"#codes\">Problem codes</a></p>")
}

fn section(document: &Value, group: &Group<'_>) -> String {
    let articles: String = group.operations.iter().map(|operation| article(document, operation)).collect();
    format!(
        "<section><h2 id=\"group-{0}\">{0}</h2><p class=\"lede\">{1}</p>{articles}</section>",
        escaped(group.name),
        line(group.description)
    )
}

fn article(document: &Value, operation: &Operation<'_>) -> String {
    let Operation { method, path, item, told } = operation;
    let parameters: Vec<&Value> = list(&item["parameters"]).chain(list(&told["parameters"])).map(|p| followed(document, p)).collect();
    let body = &told["requestBody"]["content"]["application/json"];
    let sent = body["examples"].as_object().and_then(|examples| examples.values().next()).map(|example| &example["value"]);
    let open = if told["security"].as_array().is_some_and(Vec::is_empty) { "<p class=\"note\">Needs no token.</p>" } else { "" };
    format!(
        "<article id=\"{id}\" aria-labelledby=\"{id}-title\"><h3 id=\"{id}-title\">{summary}</h3><p class=\"route\"><span class=\"verb {method}\">{method}</span> <code>{path}</code></p>\
         {description}{open}{command}{parameters}{body}{responses}</article>",
        id = escaped(text(&told["operationId"])),
        summary = line(text(&told["summary"])),
        path = escaped(path),
        description = prose(text(&told["description"])),
        command = block("Command", &curl(method, path, &parameters, sent)),
        parameters = self::parameters(&parameters),
        body = self::body(document, &told["requestBody"]),
        responses = responses(document, &told["responses"]),
    )
}

fn parameters(parameters: &[&Value]) -> String {
    if parameters.is_empty() {
        return String::new();
    }
    let row = |p: &&Value| {
        let optional = if p["required"] == true { "" } else { " <span class=\"optional\">optional</span>" };
        let bounds = bounds(&p["schema"]);
        let bounds = if bounds.is_empty() { bounds } else { format!("<p class=\"bounds\">{bounds}</p>") };
        let place = escaped(text(&p["in"]));
        format!(
            "<dt>{} <span class=\"kind\">{place}, {}</span>{optional}</dt><dd><p>{}</p>{bounds}</dd>",
            code(text(&p["name"])),
            kind(&p["schema"]),
            line(text(&p["description"]))
        )
    };
    format!("<h4>Parameters</h4><dl class=\"members\">{}</dl>", parameters.iter().map(row).collect::<String>())
}

fn body(document: &Value, body: &Value) -> String {
    let content = &body["content"]["application/json"];
    if content.is_null() {
        return String::new();
    }
    let optional = if body["required"] == true { "" } else { " <span class=\"optional\">optional</span>" };
    // What has too many members to be read here is only a link.
    let schema = followed(document, &content["schema"]);
    let members = if schema["properties"].as_object().is_none_or(|all| all.len() <= MEMBERS_MAX) { members(schema) } else { String::new() };
    // The command above has sent the first.
    let examples = content["examples"].as_object().into_iter().flatten().skip(1).map(|(_, example)| shown(example));
    format!("<h4>Body</h4><p class=\"kind\">{}{optional}</p>{members}{}", kind(&content["schema"]), examples.collect::<String>())
}

fn responses(document: &Value, responses: &Value) -> String {
    let one = |(status, response): (&String, &Value)| {
        let response = followed(document, response);
        let headers = response["headers"].as_object().into_iter().flatten().map(|(name, header)| {
            let header = followed(document, header);
            format!("<dt>{} <span class=\"kind\">header</span></dt><dd><p>{}</p></dd>", code(name), line(text(&header["description"])))
        });
        let headers: String = headers.collect();
        let headers = if headers.is_empty() { headers } else { format!("<dl class=\"members\">{headers}</dl>") };
        let contents =
            response["content"].as_object().into_iter().flatten().map(|(media, content)| self::content(document, media, content));
        format!(
            "<details><summary><span class=\"status s{}\">{status}</span> {}</summary>{}{headers}</details>",
            &status[..1],
            line(text(&response["description"])),
            contents.collect::<String>()
        )
    };
    format!("<h4>Responses</h4>{}", responses.as_object().into_iter().flatten().map(one).collect::<String>())
}

fn content(document: &Value, media: &str, content: &Value) -> String {
    let examples: Vec<&Value> =
        content["examples"].as_object().into_iter().flatten().map(|(_, example)| followed(document, example)).collect();
    if media == "application/problem+json" {
        let row = |example: &&Value| {
            let name = escaped(text(&example["value"]["code"]));
            format!("<dt><a href=\"#code-{name}\"><code>{name}</code></a></dt><dd><p>{}</p></dd>", line(text(&example["summary"])))
        };
        let rows: String = examples.iter().map(row).collect();
        return format!("<p class=\"kind\">{} <a href=\"#schema-Problem\">Problem</a></p><dl class=\"members\">{rows}</dl>", code(media));
    }
    let alone =
        content["example"].as_str().map(str::to_owned).or_else(|| content["example"].is_object().then(|| pretty(&content["example"])));
    let alone = alone.map(|example| block("Example", &example)).unwrap_or_default();
    let named: String = examples.into_iter().map(shown).collect();
    format!("<p class=\"kind\">{} {}</p>{alone}{named}", code(media), kind(&content["schema"]))
}

fn shown(example: &Value) -> String {
    let summary = text(&example["summary"]);
    format!("<p class=\"caption\">{}</p>{}", line(summary), block(summary, &pretty(&example["value"])))
}

fn schemas(document: &Value) -> String {
    let one = |(name, schema): (&String, &Value)| {
        let kind = if schema["properties"].is_object() { String::new() } else { format!("<p class=\"kind\">{}</p>", kind(schema)) };
        let (bounds, members) = (bounds(schema), members(schema));
        let bounds = if bounds.is_empty() { bounds } else { format!("<p class=\"bounds\">{bounds}</p>") };
        let told = schema["description"].as_str().map(|text| format!("<p>{}</p>", line(text))).unwrap_or_default();
        format!("<article class=\"schema\" id=\"schema-{0}\"><h3>{0}</h3>{told}{kind}{bounds}{members}</article>", escaped(name))
    };
    let all: String = document["components"]["schemas"].as_object().into_iter().flatten().map(one).collect();
    format!("<section><h2 id=\"schemas\">Schemas</h2>{all}</section>")
}

/// Every code, with each status it comes with and what it means there.
fn codes(document: &Value) -> String {
    let mut codes: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for example in document["components"]["examples"].as_object().into_iter().flatten().map(|(_, example)| example) {
        if let Some(code) = example["value"]["code"].as_str() {
            codes.entry(code).or_default().push(example);
        }
    }
    let meaning = |example: &&Value| {
        let status = example["value"]["status"].to_string();
        format!("<p><span class=\"status s{}\">{status}</span> {}</p>", &status[..1], line(text(&example["summary"])))
    };
    let row = |(code, examples): (&str, Vec<&Value>)| {
        let meanings: String = examples.iter().map(meaning).collect();
        format!("<dt id=\"code-{0}\"><code>{0}</code></dt><dd>{meanings}</dd>", escaped(code))
    };
    let rows: String = codes.into_iter().map(row).collect();
    format!(
        "<section><h2 id=\"codes\">Problem codes</h2><p class=\"lede\">Codes are stable; messages may change.</p><dl class=\"members codes\">{rows}</dl></section>"
    )
}

fn followed<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let to = value["$ref"].as_str().and_then(|to| document.pointer(to.strip_prefix('#')?));
    to.unwrap_or(value)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
