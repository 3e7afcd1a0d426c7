//! What can be typed. Help texts teach: each command says what it does to the world and gives an example.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const ABOUT: &str = "A side-effect safety runtime for AI agents and workflows";

const LONG_ABOUT: &str = "\
Counterfoil stands between whoever decides (an agent, a workflow, a script) and the world (a bank, a mailbox, a file).
No side effect runs without the ledger's permission, none is run again on a guess, each leaves a receipt.

Start here:
  counterfoil demo                 a payment that is made once although the process was killed in the middle
  counterfoil init                 write a commented counterfoil.yaml
  counterfoil call TOOL --args '{…}' --key order-7
  counterfoil effects list --state in_doubt     the operator's inbox";

const EXIT_CODES: &str = "\
Exit codes:
  0  done (or replayed)
  1  the ledger or this program failed; for a call, nothing was run unless the message says so
  2  bad usage, bad config, bad input: nothing was run
  3  refused: nothing was run (unknown tool, key reused with other arguments, breaker open, limit, wrong state, not found)
  4  failed: it certainly did not happen
  5  in doubt: it may or may not have happened, and will not be run again on a guess
  6  pending: still running, or waiting for approval
  7  cancelled
  8  drifted: the world, or a changed definition, no longer agrees with the record (`runs replay`, `effects verify`)
  130  quit by a second Ctrl-C or SIGTERM; the first waits for what is under way";

#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, about = ABOUT, long_about = LONG_ABOUT, after_long_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    /// The config file [default: ./counterfoil.yaml]
    #[arg(long, short = 'c', global = true, env = "COUNTERFOIL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The ledger, instead of the one the config names: sqlite:FILE, postgres://…, redis://… or memory:
    #[arg(long, global = true, env = "COUNTERFOIL_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Where the key that signs heads and bundles is kept [default: .counterfoil/keys beside the config]
    #[arg(long, global = true, env = "COUNTERFOIL_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Print JSON on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// What to log to stderr: a level, or a level and a format (info,json)
    #[arg(long, global = true, env = "COUNTERFOIL_LOG", value_enum, value_delimiter = ',', default_value = "warn", value_name = "LEVEL")]
    pub log: Vec<Log>,
    /// How to log: lines for people, or one JSON object per line
    #[arg(long, global = true, env = "COUNTERFOIL_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// A word of `--log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Log {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Json,
    Pretty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Pretty,
    Json,
}

