//! What a plan accepts and what it refuses, each mistake by its step.

use counterfoil_core::run::plan::{Draft, Join, NodeId, OnFailure, Plan, STEPS_MAX, Shape};

fn act(id: &str) -> Draft {
    Draft { id: id.into(), needs: None, shape: Shape::Act, ways: Vec::new(), on_failure: OnFailure::Fail, timeout: None }
}

fn after(id: &str, needs: &[&str]) -> Draft {
    Draft { needs: Some(words(needs)), ..act(id) }
}

fn choice(id: &str, ways: &[&[&str]]) -> Draft {
    Draft { ways: ways.iter().map(|way| words(way)).collect(), ..act(id) }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn parallel(id: &str, join: Join, branches: Vec<Vec<Draft>>) -> Draft {
    Draft { shape: Shape::Parallel { join, branches }, ..act(id) }
}

fn refused(steps: Vec<Draft>) -> Vec<String> {
    Plan::new(steps).expect_err("it is refused").iter().map(ToString::to_string).collect()
}

#[test]
fn a_step_follows_the_one_above_unless_it_says_otherwise() {
    let plan = Plan::new(vec![act("a"), act("b"), after("c", &[]), after("d", &["a", "c"])]).unwrap();
    let needs = |id: &str| plan.node(plan.find(id).unwrap()).needs.iter().map(|n| plan.node(*n).id.to_string()).collect::<Vec<_>>();
    assert_eq!(needs("b"), ["a"]);
    assert!(needs("a").is_empty() && needs("c").is_empty());
    assert_eq!(needs("d"), ["a", "c"]);
    assert_eq!(plan.node(NodeId(0)).dependents, [NodeId(1), NodeId(3)]);
}

#[test]
fn a_way_leaves_out_what_only_others_name_and_nothing_that_follows_what_runs() {
    // The trip: with `boss` the payment follows, without it the payment runs at once.
    let plan = Plan::new(vec![
        choice("check", &[&["boss"], &["pay"], &["refuse"]]),
        after("boss", &["check"]),
        after("pay", &["check", "boss"]),
        after("refuse", &["check"]),
    ])
    .unwrap();
    let skipped = |way: usize| plan.node(NodeId(0)).skips[way].iter().map(|n| plan.node(*n).id.to_string()).collect::<Vec<_>>();
    assert_eq!(skipped(0), ["refuse"]);
    assert_eq!(skipped(1), ["boss", "refuse"]);
    assert_eq!(skipped(2), ["boss", "pay"]);
}

#[test]
fn a_plan_has_its_steps_in_the_order_in_which_they_are_written() {
    let plan = Plan::new(vec![act("a"), parallel("p", Join::All, vec![vec![act("x")]]), act("b")]).unwrap();
    let nodes: Vec<(u32, String)> = plan.nodes().map(|(id, node)| (id.0, node.id.to_string())).collect();
    assert_eq!(nodes, [(0, "a".into()), (1, "p".into()), (2, "x".into()), (3, "b".into())]);
}

#[test]
fn what_is_before_a_step_is_known_also_from_inside() {
    let inner = vec![act("x"), act("y")];
    let each = Draft { shape: Shape::Map { body: vec![act("i")], at_once: 2 }, ..act("each") };
    let plan = Plan::new(vec![act("a"), parallel("p", Join::All, vec![inner, vec![act("z")]]), each, act("last")]).unwrap();
    let before = |id: &str| plan.before(plan.find(id).unwrap()).iter().map(|n| plan.node(*n).id.to_string()).collect::<Vec<_>>();
    assert_eq!(before("y"), ["a", "x"]);
    assert_eq!(before("z"), ["a"]);
    assert_eq!(before("last"), ["a", "p", "x", "y", "z", "each"]);
    assert_eq!(before("i"), ["a", "p", "x", "y", "z"]);
}

#[test]
fn mistakes_name_the_step_and_come_all_at_once() {
    let check = |steps: Vec<Draft>, expected: &[&str]| assert_eq!(refused(steps), expected);
    check(
        vec![act("a"), act("a"), act("2b"), act("c-d")],
        &[
            r#"step "a": there is another step with this id"#,
            r#"step "2b": its id must be 1 to 48 letters, digits and underscores, and not begin with a digit"#,
            r#"step "c-d": its id must be 1 to 48 letters, digits and underscores, and not begin with a digit"#,
        ],
    );
    check(
        vec![act("a"), parallel("p", Join::All, vec![vec![act("x")]]), after("b", &["nobody", "x", "a", "a"])],
        &[
            r#"step "b": it needs "nobody", and there is no such step beside it"#,
            r#"step "b": it needs "x", which is inside another step: need that step instead"#,
            r#"step "b": it needs "a" twice"#,
        ],
    );
    check(
        vec![after("a", &["c"]), act("b"), act("c"), after("me", &["me"])],
        &[r#"step "a": it waits for itself: a needs c needs b needs a"#, r#"step "me": it waits for itself: me needs me"#],
    );
    // The way round leads only over what waits.
    check(
        vec![act("free"), after("b", &["free", "c"]), after("c", &["free", "b"])],
        &[r#"step "b": it waits for itself: b needs c needs b"#],
    );
    // What only waits for a cycle is no cycle, and is not told of.
    check(vec![after("a", &["b"]), after("b", &["a"]), act("c"), act("d")], &[r#"step "a": it waits for itself: a needs b needs a"#]);
    check(
        vec![choice("if", &[&["beside", "nobody"]]), after("beside", &[])],
        &[
            r#"step "if": it names "beside" as a step that is to run, and "beside" does not need it: add "if" to the needs of "beside""#,
            r#"step "if": it names "nobody" as a step that is to run, and there is no such step beside it"#,
        ],
    );
    check(
        vec![
            parallel("p", Join::Some(3), vec![vec![act("x")], vec![]]),
            parallel("q", Join::Some(0), vec![vec![act("y")]]),
            Draft { shape: Shape::Scope { body: vec![], effects_max: None }, ..act("s") },
            parallel("t", Join::All, vec![]),
        ],
        &[
            r#"step "p": it waits for 3 branches, and there are 2"#,
            r#"step "p": it has no steps inside"#,
            r#"step "q": it waits for 0 branches: it would end before it began"#,
            r#"step "s": it has no steps inside"#,
            r#"step "t": it has no steps inside"#,
        ],
    );
}

#[test]
fn size_and_depth_are_bounded() {
    let long = (0..=STEPS_MAX).map(|n| act(&format!("s{n}"))).collect();
    assert_eq!(
        refused(long),
        [format!(
            "step \"s{STEPS_MAX}\": it is step number {}; a workflow has at most {STEPS_MAX}: for a longer list of work, use map",
            STEPS_MAX + 1
        )]
    );
    let deep = (0..9)
        .fold(act("inmost"), |inner, n| Draft { shape: Shape::Scope { body: vec![inner], effects_max: None }, ..act(&format!("d{n}")) });
    assert!(refused(vec![deep])[0].contains("9 steps deep"));
}

#[test]
fn bounds_may_be_reached_and_not_passed() {
    let many = |count: usize| (0..count).map(|n| act(&format!("s{n}"))).collect::<Vec<_>>();
    let largest = Plan::new(many(STEPS_MAX)).unwrap();
    assert!(largest.find(&format!("s{}", STEPS_MAX - 1)).is_some(), "also the last is known");
    assert_eq!(refused(many(STEPS_MAX + 3)).len(), 1, "it is said once");
    let scope = |inner: Draft, n: usize| Draft { shape: Shape::Scope { body: vec![inner], effects_max: None }, ..act(&format!("d{n}")) };
    assert!(Plan::new(vec![(0..7).fold(act("inmost"), scope)]).is_ok());
    // Four maps around a step, each with `[4294967295].` behind its id: three times 48 + 13 bytes, once 13 and what is left, and 48.
    let mapped = |outer: usize| {
        let map = |inner: Draft, id: String| Draft { shape: Shape::Map { body: vec![inner], at_once: 1 }, ..act(&id) };
        let ids = ["b", "c", "d"].map(|letter| letter.repeat(48)).into_iter().chain(["e".repeat(outer)]);
        vec![ids.fold(act(&"a".repeat(48)), map)]
    };
    assert!(Plan::new(mapped(11)).is_ok());
    assert!(refused(mapped(12))[0].contains("its path is 256 bytes long"), "{:?}", refused(mapped(12)));
}
