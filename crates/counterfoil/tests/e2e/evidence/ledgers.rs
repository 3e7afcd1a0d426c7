//! The campaign against a ledger file: what someone changes behind the program's back is found and named, with a head that was kept elsewhere also a cut tail.
//!
//! Two kinds of attackers: one edits rows with SQL, and leaves checksums and links behind that do not fit; the other rebuilds the whole file through the store itself, so
//! that everything in it fits together but what it says. `COUNTERFOIL_TAMPER_ROUNDS` and `COUNTERFOIL_TAMPER_SEED` as in the campaign against bundles.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use counterfoil::check::log::Against;
use counterfoil::check::{Report, check};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Entry, StreamId, codec};
use counterfoil_evidence::Head;
use counterfoil_evidence::ends::end_of;
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Batch, Position, Recorded, Store, Version, Write};
use rusqlite::Connection;
use serde_json::json;

use super::tamper::Rng;
use crate::lab::{EXIT_BROKEN, EXIT_DONE, Lab};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A ledger with some runs and calls outside of them, sealed in several steps, and its newest head.
struct Made {
    lab: Lab,
    head: Head,
    copy: PathBuf,
}

fn made() -> Made {
    let lab = Lab::new(
        "tools:\n  charge:\n    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }\n    undo: { tool: refund, args: { c: \"${result.id}\" } }\n  refund:\n    http: { method: POST, url: \"WORLD/refund\", json: \"${args}\" }\n",
    );
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let house = lab.runtime().await;
        for n in 0..30 {
            let mut call = counterfoil::call("charge", json!({ "n": n })).and_then(|call| call.key(&format!("k{n}"))).expect("a call");
            if n % 3 > 0 {
                call = call.run(&format!("trip-{}", n % 3)).expect("a run");
            }
            assert_eq!(house.call(call.build()).await.status, counterfoil_runtime::Status::Success);
            if n % 10 == 9 {
                tokio::task::block_in_place(|| assert_eq!(lab.json(&["receipts", "seal", "-o", "head.json"]).code, EXIT_DONE));
            }
        }
    });
    let effect = lab.listed("done")[3]["effect"].as_str().expect("its digits").to_owned();
    assert_eq!(lab.json(&["effects", "undo", &effect, "--by", "ada"]).code, EXIT_DONE);
    assert_eq!(lab.json(&["receipts", "seal", "-o", "head.json"]).code, EXIT_DONE);
    let head = serde_json::from_str(&std::fs::read_to_string(lab.path("head.json")).expect("the head")).expect("a head");
    assert_eq!(lab.json(&["backup", "copy.db"]).code, EXIT_DONE);
    let copy = lab.path("copy.db");
    Made { lab, head, copy }
}

fn checked(path: &Path, head: Option<&Head>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let against = Against { head: head.cloned(), ..Against::default() };
        match Sqlite::open(path, Default::default()) {
            Ok(store) => match check(&store, &store, &against, |_, _, _| {}).await {
                Ok(report) => report,
                Err(error) => refused(error.to_string()),
            },
            Err(error) => refused(error.to_string()),
        }
    })
}

/// It could not even be read to its end: that is found, and named, as well.
fn refused(problem: String) -> Report {
    Report { problems: vec![counterfoil::check::Problem { place: "ledger".into(), problem }], ..Report::default() }
}

struct Row {
    pos: i64,
    kind: i64,
    body: String,
    /// Of its stream.
    last: bool,
}

fn rows(conn: &Connection) -> Vec<Row> {
    let sql = "SELECT pos, kind, body, pos NOT IN (SELECT prev FROM record) FROM record ORDER BY pos";
    let mut statement = conn.prepare(sql).expect("a ledger");
    let rows = statement.query_map([], |row| Ok(Row { pos: row.get(0)?, kind: row.get(1)?, body: row.get(2)?, last: row.get(3)? }));
    rows.expect("rows").map(|row| row.expect("a row")).collect()
}

