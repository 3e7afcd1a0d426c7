//! Reads a whole ledger and says what does not fit together. Changes nothing.
//!
//! The tail gives every record once; then each stream is loaded, each effect and each run folded anew from its entries, and what the store lists (due, searches,
//! tombstones) is held against it; receipts against the ends they are of, and against their log ([`log`]). What must stay true: bodies are not kept, only some 100 bytes
//! per stream and 200 per receipt; a ledger may be in use meanwhile: what moved on since it was read is no problem.

pub mod log;

use std::collections::{BTreeMap, HashMap};

use counterfoil_core::call::spec_hash;
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{self, ChainHead, ReceiptId};
use counterfoil_core::run::Run;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::veil::{self, is_veiled};
use counterfoil_core::{Effect, EffectKey, Entry, Receipt, StreamId, Summary, Timestamp, codec};
use counterfoil_evidence::ends::{End, end_of};
use counterfoil_store::copy::Digest;
use counterfoil_store::spread::{Map, Set};
use counterfoil_store::{AppendError, Batch, Graves, History, Position, Query, Reach, Record, Recorded, Store, StoreError};
use futures_util::future::join_all;
use serde::Serialize;

/// Records read at once.
const PAGE: usize = 500;
/// Streams loaded at once.
const LOADS: usize = 64;
/// A stream that is longer is not loaded whole, unless it is an effect. Chains and breakers grow with their tenant.
const WHOLE_MAX: u64 = 1_000;
/// Problems told one by one; the rest is counted.
const TOLD_MAX: usize = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub records: u64,
    pub streams: u64,
    pub effects: u64,
    pub runs: u64,
    pub chains: u64,
    pub receipts: u64,
    pub tombstones: u64,
    /// Signed heads of the log of receipts, and how many receipts are under the newest.
    pub heads: u64,
    pub sealed: u64,
    /// Over every record in order: two stores with the same digest hold the same.
    pub digest: String,
    /// Over the state of every effect and run, as it follows from its entries: the same entries give the same.
    pub state: String,
    /// What holds, and should be known all the same.
    pub notes: Vec<String>,
    pub problems: Vec<Problem>,
    /// Further problems.
    pub untold: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub place: String,
    pub problem: String,
}

/// What is known of a stream from the tail.
#[derive(Clone, Copy)]
struct Stand {
    version: u64,
    position: Position,
    kind: StreamKind,
    due: bool,
    /// Digests of the newest record, of all records, and of the newest summary.
    newest: u64,
    all: u64,
    summary: u64,
    /// Nothing of it was missing.
    whole: bool,
}

struct Check<'a> {
    store: &'a dyn Store,
    graves: &'a dyn Graves,
    report: Report,
    digest: Digest,
    /// In no order: streams are many, and each counts once.
    state: [u8; 32],
    streams: Map<Stand>,
    chains: Map<ChainHead>,
    /// What each receipt says, and of which effect.
    ends: HashMap<ReceiptId, (EffectKey, u64)>,
    log: log::Log,
    /// Which searches there are, and how many streams each must find.
    lists: BTreeMap<(String, u8), u64>,
    last: Position,
}

/// `told` hears how many records were read, and up to which part of the ledger: position and end.
pub async fn check(
    store: &dyn Store,
    graves: &dyn Graves,
    against: &log::Against,
    mut told: impl FnMut(u64, Position, Position),
) -> Result<Report, StoreError> {
    let mut check = Check {
        store,
        graves,
        report: Report::default(),
        digest: Digest::default(),
        state: [0; 32],
        streams: Map::default(),
        chains: Map::default(),
        ends: HashMap::new(),
        log: log::Log::read(store).await?,
        lists: BTreeMap::new(),
        last: Position(0),
    };
    let end = check.end().await?;
    check.read(|records, at| told(records, at, end)).await?;
    check.load().await?;
    check.ends().await?;
    check.due().await?;
    check.search().await?;
    check.tombstones().await?;
    check.log(against);
    let Check { mut report, digest, state, streams, chains, .. } = check;
    report.records = digest.records;
    report.streams = streams.len() as u64;
    report.chains = chains.len() as u64;
    report.digest = digest.value.to_string();
    report.state = Digest32(state).to_string();
    Ok(report)
}

fn short(fields: &[&[u8]]) -> u64 {
    let digest = Digest32::of_fields("counterfoil/check/1", fields);
    u64::from_be_bytes(*digest.0.first_chunk().expect("32 bytes have 8"))
}

