//! The `tracing` layer: a span that says where it stands in a trace is handed on when it ends.
//!
//! Must stay true: only `counterfoil`'s own spans, and of them only those with `trace_id` and `span_id` in a trace that is sampled. What a span's
//! fields say is what is exported: the fields hold no arguments and no results, so neither does the collector.

use std::fmt::Debug;
use std::time::SystemTime;

use counterfoil_runtime::observe;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::wire::{Span, Value};

/// Hands ended spans to the exporter. To be added with [`filter`].
pub struct Otlp {
    queue: Sender<Span>,
}

/// What the layer wants to see: nothing but our own spans, so that the rest of the program does not pay for it.
pub fn filter() -> FilterFn {
    fn ours(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("counterfoil")
    }
    FilterFn::new(ours as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::INFO)
}

impl Otlp {
    pub(super) fn new(queue: Sender<Span>) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Otlp {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut open = Open::new();
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(ended) = span.extensions_mut().remove::<Open>().and_then(|open| open.ended(span.name())) else { return };
        match self.queue.try_send(ended) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => observe::spans_dropped("queue_full", 1),
            Err(TrySendError::Closed(_)) => observe::spans_dropped("closed", 1),
        }
    }
}

/// A span that has not ended.
struct Open {
    started: SystemTime,
    trace_id: Option<String>,
    span_id: Option<String>,
    parent_span_id: Option<String>,
    sampled: bool,
    attributes: Vec<(&'static str, Value)>,
}

impl Open {
    fn new() -> Self {
        let attributes = Vec::new();
        Self { started: SystemTime::now(), trace_id: None, span_id: None, parent_span_id: None, sampled: true, attributes }
    }

    /// `None`: not in a trace, or in one that nobody keeps.
    fn ended(self, name: &'static str) -> Option<Span> {
        let (trace_id, span_id) = self.trace_id.zip(self.span_id).filter(|_| self.sampled)?;
        let parent_span_id = self.parent_span_id;
        Some(Span { trace_id, span_id, parent_span_id, name, started: self.started, ended: SystemTime::now(), attributes: self.attributes })
    }

    fn keep(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("trace_id", Value::Text(id)) => self.trace_id = Some(id),
            ("span_id", Value::Text(id)) => self.span_id = Some(id),
            ("parent_span_id", Value::Text(id)) => self.parent_span_id = Some(id),
            ("sampled", Value::Bool(sampled)) => self.sampled = sampled,
            (name, value) => self.attributes.push((name, value)),
        }
    }
}

impl Visit for Open {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, Value::Text(value.to_owned()));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, Value::Bool(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, Value::Number(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.keep(field, Value::Text(format!("{value:?}")));
    }
}
