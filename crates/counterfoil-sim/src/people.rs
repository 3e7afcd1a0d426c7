//! Callers and operators: what they do with a process, and what they make of its answers.
//!
//! They are honest. An operator looks at the world before saying whether something happened, and says nothing while a request is on its way.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{Call, Caller, CanonicalJson, Effect, Json, RunId, Tenant, effect};
use counterfoil_runtime::engine::operate::{Cancelling, Signal};
use counterfoil_runtime::engine::{NewRun, RunError};
use counterfoil_runtime::{Answer, Operator, Resolution, Runtime, Status};
use counterfoil_store::Query;

use crate::bugs::Bug;
use crate::checker::{Asking, Subject};
use crate::marks::Mark;
use crate::runs::Script;
use crate::state::{Hub, Life, Micros, State};
use crate::tools::{Kind, is_empty, token_of};
use crate::world::Found;

/// What was not settled by itself by then is looked at by a person: a doubt is asked about at least every minute.
const LEFT: Duration = Duration::from_secs(70);

/// Something that callers ask for, again and again.
#[derive(Clone)]
pub struct Asked {
    pub kind: Kind,
    pub subject: Subject,
    pub call: Call,
}

/// A process, as whoever uses it holds it.
#[derive(Clone)]
pub struct Desk {
    pub hub: Arc<Hub>,
    pub life: Life,
    pub runtime: Runtime,
}

pub fn caller() -> Caller {
    Caller::new("client").expect("a plain word")
}

impl Desk {
    /// Asks, and goes away after a while, if it is impatient.
    pub async fn ask(self, asked: Asked, patience: Option<Micros>) {
        let (call, since) = {
            let mut state = self.hub.lock();
            (state.bent(&asked.call), state.now)
        };
        let asking = self.runtime.call(call);
        let answer = match patience {
            None => asking.await,
            Some(patience) => match tokio::time::timeout(Duration::from_micros(patience), asking).await {
                Ok(answer) => answer,
                Err(_) => return self.hub.lock().mark(Mark::CallerLeft),
            },
        };
        self.hub.lock().answered(self.life, &asked, answer, since);
    }

    pub async fn cancel(self, asked: Asked) {
        let Some(key) = asked.key() else { return };
        // Refused where it has ended, or is not there yet.
        drop(self.runtime.cancel(key, &Operator::new("ada", "not needed")).await);
    }

    pub async fn undo(self, asked: Asked) {
        let Some(key) = asked.key() else { return };
        drop(self.runtime.undo(key, &Operator::new("ada", "not wanted")).await);
    }

    /// Looks through what needs a person.
    pub async fn operate(self, tenant: Tenant) {
        let query = Query { states: vec!["in_doubt", "waiting_approval"], ..Query::effects(tenant.clone()) };
        let Ok(page) = self.runtime.ledger().search(query).await else { return };
        for found in page.found {
            let key = Digest32(found.stream.0);
            let Ok(effect) = self.runtime.effect(key).await else { continue };
            let Some(opened) = effect.opened.clone() else { continue };
            let Some(kind) = Kind::named(&opened.tool) else { continue };
            let subject = Subject { tenant: tenant.to_string(), token: token_of(&opened.args) };
            let state = effect.state.word();
            let operator = Operator::new("ada", "looked");
            match state {
                "waiting_approval" => {
                    let yes = self.hub.lock().approves();
                    match yes {
                        true => drop(self.runtime.approve(key, &operator).await),
                        false => drop(self.runtime.deny(key, &operator).await),
                    }
                }
                // What settles itself is left to it: while a person looks, somebody may act. What a run has given up is not repeated, and waits for a person.
                "in_doubt" if (kind.has_probe() || !kind.is_once()) && !self.is_left(&effect) => {}
                "in_doubt" | "cancelled" => {
                    let said = self.hub.lock().looks(&subject);
                    if let Some(resolution) = said {
                        let operator = operator.about(effect.silent.last().map(|claim| claim.attempt));
                        drop(self.runtime.resolve(key, resolution, &operator).await);
                    }
                }
                _ => {}
            }
        }
    }

