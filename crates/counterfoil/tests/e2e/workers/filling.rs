//! The disk under the ledger is full, and has room again, while many calls are made: what cannot be recorded is not begun, and nothing is forgotten.

use std::os::unix::fs::PermissionsExt;

use counterfoil_servers::Home;
use serde_json::json;

use super::load::{CONFIG, Load, addresses_of, settled};
use super::shared::{Kind, Shared};
use super::until;
use crate::disks::Disk;
use crate::http::server::Server;
use crate::injected::everywhere;
use crate::kill_loop::{Dice, variable};
use crate::report::{Fault, Row, skipped};

fn rounds() -> u64 {
    if everywhere() { 30 } else { 4 }
}

fn the_disk_is_full_again_and_again(kind: Kind) {
    let folder = tempfile::tempdir().expect("a directory");
    // The database may be another user's.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("our directory");
    // PostgreSQL takes about 60 MB before anything is in it.
    let Some(disk) = Disk::mount(folder.path().join("disk"), if kind == Kind::Postgres { "128m" } else { "16m" }) else {
        return skipped(Fault::FullDisk, kind, "only root can mount a disk");
    };
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed}");
    let mut dice = Dice(seed | 1);
    let home = Home { dir: tempfile::tempdir_in(&disk.path).expect("a directory"), env: Vec::new() };
    let shared = Shared::on(kind, home, CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let workers: Vec<Server> = (0..2).map(|_| Server::start(&shared.lab)).collect();
    let rounds = rounds();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for _ in 0..rounds {
            load.wait_acks(1 + dice.roll(8) as usize);
            let ballast = disk.fill();
            load.wait_refusals(1);
            std::fs::remove_file(ballast).expect("it is there");
            // Some databases go down when they cannot write, sooner or later; whoever keeps it starts it again.
            let acks = load.acks();
            until("calls are acknowledged again", || {
                shared.revive();
                (load.acks() > acks).then_some(())
            });
        }
    });
    assert_eq!(told.lost, 0, "no worker went down with it");
    drop(workers);
    settled(&shared, &told, Row { rounds, ..Row::new(Fault::FullDisk, kind) });
    assert_eq!(shared.lab.run(&["store", "check"]).code, 0);
}

#[test]
fn a_37_a_full_disk_under_load_on_sqlite() {
    the_disk_is_full_again_and_again(Kind::Sqlite);
}

#[test]
fn a_37_a_full_disk_under_load_on_postgres() {
    the_disk_is_full_again_and_again(Kind::Postgres);
}

#[test]
fn a_37_a_full_disk_under_load_on_redis() {
    the_disk_is_full_again_and_again(Kind::Redis);
}
