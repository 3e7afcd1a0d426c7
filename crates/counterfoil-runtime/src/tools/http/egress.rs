//! Where a request may go.
//!
//! A host the operator wrote (literally, or by an environment variable) is allowed as it is. Any other, one that an argument or
//! a redirect names, must be on the allow list, and then neither private, loopback nor link-local: decided on the address that is connected to,
//! by a resolver that drops the others, so that a name which resolves differently a second time gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use counterfoil_core::Failure;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;
use url::{Host, Url};

use crate::spec::Egress;

/// What an allowed target may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Anywhere,
    PublicOnly,
}

/// Whether `url` may be connected to, and with which resolver. `origin` is what the operator wrote.
pub(super) fn check(egress: &Egress, origin: Option<&Url>, url: &Url) -> Result<Reach, Failure> {
    let host = url.host_str().unwrap_or_default();
    if !egress.strict && origin.is_some_and(|origin| same_origin(origin, url)) {
        return Ok(Reach::Anywhere);
    }
    if !egress.allow.iter().any(|pattern| matches(pattern, host)) {
        return Err(refused(format!(
            "{host} comes from an argument, a redirect or a registered tool and is not on the egress allow list; nothing was sent there"
        )));
    }
    if egress.allow_private {
        return Ok(Reach::Anywhere);
    }
    let address = match url.host() {
        Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
        Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
        _ => None,
    };
    match address {
        Some(address) if !is_public(address) => Err(refused(NotPublic { host: host.to_owned() }.to_string())),
        _ => Ok(Reach::PublicOnly),
    }
}

pub(super) fn refused(message: String) -> Failure {
    Failure::new("egress_refused", message)
}

/// The same host and port; or the same host from http to https, each at its usual port.
fn same_origin(origin: &Url, url: &Url) -> bool {
    let upgrade = (origin.scheme(), url.scheme()) == ("http", "https") && origin.port().is_none() && url.port().is_none();
    let port = origin.scheme() == url.scheme() && origin.port_or_known_default() == url.port_or_known_default();
    origin.host() == url.host() && (port || upgrade)
}

/// `api.example.com`, or `*.example.com` for any host below it.
fn matches(pattern: &str, host: &str) -> bool {
    let tidy = |name: &str| name.trim_end_matches('.').trim_matches(['[', ']']).to_ascii_lowercase();
    let (pattern, host) = (tidy(pattern), tidy(host));
    match pattern.strip_prefix("*.") {
        Some(parent) => host.strip_suffix(parent).is_some_and(|below| below.len() > 1 && below.ends_with('.')),
        None => pattern == host,
    }
}

#[derive(Debug, Error)]
#[error("{host} is or resolves to a private, loopback or link-local address; nothing was sent there")]
pub(super) struct NotPublic {
    host: String,
}

/// Resolves names to public addresses only.
pub(super) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<_> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic { host: name.as_str().to_owned() }.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!((a, b, c), (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) | (240..=255, ..));
    !(special
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let low = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // An IPv4 address in another coat: mapped, compatible, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, lower] => is_public_v4(low(high, lower)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, lower] => is_public_v4(low(high, lower)),
        [0x2002, high, lower, ..] => is_public_v4(low(high, lower)),
        // Local NAT64, Teredo, documentation.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] | [0x2001, 0xdb8, ..] => false,
        // Unique local, link-local, site-local, multicast.
        _ => !matches!(s[0], 0xfc00..=0xfdff | 0xfe80..=0xfeff | 0xff00..=0xffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_public() {
        let check = |text: &str, public: bool| assert_eq!(is_public(text.parse().unwrap()), public, "{text}");
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            check(private, false);
        }
        for public in
            ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "198.20.0.1", "::ffff:1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"]
        {
            check(public, true);
        }
    }

    #[test]
    fn who_may_be_reached() {
        let origin = Url::parse("http://127.0.0.1:81/").unwrap();
        let egress =
            Egress { allow: vec!["api.example.com".into(), "*.example.org".into(), "10.0.0.1".into(), "::1".into()], ..Egress::default() };
        let check = |url: &str, expected: Option<Reach>| {
            let url = Url::parse(url).unwrap();
            assert_eq!(check(&egress, Some(&origin), &url).ok(), expected, "{url}");
        };
        check("http://127.0.0.1:81/x", Some(Reach::Anywhere));
        check("http://127.0.0.1:82/x", None);
        check("http://0x7f.1:82/x", None);
        check("https://API.example.com./", Some(Reach::PublicOnly));
        check("https://api.example.com@evil.example/", None);
        check("https://api.example.com.evil.example/", None);
        check("https://a.b.example.org/", Some(Reach::PublicOnly));
        check("https://example.org/", None);
        check("https://badexample.org/", None);
        check("http://10.0.0.1/", None);
        check("http://[::1]/", None);
        check("https://other.example/", None);
    }

    #[test]
    fn what_a_registered_tool_writes_is_no_operators_word() {
        let url = Url::parse("http://127.0.0.1:81/").unwrap();
        let strict = Egress { strict: true, ..Egress::default() };
        assert_eq!(check(&strict, Some(&url), &url).unwrap_err().code, "egress_refused");
        let allowed = Egress { allow: vec!["127.0.0.1".into()], ..strict };
        assert_eq!(check(&allowed, Some(&url), &url).unwrap_err().code, "egress_refused", "it is not public");
        assert_eq!(check(&Egress { allow_private: true, ..allowed }, Some(&url), &url).unwrap(), Reach::Anywhere);
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_not_public() {
        let error = PublicResolver.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert!(error.is::<NotPublic>(), "{error}");
    }
}
