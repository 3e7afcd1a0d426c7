//! Which variables the expressions of a config may use, by where they stand.
//!
//! Each place sees what exists when it is evaluated: `args` before anything is sent, `response` once something answered, `result` once the
//! effect is done.

use super::context::Context;
use super::expr::{self, Knows};
use super::mistake::Mistake;
use super::read::Spot;
use super::suggest::nearest;
use crate::template::{CALL_VARIABLES, Expr, TextTemplate, ValueTemplate};

/// Which variables a place knows.
#[derive(Debug, Clone, Copy)]
pub struct Sees {
    call: bool,
    result: bool,
    response: bool,
    state: bool,
}

impl Sees {
    /// Only the arguments: what is decided before anything is sent.
    pub const ARGS: Sees = Sees { call: false, result: false, response: false, state: false };
    /// Everything about the call.
    pub const CALL: Sees = Sees { call: true, result: false, response: false, state: false };

    pub fn with_result(self) -> Self {
        Self { result: true, ..self }
    }

    /// What was captured when the effect was done.
    pub fn with_state(self) -> Self {
        Self { state: true, ..self }
    }

    pub fn with_response(self) -> Self {
        Self { response: true, ..self }
    }

    fn names(self) -> Vec<&'static str> {
        let mut names = if self.call { CALL_VARIABLES.to_vec() } else { vec!["args"] };
        names.extend(self.result.then_some("result"));
        names.extend(self.response.then_some("response"));
        names.extend(self.state.then_some("state"));
        names
    }
}

/// A place of this file.
struct Seen<'c> {
    context: &'c Context<'c>,
    sees: Sees,
}

impl Context<'_> {
    /// An expression. `true`, `false` and numbers are expressions too.
    pub fn expr(&self, spot: &Spot<'_>, sees: Sees) -> Option<Expr> {
        expr::expr(spot, &Seen { context: self, sees })
    }

    /// A text with `${…}` in it.
    pub fn text(&self, spot: &Spot<'_>, sees: Sees) -> Option<TextTemplate> {
        expr::text(spot, &Seen { context: self, sees })
    }

    /// Likewise, where a number or boolean stands for its text.
    pub fn printed(&self, spot: &Spot<'_>, sees: Sees) -> Option<TextTemplate> {
        expr::printed(spot, &Seen { context: self, sees })
    }

    /// Any value with `${…}` in its texts.
    pub fn value(&self, spot: &Spot<'_>, sees: Sees) -> Option<ValueTemplate> {
        expr::value(spot, &Seen { context: self, sees })
    }
}

impl Knows for Seen<'_> {
    fn check(&self, spot: &Spot<'_>, expr: &Expr) -> bool {
        let known = self.sees.names();
        let mut ok = true;
        for name in expr.variables().iter().filter(|name| !known.contains(&name.as_str())) {
            ok = false;
            spot.report.add(unknown(spot, name, self.sees).allowed(known.iter().copied()));
        }
        if self.sees.call {
            for name in expr.env_names() {
                ok &= self.context.env_name(spot, &name).is_some();
            }
        }
        ok
    }
}

fn unknown(spot: &Spot<'_>, name: &str, sees: Sees) -> Mistake {
    let mistake = match name {
        "result" => spot.mistake("result is not known here: it is there once the effect is done, in verify and undo"),
        "response" => spot.mistake("response is not known here: it is there once an answer came, in result, happened and holds"),
        // Somebody thought of the shell.
        _ if name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') => {
            let message = format!("there is no variable {name} here");
            return spot.mistake(message).suggest(sees.call.then(|| format!("env.{name}")));
        }
        _ => spot.mistake(format!("there is no variable {name} here")),
    };
    mistake.suggest(nearest(name, sees.names()))
}
