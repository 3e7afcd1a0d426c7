//! What may start next, step by step; and for random plans and outcomes: nothing starts too early, nothing is forgotten, bounds hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::{Digest32, RunId, StepPath, ToolName};
use counterfoil_core::run::RunEntry;
use counterfoil_core::run::entry::{Began, StepEnd};
use counterfoil_core::run::flow::{Fate, Flow, Progress};
use counterfoil_core::run::plan::{Draft, Join, OnFailure, Plan, Shape};
use counterfoil_core::{Failure, Json, Timestamp};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_000_000);

fn act(id: &str) -> Draft {
    Draft { id: id.into(), needs: None, shape: Shape::Act, ways: Vec::new(), on_failure: OnFailure::Fail, timeout: None }
}
fn after(id: &str, needs: &[&str]) -> Draft {
    Draft { needs: Some(needs.iter().map(|n| (*n).to_owned()).collect()), ..act(id) }
}
fn inside(id: &str, shape: Shape<Vec<Draft>>) -> Draft {
    Draft { shape, ..act(id) }
}
fn parallel(id: &str, join: Join, branches: &[&[&str]]) -> Draft {
    let branches = branches.iter().map(|steps| steps.iter().map(|id| act(id)).collect()).collect();
    inside(id, Shape::Parallel { join, branches })
}
fn scope(id: &str, steps: &[&str], effects_max: Option<u64>) -> Draft {
    inside(id, Shape::Scope { body: steps.iter().map(|id| act(id)).collect(), effects_max })
}

/// A flow under test: drives it by short words and shows what is ready.
struct Trial(Flow);

impl Trial {
    fn new(steps: Vec<Draft>) -> Self {
        Self(Flow::new(Arc::new(Plan::new(steps).expect("a plan")), None, NOW))
    }
    fn ready(&self) -> String {
        self.0.ready().map(|s| s.as_str()).collect::<Vec<_>>().join(" ")
    }
    fn stopping(&self) -> String {
        self.0.stopping().map(|s| s.as_str()).collect::<Vec<_>>().join(" ")
    }
    fn begin(&mut self, step: &str) {
        self.0.apply(&began(step)).unwrap();
    }
    fn done(&mut self, step: &str) {
        self.end(step, done(None));
    }
    fn end(&mut self, step: &str, how: StepEnd) {
        if self.0.progress(&path(step)) == Some(Progress::Ready) {
            self.begin(step);
        }
        self.0.apply(&RunEntry::StepEnded { at: NOW, step: path(step), how }).unwrap();
    }
    fn fail(&mut self, step: &str) {
        self.end(step, StepEnd::Failed { failure: Failure::new("no", step), doubt: false });
    }
    fn fate(&self, step: &str) -> String {
        match self.0.progress(&path(step)) {
            Some(Progress::Ended(fate)) => said(fate),
            Some(other) => format!("{other:?}").to_lowercase(),
            None => "unknown".into(),
        }
    }
    fn whole(&self) -> String {
        self.0.fate().map_or("going on".into(), said)
    }
}

fn said(fate: &Fate) -> String {
    match fate {
        Fate::Done => "done".into(),
        Fate::Failed(failure) => format!("failed: {} {}", failure.code, failure.message),
        Fate::Skipped => "skipped".into(),
        Fate::Cancelled => "cancelled".into(),
    }
}
fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}
fn path(step: &str) -> StepPath {
    StepPath::new(step).unwrap()
}
fn began(step: &str) -> RunEntry {
    let what = Began::Effect { tool: ToolName::new("t").unwrap(), key: Digest32::of(step.as_bytes()), pure: false };
    RunEntry::StepBegan { at: NOW, step: path(step), what }
}
fn done(way: Option<u32>) -> StepEnd {
    StepEnd::Done { result: json("null"), way, undo: true }
}
fn cancel(step: Option<&str>) -> RunEntry {
    RunEntry::CancelAsked { at: NOW, by: "ada".into(), why: "enough".into(), step: step.map(path), undo: false }
}

#[test]
fn chains_diamonds_and_independent_steps_run_in_their_order() {
    let mut flow = Trial::new(vec![act("a"), after("b", &["a"]), after("c", &["a"]), after("d", &["b", "c"]), after("e", &[])]);
    assert_eq!(flow.ready(), "a e");
    flow.done("a");
    assert_eq!(flow.ready(), "e b c");
    flow.done("c");
    flow.done("e");
    assert_eq!(flow.ready(), "b");
    flow.done("b");
    assert_eq!((flow.ready(), flow.whole()), ("d".into(), "going on".into()));
    flow.done("d");
    assert_eq!(flow.whole(), "done");
}

