//! The rules: pure functions that find problems in their input.

use std::{collections::BTreeMap, time::SystemTime};

use super::{
    finding::{Finding, Subject},
    outages,
    route_errors::LatestOutcomes,
    traffic::{TrafficSample, UntrustedPeer},
};
use crate::{
    memory_budget::format_bytes,
    telemetry::metrics::{
        AlertFacts, BudgetFacts, CertificateFacts, ConnectionFacts, EndpointFacts, EvidenceFacts,
        InstanceFacts, KeptHistoryFacts, KeySetFacts, MemoryFacts, StoreFacts, TlsFacts, UpstreamTlsFacts,
    },
    telemetry::time::{rfc3339, unix_micros},
    tls::Validity,
};

/// With fewer requests per minute, clients' shares are not significant.
const MIN_REQUESTS: u64 = 1_000;
/// Requests per minute with a forwarding field from untrusted peers that raise a warning, if they are also one in
/// `MIN_UNTRUSTED_SHARE` of all. Any client can send the field, but a proxy always does.
const MIN_UNTRUSTED: u64 = 20;
const MIN_UNTRUSTED_SHARE: u64 = 4;
/// Percentage of a memory budget.
const NEARLY_SPENT: u64 = 90;
/// Connections of one client that raise a warning, if they are more than half of all and also one in
/// `MIN_CONNECTIONS_SHARE` of the maximum.
const MIN_CONNECTIONS: usize = 100;
const MIN_CONNECTIONS_SHARE: usize = 20;
/// Tolerated difference of clocks, in microseconds.
const MAX_CLOCK_OFFSET: i64 = 1_000_000;

/// The input of the rules.
#[derive(Debug, Clone)]
pub(super) struct RuleInput {
    pub(super) now: SystemTime,
    /// Requests of the last minute.
    pub(super) traffic: TrafficSample,
    pub(super) settings: ClientAddressSettings,
    pub(super) connections: ConnectionFacts,
    /// `None`: limits are kept only in memory.
    pub(super) store: Option<StoreFacts>,
    /// One for each listener with TLS.
    pub(super) tls: Vec<TlsFacts>,
    /// One for each upstream with `https` endpoints.
    pub(super) upstream_tls: Vec<UpstreamTlsFacts>,
    /// One for each provider of tokens.
    pub(super) key_sets: Vec<KeySetFacts>,
    pub(super) keys_file_error: Option<String>,
    pub(super) history: KeptHistoryFacts,
    pub(super) alerts: AlertFacts,
    pub(super) memory: MemoryInput,
    /// One for each route with recent errors.
    pub(super) routes: Vec<LatestOutcomes>,
    pub(super) endpoints: Vec<EndpointFacts>,
}

/// The memory of limits and evidence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MemoryInput {
    pub(super) limits: MemoryFacts,
    pub(super) evidence: EvidenceFacts,
    /// Evictions since the last round.
    pub(super) evicted_limits: u64,
    pub(super) evicted_evidence: u64,
}

/// The settings that determine a client's address, and whether limits use it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientAddressSettings {
    /// Whether the key of any policy contains the address.
    pub(super) limits_addresses: bool,
    /// Whether any proxy is trusted.
    pub(super) trusts_proxies: bool,
    /// The field that carries the client's address: `X-Forwarded-For`
    pub(super) header: String,
}

/// Applies all rules.
pub(super) fn findings(input: &RuleInput) -> Vec<Finding> {
    let outages = outages::outages(&input.routes, &input.endpoints, input.store.as_ref());
    let traffic = [
        heaviest_client(input),
        most_connections(&input.connections),
        input.traffic.floods.describe().map(|text| Finding { subject: Subject::Floods, text }),
        untrusted_forwarding(input),
        private_clients(input),
    ];
    let store = input.store.as_ref().map(store_findings).unwrap_or_default();
    let memory = [limits_memory(&input.memory), evidence_memory(&input.memory)];
    let stale = input.endpoints.iter().filter_map(|endpoint| stale_addresses(endpoint, input.now));
    let key_sets = input.key_sets.iter().filter_map(key_set);
    let keys_file = input.keys_file_error.as_ref().map(|error| Finding {
        subject: Subject::KeysFile,
        text: format!("{error}: the API keys that were read before stay valid"),
    });
    let others = traffic.into_iter().chain(memory).chain([keys_file]).flatten();
    let others = others
        .chain(certificates(input))
        .chain(history(&input.history))
        .chain(alerts(&input.alerts))
        .chain(key_sets)
        .chain(store)
        .chain(stale);
    outages.into_iter().chain(others).collect()
}