fn of_record(record: &Record) -> u64 {
    short(&[&record.version.0.to_be_bytes(), &record.at.0.to_be_bytes(), record.body.as_bytes()])
}

fn of_all(before: u64, record: &Record) -> u64 {
    short(&[&before.to_be_bytes(), &of_record(record).to_be_bytes()])
}

/// An end, the effect as it was then, and where it is recorded.
type Ending = (End, Effect, String);

/// What an effect's or a run's entries come to. `None`: it is neither, or it is veiled: then only its subject's key lets anyone look into it. An effect's ends are put beside.
fn recomputed<'a>(
    kind: StreamKind,
    stream: &StreamId,
    records: impl Iterator<Item = &'a Record> + Clone,
    ends: &mut Vec<Ending>,
) -> Result<Option<Summary>, (u64, String)> {
    if records.clone().any(|record| is_veiled(&record.body)) {
        for record in records {
            veil::subject_of(&record.body).map_err(|error| (record.version.0, error.to_string()))?;
        }
        return Ok(None);
    }
    match kind {
        StreamKind::Effect => {
            let mut effect = Effect::absent(Digest32(stream.0));
            for record in records {
                let entries: Vec<Entry> = codec::decode(&record.body).unwrap_or_default();
                effect.apply_body(&record.body).map_err(|error| (record.version.0, format!("the effect cannot be read: {error}")))?;
                let place = || place_of(stream, record.version.0, record.position);
                ends.extend(entries.iter().filter_map(end_of).map(|end| (end, effect.clone(), place())));
            }
            if effect.latest().is_none() {
                return Err((effect.version, "the effect was never opened".into()));
            }
            Ok(Some(effect.summary()))
        }
        StreamKind::Run => {
            let mut run: Option<Run> = None;
            for record in records {
                let read = match &mut run {
                    Some(run) => run.apply_body(&record.body),
                    None => Run::begun(&record.body).and_then(|(started, rest)| run.insert(Run::new(started, None)).apply(&rest)),
                };
                read.map_err(|error| (record.version.0, format!("the run cannot be read: {error}")))?;
            }
            Ok(run.map(|run| run.summary()))
        }
        _ => Ok(None),
    }
}

/// Words, since a summary is small and has no other form.
fn of_summary(summary: &Summary) -> u64 {
    short(&[format!("{summary:?}").as_bytes()])
}

/// What a receipt says of the end that it proves.
fn of_receipt(receipt: &Receipt) -> u64 {
    let Receipt { effect, tenant, run, tool, spec, outcome, result, by, why, attempt, fence, ended, .. } = receipt;
    // Of an undo, the result is that of another effect.
    let result = (outcome != "undone").then_some(result);
    short(&[format!("{effect} {tenant:?} {run:?} {tool:?} {spec} {outcome} {result:?} {by:?} {why:?} {attempt} {} {}", fence.0, ended.0)
        .as_bytes()])
}

/// What the receipt of an end must say. Those of earlier versions have no reason.
fn of_end(end: &End, effect: &Effect) -> [u64; 2] {
    let Some(opened) = effect.latest() else { return [0; 2] };
    let (spec, run) = (spec_hash(&opened.tool, &opened.args), &opened.run);
    let (outcome, result, by) = (end.outcome, end.result.as_ref(), &end.by);
    [end.why, None].map(|why| {
        let (effect_key, attempt, fence, ended) = (effect.key, effect.attempts, effect.fence.0, end.ended.0);
        let (tenant, tool) = (&opened.tenant, &opened.tool);
        short(&[format!("{effect_key} {tenant:?} {run:?} {tool:?} {spec} {outcome} {result:?} {by:?} {why:?} {attempt} {fence} {ended}")
            .as_bytes()])
    })
}

fn place_of(stream: &StreamId, version: u64, position: Position) -> String {
    format!("position {}: record {version} of stream {stream}", position.0)
}