#[test]
fn a_failure_stops_what_runs_and_cancels_what_would_follow() {
    let mut flow = Trial::new(vec![after("a", &[]), after("b", &[]), after("c", &["a", "b"])]);
    flow.begin("a");
    flow.begin("b");
    flow.fail("a");
    assert_eq!((flow.stopping(), flow.ready(), flow.whole()), ("b".into(), "".into(), "going on".into()));
    flow.end("b", StepEnd::Cancelled { doubt: true });
    assert_eq!(flow.whole(), "failed: no a");
    assert_eq!((flow.fate("b"), flow.fate("c")), ("cancelled".into(), "cancelled".into()));
}

#[test]
fn a_decision_skips_what_it_did_not_choose_and_a_skipped_step_counts_as_done() {
    let steps = || {
        let ways = [&["boss"][..], &["pay"]].iter().map(|way| way.iter().map(|s| (*s).to_owned()).collect()).collect();
        vec![Draft { ways, ..act("check") }, after("boss", &["check"]), after("pay", &["check", "boss"])]
    };
    let mut flow = Trial::new(steps());
    flow.end("check", done(Some(1)));
    assert_eq!((flow.fate("boss"), flow.ready()), ("skipped".into(), "pay".into()));
    let mut flow = Trial::new(steps());
    flow.end("check", done(Some(0)));
    assert_eq!(flow.ready(), "boss");
    flow.done("boss");
    assert_eq!(flow.ready(), "pay");
}

#[test]
fn joins_end_when_enough_have_and_stop_the_others() {
    let mut all = Trial::new(vec![parallel("p", Join::All, &[&["a", "b"], &["c"]]), act("z")]);
    assert_eq!(all.ready(), "a c");
    all.done("c");
    all.done("a");
    all.done("b");
    assert_eq!(all.ready(), "z");

    let mut any = Trial::new(vec![parallel("p", Join::Some(1), &[&["a"], &["b", "b2"], &["c"]]), act("z")]);
    any.begin("b");
    any.fail("a");
    assert_eq!(any.fate("p"), "open");
    any.done("c");
    assert_eq!((any.stopping(), any.ready(), any.fate("p")), ("b".into(), "".into(), "open".into()));
    any.done("b"); // it acted all the same; nobody sees the result
    assert_eq!((any.fate("b"), any.fate("b2"), any.ready()), ("cancelled".into(), "cancelled".into(), "z".into()));

    let mut two = Trial::new(vec![parallel("p", Join::Some(2), &[&["a"], &["b"], &["c"]])]);
    two.fail("a");
    two.fail("b");
    assert_eq!((two.fate("c"), two.whole()), ("cancelled".into(), "failed: no b".into()));
}

#[test]
fn a_map_runs_so_many_at_once_and_each_item_has_its_own_steps() {
    let body = vec![act("x"), act("y")];
    let mut flow = Trial::new(vec![inside("each", Shape::Map { body, at_once: 2 }), act("z")]);
    assert_eq!(flow.ready(), "each");
    let items = vec![json("1"), json("2"), json("3")];
    flow.0.apply(&RunEntry::StepBegan { at: NOW, step: path("each"), what: Began::Map { items } }).unwrap();
    assert_eq!(flow.ready(), "each[0].x each[1].x");
    flow.done("each[1].x");
    flow.done("each[1].y");
    assert_eq!(flow.ready(), "each[0].x each[2].x");
    for step in ["each[2].x", "each[2].y", "each[0].x"] {
        flow.done(step);
    }
    assert_eq!(flow.ready(), "each[0].y");
    flow.done("each[0].y");
    assert_eq!(flow.ready(), "z");
    let mut empty = Trial::new(vec![inside("each", Shape::Map { body: vec![act("x")], at_once: 1 }), act("z")]);
    empty.0.apply(&RunEntry::StepBegan { at: NOW, step: path("each"), what: Began::Map { items: vec![] } }).unwrap();
    assert_eq!(empty.ready(), "z");
}

