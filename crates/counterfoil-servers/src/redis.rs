//! A Redis of the test's own: a free port, a folder that goes away, ended by its process id.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use counterfoil_store::redis::{Redis, RedisOptions};

use crate::{Home, in_time};

/// Generous: a machine under load starts servers slowly. Nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const DURABLE: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

pub struct Server {
    home: Home,
    port: u16,
    settings: Vec<(String, String)>,
    child: Option<Child>,
}

impl Server {
    pub fn durable() -> Self {
        Self::with(&DURABLE)
    }

    pub fn with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(Home::default(), settings)
    }

    pub fn start_in(home: Home, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut server = Self { home, port: 0, settings, child: None };
        // Someone else may take the port between our look and the start.
        for _ in 0..20 {
            server.port = free_port();
            server.spawn();
            if server.ready() {
                return server;
            }
        }
        panic!("redis-server does not start:\n{}", std::fs::read_to_string(server.log()).unwrap_or_default());
    }

    fn spawn(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        command.arg("--dir").arg(self.home.dir.path()).arg("--logfile").arg(self.log());
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        command.envs(self.home.env.iter().map(|(name, value)| (name, value)));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(child.unwrap_or_else(|error| {
            panic!("redis-server cannot be started ({error}): these tests need it; on Debian: apt-get install redis-server")
        }));
    }

    fn log(&self) -> PathBuf {
        self.home.dir.path().join("redis.log")
    }

    fn ready(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let child = self.child.as_mut().expect("started");
            if child.try_wait().expect("the server's state").is_some() {
                return false;
            }
            if std::fs::read_to_string(self.log()).is_ok_and(|log| log.contains("Ready to accept connections")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server is not ready:\n{}", std::fs::read_to_string(self.log()).unwrap_or_default());
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("started").id()
    }

    /// Whether it has ended by itself.
    pub fn is_dead(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("the server's state").is_some())
    }

    /// It has ended by itself: as good as killed.
    pub fn bury(&mut self) {
        drop(self.child.take());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Another ledger each time: its name is its own.
    pub fn fresh_url(&self) -> String {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("{}?ledger=l{}", self.url(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub async fn open(&self) -> Redis {
        open(&self.url(), options()).await
    }

    pub fn cli(&self, args: &[&str]) -> String {
        let output = in_time(Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args));
        let output = output.expect("redis-cli runs; on Debian: apt-get install redis-server");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// SIGKILL: Redis gets no time for anything.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("started");
        child.kill().expect("the server can be killed");
        child.wait().expect("the server ends");
    }

    /// On the same port, with the same folder.
    pub fn start(&mut self) {
        self.start_soon();
        if self.ready() {
            return;
        }
        // Killed in the middle of a rewrite, it mends the file that it was about to leave behind, and ends: whoever looks after it starts it once more.
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        assert!(log.contains("the truncated file is not the last file"), "redis-server does not start again:\n{log}");
        self.bury();
        self.start_soon();
        assert!(self.ready(), "redis-server does not start again:\n{}", std::fs::read_to_string(self.log()).unwrap_or_default());
    }

    /// Started, and not waited for.
    pub fn start_soon(&mut self) {
        assert!(self.child.is_none(), "already started");
        drop(std::fs::remove_file(self.log()));
        self.spawn();
    }

    /// For the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.into(), value.into()));
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().expect("started"));
        rustix::process::kill_process(pid, signal).expect("the server can be signalled");
    }

    /// The files that Redis keeps its data in, by name.
    pub fn keep_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(self.data()).expect("the append-only files").map(|entry| entry.expect("a file").path());
        files.map(|path| (path.clone(), std::fs::read(path).expect("a file of Redis"))).collect()
    }

    pub fn restore_files(&self, files: &[(PathBuf, Vec<u8>)]) {
        std::fs::remove_dir_all(self.data()).expect("the append-only files");
        std::fs::create_dir(self.data()).expect("a folder");
        for (path, bytes) in files {
            std::fs::write(path, bytes).expect("a file for Redis");
        }
    }

    /// Redis cannot write its files anew until the answer is called.
    pub fn hide_files(&self) -> impl FnOnce() + use<> {
        let (place, away) = (self.data(), self.home.dir.path().join("away"));
        std::fs::rename(&place, &away).expect("the append-only files");
        // A folder that is missing Redis makes anew.
        std::fs::write(&place, "").expect("a file in its place");
        move || {
            std::fs::remove_file(&place).expect("the file in its place");
            std::fs::rename(away, place).expect("the append-only files");
        }
    }

    /// Started, and its files hidden before anybody has seen that it is there.
    pub fn start_hidden(&mut self) -> impl FnOnce() + use<> {
        let port = std::mem::replace(&mut self.port, free_port());
        self.start();
        let hidden = self.hide_files();
        self.cli(&["config", "set", "port", &port.to_string()]);
        self.port = port;
        hidden
    }

    fn data(&self) -> PathBuf {
        self.home.dir.path().join("appendonlydir")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("an address").port()
}

/// Looks often, so that tests need not wait.
pub fn options() -> RedisOptions {
    RedisOptions { look_every: Duration::from_millis(50), ..RedisOptions::default() }
}

pub async fn open(url: &str, options: RedisOptions) -> Redis {
    Redis::open(url, options).await.expect("the ledger opens")
}
