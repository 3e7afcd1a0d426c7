use std::io::Write;
use std::sync::{Arc, Mutex};

use counterfoil_core::Policy;
use counterfoil_core::policy::{ArgPath, RetryPolicy};
use counterfoil_runtime::{Operator, Resolution};
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

use crate::house::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is logged while the test runs, at the finest level.
fn logged(test: impl AsyncFnOnce(&House)) -> String {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::TRACE).with_writer(lines.clone());
    let subscriber = subscriber.with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL).finish();
    tracing::subscriber::with_default(subscriber, || observed(|b| b, test));
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

/// Effect, tool, from and to of every line that tells of a change.
fn transitions(text: &str) -> Vec<(String, String, String)> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let changes = lines.filter(|line| line["from"].is_string());
    let word = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    changes
        .map(|line| {
            assert!(line["effect"].as_str().is_none_or(|key| key.len() == 64), "{line}");
            (word(&line, "tool"), word(&line, "from"), word(&line, "to"))
        })
        .collect()
}

#[test]
fn what_a_person_may_want_to_know_is_told_once() {
    let text = logged(async |house| {
        house.undoable("pay", quick(), [done("1"), rejected("no"), lost("hung up")], Some("refund"));
        house.tool("refund", quick(), []);
        let operator = Operator::new("ann", "looked");
        let paid = house.runtime.call(call("pay", "k1", "{}")).await.effect.unwrap();
        house.runtime.undo(paid, &operator).await.unwrap();
        house.runtime.call(call("pay", "k2", "{}")).await;
        let doubt = house.runtime.call(call("pay", "k3", "{}")).await.effect.unwrap();
        house.runtime.resolve(doubt, Resolution::DidNotHappen, &operator).await.unwrap();
        house.runtime.cancel(doubt, &operator).await.unwrap();
        let acme = counterfoil_core::Tenant::new("acme").unwrap();
        let tool = house.runtime.registry().get(&acme, &"pay".parse().unwrap()).unwrap();
        house.runtime.set_breaker(&acme, &tool, |breaker, now| breaker.force_open(now, "maintenance".into())).await.unwrap();
    });
    let expected = [
        ("pay", "undoing", "undone"),
        ("pay", "running", "failed"),
        ("pay", "running", "in_doubt"),
        ("pay", "in_doubt", "ready"),
        ("pay", "ready", "cancelled"),
        ("pay", "closed", "open"),
    ];
    assert_eq!(transitions(&text), expected.map(|(tool, from, to)| (tool.to_owned(), from.to_owned(), to.to_owned())), "{text}");
}

#[test]
fn neither_arguments_nor_their_echo_are_ever_logged() {
    const SECRET: &str = "4111111111111111";
    let text = logged(async |house| {
        let policy =
            Policy { redact: vec![ArgPath::parse("card").unwrap()], retry: RetryPolicy { attempts: 2, ..quick().retry }, ..quick() };
        let echo = format!("the card {SECRET} was refused");
        let script = [done(&format!(r#"{{"card":"{SECRET}","again":"it was {SECRET}"}}"#)), rejected(&echo), lost(&echo), busy(), busy()];
        // An undo that cannot be worked out says why, and the why may hold the secret too.
        house.undoable("pay", policy, script, Some("refund"));
        house.tool("refund", quick(), []);
        for key in ["k1", "k1", "k2", "k3", "k4"] {
            let answer = house.runtime.call(call("pay", key, &format!(r#"{{"card":"{SECRET}","plain":"argument-in-the-clear"}}"#))).await;
            assert!(!format!("{answer:?}").contains(SECRET), "{answer:?}");
        }
        house.runtime.recover().await.unwrap();
    });
    assert!(
        text.contains("gives no money back")
            && text.contains("\"in_doubt\"")
            && text.contains("tool_execution")
            && text.contains("\"attempt\""),
        "{text}"
    );
    for told in [SECRET, "argument-in-the-clear", "was refused", "it was"] {
        assert!(!text.contains(told), "{told} was logged:\n{text}");
    }
}