impl Global {
    /// The level that was named last, or `warn`.
    pub fn log_level(&self) -> &'static str {
        let level = |word: &Log| match word {
            Log::Off => Some("off"),
            Log::Error => Some("error"),
            Log::Warn => Some("warn"),
            Log::Info => Some("info"),
            Log::Debug => Some("debug"),
            Log::Json | Log::Pretty => None,
        };
        self.log.iter().rev().find_map(level).unwrap_or("warn")
    }

    /// The format of `--log-format`, or the one that `--log` named last, or the one for people.
    pub fn log_format(&self) -> LogFormat {
        let format = |word: &Log| match word {
            Log::Json => Some(LogFormat::Json),
            Log::Pretty => Some(LogFormat::Pretty),
            _ => None,
        };
        self.log_format.or_else(|| self.log.iter().rev().find_map(format)).unwrap_or(LogFormat::Pretty)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a payment that is made once although the process was killed in the middle
    #[command(
        long_about = "Starts a small bank (a real HTTP server in a child process that counts charges), lets an agent-like loop charge a card, kills the \
                            worker with SIGKILL between the charge and the record, restarts it, and shows how the doubt is settled by asking the bank. Then \
                            does the same with a loop that just retries. Needs no config and no network; everything lives in a temporary folder."
    )]
    Demo(DemoArgs),
    /// Write a commented counterfoil.yaml to start from
    Init(InitArgs),
    /// Ask for a side effect: once, whatever happens
    #[command(after_long_help = CALL_EXAMPLES)]
    Call(CallArgs),
    /// Serve the HTTP API, and work off what is due
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Run a workflow to its end: what was done stays done, whatever happens to this process
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Runs: list, show, watch, cancel, resume, undo, signal, approve, fork
    Runs(RunsArgs),
    /// Workflow files: check, put, list, show
    Workflows(WorkflowsArgs),
    /// Workflows that run again and again: put, list, show, next, pause, resume, remove
    #[command(after_long_help = SCHEDULES_HELP)]
    Schedules(SchedulesArgs),
    /// The tools of the config: list, show, check
    Tools(ToolsArgs),
    /// What was done, what is in doubt, and what to do about it
    Effects(EffectsArgs),
    /// The breakers that keep calls away from dependencies that fail
    Breakers(BreakersArgs),
    /// Whether calls are enforced, shadowed or let through: show, set, reset
    #[command(after_long_help = MODE_HELP)]
    Mode(ModeArgs),
    /// Look once at everything that is due: lost workers, open doubts, approved calls, interrupted undos, runs
    Recover,
    /// Receipts, and evidence for those who were not there: list, show, verify, export, prove, seal
    #[command(after_long_help = RECEIPTS_EXAMPLES)]
    Receipts(ReceiptsArgs),
    /// The keys that heads and bundles are signed with: generate, show, rotate
    Keys(KeysArgs),
    /// The bearer tokens that callers over HTTP present: create, list, revoke
    #[command(after_long_help = TOKENS_EXAMPLES)]
    Tokens(TokensArgs),
    /// Look at the config, the ledger and this machine, and say what is wrong
    Doctor,
    /// Copy the ledger to a new file while programs use it
    Backup(BackupArgs),
    /// Move finished runs out of the ledger into a file; verify one, or restore it into a ledger of its own
    #[command(after_long_help = ARCHIVE_EXAMPLES, args_conflicts_with_subcommands = true)]
    Archive(ArchiveArgs),
    /// Make unreadable for ever what was recorded of a person: destroys the key of a subject
    #[command(after_long_help = ERASE_EXAMPLES)]
    Erase(EraseArgs),
    /// Whole ledgers: copy one to another store, check one
    #[command(after_long_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    /// Measure durable effects per second on this disk, beside the raw limit
    Bench(BenchArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

const SCHEDULES_HELP: &str = "\
A tick starts at most one run, whoever looks and whoever dies; its id is NAME@TICK, as in nightly@2026-11-16T09:00:00Z. Ticks are dealt with by
`counterfoil serve`, and once by each `counterfoil recover`.

Examples:
  counterfoil workflows put report.yaml
  counterfoil schedules put nightly --workflow report --cron '0 9 * * MON-FRI' --zone Europe/Berlin --input '{\"day\":\"${schedule.tick}\"}'
  counterfoil schedules next nightly
  counterfoil schedules pause nightly --why 'the bank is closed'";

const ARCHIVE_EXAMPLES: &str = "\
Nothing leaves the ledger before the file that holds it is whole on the disk and was read back. Killed anywhere, the same command goes on where it
stopped. What is left of an archived run answers as before: its keys are not free, `runs show` says where it went.

Examples:
  counterfoil archive --before 2026-10-01 -o runs-2026-q3.gz
  counterfoil archive --before 30d -o old.gz
  counterfoil archive verify old.gz
  counterfoil archive restore old.gz --into sqlite:old.db && counterfoil --store sqlite:old.db runs list";

const ERASE_EXAMPLES: &str = "\
Examples:
  counterfoil erase --subject cus_42
  counterfoil erase --subject cus_42 --yes --by ada --why 'asked for on 3 May'";

const MODE_HELP: &str = "\
  enforce  the ledger's word is law
  shadow   every call is let through; what would have been replayed, refused or held is logged and run unprotected
  off      everything is run, nothing is recorded

A switch is recorded with who and why, holds in every process within about a second, and survives restarts. For one tool, the first of these
that was said holds: switched for the tool, switched for all, mode of the tool in the config, mode at its top.

Examples:
  counterfoil mode set shadow --tool charge_card --why 'trying out the new key'
  counterfoil mode set off --i-accept-duplicates --why 'the disk of the ledger is being replaced'
  counterfoil mode reset --tool charge_card";

const FLUSH_EXAMPLES: &str = "\
Examples:
  counterfoil effects flush 2c661eb6 --why 'the customer wants it twice'
  counterfoil effects flush --tool charge_card --yes --why 'the test shop was emptied'

The next call with a flushed key is a new call, also with other arguments: it runs. What was recorded stays in the history. Only what has
ended for certain can be flushed: a doubt must be resolved first.";

const CALL_EXAMPLES: &str = "\
Examples:
  counterfoil call write_note --args '{\"name\":\"hello\",\"text\":\"hi\"}' --key note-1
  counterfoil call write_note --args @note.json --run trip-7 --step notes
  echo '{\"name\":\"a\",\"text\":\"b\"}' | counterfoil call write_note --args -

The same key with the same arguments gives the recorded answer and touches nothing; with other arguments it is refused.
Within a run (--run), equal calls of one step are one call. With neither key nor run each call is a new one.";

const SERVE_EXAMPLES: &str = "\
Examples:
  counterfoil serve
  curl -s localhost:7700/v1/tools
  curl -s localhost:7700/v1/tools/write_note/call -H 'Idempotency-Key: note-1' -H 'Content-Type: application/json' \\
       -d '{\"args\":{\"name\":\"hello\",\"text\":\"hi\"}}'

Without any token the server answers on loopback only, and everyone who can reach it may do everything. The first SIGTERM or Ctrl-C stops
accepting and finishes what is under way; the second quits at once.";

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "ADDRESS:PORT")]
    pub listen: std::net::SocketAddr,
    /// A name that this server answers to, beside localhost and addresses (several: a,b)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub host: Vec<String>,
    /// How long what is under way may take to finish on shutdown, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub grace: u64,
    /// How long the answers to requests with an Idempotency-Key are kept, in seconds
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub retain_answers: u64,
    /// How many such answers may be kept at a time; more requests are refused, none is forgotten early
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub requests_max: usize,
    /// How long the head of a request may take to arrive, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub head_timeout: u64,
    /// The same for its body
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub body_timeout: u64,
}
const TOKENS_EXAMPLES: &str = "\
Examples:
  counterfoil tokens create --caller support-agent
  counterfoil tokens create --caller on-call --rights operate --expires 30d --label 'Ada, nights'
  counterfoil tokens list
  counterfoil tokens revoke 3f9a

