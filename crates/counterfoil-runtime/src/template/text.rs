//! A string with `${…}` in it. `$${` stands for a literal `${`.
//!
//! Rendering never quotes: whoever puts the text into a URL, a header or an argv says what is safe there, by way of [`TextTemplate::parts`].

use super::expr::{EvalError, Expr, ExprError};
use super::lexis;
use super::scope::Scope;

/// Longest text of one template.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub struct TextTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Literal(String),
    Expr(Expr),
}

impl Part {
    pub fn render(&self, scope: &Scope) -> Result<String, EvalError> {
        match self {
            Self::Literal(text) => Ok(text.clone()),
            Self::Expr(expr) => expr.eval_text(scope),
        }
    }
}

impl TextTemplate {
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ExprError::new(None, format!("the text is {} bytes long; at most {TEXT_BYTES_MAX} are allowed", text.len())));
        }
        let (mut parts, mut literal, mut at) = (Vec::new(), String::new(), 0);
        while let Some(found) = text[at..].find('$').map(|i| at + i) {
            literal.push_str(&text[at..found]);
            let rest = &text[found..];
            if rest.starts_with("$${") {
                literal.push_str("${");
                at = found + 3;
            } else if rest.starts_with("${") {
                let start = found + 2;
                let end = start
                    + lexis::expr_len(&text[start..])
                        .ok_or_else(|| ExprError::new(found, "`${` is never closed by `}`; write `$${` for a literal one"))?;
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Expr(Expr::parse(&text[start..end]).map_err(|e| e.shifted(start))?));
                at = end + 1;
            } else {
                literal.push('$');
                at = found + 1;
            }
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// Strings stand as they are, numbers and booleans printed; anything else is an error.
    pub fn render(&self, scope: &Scope) -> Result<String, EvalError> {
        self.parts.iter().map(|part| part.render(scope)).collect()
    }

    /// The text, when there is no expression in it.
    pub fn literal(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Literal pieces and expressions in order; never two literals in a row.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn exprs(&self) -> Vec<&Expr> {
        fn expr(part: &Part) -> Option<&Expr> {
            match part {
                Part::Expr(expr) => Some(expr),
                Part::Literal(_) => None,
            }
        }
        self.parts.iter().filter_map(expr).collect()
    }
}
