use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::outcome::Flag;
use counterfoil_core::{Call, CanonicalJson, Json, Outcome, ToolName, TraceContext};
use counterfoil_runtime::spec::{Action, Ask, Egress, HttpBody, HttpSpec, ProbeSpec, StatusRange, ToolSpec, UndoSpec};
use counterfoil_runtime::tool::ProbeAnswer;
use counterfoil_runtime::tools::{BuildError, build};
use counterfoil_runtime::{Builder, CallContext, Invocation, Registered, Status};
use counterfoil_store::memory::Memory;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::*;
use crate::world::{Reply, Seen, World, ok, status};

#[tokio::test]
async fn a_success_is_kept_byte_for_byte_and_the_key_went_along() {
    let world = World::serve(|_| ok("{\"id\":  \"ch_1\", \"n\": 18446744073709551617}")).await;
    let tool = http_tool(http("POST", &world.url("/charges/${args.customer}")));
    let mut call = call(json!({}));
    call.args = CanonicalJson::parse(r#"{"customer":"a/b","big":18446744073709551617}"#).unwrap();
    let success = done(tool.invoke(call.clone()).await);
    assert_eq!(success.result.as_str(), "{\"id\":  \"ch_1\", \"n\": 18446744073709551617}");
    assert!(success.flags.is_empty());

    let [seen] = &world.seen()[..] else { panic!("one request") };
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/charges/a%2Fb"));
    assert_eq!(seen.body, r#"{"big":18446744073709551617,"customer":"a/b"}"#);
    assert_eq!(seen.header("idempotency-key"), Some(call.key.to_string().as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn what_an_answer_means() {
    enum Means {
        Done(&'static str),
        NotDone { code: &'static str, retriable: bool, dependency: bool },
        Unknown(&'static str),
    }
    use Means::{Done, NotDone, Unknown};
    let rejected = |code| NotDone { code, retriable: false, dependency: false };
    let table: Vec<(fn() -> Reply, Means)> = vec![
        (|| ok("{\"a\":1}"), Done("{\"a\":1}")),
        (|| ok(""), Done("null")),
        (|| ok("plain"), Done("\"plain\"")),
        (|| Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()), Done("null")),
        (|| status("400 Bad Request", "", "{}"), rejected("http_400")),
        (|| status("404 Not Found", "", ""), rejected("http_404")),
        (|| status("302 Found", "location: /other\r\n", ""), Unknown("http_302")),
        (|| status("303 See Other", "location: /charges/7\r\n", ""), Unknown("http_303")),
        (|| status("307 Temporary Redirect", "location: /other\r\n", ""), rejected("http_307")),
        (|| status("429 Too Many Requests", "", ""), NotDone { code: "http_429", retriable: true, dependency: false }),
        (|| status("503 Service Unavailable", "", ""), NotDone { code: "http_503", retriable: true, dependency: true }),
        (|| status("500 Internal Server Error", "", ""), Unknown("http_500")),
        (|| Reply::Close, Unknown("connection_lost")),
        (|| Reply::RawThenClose(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), Unknown("connection_lost")),
        (|| Reply::RawThenClose(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"".to_vec()), Unknown("connection_lost")),
        (
            || Reply::RawThenClose(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n".to_vec()),
            Unknown("connection_lost"),
        ),
        (|| Reply::RawThenClose(b"not http at all\r\n\r\n".to_vec()), Unknown("connection_lost")),
    ];
    for (number, (reply, means)) in table.into_iter().enumerate() {
        let world = World::serve(move |_| reply()).await;
        let outcome = http_tool(HttpSpec { redirects_max: 3, ..http("POST", &world.url("/")) }).invoke(call(json!({"n": 1}))).await;
        match (means, outcome) {
            (Done(result), Outcome::Done(success)) => assert_eq!(success.result.as_str(), result, "case {number}"),
            (NotDone { code, retriable, dependency }, Outcome::NotDone(failure)) => {
                assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), (code, retriable, dependency), "case {number}");
            }
            (Unknown(code), Outcome::Unknown(failure)) => assert_eq!(failure.code, code, "case {number}"),
            (_, outcome) => panic!("case {number}: {outcome:?}"),
        }
        assert_eq!(world.seen().len(), 1, "case {number}: sent once, whatever was answered");
    }
}

#[tokio::test]
async fn a_refused_connection_is_certainly_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failure = not_done(http_tool(http("POST", &format!("http://{address}/x?token=s3cret"))).invoke(call(json!({}))).await);
    assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), ("connection_refused", true, true));
    assert!(failure.message.contains("nothing was sent") && !failure.message.contains("s3cret"), "{}", failure.message);
}

#[tokio::test]
async fn an_unknown_name_and_a_broken_handshake_are_not_done() {
    let failure = not_done(http_tool(http("POST", "http://no-such-host.invalid/")).invoke(call(json!({}))).await);
    assert_eq!((failure.code.as_str(), failure.retriable), ("dns_failed", true));

    // It speaks no TLS; whatever it answers, the request itself never left.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        // All of it: unread bytes would turn the answer into a reset.
        stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([hello[3], hello[4]]))]).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        hello[0]
    });
    let failure = not_done(http_tool(http("POST", &format!("https://{address}/"))).invoke(call(json!({}))).await);
    assert_eq!((failure.code.as_str(), failure.retriable), ("tls_failed", true));
    assert_eq!(server.await.unwrap(), 0x16, "a TLS handshake, not a request");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_known_not_to_have_sent_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut spec = spec(Action::Http(http("POST", &format!("https://{}/", listener.local_addr().unwrap()))));
    spec.policy.timeout = Duration::from_millis(200);
    let failure = not_done(tool(&spec).invoke(call(json!({}))).await);
    assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), ("connect_timeout", true, true));
}

