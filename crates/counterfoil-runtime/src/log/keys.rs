//! The public keys of a ledger, in their order: whoever seals must have the newest.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, codec};
use counterfoil_evidence::SecretKey;
use counterfoil_evidence::keys::{Introduced, introduction};
use counterfoil_store::{Reach, Version, Write};

use super::{Log, LogError, damaged, everyones};
use crate::ledger::{LedgerError, plain_summary};

impl Log {
    pub async fn keys(&self) -> Result<Vec<Introduced>, LogError> {
        let mut keys = Vec::new();
        for record in self.ledger.records(StreamId::keys(), Reach::Whole).await?.records {
            let read: Vec<Introduced> =
                codec::decode(&record.body).map_err(|error| damaged(format!("key {}", record.version.0), error.to_string()))?;
            keys.extend(read);
        }
        Ok(keys)
    }

    /// Records a key as the newest. `old`: the one before it, which vouches for it; `None` for the first, and where that one was lost. `false`: another
    /// key was recorded meanwhile.
    pub async fn introduce(&self, new: &SecretKey, old: Option<&SecretKey>, by: &str, after: &[Introduced]) -> Result<bool, LogError> {
        let key = new.public();
        let vouched = old.map(|old| old.sign(&introduction(&key)));
        let introduced = Introduced { key, at: self.clock.now(), by: by.to_owned(), vouched };
        let write = Write {
            stream: StreamId::keys(),
            expected: Version(after.len() as u64),
            at: introduced.at,
            body: codec::encode(&[introduced]),
            summary: plain_summary(StreamKind::Key, everyones()),
        };
        match self.ledger.append(vec![write]).await {
            Ok(()) => Ok(true),
            Err(LedgerError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