/// What is wrong with the history.
fn history(facts: &KeptHistoryFacts) -> impl Iterator<Item = Finding> {
    let waiting = match (facts.waiting_bytes, facts.spooled_bytes) {
        (0, _) => String::new(),
        (waiting, spooled) => format!(
            "; {} wait, {} of them in the spool",
            format_bytes(waiting),
            if spooled == waiting { "all".to_owned() } else { format_bytes(spooled) }
        ),
    };
    let fault = facts.fault.as_ref().map(|fault| Finding {
        subject: Subject::History,
        text: format!("the history can't be written: {fault}{waiting}"),
    });
    let spool = facts.spool_fault.as_ref().map(|fault| Finding {
        subject: Subject::HistorySpool,
        text: format!(
            "the spool of the history can't be written: {fault}; what waits is lost if Tollgate ends"
        ),
    });
    let dropped = (facts.dropped > 0).then(|| Finding {
        subject: Subject::HistoryDropped,
        text: format!(
            "{} batches of the history were lost, because there was no room for them: usage and denials are too low",
            facts.dropped
        ),
    });
    let clock = facts.clock_offset.map(|offset| Finding {
        subject: Subject::HistoryClock,
        text: format!(
            "the clock is {} seconds {} that of the history's database or of Redis: no month is closed; synchronise the clocks",
            offset.abs() / 1_000_000,
            if offset > 0 { "ahead of" } else { "behind" }
        ),
    });
    let waits = facts.waits.as_ref().map(|(month, processes)| {
        let name = |(id, seen): &(String, i64)| format!("{id}, last seen {}", rfc3339(seen * 1_000_000));
        let names: Vec<String> = processes.iter().take(3).map(name).collect();
        Finding {
            subject: Subject::HistoryMonth(month.clone()),
            text: format!(
                "usage of {month} is not closed: it waits for process {}; `tollgate usage close {month}` closes it without",
                names.join("; ")
            ),
        }
    });
    [fault, spool, dropped, clock, waits].into_iter().flatten()
}

/// The webhooks that can't be told.
fn alerts(facts: &AlertFacts) -> impl Iterator<Item = Finding> {
    let failing = facts.failing.iter().map(|(receiver, reason)| Finding {
        subject: Subject::Alerts(receiver.clone()),
        text: format!(
            "alerts can't be sent to {receiver}: {reason}; each is tried for an hour, and `tollgate alerts` lists them"
        ),
    });
    let dropped = (facts.dropped_now > 0).then(|| Finding {
        subject: Subject::AlertsDropped,
        text: format!("{} alerts were not sent in this hour, because there were too many", facts.dropped_now),
    });
    let fault = facts.fault.as_ref().map(|fault| Finding {
        subject: Subject::AlertsFault,
        text: format!("alerts wait, because the history's database refuses them: {fault}"),
    });
    failing.chain(dropped).chain(fault)
}

fn stale_addresses(endpoint: &EndpointFacts, now: SystemTime) -> Option<Finding> {
    let EndpointFacts { upstream, url, .. } = endpoint;
    let text = format!("endpoint {url} of upstream {upstream} {}", endpoint.stale_addresses(now)?);
    Some(Finding { subject: Subject::StaleAddresses { upstream: upstream.clone(), url: url.clone() }, text })
}

