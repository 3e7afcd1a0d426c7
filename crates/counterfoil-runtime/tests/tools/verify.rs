//! Verifiers, each against the real thing it asks: a server, a process, a file. Asking never calls the tool.

use std::path::Path;
use std::sync::{Arc, Mutex};

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{Json, Outcome, StateChanged, Success};
use counterfoil_runtime::config::{Config, Environment};
use counterfoil_runtime::tool::{Recorded, Tool};
use counterfoil_runtime::tools::build;
use serde_json::{Value, json};

use crate::support::{call, done};
use crate::world::{Reply, Seen, World, ok, status};

/// The tool `t` of a config.
fn tool(folder: &Path, fields: &str) -> Arc<dyn Tool> {
    let text = format!("tools:\n  t:\n{}", fields.lines().map(|line| format!("    {line}\n")).collect::<String>());
    let config = Config::parse(&text, folder.join("counterfoil.yaml"), &Environment::default()).unwrap_or_else(|errors| panic!("{errors}"));
    build(&config.tools[0]).unwrap().remove(0).1
}

fn recorded(success: &Success) -> Recorded {
    Recorded { result: success.result.clone(), state_changed: success.state_changed.clone() }
}

fn result(value: Value) -> Recorded {
    Recorded { result: Json::from_value(&value), state_changed: None }
}

#[track_caller]
fn drifted(finding: Finding) -> (String, String) {
    match finding {
        Finding::Drifted { expected, found } => (expected, found),
        other => panic!("expected a drift, found {other:?}"),
    }
}

#[track_caller]
fn unavailable(finding: Finding) -> String {
    match finding {
        Finding::Unavailable { why } => why,
        other => panic!("expected that it could not be asked, found {other:?}"),
    }
}

/// What the server answers, until it is told otherwise.
type Answering = Arc<Mutex<Box<dyn Fn(&Seen) -> Reply + Send>>>;

