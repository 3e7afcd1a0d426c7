//! The command line: what was typed → what is meant → one command.
//!
//! Data goes to stdout, everything else to stderr; exit codes are listed in `counterfoil --help` and in the README.

mod bench;
mod cli;
mod commands;
mod demo;
mod output;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use crate::cli::{Cli, Command};

/// An effect is some forty small allocations on two threads: this one hands them across threads at half the cost.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Dropped last: the spans of what was done are still sent.
    let _traces = output::start_logging(&cli.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::failed(&cli.global, &anyhow::anyhow!("threads cannot be started: {error}")),
    };
    let done = runtime.block_on(run(&cli));
    // Commands have waited for their reports; what is still not in is in doubt in the ledger.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    match done {
        Ok(code) => code.into(),
        Err(error) => output::failed(&cli.global, &error),
    }
}

async fn run(cli: &Cli) -> anyhow::Result<output::Exit> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo(args) => demo::run(global, args).await,
        Command::Init(args) => commands::init::run(global, args),
        Command::Call(args) => commands::call::run(global, args).await,
        Command::Serve(args) => commands::serve::run(global, args).await,
        Command::Run(args) => commands::run::run(global, args).await,
        Command::Runs(args) => commands::runs::run(global, args).await,
        Command::Workflows(args) => commands::workflows::run(global, args).await,
        Command::Erase(args) => commands::erase::run(global, args).await,
        Command::Archive(args) => commands::archive::run(global, args).await,
        Command::Schedules(args) => commands::schedules::run(global, args).await,
        Command::Tools(args) => commands::tools::run(global, args).await,
        Command::Effects(args) => commands::effects::run(global, args).await,
        Command::Breakers(args) => commands::breakers::run(global, args).await,
        Command::Mode(args) => commands::mode::run(global, args).await,
        Command::Recover => commands::recover::run(global).await,
        Command::Receipts(args) => commands::receipts::run(global, args).await,
        Command::Keys(args) => commands::keys::run(global, args).await,
        Command::Tokens(args) => commands::tokens::run(global, args).await,
        Command::Doctor => commands::doctor::run(global).await,
        Command::Backup(args) => commands::backup::run(global, args).await,
        Command::Store(args) => commands::store::run(global, args).await,
        Command::Bench(args) => bench::run(global, args).await,
        Command::Completions(args) => commands::completions::run(args),
    }
}