fn heaviest_client(input: &RuleInput) -> Option<Finding> {
    let traffic = &input.traffic;
    let (address, requests) = traffic.heaviest_client()?;
    if traffic.requests < MIN_REQUESTS || requests * 2 <= traffic.requests {
        return None;
    }
    let share = requests * 100 / traffic.requests;
    let client = if address.is_ipv6() { format!("the prefix of {address}") } else { address.to_string() };
    let text = format!(
        "{client} sent at least {share} % of all requests in the last minute: it is either one very busy \
            client, or a proxy that is missing from trusted_proxies, in which case limits by address treat \
            everybody behind it as one client"
    );
    Some(Finding { subject: Subject::HeaviestClient(address), text })
}

fn most_connections(connections: &ConnectionFacts) -> Option<Finding> {
    let ConnectionFacts { open, max, heaviest } = *connections;
    let (network, count) = heaviest?;
    if count < MIN_CONNECTIONS || count * MIN_CONNECTIONS_SHARE < max || count * 2 <= open {
        return None;
    }
    let is_address = network.prefix_len() == network.max_prefix_len();
    let client = if is_address { network.addr().to_string() } else { network.to_string() };
    let text = format!(
        "{client} has {count} of {open} client connections open, and there may be {max}: it is either one client with \
         very many, or a proxy that is missing from trusted_proxies; client_limits.connections_per_address limits them"
    );
    Some(Finding { subject: Subject::MostConnections(network), text })
}

fn untrusted_forwarding(input: &RuleInput) -> Option<Finding> {
    let (traffic, header) = (&input.traffic, &input.settings.header);
    let peer = traffic.untrusted_peer?;
    if traffic.untrusted_forwarding < MIN_UNTRUSTED
        || traffic.untrusted_forwarding * MIN_UNTRUSTED_SHARE < traffic.requests
    {
        return None;
    }
    let (count, requests) = (traffic.untrusted_forwarding, traffic.requests);
    let reason = match peer {
        UntrustedPeer::Address(peer) => format!(
            "their peers, such as {peer}, are not trusted: if {peer} is your proxy, add it to trusted_proxies"
        ),
        UntrustedPeer::Balancer(peer) => format!(
            "the PROXY header of {peer} names no client: let {peer} send the client's address in it, or, if it sends \
             these headers itself, turn the PROXY protocol off at both sides"
        ),
    };
    let text = format!(
        "{count} of {requests} requests in the last minute carried {header} or Forwarded, which was ignored because \
         {reason}"
    );
    Some(Finding { subject: Subject::UntrustedForwarding, text })
}

fn private_clients(input: &RuleInput) -> Option<Finding> {
    let (traffic, settings) = (&input.traffic, &input.settings);
    if traffic.requests < MIN_REQUESTS
        || traffic.private_clients < traffic.requests
        || !settings.limits_addresses
    {
        return None;
    }
    let remedy = match (traffic.untrusted_peer, settings.trusts_proxies) {
        (Some(UntrustedPeer::Address(peer)), _) => format!("add {peer} to trusted_proxies"),
        (Some(UntrustedPeer::Balancer(peer)), _) => {
            format!("let {peer} send the client's address in its PROXY header")
        }
        (None, true) => "add every proxy in front of Tollgate to trusted_proxies".to_owned(),
        (None, false) => "add the proxy in front of Tollgate to trusted_proxies".to_owned(),
    };
    let text = format!(
        "all clients in the last minute had private addresses, and policies limit by address: unless all \
            clients are in your own network, their real addresses are probably in {}: {remedy}",
        settings.header
    );
    Some(Finding { subject: Subject::PrivateClients, text })
}

fn limits_memory(memory: &MemoryInput) -> Option<Finding> {
    let limits = &memory.limits;
    let text = if memory.evicted_limits > 0 {
        format!(
            "the memory store is full, with {} limits in {}: limits are forgotten and start afresh, those used least \
             first; raise store.memory.max_keys and max_bytes, or find out who has so many keys",
            limits.keys,
            held(limits.bytes)
        )
    } else if is_nearly_spent(limits.bytes) {
        format!(
            "limits take {}: once it is full, limits are forgotten and start afresh, those used least first; raise \
             store.memory.max_bytes, or give the process more memory",
            held(limits.bytes)
        )
    } else {
        return None;
    };
    Some(Finding { subject: Subject::LimitsMemory, text })
}

