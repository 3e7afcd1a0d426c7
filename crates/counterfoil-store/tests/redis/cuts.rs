//! Connections are cut in the middle of requests and of answers: what was acknowledged is there, what was surely not written is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::eventually;
use crate::proxy::Proxy;
use crate::server::{Server, open, options};
use crate::worker::{Account, work};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_in_the_middle() {
    const CUTS: u64 = 60;
    let server = Server::durable();
    let proxy = Proxy::start(server.port()).await;
    let witness = Arc::new(server.open().await);
    let mut options = options();
    // Its looks at the server would use up what a connection may carry.
    options.look_every = std::time::Duration::from_secs(3600);
    let store = Arc::new(open(&format!("redis://127.0.0.1:{}", proxy.port), options).await);
    let stop = Arc::new(AtomicBool::new(false));
    proxy.kind.store(false, Ordering::Relaxed);
    let workers: Vec<_> = (0..4).map(|worker| tokio::spawn(work(worker, store.clone(), witness.clone(), stop.clone()))).collect();
    eventually("connections are cut", async || (proxy.cuts.load(Ordering::Relaxed) >= CUTS).then_some(())).await;
    proxy.kind.store(true, Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    let mut account = Account::default();
    for worker in workers {
        account = account + worker.await.expect("a worker");
    }
    println!("{account:?}");
    assert!(account.acknowledged > 0, "{account:?}");
    assert!(account.perhaps_there > 0, "no answer was cut off: {account:?}");
    assert!(account.perhaps_not_there > 0, "no request was cut off: {account:?}");
}
