//! The cluster map, as one node of a Redis Cluster reports it.
//!
//! `CLUSTER SLOTS` rather than `CLUSTER SHARDS` (since version 7): managed services and compatible servers support it.
//! Source: [CLUSTER SLOTS](https://redis.io/docs/latest/commands/cluster-slots/).

use std::sync::LazyLock;

use bb8_redis::redis::{self, Script, Value};

use super::slot::slot_of;
use crate::store::redis::{
    connection::Server,
    failure::{Failure, refuses_any_slots, refuses_foreign_key},
    server_address::ServerAddress,
};

/// The shards of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterView {
    /// In the order of their addresses.
    pub(super) shards: Vec<ClusterShard>,
}

/// A primary, its slots and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClusterShard {
    pub(super) primary: ServerAddress,
    /// First and last of each range.
    pub(super) slots: Vec<(u16, u16)>,
    pub(super) replicas: Vec<ServerAddress>,
}

impl ClusterView {
    /// Slots with a primary.
    pub(super) fn slot_count(&self) -> usize {
        let ranges = self.shards.iter().flat_map(|shard| &shard.slots);
        ranges.map(|&(first, last)| usize::from(last - first) + 1).sum()
    }

    /// The replicas, each with its primary.
    pub(super) fn replicas(&self) -> Vec<(ServerAddress, ServerAddress)> {
        let of = |shard: &ClusterShard| {
            let primary = shard.primary.clone();
            let each = shard.replicas.clone().into_iter();
            each.map(move |replica| (replica, primary.clone())).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }
}

/// Reads the map from a node.
pub(super) async fn ask(server: &Server) -> Result<ClusterView, Failure> {
    let mut connection = server.connect().await?;
    let reply: Value = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let view = parse(&reply, &server.address().host);
    view.ok_or_else(|| Failure::protocol("the server's answer to CLUSTER SLOTS can't be understood"))
}

/// Compares our slots with a node's.
pub(super) async fn test_slots(server: &Server) -> Result<(), Failure> {
    let mut connection = server.connect().await?;
    for key in ["ratelimit:{ip:203.0.113.7}:p:fw.1m", "{ratelimit}:instances", "no tag"] {
        let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query_async(&mut connection).await?;
        if slot != slot_of(key.as_bytes()) {
            return Err(Failure::protocol(format!(
                "the server puts the key {key} in slot {slot}, not {}",
                slot_of(key.as_bytes())
            )));
        }
    }
    Ok(())
}

static SLOTS_CHECK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../../lua/slots_check.lua")));

/// Whether one script may use keys of several slots: a node has to refuse a key of another node. Compatible servers may
/// not, and would count in the wrong place. `foreign_key`: a key of another node.
pub(super) async fn takes_any_slots(server: &Server, foreign_key: &str) -> Result<bool, Failure> {
    let mut connection = server.connect().await?;
    let reply: Result<Value, _> =
        SLOTS_CHECK.prepare_invoke().arg(foreign_key).invoke_async(&mut connection).await;
    match reply {
        Ok(_) => Ok(false),
        Err(error) if refuses_foreign_key(&error) => Ok(true),
        Err(error) if refuses_any_slots(&error) => Ok(false),
        // The error is about the node's state, not the key: for example, the cluster is down.
        Err(error) => Err(error.into()),
    }
}

/// Parses ranges of slots, each with its nodes, the primary first. `asked`: the host of the node that replied.
fn parse(reply: &Value, asked: &str) -> Option<ClusterView> {
    let mut view = ClusterView::default();
    for range in items(reply)? {
        let [first, last, nodes @ ..] = items(range)? else { return None };
        let range = (slot(first)?, slot(last)?);
        let mut nodes = nodes.iter().filter_map(|node| address(node, asked));
        // A range without a reachable node counts as one without a node.
        let Some(primary) = nodes.next().filter(|_| range.0 <= range.1) else { continue };
        match view.shards.iter_mut().find(|shard| shard.primary == primary) {
            Some(shard) => shard.slots.push(range),
            None => view.shards.push(ClusterShard { primary, slots: vec![range], replicas: nodes.collect() }),
        }
    }
    view.shards.sort_by_key(|shard| (shard.primary.host.clone(), shard.primary.port));
    Some(view)
}

/// `[host, port, id, metadata]`. An empty or null host is that of the node that replied.
fn address(node: &Value, asked: &str) -> Option<ServerAddress> {
    let [host, port, ..] = items(node)? else { return None };
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    let Value::Int(port) = port else { return None };
    Some(ServerAddress::new(host, u16::try_from(*port).ok().filter(|port| *port > 0)?, asked))
}

fn slot(value: &Value) -> Option<u16> {
    let Value::Int(slot) = value else { return None };
    u16::try_from(*slot).ok().filter(|slot| usize::from(*slot) < super::SLOTS)
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Array(vec![])])
    }

    fn text(host: &str) -> Value {
        Value::BulkString(host.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    #[test]
    fn ranges_of_one_primary_are_one_shard() {
        let reply = Value::Array(vec![
            range(0, 99, vec![node(text("10.0.0.2"), 6379), node(text("10.0.0.3"), 6379)]),
            range(100, 16_383, vec![node(text("10.0.0.1"), 6379)]),
            range(200, 300, vec![node(text("10.0.0.2"), 6379)]),
        ]);
        let view = parse(&reply, "").unwrap();
        let address = |host: &str| ServerAddress { host: host.to_owned(), port: 6379 };
        assert_eq!(
            view.shards,
            [
                ClusterShard { primary: address("10.0.0.1"), slots: vec![(100, 16_383)], replicas: vec![] },
                ClusterShard {
                    primary: address("10.0.0.2"),
                    slots: vec![(0, 99), (200, 300)],
                    replicas: vec![address("10.0.0.3")]
                },
            ]
        );
        assert_eq!(view.replicas(), [(address("10.0.0.3"), address("10.0.0.2"))]);
    }

    #[test]
    fn a_host_that_is_not_told_is_the_one_that_was_asked() {
        for host in [Value::Nil, text(""), text("?")] {
            let reply = Value::Array(vec![range(0, 1, vec![node(host, 7000)])]);
            assert_eq!(parse(&reply, "10.0.0.9").unwrap().shards[0].primary.to_string(), "10.0.0.9:7000");
        }
    }

    #[test]
    fn a_reply_that_is_no_map_of_slots_is_refused() {
        for reply in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, vec![node(text("h"), 1)])]),
            Value::Array(vec![range(-1, 5, vec![node(text("h"), 1)])]),
        ] {
            assert_eq!(parse(&reply, ""), None, "{reply:?}");
        }
        let reply = Value::Array(vec![range(5, 4, vec![node(text("h"), 1)]), range(0, 1, vec![])]);
        assert_eq!(parse(&reply, ""), Some(ClusterView::default()));
    }
}
