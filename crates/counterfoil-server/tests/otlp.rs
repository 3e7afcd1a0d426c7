//! Spans against a real collector: a small HTTP server that keeps what it is sent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use counterfoil_core::{Call, CanonicalJson, Failure, Policy};
use counterfoil_runtime::{Builder, CallContext, FnTool, Invocation, Registered, Runtime, ToolError};
use counterfoil_server::otlp::{self, BATCH_MAX, QUEUE_MAX, Settings};
use counterfoil_store::memory::Memory;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

type Sent = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

async fn collector(answer: StatusCode) -> (SocketAddr, Sent) {
    let sent = Sent::default();
    let kept = sent.clone();
    let take = move |headers: HeaderMap, body: String| {
        kept.lock().unwrap().push((headers, serde_json::from_str(&body).expect("JSON")));
        async move { answer }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
    (address, sent)
}

/// A tool that fails once, then tells where it stood in the trace.
fn runtime() -> (Runtime, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = seen.clone();
    let tool = FnTool::new(move |invocation: Invocation| {
        let trace = invocation.trace.map(|trace| trace.span.to_string());
        let attempt = {
            let mut told = told.lock().unwrap();
            told.extend(trace);
            told.len()
        };
        async move {
            match attempt {
                1 => Err(ToolError::Retry(Failure::of_dependency("http_503", "the secret is s3cret"))),
                _ => Ok(serde_json::json!({ "result": "s3cret" })),
            }
        }
    });
    let mut policy = Policy::default();
    policy.retry.first = Duration::from_millis(1);
    let runtime = Builder::new(Arc::new(Memory::default())).build().unwrap();
    runtime.register(Registered::new("pay".parse().unwrap(), tool, policy));
    (runtime, seen)
}

fn call(key: &str) -> Call {
    Call {
        tenant: "acme".parse().unwrap(),
        caller: "test".parse().unwrap(),
        tool: "pay".parse().unwrap(),
        args: CanonicalJson::parse(r#"{"card":"s3cret"}"#).unwrap(),
        key: Some(key.parse().unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    }
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_object().unwrap().values().next().unwrap().to_string().trim_matches('"').to_owned();
    of["attributes"].as_array().unwrap().iter().map(|a| (a["key"].as_str().unwrap().to_owned(), text(&a["value"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_and_its_attempts_are_one_trace_at_the_collector() {
    let (address, sent) = collector(StatusCode::OK).await;
    let settings = Settings { headers: vec![("api-key".into(), "k".into())], ..Settings::new(&format!("http://{address}"), "shop") };
    let (layer, guard) = otlp::start(settings).unwrap();
    let subscriber = Registry::default().with(layer.with_filter(otlp::filter()));
    let (runtime, seen) = runtime();
    let context = |flags: &str| CallContext::from_w3c(Some(&format!("00-{TRACE}-{SPAN}-{flags}")), None);
    let calls = async {
        let answer = runtime.call_in(context("01"), call("k1")).await;
        // Nobody keeps this trace, so it is not exported.
        runtime.call_in(context("00"), call("k2")).await;
        // Not in a trace at all.
        runtime.call(call("k3")).await;
        answer
    };
    let answer = calls.with_subscriber(subscriber).await;
    drop(guard); // what waits is sent

    let sent = sent.lock().unwrap();
    let [(headers, body)] = &sent[..] else { panic!("one batch: {sent:?}") };
    assert_eq!((headers["content-type"].to_str().unwrap(), headers["api-key"].to_str().unwrap()), ("application/json", "k"));
    assert!(!body.to_string().contains("s3cret"), "{body}");
    let resource = attributes(&body["resourceSpans"][0]["resource"]);
    assert_eq!(resource["service.name"], "shop");
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["attempt", "attempt", "tool_execution"]);
    assert!(spans.iter().all(|span| span["traceId"] == TRACE));

    let whole = &spans[2];
    assert_eq!(whole["parentSpanId"], SPAN);
    let said = attributes(whole);
    let expected = [
        ("counterfoil.effect", answer.effect.unwrap().to_string()),
        ("counterfoil.replayed", "false".into()),
        ("counterfoil.status", "success".into()),
        ("counterfoil.tool", "pay".into()),
    ];
    assert_eq!(said, expected.map(|(name, value)| (name.to_owned(), value)).into());
    assert_eq!((whole["status"].clone(), whole["kind"].clone()), (serde_json::json!({}), 1.into()));
    let nanos = |span: &Value, end: &str| span[end].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos(whole, "startTimeUnixNano") <= nanos(whole, "endTimeUnixNano"));

    for (number, (span, outcome)) in spans.iter().zip(["not_done", "done"]).enumerate() {
        assert_eq!(span["parentSpanId"], whole["spanId"]);
        // What the world was told is what the collector shows.
        assert_eq!(span["spanId"].as_str().unwrap(), seen.lock().unwrap()[number]);
        let said = attributes(span);
        assert_eq!((said["counterfoil.attempt"].as_str(), said["counterfoil.outcome"].as_str()), ([("1"), ("2")][number], outcome));
        assert!(said.contains_key("counterfoil.fence"));
        assert_eq!(span["status"]["code"], if outcome == "done" { Value::Null } else { 2.into() });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_says_no_costs_the_spans_and_nothing_else() {
    let (address, sent) = collector(StatusCode::SERVICE_UNAVAILABLE).await;
    let (layer, guard) = otlp::start(Settings::new(&format!("http://{address}/"), "shop")).unwrap();
    let subscriber = Registry::default().with(layer.with_filter(otlp::filter()));
    let (runtime, _) = runtime();
    let context = CallContext::from_w3c(Some(&format!("00-{TRACE}-{SPAN}-01")), None);
    let answer = runtime.call_in(context, call("k1")).with_subscriber(subscriber).await;
    assert_eq!(answer.status.word(), "success");
    drop(guard);
    assert_eq!(sent.lock().unwrap().len(), 1, "not sent again");
}

#[test]
fn a_collector_that_hangs_holds_nobody_up_and_what_is_dropped_is_counted() {
    const SPANS: usize = 20_000;
    // Takes connections into its backlog, and never reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (layer, guard) = otlp::start(Settings::new(&format!("http://{}", silent.local_addr().unwrap()), "shop")).unwrap();
    let subscriber = Registry::default().with(layer.with_filter(otlp::filter()));
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..SPANS {
                drop(tracing::info_span!(target: "counterfoil_test", "call", trace_id = TRACE, span_id = SPAN));
            }
        });
    });
    let text = handle.render();
    let line = text.lines().find(|line| line.starts_with("trace_spans_dropped_total{reason=\"queue_full\"}")).expect(&text);
    let dropped: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((SPANS - QUEUE_MAX - 2 * BATCH_MAX..=SPANS - QUEUE_MAX).contains(&dropped), "{dropped}");
    let started = Instant::now();
    drop(guard);
    assert!(started.elapsed() < Duration::from_secs(8), "the program's end waits two seconds, not for the collector");
}

#[test]
fn what_cannot_be_an_endpoint_is_refused_by_name() {
    let error = otlp::start(Settings::new("collector:4318", "shop")).err().expect("no scheme").to_string();
    assert!(error.contains("collector:4318") && error.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{error}");
    let headers = vec![("bad name".to_owned(), "s3cret".to_owned())];
    let error = otlp::start(Settings { headers, ..Settings::new("http://c", "shop") }).err().expect("no such header").to_string();
    assert!(error.contains("bad name") && !error.contains("s3cret"), "{error}");
}
