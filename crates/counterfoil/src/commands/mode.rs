//! `counterfoil mode`: show, set, reset.

use counterfoil_core::ToolName;
use counterfoil_core::mode::{Mode, Source};
use counterfoil_runtime::{InForce, ModeError, Switch};

use counterfoil_runtime::shown::time;

use super::effects::operator;
use super::house::House;
use super::tools::find;
use crate::cli::{Global, ModeArgs, ModeCommand, ModeWord, WhoArgs};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &ModeArgs) -> anyhow::Result<Exit> {
    let house = match &args.command {
        ModeCommand::Show => House::standing(global).await?,
        ModeCommand::Set(_) | ModeCommand::Reset { .. } => House::open(global).await?,
    };
    match &args.command {
        ModeCommand::Show => show(global, &house).await,
        ModeCommand::Set(args) => {
            let mode = match args.mode {
                ModeWord::Enforce => Mode::Enforce,
                ModeWord::Shadow => Mode::Shadow,
                ModeWord::Off => Mode::Off,
            };
            let tool = tool(&house, args.tool.as_deref())?;
            let switch = Switch { tool, mode: Some(mode), accept_duplicates: args.i_accept_duplicates };
            set(global, &house, switch, &args.who).await
        }
        ModeCommand::Reset { tool: name, who } => {
            let tool = tool(&house, name.as_deref())?;
            set(global, &house, Switch { tool, ..Switch::default() }, who).await
        }
    }
}

fn tool(house: &House, name: Option<&str>) -> anyhow::Result<Option<ToolName>> {
    name.map(|name| find(house, name).map(|tool| tool.name.clone())).transpose()
}

async fn set(global: &Global, house: &House, switch: Switch, who: &WhoArgs) -> anyhow::Result<Exit> {
    let tool = switch.tool.clone();
    house.runtime.switch_mode(switch, &operator(who)).await.map_err(refused)?;
    let all = house.runtime.modes().await?;
    let now = all.iter().find(|mode| mode.tool == tool).expect("what was switched is listed");
    match global.json {
        true => output::json(&item(now)),
        false => output::note(format_args!("{}: {} ({})", shown(now), now.mode.word(), whence(now.source))),
    }
    if tool.is_none() && !global.json {
        for other in all.iter().filter(|other| other.source == Source::ToolSwitch && other.mode != now.mode) {
            output::note(format_args!("  but {}: {}, switched for itself", shown(other), other.mode.word()));
        }
    }
    Ok(Exit::Done)
}

async fn show(global: &Global, house: &House) -> anyhow::Result<Exit> {
    let all = house.runtime.modes().await?;
    if global.json {
        output::json(&all.iter().map(item).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["tool", "mode", "from", "switched", "by", "why"]);
    for one in &all {
        let (at, by, why) = one.switched.as_ref().map(|s| (time(s.at), s.by.clone(), s.why.clone())).unwrap_or_default();
        table.add_row([shown(one), one.mode.word().into(), whence(one.source).into(), at, by, why]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

fn shown(one: &InForce) -> String {
    one.tool.as_ref().map_or_else(|| "(all)".into(), ToString::to_string)
}

fn whence(source: Source) -> &'static str {
    match source {
        Source::ToolSwitch => "switched for the tool",
        Source::Switch => "switched for all",
        Source::ToolConfig => "the tool's config",
        Source::Config => "the config",
    }
}

fn item(one: &InForce) -> serde_json::Value {
    let switched = one.switched.as_ref().map(|s| serde_json::json!({ "at": time(s.at), "by": s.by, "why": s.why, "mode": s.mode }));
    serde_json::json!({ "tool": one.tool, "mode": one.mode, "from": one.source, "switched": switched })
}

fn refused(error: ModeError) -> anyhow::Error {
    match error {
        ModeError::NotAccepted => {
            Refused::usage("duplicates_not_accepted", format!("{error}: add --i-accept-duplicates; nothing was switched"))
        }
        ModeError::UnknownTool(_) => Refused::refused("unknown_tool", format!("{error}; nothing was switched")),
        ModeError::Ledger(error) => error.into(),
    }
}
