//! `/docs`: the document for people, as one page. Put together from `/openapi.json` once, so it says nothing that is not there.
//!
//! The page needs nothing but itself: what it may load is nothing, and what it may run is the one script it holds.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use counterfoil_core::ids::Digest32;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Uri};

use crate::openapi::document;

mod curl;
mod html;
mod page;
mod schema;

const STYLE: &str = include_str!("docs/style.css");
const SCRIPT: &str = include_str!("docs/script.js");

/// Where the page says the server's own address.
const ADDRESS: &str = "http://counterfoil.invalid";

static PAGE: LazyLock<String> = LazyLock::new(|| page::page(document()));

static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (style, script) = (digest(STYLE), digest(SCRIPT));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("plain ASCII")
});

pub async fn docs(uri: Uri, headers: HeaderMap) -> Response {
    let host = uri.authority().map(|authority| authority.as_str()).or_else(|| headers.get(HOST)?.to_str().ok()).unwrap_or("localhost");
    // The guard lets only hosts through that it knows; it is escaped all the same, here and for the shell.
    let address = format!("http://{}", html::escaped(&host.replace(['\'', '\\'], "")));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_SECURITY_POLICY, POLICY.clone()),
    ];
    (headers, PAGE.replace(ADDRESS, &address)).into_response()
}

/// SHA-256 as a policy writes it.
fn digest(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in Digest32::of(text.as_bytes()).0.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let letters = (0..4).map(|i| LETTERS[(bits >> (18 - 6 * i)) as usize & 63] as char);
        out.extend(letters.take(three.len() + 1));
    }
    out.push('=');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_browsers_expect_it() {
        assert_eq!(digest(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    /// Nothing is loaded from anywhere, and every link within the page leads somewhere.
    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = PAGE.as_str();
        for loads in [" src=", "<link", "@import", "url(", "<iframe", " style=", " onclick="] {
            assert!(!page.contains(loads), "{loads}");
        }
        let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        for to in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let known = to == "/openapi.json" || to.strip_prefix('#').is_some_and(|id| ids.contains(&id));
            assert!(known, "{to} leads nowhere");
        }
        assert_eq!(ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len(), "an id is there twice");
    }

    #[test]
    fn every_operation_and_every_code_is_on_the_page() {
        for (path, item) in document()["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                let Some(id) = operation["operationId"].as_str() else { continue };
                assert!(PAGE.contains(&format!("<article id=\"{id}\"")), "{path} {id}");
            }
        }
        for example in document()["components"]["examples"].as_object().unwrap().values() {
            let Some(code) = example["value"]["code"].as_str() else { continue };
            assert!(PAGE.contains(&format!("<dt id=\"code-{code}\"")), "{code}");
        }
    }
}
