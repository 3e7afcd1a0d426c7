//! Stands between workers and their database: holds what comes back, keeps everything to itself, or cuts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::{PATIENCE, until};

pub struct Proxy {
    pub port: u16,
    rules: Arc<Rules>,
}

struct Rules {
    database: u16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    /// Seen on its way up, it makes the proxy hold what comes back.
    mark: Option<&'static [u8]>,
    /// Bytes that may still pass, both ways together, before all connections are cut once.
    left: Option<usize>,
    cuts: u64,
    /// Both ends of every connection that lives.
    open: Vec<(u64, [TcpStream; 2])>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Requests pass, answers wait.
    HoldAnswers,
    /// Nothing passes, and no connection ends.
    Silent,
    /// No connection lives.
    Cut,
}

impl Proxy {
    pub fn start(database: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let state = State { mode: Mode::Pass, mark: None, left: None, cuts: 0, open: Vec::new(), next: 0 };
        let rules = Arc::new(Rules { database, state: Mutex::new(state), changed: Condvar::new() });
        let accepting = rules.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.accept(client);
            }
        });
        Self { port, rules }
    }

    /// After the first request that has `mark` in it, answers wait.
    pub fn hold_after(&self, mark: &'static [u8]) {
        self.rules.lock().mark = Some(mark);
    }

    pub fn wait_holding(&self) {
        until("the mark passes the proxy", || (self.rules.lock().mode == Mode::HoldAnswers).then_some(()));
    }

    pub fn silence(&self) {
        self.turn(Mode::Silent);
    }

    /// Ends all connections, and takes no others.
    pub fn cut(&self) {
        self.turn(Mode::Cut);
        self.rules.lock().cut();
    }

    /// All connections end after so many bytes, in the middle of whatever is said; new ones are taken.
    pub fn cut_after(&self, bytes: usize) {
        let before = {
            let mut state = self.rules.lock();
            state.left = Some(bytes);
            state.cuts
        };
        until("so many bytes pass", || (self.rules.lock().cuts > before).then_some(()));
    }

    /// Everything passes, also what was kept.
    pub fn mend(&self) {
        self.turn(Mode::Pass);
    }

    fn turn(&self, mode: Mode) {
        self.rules.lock().mode = mode;
        self.rules.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl State {
    fn cut(&mut self) {
        self.cuts += 1;
        self.left = None;
        for end in self.open.drain(..).flat_map(|(_, ends)| ends) {
            // Already gone is as good.
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn accept(self: &Arc<Self>, client: TcpStream) {
        if self.lock().mode == Mode::Cut {
            return;
        }
        // A database that is down: the client is let go.
        let Ok(database) = TcpStream::connect(("127.0.0.1", self.database)) else { return };
        let copy = |end: &TcpStream| end.try_clone().expect("a handle");
        for end in [&client, &database] {
            end.set_nodelay(true).expect("an option");
            end.set_write_timeout(Some(PATIENCE)).expect("an option");
        }
        let id = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            state.open.push((id, [copy(&client), copy(&database)]));
            id
        };
        for (from, to, up) in [(copy(&client), copy(&database), true), (database, client, false)] {
            let rules = self.clone();
            std::thread::spawn(move || {
                rules.pass(&from, &to, up);
                drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
                rules.lock().open.retain(|(open, _)| *open != id);
            });
        }
    }

    /// Until one of them ends.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, up: bool) {
        let mut buffer = vec![0; 16 << 10];
        // A mark may come in two parts.
        let mut tail: Vec<u8> = Vec::new();
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut state = self.lock();
            if let Some(mark) = state.mark.filter(|_| up) {
                tail.extend_from_slice(&buffer[..read]);
                if tail.windows(mark.len()).any(|window| window == mark) {
                    (state.mode, state.mark) = (Mode::HoldAnswers, None);
                }
                tail.drain(..tail.len().saturating_sub(mark.len()));
            }
            while state.mode == Mode::Silent || state.mode == Mode::HoldAnswers && !up {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            // What was held is not let through when all is cut.
            if state.mode == Mode::Cut {
                return;
            }
            let carried = state.left.map_or(read, |left| left.min(read));
            state.left = state.left.map(|left| left - carried);
            drop(state);
            if to.write_all(&buffer[..carried]).is_err() {
                return;
            }
            if carried < read {
                self.lock().cut();
                return;
            }
        }
    }
}
