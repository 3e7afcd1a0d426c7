//! Personal data under its subject's key: nothing of it in clear in the store, every promise kept as before, and nothing left once the key is gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::ids::{CallKey, Digest32};
use counterfoil_core::redact::Salt;
use counterfoil_core::veil::{self, SubjectKey, Veil};
use counterfoil_core::{
    Call, Caller, CanonicalJson, Effect, Failure, Json, Outcome, Policy, RunId, StreamId, Success, Tenant, ToolName, codec,
};
use counterfoil_runtime::engine::{NewRun, RunError};
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::tool::{ToolFuture, UndoPlan};
use counterfoil_runtime::workflow::Workflow;
use counterfoil_runtime::{Answer, Builder, Invocation, Operator, ProbeAnswer, Registered, Runtime, Status, Tool};
use counterfoil_store::memory::Memory;
use counterfoil_store::{Batch, Graves, Position, Reach, Store, Tombstone, Write};

/// Acts, answers with what it was told, and can be asked.
#[derive(Default)]
struct World {
    done: Mutex<BTreeMap<String, String>>,
    acted: Mutex<Vec<String>>,
    /// The next answers are lost.
    lost: Mutex<VecDeque<()>>,
}

impl World {
    fn acted(&self) -> usize {
        self.acted.lock().unwrap().len()
    }
}

struct WorldTool {
    world: Arc<World>,
    undo: bool,
}

impl Tool for WorldTool {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        Box::pin(async move {
            let result = format!(r#"{{"sent_to":{}}}"#, invocation.args.as_str());
            self.world.acted.lock().unwrap().push(invocation.tool.to_string());
            self.world.done.lock().unwrap().insert(invocation.key.to_string(), result.clone());
            match self.world.lost.lock().unwrap().pop_front() {
                Some(()) => Outcome::Unknown(Failure::of_dependency("connection_lost", "hung up")),
                None => Outcome::Done(Success::new(Json::parse(&result).unwrap())),
            }
        })
    }
    fn can_probe(&self) -> bool {
        true
    }
    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let found = self.world.done.lock().unwrap().get(&invocation.key.to_string()).cloned();
        Box::pin(async move { found.map_or(ProbeAnswer::DidNotHappen, |r| ProbeAnswer::Happened(Success::new(Json::parse(&r).unwrap()))) })
    }
    fn undo_plan(&self, invocation: &Invocation, _: &Json) -> Result<Option<UndoPlan>, String> {
        Ok(self.undo.then(|| UndoPlan { tool: name("unmail"), args: invocation.args.clone() }))
    }
}

struct House {
    store: Arc<Memory>,
    world: Arc<World>,
    runtime: Runtime,
}

fn house() -> House {
    house_on(Arc::new(Memory::default()), Arc::default())
}

/// `mail` says whom it is about, `note` and `unmail` do not.
fn house_on(store: Arc<Memory>, world: Arc<World>) -> House {
    let runtime = Builder::new(store.clone()).build().unwrap();
    let policy = Policy { timeout: Duration::from_secs(5), settle_after: Some(Duration::ZERO), ..Policy::default() };
    for tool in ["mail", "note", "unmail"] {
        let mut registered =
            Registered::new(name(tool), Arc::new(WorldTool { world: world.clone(), undo: tool == "mail" }), policy.clone());
        if tool == "mail" {
            registered.subject =
                Some(Arc::new(|args| args.to_value()["to"].as_str().map(str::to_owned).ok_or_else(|| "to is missing".to_owned())));
        }
        runtime.register(registered);
    }
    House { store, world, runtime }
}

impl House {
    /// As another process would see it.
    fn neighbour(&self) -> Self {
        house_on(self.store.clone(), self.world.clone())
    }

