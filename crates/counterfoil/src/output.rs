//! What is printed, and the exit code that goes with it. Data on stdout, the rest on stderr.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::{Answer, LogError, Status};
use counterfoil_server::otlp;
use serde::Serialize;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{Global, LogFormat};

/// Documented in the help and in the README; scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    Broken = 1,
    Usage = 2,
    Refused = 3,
    Failed = 4,
    InDoubt = 5,
    Pending = 6,
    Cancelled = 7,
    Drifted = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub exit: Exit,
    pub code: &'static str,
    pub message: String,
    /// More for `--json`, e.g. every mistake of a config.
    pub detail: Option<serde_json::Value>,
}

impl Refused {
    pub fn usage(code: &'static str, message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::Usage, code, message: message.into(), detail: None }.into()
    }
    pub fn refused(code: &'static str, message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::Refused, code, message: message.into(), detail: None }.into()
    }
}

/// Logs to stderr; exports traces where the environment names a collector. To be kept until the program ends.
pub fn start_logging(global: &Global) -> Option<otlp::Guard> {
    let filter = tracing_subscriber::EnvFilter::new(format!("{},hyper=warn,h2=warn,reqwest=warn,rustls=warn", global.log_level()));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match global.log_format() {
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Pretty => {
            // Colours are for eyes: not for a file, a pipe, or whoever said NO_COLOR.
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            lines.with_ansi(colours).with_target(false).without_time().boxed()
        }
    };
    let traces = trace_settings().map(otlp::start).transpose();
    let (layer, guard, error) = match traces {
        Ok(started) => {
            let (layer, guard) = started.unzip();
            (layer.map(|layer| layer.with_filter(otlp::filter())), guard, None)
        }
        Err(error) => (None, None, Some(error)),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(layer).init();
    if let Some(error) = error {
        // Calls do not depend on being watched.
        tracing::warn!(%error, "traces are not exported");
    }
    guard
}

/// Where traces go, if anywhere.
pub fn trace_settings() -> Option<otlp::Settings> {
    otlp::Settings::from_env("counterfoil")
}

pub fn failed(global: &Global, error: &anyhow::Error) -> ExitCode {
    let refused = error.downcast_ref::<Refused>();
    let exit = refused.map_or(Exit::Broken, |r| r.exit);
    let ledger = error.chain().find_map(|e| e.downcast_ref::<LedgerError>().map(LedgerError::code));
    let log = || error.chain().find_map(|e| e.downcast_ref::<LogError>().map(LogError::code));
    let code = refused.map_or_else(|| ledger.or_else(log).unwrap_or("internal_error"), |r| r.code);
    if global.json {
        let detail = refused.and_then(|r| r.detail.clone());
        let mut body = serde_json::json!({ "status": "error", "error": { "code": code, "message": format!("{error:#}") } });
        if let Some(detail) = detail {
            body["error"]["detail"] = detail;
        }
        json(&body);
    } else {
        note(format_args!("counterfoil: {error:#}"));
    }
    exit.into()
}

/// One JSON value on stdout.
pub fn json<T: Serialize>(value: &T) {
    data(serde_json::to_string(value).expect("what we print is plain data"));
}

/// A line of data on stdout. A reader that has gone away (`| head`) is no error of ours.
pub fn data(line: impl std::fmt::Display) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// A line for people on stderr.
pub fn note(line: impl std::fmt::Display) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().map(|h| h.to_uppercase()));
    table
}

pub fn print_table(table: &Table) {
    for line in table.lines() {
        data(line.trim_end());
    }
}

pub fn exit_of(answer: &Answer) -> Exit {
    match answer.status {
        // Whatever else stopped the call, what matters is that nobody knows whether it happened.
        _ if answer.outcome == "in_doubt" => Exit::InDoubt,
        Status::Success => Exit::Done,
        Status::InDoubt => Exit::InDoubt,
        Status::Pending | Status::WaitingApproval => Exit::Pending,
        Status::Cancelled => Exit::Cancelled,
        Status::CircuitOpen if answer.attempt > 0 => Exit::Failed,
        Status::CircuitOpen => Exit::Refused,
        Status::Timeout => Exit::Failed,
        Status::Error => match answer.error.as_ref().map(|e| e.code.as_str()) {
            Some("store_unavailable" | "ledger_corrupt" | "internal_error") => Exit::Broken,
            Some("invalid_arguments") => Exit::Usage,
            _ if answer.outcome == "undecided" => Exit::Refused,
            _ => Exit::Failed,
        },
    }
}

/// An answer: the envelope with `--json`; otherwise the result on stdout and the story on stderr.
pub fn answer(global: &Global, answer: &Answer) -> Exit {
    if global.json {
        json(answer);
        return exit_of(answer);
    }
    if let Some(data_json) = &answer.data {
        data(data_json);
    }
    let word = match (answer.status, answer.replayed) {
        (Status::Success, true) if answer.outcome == "compensated" => {
            "replayed: the recorded result of what was undone since; nothing was run".to_owned()
        }
        (Status::Success, true) => "replayed: the recorded result; nothing was run".to_owned(),
        (Status::Success, false) => format!("done in {} ms (attempt {})", answer.duration_ms, answer.attempt.max(1)),
        (Status::Error | Status::Timeout, _)
            if matches!(exit_of(answer), Exit::Refused | Exit::Usage) || exit_of(answer) == Exit::Broken && answer.attempt == 0 =>
        {
            "refused: nothing was run".to_owned()
        }
        (Status::Error | Status::Timeout, true) => "failed (the recorded failure; nothing was run)".to_owned(),
        (Status::Error | Status::Timeout, false) => format!("failed after attempt {}", answer.attempt),
        (Status::CircuitOpen, _) if answer.attempt > 0 => format!("failed after attempt {}; the breaker is open", answer.attempt),
        (Status::CircuitOpen, _) => "refused: the breaker is open; nothing was run".to_owned(),
        (Status::InDoubt, _) => "IN DOUBT".to_owned(),
        (Status::Pending, _) => "pending".to_owned(),
        (Status::WaitingApproval, _) => "waiting for approval; nothing was run".to_owned(),
        (Status::Cancelled, _) if answer.outcome == "in_doubt" => "cancelled while at work: it may have happened".to_owned(),
        (Status::Cancelled, _) => "cancelled".to_owned(),
    };
    note(&word);
    if let Some(error) = &answer.error {
        note(format_args!("  {}: {}", error.code, error.message));
        if let Some(after) = error.retry_after_ms {
            note(format_args!("  come back in {after} ms"));
        }
        if let Some(detail) = &error.detail {
            note(format_args!("  it said: {detail}"));
        }
    }
    for flag in &answer.flags {
        note(format_args!("  flagged: {}", serde_json::to_string(flag).expect("a flag is plain data")));
    }
    if let Some(effect) = answer.effect {
        note(format_args!("  effect  {effect}"));
    }
    if let Some(receipt) = answer.receipt {
        note(format_args!("  receipt {receipt}"));
    }
    exit_of(answer)
}
