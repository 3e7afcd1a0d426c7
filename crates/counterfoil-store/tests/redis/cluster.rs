//! A ledger in a cluster: all of it in one slot.

use counterfoil_core::Timestamp;
use counterfoil_store::redis::Redis;
use counterfoil_store::{OpenError, Query, Store};

use crate::server::{DURABLE, Server, open, options};
use crate::{append, eventually, load, write};

#[tokio::test]
async fn one_node_holds_a_ledger_and_others_say_which() {
    let node = || Server::with(&[DURABLE[0], DURABLE[1], ("cluster-enabled", "yes")]);
    let (holder, other) = (node(), node());
    holder.cli(&["cluster", "addslotsrange", "0", "16383"]);
    holder.cli(&["cluster", "meet", "127.0.0.1", &other.port().to_string()]);
    let up = async |node: &Server| node.cli(&["cluster", "info"]).contains("cluster_state:ok").then_some(());
    eventually("the cluster is up", async || up(&holder).await).await;
    eventually("the other node knows it", async || up(&other).await).await;
    let store = open(&holder.url(), options()).await;
    append(&store, (0..50).map(|number| write(number, 0)).collect()).await.expect("every key is in one slot");
    append(&store, (0..50).map(|number| write(number, 1)).collect()).await.expect("every key is in one slot");
    assert_eq!(load(&store, 49).await.records.len(), 2);
    let tenant = counterfoil_core::Tenant::new("acme").expect("a name");
    assert_eq!(store.search(Query::effects(tenant)).await.expect("the ledger serves").found.len(), 50);
    store.prune(Timestamp::MAX, 10).await.expect("the ledger serves");
    match Redis::open(&other.url(), options()).await {
        Err(OpenError::Unfit { message, .. }) => assert!(message.contains(&format!("127.0.0.1:{}", holder.port())), "{message}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the other node holds no slot"),
    }
}
