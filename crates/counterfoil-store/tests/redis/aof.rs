//! A machine that fails while Redis writes its file leaves a file that ends anywhere: a batch is then there whole or not at all.

use counterfoil_store::{Position, Store};

use crate::server::Server;
use crate::{append, load, write};

#[tokio::test]
async fn a_file_that_ends_in_the_middle_of_a_batch() {
    const BATCH: u64 = 20;
    let mut server = Server::durable();
    let store = server.open().await;
    let batch = |version: u64| (0..BATCH).map(|number| write(number, version)).collect();
    append(&store, batch(0)).await.expect("an append");
    let before = server.keep_files();
    append(&store, batch(1)).await.expect("an append");
    let after = server.keep_files();
    drop(store);
    server.kill();
    let (place, whole) = after.iter().find(|(path, _)| path.to_string_lossy().ends_with(".incr.aof")).expect("the file that grows");
    let (_, part) = before.iter().find(|(path, _)| path == place).expect("the same file");
    assert!(whole.starts_with(part) && whole.len() > part.len() + 1000, "{} {}", whole.len(), part.len());
    let grown = whole.len() - part.len();
    let mut absent = 0;
    for cut in (0..grown).step_by(grown / 12).chain([grown - 1, grown]) {
        let mut files = after.clone();
        let (_, bytes) = files.iter_mut().find(|(path, _)| path == place).expect("the file that grows");
        bytes.truncate(part.len() + cut);
        server.restore_files(&files);
        server.start();
        let store = server.open().await;
        let version = load(&store, 0).await.version.0;
        assert_eq!(version, if cut == grown { 2 } else { 1 }, "{cut} of {grown} bytes");
        absent += u32::from(version == 1);
        for number in 0..BATCH {
            assert_eq!(load(&store, number).await.version.0, version, "stream {number}, {cut} of {grown} bytes");
        }
        let tail = store.tail(Position(0), usize::MAX).await.expect("the ledger serves");
        assert_eq!(tail.len() as u64, BATCH * version);
        append(&store, batch(version)).await.expect("it goes on from there");
        drop(store);
        server.kill();
    }
    assert!(absent > 10, "{absent}");
}
