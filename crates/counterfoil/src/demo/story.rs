//! The plot: the same kill at the same moment, once with Counterfoil and once with a loop that just retries.
//!
//! Must stay true: whatever is said was observed. Counts come from the bank, states from the ledger, the rest from the workers; a story that goes
//! another way ends in an error that says where. There is no sleep in it: the bank holds its answer, says that a request has arrived, and the
//! worker is killed while the money is already booked.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use counterfoil::compose::{self, Volatile};
use counterfoil_core::ids::Digest32;
use counterfoil_core::{EffectKey, Tenant};
use counterfoil_runtime::Runtime;
use counterfoil_runtime::config::{Config, FILE_NAME};
use counterfoil_store::Query;
use serde::Serialize;

use super::agent::{CENTS, ORDER_GUARDED, ORDER_PLAIN, TOOL, Told};
use super::part::Part;
use super::screen::{Screen, Tone, money};
use super::teller::{Count, Teller};

/// As the demo's config names it.
pub const LEDGER: &str = "ledger.db";

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Of the bank, for the order that was paid through Counterfoil.
    pub charges_with: u64,
    /// Of the bank, for the order that was paid by retrying.
    pub charges_without: u64,
    pub cents_with: u64,
    pub cents_without: u64,
    pub effect: EffectKey,
    pub state_after_kill: String,
    pub state_before_probe: String,
    pub state_after_restart: String,
    /// The agent's second ask was answered from the record.
    pub replayed: bool,
    pub elapsed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
}

struct Stage<'a> {
    screen: &'a Screen,
    dir: PathBuf,
    teller: Teller,
}

pub async fn tell(screen: &Screen, dir: &Path) -> anyhow::Result<Report> {
    let mut bank = Part::start("bank", &[])?;
    let url = bank.line().await?;
    super::write_config(dir, &url)?;
    let stage = Stage { screen, dir: dir.to_owned(), teller: Teller::new(&url) };
    screen.begin(&url, dir);
    let guarded = stage.guarded().await?;
    let plain = stage.plain().await?;
    bank.dismiss().await?;
    Ok(Report { charges_without: plain.charges, cents_without: plain.cents, ..guarded })
}