/// A server with one thing in it: what PUT and GET answer, until the test says otherwise.
async fn thing() -> (World, Arc<Mutex<Box<dyn Fn(&Seen) -> Reply + Send>>>) {
    let put_or_get = |_: &Seen| status("200 OK", "etag: \"one\"\r\n", r#"{"id":"r-1","status":"paid","version":3}"#);
    let answer: Answering = Arc::new(Mutex::new(Box::new(put_or_get)));
    let answers = answer.clone();
    (World::serve(move |seen| answers.lock().unwrap()(seen)).await, answer)
}

#[tokio::test]
async fn http_by_status_etag_version_and_expression() {
    let (world, answer) = thing().await;
    let answers = |reply: fn(&Seen) -> Reply| *answer.lock().unwrap() = Box::new(reply);
    let here = Path::new(".");
    let asks = |how: &str| {
        let fields = format!(
            "http: {{ method: PUT, url: \"{}\" }}\nverify: {{ http: {{ url: \"{}\" }}{how} }}",
            world.url("/things"),
            world.url("/things/${result.id}")
        );
        tool(here, &fields)
    };
    let (plain, etag, version) = (asks(""), asks(", etag: true, ref: result.id"), asks(", version: response.json.version"));
    let holds = asks(", holds: \"response.json.status == 'paid'\"");
    let captured = asks(", holds: \"response.headers.etag == state.etag\"");
    let made = done(etag.invoke(call(json!({}))).await);
    let state = StateChanged { etag: Some("\"one\"".into()), reference: Some("r-1".into()), ..StateChanged::default() };
    assert_eq!(made.state_changed.as_deref(), Some(&state));
    let with_version = done(version.invoke(call(json!({}))).await);
    assert_eq!(with_version.state_changed.as_ref().unwrap().version.as_deref(), Some("3"));
    let invoked = world.seen().len();

    let all = [&plain, &etag, &holds, &captured];
    for tool in all {
        assert_eq!(tool.verify(call(json!({})), recorded(&made)).await, Finding::Verified);
    }
    assert_eq!(version.verify(call(json!({})), recorded(&with_version)).await, Finding::Verified);
    let asked = &world.seen()[invoked..];
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|seen| seen.method == "GET" && seen.target == "/things/r-1" && seen.header("idempotency-key").is_none()));

    // Changed from outside: by its tag, by its version, by what it says.
    answers(|_| status("200 OK", "etag: W/\"two\"\r\n", r#"{"id":"r-1","status":"refunded","version":4}"#));
    assert_eq!(drifted(etag.verify(call(json!({})), recorded(&made)).await), ("ETag \"one\"".into(), "ETag W/\"two\"".into()));
    assert_eq!(drifted(version.verify(call(json!({})), recorded(&with_version)).await), ("version 3".into(), "version 4".into()));
    let (expected, found) = drifted(holds.verify(call(json!({})), recorded(&made)).await);
    assert!(expected.contains("== 'paid'") && found.starts_with("200 ") && found.contains("refunded"), "{expected}: {found}");
    drifted(captured.verify(call(json!({})), recorded(&made)).await);
    assert_eq!(plain.verify(call(json!({})), recorded(&made)).await, Finding::Verified, "it is there, and that is all that was asked");
    // The same tag, sent as a weak one.
    answers(|_| status("200 OK", "etag: W/\"one\"\r\n", "{}"));
    assert_eq!(etag.verify(call(json!({})), recorded(&made)).await, Finding::Verified);

    // Deleted from outside.
    for gone in [|_: &Seen| status("404 Not Found", "", "{}"), |_: &Seen| status("410 Gone", "", "")] {
        answers(gone);
        for tool in [&plain, &etag, &holds] {
            assert!(drifted(tool.verify(call(json!({})), recorded(&made)).await).1.starts_with("it is gone: 4"));
        }
    }

    // Trouble says nothing: neither that it holds, nor that it does not.
    let troubles: [fn(&Seen) -> Reply; 5] = [
        |_| status("500 Internal Server Error", "", ""),
        |_| status("503 Service Unavailable", "", ""),
        |_| status("403 Forbidden", "", "{\"status\":\"paid\"}"),
        |_| status("429 Too Many Requests", "", ""),
        |_| Reply::Close,
    ];
    for trouble in troubles {
        answers(trouble);
        for tool in all {
            unavailable(tool.verify(call(json!({})), recorded(&made)).await);
        }
    }
    answers(|_| ok("not json"));
    assert!(unavailable(holds.verify(call(json!({})), recorded(&made)).await).contains("response.json.status"));
    assert!(unavailable(etag.verify(call(json!({})), recorded(&made)).await).contains("no ETag"));
    assert!(unavailable(plain.verify(call(json!({})), result(json!("half of it"))).await).contains("result.id"));
    assert_eq!(world.seen().iter().filter(|seen| seen.method != "GET").count(), 2, "only the two effects themselves");
}

#[tokio::test]
async fn what_was_not_captured_is_unverified_unless_something_else_says_that_it_holds() {
    let (world, _) = thing().await;
    let asks = |how: &str| {
        tool(
            Path::new("."),
            &format!("http: {{ method: PUT, url: \"{}\" }}\nverify: {{ http: {{ url: \"{}\" }}, {how} }}", world.url("/"), world.url("/")),
        )
    };
    for (how, what) in [("etag: true", "ETag"), ("version: response.json.version", "version")] {
        let finding = asks(how).verify(call(json!({})), result(json!({}))).await;
        assert_eq!(finding, Finding::Unverified { why: format!("no {what} was captured when it was done") });
        let held = asks(&format!("{how}, holds: \"true\"")).verify(call(json!({})), result(json!({}))).await;
        assert_eq!(held, Finding::Verified);
    }
}

#[tokio::test]
async fn what_was_removed_verifies_by_being_gone() {
    let (world, answer) = thing().await;
    let fields = format!(
        "http: {{ method: DELETE, url: \"{url}\" }}\nverify: {{ http: {{ url: \"{url}\" }}, gone: true }}",
        url = world.url("/things/r-1")
    );
    let tool = tool(Path::new("."), &fields);
    let (_, found) = drifted(tool.verify(call(json!({})), result(json!(null))).await);
    assert!(found.starts_with("it is there: 200"), "{found}");
    *answer.lock().unwrap() = Box::new(|_| status("404 Not Found", "", ""));
    assert_eq!(tool.verify(call(json!({})), result(json!(null))).await, Finding::Verified);
    *answer.lock().unwrap() = Box::new(|_| status("503 Service Unavailable", "", ""));
    unavailable(tool.verify(call(json!({})), result(json!(null))).await);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_unavailable() {
    let world = World::serve(|_| Reply::Hang).await;
    let fields =
        format!("http: {{ method: PUT, url: \"{url}\" }}\nverify: {{ http: {{ url: \"{url}\" }}, timeout: 200ms }}", url = world.url("/"));
    assert!(unavailable(tool(Path::new("."), &fields).verify(call(json!({})), result(json!(null))).await).contains("200ms"));
}

#[tokio::test]
async fn a_host_that_a_result_names_needs_the_operators_word() {
    let (world, _) = thing().await;
    let text =
        "egress: { allow: [bank.example] }\ntools: { t: { command: [echo], verify: { http: { url: \"http://${result.host}/\" } } } }";
    let config = Config::parse(text, "counterfoil.yaml", &Environment::default()).unwrap();
    let tool = build(&config.tools[0]).unwrap().remove(0).1;
    let why = unavailable(tool.verify(call(json!({})), result(json!({ "host": world.address.to_string() }))).await);
    assert!(why.contains("127.0.0.1"), "{why}");
    assert!(world.seen().is_empty());
}

#[tokio::test]
async fn a_command_says_itself_or_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let said = |argv: &str, how: &str| tool(folder.path(), &format!("command: [\"false\"]\nverify: {{ command: {argv}{how} }}"));
    let sh = |script: &str, how: &str| said(&format!("[sh, -c, {}]", json!(script)), how);
    let recorded = || Recorded {
        result: Json::from_value(&json!({ "id": 7 })),
        state_changed: StateChanged { version: Some("v1".into()), ..StateChanged::default() }.known(),
    };
    let ask = async |tool: Arc<dyn Tool>| tool.verify(call(json!({ "who": "ada" })), recorded()).await;

    // What it is told, on stdin.
    let echo = sh("cat > told; echo '{\"holds\": true}'", "");
    assert_eq!(ask(echo).await, Finding::Verified);
    let told: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("told")).unwrap()).unwrap();
    assert_eq!((&told["args"]["who"], &told["result"]["id"], &told["state"]["version"]), (&json!("ada"), &json!(7), &json!("v1")));

    let found = ask(sh("echo '{\"holds\": false, \"expected\": \"v1\", \"found\": 2}'", "")).await;
    assert_eq!(drifted(found), ("v1".into(), "2".into()));
    assert_eq!(ask(sh("echo '{\"ok\": 1}'", ", holds: \"response.json.ok == 1\"")).await, Finding::Verified);
    assert!(drifted(ask(sh("echo '{\"ok\": 2}'", ", holds: \"response.json.ok == 1\"")).await).1.contains("\"ok\": 2"));
    assert!(drifted(ask(sh("exit 1", ", holds: \"response.exit == 0\"")).await).1.starts_with('1'));

    // A command that failed, or says nothing of the kind, has not answered.
    for script in ["exit 1", "echo '{\"holds\": true}'; exit 3", "echo yes", "echo '{\"holds\": \"yes\"}'", "kill -9 $$"] {
        unavailable(ask(sh(script, "")).await);
    }
    unavailable(ask(sh("exit 2", ", holds: \"has(response.json.ok)\"")).await);
    unavailable(ask(said("[no-such-program-anywhere]", "")).await);
}

