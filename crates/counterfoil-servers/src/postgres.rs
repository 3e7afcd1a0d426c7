//! A private PostgreSQL: its own folder, a free port, its own password; ended by its process id.
//!
//! PostgreSQL refuses to run as root, so as root it is started as another user.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil_store::postgres::{Postgres, PostgresOptions};
use rustix::process::{Pid, Signal, getuid, kill_process};
use tokio_postgres::{Client, NoTls};

use crate::Home;

pub const USER: &str = "keeper";
pub const PASSWORD: &str = "s3cret-w0rd";

/// Starting takes a second; a machine that is busy with other tests may need many.
const START_MAX: Duration = Duration::from_secs(60);

pub struct Server {
    home: Home,
    pub port: u16,
    extra: Vec<String>,
    process: Mutex<Option<Child>>,
    schemas: AtomicU64,
}

/// How a server goes down.
#[derive(Clone, Copy)]
pub enum Stop {
    /// Sessions are ended and told so.
    Fast,
    /// As if it had crashed: it recovers from its log at the next start.
    Immediate,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further settings, `name=value` each.
    pub async fn start_with(settings: &[&str]) -> Self {
        Self::start_in(Home::default(), settings).await
    }

    pub async fn start_in(home: Home, settings: &[&str]) -> Self {
        let dir = &home.dir;
        std::fs::write(dir.path().join("password"), PASSWORD).expect("a file");
        if let Some((uid, gid)) = other_user() {
            for path in [dir.path().to_owned(), dir.path().join("password")] {
                std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root may");
            }
        }
        let made = command("initdb")
            .arg("--no-sync")
            .args(["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--username", USER])
            .arg("--pwfile")
            .arg(dir.path().join("password"))
            .arg(dir.path().join("data"))
            .current_dir(dir.path())
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let extra = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = Self { home, port: free_port(), extra, process: Mutex::new(None), schemas: AtomicU64::new(0) };
        server.up().await;
        server
    }

    /// Starts it again, on the same port and folder, and waits until it serves.
    pub async fn up(&self) {
        let log = || File::options().create(true).append(true).open(self.home.dir.path().join("log")).expect("a log");
        let mut postgres = command("postgres");
        postgres.arg("-D").arg(self.home.dir.path().join("data")).arg("-k").arg(self.home.dir.path());
        postgres.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-c", "fsync=on"]);
        postgres.args(self.extra.iter().flat_map(|setting| ["-c", setting]));
        postgres.envs(self.home.env.iter().map(|(name, value)| (name, value)));
        postgres.current_dir(self.home.dir.path()).stdin(Stdio::null()).stdout(log()).stderr(log());
        let child = postgres.spawn().expect("postgres runs");
        *self.process.lock().expect("no panic") = Some(child);
        let until = Instant::now() + START_MAX;
        while let Err(error) = tokio_postgres::connect(&self.url(""), NoTls).await {
            assert!(Instant::now() < until, "PostgreSQL does not come up: {error:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it and waits for its end.
    pub fn down(&self, how: Stop) {
        let Some(mut child) = self.process.lock().expect("no panic").take() else { return };
        let signal = match how {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        kill_process(Pid::from_child(&child), signal).expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// Whether it has ended by itself; then it can be started again.
    pub fn is_dead(&self) -> bool {
        let mut process = self.process.lock().expect("no panic");
        let ended = process.as_mut().is_none_or(|child| child.try_wait().expect("it is our child").is_some());
        if ended {
            *process = None;
        }
        ended
    }

    /// Of the process that starts all others.
    pub fn pid(&self) -> u32 {
        self.process.lock().expect("no panic").as_ref().expect("started").id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.dir.path().join("log")).unwrap_or_default()
    }

    pub fn url(&self, query: &str) -> String {
        self.url_at(self.port, query)
    }

    /// Through a proxy, or to nobody.
    pub fn url_at(&self, port: u16, query: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres{query}")
    }

    /// The name of a schema that no other case uses.
    pub fn fresh(&self) -> PostgresOptions {
        let schema = format!("case_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        PostgresOptions { schema, ..PostgresOptions::default() }
    }

    pub async fn open(&self, options: &PostgresOptions) -> Postgres {
        Postgres::open(&self.url(""), options.clone()).await.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Waits until no session of the adapter is left: those of a value that was dropped end by themselves.
    pub async fn quiet(&self) {
        let client = self.client().await;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counterfoil'";
        let until = Instant::now() + START_MAX;
        while client.query_one(sql, &[]).await.expect("the server serves").get::<_, i64>(0) > 0 {
            assert!(Instant::now() < until, "sessions stay");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// From now on it also speaks TLS, with `server.pem` and `server.key` of this folder.
    pub async fn offer_tls(&self, files: &Path) {
        for (from, to) in [("server.pem", "server.crt"), ("server.key", "server.key")] {
            let to = self.home.dir.path().join("data").join(to);
            std::fs::copy(files.join(from), &to).expect("a copy");
            std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its permissions");
            if let Some((uid, gid)) = other_user() {
                std::os::unix::fs::chown(to, Some(uid), Some(gid)).expect("root may");
            }
        }
        let client = self.client().await;
        client.batch_execute("ALTER SYSTEM SET ssl = on").await.expect("a setting");
        client.batch_execute("SELECT pg_reload_conf()").await.expect("a setting");
        let until = Instant::now() + START_MAX;
        while client.query_one("SHOW ssl", &[]).await.expect("a setting").get::<_, &str>(0) != "on" {
            assert!(Instant::now() < until, "TLS is not offered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A connection of our own, to look behind the adapter's back.
    pub async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(""), NoTls).await.expect("the server serves");
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("the server's log ends with:\n{}", &log[log.len().saturating_sub(3000)..]);
        }
        self.down(Stop::Immediate);
    }
}

/// A program of PostgreSQL, as a user that it accepts.
fn command(program: &str) -> Command {
    let mut command = Command::new(find(program));
    if let Some((uid, gid)) = other_user() {
        command.uid(uid).gid(gid);
    }
    command
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut debian: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    debian.sort();
    folders.extend(debian.into_iter().rev());
    folders
        .into_iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{program} was not found: these tests need PostgreSQL; install Debian's package `postgresql`"))
}

/// Whom to be instead of root.
fn other_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let user = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(user("postgres").or_else(|| user("nobody")).expect("a user postgres or nobody"))
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}