fn evidence_memory(memory: &MemoryInput) -> Option<Finding> {
    let evidence = &memory.evidence;
    if memory.evicted_evidence == 0 && !is_nearly_spent(evidence.bytes) {
        return None;
    }
    let text = format!(
        "evidence takes {}: the records of clients that were denied longest ago are dropped first, then the clients from the \
         list; raise abuse.memory, or lower record.keep or abuse.retain",
        held(evidence.bytes)
    );
    Some(Finding { subject: Subject::EvidenceMemory, text })
}

fn is_nearly_spent(bytes: BudgetFacts) -> bool {
    bytes.budget > 0 && bytes.held >= bytes.budget / 100 * NEARLY_SPENT
}

/// `118 MiB of its 128 MiB`
fn held(bytes: BudgetFacts) -> String {
    format!("{} of its {}", format_bytes(bytes.held), format_bytes(bytes.budget))
}

/// Problems of certificates and their files, one for each file even if several listeners or upstreams use it.
fn certificates(input: &RuleInput) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let served = input.tls.iter().flat_map(|tls| &tls.certificates);
    let served = served.filter_map(|served| {
        let whose = format!("the certificate of {}", served.info.names.join(", "));
        certificate_validity(served, &whose, "clients", input.now)
    });
    let shown = input.upstream_tls.iter().filter_map(|of| {
        let whose = format!("the client certificate for upstream {}", of.upstream);
        certificate_validity(of.certificate.as_ref()?, &whose, "endpoints", input.now)
    });
    let of_listeners = input.tls.iter().flat_map(TlsFacts::reload_errors);
    let of_upstreams = input.upstream_tls.iter().flat_map(|of| &of.reload_errors);
    let reload_errors = of_listeners.chain(of_upstreams.map(|(file, error)| (file, error)));
    let reloads = reload_errors.map(|(file, error)| Finding {
        subject: Subject::TlsReload(file.clone()),
        text: format!("{error}: what was read before is still in use"),
    });
    for finding in served.chain(shown).chain(reloads) {
        if findings.iter().all(|other| other.subject != finding.subject) {
            findings.push(finding);
        }
    }
    findings
}

/// `refusers`: the peers that will reject an invalid certificate.
fn certificate_validity(
    certificate: &CertificateFacts,
    whose: &str,
    refusers: &str,
    now: SystemTime,
) -> Option<Finding> {
    let CertificateFacts { file, info, .. } = certificate;
    let certificate = format!("{whose} in {}", file.display());
    let date = info.expiry_date();
    let (subject, text) = match info.validity(now) {
        Validity::Valid => return None,
        Validity::Expiring => {
            let left = match info.days_left(now).unwrap_or_default() {
                0 => "in less than a day".to_owned(),
                1 => "in 1 day".to_owned(),
                days => format!("in {days} days"),
            };
            let text = format!(
                "{certificate} expires {left}, on {date}: renew it; the file is read again by itself"
            );
            (Subject::CertificateExpiry(file.clone()), text)
        }
        Validity::Expired => {
            let text = format!(
                "{certificate} expired on {date}: {refusers} refuse it; renew it; the file is read again by itself"
            );
            (Subject::InvalidCertificate(file.clone()), text)
        }
        Validity::NotYetValid => {
            let text = format!(
                "{certificate} is not valid yet: {refusers} refuse it; check the clock of this machine"
            );
            (Subject::InvalidCertificate(file.clone()), text)
        }
    };
    Some(Finding { subject, text })
}

