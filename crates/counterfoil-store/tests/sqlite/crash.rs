//! Processes that die at any moment, and processes that write at the same time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use counterfoil_store::{Position, Store};

use crate::child::{busy_options, spawn};
use crate::{check_stream, load, now, open, stream};

const ROUNDS: u64 = 24;

/// Whatever was acknowledged before the kill is there after it, and every stream is whole.
#[test]
fn nothing_acknowledged_is_lost_when_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let mut acknowledged: HashMap<u64, u64> = HashMap::new();
    for round in 0..ROUNDS {
        let mut child = spawn("acknowledge", &path, round);
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut acks = lines.map_while(Result::ok).filter_map(|line| {
            let mut words = line.strip_prefix("ack ")?.split(' ').map(|word| word.parse::<u64>().ok());
            Some((words.next()??, words.next()??))
        });
        // From the first acknowledgement on, for a time that differs from round to round.
        let mut seen: Vec<(u64, u64)> = acks.next().into_iter().collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5 + round * 37 % 120));
                child.kill().expect("SIGKILL");
            });
            // Up to the end of the pipe: what was said before the kill counts.
            seen.extend(acks);
        });
        child.wait().expect("the child");
        assert!(!seen.is_empty(), "round {round}: the child said nothing");
        for (number, version) in seen {
            let known = acknowledged.entry(number).or_default();
            *known = version.max(*known);
        }
        let store = open(&path, busy_options());
        let mut records = 0;
        for number in 0..310 {
            let version = check_stream(&store, number);
            assert!(version >= acknowledged.get(&number).copied().unwrap_or(0), "round {round}: stream {number} lost a record");
            records += version;
        }
        let tail = now(store.tail(Position(0), usize::MAX)).expect("the ledger serves");
        assert_eq!(tail.len() as u64, records, "round {round}: no record is outside its stream");
    }
    let total: u64 = acknowledged.values().sum();
    println!("{total} acknowledged records over {ROUNDS} kills, none lost");
    assert!(total > 1000, "the kills came too early to show anything: {total}");
}

/// Compare-and-append between processes: every acknowledged increment is there exactly once.
#[test]
fn processes_count_together() {
    const TIMES: u64 = 400;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let watching = open(&path, busy_options());
    let mut raised: HashMap<u64, u64> = HashMap::new();
    let mut conflicts = 0;
    let children: Vec<_> = (0..3).map(|_| spawn("count", &path, TIMES)).collect();
    for mut child in children {
        for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["raised", counter, times] => {
                    *raised.entry(counter.parse().expect("a number")).or_default() += times.parse::<u64>().expect("a number")
                }
                ["conflicts", times] => conflicts += times.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
        assert!(child.wait().expect("the child").success());
    }
    assert_eq!(raised.values().sum::<u64>(), 3 * TIMES);
    assert!(conflicts > 0, "the processes never met");
    // A value that was open all the time, once its snapshots are old, and one that opens now see the same.
    std::thread::sleep(busy_options().snapshot_held_max);
    let opened = open(&path, busy_options());
    for (counter, times) in raised {
        assert_eq!(check_stream(&watching, counter), times, "counter {counter}");
        assert_eq!(check_stream(&opened, counter), times, "counter {counter}");
    }
}

/// What another process wrote is seen at once where a stream is open; where it was absent, at the latest by whoever acts on that view:
/// the append loses its race, and the next load tells why.
#[test]
fn other_writers_are_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    // Snapshots would be held for ever.
    let options = || counterfoil_store::sqlite::Options { snapshot_held_max: Duration::from_secs(3600), ..busy_options() };
    let (here, there) = (open(&path, options()), open(&path, options()));
    for number in 0..200 {
        assert_eq!(load(&here, number).version.0, 0);
        crate::append(&there, vec![crate::write(number, 0)]).expect("a new stream");
        crate::append(&here, vec![crate::write(number, 0)]).expect_err("the other was first");
        assert_eq!(load(&here, number).version.0, 1, "absent before, and known now");
        crate::append(&there, vec![crate::write(number, 1)]).expect("the next record");
        assert_eq!(load(&here, number).version.0, 2, "open before: looked again");
        assert_eq!(now(here.due(counterfoil_core::Timestamp::MAX, 10)).expect("serves"), []);
        crate::append(&here, vec![crate::write(number, 2)]).expect("the writer follows");
        assert_eq!(load(&here, number).version.0, 3, "its own work is seen at once");
    }
    assert_ne!(stream(1), stream(2));
}