    async fn mail(&self, key: &str, to: &str) -> Answer {
        self.call("mail", key, &format!(r#"{{"to":"{to}","text":"dear {to}"}}"#)).await
    }

    async fn call(&self, tool: &str, key: &str, args: &str) -> Answer {
        let call = Call {
            tenant: acme(),
            caller: Caller::new("test").unwrap(),
            tool: name(tool),
            args: CanonicalJson::parse(args).unwrap(),
            key: CallKey::new(key).ok(),
            run: None,
            step: None,
            ordinal: 0,
        };
        self.runtime.call(call).await
    }

    /// All that the store has, as text.
    async fn stored(&self) -> String {
        let records = self.store.tail(Position(0), 10_000).await.unwrap();
        records.iter().map(|recorded| format!("{} {:?}\n", recorded.record.body, recorded.summary)).collect()
    }

    async fn subject(&self, subject: &str) -> StreamId {
        let salt = self.store.load(StreamId::salt(), Reach::Newest(1)).await.unwrap();
        let salt: Vec<Digest32> = codec::decode(&salt.records[0].body).unwrap();
        StreamId::subject(&Salt(salt[0].0), &acme(), subject)
    }

    async fn erase(&self, subject: &str) {
        let stream = self.subject(subject).await;
        let version = self.store.load(stream, Reach::Newest(0)).await.unwrap().version;
        self.store.erase(&Tombstone { stream, version }).await.unwrap();
    }

    async fn effect(&self, answer: &Answer) -> Effect {
        self.runtime.ledger().load(answer.effect.unwrap()).await.unwrap()
    }

    async fn run(&self, workflow: &Arc<Workflow>, input: &str, run: &str) -> Result<RunId, RunError> {
        let new = NewRun {
            tenant: acme(),
            caller: Caller::new("test").unwrap(),
            run: Some(RunId::new(run).unwrap()),
            workflow: workflow.clone(),
            input: CanonicalJson::parse(input).unwrap(),
            parent: None,
            tools: None,
            driven: true,
        };
        let (run, _) = self.runtime.start_run(new).await?;
        let acme = acme();
        let seen = self.runtime.see_run_through(&acme, &run);
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("the run ends")?;
        Ok(run)
    }
}

fn name(tool: &str) -> ToolName {
    ToolName::new(tool).unwrap()
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn ann() -> Operator {
    Operator::new("ann", "asked for")
}

fn code(answer: &Answer) -> &str {
    answer.error.as_ref().map_or("", |error| error.code.as_str())
}

fn workflow(yaml: &str) -> Arc<Workflow> {
    Arc::new(Workflow::parse(yaml, "test.yaml").unwrap_or_else(|errors| panic!("{errors}")))
}

#[tokio::test]
async fn a_veiled_call_replays_byte_for_byte_and_shows_nothing_in_the_store() {
    let house = house();
    let first = house.mail("k", "ada@x.org").await;
    assert_eq!(first.status, Status::Success, "{first:?}");
    let stored = house.stored().await;
    assert!(!stored.contains("ada@x.org") && !stored.contains("dear"), "{stored}");
    assert!(stored.contains("2{\"subject\":\""), "{stored}");
    // By the newest record alone, by the whole history, and by another process.
    for house in [&house, &house.neighbour()] {
        let again = house.mail("k", "ada@x.org").await;
        assert!(again.replayed, "{again:?}");
        assert_eq!(again.data.as_ref().map(Json::as_str), first.data.as_ref().map(Json::as_str));
        assert_eq!(house.effect(&first).await.opened.as_ref().unwrap().args.to_value()["to"], "ada@x.org");
    }
    assert_eq!(code(&house.mail("k", "bob@x.org").await), "key_reuse_mismatch");
    let history = house.runtime.history(first.effect.unwrap()).await.unwrap();
    assert!(history.iter().any(|line| line["entry"].get("finished").is_some()), "{history:?}");
    // Who has no subject pays nothing, and is stored as ever.
    house.call("note", "n", r#"{"text":"in clear"}"#).await;
    assert!(house.stored().await.contains("in clear"));
    assert_eq!(house.world.acted(), 2);
}

/// What a receipt says of arguments and result cannot be tried out by guessing, and still proves them to whoever has the key.
#[tokio::test]
async fn receipts_stay_and_tell_no_guess() {
    let house = house();
    house.mail("k", "ada@x.org").await;
    let receipts = house.runtime.ledger().receipts(&acme(), None).await.unwrap();
    let args = CanonicalJson::parse(r#"{"to":"ada@x.org","text":"dear ada@x.org"}"#).unwrap();
    let result = Json::parse(&format!(r#"{{"sent_to":{}}}"#, args.as_str())).unwrap().digest();
    assert!(!receipts[0].covers(&name("mail"), &args) && receipts[0].result != result);
    let stream = house.subject("ada@x.org").await;
    let keys: Vec<SubjectKey> = codec::decode(&house.store.load(stream, Reach::Whole).await.unwrap().records[0].body).unwrap();
    let veil = Veil::new(stream, &keys[0]);
    assert_eq!(receipts[0].result, veil.blind(&result));
    assert!(receipts[0].covers_under(&veil, &name("mail"), &args) && !receipts[0].covers_under(&veil, &name("note"), &args));
}

#[tokio::test]
async fn an_erased_subject_is_gone_and_its_keys_are_not_free() {
    let house = house();
    let (ada, bob) = (house.mail("a", "ada@x.org").await, house.mail("b", "bob@x.org").await);
    let neighbour = house.neighbour();
    neighbour.mail("a", "ada@x.org").await;
    house.erase("ada@x.org").await;
    for house in [&house, &neighbour] {
        assert_eq!(code(&house.mail("a", "ada@x.org").await), "key_expired");
        let refused = house.mail("new", "ada@x.org").await;
        assert_eq!((refused.status, code(&refused)), (Status::Error, "subject_erased"));
        assert!(house.effect(&ada).await.expired && house.effect(&ada).await.opened.is_none());
        assert!(house.mail("b", "bob@x.org").await.replayed, "others are as they were");
    }
    assert_eq!(house.effect(&refused_key(&house).await).await.version, 0, "nothing is recorded of a refusal");
    assert!(!house.effect(&bob).await.expired);
    assert_eq!(house.world.acted(), 2, "nothing was done again");
    assert_eq!(house.runtime.ledger().receipts(&acme(), None).await.unwrap().len(), 2, "the chain holds");
}

async fn refused_key(house: &House) -> Answer {
    house.mail("new", "ada@x.org").await
}

#[tokio::test]
async fn a_doubt_is_settled_and_an_undo_done_by_another_process() {
    let house = house();
    house.world.lost.lock().unwrap().push_back(());
    let policy = Policy { timeout: Duration::from_secs(5), ..Policy::default() };
    let mut cannot = Registered::new(name("mail"), Arc::new(Mute(house.world.clone())), policy);
    cannot.subject = Some(Arc::new(|args| Ok(args.to_value()["to"].as_str().unwrap().to_owned())));
    house.runtime.register(cannot);
    let lost = house.mail("k", "ada@x.org").await;
    assert_eq!(lost.status, Status::InDoubt, "{lost:?}");
    let neighbour = house.neighbour();
    let settled = neighbour.mail("k", "ada@x.org").await;
    assert_eq!((settled.status, house.world.acted()), (Status::Success, 1), "{settled:?}");
    let undone = neighbour.runtime.undo(lost.effect.unwrap(), &ann()).await.unwrap();
    assert_eq!(undone.status, Status::Success, "{undone:?}");
    assert_eq!(*house.world.acted.lock().unwrap(), ["mail", "unmail"]);
    let stored = house.stored().await;
    assert!(!stored.contains("ada@x.org"), "what undoes it is about the same person: {stored}");
    neighbour.erase("ada@x.org").await;
    assert!(house.runtime.undo(lost.effect.unwrap(), &ann()).await.is_err());
    assert_eq!(house.world.acted(), 2);
}

/// Acts, and cannot be asked.
struct Mute(Arc<World>);
impl Tool for Mute {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        Box::pin(async move { WorldTool { world: self.0.clone(), undo: true }.invoke(invocation).await })
    }
}

#[tokio::test]
async fn a_run_is_veiled_with_all_that_it_does_and_gone_with_its_subject() {
    let house = house();
    let trip = workflow(
        "workflow: trip\nsubject: input.customer\nsteps:\n  - { id: a, tool: note, args: { who: \"${input.customer}\" } }\n  - { id: b, tool: note, args: { \
         again: \"${steps.a.result.sent_to.who}\" } }\noutput: \"${steps.b.result}\"\n",
    );
    let run = house.run(&trip, r#"{"customer":"ada@x.org"}"#, "r-1").await.unwrap();
    let view = house.neighbour().runtime.run(&acme(), &run).await.unwrap();
    assert_eq!(view.state, "completed", "{view:?}");
    let stored = house.stored().await;
    assert!(!stored.contains("ada@x.org"), "{stored}");
    // Asked for again it is the same run, also by another process; with another input it is refused.
    house.neighbour().run(&trip, r#"{"customer":"ada@x.org"}"#, "r-1").await.unwrap();
    assert_eq!(house.run(&trip, r#"{"customer":"bob@x.org"}"#, "r-1").await.unwrap_err().code(), "run_exists");
    assert_eq!(house.world.acted(), 2);
    house.erase("ada@x.org").await;
    assert_eq!(house.runtime.run(&acme(), &run).await.unwrap_err().code(), "run_not_found");
    assert_eq!(house.run(&trip, r#"{"customer":"ada@x.org"}"#, "r-1").await.unwrap_err().code(), "subject_erased");
    assert_eq!(house.run(&trip, r#"{"customer":"ada@x.org"}"#, "r-2").await.unwrap_err().code(), "subject_erased");
    assert_eq!(house.run(&trip, r#"{"customer":""}"#, "r-3").await.unwrap_err().code(), "invalid_input");
    assert_eq!(house.world.acted(), 2);
    assert_eq!(house.runtime.ledger().receipts(&acme(), Some(&run)).await.unwrap().len(), 2, "the chain holds");
}

/// One that is moved to another place is damage, and is never run again.
#[tokio::test]
async fn a_moved_record_is_damage() {
    let house = house();
    let (a, b) = (house.mail("a", "ada@x.org").await, house.mail("b", "ada@x.org").await);
    let from = house.store.load(StreamId::effect(&a.effect.unwrap()), Reach::Newest(1)).await.unwrap();
    let to = StreamId::effect(&b.effect.unwrap());
    let expected = house.store.load(to, Reach::Newest(0)).await.unwrap().version;
    let summary = house.effect(&b).await.summary();
    let body = from.records[0].body.clone();
    assert!(veil::is_veiled(&body));
    house.store.append(&Batch { writes: vec![Write { stream: to, expected, at: from.records[0].at, body, summary }] }).await.unwrap();
    let error = house.runtime.ledger().load(b.effect.unwrap()).await.expect_err("it is not read");
    assert_eq!(error.code(), "ledger_corrupt", "{error}");
    assert!(matches!(error, LedgerError::Store(_)));
    let answer = house.mail("b", "ada@x.org").await;
    assert_eq!((answer.status, code(&answer)), (Status::Error, "ledger_corrupt"));
    assert_eq!(house.world.acted(), 2);
}
