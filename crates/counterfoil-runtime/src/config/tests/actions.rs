//! Mistakes in what a tool does: a request, a process, a file.

use super::mistakes::check;

#[test]
fn http() {
    let http = |fields: &str, expected: &[&str]| check(&format!("http: {{ {fields} }}"), expected);
    http("url: \"http://x\"", &["4:5: tools.t.http: \"method\" is missing"]);
    http("method: GET", &["4:5: tools.t.http: \"url\" is missing"]);
    http("method: POST, url: \"ftp://x/y\"", &["4:32: tools.t.http.url: not an http or https url; write https://host/path"]);
    http("method: POST, url: \"bank.example\"", &["4:32: tools.t.http.url: not a url; write https://host/path"]);
    http(
        "method: POST, url: \"https://${args.host}/x\"",
        &["4:32: tools.t.http.url: the host comes from an expression, so a caller may choose where requests go: \
         list the hosts it may be, as in egress: { allow: [api.example.com] }"],
    );
    http(
        "method: GET, url: \"http://x\", json: {}",
        &["4:43: tools.t.http.json: a GET request carries no body; put it into the url, or use POST"],
    );
    http(
        "method: PUT, url: \"http://x\", json: {}, body: x",
        &["4:53: tools.t.http.body: json is already written; a request has one body"],
    );
    http(
        "method: PUT, url: \"http://x\", redirects: 3",
        &["4:54: tools.t.http.redirects: a PUT is never sent again by a redirect, which could do it twice; drop redirects"],
    );
    http(
        "method: PUT, url: \"http://x\", success: [2xx, 999], rejection: [204]",
        &[
            "4:58: tools.t.http.success[1]: \"999\" is not an HTTP status; write 409, 4xx or 500-503",
            "4:76: tools.t.http.rejection[0]: a status cannot be both success and rejection; write the exact ones, as in 409 or 410-499",
        ],
    );
    http(
        "method: PUT, url: \"http://x\", headers: { a b: x, Host: y, idempotency-key: z, X: \"a\\nb\" }",
        &[
            "4:43: tools.t.http.headers: Idempotency-Key carries our key already; drop it here, or write key_header: false",
            "4:54: tools.t.http.headers.a b: \"a b\" is not the name of a header",
            "4:62: tools.t.http.headers.Host: this header is set by the HTTP client; drop it",
            "4:94: tools.t.http.headers.X: a header's value is one line of printable characters",
        ],
    );
    check(
        "http: { method: PUT, url: \"http://x\", key_header: false }\nrepeat: keyed",
        &["5:5: tools.t.repeat: keyed, but the key is sent nowhere: drop key_header: false, or put ${key} into the request"],
    );
    check("http: { method: PUT, url: \"http://x/${key}\", key_header: false }\nrepeat: keyed", &[]);
}

#[test]
fn commands() {
    let shell = "tools.t.command: argv is a list, one item per argument; write [\"sh\", \"-c\", …] if a shell is truly meant; did you mean";
    check("command: echo hi", &[&format!("4:14: {shell} \"[echo, hi]\"?")]);
    check("command: []", &["4:14: tools.t.command: argv is empty; its first item is the program"]);
    check(
        "command: [\"${args.x}\"]",
        &["4:15: tools.t.command[0]: the program itself comes from an expression; write it literally, so that no caller chooses what runs"],
    );
    let script = "an argument inside a script becomes code, so a caller could run anything; pass it beside the script, \
                  as in [\"sh\", \"-c\", \"echo \\\"$1\\\"\", \"sh\", \"${args.text}\"]";
    check("command: [/bin/bash, -ec, \"echo ${args.x}\"]", &[&format!("4:31: tools.t.command[2]: {script}")]);
    check("command: [python3, -c, \"print(${args.x})\"]", &[&format!("4:28: tools.t.command[2]: {script}")]);
    check("command: [sh, -c, 'echo \"$1\" $${HOME}', sh, \"${args.x}\"]", &[]);
    check("command: [sh, -c, 'echo ${HOME}']", &["4:23: tools.t.command[2]: there is no variable HOME here; did you mean \"env.HOME\"?"]);
    check(
        "command: { argv: [x], rejected_exit: [0, 300], retriable_exit: [1], env: { 1A: x, COUNTERFOIL_KEY: x }, pass_env: [$HOME] }",
        &[
            "4:43: tools.t.command.rejected_exit[0]: exit code 0 is success",
            "4:46: tools.t.command.rejected_exit[1]: found the number 300; expected a whole number from 1 to 255",
            "4:80: tools.t.command.env.1A: \"1A\" is not the name of an environment variable; letters, digits and _ only, no $",
            "4:87: tools.t.command.env.COUNTERFOIL_KEY: every command is given this variable already; drop it",
            "4:120: tools.t.command.pass_env[0]: \"$HOME\" is not the name of an environment variable; letters, digits and _ only, no $",
        ],
    );
}

