//! One request and its answer.
//!
//! Must stay true: what changes the world is sent at most once by this file. The client neither retries nor follows redirects nor uses a
//! proxy of the environment; a GET or HEAD is redirected by hand, each hop checked like the first. A write that may not be repeated never
//! goes out on a connection that was idle: if the server closed it meanwhile, nobody could tell whether the request was read.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use counterfoil_core::Failure;
use http::Method;
use reqwest::header::{ACCEPT, HeaderMap, LOCATION};
use reqwest::{Client, Response};
use url::Url;

use super::address;
use super::classify::{Class, status_failure};
use super::egress::{self, PublicResolver, Reach};

use crate::spec::{Egress, StatusClasses};
use crate::tools::Broken;
use crate::tools::output::Output;

/// Longest wait for a connection. Shorter than the attempt, so that a host that does not answer is known not to have been reached.
const CONNECT_MS_MAX: u64 = 10_000;
/// Idle connections kept for requests that may be repeated.
const IDLE_PER_HOST_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct Exchange<'a> {
    pub clients: &'a Clients,
    pub egress: &'a Egress,
    pub classes: &'a StatusClasses,
    /// What the operator wrote as host.
    pub origin: Option<&'a Url>,
    pub redirects_max: u32,
}

impl Exchange<'_> {
    /// The head of the answer, after redirects.
    pub(super) async fn send(&self, request: Request) -> Result<Response, Broken> {
        let Request { method, mut url, mut headers, body } = request;
        let follows = method == Method::GET || method == Method::HEAD;
        let mut hops = 0;
        loop {
            let reach = egress::check(self.egress, self.origin, &url).map_err(Broken::Before)?;
            let client = self.clients.get(reach).map_err(|e| Broken::Before(no_client(&e)))?;
            let mut builder = client.request(method.clone(), url.clone()).headers(headers.clone());
            if let Some(body) = &body {
                builder = builder.body(body.clone());
            }
            let response = builder.send().await?;
            let status = response.status().as_u16();
            let location = response.headers().get(LOCATION).filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308));
            let Some(location) = location.filter(|_| follows && self.classes.explicit(status).is_none() && self.redirects_max > 0) else {
                return Ok(response);
            };
            hops += 1;
            if hops > self.redirects_max {
                let failure = status_failure(Class::Rejection, status, response.headers(), &method);
                return Err(Broken::Before(Failure { code: "redirects_exhausted".into(), ..failure }));
            }
            let next = location.to_str().ok().and_then(|location| url.join(location).ok());
            let next = next
                .ok_or_else(|| Failure::new("url_invalid", "redirected to what is not an address"))
                .and_then(|next| address::parse(next.as_str()));
            let next = next.map_err(Broken::Before)?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(Broken::Before(egress::refused("redirected from https to http; not followed".into())));
            }
            if next.origin() != url.origin() {
                // Whatever was meant for one server (tokens, keys) is not shown to another.
                headers =
                    headers.into_iter().filter_map(|(name, value)| name.filter(|name| name == ACCEPT).map(|name| (name, value))).collect();
            }
            url = next;
        }
    }
}

fn no_client(error: &reqwest::Error) -> Failure {
    Failure::new("client_failed", format!("no HTTP client could be made: {error}"))
}

/// Reads the body into `output`. An error: it broke off.
pub(super) async fn read_body(response: &mut Response, output: &mut Output) -> Result<(), Broken> {
    while let Some(chunk) = response.chunk().await? {
        if !output.push(&chunk) {
            break;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    /// Each request has its own.
    Fresh,
    Pooled,
}

/// One client per resolver, made when first needed: loading the trusted certificates takes a while.
#[derive(Debug)]
pub(super) struct Clients {
    connections: Connections,
    connect_timeout: Duration,
    anywhere: OnceLock<Client>,
    public_only: OnceLock<Client>,
}

impl Clients {
    pub(super) fn new(connections: Connections, timeout: Duration) -> Self {
        let connect_timeout = (timeout * 3 / 4).min(Duration::from_millis(CONNECT_MS_MAX));
        Self { connections, connect_timeout, anywhere: OnceLock::new(), public_only: OnceLock::new() }
    }

    fn get(&self, reach: Reach) -> Result<&Client, reqwest::Error> {
        let cell = match reach {
            Reach::Anywhere => &self.anywhere,
            Reach::PublicOnly => &self.public_only,
        };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = self.build(reach)?;
        Ok(cell.get_or_init(|| client))
    }

    fn build(&self, reach: Reach) -> Result<Client, reqwest::Error> {
        // Whoever installed one before decided on it; any provider will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("counterfoil/", env!("CARGO_PKG_VERSION")))
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(self.connect_timeout)
            .pool_max_idle_per_host(match self.connections {
                Connections::Fresh => 0,
                Connections::Pooled => IDLE_PER_HOST_MAX,
            });
        if reach == Reach::PublicOnly {
            builder = builder.dns_resolver(PublicResolver);
        }
        builder.build()
    }
}
