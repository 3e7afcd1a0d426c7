//! `counterfoil store check`: damage that someone made behind the program's back is found, and named with its place.

use serde_json::json;

use super::ledger::{made, sound};
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_USAGE, Lab, Run};
use counterfoil_servers::postgres;

/// Broken, with a problem that says these words at this place.
#[track_caller]
fn found(lab: &Lab, store: &str, place: &str, words: &str) -> Run {
    let checked = lab.json(&["store", "check", store]);
    assert_eq!((checked.code, checked.at("/ok")), (EXIT_BROKEN, json!(false)), "{checked:?}");
    let problems = checked.at("/problems");
    let told = problems.as_array().expect("a list").iter().any(|problem| {
        problem["place"].as_str().is_some_and(|text| text.contains(place))
            && problem["problem"].as_str().is_some_and(|text| text.contains(words))
    });
    assert!(told, "no {words:?} at {place:?}: {problems:#}");
    checked
}

#[test]
fn a_sound_ledger_is_told_with_what_was_looked_at() {
    let lab = made();
    let checked = sound(&lab, "sqlite:counterfoil.db");
    // Ten calls by key, one of them undone by another call, one pruned; three in a run.
    assert_eq!((checked.at("/effects"), checked.at("/chains"), checked.at("/tombstones")), (json!(12), json!(2), json!(1)), "{checked:?}");
    assert!(checked.at("/receipts").as_u64() > Some(8), "{checked:?}");
    assert_eq!(lab.json(&["store", "check"]).stdout, checked.stdout, "the config's store is checked when none is named");
    let said = lab.run(&["store", "check"]);
    assert_eq!(said.code, EXIT_DONE, "{said:?}");
    assert!(said.stdout.contains("receipts in 2 chains followed") && said.stderr.contains("all of it holds"), "{said:?}");
    lab.json(&["store", "check", "sqlite:nowhere.db"]).error(EXIT_USAGE, "store_absent");
}

