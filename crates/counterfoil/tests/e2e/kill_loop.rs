//! A-35. Hundreds of kills at random moments on one ledger.
//!
//! A worker makes calls of three kinds: `never` (may not be repeated), `probed` (may be asked about) and `keyed` (honours our key). It is killed,
//! mostly at an event: when it opened the ledger, after so many acknowledgements, while the world holds a request before or after acting. The
//! next worker recovers, goes on with what was not acknowledged, and is killed in turn. In the end the world is compared with what was
//! acknowledged, call by call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use counterfoil::prelude::*;
use serde_json::{Value, json};

use crate::lab::{EXIT_DONE, Lab, all_at_once, library_call};
use crate::parts::Part;
use crate::report::{Fault, Row};
use crate::worker::{CONFIG, KEYS};
use crate::workers::Kind;
use crate::world::Seen;

const ROUNDS: u64 = 200;
/// New calls in each round.
const CALLS: u64 = 6;
pub const TOOLS: [&str; 3] = ["never", "probed", "keyed"];

const CONFIG_TEXT: &str = r#"
tools:
  never:
    http: { method: POST, url: "WORLD/never", json: "${args}" }
  probed:
    http: { method: POST, url: "WORLD/probed", json: "${args}" }
    settle_after: 0ms
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
  keyed:
    http: { method: POST, url: "WORLD/keyed", json: "${args}" }
    repeat: keyed
"#;

/// A small generator of its own: the same seed is the same run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// When a worker dies.
#[derive(Debug)]
enum Moment {
    /// As soon as it opened the ledger: while it recovers.
    Open,
    /// After so many acknowledgements.
    Acked(u64),
    /// While the world holds a request of this tool, before or after it acted.
    Held { tool: &'static str, acted: bool, after: u64 },
    /// After so many microseconds from its start: anywhere.
    Elapsed(u64),
}

pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// What the worker said of each call that it answered.
pub type Acked = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread")]
async fn a_35_hundreds_of_kills_double_nothing_and_lose_nothing() {
    let rounds = variable("COUNTERFOIL_KILL_ROUNDS", ROUNDS);
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed} COUNTERFOIL_KILL_ROUNDS={rounds}");
    let mut dice = Dice(seed | 1);
    let lab = Lab::new(CONFIG_TEXT);
    lab.world.then("/keyed", json!({ "dedupe": true }));
    let mut acked = Acked::new();
    let mut all: Vec<String> = Vec::new();
    for round in 0..rounds {
        let begins = all.len();
        all.extend((0..CALLS).map(|n| format!("{}-{round}-{n}", TOOLS[dice.roll(3) as usize])));
        // Some of what earlier workers left unanswered is asked for again.
        let left: Vec<&String> = all[..begins].iter().filter(|key| !acked.contains_key(*key)).collect();
        let mut keys: Vec<String> = (0..3.min(left.len())).map(|_| left[dice.roll(left.len() as u64) as usize].clone()).collect();
        keys.extend_from_slice(&all[begins..]);
        let moment = match dice.roll(8) {
            0 => Moment::Open,
            1 | 2 => Moment::Acked(dice.roll(CALLS)),
            3 => Moment::Elapsed(dice.roll(60_000)),
            n => {
                let tool = TOOLS[dice.roll(3) as usize];
                // Only what is surely called can be waited for.
                let surely = all[begins..].iter().filter(|key| key.starts_with(tool)).count() as u64;
                if surely == 0 { Moment::Acked(1) } else { Moment::Held { tool, acted: n % 2 == 0, after: dice.roll(surely) } }
            }
        };
        run_and_kill(&lab, &keys, &moment, &mut acked);
    }
    audit(&lab, &all, &acked, Row { rounds, ..Row::new(Fault::WorkersKilled, Kind::Sqlite) }).await;
}