    /// Nobody has settled it for a long time, though nothing is in the way.
    fn is_left(&self, effect: &Effect) -> bool {
        let effect::State::InDoubt(doubt) = &effect.state else { return false };
        self.hub.lock().calm && self.runtime.now().since(doubt.since) > LEFT
    }

    pub async fn start_run(self, script: Script, run: Subject, changed: bool) {
        let tenant = tenant(&run.tenant);
        let id = RunId::new(&run.token).expect("a plain word");
        let input = CanonicalJson::from_value(&serde_json::json!({ "r": run.token })).expect("plain data");
        let workflow = script.workflow(changed);
        let new = NewRun {
            tenant: tenant.clone(),
            caller: caller(),
            run: Some(id.clone()),
            workflow,
            input,
            parent: None,
            tools: None,
            driven: true,
        };
        match self.runtime.start_run(new).await {
            Ok(_) => drop(self.runtime.drive_run(&tenant, &id).await),
            Err(RunError::Diverged { .. }) => self.hub.lock().mark(Mark::Diverged),
            Err(_) => {}
        }
    }

    pub async fn view(self, script: Script, run: Subject) {
        let id = RunId::new(&run.token).expect("a plain word");
        if let Ok(view) = self.runtime.run(&tenant(&run.tenant), &id).await {
            self.hub.lock().saw(script, &run, view.state);
        }
    }

    pub async fn signal(self, run: Subject) {
        let id = RunId::new(&run.token).expect("a plain word");
        let signal = Signal { id: "go-1".into(), name: "go".into(), correlation: None, payload: Json::null(), by: "somebody".into() };
        use counterfoil_runtime::engine::operate::Heard;
        if let Ok(Heard::Before) = self.runtime.signal_run(&tenant(&run.tenant), &id, signal).await {
            self.hub.lock().mark(Mark::SignalTwice);
        }
    }

    pub async fn cancel_run(self, run: Subject, undo: bool) {
        let id = RunId::new(&run.token).expect("a plain word");
        let cancel = Cancelling { step: None, undo, by: "ada".into(), why: "not needed".into() };
        if self.runtime.cancel_run(&tenant(&run.tenant), &id, cancel).await.is_ok() {
            self.hub.lock().mark(Mark::RunCancelled);
        }
    }

    pub async fn put_workflow(self, name: String, script: Script) {
        if self.runtime.put_workflow(&tenant(&name), &script.workflow(true), "ada").await.is_ok() {
            self.hub.lock().mark(Mark::DefinitionChanged);
        }
    }

    pub async fn prune(self) {
        drop(self.runtime.prune(100).await);
    }

    /// Every end that was told has its receipt, once, in a chain that holds.
    pub async fn audit(self, tenant: Tenant, runs: Vec<RunId>) {
        let mut found: Vec<ReceiptId> = Vec::new();
        for run in std::iter::once(None).chain(runs.iter().map(Some)) {
            match self.runtime.ledger().receipts(&tenant, run).await {
                Ok(receipts) => found.extend(receipts.iter().map(|receipt| receipt.id)),
                Err(error) => self.hub.lock().checker.violated(format!("the receipts of {tenant} do not hold: {error}")),
            }
        }
        self.hub.lock().checker.audited(tenant.as_str(), &found);
    }
}

impl Asked {
    /// The effect it is, as any program can work out.
    fn key(&self) -> Option<Digest32> {
        use counterfoil_core::call::Identity;
        match self.call.identity(&self.call.args, &self.kind.policy()) {
            Ok(Identity::Fixed(key)) => Some(key),
            _ => None,
        }
    }
}

