//! Runs on every kind of ledger: a worker is killed in the middle of many of them, another goes on, and the world has each booking and each undo once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::Server;
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_PENDING, Run};
use crate::parts::Process;

/// What the world counts, in this order.
const TOOLS: [&str; 6] = ["book_flight", "cancel_flight", "book_hotel", "cancel_hotel", "charge", "refuse"];
/// Of each of the two workflows.
const RUNS: u64 = 15;

fn config() -> String {
    let tool = |name: &&str| {
        format!(
            r#"  {name}:
    http: {{ method: POST, url: "WORLD/{name}", json: "${{args}}", result: response.json }}
    timeout: 10s
    retry: {{ attempts: 3, first: 1ms, max: 5ms }}
    breaker: off
    probe:
      http: {{ url: "WORLD/find?key=${{key}}" }}
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
      settle_after: 0s
"#
        )
    };
    format!("tools:\n{}", TOOLS.iter().map(tool).collect::<String>())
}

fn trip(name: &str, last: &str) -> String {
    let book = |what: &str| {
        json!({ "id": what, "tool": format!("book_{what}"), "args": { "run": "${run.id}" },
                "undo": { "tool": format!("cancel_{what}"), "args": { "booking": "${result}" } } })
    };
    let signal = json!({ "id": "ready", "wait": { "signal": "ready" } });
    json!({ "workflow": name, "steps": [book("flight"), signal, book("hotel"), { "id": "last", "tool": last, "args": { "run": "${run.id}" } }] })
        .to_string()
}