/// Whether something else in the ledger speaks of the row: then its loss shows, even at the end of its stream.
fn is_missed(row: &Row) -> bool {
    let ends = || codec::decode::<Entry>(&row.body).unwrap_or_default().iter().any(|entry| end_of(entry).is_some());
    !row.last || [2, 15, 16, 17].contains(&row.kind) || row.kind == 1 && ends()
}

#[test]
fn every_edit_of_a_ledger_file_is_found() {
    let (rounds, seed) = (variable("COUNTERFOIL_TAMPER_ROUNDS", 1_000), variable("COUNTERFOIL_TAMPER_SEED", 20_261_116));
    let made = made();
    let mut rng = Rng(seed);
    let target = made.lab.path("edited.db");
    assert_eq!(checked(&made.copy, Some(&made.head)).problems, [], "an untouched ledger holds");
    for round in 0..rounds {
        for suffix in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{suffix}", target.display())));
        }
        std::fs::copy(&made.copy, &target).expect("a copy");
        let conn = Connection::open(&target).expect("a ledger");
        let what = edit(&conn, &mut rng);
        drop(conn);
        let report = checked(&target, Some(&made.head));
        assert!(!report.problems.is_empty(), "round {round} of seed {seed}: {what}: nothing was found");
        let named = report.problems.iter().all(|problem| !problem.place.is_empty() && !problem.problem.is_empty());
        assert!(named, "round {round} of seed {seed}: {what}: {:?}", report.problems);
    }
}

/// One change by SQL: what was done.
fn edit(conn: &Connection, rng: &mut Rng) -> String {
    let rows = rows(conn);
    let row = &rows[rng.below(rows.len())];
    let run = |sql: String| {
        assert!(conn.execute(&sql, []).unwrap_or_else(|error| panic!("{sql}: {error}")) > 0, "{sql}");
        sql
    };
    match rng.below(8) {
        0 | 1 => {
            // One byte of a body, whatever it was.
            let at = 1 + rng.below(row.body.len());
            let new = (b'!' + rng.below(90) as u8) as char;
            let old = &row.body[at - 1..at];
            let new = if old.starts_with(new) { '~' } else { new };
            let quoted = if new == '\'' { "''".to_owned() } else { new.to_string() };
            run(format!(
                "UPDATE record SET body = substr(body, 1, {}) || '{quoted}' || substr(body, {}) WHERE pos = {}",
                at - 1,
                at + 1,
                row.pos
            ))
        }
        2 => {
            let column =
                ["version = version + 1", "at = at + 1", "prev = prev + 1", "sum = sum + 1", "kind = kind % 13 + 1", "open = 1 - open"];
            run(format!("UPDATE record SET {} WHERE pos = {}", column[rng.below(column.len())], row.pos))
        }
        3 => {
            let column = ["tenant = tenant || 'x'", "state = 'failed'", "run = 'other'", "tool = 'other'", "due = 1", "expires = 1"];
            let column = column[rng.below(column.len())];
            let (name, _) = column.split_once(" = ").expect("an assignment");
            let changes = conn.query_row(
                &format!("SELECT {name} IS NOT ({}) FROM record WHERE pos = {}", &column[name.len() + 3..], row.pos),
                [],
                |row| row.get::<_, bool>(0),
            );
            if !changes.expect("a row") {
                return edit(conn, rng);
            }
            run(format!("UPDATE record SET {column} WHERE pos = {}", row.pos))
        }
        4 => {
            let Some(missed) = rows.iter().cycle().skip(rng.below(rows.len())).find(|row| is_missed(row)) else { unreachable!("most are") };
            format!("{} (kind {}, last {})", run(format!("DELETE FROM record WHERE pos = {}", missed.pos)), missed.kind, missed.last)
        }
        5 => {
            // Two records change places.
            let other = &rows[rng.below(rows.len())];
            if other.pos == row.pos {
                return edit(conn, rng);
            }
            let (a, b) = (row.pos, other.pos);
            run(format!("UPDATE record SET pos = -1 WHERE pos = {a}"));
            run(format!("UPDATE record SET pos = {a} WHERE pos = {b}"));
            run(format!("UPDATE record SET pos = {b} WHERE pos = -1"))
        }
        6 => {
            let (columns, end) =
                ("stream, version, prev, at, kind, open, due, expires, sum, tenant, state, tool, run, body", rows.len() as i64 + 1_000);
            run(format!("INSERT INTO record (pos, {columns}) SELECT {end}, {columns} FROM record WHERE pos = {}", row.pos))
        }
        _ => {
            // The bodies of two records of one kind.
            let alike: Vec<&Row> = rows.iter().filter(|other| other.kind == row.kind && other.body != row.body).collect();
            if alike.is_empty() {
                return edit(conn, rng);
            }
            let other = alike[rng.below(alike.len())].pos;
            let body = |pos| format!("(SELECT body FROM record WHERE pos = {pos})");
            run(format!(
                "UPDATE record SET body = CASE pos WHEN {} THEN {} ELSE {} END WHERE pos IN ({0}, {other})",
                row.pos,
                body(other),
                body(row.pos)
            ))
        }
    }
}

