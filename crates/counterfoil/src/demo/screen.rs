//! How the story looks: a line per event with what the bank's counter says then, a table at the end.
//!
//! Stdout, so that it can be piped; colour only on a terminal, and not with `NO_COLOR`. With `--json` nothing of it is shown.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::agent::CUSTOMER;
use super::story::Report;
use super::teller::Count;
use crate::output;

/// Where the bank's counter stands: a line fits in 80 columns.
const TEXT_WIDTH: usize = 66;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Doubt,
    Bad,
}

pub struct Screen {
    silent: bool,
    colour: bool,
    /// Lines of the act so far.
    lines: AtomicU32,
}

impl Screen {
    pub fn new(silent: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { silent, colour: wanted && std::io::stdout().is_terminal(), lines: AtomicU32::new(0) }
    }

    pub fn begin(&self, bank: &str, dir: &Path) {
        self.say(self.paint("1", "One payment, and a kill -9 in the middle of it."));
        self.say(format_args!("The bank: {bank}, a process of its own. Asked twice, it charges twice."));
        self.say(format_args!("The ledger: {}", dir.join(super::story::LEDGER).display()));
    }

    pub fn act(&self, name: &str) {
        self.lines.store(0, Ordering::Relaxed);
        self.say("");
        self.say(self.paint("1", name));
    }

    pub fn line(&self, tone: Tone, text: &str, bank: Count) {
        let number = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let fill = TEXT_WIDTH.saturating_sub(text.chars().count());
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Doubt => "33",
            Tone::Bad => "31",
        };
        let number = self.paint("2", &format!("{number:>2}"));
        let (text, bank) = (self.paint(code, text), self.paint("1", &format!("bank: {}", bank.charges)));
        self.say(format_args!("{number}  {text}{:fill$}  {bank}", ""));
    }

    pub fn end(&self, report: &Report) {
        let mut table = output::table(&["", "with Counterfoil", "just retry"]);
        let (with, without) = (report.charges_with, report.charges_without);
        table.add_row(["the agent asked", "twice", "twice"]);
        table.add_row(["the worker was killed", "after the charge", "after the charge"]);
        table.add_row(["the next one", "asked the bank", "tried again"]);
        table.add_row(["charges at the bank".to_owned(), with.to_string(), without.to_string()]);
        table.add_row([format!("{CUSTOMER} paid"), money(report.cents_with), money(report.cents_without)]);
        self.say("");
        for line in table.lines() {
            self.say(line.trim_end());
        }
        self.say("");
        let noun = if with == 1 { "charge" } else { "charges" };
        self.say(self.paint("1", &format!("{with} {noun} with Counterfoil, {without} without.")));
        self.say("");
        if let Some(ledger) = &report.ledger {
            let short = &report.effect.to_string()[..8];
            self.say("The ledger was kept. Look inside:");
            self.say(format_args!("  counterfoil --store {ledger} effects list"));
            self.say(format_args!("  counterfoil --store {ledger} effects show {short}"));
            self.say("");
        }
        self.say("Next:");
        self.say("  counterfoil init             write a commented counterfoil.yaml");
        self.say("  counterfoil tools list       the tools it gives your agents, and how far each is trusted");
        self.say("  counterfoil effects list     what was done, and what is in doubt");
    }

    fn say(&self, line: impl std::fmt::Display) {
        if !self.silent {
            output::data(line);
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

pub fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