#[tokio::test]
async fn files_are_verified_without_a_word_in_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = |change: &str| tool(folder.path(), &format!("file: {{ root: ., {change} }}"));
    let at = |name: &str| folder.path().join(name);
    let write = file("write: { path: \"${args.path}\", content: \"${args.content}\" }");
    assert!(write.can_verify());
    let args = || call(json!({ "path": "a.txt", "content": "one" }));
    let made = done(write.invoke(args()).await);
    assert_eq!(made.state_changed.as_ref().unwrap().reference.as_deref(), Some("a.txt"));
    assert_eq!(write.verify(args(), recorded(&made)).await, Finding::Verified);
    std::fs::write(at("a.txt"), "another").unwrap();
    let (expected, found) = drifted(write.verify(args(), recorded(&made)).await);
    assert!(expected.starts_with("a.txt with sha256") && found.starts_with("7 bytes"), "{expected}: {found}");
    std::fs::remove_file(at("a.txt")).unwrap();
    assert_eq!(drifted(write.verify(args(), recorded(&made)).await).1, "no such file");

    std::fs::write(at("b.txt"), "b").unwrap();
    let (remove, mut removing) = (file("delete: { path: b.txt }"), call(json!({})));
    removing.key = counterfoil_core::ids::Digest32::of(b"removing");
    let removed = done(remove.invoke(removing.clone()).await);
    assert_eq!(remove.verify(removing.clone(), recorded(&removed)).await, Finding::Verified, "a deleted thing verifies by being absent");
    std::fs::write(at("b.txt"), "again").unwrap();
    assert_eq!(drifted(remove.verify(removing, recorded(&removed)).await).0, "b.txt gone");

    let (relocate, mut moving) = (file("move: { from: b.txt, to: sub/c.txt }"), call(json!({})));
    moving.key = counterfoil_core::ids::Digest32::of(b"moving");
    let moved = done(relocate.invoke(moving.clone()).await);
    std::fs::write(at("b.txt"), "somebody else's").unwrap();
    assert_eq!(relocate.verify(moving.clone(), recorded(&moved)).await, Finding::Verified, "what was moved is where it was put");
    std::fs::rename(at("sub/c.txt"), at("d.txt")).unwrap();
    drifted(relocate.verify(moving, recorded(&moved)).await);
}

