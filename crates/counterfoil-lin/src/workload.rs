//! What many clients shall do, decided beforehand from one seed.
//!
//! The same plan gives the same scripts on every machine; what comes of them depends on the server and the clock. Values and keys are
//! unique unless a reuse is meant: by a retry, by two clients at once, or with another payload. An idempotency key belongs to one tool,
//! so that tools can be checked apart from each other.

use std::collections::VecDeque;

use crate::history::Text;
use crate::rng::Rng;
use crate::{invocation, resource};

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub clients: u32,
    pub steps_per_client: usize,
    /// Named tools to put, get and delete.
    pub resources: usize,
    /// Effect keys to call.
    pub effects: usize,
    /// How often the server is killed.
    pub kills: usize,
    pub odds: Odds,
}

/// Weights of the kinds of steps, and chances in percent of what befalls them.
#[derive(Debug, Clone)]
pub struct Odds {
    pub get: u32,
    pub put: u32,
    pub delete: u32,
    pub call: u32,
    /// A person settles a doubt. Of all clients' steps together, although one person does it.
    pub settle: u32,
    /// A put or delete carries an idempotency key.
    pub keyed: u8,
    /// An earlier keyed write is sent once more, by whichever client.
    pub repeated: u8,
    /// A keyed write is sent by another client as well, at about the same time.
    pub twin: u8,
    /// An earlier key is sent with another payload; a call with other arguments.
    pub other_payload: u8,
    pub disconnect: u8,
    /// A step whose outcome is unknown is sent again, up to twice.
    pub retried: u8,
}

impl Default for Odds {
    fn default() -> Self {
        Self {
            get: 30,
            put: 25,
            delete: 10,
            call: 30,
            settle: 5,
            keyed: 70,
            repeated: 15,
            twin: 15,
            other_payload: 5,
            disconnect: 5,
            retried: 70,
        }
    }
}

impl Plan {
    /// Small and dense: many overlaps, quick to check.
    pub fn small(seed: u64) -> Self {
        Self { seed, clients: 5, steps_per_client: 8, resources: 2, effects: 2, kills: 1, odds: Odds::default() }
    }

    /// What the HTTP API is tried with.
    pub fn large(seed: u64) -> Self {
        Self { seed, clients: 32, steps_per_client: 25, resources: 8, effects: 8, kills: 3, odds: Odds::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub seed: u64,
    /// One script per client.
    pub clients: Vec<Vec<Step>>,
    /// The server is killed when so many operations have begun. Ascending.
    pub kills: Vec<usize>,
    /// Every tool that is put, to be read once more at the end.
    pub resources: Vec<Text>,
    /// Every effect key that is called, to be observed at the end.
    pub effects: Vec<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The tool's name or the effect's key.
    pub on: Text,
    pub act: Act,
    pub disconnect: Option<Disconnect>,
    /// When the outcome is unknown, it is sent again, as it was, so many times.
    pub retries: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Resource(resource::Op),
    Call {
        args: Text,
    },
    /// A person looks at the effect. If it is in doubt or done, the person asks the world, once nothing is under way there, and
    /// resolves the effect by what it says ([`said`]); otherwise nothing is done. Only client 0 is that person, and it never
    /// disconnects here: a word that arrives late could be untrue by then.
    Settle,
}

/// When the client goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// Half of the request was sent: it must have no effect, and may be recorded as unknown all the same.
    MidRequest,
    /// The whole request was sent, nothing read.
    AfterRequest,
    /// The first byte of the answer was read.
    MidAnswer,
}

impl Workload {
    pub fn new(plan: &Plan) -> Self {
        let resources: Vec<Text> = (0..plan.resources).map(|n| format!("tool-{n}").into()).collect();
        let effects: Vec<Text> = (0..plan.effects).map(|n| format!("effect-{n}").into()).collect();
        let mut author = Author {
            plan,
            rng: Rng::new(plan.seed),
            keyed: vec![Vec::new(); plan.resources],
            twins: vec![VecDeque::new(); plan.clients as usize],
            written: 0,
        };
        let mut clients = vec![Vec::new(); plan.clients as usize];
        // Step by step for all clients, not client by client: what is reused was then sent at about the same time or before.
        for _ in 0..plan.steps_per_client {
            for (client, script) in clients.iter_mut().enumerate() {
                script.push(author.step(client, &resources, &effects));
            }
        }
        let operations = plan.clients as usize * plan.steps_per_client;
        let mut kills: Vec<_> = (0..plan.kills).map(|_| 1 + author.rng.below(operations.max(1))).collect();
        kills.sort_unstable();
        Self { seed: plan.seed, clients, kills, resources, effects }
    }
}

/// Writes the scripts.
struct Author<'a> {
    plan: &'a Plan,
    rng: Rng,
    /// Per tool: keyed writes so far.
    keyed: Vec<Vec<resource::Op>>,
    /// Per client: writes of others that it shall send too.
    twins: Vec<VecDeque<(usize, resource::Op)>>,
    /// Makes versions and keys unique.
    written: u64,
}

