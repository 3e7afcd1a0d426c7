//! Attempts that clients make under lent permits, over real stores and a clock that only the test moves.
//! Each test plays the client: what it "did" is what it then reports, or fails to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::limit::Spent;
use counterfoil_core::outcome::Flag;
use counterfoil_core::policy::{ArgPath, BreakerPolicy, Jitter, Limits, Rate, Repeat, RetryPolicy};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{
    Call, Caller, CanonicalJson, Failure, Fence, Json, Outcome, Policy, RunId, StreamId, Success, Tenant, Timestamp, ToolName, WorkerId,
};
use counterfoil_runtime::ledger::{LedgerError, plain_summary};
use counterfoil_runtime::tool::{ToolFuture, UndoPlan};
use counterfoil_runtime::{
    Acquired, Answer, Beside, Builder, ClientTool, Clock, CommitHow, FnTool, Invocation, LendError, Lent, Operator, PermitId, ProbeAnswer,
    Registered, Resolution, Runs, Runtime, Schema, Status, Tool, ToolError,
};
use counterfoil_store::memory::Memory;
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Store, Version, Write};
use tokio::sync::Notify;

const LEASE: Duration = Duration::from_secs(30);

struct HandClock(AtomicI64);
impl HandClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_700_000_000_000_000)))
    }
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

struct House {
    runtime: Runtime,
    clock: Arc<HandClock>,
}

/// A house whose tool `charge` is run by clients.
fn house(policy: Policy) -> House {
    let house = bare();
    house.runtime.register(Registered::new(name("charge"), Arc::new(ClientTool), policy));
    house
}

fn bare() -> House {
    let clock = HandClock::new();
    let runtime = Builder::new(Arc::new(Memory::default())).clock(clock.clone()).build().unwrap();
    House { runtime, clock }
}

fn name(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

fn policy() -> Policy {
    let retry = RetryPolicy { first: Duration::from_secs(1), jitter: Jitter::Off, ..RetryPolicy::default() };
    Policy { retry, lease: LEASE, ..Policy::default() }
}

fn call(key: &str, args: &str) -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("team/agent-7").unwrap(),
        tool: name("charge"),
        args: CanonicalJson::parse(args).unwrap(),
        key: CallKey::new(key).ok(),
        run: None,
        step: None,
        ordinal: 0,
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn permit(lent: &Lent) -> PermitId {
    PermitId { tenant: Tenant::new("acme").unwrap(), key: lent.key, fence: lent.fence }
}

fn busy() -> ToolError {
    ToolError::Retry(Failure::of_dependency("http_503", "busy"))
}

fn code(answer: &Answer) -> &str {
    answer.error.as_ref().map_or("", |error| error.code.as_str())
}

impl House {
    async fn acquire(&self, call: Call) -> Acquired {
        self.runtime.acquire(call, None, Beside::default()).await.unwrap()
    }
    async fn lent(&self, call: Call) -> Lent {
        match self.acquire(call).await {
            Acquired::Lent(lent) => lent,
            Acquired::Answer(answer) => panic!("not lent: {answer:?}"),
        }
    }
    async fn answered(&self, call: Call) -> Answer {
        match self.acquire(call).await {
            Acquired::Answer(answer) => *answer,
            Acquired::Lent(lent) => panic!("lent: {lent:?}"),
        }
    }
    async fn commit(&self, lent: &Lent, result: &str) -> Result<(counterfoil_core::Effect, CommitHow), LendError> {
        self.runtime.commit(&permit(lent), json(result), Beside::default()).await
    }
    async fn fail(&self, lent: &Lent, error: ToolError) -> Result<(counterfoil_core::Effect, CommitHow), LendError> {
        self.runtime.fail(&permit(lent), error, Beside::default()).await
    }
    async fn state(&self, lent: &Lent) -> &'static str {
        self.runtime.effect(lent.key).await.unwrap().state.word()
    }
    /// Everything that is stored of the effect, as text.
    async fn stored(&self, lent: &Lent) -> String {
        serde_json::to_string(&self.runtime.history(lent.key).await.unwrap()).unwrap()
    }
    async fn records(&self, lent: &Lent) -> u64 {
        self.runtime.effect(lent.key).await.unwrap().version
    }
    async fn receipts(&self) -> Vec<String> {
        let receipts = self.runtime.ledger().receipts(&Tenant::new("acme").unwrap(), None).await.unwrap();
        receipts.into_iter().map(|receipt| receipt.outcome).collect()
    }
}

