//! Backup and restore, as docs/stores.md says it, for each store.

use std::process::Command;

use super::ledger::{answers, made, seen, sound};
use crate::lab::EXIT_DONE;
use counterfoil_servers::{postgres, redis};

#[test]
fn a_sqlite_backup_is_the_ledger() {
    let lab = made();
    assert_eq!(lab.json(&["backup", "kept.db"]).code, EXIT_DONE);
    let (original, digest) = (seen(&lab, "sqlite:counterfoil.db"), sound(&lab, "sqlite:counterfoil.db").text("/digest"));
    std::fs::remove_file(lab.ledger()).expect("the ledger");
    std::fs::rename(lab.path("kept.db"), lab.ledger()).expect("the backup");
    assert_eq!((seen(&lab, "sqlite:counterfoil.db"), sound(&lab, "sqlite:counterfoil.db").text("/digest")), (original, digest));
    answers(&lab, "sqlite:counterfoil.db");
}

/// `pg_dump` of the schema, `psql` into a new database.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_dump_is_the_ledger() {
    let lab = made();
    let server = postgres::Server::start().await;
    let url = server.url("?schema=kept");
    assert_eq!(lab.json(&["store", "copy", "sqlite:counterfoil.db", &url]).code, EXIT_DONE);
    let (original, digest) = (seen(&lab, &url), sound(&lab, &url).text("/digest"));
    let tool = |program: &str, args: &[&str]| {
        let ran = Command::new(program).args(args).current_dir(lab.dir.path()).env("PGPASSWORD", postgres::PASSWORD).output();
        let ran = ran.unwrap_or_else(|error| panic!("{program} ({error}): these tests need Debian's package `postgresql`"));
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    let (port, user) = (server.port.to_string(), postgres::USER);
    let at = ["-h", "127.0.0.1", "-p", &port, "-U", user];
    tool("pg_dump", &[&at[..], &["--schema=kept", "--format=custom", "--file=kept.dump", "postgres"]].concat());
    tool("createdb", &[&at[..], &["restored"]].concat());
    tool("pg_restore", &[&at[..], &["--dbname=restored", "--exit-on-error", "kept.dump"]].concat());
    let restored = url.replace("/postgres?", "/restored?");
    assert_ne!(restored, url);
    assert_eq!((seen(&lab, &restored), sound(&lab, &restored).text("/digest")), (original, digest));
    answers(&lab, &restored);
}

/// The append-only files of a Redis that was shut down, under another one.
#[test]
fn the_files_of_redis_are_the_ledger() {
    let lab = made();
    let mut server = redis::Server::durable();
    let url = server.url();
    assert_eq!(lab.json(&["store", "copy", "sqlite:counterfoil.db", &url]).code, EXIT_DONE);
    let (original, digest) = (seen(&lab, &url), sound(&lab, &url).text("/digest"));
    server.cli(&["SHUTDOWN"]);
    server.kill();
    let files = server.keep_files();
    // What comes later is not in the backup.
    server.start();
    server.cli(&["FLUSHALL"]);
    server.kill();
    server.restore_files(&files);
    server.start();
    assert_eq!((seen(&lab, &url), sound(&lab, &url).text("/digest")), (original, digest));
    answers(&lab, &url);
}