/// A ledger with these records, in which everything fits together that a store can see.
fn rebuilt(records: Vec<Recorded>, path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Sqlite::open(path, Default::default()).expect("a new ledger");
        let mut versions: HashMap<StreamId, u64> = HashMap::new();
        let (mut batch, mut named) = (Batch::default(), HashSet::new());
        for Recorded { stream, summary, record } in records {
            // A batch names a stream once.
            if !named.insert(stream) {
                store.append(&std::mem::take(&mut batch)).await.expect("records");
                named = HashSet::from([stream]);
            }
            let version = versions.entry(stream).or_default();
            batch.writes.push(Write { stream, expected: Version(*version), at: record.at, body: record.body, summary });
            *version += 1;
        }
        store.append(&batch).await.expect("records");
    });
}

fn records_of(path: &Path) -> Vec<Recorded> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Sqlite::open(path, Default::default()).expect("the ledger");
        store.tail(Position(0), 100_000).await.expect("its records")
    })
}

/// Something of the body that a receipt, a leaf, a tile or a signature speaks of, changed so that it can still be read.
fn forged(recorded: &Recorded, rng: &mut Rng) -> Option<String> {
    let body = &recorded.record.body;
    let members: &[&str] = match recorded.summary.kind {
        StreamKind::Chain => {
            &["\"seq\":", "\"attempt\":", "\"spec\":\"", "\"result\":\"", "\"ended\":", "\"prev\":\"", "\"effect\":\"", "\"duration_us\":"]
        }
        StreamKind::Tile => &["\"head\":", "\"hashes\":[\""],
        StreamKind::Head => {
            &["\"number\":", "\"size\":", "\"root\":\"", "\"at\":", "\"key\":\"", "\"signature\":\"", "\"version\":", "\"stream\":\""]
        }
        StreamKind::Key => &["\"key\":\""],
        StreamKind::Effect => &["\"args\":{\"n\":", "\"id\":\"e-", "\"ended\":"],
        _ => return None,
    };
    let there: Vec<usize> = members.iter().flat_map(|member| body.match_indices(member).map(|(at, found)| at + found.len())).collect();
    let at = *there.get(rng.below(there.len().max(1)))?;
    let digit = body.as_bytes()[at];
    let other = if digit == b'1' { '2' } else { '1' };
    Some(format!("{}{other}{}", &body[..at], &body[at + 1..]))
}

