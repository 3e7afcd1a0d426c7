//! `rediss://`: the server's certificate must be one that this machine trusts.

use std::process::Command;

use counterfoil_store::OpenError;
use counterfoil_store::redis::Redis;

use crate::server::{DURABLE, Server, free_port, open, options};
use crate::{append, load, write};

const URL: &str = "COUNTERFOIL_TEST_TLS_URL";

#[tokio::test]
async fn a_certificate_is_checked() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    std::fs::write(path("cert.pem"), certified.cert.pem()).expect("a file");
    std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).expect("a file");
    let port = free_port().to_string();
    let _server = Server::with(&[
        DURABLE[0],
        DURABLE[1],
        ("tls-port", &port),
        ("tls-cert-file", &path("cert.pem")),
        ("tls-key-file", &path("key.pem")),
        ("tls-ca-cert-file", &path("cert.pem")),
        ("tls-auth-clients", "no"),
    ]);
    let url = format!("rediss://localhost:{port}");
    match Redis::open(&url, options()).await {
        Err(OpenError::Unreachable { message, .. }) => assert!(message.contains("TLS"), "{message}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("nobody vouches for the server"),
    }
    // What a process trusts is read once, so another process trusts the certificate.
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tls::a_process_that_trusts_it", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", path("cert.pem"))
        .env(URL, &url)
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
}

#[tokio::test]
#[ignore = "run by the test above, with another trust"]
async fn a_process_that_trusts_it() {
    let store = open(&std::env::var(URL).expect("the address"), options()).await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    assert_eq!(load(&store, 1).await.version.0, 1);
}
