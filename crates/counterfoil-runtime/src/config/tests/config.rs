//! Whole files: what is read from a good one, what is said about a bad one.

use std::path::Path;
use std::time::Duration;

use counterfoil_core::policy::{EffectClass, Jitter, OnInFlight, Rate, Repeat};

use crate::config::{Config, Environment, Mode};
use crate::spec::{Action, Ask, FileChange, HttpBody, ServerError, StatusRange};

pub fn environment() -> Environment {
    [("BANK_TOKEN", "s3cret"), ("DATABASE_URL", "postgres://u:pw@db/ledger")].into_iter().collect()
}

pub fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text, "conf/counterfoil.yaml", &environment())
        .map_err(|errors| errors.lines().map(|line| line.replace("conf/counterfoil.yaml:", "")).collect())
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn an_empty_file_has_the_defaults() {
    for text in ["", "# nothing yet\n", "tools:\n", "{}", "\u{feff}store: sqlite:counterfoil.db\r\n"] {
        let config = good(text);
        assert_eq!((config.store.as_str(), config.mode), ("sqlite:conf/counterfoil.db", Mode::Enforce), "{text:?}");
        assert_eq!(config.tenant.as_str(), "default");
        assert!(config.tools.is_empty());
    }
    let here = Config::parse("", "counterfoil.yaml", &environment()).unwrap();
    assert_eq!(here.store, "sqlite:counterfoil.db");
}

#[test]
fn a_full_file_is_read_whole() {
    let config = good(include_str!("golden/full.yaml"));
    assert_eq!(config.store, "postgres://u:pw@db/ledger");
    assert_eq!((config.mode, config.tenant.as_str()), (Mode::Shadow, "acme"));
    assert_eq!(config.env.get("BANK_TOKEN"), Some("s3cret"));
    assert_eq!((config.egress.allow.as_slice(), config.egress.allow_private), (["*.example.com".to_owned()].as_slice(), true));
    let names: Vec<_> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["charge_card", "refund_card", "list_charges", "build", "write_note", "drop_note", "archive_note", "ring_bell"]);

    let charge = &config.tools[0];
    let policy = &charge.policy;
    assert_eq!(charge.description.as_deref(), Some("Charge a customer's card"));
    assert_eq!((policy.effect, policy.repeat), (EffectClass::Write, Repeat::Keyed));
    assert_eq!(policy.key.as_ref().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(), ["order_id", "card.number"]);
    assert_eq!((policy.timeout, policy.deadline), (Duration::from_secs(10), Duration::from_secs(60)));
    let retry = policy.retry;
    assert_eq!((retry.attempts, retry.factor, retry.jitter), (3, 1.5, Jitter::Off));
    assert_eq!((retry.first, retry.max), (Duration::from_millis(100), Duration::from_secs(2)));
    let breaker = policy.breaker;
    assert_eq!((breaker.enabled, breaker.consecutive, breaker.rate, breaker.window), (true, 3, 0.25, 200));
    let limits = policy.limits;
    assert_eq!((limits.concurrency, limits.queue, limits.per_run, limits.cost_per_run), (Some(10), Some(5), Some(3), Some(500.5)));
    assert_eq!(limits.rate, Some(Rate { count: 50, per: Duration::from_secs(1) }));
    assert_eq!(policy.retain, Duration::from_secs(7 * 86_400));
    assert_eq!((policy.dedupe_window, policy.on_in_flight), (Some(Duration::from_secs(3600)), OnInFlight::Conflict));
    assert_eq!((policy.wait_max, policy.lease), (Duration::ZERO, Duration::from_secs(45)));
    assert_eq!((policy.approval_expires, policy.result_bytes_max), (Duration::from_secs(7200), 64 << 10));
    assert_eq!(policy.settle_after, Some(Duration::from_secs(5)));
    assert!(
        charge.approval.is_some() && charge.cost.is_some() && charge.subject.is_some() && charge.input.is_some() && charge.output.is_some()
    );
    let Action::Http(http) = &charge.action else { panic!("{charge:?}") };
    assert_eq!((http.method.as_str(), http.url.literal()), ("POST", Some("https://bank.example/charges")));
    assert_eq!((http.key_header.as_deref(), http.redirects_max), (Some("X-Key"), 0));
    assert!(matches!(http.body, HttpBody::Json(_)));
    assert_eq!(http.classes.success, [StatusRange { from: 200, to: 299 }, StatusRange { from: 409, to: 409 }]);
    assert_eq!(http.classes.server_error, ServerError::NotDone);
    let probe = charge.probe.as_ref().unwrap();
    assert!(matches!(&probe.ask, Ask::Http(http) if http.method == "GET" && http.redirects_max == 5 && http.key_header.is_none()));
    assert_eq!(probe.timeout, Duration::from_secs(3));
    assert_eq!(charge.undo.as_ref().unwrap().tool.as_str(), "refund_card");

    assert_eq!(config.tools[1].policy.retry.attempts, 1);
    assert!(!config.tools[1].policy.breaker.enabled);
    let Action::Command(build) = &config.tools[3].action else { panic!() };
    assert_eq!((build.argv.len(), build.cwd.as_deref()), (3, Some(Path::new("conf/work"))));
    assert_eq!((build.pass_env.as_slice(), build.rejected_exit.as_slice()), (["PATH".to_owned()].as_slice(), [2, 3].as_slice()));
    let Action::File(note) = &config.tools[4].action else { panic!() };
    assert_eq!(note.root, Path::new("conf/notes"));
    assert!(matches!(note.change, FileChange::Write { .. }));
    assert!(matches!(&config.tools[6].action, Action::File(file) if matches!(file.change, FileChange::Move { .. })));
    let bell = &config.tools[7];
    assert!(matches!(bell.action, Action::Client) && bell.probe.is_some() && bell.undo.is_some());
}