/// The permit is lost; whether what was said is kept.
#[track_caller]
fn lost<T: std::fmt::Debug>(result: Result<T, LendError>) -> bool {
    match result {
        Err(error @ LendError::PermitLost { recorded_late, .. }) => {
            assert_eq!(error.code(), "permit_lost");
            recorded_late
        }
        other => panic!("not lost: {other:?}"),
    }
}

#[track_caller]
fn mismatch<T: std::fmt::Debug>(result: Result<T, LendError>) {
    assert!(matches!(result, Err(LendError::ReportMismatch { .. })), "{result:?}");
}

#[tokio::test]
async fn what_a_client_did_is_done_once_and_replayed_byte_for_byte() {
    for result in ["null", "false", "0", "\"\"", "{}", "{\"b\":1, \"a\":9007199254740993}"] {
        let house = house(policy());
        let lent = house.lent(call("k", "{}")).await;
        assert_eq!((lent.attempt, lent.lease_until), (1, house.clock.now() + LEASE));
        let (effect, how) = house.commit(&lent, result).await.unwrap();
        assert_eq!((effect.state.word(), how), ("done", CommitHow::Recorded));
        let replay = house.answered(call("k", " { } ")).await;
        assert_eq!((replay.status, replay.replayed), (Status::Success, true));
        assert_eq!(replay.data.unwrap().as_str(), result);
        assert_eq!(replay.effect, Some(lent.key));
        assert_eq!(house.receipts().await, ["done"]);
    }
}

#[tokio::test]
async fn the_claim_is_durable_and_names_the_client() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    let stored = house.stored(&lent).await;
    assert!(stored.contains("\"worker\":\"client:team_agent-7\"") && stored.contains("\"lent\":true"), "{stored}");
    assert_eq!(house.state(&lent).await, "running");
}

#[tokio::test]
async fn other_arguments_under_the_same_key_are_refused() {
    let house = house(policy());
    let lent = house.lent(call("k", r#"{"cents":1}"#)).await;
    let other = house.answered(call("k", r#"{"cents":2}"#)).await;
    assert_eq!(code(&other), "key_reuse_mismatch");
    house.commit(&lent, "1").await.unwrap();
    assert_eq!(code(&house.answered(call("k", r#"{"cents":2}"#)).await), "key_reuse_mismatch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_ask_at_once_one_is_lent_the_permit() {
    let house = Arc::new(house(policy()));
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let house = house.clone();
            tokio::spawn(async move { house.acquire(call("k", "{}")).await })
        })
        .collect();
    let mut permits = 0;
    for asked in asking {
        match asked.await.unwrap() {
            Acquired::Lent(_) => permits += 1,
            Acquired::Answer(answer) => {
                assert_eq!(code(&answer), "in_flight", "told at once");
                assert!(answer.error.unwrap().retry_after_ms.is_some());
            }
        }
    }
    assert_eq!(permits, 1);
}

#[tokio::test]
async fn a_client_that_falls_silent_is_in_doubt_and_nothing_is_lent_on_a_guess() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    house.clock.advance(LEASE - Duration::from_micros(1));
    assert!(house.runtime.recover().await.unwrap().is_empty());
    assert_eq!(code(&house.answered(call("k", "{}")).await), "in_flight");
    house.clock.advance(Duration::from_micros(1));
    for _ in 0..3 {
        let doubt = house.answered(call("k", "{}")).await;
        assert_eq!((doubt.status, doubt.outcome), (Status::InDoubt, "in_doubt"));
        house.clock.advance(Duration::from_secs(3600));
        assert!(house.runtime.recover().await.unwrap().is_empty(), "only a person or the client can settle it");
    }
    assert!(!lost(house.runtime.heartbeat(&permit(&lent), None).await), "too late to say so");
    // A person who looked says that it did not happen: now it may be lent again, under a higher fence.
    house.runtime.resolve(lent.key, Resolution::DidNotHappen, &Operator::new("ann", "looked")).await.unwrap();
    let again = house.lent(call("k", "{}")).await;
    assert_eq!((again.key, again.attempt), (lent.key, 2));
    assert!(again.fence > lent.fence);
}

#[tokio::test]
async fn recovery_notices_a_silent_client_too() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    house.clock.advance(LEASE);
    let recovered = house.runtime.recover().await.unwrap();
    assert_eq!((recovered.len(), recovered[0].key, recovered[0].answer.status), (1, lent.key, Status::InDoubt));
}

#[tokio::test]
async fn a_heartbeat_keeps_the_permit() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    for _ in 0..5 {
        house.clock.advance(LEASE / 2);
        let until = house.runtime.heartbeat(&permit(&lent), None).await.unwrap();
        assert_eq!(until, house.clock.now() + LEASE);
    }
    let longer = house.runtime.heartbeat(&permit(&lent), Some(LEASE * 10)).await.unwrap();
    assert_eq!(longer, house.clock.now() + LEASE * 10);
    house.clock.advance(LEASE * 9);
    assert_eq!(code(&house.answered(call("k", "{}")).await), "in_flight");
    assert_eq!(house.commit(&lent, "1").await.unwrap().1, CommitHow::Recorded);
    assert!(!lost(house.runtime.heartbeat(&permit(&lent), None).await), "it has ended");
}

#[tokio::test]
async fn a_client_that_beats_all_the_time_costs_few_records() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    for _ in 0..3000 {
        house.clock.advance(LEASE / 1000);
        let until = house.runtime.heartbeat(&permit(&lent), None).await.unwrap();
        assert!(until > house.clock.now() + LEASE / 2);
    }
    assert!(house.records(&lent).await <= 32, "{}", house.records(&lent).await);
}

#[tokio::test]
async fn a_lease_has_bounds() {
    let house = house(policy());
    for lease in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(3601)] {
        let refused = house.runtime.acquire(call("k", "{}"), Some(lease), Beside::default()).await.unwrap_err();
        assert_eq!(refused.code(), "invalid_lease", "{refused}");
    }
    let acquired = house.runtime.acquire(call("k", "{}"), Some(Duration::from_secs(1)), Beside::default()).await.unwrap();
    let Acquired::Lent(lent) = acquired else { panic!("{acquired:?}") };
    assert_eq!(lent.lease_until, house.clock.now() + Duration::from_secs(1));
    let refused = house.runtime.heartbeat(&permit(&lent), Some(Duration::from_secs(7200))).await.unwrap_err();
    assert_eq!(refused.code(), "invalid_lease");
}

#[tokio::test]
async fn a_late_commit_closes_the_doubt_and_is_told_that_it_was_late() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    house.clock.advance(LEASE);
    assert_eq!(house.answered(call("k", "{}")).await.status, Status::InDoubt);
    assert!(lost(house.commit(&lent, "{\"id\":7}").await));
    assert_eq!(house.state(&lent).await, "done");
    let replay = house.answered(call("k", "{}")).await;
    assert_eq!((replay.status, replay.data.unwrap().as_str()), (Status::Success, "{\"id\":7}"));
    let records = house.records(&lent).await;
    assert!(lost(house.commit(&lent, "{\"id\":7}").await), "said again: told again");
    mismatch(house.commit(&lent, "{\"id\":8}").await);
    assert_eq!(house.records(&lent).await, records, "and nothing more is written");
    assert_eq!(house.receipts().await, ["late_done"]);
}

