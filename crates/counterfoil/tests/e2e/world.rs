//! The outside world: a small HTTP server that does as it is told, and counts what was done to it.
//!
//! Runs in a process of its own (see `parts`). A request to a path that does not begin with `/_` is an effect, unless its rule says otherwise;
//! `/_…` are the test's own routes. A rule is JSON; every member may be missing:
//!
//! `act` (true: counts as an effect), `before` / `after` (hold the request until `/_release`, before or after acting), `status`, `headers`, `body`
//! (text; otherwise the effect's own number, so that two effects never answer alike), `end` ("answer", "hang_up", "half", "exit"), `dedupe`
//! (one effect per Idempotency-Key, answered the same each time).
//!
//! Routes: `/_rules`, `/_release` and `/_drop` (what is held), `/_wait` (until so many are held), `/_quiet` (until nothing is under way), `/_seen`; and
//! `/find?key=…`, which is what a provider offers to a probe.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Threads are many here, and none needs much.
const STACK_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    pub act: bool,
    pub before: bool,
    pub after: bool,
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Option<String>,
    pub end: String,
    pub dedupe: bool,
}

impl Default for Rule {
    fn default() -> Self {
        let headers = BTreeMap::new();
        Self { act: true, before: false, after: false, status: 200, headers, body: None, end: "answer".into(), dedupe: false }
    }
}

/// What to do with the requests of one path: the first ones by `next`, the others by `then`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    pub next: VecDeque<Rule>,
    pub then: Rule,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Requests that were read whole.
    pub arrived: u64,
    /// Effects that were really made.
    pub acted: u64,
    /// Of those, by Idempotency-Key.
    pub by_key: BTreeMap<String, u64>,
    /// Requests held at this moment.
    pub holding: u64,
    /// Most requests under way at one time.
    pub most_at_once: u64,
    pub requests: Vec<Request>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    pub method: String,
    pub key: String,
    /// The `traceparent` it carried.
    pub trace: String,
    pub body: String,
    /// Since the world began.
    pub at_ms: u64,
}

#[derive(Default)]
struct Path {
    rules: Rules,
    seen: Seen,
    under_way: u64,
    held: Held,
    /// First answer by key.
    answers: HashMap<String, String>,
}

/// What becomes of requests that a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Held {
    #[default]
    Waiting,
    Released,
    /// They go nowhere: neither act nor are answered.
    Dropped,
}

struct World {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    paths: HashMap<String, Path>,
    effects: u64,
    /// Open ones, from the moment they are taken.
    connections: u64,
}

/// Serves until it is killed or told to exit. Port 0 takes any; the one taken is printed.
pub fn serve(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the world's port is free");
    super::parts::say(&format!("port {}", listener.local_addr().expect("bound").port()));
    let world = Arc::new(World { began: Instant::now(), state: Mutex::default(), changed: Condvar::new() });
    for stream in listener.incoming().flatten() {
        world.lock().connections += 1;
        let world = world.clone();
        let serving = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A peer that goes away is everyday life here.
            drop(world.connection(stream));
            world.lock().connections -= 1;
            world.changed.notify_all();
        });
        serving.expect("a thread can be started");
    }
}

