//! `${…}`: CEL expressions inside strings and JSON values, parsed once and evaluated against a [`Scope`].
//!
//! Must stay true: a template that was parsed can fail only because of the data it meets, never because of its spelling;
//! a number keeps its digits or is refused, never rounded; no message shows a value, since values may be secrets
//! and messages are kept; evaluation is bounded by [`SOURCE_BYTES_MAX`], [`DEPTH_MAX`] and [`STEPS_MAX`].
//! Templates read nothing but their scope: no clock, no randomness, no environment that was not put there by name.

mod arithmetic;
mod convert;
mod expr;
mod lexis;
mod names;
mod scope;
mod stack;
mod text;
mod value;

pub use expr::{DEPTH_MAX, EvalError, Expr, ExprError, SOURCE_BYTES_MAX, STEPS_MAX};
pub use scope::{CALL_VARIABLES, Scope};
pub(crate) use stack::on_large_stack;
pub use text::{Part, TEXT_BYTES_MAX, TextTemplate};
pub use value::ValueTemplate;

#[cfg(test)]
mod tests;
