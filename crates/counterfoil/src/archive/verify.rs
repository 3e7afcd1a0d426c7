//! Whether an archive is what was made: every digest, every receipt's link, every effect and run read from its entries. Needs no ledger.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{self, ChainHead, ReceiptId};
use counterfoil_core::run::Run;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::veil::is_veiled;
use counterfoil_core::{Effect, StreamId, Tenant};
use serde::Serialize;

use super::format::{Damage, Header, Kept, KeptRun, Reader};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub tenant: Tenant,
    pub runs: u64,
    pub records: u64,
    pub receipts: u64,
    /// Over all of it: two archives with the same digest hold the same.
    pub digest: Digest32,
}

/// `told` hears of each run.
pub fn verify(path: &Path, mut told: impl FnMut(&KeptRun)) -> io::Result<Result<(Header, Verified), Damage>> {
    let mut reader = match Reader::open(path)? {
        Ok(reader) => reader,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut receipts = 0;
    loop {
        match reader.next_run().and_then(|run| run.map(|run| holds(&run, &reader.header.tenant).map(|head| (run, head))).transpose()) {
            Ok(Some((run, head))) => {
                receipts += head.seq;
                told(&run);
            }
            Ok(None) => break,
            Err(damage) => return Ok(Err(damage)),
        }
    }
    let tenant = reader.header.tenant.clone();
    let verified = Verified { tenant, runs: reader.runs(), records: reader.records(), receipts, digest: reader.digest() };
    Ok(Ok((reader.header, verified)))
}

/// Whether one run is whole and true to itself: where its receipts end.
pub fn holds(run: &KeptRun, tenant: &Tenant) -> Result<ChainHead, Damage> {
    let damage = |what: String| Damage { line: run.line, what: format!("the run {}: {what}", run.head.run) };
    let mut streams: BTreeMap<Digest32, Vec<&Kept>> = BTreeMap::new();
    for kept in &run.records {
        let stream = streams.entry(kept.stream).or_default();
        if kept.version != stream.len() as u64 + 1 {
            return Err(damage(format!("record {} of stream {} is missing", stream.len() + 1, kept.stream)));
        }
        stream.push(kept);
    }
    let of = |stream: StreamId| streams.get(&Digest32(stream.0)).map_or(&[][..], Vec::as_slice);
    let records = of(StreamId::run(tenant, &run.head.run));
    // What is veiled is kept as it is: only its subject's key lets anyone look into it.
    let veiled = |records: &[&Kept]| records.iter().any(|kept| is_veiled(&kept.body));
    let mut folded: Option<Run> = None;
    for kept in records.iter().filter(|_| !veiled(records)) {
        let read = match &mut folded {
            Some(run) => run.apply_body(&kept.body),
            None => Run::begun(&kept.body).and_then(|(started, rest)| folded.insert(Run::new(started, None)).apply(&rest)),
        };
        read.map_err(|error| damage(format!("it cannot be read: {error}")))?;
    }
    match folded {
        Some(folded) if folded.state().word() != run.head.state => {
            return Err(damage(format!("it is {}, and the archive says {}", folded.state().word(), run.head.state)));
        }
        None if records.is_empty() => return Err(damage("its entries are not there".into())),
        Some(_) | None => {}
    }
    let chain = of(StreamId::chain(tenant, Some(&run.head.run))).iter().map(|kept| kept.body.as_str());
    let (head, receipts) = receipt::follow(ChainHead::default(), chain).map_err(|error| damage(error.to_string()))?;
    for receipt in receipts {
        let ends = of(StreamId::effect(&receipt.effect)).len() as u64;
        // An effect that went with another run before is proven there.
        if ends > 0 && !(1..=ends).any(|ending| ReceiptId::new(&receipt.effect, ending) == receipt.id) {
            return Err(damage(format!("the record that receipt {} proves is missing", receipt.seq)));
        }
    }
    for (stream, records) in &streams {
        if records[0].kind() == Some(StreamKind::Effect) && !veiled(records) {
            let mut effect = Effect::absent(*stream);
            for kept in records {
                effect.apply_body(&kept.body).map_err(|error| damage(format!("its effect {stream} cannot be read: {error}")))?;
            }
        }
    }
    Ok(head)
}
