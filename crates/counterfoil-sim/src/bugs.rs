//! Deliberate bugs: each breaks one promise at one of the simulator's borders, and the checker must find it.
//!
//! The product's code has no switch for them. A store that forgets, a tool that guesses, a caller that mixes up tenants are put between the
//! runtime and its surroundings; where a bug of the runtime itself is meant (`rerun_on_expiry`), the store changes what the runtime wrote.

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The store acknowledges before it has flushed: a power cut takes acknowledged appends with it.
    AnswerBeforeFsync,
    /// The store looks at no version: whoever writes, writes.
    NoFenceCheck,
    /// Who lost a race is told that it won.
    LostRaceAcknowledged,
    /// Of a batch, only the first write survives a crash.
    BatchNotAtomic,
    /// Finished effects are forgotten when there are many.
    LruEviction,
    /// Pruning leaves no tombstone.
    NoTombstone,
    /// A lease that ran out is taken for an attempt that did nothing.
    RerunOnExpiry,
    /// What a lost worker reports is not kept.
    LateResultDropped,
    /// A claim is not awaited: the tool is called while it is on its way.
    ClaimNotAwaited,
    /// A person's word is acknowledged and not kept.
    VerdictDropped,
    /// A signal is acknowledged and not kept.
    SignalDropped,
    /// The number of the attempt is part of the key that the other side is told.
    AttemptInKey,
    /// An empty result is taken for none, and asked for again.
    EmptyResultAsNone,
    /// A lost answer is taken for a failure, and tried again.
    RetryOfUnknown,
    /// A failed attempt is tried again beneath the claim and the breaker.
    BreakerOutsideRetry,
    /// A probe that cannot tell says that it did not happen.
    ProbeGuesses,
    /// An undo is answered as done before it is.
    UndoMarkedBeforeRun,
    /// What is to be undone is undone oldest first.
    UndoInOrder,
    /// The tenant is no part of the key.
    KeyWithoutTenant,
    /// A key used with other arguments is taken for the same call.
    ArgumentsIgnored,
    /// A doubt is told as a failure.
    DoubtToldAsFailure,
    /// The clock of a paused worker stands still: it believes in leases that are long over.
    FrozenClock,
}

impl Bug {
    pub const ALL: [Self; 22] = [
        Self::AnswerBeforeFsync,
        Self::NoFenceCheck,
        Self::LostRaceAcknowledged,
        Self::BatchNotAtomic,
        Self::LruEviction,
        Self::NoTombstone,
        Self::RerunOnExpiry,
        Self::LateResultDropped,
        Self::ClaimNotAwaited,
        Self::VerdictDropped,
        Self::SignalDropped,
        Self::AttemptInKey,
        Self::EmptyResultAsNone,
        Self::RetryOfUnknown,
        Self::BreakerOutsideRetry,
        Self::ProbeGuesses,
        Self::UndoMarkedBeforeRun,
        Self::UndoInOrder,
        Self::KeyWithoutTenant,
        Self::ArgumentsIgnored,
        Self::DoubtToldAsFailure,
        Self::FrozenClock,
    ];

    /// As it is typed: `answer_before_fsync`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for (place, letter) in format!("{self:?}").chars().enumerate() {
            if letter.is_uppercase() && place > 0 {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}
