//! All expressions of a tool's parts: what is to be checked, and which environment variables are named, at start.

use crate::spec::{Action, Ask, CommandSpec, FileChange, FileSpec, HttpBody, HttpSpec, Look, ProbeSpec, UndoSpec, VerifySpec};
use crate::template::{Expr, TextTemplate, ValueTemplate};

pub(super) fn of_action(action: &Action) -> Vec<&Expr> {
    match action {
        Action::Http(http) => of_http(http),
        Action::Command(command) => of_command(command),
        Action::File(file) => of_file(file),
        Action::Client => Vec::new(),
    }
}

pub(super) fn of_probe(probe: &ProbeSpec) -> Vec<&Expr> {
    let asked = match &probe.ask {
        Ask::Http(http) => of_http(http),
        Ask::Command(command) => of_command(command),
    };
    asked.into_iter().chain([&probe.happened]).chain(&probe.did_not_happen).chain(&probe.result).collect()
}

pub(super) fn of_verify(verify: &VerifySpec) -> Vec<&Expr> {
    let asked = match &verify.look {
        Look::Http(http) => of_http(http),
        Look::Command(command) => of_command(command),
        Look::File(_) => of_file_look(verify),
    };
    let version = verify.version.iter().flat_map(|version| [&version.was, &version.is]);
    asked.into_iter().chain(&verify.holds).chain(version).chain(&verify.reference).collect()
}

pub(super) fn of_file_look(verify: &VerifySpec) -> Vec<&Expr> {
    match &verify.look {
        Look::File(look) => look.path.exprs().into_iter().chain(look.sha256.iter().flat_map(TextTemplate::exprs)).collect(),
        Look::Http(_) | Look::Command(_) => Vec::new(),
    }
}

pub(super) fn of_undo(undo: &UndoSpec) -> Vec<&Expr> {
    undo.args.exprs()
}

fn of_http(http: &HttpSpec) -> Vec<&Expr> {
    let body = match &http.body {
        HttpBody::None => Vec::new(),
        HttpBody::Json(template) => template.exprs(),
        HttpBody::Text(template) => template.exprs(),
    };
    let headers = http.headers.iter().flat_map(|(_, template)| template.exprs());
    http.url.exprs().into_iter().chain(headers).chain(body).chain(&http.result).collect()
}

fn of_command(command: &CommandSpec) -> Vec<&Expr> {
    let texts = command.argv.iter().chain(command.env.values()).flat_map(TextTemplate::exprs);
    texts.chain(command.stdin.iter().flat_map(ValueTemplate::exprs)).collect()
}

fn of_file(file: &FileSpec) -> Vec<&Expr> {
    match &file.change {
        FileChange::Write { path, content } => path.exprs().into_iter().chain(content.exprs()).collect(),
        FileChange::Delete { path } => path.exprs(),
        FileChange::Move { from, to } => from.exprs().into_iter().chain(to.exprs()).collect(),
    }
}
