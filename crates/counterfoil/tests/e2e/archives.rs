//! Finished runs move into a file, whole or not at all, whoever is killed meanwhile. What is left answers as before, and the world is never touched.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Lab};
use crate::parts::Process;
use crate::workers::until;

const CONFIG: &str = r#"tools:
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}", result: response.json }
    undo: { tool: refund, args: { charge: "${result}" } }
  refund: { http: { method: POST, url: "WORLD/refund", json: "${args}" } }
  refuse: { http: { method: POST, url: "WORLD/refuse", json: "${args}" } }
  lose: { http: { method: POST, url: "WORLD/lose", json: "${args}" } }
"#;

fn lab() -> Lab {
    let lab = Lab::new(CONFIG);
    lab.world.then("/refuse", json!({ "status": 402, "act": false }));
    lab.world.then("/lose", json!({ "status": 500 }));
    let step = |id: &str, tool: &str| format!("  - {{ id: {id}, tool: {tool}, args: {{ run: \"${{run.id}}\" }} }}\n");
    lab.write("good.yaml", &format!("workflow: good\nsteps:\n{}{}", step("a", "charge"), step("b", "charge")));
    lab.write("bad.yaml", &format!("workflow: bad\nsteps:\n{}{}", step("a", "charge"), step("b", "refuse")));
    lab.write("waits.yaml", &format!("workflow: waits\nsteps:\n{}  - {{ id: w, wait: {{ signal: go }} }}\n", step("a", "charge")));
    lab.write("lost.yaml", &format!("workflow: lost\nsteps:\n{}", step("a", "lose")));
    lab
}

const ARCHIVE: [&str; 5] = ["archive", "--before", "2100-01-01", "-o", "old.gz"];