/// A key set that can't be fetched.
fn key_set(set: &KeySetFacts) -> Option<Finding> {
    let (source, error) = (&set.source, set.error.as_ref()?);
    let text = match set.usable_until {
        Some(until) => format!(
            "the JWT keys of {source} can't be fetched: the last ones are used until {} ({error})",
            rfc3339(unix_micros(until))
        ),
        None => format!("the JWT keys of {source} can't be fetched: no token of it is valid ({error})"),
    };
    Some(Finding { subject: Subject::KeySet(source.clone()), text })
}

fn store_findings(store: &StoreFacts) -> Vec<Finding> {
    let warnings = store.warnings.iter();
    let warnings = warnings.map(|text| Finding { subject: Subject::Store(text.clone()), text: text.clone() });
    let own = own_clock(store);
    // If this clock is off, all others seem to be.
    let others = if own.is_some() { None } else { other_clocks(store) };
    warnings.chain(own).chain(others).chain(differences(store)).collect()
}

fn own_clock(store: &StoreFacts) -> Option<Finding> {
    let offset = store.clock_offset.filter(|offset| offset.abs() > MAX_CLOCK_OFFSET)?;
    let (seconds, direction) = (seconds(offset), if offset > 0 { "ahead of" } else { "behind" });
    let text = format!(
        "the clock of this machine is {seconds} {direction} the clock of Redis: limits use the clock of \
            Redis, but times in logs, records and bans are wrong here; check NTP on both machines"
    );
    Some(Finding { subject: Subject::OwnClock, text })
}

fn other_clocks(store: &StoreFacts) -> Option<Finding> {
    let own = store.clock_offset?;
    let is_off = |other: &&InstanceFacts| (other.clock_offset - own).abs() > MAX_CLOCK_OFFSET;
    let off: Vec<_> = store.others.iter().filter(is_off).collect();
    let most = off.iter().map(|other| (other.clock_offset - own).abs()).max()?;
    let text = format!(
        "the clocks of {} differ from the clock of this machine by up to {}: their records have wrong times \
            here; check NTP on all machines",
        instances(off.len()),
        seconds(most)
    );
    Some(Finding { subject: Subject::OtherClocks, text })
}

/// Differences of configurations and versions between instances.
fn differences(store: &StoreFacts) -> impl Iterator<Item = Finding> {
    let own = store.own.as_ref();
    let configurations = own
        .and_then(|own| describe_difference(store, &own.configuration, |other| &other.configuration))
        .map(|text| {
            let text =
                format!("configuration differs: {text}; limits that differ are counted separately or twice");
            Finding { subject: Subject::Configurations, text }
        });
    let versions = own
        .and_then(|own| describe_difference(store, &own.version, |other| &other.version))
        .map(|text| Finding { subject: Subject::Versions, text: format!("versions differ: {text}") });
    configurations.into_iter().chain(versions)
}

