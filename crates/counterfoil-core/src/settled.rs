//! A finished effect as its newest record alone tells it: enough to replay it, and nothing else.
//!
//! Most calls that meet a record are repeats of one that is done. For these the history need not be read. What comes out here is what the whole
//! fold would answer (a property test compares them); whatever is not as plain as that is `None`, and the history is read after all.

use crate::codec;
use crate::effect::{Done, How};
use crate::entry::{Answers, Ended, Entry, Finished};
use crate::ids::Fingerprint;
use crate::outcome::Success;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub done: Done,
    answers: Answers,
}

impl Settled {
    /// From the newest record of a stream. A record that cannot be read is left to the fold, which says what is wrong with it.
    pub fn read(newest: &str) -> Option<Self> {
        let [entry] = <[Entry; 1]>::try_from(codec::decode(newest).ok()?).ok()?;
        let Entry::Finished(finished) = entry else { return None };
        let Finished { attempt, started, ended: at, outcome: Ended::Done { success, undo, receipt }, answers: Some(answers), .. } =
            finished
        else {
            return None;
        };
        let Success { result, flags } = success;
        Some(Self { done: Done { at, attempt, started, result, flags, undo, receipt, how: How::Reported }, answers })
    }

    /// Whether the recorded result is the answer to a call with these arguments. If not, the whole history says what is.
    pub fn replays(&self, fingerprint: &Fingerprint, now: Timestamp) -> bool {
        self.answers.fingerprint == *fingerprint && now < self.answers.until
    }
}
