//! The demo's agent: a loop that wants one order paid, and asks again after every restart. It runs in a process of its own, to be killed.
//!
//! Two loops, the same but for one thing. `guarded` asks Counterfoil. `plain` asks the bank and then makes a note that it did, as most code
//! does; the kill falls between the two. Like a model, both give every tool call a fresh id. What happens is told to the demo, a JSON line each.

use std::path::Path;

use anyhow::{Context, bail};
use counterfoil::compose::{self, Volatile};
use counterfoil_runtime::Status;
use counterfoil_runtime::config::{Config, FILE_NAME};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::teller::Teller;
use crate::output;

pub const TOOL: &str = "charge_card";
pub const CUSTOMER: &str = "ada";
pub const CENTS: u64 = 1999;
pub const ORDER_GUARDED: &str = "order-1001";
pub const ORDER_PLAIN: &str = "order-1002";
/// The plain loop's record of what it has done.
const NOTES: &str = "notes.json";

/// What a worker tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The agent makes a tool call under this id.
    Asks {
        call: String,
    },
    /// Before any call: recovery ended an effect that an earlier worker left.
    Recovered {
        was: String,
        now: String,
    },
    Answered {
        charge: String,
        replayed: bool,
    },
}

fn tell(told: &Told) {
    output::json(told);
}

pub async fn guarded(dir: &Path) -> anyhow::Result<()> {
    let config = Config::load(dir.join(FILE_NAME))?;
    let opened = compose::open_store(&config.store, Volatile::Refused).await?;
    let runtime = compose::runtime(&opened, &config)?;
    for one in runtime.recover().await? {
        let now = runtime.effect(one.key).await?.state.word().to_owned();
        tell(&Told::Recovered { was: one.was.to_owned(), now });
    }
    tell(&Told::Asks { call: call_id() });
    let args = json!({ "order_id": ORDER_GUARDED, "customer": CUSTOMER, "cents": CENTS });
    let call = counterfoil::call(TOOL, args)?.caller("agent")?.tenant(config.tenant.as_str())?;
    let answer = runtime.call(call.build()).await;
    match (answer.status, &answer.data) {
        (Status::Success, Some(data)) => {
            let charge = charge_id(&serde_json::from_str(data.as_str())?)?;
            tell(&Told::Answered { charge, replayed: answer.replayed });
            Ok(())
        }
        _ => bail!("{TOOL} was answered {}", serde_json::to_string(&answer)?),
    }
}

pub async fn plain(dir: &Path, bank: &str) -> anyhow::Result<()> {
    let notes = dir.join(NOTES);
    if notes.exists() {
        bail!("{} says that the order is paid: there is nothing left to kill", notes.display());
    }
    let call = call_id();
    tell(&Told::Asks { call: call.clone() });
    let order = json!({ "order": ORDER_PLAIN, "customer": CUSTOMER, "cents": CENTS });
    let charge = Teller::new(bank).send(Method::POST, "/charges", Some(&call), order).await?;
    std::fs::write(&notes, charge.to_string()).with_context(|| format!("{} cannot be written", notes.display()))?;
    tell(&Told::Answered { charge: charge_id(&charge)?, replayed: false });
    Ok(())
}

fn charge_id(charge: &Value) -> anyhow::Result<String> {
    charge["id"].as_str().map(str::to_owned).with_context(|| format!("the bank's charge has no id: {charge}"))
}

/// New each time, as a model makes them. The process and the moment are enough: one process asks once.
fn call_id() -> String {
    let now = jiff::Timestamp::now().as_microsecond().unsigned_abs();
    let mixed = (now ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("call_{:08x}", mixed >> 32)
}