#[test]
fn cancelling_a_scope_stops_what_is_inside_and_nothing_else() {
    let outer = inside("outer", Shape::Scope { body: vec![scope("inner", &["a"], None), act("b")], effects_max: None });
    let beside = Draft { needs: Some(vec![]), ..scope("beside", &["c"], None) };
    let mut flow = Trial::new(vec![outer, beside, after("z", &["outer", "beside"])]);
    flow.begin("a");
    flow.begin("c");
    flow.0.apply(&cancel(Some("outer"))).unwrap();
    assert_eq!((flow.stopping(), flow.fate("b"), flow.fate("c")), ("a".into(), "cancelled".into(), "busy".into()));
    flow.0.apply(&cancel(Some("outer"))).unwrap();
    flow.end("a", StepEnd::Cancelled { doubt: false });
    assert_eq!((flow.fate("inner"), flow.fate("outer")), ("cancelled".into(), "cancelled".into()));
    flow.done("c");
    assert_eq!(flow.ready(), "z");
    flow.0.apply(&cancel(None)).unwrap();
    assert_eq!(flow.whole(), "cancelled");
}

#[test]
fn a_scope_that_fails_and_lets_the_run_go_on_is_undone_first() {
    let failing = Draft { on_failure: OnFailure::Continue, ..scope("try", &["a", "b"], None) };
    let mut flow = Trial::new(vec![failing, act("z")]);
    flow.done("a");
    flow.fail("b");
    assert_eq!((flow.fate("try"), flow.ready()), ("undoing".into(), "".into()));
    assert_eq!(flow.0.undoing().cloned().collect::<Vec<_>>(), [path("try")]);
    flow.0.undone(&path("try"), NOW);
    assert_eq!((flow.fate("try"), flow.ready()), ("failed: no b".into(), "z".into()));
    let mut flow = Trial::new(vec![Draft { on_failure: OnFailure::Continue, ..scope("try", &["a"], None) }]);
    let what = Began::Child { run: RunId::new("child").unwrap() };
    flow.0.apply(&RunEntry::StepBegan { at: NOW, step: path("a"), what }).unwrap();
    flow.fail("a");
    assert_eq!(flow.fate("try"), "undoing", "a run inside of it may have done anything");
    let single = Draft { on_failure: OnFailure::Continue, ..act("a") };
    let mut flow = Trial::new(vec![single, act("z")]);
    flow.fail("a");
    assert_eq!(flow.ready(), "z", "a single step that failed did nothing");
}

#[test]
fn time_is_up_for_a_step_and_for_what_is_inside_it() {
    let limited = Draft { timeout: Some(Duration::from_secs(5)), ..scope("s", &["a"], None) };
    let mut flow = Trial::new(vec![limited]);
    flow.begin("a");
    let (at, step) = flow.0.next_deadline().map(|(at, step)| (at, step.clone())).unwrap();
    assert_eq!((at, step.as_str()), (NOW + Duration::from_secs(5), "s"));
    flow.0.apply(&RunEntry::TimedOut { at, step: Some(step) }).unwrap();
    assert_eq!((flow.stopping(), flow.0.next_deadline()), ("a".into(), None));
    flow.done("a");
    assert_eq!(flow.whole(), "failed: step_timeout the step took longer than its timeout allows");
}

#[test]
fn a_step_that_ends_as_cancelled_by_itself_is_cancelled() {
    let mut flow = Trial::new(vec![act("a"), act("b")]);
    flow.end("a", StepEnd::Cancelled { doubt: false });
    assert_eq!(flow.fate("a"), "cancelled");
}

#[test]
fn what_comes_after_the_time_is_up_does_not_save_the_step() {
    for late in [done(None), StepEnd::Failed { failure: Failure::new("no", "a"), doubt: false }] {
        let mut flow = Trial::new(vec![Draft { timeout: Some(Duration::from_secs(5)), ..act("a") }]);
        flow.begin("a");
        flow.0.apply(&RunEntry::TimedOut { at: NOW + Duration::from_secs(5), step: Some(path("a")) }).unwrap();
        flow.end("a", late);
        assert_eq!(flow.whole(), "failed: step_timeout the step took longer than its timeout allows");
    }
}

#[test]
fn a_step_that_is_stopped_has_no_time_any_more() {
    let mut flow = Trial::new(vec![Draft { timeout: Some(Duration::from_secs(5)), ..act("a") }, act("b")]);
    assert!(!flow.0.is_closing());
    flow.begin("a");
    assert_eq!(flow.0.next_deadline(), Some((NOW + Duration::from_secs(5), &path("a"))));
    flow.0.apply(&cancel(Some("a"))).unwrap();
    assert_eq!((flow.stopping(), flow.0.next_deadline()), ("a".into(), None));
    flow.0.apply(&cancel(None)).unwrap();
    assert!(flow.0.is_closing());
}

