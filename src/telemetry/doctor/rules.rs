//! What is wrong, by the facts alone.

use std::{collections::BTreeMap, net::IpAddr};

use super::facts::Facts;
use crate::telemetry::metrics::{InstanceFacts, StoreFacts};

/// Fewer requests a minute say nothing of who makes them.
const MANY: u64 = 1_000;
/// Requests a minute that claim to be somebody else's, and how large a part of all: one client can write what it likes,
/// a proxy writes it always.
const SOME_CLAIMS: u64 = 20;
const CLAIMS_OF: u64 = 4;
/// Microseconds by which clocks may differ.
const CLOCKS: i64 = 1_000_000;

/// What a warning is about: one warning each at a time, whose words may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// One client makes most of the requests.
    Busiest(IpAddr),
    /// No address is of the internet.
    PrivateClients,
    /// Peers that are not trusted say whom they ask for.
    Claims,
    /// The clock of this instance.
    OwnClock,
    /// The clocks of others.
    Clocks,
    /// What others have for a configuration.
    Configurations,
    /// What others run.
    Versions,
    /// What the store says itself, in these words.
    Store(String),
}

/// Something to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) subject: Subject,
    pub(super) text: String,
}

/// All that is wrong.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let of_traffic = [busiest(facts), claims(facts), private_clients(facts)];
    let of_store = facts.store.as_ref().map(of_store).unwrap_or_default();
    of_traffic.into_iter().flatten().chain(of_store).collect()
}

fn busiest(facts: &Facts) -> Option<Finding> {
    let traffic = &facts.traffic;
    let (address, requests) = traffic.busiest()?;
    if traffic.requests < MANY || requests * 2 <= traffic.requests {
        return None;
    }
    let share = requests * 100 / traffic.requests;
    let told = if address.is_ipv6() { format!("{address} (its prefix)") } else { address.to_string() };
    let text = format!(
        "{share} % of all requests of the last minute come from {told}: either one client hammers, or it is a proxy that trusted_proxies does not name, and then limits by address hold back everybody behind it at once"
    );
    Some(Finding { subject: Subject::Busiest(address), text })
}

fn claims(facts: &Facts) -> Option<Finding> {
    let (traffic, field) = (&facts.traffic, &facts.configured.field);
    let peer = traffic.claimant?;
    if traffic.claims < SOME_CLAIMS || traffic.claims * CLAIMS_OF < traffic.requests {
        return None;
    }
    let (claims, requests) = (traffic.claims, traffic.requests);
    let text = format!(
        "{claims} of {requests} requests of the last minute came with {field} or Forwarded from peers that are not trusted, {peer} among them, and it was not heeded: if {peer} is a proxy of yours, add it to trusted_proxies"
    );
    Some(Finding { subject: Subject::Claims, text })
}

fn private_clients(facts: &Facts) -> Option<Finding> {
    let (traffic, configured) = (&facts.traffic, &facts.configured);
    if traffic.requests < MANY || traffic.private < traffic.requests || !configured.limits_addresses {
        return None;
    }
    let mend = match (traffic.claimant, configured.trusts_proxies) {
        (Some(peer), _) => format!("add {peer} to trusted_proxies"),
        (None, true) => "add every proxy on the way to trusted_proxies".to_owned(),
        (None, false) => "add the proxy in front to trusted_proxies".to_owned(),
    };
    let text = format!(
        "all clients of the last minute have private addresses, and policies limit by address: unless they are all in your own network, the real addresses are probably in {}: {mend}",
        configured.field
    );
    Some(Finding { subject: Subject::PrivateClients, text })
}

fn of_store(store: &StoreFacts) -> Vec<Finding> {
    let said = store.warnings.iter();
    let said = said.map(|text| Finding { subject: Subject::Store(text.clone()), text: text.clone() });
    let own = own_clock(store);
    // What is said of the own clock, others say of theirs.
    let clocks = if own.is_some() { None } else { clocks(store) };
    said.chain(own).chain(clocks).chain(differences(store)).collect()
}

fn own_clock(store: &StoreFacts) -> Option<Finding> {
    let offset = store.clock_offset.filter(|offset| offset.abs() > CLOCKS)?;
    let (seconds, direction) = (seconds(offset), if offset > 0 { "ahead of" } else { "behind" });
    let text = format!(
        "the clock of this machine is {seconds} {direction} Redis': limits go by Redis' clock, but times in logs, records and bans are wrong here; does NTP run on both?"
    );
    Some(Finding { subject: Subject::OwnClock, text })
}

fn clocks(store: &StoreFacts) -> Option<Finding> {
    let own = store.clock_offset?;
    let away = |other: &&InstanceFacts| (other.clock_offset - own).abs() > CLOCKS;
    let away: Vec<_> = store.others.iter().filter(away).collect();
    let most = away.iter().map(|other| (other.clock_offset - own).abs()).max()?;
    let text = format!(
        "the clocks of {} differ from this one's by up to {}: records of theirs have wrong times here; does NTP run on all?",
        instances(away.len()),
        seconds(most)
    );
    Some(Finding { subject: Subject::Clocks, text })
}

