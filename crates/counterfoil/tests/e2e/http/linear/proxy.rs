//! A liar between the clients and a right server, to show that what it does is caught.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use super::client::put_body;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    None,
    /// The put of this version is acknowledged, and not passed on.
    LostPut(&'static str),
    /// Every look at a tool is answered like the first one that found it.
    StaleGet,
    /// A replay is passed off as done for this very answer.
    ReplayAsFresh,
}

pub struct Proxy {
    pub address: SocketAddr,
}

impl Proxy {
    /// Serves as long as the test lives, one connection after the other.
    pub fn start(server: SocketAddr, lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let mut seen = BTreeMap::new();
            for client in listener.incoming().flatten() {
                drop(pass(client, server, lie, &mut seen));
            }
        });
        Self { address }
    }
}

fn pass(mut client: TcpStream, server: SocketAddr, lie: Lie, seen: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    let request = whole(&mut client)?;
    let line = request.lines().next().unwrap_or_default().to_owned();
    let answer = match lie {
        Lie::LostPut(version) if line.starts_with("PUT") && request.ends_with(&put_body(version)) => {
            let body = format!("{{\"name\":\"x\",\"version\":2,\"spec\":{}}}", put_body(version));
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        Lie::StaleGet if seen.contains_key(&line) => seen[&line].clone(),
        _ => ask(server, &request)?,
    };
    if line.starts_with("GET") && answer.starts_with("HTTP/1.1 200") {
        seen.entry(line).or_insert_with(|| answer.clone());
    }
    let answer = match lie {
        // The same number of characters: the length stays true.
        Lie::ReplayAsFresh => answer
            .replace("idempotent-replayed: true\r\n", "")
            .replace("\"replayed\":true", "\"replayed\":false")
            .replace("content-length: ", "x-was: "),
        _ => answer,
    };
    client.write_all(answer.as_bytes())?;
    client.shutdown(Shutdown::Write)
}

fn ask(server: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Head and body, by the length that the clients here always send.
fn whole(client: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let read = client.read(&mut buffer)?;
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let length = |head: &str| head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let complete = text.split_once("\r\n\r\n").is_some_and(|(head, body)| length(head).is_some_and(|length| body.len() >= length));
        if complete || read == 0 {
            return Ok(text);
        }
    }
}
