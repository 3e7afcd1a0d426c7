//! A-45. A worker that cannot reach the ledger loses its lease: it dispatches nothing, what runs is told to stop, and another takes over.

use std::process::Stdio;

use serde_json::{Value, json};

use super::proxy::Proxy;
use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::Server;
use crate::lab::{EXIT_BROKEN, Run};
use crate::parts::Process;
use crate::report::{Fault, Row};

const CONFIG: &str = r#"
tools:
  job:
    command: ["/bin/sh", "-c", "echo $$ >> started; exec sleep 600"]
    lease: 1s
    timeout: 600s
    wait_max: 60s
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}" }
"#;

/// How the ledger is out of reach.
#[derive(Clone, Copy)]
enum Away {
    /// Connections end, and none can be made.
    Cut,
    /// Nobody answers any more, and nothing ends.
    Silent,
}

fn a_worker_that_is_cut_off_stops(kind: Kind, away: Away) {
    let shared = Shared::new(kind, CONFIG);
    let lab = &shared.lab;
    let proxy = Proxy::start(shared.port());
    let lonely = Server::start_with(lab, &["--store", &shared.url_at(proxy.port)]);
    let other = Server::start(lab);
    let running = lonely.begin("POST", "/v1/tools/job/call", &[("idempotency-key", "k")], "{}");
    let started = || std::fs::read_to_string(lab.path("started")).unwrap_or_default();
    let pid = until("the command runs", || started().strip_suffix('\n').map(str::to_owned));
    let runs = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(runs());
    match away {
        Away::Cut => proxy.cut(),
        Away::Silent => proxy.silence(),
    }
    // Nothing new is begun that cannot be recorded.
    lonely.call("charge", "c", "{}").problem(503, "store_unavailable");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    // What runs is stopped, although nobody can tell it that another took over.
    until("the command is told to stop", || (!runs()).then_some(()));
    // And another does take over, while the first is still away.
    let taken = other.call("job", "k", "{}").envelope(200, "in_doubt");
    assert_eq!(taken.at("/error/cause"), "worker_lost", "{taken:?}");
    proxy.mend();
    // What it has to say comes in by itself.
    let effect = format!("/v1/effects/{}", taken.text("/effect"));
    let shown = until("its report is in", || Some(other.get(&effect)).filter(|shown| shown.at("/late/0") != Value::Null));
    assert_eq!(shown.at("/state"), "in_doubt", "{shown:?}");
    assert_eq!(running.reply().expect("an answer").at("/status"), "in_doubt");
    until("it serves again", || (lonely.call("charge", "c", "{}").at("/status") == json!("success")).then_some(()));
    let mut row = Row { rounds: 1, acknowledged: 1, in_doubt: 1, ..Row::new(Fault::OutOfReach, kind) };
    row.twice.extend((started() != format!("{pid}\n")).then(|| format!("job, begun as {}", started())));
    row.twice.extend((lab.world.acted("/charge") != 1).then(|| "charge".to_owned()));
    row.tell();
}

#[test]
fn a_45_cut_off_it_stops_and_another_takes_over_on_postgres() {
    a_worker_that_is_cut_off_stops(Kind::Postgres, Away::Cut);
}

#[test]
fn a_45_cut_off_it_stops_and_another_takes_over_on_redis() {
    a_worker_that_is_cut_off_stops(Kind::Redis, Away::Cut);
}

#[test]
fn a_45_unheard_it_stops_and_another_takes_over_on_postgres() {
    a_worker_that_is_cut_off_stops(Kind::Postgres, Away::Silent);
}

#[test]
fn a_45_unheard_it_stops_and_another_takes_over_on_redis() {
    a_worker_that_is_cut_off_stops(Kind::Redis, Away::Silent);
}

/// A command that lost the ledger while it claimed has called no tool, and says nothing of one.
#[test]
fn who_reads_is_told_of_a_claim_that_may_be_there() {
    let shared = Shared::new(Kind::Redis, CONFIG);
    let lab = &shared.lab;
    let proxy = Proxy::start(shared.port());
    proxy.hold_after(b"the-claim");
    let args = ["call", "charge", "--args", r#"{"which":"the-claim"}"#, "--key", "k", "--store", &shared.url_at(proxy.port)];
    let mut command = lab.command(&args);
    let call = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    proxy.wait_holding();
    proxy.cut();
    let told = Run::ended(call);
    assert_eq!((told.code, told.stdout.as_str()), (EXIT_BROKEN, ""), "{told:?}");
    for part in ["nothing was sent, but the ledger may hold a claim", "refused: nothing was run", " --did-not-happen\n"] {
        assert!(told.stderr.contains(part), "says nothing of {part:?}: {}", told.stderr);
    }
    assert!(!told.stderr.contains("the tool has ended") && !told.stderr.contains("--happened"), "{}", told.stderr);
    assert_eq!(lab.world.seen("/charge").arrived, 0);
}
