//! `counterfoil.yaml`, any text.
//!
//! Holds: it is a config or a list of mistakes, the same every time. Each mistake that has a place has it inside the text, and can be shown. The value
//! of a variable of the environment is in no message, and in nothing that is printed of the config.
#![no_main]

use counterfoil_fuzz::caught_panics_are_no_crash;
use counterfoil_runtime::config::{Config, Environment};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "hunter2-of-the-environment";

fuzz_target!(
    init: caught_panics_are_no_crash(),
    |text: &str| {
        let environment: Environment = [("TOKEN", SECRET), ("HOME", SECRET)].into_iter().collect();
        let read = || Config::parse(text, "folder/counterfoil.yaml", &environment);
        match (read(), read()) {
            (Ok(config), Ok(again)) => {
                let shown = format!("{config:?}");
                assert!(!shown.contains(SECRET) && shown == format!("{again:?}"), "{shown}");
            }
            (Err(errors), Err(again)) => {
                assert_eq!(errors, again);
                assert!(!errors.mistakes().is_empty());
                // As YAML counts them.
                let lines = text.split(['\n', '\r']).count();
                for place in errors.mistakes().iter().filter_map(|mistake| mistake.place) {
                    assert!((1..=lines + 1).contains(&place.line) && place.column >= 1, "{place:?} of {lines} lines");
                }
                let shown = format!("{errors}{errors:?}{}", serde_json::to_string(&errors).expect("plain data"));
                assert!(!shown.contains(SECRET), "{shown}");
            }
            _ => panic!("read once as a config and once not"),
        }
    }
);