#[test]
fn passwords_are_not_shown() {
    let shown = format!("{:?}", good("store: ${env.DATABASE_URL}\nenv: [DATABASE_URL, BANK_TOKEN]\n"));
    assert!(shown.contains("postgres://…@db/ledger"), "{shown}");
    assert!(!shown.contains("pw") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn what_is_not_written_gives_way() {
    let tool = |fields: &str| good(&format!("tools:\n  t:\n    command: [\"true\"]\n    {fields}\n")).tools.remove(0).policy;
    assert_eq!(tool("timeout: 10m").deadline, Duration::from_secs(600));
    assert_eq!(tool("deadline: 5s").timeout, Duration::from_secs(5));
    assert_eq!(tool("retry: { first: 30s }").retry.max, Duration::from_secs(30));
    assert_eq!(tool("retry: off").retry.attempts, 1);
    assert_eq!(tool("retry: false").retry.attempts, 1);
    assert_eq!(tool("dedupe_window: 7d").retain, Duration::from_secs(7 * 86_400));
    assert!(!tool("breaker: off").breaker.enabled);
}

#[test]
fn protection_is_switched_off_only_by_saying_so_twice() {
    let mode = |text: &str, switch: Option<&str>| {
        let environment = switch.map(|value| ("TOOL_RELIABILITY_ENABLED", value)).into_iter().collect();
        Config::parse(text, "c.yaml", &environment).map(|config| config.mode).map_err(|errors| errors.lines().collect::<Vec<_>>())
    };
    let accepted = "i_accept_duplicates: true\n";
    assert_eq!(mode("mode: off\ni_accept_duplicates: true\n", None), Ok(Mode::Off));
    assert_eq!(mode(accepted, Some("false")), Ok(Mode::Off));
    assert_eq!(mode(accepted, Some("true")), Ok(Mode::Enforce));
    assert_eq!(mode("", Some("")), Ok(Mode::Enforce));
    assert_eq!(
        mode("mode: off\n", None).unwrap_err(),
        ["c.yaml:1:7: mode: off runs tools without any protection; add i_accept_duplicates: true if that is meant, \
         or write mode: shadow to only watch"]
    );
    assert_eq!(
        mode("", Some("0")).unwrap_err(),
        ["c.yaml:1:1: mode: the environment variable TOOL_RELIABILITY_ENABLED switches protection off; \
         that also needs i_accept_duplicates: true in this file"]
    );
    assert_eq!(
        mode("", Some("maybe")).unwrap_err(),
        ["c.yaml:1:1: mode: the environment variable TOOL_RELIABILITY_ENABLED is \"maybe\"; it may be true or false"]
    );
}

#[test]
fn a_tool_has_a_mode_of_its_own_and_off_must_be_said_twice() {
    let parse = |text: &str| Config::parse(text, "c.yaml", &Environment::default());
    let mode = |text: &str| parse(text).map(|config| config.tools[0].mode).map_err(|errors| errors.lines().collect::<Vec<_>>());
    let tool = "tools:\n  t:\n    command: [\"true\"]\n";
    assert_eq!(mode(tool), Ok(None));
    assert_eq!(mode(&format!("{tool}    mode: shadow\n")), Ok(Some(Mode::Shadow)));
    assert_eq!(mode(&format!("i_accept_duplicates: true\n{tool}    mode: off\n")), Ok(Some(Mode::Off)));
    let refused = mode(&format!("{tool}    mode: off\n")).unwrap_err();
    assert_eq!(
        refused,
        [
            "c.yaml:4:11: tools.t.mode: off runs this tool without any protection; add i_accept_duplicates: true at the top of the file if that is \
          meant, or write mode: shadow to only watch"
        ]
    );
    assert!(mode(&format!("{tool}    mode: shadw\n")).unwrap_err()[0].contains("shadow"));
}

#[test]
fn all_mistakes_are_shown_at_once() {
    let errors = Config::parse(include_str!("golden/mistakes.yaml"), "counterfoil.yaml", &environment()).unwrap_err();
    let shown = format!("{errors}\n");
    assert_eq!(shown, include_str!("golden/mistakes.txt"), "\n{shown}");
}

#[test]
fn files_are_read_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("counterfoil.yaml");
    let said = |path: &Path| Config::load(path).unwrap_err().mistakes()[0].message.clone();
    assert_eq!(said(&path), "there is no such file; `counterfoil init` writes one to start from");
    std::fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
    assert_eq!(said(&path), "is not UTF-8 text; the first wrong byte is in line 2");
    std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
    assert_eq!(said(&path), "is 1048577 bytes long; at most 1048576 are read");
    assert!(said(dir.path()).starts_with("cannot be read"));
    std::fs::write(&path, "tenant: acme\n").unwrap();
    assert_eq!(Config::load(&path).unwrap().tenant.as_str(), "acme");
}
