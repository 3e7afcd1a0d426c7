//! J. `Idempotency-Key` on everything that changes something: once, and the same answer again.

use serde_json::json;

use super::server::Server;
use crate::clock::Clock;
use crate::lab::Lab;

const TOOL: &str = r#"{"http":{"method":"POST","url":"https://api.example.com/x","json":"${args}"},"description":"one"}"#;
const OTHER: &str = r#"{"http":{"method":"POST","url":"https://api.example.com/x","json":"${args}"},"description":"two"}"#;

fn put(server: &Server, key: &str, body: &str) -> super::server::Reply {
    server.send("PUT", "/v1/tools/mine", &[("idempotency-key", key)], body)
}

#[test]
fn a_84_one_create_however_often_it_is_sent() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let first = put(&server, "create", TOOL);
    assert_eq!((first.status, first.header("location"), first.is_replay()), (201, Some("/v1/tools/mine"), false));
    let again = put(&server, "create", TOOL);
    assert_eq!((again.status, &again.body, again.header("location"), again.is_replay()), (201, &first.body, Some("/v1/tools/mine"), true));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    // Someone changes it; the first request sent again is still what it was, and changes nothing back.
    assert_eq!(put(&server, "change", OTHER).status, 200);
    assert_eq!(put(&server, "create", TOOL).body, first.body);
    assert_eq!(server.get("/v1/tools/mine").at("/description"), json!("two"));
    put(&server, "create", OTHER).problem(422, "idempotency_key_reused");
    assert_eq!(server.get("/v1/tools").at("/tools").as_array().unwrap().len(), 2);
    let gone = server.send("DELETE", "/v1/tools/mine", &[("idempotency-key", "drop")], "").ok();
    let again = server.send("DELETE", "/v1/tools/mine", &[("idempotency-key", "drop")], "");
    assert_eq!((again.status, &again.body, again.is_replay()), (gone.status, &gone.body, true));
    server.get("/v1/tools/mine").problem(404, "unknown_tool");
    // The key of another method is another key.
    assert_eq!(put(&server, "drop", TOOL).status, 201);
}

#[test]
fn a_84_the_same_create_fifty_times_at_once_is_one() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let asking: Vec<_> = (0..50).map(|_| server.begin("PUT", "/v1/tools/mine", &[("idempotency-key", "create")], TOOL)).collect();
    let replies: Vec<_> = asking.into_iter().map(|asking| asking.reply().unwrap()).collect();
    let done = replies.iter().filter(|reply| reply.status == 201 && !reply.is_replay()).count();
    assert_eq!(done, 1, "{replies:?}");
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        reply.clone().problem(409, "request_in_flight");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert_eq!(server.get("/v1/tools/mine").at("/version"), json!(1));
}

#[test]
fn a_85_what_was_created_is_there_also_after_a_kill() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let first = put(&server, "create", TOOL);
    server.get("/v1/tools/mine").ok();
    server.kill();
    let server = Server::start(&lab);
    assert_eq!(server.get("/v1/tools/mine").at("/description"), json!("one"));
    let again = put(&server, "create", TOOL);
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
}

/// A-86: the thing and the memory of the request that made it are one append, whenever the server dies.
#[test]
fn a_86_a_create_is_all_or_nothing_under_kills() {
    let lab = Lab::charging("");
    for round in 0..12u32 {
        let server = Server::start(&lab);
        let path = format!("/v1/tools/mine-{round}");
        let asking: Vec<_> =
            (0..4).filter_map(|n| server.try_begin("PUT", &path, &[("idempotency-key", &format!("k{round}-{n}"))], TOOL).ok()).collect();
        // Dies as soon as the first answer is in: what the others had come to is anybody's guess.
        let mut replies = asking.into_iter();
        let heard = replies.next().map(|asking| asking.reply());
        server.kill();
        let late: Vec<_> = replies.map(|asking| asking.reply()).collect();
        let server = Server::start(&lab);
        let version = server.get(&path).at("/version").as_u64().unwrap_or(0);
        let acknowledged = heard.iter().chain(&late).filter(|reply| reply.as_ref().is_ok_and(|r| r.status < 300)).count() as u64;
        assert!(version >= acknowledged, "round {round}: {acknowledged} were acknowledged, {version} are there");
        let mut fresh = 0;
        for n in 0..4 {
            let reply = server.send("PUT", &path, &[("idempotency-key", &format!("k{round}-{n}"))], TOOL).ok();
            fresh += u64::from(!reply.is_replay());
        }
        let after = server.get(&path).at("/version").as_u64().unwrap();
        assert_eq!((after, version + fresh), (4, 4), "round {round}: each of the four happened once");
    }
}

