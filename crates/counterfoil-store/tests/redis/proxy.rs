//! Stands between a ledger and its Redis, and cuts connections after so many bytes, in the middle of whatever is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub struct Proxy {
    pub port: u16,
    /// Connections live as long as they like.
    pub kind: Arc<AtomicBool>,
    pub cuts: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (kind, cuts) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let (kindly, counted) = (kind.clone(), cuts.clone());
        let accepting = tokio::spawn(async move {
            let mut seed = 1_u64;
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Requests are long and answers are short: each direction is cut within what it carries.
                let (up, down) =
                    if seed >> 63 == 0 { (2_000 + (seed >> 33) % 20_000, u64::MAX) } else { (u64::MAX, 6_000 + (seed >> 33) % 400) };
                tokio::spawn(carry(client, server, [up, down], kindly.clone(), counted.clone()));
            }
        });
        Self { port, kind, cuts, accepting }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(client: TcpStream, server: TcpStream, [up, down]: [u64; 2], kind: Arc<AtomicBool>, cuts: Arc<AtomicU64>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever ends first ends both.
    tokio::select! {
        () = pass(from_client, to_server, up, &kind, &cuts) => {}
        () = pass(from_server, to_client, down, &kind, &cuts) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut left: u64, kind: &AtomicBool, cuts: &AtomicU64) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let carried = if kind.load(Ordering::Relaxed) { read } else { read.min(usize::try_from(left).unwrap_or(usize::MAX)) };
        if to.write_all(&buffer[..carried]).await.is_err() {
            return;
        }
        if carried < read {
            cuts.fetch_add(1, Ordering::Relaxed);
            return;
        }
        left = left.saturating_sub(read as u64);
    }
}