The ledger keeps only a digest of each token. A server on the same ledger may be running:
it knows a new token at once, and a revoked one within a second.
To rotate: create the new one, hand it over, revoke the old one.";

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Keep the temporary folder with the ledger, and print where it is
    #[arg(long)]
    pub keep: bool,
    /// What the demo's own child processes do (used by the demo itself)
    #[arg(long, hide = true, value_enum, value_name = "PART")]
    pub part: Option<DemoPart>,
    #[arg(long, hide = true, requires = "part", value_name = "URL")]
    pub bank: Option<String>,
    #[arg(long, hide = true, requires = "part", value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoPart {
    /// Counts charges until its parent ends
    Bank,
    /// The agent, with Counterfoil
    Worker,
    /// The same agent, without
    Plain,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Where to write it
    #[arg(default_value = "counterfoil.yaml")]
    pub file: PathBuf,
    /// Overwrite a file that is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool's name
    pub tool: String,
    /// The arguments as JSON; @FILE reads a file, - reads stdin
    #[arg(long, short = 'a', default_value = "{}", value_name = "JSON")]
    pub args: String,
    /// Your own key for this call: 1 to 255 printable ASCII characters
    #[arg(long, short = 'k')]
    pub key: Option<String>,
    /// The run this call belongs to
    #[arg(long)]
    pub run: Option<String>,
    /// Where in the run it stands
    #[arg(long, requires = "run")]
    pub step: Option<String>,
    /// Tells apart equal calls of one step that are meant to be two
    #[arg(long, default_value_t = 0, requires = "run", value_name = "N")]
    pub ordinal: u32,
    /// Who asks
    #[arg(long, default_value = "cli")]
    pub caller: String,
}

#[derive(Debug, Args)]
pub struct ToolsArgs {
    #[command(subcommand)]
    pub command: ToolsCommand,
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// All tools with their effect class and whether they may be repeated
    List,
    /// One tool with its policy
    Show { tool: String },
    /// Check the config: every mistake at once, with line and suggestion
    Check,
}

const RUN_EXAMPLES: &str = "\
Examples:
  counterfoil run trip.yaml --input '{\"customer\":\"ada\"}'
  counterfoil run trip.yaml --input @order.json --run order-7      the same id again is the same run
  counterfoil run book-trip --input '{…}' --detach                 a workflow that was put; leave it to a worker

Ctrl-C leaves the run where it is; `counterfoil runs resume RUN` goes on with it.";

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A workflow file, or the name of a workflow that was put
    pub workflow: String,
    /// The input: JSON, @FILE, or - for standard input
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub input: String,
    /// The run's id: the same id with the same workflow and input is the same run [default: a new one]
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Who asks
    #[arg(long, env = "COUNTERFOIL_CALLER", default_value = "cli")]
    pub caller: String,
    /// Only start it: a worker (`counterfoil serve`) goes on with it
    #[arg(long)]
    pub detach: bool,
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    #[command(subcommand)]
    pub command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Runs by state, newest first
    List(RunsListArgs),
    /// One run, its steps drawn as a tree
    Show {
        run: String,
        /// Every recorded entry instead
        #[arg(long)]
        entries: bool,
        /// Only the entries of this name, as in compensation_failed (or COMPENSATION_FAILED)
        #[arg(long, value_name = "NAME")]
        entry: Option<String>,
    },
    /// Follow a run until it has ended, without working on it
    Watch { run: String },
    /// Go on with a run, to its end; what it did is held against the world first
    Resume { run: String },
    /// Hold what a run did against the world, dry: calls no tool, records nothing; of any run, also long after it ended
    #[command(after_long_help = REPLAY_HELP)]
    Replay {
        run: String,
        /// Also hold its record against this workflow file
        #[arg(long, value_name = "FILE")]
        workflow: Option<PathBuf>,
    },
    /// Decide about a run that waits because the world no longer agrees with what it did, or could not be asked
    Confirm(RunsConfirmArgs),
    /// Stop a run, or one step of it with all that is inside
    Cancel(RunsCancelArgs),
    /// Undo what a run did, newest first; what could not be undone before is tried again
    Undo(RunsUndoArgs),
    /// Say that a step which could not be undone is dealt with
    Skip(RunsStepArgs),
    /// Give a run a signal that a step of it waits for
    Signal(RunsSignalArgs),
    /// Say yes to a step that waits for approval
    Approve(RunsStepArgs),
    /// Say no to a step that waits for approval
    Deny(RunsStepArgs),
    /// A new run with what another one did before a step; it goes on from there by itself
    Fork(RunsForkArgs),
}

