//! TLS: what is encrypted, and who is believed.

use std::path::Path;
use std::process::Command;

use counterfoil_store::OpenError;
use counterfoil_store::postgres::{Postgres, PostgresOptions};

use crate::server::{PASSWORD, Server, USER};
use crate::{append, write};

/// Its own authority, and a certificate for `localhost`.
fn certificates(folder: &Path) {
    let openssl = |args: &[&str]| {
        let made =
            Command::new("openssl").args(args).current_dir(folder).output().expect("openssl runs: install Debian's package `openssl`");
        assert!(made.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"];
    let authority = ["req", "-x509", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&authority[..], &key[..]].concat());
    let names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    let own =
        ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.pem"];
    openssl(&[&own[..], &names[..], &key[..]].concat());
    let stranger = ["req", "-x509", "-subj", "/CN=stranger", "-keyout", "stranger.key", "-out", "stranger.pem"];
    openssl(&[&stranger[..], &key[..]].concat());
}

#[tokio::test]
async fn encrypts_and_believes_as_told() {
    let files = tempfile::tempdir().expect("a directory");
    certificates(files.path());
    let server = Server::start().await;
    server.offer_tls(files.path()).await;
    let encrypted = async |url: &str| {
        let store = Postgres::open(url, PostgresOptions::default()).await?;
        append(&store, Vec::new()).await.expect("the store serves");
        let sql = "SELECT count(*) FILTER (WHERE s.ssl), count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'counterfoil'";
        let row = server.client().await.query_one(sql, &[]).await.expect("a list");
        let (ssl, all): (i64, i64) = (row.get(0), row.get(1));
        assert!(ssl == 0 || ssl == all, "{ssl} of {all} are encrypted");
        Ok::<_, OpenError>(ssl > 0)
    };
    let url = |host: &str, query: &str| format!("postgres://{USER}:{PASSWORD}@{host}:{}/postgres?{query}", server.port);
    let roots = |file: &str| format!("sslmode=verify-full&sslrootcert={}", files.path().join(file).display());
    let check = async |url: String, expected: bool| {
        assert_eq!(encrypted(&url).await.unwrap_or_else(|error| panic!("{error}")), expected, "{url}");
        server.quiet().await;
    };
    check(url("127.0.0.1", "sslmode=disable"), false).await;
    check(url("127.0.0.1", ""), true).await;
    check(url("127.0.0.1", "sslmode=prefer"), true).await;
    check(url("127.0.0.1", "sslmode=require"), true).await;
    check(url("localhost", &roots("ca.pem")), true).await;
    let refused = async |url: String| match encrypted(&url).await {
        Err(OpenError::Unreachable { message, .. }) => assert!(message.contains("certificate"), "{message}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{url} was believed"),
    };
    refused(url("127.0.0.1", &roots("ca.pem"))).await;
    refused(url("localhost", &roots("stranger.pem"))).await;
    refused(url("localhost", "sslmode=verify-full")).await;
    let store = Postgres::open(&url("localhost", &roots("ca.pem")), PostgresOptions::default()).await.expect("believed");
    append(&store, vec![write(1, 0)]).await.expect("a new stream");
}