#[test]
fn damage_in_sqlite_is_found() {
    let lab = made();
    let check = |name: &str, sql: &str, place: &str, words: &str| {
        let copy = format!("{name}.db");
        assert_eq!(lab.json(&["backup", &copy]).code, EXIT_DONE);
        let conn = rusqlite::Connection::open(lab.path(&copy)).expect("a ledger");
        assert!(conn.execute(sql, []).expect("the edit") > 0, "{sql}");
        drop(conn);
        found(&lab, &format!("sqlite:{copy}"), place, words)
    };
    let done = "(SELECT min(pos) FROM record WHERE state = 'done' AND version = 2)";
    let pos = |conn: &rusqlite::Connection| conn.query_row(&format!("SELECT {done}"), [], |row| row.get::<_, i64>(0)).expect("a record");
    let pos = pos(&rusqlite::Connection::open(lab.ledger()).expect("the ledger"));
    let place = pos.to_string();
    let edited = check("body", &format!("UPDATE record SET body = replace(body, 'e-1', 'e-9') WHERE pos = {pos}"), &place, "checksum");
    assert!(edited.at("/records").as_u64() > Some(20), "what is whole was read all the same: {edited:?}");
    check("state", &format!("UPDATE record SET state = 'failed' WHERE pos = {pos}"), &place, "checksum");
    // Whole records are gone: the checksums of the others hold.
    check("gone", &format!("DELETE FROM record WHERE pos = {pos}"), "stream", "record");
    check(
        "grave",
        "INSERT INTO stream_index SELECT stream, -version FROM record WHERE pos = (SELECT max(pos) FROM record)",
        "stream",
        "tombstone",
    );
    sound(&lab, "sqlite:counterfoil.db");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_postgres_is_found() {
    let lab = made();
    let server = postgres::Server::start().await;
    let client = server.client().await;
    let done = "(SELECT min(pos) FROM {s}.record WHERE state = 'done' AND version = 2)";
    let edits = [
        ("body", format!("UPDATE {{s}}.record SET body = replace(body, 'e-1', 'e-9') WHERE pos = {done}"), "position", "checksum"),
        // The checksum does not cover summaries: only the fold tells.
        ("state", format!("UPDATE {{s}}.record SET state = 'failed' WHERE pos = {done}"), "position", "another summary"),
        ("gone", format!("DELETE FROM {{s}}.record WHERE pos = {done}"), "stream", "records"),
        ("due", "UPDATE {s}.stream SET due = NULL WHERE due IS NOT NULL".into(), "stream", "is not listed"),
        ("search", format!("UPDATE {{s}}.stream SET tenant = 'other' WHERE pos = {done}"), "", "searches find"),
        ("grave", "UPDATE {s}.record SET grave = version WHERE pos = (SELECT max(pos) FROM {s}.stream)".into(), "stream", "tombstone"),
    ];
    for (schema, edit, place, words) in edits {
        let url = server.url(&format!("?schema={schema}"));
        let copied = lab.json(&["store", "copy", "sqlite:counterfoil.db", &url]);
        assert_eq!(copied.code, EXIT_DONE, "{copied:?}");
        sound(&lab, &url);
        assert!(client.execute(&edit.replace("{s}", schema), &[]).await.expect("the edit") > 0, "{edit}");
        found(&lab, &url, place, words);
    }
}

/// A receipt that was edited together with its checksum: only the next link tells.
#[tokio::test(flavor = "multi_thread")]
async fn an_edited_receipt_breaks_its_chain() {
    use counterfoil_store::{Batch, Position, Reach, Store, Version, Write};
    let lab = made();
    let from = counterfoil_store::sqlite::Sqlite::open(lab.ledger(), Default::default()).expect("the ledger");
    let to = counterfoil_store::sqlite::Sqlite::open(lab.path("forged.db"), Default::default()).expect("a new ledger");
    let mut forged = 0;
    for recorded in from.tail(Position(0), 10_000).await.expect("the ledger") {
        let body = match (recorded.summary.kind, recorded.record.version) {
            (counterfoil_core::summary::StreamKind::Chain, Version(1)) => {
                forged += 1;
                recorded.record.body.replace("\"attempt\":1", "\"attempt\":2")
            }
            _ => recorded.record.body,
        };
        let expected = to.load(recorded.stream, Reach::Newest(0)).await.expect("the new ledger").version;
        let write = Write { stream: recorded.stream, expected, at: recorded.record.at, body, summary: recorded.summary };
        to.append(&Batch { writes: vec![write] }).await.expect("a record");
    }
    assert_eq!(forged, 2);
    drop((from, to));
    found(&lab, "sqlite:forged.db", "record 2 of stream", "does not follow the one before it");
}

/// A summary that was written together with its checksum: only what follows from the entries tells.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_runs_and_effects_is_worked_out_anew() {
    use counterfoil_core::summary::StreamKind;
    use counterfoil_store::{Batch, Position, Reach, Store, Write};
    let lab = Lab::charging("");
    lab.write("order.yaml", "workflow: order\nsteps:\n  - { id: pay, tool: charge, args: { cents: 5 } }\n");
    assert_eq!(lab.run(&["run", "order.yaml", "--run", "o-1"]).code, EXIT_DONE);
    let checked = sound(&lab, "sqlite:counterfoil.db");
    assert_eq!((checked.at("/runs"), checked.at("/effects")), (json!(1), json!(1)));
    let from = counterfoil_store::sqlite::Sqlite::open(lab.ledger(), Default::default()).expect("the ledger");
    let records = from.tail(Position(0), 10_000).await.expect("the ledger");
    for (name, lie) in [("same", None), ("run", Some(StreamKind::Run)), ("effect", Some(StreamKind::Effect))] {
        let to = counterfoil_store::sqlite::Sqlite::open(lab.path(&format!("{name}.db")), Default::default()).expect("a new ledger");
        for mut recorded in records.clone() {
            let ended = matches!(recorded.summary.state, "completed" | "done");
            if ended && lie == Some(recorded.summary.kind) {
                recorded.summary.state = "failed";
            }
            let expected = to.load(recorded.stream, Reach::Newest(0)).await.expect("the new ledger").version;
            let (at, body) = (recorded.record.at, recorded.record.body);
            let write = Write { stream: recorded.stream, expected, at, body, summary: recorded.summary };
            to.append(&Batch { writes: vec![write] }).await.expect("a record");
        }
        drop(to);
        let url = format!("sqlite:{name}.db");
        match lie {
            None => assert_eq!(sound(&lab, &url).at("/state"), checked.at("/state"), "the same entries give the same state"),
            Some(_) => drop(found(&lab, &url, "position", "another summary than follows from the entries")),
        }
    }
}
