//! A small HTTP server that does as it is told, and remembers every request it read.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Which connection it came on.
    pub connection: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

pub enum Reply {
    /// Sent as it is; the connection stays open.
    Raw(Vec<u8>),
    RawThenClose(Vec<u8>),
    Close,
    /// Neither answers nor closes.
    Hang,
}

pub fn status(line: &str, headers: &str, body: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 {line}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

pub fn ok(body: &str) -> Reply {
    status("200 OK", "", body)
}

pub struct World {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    arrived: Arc<Notify>,
}

impl World {
    pub async fn serve(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = Self { address: listener.local_addr().unwrap(), seen: Arc::default(), arrived: Arc::default() };
        let (seen, arrived, reply) = (Arc::clone(&world.seen), Arc::clone(&world.arrived), Arc::new(reply));
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (seen, arrived, reply) = (Arc::clone(&seen), Arc::clone(&arrived), Arc::clone(&reply));
                tokio::spawn(async move {
                    let mut stream = stream;
                    while let Some(request) = read(&mut stream, connection).await {
                        let reply = reply(&request);
                        seen.lock().unwrap().push(request);
                        arrived.notify_one();
                        match reply {
                            Reply::Raw(bytes) => stream.write_all(&bytes).await.unwrap_or_default(),
                            Reply::RawThenClose(bytes) => return stream.write_all(&bytes).await.unwrap_or_default(),
                            Reply::Close => return,
                            Reply::Hang => std::future::pending().await,
                        }
                    }
                });
            }
        });
        world
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns once a request was read.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

async fn read(stream: &mut TcpStream, connection: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, &mut bytes).await?;
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect();
    let length: usize = headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
    while bytes.len() < head_end + length {
        more(stream, &mut bytes).await?;
    }
    let body = String::from_utf8(bytes[head_end..].to_vec()).unwrap();
    Some(Seen { method: first.next()?.to_owned(), target: first.next()?.to_owned(), headers, body, connection })
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    let read = stream.read(&mut chunk).await.ok()?;
    bytes.extend_from_slice(&chunk[..read]);
    (read > 0).then_some(())
}
