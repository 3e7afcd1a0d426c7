//! A tool that one worker registers is every worker's: to call, to look at, and in the list. So is its end.

use super::shared::{Kind, Shared};
use crate::http::server::{Reply, Server};

fn listed(worker: &Server) -> Vec<String> {
    let tools = worker.get("/v1/tools").ok().at("/tools");
    tools.as_array().expect("a list").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn put(worker: &Server, name: &str, key: &str, description: &str, url: &str) -> Reply {
    let spec = format!(r#"{{"description":"{description}","http":{{"method":"POST","url":"{url}/{name}","json":"${{args}}"}}}}"#);
    worker.send("PUT", &format!("/v1/tools/{name}"), &[("idempotency-key", key)], &spec)
}

fn a_tool_is_every_workers(kind: Kind) {
    let shared = Shared::new(kind, "egress: { allow: [\"127.0.0.1\"], allow_private: true }\ntools: {}\n");
    let lab = &shared.lab;
    let (first, second) = (Server::start(lab), Server::start(lab));
    assert_eq!((listed(&first).len(), listed(&second).len()), (0, 0));
    assert_eq!(put(&first, "notify", "p1", "as it was", &lab.world.url()).status, 201);
    assert_eq!(listed(&second), ["notify"]);
    second.call("notify", "k", "{}").envelope(200, "success");
    assert_eq!(put(&second, "notify", "p2", "as it is", &lab.world.url()).status, 200);
    for worker in [&first, &second] {
        assert_eq!(worker.get("/v1/tools").at("/tools/0/description"), "as it is");
    }
    assert_eq!(put(&second, "wake", "p3", "another", &lab.world.url()).status, 201);
    let mut both = listed(&first);
    both.sort();
    assert_eq!(both, ["notify", "wake"]);
    assert_eq!(second.send("DELETE", "/v1/tools/notify", &[("idempotency-key", "d")], "").status, 200);
    assert_eq!(listed(&first), ["wake"], "what is gone is gone everywhere");
    assert_eq!(lab.world.acted("/notify"), 1);
}

#[test]
fn a_tool_is_every_workers_on_postgres() {
    a_tool_is_every_workers(Kind::Postgres);
}

#[test]
fn a_tool_is_every_workers_on_redis() {
    a_tool_is_every_workers(Kind::Redis);
}

#[test]
fn a_tool_is_every_workers_on_sqlite() {
    a_tool_is_every_workers(Kind::Sqlite);
}