const REPLAY_HELP: &str = "\
Every recorded step, with what is found: recorded (nothing to ask about), verified, drifted (with what was expected and what was found), unverified (no
verifier, or nothing to compare), in_doubt (it is not known whether it happened), unavailable (it could not be asked), undone.

With --workflow the record is followed by that plan as well: the first step where they part is named, and where the record ends, what the plan goes on
with (log exhausted, which is no divergence).

Exit code 0: all agree, or are unverified. 5: something could not be asked, or is in doubt. 8: the world has drifted, or the definition diverges.";

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("decision").required(true))]
pub struct RunsConfirmArgs {
    pub run: String,
    /// Go on as recorded, whatever the world says
    #[arg(long, group = "decision")]
    pub accept: bool,
    /// The run fails; what it did is undone, but for what has drifted
    #[arg(long, group = "decision")]
    pub fail: bool,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct RunsListArgs {
    /// running, waiting, cancelling, compensating, completed, failed, cancelled, compensated, compensation_failed
    #[arg(long)]
    pub state: Vec<String>,
    /// Only runs of this workflow
    #[arg(long)]
    pub workflow: Option<String>,
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
    /// Continue below this position
    #[arg(long)]
    pub below: Option<u64>,
}

#[derive(Debug, Args)]
pub struct RunsCancelArgs {
    pub run: String,
    /// Only this step, with all that is inside it
    #[arg(long)]
    pub step: Option<String>,
    /// Undo what was done
    #[arg(long)]
    pub undo: bool,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct RunsUndoArgs {
    pub run: String,
    /// Only what was done from this step on
    #[arg(long, value_name = "STEP")]
    pub from: Option<String>,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct RunsStepArgs {
    pub run: String,
    /// As `runs show` names it
    pub step: String,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct RunsSignalArgs {
    pub run: String,
    /// The signal's name
    pub name: String,
    /// What it carries: JSON, @FILE, or - for standard input
    #[arg(long, default_value = "null", value_name = "JSON")]
    pub payload: String,
    #[arg(long)]
    pub correlation: Option<String>,
    /// The same id again is the same signal [default: a new one]
    #[arg(long)]
    pub id: Option<String>,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct RunsForkArgs {
    pub run: String,
    /// The first step that the new run does itself
    #[arg(long, value_name = "STEP")]
    pub at: String,
    /// The new run's id [default: a new one]
    #[arg(long = "as", value_name = "ID")]
    pub new: Option<String>,
    #[command(flatten)]
    pub go: GoOnArgs,
}

#[derive(Debug, Args)]
pub struct GoOnArgs {
    /// Only say it: a worker (`counterfoil serve`) acts on it
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct WorkflowsArgs {
    #[command(subcommand)]
    pub command: WorkflowsCommand,
}

#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    /// Read files and report every mistake, with its line
    Check { files: Vec<PathBuf> },
    /// Keep a workflow in the ledger under its name: `run NAME` and `call` steps find it there
    Put {
        file: PathBuf,
        #[command(flatten)]
        who: WhoArgs,
    },
    /// The workflows that were put
    List,
    /// The text of a workflow that was put
    Show { name: String },
    /// The JSON Schema of workflow files, for editors
    Schema,
}

const VERIFY_HELP: &str = "\
Asks by the `verify` of its tool; file tools look at the file without one.

Exit code 0: it agrees (verified), or there is nothing to ask (unverified). 5: it could not be asked (unavailable), or it is in doubt whether it
happened. 8: the world has drifted; what was expected and what was found is printed.";

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// Who: what the `subject` of a tool or a workflow gives for them
    #[arg(long, value_name = "S")]
    pub subject: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    #[command(subcommand)]
    pub command: Option<ArchiveCommand>,
    #[command(flatten)]
    pub make: Option<ArchiveMakeArgs>,
}

#[derive(Debug, Args)]
pub struct ArchiveMakeArgs {
    /// Runs that ended before this: a day (2026-10-01, UTC), a time (2026-10-01T06:00:00Z) or an age (30d)
    #[arg(long, value_name = "DATE")]
    pub before: String,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Who decides this; ends up in the ledger
    #[arg(long, env = "COUNTERFOIL_OPERATOR", default_value = "operator")]
    pub by: String,
}

#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Read an archive to its end: every digest, every receipt, every run. Needs no ledger
    Verify { file: PathBuf },
    /// Bring archived runs into a ledger of their own
    Restore {
        file: PathBuf,
        /// The ledger: sqlite:FILE, postgres://… or redis://…
        #[arg(long, value_name = "URL")]
        into: String,
        /// Only this run
        #[arg(long)]
        run: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct SchedulesArgs {
    #[command(subcommand)]
    pub command: SchedulesCommand,
}

#[derive(Debug, Subcommand)]
pub enum SchedulesCommand {
    /// Make a schedule, or give one other terms
    Put(SchedulesPutArgs),
    /// All schedules, with their next ticks
    List,
    /// One schedule, with what became of its last tick
    Show { name: String },
    /// When a schedule, or an expression, comes next
    Next(SchedulesNextArgs),
    /// Let no tick happen until it is resumed
    Pause(SchedulesTellArgs),
    /// Let ticks happen again, from now on
    Resume(SchedulesTellArgs),
    /// End a schedule; its runs stay
    Remove(SchedulesTellArgs),
}

#[derive(Debug, Args)]
pub struct SchedulesPutArgs {
    pub name: String,
    /// The name of a workflow that was put
    #[arg(long)]
    pub workflow: String,
    /// Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly
    #[arg(long)]
    pub cron: String,
    /// Whose clock: a name of the time zone database
    #[arg(long, default_value = "UTC")]
    pub zone: String,
    /// Given to each run: JSON, @FILE or - (stdin); ${schedule.tick} and ${schedule.name} are filled in
    #[arg(long, default_value = "{}")]
    pub input: String,
    /// Ticks that nobody was there for: none of them runs, the last, or all
    #[arg(long, value_name = "none|last|all", default_value = "last")]
    pub catch_up: String,
    /// A tick that is seen later than this is left out [default: 1m with none, 24h with all, no limit with last]
    #[arg(long, value_name = "DURATION")]
    pub within: Option<String>,
    /// A tick while the run before has not ended: it is left out, it waits, or both run
    #[arg(long, value_name = "skip|wait|allow", default_value = "skip")]
    pub overlap: String,
    /// Who decides this; ends up in the ledger
    #[arg(long, env = "COUNTERFOIL_OPERATOR", default_value = "operator")]
    pub by: String,
}

#[derive(Debug, Args)]
pub struct SchedulesNextArgs {
    /// A schedule that there is
    #[arg(required_unless_present = "cron", conflicts_with = "cron")]
    pub name: Option<String>,
    /// Or an expression
    #[arg(long)]
    pub cron: Option<String>,
    #[arg(long, default_value = "UTC", requires = "cron")]
    pub zone: String,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
}

#[derive(Debug, Args)]
pub struct SchedulesTellArgs {
    pub name: String,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct EffectsArgs {
    #[command(subcommand)]
    pub command: EffectsCommand,
}

#[derive(Debug, Subcommand)]
pub enum EffectsCommand {
    /// Effects by state, tool or run, newest first; `--state in_doubt` is the operator's inbox
    List(ListArgs),
    /// One effect with its whole history
    Show {
        /// 64 hex digits, or the first 8 or more; or TOOL/KEY, as in charge_card/order-7
        key: String,
    },
    /// Ask whether the world still agrees with what was done; calls no tool, records nothing
    #[command(after_long_help = VERIFY_HELP)]
    Verify {
        /// 64 hex digits, or the first 8 or more; or TOOL/KEY, as in charge_card/order-7
        key: String,
    },
    /// Close a doubt: say what happened in the world
    Resolve(ResolveArgs),
    /// Try a failed effect again, now
    Retry(OperateArgs),
    /// Stop an effect that has not ended
    Cancel(OperateArgs),
    /// Undo what was done, by the call that was worked out when it was done
    Undo(OperateArgs),
    /// Let a call that waits for approval run, and run it
    Approve(OperateArgs),
    /// Refuse a call that waits for approval
    Deny(OperateArgs),
    /// Free the key of a finished effect, or of all finished effects of a tool: the next call with it runs
    #[command(after_long_help = FLUSH_EXAMPLES)]
    Flush(FlushArgs),
    /// Drop finished effects whose time is over, leaving tombstones
    Prune,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// in_doubt, running, done, failed, retrying, waiting_approval, cancelled, undoing, undone, undo_failed, ready, flushed (several: a,b)
    #[arg(long, value_delimiter = ',')]
    pub state: Vec<String>,
    #[arg(long)]
    pub tool: Option<String>,
    #[arg(long)]
    pub run: Option<String>,
    /// Only those that last changed longer ago than this, e.g. 10m, 2h, 7d
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<String>,
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
    /// Go on where the last page ended (its `next`)
    #[arg(long, value_name = "POSITION")]
    pub below: Option<u64>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("verdict").required(true))]
pub struct ResolveArgs {
    /// 64 hex digits, or the first 8 or more; or TOOL/KEY, as in charge_card/order-7
    pub key: String,
    /// It happened: the key answers from now on
    #[arg(long, group = "verdict")]
    pub happened: bool,
    /// What the world answered, as JSON (with --happened)
    #[arg(long, value_name = "JSON", default_value = "null", requires = "happened")]
    pub result: String,
    /// It did not happen: the same key may run again
    #[arg(long, group = "verdict")]
    pub did_not_happen: bool,
    /// It did not happen and shall not: the effect ends failed
    #[arg(long, group = "verdict")]
    pub give_up: bool,
    /// It happened and shall not have: record it as done, then undo it
    #[arg(long, group = "verdict")]
    pub undo: bool,
    /// Only if the doubt is still about this attempt: it may have been tried again since you looked
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct OperateArgs {
    /// 64 hex digits, or the first 8 or more; or TOOL/KEY, as in charge_card/order-7
    pub key: String,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct FlushArgs {
    /// 64 hex digits, or the first 8 or more; or TOOL/KEY, as in charge_card/order-7
    #[arg(group = "what")]
    pub key: Option<String>,
    /// All finished effects of this tool
    #[arg(long, group = "what")]
    pub tool: Option<String>,
    /// Really all of them: without it, it is only said how many they are
    #[arg(long, requires = "tool")]
    pub yes: bool,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct WhoArgs {
    /// Who decides this; ends up in the ledger
    #[arg(long, env = "COUNTERFOIL_OPERATOR", default_value = "operator")]
    pub by: String,
    /// Why; ends up in the ledger
    #[arg(long, default_value = "")]
    pub why: String,
}

#[derive(Debug, Args)]
pub struct BreakersArgs {
    #[command(subcommand)]
    pub command: BreakersCommand,
}

#[derive(Debug, Subcommand)]
pub enum BreakersCommand {
    /// The breaker of every tool
    List,
    /// Close a breaker now
    Reset { tool: String },
    /// Hold a breaker open until it is reset: nothing is sent to the tool
    Open {
        tool: String,
        #[arg(long, default_value = "opened by hand")]
        why: String,
    },
}

#[derive(Debug, Args)]
pub struct ModeArgs {
    #[command(subcommand)]
    pub command: ModeCommand,
}

#[derive(Debug, Subcommand)]
pub enum ModeCommand {
    /// The mode of all tools and of each, where it comes from, and who switched it
    Show,
    /// Switch the mode of one tool, or of all
    Set(ModeSetArgs),
    /// Go back to what the config says
    Reset {
        /// Of this tool only
        #[arg(long)]
        tool: Option<String>,
        #[command(flatten)]
        who: WhoArgs,
    },
}

#[derive(Debug, Args)]
pub struct ModeSetArgs {
    #[arg(value_enum)]
    pub mode: ModeWord,
    /// Of this tool only
    #[arg(long)]
    pub tool: Option<String>,
    /// Needed for off: without protection, duplicates happen
    #[arg(long)]
    pub i_accept_duplicates: bool,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeWord {
    Enforce,
    Shadow,
    Off,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Where to put the copy; there must be no such file
    pub file: PathBuf,
}

const STORE_EXAMPLES: &str = "\
Examples:
  counterfoil store copy sqlite:counterfoil.db 'postgres://me@localhost/app'
  counterfoil store copy 'redis://localhost:6379' sqlite:copy.db
  counterfoil store check
  counterfoil store check 'postgres://me@localhost/app?schema=counterfoil' --json

A store is sqlite:FILE, postgres://user:password@host:port/database?schema=NAME or redis://host:port/db?ledger=NAME.

To move a ledger: copy it while it is in use, stop everything that uses it, copy once more (that takes what came since), point `store:` of the
config at the new one, start again. From then on nothing may use the old one: it would not know what the new one did.";

const COPY_HELP: &str = "\
Copies every record in its order and every tombstone, then reads both sides again and compares them record by record. FROM is only read, and
may be in use: what is appended meanwhile is copied too. TO is made when it is not there. It must be empty, or hold what FROM began with: then
the copy goes on where it stopped, also after Ctrl-C or a crash. Anything else is refused with the first difference, and nothing is changed.

Prints the count and a digest over all records; `counterfoil store check` of either prints the same.";

const CHECK_HELP: &str = "\
Reads everything and changes nothing. Checked are: that every record can be read, that positions grow and that no stream has a gap, that a load
gives what the log has, that every effect folds and has the summary that is stored with it, that every receipt follows the one before and that what
it proves is there, that what is due and what searches find is what the records say, and that tombstones have no records.

Exit code 0: all of it holds. 1: each problem is printed with its place.";

#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy a whole ledger to another store, verified; goes on where it was stopped
    #[command(after_long_help = COPY_HELP)]
    Copy {
        /// The ledger to read
        from: String,
        /// Where to put it: a new store, or one in which this copy was begun
        to: String,
    },
    /// Verify every record, stream, effect, receipt, index and tombstone
    #[command(after_long_help = CHECK_HELP)]
    Check {
        /// The ledger to check [default: the config's]
        url: Option<String>,
        /// A public key that the newest head must be signed with, or one that it vouches for
        #[arg(long, value_name = "PUB")]
        key: Vec<String>,
        /// A head that was kept elsewhere: the ledger must still begin with what it is of
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct ReceiptsArgs {
    #[command(subcommand)]
    pub command: ReceiptsCommand,
}

const RECEIPTS_EXAMPLES: &str = "\
Examples:
  counterfoil receipts export trip-7 -o trip-7.evidence              all of a run, for whoever was not there
  counterfoil receipts verify trip-7.evidence --key 3d4017c3…        needs no ledger and no config, only that key
  counterfoil receipts prove RECEIPT -o receipt.proof                one receipt, and nothing else of the ledger
  counterfoil receipts seal -o head.json                             keep it elsewhere; later:
  counterfoil receipts verify --head head.json                       nothing was taken out of the ledger since

`counterfoil keys show` prints the public key that goes to whoever verifies.";

#[derive(Debug, Subcommand)]
pub enum ReceiptsCommand {
    /// The receipts of a run, of an effect, or of the calls outside runs, in order; a chain is verified on the way
    List(ReceiptsListArgs),
    /// One receipt in full, and whether it is under a head
    Show(ReceiptArgs),
    /// Verify a file of evidence; without one, the chains and the log of this ledger
    Verify(ReceiptsVerifyArgs),
    /// Write all that is recorded of a run, or of one effect, into one file that anyone can verify
    Export(ReceiptsExportArgs),
    /// Write one receipt with the proof that it is in the log, for a third party
    Prove(ReceiptsProveArgs),
    /// Put what is new under a signed head; `counterfoil serve` does so by itself
    Seal {
        /// Also write the newest head there, to be kept elsewhere
        #[arg(long, short = 'o', value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// The newest signed heads of the log
    Heads {
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Write the proof that the log of one head begins with that of an earlier one
    Consistency {
        /// The number of the earlier head
        old: u64,
        /// That of the later one [default: the newest]
        new: Option<u64>,
        /// Where to write it [default: standard output]
        #[arg(long, short = 'o', value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Which receipts.
#[derive(Debug, Args)]
pub struct ReceiptsOf {
    /// Of this run
    #[arg(long)]
    pub run: Option<String>,
    /// Of this effect: its 64 digits
    #[arg(long, value_name = "KEY")]
    pub effect: Option<String>,
    /// Of the call with this key of its caller's
    #[arg(long, value_name = "KEY", requires = "tool", conflicts_with = "effect")]
    pub key: Option<String>,
    /// The tool that the key was given to
    #[arg(long, requires = "key")]
    pub tool: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReceiptsListArgs {
    #[command(flatten)]
    pub of: ReceiptsOf,
    /// Only these: done, failed, cancelled, resolved_happened, …
    #[arg(long, value_delimiter = ',')]
    pub outcome: Vec<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

#[derive(Debug, Args)]
pub struct ReceiptArgs {
    /// Its id; with --run also its place in the run's chain: 1, 2, 3, …
    pub receipt: String,
    #[command(flatten)]
    pub of: ReceiptsOf,
}

#[derive(Debug, Args)]
pub struct ReceiptsVerifyArgs {
    /// A bundle, a proof of a receipt, or a proof of consistency
    pub file: Option<PathBuf>,
    /// A public key that you trust, as 64 hex digits or as a file with them; may be given several times
    #[arg(long, value_name = "PUB")]
    pub key: Vec<String>,
    /// Of this ledger: the chain of this run only, and the log
    #[arg(long, conflicts_with = "file")]
    pub run: Option<String>,
    /// Of this ledger: it must still begin with what this head is of (`receipts seal -o`)
    #[arg(long, conflicts_with = "file", value_name = "FILE")]
    pub head: Option<PathBuf>,
    /// Whether this receipt is of the call with --tool and --args, as they are stored
    #[arg(long, conflicts_with = "file", requires_all = ["tool", "args"], value_name = "ID")]
    pub receipt: Option<String>,
    /// The effect of that receipt, by which it is found at once
    #[arg(long, requires = "receipt", value_name = "KEY")]
    pub effect: Option<String>,
    #[arg(long, requires = "receipt")]
    pub tool: Option<String>,
    /// JSON, @FILE, or - for standard input
    #[arg(long, requires = "receipt", value_name = "JSON")]
    pub args: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ReceiptsExportOf {
    /// The run
    pub run: Option<String>,
    /// Of one effect instead: its 64 digits
    #[arg(long, value_name = "KEY")]
    pub effect: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReceiptsExportArgs {
    #[command(flatten)]
    pub of: ReceiptsExportOf,
    /// Where to write it [default: standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReceiptsProveArgs {
    #[command(flatten)]
    pub receipt: ReceiptArgs,
    /// Where to write it [default: standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make the first key of this ledger (whatever needs one makes it by itself)
    Generate,
    /// The public keys of this ledger, old and new: hand the newest to whoever verifies
    Show,
    /// Begin with a new key; what was signed with the old one stays valid
    Rotate {
        /// The private key is lost: nobody vouches for the new one
        #[arg(long)]
        lost: bool,
    },
}

#[derive(Debug, Args)]
pub struct TokensArgs {
    #[command(subcommand)]
    pub command: TokensCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token and print it: this once, and never again
    #[command(after_long_help = TOKENS_EXAMPLES)]
    Create(CreateTokenArgs),
    /// Every token, with its caller, its rights and whether it is still let in; never the secret
    List,
    /// End a token: from a second later on it is refused everywhere
    Revoke {
        /// Its id: 12 hex digits, or the first 4 or more
        id: String,
        #[command(flatten)]
        who: WhoArgs,
    },
}

#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// Whose effects it reaches [default: the config's tenant]
    #[arg(long)]
    pub tenant: Option<String>,
    /// Who its calls are from
    #[arg(long)]
    pub caller: String,
    /// call: ask for side effects; operate: also approve, resolve, retry, cancel, undo; admin: also change tools and modes (several: call,operate)
    #[arg(long, default_value = "call")]
    pub rights: String,
    /// What people call it
    #[arg(long)]
    pub label: Option<String>,
    /// How long it is let in, e.g. 12h, 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// How many requests are taken from it, e.g. 100/s, 1000/m [default: any number]
    #[arg(long)]
    pub rate: Option<String>,
    #[command(flatten)]
    pub who: WhoArgs,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Callers at once; several are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "N,…")]
    pub concurrency: Vec<usize>,
    /// How long each figure is measured
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Fill the ledger with this many effects first
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub fill: u64,
    /// Where to put the temporary ledger [default: a folder beside the current one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Measure the HTTP API beside the library: a server in a process of its own, and so many connections as --concurrency says
    #[arg(long)]
    pub http: bool,
    /// Measure what receipts cost: the same load with them and without, in turns
    #[arg(long, conflicts_with_all = ["http", "runs", "fill"])]
    pub receipts: bool,
    /// Measure runs: so many at once as --concurrency says, each of --steps steps
    #[arg(long, conflicts_with = "http")]
    pub runs: bool,
    /// Steps of each run
    #[arg(long, default_value_t = 10, requires = "runs")]
    pub steps: usize,
    /// Instead: what so many runs cost that sleep
    #[arg(long, value_name = "N", requires = "runs")]
    pub sleeping: Option<usize>,
    /// What the benchmark's own child process does (used by the benchmark itself)
    #[arg(long, hide = true)]
    pub part: Option<String>,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_and_how() {
        let check = |typed: &[&str], level: &str, format: LogFormat| {
            let cli = Cli::parse_from(["counterfoil"].iter().chain(typed).chain(&["doctor"]));
            assert_eq!((cli.global.log_level(), cli.global.log_format()), (level, format), "{typed:?}");
        };
        check(&[], "warn", LogFormat::Pretty);
        check(&["--log", "debug"], "debug", LogFormat::Pretty);
        check(&["--log", "json"], "warn", LogFormat::Json);
        check(&["--log", "pretty"], "warn", LogFormat::Pretty);
        check(&["--log", "info,json"], "info", LogFormat::Json);
        check(&["--log", "json", "--log", "info"], "info", LogFormat::Json);
        check(&["--log-format", "json"], "warn", LogFormat::Json);
        check(&["--log", "error,json", "--log-format", "pretty"], "error", LogFormat::Pretty);
        assert!(Cli::try_parse_from(["counterfoil", "--log", "loud", "doctor"]).is_err());
    }
}
