//! Requests that are wrong in every way, against one server: none is answered with an error of the server's, none does anything, none brings it down.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::access::token;
use super::server::{Reply, Server, log_of};
use crate::lab::Lab;
use counterfoil_lin::corpus::{self, Case};

/// How long a connection may take to be answered or closed.
const WITHIN: Duration = Duration::from_secs(10);
/// Cases under way at a time: most of those that are slow only wait.
const AT_ONCE: usize = 16;

/// The status of the first answer; `None` when the connection was closed without one. `Err`: neither came.
fn outcome(address: SocketAddr, raw: &[u8]) -> Result<Option<u16>, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("no connection: {error}"))?;
    stream.set_read_timeout(Some(WITHIN)).and_then(|()| stream.set_write_timeout(Some(WITHIN))).map_err(|error| error.to_string())?;
    let (began, mut sending) = (Instant::now(), stream.try_clone().map_err(|error| error.to_string())?);
    std::thread::scope(|scope| {
        // A server may answer before it has read all, and close: then the rest cannot be sent, which is as good.
        scope.spawn(move || drop(sending.write_all(raw)));
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        let ended = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(read) => answer.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break Err(format!("open after {WITHIN:?}")),
                // Reset.
                Err(_) => break Ok(()),
            }
            if answer.windows(2).any(|pair| pair == b"\r\n") {
                break Ok(());
            }
        };
        // Lets the writer go, if it still waits.
        drop(stream.shutdown(std::net::Shutdown::Both));
        ended?;
        if began.elapsed() > WITHIN {
            return Err(format!("took {:?}", began.elapsed()));
        }
        let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
        match line.split(' ').nth(1).map(str::parse) {
            None if answer.is_empty() => Ok(None),
            Some(Ok(status)) => Ok(Some(status)),
            _ => Err(format!("not an answer: {line:?}")),
        }
    })
}

/// What was answered otherwise than expected.
fn run(address: SocketAddr, cases: &[Case]) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = outcome(address, &case.raw);
                    if !matches!(outcome, Ok(status) if case.expect.allows(status)) {
                        wrong.lock().unwrap().push(format!("{}: {outcome:?}, not {:?}", case.name, case.expect));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// Someone with a token.
struct Person<'a> {
    server: &'a Server,
    authorization: String,
}

impl Person<'_> {
    fn send(&self, method: &str, path: &str, key: &str, body: &str) -> Reply {
        let headers = [("authorization", self.authorization.as_str()), ("idempotency-key", key)];
        self.server.send(method, path, if key.is_empty() { &headers[..1] } else { &headers }, body)
    }
    fn effects(&self) -> usize {
        let listed = self.send("GET", "/v1/effects", "", "").ok();
        listed.at("/effects").as_array().map(Vec::len).expect("a list")
    }
}

const CONFIG: &str = "egress: { allow: [\"127.0.0.1\"], allow_private: true }
tools:
  ask: { http: { method: POST, url: \"WORLD/ask\" }, approval: \"true\" }
  lent: { client: {} }
";

#[test]
fn bad_input_is_refused_and_does_nothing() {
    let lab = Lab::new(CONFIG);
    let secret = |tenant: &str| token(&lab, &["--tenant", tenant, "--caller", "ann", "--rights", "admin"]).1;
    let (ours, theirs) = (secret("default"), secret("blue"));
    let server = Server::start_with(&lab, &["--head-timeout", "2", "--body-timeout", "2"]);
    let [us, them] = [&ours, &theirs].map(|token| Person { server: &server, authorization: format!("Bearer {token}") });
    let host = server.address.to_string();
    let began = Instant::now();
    // Nothing but what is wrong with a request keeps it from being carried out: this one has nothing wrong.
    let spec =
        format!(r#"{{"http":{{"method":"POST","url":"{}/it","json":"${{args}}"}},"input":{}}}"#, lab.world.url(), corpus::TOOL_INPUT);
    let (tool, call) = (format!("/v1/tools/{}", corpus::TOOL), r#"{"args":{"n":1}}"#);
    us.send("PUT", &tool, "put", &spec).ok();
    us.send("POST", &format!("{tool}/call"), "right", call).envelope(200, "success");
    let cases = corpus::cases(&ours, &theirs, &host);
    let mut wrong = run(server.address, &cases);
    let acted: Vec<_> = lab.world.seen("/it").requests.into_iter().map(|request| request.key).collect();
    assert_eq!(acted.len(), 1, "something was done: {acted:?}\n{}", wrong.join("\n"));
    assert_eq!((us.effects(), them.effects()), (1, 0), "something was recorded");
    let listed = ["/v1/runs", "/v1/workflows"].map(|path| us.send("GET", path, "", "").ok().body);
    assert!(listed.iter().all(|body| body.contains("[]")), "a run began, or a workflow was kept: {listed:?}");

    // Effects of the other tenant, to reach for: one that is done, one that waits for a person, one that a client runs.
    them.send("PUT", &tool, "put", &spec).ok();
    let done = them.send("POST", &format!("{tool}/call"), "right", call).envelope(200, "success");
    let waiting = them.send("POST", "/v1/tools/ask/call", "right", "{}").envelope(202, "waiting_approval");
    let lent = them.send("POST", "/v1/effects/acquire", "right", r#"{"tool":"lent","key":"right","lease":"10m"}"#).ok();
    let mut count = cases.len();
    for effect in [done, waiting, lent].map(|reply| reply.text("/effect")) {
        let look = || them.send("GET", &format!("/v1/effects/{effect}"), "", "").ok().body;
        let before = look();
        let foreign = corpus::foreign(&ours, &effect, &host);
        count += foreign.len();
        wrong.extend(run(server.address, &foreign));
        assert_eq!(look(), before, "another tenant's effect was changed");
    }
    println!("{count} cases in {:?}", began.elapsed());
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((lab.world.acted("/it"), lab.world.acted("/ask")), (2, 0), "something was done");
    assert_eq!((us.effects(), them.effects()), (1, 3), "something was recorded");
    server.get("/healthz").ok();
    let log = log_of(&lab);
    assert!(!log.contains("panicked"), "{log}");
}
