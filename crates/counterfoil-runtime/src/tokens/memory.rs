//! What was learned of presented tokens, for a moment and in bounded space.
//!
//! Good and wrong ones are kept apart, so that no amount of guessing pushes out a token in use. A full half is emptied: that costs a look
//! at the ledger each, never a wrong answer.

use std::sync::{Mutex, MutexGuard};

use counterfoil_core::{StreamId, Timestamp, Token};
use counterfoil_store::spread::Map;

use super::FRESH_FOR;

/// More than a server has callers at one time.
const GOOD_MAX: usize = 10_000;
/// Enough for clients that repeat an old token again and again; whoever guesses never repeats one.
const WRONG_MAX: usize = 1_000;

#[derive(Default)]
pub struct Memory {
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    good: Map<(Token, Timestamp)>,
    wrong: Map<Timestamp>,
}

#[expect(clippy::large_enum_variant, reason = "it lives for a moment, once per request")]
pub enum Remembered {
    /// `None`: refused.
    Fresh(Option<Token>),
    /// It was good when it was last looked at.
    Stale,
    Nothing,
}

impl Memory {
    pub fn recall(&self, stream: &StreamId, now: Timestamp) -> Remembered {
        let halves = self.lock();
        match (halves.good.get(stream), halves.wrong.get(stream)) {
            (Some((token, looked)), _) if fresh(*looked, now) => Remembered::Fresh(Some(token.clone())),
            (Some(_), _) => Remembered::Stale,
            (None, Some(looked)) if fresh(*looked, now) => Remembered::Fresh(None),
            (None, _) => Remembered::Nothing,
        }
    }

    pub fn admit(&self, stream: StreamId, token: &Token, looked: Timestamp) {
        let mut halves = self.lock();
        // A refusal that is newer than this look stands: the token was revoked here meanwhile.
        if halves.wrong.get(&stream).is_some_and(|refused| *refused >= looked) {
            return;
        }
        halves.wrong.remove(&stream);
        put(&mut halves.good, GOOD_MAX, stream, (token.clone(), looked));
    }

    pub fn refuse(&self, stream: StreamId, looked: Timestamp) {
        let mut halves = self.lock();
        halves.good.remove(&stream);
        put(&mut halves.wrong, WRONG_MAX, stream, looked);
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        // Plain values, whole at every moment.
        self.halves.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A clock that was set back makes nothing fresh for ever.
fn fresh(looked: Timestamp, now: Timestamp) -> bool {
    looked <= now && now.since(looked) < FRESH_FOR
}

fn put<T>(half: &mut Map<T>, max: usize, stream: StreamId, value: T) {
    if half.len() >= max && !half.contains_key(&stream) {
        half.clear();
    }
    half.insert(stream, value);
}

#[cfg(test)]
mod tests {
    use counterfoil_core::ids::Digest32;
    use counterfoil_core::token::{Change, Right, Rights, TokenId};
    use counterfoil_core::{Caller, Tenant};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn stream(n: usize) -> StreamId {
        StreamId::token(&Digest32::of(&n.to_be_bytes()))
    }

    fn token() -> Token {
        Token {
            id: TokenId([1; 6]),
            tenant: Tenant::new("acme").unwrap(),
            caller: Caller::new("agent").unwrap(),
            rights: Rights::up_to(Right::Call),
            label: None,
            created: Change { at: NOW, by: "ada".into(), why: String::new() },
            expires: None,
            revoked: None,
            rate: None,
        }
    }

    #[test]
    fn neither_half_grows_beyond_its_bound_nor_pushes_out_the_other() {
        let memory = Memory::default();
        memory.admit(stream(0), &token(), NOW);
        for n in 1..=3 * WRONG_MAX {
            memory.refuse(stream(n), NOW);
            assert!(memory.lock().wrong.len() <= WRONG_MAX);
            assert!(matches!(memory.recall(&stream(n), NOW), Remembered::Fresh(None)), "the newest is kept");
        }
        assert!(matches!(memory.recall(&stream(0), NOW), Remembered::Fresh(Some(_))));
        for n in 0..=2 * GOOD_MAX {
            memory.admit(stream(usize::MAX - n), &token(), NOW);
            assert!(memory.lock().good.len() <= GOOD_MAX);
        }
    }

    #[test]
    fn a_look_that_began_before_a_revocation_does_not_bring_the_token_back() {
        let memory = Memory::default();
        let later = NOW + FRESH_FOR / 2;
        memory.refuse(stream(0), later);
        memory.admit(stream(0), &token(), NOW);
        assert!(matches!(memory.recall(&stream(0), later), Remembered::Fresh(None)));
    }
}
