//! Other processes: this test program, started again to play one part.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, Reach, Store};

use crate::{append, now, open, stream, write};

const PART: &str = "LEDGER_TEST_PART";
const LEDGER: &str = "LEDGER_TEST_FILE";
const NUMBER: &str = "LEDGER_TEST_NUMBER";

/// Merges and checkpoints all the time, so that whatever happens, happens in the middle of one.
pub fn busy_options() -> Options {
    Options { merge_entries: 40, checkpoint_pages: 25, ..Options::default() }
}

/// This program as a command that plays `part` on `ledger`.
pub fn command(part: &str, ledger: &Path, number: u64) -> Vec<(String, String)> {
    vec![(PART.into(), part.into()), (LEDGER.into(), ledger.display().to_string()), (NUMBER.into(), number.to_string())]
}

pub fn spawn(part: &str, ledger: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child::act", "--nocapture"])
        .envs(command(part, ledger, number))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Does nothing in a test run; plays its part in a child.
#[test]
fn act() {
    let Ok(part) = std::env::var(PART) else { return };
    let ledger = std::env::var(LEDGER).expect("set together");
    let number = std::env::var(NUMBER).expect("set together").parse().expect("a number");
    let store = open(Path::new(&ledger), busy_options());
    if part == "close" {
        append(&store, vec![write(number, 0)]).expect("a new stream");
        drop(store);
        std::process::exit(0);
    }
    match part.as_str() {
        "acknowledge" => acknowledge(&store, number),
        "count" => count(&store, number),
        "append" => append_some(&store, number),
        other => panic!("no such part: {other}"),
    }
    // Without closing: nothing may depend on it.
    std::process::exit(0);
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// Appends for ever and says of each record when it is durable.
fn acknowledge(store: &Sqlite, seed: u64) {
    let mut random = seed;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    loop {
        let (first, count) = (next(300), 1 + next(8));
        let numbers = (first..first + count).collect::<Vec<_>>();
        let versions = numbers.iter().map(|number| now(store.load(stream(*number), Reach::Newest(0))).expect("a load").version.0);
        let writes: Vec<_> = numbers.iter().zip(versions).map(|(number, version)| write(*number, version)).collect();
        let acknowledged: Vec<_> = numbers.iter().zip(&writes).map(|(number, write)| (number, write.expected.0 + 1)).collect();
        append(store, writes.clone()).expect("nobody else writes");
        for (number, version) in acknowledged {
            say(format_args!("ack {number} {version}"));
        }
    }
}

/// Raises four shared counters `times` times in all, and says how often each.
fn count(store: &Sqlite, times: u64) {
    const COUNTERS: u64 = 4;
    let mut raised = [0_u64; COUNTERS as usize];
    let mut conflicts = 0;
    let own = 1_000_000 * u64::from(std::process::id());
    while raised.iter().sum::<u64>() < times {
        let sum = raised.iter().sum::<u64>();
        let counter = (sum + conflicts) % COUNTERS;
        let version = now(store.load(stream(counter), Reach::Newest(1))).expect("a load").version.0;
        // A stream of its own beside it, so that there is always something to merge.
        match append(store, vec![write(counter, version), write(own + sum, 0)]) {
            Ok(_) => raised[counter as usize] += 1,
            Err(AppendError::Conflict { streams }) => {
                assert_eq!(streams, [stream(counter)]);
                conflicts += 1;
                std::thread::sleep(Duration::from_millis(conflicts % 3));
            }
            Err(error) => panic!("{error}"),
        }
    }
    say(format_args!("conflicts {conflicts}"));
    for (counter, raised) in raised.iter().enumerate() {
        say(format_args!("raised {counter} {raised}"));
    }
}

fn append_some(store: &Sqlite, batches: u64) {
    for number in 0..batches {
        append(store, (0..3).map(|offset| write(number * 3 + offset, 0)).collect()).expect("nobody else writes");
    }
    say(format_args!("syncs {}", store.stats().syncs));
}
