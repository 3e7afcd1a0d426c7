//! `counterfoil store copy`.

use std::process::Stdio;

use serde_json::json;

use super::ledger::{answers, made, seen, sound};
use crate::lab::{EXIT_CANCELLED, EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab, Run};
use crate::parts::Process;
use counterfoil_servers::{postgres, redis};

#[track_caller]
fn copied(lab: &Lab, from: &str, to: &str) -> Run {
    let copied = lab.json(&["store", "copy", from, to]);
    assert_eq!(copied.code, EXIT_DONE, "{from} → {to}: {copied:?}");
    assert!(copied.stderr.is_empty(), "with --json nothing but the closing object: {copied:?}");
    copied
}

/// SQLite → PostgreSQL → Redis → SQLite. Each is the ledger in all that can be seen and asked of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_answers_as_the_original_in_every_store() {
    let lab = made();
    let (postgres, redis) = (postgres::Server::start().await, redis::Server::durable());
    let stores = ["sqlite:counterfoil.db".to_owned(), postgres.url("?schema=copy"), redis.url(), "sqlite:back.db".to_owned()];
    let (original, digest) = (seen(&lab, &stores[0]), sound(&lab, &stores[0]).text("/digest"));
    for pair in stores.windows(2) {
        let told = copied(&lab, &pair[0], &pair[1]);
        assert_eq!((told.at("/found"), told.at("/tombstones"), told.text("/digest")), (json!(0), json!(1), digest.clone()));
        assert!(!told.stdout.contains(postgres::PASSWORD), "{told:?}");
    }
    for store in &stores {
        assert_eq!(sound(&lab, store).text("/digest"), digest, "{store}");
        assert_eq!(seen(&lab, store), original, "{store}");
    }
    for store in &stores[1..] {
        answers(&lab, store);
    }
}

/// What the source got since is taken by the same command; a target that went its own way is refused, and left as it is.
#[test]
fn a_copy_follows_its_source_and_refuses_another() {
    let lab = made();
    let (from, to) = ("sqlite:counterfoil.db", "sqlite:copy.db");
    let first = copied(&lab, from, to);
    lab.call("charge", "{}", "later").done();
    let told = lab.run(&["store", "copy", from, "sqlite:told.db"]);
    assert_eq!((told.code, told.stdout.as_str()), (EXIT_DONE, ""), "{told:?}");
    for words in ["100 %: ", " records copied", " records (0 of them were there) and 1 tombstones", "digest "] {
        assert!(told.stderr.contains(words), "no {words:?}: {told:?}");
    }
    let second = copied(&lab, from, to);
    assert_eq!(second.at("/found"), first.at("/records"));
    assert!(second.at("/records").as_u64() > first.at("/records").as_u64());
    lab.json(&["call", "charge", "--key", "elsewhere", "--store", to]).done();
    let digest = sound(&lab, to).text("/digest");
    let refused = lab.json(&["store", "copy", from, to]).error(EXIT_REFUSED, "copy_differs");
    let said = refused.text("/error/message");
    assert!(said.contains("the source ends before it") && said.contains("nothing was changed"), "{said}");
    lab.json(&["call", "charge", "--key", "here"]).done();
    let said = lab.json(&["store", "copy", from, to]).error(EXIT_REFUSED, "copy_differs").text("/error/message");
    assert!(said.contains("the source holds record 1 of stream"), "{said}");
    assert_eq!(sound(&lab, to).text("/digest"), digest);
    lab.json(&["store", "copy", from, "sqlite:./counterfoil.db"]).error(EXIT_USAGE, "store_same");
    lab.json(&["store", "copy", "sqlite:nowhere.db", "sqlite:new.db"]).error(EXIT_USAGE, "store_absent");
    assert!(!lab.path("nowhere.db").exists() && !lab.path("new.db").exists());
}

/// A ledger that takes a while to copy: each call is a batch of its own.
async fn long(lab: &Lab, calls: usize) {
    let runtime = lab.runtime().await;
    for n in 0..calls {
        let answer = runtime.call(crate::lab::library_call("charge", json!({ "n": n }), &format!("n-{n}"))).await;
        assert_eq!(answer.status, counterfoil_runtime::Status::Success, "{answer:?}");
    }
}

