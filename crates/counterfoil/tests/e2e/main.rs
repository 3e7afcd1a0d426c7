//! The whole, from outside: the real binary, real processes, real kills, and a world in a process of its own that counts what was done to it.
//!
//! Tests are named after the scenarios they show. Each has a directory, a ledger and a world of its own, so all of them run at once; each asserts
//! on the world's counter and on what was answered, never on the ledger's records alone. Nothing sleeps where an event can be awaited.
//! Variables: `COUNTERFOIL_KILL_ROUNDS` (how often the worker is killed), `COUNTERFOIL_WORKER_KILLS` (how many of many) and `COUNTERFOIL_KILL_SEED`; `COUNTERFOIL_LIN_HISTORIES` (how many histories of
//! concurrent clients are checked) and `COUNTERFOIL_LIN_SEED`.

mod archives;
mod backups;
mod breakers;
mod clock;
mod confirms;
mod crashes;
mod disks;
mod erasures;
mod evidence;
mod flushes;
mod http;
mod injected;
mod keys;
mod kill_loop;
mod lab;
mod leases;
mod modes;
mod output;
mod parts;
mod prunes;
mod refusals;
mod replays;
mod report;
mod retries;
mod runs;
mod stores;
mod tokens;
mod worker;
mod workers;
mod world;
