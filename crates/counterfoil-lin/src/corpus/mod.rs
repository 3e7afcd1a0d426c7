//! Requests that must be refused, as bytes. Data and a generator; whoever runs them brings the server and the socket.
//!
//! The rule for every case: never a 5xx, never a panic, never an effect, and the connection answers or is closed within 10 s, while the
//! sending side stays open. The server must have the tool [`TOOL`], with [`TOOL_INPUT`] as its `input` schema, for the tenant of the
//! token: so that what is wrong with a request is the only reason to refuse it. Each case has an idempotency key of its own, made of its
//! name: run on a fresh ledger. Where HTTP leaves open how a request is read, it is aimed at an effect that does not exist.

mod fields;
mod framing;
mod headers;
mod json;
mod request;
mod runs;
mod targets;

use std::ops::RangeInclusive;

use request::Request;

/// The tool that must stay uncalled.
pub const TOOL: &str = "corpus_tool";
/// Its `input` schema.
pub const TOOL_INPUT: &str = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
/// Well formed, and nobody's.
pub const NO_EFFECT: &str = "00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee";
/// More than any body the server takes.
pub const OVERSIZE: usize = 8 * 1024 * 1024 + 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// All that is sent.
    pub raw: Vec<u8>,
    pub expect: Expect,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    Status(RangeInclusive<u16>),
    /// Without an answer.
    ConnectionClosed,
    /// What cannot be read may be answered or not.
    StatusOrClosed(RangeInclusive<u16>),
}

impl Expect {
    /// `status`: of the first answer; `None` when the connection was closed without one.
    pub fn allows(&self, status: Option<u16>) -> bool {
        match (self, status) {
            (Expect::Status(range) | Expect::StatusOrClosed(range), Some(status)) => range.contains(&status),
            (Expect::ConnectionClosed | Expect::StatusOrClosed(_), None) => true,
            (Expect::Status(_), None) | (Expect::ConnectionClosed, Some(_)) => false,
        }
    }
}

/// Any refusal of the client's fault.
const REFUSED: RangeInclusive<u16> = 400..=499;

/// `tenant_token`: may do everything for its tenant. `other_token`: of another tenant. `host`: what belongs into `Host`.
pub fn cases(tenant_token: &str, other_token: &str, host: &str) -> Vec<Case> {
    let mut book = Book { token: tenant_token, host, cases: Vec::new() };
    json::write(&mut book);
    fields::write(&mut book);
    headers::write(&mut book, other_token);
    targets::write(&mut book);
    runs::write(&mut book);
    framing::write(&mut book);
    book.cases
}

/// Every way to reach for another tenant's effect: `effect` is its key, `token` one that must not see it. To be run once with a
/// waiting, a held and a finished effect; none of them may change.
pub fn foreign(token: &str, effect: &str, host: &str) -> Vec<Case> {
    let mut book = Book { token, host, cases: Vec::new() };
    headers::foreign(&mut book, effect);
    book.cases
}

/// The cases so far, and what their requests have in common.
struct Book<'a> {
    token: &'a str,
    host: &'a str,
    cases: Vec<Case>,
}

impl Book<'_> {
    /// A request with nothing wrong yet.
    fn request(&self, name: &str, method: &str, target: &str) -> Request {
        let request = Request::new(method, target).header("Host", self.host).header("Connection", "close");
        let request = request.header("Authorization", format!("Bearer {}", self.token));
        if method == "POST" { request.header("Idempotency-Key", key(name)) } else { request }
    }

    /// A call that would be carried out, were it not for what is done to it.
    fn call(&self, name: &str) -> Request {
        self.request(name, "POST", &format!("/v1/tools/{TOOL}/call")).json(r#"{"args":{"n":1}}"#)
    }

    /// A change that finds nothing to change, however it is read.
    fn harmless(&self, name: &str) -> Request {
        self.request(name, "POST", &format!("/v1/effects/{NO_EFFECT}/cancel")).json("{}")
    }

    fn refused(&mut self, name: impl Into<String>, request: Request) {
        self.expect(name, request, Expect::Status(REFUSED));
    }

    /// For what the HTTP library may not even read.
    fn unreadable(&mut self, name: impl Into<String>, request: Request) {
        self.expect(name, request, Expect::StatusOrClosed(REFUSED));
    }

    fn expect(&mut self, name: impl Into<String>, request: Request, expect: Expect) {
        self.raw(name, request.bytes(), expect);
    }

    fn raw(&mut self, name: impl Into<String>, raw: Vec<u8>, expect: Expect) {
        self.cases.push(Case { name: name.into(), raw, expect });
    }
}

/// Printable, and no longer than a key may be.
fn key(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn all() -> Vec<Case> {
        cases("token-of-tenant", "token-of-other", "127.0.0.1:7070")
    }

    #[test]
    fn there_are_enough_cases_and_each_has_its_own_name() {
        let cases = all();
        println!("{} cases", cases.len());
        assert!(cases.len() >= 320, "{}", cases.len());
        let names: HashSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(
            names.len(),
            cases.len(),
            "twice: {:?}",
            cases.iter().map(|case| &case.name).find(|name| cases.iter().filter(|case| case.name == **name).count() > 1)
        );
        let bytes: HashSet<_> = cases.iter().map(|case| &case.raw).collect();
        assert_eq!(bytes.len(), cases.len(), "two names for one request");
    }

    #[test]
    fn every_part_is_there() {
        let names: Vec<_> = all().into_iter().map(|case| case.name).collect();
        let parts = [
            ("json/", 80),
            ("field/", 100),
            ("size/", 6),
            ("key/", 25),
            ("auth/", 15),
            ("type/", 8),
            ("host/", 6),
            ("origin/", 4),
            ("flood/", 3),
            ("method/", 8),
            ("route/", 8),
            ("path/", 20),
            ("query/", 20),
            ("smuggle/", 10),
            ("length/", 8),
            ("chunk/", 8),
            ("line/", 15),
            ("tenant/", 5),
        ];
        for (part, least) in parts {
            let count = names.iter().filter(|name| name.starts_with(part)).count();
            assert!(count >= least, "{part} has {count} cases");
        }
        assert_eq!(names.iter().filter(|name| !parts.iter().any(|(part, _)| name.starts_with(part))).count(), 0, "a case of no part");
    }

    #[test]
    fn no_case_allows_an_error_of_the_server() {
        for case in all() {
            assert!((500..=599).all(|status| !case.expect.allows(Some(status))), "{}", case.name);
        }
    }

    #[test]
    fn only_the_keys_under_test_are_too_long() {
        for case in all().iter().filter(|case| !case.name.starts_with("key/")) {
            let text = String::from_utf8_lossy(&case.raw);
            let key = text.lines().find_map(|line| line.strip_prefix("Idempotency-Key: "));
            assert!(key.is_none_or(|key| (1..=255).contains(&key.len())), "{}", case.name);
        }
    }

    #[test]
    fn what_an_expectation_allows() {
        assert!(Expect::Status(400..=499).allows(Some(422)) && !Expect::Status(400..=499).allows(None));
        assert!(Expect::ConnectionClosed.allows(None) && !Expect::ConnectionClosed.allows(Some(400)));
        assert!(Expect::StatusOrClosed(400..=499).allows(None) && !Expect::StatusOrClosed(400..=499).allows(Some(200)));
    }
}
