//! The search itself, on a model made for it: a sum. What was used up of the unknown operations decides what can still be reached.

use std::fmt;

use counterfoil_lin::{Limit, Model, Moment, Operation, Recorder, Verdict, check};

#[derive(Debug, Clone, Copy, Default)]
struct Sum;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Add(u32),
    Read,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Model for Sum {
    type Op = Op;
    type Ret = u32;
    type State = u32;

    fn init(&self) -> u32 {
        0
    }

    /// `Add` answers 0, `Read` the sum.
    fn step(&self, state: &u32, op: &Op, ret: Option<&u32>) -> Vec<u32> {
        let (expected, next) = match op {
            Op::Add(n) => (0, state + n),
            Op::Read => (*state, *state),
        };
        if ret.is_none_or(|ret| *ret == expected) { vec![next] } else { Vec::new() }
    }
}

/// Everything in `cut_off` may have been added; then the sums in `read` were read, one after the other.
fn verdict(cut_off: &[u32], read: &[u32]) -> Verdict {
    let added = cut_off.iter().enumerate().map(|(tick, n)| (tick as u64, Op::Add(*n), None));
    let read = read.iter().enumerate().map(|(tick, sum)| (100 + 2 * tick as u64, Op::Read, Some(*sum)));
    let history: Vec<_> = added
        .chain(read)
        .map(|(tick, op, ret)| {
            let answer = ret.map(|ret| (Moment::at(tick + 1), ret));
            Operation { client: 0, key: "sum".into(), op, invoked: Moment::at(tick), answer }
        })
        .collect();
    check(&Sum, &history, Limit::default())
}

#[test]
fn the_same_sum_by_other_operations_is_another_configuration() {
    // 6 is 1 + 5 or 2 + 4; only after 2 + 4 is a 5 left to reach 11.
    verdict(&[1, 5, 2, 4], &[6, 11]).expect_linearizable("2, 4, then 5");
    verdict(&[2, 4, 1, 5], &[6, 11]).expect_linearizable("2, 4, then 5");
    verdict(&[1, 5, 2, 4], &[6, 8]).expect_linearizable("1, 5, then 2");
    assert!(verdict(&[1, 5, 2, 4], &[6, 9]).is_violation());
}

#[test]
fn what_was_cut_off_counts_once_each() {
    verdict(&[3, 3], &[0, 3, 6]).expect_linearizable("one after the other");
    assert!(verdict(&[3, 3], &[3, 9]).is_violation());
    assert!(verdict(&[3, 3], &[6, 3]).is_violation());
}

#[test]
fn keys_are_checked_apart_and_a_violation_comes_before_giving_up() {
    let recorder = Recorder::new();
    for n in 1..=16 {
        recorder.begin(n, "hopeless", Op::Add(1 << n)).unknown();
    }
    recorder.begin(0, "hopeless", Op::Read).answered(1);
    recorder.begin(0, "fine", Op::Add(2)).answered(0);
    recorder.begin(0, "fine", Op::Read).answered(2);
    let limit = Limit { configurations: 1_000 };
    assert!(matches!(check(&Sum, &recorder.history(), limit), Verdict::GaveUp { .. }));
    recorder.begin(0, "wrong", Op::Read).answered(2);
    let Verdict::Violation(report) = check(&Sum, &recorder.history(), limit) else { panic!("hidden by the key that gave up") };
    assert_eq!(&*report.key, "wrong");
}

#[test]
fn a_recorder_notes_what_was_answered_withdrawn_and_dropped() {
    let recorder: Recorder<Op, u32> = Recorder::new();
    let first = recorder.begin(1, "sum", Op::Add(1));
    let second = recorder.begin(2, "sum", Op::Read);
    recorder.begin(3, "sum", Op::Add(2)).withdrawn();
    drop(recorder.begin(4, "sum", Op::Add(4)));
    second.answered(5);
    first.answered(0);
    let history = recorder.history();
    let noted: Vec<_> = history.iter().map(|o| (o.client, o.invoked.tick, o.answer.as_ref().map(|(end, ret)| (end.tick, *ret)))).collect();
    assert_eq!(noted, [(1, 1, Some((6, 0))), (2, 2, Some((5, 5))), (4, 4, None)]);
    assert_eq!(recorder.begun(), 4);
    check(&Sum, &history, Limit::default()).expect_linearizable("1, 4, read");
}