impl Stage<'_> {
    async fn guarded(&self) -> anyhow::Result<Report> {
        self.screen.act("With Counterfoil");
        let say = async |tone, text| self.say(ORDER_GUARDED, tone, text).await;
        let before = self.teller.count(ORDER_GUARDED).await?;
        let seen = self.teller.hold().await?;
        let mut worker = self.worker("worker")?;
        let call = asks(worker.told().await?)?;
        let request = self.arrival(seen, &mut worker).await?;
        ensure!(request == "POST /charges", "the worker's first request was {request}");
        let ledger = Ledger::open(&self.dir).await?;
        let (effect, claimed) = ledger.only_effect().await?;
        self.screen.line(Tone::Plain, &format!("The agent asks for {TOOL}, {ORDER_GUARDED}, as {call}."), before);
        say(Tone::Plain, format!("The ledger notes the claim: {claimed}. The bank takes {}.", money(CENTS))).await?;
        let pid = worker.pid();
        worker.kill().await?;
        say(Tone::Bad, format!("kill -9 {pid}: the worker dies before it can note the answer.")).await?;
        let (_, state_after_kill) = ledger.only_effect().await?;
        say(Tone::Plain, format!("All that is left is the claim. The ledger says: {state_after_kill}.")).await?;

        let seen = self.teller.hold().await?;
        let mut worker = self.worker("worker")?;
        let request = self.arrival(seen, &mut worker).await?;
        let (_, state_before_probe) = ledger.only_effect().await?;
        ensure!(state_before_probe == "in_doubt", "after the restart the effect is {state_before_probe}, not in_doubt");
        ensure!(request == format!("GET /charges?key={effect}"), "the new worker's first request was {request}");
        say(Tone::Plain, format!("A new worker ({}) finds the claim of one that is gone.", worker.pid())).await?;
        say(Tone::Doubt, format!("Was it charged? The ledger cannot know, and says so: {state_before_probe}.")).await?;
        say(Tone::Plain, format!("No guess: it asks the bank. GET /charges?key={}…", &effect.to_string()[..8])).await?;
        self.teller.release().await?;
        let Told::Recovered { now: settled, .. } = worker.told().await? else { bail!("the new worker recovered nothing") };
        let call = asks(worker.told().await?)?;
        let Told::Answered { charge, replayed } = worker.told().await? else { bail!("the agent's second ask was not answered") };
        worker.finish().await?;
        let (_, state_after_restart) = ledger.only_effect().await?;
        ensure!(settled == "done" && state_after_restart == "done", "the doubt was settled as {settled}, then {state_after_restart}");
        ensure!(replayed, "the agent's second ask was not answered from the record");
        say(Tone::Good, format!("The bank has it: {charge}. The effect is {state_after_restart}, with a receipt.")).await?;
        say(Tone::Plain, format!("The agent remembers nothing and asks again, as {call}.")).await?;
        let count = say(Tone::Good, format!("It is answered {charge}, from the record. Nothing is sent.")).await?;
        Ok(Report {
            charges_with: count.charges,
            cents_with: count.cents,
            charges_without: 0,
            cents_without: 0,
            effect,
            state_after_kill,
            state_before_probe,
            state_after_restart,
            replayed,
            elapsed_ms: 0,
            ledger: None,
        })
    }

    async fn plain(&self) -> anyhow::Result<Count> {
        self.screen.act("Just retry");
        let say = async |tone, text| self.say(ORDER_PLAIN, tone, text).await;
        let before = self.teller.count(ORDER_PLAIN).await?;
        let seen = self.teller.hold().await?;
        let mut worker = self.worker("plain")?;
        let call = asks(worker.told().await?)?;
        let request = self.arrival(seen, &mut worker).await?;
        ensure!(request == "POST /charges", "the plain worker's first request was {request}");
        self.screen.line(Tone::Plain, &format!("The same agent, no ledger: {ORDER_PLAIN}, as {call}."), before);
        say(Tone::Plain, format!("The bank takes {}.", money(CENTS))).await?;
        let pid = worker.pid();
        worker.kill().await?;
        let before = say(Tone::Bad, format!("kill -9 {pid}: the worker dies before it can note the answer.")).await?;

        self.teller.release().await?;
        let mut worker = self.worker("plain")?;
        let call = asks(worker.told().await?)?;
        let Told::Answered { charge, .. } = worker.told().await? else { bail!("the plain worker's retry was not answered") };
        worker.finish().await?;
        self.screen.line(Tone::Plain, &format!("A new worker finds no note, and tries again, as {call}."), before);
        say(Tone::Bad, format!("The bank takes {} again: {charge}.", money(CENTS))).await
    }

    /// A line of the story, with what the bank counts for the order at this moment.
    async fn say(&self, order: &str, tone: Tone, text: String) -> anyhow::Result<Count> {
        let count = self.teller.count(order).await?;
        self.screen.line(tone, &text, count);
        Ok(count)
    }

    fn worker(&self, part: &'static str) -> anyhow::Result<Part> {
        Part::start(part, &["--dir".as_ref(), self.dir.as_os_str(), "--bank".as_ref(), self.teller.url().as_ref()])
    }

    /// The next request at the bank. A worker that says something or ends instead has missed its cue.
    async fn arrival(&self, seen: u64, worker: &mut Part) -> anyhow::Result<String> {
        tokio::select! {
            arrived = self.teller.arrival(seen) => arrived,
            told = worker.told() => bail!("instead of asking the bank, the worker said {:?}", told?),
        }
    }
}

fn asks(told: Told) -> anyhow::Result<String> {
    match told {
        Told::Asks { call } => Ok(call),
        other => bail!("instead of making its call, the worker said {other:?}"),
    }
}

/// The ledger as an operator sees it: opened beside the workers, only looked at.
struct Ledger {
    runtime: Runtime,
    tenant: Tenant,
}

impl Ledger {
    async fn open(dir: &Path) -> anyhow::Result<Self> {
        let config = Config::load(dir.join(FILE_NAME))?;
        let opened = compose::open_store(&config.store, Volatile::Refused).await?;
        Ok(Self { runtime: compose::runtime(&opened, &config)?, tenant: config.tenant })
    }

    async fn only_effect(&self) -> anyhow::Result<(EffectKey, String)> {
        let page = self.runtime.ledger().search(Query::effects(self.tenant.clone())).await?;
        let [found] = &page.found[..] else { bail!("the ledger holds {} effects, not one", page.found.len()) };
        let key = Digest32(found.stream.0);
        let effect = self.runtime.effect(key).await.context("the effect that was listed cannot be read")?;
        Ok((key, effect.state.word().to_owned()))
    }
}
