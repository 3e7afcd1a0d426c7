//! E. What one machine can show of leases and fencing.

use rustix::process::Signal;
use serde_json::json;

use crate::lab::{EXIT_DONE, Lab, Run};

/// A paused process is not gone: only its lease can say that it is lost.
#[test]
fn a_45_a_paused_worker_loses_its_lease_and_reports_late() {
    let lab = Lab::charging("lease: 1s\nwait_max: 60s");
    lab.world.then("/charge", json!({ "after": true }));
    let paused = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    paused.signal(Signal::STOP);
    // Waits out the lease and takes over: it knows that it does not know.
    let doubt = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(doubt.at("/error/cause"), "worker_lost");
    assert!(doubt.text("/error/message").contains("its lease ran out"), "{doubt:?}");
    lab.world.release("/charge");
    paused.signal(Signal::CONT);
    // Its report comes too late to be an outcome under its permit, and closes the doubt all the same: it is evidence.
    let late = Run::ended(paused);
    assert_eq!((late.code, late.at("/data")), (EXIT_DONE, json!({ "id": "e-1" })), "{late:?}");
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), json!({ "id": "e-1" }));
    let shown = lab.json(&["effects", "show", &doubt.effect()]);
    assert_eq!((shown.at("/state"), shown.at("/late/0/outcome/done/result")), (json!("done"), json!({ "id": "e-1" })), "{shown:?}");
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

/// A person decided meanwhile that it had not happened, and it was run again: the late report proves the double, and says so.
#[test]
fn a_45_a_late_report_after_a_wrong_word_is_kept_as_evidence() {
    let lab = Lab::charging("lease: 1s\nwait_max: 60s");
    lab.world.rules("/charge", json!({ "next": [{ "after": true }] }));
    let paused = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    paused.signal(Signal::STOP);
    let effect = lab.call("charge", "{}", "k").in_doubt().effect();
    lab.json(&["effects", "resolve", &effect, "--did-not-happen", "--by", "bob", "--why", "could not find it"]);
    let second = lab.call("charge", "{}", "k").done();
    lab.world.release("/charge");
    paused.signal(Signal::CONT);
    let late = Run::ended(paused);
    assert_eq!(late.at("/data"), second.at("/data"), "one key has one answer, whatever was found later: {late:?}");
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), second.at("/data"));
    let shown = lab.json(&["effects", "show", &effect]);
    assert_eq!(shown.at("/late/0/outcome/done/result"), json!({ "id": "e-1" }), "the first one's trace: {shown:?}");
    assert_eq!(lab.world.acted("/charge"), 2, "a person's word, not a guess of ours");
}

/// A worker that lives longer than its lease keeps it: nobody takes over.
#[test]
fn a_45_a_living_worker_keeps_its_lease() {
    let lab = Lab::charging("lease: 1s\nwait_max: 3s");
    lab.world.then("/charge", json!({ "after": true }));
    let slow = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    // Waits three leases long, and in vain.
    lab.call("charge", "{}", "k").expect(crate::lab::EXIT_PENDING, "pending");
    lab.world.release("/charge");
    let done = Run::ended(slow).done();
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), done.at("/data"));
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}
