//! A TCP proxy that stands between the adapter and the server, and cuts or holds what goes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    pub port: u16,
    rules: Arc<Rules>,
}

struct Rules {
    /// Bytes that may still pass, in both directions together; below zero every connection is cut.
    left: AtomicI64,
    /// Grows with every cut: connections of an older age end.
    age: watch::Sender<u64>,
    /// Nothing passes and nothing is cut.
    hold: AtomicBool,
    cuts: AtomicU64,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let rules = Arc::new(Rules {
            left: AtomicI64::new(i64::MAX),
            age: watch::Sender::new(0),
            hold: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
        });
        let shared = rules.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (rules, age) = (shared.clone(), shared.age.subscribe());
                tokio::spawn(async move {
                    // A server that is down: the client is let go.
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    pass(client, server, &rules, age).await;
                });
            }
        });
        Self { port, rules }
    }

    /// Lets `bytes` more through and then cuts every connection, once.
    pub fn cut_after(&self, bytes: i64) {
        self.rules.left.store(bytes, Ordering::SeqCst);
    }

    /// From now on what is sent goes nowhere, and no connection ends.
    pub fn hold(&self, hold: bool) {
        self.rules.hold.store(hold, Ordering::SeqCst);
        if !hold {
            self.rules.age.send_modify(|age| *age += 1);
        }
    }

    pub fn cuts(&self) -> u64 {
        self.rules.cuts.load(Ordering::SeqCst)
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, rules: &Rules, mut age: watch::Receiver<u64>) {
    let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    loop {
        let passed = tokio::select! {
            read = client.read(&mut up) => forward(read, &up, &mut server, rules).await,
            read = server.read(&mut down) => forward(read, &down, &mut client, rules).await,
            _ = age.changed() => false,
        };
        if !passed {
            return;
        }
    }
}

/// False when the connection ends here.
async fn forward(read: std::io::Result<usize>, buffer: &[u8], to: &mut TcpStream, rules: &Rules) -> bool {
    let Ok(read @ 1..) = read else { return false };
    if rules.hold.load(Ordering::SeqCst) {
        return true;
    }
    let left = rules.left.fetch_sub(read as i64, Ordering::SeqCst);
    if left >= read as i64 {
        return to.write_all(&buffer[..read]).await.is_ok();
    }
    // The last bytes before the cut may be half of a message.
    let last = usize::try_from(left).unwrap_or(0);
    let _ = to.write_all(&buffer[..last]).await;
    rules.cuts.fetch_add(1, Ordering::SeqCst);
    rules.left.store(i64::MAX, Ordering::SeqCst);
    rules.age.send_modify(|age| *age += 1);
    false
}
