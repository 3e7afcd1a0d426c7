//! `counterfoil completions SHELL`.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::output::Exit;

pub fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    clap_complete::generate(args.shell, &mut Cli::command(), "counterfoil", &mut std::io::stdout());
    Ok(Exit::Done)
}
