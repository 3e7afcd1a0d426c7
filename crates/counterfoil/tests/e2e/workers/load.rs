//! Clients that never stop asking, and what they were told.
//!
//! Each lane makes call after call of three kinds (see `kill_loop`), each at a server taken at random, and asks again, there or elsewhere, until it
//! has an answer. What was acknowledged is compared with the world in the end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::shared::Shared;
use super::{PATIENCE, until};
use crate::http::server::{Asking, Reply, Server, request};
use crate::kill_loop::{Acked, Dice, TOOLS, audit};
use crate::lab::EXIT_DONE;
use crate::report::Row;

/// Clients at one time.
const LANES: u64 = 6;
/// Before the same is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// So often it is asked for what is said to take longer; then it is left for the end. Where clocks are set back, that may be an hour.
const PUT_OFF_MAX: u32 = 20;

pub const CONFIG: &str = r#"
tools:
  never:
    http: { method: POST, url: "WORLD/never", json: "${args}" }
    lease: 1s
    breaker: off
  probed:
    http: { method: POST, url: "WORLD/probed", json: "${args}" }
    lease: 1s
    breaker: off
    settle_after: 100ms
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
  keyed:
    http: { method: POST, url: "WORLD/keyed", json: "${args}" }
    lease: 1s
    breaker: off
    repeat: keyed
"#;

pub struct Load {
    tools: &'static [&'static str],
    servers: Mutex<Vec<SocketAddr>>,
    told: Mutex<Told>,
    changed: Condvar,
    over: AtomicBool,
}

/// What to do about a key when it was asked for.
enum Next {
    Over,
    Again,
    /// It was said that it takes longer.
    Later,
}

#[derive(Default)]
pub struct Told {
    pub asked: Vec<String>,
    pub acked: Acked,
    /// Answered with `store_unavailable`: nothing was run.
    pub refused: u64,
    /// The connection ended before the answer.
    pub lost: u64,
    /// Answered that it is not known.
    pub doubts: u64,
}

impl Told {
    fn answers(&self) -> u64 {
        self.acked.len() as u64 + self.doubts
    }
}

impl Load {
    /// Asks for as long as `meanwhile` takes, and gives what was told.
    pub fn during(seed: u64, servers: Vec<SocketAddr>, meanwhile: impl FnOnce(&Self)) -> Told {
        Self::with(&TOOLS, seed, servers, meanwhile)
    }

