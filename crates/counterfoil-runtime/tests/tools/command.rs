use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::outcome::Flag;
use counterfoil_core::{CanonicalJson, Outcome, TraceContext};
use counterfoil_runtime::spec::{Action, Ask, CommandSpec, ProbeSpec};
use counterfoil_runtime::tool::{Invocation, ProbeAnswer};
use counterfoil_runtime::tools::build;
use serde_json::json;
use tokio::sync::oneshot;

use crate::support::*;

fn command(argv: &[&str]) -> CommandSpec {
    CommandSpec {
        argv: argv.iter().map(|part| text(part)).collect(),
        stdin: None,
        cwd: None,
        env: BTreeMap::new(),
        pass_env: Vec::new(),
        rejected_exit: vec![3],
        retriable_exit: vec![75],
    }
}

fn shell(script: &str) -> CommandSpec {
    command(&["sh", "-c", script])
}

async fn run(command: CommandSpec, args: serde_json::Value) -> Outcome {
    tool(&spec(Action::Command(command))).invoke(call(args)).await
}

#[tokio::test]
async fn arguments_go_in_and_the_result_comes_out_byte_for_byte() {
    let mut call = call(json!({}));
    call.args = CanonicalJson::parse(r#"{"big":18446744073709551617,"s":"ü"}"#).unwrap();
    let echo = tool(&spec(Action::Command(command(&["cat"]))));
    assert_eq!(done(echo.invoke(call).await).result.as_str(), r#"{"big":18446744073709551617,"s":"ü"}"#);

    let picked = CommandSpec { stdin: Some(value(json!({"only": "${args.a}"}))), ..command(&["cat"]) };
    assert_eq!(done(run(picked, json!({"a": 1, "b": 2})).await).result.as_str(), r#"{"only":1}"#);
    assert_eq!(
        done(run(command(&["echo", "hello ${args.who}"]), json!({"who": "you; rm -rf /"})).await).result.as_str(),
        "\"hello you; rm -rf /\\n\""
    );
    assert_eq!(done(run(command(&["true"]), json!({})).await).result.as_str(), "null");
}

#[tokio::test]
async fn the_environment_holds_what_is_named_and_nothing_else() {
    let spec = CommandSpec {
        env: BTreeMap::from([("GREETING".into(), text("hi ${args.who}")), ("COUNTERFOIL_KEY".into(), text("forged"))]),
        pass_env: vec!["HOME".into(), "COUNTERFOIL_TEST_NOT_SET".into()],
        ..command(&["env"])
    };
    let shown = done(run(spec, json!({"who": "you"})).await).result.to_value();
    let mut lines: Vec<&str> = shown.as_str().unwrap().lines().collect();
    lines.sort_unstable();
    let key = format!("COUNTERFOIL_KEY={}", call(json!({})).key);
    let mut expected = vec!["COUNTERFOIL_ATTEMPT=1", &key, "COUNTERFOIL_TOOL=bank.charge", "GREETING=hi you"];
    let home = std::env::var("HOME").map(|home| format!("HOME={home}"));
    expected.extend(home.as_deref().ok());
    expected.push("PATH=/usr/local/bin:/usr/bin:/bin");
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn what_an_exit_means() {
    let not_done_as = |outcome: Outcome, code: &str, retriable: bool| {
        let failure = not_done(outcome);
        assert_eq!((failure.code.as_str(), failure.retriable), (code, retriable));
        failure
    };
    let folder = tempfile::tempdir().unwrap();
    let marked = |exit: &str| CommandSpec { cwd: Some(folder.path().into()), ..shell(&format!("echo x >> seen; echo why >&2; {exit}")) };

    not_done_as(run(marked("exit 3"), json!({})).await, "exit_3", false);
    let failure = not_done_as(run(marked("exit 75"), json!({})).await, "exit_75", true);
    assert!(failure.dependency);
    assert_eq!(failure.detail.unwrap().as_str(), "\"why\"");
    let failure = unknown(run(marked("exit 1"), json!({})).await);
    assert_eq!(failure.code, "exit_1");
    assert!(failure.message.contains("declare it under rejected_exit"), "{}", failure.message);
    let failure = unknown(run(marked("kill -9 $$"), json!({})).await);
    assert_eq!((failure.code.as_str(), failure.detail.unwrap().as_str()), ("killed", "\"why\""));
    done(run(marked("exit 0"), json!({})).await);
    assert_eq!(std::fs::read_to_string(folder.path().join("seen")).unwrap().lines().count(), 5, "each ran once");
}

#[tokio::test]
async fn what_could_not_be_started_is_certainly_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let gone = CommandSpec { cwd: Some(folder.path().join("gone")), ..command(&["true"]) };
    for spec in [command(&["/no/such/program"]), command(&[plain.to_str().unwrap()]), gone, command(&["echo", "${args.zero}"])] {
        let failure = not_done(run(spec, json!({"zero": "a\u{0}b"})).await);
        assert_eq!((failure.code.as_str(), failure.retriable, failure.dependency), ("command_not_started", false, false));
    }
}

#[tokio::test]
async fn an_argument_is_neither_program_nor_option() {
    let error = build(&spec(Action::Command(command(&["${args.program}"])))).err().unwrap();
    assert_eq!(error.to_string(), "command: the program must not depend on arguments: only what follows it may");
    assert!(build(&spec(Action::Command(command(&[])))).is_err());

    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("made");
    let touch = |argv: &[&str]| CommandSpec { cwd: Some(folder.path().into()), ..command(argv) };
    let sneaky = json!({"name": "--help"});
    assert_eq!(not_done(run(touch(&["touch", "made", "${args.name}"]), sneaky.clone()).await).code, "argument_refused");
    assert!(!target.exists(), "nothing ran");
    done(run(touch(&["touch", "--", "${args.name}"]), sneaky).await);
    assert!(folder.path().join("--help").exists());
    assert_eq!(done(run(command(&["echo", "${args.n}"]), json!({"n": -5})).await).result.as_str(), "-5\n".trim());
    assert_eq!(done(run(command(&["echo", "${args.n}"]), json!({"n": "-.5e3"})).await).result.as_str(), "\"-.5e3\\n\"");
    for option in ["-inf", "-nan", "-infinity", "-Infinity", "-NaN", "-1x", "-."] {
        let failure = not_done(run(command(&["echo", "${args.n}"]), json!({"n": option})).await);
        assert_eq!(failure.code, "argument_refused", "{option}");
    }
}

#[tokio::test]
async fn a_large_output_happened_too() {
    let mut call = call(json!({}));
    call.result_bytes_max = 100;
    let large = tool(&spec(Action::Command(shell("head -c 3000000 /dev/zero"))));
    let success = done(large.invoke(call).await);
    assert_eq!(success.flags, [Flag::Truncated { bytes: 3_000_000, sha256: Digest32::of(&vec![0; 3_000_000]) }]);
    assert_eq!(success.result.to_value().as_str().unwrap().len(), 100);
}

#[tokio::test]
async fn nobody_is_stuck_on_input_or_errors_left_unread() {
    let large = json!({"text": "x".repeat(900_000)});
    done(run(command(&["true"]), large.clone()).await);
    done(run(shell("exec 0<&-; exit 0"), large.clone()).await);
    let failure = not_done(run(shell("head -c 1000000 /dev/zero | tr '\\0' e >&2; echo last >&2; exit 3"), large).await);
    let detail = failure.detail.unwrap().to_value();
    assert!(detail.as_str().unwrap().ends_with("elast") && detail.as_str().unwrap().len() <= 4096);
}

/// A pipe whose writers are the processes of a command: it says when they began, and ends when the last of them is gone.
struct Lifeline {
    path: PathBuf,
}

impl Lifeline {
    fn new(folder: &Path) -> Self {
        let path = folder.join("lifeline");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self { path }
    }

    /// Resolve when the first line was written; and when all writers are gone.
    fn watch(&self) -> (oneshot::Receiver<String>, oneshot::Receiver<()>) {
        let (path, (began, has_begun), (ended, has_ended)) = (self.path.clone(), oneshot::channel(), oneshot::channel());
        std::thread::spawn(move || {
            let mut pipe = BufReader::new(std::fs::File::open(path).unwrap());
            let mut line = String::new();
            pipe.read_line(&mut line).unwrap();
            began.send(line).unwrap();
            pipe.read_to_end(&mut Vec::new()).unwrap();
            ended.send(()).unwrap();
        });
        (has_begun, has_ended)
    }
}

#[tokio::test]
async fn dropping_an_attempt_kills_the_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let lifeline = Lifeline::new(folder.path());
    let (began, ended) = lifeline.watch();
    let spec = CommandSpec {
        cwd: Some(folder.path().into()),
        ..shell("exec 3>lifeline; sh -c 'sleep 1000 & wait' & sleep 1000 & echo up >&3; wait")
    };
    tokio::select! {
        outcome = run(spec, json!({})) => panic!("{outcome:?}"),
        line = began => assert_eq!(line.unwrap(), "up\n"),
    }
    ended.await.unwrap();
}

#[tokio::test]
async fn a_grandchild_that_keeps_the_output_open_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let lifeline = Lifeline::new(folder.path());
    let (_began, ended) = lifeline.watch();
    let spec = CommandSpec { cwd: Some(folder.path().into()), ..shell("sleep 1000 3>lifeline & echo up >lifeline; echo '{\"ok\":true}'") };
    assert_eq!(done(run(spec, json!({})).await).result.as_str(), "{\"ok\":true}\n".trim());
    ended.await.unwrap();
}

#[tokio::test]
async fn a_command_can_ask_too() {
    let folder = tempfile::tempdir().unwrap();
    let probe = |script: &str| ProbeSpec {
        ask: Ask::Command(CommandSpec { cwd: Some(folder.path().into()), ..shell(script) }),
        happened: expr("response.exit == 0 && response.json.found"),
        did_not_happen: None,
        result: Some(expr("response.json.at")),
        timeout: Duration::from_secs(20),
    };
    let ask = async |script: &str| {
        let tool = tool(&probed(spec(Action::Command(shell("echo acted >> seen"))), probe(script)));
        tool.probe(call(json!({}))).await
    };
    let found = ask("echo '{\"found\":true,\"at\":7}'").await;
    assert!(matches!(found, ProbeAnswer::Happened(success) if success.result.as_str() == "7"));
    assert_eq!(ask("echo '{\"found\":false}'").await, ProbeAnswer::DidNotHappen);
    for (script, why) in [("exit 1", "answered 1"), ("kill -9 $$", "signal 9"), ("echo nonsense", "response.json.found")] {
        let answer = ask(script).await;
        assert!(matches!(&answer, ProbeAnswer::CannotTell(reason) if reason.contains(why)), "{script}: {answer:?}");
    }
    assert!(!folder.path().join("seen").exists(), "asking does nothing");
}

#[tokio::test]
async fn a_command_knows_its_place_in_the_trace() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = TraceContext::parse(parent).unwrap().with_state("vendor=opaque");
    let traced = Invocation { trace: Some(trace), ..call(json!({})) };
    let variables = |outcome: Outcome| done(outcome).result.to_value().as_str().unwrap().to_owned();
    let printed = variables(tool(&spec(Action::Command(command(&["env"])))).invoke(traced.clone()).await);
    assert!(printed.contains(&format!("TRACEPARENT={parent}\n")) || printed.ends_with(&format!("TRACEPARENT={parent}")), "{printed}");
    assert!(printed.contains("TRACESTATE=vendor=opaque"), "{printed}");

    let own = CommandSpec { env: BTreeMap::from([("TRACEPARENT".into(), text("mine"))]), ..command(&["env"]) };
    let printed = variables(tool(&spec(Action::Command(own))).invoke(traced).await);
    assert!(printed.contains("TRACEPARENT=mine"), "{printed}");

    let untraced = variables(tool(&spec(Action::Command(command(&["env"])))).invoke(call(json!({}))).await);
    assert!(!untraced.contains("TRACE"), "{untraced}");
}
