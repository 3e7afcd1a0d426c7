//! The formal model's transition relation, once more in Rust: every record of an effect that gets into the log must be a step of it.
//!
//! Written from `spec/Effect.tla` (`Legal` and `After`, with the same names), and from nothing of `counterfoil-core`: it reads the stored text, so that
//! code, model and what is on the disk cannot drift apart unnoticed. Two things are here that are not there: approvals, and that a claim's fence is the
//! number of its record. Times and texts are in neither.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_core::StreamId;
use serde_json::Value;

#[derive(Default)]
pub struct Model {
    effects: BTreeMap<StreamId, Effect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum St {
    Absent,
    Ready,
    WaitingApproval,
    Running,
    Retrying,
    InDoubt,
    Done,
    Failed,
    Cancelled,
    Undoing,
    Undone,
    UndoFailed,
    Flushed,
}

/// How it is known that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Nobody,
    Reported,
    Late,
    Probed,
    Resolved,
}

#[derive(Debug, Clone)]
struct Effect {
    st: St,
    fence: u64,
    /// What the running claim was made on.
    before: St,
    /// Claims that ended without a word on whether they acted.
    silent: BTreeSet<u64>,
    /// A probe or a person said that no claim up to this one acted.
    dis: u64,
    /// Silent claims of earlier lives.
    past: BTreeSet<u64>,
    how: How,
}

impl Default for Effect {
    fn default() -> Self {
        Self { st: St::Absent, fence: 0, before: St::Absent, silent: BTreeSet::new(), dis: 0, past: BTreeSet::new(), how: How::Nobody }
    }
}

impl Model {
    /// Takes one record as it was written.
    pub fn step(&mut self, stream: &StreamId, version: u64, body: &str) -> Result<(), String> {
        let entries: Vec<Value> = body
            .strip_prefix('1')
            .and_then(|json| serde_json::from_str(json).ok())
            .ok_or_else(|| "the record cannot be read".to_owned())?;
        let effect = self.effects.entry(*stream).or_default();
        for entry in &entries {
            let (word, said) = entry.as_object().and_then(|entry| entry.iter().next()).ok_or("an entry has one name")?;
            let from = effect.st;
            effect.after(word, said, version).ok_or_else(|| format!("{word} cannot follow {from:?}"))?;
        }
        Ok(())
    }
}

impl Effect {
    fn doubtful(&self) -> bool {
        self.silent.iter().any(|fence| *fence > self.dis)
    }

    fn flushable(&self) -> bool {
        match self.st {
            St::Done | St::Undone => matches!(self.how, How::Probed | How::Resolved) || !self.doubtful(),
            St::Failed | St::Retrying => !self.doubtful(),
            St::Cancelled => self.how == How::Nobody && !self.doubtful(),
            _ => false,
        }
    }

    /// `None`: not a step of the model.
    fn after(&mut self, entry: &str, said: &Value, version: u64) -> Option<()> {
        let fence = said["fence"].as_u64();
        let ours = self.st == St::Running && fence == Some(self.fence);
        match entry {
            "opened" if matches!(self.st, St::Absent | St::Flushed) => self.st = St::Ready,
            "approval_asked" if self.st == St::Ready => self.st = St::WaitingApproval,
            "approved" if self.st == St::WaitingApproval => self.st = St::Ready,
            "denied" if self.st == St::WaitingApproval => self.st = St::Failed,
            "claimed" if matches!(self.st, St::Ready | St::Retrying | St::InDoubt) && fence? > self.fence && fence == Some(version) => {
                self.before = self.st;
                self.fence = fence?;
                self.st = St::Running;
            }
            "extended" if ours => {}
            "released" if ours => self.st = self.before,
            "finished" if ours => self.finished(outcome(&said["outcome"])?)?,
            "lost" if ours => self.doubt(),
            "late" => self.late(fence?, &said["outcome"])?,
            "probed" | "resolved" if self.st == St::InDoubt || (self.st == St::Cancelled && self.how == How::Nobody && self.doubtful()) => {
                self.word(entry, said)?;
            }
            "cancelled" if matches!(self.st, St::Ready | St::WaitingApproval | St::Retrying | St::Running) => {
                if self.st == St::Running {
                    self.silent.insert(self.fence);
                }
                self.st = St::Cancelled;
            }
            "reopened" if matches!(self.st, St::Failed | St::Retrying) => self.st = St::Ready,
            "undo_started" if matches!(self.st, St::Done | St::UndoFailed) || (self.st == St::Cancelled && self.how != How::Nobody) => {
                self.st = St::Undoing;
            }
            "undo_finished" if self.st == St::Undoing => {
                self.st = if said["failure"].is_null() { St::Undone } else { St::UndoFailed };
            }
            "flushed" if self.flushable() => {
                let past = self.past.union(&self.silent).copied().collect();
                *self = Self { st: St::Flushed, fence: self.fence, past, ..Self::default() };
            }
            _ => return None,
        }
        Some(())
    }

    /// The running claim ended without a word.
    fn doubt(&mut self) {
        self.silent.insert(self.fence);
        self.st = St::InDoubt;
    }

