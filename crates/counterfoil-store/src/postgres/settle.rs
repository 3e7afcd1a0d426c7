//! Which positions may be shown, and the index that follows behind.
//!
//! Every batch draws a number and stands at the positions from `number * 4096` on. Numbers are drawn in one order and committed in another,
//! and a batch that is rolled back leaves its number unused. So the newest record that is visible says nothing about the numbers below it:
//! a number without a record is a *gap*, and perhaps one that is about to be filled.
//!
//! What must stay true: no record ever appears at or below a position that was shown. A number is *settled* when its first position is
//! taken, for then its batch is there as a whole, or is never going to be. Gaps are settled by whoever wants to show what is above them: a
//! look or two later most are filled; into the others a *void* is inserted. That insertion waits for a transaction that has taken the
//! same position and not ended yet, so it needs no clock to be exact; and a writer that comes later finds its position taken, is rolled
//! back as a whole and draws another number. Voids stay for ever, since nobody knows how late a writer can be.
//!
//! `ledger.pos` is the watermark: everything up to it is settled, and *folded*: `stream` is each stream as it stood there, made from its
//! newest record, never from what was there before. Whoever folds holds the row of the ledger; nobody who appends does. The lock is taken
//! by the statement that folds, after its snapshot: it then folds from the watermark that it finds under the lock, and of what is above
//! that nothing can have been pruned, because pruning holds the same lock and stays below. What it does not see yet is a gap to it.

use std::time::{Duration, Instant};

use super::fault::{code, corrupt, refused, unavailable};
use super::link::Link;
use super::row::{column, count};
use super::schema::{BATCH_POSITIONS, FORMAT, in_schema};
use crate::{Position, StoreError, Written};

/// Records that are folded at once: others who want to fold wait for it.
const SLICE_RECORDS_MAX: i64 = 8192;

/// Gaps that are told at once.
const GAPS_MAX: i64 = 64;

/// How often a gap is looked at before it is filled, and how long apart: a commit that is on its way usually ends by then.
const LOOKS: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How long one insertion of a void waits; then others get a turn on the connection, and it is tried again.
const VOID_WAIT: Duration = Duration::from_millis(100);

/// From the watermark `low` up to `number`, the first that is not in the slice: `$1` records or a little fewer, none above position `$2`.
/// `gap` are those of its numbers that nobody has taken, `$3` at most, and `reach` is how far it is settled.
const SLICE: &str = "edge AS (
       SELECT low, CASE WHEN top IS NULL THEN low / 4096 + 1 ELSE least(cut, top + 1) END AS number FROM (
         SELECT l.pos AS low,
           (SELECT r.pos / 4096 FROM {s}.record r WHERE r.pos > l.pos ORDER BY r.pos LIMIT 1 OFFSET $1) AS cut,
           (SELECT r.pos / 4096 FROM {s}.record r WHERE r.pos > l.pos AND r.pos <= $2 ORDER BY r.pos DESC LIMIT 1) AS top
         FROM l
       ) AS e
     ),
     gap AS (
       SELECT g.n FROM edge, generate_series(edge.low / 4096 + 1, edge.number - 1) AS g(n)
       WHERE NOT EXISTS (SELECT 1 FROM {s}.record r WHERE r.pos = g.n * 4096) ORDER BY g.n LIMIT $3
     ),
     reach AS (
       SELECT coalesce((SELECT r.pos FROM {s}.record r
         WHERE r.pos > edge.low AND r.pos < coalesce((SELECT min(n) FROM gap), edge.number) * 4096 ORDER BY r.pos DESC LIMIT 1), edge.low) AS pos
       FROM edge
     )";

/// Where everything stands, up to position `$2`.
pub fn look_sql() -> String {
    format!(
        "WITH l AS (SELECT pos, format FROM {{s}}.ledger WHERE id = 1), {SLICE}
         SELECT edge.low, reach.pos, ARRAY(SELECT n FROM gap ORDER BY n),
           coalesce((SELECT r.pos FROM {{s}}.record r WHERE r.pos > edge.low AND r.pos <= $2 ORDER BY r.pos DESC LIMIT 1), edge.low), l.format
         FROM l, edge, reach"
    )
}

/// Folds one slice, up to its first gap, and moves the watermark. No row: the ledger was migrated.
pub fn fold_sql() -> String {
    format!(
        "WITH l AS (SELECT pos FROM {{s}}.ledger WHERE id = 1 AND format = $4 FOR UPDATE), {SLICE},
         news AS (
           SELECT DISTINCT ON (r.stream) r.pos, r.version, r.at, r.due, r.expires, r.kind, r.open, r.stream, r.tenant, r.state, r.tool, r.run
           FROM edge, reach, {{s}}.record r WHERE r.pos > edge.low AND r.pos <= reach.pos AND r.kind > 0
           ORDER BY r.stream, r.version DESC
         ),
         folded AS (
           INSERT INTO {{s}}.stream AS s (pos, version, at, due, expires, kind, open, stream, tenant, state, tool, run)
           SELECT pos, version, at, due, expires, kind, open, stream, tenant, state, tool, run FROM news
           ON CONFLICT (stream) DO UPDATE SET pos = excluded.pos, version = excluded.version, at = excluded.at, due = excluded.due,
             expires = excluded.expires, kind = excluded.kind, open = excluded.open, tenant = excluded.tenant, state = excluded.state,
             tool = excluded.tool, run = excluded.run
           WHERE excluded.version > s.version
         ),
         raised AS (UPDATE {{s}}.ledger SET pos = reach.pos, at = now() FROM reach WHERE id = 1 RETURNING 1)
         SELECT edge.low, reach.pos, ARRAY(SELECT n FROM gap ORDER BY n) FROM edge, reach, raised"
    )
}