#[test]
fn a_scope_that_is_cancelled_is_undone_first_where_that_was_asked_for() {
    for undo in [false, true] {
        let mut flow = Trial::new(vec![scope("s", &["a", "b"], None), after("z", &["s"])]);
        flow.done("a");
        let step = Some(path("s"));
        flow.0.apply(&RunEntry::CancelAsked { at: NOW, by: "ada".into(), why: "enough".into(), step, undo }).unwrap();
        assert_eq!(flow.fate("s"), if undo { "undoing" } else { "cancelled" });
    }
}

#[test]
fn a_budget_admits_exactly_so_many() {
    let branches = (0..50).map(|n| vec![act(&format!("s{n}"))]).collect();
    let body = vec![inside("p", Shape::Parallel { join: Join::All, branches })];
    let plan = Plan::new(vec![inside("s", Shape::Scope { body, effects_max: Some(7) })]).unwrap();
    let mut flow = Flow::new(Arc::new(plan), None, NOW);
    let mut begun = 0;
    for step in flow.ready().cloned().collect::<Vec<_>>() {
        match flow.admits_effect(&step) {
            Ok(()) => {
                flow.apply(&began(step.as_str())).unwrap();
                begun += 1;
            }
            Err(reached) => assert_eq!((reached.scope.unwrap().as_str(), reached.effects_max), ("s", 7)),
        }
    }
    assert_eq!(begun, 7);
}

#[test]
fn the_budget_of_the_whole_counts_what_is_inside_of_it() {
    let steps = vec![scope("s", &["x"], None), act("b"), act("c")];
    let mut trial = Trial(Flow::new(Arc::new(Plan::new(steps).unwrap()), Some(2), NOW));
    assert!(trial.0.is_within(&path("x"), &path("s")) && trial.0.is_within(&path("s"), &path("s")));
    assert!(!trial.0.is_within(&path("s"), &path("x")) && !trial.0.is_within(&path("b"), &path("s")));
    for step in ["x", "b"] {
        assert!(trial.0.admits_effect(&path(step)).is_ok(), "{step}");
        trial.done(step);
    }
    let reached = trial.0.admits_effect(&path("c")).unwrap_err();
    assert_eq!((reached.scope, reached.effects_max), (None, 2));
}

#[test]
fn facts_that_cannot_be_are_refused() {
    let mut flow = Trial::new(vec![act("a"), act("b")]);
    let refused = |flow: &mut Trial, entry: RunEntry| flow.0.apply(&entry).unwrap_err().to_string();
    assert_eq!(refused(&mut flow, began("nobody")), "there is no step nobody now");
    assert_eq!(refused(&mut flow, began("b")), "the step b is blocked: step_began cannot follow");
    flow.done("a");
    assert_eq!(
        refused(&mut flow, RunEntry::StepEnded { at: NOW, step: path("a"), how: done(None) }),
        "the step a is ended: step_ended cannot follow"
    );
}

/// A random block: shapes inside shapes, needs on earlier siblings.
fn block(depth: u32) -> BoxedStrategy<Vec<Tree>> {
    prop::collection::vec((tree(depth), any::<u8>(), any::<bool>()), 1..4)
        .prop_map(|steps| steps.into_iter().map(|(tree, needs, goes_on)| Tree { needs, goes_on, ..tree }).collect())
        .boxed()
}
fn tree(depth: u32) -> BoxedStrategy<Tree> {
    let leaf = Just(Kind::Act).boxed();
    let kind = if depth == 0 {
        leaf
    } else {
        prop_oneof![
            3 => leaf,
            1 => (prop::collection::vec(block(depth - 1), 1..4), 0u32..4).prop_map(|(branches, join)| Kind::Parallel(branches, join)),
            1 => (block(depth - 1), 1u32..4, 0u32..5).prop_map(|(body, at_once, count)| Kind::Map(body, at_once, count)),
            1 => block(depth - 1).prop_map(Kind::Scope),
        ]
        .boxed()
    };
    kind.prop_map(|kind| Tree { kind, needs: 0, goes_on: false }).boxed()
}
#[derive(Debug, Clone)]
struct Tree {
    kind: Kind,
    needs: u8,
    goes_on: bool,
}
#[derive(Debug, Clone)]
enum Kind {
    Act,
    Parallel(Vec<Vec<Tree>>, u32),
    Map(Vec<Tree>, u32, u32),
    Scope(Vec<Tree>),
}

