//! One history: a workload carried out by as many threads as it has clients, and what they saw.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use counterfoil_lin::workload::{Act, Disconnect, Step, Workload, said};
use counterfoil_lin::{Invocation, Limit, Operation, Recorder, Resource, Text, Verdict, check, invocation, resource};
use serde_json::json;

use super::client::{
    Message, Outcome, Site, call_message, call_ret, number_of, resolve_message, resolve_ret, tool_message, tool_ret, use_message, use_ret,
};

pub struct Histories {
    pub tools: Vec<Operation<resource::Op, resource::Ret>>,
    pub effects: Vec<Operation<invocation::Op, invocation::Ret>>,
}

impl Histories {
    /// The first that is not success.
    pub fn verdict(&self) -> Verdict {
        match check(&Resource::default(), &self.tools, Limit::default()) {
            Verdict::Linearizable => check(&Invocation::default(), &self.effects, Limit::default()),
            other => other,
        }
    }
}

/// A history under way.
struct Play<'a> {
    site: &'a Site,
    /// Before every name and key: other histories of the same ledger have others.
    prefix: String,
    tools: Recorder<resource::Op, resource::Ret>,
    effects: Recorder<invocation::Op, invocation::Ret>,
    kills: Mutex<VecDeque<usize>>,
    /// What the ledger calls the effects that some answer named.
    named: Mutex<BTreeMap<Text, String>>,
    /// Makes keys unique that are used once.
    fresh: AtomicU64,
}

pub fn carry_out(site: &Site, prefix: &str, workload: &Workload) -> Histories {
    let play = Play {
        site,
        prefix: prefix.to_owned(),
        tools: Recorder::new(),
        effects: Recorder::new(),
        kills: Mutex::new(workload.kills.iter().copied().collect()),
        named: Mutex::default(),
        fresh: AtomicU64::default(),
    };
    std::thread::scope(|scope| {
        for (client, script) in workload.clients.iter().enumerate() {
            let play = &play;
            scope.spawn(move || {
                for step in script {
                    play.perhaps_kill();
                    play.step(client as u32, step);
                }
            });
        }
    });
    play.finish(workload)
}

impl Play<'_> {
    fn perhaps_kill(&self) {
        let begun = self.tools.begun() + self.effects.begun();
        let mut kills = lock(&self.kills);
        let due = kills.front().is_some_and(|at| *at <= begun) && kills.pop_front().is_some();
        drop(kills);
        if due {
            self.site.restart();
        }
    }

    fn step(&self, client: u32, step: &Step) {
        for again in 0..=step.retries {
            let disconnect = step.disconnect.filter(|_| again == 0);
            let known = match &step.act {
                Act::Resource(op) => self.change(client, &step.on, op, disconnect),
                Act::Call { args } => self.call(client, &step.on, args, disconnect).is_some(),
                Act::Settle => {
                    self.settle(client, &step.on);
                    true
                }
            };
            if known {
                return;
            }
        }
    }

    fn change(&self, client: u32, on: &Text, op: &resource::Op, disconnect: Option<Disconnect>) -> bool {
        // Every second client looks at a tool by calling it: what is called and what is shown must be one thing.
        let by_call = *op == resource::Op::Get && !client.is_multiple_of(2);
        let message = if by_call { use_message(&self.prefix, on, self.fresh_key()) } else { tool_message(&self.prefix, on, op) };
        let open = self.tools.begin(client, on.clone(), op.clone());
        match self.site.send(&message, disconnect) {
            Outcome::Told(reply) => open.answered(if by_call { use_ret(&reply) } else { tool_ret(op, &reply) }),
            Outcome::Unknown => {
                open.unknown();
                return false;
            }
            // Half a request has no effect, now or later: nothing in the history may need it.
            Outcome::Unsent => {
                open.withdrawn();
                return false;
            }
        }
        true
    }

    fn call(&self, client: u32, on: &Text, args: &Text, disconnect: Option<Disconnect>) -> Option<invocation::Ret> {
        let open = self.effects.begin(client, on.clone(), invocation::Op::Call { args: args.clone() });
        match self.site.send(&call_message(&self.prefix, on, args), disconnect) {
            Outcome::Told(reply) => {
                let ret = call_ret(&reply);
                open.answered(ret.clone());
                if let Some(effect) = reply.at("/effect").as_str() {
                    lock(&self.named).insert(on.clone(), effect.to_owned());
                }
                return Some(ret);
            }
            Outcome::Unknown => open.unknown(),
            Outcome::Unsent => open.withdrawn(),
        }
        None
    }

    /// A key that is used once.
    fn fresh_key(&self) -> String {
        format!("{}once-{}", self.prefix, self.fresh.fetch_add(1, Ordering::Relaxed))
    }

    /// A person looks, asks the world, and says what it says. What is in doubt is under way nowhere: a server is started only when the
    /// world has done all that the dead one asked of it.
    fn settle(&self, client: u32, on: &Text) {
        let Some(effect) = lock(&self.named).get(on).cloned() else { return };
        let look = Message { method: "GET", path: format!("/v1/effects/{effect}"), key: None, body: String::new() };
        let Outcome::Told(seen) = self.site.send(&look, None) else { return };
        if !matches!(seen.clone().ok().text("/state").as_str(), "in_doubt" | "done") {
            return;
        }
        let results: Vec<u64> = self.site.lab.world.found(&effect).iter().map(number_of).collect();
        let said = said(&results);
        let message = resolve_message(&effect, self.fresh_key(), &said);
        let open = self.effects.begin(client, on.clone(), invocation::Op::Resolve(said));
        match self.site.send(&message, None) {
            Outcome::Told(reply) => open.answered(resolve_ret(&reply)),
            _ => open.unknown(),
        }
    }

    /// The clients are gone. Each tool is read once more; each effect is brought to its end, and the world is asked.
    fn finish(self, workload: &Workload) -> Histories {
        let client = workload.clients.len() as u32;
        for on in &workload.resources {
            assert!(self.change(client, on, &resource::Op::Get, None), "nobody kills it any more");
        }
        for on in &workload.effects {
            self.bring_to_its_end(client, on);
        }
        self.site.lab.world.wait_quiet();
        let happened = self.site.happened();
        for on in &workload.effects {
            let effect = lock(&self.named)[on].clone();
            let open = self.effects.begin(client, on.clone(), invocation::Op::Observe);
            open.answered(invocation::Ret::World(happened.get(&effect).copied().unwrap_or(0)));
        }
        Histories { tools: self.tools.history(), effects: self.effects.history() }
    }

    fn bring_to_its_end(&self, client: u32, on: &Text) {
        // Whichever arguments came first; a doubt is settled, and may run into another one.
        const TRIES_MAX: usize = 20;
        let mut args = "usual";
        for _ in 0..TRIES_MAX {
            match self.call(client, on, &args.into(), None).expect("nobody kills it any more") {
                invocation::Ret::Done { .. } => return,
                invocation::Ret::Mismatch => args = "other",
                invocation::Ret::InDoubt => self.settle(client, on),
                invocation::Ret::Pending => {}
                other => panic!("{on}: {other}"),
            }
        }
        panic!("{on} does not come to its end: {}", json!(lock(&self.named).get(on)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
