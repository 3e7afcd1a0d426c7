//! What the machine says about this process: CPU, memory, disk. Zero where it says nothing.

use counterfoil::compose::Opened;
use counterfoil_store::sqlite::Sqlite;

/// User and system time of the whole process.
pub fn cpu_us() -> u64 {
    // Fields 14 and 15 of /proc/self/stat, counted after the command's closing parenthesis; in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks * 10_000
}

pub fn rss_mb() -> u64 {
    rss_mb_of(std::process::id())
}

pub fn rss_mb_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

pub fn syncs(opened: &Opened) -> u64 {
    opened.sqlite().map_or(0, |s| s.stats().syncs)
}

/// The ledger's file and its write-ahead log.
pub fn disk_bytes(sqlite: Option<&Sqlite>) -> u64 {
    let Some(path) = sqlite.map(Sqlite::path) else { return 0 };
    let size = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |m| m.len())
    };
    size("") + size("-wal")
}