#[test]
fn files() {
    let file = |fields: &str, expected: &[&str]| check(&format!("file: {fields}"), expected);
    file("{ root: notes }", &["4:5: tools.t.file: one of write, delete, move is missing"]);
    file("{ delete: { path: x } }", &["4:5: tools.t.file: \"root\" is missing"]);
    file(
        "{ root: notes, delete: { path: /etc/passwd } }",
        &["4:42: tools.t.file.delete.path: \"/etc/passwd\" leads out of the root; paths are relative to root and never contain \"..\""],
    );
    file(
        "{ root: \"${args.x}\", delete: { path: x } }",
        &["4:19: tools.t.file.root: \"${args.x}\" is not known when the file is read; only ${env.NAME} is"],
    );
    file(
        "{ root: notes, delete: { path: x } }\nrepeat: keyed",
        &["5:5: tools.t.repeat: a file honours no Idempotency-Key; write repeat: safe if doing it twice is the same as once"],
    );
    file(
        "{ root: notes, delete: { path: x } }\neffect: read",
        &["5:5: tools.t.effect: a file tool writes, deletes or moves a file: that is effect: write"],
    );
}

#[test]
fn clients() {
    check("client: {}", &[]);
    check("client: {}\nrepeat: keyed\nlimits: { rate: 5/s, per_run: 2 }", &[]);
    check("client: { url: x }", &["4:15: tools.t.client.url: unknown field"]);
    check(
        "client: {}\nlimits: { concurrency: 2 }",
        &["5:5: tools.t.limits: limits.concurrency does not hold for a tool that clients run: only they know when an attempt ends; \
         drop it, or use limits.rate"],
    );
    check(
        "client: {}\neffect: pure",
        &[
            "5:5: tools.t.effect: nothing is recorded of an effect: pure tool, so its client needs no permit; drop the tool, or write effect: read",
        ],
    );
    assert_eq!(
        super::config::parse("tools:\n  a: { client: {} }\n  b: { command: [x], undo: { tool: a, args: {} } }\n").unwrap_err(),
        ["3:36: tools.b.undo.tool: a is run by clients, and an undo is run here; name a tool of another kind"]
    );
}

#[test]
fn questions() {
    let probe = |fields: &str, expected: &[&str]| {
        check(&format!("command: [echo]\nprobe: {{ happened: \"true\", {fields} }}"), expected);
    };
    probe("http: { url: \"http://x\" }", &[]);
    probe(
        "http: { url: \"http://x\", key_header: Key }",
        &["5:57: tools.t.probe.http.key_header: a question carries no key, which could ask for the effect itself; drop it"],
    );
    probe("http: { method: POST, url: \"http://x\", json: { key: \"${key}\" } }", &[]);
    probe(
        "http: { method: DELETE, url: \"http://x\" }",
        &["5:48: tools.t.probe.http.method: a DELETE changes what it asks about; ask with GET, HEAD or POST"],
    );
    probe(
        "file: x",
        &[
            "5:5: tools.t.probe: one of http, command is missing",
            "5:32: tools.t.probe.file: unknown field; allowed: http, command, happened, did_not_happen, result, timeout, settle_after",
        ],
    );
}

