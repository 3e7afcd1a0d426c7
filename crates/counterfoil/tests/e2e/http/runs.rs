//! Runs over HTTP: started once, carried through kills, told things once. What counts is what the world saw.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Reply, Server};
use crate::lab::Lab;

/// `charge` and `ship` can be undone; `keyed` may be sent again under the same key.
const CONFIG: &str = "tools:
  charge:
    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }
    undo: { tool: refund, args: { charge: \"${result.id}\" } }
  refund: { http: { method: POST, url: \"WORLD/refund\", json: \"${args}\" } }
  ship: { http: { method: POST, url: \"WORLD/ship\", json: \"${args}\" } }
  keyed: { http: { method: POST, url: \"WORLD/keyed\", json: \"${args}\" }, repeat: keyed, settle_after: 0s }
";

pub fn lab() -> Lab {
    Lab::new(CONFIG)
}

pub fn put(server: &Server, name: &str, workflow: &Value) {
    let reply = server.send("PUT", &format!("/v1/workflows/{name}"), &[("idempotency-key", name)], &workflow.to_string());
    assert_eq!((reply.status, reply.header("location")), (201, Some(format!("/v1/workflows/{name}").as_str())), "{reply:?}");
}

/// Charges, then ships.
pub fn order() -> Value {
    json!({
        "workflow": "order",
        "input": { "type": "object", "required": ["customer"] },
        "steps": [
            { "id": "pay", "tool": "charge", "args": { "customer": "${input.customer}" } },
            { "id": "send", "tool": "ship", "args": { "charge": "${steps.pay.result.id}" } },
        ],
        "output": { "charge": "${steps.pay.result.id}" },
    })
}

/// Waits for a signal between two effects.
pub fn parcel() -> Value {
    json!({ "workflow": "parcel", "steps": [
        { "id": "pay", "tool": "charge" },
        { "id": "packed", "wait": { "signal": "packed", "correlation": "${run.id}" } },
        { "id": "send", "tool": "ship", "args": { "box": "${steps.packed.result.box}" } },
    ] })
}

pub fn start(server: &Server, key: &str, body: Value) -> Reply {
    server.post("/v1/runs", key, &body.to_string())
}

/// Its id, when it has begun under that id.
pub fn started(server: &Server, workflow: &str, run: &str) {
    let reply = start(server, run, json!({ "workflow": workflow, "input": {}, "run": run }));
    assert_eq!((reply.status, reply.text("/run")), (201, run.to_owned()), "{reply:?}");
}

/// The run when it has ended, in this state.
#[track_caller]
pub fn ended(server: &Server, run: &str, state: &str) -> Reply {
    let reply = server.get(&format!("/v1/runs/{}?wait=30s", run.replace('/', "%2F"))).ok();
    assert_eq!(reply.text("/state"), state, "{reply:?}");
    reply
}

/// Waits until a step waits, or has whatever status is asked for.
#[track_caller]
pub fn comes_to(server: &Server, run: &str, step: &str, status: &str) {
    let began = Instant::now();
    loop {
        let view = server.get(&format!("/v1/runs/{run}")).ok();
        let steps = view.at("/steps");
        let found = steps.as_array().unwrap().iter().find(|s| s["step"] == step).cloned().unwrap_or_default();
        if found["status"] == status && (status != "running" || view.text("/state") == "waiting") {
            return;
        }
        assert!(began.elapsed().as_secs() < 30, "{step} does not come to {status}: {view:?}");
    }
}

#[test]
fn a_84_a_run_that_is_started_twice_is_one() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    let body = json!({ "workflow": "order", "input": { "customer": "ann" } });
    let first = start(&server, "k", body.clone());
    let run = first.text("/run");
    assert_eq!((first.status, first.header("location")), (201, Some(format!("/v1/runs/{run}").as_str())), "{first:?}");
    let again = start(&server, "k", body.clone());
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
    let done = ended(&server, &run, "completed");
    assert_eq!(done.at("/output"), json!({ "charge": "e-1" }));
    // Also when it is over, and after a restart.
    server.kill();
    let server = Server::start(&lab);
    let again = start(&server, "k", body);
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
    start(&server, "k", json!({ "workflow": "order", "input": { "customer": "bob" } })).problem(422, "idempotency_key_reused");
    assert_eq!(server.get("/v1/runs").at("/runs").as_array().unwrap().len(), 1);
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
    // Without a key there must be an id; the same id is the same run, with other things it is refused.
    server.send("POST", "/v1/runs", &[], r#"{"workflow":"order","input":{"customer":"a"}}"#).problem(400, "idempotency_key_required");
    let named =
        |key: &str, customer: &str| start(&server, key, json!({ "workflow": "order", "input": { "customer": customer }, "run": "seven" }));
    assert_eq!(named("n1", "ann").status, 201);
    assert_eq!(named("n2", "ann").status, 200);
    named("n3", "bob").problem(409, "run_exists");
    ended(&server, "seven", "completed");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (2, 2));
    let of_order = server.get("/v1/runs?workflow=order&limit=1").ok();
    assert_eq!(of_order.text("/runs/0/workflow"), "order");
    assert!(server.get("/v1/runs?workflow=parcel").ok().at("/runs").as_array().unwrap().is_empty());
    server.get("/v1/runs?workflow=a%20b").problem(400, "invalid_query");
    for name in ["run_started", "RUN_STARTED"] {
        let only = server.get(&format!("/v1/runs/seven/entries?entry={name}")).ok();
        assert_eq!(only.at("/entries").as_array().unwrap().len(), 1);
    }
    server.get("/v1/runs/seven/entries?entry=run_walked").problem(400, "invalid_query");
    let receipts = server.get("/v1/runs/seven/receipts").ok();
    assert_eq!(receipts.at("/receipts").as_array().unwrap().len(), 2);
    let entries = server.get("/v1/runs/seven/entries").ok();
    assert_eq!((entries.at("/entries/0/version"), entries.at("/entries/0/entry/run_started/run")), (json!(1), json!("seven")));
}

#[test]
fn a_84_the_same_start_twenty_times_at_once_is_one_run() {
    let lab = lab();
    let (one, two) = (Server::start(&lab), Server::start(&lab));
    put(&one, "order", &order());
    let body = json!({ "workflow": "order", "input": { "customer": "ann" } }).to_string();
    let servers = [&one, &two];
    let asking: Vec<_> = (0..20).map(|n| servers[n % 2].begin("POST", "/v1/runs", &[("idempotency-key", "k")], &body)).collect();
    let replies: Vec<_> = asking.into_iter().map(|asking| asking.reply().unwrap()).collect();
    assert_eq!(replies.iter().filter(|reply| reply.status == 201 && !reply.is_replay()).count(), 1, "{replies:?}");
    replies.iter().filter(|reply| reply.status != 201).for_each(|reply| drop(reply.clone().problem(409, "request_in_flight")));
    let run = start(&two, "k", serde_json::from_str(&body).unwrap()).text("/run");
    ended(&two, &run, "completed");
    assert_eq!(one.get("/v1/runs?state=completed").at("/runs").as_array().unwrap().len(), 1);
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
}

/// A-41: killed in the middle of a step that may be repeated under its key, the run goes on by itself.
#[test]
fn a_41_a_killed_server_goes_on_with_its_runs() {
    let lab = lab();
    let server = Server::start(&lab);
    let steps = json!([{ "id": "pay", "tool": "charge" }, { "id": "note", "tool": "keyed" }, { "id": "send", "tool": "ship" }]);
    put(&server, "three", &json!({ "workflow": "three", "steps": steps }));
    lab.world.then("/keyed", json!({ "after": true, "dedupe": true }));
    started(&server, "three", "r");
    lab.world.wait_holding("/keyed", 1);
    server.kill();
    lab.world.drop_held("/keyed");
    lab.world.then("/keyed", json!({ "dedupe": true }));
    let server = Server::start(&lab);
    ended(&server, "r", "completed");
    assert_eq!(["/charge", "/keyed", "/ship"].map(|path| lab.world.acted(path)), [1, 1, 1]);
}

/// A-35, A-86: whenever the server dies, each request made one run or none, and what the runs did was done once.
#[test]
fn a_86_runs_are_started_whole_or_not_at_all_under_kills() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "two", &json!({ "workflow": "two", "steps": [{ "id": "a", "tool": "keyed" }, { "id": "b", "tool": "keyed" }] }));
    server.kill();
    lab.world.then("/keyed", json!({ "dedupe": true }));
    let (rounds, each) = (8, 4);
    for round in 0..rounds {
        let server = Server::start(&lab);
        let keys: Vec<String> = (0..each).map(|n| format!("{round}-{n}")).collect();
        let body = json!({ "workflow": "two" }).to_string();
        let asking: Vec<_> =
            keys.iter().filter_map(|key| server.try_begin("POST", "/v1/runs", &[("idempotency-key", key)], &body).ok()).collect();
        let mut replies = asking.into_iter();
        let heard: Vec<_> = replies.by_ref().take(1 + round % 2).filter_map(|asking| asking.reply().ok()).collect();
        // Dies here: the runs have come as far as they have.
        server.kill();
        let server = Server::start(&lab);
        let runs: Vec<String> = keys.iter().map(|key| server.post("/v1/runs", key, &body).ok().text("/run")).collect();
        heard.iter().filter(|reply| reply.status == 201).for_each(|reply| assert!(runs.contains(&reply.text("/run")), "{reply:?}"));
        runs.iter().for_each(|run| drop(ended(&server, run, "completed")));
    }
    let seen = lab.world.seen("/keyed");
    assert_eq!((seen.acted, seen.by_key.values().copied().max()), (2 * (rounds * each) as u64, Some(1)));
    let server = Server::start(&lab);
    assert_eq!(server.get("/v1/runs?limit=1000").at("/runs").as_array().unwrap().len(), rounds * each);
}

/// Told to end, a server finishes the steps that are under way and begins no others; the next one goes on. No doubt comes of it.
#[test]
fn a_term_lets_runs_rest_between_steps() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    lab.world.then("/charge", json!({ "after": true }));
    start(&server, "k", json!({ "workflow": "order", "input": { "customer": "ann" }, "run": "r" })).ok();
    lab.world.wait_holding("/charge", 1);
    let mut feed = server.begin("GET", "/v1/events?after=0", &[], "").lines();
    assert!(feed.next().is_some());
    server.signal(Signal::TERM);
    // The feed ends by itself: that is how it shows that the signal has arrived.
    assert!(feed.last().is_some());
    lab.world.release("/charge");
    assert_eq!(server.ended(), 0);
    assert_eq!((lab.world.acted("/charge"), lab.world.seen("/ship").arrived), (1, 0));
    let server = Server::start(&lab);
    ended(&server, "r", "completed");
    assert_eq!(lab.listed("in_doubt").len(), 0);
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
}

/// A child run's id has a slash in it: one segment of a path, when it is escaped.
#[test]
fn a_child_run_is_reached_by_its_escaped_id() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "parcel", &parcel());
    put(&server, "outer", &json!({ "workflow": "outer", "steps": [{ "id": "inner", "call": { "workflow": "parcel" } }] }));
    started(&server, "outer", "r 1");
    let child = "/v1/runs/r%201%2Finner";
    let began = Instant::now();
    while server.get(child).at("/state") != json!("waiting") {
        assert!(began.elapsed().as_secs() < 30, "{:?}", server.get(child));
    }
    assert_eq!((server.get(child).text("/run"), server.get(child).text("/parent")), ("r 1/inner".into(), "r 1".into()));
    server.get("/v1/runs/r%201/inner").problem(404, "no_such_route");
    let sent = server.post(&format!("{child}/signals/packed"), "s", r#"{"correlation":"r 1/inner","payload":{"box":1}}"#).ok();
    assert_eq!(sent.header("location"), Some(child));
    ended(&server, "r%201", "completed");
    for part in ["entries", "receipts", "events"] {
        server.get(&format!("{child}/{part}")).ok();
    }
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
}

fn ids(text: impl Iterator<Item = String>) -> Vec<u64> {
    text.filter_map(|line| line.strip_prefix("id: ").map(|id| id.parse().expect("a number"))).collect()
}

/// Many records are written between any two looks of who follows.
#[test]
fn who_follows_a_run_in_haste_misses_nothing() {
    let lab = lab();
    let server = Server::start(&lab);
    let steps: Vec<Value> = (0..150).map(|n| json!({ "id": format!("s{n}"), "tool": "ship", "args": { "n": n } })).collect();
    put(&server, "haste", &json!({ "workflow": "haste", "steps": steps }));
    started(&server, "haste", "r");
    let lines: Vec<String> = server.begin("GET", "/v1/runs/r/events", &[], "").lines().collect();
    let seen = ids(lines.iter().cloned());
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>(), "nothing is missed and nothing comes twice");
    assert!(seen.len() > 150 && lines.iter().any(|line| line == "event: end"), "{} records, and then: {:?}", seen.len(), lines.last());
    assert_eq!(lab.world.acted("/ship"), 150);
}

#[test]
fn a_runs_events_can_be_followed_and_taken_up_again() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "parcel", &parcel());
    started(&server, "parcel", "r");
    comes_to(&server, "r", "packed", "running");
    // As far as it has come, and no further.
    let mut seen = Vec::new();
    for line in server.begin("GET", "/v1/runs/r/events", &[], "").lines() {
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).unwrap();
            seen.push(event["version"].as_u64().unwrap());
            if event["state"] == "waiting" {
                break;
            }
        }
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    let last = seen.len().to_string();
    let follow = server.begin("GET", "/v1/runs/r/events", &[("last-event-id", &last)], "");
    server.post("/v1/runs/r/signals/packed", "s", r#"{"correlation":"r","payload":{"box":1}}"#).ok();
    let lines: Vec<String> = follow.lines().collect();
    let rest = ids(lines.iter().cloned());
    assert_eq!(rest.first().copied(), Some(seen.len() as u64 + 1), "nothing is missed and nothing comes twice: {lines:?}");
    assert!(lines.iter().any(|line| line == "event: end"), "{lines:?}");
    // Of one that is over: all of it, and the end.
    let all = ids(server.begin("GET", "/v1/runs/r/events", &[], "").lines());
    assert_eq!(all, (1..=*rest.last().unwrap()).collect::<Vec<_>>());
    server.send("GET", "/v1/runs/r/events", &[("last-event-id", "x")], "").problem(400, "invalid_query");
    server.get("/v1/runs/nothing/events").problem(404, "run_not_found");
}
