//! `counterfoil.yaml`: read once, checked whole, never guessed at.

mod mistake;
mod node;
mod read;
mod suggest;
mod tree;
mod units;

pub use mistake::{ConfigErrors, Mistake, Place};

#[cfg(test)]
mod tests;
