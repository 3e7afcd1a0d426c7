//! A lab whose ledger is a database of its own.

use std::sync::Mutex;

use counterfoil_servers::{postgres, redis};

use crate::lab::Lab;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

pub struct Shared {
    pub lab: Lab,
    database: Database,
}

enum Database {
    None,
    /// With the threads that talk to it.
    Postgres(Box<postgres::Server>, tokio::runtime::Runtime),
    Redis(Mutex<redis::Server>),
}

impl Shared {
    pub fn new(kind: Kind, config: &str) -> Self {
        let database = match kind {
            Kind::Sqlite => Database::None,
            Kind::Postgres => {
                let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
                // Sessions of killed workers stay for a while.
                let server = threads.block_on(postgres::Server::start_with(&["max_connections=300"]));
                Database::Postgres(Box::new(server), threads)
            }
            Kind::Redis => Database::Redis(Mutex::new(redis::Server::durable())),
        };
        let store = match &database {
            Database::None => "sqlite:counterfoil.db".to_owned(),
            Database::Postgres(server, _) => server.url(""),
            Database::Redis(server) => server.lock().expect("no panic").url(),
        };
        Self { lab: Lab::new(&format!("store: \"{store}\"\n{config}")), database }
    }

    pub fn port(&self) -> u16 {
        match &self.database {
            Database::None => panic!("a file has no port"),
            Database::Postgres(server, _) => server.port,
            Database::Redis(server) => server.lock().expect("no panic").port(),
        }
    }

    pub fn pid(&self) -> u32 {
        match &self.database {
            Database::None => panic!("a file is no process"),
            Database::Postgres(server, _) => server.pid(),
            Database::Redis(server) => server.lock().expect("no panic").pid(),
        }
    }

    /// Serving, whatever happened to it.
    pub fn revive(&self) {
        match &self.database {
            Database::None => {}
            // It starts its own sessions again; down and up, so that it is surely whole.
            Database::Postgres(..) => {
                self.down();
                self.up();
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
            Database::None => panic!("a file has no port"),
            Database::Postgres(server, _) => server.url_at(port, ""),
            Database::Redis(_) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// The database crashes.
    pub fn down(&self) {
        match &self.database {
            Database::None => panic!("a file does not go down"),
            Database::Postgres(server, _) => server.down(postgres::Stop::Immediate),
            Database::Redis(server) => server.lock().expect("no panic").kill(),
        }
    }

    /// And is started again, on what it has kept.
    pub fn up(&self) {
        match &self.database {
            Database::None => panic!("a file does not go down"),
            Database::Postgres(server, threads) => threads.block_on(server.up()),
            Database::Redis(server) => server.lock().expect("no panic").start(),
        }
    }
}
