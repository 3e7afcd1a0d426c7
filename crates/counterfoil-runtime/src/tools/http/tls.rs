//! How TLS is spoken: rustls with ring, and the certificates this machine trusts.

use std::sync::{Arc, LazyLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

/// Read once per process: it takes a while, and every tool trusts the same.
pub fn config() -> ClientConfig {
    static CONFIG: LazyLock<ClientConfig> = LazyLock::new(load);
    CONFIG.clone()
}

fn load() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring speaks both versions of TLS that rustls does")
    };
    let mut config = match builder().with_platform_verifier() {
        Ok(trusting) => trusting.with_no_client_auth(),
        // A machine without certificates can still speak plain HTTP. It trusts nobody, so every TLS handshake fails, and says so.
        Err(error) => {
            tracing::warn!(%error, "no trusted certificates were found: https tools will not connect");
            builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
