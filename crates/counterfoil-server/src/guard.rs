//! What stands before every handler: the Host and Origin of the request, then its token.
//!
//! A page in someone's browser can be made to send requests here under a name that it controls. A name is therefore only answered to when it
//! was told; an address cannot be rebound and is.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode, Uri};

use crate::problem::Problem;
use crate::who::{Access, Who};

/// Needs no token: whether the server lives and is ready, and what can be asked of it, is no secret, and whoever asks that has none yet.
pub const OPEN: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/docs"];

pub struct Guard {
    pub hosts: Hosts,
    pub access: Access,
}

impl Guard {
    /// Who asks; nobody in particular where no token is needed.
    pub async fn admit(&self, headers: &HeaderMap, uri: &Uri) -> Result<Option<Who>, Problem> {
        self.hosts.check(headers, uri)?;
        if OPEN.contains(&uri.path()) {
            return Ok(None);
        }
        self.access.authenticate(bearer(headers)?).await.map(Some)
    }
}

/// Names beside `localhost` and addresses that this server answers to.
pub struct Hosts(pub Vec<String>);

impl Hosts {
    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let misdirected = |detail: String| Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail));
        let mut hosts = headers.get_all(HOST).iter();
        let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
        // In absolute form the target names the host, and goes before the header.
        let host = match (uri.authority().map(|authority| authority.as_str()), host) {
            (Some(target), _) => target,
            (None, Some(host)) if more.is_none() => host,
            _ => return Err(Problem::bad("wrong_host", "exactly one Host header is needed")),
        };
        if !self.answers_to(name_of(host)) {
            return misdirected(format!("this server does not answer to the host {host:?}: start it with --host, or use its address"));
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or("?");
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        if authority.eq_ignore_ascii_case(host) || (self.0.iter().any(|known| known.eq_ignore_ascii_case(name_of(authority)))) {
            return Ok(());
        }
        Err(Problem::new(StatusCode::FORBIDDEN, "cross_origin", format!("pages of {origin:?} may not send requests here")))
    }

    fn answers_to(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.');
        let address = || name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
        name.eq_ignore_ascii_case("localhost") || self.0.iter().any(|known| known.eq_ignore_ascii_case(name)) || address()
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if host[colon + 1..].bytes().all(|b| b.is_ascii_digit()) && !host[..colon].ends_with(':') => &host[..colon],
        _ => host,
    }
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(unauthorized("Authorization was sent more than once"));
    }
    let text = value.to_str().map_err(|_| unauthorized("Authorization is not ASCII text"))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(Some(token.trim())),
        _ => Err(unauthorized("send `Authorization: Bearer TOKEN`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(http::HeaderName, &str)]) -> Result<(), &'static str> {
        let hosts = Hosts(vec!["ledger.example.com".into()]);
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        hosts.check(&headers, &Uri::from_static("/v1/tools")).map_err(|problem| problem.code)
    }

    #[test]
    fn names_are_answered_to_when_told_and_addresses_always() {
        for good in
            ["localhost", "localhost:7700", "127.0.0.1:7700", "[::1]:7700", "[::1]", "10.0.0.7", "LEDGER.example.com:80", "localhost."]
        {
            assert_eq!(check(&[(HOST, good)]), Ok(()), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "ledger.example.com.evil.example:7700", "", "127.0.0.1.nip.io", "a:b:c"] {
            assert_eq!(check(&[(HOST, bad)]), Err("wrong_host"), "{bad}");
        }
        assert_eq!(check(&[]), Err("wrong_host"));
    }

    #[test]
    fn only_pages_of_this_server_may_ask() {
        assert_eq!(check(&[(HOST, "localhost:7700"), (ORIGIN, "http://localhost:7700")]), Ok(()));
        assert_eq!(check(&[(HOST, "127.0.0.1:7700"), (ORIGIN, "https://ledger.example.com")]), Ok(()));
        for bad in ["http://evil.example", "null", "http://localhost:7701", "http://localhost", "garbage"] {
            assert_eq!(check(&[(HOST, "localhost:7700"), (ORIGIN, bad)]), Err("cross_origin"), "{bad}");
        }
    }
}
