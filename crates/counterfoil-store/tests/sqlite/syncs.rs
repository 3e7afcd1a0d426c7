//! The count of flushes is what the kernel sees, not what we believe: all of the commits', nearly all of the checkpoints'.

use std::process::Command;

use crate::child::command;

/// What a child that appends `batches` says it flushed, and what strace counts.
fn flushes(batches: u64) -> Option<(u64, u64)> {
    let dir = tempfile::tempdir().expect("a directory");
    let counted = dir.path().join("counted");
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=fdatasync,fsync", "-o"])
        .arg(&counted)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "child::act", "--nocapture"])
        .envs(command("append", &dir.path().join("ledger.db"), batches))
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.lines().find_map(|line| line.strip_prefix("syncs ")?.parse().ok())?;
    let counted = std::fs::read_to_string(counted).expect("strace's log");
    let calls =
        counted.lines().filter(|line| (line.contains("fdatasync(") || line.contains("fsync(")) && !line.contains("resumed")).count();
    Some((said, calls as u64))
}

#[test]
fn flushes_are_counted_as_the_kernel_sees_them() {
    let Some((said, opening)) = flushes(0) else { return println!("skipped: strace does not run here") };
    assert_eq!(said, 0);
    let (said, counted) = flushes(400).expect("strace ran before");
    // One more than at opening for the directory that now names the new write-ahead log.
    let counted = counted - opening;
    println!("400 batches: {said} flushes by our count, {counted} by strace");
    assert!(said > 400, "checkpoints flush as well: {said}");
    // Whether a checkpoint beside the writer found the log at its end, and so flushed the database, SQLite does not tell; here there is one every few commits.
    assert!(counted.abs_diff(said) * 20 <= counted, "{said} by our count, {counted} by strace");
}
