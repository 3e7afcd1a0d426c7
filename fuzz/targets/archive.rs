//! Archives of runs. The first byte says what comes: `r` a file as it is; `t` the text inside of one; `m` changes of the text of a true archive, four bytes each;
//! `d` a line that takes the place of one of its lines, after which all digests are worked out anew.
//!
//! Holds: every file is verified, or refused with the line. A true archive whose text was changed is never accepted.
#![no_main]

#[path = "../../crates/counterfoil-evidence/tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use common::{DEFINITION, Story};
use counterfoil::archive::{Damage, Verified, verify};
use counterfoil_core::StreamId;
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::body_of;
use counterfoil_core::summary::StreamKind;
use counterfoil_evidence::bundle::Of;
use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// The lines of an archive of one run, written from the description of the format.
static LINES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let story = Story::new("trip", 11);
    assert!(!DEFINITION.is_empty());
    let kept = |(n, (stream, kind, version, at, body)): (usize, (Digest32, StreamKind, u64, i64, String))| {
        json!({ "record": { "stream": stream, "kind": kind as u8, "version": version, "position": n + 1, "at": at, "body": body } })
            .to_string()
    };
    let records = story.records.iter().map(|record| {
        let kind = if record.of == Of::Run { StreamKind::Run } else { StreamKind::Effect };
        (record.stream, kind, record.version, record.at.0, record.body.clone().into_owned())
    });
    let chain = Digest32(StreamId::chain(&story.tenant, Some(&story.run)).0);
    let receipts = (chain, StreamKind::Chain, 1, 0, body_of(&story.receipts));
    let mut lines = vec![
        json!({ "archive": { "format": 1, "tenant": story.tenant, "before": 9, "made": 9 } }).to_string(),
        json!({ "run": { "run": story.run, "workflow": "pay", "state": "completed", "ended": 8 } }).to_string(),
    ];
    lines.extend(records.chain([receipts]).enumerate().map(kept));
    lines
});

static GOOD: LazyLock<String> = LazyLock::new(|| {
    let good = digested(&LINES);
    checked(&gzipped(good.as_bytes())).expect("a true archive is one");
    good
});

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("counterfoil-fuzz-archive-{}", std::process::id()))
});

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b't' => drop(checked(&gzipped(rest))),
        b'm' => {
            let changed = changed(GOOD.as_bytes(), rest);
            let verified = checked(&gzipped(&changed));
            // A reader of lines takes either newline; what the lines say is the same.
            let same = String::from_utf8_lossy(&changed).lines().eq(GOOD.lines());
            assert_eq!(verified.is_ok(), same, "{verified:?}");
        }
        b'd' => {
            let (which, line) = rest.split_first().map_or((0, &b""[..]), |(which, line)| (usize::from(*which), line));
            let mut lines = LINES.clone();
            let which = which % lines.len();
            lines[which] = String::from_utf8_lossy(line).replace('\n', " ");
            drop(checked(&gzipped(digested(&lines).as_bytes())));
        }
        _ => drop(checked(rest)),
    }
});

fn checked(bytes: &[u8]) -> Result<Verified, Damage> {
    std::fs::write(&*FILE, bytes).expect("the file can be written");
    let verified = verify(&FILE, |_| {}).expect("the file can be read").map(|(_, verified)| verified);
    std::fs::remove_file(&*FILE).expect("it was written");
    if let Err(damage) = &verified {
        assert!(damage.line >= 1 && !damage.what.is_empty());
    }
    verified
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::none());
    out.write_all(text).expect("to memory");
    out.finish().expect("to memory")
}

fn chained(before: Digest32, text: &str) -> Digest32 {
    Digest32::of_fields("counterfoil/archive/1", &[&before.0, text.as_bytes()])
}

/// With the lines that hold the digests, and one run in it.
fn digested(lines: &[String]) -> String {
    let start = Digest32([0; 32]);
    let (head, run) = lines.split_first().expect("it has lines");
    let digest = run.iter().fold(start, |digest, line| chained(digest, line));
    let records = run.len() - 1;
    let end = json!({ "run_end": { "records": records, "digest": digest } }).to_string();
    let all = chained(chained(start, head), &end);
    let foot: Value = json!({ "end": { "runs": 1, "records": records, "digest": all } });
    format!("{head}\n{}\n{end}\n{foot}\n", run.join("\n"))
}

/// Each four bytes: where, what is done there, and with which byte.
fn changed(good: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for edit in edits.chunks_exact(4).take(16) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % bytes.len().max(1);
        match edit[2] % 4 {
            0 => bytes[at] ^= 1 << (edit[3] % 8),
            1 => bytes[at] = edit[3],
            2 => bytes.insert(at, edit[3]),
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}
