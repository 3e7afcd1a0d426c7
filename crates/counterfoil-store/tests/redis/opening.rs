//! Opening: what is refused, and what is said of it.

use counterfoil_store::OpenError;
use counterfoil_store::redis::{Redis, RedisOptions};

use crate::server::{DURABLE, Server, free_port, open, options};
use crate::{append, load, write};

pub async fn refused(url: &str, options: RedisOptions) -> OpenError {
    match Redis::open(url, options).await {
        Err(error) => error,
        Ok(_) => panic!("{url} must not open"),
    }
}

#[tokio::test]
async fn no_server() {
    let error = refused(&format!("redis://u:hidden@127.0.0.1:{}", free_port()), options()).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password() {
    let server = Server::with(&[DURABLE[0], DURABLE[1], ("requirepass", "right-one")]);
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    let error = refused(&url(":hidden@"), options()).await;
    assert!(matches!(&error, OpenError::Unreachable { message, .. } if message.contains("user or password is wrong")), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
    let error = refused(&url(""), options()).await;
    assert!(error.to_string().contains("NOAUTH") || error.to_string().contains("Authentication required"), "{error}");
    let store = open(&url(":right-one@"), options()).await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    assert!(!store.label().contains("right-one"));
}

#[tokio::test]
async fn settings_that_lose_records() {
    let check = async |settings: &[(&str, &str)], part: &str| {
        let server = Server::with(settings);
        let error = refused(&server.url(), options()).await;
        assert!(
            matches!(&error, OpenError::Unfit { message, .. } if message.contains(part) && message.contains("allow_volatile")),
            "{error}"
        );
        let store = open(&server.url(), RedisOptions { allow_volatile: true, ..options() }).await;
        append(&store, vec![write(1, 0)]).await.expect("the loss was accepted");
        assert!(store.risks().iter().any(|risk| risk.contains(part)), "{:?}", store.risks());
    };
    check(&[], "appendonly is no").await;
    check(&[("appendonly", "yes"), ("appendfsync", "everysec")], "appendfsync is everysec").await;
    check(&[("appendonly", "yes"), ("appendfsync", "no")], "appendfsync is no").await;
    check(&[DURABLE[0], DURABLE[1], ("no-appendfsync-on-rewrite", "yes")], "no-appendfsync-on-rewrite is yes").await;
    let server = Server::durable();
    assert_eq!(server.open().await.risks(), Vec::<String>::new());
}

/// Eviction takes single keys out of the middle: no allowance makes that a ledger.
#[tokio::test]
async fn a_server_that_evicts() {
    let server = Server::with(&[DURABLE[0], DURABLE[1], ("maxmemory-policy", "allkeys-lru")]);
    let error = refused(&server.url(), RedisOptions { allow_volatile: true, ..options() }).await;
    assert!(matches!(&error, OpenError::Unfit { message, .. } if message.contains("allkeys-lru")), "{error}");
}

#[tokio::test]
async fn a_replica() {
    let master = Server::durable();
    let replica = Server::with(&[DURABLE[0], DURABLE[1], ("replicaof", &format!("127.0.0.1 {}", master.port()))]);
    let error = refused(&replica.url(), options()).await;
    assert!(matches!(&error, OpenError::Unfit { message, .. } if message.contains("replica")), "{error}");
    let store = crate::eventually("the replica is known", async || {
        let store = master.open().await;
        (!store.risks().is_empty()).then_some(store)
    })
    .await;
    assert!(store.risks()[0].contains("failover"), "{:?}", store.risks());
    append(&store, vec![write(1, 0)]).await.expect("a risk is no refusal");
}

/// Managed servers forbid CONFIG: then it cannot be told, and that is said.
#[tokio::test]
async fn a_user_with_few_rights() {
    let server = Server::durable();
    server.cli(&["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-config"]);
    server.cli(&["acl", "setuser", "less", "on", ">pw", "~*", "&*", "+@all", "-zadd"]);
    let url = |user: &str| format!("redis://{user}:pw@127.0.0.1:{}", server.port());
    let error = refused(&url("app"), options()).await;
    assert!(matches!(&error, OpenError::Unfit { message, .. } if message.contains("CONFIG GET is refused (NOPERM")), "{error}");
    let store = open(&url("app"), RedisOptions { allow_volatile: true, ..options() }).await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    let error = refused(&url("less"), options()).await;
    assert!(matches!(&error, OpenError::Unfit { .. }), "{error}");
}

#[tokio::test]
async fn keys_of_someone_else() {
    let server = Server::durable();
    let check = async |command: &[&str]| {
        server.cli(&["flushall"]);
        server.cli(command);
        let error = refused(&server.url(), options()).await;
        assert!(matches!(error, OpenError::NotALedger { .. }), "{command:?}: {error:?}");
        assert_eq!(server.cli(&["dbsize"]), "1", "nothing was added");
    };
    check(&["set", "{counterfoil}:meta", "x"]).await;
    check(&["hset", "{counterfoil}:meta", "product", "other", "format", "1"]).await;
    check(&["hset", "{counterfoil}:meta", "name", "x"]).await;
    check(&["set", "{counterfoil}:records", "x"]).await;
    check(&["set", "{counterfoil}:mine", "x"]).await;
    server.cli(&["flushall"]);
    server.cli(&["set", "mine", "x"]);
    server.cli(&["set", "{counterfoil2}:mine", "x"]);
    drop(server.open().await);
}

#[tokio::test]
async fn another_format() {
    let server = Server::durable();
    drop(server.open().await);
    server.cli(&["hset", "{counterfoil}:meta", "format", "4"]);
    let error = refused(&server.url(), options()).await;
    assert!(matches!(error, OpenError::TooNew { found: 4, supported: 3, .. }), "{error:?}");
    server.cli(&["hset", "{counterfoil}:meta", "format", "1"]);
    let error = refused(&server.url(), options()).await;
    assert!(matches!(&error, OpenError::Unfit { message, .. } if message.contains("format 1")), "{error:?}");
}

#[tokio::test]
async fn many_open_a_new_ledger_at_once() {
    let server = Server::durable();
    for _ in 0..10 {
        let url = server.fresh_url();
        let opening: Vec<_> = (0..10)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url, options()).await })
            })
            .collect();
        let mut stores = Vec::new();
        for store in opening {
            stores.push(store.await.expect("opened"));
        }
        for (expected, store) in stores.iter().enumerate() {
            append(store, vec![write(1, expected as u64)]).await.expect("all opened the same ledger");
        }
    }
}

#[tokio::test]
async fn ledgers_are_apart() {
    let server = Server::durable();
    let urls = [server.fresh_url(), server.fresh_url(), format!("{}/1", server.url()), server.url()];
    for url in &urls {
        let store = open(url, options()).await;
        assert_eq!(load(&store, 1).await.version.0, 0);
        append(&store, vec![write(1, 0)]).await.expect("an append");
    }
}
