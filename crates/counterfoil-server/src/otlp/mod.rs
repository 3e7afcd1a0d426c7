//! Spans to a collector: OTLP over HTTP, as JSON, through the same HTTP client and TLS as everything else.
//!
//! Must stay true: it never holds up a call and never fails one. A span that ended goes into a bounded queue or is dropped and counted; a thread of its
//! own sends what waits. A batch that the collector does not take is dropped and counted: there is nothing to lose here that the ledger
//! does not have.
//!
//! Written here and not taken from the OpenTelemetry SDK, because the runtime already decides the ids (they go downstream as `traceparent`), and
//! because what was dropped must be seen.

mod layer;
mod settings;
mod wire;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use counterfoil_runtime::observe;
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

pub use self::layer::{Otlp, filter};
pub use self::settings::Settings;
use self::wire::{Resource, Span};

/// Spans that may wait. At some 500 bytes each, a megabyte.
pub const QUEUE_MAX: usize = 2048;
/// Spans in one request.
pub const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for the others.
const GATHERED_FOR: Duration = Duration::from_secs(1);
/// Longest wait for a collector.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait for the last batch when the program ends.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);
/// A collector that is down is one line in the log, not one per batch.
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum StartError {
    #[error(
        "the OTLP endpoint {url:?} is not an http or https address; set OTEL_EXPORTER_OTLP_ENDPOINT to one, e.g. http://localhost:4318"
    )]
    Endpoint { url: String },
    #[error("the OTLP header {name:?}, or its value, cannot be sent; correct OTEL_EXPORTER_OTLP_HEADERS")]
    Header { name: String },
    #[error("no HTTP client could be made for OTLP: {0}")]
    Client(reqwest::Error),
    #[error("no thread could be started for OTLP: {0}")]
    Thread(#[from] std::io::Error),
}

/// Keeps the export going. Dropped, it sends what waits, for at most two seconds.
pub struct Guard {
    closing: Option<oneshot::Sender<()>>,
    ended: Receiver<()>,
}

/// The layer goes into the program's subscriber, with [`filter`]; the guard lives as long as the program.
pub fn start(settings: Settings) -> Result<(Otlp, Guard), StartError> {
    let collector = Collector::new(settings)?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let (closing, closed) = oneshot::channel();
    let (alive, ended) = channel();
    std::thread::Builder::new().name("counterfoil-otlp".into()).spawn(move || {
        tokio.block_on(export(waiting, closed, collector));
        drop(alive);
    })?;
    Ok((Otlp::new(queue), Guard { closing: Some(closing), ended }))
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Either is the thread's end: it was told to, or it had ended.
        drop(self.closing.take());
        let _ = self.ended.recv_timeout(FLUSHED_WITHIN);
    }
}

async fn export(mut waiting: mpsc::Receiver<Span>, mut closed: oneshot::Receiver<()>, mut collector: Collector) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        let ends = tokio::select! {
            _ = &mut closed => true,
            more = gather(&mut waiting, &mut batch) => !more,
        };
        if ends {
            break;
        }
        collector.send(&mut batch).await;
    }
    while let Ok(span) = waiting.try_recv() {
        batch.push(span);
        if batch.len() == BATCH_MAX {
            collector.send(&mut batch).await;
        }
    }
    collector.send(&mut batch).await;
}

/// Fills `batch`. False: nobody will put anything into the queue any more.
async fn gather(waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
    if batch.is_empty() && waiting.recv_many(batch, BATCH_MAX).await == 0 {
        return false;
    }
    let filling = async {
        while batch.len() < BATCH_MAX {
            if waiting.recv_many(batch, BATCH_MAX - batch.len()).await == 0 {
                return;
            }
        }
    };
    // Either end is the batch.
    let _ = tokio::time::timeout(GATHERED_FOR, filling).await;
    true
}

struct Collector {
    client: Client,
    url: reqwest::Url,
    resource: Resource,
    told: Option<Instant>,
}

impl Collector {
    fn new(settings: Settings) -> Result<Self, StartError> {
        let url = reqwest::Url::parse(&settings.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or(StartError::Endpoint { url: settings.url })?;
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in settings.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(&value).ok());
            let (header, mut value) = parsed.ok_or(StartError::Header { name })?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let client = Client::builder()
            .user_agent(concat!("counterfoil/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(counterfoil_runtime::tools::tls_config())
            .timeout(SENT_WITHIN)
            .build()
            .map_err(StartError::Client)?;
        Ok(Self { client, url, resource: Resource { service_name: settings.service_name }, told: None })
    }

    /// Sends the batch and empties it, whatever comes of it.
    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let request = self.client.post(self.url.clone()).body(wire::request(&self.resource, batch));
        let failure = match request.send().await {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status().as_u16())),
            // Without the address: it may hold a token.
            Err(error) => Some(error.without_url().to_string()),
        };
        match failure {
            None => observe::spans_exported(batch.len()),
            Some(why) => self.lost(batch.len(), &why),
        }
        batch.clear();
    }

    fn lost(&mut self, count: usize, why: &str) {
        observe::spans_dropped("export_failed", count);
        if self.told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            tracing::warn!(count, why, "spans could not be exported; calls are not affected");
        }
    }
}