impl Check<'_> {
    fn problem(&mut self, place: impl Into<String>, problem: impl Into<String>) {
        let problem = Problem { place: place.into(), problem: problem.into() };
        match () {
            // The same damage, met on another way.
            () if self.report.problems.contains(&problem) => {}
            () if self.report.problems.len() == TOLD_MAX => self.report.untold += 1,
            () => self.report.problems.push(problem),
        }
    }

    /// The newest position: what an append of nothing is answered with.
    async fn end(&self) -> Result<Position, StoreError> {
        match self.store.append(&Batch::default()).await {
            Ok(position) => Ok(position),
            Err(AppendError::Store(error)) => Err(error),
            Err(AppendError::Conflict { .. }) => Ok(Position(u64::MAX >> 1)),
        }
    }

    /// Every record in order.
    async fn read(&mut self, mut told: impl FnMut(u64, Position)) -> Result<(), StoreError> {
        let mut after = Position(0);
        loop {
            match self.store.tail(after, PAGE).await {
                Ok(page) => {
                    let Some(last) = page.last() else { return Ok(()) };
                    after = last.record.position;
                    page.iter().for_each(|recorded| self.take(recorded));
                    told(self.digest.records, after);
                }
                Err(StoreError::Corrupt { .. }) => match self.step_over(after).await? {
                    Some(next) => after = next,
                    None => return Ok(()),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes what is left before the damage one by one, and gives its own position. `None`: the tail ended.
    async fn step_over(&mut self, after: Position) -> Result<Option<Position>, StoreError> {
        let mut after = after;
        let damage = loop {
            match self.store.tail(after, 1).await {
                Ok(page) => {
                    let Some(recorded) = page.first() else { return Ok(None) };
                    self.take(recorded);
                    after = recorded.record.position;
                }
                Err(damage @ StoreError::Corrupt { .. }) => break damage,
                Err(error) => return Err(error),
            }
        };
        if let StoreError::Corrupt { place, message } = &damage {
            self.problem(place.clone(), message.clone());
        }
        // Whoever reads from behind it does not meet it. Positions are mostly dense: the first try is the right one.
        let (mut before, mut step) = (after.0, 1);
        let mut behind = loop {
            let at = after.0.saturating_add(step);
            if self.store.tail(Position(at), 1).await.as_ref().err() != Some(&damage) {
                break at;
            }
            (before, step) = (at, step.saturating_mul(2));
        };
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            match self.store.tail(Position(middle), 1).await.as_ref().err() == Some(&damage) {
                true => before = middle,
                false => behind = middle,
            }
        }
        Ok(Some(Position(behind)))
    }

    fn take(&mut self, recorded: &Recorded) {
        let Recorded { stream, summary, record } = recorded;
        let place = || place_of(stream, record.version.0, record.position);
        if record.position <= self.last {
            self.problem(place(), format!("it comes after position {}: positions must grow", self.last.0));
        }
        self.last = record.position;
        self.digest.add(recorded);
        let before = self.streams.get(stream).copied();
        let (version, all, whole) = before.map_or((0, 0, true), |stand| (stand.version, stand.all, stand.whole));
        let follows = record.version.0 == version + 1;
        if before.is_some_and(|stand| stand.kind != summary.kind) {
            self.problem(place(), "its stream had another kind before");
        }
        if before.is_none() {
            *self.lists.entry((summary.tenant.to_string(), summary.kind as u8)).or_default() += 1;
        }
        if !follows {
            let message = format!("it follows record {version} of its stream: those between are missing, or one is there twice");
            self.problem(place(), message);
        }
        if summary.kind == StreamKind::Chain {
            self.link(recorded);
        }
        self.log.take(recorded);
        let stand = Stand {
            version: record.version.0,
            position: record.position,
            kind: summary.kind,
            due: summary.due.is_some(),
            newest: of_record(record),
            all: of_all(all, record),
            summary: of_summary(summary),
            whole: whole && follows,
        };
        self.streams.insert(*stream, stand);
    }

    /// The receipts of one more record of a chain.
    fn link(&mut self, Recorded { stream, record, .. }: &Recorded) {
        let head = self.chains.get(stream).copied().unwrap_or_default();
        match receipt::follow(head, std::iter::once(record.body.as_str())) {
            Ok((head, receipts)) => {
                self.chains.insert(*stream, head);
                self.report.receipts += receipts.len() as u64;
                self.ends.extend(receipts.iter().map(|receipt| (receipt.id, (receipt.effect, of_receipt(receipt)))));
            }
            Err(error) => {
                self.problem(place_of(stream, record.version.0, record.position), format!("the receipt chain does not hold: {error}"));
                // What follows is followed from here, and what can be read is known, so that one edit is one problem.
                for text in receipt::texts(&record.body).unwrap_or_default() {
                    if let Ok(receipt) = serde_json::from_str::<Receipt>(text) {
                        self.ends.insert(receipt.id, (receipt.effect, of_receipt(&receipt)));
                    }
                }
                self.chains.insert(*stream, receipt::head_of(&record.body).unwrap_or(head));
            }
        }
    }

    /// Every stream by itself, as a call would read it.
    async fn load(&mut self) -> Result<(), StoreError> {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for streams in streams.chunks(LOADS) {
            let reach = |stream: &StreamId| {
                let stand = &self.streams[stream];
                let whole = matches!(stand.kind, StreamKind::Effect | StreamKind::Run) || stand.version <= WHOLE_MAX;
                if whole { Reach::Whole } else { Reach::Newest(1) }
            };
            let loaded = join_all(streams.iter().map(|stream| self.store.load(*stream, reach(stream)))).await;
            for (stream, history) in streams.iter().zip(loaded) {
                match history {
                    Ok(history) => self.compare(stream, &history),
                    Err(StoreError::Corrupt { place, message }) => self.problem(place, message),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, stream: &StreamId, history: &History) {
        let stand = self.streams[stream];
        let place = place_of(stream, stand.version, stand.position);
        self.report.effects += u64::from(stand.kind == StreamKind::Effect);
        self.report.runs += u64::from(stand.kind == StreamKind::Run);
        // Pruned since.
        if history.expired {
            return;
        }
        if history.version.0 < stand.version {
            let message = format!("a load of its stream gives {} records only: an index is wrong", history.version.0);
            return self.problem(place, message);
        }
        // Of a stream that moved on, what the tail gave.
        let known = || history.records.iter().filter(|record| record.version.0 <= stand.version);
        let differs = match history.records.len() as u64 == history.version.0 {
            true => stand.whole && known().fold(0, of_all) != stand.all,
            false => known().next_back().is_some_and(|record| record.version.0 == stand.version && of_record(record) != stand.newest),
        };
        if differs {
            return self.problem(place, "a load of its stream gives other records than the tail");
        }
        if !stand.whole {
            return;
        }
        let mut ends = Vec::new();
        match recomputed(stand.kind, stream, known(), &mut ends) {
            Ok(Some(summary)) => {
                let counted = Digest32::of_fields("counterfoil/check/state/1", &[&stream.0, format!("{summary:?}").as_bytes()]);
                self.state.iter_mut().zip(counted.0).for_each(|(all, one)| *all ^= one);
                // Before runs were listed by their workflow.
                let unnamed = Summary { tool: None, ..summary.clone() };
                let older = stand.kind == StreamKind::Run && of_summary(&unnamed) == stand.summary;
                if of_summary(&summary) != stand.summary && !older {
                    self.problem(place, format!("the store keeps another summary than follows from the entries: {summary:?}"));
                }
            }
            Ok(None) => {}
            Err((version, problem)) => {
                let position = history.records.iter().find(|record| record.version.0 == version).map_or(stand.position, |r| r.position);
                self.problem(place_of(stream, version, position), problem);
            }
        }
        ends.into_iter().for_each(|(end, effect, place)| self.held_against(&end, &effect, place));
    }

    /// An end against its receipt.
    fn held_against(&mut self, end: &End, effect: &Effect, place: String) {
        match self.ends.get(&end.id) {
            None => self.problem(place, format!("it is an end ({}), and its receipt {} is missing", end.outcome, end.id)),
            Some((_, said)) if !of_end(end, effect).contains(said) => {
                self.problem(place, format!("it is an end ({}), and its receipt {} says something else", end.outcome, end.id));
            }
            Some(_) => {}
        }
    }

    /// The log of receipts.
    fn log(&mut self, against: &log::Against) {
        let empty = log::Log::default();
        let (found, problems) = std::mem::replace(&mut self.log, empty).finish(against);
        problems.into_iter().for_each(|problem| self.problem(problem.place, problem.problem));
        (self.report.heads, self.report.sealed, self.report.notes) = (found.heads, found.sealed, found.notes);
    }

    /// Every receipt speaks of a record that is there: one that is lost at the end of its stream is missed by nothing else.
    async fn ends(&mut self) -> Result<(), StoreError> {
        for (receipt, (effect, _)) in std::mem::take(&mut self.ends) {
            let stream = StreamId::effect(&effect);
            let version = self.streams.get(&stream).map_or(0, |stand| stand.version);
            if (1..=version).rev().any(|ending| ReceiptId::new(&effect, ending) == receipt) {
                continue;
            }
            match self.store.load(stream, Reach::Newest(0)).await {
                // Pruned; or it ended since the tail was read, and the chain was not.
                Ok(now) if now.expired || now.version.0 > version => {}
                Err(StoreError::Corrupt { .. }) => {}
                Ok(_) => self.problem(format!("stream {stream}"), format!("its record that receipt {receipt} proves is missing")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the stream stands where the tail left it.
    async fn unmoved(&self, stream: &StreamId) -> Result<bool, StoreError> {
        let Some(stand) = self.streams.get(stream) else { return Ok(false) };
        match self.store.load(*stream, Reach::Newest(0)).await {
            Ok(now) => Ok(!now.expired && now.version.0 == stand.version),
            // Told already.
            Err(StoreError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is due some day must be what the newest summaries say.
    async fn due(&mut self) -> Result<(), StoreError> {
        let due: Set = match self.store.due(Timestamp::MAX, usize::MAX >> 1).await {
            Ok(due) => due.into_iter().collect(),
            Err(StoreError::Corrupt { place, message }) => {
                self.problem(place, message);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let wrong: Vec<StreamId> =
            self.streams.iter().filter(|(stream, stand)| stand.due != due.contains(*stream)).map(|(stream, _)| *stream).collect();
        for stream in wrong {
            if self.unmoved(&stream).await? {
                let said = if due.contains(&stream) { "is listed as due and is not" } else { "is due some day and is not listed" };
                self.problem(format!("stream {stream}"), format!("it {said}"));
            }
        }
        Ok(())
    }

    /// Searches must find every stream as it stands, and no other.
    async fn search(&mut self) -> Result<(), StoreError> {
        for ((tenant, kind), expected) in std::mem::take(&mut self.lists) {
            let Some(kind) = StreamKind::from_code(kind) else { continue };
            let Ok(tenant) = counterfoil_core::Tenant::new(&tenant) else { continue };
            let mut query = Query { kind, limit: PAGE, ..Query::effects(tenant.clone()) };
            let mut found = 0;
            loop {
                let page = match self.store.search(query.clone()).await {
                    Ok(page) => page,
                    Err(StoreError::Corrupt { place, message }) => {
                        self.problem(place, message);
                        break;
                    }
                    Err(error) => return Err(error),
                };
                for one in &page.found {
                    let Some(stand) = self.streams.get(&one.stream).copied() else { continue };
                    found += 1;
                    let agrees =
                        (one.version.0, one.position) == (stand.version, stand.position) && of_summary(&one.summary) == stand.summary;
                    if !agrees && self.unmoved(&one.stream).await? {
                        self.problem(format!("stream {}", one.stream), "a search finds it otherwise than its newest record has it");
                    }
                }
                query.below = page.next;
                if page.next.is_none() {
                    // Streams that moved while the pages were read, or were pruned, are not counted: only a loss is told.
                    if found < expected && self.report.problems.is_empty() && self.end().await? == self.last {
                        self.problem(format!("tenant {tenant}, {kind:?}"), format!("searches find {found} of {expected} streams"));
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Of a tombstone nothing but itself may be left.
    async fn tombstones(&mut self) -> Result<(), StoreError> {
        let mut cursor = None;
        loop {
            let page = self.graves.tombstones(cursor, PAGE).await?;
            for tombstone in &page.found {
                self.report.tombstones += 1;
                let place = format!("stream {}", tombstone.stream);
                let stand = self.store.load(tombstone.stream, Reach::Newest(0)).await;
                match stand {
                    Ok(now) if now.expired && now.version == tombstone.version && now.version.0 > 0 => {}
                    Ok(now) => self.problem(&place, format!("it is a tombstone of {}, and a load gives {now:?}", tombstone.version.0)),
                    Err(StoreError::Corrupt { place, message }) => self.problem(place, message),
                    Err(error) => return Err(error),
                }
                // Read before it was pruned, or still there?
                if let Some(position) = self.streams.get(&tombstone.stream).map(|stand| stand.position)
                    && let Ok(now) = self.store.tail(Position(position.0 - 1), 1).await
                    && now.first().is_some_and(|first| first.stream == tombstone.stream)
                {
                    self.problem(place, format!("it is a tombstone, and has a record at position {}", position.0));
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}
