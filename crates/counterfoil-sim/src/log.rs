//! The durable log: what every simulated store is in truth, and all that is left after a crash.
//!
//! Plain maps that answer at once and in one order. It never forgets an append that it took; only sabotage can make it (`cut`, `forget`). That it is a
//! store like any other is shown by the suite that every adapter passes (see `store`).

use std::collections::BTreeMap;

use counterfoil_core::{StreamId, Summary, Timestamp};
use counterfoil_store::{AppendError, Batch, Found, History, Page, Position, Pruned, Query, Reach, Record, Recorded, Version};

#[derive(Default)]
pub struct Log {
    streams: BTreeMap<StreamId, Stream>,
    last: Position,
}

enum Stream {
    Live { records: Vec<(Record, Summary)> },
    Tombstone { version: Version },
}

impl Stream {
    fn version(&self) -> Version {
        match self {
            Self::Live { records } => Version(records.len() as u64),
            Self::Tombstone { version } => *version,
        }
    }
}

impl Log {
    pub fn last(&self) -> Position {
        self.last
    }

    pub fn version(&self, stream: &StreamId) -> Version {
        self.streams.get(stream).map_or(Version::NONE, Stream::version)
    }

    pub fn load(&self, stream: &StreamId, reach: Reach) -> History {
        match self.streams.get(stream) {
            None => History::default(),
            Some(Stream::Tombstone { version }) => History { version: *version, expired: true, records: Vec::new() },
            Some(Stream::Live { records }) => {
                let skipped = match reach {
                    Reach::Whole => 0,
                    Reach::Newest(count) => records.len().saturating_sub(count as usize),
                };
                let newest = records[skipped..].iter().map(|(record, _)| record.clone()).collect();
                History { version: Version(records.len() as u64), expired: false, records: newest }
            }
        }
    }

    pub fn append(&mut self, batch: &Batch) -> Result<Position, AppendError> {
        let mut streams: Vec<StreamId> = Vec::new();
        for (index, write) in batch.writes.iter().enumerate() {
            let known = self.streams.get(&write.stream);
            let free = !matches!(known, Some(Stream::Tombstone { .. })) && known.map_or(Version::NONE, Stream::version) == write.expected;
            let repeated = batch.writes[..index].iter().any(|earlier| earlier.stream == write.stream);
            if (!free || repeated) && !streams.contains(&write.stream) {
                streams.push(write.stream);
            }
        }
        if !streams.is_empty() {
            return Err(AppendError::Conflict { streams });
        }
        for write in &batch.writes {
            self.last = Position(self.last.0 + 1);
            let record = Record { version: write.expected.next(), position: self.last, at: write.at, body: write.body.clone() };
            let stream = self.streams.entry(write.stream).or_insert_with(|| Stream::Live { records: Vec::new() });
            if let Stream::Live { records } = stream {
                records.push((record, write.summary.clone()));
            }
        }
        Ok(self.last)
    }

    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<StreamId> {
        let mut due: Vec<(Timestamp, StreamId)> =
            self.live().filter_map(|(stream, _, summary)| Some((summary.due?, *stream))).filter(|(due, _)| *due <= now).collect();
        due.sort();
        due.into_iter().take(limit).map(|(_, stream)| stream).collect()
    }

    pub fn tail(&self, after: Position, limit: usize) -> Vec<Recorded> {
        let mut all: Vec<Recorded> = Vec::new();
        for (stream, kept) in &self.streams {
            let Stream::Live { records } = kept else { continue };
            let newer = records.iter().filter(|(record, _)| record.position > after);
            all.extend(newer.map(|(record, summary)| Recorded { stream: *stream, summary: summary.clone(), record: record.clone() }));
        }
        all.sort_by_key(|recorded| recorded.record.position);
        all.truncate(limit);
        all
    }

    pub fn search(&self, query: &Query) -> Page {
        let mut found: Vec<Found> = self.live().map(|(stream, record, summary)| found(stream, record, summary)).collect();
        found.retain(|found| query.matches(found));
        found.sort_by_key(|found| std::cmp::Reverse(found.position));
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let next = found.last().filter(|_| more).map(|last| last.position);
        Page { found, next }
    }

    pub fn prune(&mut self, before: Timestamp, limit: usize) -> Pruned {
        let mut expired: Vec<(Position, StreamId)> = self
            .live()
            .filter(|(_, _, summary)| summary.expires.is_some_and(|at| at < before))
            .map(|(stream, record, _)| (record.position, *stream))
            .collect();
        expired.sort();
        let more = expired.len() > limit;
        expired.truncate(limit);
        for (_, stream) in &expired {
            let version = self.version(stream);
            self.streams.insert(*stream, Stream::Tombstone { version });
        }
        Pruned { streams: expired.len() as u64, more }
    }

    /// Streams of which something is there, with their newest record.
    fn live(&self) -> impl Iterator<Item = (&StreamId, &Record, &Summary)> {
        self.streams.iter().filter_map(|(stream, kept)| match kept {
            Stream::Live { records } => records.last().map(|(record, summary)| (stream, record, summary)),
            Stream::Tombstone { .. } => None,
        })
    }
}

/// What only a broken store does.
impl Log {
    /// Forgets what came after `position`.
    pub fn cut(&mut self, position: Position) {
        for kept in self.streams.values_mut() {
            if let Stream::Live { records } = kept {
                records.retain(|(record, _)| record.position <= position);
            }
        }
        self.streams.retain(|_, kept| !matches!(kept, Stream::Live { records } if records.is_empty()));
    }

    pub fn forget(&mut self, stream: &StreamId) {
        self.streams.remove(stream);
    }

    /// The streams that were written to the longest time ago, oldest first.
    pub fn oldest(&self, keep: impl Fn(&Summary) -> bool) -> Vec<StreamId> {
        let mut streams: Vec<(Position, StreamId)> =
            self.live().filter(|(_, _, summary)| !keep(summary)).map(|(stream, record, _)| (record.position, *stream)).collect();
        streams.sort();
        streams.into_iter().map(|(_, stream)| stream).collect()
    }
}

fn found(stream: &StreamId, record: &Record, summary: &Summary) -> Found {
    Found { stream: *stream, version: record.version, position: record.position, at: record.at, summary: summary.clone() }
}