    pub fn with(tools: &'static [&'static str], seed: u64, servers: Vec<SocketAddr>, meanwhile: impl FnOnce(&Self)) -> Told {
        let (servers, told) = (Mutex::new(servers), Mutex::default());
        let load = Self { tools, servers, told, changed: Condvar::new(), over: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            for lane in 0..LANES {
                let load = &load;
                scope.spawn(move || load.lane(lane, Dice(seed.wrapping_mul(lane + 1) | 1)));
            }
            // Also when `meanwhile` panics: nobody would end otherwise.
            let _over = Over(&load);
            meanwhile(&load);
        });
        load.told.into_inner().expect("no lane panics")
    }

    /// A server was started in the place of another.
    pub fn moved(&self, place: usize, to: SocketAddr) {
        self.servers.lock().expect("no panic")[place] = to;
    }

    pub fn acks(&self) -> usize {
        self.told().acked.len()
    }

    /// Blocks until so many more calls were answered.
    #[track_caller]
    pub fn wait_answers(&self, more: u64) {
        let until = self.told().answers() + more;
        self.wait("calls are answered", |told| told.answers() >= until);
    }

    #[track_caller]
    pub fn wait_acks(&self, more: usize) {
        let until = self.told().acked.len() + more;
        self.wait("calls are acknowledged", |told| told.acked.len() >= until);
    }

    #[track_caller]
    pub fn wait_refusals(&self, more: u64) {
        let until = self.told().refused + more;
        self.wait("calls are refused", |told| told.refused >= until);
    }

    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&Told) -> bool) {
        let waited = self.changed.wait_timeout_while(self.told(), PATIENCE, |told| !done(told) && !self.over.load(Ordering::SeqCst));
        let (told, timeout) = waited.expect("no lane panics");
        let (acks, refused, lost, doubts) = (told.acked.len(), told.refused, told.lost, told.doubts);
        assert!(
            !timeout.timed_out(),
            "{what}: not within {PATIENCE:?}; {acks} acknowledged, {refused} refused, {lost} lost, {doubts} doubts"
        );
        assert!(done(&told), "{what}: a lane failed");
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no lane panics")
    }

    fn note(&self, note: impl FnOnce(&mut Told)) {
        note(&mut self.told());
        self.changed.notify_all();
    }

    fn lane(&self, lane: u64, mut dice: Dice) {
        // A lane that fails ends the others, so that the test ends.
        let _over = Over(self);
        for number in 0.. {
            let tool = self.tools[dice.roll(self.tools.len() as u64) as usize];
            let key = format!("{tool}-{lane}-{number}");
            self.note(|told| told.asked.push(key.clone()));
            let mut put_off = 0;
            while !self.over.load(Ordering::SeqCst) && put_off < PUT_OFF_MAX {
                match self.ask(tool, &key, &mut dice) {
                    Next::Over => break,
                    Next::Again => {}
                    Next::Later => put_off += 1,
                }
                std::thread::sleep(PAUSE);
            }
            if self.over.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks this server for everything that nobody has an answer to yet: what others are at, it takes over.
    pub fn take_over(&self, server: SocketAddr) {
        let open: Vec<String> = {
            let told = self.told();
            told.asked.iter().filter(|key| !told.acked.contains_key(*key)).cloned().collect()
        };
        for key in open {
            let next = self.ask_at(server, key.split('-').next().expect("a key begins with its tool"), &key);
            // Whoever is paused in the middle of a write to a file keeps everyone from writing: nobody can take over then.
            if matches!(next, Next::Again) {
                return;
            }
        }
    }

    fn ask(&self, tool: &str, key: &str, dice: &mut Dice) -> Next {
        let server = {
            let servers = self.servers.lock().expect("no panic");
            servers[dice.roll(servers.len() as u64) as usize]
        };
        self.ask_at(server, tool, key)
    }

    fn ask_at(&self, server: SocketAddr, tool: &str, key: &str) -> Next {
        // Nobody there: it was killed, and another will be.
        let Ok(asking) = Asking::to(server) else { return Next::Again };
        let Ok(reply) = call(asking, server, tool, key) else {
            self.note(|told| told.lost += 1);
            return Next::Again;
        };
        let (status, code) = (reply.at("/status"), reply.at("/error/code"));
        match (reply.status, status.as_str()) {
            (200, Some("success")) => {
                let data = reply.at("/data").to_string();
                self.note(|told| {
                    let before = told.acked.insert(key.to_owned(), data.clone());
                    assert!(before.is_none_or(|before| before == data), "{key} was answered twice, and differently");
                });
                Next::Over
            }
            // A person is needed; the audit will be one.
            (200, Some("in_doubt")) if tool == "never" => {
                self.note(|told| told.doubts += 1);
                Next::Over
            }
            (200, Some("in_doubt")) | (202, Some("pending")) => Next::Later,
            // It did not happen, and may be asked for again.
            (200, Some("error")) if reply.at("/error/retriable") == true => Next::Later,
            (503, _) if reply.at("/code") == "store_unavailable" => {
                self.note(|told| told.refused += 1);
                Next::Again
            }
            // It was on its way when the ledger went away.
            (503, Some("in_doubt" | "error")) if code == "store_unavailable" => Next::Again,
            _ => panic!("{key}: {reply:?}"),
        }
    }
}

/// Whoever drops it says that it is over.
struct Over<'a>(&'a Load);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }
}

pub fn addresses_of(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

fn call(mut asking: Asking, server: SocketAddr, tool: &str, key: &str) -> std::io::Result<Reply> {
    let body = format!(r#"{{"args":{{"key":"{key}"}}}}"#);
    asking.send(request(server, "POST", &format!("/v1/tools/{tool}/call"), &[("idempotency-key", key)], &body).as_bytes())?;
    asking.reply()
}

/// Everything that happened is recorded, nothing happened twice, and nothing that was acknowledged is lost.
pub fn settled(shared: &Shared, told: &Told, row: Row) {
    let lab = &shared.lab;
    lab.world.wait_quiet();
    until("no effect is running", || {
        assert_eq!(lab.json(&["recover"]).code, EXIT_DONE);
        lab.listed("running").is_empty().then_some(())
    });
    let recorded: Vec<String> = ["done", "in_doubt"]
        .iter()
        .flat_map(|state| lab.listed(state))
        .map(|effect| effect["effect"].as_str().expect("a key").to_owned())
        .collect();
    for tool in TOOLS {
        let seen = lab.world.seen(&format!("/{tool}"));
        let unrecorded: Vec<_> = seen.by_key.keys().filter(|key| !recorded.contains(key)).collect();
        assert!(unrecorded.is_empty(), "{tool}: ran, and is neither done nor in doubt: {unrecorded:?}");
    }
    println!(
        "{} asked, {} acknowledged, {} refused, {} lost, {} doubts",
        told.asked.len(),
        told.acked.len(),
        told.refused,
        told.lost,
        told.doubts
    );
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    threads.block_on(audit(lab, &told.asked, &told.acked, row));
}
