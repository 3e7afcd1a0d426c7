//! `command`: one process, by an argv list.
//!
//! A shell string is refused, and so is an argument placed inside a script: both turn data into code.

use std::collections::BTreeMap;

use super::context::Context;
use super::node::Value;
use super::read::Spot;
use super::sees::Sees;
use crate::spec::CommandSpec;
use crate::template::TextTemplate;

pub const COMMAND: &[&str] = &["argv", "stdin", "cwd", "env", "pass_env", "rejected_exit", "retriable_exit"];

/// What every command is given.
const OWN_VARIABLES: [&str; 3] = ["COUNTERFOIL_KEY", "COUNTERFOIL_ATTEMPT", "COUNTERFOIL_TOOL"];

/// Programs that run the text after `-c` or `-e`.
const INTERPRETERS: [&str; 12] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "python", "python3", "perl", "ruby", "node", "pwsh"];

pub fn read(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<CommandSpec> {
    let mut spec = CommandSpec {
        argv: Vec::new(),
        stdin: None,
        cwd: context.default_cwd(),
        env: BTreeMap::new(),
        pass_env: Vec::new(),
        rejected_exit: Vec::new(),
        retriable_exit: Vec::new(),
    };
    match spot.node.value {
        Value::List(_) | Value::String(_) => spec.argv = argv(spot, context, sees)?,
        _ => {
            let fields = spot.fields(COMMAND)?;
            let argv = fields.require("argv").and_then(|s| argv(&s, context, sees));
            fields.read("stdin", |s| context.value(s, sees).map(Some), &mut spec.stdin);
            fields.read("cwd", |s| context.path(s).map(Some), &mut spec.cwd);
            fields.read("env", |s| env(s, context, sees), &mut spec.env);
            fields.read("pass_env", names, &mut spec.pass_env);
            fields.read("rejected_exit", exit_codes, &mut spec.rejected_exit);
            fields.read("retriable_exit", exit_codes, &mut spec.retriable_exit);
            if let Some(code) = spec.rejected_exit.iter().find(|code| spec.retriable_exit.contains(code)) {
                fields.wrong("retriable_exit", format!("exit code {code} is listed in rejected_exit too; it can mean only one of them"));
            }
            spec.argv = argv?;
        }
    }
    Some(spec)
}

fn argv(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<Vec<TextTemplate>> {
    if let Some(line) = spot.node.as_str() {
        let words: Vec<String> = line.split_whitespace().map(|word| format!("{word:?}")).collect();
        let mistake = spot.mistake("argv is a list, one item per argument; write [\"sh\", \"-c\", …] if a shell is truly meant");
        spot.report.add(mistake.suggest((!words.is_empty()).then(|| format!("[{}]", words.join(", ")).replace('"', ""))));
        return None;
    }
    let items = spot.list()?;
    let Some(program) = items.first() else {
        spot.wrong("argv is empty; its first item is the program");
        return None;
    };
    let templates: Vec<Option<TextTemplate>> = items.iter().map(|item| context.printed(item, sees)).collect();
    let templates: Vec<TextTemplate> = templates.into_iter().collect::<Option<_>>()?;
    if templates[0].exprs().iter().any(|expr| expr.variables().iter().any(|name| name != "env")) {
        program.wrong("the program itself comes from an expression; write it literally, so that no caller chooses what runs");
    }
    if let Some(at) = script(&templates).filter(|at| templates[*at].literal().is_none()) {
        items[at].wrong(
            "an argument inside a script becomes code, so a caller could run anything; pass it beside the script, \
             as in [\"sh\", \"-c\", \"echo \\\"$1\\\"\", \"sh\", \"${args.text}\"]",
        );
    }
    Some(templates)
}

/// Which argument is the text that an interpreter will run.
fn script(argv: &[TextTemplate]) -> Option<usize> {
    let program = argv.first()?.literal()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let runs_text = |flag: &str| {
        let short = flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with(['c', 'e', 'p']);
        short || flag == "--eval" || flag == "--print"
    };
    let flag = argv.iter().position(|argument| argument.literal().is_some_and(runs_text))?;
    (flag + 1 < argv.len()).then_some(flag + 1)
}

fn env(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<BTreeMap<String, TextTemplate>> {
    let mut env = BTreeMap::new();
    for (key, value) in spot.entries()? {
        if !is_env_name(&key.text) {
            value.wrong_whole(not_an_env_name(&key.text));
        }
        if OWN_VARIABLES.contains(&key.text.as_str()) {
            value.wrong_whole("every command is given this variable already; drop it");
        }
        if let Some(template) = context.printed(&value, sees) {
            env.insert(key.text.clone(), template);
        }
    }
    Some(env)
}

/// A list of names of environment variables.
pub fn names(spot: &Spot<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in spot.list()? {
        match item.text() {
            Some(name) if is_env_name(name) => names.push(name.to_owned()),
            Some(name) => item.wrong(not_an_env_name(name)),
            None => {}
        }
    }
    Some(names)
}

fn is_env_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn not_an_env_name(name: &str) -> String {
    format!("{name:?} is not the name of an environment variable; letters, digits and _ only, no $")
}

fn exit_codes(spot: &Spot<'_>) -> Option<Vec<i32>> {
    let items = if matches!(spot.node.value, Value::List(_)) { spot.list()? } else { vec![spot.clone()] };
    let mut codes = Vec::new();
    for item in items {
        if item.node.value == Value::Int(0) {
            item.wrong("exit code 0 is success");
            continue;
        }
        codes.extend(item.int(1..=255).and_then(|code| i32::try_from(code).ok()));
    }
    Some(codes)
}