fn begins(lab: &Lab, to: &str) -> Process {
    let mut command = lab.command(&["store", "copy", "sqlite:counterfoil.db", to]);
    Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// SIGKILL in its middle, as soon as the target holds something, again and again: at the end everything is there once.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_killed_goes_on() {
    let lab = Lab::charging("");
    long(&lab, 800).await;
    let server = postgres::Server::start().await;
    let (url, client) = (server.url("?schema=killed"), server.client().await);
    let records = async || match client.query_one("SELECT count(*) FROM killed.record", &[]).await {
        Ok(row) => row.get::<_, i64>(0),
        // Not made yet.
        Err(_) => 0,
    };
    let mut killed = 0;
    for _ in 0..3 {
        let before = records().await;
        let mut copying = begins(&lab, &url);
        let ended = loop {
            if records().await > before {
                break false;
            }
            if copying.child.try_wait().expect("its state").is_some() {
                break true;
            }
        };
        copying.kill();
        assert!(records().await >= before, "nothing that arrived is gone");
        killed += u32::from(!ended);
    }
    assert!(killed > 0, "the copy was always over before it could be killed");
    let found = records().await;
    let done = copied(&lab, "sqlite:counterfoil.db", &url);
    // A batch that was on its way when the copy was killed may have arrived since.
    assert!(done.at("/found").as_i64() >= Some(found), "{done:?}");
    assert_eq!(sound(&lab, &url).text("/digest"), sound(&lab, "sqlite:counterfoil.db").text("/digest"));
}

/// Ctrl-C: says that the same command goes on, and it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_stopped_says_that_it_can_go_on() {
    let lab = Lab::charging("");
    long(&lab, 800).await;
    let server = postgres::Server::start().await;
    let (url, client) = (server.url("?schema=stopped"), server.client().await);
    let copying = begins(&lab, &url);
    while client.query_one("SELECT count(*) FROM stopped.record", &[]).await.map_or(0, |row| row.get::<_, i64>(0)) == 0 {
        tokio::task::yield_now().await;
    }
    copying.signal(rustix::process::Signal::INT);
    let said = tokio::task::block_in_place(|| Run::ended(copying));
    assert_eq!(said.code, EXIT_CANCELLED, "{said:?}");
    assert!(said.stdout.is_empty() && said.stderr.contains("the same command goes on from there"), "{said:?}");
    let done = copied(&lab, "sqlite:counterfoil.db", &url);
    assert!(done.at("/found").as_u64() > Some(0), "{done:?}");
    assert_eq!(sound(&lab, &url).text("/digest"), sound(&lab, "sqlite:counterfoil.db").text("/digest"));
}

/// Programs go on calling while their ledger is copied.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_in_use_is_copied() {
    let lab = Lab::charging("");
    long(&lab, 50).await;
    let runtime = lab.runtime().await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let calling = tokio::spawn(async move {
        let mut n = 0;
        while !stopped.load(std::sync::atomic::Ordering::SeqCst) {
            n += 1;
            assert!(runtime.call(crate::lab::library_call("charge", json!({}), &format!("m-{n}"))).await.error.is_none());
        }
        n
    });
    let redis = redis::Server::durable();
    let first = tokio::task::block_in_place(|| copied(&lab, "sqlite:counterfoil.db", &redis.url()));
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(calling.await.expect("no call panics") > 0);
    let whole = tokio::task::block_in_place(|| copied(&lab, "sqlite:counterfoil.db", &redis.url()));
    assert_eq!(whole.at("/found"), first.at("/records"));
    assert_eq!(sound(&lab, &redis.url()).text("/digest"), sound(&lab, "sqlite:counterfoil.db").text("/digest"));
}

/// Positions are each store's own, dense in one and sparse in the other: the next head covers what came since and nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_receipts_goes_on_in_every_copy() {
    let lab = Lab::charging("");
    let (postgres, redis) = (postgres::Server::start().await, redis::Server::durable());
    let stores = [
        "sqlite:counterfoil.db".to_owned(),
        postgres.url("?schema=first"),
        redis.url(),
        postgres.url("?schema=second"),
        "sqlite:back.db".to_owned(),
    ];
    for key in ["a", "b", "c"] {
        lab.call("charge", "{}", key).done();
    }
    assert_eq!(lab.run(&["receipts", "seal"]).code, EXIT_DONE);
    for (receipts, pair) in (4..).zip(stores.windows(2)) {
        let to = &pair[1];
        copied(&lab, &pair[0], to);
        lab.json(&["call", "charge", "--key", &format!("in-{receipts}"), "--store", to]).done();
        let sealed = lab.json(&["receipts", "seal", "--store", to]);
        assert_eq!((sealed.at("/added"), sealed.at("/head/size")), (json!(1), json!(receipts)), "{to}: {sealed:?}");
        sound(&lab, to);
    }
}