#[test]
fn a_91_after_its_time_a_key_says_so() {
    let lab = Lab::charging("");
    let server = Server::start_with(&lab, &["--retain-answers", "1"]);
    let first = put(&server, "create", TOOL);
    assert_eq!(put(&server, "create", TOOL).body, first.body);
    let began = std::time::Instant::now();
    let expired = loop {
        let reply = put(&server, "create", TOOL);
        if reply.status != 201 {
            break reply;
        }
        assert!(reply.is_replay() && began.elapsed().as_secs() < 30);
    };
    expired.problem(410, "key_expired");
    assert_eq!(server.get("/v1/tools/mine").at("/version"), json!(1));
}

/// A flood does not push anything out: what is remembered stays, and the rest is refused.
#[test]
fn what_does_not_fit_is_refused_and_nothing_is_forgotten() {
    let lab = Lab::charging("");
    let server = Server::start_with(&lab, &["--requests-max", "3"]);
    let replies: Vec<_> = (0..3).map(|n| put(&server, &format!("k{n}"), TOOL).ok()).collect();
    let refused = put(&server, "k3", OTHER).problem(503, "capacity_reached");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(server.get("/v1/tools/mine").at("/version"), json!(3), "nothing was changed");
    for (n, reply) in replies.iter().enumerate() {
        let again = put(&server, &format!("k{n}"), TOOL);
        assert_eq!((&again.body, again.is_replay()), (&reply.body, true));
    }
    // Calls are remembered by their effects, and looking needs no memory.
    server.call("charge", "c", "{}").envelope(200, "success");
    server.get("/v1/tools").ok();
}

/// What is called is what the ledger has, also when another process changed it: a look and a call never contradict each other.
#[test]
fn a_registered_tool_is_called_as_it_was_last_registered() {
    let lab = Lab::charging("");
    let (one, two) = (Server::start(&lab), Server::start(&lab));
    let spec = |host: &str| format!(r#"{{"http":{{"method":"POST","url":"https://{host}.example.com/"}}}}"#);
    let called = |server: &Server, key: &str| server.call("mine", key, "{}").envelope(200, "error").text("/error/message");
    for (n, host) in ["first", "second"].into_iter().enumerate() {
        put(&one, host, &spec(host)).ok();
        for server in [&two, &one] {
            assert_eq!(server.get("/v1/tools/mine").at("/version"), json!(n + 1));
            let message = called(server, &format!("{host}-{}", server.address));
            assert!(message.contains(&format!("{host}.example.com")), "{message}");
        }
    }
    two.send("DELETE", "/v1/tools/mine", &[], "").ok();
    for server in [&one, &two] {
        server.get("/v1/tools/mine").problem(404, "unknown_tool");
        server.call("mine", "k", "{}").problem(404, "unknown_tool");
    }
}

#[test]
fn a_registered_tool_may_not_reach_into_this_machine() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let own = format!(r#"{{"http":{{"method":"POST","url":"{}/charge"}}}}"#, lab.world.url());
    assert_eq!(put(&server, "a", &own).status, 201);
    let refused = server.call("mine", "k", "{}").envelope(200, "error");
    assert_eq!(refused.at("/error/code"), json!("egress_refused"));
    for kind in [r#"{"command":["true"]}"#, r#"{"file":{"root":"/tmp","write":{"path":"x","content":"y"}}}"#] {
        let refused = put(&server, "b", kind).problem(400, "invalid_tool");
        assert!(refused.body.contains("config"), "{refused:?}");
    }
    server.send("PUT", "/v1/tools/charge", &[], TOOL).problem(409, "tool_in_config");
    server.send("DELETE", "/v1/tools/charge", &[], "").problem(409, "tool_in_config");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
}

/// Work that outlasts the minute for which a request is believed to be under way: another server goes on with it and says how far it is. Whoever began it finishes it,
/// and tells its own client the same: one token has one answer.
#[test]
fn a_85_one_token_has_one_answer_although_two_servers_went_on_with_it() {
    let lab = Lab::charging("approval: \"true\"\nlease: 10m\ntimeout: 5m");
    let clock = Clock::ahead_by(0.0);
    let [first, second] = [(); 2].map(|()| Server::start_in(&lab, &[], &clock.env()));
    let waiting = first.call("charge", "k", "{}").envelope(202, "waiting_approval");
    let path = format!("/v1/approvals/{}/approve", waiting.text("/effect"));
    lab.world.then("/charge", json!({ "after": true }));
    let begun = first.begin("POST", &path, &[("idempotency-key", "a")], "");
    lab.world.wait_holding("/charge", 1);
    second.post(&path, "a", "").problem(409, "request_in_flight");
    clock.set(61.0);
    let told = second.post(&path, "a", "").envelope(202, "pending");
    lab.world.release("/charge");
    let finished = begun.reply().expect("an answer");
    assert_eq!((finished.status, &finished.body, finished.is_replay()), (told.status, &told.body, true), "the same token, another answer");
    for server in [&first, &second] {
        assert_eq!(server.post(&path, "a", "").body, told.body);
        // The effect's own key has the outcome, whatever that request was told.
        server.call("charge", "k", "{}").envelope(200, "success");
    }
    assert_eq!(lab.world.acted("/charge"), 1);
}