#[tokio::test]
async fn hanging_up_before_reading_is_unknown_all_the_same() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { drop(listener.accept().await) });
    let failure = unknown(http_tool(http("POST", &format!("http://{address}/"))).invoke(call(json!({}))).await);
    assert_eq!(failure.code, "connection_lost");
}

#[tokio::test]
async fn dropping_a_slow_attempt_sends_nothing_more() {
    let world = World::serve(|_| Reply::Hang).await;
    let tool = http_tool(http("POST", &world.url("/")));
    tokio::select! {
        outcome = tool.invoke(call(json!({}))) => panic!("{outcome:?}"),
        () = world.arrival() => {}
    }
    assert_eq!(world.seen().len(), 1);
}

#[tokio::test]
async fn a_write_never_uses_a_connection_that_was_idle() {
    let world = World::serve(|_| ok("1")).await;
    for (repeat, connections) in [(false, [0, 1]), (true, [2, 2])] {
        let spec = spec(Action::Http(http("POST", &world.url("/"))));
        let tool = tool(&if repeat { repeatable(spec) } else { spec });
        let before = world.seen().len();
        for _ in 0..2 {
            done(tool.invoke(call(json!({}))).await);
        }
        let used: Vec<usize> = world.seen()[before..].iter().map(|seen| seen.connection).collect();
        assert_eq!(used, connections, "repeatable: {repeat}");
    }
}

#[tokio::test]
async fn a_500_is_unknown_also_for_a_repeatable_tool() {
    let world = World::serve(|_| status("500 Oops", "", "")).await;
    let failure = unknown(tool(&repeatable(spec(Action::Http(http("POST", &world.url("/")))))).invoke(call(json!({}))).await);
    assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), ("http_500", true, true));
    let mut own = http("POST", &world.url("/"));
    own.classes.success = vec![StatusRange { from: 500, to: 500 }];
    done(http_tool(own).invoke(call(json!({}))).await);
}

#[tokio::test]
async fn retry_after_and_the_body_of_an_error_are_told() {
    let world = World::serve(|seen| match seen.target.as_str() {
        "/seconds" => status("429 Too Many", "retry-after: 7\r\n", "{\"why\": \"limit\"}"),
        "/date" => status("503 No", "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2015 07:28:05 GMT\r\n", "closed"),
        _ => status("400 Bad", "", &"x".repeat(10_000)),
    })
    .await;
    let mut failures = Vec::new();
    for path in ["/seconds", "/date", "/large"] {
        failures.push(not_done(http_tool(http("POST", &world.url(path))).invoke(call(json!({}))).await));
    }
    assert_eq!(failures.iter().map(|f| f.retry_after_ms).collect::<Vec<_>>(), [Some(7000), Some(5000), None]);
    assert_eq!(failures[0].detail.as_ref().unwrap().as_str(), "{\"why\": \"limit\"}");
    assert_eq!(failures[1].detail.as_ref().unwrap().as_str(), "\"closed\"");
    assert_eq!(failures[2].detail.as_ref().unwrap().as_str().len(), 4096 + 2);
}

