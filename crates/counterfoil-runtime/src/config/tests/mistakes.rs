//! One mistake at a time: the line that is said about it.

use super::config::parse;

/// What is said about a tool with these fields, which begin in line 4 and column 5.
pub fn about(fields: &str) -> Vec<String> {
    let mut text = String::from("env: [BANK_TOKEN]\ntools:\n  t:\n");
    for line in fields.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    text.push_str("  other: { command: [echo], input: { type: object, required: [id], properties: { id: {}, why: {} } } }\n");
    text.push_str("  look: { command: [ls], effect: read }\n");
    parse(&text).err().unwrap_or_default()
}

pub fn check(fields: &str, expected: &[&str]) {
    assert_eq!(about(fields), expected, "\n{fields}");
}

const COMMAND: &str = "command: [echo]\n";

#[test]
fn tools() {
    check("description: x", &["3:3: tools.t: one of http, command, file, client is missing"]);
    check(
        "command: [a]\nhttp: { method: GET, url: \"http://x\" }",
        &["4:5: tools.t.command: http is already written; exactly one of http, command, file, client may be"],
    );
    check(&format!("{COMMAND}descripton: x"), &["5:5: tools.t.descripton: unknown field; did you mean \"description\"?"]);
    check(
        &format!("{COMMAND}description: 5"),
        &["5:18: tools.t.description: found the number 5; expected a text: put it in quotes, \"5\""],
    );
    check(
        &format!("{COMMAND}url: x\nattempts: 3"),
        &[
            "5:5: tools.t.url: unknown field; did you mean \"http.url\"?",
            "6:5: tools.t.attempts: unknown field; did you mean \"retry.attempts\"?",
        ],
    );
    check(
        &format!("{COMMAND}retry: 3"),
        &["5:12: tools.t.retry: found the number 3; expected a map of attempts, first, max, factor, jitter"],
    );
    check("[1, 2]", &["4:5: tools.t: found a list; expected a map of description, http, command, file, client, …"]);
    assert_eq!(
        parse("tools:\n  a b: { command: [x] }\n").unwrap_err(),
        ["2:3: tools.a b: tool name \"a b\" contains ' ' at byte 1; letters, digits, '_', '-', '.' and '/' only"]
    );
    assert_eq!(
        parse("tools:\n  n: { file: { root: ., delete: { path: x } } }\n  n.undo: { command: [x] }\n").unwrap_err(),
        ["3:3: tools.n.undo: this name is taken by what undoes the file tool n; choose another"]
    );
    assert_eq!(parse("tools: [a]\n").unwrap_err(), ["1:8: tools: found a list; expected a map, as in { name: value }"]);
    assert_eq!(parse("tols: {}\n").unwrap_err(), ["1:1: tols: unknown field; did you mean \"tools\"?"]);
    assert_eq!(
        parse("just words\n").unwrap_err(),
        ["1:1: found the text \"just words\"; expected a map of store, mode, i_accept_duplicates, allow_volatile, tenant, …"]
    );
}