/// One worker's life. Whatever it acknowledged before it died counts, also what is read only after its death.
fn run_and_kill(lab: &Lab, keys: &[String], moment: &Moment, acked: &mut Acked) {
    if let Moment::Held { tool, acted, after } = moment {
        let dedupe = *tool == "keyed";
        let held = json!({ "before": !acted, "after": acted, "dedupe": dedupe });
        let mut next = vec![json!({ "dedupe": dedupe }); *after as usize];
        next.push(held.clone());
        lab.world.rules(&format!("/{tool}"), json!({ "next": next, "then": held }));
    }
    let config = lab.path("counterfoil.yaml");
    let mut worker = Part::start("worker", &[(CONFIG, config.to_str().unwrap()), (KEYS, &keys.join(","))]);
    let mut note = |said: &str| {
        let mut words = said.splitn(4, ' ');
        if let (Some("ack"), Some(key), Some(status), Some(data)) = (words.next(), words.next(), words.next(), words.next())
            && status == "success"
        {
            let before = acked.insert(key.to_owned(), data.to_owned());
            assert!(before.is_none_or(|before| before == data), "{key} was answered twice, and differently");
        }
        said.starts_with("ack")
    };
    match moment {
        Moment::Elapsed(micros) => std::thread::sleep(std::time::Duration::from_micros(*micros)),
        Moment::Open => assert_eq!(worker.hear().as_deref(), Some("open")),
        Moment::Acked(n) => {
            let mut heard = 0;
            while heard < *n {
                heard += u64::from(note(&worker.hear().expect("it lives until it is killed")));
            }
        }
        Moment::Held { tool, .. } => {
            lab.world.wait_holding(&format!("/{tool}"), 1);
        }
    }
    worker.process.kill();
    while let Some(said) = worker.hear() {
        note(&said);
    }
    match moment {
        Moment::Held { tool, acted: true, .. } => lab.world.release(&format!("/{tool}")),
        // A request that is held before it acts would act now: the world drops it instead, as a server does that went down.
        Moment::Held { tool, acted: false, .. } => lab.world.drop_held(&format!("/{tool}")),
        _ => {}
    }
    // What the dead worker still had on its way acts before anyone asks about it: that is what `settle_after` is for in real life.
    lab.world.wait_quiet();
    if let Moment::Held { tool, .. } = moment {
        lab.world.then(&format!("/{tool}"), json!({ "dedupe": *tool == "keyed" }));
    }
}

/// Settles everything, and compares the world with what was acknowledged.
pub async fn audit(lab: &Lab, all: &[String], acked: &Acked, mut row: Row) {
    let recovered = lab.json(&["recover"]);
    assert_eq!(recovered.code, EXIT_DONE, "{recovered:?}");
    assert_eq!(lab.listed("running"), Vec::<Value>::new(), "nothing is stuck");
    let worlds: BTreeMap<&str, Seen> = TOOLS.into_iter().map(|tool| (tool, lab.world.seen(&format!("/{tool}")))).collect();
    let acted = |key: &str, effect: &str| {
        let tool = key.split('-').next().expect("a key begins with its tool");
        worlds[tool].by_key.get(effect).copied().unwrap_or(0)
    };
    let runtime = lab.runtime().await;
    let calls = |keys: Vec<&String>| {
        keys.into_iter().map(|key| library_call(key.split('-').next().expect("its tool"), json!({ "key": key }), key)).collect::<Vec<_>>()
    };
    // What was acknowledged is still the answer, byte for byte, and happened once.
    let known: Vec<&String> = acked.keys().collect();
    let answers = all_at_once(&runtime, calls(known.clone())).await;
    for (key, answer) in known.iter().zip(answers) {
        let happened = answer.effect.as_ref().map_or(0, |effect| acted(key, &effect.to_string()));
        let same = answer.data.as_ref().is_some_and(|data| data.to_string() == acked[*key]);
        if answer.status != Status::Success || !answer.replayed || !same || happened == 0 {
            row.lost.push(format!("{key}: {}, happened {happened} times; now {answer:?}", acked[*key]));
        }
    }
    // What nobody can be asked about is settled by a person who looks at the world. A doubt of the other tools may be left as well (its second
    // attempt was lost too, and the next look is some seconds away): the call below settles that by itself.
    let mut doubts = lab.listed("in_doubt");
    doubts.retain(|doubt| doubt["tool"] == "never");
    for doubt in &doubts {
        let key = doubt["effect"].as_str().expect("a key").parse().expect("64 digits");
        let resolution = match acted("never-", doubt["effect"].as_str().expect("a key")) {
            0 => counterfoil_runtime::Resolution::DidNotHappen,
            1 => counterfoil_runtime::Resolution::Happened { result: counterfoil_core::Json::null() },
            // Counted below.
            _ => continue,
        };
        let operator = counterfoil_runtime::Operator::new("the test", "asked the world");
        runtime.resolve(key, resolution, &operator).await.expect("a doubt can be resolved");
    }
    // Everything that was ever asked for now runs to its end.
    let mut answers = all_at_once(&runtime, calls(all.iter().collect())).await;
    let until = Instant::now() + Duration::from_secs(60);
    // Who is told to ask again, asks again: what may still be on its way is asked about only later.
    while answers.iter().any(|answer| answer.status == Status::Pending) && Instant::now() < until {
        answers = all_at_once(&runtime, calls(all.iter().collect())).await;
    }
    (row.acknowledged, row.in_doubt) = (acked.len() as u64, doubts.len() as u64);
    let mut effects = 0;
    for tool in TOOLS {
        let seen = lab.world.seen(&format!("/{tool}"));
        row.twice.extend(seen.by_key.iter().filter(|(_, n)| **n != 1).map(|(effect, n)| format!("{tool} {effect}: {n} times")));
        effects += seen.by_key.len();
    }
    row.tell();
    for (key, answer) in all.iter().zip(&answers) {
        assert_eq!(answer.status, Status::Success, "{key}: {answer:?}");
    }
    assert_eq!(effects, all.len(), "each call happened");
    assert_eq!(lab.json(&["receipts", "verify"]).code, EXIT_DONE);
}