#[tokio::test]
async fn a_rejection_stands_even_when_its_body_never_ends() {
    let world = World::serve(|_| Reply::Raw(b"HTTP/1.1 400 Bad\r\ncontent-length: 100\r\n\r\npart".to_vec())).await;
    let failure = not_done(http_tool(http("POST", &world.url("/"))).invoke(call(json!({}))).await);
    assert_eq!(failure.code, "http_400");
}

#[tokio::test]
async fn a_large_answer_happened_too() {
    let body = format!("\"{}\"", "y".repeat(300_000));
    let served = body.clone();
    let world = World::serve(move |_| ok(&served)).await;
    let mut call = call(json!({}));
    call.result_bytes_max = 1000;
    let success = done(http_tool(http("POST", &world.url("/"))).invoke(call.clone()).await);
    assert_eq!(success.flags, [Flag::Truncated { bytes: 300_002, sha256: Digest32::of(body.as_bytes()) }]);
    assert_eq!(success.result.as_str(), format!("\"\\\"{}\"", "y".repeat(999)));

    // An expression sees all of it, and its pick is what is capped.
    let spec = HttpSpec { result: Some(expr("size(response.json)")), ..http("POST", &world.url("/")) };
    assert_eq!(done(http_tool(spec).invoke(call).await).result.as_str(), "300000");
}

