//! Programs on the library, to be killed: one that makes many calls, and one that makes a single call in steps.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::prelude::*;
use serde_json::json;

use crate::lab::{library_call, open};
use crate::parts::say;

/// Variables by which a test tells a worker what to do.
pub const CONFIG: &str = "COUNTERFOIL_E2E_CONFIG";
pub const KEYS: &str = "COUNTERFOIL_E2E_KEYS";
/// Calls at one time.
const LANES: usize = 4;

fn config() -> PathBuf {
    std::env::var(CONFIG).expect("the test names a config").into()
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads").block_on(work);
}

/// Recovers what others left, then calls `tool key` for each of the keys given, and acknowledges each answer on a line of its own. When all is
/// done it stays, to be killed.
pub fn work() {
    let keys: Vec<String> = std::env::var(KEYS).expect("the test names keys").split(',').map(str::to_owned).collect();
    block_on(async {
        let runtime = open(&config()).await;
        say("open");
        for one in runtime.recover().await.expect("the ledger can be read") {
            say(&format!("recovered {} {}", one.was, one.key));
        }
        say("ready");
        let queue = Arc::new(std::sync::Mutex::new(keys.into_iter().rev().collect::<Vec<_>>()));
        let lanes: Vec<_> = (0..LANES).map(|_| tokio::spawn(lane(runtime.clone(), queue.clone()))).collect();
        for lane in lanes {
            lane.await.expect("no call panics");
        }
        say("finished");
        std::future::pending::<()>().await;
    });
}

async fn lane(runtime: Runtime, queue: Arc<std::sync::Mutex<Vec<String>>>) {
    loop {
        let Some(key) = queue.lock().expect("no lane panics").pop() else { return };
        let tool = key.split('-').next().expect("a key begins with its tool");
        let answer = runtime.call(library_call(tool, json!({ "key": key }), &key)).await;
        let data = answer.data.map_or("null".to_owned(), |d| d.to_string());
        say(&format!("ack {key} {} {data}", json!(answer.status).as_str().expect("a word")));
    }
}

/// Opens the ledger, waits to be told, then calls `charge` with the key `k`; and tells each step.
pub fn one_call() {
    block_on(async {
        let runtime = open(&config()).await;
        say("open");
        std::io::stdin().lock().read_line(&mut String::new()).expect("the test says when");
        say("calling");
        let answer = runtime.call(library_call("charge", json!({}), "k")).await;
        say(&format!("answered {}", json!(answer.status).as_str().expect("a word")));
        std::future::pending::<()>().await;
    });
}
