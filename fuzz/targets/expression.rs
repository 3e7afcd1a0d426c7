//! Templates with CEL expressions in them: the input is the template.
//!
//! Holds: what cannot be read is refused with a place inside the text; what was read is evaluated to the same every time; no message shows a value
//! of the data, which may be a secret; the text, the value and the JSON of one expression are of one mind.
#![no_main]

use counterfoil_core::{CanonicalJson, Json};
use counterfoil_fuzz::caught_panics_are_no_crash;
use counterfoil_runtime::template::{Expr, Scope, TextTemplate, ValueTemplate};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const SECRET: &str = "hunter2-of-the-data";

fn scope() -> Scope {
    let args = format!(
        r#"{{"big":18446744073709551617,"card":"{SECRET}","list":[1,2.5,"{SECRET}",null],"n":7,"nested":{{"a":{{"b":"{SECRET}"}}}},"t":true}}"#
    );
    let result = Json::parse(r#"{"id":"ch_1","amount":12.50,"items":[{"q":1},{"q":2}]}"#).expect("JSON");
    Scope::new()
        .with_args(&CanonicalJson::parse(&args).expect("JSON"))
        .with_json("result", &result)
        .with("key", &json!("k-1"))
        .with("attempt", &json!(2))
        .with("env", &json!({ "TOKEN": SECRET }))
        .with("steps", &json!({ "pay": { "result": { "id": 1 }, "status": "done" } }))
}

fuzz_target!(
    init: caught_panics_are_no_crash(),
    |text: &str| {
        let scope = scope();
        let secretive = |message: String| assert!(!message.contains(SECRET) || text.contains(SECRET), "{message}");
        match TextTemplate::parse(text) {
            Err(error) => {
                assert!(error.at.is_none_or(|at| at <= text.len()), "{error:?}");
                secretive(error.to_string());
            }
            Ok(template) => {
                let rendered = template.render(&scope);
                assert_eq!(rendered, template.render(&scope));
                if let Err(error) = &rendered {
                    secretive(error.to_string());
                }
                if let Some(literal) = template.literal() {
                    assert_eq!(rendered.as_deref(), Ok(literal));
                }
            }
        }
        if let Ok(template) = ValueTemplate::parse(&Value::from(text)) {
            let rendered = template.render(&scope);
            assert_eq!(rendered, template.render(&scope));
            let text = template.render_json(&scope).map(|text| Json::parse(&text).expect("what is rendered is JSON"));
            // Numbers that a value cannot hold keep their digits in the text alone.
            assert!(rendered.is_err() || text.is_ok());
        }
        let Ok(expr) = Expr::parse(text) else { return };
        let (value, text_of, truth) = (expr.eval(&scope), expr.eval_json(&scope), expr.eval_bool(&scope));
        for error in [value.as_ref().err(), text_of.as_ref().err(), truth.as_ref().err()].into_iter().flatten() {
            secretive(error.to_string());
        }
        if let (Ok(value), Ok(truth)) = (&value, &truth) {
            assert_eq!(value, &Value::from(*truth));
        }
        if let (Ok(value), Ok(json)) = (&value, &text_of) {
            assert_eq!(value.is_string(), json.as_str().starts_with('"'), "{value} and {json}");
        }
    }
);