/// Nobody noticed, so nobody took over: what the client says is the outcome, not evidence.
#[tokio::test]
async fn a_commit_after_the_lease_that_nobody_missed_is_in_time() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    house.clock.advance(LEASE * 2);
    assert_eq!(house.commit(&lent, "1").await.unwrap().1, CommitHow::Recorded);
    assert_eq!(house.receipts().await, ["done"]);
}

#[tokio::test]
async fn a_retriable_failure_is_lent_again_when_its_time_has_come() {
    let house = house(policy());
    let first = house.lent(call("k", "{}")).await;
    let failure = Failure::of_dependency("http_503", "busy").retry_after(Some(Duration::from_secs(20)));
    let (effect, _) = house.fail(&first, ToolError::Retry(failure)).await.unwrap();
    assert_eq!(effect.state.word(), "retrying");
    let early = house.answered(call("k", "{}")).await;
    assert_eq!((code(&early), early.error.as_ref().unwrap().retry_after_ms), ("http_503", Some(20_000)));
    house.clock.advance(Duration::from_secs(20));
    let second = house.lent(call("k", "{}")).await;
    assert_eq!((second.key, second.attempt), (first.key, 2));
    assert!(second.fence > first.fence);
    // The older attempt has nothing more to say, and no claim to keep.
    assert!(!lost(house.commit(&first, "1").await));
    assert!(!lost(house.fail(&first, busy()).await));
    assert!(!lost(house.runtime.heartbeat(&permit(&first), None).await));
    let never = PermitId { fence: Fence(99), ..permit(&first) };
    assert!(!lost(house.runtime.commit(&never, json("1"), Beside::default()).await));
    assert_eq!(house.state(&second).await, "running");
    house.commit(&second, "2").await.unwrap();
    assert_eq!(house.answered(call("k", "{}")).await.data.unwrap().as_str(), "2");
}

