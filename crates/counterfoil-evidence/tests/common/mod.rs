//! A run with its effects, made of the same values that a ledger is made of, in a log among other receipts.
#![allow(dead_code, reason = "each test uses its own part of it")]

use std::borrow::Cow;

use counterfoil_core::call::{spec_hash, undo_key};
use counterfoil_core::entry::{Claim, Ended, Finished, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use counterfoil_core::ids::{Caller, Digest32, Fence, RunId, Tenant, ToolName, WorkerId, WorkflowName};
use counterfoil_core::receipt::{ChainHead, Draft, ReceiptId};
use counterfoil_core::run::RunEntry;
use counterfoil_core::run::entry::{Began, By, RunEnd, Started, StepEnd};
use counterfoil_core::{CanonicalJson, Effect, Entry, Failure, Json, StepPath, StreamId, Success, Timestamp, codec};
use counterfoil_evidence::bundle::{self, Contents, Definition, FORMAT, Manifest, Of, Proof, ReceiptLine, RecordLine};
use counterfoil_evidence::ends::end_of;
use counterfoil_evidence::merkle::{Seen, cover, leaf_hash};
use counterfoil_evidence::tiles::{Edge, Tiles};
use counterfoil_evidence::{Head, SecretKey};

pub const DEFINITION: &str = "workflow: pay\nsteps:\n  - { id: pay, tool: charge }\n";

pub fn secret() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

/// A log in memory, as its owner keeps it.
#[derive(Default)]
pub struct Log {
    edge: Edge,
    tiles: Tiles,
}

impl Log {
    pub fn push(&mut self, leaf: Digest32) -> u64 {
        self.edge.push(leaf);
        self.edge.size() - 1
    }

    pub fn head(&mut self, secret: &SecretKey) -> Head {
        self.edge.clone().into_added().into_iter().for_each(|(tile, hashes)| self.tiles.insert(tile, hashes));
        Head::sign(secret, Seen { size: self.edge.size(), root: self.edge.root() }, Timestamp(1_700_000_000_000_000))
    }

    pub fn cover(&self, leaves: &[u64], size: u64) -> Vec<Digest32> {
        self.tiles.hashes(&cover(leaves, size)).expect("every tile is here")
    }
}

/// A run with what was recorded of it.
pub struct Story {
    pub tenant: Tenant,
    pub run: RunId,
    pub records: Vec<RecordLine<'static>>,
    pub receipts: Vec<String>,
    chain: ChainHead,
    now: i64,
}

impl Story {
    /// With `effects` effects, which end in every way there is.
    pub fn new(run: &str, effects: usize) -> Self {
        let mut story = Self {
            tenant: Tenant::new("acme").unwrap(),
            run: RunId::new(run).unwrap(),
            records: Vec::new(),
            receipts: Vec::new(),
            chain: ChainHead::default(),
            now: 1_700_000_000_000_000,
        };
        let keys: Vec<Digest32> = (0..effects).map(|n| Digest32::of(format!("{run}/{n}").as_bytes())).collect();
        story.run_records(&keys);
        keys.iter().enumerate().for_each(|(n, key)| story.effect(n, *key));
        story
    }

    fn at(&mut self) -> Timestamp {
        self.now += 1_000;
        Timestamp(self.now)
    }

    fn run_records(&mut self, keys: &[Digest32]) {
        let started = Started {
            at: self.at(),
            tenant: self.tenant.clone(),
            run: self.run.clone(),
            caller: Caller::new("cli").unwrap(),
            workflow: WorkflowName::new("pay").unwrap(),
            by: By::Plan,
            definition: Digest32::of(DEFINITION.as_bytes()),
            input: CanonicalJson::empty_object(),
            parent: None,
            forked: None,
            tools: None,
            deadline: None,
            lease_ms: None,
            retain_ms: 1000,
        };
        let mut records = vec![vec![RunEntry::RunStarted(Box::new(started))]];
        for (n, key) in keys.iter().enumerate().take(3) {
            let step = StepPath::new(&format!("s{n}")).unwrap();
            let what = Began::Effect { tool: ToolName::new("charge").unwrap(), key: *key, pure: false };
            records.push(vec![RunEntry::StepBegan { at: self.at(), step: step.clone(), what }]);
            let how = StepEnd::Done { result: Json::null(), way: None, undo: false };
            records.push(vec![RunEntry::StepEnded { at: self.at(), step, how }]);
        }
        records.push(vec![RunEntry::RunEnded { at: self.at(), how: RunEnd::Completed { output: Json::null() } }]);
        let stream = Digest32(StreamId::run(&self.tenant, &self.run).0);
        for (entries, version) in records.iter().zip(1..) {
            let (at, body) = (self.at(), codec::encode(entries).into());
            self.records.push(RecordLine { of: Of::Run, stream, version, at, body });
        }
    }

    fn effect(&mut self, n: usize, key: Digest32) {
        let args = CanonicalJson::parse(&format!(r#"{{"cents":{n},"note":"für \"{n}\""}}"#)).unwrap();
        let opened = Entry::Opened(Opened {
            at: self.at(),
            tenant: self.tenant.clone(),
            caller: Caller::new("cli").unwrap(),
            tool: ToolName::new("charge").unwrap(),
            fingerprint: args.fingerprint(),
            args,
            run: Some(self.run.clone()),
            step: None,
            redacted: false,
            settles: false,
            lent: false,
            retain_ms: 1000,
        });
        let mut effect = Effect::absent(key);
        let claim = |at: Timestamp, attempt, fence| {
            let worker = WorkerId::new("w-1").unwrap();
            Entry::Claimed(Claim { at, attempt, fence: Fence(fence), worker, lease_until: at })
        };
        let first = claim(self.at(), 1, 1);
        self.record(&mut effect, vec![opened, first]);
        let (started, ended) = (self.at(), self.at());
        let id = |effect: &Effect| ReceiptId::new(&effect.key, effect.version + 1);
        let finished = |outcome| Entry::Finished(Finished { fence: Fence(1), attempt: 1, started, ended, outcome, answers: None });
        let result = Json::parse(&format!(r#"{{ "id": {n} }}"#)).unwrap();
        let undo = Some(UndoCall { tool: ToolName::new("refund").unwrap(), args: CanonicalJson::empty_object() });
        let failure = || Failure::new("rejected", "no such card").with_detail(Json::string("…"));
        let (by, why) = ("ada".to_owned(), format!("she called them, {n}"));
        let done = |receipt| Ended::Done { success: Success::new(result.clone()), undo: undo.clone(), receipt };
        let lost = |at| Entry::Lost { fence: Fence(1), at, why: "silent".into() };
        match n % 10 {
            1 => {
                let receipt = id(&effect);
                self.record(&mut effect, vec![finished(Ended::Failed { failure: failure(), receipt })]);
            }
            2 => {
                let receipt = id(&effect);
                self.record(&mut effect, vec![Entry::Cancelled { at: ended, by, why, receipt }]);
                let outcome = LateOutcome::Done { result: result.clone(), flags: Vec::new(), undo, state_changed: None };
                let receipt = id(&effect);
                self.record(&mut effect, vec![Entry::Late(Late { fence: Fence(1), at: ended, outcome, receipt })]);
            }
            3..=5 => {
                self.record(&mut effect, vec![lost(started)]);
                let verdict = match n % 10 {
                    3 => Verdict::Happened { result: result.clone(), undo },
                    4 => Verdict::DidNotHappen,
                    _ => Verdict::GaveUp,
                };
                let receipt = id(&effect);
                self.record(&mut effect, vec![Entry::Resolved { at: ended, by, why, verdict, receipt }]);
            }
            6 => {
                self.record(&mut effect, vec![lost(started)]);
                let answer = Probed::Happened { result: result.clone(), undo, receipt: id(&effect) };
                self.record(&mut effect, vec![Entry::Probed { at: ended, answer }]);
            }
            7 | 8 => {
                let receipt = id(&effect);
                self.record(&mut effect, vec![finished(done(receipt))]);
                let undo = undo_key(&key);
                self.record(&mut effect, vec![Entry::UndoStarted { at: ended, by, why: String::new(), undo }]);
                let failure = (n % 10 == 8).then(failure);
                let receipt = id(&effect);
                self.record(&mut effect, vec![Entry::UndoFinished { at: ended, undo, failure, receipt }]);
            }
            9 => {
                let receipt = Some(id(&effect));
                self.record(&mut effect, vec![finished(Ended::Retry { failure: failure(), not_before: ended, receipt })]);
            }
            _ => {
                let receipt = id(&effect);
                self.record(&mut effect, vec![finished(done(receipt))]);
            }
        }
    }

    /// As the ledger does it: the record, and the receipt of each end in it.
    fn record(&mut self, effect: &mut Effect, entries: Vec<Entry>) {
        let body = codec::encode(&entries);
        let ends: Vec<_> = entries.iter().filter_map(end_of).collect();
        effect.apply(entries).unwrap();
        let opened = effect.latest().unwrap().clone();
        for end in ends {
            let draft = Draft {
                id: ReceiptId::new(&effect.key, effect.version),
                tenant: opened.tenant.clone(),
                run: opened.run.clone(),
                effect: effect.key,
                attempt: effect.attempts,
                fence: effect.fence,
                tool: opened.tool.clone(),
                spec: spec_hash(&opened.tool, &opened.args),
                outcome: end.outcome,
                result: end.result.unwrap_or(Digest32::of(b"the undo's")),
                by: end.by,
                why: end.why,
                started: end.ended,
                ended: end.ended,
            };
            let (text, chain) = self.chain.seal(&draft.unsealed());
            self.chain = chain;
            self.receipts.push(text);
        }
        let (stream, at) = (effect.key, self.at());
        self.records.push(RecordLine { of: Of::Effect, stream, version: effect.version, at, body: Cow::Owned(body) });
    }

    /// The bundle, its receipts being in a log among `others`.
    pub fn bundle(&self, others: usize, secret: &SecretKey) -> String {
        let mut log = Log::default();
        let other = |n: usize| leaf_hash(format!("other {n}").as_bytes());
        let mut leaves = Vec::new();
        for (n, receipt) in self.receipts.iter().enumerate() {
            for beside in 0..others % 7 {
                log.push(other(n * 7 + beside));
            }
            leaves.push(log.push(leaf_hash(receipt.as_bytes())));
        }
        for n in 0..others {
            log.push(other(n));
        }
        let head = log.head(secret);
        let hashes = log.cover(&leaves, head.size);
        let receipts = leaves.iter().zip(&self.receipts).map(|(leaf, text)| ReceiptLine { leaf: *leaf, text: text.as_str().into() });
        let manifest = Manifest {
            format: FORMAT.into(),
            tenant: self.tenant.clone(),
            run: Some(self.run.clone()),
            effect: None,
            ended: true,
            records: 0,
            tombstones: 0,
            receipts: 0,
        };
        let contents = Contents {
            manifest,
            definition: Some(Definition { workflow: "pay".into(), text: DEFINITION.into() }),
            records: self.records.clone(),
            tombstones: Vec::new(),
            receipts: receipts.collect(),
            log: (!self.receipts.is_empty()).then_some((Proof { hashes }, head)),
        };
        bundle::write(contents, secret)
    }
}
