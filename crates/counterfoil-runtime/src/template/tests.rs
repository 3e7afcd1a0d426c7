use counterfoil_core::{CanonicalJson, Json};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn scope() -> Scope {
    let args = CanonicalJson::parse(
        r#"{"a/b":"x y","b":"q","big":18446744073709551617,"cents":1999,"huge":18446744073709551615,"items":[{"n":1},{"n":2}],
            "price":12.5,"list":[3,1],"none":null,"precise":0.1000000000000000055511151231257827,"yes":true}"#,
    )
    .unwrap();
    Scope::new().with_args(&args).with("key", &json!("k1")).with("env", &json!({"TOKEN": "s3cret"})).with("attempt", &json!(2))
}

#[test]
fn expressions_evaluate() {
    let check = |source: &str, expected: serde_json::Value| {
        let found = Expr::parse(source).unwrap().eval(&scope()).unwrap();
        assert_eq!(found.to_string(), expected.to_string(), "{source}");
    };
    check("args.cents", json!(1999));
    check("args.cents * 2", json!(3998));
    check("args.cents > 100000", json!(false));
    check("args.price * 100", json!(1250));
    check("2 * args.price", json!(25));
    check("args.price + 1", json!(13.5));
    check("1 - args.price", json!(-11.5));
    check("args.price / 5", json!(2.5));
    check("7 / 2", json!(3));
    check("args.cents % 2", json!(1));
    check("args.huge", json!(u64::MAX));
    check("args.huge > 5", json!(true));
    check("args.huge - 1", json!(u64::MAX - 1));
    check("5 + args.huge / 5", json!(u64::MAX / 5 + 5));
    check("args.big == 5", json!(false));
    check("args.items.map(i, i.n * 2)", json!([2, 4]));
    check("args.items.map(i, i.n * 1.5)", json!([1.5, 3]));
    check("args.items.filter(i, i.n > 1)", json!([{"n": 2}]));
    check("args.items.all(i, i.n > 0)", json!(true));
    check("'a' + args.b", json!("aq"));
    check("[1] + [2]", json!([1, 2]));
    check("has(args.nope) ? 1 : 2", json!(2));
    check("args.?nope", json!(null));
    check("args.?b.orValue('z')", json!("q"));
    check("{'x': args.yes, 'n': args.none}", json!({"n": null, "x": true}));
    check("args['a/b']", json!("x y"));
    check("size(args.list)", json!(2));
    check("args.b.matches('^q$')", json!(true));
}

#[test]
fn refusals_say_what_is_wrong_and_show_no_value() {
    let check = |source: &str, expected: &str| {
        let found = Expr::parse(source).unwrap().eval(&scope()).unwrap_err().to_string();
        assert_eq!(found, expected, "{source}");
        assert!(!found.contains("s3cret"), "{found}");
    };
    check("args.nope", "`args.nope`: there is no member `nope`");
    check("arg.b", "`arg.b`: `arg` is not known here");
    check("env.TOKEN + 1", "`env.TOKEN + 1`: `+` does not take a string and an integer");
    check("env.TOKEN > 1", "`env.TOKEN > 1`: `>` does not take string and int");
    check("int(env.TOKEN)", "`int(env.TOKEN)`: `int` failed on this value");
    check("args.price % 2", "`args.price % 2`: `%` does not take a double and an integer");
    check("args.cents / 0", "`args.cents / 0`: division by zero");
    check("args.huge * args.huge", "`args.huge * args.huge`: the result does not fit into 64 bits");
    check("args.huge + 0.5", "`args.huge + 0.5`: `+` does not take uint and double");
    check("-1 + args.huge", "`-1 + args.huge`: `+` does not take int and uint");
    check("args.big", "`args.big`: a number of more than 64 bits cannot be computed with; pass it as a string");
    check("args.list[7]", "`args.list[7]`: the index is beyond the end of the list");
    check("b'x'", "`b'x'`: a byte string is not JSON");
    check("nofn(1)", "`nofn(1)`: `nofn` is not known here");
    let not_bool = Expr::parse("args.cents").unwrap().eval_bool(&scope()).unwrap_err();
    assert_eq!(not_bool.to_string(), "`args.cents`: must be true or false, but is an integer");
}

#[test]
fn spelling_mistakes_are_found_at_parse_with_their_place() {
    let check =
        |source: &str, at: Option<usize>| assert_eq!(Expr::parse(source).unwrap_err().at, at, "{source}: {:?}", Expr::parse(source));
    check("", Some(0));
    check("args.", Some(5));
    check("args.a ==", Some(9));
    check("1 +* 2", Some(3));
    check(&"x".repeat(5000), None);
    check(&vec!["1"; 200].join("+"), None);
    assert!(Expr::parse(&"(".repeat(4000)).is_err());
    assert!(Expr::parse(&"[".repeat(4000)).is_err());
    assert!(Expr::parse(&"!".repeat(4000)).is_err());
}