#[test]
fn every_forgery_that_the_store_cannot_see_is_found() {
    let rounds = variable("COUNTERFOIL_TAMPER_ROUNDS", 300) / 3;
    let seed = variable("COUNTERFOIL_TAMPER_SEED", 79);
    let made = made();
    let records = records_of(&made.copy);
    let mut rng = Rng(seed);
    for round in 0..rounds {
        let path = made.lab.path(&format!("forged-{round}.db"));
        let mut changed = records.clone();
        let what = loop {
            let at = rng.below(records.len());
            let recorded = &records[at];
            let protected = matches!(recorded.summary.kind, StreamKind::Chain | StreamKind::Tile | StreamKind::Head | StreamKind::Key);
            match rng.below(4) {
                0 if protected => {
                    changed.remove(at);
                    break format!("{:?} at {at} removed", recorded.summary.kind);
                }
                1 if recorded.summary.kind == StreamKind::Chain => {
                    // With another of its kind: the log has an order.
                    let Some(other) = (at + 1..records.len()).find(|other| records[*other].summary.kind == StreamKind::Chain) else {
                        continue;
                    };
                    changed.swap(at, other);
                    break format!("receipts at {at} and {other} swapped");
                }
                _ => {
                    let Some(body) = forged(recorded, &mut rng) else { continue };
                    changed[at].record.body = body;
                    break format!("{:?} at {at} forged: {}", recorded.summary.kind, changed[at].record.body);
                }
            }
        };
        rebuilt(changed, &path);
        let report = checked(&path, Some(&made.head));
        assert!(!report.problems.is_empty(), "round {round} of seed {seed}: {what}");
        drop(std::fs::remove_file(&path));
    }
}

/// Whoever cuts off the end, heads and all, leaves a ledger that fits together: only a head that was kept elsewhere tells.
#[test]
fn a_cut_tail_shows_against_a_head_that_was_kept_elsewhere() {
    let made = made();
    let records = records_of(&made.copy);
    let heads: Vec<usize> = (0..records.len()).filter(|at| records[*at].summary.kind == StreamKind::Head).collect();
    let cut = heads[1] + 1;
    rebuilt(records[..cut].to_vec(), &made.lab.path("cut.db"));
    let alone = made.lab.json(&["store", "check", "sqlite:cut.db"]);
    assert_eq!((alone.code, alone.at("/problems")), (EXIT_DONE, json!([])), "what is left fits together: {alone:?}");
    for command in [&["store", "check", "sqlite:cut.db"][..], &["receipts", "verify", "--store", "sqlite:cut.db"]] {
        let run = made.lab.json(&[command, &["--head", "head.json"]].concat());
        assert_eq!(run.code, EXIT_BROKEN, "{run:?}");
        assert!(run.text("/problems/0/problem").contains("its end was cut off"), "{run:?}");
    }
    // Only the receipts, and not the head above them: the ledger itself tells.
    let last = (0..records.len()).rev().find(|at| records[*at].summary.kind == StreamKind::Chain).expect("a receipt");
    let mut shorter = records;
    shorter.remove(last);
    rebuilt(shorter, &made.lab.path("shorter.db"));
    let alone = made.lab.json(&["store", "check", "sqlite:shorter.db"]);
    assert_eq!(alone.code, EXIT_BROKEN, "{alone:?}");
    assert!(alone.stdout.contains("some were removed, or its end was cut off"), "{alone:?}");
}

/// Nothing is sealed: the links of the chains are all there is, those of runs among them.
#[test]
fn a_forged_link_of_a_runs_chain_is_found() {
    let lab = Lab::charging("");
    lab.call("charge", "{}", "outside").done();
    for key in ["a", "b"] {
        assert_eq!(lab.json(&["call", "charge", "--key", key, "--run", "trip"]).code, EXIT_DONE);
    }
    let verified = lab.json(&["receipts", "verify"]);
    assert_eq!((verified.code, verified.at("/verified"), verified.at("/runs")), (EXIT_DONE, json!(3), json!(1)), "{verified:?}");
    assert!(lab.run(&["receipts", "verify"]).stdout.starts_with("3 receipts (of 1 run), every link holds\n"));
    let mut records = records_of(&lab.ledger());
    let link = records.iter_mut().find(|recorded| recorded.summary.kind == StreamKind::Chain && recorded.summary.run.is_some());
    let body = &mut link.expect("the chain of the run").record.body;
    assert!(body.contains("\"outcome\":\"done\""), "{body}");
    *body = body.replace("\"outcome\":\"done\"", "\"outcome\":\"failed\"");
    rebuilt(records, &lab.path("forged.db"));
    let forged = lab.json(&["receipts", "verify", "--store", "sqlite:forged.db"]);
    assert_eq!(forged.code, EXIT_BROKEN, "{forged:?}");
}
