//! Making an archive: write the file, read it back, and only then let go of what it holds. The second half is the same for a file that was just written
//! and for one whose maker was killed.

use std::fs::OpenOptions;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use counterfoil_core::receipt::ChainHead;
use counterfoil_core::run::archived::Archived;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Tenant, Timestamp, codec};
use counterfoil_store::spread::Map;
use counterfoil_store::{AppendError, Batch, Graves, Query, Reach, Store, StoreError, Tombstone, Version, Write};
use serde::Serialize;
use thiserror::Error;

use super::format::{Damage, Header, KeptRun, Reader, Writer};
use super::gather::{ENDS, gather, needed};
use super::verify::{Verified, holds, verify};

/// Runs asked for at a time.
const PAGE: usize = 200;
/// Streams let go of at once.
const BURIED_MAX: usize = 500;

#[derive(Debug, Clone)]
pub struct Wanted {
    pub tenant: Tenant,
    /// Runs that ended before this.
    pub before: Timestamp,
    pub file: PathBuf,
    pub by: String,
    pub now: Timestamp,
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    pub archive: Verified,
    /// Runs that have left the ledger, those of an earlier, interrupted call included.
    pub moved: u64,
    /// The file was there: only what was left to do was done.
    pub resumed: bool,
    pub stayed: Vec<Left>,
}

/// A run that stays in the ledger, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    pub run: RunId,
    pub why: String,
}

#[derive(Debug, Error)]
pub enum ArchiveError {
    #[error("{}: {source}; nothing was changed", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {damage}; no run has left the ledger because of it", path.display())]
    Damaged { path: PathBuf, damage: Damage },
    #[error("{} is there, and is another archive: {what}; nothing was changed", path.display())]
    Another { path: PathBuf, what: String },
    #[error("stopped; nothing is lost: the same command goes on where it stopped")]
    Stopped,
    #[error("{0}; nothing is lost: the same command goes on where it stopped")]
    Store(#[from] StoreError),
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Written { runs: u64 },
    Moved { runs: u64, of: u64 },
}

/// `told` hears of progress and may stop it, between two runs.
pub async fn make(
    store: &dyn Store,
    graves: &dyn Graves,
    wanted: &Wanted,
    mut told: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Made, ArchiveError> {
    let mut go_on = |progress| if told(progress).is_break() { Err(ArchiveError::Stopped) } else { Ok(()) };
    let file = |source| ArchiveError::File { path: wanted.file.clone(), source };
    let resumed = wanted.file.try_exists().map_err(file)?;
    let mut stayed = Vec::new();
    if !resumed {
        stayed = write(store, wanted, &mut go_on).await?;
    }
    let damaged = |damage| ArchiveError::Damaged { path: wanted.file.clone(), damage };
    let (header, archive) = verify(&wanted.file, |_| {}).map_err(file)?.map_err(damaged)?;
    if header.tenant != wanted.tenant || header.before != wanted.before {
        let what = format!("it has the runs of {} that ended before {}", header.tenant, counterfoil_runtime::shown::time(header.before));
        return Err(ArchiveError::Another { path: wanted.file.clone(), what });
    }
    let mut reader = Reader::open(&wanted.file).map_err(file)?.map_err(damaged)?;
    let mut moved = 0;
    while let Some(run) = reader.next_run().map_err(damaged)? {
        let head = holds(&run, &wanted.tenant).map_err(damaged)?;
        match let_go(store, graves, wanted, &run, head).await? {
            Ok(()) => moved += 1,
            Err(why) => stayed.push(Left { run: run.head.run, why }),
        }
        go_on(Progress::Moved { runs: moved, of: archive.runs })?;
    }
    Ok(Made { archive, moved, resumed, stayed })
}

/// Writes beside the file and renames: what has its name is whole.
async fn write(
    store: &dyn Store,
    wanted: &Wanted,
    go_on: &mut impl FnMut(Progress) -> Result<(), ArchiveError>,
) -> Result<Vec<Left>, ArchiveError> {
    let part = part_of(&wanted.file);
    let file = |source| ArchiveError::File { path: part.clone(), source };
    // For its owner alone, as the ledger.
    let opened = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part).map_err(file)?;
    let header = Header::new(wanted.tenant.clone(), wanted.before, wanted.now);
    let mut writer = Writer::new(opened, &header).map_err(file)?;
    let (mut stayed, mut below, mut runs) = (Vec::new(), None, 0);
    let needed = needed(store, &wanted.tenant).await?;
    loop {
        let query = Query {
            kind: StreamKind::Run,
            states: ENDS.to_vec(),
            before: Some(wanted.before),
            below,
            limit: PAGE,
            ..Query::effects(wanted.tenant.clone())
        };
        let page = store.search(query).await?;
        for found in &page.found {
            let Some(run) = found.summary.run.clone() else { continue };
            if needed.runs.contains(&run) {
                stayed.push(Left { run, why: "a run that has not ended came from it, or belongs to it".into() });
                continue;
            }
            match gather(store, &wanted.tenant, found, &needed).await? {
                Ok(gathered) => {
                    writer.run(&gathered.head, &gathered.records).map_err(file)?;
                    runs += 1;
                }
                Err(why) => stayed.push(Left { run, why }),
            }
            go_on(Progress::Written { runs })?;
        }
        below = page.next;
        if below.is_none() {
            break;
        }
    }
    writer.end().map_err(file)?;
    std::fs::rename(&part, &wanted.file).map_err(file)?;
    let folder = wanted.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The name must be as durable as the file.
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(file)?;
    Ok(stayed)
}

fn part_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    file.with_file_name(name)
}