#[test]
fn policies() {
    let policy = |line: &str, expected: &[&str]| check(&format!("{COMMAND}{line}"), expected);
    policy(
        "effect: writes",
        &["5:13: tools.t.effect: found the text \"writes\"; expected one of pure, read, write; did you mean \"write\"?"],
    );
    policy(
        "timeout: 10",
        &[
            "5:14: tools.t.timeout: \"10\" has no unit; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d; did you mean \"10s\"?",
        ],
    );
    policy("timeout: 0s", &["5:14: tools.t.timeout: found 0; expected a duration above zero"]);
    policy(
        "timeout:",
        &["5:5: tools.t.timeout: found nothing; \"\" is not a duration; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d"],
    );
    policy(
        "timeout: 1m\ndeadline: 30s",
        &["5:5: tools.t.timeout: 1m for one attempt is more than the deadline of 30s for all of them; raise deadline or lower timeout"],
    );
    policy("retry: { attempts: -1 }", &["5:24: tools.t.retry.attempts: found the number -1; expected a whole number, at least 1"]);
    policy("retry: { attempts: 101 }", &["5:24: tools.t.retry.attempts: 101 attempts are too many; at most 100"]);
    policy("retry: { first: 3s, max: 1s }", &["5:14: tools.t.retry.first: the first delay of 3s is above the longest, max: 1s"]);
    policy("retry: { factor: 0.5 }", &["5:22: tools.t.retry.factor: found 0.5; expected a number from 1 (always the same delay) to 100"]);
    policy("breaker: { rate: 0 }", &["5:22: tools.t.breaker.rate: found 0; expected a share above 0 and up to 1, as in 0.5 for half"]);
    policy("limits: { queue: 5 }", &["5:15: tools.t.limits.queue: nothing ever queues without limits.concurrency; add it, or drop queue"]);
    policy(
        "limits: { cost_per_run: 5 }",
        &["5:15: tools.t.limits.cost_per_run: what one call costs is not known; add cost to the tool, as in cost: args.cents"],
    );
    policy("lease: 100ms", &["5:12: tools.t.lease: a lease of 100ms would be lost to any pause; at least 1s"]);
    policy("result_max: 1GiB", &["5:17: tools.t.result_max: found 1073741824 bytes; results are kept in the ledger, at most 64MiB each"]);
    policy(
        "key: []",
        &["5:10: tools.t.key: an empty list would make all calls of a step one call; name the arguments that identify a call, or drop key"],
    );
    policy("key: [a..b]", &["5:11: tools.t.key[0]: \"a..b\" is not the path of an argument; write order_id or card.number"]);
    policy(
        "approval_expires: 1h",
        &["5:5: tools.t.approval_expires: nothing here needs approval; add approval: true or an expression, or drop it"],
    );
    policy("dedupe_window: 2h\nretain: 1h", &["5:5: tools.t.dedupe_window: 2h is longer than results are kept, retain: 1h; raise retain"]);
    policy(
        "effect: pure\nundo: { tool: other, args: { id: 1 } }",
        &["6:5: tools.t.undo: an effect: pure tool changes nothing, so there is nothing to undo; drop undo, or write effect: write"],
    );
    policy(
        "effect: pure\nprobe: { command: [ls], happened: \"true\" }",
        &["6:5: tools.t.probe: an effect: pure tool may simply be run again, so it is never in doubt; drop probe, or write effect: write"],
    );
    policy("repeat: keyed", &[]);
}

#[test]
fn schemas() {
    let input = "command: [echo]\ninput: { type: object, properties: { order_id: {}, card: { properties: { number: {} } } } }\n";
    check(
        &format!("{input}key: [orderid]"),
        &["6:11: tools.t.key[0]: the input schema has no argument \"orderid\"; did you mean \"order_id\"?"],
    );
    check(&format!("{input}redact: [card.cvc]"), &["6:14: tools.t.redact[0]: the input schema has no argument \"cvc\"; allowed: number"]);
    check(
        "command: [echo]\ninput: { properties: { type: string } }",
        &["5:34: tools.t.input.properties.type: found the text \"string\"; a property is a map, as in { type: string }"],
    );
    check(
        "command: [echo]\ninput: { $ref: \"https://example.com/schema.json\" }",
        &["5:20: tools.t.input.$ref: leads out of this schema; nothing is fetched, so copy it below $defs and write \"#/$defs/NAME\""],
    );
    check(
        "command: [echo]\noutput: { $schema: \"https://example.com/own\" }",
        &["5:24: tools.t.output.$schema: not a known draft of JSON Schema; allowed: https://json-schema.org/draft/2020-12/schema, \
         https://json-schema.org/draft/2019-09/schema, http://json-schema.org/draft-07/schema#, http://json-schema.org/draft-06/schema#, \
         http://json-schema.org/draft-04/schema#"],
    );
    check(
        "command: [echo]\ninput: { requird: [a], properties: { requird: { exmple: 1, x-own: 2 } }, prefixItems: [{ tpye: object }] }",
        &[
            "5:14: tools.t.input.requird: not a keyword of JSON Schema; it would be ignored; did you mean \"required\"?",
            "5:53: tools.t.input.properties.requird.exmple: not a keyword of JSON Schema; it would be ignored; did you mean \"examples\"?",
            "5:94: tools.t.input.prefixItems[0].tpye: not a keyword of JSON Schema; it would be ignored; did you mean \"type\"?",
        ],
    );
    let found = about("command: [echo]\ninput: { properties: { a: { pattern: \"(\" } } }");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("5:42: tools.t.input"), "{found:?}");
    let found = about("command: [echo]\ninput: { $ref: \"#/$defs/none\" }");
    assert_eq!(found.len(), 1, "{found:?}");
    let found = about(&format!("command: [echo]\ninput: {{ description: {} }}", "x".repeat(70_000)));
    assert!(found[0].contains("at most 65536"), "{found:?}");
}

