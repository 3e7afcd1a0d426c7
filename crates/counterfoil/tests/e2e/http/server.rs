//! A server process, and a client that is nothing but a socket: what is sent and what comes back is exactly what the test says and sees.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::Lab;
use crate::parts::Process;

/// Nothing here takes that long; a test that waits longer has found a bug.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub address: SocketAddr,
    process: Process,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Server {
    pub fn start(lab: &Lab) -> Self {
        Self::start_with(lab, &[])
    }

    pub fn start_with(lab: &Lab, args: &[&str]) -> Self {
        Self::start_in(lab, args, &[])
    }

    pub fn start_in(lab: &Lab, args: &[&str], env: &[(String, String)]) -> Self {
        let listen: &[&str] = if args.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut command = lab.command(&[&["serve", "--json"], listen, args].concat());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(lab.path("server.log")).expect("a log");
        command.envs(env.iter().map(|(name, value)| (name, value)));
        let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(log));
        let mut line = String::new();
        let stdout = process.child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the server says where it listens");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}: {}", log_of(lab)));
        let address: SocketAddr = said["listening"].as_str().and_then(|url| url.strip_prefix("http://")?.parse().ok()).expect("an address");
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
        Self { address, process }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, key: &str, body: &str) -> Reply {
        self.send("POST", path, &[("idempotency-key", key)], body)
    }

    pub fn call(&self, tool: &str, key: &str, args: &str) -> Reply {
        self.post(&format!("/v1/tools/{tool}/call"), key, &format!("{{\"args\":{args}}}"))
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.begin(method, path, headers, body).reply().expect("an answer")
    }

    /// Sends a request and does not wait for its answer.
    pub fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Asking {
        self.try_begin(method, path, headers, body).expect("the server listens")
    }

    pub fn try_begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<Asking> {
        self.raw(request(self.address, method, path, headers, body).as_bytes())
    }

    pub fn raw(&self, bytes: &[u8]) -> std::io::Result<Asking> {
        let mut asking = Asking::to(self.address)?;
        asking.send(bytes)?;
        Ok(asking)
    }

    /// SIGKILL: nothing of it gets to run any more.
    pub fn kill(mut self) {
        self.process.kill();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end: the exit code.
    pub fn ended(mut self) -> i32 {
        self.process.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

/// A request as text, right in everything.
pub fn request(host: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    if !body.is_empty() {
        text.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text
}

/// What the servers of a lab have logged.
pub fn log_of(lab: &Lab) -> String {
    std::fs::read_to_string(lab.path("server.log")).unwrap_or_default()
}

/// A connection on which a request is sent.
pub struct Asking {
    stream: TcpStream,
}

impl Asking {
    pub fn to(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream })
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for the first byte of the answer, or for the end of the connection.
    pub fn first_byte(&mut self) -> std::io::Result<usize> {
        self.stream.read(&mut [0])
    }

    /// `Err`: the connection ended before a whole answer.
    pub fn reply(self) -> std::io::Result<Reply> {
        let mut bytes = Vec::new();
        let mut stream = self.stream;
        stream.read_to_end(&mut bytes)?;
        parse(&bytes).ok_or_else(|| std::io::Error::new(std::io::ErrorKind::UnexpectedEof, String::from_utf8_lossy(&bytes)))
    }

    /// The client goes away.
    pub fn hang_up(self) {
        self.stream.shutdown(Shutdown::Both).expect("it can be closed");
    }

    /// The lines of a body that has no end. One that only says that it is still alive is not waited for.
    pub fn lines(self) -> impl Iterator<Item = String> {
        let began = Instant::now();
        let patient = move |line: &String| assert!(began.elapsed() < 2 * PATIENCE, "still no end of this: {line}");
        BufReader::new(self.stream).lines().map_while(Result::ok).inspect(patient)
    }
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: BTreeMap<String, String> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let whole = headers.get("content-length").is_none_or(|length| *length == body.len().to_string());
    whole.then(|| Reply { status, headers, body: body.to_owned() })
}

impl Reply {
    #[track_caller]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    #[track_caller]
    pub fn at(&self, pointer: &str) -> Value {
        self.value().pointer(pointer).cloned().unwrap_or(Value::Null)
    }

    #[track_caller]
    pub fn text(&self, pointer: &str) -> String {
        self.at(pointer).as_str().map(str::to_owned).unwrap_or_else(|| panic!("no text at {pointer}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// An envelope with this status.
    #[track_caller]
    pub fn envelope(self, status: u16, word: &str) -> Self {
        assert_eq!((self.status, self.at("/status")), (status, Value::from(word)), "{self:?}");
        self
    }

    /// A problem with this code.
    #[track_caller]
    pub fn problem(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.at("/code")), (status, Value::from(code)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.at("/status"), Value::from(status), "{self:?}");
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }
}