#[tokio::test]
async fn failures_wait_longer_each_time_and_a_series_has_its_receipt() {
    let house = house(policy());
    for (attempt, wait) in [(1, 1000), (2, 2000), (3, 4000), (4, 5000), (5, 5000)] {
        let lent = house.lent(call("k", "{}")).await;
        assert_eq!(lent.attempt, attempt);
        house.fail(&lent, ToolError::Retry(Failure::new("busy", "later"))).await.unwrap();
        let answer = house.answered(call("k", "{}")).await;
        assert_eq!(answer.error.unwrap().retry_after_ms, Some(wait), "attempt {attempt}");
        house.clock.advance(Duration::from_millis(wait));
    }
    assert_eq!(house.receipts().await, ["retry_exhausted", "retry_exhausted"], "the fourth and the fifth");
}

#[tokio::test]
async fn a_report_that_is_made_again_is_answered_as_recorded_and_a_contradiction_refused() {
    let house = house(policy());
    let done = house.lent(call("done", "{}")).await;
    house.commit(&done, "{\"id\":7}").await.unwrap();
    let records = house.records(&done).await;
    let (effect, how) = house.commit(&done, "{\"id\":7}").await.unwrap();
    assert_eq!((effect.state.word(), how), ("done", CommitHow::Repeated));
    mismatch(house.commit(&done, "{\"id\":8}").await);
    mismatch(house.fail(&done, busy()).await);
    assert_eq!(house.records(&done).await, records);

    let rejected = house.lent(call("rejected", "{}")).await;
    let no = || ToolError::Rejected(Failure::new("http_400", "no such card"));
    assert_eq!(house.fail(&rejected, no()).await.unwrap().0.state.word(), "failed");
    assert_eq!(house.fail(&rejected, no()).await.unwrap().1, CommitHow::Repeated);
    mismatch(house.commit(&rejected, "1").await);
    house.clock.advance(LEASE * 10);
    assert_eq!(code(&house.answered(call("rejected", "{}")).await), "http_400", "for good");

    let retried = house.lent(call("retried", "{}")).await;
    house.fail(&retried, busy()).await.unwrap();
    assert_eq!(house.fail(&retried, busy()).await.unwrap().1, CommitHow::Repeated);
    mismatch(house.commit(&retried, "1").await);
}

#[tokio::test]
async fn what_a_client_does_not_know_is_a_doubt_until_it_does() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    let unknown = || ToolError::Unknown(Failure::of_dependency("timeout", "no answer"));
    assert_eq!(house.fail(&lent, unknown()).await.unwrap().0.state.word(), "in_doubt");
    let records = house.records(&lent).await;
    assert_eq!(house.fail(&lent, unknown()).await.unwrap().1, CommitHow::Repeated);
    assert_eq!(house.records(&lent).await, records);
    house.clock.advance(LEASE * 100);
    assert_eq!(house.answered(call("k", "{}")).await.status, Status::InDoubt);
    assert!(lost(house.fail(&lent, ToolError::Rejected(Failure::new("http_400", "it was refused"))).await), "it found out");
    assert_eq!(code(&house.answered(call("k", "{}")).await), "http_400");
}

#[tokio::test]
async fn what_may_be_repeated_is_lent_again_under_the_same_key() {
    let house = house(Policy { repeat: Repeat::Keyed, ..policy() });
    let first = house.lent(call("k", "{}")).await;
    house.clock.advance(LEASE);
    let second = house.lent(call("k", "{}")).await;
    assert_eq!((second.key, second.attempt), (first.key, 2));
    // Nobody here repeats it: that is the client's.
    house.clock.advance(LEASE);
    let recovered = house.runtime.recover().await.unwrap();
    assert_eq!((recovered.len(), recovered[0].answer.status), (1, Status::InDoubt));
    house.clock.advance(Duration::from_secs(3600));
    assert!(house.runtime.recover().await.unwrap().is_empty());
    assert!(lost(house.commit(&first, "1").await), "the first one did it after all");
    assert_eq!(house.answered(call("k", "{}")).await.data.unwrap().as_str(), "1");
}

