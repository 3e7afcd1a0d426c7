//! Each violation that the checker is there for, written down by hand: it must be caught, and the same history without it must not.

use counterfoil_lin::invocation::{self, Said};
use counterfoil_lin::resource::{self, Answer};
use counterfoil_lin::{Invocation, Limit, Model, Moment, Operation, Resource, Verdict, check};

/// Invoked at, answered at, what, what was answered. `None`: unknown.
type Line<M> = (u64, u64, <M as Model>::Op, Option<<M as Model>::Ret>);

fn verdict<M: Model + Default>(lines: Vec<Line<M>>) -> Verdict {
    let history: Vec<_> = lines
        .into_iter()
        .enumerate()
        .map(|(index, (from, to, op, ret))| Operation {
            client: index as u32,
            key: "it".into(),
            op,
            invoked: Moment::at(from),
            answer: ret.map(|ret| (Moment::at(to), ret)),
        })
        .collect();
    check(&M::default(), &history, Limit::default())
}

#[track_caller]
fn accepted<M: Model + Default>(lines: Vec<Line<M>>) {
    verdict::<M>(lines).expect_linearizable("written by hand");
}

/// `culprit`: part of the line that the report must point at.
#[track_caller]
fn caught<M: Model + Default>(culprit: &str, lines: Vec<Line<M>>) {
    match verdict::<M>(lines) {
        Verdict::Violation(report) => assert!(report.culprit.contains(culprit), "points elsewhere:\n{report}"),
        other => panic!("not caught: {other}"),
    }
}

fn put(version: &str) -> resource::Op {
    resource::Op::Put { version: version.into(), key: None }
}

fn put_keyed(version: &str, key: &str) -> resource::Op {
    resource::Op::Put { version: version.into(), key: Some(key.into()) }
}

fn delete() -> resource::Op {
    resource::Op::Delete { key: None }
}

fn delete_keyed(key: &str) -> resource::Op {
    resource::Op::Delete { key: Some(key.into()) }
}

const GET: resource::Op = resource::Op::Get;
const DELETED: Option<resource::Ret> = Some(resource::Ret::Fresh(Answer::Deleted));
const NOT_FOUND: Option<resource::Ret> = Some(resource::Ret::Fresh(Answer::NotFound));
const IN_FLIGHT: Option<resource::Ret> = Some(resource::Ret::InFlight);
const PUT_MISMATCH: Option<resource::Ret> = Some(resource::Ret::Mismatch);

fn created(version: &str) -> Option<resource::Ret> {
    Some(resource::Ret::Fresh(Answer::Created(version.into())))
}

fn updated(version: &str) -> Option<resource::Ret> {
    Some(resource::Ret::Fresh(Answer::Updated(version.into())))
}

fn found(version: &str) -> Option<resource::Ret> {
    Some(resource::Ret::Fresh(Answer::Found(version.into())))
}

fn replayed(answer: Answer) -> Option<resource::Ret> {
    Some(resource::Ret::Replayed(answer))
}

fn call() -> invocation::Op {
    invocation::Op::Call { args: "usual".into() }
}

fn call_other() -> invocation::Op {
    invocation::Op::Call { args: "other".into() }
}

const OBSERVE: invocation::Op = invocation::Op::Observe;
const DID_NOT_HAPPEN: invocation::Op = invocation::Op::Resolve(Said::DidNotHappen);
const HAPPENED: invocation::Op = invocation::Op::Resolve(Said::Happened { result: Some(7) });
const DONE: Option<invocation::Ret> = Some(invocation::Ret::Done { result: Some(7), replayed: false });
const AGAIN: Option<invocation::Ret> = Some(invocation::Ret::Done { result: Some(7), replayed: true });
const IN_DOUBT: Option<invocation::Ret> = Some(invocation::Ret::InDoubt);
const PENDING: Option<invocation::Ret> = Some(invocation::Ret::Pending);
const MISMATCH: Option<invocation::Ret> = Some(invocation::Ret::Mismatch);
const RESOLVED: Option<invocation::Ret> = Some(invocation::Ret::Resolved);
const NOT_IN_DOUBT: Option<invocation::Ret> = Some(invocation::Ret::NotInDoubt);

fn world(count: u64) -> Option<invocation::Ret> {
    Some(invocation::Ret::World(count))
}

#[test]
fn a_lost_update() {
    let begin = || vec![(1, 2, put("a"), created("a")), (3, 4, put("b"), updated("b"))];
    accepted::<Resource>([begin(), vec![(5, 6, GET, found("b"))]].concat());
    caught::<Resource>("found a", [begin(), vec![(5, 6, GET, found("a"))]].concat());
    caught::<Resource>("created c", [begin(), vec![(5, 6, put("c"), created("c"))]].concat());
}