#[tokio::test]
async fn the_result_is_picked_out_of_the_answer() {
    let world = World::serve(|_| status("201 Created", "x-id: 7\r\nx-id: 8\r\n", r#"{"data":{"id":18446744073709551617}}"#)).await;
    let pick = |source: &str| HttpSpec { result: Some(expr(source)), ..http("POST", &world.url("/")) };
    let check = async |source: &str, expected: &str| {
        assert_eq!(done(http_tool(pick(source)).invoke(call(json!({"a": 1}))).await).result.as_str(), expected);
    };
    check("response.json.data", r#"{"id":18446744073709551617}"#).await;
    check("{'s': response.status, 'h': response.headers['x-id'], 'a': args.a}", r#"{"a":1,"h":"7, 8","s":201}"#).await;

    let success = done(http_tool(pick("response.json.nope")).invoke(call(json!({}))).await);
    assert_eq!(success.result.as_str(), r#"{"data":{"id":18446744073709551617}}"#);
    assert!(matches!(&success.flags[..], [Flag::OutputSchemaViolated(why)] if why.contains("nope")), "{:?}", success.flags);
}

#[tokio::test]
async fn headers_are_rendered_and_cannot_be_split() {
    let world = World::serve(|_| ok("1")).await;
    let spec = HttpSpec {
        headers: vec![
            ("X-Who".into(), text("${args.who}")),
            ("Content-Type".into(), text("text/csv")),
            ("X-Run".into(), text("${run.id}")),
        ],
        body: HttpBody::Text(text("a,${args.who}")),
        ..http("POST", &world.url("/"))
    };
    done(http_tool(spec.clone()).invoke(call(json!({"who": "me"}))).await);
    let seen = world.seen().remove(0);
    assert_eq!((seen.header("x-who"), seen.header("content-type"), seen.header("x-run")), (Some("me"), Some("text/csv"), Some("r1")));
    assert_eq!(seen.body, "a,me");
    let failure = not_done(http_tool(spec.clone()).invoke(call(json!({"who": "me\r\nX-Admin: 1"}))).await);
    assert_eq!(failure.code, "header_invalid");
    let failure = not_done(http_tool(spec).invoke(call(json!({}))).await);
    assert_eq!(failure.code, "template_failed");
    assert_eq!(world.seen().len(), 1, "what cannot be rendered is not sent");
}

#[tokio::test]
async fn a_get_follows_redirects_and_shows_no_secret_to_strangers() {
    let stranger = World::serve(|_| ok("\"stranger\"")).await;
    let elsewhere = stranger.url("/s");
    let world = World::serve(move |seen| match seen.target.as_str() {
        "/a" => status("302 Found", "location: /b\r\n", ""),
        "/b" => ok("\"b\""),
        "/away" => status("302 Found", &format!("location: {elsewhere}\r\n"), ""),
        _ => status("302 Found", "location: /loop\r\n", ""),
    })
    .await;
    let get = |path: &str, egress: Egress| HttpSpec {
        redirects_max: 2,
        headers: vec![("Authorization".into(), text("s3cret"))],
        egress: Arc::new(egress),
        ..http("GET", &world.url(path))
    };
    let ask = async |spec: HttpSpec| tool(&read_only(spec_of(spec))).invoke(call(json!({}))).await;

    assert_eq!(done(ask(get("/a", Egress::default())).await).result.as_str(), "\"b\"");
    assert_eq!(world.seen()[1].header("authorization"), Some("s3cret"), "the same server may know");
    assert_eq!(not_done(ask(get("/loop", Egress::default())).await).code, "redirects_exhausted");
    assert_eq!(world.seen().len(), 2 + 3);

    assert_eq!(not_done(ask(get("/away", Egress::default())).await).code, "egress_refused");
    let listed = Egress { allow: vec!["127.0.0.1".into()], ..Egress::default() };
    assert_eq!(not_done(ask(get("/away", listed.clone())).await).code, "egress_refused");
    assert_eq!(stranger.seen(), []);
    done(ask(get("/away", Egress { allow_private: true, ..listed })).await);
    let seen = stranger.seen().remove(0);
    assert_eq!((seen.header("authorization"), seen.header("idempotency-key")), (None, None));
}

fn spec_of(http: HttpSpec) -> ToolSpec {
    spec(Action::Http(http))
}

#[tokio::test]
async fn an_argument_does_not_choose_the_host() {
    let world = World::serve(|_| ok("1")).await;
    let args = json!({"url": world.url("/x"), "host": "localhost", "port": world.address.port()});
    let attempt = async |url: &str, allow: &[&str], allow_private: bool| {
        let egress = Egress { allow: allow.iter().map(|&host| host.to_owned()).collect(), allow_private, strict: false };
        let spec = HttpSpec { egress: Arc::new(egress), ..http("POST", url) };
        http_tool(spec).invoke(call(args.clone())).await
    };
    for (url, allow) in [
        ("${args.url}", &[][..]),
        ("${args.url}", &["127.0.0.1"]),
        ("http://${args.host}:${args.port}/", &["localhost"]),
        ("http://127.0.0.1:${args.port}/", &["127.0.0.1"]),
    ] {
        let failure = not_done(attempt(url, allow, false).await);
        assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), ("egress_refused", false, false), "{url} {allow:?}");
    }
    assert_eq!(world.seen(), [], "nothing was sent");
    done(attempt("${args.url}", &["127.0.0.1"], true).await);
    done(attempt("http://${args.host}:${args.port}/", &["localhost"], true).await);
    done(attempt(&world.url("/${args.host}"), &[], false).await);
    assert_eq!(world.seen().len(), 3);
}

fn probe(world: &World) -> ProbeSpec {
    ProbeSpec {
        ask: Ask::Http(http("GET", &world.url("/charges?key=${key}"))),
        happened: expr("response.status == 200 && size(response.json.data) > 0"),
        did_not_happen: None,
        result: Some(expr("response.json.data[0]")),
        timeout: Duration::from_secs(20),
    }
}

#[tokio::test]
async fn what_a_probe_learns() {
    type Learned = Result<Option<&'static str>, &'static str>;
    let table: Vec<(fn() -> Reply, Learned)> = vec![
        (|| ok(r#"{"data":[{"id":"c1"}]}"#), Ok(Some(r#"{"id":"c1"}"#))),
        (|| ok(r#"{"data":[]}"#), Ok(None)),
        (|| status("404 Not Found", "", "nope"), Err("response.status == 404")),
        (|| status("403 Forbidden", "", ""), Err("answered 403")),
        (|| status("429 Slow", "", ""), Err("answered 429")),
        (|| status("500 Oops", "", ""), Err("answered 500")),
        (|| status("503 Oops", "", ""), Err("answered 503")),
        (|| ok("not json"), Err("`response.status == 200")),
        (|| ok(r#"{"other":1}"#), Err("there is no member `data`")),
        (|| Reply::Close, Err("broke")),
        (|| Reply::RawThenClose(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec()), Err("broke")),
    ];
    for (number, (reply, expected)) in table.into_iter().enumerate() {
        let world = World::serve(move |_| reply()).await;
        let tool = tool(&probed(spec(Action::Http(http("POST", &world.url("/charges")))), probe(&world)));
        assert!(tool.can_probe());
        match (expected, tool.probe(call(json!({}))).await) {
            (Ok(Some(result)), ProbeAnswer::Happened(success)) => assert_eq!(success.result.as_str(), result, "case {number}"),
            (Ok(None), ProbeAnswer::DidNotHappen) => {}
            (Err(why), ProbeAnswer::CannotTell(reason)) => assert!(reason.contains(why), "case {number}: {reason}"),
            (expected, answer) => panic!("case {number}: {expected:?}, found {answer:?}"),
        }
        let [seen] = &world.seen()[..] else { panic!("case {number}: asked once") };
        assert_eq!((seen.method.as_str(), seen.header("idempotency-key")), ("GET", None));
        assert_eq!(seen.target, format!("/charges?key={}", call(json!({})).key));
    }
}

#[tokio::test]
async fn a_probe_that_cannot_ask_cannot_tell() {
    let world = World::serve(|_| Reply::Hang).await;
    let slow = ProbeSpec { timeout: Duration::from_millis(50), ..probe(&world) };
    let slow = tool(&probed(spec(Action::Http(http("POST", &world.url("/")))), slow));
    assert!(matches!(slow.probe(call(json!({}))).await, ProbeAnswer::CannotTell(why) if why.contains("not answered")));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let unreachable = ProbeSpec { ask: Ask::Http(http("GET", &closed)), ..probe(&world) };
    let unreachable = tool(&probed(spec(Action::Http(http("POST", &world.url("/")))), unreachable));
    assert!(matches!(unreachable.probe(call(json!({}))).await, ProbeAnswer::CannotTell(why) if why.contains("could not connect")));
}

#[tokio::test]
async fn a_declared_no_is_the_only_no() {
    let world = World::serve(|_| ok(r#"{"data":[],"state":"pending"}"#)).await;
    let strict = |source: &str| {
        let probe = ProbeSpec { did_not_happen: Some(expr(source)), ..probe(&world) };
        tool(&probed(spec(Action::Http(http("POST", &world.url("/")))), probe))
    };
    let undecided = strict("response.json.state == 'absent'").probe(call(json!({}))).await;
    assert!(matches!(undecided, ProbeAnswer::CannotTell(why) if why.contains("neither")));
    assert_eq!(strict("response.json.state == 'pending'").probe(call(json!({}))).await, ProbeAnswer::DidNotHappen);

    let empty = World::serve(|_| status("404 Not Found", "", "")).await;
    let told = ProbeSpec { did_not_happen: Some(expr("response.status == 404")), ..probe(&empty) };
    let told = tool(&probed(spec(Action::Http(http("POST", &empty.url("/")))), told));
    assert_eq!(told.probe(call(json!({}))).await, ProbeAnswer::DidNotHappen);
}

#[tokio::test]
async fn an_undo_is_planned_from_arguments_and_result() {
    let undo = UndoSpec {
        tool: ToolName::new("refund").unwrap(),
        args: value(json!({"charge": "${result.id}", "why": "undo of ${args.order}", "key": "${key}"})),
    };
    let tool = tool(&ToolSpec { undo: Some(undo), ..spec(Action::Http(http("POST", "http://127.0.0.1:1/"))) });
    let call = call(json!({"order": 5}));
    let plan = tool.undo_plan(&call, &Json::parse(r#"{"id": 18446744073709551617}"#).unwrap()).unwrap().unwrap();
    assert_eq!(plan.tool.as_str(), "refund");
    assert_eq!(plan.args.as_str(), format!(r#"{{"charge":18446744073709551617,"key":"{}","why":"undo of 5"}}"#, call.key));
    assert!(tool.undo_plan(&call, &Json::null()).unwrap_err().contains("result.id"));
}

#[test]
fn what_can_be_wrong_at_start_is_found_at_start() {
    let check = |http: HttpSpec, expected: &str| {
        let error = build(&spec(Action::Http(http))).err().unwrap();
        assert_eq!(error.to_string(), expected);
    };
    check(http("FE TCH", "http://x/"), "http: \"FE TCH\" is not a method for a tool");
    check(http("CONNECT", "http://x/"), "http: \"CONNECT\" is not a method for a tool");
    check(HttpSpec { headers: vec![("a b".into(), text(""))], ..http("GET", "http://x/") }, "http: \"a b\" is not the name of a header");
    let missing = http("GET", "http://x/${env.COUNTERFOIL_TEST_NOT_SET}");
    let error = build(&spec(Action::Http(missing))).err().unwrap();
    assert_eq!(error, BuildError::EnvironmentMissing { name: "COUNTERFOIL_TEST_NOT_SET".into() });
}

#[tokio::test]
async fn only_named_variables_are_in_scope() {
    let world = World::serve(|_| ok("1")).await;
    // PATH is set wherever tests run.
    let named = HttpSpec { headers: vec![("X-Path".into(), text("${env.PATH}"))], ..http("POST", &world.url("/")) };
    done(http_tool(named).invoke(call(json!({}))).await);
    assert_eq!(world.seen()[0].header("x-path"), std::env::var("PATH").ok().as_deref());
    let sneaky = HttpSpec { headers: vec![("X-Any".into(), text("${env[args.name]}"))], ..http("POST", &world.url("/")) };
    assert_eq!(not_done(http_tool(sneaky).invoke(call(json!({"name": "PATH"}))).await).code, "template_failed");
    assert_eq!(world.seen().len(), 1);
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// The trace and the span of a request, as the world read them.
fn trace_of(seen: &Seen) -> (String, String) {
    let parent = seen.header("traceparent").expect("a traceparent");
    let trace = TraceContext::parse(parent).expect("as W3C has it");
    assert_eq!(trace.to_string(), parent);
    (trace.trace.to_string(), trace.span.to_string())
}

#[tokio::test]
async fn every_attempt_is_a_span_of_its_own_in_the_callers_trace() {
    let requests = AtomicU32::new(0);
    let world = World::serve(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => status("503 Service Unavailable", "", ""),
        _ => ok("1"),
    })
    .await;
    let mut spec = spec(Action::Http(http("POST", &world.url("/"))));
    spec.policy.retry.first = Duration::from_millis(1);
    let runtime = Builder::new(Arc::new(Memory::default())).build().unwrap();
    runtime.register(Registered::new(spec.name.clone(), tool(&spec), spec.policy.clone()));
    let asked = Call {
        tenant: "acme".parse().unwrap(),
        caller: "test".parse().unwrap(),
        tool: spec.name,
        args: CanonicalJson::parse("{}").unwrap(),
        key: Some("k1".parse().unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    };
    let context = CallContext::from_w3c(Some(&format!("00-{TRACE}-{SPAN}-01")), Some("vendor=opaque, other@x=1"));
    let answer = runtime.call_in(context, asked.clone()).await;
    assert_eq!(answer.status, Status::Success);

    let seen = world.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| trace_of(seen).0 == TRACE));
    assert!(seen.iter().all(|seen| seen.header("tracestate") == Some("vendor=opaque, other@x=1")));
    let spans: HashSet<String> = seen.iter().map(|seen| trace_of(seen).1).collect();
    assert!(spans.len() == 3 && !spans.contains(SPAN), "{spans:?}");

    // The trace is no part of the call: from another one, it is the same effect.
    let elsewhere = CallContext::from_w3c(Some(&format!("00-{}-{SPAN}-00", TRACE.replace('0', "1"))), None);
    let again = runtime.call_in(elsewhere, asked.clone()).await;
    assert!(again.replayed && again.effect == answer.effect);
    assert_eq!(world.seen().len(), 3);

    // Without a caller's trace nothing is sent, unless this program traces by itself.
    runtime.call(Call { key: Some("k2".parse().unwrap()), ..asked.clone() }).await;
    assert_eq!(world.seen()[3].header("traceparent"), None);
    runtime.begin_traces();
    runtime.call(Call { key: Some("k3".parse().unwrap()), ..asked }).await;
    assert!(trace_of(&world.seen()[4]).0 != TRACE);
}

#[tokio::test]
async fn the_operators_own_traceparent_wins_and_none_goes_to_another_server() {
    let other = World::serve(|_| ok("1")).await;
    let away = other.url("/");
    let world = World::serve(move |_| status("302 Found", &format!("location: {away}\r\n"), "")).await;
    let traced = Invocation { trace: TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).ok(), ..call(json!({})) };
    let own = HttpSpec { headers: vec![("Traceparent".into(), text("mine"))], ..http("POST", &world.url("/")) };
    http_tool(own).invoke(traced.clone()).await;
    assert_eq!(world.seen()[0].header("traceparent"), Some("mine"));

    let mut spec = read_only(spec(Action::Http(HttpSpec { redirects_max: 1, ..http("GET", &world.url("/")) })));
    if let Action::Http(http) = &mut spec.action {
        http.egress = Arc::new(Egress { allow: vec!["127.0.0.1".into()], allow_private: true, strict: false });
    }
    done(tool(&spec).invoke(traced).await);
    assert_eq!(trace_of(&world.seen()[1]).1, SPAN);
    assert_eq!(other.seen()[0].header("traceparent"), None);
}
