//! Who asks: tenant, caller and rights come from the token, never from what the request says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::limit::Bucket;
use counterfoil_core::policy::Rate;
use counterfoil_core::token::{Right, Rights, TokenId};
use counterfoil_core::{Caller, Tenant, Timestamp};
use counterfoil_runtime::{Runtime, Tokens};
use http::StatusCode;

use crate::problem::Problem;

/// Tokens whose rate is kept track of; beyond that all are forgotten, and begin with a full bucket.
const BUCKETS_MAX: usize = 10_000;

#[derive(Debug, Clone)]
pub struct Who {
    pub tenant: Tenant,
    pub caller: Caller,
    pub rights: Rights,
}

impl Who {
    pub fn must(&self, right: Right) -> Result<(), Problem> {
        if self.rights.allow(right) {
            return Ok(());
        }
        let detail = format!("this needs the right {:?}; the token of {} has {}; nothing was run", right.word(), self.caller, self.rights);
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

/// How it is known who asks: by token. As long as there is none, whoever reaches a server that was told so (it listens on loopback only).
pub struct Access {
    runtime: Runtime,
    tokens: Arc<Tokens>,
    buckets: Mutex<HashMap<TokenId, Bucket>>,
    /// Who asks without a token, while there is none.
    open: Option<Who>,
    /// A token exists. Once seen it stays: revoking the last one locks everyone out, and lets nobody in.
    locked: AtomicBool,
    looked: AtomicI64,
}

/// How old the knowledge that there is no token may be.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Access {
    pub fn new(runtime: &Runtime, tokens: Arc<Tokens>, open: Option<Who>) -> Self {
        let locked = AtomicBool::new(open.is_none());
        Self { runtime: runtime.clone(), tokens, buckets: Mutex::default(), open, locked, looked: AtomicI64::new(0) }
    }

    pub async fn authenticate(&self, presented: Option<&str>) -> Result<Who, Problem> {
        let Some(presented) = presented else {
            return match &self.open {
                Some(who) if !self.is_locked().await? => Ok(who.clone()),
                _ => Err(unauthorized()),
            };
        };
        let token = self.tokens.authenticate(presented).await?.ok_or_else(unauthorized)?;
        if let Some(rate) = token.rate {
            self.take(token.id, rate)?;
        }
        Ok(Who { tenant: token.tenant, caller: token.caller, rights: token.rights })
    }

    async fn is_locked(&self) -> Result<bool, Problem> {
        let now = self.runtime.now();
        let looked = Timestamp(self.looked.load(Ordering::Relaxed));
        if !self.locked.load(Ordering::Relaxed) && looked + LOOK_EVERY <= now {
            if self.tokens.any_exist().await? {
                tracing::warn!("there is a token now: requests without one are refused from here on");
                self.locked.store(true, Ordering::Relaxed);
            }
            self.looked.store(now.0, Ordering::Relaxed);
        }
        Ok(self.locked.load(Ordering::Relaxed))
    }

    fn take(&self, id: TokenId, rate: Rate) -> Result<(), Problem> {
        let now = self.runtime.now();
        let mut buckets = self.lock();
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(&id) {
            buckets.clear();
        }
        buckets.entry(id).or_insert_with(|| Bucket::full(rate, now)).take(rate, now).map_err(|wait| {
            let detail = format!("this token may send {} requests per {:?}; nothing was run", rate.count, rate.per);
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail).retry_after(wait)
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenId, Bucket>> {
        // Plain values, whole at every moment.
        self.buckets.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn unauthorized() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "no valid bearer token was given; nothing was run")
}
