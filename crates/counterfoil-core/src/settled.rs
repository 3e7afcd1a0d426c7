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
        let Success { result, flags, state_changed } = success;
        Some(Self { done: Done { at, attempt, started, result, flags, state_changed, undo, receipt, how: How::Reported }, answers })
    }

    /// Whether the recorded result is the answer to a call with these arguments. If not, the whole history says what is.
    pub fn replays(&self, fingerprint: &Fingerprint, now: Timestamp) -> bool {
        self.answers.fingerprint == *fingerprint && now < self.answers.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::{CanonicalJson, Json};
    use crate::ids::{Digest32, Fence};
    use crate::receipt::ReceiptId;

    /// A flush is the newest record until the key is used again, and then the new outcome is: the old one answers nobody.
    #[test]
    fn nothing_is_replayed_from_before_a_flush() {
        let receipt = ReceiptId::new(&Digest32::of(b"key"), 1);
        let fingerprint = |text: &str| CanonicalJson::parse(text).unwrap().fingerprint();
        let done = |fence, result: &str, args: &str| {
            let success = Success::new(Json::parse(result).unwrap());
            let outcome = Ended::Done { success, undo: None, receipt };
            let answers = Some(Answers { fingerprint: fingerprint(args), until: Timestamp(9) });
            Entry::Finished(Finished { fence: Fence(fence), attempt: 1, started: Timestamp(1), ended: Timestamp(2), outcome, answers })
        };
        let flushed = Entry::Flushed { at: Timestamp(3), by: "ada".into(), why: "again".into(), receipt };
        assert!(Settled::read(&codec::encode(&[done(1, "1", "{}")])).is_some());
        assert_eq!(Settled::read(&codec::encode(&[flushed])), None);
        let again = Settled::read(&codec::encode(&[done(4, "2", "[1]")])).unwrap();
        assert_eq!(again.done.result.as_str(), "2");
        assert!(again.replays(&fingerprint("[1]"), Timestamp(5)) && !again.replays(&fingerprint("{}"), Timestamp(5)));
    }
}