#[tokio::test]
async fn a_person_approves_before_anything_is_lent() {
    let house = bare();
    let approval: counterfoil_runtime::registry::ArgsRule<bool> = Arc::new(|args| Ok(args.as_str().contains("1000")));
    let tool = Registered::new(name("charge"), Arc::new(ClientTool), policy());
    house.runtime.register(Registered { approval: Some(approval), ..tool });
    house.lent(call("small", r#"{"cents":1}"#)).await;
    let waiting = house.answered(call("large", r#"{"cents":1000}"#)).await;
    assert_eq!((waiting.status, code(&waiting)), (Status::WaitingApproval, "approval_required"));
    let answer = house.runtime.approve(waiting.effect.unwrap(), &Operator::new("ann", "fine")).await.unwrap();
    assert_eq!((answer.status, answer.replayed), (Status::Pending, false), "it waits for its client");
    for _ in 0..2 {
        assert!(house.runtime.recover().await.unwrap().is_empty(), "nobody here can run it");
    }
    let lent = house.lent(call("large", r#"{"cents":1000}"#)).await;
    assert_eq!(Some(lent.key), waiting.effect);
}

#[tokio::test]
async fn secrets_reach_the_ledger_by_no_way() {
    let house = bare();
    let redact = vec![ArgPath::parse("card.number").unwrap()];
    house.runtime.register(Registered::new(name("charge"), Arc::new(ClientTool), Policy { redact, result_bytes_max: 300, ..policy() }));
    const SECRET: &str = "4242424242424242";
    let args = format!(r#"{{"card":{{"number":"{SECRET}"}},"cents":5}}"#);
    let lent = house.lent(call("k", &args)).await;
    let result = format!(r#"{{"id":1,"card":{{"number":"{SECRET}"}},"echo":["{SECRET}",{SECRET}],"note":"charged {SECRET}."}}"#);
    house.commit(&lent, &result).await.unwrap();
    let replay = house.answered(call("k", &args)).await.data.unwrap();
    assert!(replay.as_str().contains("\"id\":1") && replay.as_str().contains("charged [redacted]."), "{replay}");
    assert_eq!(house.commit(&lent, &result).await.unwrap().1, CommitHow::Repeated, "known again without its secrets");

    let failed = house.lent(call("f", &args)).await;
    let failure = Failure::new("http_400", format!("card \"{SECRET}\" declined")).with_detail(json(&result));
    house.fail(&failed, ToolError::Rejected(failure)).await.unwrap();
    let large = house.lent(call("l", &args)).await;
    let padding = "x".repeat(400);
    house.commit(&large, &format!(r#"{{"card":{{"number":"{SECRET}"}},"pad":"{padding}"}}"#)).await.unwrap();
    for lent in [&lent, &failed, &large] {
        let stored = house.stored(lent).await;
        assert!(!stored.contains(SECRET) && stored.contains("$redacted"), "{stored}");
    }
    let other = args.replace("4242", "4343");
    assert_eq!(code(&house.answered(call("k", &other)).await), "key_reuse_mismatch");
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    let stranger = PermitId { tenant: Tenant::new("other").unwrap(), ..permit(&lent) };
    let not_found = |error: LendError| assert!(matches!(error, LendError::NotFound(key) if key == lent.key), "{error}");
    not_found(house.runtime.heartbeat(&stranger, None).await.unwrap_err());
    not_found(house.runtime.commit(&stranger, json("1"), Beside::default()).await.unwrap_err());
    not_found(house.runtime.fail(&stranger, busy(), Beside::default()).await.unwrap_err());
    let absent = PermitId { key: counterfoil_core::ids::Digest32::of(b"nothing"), ..permit(&lent) };
    assert!(matches!(house.runtime.heartbeat(&absent, None).await, Err(LendError::NotFound(_))));
    assert_eq!(house.records(&lent).await, 1);
    let theirs = house.lent(Call { tenant: stranger.tenant, ..call("k", "{}") }).await;
    assert_ne!(theirs.key, lent.key, "the same key is another effect");
}

#[tokio::test]
async fn a_tool_is_run_where_it_is_run() {
    let house = house(policy());
    let input = Schema::compile(&serde_json::json!({ "type": "object", "required": ["cents"] })).unwrap();
    let strict = Registered::new(name("strict"), Arc::new(ClientTool), policy());
    house.runtime.register(Registered { input: Some(input), ..strict });
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let here = FnTool::new(move |_| {
        let signal = signal.clone();
        async move {
            signal.notified().await;
            Ok(serde_json::json!("ours"))
        }
    });
    house.runtime.register(Registered::new(name("here"), here, policy()));
    let of = |tool: &str| Call { tool: name(tool), ..call("k", "{}") };
    assert_eq!(code(&house.runtime.call(of("charge")).await), "tool_runs_elsewhere");
    assert_eq!(code(&house.answered(of("here")).await), "tool_runs_here");
    assert_eq!(code(&house.answered(of("chrage")).await), "unknown_tool");
    assert_eq!(code(&house.answered(of("strict")).await), "invalid_arguments");
    let query = counterfoil_store::Query::effects(Tenant::new("acme").unwrap());
    assert!(house.runtime.ledger().search(query).await.unwrap().found.is_empty(), "nothing of it is recorded");

    // The claim of a worker is not a client's to end.
    let runtime = house.runtime.clone();
    let running = tokio::spawn(async move { runtime.call(of("here")).await });
    let key = loop {
        let query = counterfoil_store::Query::effects(Tenant::new("acme").unwrap());
        match house.runtime.ledger().search(query).await.unwrap().found.first() {
            Some(found) => break counterfoil_core::ids::Digest32(found.stream.0),
            None => tokio::task::yield_now().await,
        }
    };
    let guessed = PermitId { tenant: Tenant::new("acme").unwrap(), key, fence: Fence(1) };
    assert!(!lost(house.runtime.commit(&guessed, json("\"forged\""), Beside::default()).await));
    assert!(!lost(house.runtime.heartbeat(&guessed, None).await));
    go.notify_one();
    assert_eq!(running.await.unwrap().data.unwrap().as_str(), "\"ours\"");
}

#[tokio::test]
async fn the_breaker_hears_of_lent_attempts() {
    let breaker = BreakerPolicy { consecutive: 2, reset: Duration::from_secs(600), ..BreakerPolicy::default() };
    let house = house(Policy { breaker, ..policy() });
    for key in ["a", "b"] {
        let lent = house.lent(call(key, "{}")).await;
        house.fail(&lent, busy()).await.unwrap();
    }
    let barred = house.answered(call("c", "{}")).await;
    assert_eq!((barred.status, code(&barred)), (Status::CircuitOpen, "circuit_open"));
    house.clock.advance(Duration::from_secs(600));
    let probe = house.lent(call("c", "{}")).await;
    assert_eq!(code(&house.answered(call("d", "{}")).await), "circuit_open", "one at a time");
    // The probe's client is never heard of again: after its lease another one may try.
    house.clock.advance(LEASE);
    let second = house.lent(call("d", "{}")).await;
    house.fail(&second, busy()).await.unwrap();
    assert_eq!(code(&house.answered(call("e", "{}")).await), "circuit_open", "the probe failed");
    house.clock.advance(Duration::from_secs(600));
    let third = house.lent(call("e", "{}")).await;
    house.commit(&third, "1").await.unwrap();
    house.lent(call("f", "{}")).await;
    house.lent(call("g", "{}")).await;
    assert_eq!(house.state(&probe).await, "running");
}

#[tokio::test]
async fn rates_and_budgets_hold_and_concurrency_does_not() {
    let rate = Some(Rate { count: 2, per: Duration::from_secs(60) });
    let limited = house(Policy { limits: Limits { concurrency: Some(1), rate, ..Limits::default() }, ..policy() });
    for key in ["a", "b"] {
        limited.lent(call(key, "{}")).await;
    }
    let barred = limited.answered(call("c", "{}")).await;
    assert_eq!(code(&barred), "rate_limited");
    assert!(barred.error.unwrap().retry_after_ms.is_some());
    limited.clock.advance(Duration::from_secs(60));
    limited.lent(call("c", "{}")).await;

    let budgeted = house(Policy { limits: Limits { per_run: Some(2), ..Limits::default() }, ..policy() });
    let run = RunId::new("run-1").unwrap();
    let in_run = |key: &str| Call { run: Some(run.clone()), ..call(key, "{}") };
    for key in ["a", "b"] {
        budgeted.lent(in_run(key)).await;
    }
    assert_eq!(code(&budgeted.answered(in_run("c")).await), "budget_exceeded");
    assert_eq!(code(&budgeted.answered(in_run("a")).await), "in_flight", "asking again costs nothing");
    let stream = StreamId::budget(&Tenant::new("acme").unwrap(), &run, &name("charge"));
    let (_, spent) = budgeted.runtime.ledger().newest::<Spent>(stream).await.unwrap();
    assert_eq!(spent.unwrap().count, 2);
}

/// The record of a request, as a server keeps it.
fn request(key: &str, version: u64, clock: &Arc<HandClock>) -> (StreamId, Beside) {
    let tenant = Tenant::new("acme").unwrap();
    let stream = StreamId::request(&tenant, "POST", "/v1/effects", &CallKey::new(key).unwrap());
    let at = clock.now();
    let beside = Beside::new(move |after| {
        let body = format!("1[\"{} {}\"]", after.state.word(), after.fence.0);
        vec![Write { stream, expected: Version(version), at, body, summary: plain_summary(StreamKind::Request, tenant.clone()) }]
    });
    (stream, beside)
}

#[tokio::test]
async fn what_is_written_beside_holds_or_falls_with_the_change() {
    let house = house(policy());
    let kept = async |stream| house.runtime.ledger().newest::<String>(stream).await.unwrap().1;
    let (asked, beside) = request("one", 0, &house.clock);
    let acquired = house.runtime.acquire(call("k", "{}"), None, beside.clone()).await.unwrap();
    let Acquired::Lent(lent) = acquired else { panic!("{acquired:?}") };
    assert_eq!(kept(asked).await.unwrap(), format!("running {}", lent.fence.0));
    let (told, committed) = request("two", 0, &house.clock);
    house.runtime.commit(&permit(&lent), json("7"), committed.clone()).await.unwrap();
    assert_eq!(kept(told).await.unwrap(), format!("done {}", lent.fence.0));

    // The record is somebody else's by now: neither is written, and the caller is told which of the two it was.
    let taken = house.runtime.acquire(call("other", "{}"), None, beside).await;
    assert!(matches!(taken, Err(LendError::Ledger(LedgerError::BesideTaken { .. }))), "{taken:?}");
    let other = house.lent(call("other", "{}")).await;
    let taken = house.runtime.commit(&permit(&other), json("7"), committed).await;
    assert!(matches!(taken, Err(LendError::Ledger(LedgerError::BesideTaken { .. }))), "{taken:?}");
    assert_eq!(house.state(&other).await, "running");

    // A late report and a repeated one change nothing that a record could hold or fall with.
    let (late, beside) = request("three", 0, &house.clock);
    house.clock.advance(LEASE);
    house.answered(call("other", "{}")).await;
    assert!(lost(house.runtime.commit(&permit(&other), json("7"), beside.clone()).await));
    assert_eq!(house.runtime.commit(&permit(&lent), json("7"), beside).await.unwrap().1, CommitHow::Repeated);
    assert_eq!(kept(late).await, None);
}

/// Run by clients, and asked about and undone here.
struct Observed;
impl Tool for Observed {
    fn runs(&self) -> Runs {
        Runs::Elsewhere
    }
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        ClientTool.invoke(invocation)
    }
    fn can_probe(&self) -> bool {
        true
    }
    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let happened = invocation.args.as_str().contains("yes");
        Box::pin(async move { if happened { ProbeAnswer::Happened(Success::new(json("\"found\""))) } else { ProbeAnswer::DidNotHappen } })
    }
    fn undo_plan(&self, _: &Invocation, result: &Json) -> Result<Option<UndoPlan>, String> {
        let args = CanonicalJson::parse(&format!("{{\"of\":{result}}}")).map_err(|e| e.to_string())?;
        Ok(Some(UndoPlan { tool: name("refund"), args }))
    }
}

#[tokio::test]
async fn a_probe_settles_what_a_silent_client_left() {
    let house = bare();
    let settle_after = Some(Duration::from_secs(5));
    house.runtime.register(Registered::new(name("charge"), Arc::new(Observed), Policy { settle_after, ..policy() }));
    for (args, lends) in [(r#"["yes"]"#, false), (r#"["no"]"#, true)] {
        let lent = house.lent(call(args, args)).await;
        house.clock.advance(LEASE);
        let early = house.answered(call(args, args)).await;
        assert_eq!(early.status, Status::InDoubt, "the other side may still be at it; nobody waits for that here");
        house.clock.advance(Duration::from_secs(5));
        match house.acquire(call(args, args)).await {
            Acquired::Answer(answer) => assert_eq!((answer.data.unwrap().as_str(), lends), ("\"found\"", false)),
            Acquired::Lent(again) => assert_eq!((again.attempt, again.fence > lent.fence, lends), (2, true, true)),
        }
    }
}

#[tokio::test]
async fn what_a_client_did_can_be_undone_here() {
    let house = bare();
    house.runtime.register(Registered::new(name("charge"), Arc::new(Observed), policy()));
    let refund = FnTool::new(|invocation: Invocation| async move { Ok(invocation.args.to_value()) });
    house.runtime.register(Registered::new(name("refund"), refund, policy()));
    let operator = Operator::new("ann", "wrong amount");
    let lent = house.lent(call("k", "{}")).await;
    house.commit(&lent, "7").await.unwrap();
    let undone = house.runtime.undo(lent.key, &operator).await.unwrap();
    assert_eq!(undone.data.unwrap().as_str(), r#"{"of":7}"#);
    assert_eq!(house.state(&lent).await, "undone");
    assert_eq!(house.commit(&lent, "7").await.unwrap().1, CommitHow::Repeated, "undone, and committed all the same");

    // An undo that clients would have to run is refused before it is begun.
    house.runtime.register(Registered::new(name("refund"), Arc::new(ClientTool), policy()));
    let stuck = house.lent(call("j", "{}")).await;
    house.commit(&stuck, "7").await.unwrap();
    assert_eq!(code(&house.runtime.undo(stuck.key, &operator).await.unwrap()), "tool_runs_elsewhere");
    assert_eq!(house.state(&stuck).await, "done");
}

#[tokio::test]
async fn a_client_learns_that_it_was_cancelled_and_what_it_did_is_kept() {
    let house = house(policy());
    let lent = house.lent(call("k", "{}")).await;
    house.runtime.cancel(lent.key, &Operator::new("ann", "not any more")).await.unwrap();
    assert!(!lost(house.runtime.heartbeat(&permit(&lent), None).await));
    assert!(lost(house.commit(&lent, "7").await));
    let answer = house.answered(call("k", "{}")).await;
    assert_eq!((answer.status, answer.outcome), (Status::Cancelled, "compensatable_failure"));
}

#[tokio::test]
async fn an_output_that_is_not_as_promised_is_kept_and_flagged() {
    let house = bare();
    let output = Schema::compile(&serde_json::json!({ "type": "object" })).unwrap();
    let tool = Registered::new(name("charge"), Arc::new(ClientTool), Policy { result_bytes_max: 100, ..policy() });
    house.runtime.register(Registered { output: Some(output), ..tool });
    let lent = house.lent(call("k", "{}")).await;
    house.commit(&lent, "7").await.unwrap();
    let answer = house.answered(call("k", "{}")).await;
    assert!(matches!(&answer.flags[..], [Flag::OutputSchemaViolated(_)]), "{answer:?}");
    let large = house.lent(call("l", "{}")).await;
    let result = format!("[\"{}\"]", "x".repeat(200));
    house.commit(&large, &result).await.unwrap();
    let answer = house.answered(call("l", "{}")).await;
    assert!(matches!(&answer.flags[..], [Flag::Truncated { bytes: 204, .. }]), "{answer:?}");
    assert!(answer.data.unwrap().as_str().len() < 120);
    assert_eq!(house.commit(&large, &result).await.unwrap().1, CommitHow::Repeated);
    mismatch(house.commit(&large, &result.replace("x\"]", "y\"]")).await);
    let failed = house.lent(call("f", "{}")).await;
    let failure = Failure::new("c".repeat(5000), "m".repeat(50_000)).with_detail(json(&format!("\"{}\"", "d".repeat(50_000))));
    house.fail(&failed, ToolError::Rejected(failure)).await.unwrap();
    assert!(house.stored(&failed).await.len() < 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_process_serves_the_next_request_and_a_restart_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let process = |worker: &str| {
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(dir.path().join("ledger.db"), Default::default()).unwrap());
        let worker = WorkerId::new(worker).unwrap();
        let builder = Builder::new(store).clock(clock.clone()).worker(worker).workers_dir(dir.path().join("workers"));
        let house = House { runtime: builder.build().unwrap(), clock: clock.clone() };
        house.runtime.register(Registered::new(name("charge"), Arc::new(ClientTool), policy()));
        house
    };
    let (first, second) = (process("first"), process("second"));
    // Each at once, over and over: what one process wrote a moment ago the other must find.
    for n in 0..20 {
        let key = format!("k{n}");
        // The other process has just looked, and believes for a moment that nothing is there.
        second.runtime.effect(counterfoil_core::ids::Digest32::of(key.as_bytes())).await.unwrap_err();
        let lent = first.lent(call(&key, "{}")).await;
        second.runtime.heartbeat(&permit(&lent), None).await.unwrap();
        second.commit(&lent, "7").await.unwrap();
        assert_eq!(first.commit(&lent, "7").await.unwrap().1, CommitHow::Repeated);
    }
    let lent = first.lent(call("k", "{}")).await;
    drop(first);
    assert!(second.runtime.recover().await.unwrap().is_empty(), "the server is gone, the client is not");
    let third = process("third");
    assert_eq!(code(&third.answered(call("k", "{}")).await), "in_flight");
    clock.advance(LEASE / 2);
    third.runtime.heartbeat(&permit(&lent), None).await.unwrap();
    clock.advance(LEASE / 2);
    assert!(second.runtime.recover().await.unwrap().is_empty(), "alive, as another process was told");
    third.commit(&lent, "8").await.unwrap();
    let replay = third.answered(call("k", "{}")).await;
    assert_eq!((replay.data.unwrap().as_str(), replay.replayed), ("8", true));
}