#[test]
fn a_stale_read_after_an_acknowledged_write() {
    // Concurrent with the write, both are right; after one reader saw the new version, no later one may see the old.
    let begin = || vec![(1, 2, put("a"), created("a")), (3, 10, put("b"), updated("b")), (4, 5, GET, found("b"))];
    accepted::<Resource>([begin(), vec![(4, 9, GET, found("a"))]].concat());
    caught::<Resource>("found a", [begin(), vec![(6, 9, GET, found("a"))]].concat());
}

#[test]
fn a_duplicate_effect() {
    accepted::<Invocation>(vec![(1, 2, call(), DONE), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("happened 2 times", vec![(1, 2, call(), DONE), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(2))]);
    caught::<Invocation>("done #7", vec![(1, 2, call(), DONE), (3, 4, call(), DONE)]);
}

#[test]
fn a_duplicate_effect_of_a_call_that_was_cut_off() {
    accepted::<Invocation>(vec![(1, 0, call(), None), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(1))]);
    accepted::<Invocation>(vec![(1, 0, call(), None), (3, 4, call(), DONE), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("happened 2", vec![(1, 0, call(), None), (3, 4, call(), DONE), (5, 6, OBSERVE, world(2))]);
}

#[test]
fn an_effect_that_never_happened() {
    caught::<Invocation>("happened 0", vec![(1, 2, call(), DONE), (5, 6, OBSERVE, world(0))]);
    // A person's "did not happen" is the truth in this model; what the world counts later contradicts it.
    caught::<Invocation>("happened 1", vec![(1, 2, call(), IN_DOUBT), (3, 4, DID_NOT_HAPPEN, RESOLVED), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("happened 1", vec![(1, 2, OBSERVE, world(1))]);
}

#[test]
fn a_replay_that_differs_from_the_first_answer() {
    let begin = || vec![(1, 2, put_keyed("a", "k"), created("a")), (3, 4, put("b"), updated("b"))];
    accepted::<Resource>([begin(), vec![(5, 6, put_keyed("a", "k"), replayed(Answer::Created("a".into())))]].concat());
    for wrong in [Answer::Updated("a".into()), Answer::Created("b".into()), Answer::Deleted] {
        caught::<Resource>("replayed", [begin(), vec![(5, 6, put_keyed("a", "k"), replayed(wrong))]].concat());
    }
    let other = Some(invocation::Ret::Done { result: Some(8), replayed: true });
    caught::<Invocation>("#8", vec![(1, 2, call(), DONE), (3, 4, call(), other)]);
}

#[test]
fn a_key_applied_twice() {
    let begin = || {
        let again = replayed(Answer::Created("a".into()));
        vec![(1, 2, put_keyed("a", "k"), created("a")), (3, 4, put("b"), updated("b")), (5, 6, put_keyed("a", "k"), again)]
    };
    accepted::<Resource>([begin(), vec![(7, 8, GET, found("b"))]].concat());
    caught::<Resource>("found a", [begin(), vec![(7, 8, GET, found("a"))]].concat());
    // Also when the first use was cut off: it can have counted once, not twice.
    let cut = |end| {
        vec![
            (1, 0, put_keyed("a", "k"), None),
            (2, 3, GET, found("a")),
            (4, 5, put("b"), updated("b")),
            (6, 0, put_keyed("a", "k"), None),
            end,
        ]
    };
    accepted::<Resource>(cut((7, 8, GET, found("b"))));
    caught::<Resource>("found a", cut((7, 8, GET, found("a"))));
}

#[test]
fn a_delete_that_comes_back() {
    let begin = || vec![(1, 2, put("a"), created("a")), (3, 4, delete(), DELETED)];
    accepted::<Resource>([begin(), vec![(5, 6, GET, NOT_FOUND)]].concat());
    caught::<Resource>("found a", [begin(), vec![(5, 6, GET, found("a"))]].concat());
    caught::<Resource>("deleted", [begin(), vec![(5, 6, delete(), DELETED)]].concat());
}

#[test]
fn a_delete_repeated_with_its_key_deletes_nothing_new() {
    let begin = || vec![(1, 2, put("a"), created("a")), (3, 4, delete_keyed("k"), DELETED), (5, 6, put("b"), created("b"))];
    accepted::<Resource>([begin(), vec![(7, 8, delete_keyed("k"), replayed(Answer::Deleted)), (9, 10, GET, found("b"))]].concat());
    caught::<Resource>("-> deleted", [begin(), vec![(7, 8, delete_keyed("k"), DELETED)]].concat());
    caught::<Resource>(
        "not found",
        [begin(), vec![(7, 8, delete_keyed("k"), replayed(Answer::Deleted)), (9, 10, GET, NOT_FOUND)]].concat(),
    );
}

#[test]
fn a_refused_delete_is_not_remembered() {
    let begin = || vec![(1, 2, delete_keyed("k"), NOT_FOUND), (3, 4, put("a"), created("a"))];
    accepted::<Resource>([begin(), vec![(5, 6, delete_keyed("k"), DELETED), (7, 8, GET, NOT_FOUND)]].concat());
    caught::<Resource>("replayed not found", [begin(), vec![(5, 6, delete_keyed("k"), replayed(Answer::NotFound))]].concat());
}

#[test]
fn in_flight_needs_a_request_with_that_key_at_the_same_time() {
    // Also when that one is recorded: its answer is still on its way.
    let first = (1, 6, put_keyed("a", "k"), created("a"));
    accepted::<Resource>(vec![first.clone(), (2, 3, GET, found("a")), (4, 5, put_keyed("a", "k"), IN_FLIGHT)]);
    accepted::<Resource>(vec![(1, 0, put_keyed("a", "k"), None), (4, 5, put_keyed("a", "k"), IN_FLIGHT)]);
    caught::<Resource>("in flight", vec![first.clone(), (7, 8, put_keyed("a", "k"), IN_FLIGHT)]);
    caught::<Resource>("in flight", vec![first.clone(), (4, 5, put_keyed("b", "l"), IN_FLIGHT)]);
    caught::<Resource>("in flight", vec![first, (4, 5, delete_keyed("k"), IN_FLIGHT)]);
}

#[test]
fn a_read_of_the_future() {
    accepted::<Resource>(vec![(1, 4, GET, found("a")), (2, 3, put("a"), created("a"))]);
    caught::<Resource>("found a", vec![(1, 2, GET, found("a")), (3, 4, put("a"), created("a"))]);
    caught::<Resource>("found a", vec![(1, 2, GET, found("a")), (3, 0, put("a"), None)]);
}

#[test]
fn an_acknowledged_result_lost_after_a_kill() {
    // The kill cuts off what was under way: the read. What was acknowledged before must be there afterwards.
    let begin = || vec![(1, 2, put("a"), created("a")), (3, 0, put("b"), None)];
    accepted::<Resource>([begin(), vec![(5, 6, GET, found("a"))]].concat());
    accepted::<Resource>([begin(), vec![(5, 6, GET, found("b"))]].concat());
    caught::<Resource>("not found", [begin(), vec![(5, 6, GET, NOT_FOUND)]].concat());
    caught::<Invocation>("in doubt", vec![(1, 2, call(), DONE), (3, 0, call(), None), (5, 6, call(), IN_DOUBT)]);
    caught::<Invocation>("pending", vec![(1, 2, call(), DONE), (5, 6, call(), PENDING)]);
}

#[test]
fn two_concurrent_creates_with_one_key() {
    let with = |ret| vec![(1, 4, put_keyed("a", "k"), created("a")), (2, 3, put_keyed("a", "k"), ret)];
    accepted::<Resource>(with(replayed(Answer::Created("a".into()))));
    accepted::<Resource>(with(IN_FLIGHT));
    caught::<Resource>("created a", with(created("a")));
    caught::<Resource>("updated a", with(updated("a")));
}

#[test]
fn a_key_with_another_payload() {
    let with = |op, ret| vec![(1, 2, put_keyed("a", "k"), created("a")), (3, 4, op, ret)];
    accepted::<Resource>(with(put_keyed("b", "k"), PUT_MISMATCH));
    // The same key of another method is another key.
    accepted::<Resource>(with(delete_keyed("k"), DELETED));
    caught::<Resource>("mismatch", with(delete_keyed("k"), PUT_MISMATCH));
    caught::<Resource>("updated b", with(put_keyed("b", "k"), updated("b")));
    caught::<Resource>("replayed", with(put_keyed("b", "k"), replayed(Answer::Created("a".into()))));
    caught::<Resource>("mismatch", with(put_keyed("a", "k"), PUT_MISMATCH));
    caught::<Resource>("in flight", with(put_keyed("a", "k"), IN_FLIGHT));
    accepted::<Invocation>(vec![(1, 2, call(), DONE), (3, 4, call_other(), MISMATCH)]);
    caught::<Invocation>("call other", vec![(1, 2, call(), DONE), (3, 4, call_other(), AGAIN)]);
    // Of two at once, either may be first.
    accepted::<Invocation>(vec![(1, 4, call(), MISMATCH), (2, 3, call_other(), DONE), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("mismatch", vec![(1, 4, call(), MISMATCH), (2, 3, call_other(), MISMATCH)]);
}

#[test]
fn a_doubt_silently_run_again() {
    accepted::<Invocation>(vec![(1, 2, call(), IN_DOUBT), (3, 4, call(), IN_DOUBT), (5, 6, OBSERVE, world(0))]);
    // The lost worker reported after all.
    accepted::<Invocation>(vec![(1, 2, call(), IN_DOUBT), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("done #7", vec![(1, 2, call(), IN_DOUBT), (3, 4, call(), DONE), (5, 6, OBSERVE, world(1))]);
    caught::<Invocation>("happened 2", vec![(1, 2, call(), IN_DOUBT), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(2))]);
}

#[test]
fn a_doubt_settled_by_a_person() {
    let doubt = (1, 2, call(), IN_DOUBT);
    accepted::<Invocation>(vec![doubt.clone(), (3, 4, DID_NOT_HAPPEN, RESOLVED), (5, 6, call(), DONE), (7, 8, OBSERVE, world(1))]);
    accepted::<Invocation>(vec![doubt.clone(), (3, 4, HAPPENED, RESOLVED), (5, 6, call(), AGAIN), (7, 8, OBSERVE, world(1))]);
    caught::<Invocation>("-> done #7", vec![doubt.clone(), (3, 4, HAPPENED, RESOLVED), (5, 6, call(), DONE)]);
    caught::<Invocation>("in doubt", vec![doubt.clone(), (3, 4, HAPPENED, RESOLVED), (5, 6, call(), IN_DOUBT)]);
    caught::<Invocation>("replayed", vec![doubt.clone(), (3, 4, DID_NOT_HAPPEN, RESOLVED), (5, 6, call(), AGAIN)]);
    caught::<Invocation>("not in doubt", vec![doubt.clone(), (3, 4, DID_NOT_HAPPEN, NOT_IN_DOUBT)]);
    caught::<Invocation>("resolved", vec![doubt, (3, 4, HAPPENED, RESOLVED), (5, 6, HAPPENED, RESOLVED)]);
}

/// A doubt between two resolutions may belong to the second attempt: it must not be put in order too early.
#[test]
fn a_second_doubt_after_a_person_spoke() {
    accepted::<Invocation>(vec![
        (1, 2, call(), IN_DOUBT),
        (3, 4, DID_NOT_HAPPEN, RESOLVED),
        (3, 6, call(), IN_DOUBT),
        (7, 8, DID_NOT_HAPPEN, RESOLVED),
        (9, 10, call(), DONE),
    ]);
}

/// 409 to one client may mean that its own work goes on, or that another's does.
#[test]
fn work_that_goes_on_after_pending() {
    accepted::<Invocation>(vec![(1, 2, call(), PENDING), (3, 4, call(), AGAIN), (5, 6, OBSERVE, world(1))]);
    accepted::<Invocation>(vec![(1, 6, call(), DONE), (2, 3, call(), PENDING), (4, 5, call(), PENDING)]);
    // The claim of a call can be seen, by a refusal, before its outcome is.
    accepted::<Invocation>(vec![(1, 6, call(), DONE), (2, 3, call_other(), MISMATCH), (4, 5, call(), PENDING)]);
    caught::<Invocation>("mismatch", vec![(2, 3, call_other(), MISMATCH), (4, 6, call(), DONE)]);
    caught::<Invocation>("happened 2", vec![(1, 2, call(), PENDING), (5, 6, OBSERVE, world(2))]);
}

#[test]
fn a_report_names_key_prefix_culprit_and_what_was_under_way() {
    let Verdict::Violation(report) = verdict::<Resource>(vec![
        (1, 2, put("a"), created("a")),
        (3, 4, put("b"), updated("b")),
        (5, 0, put("c"), None),
        (6, 20, put("d"), updated("d")),
        (7, 9, GET, found("a")),
    ]) else {
        panic!("not caught")
    };
    let text = report.to_string();
    for part in
        ["key it", "2. client 1: put b -> updated b", "no order explains", "client 4: get -> found a", "! ", "c2 put c -> (unknown)", "?"]
    {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert_eq!(report.answered, 4);
}

#[test]
fn a_search_that_reaches_its_limit_is_no_success() {
    let history: Vec<Operation<resource::Op, resource::Ret>> = (0..40)
        .map(|client| {
            let version = format!("v{client}");
            let ret = if client == 0 { created(&version) } else { updated(&version) };
            let answer = ret.map(|ret| (Moment::at(200 + u64::from(client)), ret));
            Operation { client, key: "it".into(), op: put(&version), invoked: Moment::at(u64::from(client)), answer }
        })
        .chain([Operation {
            client: 99,
            key: "it".into(),
            op: GET,
            invoked: Moment::at(300),
            answer: found("none").map(|ret| (Moment::at(301), ret)),
        }])
        .collect();
    let verdict = check(&Resource::default(), &history, Limit { configurations: 2_000 });
    assert!(matches!(verdict, Verdict::GaveUp { configurations: 2_001, .. }), "{verdict}");
    assert!(!verdict.is_linearizable() && !verdict.is_violation());
    let caught = std::panic::catch_unwind(|| verdict.expect_linearizable("limited"));
    assert!(caught.is_err(), "giving up passed as success");
}
