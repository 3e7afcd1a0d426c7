//! What is told to whoever listens to `tracing`: a span per call, per attempt and per probe, and an event where an effect's state changes.
//!
//! Must stay true: names, keys, codes and states only; never an argument, a result or a message of the other side. A span says where it stands in the
//! caller's trace by `trace_id`, `span_id`, `parent_span_id` and `sampled`: an exporter needs nothing else, and what goes downstream as
//! `traceparent` is the span that an exporter shows.

use counterfoil_core::trace::{SpanId, TraceId};
use counterfoil_core::{Call, Effect, Fence, Outcome, State, TraceContext};
use tracing::Span;
use tracing::field::{Empty, display};

use crate::answer::Answer;
use crate::fresh::Fresh;
use crate::tool::ProbeAnswer;

/// What comes along with a call and is no part of what is asked for: it enters no key and no entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallContext {
    /// Where the caller stands in a trace. What is sent to the world for this call is of the same trace.
    pub trace: Option<TraceContext>,
}

impl CallContext {
    /// From the headers, or the environment variables, of these names. What is not as W3C has it is no trace.
    pub fn from_w3c(traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
        let trace = traceparent.and_then(|text| TraceContext::parse(text).ok());
        Self { trace: trace.map(|trace| tracestate.map_or(trace.clone(), |state| trace.with_state(state))) }
    }
}

impl Fresh {
    /// The place of a new span below `parent`.
    pub(crate) fn below(&self, parent: &TraceContext) -> TraceContext {
        parent.child(self.span_id())
    }

    /// A trace that begins here.
    pub(crate) fn root(&self) -> TraceContext {
        loop {
            if let Some(trace) = TraceId::new(self.nonce()) {
                return TraceContext::root(trace, self.span_id());
            }
        }
    }

    fn span_id(&self) -> SpanId {
        loop {
            // One number in 2^64 is zero.
            if let Some(id) = SpanId::new(self.number().to_be_bytes()) {
                return id;
            }
        }
    }
}

pub(crate) fn call_span(call: &Call, parent: Option<&TraceContext>, own: Option<&TraceContext>) -> Span {
    let span = tracing::info_span!(
        "tool_execution",
        tool = %call.tool,
        effect = Empty,
        status = Empty,
        replayed = Empty,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
        sampled = Empty,
    );
    placed(span, parent, own)
}

pub(crate) fn answered(span: &Span, answer: &Answer) {
    if span.is_disabled() {
        return;
    }
    if let Some(effect) = answer.effect {
        span.record("effect", display(effect));
    }
    span.record("status", answer.status.word()).record("replayed", answer.replayed);
}

pub(crate) fn attempt_span(attempt: u32, fence: Fence, parent: Option<&TraceContext>, own: Option<&TraceContext>) -> Span {
    let span = tracing::info_span!(
        "attempt",
        attempt,
        fence = fence.0,
        outcome = Empty,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
        sampled = Empty,
    );
    placed(span, parent, own)
}

pub(crate) fn attempted(span: &Span, outcome: &Outcome) {
    let word = match outcome {
        Outcome::Done(_) => "done",
        Outcome::NotDone(_) => "not_done",
        Outcome::Unknown(_) => "unknown",
    };
    span.record("outcome", word);
}

pub(crate) fn probe_span(parent: Option<&TraceContext>, own: Option<&TraceContext>) -> Span {
    let span = tracing::info_span!("probe", outcome = Empty, trace_id = Empty, span_id = Empty, parent_span_id = Empty, sampled = Empty);
    placed(span, parent, own)
}

pub(crate) fn probed(span: &Span, answer: &ProbeAnswer) {
    let word = match answer {
        ProbeAnswer::Happened(_) => "happened",
        ProbeAnswer::DidNotHappen => "did_not_happen",
        ProbeAnswer::CannotTell(_) => "cannot_tell",
    };
    span.record("outcome", word);
}

fn placed(span: Span, parent: Option<&TraceContext>, own: Option<&TraceContext>) -> Span {
    if let (false, Some(own)) = (span.is_disabled(), own) {
        span.record("trace_id", display(own.trace)).record("span_id", display(own.span)).record("sampled", own.sampled);
        if let Some(parent) = parent {
            span.record("parent_span_id", display(parent.span));
        }
    }
    span
}

/// The effect is, durably, in another state than before. Told where somebody may want to act or to know: not every claim and every success.
/// Not louder than `info`: whoever asked is told by the answer.
pub(crate) fn moved(from: &'static str, effect: &Effect) {
    let (key, to) = (effect.key, effect.state.word());
    if from == to {
        return;
    }
    let opened = effect.opened.as_ref();
    let tool = opened.map_or("", |opened| opened.tool.as_str());
    match &effect.state {
        State::InDoubt(doubt) => {
            let person_needed = opened.is_some_and(|opened| !opened.settles);
            tracing::info!(effect = %key, tool, from, to, code = doubt.failure.code, person_needed, "the effect is in doubt");
        }
        State::Failed { failure, .. } => tracing::info!(effect = %key, tool, from, to, code = failure.code, "the effect failed"),
        State::Retrying(failed) if failed.receipt.is_some() => {
            tracing::info!(effect = %key, tool, from, to, code = failed.failure.code, "the effect failed and its attempts are used up");
        }
        State::Cancelled { .. } => tracing::info!(effect = %key, tool, from, to, "the effect was cancelled"),
        State::Undone { .. } => tracing::info!(effect = %key, tool, from, to, "the effect was undone"),
        State::UndoFailed { .. } => tracing::info!(effect = %key, tool, from, to, "the effect could not be undone"),
        // A doubt that was settled, by whomever.
        _ if from == "in_doubt" => tracing::info!(effect = %key, tool, from, to, "the effect is in doubt no more"),
        _ => {}
    }
}
