//! The demo's bank: a real HTTP server in a process of its own, and an ordinary one.
//!
//! It writes down the `Idempotency-Key` of each charge but does not look at it: ask twice, pay twice. What it counts is the truth of the demo.
//! Two things no bank has: it can be told to hold its answers, and to say what arrived. Both let the demo kill a worker at an exact
//! moment without a sleep. It ends when its parent does.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::output;

/// A charge is a hundred bytes; nobody needs more.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// Requests that are remembered. The demo makes a dozen.
const ARRIVALS_MAX: usize = 1000;

/// Prints where it listens, then serves until the process ends.
pub async fn serve() -> anyhow::Result<Infallible> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the bank found no port to listen on")?;
    output::data(format_args!("http://{}", listener.local_addr()?));
    // Lives as long as the process: connections need no shared ownership.
    let bank: &'static Bank = Box::leak(Box::default());
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let service = service_fn(move |request| async move { Ok::<_, Infallible>(bank.answer(request).await) });
            // A connection that breaks is the end of it: the demo breaks some on purpose.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

#[derive(Default)]
struct Bank {
    charges: Mutex<Vec<Charge>>,
    /// The request line of all that customers asked, in order.
    arrivals: watch::Sender<Vec<String>>,
    holding: watch::Sender<bool>,
}

#[derive(Debug, Clone, Serialize)]
struct Charge {
    id: String,
    order: String,
    customer: String,
    cents: u64,
    /// As it was sent.
    key: Option<String>,
    refunded: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    order: String,
    customer: String,
    cents: u64,
}

#[derive(Deserialize)]
struct Refund {
    charge: String,
}

impl Bank {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, body) = match self.route(request).await {
            Ok(body) => (StatusCode::OK, body),
            Err((status, why)) => (status, json!({ "error": why })),
        };
        let mut response = Response::new(Full::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
        response
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Value, (StatusCode, String)> {
        let path = request.uri().path().to_owned();
        let query = query(request.uri().query().unwrap_or_default());
        let line = format!("{} {}", request.method(), request.uri());
        match (request.method(), path.as_str()) {
            (&Method::POST, "/charges") => {
                let key = request.headers().get("idempotency-key").and_then(|v| v.to_str().ok()).map(str::to_owned);
                let charge = self.charge(read(request).await?, key);
                self.answered_when_released(line).await;
                Ok(json!(charge))
            }
            (&Method::GET, "/charges") => {
                let found = self.find(&query);
                self.answered_when_released(line).await;
                Ok(json!({ "data": found }))
            }
            (&Method::POST, "/refunds") => self.refund(&read::<Refund>(request).await?.charge),
            (&Method::GET, "/count") => {
                let found = self.find(&query);
                Ok(json!({ "charges": found.len(), "cents": found.iter().map(|c| c.cents).sum::<u64>() }))
            }
            (&Method::POST, "/desk/hold") => {
                self.holding.send_replace(true);
                Ok(json!({ "arrivals": self.arrivals.borrow().len() }))
            }
            (&Method::POST, "/desk/release") => {
                self.holding.send_replace(false);
                Ok(json!({}))
            }
            (&Method::GET, "/desk/arrivals") => self.arrival(&query).await,
            _ => Err((StatusCode::NOT_FOUND, format!("this bank does not know {line}"))),
        }
    }

    fn charge(&self, new: NewCharge, key: Option<String>) -> Charge {
        let NewCharge { order, customer, cents } = new;
        let mut charges = self.charges();
        let charge = Charge { id: format!("ch_{}", charges.len() + 1), order, customer, cents, key, refunded: false };
        charges.push(charge.clone());
        charge
    }

    fn refund(&self, id: &str) -> Result<Value, (StatusCode, String)> {
        let mut charges = self.charges();
        let charge = charges.iter_mut().find(|c| c.id == id).ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no charge {id}")))?;
        charge.refunded = true;
        Ok(json!(charge))
    }

    fn find(&self, query: &HashMap<String, String>) -> Vec<Charge> {
        let fits = |wanted: Option<&String>, has: Option<&str>| wanted.is_none_or(|wanted| has == Some(wanted));
        let charges = self.charges();
        let found = charges.iter().filter(|c| fits(query.get("key"), c.key.as_deref()) && fits(query.get("order"), Some(&c.order)));
        found.cloned().collect()
    }

    /// What was asked for is done by now; the answer waits for as long as answers are held.
    async fn answered_when_released(&self, line: String) {
        let mut holding = self.holding.subscribe();
        self.arrivals.send_modify(|arrivals| {
            if arrivals.len() < ARRIVALS_MAX {
                arrivals.push(line);
            }
        });
        // The sender lives in the bank: it is never closed.
        drop(holding.wait_for(|held| !held).await);
    }

    /// Answers when the n-th request has arrived.
    async fn arrival(&self, query: &HashMap<String, String>) -> Result<Value, (StatusCode, String)> {
        let wrong = || (StatusCode::BAD_REQUEST, "?after= is a number".to_owned());
        let after: usize = query.get("after").and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
        let mut arrivals = self.arrivals.subscribe();
        let seen = arrivals.wait_for(|all| after < all.len()).await;
        let line = seen.ok().and_then(|all| all.get(after).cloned());
        Ok(json!({ "request": line }))
    }

    fn charges(&self) -> MutexGuard<'_, Vec<Charge>> {
        // A list that is whole at every moment.
        self.charges.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Without percent-decoding: keys and orders are plain letters, digits and dashes.
fn query(text: &str) -> HashMap<String, String> {
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn read<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T, (StatusCode, String)> {
    let wrong = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await.map_err(|e| wrong(e.to_string()))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|e| wrong(e.to_string()))
}
