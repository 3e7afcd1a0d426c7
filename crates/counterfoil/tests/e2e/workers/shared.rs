//! A lab whose ledger is a database of its own.

use std::sync::Mutex;

use counterfoil_servers::{Home, postgres, redis};

use super::until;
use crate::lab::Lab;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

pub struct Shared {
    pub lab: Lab,
    database: Database,
}

enum Database {
    /// A file in this folder.
    None(Home),
    /// With the threads that talk to it.
    Postgres(Box<postgres::Server>, tokio::runtime::Runtime),
    Redis(Mutex<redis::Server>),
}

impl Shared {
    pub fn new(kind: Kind, config: &str) -> Self {
        Self::on(kind, Home::default(), config)
    }

    pub fn on(kind: Kind, home: Home, config: &str) -> Self {
        let database = match kind {
            Kind::Sqlite => Database::None(home),
            Kind::Postgres => {
                let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
                // Sessions of killed workers stay for a while.
                let server = threads.block_on(postgres::Server::start_in(home, &["max_connections=300"]));
                Database::Postgres(Box::new(server), threads)
            }
            Kind::Redis => Database::Redis(Mutex::new(redis::Server::start_in(home, &redis::DURABLE))),
        };
        let store = match &database {
            Database::None(home) => format!("sqlite:{}", home.dir.path().join("counterfoil.db").display()),
            Database::Postgres(server, _) => server.url(""),
            Database::Redis(server) => server.lock().expect("no panic").url(),
        };
        Self { lab: Lab::new(&format!("store: \"{store}\"\n{config}")), database }
    }

    pub fn port(&self) -> u16 {
        match &self.database {
            Database::None(_) => panic!("a file has no port"),
            Database::Postgres(server, _) => server.port,
            Database::Redis(server) => server.lock().expect("no panic").port(),
        }
    }

    pub fn pid(&self) -> u32 {
        match &self.database {
            Database::None(_) => panic!("a file is no process"),
            Database::Postgres(server, _) => server.pid(),
            Database::Redis(server) => server.lock().expect("no panic").pid(),
        }
    }

    /// Serving, whatever happened to it.
    pub fn revive(&self) {
        match &self.database {
            Database::None(_) => {}
            Database::Postgres(server, threads) => {
                if server.is_dead() {
                    threads.block_on(server.up());
                }
            }
            Database::Redis(server) => {
                let mut server = server.lock().expect("no panic");
                if server.is_dead() {
                    server.bury();
                    server.start();
                }
            }
        }
    }

    /// The ledger as it is found through a proxy.
    pub fn url_at(&self, port: u16) -> String {
        match &self.database {
            Database::None(_) => panic!("a file has no port"),
            Database::Postgres(server, _) => server.url_at(port, ""),
            Database::Redis(_) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// The database crashes.
    pub fn down(&self) {
        match &self.database {
            Database::None(_) => panic!("a file does not go down"),
            Database::Postgres(server, _) => server.down(postgres::Stop::Immediate),
            Database::Redis(server) => server.lock().expect("no panic").kill(),
        }
    }

    /// Redis writes its file anew, as it does from time to time. It may fail at that.
    pub fn rewrite(&self) {
        let Database::Redis(server) = &self.database else { panic!("only Redis does that") };
        let server = server.lock().expect("no panic");
        server.cli(&["BGREWRITEAOF"]);
        until("its file is written anew", || {
            let said = server.cli(&["INFO", "persistence"]);
            let busy = ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"].iter().any(|word| said.contains(word));
            (!busy).then_some(())
        });
    }

    /// Down and up, so that it is surely whole.
    pub fn restart(&self) {
        self.down();
        self.up();
    }

    /// And is started again, on what it has kept.
    pub fn up(&self) {
        match &self.database {
            Database::None(_) => panic!("a file does not go down"),
            Database::Postgres(server, threads) => threads.block_on(server.up()),
            Database::Redis(server) => server.lock().expect("no panic").start(),
        }
    }
}