enum Kind {
    Get,
    Put,
    Delete,
    Call,
    Settle,
}

impl Author<'_> {
    fn step(&mut self, client: usize, resources: &[Text], effects: &[Text]) -> Step {
        let (on, act) = match self.twins[client].pop_front() {
            Some((tool, op)) => (resources[tool].clone(), Act::Resource(op)),
            None => self.act(client, resources, effects),
        };
        let odds = &self.plan.odds;
        let disconnect = self
            .rng
            .percent(odds.disconnect)
            .then(|| *self.rng.pick(&[Disconnect::MidRequest, Disconnect::AfterRequest, Disconnect::AfterRequest, Disconnect::MidAnswer]));
        let retries = if self.rng.percent(odds.retried) { 1 + self.rng.below(2) as u8 } else { 0 };
        Step { on, act, disconnect, retries }
    }

    fn act(&mut self, client: usize, resources: &[Text], effects: &[Text]) -> (Text, Act) {
        match self.kind(client) {
            Kind::Get => (self.rng.pick(resources).clone(), Act::Resource(resource::Op::Get)),
            kind @ (Kind::Put | Kind::Delete) => {
                let tool = self.rng.below(resources.len());
                let op = self.write(tool, matches!(kind, Kind::Delete));
                if op.key().is_some() {
                    self.keyed[tool].push(op.clone());
                    self.perhaps_twin(client, tool, &op);
                }
                (resources[tool].clone(), Act::Resource(op))
            }
            Kind::Call => {
                let args = if self.rng.percent(self.plan.odds.other_payload) { "other" } else { "usual" };
                (self.rng.pick(effects).clone(), Act::Call { args: args.into() })
            }
            Kind::Settle => (self.rng.pick(effects).clone(), Act::Settle),
        }
    }

    /// A plan without tools or without effects leaves out what would need them.
    fn kind(&mut self, client: usize) -> Kind {
        let odds = &self.plan.odds;
        // One person settles for all.
        let settle = if client == 0 { odds.settle * self.plan.clients } else { 0 };
        let mut weights = [odds.get, odds.put, odds.delete, odds.call, settle];
        if self.plan.resources == 0 {
            weights[..3].fill(0);
        }
        if self.plan.effects == 0 {
            weights[3..].fill(0);
        }
        match self.rng.weighted(&weights) {
            0 => Kind::Get,
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Call,
            _ => Kind::Settle,
        }
    }

    fn write(&mut self, tool: usize, delete: bool) -> resource::Op {
        let earlier = &self.keyed[tool];
        if !earlier.is_empty() && self.rng.percent(self.plan.odds.repeated) {
            return self.rng.pick(earlier).clone();
        }
        let reused = !earlier.is_empty() && self.rng.percent(self.plan.odds.other_payload);
        let reused = reused.then(|| self.rng.pick(earlier).key().cloned()).flatten();
        self.written += 1;
        let fresh = self.rng.percent(self.plan.odds.keyed).then(|| Text::from(format!("k{}", self.written)));
        let key = reused.or(fresh);
        match delete {
            true => resource::Op::Delete { key },
            false => resource::Op::Put { version: format!("v{}", self.written).into(), key },
        }
    }

    fn perhaps_twin(&mut self, client: usize, tool: usize, op: &resource::Op) {
        if self.plan.clients < 2 || !self.rng.percent(self.plan.odds.twin) {
            return;
        }
        let other = (client + 1 + self.rng.below(self.plan.clients as usize - 1)) % self.plan.clients as usize;
        self.twins[other].push_back((tool, op.clone()));
    }
}

/// What a person says who asked the world for the results it gave under an effect's key.
pub fn said(results: &[u64]) -> invocation::Said {
    match results.last() {
        Some(result) => invocation::Said::Happened { result: Some(*result) },
        None => invocation::Said::DidNotHappen,
    }
}