    fn finished(&mut self, outcome: &str) -> Option<()> {
        match outcome {
            "done" => {
                self.st = St::Done;
                self.how = How::Reported;
            }
            // It did nothing: what an earlier attempt did is as open as it was.
            "failed" | "retry" if self.before == St::InDoubt => self.st = St::InDoubt,
            "failed" => self.st = St::Failed,
            "retry" => self.st = St::Retrying,
            "unknown" => self.doubt(),
            _ => return None,
        }
        Some(())
    }

    fn late(&mut self, fence: u64, said: &Value) -> Option<()> {
        if !self.silent.contains(&fence) {
            return self.past.remove(&fence).then_some(());
        }
        match outcome(said)? {
            "done" => {
                self.silent.remove(&fence);
                match self.st {
                    St::Cancelled if self.how == How::Nobody => self.how = How::Late,
                    St::Ready | St::WaitingApproval | St::Retrying | St::InDoubt | St::Failed | St::Running => {
                        if self.st == St::Running {
                            // The newer claim lost its reason.
                            self.silent.insert(self.fence);
                        }
                        self.st = St::Done;
                        self.how = How::Late;
                    }
                    _ => {}
                }
            }
            "not_done" => {
                self.silent.remove(&fence);
                let settled = match said["not_done"]["retriable"].as_bool().unwrap_or(false) {
                    _ if self.doubtful() => St::InDoubt,
                    true => St::Retrying,
                    false => St::Failed,
                };
                match self.st {
                    St::InDoubt => self.st = settled,
                    St::Running if self.before == St::InDoubt => self.before = settled,
                    _ => {}
                }
            }
            // It knows no more than everybody: evidence.
            "unknown" => {}
            _ => return None,
        }
        Some(())
    }

    /// What a probe or a person says of a doubt.
    fn word(&mut self, entry: &str, said: &Value) -> Option<()> {
        let (how, answer) = if entry == "probed" { (How::Probed, &said["answer"]) } else { (How::Resolved, &said["verdict"]) };
        let cancelled = self.st == St::Cancelled;
        match outcome(answer)? {
            "happened" => {
                self.how = how;
                self.st = if cancelled { St::Cancelled } else { St::Done };
            }
            "did_not_happen" | "gave_up" if cancelled => self.dis = self.fence,
            "did_not_happen" => {
                self.dis = self.fence;
                self.st = if entry == "probed" { St::Retrying } else { St::Ready };
            }
            "gave_up" => {
                self.dis = self.fence;
                self.st = St::Failed;
            }
            "cannot_tell" => {}
            _ => return None,
        }
        Some(())
    }
}

/// The name of what was said: `"x"` or `{"x": …}`.
fn outcome(said: &Value) -> Option<&str> {
    match said {
        Value::String(word) => Some(word),
        Value::Object(object) => object.keys().next().map(String::as_str),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bodies: &[&str]) -> Result<(), String> {
        let mut model = Model::default();
        bodies.iter().enumerate().try_for_each(|(place, body)| model.step(&StreamId([7; 32]), place as u64 + 1, body))
    }

    const CLAIMED: &str = r#"1[{"opened":{}},{"claimed":{"fence":1}}]"#;

    #[test]
    fn what_the_model_allows_is_a_step_and_what_it_forbids_is_none() {
        let lost = r#"1[{"lost":{"fence":1}}]"#;
        let late = r#"1[{"late":{"fence":1,"outcome":{"done":{}}}}]"#;
        assert_eq!(told(&[CLAIMED, lost, late, r#"1[{"undo_started":{}}]"#]), Ok(()));
        assert!(told(&[CLAIMED, late]).is_err(), "only a silent claim reports late");
        assert!(told(&[CLAIMED, r#"1[{"finished":{"fence":2,"outcome":{"done":{}}}}]"#]).is_err(), "under another's fence");
        assert!(told(&[r#"1[{"opened":{}},{"claimed":{"fence":2}}]"#]).is_err(), "a fence is the number of its record");
        let done = r#"1[{"finished":{"fence":1,"outcome":{"done":{}}}}]"#;
        assert!(told(&[CLAIMED, done, r#"1[{"claimed":{"fence":3}}]"#]).is_err(), "what is done is not claimed again");
        assert!(told(&[CLAIMED, r#"1[{"probed":{"answer":"did_not_happen"}}]"#]).is_err(), "nothing is in doubt");
    }

    #[test]
    fn a_doubt_outlives_a_refused_repeat() {
        let again = [
            CLAIMED,
            r#"1[{"finished":{"fence":1,"outcome":{"unknown":{}}}}]"#,
            r#"1[{"claimed":{"fence":3}}]"#,
            r#"1[{"finished":{"fence":3,"outcome":{"failed":{}}}}]"#,
        ];
        assert_eq!(told(&again), Ok(()));
        let resolved = r#"1[{"resolved":{"verdict":"did_not_happen"}}]"#;
        assert_eq!(told(&[&again[..], &[resolved]].concat()), Ok(()));
        assert!(told(&[&again[..], &[r#"1[{"reopened":{}}]"#]].concat()).is_err(), "it is not failed");
    }
}
