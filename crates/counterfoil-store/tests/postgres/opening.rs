//! Opening: what is refused, why, and that nothing was changed.

use std::time::Duration;

use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::{AppendError, OpenError, StoreError, Written};

use crate::server::{PASSWORD, Server, USER, free_port};
use crate::{append, bodies, write};

async fn refusal(url: &str, options: PostgresOptions) -> OpenError {
    let error = Postgres::open(url, options).await.err().unwrap_or_else(|| panic!("{url} was opened"));
    let text = format!("{error} {error:?}");
    assert!(!text.contains(PASSWORD), "{text}");
    error
}

#[tokio::test]
async fn what_is_not_a_ledger_is_left_alone() {
    let server = Server::start().await;
    let client = server.client().await;
    let relations = async |schema: &str| {
        let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 ORDER BY 1";
        client.query(sql, &[&schema]).await.expect("a list").iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    for (schema, made, named) in [
        ("songs", "CREATE TABLE songs.song(title text)", "\"song\""),
        ("books", "CREATE TABLE books.ledger(amount int)", "books.ledger"),
        (
            "other",
            "CREATE TABLE other.ledger(application text, format int4); INSERT INTO other.ledger VALUES ('other', 1)",
            "another program",
        ),
    ] {
        client.batch_execute(&format!("CREATE SCHEMA {schema}; {made}")).await.expect("a schema");
        let before = relations(schema).await;
        match refusal(&server.url(&format!("?schema={schema}")), PostgresOptions::default()).await {
            OpenError::NotALedger { store, found } => {
                assert!(found.contains(named), "{found}");
                assert!(store.ends_with(&format!("?schema={schema}")), "{store}");
            }
            other => panic!("{schema}: {other}"),
        }
        assert_eq!(relations(schema).await, before, "nothing was changed");
    }
}

#[tokio::test]
async fn a_newer_ledger_is_refused_and_a_migration_stops_who_is_too_old() {
    let server = Server::start().await;
    let options = server.fresh();
    let store = server.open(&options).await;
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
    let client = server.client().await;
    client.execute(&format!("UPDATE {}.ledger SET format = 7", options.schema), &[]).await.expect("a change");
    assert!(matches!(refusal(&server.url(""), options.clone()).await, OpenError::TooNew { found: 7, supported: 2, .. }));
    match append(&store, vec![write(1, 1)]).await {
        Err(AppendError::Store(StoreError::Unavailable { message, written: Written::No })) => {
            assert!(message.contains("newer"), "{message}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bodies(&store, 1).await.len(), 1, "it was not written");
}

#[tokio::test]
async fn an_empty_schema_that_was_made_for_it_is_used() {
    let server = Server::start().await;
    let client = server.client().await;
    let sql = "CREATE ROLE clerk LOGIN PASSWORD 'clerk'; REVOKE CREATE ON DATABASE postgres FROM PUBLIC; \
               CREATE SCHEMA given; GRANT ALL ON SCHEMA given TO clerk";
    client.batch_execute(sql).await.expect("a role that may not make schemas");
    let url = |schema: &str| format!("postgres://clerk:clerk@127.0.0.1:{}/postgres?schema={schema}", server.port);
    match refusal(&url("taken"), PostgresOptions::default()).await {
        OpenError::Unfit { message, .. } => assert!(message.contains("taken") && message.contains("permission denied"), "{message}"),
        other => panic!("{other}"),
    }
    let store = Postgres::open(&url("given"), PostgresOptions::default()).await.expect("the schema is there");
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
}

#[tokio::test]
async fn who_cannot_be_reached_is_named_without_the_password() {
    let server = Server::start().await;
    let hasty = || PostgresOptions { connect_max: Duration::from_secs(2), ..PostgresOptions::default() };
    let check = async |url: String, expected: &str| match refusal(&url, hasty()).await {
        OpenError::Unreachable { store, message } => {
            assert!(message.contains(expected), "{message}");
            assert!(store.starts_with("postgres://"), "{store}");
        }
        other => panic!("{other}"),
    };
    let port = server.port;
    check(server.url_at(free_port(), ""), "refused").await;
    check(format!("postgres://{USER}:wrong@127.0.0.1:{port}/postgres"), "password authentication failed").await;
    check(format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/nowhere"), "\"nowhere\" does not exist").await;
    check(format!("postgres://{USER}:{PASSWORD}@nowhere.invalid/postgres"), "").await;
    check(server.url("?sslmode=require"), "TLS").await;
    // A listener that accepts and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    check(server.url_at(silent.local_addr().expect("bound").port(), ""), "no answer").await;
}

#[tokio::test]
async fn a_server_that_forgets_is_refused_unless_that_is_wanted() {
    let server = Server::start_with(&["fsync=off"]).await;
    match refusal(&server.url(""), server.fresh()).await {
        OpenError::Unfit { message, .. } => assert!(message.contains("fsync"), "{message}"),
        other => panic!("{other}"),
    }
    let options = PostgresOptions { allow_volatile: true, ..server.fresh() };
    let facts = server.open(&options).await.facts().await.expect("the server serves");
    assert_eq!(facts.fsync, Some(false));
}

#[tokio::test]
async fn commits_are_synchronous_whatever_the_servers_default() {
    let server = Server::start_with(&["synchronous_commit=off", "default_transaction_isolation=serializable"]).await;
    let options = server.fresh();
    let store = server.open(&options).await;
    assert_eq!(store.facts().await.expect("the server serves").synchronous_commit, "on");
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counterfoil'";
    let client = server.client().await;
    // That of the opening takes a moment to go.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let sessions: i64 = client.query_one(sql, &[]).await.expect("a list").get(0);
        if sessions == 6 {
            break;
        }
        assert!(std::time::Instant::now() < until, "{sessions}, and not two writers, two readers, one to browse, one that listens");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A crash, or an engine whose DDL is not transactional, may leave a schema half made.
#[tokio::test]
async fn a_ledger_that_was_half_made_is_finished() {
    let server = Server::start().await;
    let options = server.fresh();
    drop(server.open(&options).await);
    let schema = &options.schema;
    let undo =
        format!("DROP VIEW {schema}.effect; DROP TABLE {schema}.stream; DROP INDEX {schema}.record_pos; DELETE FROM {schema}.ledger");
    server.client().await.batch_execute(&undo).await.expect("a change");
    let store = server.open(&options).await;
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
    assert_eq!(bodies(&store, 1).await.len(), 1);
}

/// For people, with `psql`.
#[tokio::test]
async fn the_ledger_can_be_read_by_people() {
    let server = Server::start().await;
    let options = server.fresh();
    let store = server.open(&options).await;
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
    append(&store, vec![write(1, 1)]).await.expect("the next version");
    let client = server.client().await;
    let rows = client.query(&format!("SELECT state, body FROM {}.effect_log ORDER BY pos", options.schema), &[]).await.expect("a view");
    assert_eq!(rows.iter().map(|row| row.get(1)).collect::<Vec<String>>(), ["1/1 by 0", "1/2 by 0"]);
    let now = client.query_one(&format!("SELECT state, version, body FROM {}.effect", options.schema), &[]).await.expect("a view");
    assert_eq!((now.get::<_, &str>(0), now.get::<_, i64>(1), now.get::<_, &str>(2)), ("done", 2, "1/2 by 0"));
}