/// In a text of its own, because it waits no longer than it is told to. All in one message, so in one transaction.
const VOID: &str = "SET LOCAL lock_timeout = {wait};
     INSERT INTO {s}.record(pos, version, at, sum, kind, open, stream, tenant, state, body)
     VALUES ({number} * 4096, {number}, 0, 0, 0, false, '', '', '', '') ON CONFLICT DO NOTHING";

/// Up to where everything is settled.
#[derive(Debug, Clone, Copy)]
pub struct Horizon {
    pub settled: i64,
    /// The newest position that was visible. Above `settled` only when a writer was in the way for too long.
    pub top: i64,
}

impl Horizon {
    /// Nothing that was visible is left out.
    pub fn whole(self) -> Result<Position, StoreError> {
        match self.settled >= self.top {
            true => Ok(Position(self.settled.unsigned_abs())),
            false => Err(unavailable(
                format!("a transaction that does not end holds position {} back, and what is behind it", self.settled + 1),
                Written::No,
            )),
        }
    }
}

struct Look {
    /// The watermark.
    low: i64,
    /// Settled up to here, within the slice.
    reach: i64,
    gaps: Vec<i64>,
}

/// Until everything that is visible now is settled, or patience ends.
pub async fn settle(link: &Link, patience: Duration) -> Result<Horizon, StoreError> {
    let until = Instant::now() + patience;
    let mut top = None;
    let mut looks = 0;
    loop {
        let (look, newest) = self::look(link, top.unwrap_or(i64::MAX)).await?;
        let top = *top.get_or_insert(newest);
        if look.reach >= top || top <= look.low {
            return Ok(Horizon { settled: top, top });
        }
        if look.gaps.is_empty() {
            // A slice at a time, so that no look is long.
            fold(link, top).await?;
            continue;
        }
        looks += 1;
        if looks <= LOOKS {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        for gap in look.gaps {
            if !void(link, gap, VOID_WAIT.min(patience)).await? {
                // Patience is for others. What is only much work is done.
                if Instant::now() >= until {
                    return Ok(Horizon { settled: look.reach, top });
                }
                break;
            }
        }
    }
}

/// Settles, and folds all of it.
pub async fn catch_up(link: &Link, patience: Duration) -> Result<Horizon, StoreError> {
    let horizon = settle(link, patience).await?;
    loop {
        let (look, _) = self::look(link, horizon.settled).await?;
        if look.low >= horizon.settled {
            return Ok(horizon);
        }
        let folded = fold(link, horizon.settled).await?;
        if folded.low < horizon.settled && folded.reach == folded.low {
            // It began after everything up to there was seen to be settled.
            return Err(corrupt("the database", format!("what was settled behind position {} is gone", folded.low)));
        }
    }
}

/// How far one may read without waiting for anyone.
pub async fn settled_now(link: &Link) -> Result<Position, StoreError> {
    let (look, _) = look(link, i64::MAX).await?;
    Ok(Position(look.reach.max(look.low).unsigned_abs()))
}

async fn look(link: &Link, most: i64) -> Result<(Look, i64), StoreError> {
    let rows = link.query(|prepared| &prepared.look, &[&SLICE_RECORDS_MAX, &most, &GAPS_MAX]).await?;
    let row = rows.first().ok_or_else(|| corrupt("the database", "the row of the ledger is missing"))?;
    let look = read(row)?;
    // Whoever is too old may read, and must not fill gaps.
    if !look.gaps.is_empty() && column::<i32>(row, 4)? != FORMAT {
        return Err(migrated());
    }
    Ok((look, column(row, 3)?))
}

async fn fold(link: &Link, most: i64) -> Result<Look, StoreError> {
    let rows = link.query(|prepared| &prepared.fold, &[&SLICE_RECORDS_MAX, &most, &GAPS_MAX, &FORMAT]).await?;
    read(rows.first().ok_or_else(migrated)?)
}

pub fn migrated() -> StoreError {
    let message = "another program has migrated the ledger to a newer format; start this one again, with a newer counterfoil";
    unavailable(message, Written::No)
}

fn read(row: &tokio_postgres::Row) -> Result<Look, StoreError> {
    let (low, reach) = (count(row, 0)?, count(row, 1)?);
    let (low, reach) = (super::row::clamp(low), super::row::clamp(reach));
    Ok(Look { low, reach, gaps: column(row, 2)? })
}

/// Nothing will come at this number any more, or something is there. False when somebody is in the way who has not ended yet.
async fn void(link: &Link, number: i64, wait: Duration) -> Result<bool, StoreError> {
    let session = link.session(link.deadline()).await?;
    let sql = VOID.replace("{wait}", &wait.as_millis().max(1).to_string()).replace("{number}", &number.to_string());
    let tried = tokio::time::timeout(link.answer_max(), session.client.batch_execute(&in_schema(&sql, link.address()))).await;
    match tried {
        Ok(Ok(())) => Ok(true),
        // 55P03: no lock in time. 40: rolled back because of others' work.
        Ok(Err(error)) if code(&error).is_some_and(|code| code == "55P03" || code.starts_with("40")) => Ok(false),
        Ok(Err(error)) => {
            if error.code().is_none() {
                session.discard();
            }
            Err(refused(&error))
        }
        Err(_) => {
            session.discard();
            Err(unavailable("no answer while a gap was filled", Written::No))
        }
    }
}

const _: () = assert!(BATCH_POSITIONS == 4096 && SLICE_RECORDS_MAX >= BATCH_POSITIONS, "a slice holds at least one whole batch");