/// Lets go of one run: its streams become tombstones, and where it went is recorded. The run itself goes last, so that one that is half gone is found again.
async fn let_go(
    store: &dyn Store,
    graves: &dyn Graves,
    wanted: &Wanted,
    run: &KeptRun,
    head: ChainHead,
) -> Result<Result<(), String>, ArchiveError> {
    let own = StreamId::run(&wanted.tenant, &run.head.run);
    let mut versions: Map<Version> = Map::default();
    // Other runs have the same definition; and receipts stay, for they are links of the log that proves all others.
    let stays = |kind| matches!(kind, Some(StreamKind::Workflow | StreamKind::Chain));
    for kept in run.records.iter().filter(|kept| !stays(kept.kind())) {
        versions.insert(kept.stream(), Version(kept.version));
    }
    let mut tombstones: Vec<Tombstone> = versions.into_iter().map(|(stream, version)| Tombstone { stream, version }).collect();
    tombstones.sort_by_key(|tombstone| (tombstone.stream == own, tombstone.stream));
    for tombstone in &tombstones {
        let now = store.load(tombstone.stream, Reach::Newest(0)).await?;
        if now.version != tombstone.version {
            return Ok(Err(format!("it has changed since it was archived: stream {} went on", tombstone.stream)));
        }
    }
    for some in tombstones.chunks(BURIED_MAX) {
        match graves.entomb(some).await {
            Ok(()) => {}
            Err(AppendError::Conflict { .. }) => return Ok(Err("it has changed since it was archived".into())),
            Err(AppendError::Store(error)) => return Err(error.into()),
        }
    }
    let archived = Archived {
        at: wanted.now,
        by: wanted.by.clone(),
        tenant: wanted.tenant.clone(),
        run: run.head.run.clone(),
        workflow: run.head.workflow.clone(),
        state: run.head.state.clone(),
        ended: run.head.ended,
        file: wanted.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        digest: run.digest,
        receipts: head.seq,
        head: head.hash,
    };
    record(store, &archived).await?;
    Ok(Ok(()))
}

/// Once: an interrupted archive may come here again.
async fn record(store: &dyn Store, archived: &Archived) -> Result<(), StoreError> {
    let (stream, at, body) = (archived.stream(), archived.at, codec::encode(std::slice::from_ref(archived)));
    let write = Write { stream, expected: Version::NONE, at, body, summary: archived.summary() };
    match store.append(&Batch { writes: vec![write] }).await {
        Ok(_) | Err(AppendError::Conflict { .. }) => Ok(()),
        Err(AppendError::Store(error)) => Err(error),
    }
}