/// What is not the same on all instances.
fn differences(store: &StoreFacts) -> impl Iterator<Item = Finding> {
    let own = store.own.as_ref();
    let configurations =
        own.and_then(|own| differing(store, &own.configuration, |other| &other.configuration)).map(|text| {
            let text =
                format!("configuration differs: {text}; limits that differ are counted apart or twice");
            Finding { subject: Subject::Configurations, text }
        });
    let versions = own
        .and_then(|own| differing(store, &own.version, |other| &other.version))
        .map(|text| Finding { subject: Subject::Versions, text: format!("versions differ: {text}") });
    configurations.into_iter().chain(versions)
}

/// `2 instances have 1a2b, this one 3c4d`
fn differing(store: &StoreFacts, own: &str, of: impl Fn(&InstanceFacts) -> &String) -> Option<String> {
    let mut others = BTreeMap::<&str, usize>::new();
    for other in store.others.iter().map(&of).filter(|other| *other != own) {
        *others.entry(other).or_default() += 1;
    }
    if others.is_empty() {
        return None;
    }
    let told: Vec<_> = others.into_iter().map(|(value, count)| (instances(count), value, count)).collect();
    let told = told.into_iter().map(|(who, value, count)| {
        let verb = if count == 1 { "has" } else { "have" };
        format!("{who} {verb} {value}")
    });
    Some(format!("{}, this one {own}", told.collect::<Vec<_>>().join(", ")))
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

/// Microseconds as `3.2 s`.
fn seconds(micros: i64) -> String {
    let tenths = micros.unsigned_abs() / 100_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::{super::facts::Configured, *};
    use crate::telemetry::doctor::tally::Tally;

    fn facts(traffic: Tally) -> Facts {
        let configured =
            Configured { limits_addresses: true, trusts_proxies: false, field: "X-Forwarded-For".into() };
        Facts { traffic, configured, store: None }
    }

    fn tally(requests: u64, busiest: u64) -> Tally {
        let mut tally = Tally { requests, ..Tally::default() };
        tally.suspect(IpAddr::from([203, 0, 113, 7]), busiest);
        tally
    }

    #[track_caller]
    fn says(facts: &Facts, words: &[&str]) {
        let said: Vec<_> = findings(facts).into_iter().map(|finding| finding.text).collect();
        assert!(
            said.len() == words.len() && said.iter().zip(words).all(|(said, word)| said.contains(word)),
            "{said:#?}"
        );
    }

    #[test]
    fn one_client_that_makes_most_requests_is_named_with_its_share() {
        says(&facts(tally(1_000, 830)), &["83 % of all requests of the last minute come from 203.0.113.7:"]);
        says(&facts(tally(1_000, 500)), &[]);
        says(&facts(tally(999, 999)), &[]);
        says(&facts(Tally::default()), &[]);
    }

    #[test]
    fn private_addresses_alone_are_told_of_where_limits_go_by_them() {
        let private = Tally { requests: 1_000, private: 1_000, ..Tally::default() };
        says(&facts(private.clone()), &["in X-Forwarded-For: add the proxy in front"]);
        says(&facts(Tally { private: 999, ..private.clone() }), &[]);
        let mut other = facts(private);
        other.configured.limits_addresses = false;
        says(&other, &[]);
    }

    #[test]
    fn what_strangers_claim_is_told_of_where_many_do() {
        let peer = Some(IpAddr::from([10, 0, 0, 5]));
        let claimed = Tally { requests: 80, claims: 20, claimant: peer, ..Tally::default() };
        says(&facts(claimed.clone()), &["20 of 80 requests"]);
        says(&facts(Tally { claims: 19, ..claimed.clone() }), &[]);
        // One client among many.
        says(&facts(Tally { requests: 81, ..claimed }), &[]);
    }

    fn instance(clock_offset: i64, configuration: &str, version: &str) -> InstanceFacts {
        InstanceFacts { clock_offset, configuration: configuration.into(), version: version.into() }
    }

    fn store(own: i64, others: Vec<InstanceFacts>) -> Facts {
        let store = StoreFacts {
            clock_offset: Some(own),
            own: Some(instance(own, "3c4d", "0.1.0")),
            others,
            ..StoreFacts::default()
        };
        Facts { store: Some(store), ..Facts::default() }
    }

    #[test]
    fn a_clock_that_is_wrong_is_told_of_by_whose_it_is() {
        says(&store(3_250_000, vec![instance(0, "3c4d", "0.1.0")]), &["is 3.2 s ahead of Redis'"]);
        says(&store(-1_100_000, vec![]), &["is 1.1 s behind Redis'"]);
        let others = vec![instance(2_000_000, "3c4d", "0.1.0"), instance(0, "3c4d", "0.1.0")];
        says(&store(-300_000, others), &["the clocks of 1 instance differ from this one's by up to 2.3 s"]);
        says(&store(900_000, vec![instance(0, "3c4d", "0.1.0")]), &[]);
    }

    #[test]
    fn what_others_have_otherwise_is_counted() {
        let others =
            vec![instance(0, "1a2b", "0.1.0"), instance(0, "1a2b", "0.2.0"), instance(0, "3c4d", "0.1.0")];
        says(
            &store(0, others),
            &[
                "configuration differs: 2 instances have 1a2b, this one 3c4d",
                "versions differ: 1 instance has 0.2.0, this one 0.1.0",
            ],
        );
    }

    #[test]
    fn what_the_store_says_is_passed_on() {
        let store = StoreFacts { warnings: vec!["mind the gap".into()], ..StoreFacts::default() };
        let facts = Facts { store: Some(store), ..Facts::default() };
        says(&facts, &["mind the gap"]);
    }
}