impl State {
    fn answered(&mut self, life: Life, asked: &Asked, answer: Answer, since: Micros) {
        if !self.is_alive(life) {
            return;
        }
        let mut answer = answer;
        if self.bug == Some(Bug::DoubtToldAsFailure) && answer.status == Status::InDoubt {
            answer = Answer { status: Status::Error, outcome: "permanent_failure", ..answer };
        }
        let Asked { kind, subject, .. } = asked;
        let code = answer.error.as_ref().map_or("", |error| error.code.as_str());
        self.say(|| {
            let data = answer.data.as_ref().map_or("", |data| data.as_str());
            format!("answer: w{life} {kind:?} {subject}: {} {code} {data} {} {}", answer.status.word(), answer.outcome, answer.execution_id)
        });
        match code {
            "key_reuse_mismatch" => self.mark(Mark::KeyReuse),
            "key_expired" => self.mark(Mark::KeyExpired),
            "circuit_open" => self.mark(Mark::CircuitOpen),
            _ => {}
        }
        if answer.replayed && answer.data.as_ref().is_some_and(is_empty) {
            self.mark(Mark::EmptyReplay);
        }
        let mine = |request: &crate::world::Request| request.subject == *subject && request.life == life;
        if answer.status == Status::Success && !self.world.requests.iter().any(mine) {
            self.mark(Mark::ReplayAfterCrash);
        }
        if answer.status == Status::Cancelled && self.world.acts.iter().any(|act| act.subject == *subject) {
            self.mark(Mark::CancelledActed);
        }
        let twin = |act: &crate::world::Act| act.subject.token == subject.token && act.subject.tenant != subject.tenant;
        if answer.status == Status::Success && self.world.acts.iter().any(twin) {
            self.mark(Mark::TwoTenantsOneKey);
        }
        let asking = Asking { life, since, until: self.now, attempt: answer.attempt };
        self.checker.answered(&self.world, *kind, subject, &answer, asking);
    }

    fn approves(&mut self) -> bool {
        let yes = self.rng.percent(75);
        self.mark(if yes { Mark::Approved } else { Mark::Denied });
        yes
    }

    /// What an operator says who looked at the world. `None`: not yet.
    fn looks(&mut self, subject: &Subject) -> Option<Resolution> {
        match self.world.look(subject) {
            Found::Travelling => None,
            Found::Acted(result) => {
                self.mark(Mark::PersonHappened);
                Some(Resolution::Happened { result })
            }
            Found::Nothing => {
                self.world.clear(subject);
                let again = self.rng.percent(70);
                self.mark(if again { Mark::PersonDidNot } else { Mark::PersonGaveUp });
                Some(if again { Resolution::DidNotHappen } else { Resolution::GiveUp })
            }
        }
    }

    fn saw(&mut self, script: Script, run: &Subject, state: &'static str) {
        self.say(|| format!("view: run {run} is {state}"));
        let known = self.checker.is_over(run);
        if self.checker.seen(&self.world, script, run, state) && !known {
            match state {
                "completed" => self.mark(Mark::RunCompleted),
                "compensated" => self.mark(Mark::RunCompensated),
                "compensation_failed" => self.mark(Mark::CompensationFailed),
                _ => {}
            }
        }
    }

    /// The call as a program asks it that has one of the deliberate bugs.
    fn bent(&mut self, call: &Call) -> Call {
        let mut call = call.clone();
        match self.bug {
            Some(Bug::KeyWithoutTenant) => {
                let name = (String::new(), call.tool.to_string(), call.key.as_ref().map(ToString::to_string));
                call.tenant = self.first.entry(name).or_insert_with(|| call.clone()).tenant.clone();
            }
            Some(Bug::ArgumentsIgnored) if call.key.is_some() => {
                let name = (call.tenant.to_string(), call.tool.to_string(), call.key.as_ref().map(ToString::to_string));
                call.args = self.first.entry(name).or_insert_with(|| call.clone()).args.clone();
            }
            _ => {}
        }
        call
    }
}

pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a plain word")
}