struct Asked {
    method: String,
    path: String,
    query: HashMap<String, String>,
    key: String,
    trace: String,
    body: String,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Blocks until `done` finds what it looks for.
    fn until<T>(&self, mut done: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = done(&mut state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn connection(&self, stream: TcpStream) -> std::io::Result<()> {
        let Some(asked) = read(&stream)? else { return Ok(()) };
        match asked.path.as_str() {
            "/find" => match self.find(&asked) {
                Some(found) => answer(&stream, 200, &BTreeMap::new(), &found.to_string()),
                None => self.effect(&stream, asked),
            },
            path if path.starts_with("/_") => {
                let told = self.control(&asked);
                answer(&stream, 200, &BTreeMap::new(), &told.to_string())
            }
            _ => self.effect(&stream, asked),
        }
    }

    /// What was done with a key, as a provider would tell. `None`: there is a rule that says otherwise.
    fn find(&self, asked: &Asked) -> Option<Value> {
        let state = self.lock();
        if state.paths.contains_key("/find") {
            return None;
        }
        let data: Vec<Value> = state
            .paths
            .values()
            .filter_map(|path| path.answers.get(asked.query.get("key")?))
            .map(|text| serde_json::from_str(text).unwrap_or(Value::Null))
            .collect();
        Some(json!({ "data": data }))
    }

    fn control(&self, asked: &Asked) -> Value {
        let path = asked.query.get("path").cloned().unwrap_or_default();
        let told = match asked.path.as_str() {
            "/_rules" => {
                let rules: Rules = serde_json::from_str(&asked.body).expect("rules are JSON");
                let mut state = self.lock();
                let path = state.paths.entry(path).or_default();
                (path.rules, path.held) = (rules, Held::Waiting);
                Value::Null
            }
            "/_release" => {
                self.lock().paths.entry(path).or_default().held = Held::Released;
                Value::Null
            }
            "/_drop" => {
                self.lock().paths.entry(path).or_default().held = Held::Dropped;
                Value::Null
            }
            // Connections are taken in their order: whoever connected before this one is counted.
            "/_quiet" => self.until(|state| (state.connections == 1).then_some(Value::Null)),
            "/_wait" => {
                let holding: u64 = asked.query["holding"].parse().expect("a number");
                self.until(|state| {
                    let seen = &state.paths.entry(path.clone()).or_default().seen;
                    (seen.holding >= holding).then(|| json!(seen))
                })
            }
            "/_seen" => json!(self.lock().paths.entry(path).or_default().seen),
            other => panic!("the world has no route {other}"),
        };
        self.changed.notify_all();
        told
    }

    fn effect(&self, stream: &TcpStream, asked: Asked) -> std::io::Result<()> {
        let rule = self.arrive(&asked);
        if rule.before && !self.hold(&asked.path) {
            self.leave(&asked.path);
            return Ok(());
        }
        let own = self.act(&asked, &rule);
        let kept = !rule.after || self.hold(&asked.path);
        self.leave(&asked.path);
        if !kept {
            return Ok(());
        }
        let body = rule.body.unwrap_or(own);
        match rule.end.as_str() {
            "answer" => answer(stream, rule.status, &rule.headers, &body),
            "half" => {
                let mut stream = stream;
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", body.len() * 2, body)
            }
            "hang_up" => Ok(()),
            "exit" => std::process::exit(0),
            other => panic!("an answer cannot end with {other:?}"),
        }
    }

    fn arrive(&self, asked: &Asked) -> Rule {
        let mut state = self.lock();
        let path = state.paths.entry(asked.path.clone()).or_default();
        path.seen.arrived += 1;
        path.under_way += 1;
        path.seen.most_at_once = path.seen.most_at_once.max(path.under_way);
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).expect("a test is not that long");
        let request =
            Request { method: asked.method.clone(), key: asked.key.clone(), trace: asked.trace.clone(), body: asked.body.clone(), at_ms };
        path.seen.requests.push(request);
        self.changed.notify_all();
        path.rules.next.pop_front().unwrap_or_else(|| path.rules.then.clone())
    }

    /// Holds a request until it is let go (true) or dropped.
    fn hold(&self, path: &str) -> bool {
        self.lock().paths.get_mut(path).expect("it arrived").seen.holding += 1;
        self.changed.notify_all();
        self.until(|state| {
            let path = state.paths.get_mut(path).expect("it arrived");
            (path.held != Held::Waiting).then(|| {
                path.seen.holding -= 1;
                path.held == Held::Released
            })
        })
    }

    /// Makes the effect; what it would answer.
    fn act(&self, asked: &Asked, rule: &Rule) -> String {
        let mut state = self.lock();
        let number = state.effects + 1;
        let path = state.paths.get_mut(&asked.path).expect("it arrived");
        if let Some(known) = path.answers.get(&asked.key).filter(|_| rule.dedupe) {
            return known.clone();
        }
        let own = json!({ "id": format!("e-{number}") }).to_string();
        if !rule.act {
            return own;
        }
        path.seen.acted += 1;
        *path.seen.by_key.entry(asked.key.clone()).or_default() += 1;
        path.answers.entry(asked.key.clone()).or_insert_with(|| rule.body.clone().unwrap_or_else(|| own.clone()));
        state.effects = number;
        self.changed.notify_all();
        own
    }

    fn leave(&self, path: &str) {
        self.lock().paths.get_mut(path).expect("it arrived").under_way -= 1;
        self.changed.notify_all();
    }
}

fn read(stream: &TcpStream) -> std::io::Result<Option<Asked>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut key, mut trace) = (0, String::new(), String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length is a number"),
            "idempotency-key" => key = value.to_owned(),
            "traceparent" => trace = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).expect("bodies are text here");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    Ok(Some(Asked { method, path: path.to_owned(), query, key, trace, body }))
}

fn answer(mut stream: &TcpStream, status: u16, headers: &BTreeMap<String, String>, body: &str) -> std::io::Result<()> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(stream, "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}
