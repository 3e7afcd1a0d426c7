//! Requests about runs and workflows that do not exist, or that are none: whatever is wrong with them, none may begin or be kept.

use super::{Book, REFUSED};
use crate::corpus::Expect;

/// Values that no member takes, but for those that take anything.
const WRONG: &[&str] = &["1", "true", "[]", "{}", r#""""#, r#""a\u0000b""#, r#""\u00e4""#];

pub fn write(book: &mut Book<'_>) {
    starts(book);
    changes(book);
    ids(book);
    queries(book);
    workflows(book);
}

fn starts(book: &mut Book<'_>) {
    for (index, wrong) in WRONG.iter().enumerate() {
        for (member, body) in [
            ("workflow", format!(r#"{{"workflow":{wrong}}}"#)),
            ("run", format!(r#"{{"workflow":"corpus_workflow","run":{wrong}}}"#)),
            ("more", format!(r#"{{"workflow":"corpus_workflow","more":{wrong}}}"#)),
        ] {
            let name = format!("field/start/{member}/{index}");
            let request = book.request(&name, "POST", "/v1/runs").json(body);
            book.refused(&name, request);
        }
    }
    for (kind, body) in [
        ("nothing", "{}".to_owned()),
        ("list", r#"["corpus_workflow"]"#.into()),
        ("twice", r#"{"workflow":"corpus_workflow","workflow":"corpus_workflow"}"#.into()),
        ("input_twice", r#"{"workflow":"corpus_workflow","input":{"a":1,"a":2}}"#.into()),
        ("input_deep", format!(r#"{{"workflow":"corpus_workflow","input":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000))),
        ("run_long", format!(r#"{{"workflow":"corpus_workflow","run":"{}"}}"#, "r".repeat(100_000))),
        ("unknown", r#"{"workflow":"corpus_workflow"}"#.into()),
        ("path", r#"{"workflow":"../../etc/passwd"}"#.into()),
    ] {
        let name = format!("field/start/{kind}");
        let request = book.request(&name, "POST", "/v1/runs").json(body);
        book.refused(&name, request);
    }
}

fn changes(book: &mut Book<'_>) {
    for (change, member) in [
        ("cancel", "step"),
        ("cancel", "undo"),
        ("signals/go", "id"),
        ("signals/go", "correlation"),
        ("approve", "step"),
        ("deny", "step"),
        ("resume", "why"),
        ("compensate", "from"),
        ("skip", "step"),
        ("fork", "at"),
        ("fork", "run"),
    ] {
        for (index, wrong) in WRONG.iter().enumerate() {
            let name = format!("field/run/{change}/{member}/{index}");
            let request = book.request(&name, "POST", &format!("/v1/runs/corpus-run/{change}")).json(format!(r#"{{"{member}":{wrong}}}"#));
            book.refused(&name, request);
        }
    }
}

fn ids(book: &mut Book<'_>) {
    let long = "r".repeat(256);
    for (kind, run) in [
        ("dots", ".."),
        ("encoded_dots", "%2e%2e"),
        ("nul", "a%00b"),
        ("newline", "a%0d%0ab"),
        ("invalid_utf8", "%ff%fe"),
        ("utf8", "w%C3%A4hrung"),
        ("percent_short", "a%4"),
        ("slash", "corpus/run"),
        ("encoded_slash", "corpus%2Frun"),
        ("long", &long),
        ("quote", "%27%20OR%201=1--"),
    ] {
        for part in ["", "/entries", "/receipts", "/events"] {
            let name = format!("path/run_{kind}{part}");
            let request = book.request(&name, "GET", &format!("/v1/runs/{run}{part}"));
            book.unreadable(&name, request);
        }
        let name = format!("path/run_{kind}/signal");
        let request = book.request(&name, "POST", &format!("/v1/runs/{run}/signals/{run}")).json("{}");
        book.unreadable(&name, request);
    }
    for (method, path) in [
        ("DELETE", "/v1/runs"),
        ("PUT", "/v1/runs/corpus-run"),
        ("GET", "/v1/runs/corpus-run/cancel"),
        ("POST", "/v1/runs/corpus-run/events"),
        ("POST", "/v1/workflows"),
        ("DELETE", "/v1/workflows/corpus_workflow"),
    ] {
        let name = format!("method/{method}{path}");
        let request = book.request(&name, method, path).json("{}");
        book.unreadable(&name, request);
    }
}

fn queries(book: &mut Book<'_>) {
    for query in ["limit=0", "limit=ten", "state=done", "state=RUNNING", "state=running,", "cursor=x", "cursor=-1", "tool=x", "state=%ff"] {
        let name = format!("query/runs/{query}");
        let request = book.request(&name, "GET", &format!("/v1/runs?{query}"));
        book.expect(&name, request, Expect::StatusOrClosed(REFUSED));
    }
    for query in ["wait=1y", "wait=-1s", "wait=99999999999999999999s", "wait=2m", "wait=", "after=1"] {
        let name = format!("query/run/{query}");
        let request = book.request(&name, "GET", &format!("/v1/runs/corpus-run?{query}"));
        book.refused(&name, request);
    }
}

/// Bodies that are no workflow.
fn workflows(book: &mut Book<'_>) {
    let cycle = r#"{"workflow":"corpus_workflow","steps":[{"id":"a","tool":"x","needs":["b"]},{"id":"b","tool":"x","needs":["a"]}]}"#;
    for (kind, body) in [
        ("empty", "{}"),
        ("null", "null"),
        ("number", "7"),
        ("list", "[]"),
        ("text_number", r#"{"text":1}"#),
        ("text_empty", r#"{"text":""}"#),
        ("text_garbage", r#"{"text":"\u0000\u0001: ["}"#),
        ("text_anchors", r#"{"text":"a: &a [*a, *a]\nworkflow: *a"}"#),
        ("no_steps", r#"{"workflow":"corpus_workflow"}"#),
        ("steps_empty", r#"{"workflow":"corpus_workflow","steps":[]}"#),
        ("step_of_no_kind", r#"{"workflow":"corpus_workflow","steps":[{"id":"a"}]}"#),
        ("step_of_two_kinds", r#"{"workflow":"corpus_workflow","steps":[{"id":"a","tool":"x","sleep":"1s"}]}"#),
        ("same_id", r#"{"workflow":"corpus_workflow","steps":[{"id":"a","tool":"x"},{"id":"a","tool":"x"}]}"#),
        ("cycle", cycle),
        ("expression", r#"{"workflow":"corpus_workflow","steps":[{"id":"a","tool":"x","args":"${"}]}"#),
        ("sees_nothing", r#"{"workflow":"corpus_workflow","steps":[{"id":"a","tool":"x","args":"${steps.b.result}"}]}"#),
        ("schema", r#"{"workflow":"corpus_workflow","input":{"type":"nothing"},"steps":[{"id":"a","tool":"x"}]}"#),
        ("other_name", r#"{"workflow":"another","steps":[{"id":"a","tool":"x"}]}"#),
        ("twice", r#"{"workflow":"corpus_workflow","workflow":"corpus_workflow","steps":[{"id":"a","tool":"x"}]}"#),
        ("yaml", "workflow: corpus_workflow\nsteps: [{ id: a, tool: x }]\n"),
    ] {
        let name = format!("field/workflow/{kind}");
        let request = book.request(&name, "PUT", "/v1/workflows/corpus_workflow").json(body);
        book.refused(&name, request);
    }
}