#[test]
fn finished_runs_move_and_what_is_left_answers_as_before() {
    let lab = lab();
    for n in 0..3 {
        assert_eq!(lab.run(&["run", "good.yaml", "--run", &format!("good-{n}")]).code, EXIT_DONE);
    }
    assert_eq!(lab.run(&["run", "bad.yaml", "--run", "bad"]).code, EXIT_FAILED);
    // One that waits, and one whose effect is in doubt: both are left by their process.
    for (run, state) in [("waits", "waiting"), ("lost", "waiting")] {
        let file = format!("{run}.yaml");
        let mut process = Process::spawn(lab.command(&["run", &file, "--run", run]).stdout(Stdio::null()).stderr(Stdio::null()));
        until(run, || (lab.json(&["runs", "show", run]).at("/state") == json!(state)).then_some(()));
        process.kill();
    }
    let acted = lab.world.acted("/charge");
    assert_eq!(lab.run(&["receipts", "seal"]).code, EXIT_DONE);
    let made = lab.json(&ARCHIVE);
    assert_eq!((made.code, made.at("/moved"), made.at("/archive/runs")), (EXIT_DONE, json!(4), json!(4)), "{made:?}");
    // What is archived is gone from the lists, says where it went, and is not free.
    let listed = lab.json(&["runs", "list"]).at("/runs");
    let left: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|run| run["run"].as_str()).collect();
    assert_eq!(left.len(), 2, "{listed}");
    let shown = lab.json(&["runs", "show", "good-1"]).error(EXIT_REFUSED, "run_archived");
    assert!(shown.text("/error/message").contains("old.gz"), "{shown:?}");
    let again = lab.json(&["run", "good.yaml", "--run", "good-1"]);
    assert_eq!(again.code, EXIT_REFUSED, "{again:?}");
    assert_eq!(lab.world.acted("/charge"), acted, "nothing was done again");
    assert_eq!(lab.run(&["store", "check"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["receipts", "verify"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["receipts", "verify", "--run", "good-1"]).code, EXIT_DONE, "its receipts are links of the log");
    // The same command again has nothing to do; another date is another archive.
    let again = lab.json(&ARCHIVE);
    assert_eq!(
        (again.at("/resumed"), again.at("/moved"), again.at("/archive/digest")),
        (json!(true), json!(4), made.at("/archive/digest"))
    );
    lab.json(&["archive", "--before", "2099-01-01", "-o", "old.gz"]).error(EXIT_REFUSED, "archive_exists");
    lab.json(&["archive", "--before", "someday", "-o", "x.gz"]).error(EXIT_USAGE, "invalid_date");
    // Verified and read without the ledger.
    let verified = lab.json(&["archive", "verify", "old.gz"]);
    assert_eq!((verified.code, verified.at("/ok"), verified.at("/digest")), (EXIT_DONE, json!(true), made.at("/archive/digest")));
    lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:counterfoil.db"]).error(EXIT_REFUSED, "restore_refused");
    let restored = lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:old.db"]);
    assert_eq!((restored.code, restored.at("/runs")), (EXIT_DONE, json!(4)), "{restored:?}");
    let again = lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:old.db"]);
    assert_eq!(again.at("/found"), again.at("/records"), "what is there is left");
    let there = lab.json(&["--store", "sqlite:old.db", "runs", "show", "bad"]);
    assert_eq!((there.at("/state"), there.at("/compensations/0/step")), (json!("compensated"), json!("a")), "{there:?}");
    assert_eq!(lab.run(&["--store", "sqlite:old.db", "store", "check"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["--store", "sqlite:old.db", "receipts", "verify", "--run", "good-1"]).code, EXIT_DONE);
    let one = lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:one.db", "--run", "good-2"]);
    assert_eq!(one.at("/runs"), json!(1));
    lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:none.db", "--run", "nobody"]).error(EXIT_REFUSED, "run_not_found");
    // Over, but for an effect in doubt: it stays until somebody knows.
    lab.run(&["runs", "cancel", "lost", "--detach"]);
    until("cancelled", || {
        lab.run(&["recover"]);
        (lab.json(&["runs", "show", "lost"]).at("/state") == json!("cancelled")).then_some(())
    });
    let second = lab.json(&["archive", "--before", "2100-01-01", "-o", "second.gz"]);
    assert_eq!((second.at("/moved"), second.at("/stayed/0/run")), (json!(0), json!("lost")), "{second:?}");
    assert!(second.text("/stayed/0/why").contains("in_doubt"), "{second:?}");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/refund")), (acted, 1));
}

/// Killed at any moment, again and again, until it is done: no run is lost, none is there twice.
#[test]
fn killed_while_it_moves() {
    let lab = lab();
    const RUNS: usize = 40;
    for n in 0..RUNS {
        assert_eq!(lab.run(&["run", "good.yaml", "--run", &format!("r-{n}")]).code, EXIT_DONE);
    }
    let mut kills = 0;
    for round in 0.. {
        let mut process = Process::spawn(lab.command(&ARCHIVE).stdout(Stdio::null()).stderr(Stdio::null()));
        // From the first moment to well behind the last write.
        std::thread::sleep(Duration::from_millis(round * 3));
        if process.child.try_wait().unwrap().is_none() {
            kills += 1;
            process.kill();
            let in_ledger = lab.json(&["runs", "list", "--limit", "1000"]).at("/runs").as_array().unwrap().len();
            if !lab.path("old.gz").exists() {
                assert_eq!(in_ledger, RUNS, "nothing leaves before the file is there");
            }
        } else {
            break;
        }
    }
    assert!(kills > 3, "it was killed {kills} times");
    let done = lab.json(&ARCHIVE);
    assert_eq!((done.at("/archive/runs"), done.at("/moved")), (json!(RUNS), json!(RUNS)), "{done:?}");
    assert!(lab.json(&["runs", "list"]).at("/runs").as_array().unwrap().is_empty());
    assert_eq!(lab.run(&["store", "check"]).code, EXIT_DONE);
    assert_eq!(lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:old.db"]).at("/runs"), json!(RUNS));
    assert_eq!(lab.run(&["--store", "sqlite:old.db", "store", "check"]).code, EXIT_DONE);
    assert_eq!(lab.world.acted("/charge"), 2 * RUNS as u64);
}

fn lines(path: &Path) -> Vec<String> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

fn packed(path: &Path, lines: &[String]) {
    let mut out = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    lines.iter().for_each(|line| writeln!(out, "{line}").unwrap());
    out.finish().unwrap();
}

/// Packed again after each change, so that it is not the packing that tells.
#[test]
fn every_change_of_an_archive_is_found_in_its_line() {
    let lab = lab();
    for n in 0..3 {
        assert_eq!(lab.run(&["run", "good.yaml", "--run", &format!("r-{n}")]).code, EXIT_DONE);
    }
    assert_eq!(lab.json(&ARCHIVE).code, EXIT_DONE);
    let whole = lines(&lab.path("old.gz"));
    packed(&lab.path("same.gz"), &whole);
    assert!(counterfoil::archive::verify(&lab.path("same.gz"), |_| {}).unwrap().is_ok());
    let mut random = 0x5eed_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for round in 0..400 {
        let mut changed = whole.clone();
        let at = next(changed.len());
        match round % 5 {
            0 => {
                let byte = next(changed[at].len());
                let mut bytes = changed[at].clone().into_bytes();
                bytes[byte] = if bytes[byte] == b'7' { b'8' } else { b'7' };
                let Ok(text) = String::from_utf8(bytes) else { continue };
                changed[at] = text;
            }
            1 => drop(changed.remove(at)),
            2 => changed.insert(at, whole[next(whole.len())].clone()),
            3 => {
                let other = next(changed.len());
                if changed[at] == changed[other] {
                    continue;
                }
                changed.swap(at, other);
            }
            _ => changed.truncate(at),
        }
        if changed == whole {
            continue;
        }
        packed(&lab.path("changed.gz"), &changed);
        let damage = counterfoil::archive::verify(&lab.path("changed.gz"), |_| {}).unwrap().expect_err("it was changed");
        assert!(damage.line >= 1 && damage.line <= whole.len() as u64 + 2, "{damage}");
    }
    // The file itself, cut anywhere.
    let bytes = std::fs::read(lab.path("old.gz")).unwrap();
    for cut in [0, 1, 10, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
        std::fs::write(lab.path("cut.gz"), &bytes[..cut]).unwrap();
        lab.json(&["archive", "verify", "cut.gz"]).error(EXIT_BROKEN, "archive_damaged");
    }
    lab.json(&["archive", "verify", "nowhere.gz"]).error(EXIT_USAGE, "archive_unreadable");
}
