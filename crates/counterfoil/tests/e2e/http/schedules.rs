//! Schedules over HTTP and from the shell: each said once, and each tick one run, however many servers there are. What counts is what the world saw.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::runs::{ended, lab, order, put};
use super::server::{Reply, Server};

fn terms(cron: &str) -> Value {
    json!({ "workflow": "order", "cron": cron, "input": { "customer": "${schedule.tick}" } })
}

fn put_schedule(server: &Server, key: &str, name: &str, body: &Value) -> Reply {
    server.send("PUT", &format!("/v1/schedules/{name}"), &[("idempotency-key", key)], &body.to_string())
}

/// The ticks are real: this waits for the next full minute, with two servers, and then for the one after, with neither and then a third.
#[test]
fn each_minute_has_one_run_whoever_is_there() {
    let lab = lab();
    let (one, two) = (Server::start(&lab), Server::start(&lab));
    put(&one, "order", &order());
    let made = put_schedule(&one, "k", "minutely", &terms("* * * * *"));
    assert_eq!((made.status, made.header("location")), (201, Some("/v1/schedules/minutely")), "{made:?}");
    let tick = made.text("/next");
    let first = wait_for(&two, |schedule| schedule.at("/last/tick") == json!(tick));
    assert_eq!((first.text("/last/what"), first.text("/last_run")), ("started".into(), format!("minutely@{tick}")), "{first:?}");
    let done = ended(&one, &format!("minutely@{tick}"), "completed");
    assert_eq!(done.text("/input/customer"), tick);
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
    one.kill();
    two.kill();
    // Nobody is there for the next one. The command deals with it, once, and so does nobody after it.
    let next = first.text("/next");
    let began = Instant::now();
    let mut ticked = Vec::new();
    while ticked.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(90), "no tick came");
        let looked = lab.json(&["recover"]);
        ticked = looked.at("/schedules").as_array().unwrap().clone();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ticked[0]["last"]["tick"], json!(next));
    let third = Server::start(&lab);
    ended(&third, &format!("minutely@{next}"), "completed");
    server_says(&third, "pause", "p", "paused");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (2, 2));
}

