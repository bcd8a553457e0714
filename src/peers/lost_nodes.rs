//! Servers that are no longer reported. A failed server disappears from the lists of the others, so its loss would not
//! be shown.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::telemetry::metrics::{NodeFacts, NodeState};

/// How long a lost server is shown. After that it counts as removed for good.
const SHOWN_FOR: Duration = Duration::from_secs(600);
/// Most servers kept.
const MAX: usize = 1000;

/// Recently reported servers, by address.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    reported: BTreeMap<String, Reported>,
}

#[derive(Debug)]
struct Reported {
    /// When it was last reported.
    at: Instant,
    node: NodeFacts,
}

impl LostNodes {
    /// Appends the lost servers to `nodes`, the ones reported now, as down.
    pub(super) fn append_to(&mut self, nodes: &mut Vec<NodeFacts>, now: Instant) {
        self.reported.retain(|_, reported| now.duration_since(reported.at) < SHOWN_FOR);
        for node in nodes.iter() {
            if !self.reported.contains_key(&node.address) {
                // A server at a new address may be a lost one, restarted elsewhere.
                self.forget_one(nodes);
            }
            if self.reported.len() < MAX || self.reported.contains_key(&node.address) {
                self.reported.insert(node.address.clone(), Reported { at: now, node: node.clone() });
            }
        }
        let lost = self.lost(nodes).map(|reported| as_lost(&reported.node)).collect::<Vec<_>>();
        nodes.extend(lost);
    }

    fn lost<'a>(&'a self, nodes: &'a [NodeFacts]) -> impl Iterator<Item = &'a Reported> {
        let is_reported = |address: &str| nodes.iter().any(|node| node.address == address);
        self.reported.values().filter(move |reported| !is_reported(&reported.node.address))
    }

    /// Forgets the server that was lost first, if there is one.
    fn forget_one(&mut self, nodes: &[NodeFacts]) {
        let first = self.lost(nodes).min_by_key(|reported| reported.at);
        if let Some(address) = first.map(|reported| reported.node.address.clone()) {
            self.reported.remove(&address);
        }
    }
}

/// The facts about a lost server that are still true.
fn as_lost(node: &NodeFacts) -> NodeFacts {
    NodeFacts {
        address: node.address.clone(),
        role: node.role,
        primary: node.primary.clone(),
        state: NodeState::Down,
        failure: Some("no other node reports it any more".to_owned()),
        is_lost: true,
        decisions: node.decisions,
        version: node.version.clone(),
        ..NodeFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::NodeRole;

    fn up(address: &str) -> NodeFacts {
        NodeFacts {
            address: address.to_owned(),
            role: Some(NodeRole::Primary),
            slots: vec![(0, 9)],
            state: NodeState::Up,
            latency: Some(300),
            decisions: 7,
            decisions_per_second: 7,
            ..NodeFacts::default()
        }
    }

    /// The addresses and states shown after a report of `addresses`.
    fn shown(lost: &mut LostNodes, addresses: &[&str], now: Instant) -> Vec<(String, NodeState)> {
        let mut nodes: Vec<_> = addresses.iter().map(|address| up(address)).collect();
        lost.append_to(&mut nodes, now);
        nodes.into_iter().map(|node| (node.address, node.state)).collect()
    }

    fn node(address: &str, state: NodeState) -> (String, NodeState) {
        (address.to_owned(), state)
    }

    #[test]
    fn a_server_that_is_no_longer_reported_is_down_for_a_while() {
        let (mut lost, now) = (LostNodes::default(), Instant::now());
        let both = [node("a", NodeState::Up), node("b", NodeState::Up)];
        assert_eq!(shown(&mut lost, &["a", "b"], now), both);
        let mut nodes = vec![up("a")];
        lost.append_to(&mut nodes, now + SHOWN_FOR / 2);
        let NodeFacts {
            state, failure, is_lost, latency, slots, decisions, decisions_per_second, role, ..
        } = &nodes[1];
        assert_eq!(
            (*state, *role, *decisions, *decisions_per_second),
            (NodeState::Down, Some(NodeRole::Primary), 7, 0)
        );
        assert!(failure.is_some() && *is_lost && latency.is_none() && slots.is_empty(), "{nodes:?}");
        assert_eq!(shown(&mut lost, &["a", "b"], now + SHOWN_FOR / 2), both, "it is back");
        let later = now + SHOWN_FOR / 2 + SHOWN_FOR;
        assert_eq!(shown(&mut lost, &["a"], later), [node("a", NodeState::Up)], "it was removed");
    }

    #[test]
    fn a_new_address_takes_the_place_of_the_one_that_was_lost_first() {
        let (mut lost, now) = (LostNodes::default(), Instant::now());
        let second = Duration::from_secs(1);
        shown(&mut lost, &["a", "b", "c"], now);
        shown(&mut lost, &["a", "b"], now + second);
        shown(&mut lost, &["a"], now + second * 2);
        let after = shown(&mut lost, &["a", "d"], now + second * 3);
        assert_eq!(after, [node("a", NodeState::Up), node("d", NodeState::Up), node("b", NodeState::Down)]);
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let (mut lost, now) = (LostNodes::default(), Instant::now());
        let addresses: Vec<_> = (0..MAX + 5).map(|number| number.to_string()).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        assert_eq!(shown(&mut lost, &addresses, now).len(), MAX + 5);
        assert_eq!(shown(&mut lost, &[], now).len(), MAX);
    }
}
