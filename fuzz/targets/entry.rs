//! Records of a ledger, one in each line of the input: of effects, of runs, of whatever else is stored in this form.
//!
//! Holds: a record that can be read is written again as one that reads the same; folding what can be read ends in a state or in a refusal, and a run that could be folded
//! can be asked everything. What another program wrote into a ledger cannot bring this one down.
#![no_main]

use std::fmt::Debug;

use counterfoil_core::breaker::Breaker;
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::Receipt;
use counterfoil_core::request::Request;
use counterfoil_core::run::{Run, RunEntry, is_run};
use counterfoil_core::settled::Settled;
use counterfoil_core::{Effect, Entry, Token, codec};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|text: &str| {
    let (mut effect, mut run) = (Effect::absent(Digest32::of(b"key")), None::<Run>);
    for body in text.lines() {
        let entries = round::<Entry>(body).is_some();
        let run_entries = round::<RunEntry>(body).filter(|entries| !entries.is_empty()).is_some();
        assert!(!(run_entries && is_run(body)) || !entries, "it is a record of an effect and of a run");
        round::<Breaker>(body);
        round::<Receipt>(body);
        round::<Request>(body);
        round::<Token>(body);
        drop(Settled::read(body));
        let version = effect.version;
        if effect.apply_body(body).is_ok() {
            assert_eq!(effect.version, version + 1);
            told_of(&effect);
        }
        match &mut run {
            None => {
                if let Ok((started, entries)) = Run::begun(body) {
                    let mut begun = Run::new(started, None);
                    if begun.apply(&entries).is_ok() {
                        run = Some(begun);
                    }
                }
            }
            // Whoever cannot fold a record stops there: what comes after it is not asked.
            Some(folded) => {
                if folded.apply_body(body).is_err() {
                    run = None;
                }
            }
        }
        run.iter().for_each(asked_everything);
    }
});

fn round<T: Serialize + DeserializeOwned + Debug + PartialEq>(body: &str) -> Option<Vec<T>> {
    let items: Vec<T> = codec::decode(body).ok()?;
    let written = codec::encode(&items);
    assert_eq!(codec::decode::<T>(&written).as_ref(), Ok(&items), "{written}");
    Some(items)
}

fn told_of(effect: &Effect) {
    if effect.latest().is_some() {
        drop(effect.summary());
    }
    let _ = (effect.expires(), effect.world(), effect.flushable(), effect.sent_key(), effect.unclaimed());
}

fn asked_everything(run: &Run) {
    let _ = (run.summary(), run.due(), run.next_time(), run.state(), run.fate(), run.held_up(), run.drifted(), run.saga());
    for step in &run.order {
        let _ = (run.semantics(step), run.effect(step), run.to_undo(Some(step)), run.step(step));
    }
    let committed = run.to_undo(None);
    assert!(committed.iter().all(|step| run.committed.contains(step)));
}