#[track_caller]
fn wait_for(server: &Server, holds: impl Fn(&Reply) -> bool) -> Reply {
    let began = Instant::now();
    loop {
        let schedule = server.get("/v1/schedules/minutely").ok();
        if holds(&schedule) {
            return schedule;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "{schedule:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn server_says(server: &Server, word: &str, key: &str, state: &str) {
    let reply = server.post(&format!("/v1/schedules/minutely/{word}"), key, r#"{"why":"a test"}"#).ok();
    assert_eq!((reply.text("/state"), reply.is_replay()), (state.into(), false), "{reply:?}");
    let again = server.post(&format!("/v1/schedules/minutely/{word}"), key, r#"{"why":"a test"}"#);
    assert_eq!((&again.body, again.is_replay()), (&reply.body, true));
}

#[test]
fn a_84_what_is_said_about_a_schedule_is_said_once() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    // Once a year: no tick comes in between.
    let yearly = terms("0 0 1 1 *");
    let made = put_schedule(&server, "k", "minutely", &yearly);
    let again = put_schedule(&server, "k", "minutely", &yearly);
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &made.body, true));
    let same = server.send("PUT", "/v1/schedules/minutely", &[], &yearly.to_string());
    assert_eq!((same.status, &same.body), (200, &made.body), "the same terms again change nothing");
    put_schedule(&server, "k", "minutely", &terms("0 0 2 1 *")).problem(422, "idempotency_key_reused");
    server_says(&server, "pause", "p", "paused");
    server_says(&server, "resume", "r", "active");
    let listed = server.get("/v1/schedules").ok();
    assert_eq!((listed.text("/schedules/0/schedule"), listed.text("/schedules/0/by")), ("minutely".into(), "local".into()));
    let removed = server.send("DELETE", "/v1/schedules/minutely", &[("idempotency-key", "d")], "").ok();
    assert_eq!((removed.text("/state"), removed.at("/next")), ("removed".into(), Value::Null));
    server.get("/v1/schedules/minutely").problem(404, "schedule_not_found");
    server.post("/v1/schedules/minutely/pause", "p2", "").problem(404, "schedule_not_found");
    assert!(server.get("/v1/schedules").at("/schedules").as_array().unwrap().is_empty());
    assert_eq!(put_schedule(&server, "k2", "minutely", &yearly).status, 200, "made anew under its name");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_changed() {
    let lab = lab();
    let server = Server::start(&lab);
    put_schedule(&server, "w", "s", &terms("0 0 1 1 *")).problem(404, "unknown_workflow");
    put(&server, "order", &order());
    let with = |name: &str, value: Value| {
        let mut body = terms("0 0 1 1 *");
        body[name] = value;
        body
    };
    for (body, code, says) in [
        (with("cron", json!("0 0 1")), "invalid_schedule", "has 3 fields"),
        (with("cron", json!("0 25 * * *")), "invalid_schedule", "25"),
        (with("cron", json!("0 0 30 2 *")), "invalid_schedule", "never comes"),
        (with("zone", json!("Europe/Atlantis")), "invalid_schedule", "Europe/Atlantis"),
        (with("catch_up", json!("some")), "invalid_schedule", "none, last, all"),
        (with("overlap", json!("maybe")), "invalid_schedule", "skip, wait, allow"),
        (with("within", json!("soon")), "invalid_schedule", "within"),
        (with("catch_up", json!("all")), "invalid_schedule", "overlap"),
        (with("input", json!({})), "invalid_input", "customer"),
        (with("input", json!({ "customer": "${env.HOME}" })), "invalid_schedule", "schedule.tick"),
        (with("workflow", json!("a b")), "invalid_name", "workflow name"),
        (with("often", json!(true)), "invalid_body", "often"),
        (json!({ "workflow": "order" }), "invalid_body", "cron"),
    ] {
        let refused = put_schedule(&server, "bad", "s", &body).problem(400, code);
        assert!(refused.text("/detail").contains(says), "{refused:?}");
    }
    put_schedule(&server, "bad", &"s".repeat(250), &terms("0 0 1 1 *")).problem(400, "invalid_name");
    assert!(server.get("/v1/schedules").at("/schedules").as_array().unwrap().is_empty());
}

#[test]
fn from_the_shell() {
    let lab = lab();
    lab.write("order.yaml", &order().to_string());
    let put = ["schedules", "put", "s", "--workflow", "order", "--cron", "0 9 * * MON", "--zone", "Europe/Berlin", "--input"];
    let refused = lab.json(&[&put[..], &[r#"{"customer":"a"}"#]].concat());
    assert_eq!((refused.code, refused.text("/error/code")), (3, "unknown_workflow".into()));
    assert_eq!(lab.run(&["workflows", "put", "order.yaml"]).code, 0);
    let refused = lab.json(&[&put[..], &[r#"{"customer":"a"}"#, "--catch-up", "all"]].concat());
    assert_eq!((refused.code, refused.text("/error/code")), (2, "invalid_schedule".into()));
    let made = lab.json(&[&put[..], &[r#"{"customer":"a"}"#, "--by", "ada"]].concat());
    assert_eq!((made.code, made.text("/state"), made.text("/by")), (0, "active".into(), "ada".into()));
    let next = lab.json(&["schedules", "next", "s", "--count", "3"]);
    assert_eq!((next.at("/next/0"), next.at("/next").as_array().unwrap().len()), (made.at("/next"), 3));
    assert_eq!(lab.json(&["schedules", "pause", "s", "--why", "holidays"]).text("/why"), "holidays");
    let listed = lab.run(&["schedules", "list"]);
    assert!(listed.stdout.contains("paused") && listed.stdout.contains("0 9 * * MON"), "{listed:?}");
    assert_eq!(lab.json(&["schedules", "remove", "s"]).code, 0);
    assert_eq!(lab.json(&["schedules", "show", "s"]).text("/error/code"), "schedule_not_found");
}
