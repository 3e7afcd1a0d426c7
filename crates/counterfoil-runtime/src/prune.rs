//! Dropping what has expired: from the ledger, and from where tools keep things of their own.

use counterfoil_core::{EffectKey, StreamId};
use counterfoil_store::Pruned;

use crate::ledger::LedgerError;
use crate::runtime::Runtime;

impl Runtime {
    /// Drops up to `limit` effects whose `retain` is over. With the last of them, tools forget what they kept for effects that are gone.
    pub async fn prune(&self, limit: usize) -> Result<Pruned, LedgerError> {
        let pruned = self.ledger().prune(limit).await?;
        if !pruned.more {
            self.forget().await?;
        }
        Ok(pruned)
    }

    async fn forget(&self) -> Result<(), LedgerError> {
        for registered in self.tools() {
            // What cannot be cleared away now is found again the next time.
            let told = |message: String| tracing::warn!(tool = %registered.name, message, "what was kept for expired effects could not be removed");
            let kept = registered.tool.kept().await.map_err(told).unwrap_or_default();
            let mut gone = Vec::new();
            for key in kept {
                if self.is_gone(key).await? {
                    gone.push(key);
                }
            }
            if !gone.is_empty()
                && let Err(message) = registered.tool.forget(gone).await
            {
                told(message);
            }
        }
        Ok(())
    }

    /// Pruned, for certain. One that this ledger does not know may be another's.
    async fn is_gone(&self, key: EffectKey) -> Result<bool, LedgerError> {
        let (_, _, expired) = self.ledger().newest_or_expired::<serde_json::Value>(StreamId::effect(&key)).await?;
        Ok(expired)
    }
}