fn a_killed_workers_runs_go_on_with_another(kind: Kind) {
    let shared = Shared::new(kind, &config());
    let lab = &shared.lab;
    lab.world.then("/refuse", json!({ "status": 402, "act": false }));
    let (dies, lives) = (Server::start(lab), Server::start(lab));
    for (name, last) in [("good", "charge"), ("bad", "refuse")] {
        assert_eq!(dies.send("PUT", &format!("/v1/workflows/{name}"), &[("idempotency-key", name)], &trip(name, last)).status, 201);
    }
    let runs: Vec<String> = (0..RUNS).flat_map(|n| [format!("good-{n}"), format!("bad-{n}")]).collect();
    for (n, run) in runs.iter().enumerate() {
        let workflow = run.split('-').next().expect("a name");
        let body = json!({ "workflow": workflow, "run": run }).to_string();
        let worker = if n % 3 == 0 { &lives } else { &dies };
        assert_eq!(worker.post("/v1/runs", run, &body).status, 201);
    }
    // All wait for their signal; half of them get it from one worker, and while those go on that worker is killed.
    until("all flights are booked", || (lab.world.acted("/book_flight") == RUNS * 2).then_some(()));
    let send = |worker: &Server, run: &str| worker.post(&format!("/v1/runs/{run}/signals/ready"), run, r#"{"payload":1}"#).ok();
    let (first, rest) = runs.split_at(runs.len() / 2);
    first.iter().for_each(|run| drop(send(&dies, run)));
    until("some hotels are booked", || (lab.world.acted("/book_hotel") >= 3).then_some(()));
    dies.kill();
    rest.iter().for_each(|run| drop(send(&lives, run)));
    let again = send(&lives, &first[0]);
    assert!(again.is_replay() || again.status == 200, "{again:?}");
    for run in &runs {
        let state = if run.starts_with("good") { "completed" } else { "compensated" };
        until(run, || (lives.get(&format!("/v1/runs/{run}?wait=30s")).ok().text("/state") == state).then_some(()));
    }
    let acted = TOOLS.map(|tool| lab.world.acted(&format!("/{tool}")));
    assert_eq!(acted, [RUNS * 2, RUNS, RUNS * 2, RUNS, RUNS, 0]);
    assert_eq!(lab.run(&["store", "check"]).code, 0);
}

#[test]
fn a_killed_workers_runs_go_on_with_another_on_postgres() {
    a_killed_workers_runs_go_on_with_another(Kind::Postgres);
}

#[test]
fn a_killed_workers_runs_go_on_with_another_on_redis() {
    a_killed_workers_runs_go_on_with_another(Kind::Redis);
}

#[test]
fn a_killed_workers_runs_go_on_with_another_on_sqlite() {
    a_killed_workers_runs_go_on_with_another(Kind::Sqlite);
}

/// A run in the foreground: the ledger goes away in the middle of a step, and comes back. The step goes on meanwhile, and so does the run after it.
fn a_run_lives_through_an_outage(kind: Kind, told_to_stop: bool) {
    // No probe: a step that this process left would stay in doubt.
    let config = "tools:
  book: { http: { method: POST, url: \"WORLD/book\", json: \"${args}\" }, timeout: 60s }
  charge: { http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" } }
";
    let shared = Shared::new(kind, config);
    let lab = &shared.lab;
    lab.write("trip.yaml", "workflow: trip\nsteps:\n  - { id: book, tool: book }\n  - { id: pay, tool: charge }\n");
    lab.world.then("/book", json!({ "after": true }));
    let mut command = lab.command(&["run", "trip.yaml", "--run", "t"]);
    let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = i32::try_from(process.child.id()).expect("a process id");
    lab.world.wait_holding("/book", 1);
    shared.down();
    // Nothing but its own look finds that out: it extends its leases after a third of them.
    let mut told = BufReader::new(process.child.stderr.as_mut().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(told.any(|line| line.ends_with("trying again; what is at work goes on")), "it says so");
    if told_to_stop {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is alive");
        assert!(told.any(|line| line.starts_with("finishing the steps")), "it heard");
    }
    shared.up();
    lab.world.release("/book");
    let rest: Vec<String> = told.collect();
    let ended = Run::ended(process);
    if told_to_stop {
        assert_eq!((ended.code, lab.world.acted("/charge")), (EXIT_PENDING, 0), "{rest:?} {ended:?}");
        assert!(rest.iter().any(|line| line.starts_with("stopped here; nothing is lost")), "{rest:?}");
        assert_eq!(lab.run(&["runs", "resume", "t"]).code, EXIT_DONE);
    } else {
        assert_eq!(ended.code, EXIT_DONE, "{rest:?} {ended:?}");
    }
    assert_eq!(["/book", "/charge"].map(|path| lab.world.acted(path)), [1, 1]);
    assert_eq!(lab.listed("in_doubt").len(), 0);
}

#[test]
fn a_run_lives_through_an_outage_of_postgres() {
    a_run_lives_through_an_outage(Kind::Postgres, false);
}

#[test]
fn a_run_lives_through_an_outage_of_redis() {
    a_run_lives_through_an_outage(Kind::Redis, false);
}

#[test]
fn who_is_told_to_stop_in_an_outage_leaves_no_tool_on_postgres() {
    a_run_lives_through_an_outage(Kind::Postgres, true);
}

#[test]
fn who_is_told_to_stop_in_an_outage_leaves_no_tool_on_redis() {
    a_run_lives_through_an_outage(Kind::Redis, true);
}

/// It does not wait for ever, and says how to go on.
#[test]
fn a_run_gives_up_on_a_ledger_that_stays_away() {
    let shared = Shared::new(Kind::Postgres, "tools:\n  book: { http: { method: POST, url: \"WORLD/book\", json: \"${args}\" } }\n");
    let lab = &shared.lab;
    lab.write("trip.yaml", "workflow: trip\nsteps:\n  - { id: nap, sleep: 1h }\n  - { id: book, tool: book }\n");
    let mut command = lab.command(&["run", "trip.yaml", "--run", "t"]);
    let process = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("it sleeps", || (lab.json(&["runs", "show", "t"]).at("/state") == json!("waiting")).then_some(()));
    shared.down();
    let ended = Run::ended(process);
    assert_eq!(ended.code, EXIT_BROKEN, "{ended:?}");
    assert!(ended.stderr.contains("when the ledger is back, go on with it: counterfoil runs resume t"), "{}", ended.stderr);
}
