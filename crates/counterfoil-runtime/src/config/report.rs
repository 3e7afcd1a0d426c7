//! Where mistakes are collected while a file is read.
//!
//! Shared by everything that reads, hence the cell; bounded, since a file of the wrong kind has a mistake in every line.
//! The order does not matter here: they are sorted by place in the end.

use std::cell::RefCell;

use super::mistake::Mistake;

/// More mistakes than these are one mistake: this is not a config.
const MISTAKES_MAX: usize = 500;

/// The mistakes found so far.
pub struct Report(RefCell<Vec<Mistake>>);

impl Report {
    pub fn from(mistakes: Vec<Mistake>) -> Self {
        let report = Self(RefCell::default());
        mistakes.into_iter().for_each(|mistake| report.add(mistake));
        report
    }

    pub fn add(&self, mistake: Mistake) {
        let mut mistakes = self.0.borrow_mut();
        match mistakes.len() {
            0..MISTAKES_MAX => mistakes.push(mistake),
            MISTAKES_MAX => mistakes.push(Mistake::of_file(format!("has more mistakes than are shown here, which are {MISTAKES_MAX}"))),
            _ => {}
        }
    }

    pub fn into_mistakes(self) -> Vec<Mistake> {
        self.0.into_inner()
    }
}