fn drafts(block: &[Tree], count: &mut u32, items: &mut BTreeMap<String, u32>) -> Vec<Draft> {
    let mut ids: Vec<String> = Vec::new();
    let mut drafts_of = Vec::new();
    for tree in block {
        *count += 1;
        let id = format!("s{count}");
        let needs = (tree.needs % 3 != 0)
            .then(|| ids.iter().enumerate().filter(|(n, _)| tree.needs >> (n % 8) & 1 == 1).map(|(_, id)| id.clone()).collect());
        let shape = match &tree.kind {
            Kind::Act => Shape::Act,
            Kind::Parallel(branches, join) => {
                let join = match *join {
                    0 => Join::All,
                    n => Join::Some(n.min(branches.len() as u32)),
                };
                Shape::Parallel { join, branches: branches.iter().map(|b| drafts(b, count, items)).collect() }
            }
            Kind::Map(body, at_once, many) => {
                items.insert(id.clone(), *many);
                Shape::Map { body: drafts(body, count, items), at_once: *at_once }
            }
            Kind::Scope(body) => Shape::Scope { body: drafts(body, count, items), effects_max: None },
        };
        let on_failure = if tree.goes_on { OnFailure::Continue } else { OnFailure::Fail };
        drafts_of.push(Draft { needs, shape, on_failure, ..act(&id) });
        ids.push(id);
    }
    drafts_of
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_step_ends_once_and_none_begins_too_early(
        root in block(3),
        luck in prop::collection::vec((any::<u16>(), 0u8..20), 1..400),
        cancel_at in prop::option::of(0usize..60),
    ) {
        let mut items = BTreeMap::new();
        let plan = Arc::new(Plan::new(drafts(&root, &mut 0, &mut items)).unwrap());
        let mut flow = Flow::new(plan.clone(), None, NOW);
        let mut busy: BTreeSet<StepPath> = BTreeSet::new();
        let mut ended: BTreeSet<StepPath> = BTreeSet::new();
        let mut luck = luck.into_iter().cycle();
        for turn in 0..5000 {
            if flow.fate().is_some() {
                break;
            }
            let (pick, outcome) = luck.next().unwrap();
            if cancel_at == Some(turn) {
                flow.apply(&cancel(None)).unwrap();
                continue;
            }
            let undoing = flow.undoing().next().cloned();
            if let Some(scope) = undoing {
                flow.undone(&scope, NOW);
                continue;
            }
            let ready: Vec<StepPath> = flow.ready().cloned().collect();
            prop_assert!(!ready.is_empty() || !busy.is_empty(), "stuck after {} turns", turn);
            let choose_ready = !ready.is_empty() && (busy.is_empty() || pick % 2 == 0);
            if choose_ready {
                let step = ready[pick as usize % ready.len()].clone();
                let node = flow.node(&step).unwrap();
                let at = flow.items(&step).unwrap().to_vec();
                for need in &plan.node(node).needs {
                    let needed = flow.path(*need, &at);
                    prop_assert!(matches!(flow.progress(&needed), Some(Progress::Ended(_))), "{} began before {}", step, needed);
                }
                prop_assert!(!ended.contains(&step));
                match items.get(&*plan.node(node).id) {
                    Some(count) => {
                        let what = Began::Map { items: vec![json("1"); *count as usize] };
                        flow.apply(&RunEntry::StepBegan { at: NOW, step, what }).unwrap();
                    }
                    None => {
                        flow.apply(&began(step.as_str())).unwrap();
                        busy.insert(step);
                    }
                }
            } else {
                let step = busy.iter().nth(pick as usize % busy.len()).unwrap().clone();
                busy.remove(&step);
                prop_assert!(ended.insert(step.clone()));
                let how = match outcome {
                    0 | 1 => StepEnd::Failed { failure: Failure::new("no", "no"), doubt: false },
                    _ => done(None),
                };
                flow.apply(&RunEntry::StepEnded { at: NOW, step, how }).unwrap();
            }
        }
        prop_assert!(flow.fate().is_some(), "it never ended");
        prop_assert!(busy.is_empty(), "it ended while {:?} ran", busy);
        prop_assert!(flow.ready().next().is_none() && flow.stopping().next().is_none() && flow.next_deadline().is_none());
    }
}
