//! `${…}`: CEL expressions inside strings and JSON values, parsed once.
#[derive(Debug, Clone)]
pub struct Expr {}
#[derive(Debug, Clone)]
pub struct TextTemplate {}
#[derive(Debug, Clone)]
pub struct ValueTemplate {}
