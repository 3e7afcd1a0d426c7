//! What a stream has beyond what its reader knows: in order, without a gap, also while it is written to.
//!
//! How far to reach back is only known from an earlier look, and a record may come in between. So a reach that turns out too short is made longer,
//! and never told as if it were all.

use counterfoil_store::{History, Reach, Record, Version};

/// Nothing, when nothing is new or the stream was pruned.
pub async fn beyond<E, F: Future<Output = Result<History, E>>>(known: Version, mut load: impl FnMut(Reach) -> F) -> Result<Vec<Record>, E> {
    let mut reach = if known == Version(0) { Reach::Whole } else { Reach::Newest(1) };
    loop {
        let History { version, mut records, .. } = load(reach).await?;
        if records.first().is_none_or(|first| first.version <= known.next()) {
            records.retain(|record| record.version > known);
            return Ok(records);
        }
        reach = u32::try_from(version.0 - known.0).map_or(Reach::Whole, Reach::Newest);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use counterfoil_core::Timestamp;
    use counterfoil_store::Position;

    use super::*;

    /// A stream that has grown by `haste` records each time it is looked at.
    async fn told(known: u64, first: u64, haste: u64) -> (Vec<u64>, u32) {
        let (mut version, mut looks) = (first, 0);
        let records = beyond(Version(known), |reach| {
            let newest = match reach {
                Reach::Whole => version,
                Reach::Newest(count) => version.min(u64::from(count)),
            };
            let record = |n| Record { version: Version(n), position: Position(n), at: Timestamp::ZERO, body: String::new() };
            let seen =
                History { version: Version(version), expired: false, records: (version - newest + 1..=version).map(record).collect() };
            looks += 1;
            // It rests at last: what never rests is never caught up with.
            version += if looks < 4 { haste } else { 0 };
            std::future::ready(Ok::<_, Infallible>(seen))
        })
        .await
        .unwrap();
        (records.iter().map(|record| record.version.0).collect(), looks)
    }

    #[tokio::test]
    async fn nothing_is_missed_between_two_looks() {
        assert_eq!(told(3, 4, 1).await, (vec![4], 1));
        assert_eq!(told(3, 5, 0).await, (vec![4, 5], 2));
        assert_eq!(told(3, 5, 2).await, (vec![4, 5, 6, 7, 8, 9, 10, 11], 5), "each look came too late for what the one before had seen");
    }

    #[tokio::test]
    async fn all_of_it_is_one_look_and_so_is_nothing() {
        assert_eq!(told(0, 3, 7).await, (vec![1, 2, 3], 1));
        assert_eq!(told(3, 3, 7).await, (vec![], 1));
    }

    #[tokio::test]
    async fn of_a_pruned_stream_nothing_is_told() {
        let pruned = History { version: Version(9), expired: true, records: Vec::new() };
        assert_eq!(beyond(Version(3), |_| std::future::ready(Ok::<_, Infallible>(pruned.clone()))).await, Ok(vec![]));
    }
}