#[test]
fn variables_are_those_of_the_scope_only() {
    let check = |source: &str, expected: &[&str]| assert_eq!(Expr::parse(source).unwrap().variables(), expected, "{source}");
    check("args.b + key", &["args", "key"]);
    check("args.items.map(i, i.n + offset)", &["args", "offset"]);
    check("args.items.exists(args, args.n > 1)", &["args"]);
    check("has(result.id) && int(response.status) == 200", &["response", "result"]);
    check("optional.of(1)", &[]);
    check("1 + 1", &[]);
    let env = Expr::parse("env.A + env['B'] + (has(env.C) ? 'c' : '') + args.env").unwrap();
    assert_eq!(env.env_names(), ["A", "B"]);
}

#[test]
fn an_expression_tells_which_steps_it_names() {
    let check = |source: &str, names: &[&str], whole: bool| {
        let expr = Expr::parse(source).unwrap();
        assert_eq!((expr.step_names(), expr.reads_steps_whole()), (names.iter().map(|n| (*n).to_owned()).collect(), whole), "{source}");
        assert_eq!(expr.variables().contains(&"steps".to_owned()), whole || !names.is_empty(), "{source}");
    };
    check("steps.b.result + steps['a'].result", &["a", "b"], false);
    check("has(steps.a) && has(steps.b.error)", &["a", "b"], false);
    check("[1].map(x, steps.a.result[x])", &["a"], false);
    check(".steps.a", &["a"], false);
    check("steps", &[], true);
    check("steps[input.x].result + steps.a.result", &["a"], true);
    check("steps.map(name, name)", &[], true);
    check("size(steps) > 0", &[], true);
    // A loop's own variable, and a member of something else.
    check("[1].map(steps, steps.x)", &[], false);
    check("input.steps.a", &[], false);
}

#[test]
fn work_is_bounded_by_the_data() {
    let list: Vec<u32> = (0..5000).collect();
    let scope = Scope::new().with("l", &json!(list));
    for source in ["l.all(a, l.all(b, a + b >= 0))", "l.all(a, a in l)", "l.exists(a, string(l).contains(string(a)))"] {
        let nested = Expr::parse(source).unwrap();
        assert_eq!(nested.eval(&scope).unwrap_err().reason, "2 nested loops over data of size 5001 are too much work");
    }
    assert_eq!(Expr::parse("7 in l && l.exists(a, a in [4, 5])").unwrap().eval(&scope).unwrap(), json!(true));
    assert_eq!(Expr::parse("l.map(a, a + 1).filter(b, b > 4999)").unwrap().eval(&scope).unwrap(), json!([5000]));
}

