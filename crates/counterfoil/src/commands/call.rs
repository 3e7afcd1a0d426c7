//! `counterfoil call`: one side effect.

use std::io::Read;
use std::time::Duration;

use counterfoil_core::canonical::{ARGS_BYTES_MAX, CanonicalJson};
use counterfoil_core::ids::{CallKey, Kind, Name, NameError};
use counterfoil_core::{Call, Caller, EffectKey, RunId, StepPath, ToolName};

use counterfoil_runtime::{CallContext, Status};

use super::house::House;
use super::signals::Signals;
use crate::cli::{CallArgs, Global};
use crate::output::{self, Exit, Refused};

/// How long a call that met a busy or full ledger waits to bring its report in before the process ends.
const REPORTS_WAIT: Duration = Duration::from_secs(15);
const WAITING: &str = "waiting for the call to end, so that its answer is recorded; a second signal quits at once, and may leave a doubt";

pub async fn run(global: &Global, args: &CallArgs) -> anyhow::Result<Exit> {
    // What was typed is checked before the ledger is even opened: a mistake leaves no trace.
    let tool: ToolName = name("tool", &args.tool)?;
    let key: Option<CallKey> = args.key.as_deref().map(|k| name("--key", k)).transpose()?;
    let run: Option<RunId> = args.run.as_deref().map(|r| name("--run", r)).transpose()?;
    let step: Option<StepPath> = args.step.as_deref().map(|s| name("--step", s)).transpose()?;
    let caller: Caller = name("--caller", &args.caller)?;
    let json = read_json("--args", &args.args)?;
    let canonical =
        CanonicalJson::parse(&json).map_err(|e| Refused::usage("invalid_arguments", format!("--args: {e}; nothing was run")))?;
    let house = House::open(global).await?;
    let call = Call { tenant: house.config.tenant.clone(), caller, tool, args: canonical, key, run, step, ordinal: args.ordinal };
    let variable = |name| std::env::var(name).ok();
    let context = CallContext::from_w3c(variable("TRACEPARENT").as_deref(), variable("TRACESTATE").as_deref());
    tokio::spawn(Signals::new()?.first(WAITING));
    let answer = house.runtime.call_in(context.clone(), call.clone()).await;
    if answer.error.as_ref().is_none_or(|e| e.code != "store_unavailable") {
        return Ok(output::answer(global, &answer));
    }
    let say = |line: &str| {
        if !global.json {
            output::note(line);
        }
    };
    let unrecorded = Unrecorded::of(answer.status);
    let mut recorded = house.runtime.reports_in(Duration::ZERO).await;
    if !recorded {
        say(&format!("{}: trying for {} s", unrecorded.trying(), REPORTS_WAIT.as_secs()));
        recorded = house.runtime.reports_in(REPORTS_WAIT).await;
    }
    if recorded && unrecorded == Unrecorded::Report {
        // What the tool said is in the ledger after all: the same call is now answered from it.
        return Ok(output::answer(global, &house.runtime.call_in(context, call).await));
    }
    let exit = output::answer(global, &answer);
    if let (false, Some(effect)) = (recorded, answer.effect) {
        unrecorded.lost(effect).iter().for_each(|line| say(line));
    }
    Ok(exit)
}

/// What a ledger that is out of reach has not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unrecorded {
    /// What the tool said. Nobody is shown an answer that is not durable, and it is gone with this process.
    Report,
    /// That nothing was sent under a claim that may have been written.
    Release,
}

impl Unrecorded {
    fn of(status: Status) -> Self {
        if status == Status::InDoubt { Self::Report } else { Self::Release }
    }

    fn trying(self) -> &'static str {
        match self {
            Self::Report => "the tool has ended, and the ledger does not take it",
            Self::Release => "nothing was sent, but the ledger may hold a claim, and does not take it back",
        }
    }

    fn lost(self, effect: EffectKey) -> [String; 2] {
        let told = match self {
            Self::Report => "  what the tool said is lost: when the ledger is back, find out in the world whether it happened, and say so:",
            Self::Release => "  if the claim is there, the effect will be in doubt when the ledger is back, though nothing was sent; then:",
        };
        let verdicts = match self {
            Self::Report => "--happened [--result JSON] | --did-not-happen",
            Self::Release => "--did-not-happen",
        };
        [told.into(), format!("  counterfoil effects resolve {effect} {verdicts}")]
    }
}

pub fn name<K: Kind>(flag: &str, text: &str) -> anyhow::Result<Name<K>> {
    Name::new(text).map_err(|e: NameError| Refused::usage("invalid_name", format!("{flag}: {e}; nothing was run")))
}

/// JSON as it was typed, from a file, or from standard input.
pub fn read_json(flag: &str, typed: &str) -> anyhow::Result<String> {
    // One byte more than allowed is enough to say that it is too much.
    let limit = ARGS_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = match typed.strip_prefix('@') {
        _ if typed == "-" => std::io::stdin().take(limit).read_to_end(&mut bytes),
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        None => return Ok(typed.to_owned()),
    };
    let refused = |why: String| Refused::usage("invalid_arguments", format!("{flag} {typed}: {why}; nothing was run"));
    read.map_err(|e| refused(e.to_string()))?;
    if bytes.len() > ARGS_BYTES_MAX {
        let why = format!("more than {ARGS_BYTES_MAX} bytes, which is all that is taken: pass a reference instead of the thing itself");
        return Err(refused(why));
    }
    String::from_utf8(bytes).map_err(|e| refused(format!("not UTF-8 text at byte {}", e.utf8_error().valid_up_to())))
}
