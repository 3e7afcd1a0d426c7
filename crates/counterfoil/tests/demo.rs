//! `counterfoil demo`, as a person runs it: the real program, its real processes. What is left behind is looked for in the system, not in what
//! the demo says of itself.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The demo promises less; the machine that tests may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of the demo with a temporary folder of its own and a mark that all its processes inherit.
struct Run {
    temp: TempDir,
    mark: String,
}

impl Run {
    fn new() -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("COUNTERFOIL_TEST_RUN={}-{}.", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        Self { temp: tempfile::tempdir().unwrap(), mark }
    }

    fn command(&self, args: &[&str]) -> Command {
        let (name, value) = self.mark.split_once('=').unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("demo").args(args).env(name, value).env("TMPDIR", self.temp.path()).current_dir(self.temp.path());
        // What the user has set for other ledgers is nothing to the demo.
        command.env("COUNTERFOIL_STORE", "sqlite:/nowhere/at/all.db").env("COUNTERFOIL_CONFIG", "/nowhere.yaml");
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn start(&self) -> Child {
        self.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Processes of this run that are still there.
    fn processes(&self) -> Vec<String> {
        let alive = |path: &Path| {
            let environment = std::fs::read(path.join("environ")).ok()?;
            let marked = environment.split(|b| *b == 0).any(|variable| variable == self.mark.as_bytes());
            marked.then(|| path.display().to_string())
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| alive(&entry.path())).collect()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.temp.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn assert_nothing_left(&self) {
        assert_eq!((self.processes(), self.files()), (vec![], vec![]));
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}: {} {}", output.status, text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1, "one object, nothing else");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Until the demo has said this much; its bank is up by then.
fn read_until(child: &mut Child, words: &str) -> BufReader<std::process::ChildStdout> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the demo ended without saying {words:?}");
    }
    stdout
}

fn wait_until(done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_bank_counts_one_charge_with_and_two_without() {
    let run = Run::new();
    for _ in 0..2 {
        let report = report(&run.output(&["--json"]));
        assert_eq!((&report["charges_with"], &report["charges_without"]), (&1.into(), &2.into()), "{report}");
        assert_eq!((&report["state_after_kill"], &report["state_before_probe"]), (&"running".into(), &"in_doubt".into()), "{report}");
        assert_eq!((&report["state_after_restart"], &report["replayed"]), (&"done".into(), &true.into()), "{report}");
        assert_eq!(report["effect"].as_str().unwrap().len(), 64);
        assert!(report["elapsed_ms"].as_u64().unwrap() < 15_000, "{report}");
        assert!(report.get("ledger").is_none());
        run.assert_nothing_left();
    }
}

#[test]
fn demos_do_not_disturb_each_other() {
    let run = Run::new();
    let started: Vec<Child> = (0..3).map(|_| run.command(&["--json"]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    for child in started {
        let report = report(&child.wait_with_output().unwrap());
        assert_eq!((&report["charges_with"], &report["charges_without"]), (&1.into(), &2.into()), "{report}");
    }
    run.assert_nothing_left();
}

#[test]
fn it_tells_a_story_without_colour_into_a_pipe() {
    let run = Run::new();
    let output = run.output(&[]);
    let story = text(&output.stdout);
    assert!(output.status.success(), "{story} {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert!(!story.contains('\x1b'));
    assert!(story.lines().any(|line| line == "1 charge with Counterfoil, 2 without."), "{story}");
    for words in ["kill -9", "in_doubt", "from the record", "bank: 1", "bank: 2", "counterfoil init"] {
        assert!(story.contains(words), "{words:?} is missing in {story}");
    }
    assert!(story.lines().all(|line| line.chars().count() <= 100), "{story}");
    run.assert_nothing_left();
}

#[test]
fn a_kept_ledger_can_be_looked_into() {
    let run = Run::new();
    let report = report(&run.output(&["--json", "--keep"]));
    let (ledger, effect) = (report["ledger"].as_str().unwrap(), report["effect"].as_str().unwrap());
    assert_eq!((run.processes(), run.files().len()), (vec![], 1));
    let look = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let output = command.args(["--store", ledger, "--json"]).args(args).current_dir(run.temp.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    assert_eq!(look(&["effects", "list"])["effects"][0]["effect"], effect);
    let shown = look(&["effects", "show", &effect[..8]]);
    let entries: Vec<&String> = shown["history"].as_array().unwrap().iter().flat_map(|e| e["entry"].as_object().unwrap().keys()).collect();
    assert_eq!(entries, ["opened", "claimed", "lost", "probed"]);
    assert_eq!((&shown["state"], &shown["attempts"]), (&"done".into(), &1.into()), "dispatched once");
    look(&["receipts", "verify"]);
}

#[test]
fn interrupted_it_takes_everything_with_it() {
    for name in ["INT", "TERM"] {
        let run = Run::new();
        let mut demo = run.start();
        let mut stdout = read_until(&mut demo, "The ledger:");
        signal(&demo, name);
        let status = demo.wait().unwrap();
        let (mut rest, mut said) = (String::new(), String::new());
        stdout.read_to_string(&mut rest).unwrap();
        demo.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{rest} {said}");
        assert!(said.contains("interrupted"), "{said}");
        // The kernel takes a moment to clear away what was killed.
        wait_until(|| run.processes().is_empty());
        run.assert_nothing_left();
    }
}

#[test]
fn killed_it_leaves_no_process_behind() {
    let run = Run::new();
    let mut demo = run.start();
    let _stdout = read_until(&mut demo, "The ledger:");
    demo.kill().unwrap();
    demo.wait().unwrap();
    wait_until(|| run.processes().is_empty());
}

#[test]
fn a_story_that_goes_another_way_is_no_success() {
    let run = Run::new();
    let mut demo = run.start();
    let _stdout = read_until(&mut demo, "The ledger:");
    // Stopped, so that the bank is lost in the middle and not after the end.
    signal(&demo, "STOP");
    let is_bank = |process: &String| text(&std::fs::read(Path::new(process).join("cmdline")).unwrap()).contains("bank\0");
    let bank = run.processes().into_iter().find(is_bank).expect("the bank is a process of the run");
    let pid = bank.trim_start_matches("/proc/");
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    signal(&demo, "CONT");
    let status = demo.wait().unwrap();
    let mut said = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("counterfoil: "), "{said}");
    wait_until(|| run.processes().is_empty());
    run.assert_nothing_left();
}

#[test]
fn a_part_that_lacks_something_says_so() {
    let run = Run::new();
    let mut part = run.command(&["--part", "worker"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Held open: a part whose stdin closes ends at once.
    let _stdin = part.stdin.take();
    let output = part.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--dir"), "{}", text(&output.stderr));
}
