//! How the demo talks to its bank: one request on one connection.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The bank from outside.
#[derive(Debug, Clone)]
pub struct Teller {
    url: String,
}

/// What the bank's books say of one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub charges: u64,
    pub cents: u64,
}

impl Teller {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn count(&self, order: &str) -> anyhow::Result<Count> {
        let answer = self.get(&format!("/count?order={order}")).await?;
        let number = |name: &str| answer[name].as_u64().with_context(|| format!("the bank's count has no {name}: {answer}"));
        Ok(Count { charges: number("charges")?, cents: number("cents")? })
    }

    /// From now on answers wait. Gives the number of requests so far.
    pub async fn hold(&self) -> anyhow::Result<u64> {
        let answer = self.send(Method::POST, "/desk/hold", None, Value::Null).await?;
        answer["arrivals"].as_u64().with_context(|| format!("the bank did not say what arrived: {answer}"))
    }

    pub async fn release(&self) -> anyhow::Result<()> {
        self.send(Method::POST, "/desk/release", None, Value::Null).await.map(drop)
    }

    /// The request that came after the first `seen` ones; waits for it.
    pub async fn arrival(&self, seen: u64) -> anyhow::Result<String> {
        let answer = self.get(&format!("/desk/arrivals?after={seen}")).await?;
        answer["request"].as_str().map(str::to_owned).with_context(|| format!("the bank did not say what arrived: {answer}"))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, None, Value::Null).await
    }

    pub async fn send(&self, method: Method, path: &str, key: Option<&str>, body: Value) -> anyhow::Result<Value> {
        let asked = format!("{method} {path}");
        let address = self.url.strip_prefix("http://").unwrap_or(&self.url);
        let stream = TcpStream::connect(address).await.with_context(|| format!("the bank at {address} cannot be reached"))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", address);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let response = sender.send_request(request.body(Full::new(body))?).await.with_context(|| format!("{asked}: no answer"))?;
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{asked}: the bank answered {status}: {}", String::from_utf8_lossy(&text));
        }
        serde_json::from_slice(&text).with_context(|| format!("{asked}: the bank answered no JSON"))
    }
}