#[test]
fn texts_render() {
    let check = |text: &str, expected: &str| assert_eq!(TextTemplate::parse(text).unwrap().render(&scope()).unwrap(), expected, "{text}");
    check("", "");
    check("plain $5 }{ $", "plain $5 }{ $");
    check("https://x/${key}?a=${args.b}", "https://x/k1?a=q");
    check("${args.cents} ${args.price} ${args.yes} ${args.price * 2}", "1999 12.5 true 25");
    check("${args.big}/${args.precise}", "18446744073709551617/1.000000000000000055511151231257827e-1");
    check("$${key} $$${key} $$$${key}", "${key} $${key} $$${key}");
    check("${ {'a': '}'}.a }", "}");
    check(r#"${ "}" + '\'}' + r'\' + '''}'}''' }"#, r"}'}\}'}");
    check("${ key // } not here\n }", "k1");
    check("ü${key}ü", "ük1ü");
}

#[test]
fn texts_refuse_what_has_no_place_in_them() {
    let check = |text: &str, reason: &str| {
        let error = TextTemplate::parse(text).unwrap().render(&scope()).unwrap_err();
        assert!(error.reason.contains(reason), "{text}: {error}");
    };
    check("${args.none}", "is null, which has no place inside a text");
    check("${args.list}", "is a list");
    check("${args}", "is an object");
    check("${args.?nope}", "is an optional value");

    let check = |text: &str, at: usize| assert_eq!(TextTemplate::parse(text).unwrap_err().at, Some(at), "{text}");
    check("ab ${key", 3);
    check("ab ${ '}' ", 3);
    check("ab ${key + }", 11);
    check("${}", 2);
}

#[test]
fn a_text_knows_its_parts() {
    let text = TextTemplate::parse("https://x/${key}").unwrap();
    assert_eq!(text.literal(), None);
    assert!(matches!(text.parts(), [Part::Literal(host), Part::Expr(_)] if host == "https://x/"));
    assert_eq!(text.exprs()[0].source(), "key");
    assert_eq!(TextTemplate::parse("a $${b}").unwrap().literal(), Some("a ${b}"));
    assert_eq!(TextTemplate::parse("").unwrap().literal(), Some(""));
}

#[test]
fn values_keep_their_types() {
    let template = json!({"n": "${args.cents}", "t": "n=${args.cents}", "l": ["${args.none}", 1, "$${x}"], "o": {"deep": "${args.list}"}});
    let template = ValueTemplate::parse(&template).unwrap();
    let expected = json!({"n": 1999, "t": "n=1999", "l": [null, 1, "${x}"], "o": {"deep": [3, 1]}});
    assert_eq!(template.render(&scope()).unwrap(), expected);
    assert_eq!(template.render_json(&scope()).unwrap(), CanonicalJson::from_value(&expected).unwrap().as_str());
    assert_eq!(template.exprs().len(), 4);
}

#[test]
fn json_text_keeps_every_digit() {
    let check = |template: serde_json::Value, expected: &str| {
        assert_eq!(ValueTemplate::parse(&template).unwrap().render_json(&scope()).unwrap(), expected, "{template}");
    };
    let args = CanonicalJson::parse(r#"{"b":1e400,"a":[9007199254740993,18446744073709551617]}"#).unwrap();
    let whole = ValueTemplate::parse(&json!("${args}")).unwrap();
    assert_eq!(whole.render_json(&Scope::new().with_args(&args)).unwrap(), args.as_str());
    check(json!({"id": "${args.big}"}), r#"{"id":18446744073709551617}"#);
    check(json!(["${[args.big, args.precise]}"]), "[[18446744073709551617,1.000000000000000055511151231257827e-1]]");
    check(json!("${args.price * 100}"), "1250");
    let result = Json::parse(r#"{"id": 123456789012345678901234567890, "n": 1.0}"#).unwrap();
    let scope = Scope::new().with_json("result", &result);
    assert_eq!(Expr::parse("result.id").unwrap().eval_json(&scope).unwrap().as_str(), "123456789012345678901234567890");
    assert_eq!(Expr::parse("result.n").unwrap().eval_json(&scope).unwrap().as_str(), "1");
}

#[test]
fn mistakes_in_values_name_the_place() {
    let check = |template: serde_json::Value, expected: &str| {
        assert_eq!(ValueTemplate::parse(&template).unwrap_err().to_string(), expected);
    };
    check(json!({"a": [1, "${x"]}), "at /a/1: `${` is never closed by `}`; write `$${` for a literal one (at byte 0)");
    check(json!({"${x}": 1}), "at /${x}: the name of a member cannot hold an expression");
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    assert!(ValueTemplate::parse(&deep).unwrap_err().message.contains("nested deeper"));
}

proptest! {
    #[test]
    fn never_panics(text in any::<String>()) {
        let _ = Expr::parse(&text).map(|e| e.eval(&scope()));
        let _ = TextTemplate::parse(&format!("${{{text}")).map(|t| t.render(&scope()));
    }

    #[test]
    fn text_without_a_dollar_is_itself(text in "[^$]*") {
        let template = TextTemplate::parse(&text).unwrap();
        prop_assert_eq!(template.literal(), Some(text.as_str()));
    }

    #[test]
    fn numbers_come_out_as_they_went_in(i in any::<i128>(), f in any::<f64>().prop_filter("finite", |f| f.is_finite())) {
        for text in [i.to_string(), serde_json::json!(f).to_string()] {
            let args = CanonicalJson::parse(&format!("{{\"n\":{text}}}")).unwrap();
            let scope = Scope::new().with_args(&args);
            let out = ValueTemplate::parse(&json!({"n": "${args.n}"})).unwrap().render_json(&scope).unwrap();
            prop_assert_eq!(out, args.as_str());
        }
    }
}

#[test]
fn the_deepest_expression_fits_a_small_stack() {
    let depth = DEPTH_MAX - 2;
    let sources = [
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        vec!["1"; depth].join("+"),
        format!("{}1", "true ? 1 : ".repeat(depth - 1)),
        format!("{}true{}", "[1].all(x, ".repeat(7), ")".repeat(7)),
    ];
    let evaluate = move || {
        for source in &sources {
            Expr::parse(source).unwrap().eval(&Scope::new()).unwrap();
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(evaluate).unwrap().join().unwrap();
}

/// No tool's answer is kept so deep as JSON; a record that others wrote may be.
#[test]
fn data_of_any_depth_fits_a_small_stack() {
    let deep = format!("{{\"a\":{}1{},\"n\":7}}", "[".repeat(20_000), "]".repeat(20_000));
    let stored: Json = serde_json::from_str(&deep).unwrap();
    let evaluate = move || Expr::parse("result.n").unwrap().eval(&Scope::new().with_json("result", &stored)).unwrap();
    assert_eq!(std::thread::Builder::new().stack_size(1 << 20).spawn(evaluate).unwrap().join().unwrap(), json!(7));
}
