//! What is stored under a subject's key, and how it is read again: the only file of the runtime that covers and uncovers.
//!
//! What must stay true: whether a subject is still there is asked of the store at each read, so that an erasure by another process holds at once; and
//! what was erased reads as a tombstone, whose key is never run again.

use std::sync::Arc;

use counterfoil_core::veil::{self, SubjectKey, Veil};
use counterfoil_core::{StreamId, Tenant, codec};
use counterfoil_store::{History, Reach, StoreError, Version};

use super::{Ledger, LedgerError};
use crate::fresh::unguessable;

/// A subject as the ledger has it.
enum Subject {
    Known(Arc<Veil>),
    Erased,
    Unknown(Version),
}

/// The stored form of the record that follows `expected`.
pub fn body<T: serde::Serialize>(veil: Option<&Arc<Veil>>, stream: &StreamId, expected: Version, entries: &[T]) -> String {
    let body = codec::encode(entries);
    let Some(veil) = veil else { return body };
    let random = unguessable();
    let nonce = *random.first_chunk().expect("32 bytes have 24");
    veil.cover(stream, expected.next().0, nonce, &body)
}

impl Ledger {
    /// What the records about this subject are stored under, made on first use. `None`: it was erased.
    pub async fn veil(&self, tenant: &Tenant, subject: StreamId) -> Result<Option<Arc<Veil>>, LedgerError> {
        loop {
            let version = match self.subject(subject).await? {
                Subject::Known(veil) => return Ok(Some(veil)),
                Subject::Erased => return Ok(None),
                Subject::Unknown(version) => version,
            };
            let key = SubjectKey { at: self.clock.now(), key: counterfoil_core::ids::Digest32(unguessable()) };
            match self.append(vec![self.replacing(subject, version, &key, SubjectKey::summary(tenant.clone()))]).await {
                Ok(()) | Err(LedgerError::Conflict) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    async fn subject(&self, subject: StreamId) -> Result<Subject, LedgerError> {
        let history = self.store.load(subject, Reach::Newest(1)).await.inspect_err(|e| self.meters.failed(e))?;
        if history.expired {
            return Ok(Subject::Erased);
        }
        let Some(record) = history.records.last() else { return Ok(Subject::Unknown(history.version)) };
        let keys: Vec<SubjectKey> = codec::decode(&record.body).map_err(|e| damaged(&subject, record.version, &e))?;
        Ok(keys.last().map_or(Subject::Unknown(history.version), |key| Subject::Known(Arc::new(Veil::new(subject, key)))))
    }

    /// A history as it was before it was veiled, and what what follows is to be stored under. Of an erased subject nothing is left but a tombstone.
    pub(super) async fn unveiled(&self, stream: StreamId, mut history: History) -> Result<(History, Option<Arc<Veil>>), LedgerError> {
        let mut newest: Option<Arc<Veil>> = None;
        for record in &mut history.records {
            let Some(subject) = veil::subject_of(&record.body).map_err(|e| damaged(&stream, record.version, &e))? else { continue };
            let veil = match &newest {
                Some(veil) if veil.subject == subject => veil.clone(),
                _ => match self.subject(subject).await? {
                    Subject::Known(veil) => veil,
                    Subject::Erased => return Ok((History { version: history.version, expired: true, records: Vec::new() }, None)),
                    Subject::Unknown(_) => {
                        let message = format!("it is veiled, and the key of its subject {subject} is not in this ledger");
                        return Err(damaged(&stream, record.version, &message).into());
                    }
                },
            };
            record.body = veil.uncover(&stream, record.version.0, &record.body).map_err(|e| damaged(&stream, record.version, &e))?;
            newest = Some(veil);
        }
        Ok((history, newest))
    }
}

fn damaged(stream: &StreamId, version: Version, message: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt { place: format!("stream {stream}, record {}", version.0), message: message.to_string() }
}