#[test]
fn verifiers() {
    let verify =
        |fields: &str, expected: &[&str]| check(&format!("http: {{ method: PUT, url: \"http://x\" }}\nverify: {{ {fields} }}"), expected);
    verify("command: [ls]", &[]);
    verify("http: { url: \"http://x/${result.id}\" }, etag: true, version: \"response.json.v\", ref: result.id, timeout: 3s", &[]);
    verify("http: { url: \"http://x\" }, version: { was: result.v, is: \"response.json.v\" }", &[]);
    verify("http: { url: \"http://x\" }, holds: \"response.headers.etag == state.etag\"", &[]);
    verify("file: { path: \"${args.name}\", sha256: \"${result.sha256}\" }", &[]);
    verify("file: { root: out, path: x }, gone: true", &[]);
    verify("holds: \"true\"", &["5:5: tools.t.verify: one of http, command, file, github is missing"]);
    verify(
        "http: { method: POST, url: \"http://x\" }",
        &["5:15: tools.t.verify.http: a POST may change what it asks about; verify with GET or HEAD, or by a command"],
    );
    let says_all = "gone: true says all: it holds while the thing is not there; drop one of the two";
    verify(
        "http: { url: \"http://x\" }, gone: true, holds: \"true\", etag: true",
        &[&format!("5:54: tools.t.verify.holds: {says_all}"), &format!("5:69: tools.t.verify.etag: {says_all}")],
    );
    verify(
        "file: { path: x }, holds: \"true\"",
        &["5:34: tools.t.verify.holds: a file is compared by its digest; drop it, or ask with command"],
    );
    verify(
        "file: { path: ../x }",
        &["5:29: tools.t.verify.file.path: \"../x\" leads out of the root; paths are relative to root and never contain \"..\""],
    );
    verify("command: [ls], gone: true", &["5:30: tools.t.verify.gone: a command says itself whether it holds; drop it"]);
    let captured = "an ETag is captured from the answer of an http tool and compared with the answer of an http question; use version";
    verify("command: [ls], etag: true", &[&format!("5:30: tools.t.verify.etag: {captured}")]);
    check(
        "command: [echo]\neffect: pure\nverify: { command: [ls] }",
        &["6:5: tools.t.verify: nothing is recorded of an effect: pure tool, so there is nothing to verify; drop it"],
    );
}

#[test]
fn things_at_github() {
    let github = |fields: &str, expected: &[&str]| check(&format!("command: [echo]\nverify: {{ github: {{ {fields} }} }}"), expected);
    github("repo: octo/widgets, issue: \"${result.number}\"", &[]);
    github("repo: \"${args.owner}/${args.repo}\", file: docs/a.md, ref: main, base_url: \"http://127.0.0.1:1/api/v3/\"", &[]);
    github("repo: octo/widgets, pull_request: 7, compare: [state, head.sha]", &[]);
    github(
        "repo: octo/widgets, issue: 1, branch: main",
        &["5:55: tools.t.verify.github.branch: issue is already written; exactly one of issue, comment, pull_request, branch, file may be"],
    );
    let owner = "write owner/name, as in octo/widgets or \"${args.owner}/${args.repo}\"";
    github("repo: \"${args.repo}\", issue: 1", &[&format!("5:31: tools.t.verify.github.repo: {owner}")]);
    github(
        "repo: a/b, issue: 1, ref: main",
        &["5:46: tools.t.verify.github.ref: ref says at which branch or commit a file is looked at; drop it"],
    );
    github(
        "repo: a/b, branch: x, compare: [state]",
        &["5:57: tools.t.verify.github.compare[0]: found the text \"state\"; expected one of sha"],
    );
    github(
        "repo: a/b, issue: 1, token: GITHUB_TOKEN",
        &["5:53: tools.t.verify.github.token: env.GITHUB_TOKEN is not listed; add it at the top of the file, as in env: [GITHUB_TOKEN]"],
    );
    github(
        "repo: a/b, issue: 1, base_url: github.example",
        &["5:56: tools.t.verify.github.base_url: not the address of an API; write https://github.example/api/v3"],
    );
}

#[test]
fn confirmations() {
    let confirm = |written: &str, expected: &[&str]| check(&format!("command: [echo]\nconfirm: {written}"), expected);
    confirm("never", &[]);
    confirm("{ when: always, mode: human }", &[]);
    confirm("{ mode: warn }", &[]);
    confirm("sometimes", &["5:14: tools.t.confirm: found the text \"sometimes\"; expected one of never, on_recovery, always"]);
    confirm("{ mode: off }", &["5:22: tools.t.confirm.mode: found the text \"off\"; expected one of strict, warn, human"]);
    confirm("{ on: always }", &["5:16: tools.t.confirm.on: unknown field; allowed: when, mode"]);
}
