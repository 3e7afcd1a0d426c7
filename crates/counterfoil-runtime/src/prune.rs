//! Dropping what has expired: from the ledger, and from where tools keep things of their own. Of the world itself nothing is touched.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use counterfoil_core::{EffectKey, StreamId};
use counterfoil_store::Pruned;
use futures_util::{StreamExt, stream};

use crate::ledger::LedgerError;
use crate::runtime::Runtime;

/// Effects asked about at once.
const AT_ONCE_MAX: usize = 16;

impl Runtime {
    /// Drops up to `limit` streams that have expired: effects above all. With the last of them, tools forget what they kept for effects that are gone.
    pub async fn prune(&self, limit: usize) -> Result<Pruned, LedgerError> {
        let pruned = self.ledger().prune(limit).await?;
        if pruned.streams > 0 {
            self.inner.forgettable.store(true, Ordering::SeqCst);
        }
        // Once after the start as well: others may have pruned before.
        if !pruned.more && self.inner.forgettable.swap(false, Ordering::SeqCst) {
            self.forget().await;
        }
        Ok(pruned)
    }

    /// What cannot be cleared away now is found again the next time.
    async fn forget(&self) {
        // Several tools may share one folder.
        let mut gone: HashMap<EffectKey, bool> = HashMap::new();
        for registered in self.tools() {
            let told = |message: String| tracing::warn!(tool = %registered.name, message, "what was kept for expired effects could not be removed");
            let kept = registered.tool.kept().await.map_err(told).unwrap_or_default();
            let unknown: Vec<EffectKey> = kept.iter().filter(|key| !gone.contains_key(*key)).copied().collect();
            let looked = stream::iter(unknown).map(|key| async move { (key, self.is_gone(key).await) }).buffer_unordered(AT_ONCE_MAX);
            gone.extend(looked.collect::<Vec<_>>().await);
            let over: Vec<EffectKey> = kept.into_iter().filter(|key| gone[key]).collect();
            if !over.is_empty()
                && let Err(message) = registered.tool.forget(over).await
            {
                told(message);
            }
        }
    }

    /// Pruned, for certain. One that this ledger does not know may be another's, and one that cannot be read is nobody's to throw away.
    async fn is_gone(&self, key: EffectKey) -> bool {
        let looked = self.ledger().newest_or_expired::<serde_json::Value>(StreamId::effect(&key)).await;
        looked.is_ok_and(|(_, _, expired)| expired)
    }
}