/// A file that another kind of tool wrote: its digest is taken when the effect is done.
#[tokio::test]
async fn any_tool_may_be_verified_by_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let script = "[sh, -c, \"printf %s \\\"$1\\\" > \\\"$1.txt\\\"; echo '{\\\"made\\\": true}'\", sh, \"${args.name}\"]";
    let fields = |more: &str| format!("command: {script}\nverify: {{ file: {{ path: \"${{args.name}}.txt\"{more} }}");
    let digested = tool(folder.path(), &format!("{} }}", fields("")));
    let args = || call(json!({ "name": "report" }));
    let made = done(digested.invoke(args()).await);
    assert_eq!(made.state_changed.as_ref().unwrap().digest, Some(counterfoil_core::ids::Digest32::of(b"report")));
    assert_eq!(digested.verify(args(), recorded(&made)).await, Finding::Verified);
    std::fs::write(folder.path().join("report.txt"), "edited").unwrap();
    drifted(digested.verify(args(), recorded(&made)).await);
    let unknown = digested.verify(args(), result(json!({}))).await;
    assert_eq!(unknown, Finding::Unverified { why: "no digest of report.txt was captured when it was done".into() });

    let written = tool(folder.path(), &format!("{} }}", fields(", sha256: \"${result.sha256}\"")));
    let holds = json!({ "sha256": counterfoil_core::ids::Digest32::of(b"edited").to_string() });
    assert_eq!(written.verify(args(), result(holds)).await, Finding::Verified);
    unavailable(written.verify(args(), result(json!({ "sha256": "abc" }))).await);
    let gone = tool(folder.path(), &format!("{}, gone: true }}", fields("")));
    drifted(gone.verify(args(), result(json!(null))).await);
    std::fs::remove_file(folder.path().join("report.txt")).unwrap();
    assert_eq!(gone.verify(args(), result(json!(null))).await, Finding::Verified);
}

/// A tool that its client runs is captured by what it committed.
#[tokio::test]
async fn a_clients_result_is_captured_too() {
    let fields =
        "client: {}\nverify: { http: { url: \"http://127.0.0.1:1/\" }, version: { was: result.v, is: response.json.v }, ref: result.id }";
    let tool = tool(Path::new("."), fields);
    let state = tool.captured(&call(json!({})), &Json::from_value(&json!({ "v": 12, "id": "x" }))).unwrap();
    assert_eq!((state.version.as_deref(), state.reference.as_deref()), (Some("12"), Some("x")));
    assert_eq!(tool.captured(&call(json!({})), &Json::from_value(&json!({}))), None);
    assert!(matches!(tool.invoke(call(json!({}))).await, Outcome::NotDone(_)));
}
