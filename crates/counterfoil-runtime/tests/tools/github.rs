//! The GitHub verifier against a server that speaks the same API: it keeps issues, comments, pull requests, branches and files, wants a token and a
//! user agent, and counts what was changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{Outcome, Success};
use counterfoil_runtime::config::{Config, Environment};
use counterfoil_runtime::tool::{Recorded, Tool};
use counterfoil_runtime::tools::build;
use serde_json::{Value, json};

use crate::support::{call, done};
use crate::world::{Reply, Seen, World, ok, status};

/// A variable that every test process has; its value is the token.
const TOKEN: &str = "CARGO_PKG_NAME";

/// What is there, by path, and how often something was changed.
#[derive(Default)]
struct Hub {
    things: Mutex<BTreeMap<String, Value>>,
    down: Mutex<Option<&'static str>>,
}

impl Hub {
    fn answer(&self, seen: &Seen) -> Reply {
        if seen.header("authorization") != Some(&format!("Bearer {}", env!("CARGO_PKG_NAME"))) {
            return status("401 Unauthorized", "", r#"{"message":"Bad credentials"}"#);
        }
        if seen.header("user-agent").is_none() {
            return status("403 Forbidden", "", r#"{"message":"Request forbidden by administrative rules"}"#);
        }
        if let Some(down) = *self.down.lock().unwrap() {
            return status(down, "", r#"{"message":"no"}"#);
        }
        let mut things = self.things.lock().unwrap();
        let path = seen.target.split('?').next().unwrap().replace("%2F", "/");
        match seen.method.as_str() {
            "GET" => match things.get(&path) {
                Some(thing) => ok(&thing.to_string()),
                None => status("404 Not Found", "", r#"{"message":"Not Found"}"#),
            },
            "DELETE" => {
                things.remove(&path);
                Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())
            }
            _ => {
                let (at, made) = made(&path, &serde_json::from_str(&seen.body).unwrap_or(Value::Null));
                let told = if seen.method == "PUT" { json!({ "content": made, "commit": { "sha": "c1" } }) } else { made.clone() };
                things.insert(at, made);
                status("201 Created", "", &told.to_string())
            }
        }
    }

    fn change(&self, path: &str, member: &str, value: Value) {
        *self.things.lock().unwrap().get_mut(path).unwrap().pointer_mut(member).unwrap() = value;
    }
}

/// What a POST or PUT makes there, and where it is then.
fn made(path: &str, body: &Value) -> (String, Value) {
    let (repo, rest) = path.split_at("/repos/octo/widgets".len());
    let stamp = "2025-10-01T10:00:00Z";
    match rest {
        "/issues" => (
            format!("{repo}/issues/12"),
            json!({ "id": 900, "number": 12, "state": "open", "title": body["title"], "body": null, "updated_at": stamp, "html_url": "https://hub/octo/widgets/issues/12" }),
        ),
        "/issues/12/comments" => (format!("{repo}/issues/comments/77"), json!({ "id": 77, "body": body["body"], "updated_at": stamp })),
        "/pulls" => (
            format!("{repo}/pulls/13"),
            json!({ "id": 901, "number": 13, "state": "open", "head": { "sha": "aaa" }, "title": "t", "updated_at": stamp }),
        ),
        "/git/refs" => {
            let name = body["ref"].as_str().unwrap().strip_prefix("refs/").unwrap();
            (format!("{repo}/git/ref/{name}"), json!({ "ref": body["ref"], "object": { "sha": body["sha"], "type": "commit" } }))
        }
        file => (format!("{repo}{file}"), json!({ "path": file, "sha": "f00d", "size": 3 })),
    }
}

/// `more`: beside `github`.
fn tool(world: &World, http: &str, github: &str, more: &str) -> Arc<dyn Tool> {
    let text = format!(
        "env: [{TOKEN}]\ntools:\n  t:\n    http: {{ headers: {{ Authorization: \"Bearer ${{env.{TOKEN}}}\", User-Agent: test }}, {http} }}\n    verify:\n      github: {{ repo: octo/widgets, token: {TOKEN}, base_url: \"{}\", {github} }}\n      {more}\n",
        world.url("/")
    );
    // What cargo set for this very process.
    let environment: Environment = [(TOKEN, env!("CARGO_PKG_NAME"))].into_iter().collect();
    let config = Config::parse(&text, "counterfoil.yaml", &environment).unwrap_or_else(|errors| panic!("{errors}"));
    build(&config.tools[0]).unwrap().remove(0).1
}

async fn hub() -> (World, Arc<Hub>) {
    let hub = Arc::new(Hub::default());
    let answers = hub.clone();
    (World::serve(move |seen| answers.answer(seen)).await, hub)
}

fn recorded(success: &Success) -> Recorded {
    Recorded { result: success.result.clone(), state_changed: success.state_changed.clone() }
}

fn post(world: &World, path: &str, json: &str) -> String {
    format!("method: POST, url: \"{}\", json: {json}", world.url(&format!("/repos/octo/widgets{path}")))
}

#[tokio::test]
async fn each_kind_of_thing_is_asked_for_and_compared_with_what_was_made() {
    struct Case {
        http: (&'static str, &'static str),
        github: &'static str,
        at: &'static str,
        change: (&'static str, Value),
        drift: (&'static str, &'static str),
        reference: Option<&'static str>,
        version: Option<&'static str>,
    }
    let cases = [
        Case {
            http: ("/issues", "{ title: hello }"),
            github: "issue: \"${result.number}\"",
            at: "/repos/octo/widgets/issues/12",
            change: ("/state", json!("closed")),
            drift: ("state \"open\"", "state \"closed\""),
            reference: Some("https://hub/octo/widgets/issues/12"),
            version: Some("2025-10-01T10:00:00Z"),
        },
        Case {
            http: ("/issues/12/comments", "{ body: \"${args.text}\" }"),
            github: "comment: \"${result.id}\"",
            at: "/repos/octo/widgets/issues/comments/77",
            change: ("/updated_at", json!("2025-10-02T10:00:00Z")),
            drift: ("updated_at \"2025-10-01T10:00:00Z\"", "updated_at \"2025-10-02T10:00:00Z\""),
            reference: None,
            version: Some("2025-10-01T10:00:00Z"),
        },
        Case {
            http: ("/pulls", "{}"),
            github: "pull_request: \"${result.number}\", compare: [id, head.sha]",
            at: "/repos/octo/widgets/pulls/13",
            change: ("/head/sha", json!("bbb")),
            drift: ("head.sha \"aaa\"", "head.sha \"bbb\""),
            reference: Some("13"),
            version: Some("2025-10-01T10:00:00Z"),
        },
        Case {
            http: ("/git/refs", "{ ref: \"refs/heads/fix/one\", sha: abc }"),
            github: "branch: fix/one",
            at: "/repos/octo/widgets/git/ref/heads/fix/one",
            change: ("/object/sha", json!("def")),
            drift: ("sha \"abc\"", "sha \"def\""),
            reference: None,
            version: Some("abc"),
        },
    ];
    for case in cases {
        let (world, hub) = hub().await;
        let tool = tool(&world, &post(&world, case.http.0, case.http.1), case.github, "");
        let args = || call(json!({ "text": "hi" }));
        let made = done(tool.invoke(args()).await);
        let state = made.state_changed.as_ref().unwrap();
        assert_eq!((state.reference.as_deref(), state.version.as_deref()), (case.reference, case.version), "{}", case.github);
        let changed = || world.seen().iter().filter(|seen| seen.method != "GET").count();
        assert_eq!(tool.verify(args(), recorded(&made)).await, Finding::Verified, "{}", case.github);
        hub.change(case.at, case.change.0, case.change.1);
        let (expected, found) = (case.drift.0.to_owned(), case.drift.1.to_owned());
        assert_eq!(tool.verify(args(), recorded(&made)).await, Finding::Drifted { expected, found }, "{}", case.github);
        hub.things.lock().unwrap().clear();
        let gone = tool.verify(args(), recorded(&made)).await;
        assert!(matches!(&gone, Finding::Drifted { found, .. } if found.starts_with("it is gone: 404")), "{}: {gone:?}", case.github);
        for down in ["500 Internal Server Error", "403 Forbidden", "429 Too Many Requests"] {
            *hub.down.lock().unwrap() = Some(down);
            let finding = tool.verify(args(), recorded(&made)).await;
            assert!(matches!(finding, Finding::Unavailable { .. }), "{down}: {finding:?}");
        }
        assert_eq!(changed(), 1, "only the effect itself");
    }
}

#[tokio::test]
async fn a_file_by_its_sha_at_a_branch_and_a_deleted_one_by_its_absence() {
    let (world, hub) = hub().await;
    let file = world.url("/repos/octo/widgets/contents/docs/a.md");
    let write = tool(
        &world,
        &format!("method: PUT, url: \"{file}\", json: {{ message: m, content: aGk= }}"),
        "file: \"${args.path}\", ref: \"${args.branch}\"",
        "",
    );
    let args = || call(json!({ "path": "docs/a.md", "branch": "main" }));
    let made = done(write.invoke(args()).await);
    assert_eq!(made.state_changed.as_ref().unwrap().version.as_deref(), Some("f00d"));
    assert_eq!(write.verify(args(), recorded(&made)).await, Finding::Verified);
    assert_eq!(world.seen().last().unwrap().target, "/repos/octo/widgets/contents/docs%2Fa.md?ref=main");
    hub.change("/repos/octo/widgets/contents/docs/a.md", "/sha", json!("beef"));
    assert!(matches!(write.verify(args(), recorded(&made)).await, Finding::Drifted { .. }));

    let remove = tool(&world, &format!("method: DELETE, url: \"{file}\""), "file: docs/a.md", "gone: true");
    let removed = done(remove.invoke(args()).await);
    assert_eq!(remove.verify(args(), recorded(&removed)).await, Finding::Verified, "a deleted thing verifies by being absent");
    write.invoke(args()).await;
    let back = remove.verify(args(), recorded(&removed)).await;
    assert!(matches!(&back, Finding::Drifted { expected, .. } if expected == "it to be gone"), "{back:?}");
}

/// Without its token nobody is told anything: that is no drift.
#[tokio::test]
async fn a_token_that_is_refused_is_no_answer() {
    let (world, _) = hub().await;
    let text = format!(
        "tools: {{ t: {{ command: [echo], verify: {{ github: {{ repo: octo/widgets, issue: 12, base_url: \"{}\" }} }} }} }}",
        world.url("")
    );
    let config = Config::parse(&text, "counterfoil.yaml", &Environment::default()).unwrap();
    let tool = build(&config.tools[0]).unwrap().remove(0).1;
    let recorded = Recorded { result: counterfoil_core::Json::null(), state_changed: None };
    let finding = tool.verify(call(json!({})), recorded).await;
    assert_eq!(finding, Finding::Unavailable { why: "the question was answered 401".into() });
    assert!(matches!(tool.invoke(call(json!({}))).await, Outcome::Done(_)));
}