#[test]
fn expressions() {
    let with = |line: &str, expected: &[&str]| check(&format!("{COMMAND}{line}"), expected);
    with(
        "approval: \"${args.x > 1}\"",
        &["5:15: tools.t.approval: an expression is written here without ${ }; did you mean \"args.x > 1\"?"],
    );
    with("approval: \"arg.x > 1\"", &["5:15: tools.t.approval: there is no variable arg here; did you mean \"args\"?"]);
    with(
        "cost: result.price",
        &["5:11: tools.t.cost: result is not known here: it is there once the effect is done, in verify and undo; allowed: args"],
    );
    with("cost: 1.5\napproval: true\nsubject: args.customer", &[]);
    with(
        "subject: \"args.customer +\"\neffect: pure",
        &[
            "5:5: tools.t.subject: nothing is recorded of an effect: pure tool, so there is nothing to erase; drop it",
            "5:14: tools.t.subject: not a CEL expression: it ends too early (after 15 bytes)",
        ],
    );
    with(
        "probe: { command: [ls], happened: response.exit == 0 && reponse.json.ok }",
        &["5:39: tools.t.probe.happened: there is no variable reponse here; did you mean \"response\"?"],
    );
    with(
        "probe: { command: [ls, \"${env.OTHER}\"], happened: \"true\" }",
        &["5:28: tools.t.probe.command[1]: env.OTHER is not listed; add it at the top of the file, as in env: [OTHER]"],
    );
    let found = about(&format!("{COMMAND}approval: \"args.x >\""));
    assert_eq!(found, ["5:15: tools.t.approval: not a CEL expression: it ends too early (after 8 bytes)"]);
    assert_eq!(parse("env: [BANK_TOKEN, MISSING]\n").unwrap_err(), ["1:19: env[1]: the environment variable MISSING is not set"]);
}

#[test]
fn undos() {
    let undo = |undo: &str, expected: &[&str]| check(&format!("{COMMAND}undo: {undo}"), expected);
    undo("{ tool: othr, args: {} }", &["5:19: tools.t.undo.tool: there is no tool \"othr\"; did you mean \"other\"?"]);
    undo(
        "{ tool: other, args: { idd: 1 } }",
        &[
            "5:32: tools.t.undo.args: other requires the argument \"id\"",
            "5:34: tools.t.undo.args.idd: other has no argument \"idd\"; did you mean \"id\"?",
        ],
    );
    undo("{ tool: look, args: {} }", &["5:19: tools.t.undo.tool: look is not an effect: write tool; what changes nothing undoes nothing"]);
    undo("{ tool: other }", &["5:5: tools.t.undo: \"args\" is missing"]);
    undo("{ tool: other, args: { id: \"${result.id}\" } }", &[]);
}

#[test]
fn the_top() {
    let top = |text: &str, expected: &[&str]| assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    top("tenant: \"\"", &["1:9: tenant: tenant is empty"]);
    top("mode: no", &["1:7: mode: found the text \"no\"; expected one of enforce, shadow, off"]);
    top(
        "egress: { allow: [\"https://api.example.com/x\"], allow_private: yes }",
        &[
            "1:19: egress.allow[0]: \"https://api.example.com/x\" is not a host; write api.example.com, \
         or *.example.com for any host below it; did you mean \"api.example.com\"?",
            "1:64: egress.allow_private: found the text \"yes\"; expected true or false; did you mean \"true\"?",
        ],
    );
    top("store: mysql://x", &["1:8: store: not the url of a store; allowed: sqlite:FILE, postgres://…, redis://…, memory:"]);
    top("store: sqlite", &["1:8: store: not the url of a store; did you mean \"sqlite:counterfoil.db\"?"]);
    top(
        "egress: { allow: [*.example.com] }",
        &["1:19: egress.allow[0]: no anchor &.example.com was written above this alias; quote a text that begins with *"],
    );
    top("store: \"sqlite:\"", &["1:8: store: which file? write sqlite:counterfoil.db"]);
    top(
        "store: \"${env.DATABASE_URL}\"",
        &["1:8: store: env.DATABASE_URL is not listed; add it at the top of the file, as in env: [DATABASE_URL]"],
    );
}

/// A carriage return alone ends a line, as YAML has it: the line that is shown is the one that is named.
#[test]
fn the_line_shown_is_the_line_named() {
    for newline in ["\n", "\r\n", "\r"] {
        let text = ["# a comment", "tenant: acme", "nonsense: 1", "tools: {}", ""].join(newline);
        let errors = crate::config::Config::parse(&text, "counterfoil.yaml", &crate::config::Environment::default()).unwrap_err();
        let shown = errors.to_string();
        assert!(shown.contains(":3:1: nonsense: ") && shown.contains("3 | nonsense: 1\n"), "{newline:?}: {shown}");
    }
}