/// `2 instances have 1a2b, this one 3c4d`
fn describe_difference(
    store: &StoreFacts,
    own: &str,
    field: impl Fn(&InstanceFacts) -> &String,
) -> Option<String> {
    let mut others = BTreeMap::<&str, usize>::new();
    for other in store.others.iter().map(&field).filter(|other| *other != own) {
        *others.entry(other).or_default() += 1;
    }
    if others.is_empty() {
        return None;
    }
    let parts = others.into_iter().map(|(value, count)| {
        let verb = if count == 1 { "has" } else { "have" };
        format!("{} {verb} {value}", instances(count))
    });
    Some(format!("{}, this one {own}", parts.collect::<Vec<_>>().join(", ")))
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
    use std::{net::IpAddr, sync::Arc, time::Duration};

    use super::*;
    use crate::{telemetry::metrics::ClientCaFacts, tls::CertificateInfo};

    fn nothing() -> RuleInput {
        RuleInput {
            now: SystemTime::UNIX_EPOCH,
            traffic: TrafficSample::default(),
            settings: ClientAddressSettings::default(),
            connections: ConnectionFacts::default(),
            store: None,
            tls: Vec::new(),
            upstream_tls: Vec::new(),
            key_sets: Vec::new(),
            keys_file_error: None,
            history: KeptHistoryFacts::default(),
            alerts: AlertFacts::default(),
            memory: MemoryInput::default(),
            routes: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    #[test]
    fn an_idle_instance_has_no_findings() {
        assert_eq!(findings(&nothing()), []);
    }

    #[test]
    fn a_file_of_api_keys_that_cannot_be_used_is_found() {
        let input = RuleInput { keys_file_error: Some("keys.yaml is torn".to_owned()), ..nothing() };
        let found = findings(&input);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "keys.yaml is torn: the API keys that were read before stay valid");
    }

    #[test]
    fn key_sets_that_cannot_be_fetched_are_found() {
        let set = |error: Option<&str>, usable_until| KeySetFacts {
            source: "https://id".to_owned(),
            error: error.map(str::to_owned),
            usable_until,
            ..KeySetFacts::default()
        };
        let until = Some(SystemTime::UNIX_EPOCH);
        let key_sets = vec![set(None, until), set(Some("gone"), until), set(Some("gone"), None)];
        assert_findings(
            &RuleInput { key_sets, ..nothing() },
            &[
                "the JWT keys of https://id can't be fetched: the last ones are used until 1970-01-01T00:00:00",
                "the JWT keys of https://id can't be fetched: no token of it is valid (gone)",
            ],
        );
    }

    fn input(traffic: TrafficSample) -> RuleInput {
        let settings = ClientAddressSettings {
            limits_addresses: true,
            trusts_proxies: false,
            header: "X-Forwarded-For".into(),
        };
        RuleInput { traffic, settings, ..nothing() }
    }

    fn traffic(requests: u64, heaviest: u64) -> TrafficSample {
        let mut sample = TrafficSample { requests, ..TrafficSample::default() };
        sample.add_heavy_hitter(IpAddr::from([203, 0, 113, 7]), heaviest);
        sample
    }

    #[track_caller]
    fn assert_findings(input: &RuleInput, parts: &[&str]) {
        let texts: Vec<_> = findings(input).into_iter().map(|finding| finding.text).collect();
        assert!(
            texts.len() == parts.len() && texts.iter().zip(parts).all(|(text, part)| text.contains(part)),
            "{texts:#?}"
        );
    }

    #[test]
    fn one_client_that_makes_most_requests_is_named_with_its_share() {
        assert_findings(
            &input(traffic(1_000, 830)),
            &["203.0.113.7 sent at least 83 % of all requests in the last minute:"],
        );
        assert_findings(&input(traffic(1_000, 500)), &[]);
        assert_findings(&input(traffic(999, 999)), &[]);
        assert_findings(&input(TrafficSample::default()), &[]);
    }

    #[test]
    fn one_client_that_has_most_connections_is_named_with_their_number() {
        let spread = |open, max, count| RuleInput {
            connections: ConnectionFacts {
                open,
                max,
                heaviest: Some(("2001:db8::/64".parse().unwrap(), count)),
            },
            ..nothing()
        };
        let named = "2001:db8::/64 has 600 of 1000 client connections open, and there may be 10000:";
        assert_findings(&spread(1_000, 10_000, 600), &[named]);
        assert_findings(&spread(1_000, 10_000, 500), &[]);
        assert_findings(&spread(600, 10_000, 499), &[]);
        assert_findings(&spread(100, 100, 100), &["has 100 of 100"]);
        assert_findings(&spread(99, 99, 99), &[]);
    }

    #[test]
    fn private_addresses_alone_are_found_where_policies_limit_by_address() {
        let private = TrafficSample { requests: 1_000, private_clients: 1_000, ..TrafficSample::default() };
        assert_findings(
            &input(private.clone()),
            &["in X-Forwarded-For: add the proxy in front of Tollgate to trusted_proxies"],
        );
        assert_findings(&input(TrafficSample { private_clients: 999, ..private.clone() }), &[]);
        let mut other = input(private);
        other.settings.limits_addresses = false;
        assert_findings(&other, &[]);
    }

    #[test]
    fn forwarding_fields_of_many_untrusted_requests_are_found() {
        let peer = IpAddr::from([10, 0, 0, 5]);
        let untrusted = TrafficSample {
            requests: 80,
            untrusted_forwarding: 20,
            untrusted_peer: Some(UntrustedPeer::Address(peer)),
            ..TrafficSample::default()
        };
        assert_findings(&input(untrusted.clone()), &["20 of 80 requests"]);
        let unnamed =
            TrafficSample { untrusted_peer: Some(UntrustedPeer::Balancer(peer)), ..untrusted.clone() };
        assert_findings(&input(unnamed), &["the PROXY header of 10.0.0.5 names no client"]);
        assert_findings(&input(TrafficSample { untrusted_forwarding: 19, ..untrusted.clone() }), &[]);
        // One client among many.
        assert_findings(&input(TrafficSample { requests: 81, ..untrusted }), &[]);
    }

    fn instance(clock_offset: i64, configuration: &str, version: &str) -> InstanceFacts {
        InstanceFacts { clock_offset, configuration: configuration.into(), version: version.into() }
    }

    fn store_facts(own: i64, others: Vec<InstanceFacts>) -> RuleInput {
        let store = StoreFacts {
            clock_offset: Some(own),
            own: Some(instance(own, "3c4d", "0.1.0")),
            others,
            ..StoreFacts::default()
        };
        RuleInput { store: Some(store), ..nothing() }
    }

    #[test]
    fn a_wrong_clock_is_found_and_its_owner_named() {
        assert_findings(
            &store_facts(3_250_000, vec![instance(0, "3c4d", "0.1.0")]),
            &["is 3.2 s ahead of the clock of Redis"],
        );
        assert_findings(&store_facts(-1_100_000, vec![]), &["is 1.1 s behind the clock of Redis"]);
        let others = vec![instance(2_000_000, "3c4d", "0.1.0"), instance(0, "3c4d", "0.1.0")];
        assert_findings(
            &store_facts(-300_000, others),
            &["the clocks of 1 instance differ from the clock of this machine by up to 2.3 s"],
        );
        assert_findings(&store_facts(900_000, vec![instance(0, "3c4d", "0.1.0")]), &[]);
    }

    #[test]
    fn instances_that_differ_are_counted() {
        let others =
            vec![instance(0, "1a2b", "0.1.0"), instance(0, "1a2b", "0.2.0"), instance(0, "3c4d", "0.1.0")];
        assert_findings(
            &store_facts(0, others),
            &[
                "configuration differs: 2 instances have 1a2b, this one 3c4d",
                "versions differ: 1 instance has 0.2.0, this one 0.1.0",
            ],
        );
    }

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Valid for 90 days from the Unix epoch on.
    fn certificate(file: &str) -> CertificateFacts {
        let info = CertificateInfo {
            names: vec!["a.example.com".into(), "b.example.com".into()],
            subject: String::new(),
            issuer: String::new(),
            key_type: String::new(),
            fingerprint: String::new(),
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH + DAY * 90,
        };
        let loaded = info.not_before;
        CertificateFacts { file: file.into(), info: Arc::new(info), loaded, reload_error: None }
    }

    fn with_tls(now: SystemTime, certificates: Vec<CertificateFacts>) -> RuleInput {
        RuleInput { now, tls: vec![TlsFacts { certificates, ..TlsFacts::default() }], ..nothing() }
    }

    #[test]
    fn certificates_that_expire_soon_or_have_expired_are_found() {
        let at = |days: u32| with_tls(SystemTime::UNIX_EPOCH + DAY * days, vec![certificate("a.pem")]);
        assert_findings(&at(76), &[]);
        let certificate = "the certificate of a.example.com, b.example.com in a.pem";
        let expires =
            |left: &str| format!("{certificate} expires in {left}, on 1970-04-01 00:00:00 UTC: renew it");
        assert_findings(&at(77), &[&expires("13 days")]);
        assert_findings(&at(89), &[&expires("1 day")]);
        assert_findings(&at(90), &[&expires("less than a day")]);
        let expired = format!("{certificate} expired on 1970-04-01 00:00:00 UTC: clients refuse it");
        assert_findings(&at(91), &[&expired]);
        let early = SystemTime::UNIX_EPOCH - DAY;
        assert_findings(&with_tls(early, vec![self::certificate("a.pem")]), &["in a.pem is not valid yet"]);
    }

    #[test]
    fn the_client_certificate_for_an_upstream_expires_and_is_reread_likewise() {
        let mut input = RuleInput { now: SystemTime::UNIX_EPOCH + DAY * 77, ..nothing() };
        input.upstream_tls = vec![UpstreamTlsFacts {
            upstream: "orders".into(),
            certificate: Some(certificate("me.pem")),
            reload_errors: vec![("ca.pem".into(), "ca.pem contains no certificate".into())],
        }];
        let reread = "ca.pem contains no certificate: what was read before is still in use";
        let of = "the client certificate for upstream orders in me.pem";
        let expires = format!("{of} expires in 13 days, on 1970-04-01 00:00:00 UTC: renew it");
        assert_findings(&input, &[&expires, reread]);
        input.now += DAY * 20;
        let expired = format!("{of} expired on 1970-04-01 00:00:00 UTC: endpoints refuse it");
        assert_findings(&input, &[&expired, reread]);
    }

    #[test]
    fn a_file_that_several_listeners_serve_is_named_once() {
        let now = SystemTime::UNIX_EPOCH + DAY * 91;
        let mut input = with_tls(now, vec![certificate("a.pem"), certificate("b.pem")]);
        input.tls.push(TlsFacts { certificates: vec![certificate("a.pem")], ..TlsFacts::default() });
        assert_findings(&input, &["in a.pem expired", "in b.pem expired"]);
    }

    #[test]
    fn files_that_are_not_read_again_are_found() {
        let error = Some("a.key is not the private key of `cert`".to_owned());
        let mut input = with_tls(
            SystemTime::UNIX_EPOCH,
            vec![CertificateFacts { reload_error: error, ..certificate("a.pem") }],
        );
        input.tls[0].client_ca = Some(ClientCaFacts {
            file: "ca.pem".into(),
            loaded: SystemTime::UNIX_EPOCH,
            reload_error: Some("ca.pem contains no certificate".to_owned()),
        });
        assert_findings(
            &input,
            &[
                "a.key is not the private key of `cert`: what was read before is still in use",
                "ca.pem contains no certificate: what was read before is still in use",
            ],
        );
    }

    #[test]
    fn budgets_of_memory_that_are_nearly_spent_or_evicted_from_are_found() {
        let bytes = |mib: u64| BudgetFacts { held: mib << 20, budget: 128 << 20 };
        let memory = |limits, evidence| MemoryInput {
            limits: MemoryFacts { keys: 7, bytes: bytes(limits), ..MemoryFacts::default() },
            evidence: EvidenceFacts { bytes: bytes(evidence), ..EvidenceFacts::default() },
            ..MemoryInput::default()
        };
        let input = |memory| RuleInput { memory, ..nothing() };
        assert_findings(&input(memory(114, 114)), &[]);
        assert_findings(&input(memory(116, 1)), &["limits take 116 MiB of its 128 MiB: once it is full"]);
        assert_findings(&input(memory(1, 116)), &["evidence takes 116 MiB of its 128 MiB: the records"]);
        let evicting = MemoryInput { evicted_limits: 1, evicted_evidence: 1, ..memory(12, 13) };
        let full = "the memory store is full, with 7 limits in 12 MiB of its 128 MiB";
        assert_findings(&input(evicting), &[full, "evidence takes 13 MiB"]);
    }

    #[test]
    fn warnings_of_the_store_are_passed_on() {
        let store = StoreFacts { warnings: vec!["mind the gap".into()], ..StoreFacts::default() };
        let input = RuleInput { store: Some(store), ..nothing() };
        assert_findings(&input, &["mind the gap"]);
    }
}
