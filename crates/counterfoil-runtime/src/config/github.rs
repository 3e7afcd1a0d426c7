//! `github`: a thing at GitHub, or at whatever speaks its API, as a question: which address to ask, and what of the answer must be as recorded.
//!
//! Only what the recorded result has is compared, so a tool whose `result` keeps the number alone is asked whether the thing is there.

use std::sync::Arc;

use super::context::Context;
use super::read::{Fields, Spot};
use super::sees::Sees;
use crate::spec::{HttpBody, HttpSpec, Same, StatusClasses};
use crate::template::{Part, TextTemplate};

pub const GITHUB: &[&str] = &["repo", "issue", "comment", "pull_request", "branch", "file", "ref", "compare", "token", "base_url"];
const KINDS: &[&str] = &["issue", "comment", "pull_request", "branch", "file"];

const BASE_URL: &str = "https://api.github.com";
/// The version of the API whose answers are understood here.
const API_VERSION: &str = "2022-11-28";
const REDIRECTS: u32 = 5;

const ID: Same = Same { name: "id", recorded: &["/id"], answered: "/id" };
const NUMBER: Same = Same { name: "number", recorded: &["/number"], answered: "/number" };
const STATE: Same = Same { name: "state", recorded: &["/state"], answered: "/state" };
const UPDATED: Same = Same { name: "updated_at", recorded: &["/updated_at"], answered: "/updated_at" };
const TITLE: Same = Same { name: "title", recorded: &["/title"], answered: "/title" };
const BODY: Same = Same { name: "body", recorded: &["/body"], answered: "/body" };
const HEAD: Same = Same { name: "head.sha", recorded: &["/head/sha"], answered: "/head/sha" };
const REF_SHA: Same = Same { name: "sha", recorded: &["/object/sha", "/commit/sha", "/sha"], answered: "/object/sha" };
const FILE_SHA: Same = Same { name: "sha", recorded: &["/content/sha", "/sha"], answered: "/sha" };

/// What can be compared of a kind, and what is when nothing is said.
struct Kind {
    path: &'static str,
    all: &'static [Same],
    usual: usize,
}

fn kind(name: &str) -> Kind {
    match name {
        // Any comment changes `updated_at` of an issue, so it is compared only when asked for.
        "issue" => Kind { path: "issues", all: &[ID, NUMBER, STATE, TITLE, BODY, UPDATED], usual: 3 },
        "pull_request" => Kind { path: "pulls", all: &[ID, NUMBER, STATE, HEAD, TITLE, BODY, UPDATED], usual: 3 },
        "comment" => Kind { path: "issues/comments", all: &[ID, UPDATED, BODY], usual: 2 },
        "branch" => Kind { path: "git/ref/heads", all: &[REF_SHA], usual: 1 },
        _ => Kind { path: "contents", all: &[FILE_SHA], usual: 1 },
    }
}

pub fn read(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<(HttpSpec, Vec<Same>)> {
    let fields = spot.fields(GITHUB)?;
    let base = base_url(&fields, context);
    let repo = fields.require("repo").and_then(|s| repo(&s, context, sees));
    let (name, thing) = fields.exactly_one(KINDS)?;
    let kind = kind(name);
    let thing = context.printed(&thing, sees).map(|_| thing);
    let same = compared(&fields, name, &kind);
    let at = match fields.get("ref") {
        Some(spot) if name == "file" => Some(context.text(&spot, sees).map(|_| spot.node.as_str().unwrap_or_default().to_owned())?),
        Some(spot) => {
            spot.wrong_whole("ref says at which branch or commit a file is looked at; drop it");
            None
        }
        None => None,
    };
    let headers = headers(&fields, context);
    let thing = thing?.printed()?;
    let query = at.map(|at| format!("?ref={at}")).unwrap_or_default();
    let url = format!("{}/repos/{}/{}/{thing}{query}", base?, repo?, kind.path);
    // Its parts were checked, each where it stands.
    let url = TextTemplate::parse(&url).map_err(|error| spot.wrong(error.to_string())).ok()?;
    let http = HttpSpec {
        method: "GET".into(),
        url,
        headers: headers?,
        body: HttpBody::None,
        classes: StatusClasses::default(),
        result: None,
        key_header: None,
        redirects_max: REDIRECTS,
        egress: Arc::clone(&context.egress),
    };
    Some((http, same?))
}

fn base_url(fields: &Fields<'_>, context: &Context<'_>) -> Option<String> {
    let Some(spot) = fields.get("base_url") else { return Some(BASE_URL.into()) };
    let text = context.fixed(&spot)?;
    let base = text.trim_end_matches('/');
    if !base.starts_with("https://") && !base.starts_with("http://") || base.contains(['?', '#', '@']) {
        spot.wrong("not the address of an API; write https://github.example/api/v3");
        return None;
    }
    Some(base.replace("${", "$${"))
}

/// `owner/name`. What an expression gives cannot add a part, so the slash is written.
fn repo(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<String> {
    let text = spot.text()?;
    let template = context.text(spot, sees)?;
    let literal: String =
        template.parts().iter().filter_map(|part| if let Part::Literal(text) = part { Some(text.as_str()) } else { None }).collect();
    if literal.matches('/').count() != 1 || text.starts_with('/') || text.ends_with('/') {
        spot.wrong("write owner/name, as in octo/widgets or \"${args.owner}/${args.repo}\"");
        return None;
    }
    Some(text.to_owned())
}

fn compared(fields: &Fields<'_>, name: &str, kind: &Kind) -> Option<Vec<Same>> {
    let Some(spot) = fields.get("compare") else { return Some(kind.all[..kind.usual].to_vec()) };
    let choices: Vec<(&str, Same)> = kind.all.iter().map(|same| (same.name, same.clone())).collect();
    let chosen: Vec<Option<Same>> = spot.list()?.iter().map(|item| item.choice(&choices)).collect();
    if chosen.is_empty() {
        spot.wrong(format!("nothing of the {name} would be compared; drop it, or name what must stay as it is"));
    }
    chosen.into_iter().collect()
}

fn headers(fields: &Fields<'_>, context: &Context<'_>) -> Option<Vec<(String, TextTemplate)>> {
    let literal = |name: &str, value: &str| (name.to_owned(), TextTemplate::parse(value).expect("no expression is in it"));
    let mut headers = vec![
        literal("Accept", "application/vnd.github+json"),
        literal("X-GitHub-Api-Version", API_VERSION),
        // GitHub refuses whoever does not say who it is.
        literal("User-Agent", "counterfoil"),
    ];
    if let Some(spot) = fields.get("token") {
        let name = spot.text()?;
        context.env_name(&spot, name)?;
        let bearer = TextTemplate::parse(&format!("Bearer ${{env[\"{name}\"]}}")).map_err(|error| spot.wrong(error.to_string())).ok()?;
        headers.push(("Authorization".to_owned(), bearer));
    }
    Some(headers)
}
