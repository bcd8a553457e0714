//! Asks for the addresses of a name: `/etc/hosts` first, then DNS, and where that knows nothing, the system.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{NameServerConfig, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};
use tokio::time::timeout;

use crate::{
    config::model,
    watched_file::{self, WatchedFile},
};

/// The system's settings of DNS.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How often they are looked at, and how long what comes from `/etc/hosts` or from the system without a TTL holds.
const INTERVAL: Duration = Duration::from_secs(1);
const WITHOUT_TTL: Duration = Duration::from_secs(5);

/// How long the answer for one version of IP is waited for once the other has come. Some servers never answer for IPv6.
const BOTH_WITHIN: Duration = Duration::from_secs(1);

/// What was found for one version of IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses, which hold until then.
    Addresses(Vec<IpAddr>, Instant),
    /// The name has none, and why.
    None(String),
    /// It could not be asked for, and why.
    Failed(String),
}

/// Who is asked for addresses. Follows the settings, and those of the system.
#[derive(Default)]
pub(super) struct Resolver {
    settings: Option<model::Resolver>,
    resolv_conf: Option<WatchedFile>,
    /// When the file was last looked at.
    checked: Option<Instant>,
    /// `None`: the system has no servers, or none that can be asked.
    dns: Option<TokioResolver>,
}

impl Resolver {
    /// Asks whoever is set in `settings`, or else in the system as it is now.
    pub(super) fn follow(&mut self, settings: &model::Resolver) {
        let is_new = self.settings.as_ref() != Some(settings);
        if is_new {
            self.settings = Some(settings.clone());
        }
        let has_changed = settings.servers.is_empty() && self.resolv_conf_has_changed();
        if is_new || has_changed {
            let bytes = self.resolv_conf.as_ref().map_or(&[][..], WatchedFile::bytes);
            self.dns = dns(settings, bytes);
        }
    }

    fn resolv_conf_has_changed(&mut self) -> bool {
        if self.checked.is_some_and(|checked| checked.elapsed() < INTERVAL) {
            return false;
        }
        self.checked = Some(Instant::now());
        match &mut self.resolv_conf {
            // One that can't be read keeps what it said.
            Some(file) => file.refresh().unwrap_or(false),
            None => {
                self.resolv_conf = watched_file::open(Path::new(RESOLV_CONF)).ok();
                self.resolv_conf.is_some()
            }
        }
    }

    /// The addresses of `name`: those of IPv4, and those of IPv6.
    pub(super) fn lookup(&self, name: &str) -> impl Future<Output = [Answer; 2]> + use<> {
        let settings = self.settings.clone();
        let (name, dns) = (name.to_owned(), self.dns.clone());
        async move {
            if let Some(found) = in_hosts_file(&name) {
                return found;
            }
            let (within, asks_system) =
                settings.map_or((INTERVAL, true), |settings| (settings.timeout, settings.servers.is_empty()));
            let answers = match &dns {
                Some(dns) => by_dns(dns, &name, within).await,
                None => [(); 2].map(|()| Answer::None("the system has no DNS server".to_owned())),
            };
            let knows_nothing = answers.iter().all(|answer| matches!(answer, Answer::None(_)));
            // There are other ways to name a host than DNS: `nsswitch.conf` has them.
            let answers = match knows_nothing && asks_system {
                true => by_system(&name, within).await.unwrap_or(answers),
                false => answers,
            };
            answers.map(reachable)
        }
    }
}

/// The client of DNS for `settings`, or else for what `resolv_conf` says.
fn dns(settings: &model::Resolver, resolv_conf: &[u8]) -> Option<TokioResolver> {
    let (config, mut options) = match settings.servers.as_slice() {
        [] => match parse_resolv_conf(resolv_conf) {
            Ok(system) => system,
            Err(error) => {
                tracing::warn!(
                    "{RESOLV_CONF} names no DNS server: names are resolved by the system ({error})"
                );
                return None;
            }
        },
        servers => {
            let servers = servers.iter().map(|server| {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                config.connections.iter_mut().for_each(|connection| connection.port = server.port());
                config
            });
            (ResolverConfig::from_parts(None, Vec::new(), servers.collect()), ResolverOpts::default())
        }
    };
    // Addresses are kept for as long as they hold anyway, and are asked for before their time where they fail.
    options.cache_size = 0;
    // Within the time for all, so that a lost packet is sent again.
    options.timeout = settings.timeout / 3;
    options.attempts = 2;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().inspect_err(|error| tracing::warn!("DNS can't be asked: {error}")).ok()
}

async fn by_dns(dns: &TokioResolver, name: &str, within: Duration) -> [Answer; 2] {
    let ask = async |kind| match timeout(within, dns.lookup(name, kind)).await {
        Ok(Ok(lookup)) => {
            let mut addresses: Vec<_> =
                lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
            // Servers like to give another order each time.
            addresses.sort_unstable();
            addresses.dedup();
            Answer::Addresses(addresses, lookup.valid_until())
        }
        Ok(Err(error)) => no_addresses(&error),
        Err(_) => Answer::Failed(no_addresses_in_time(within)),
    };
    let late = || Answer::Failed(no_addresses_in_time(BOTH_WITHIN));
    match select(pin!(ask(RecordType::A)), pin!(ask(RecordType::AAAA))).await {
        Either::Left((v4, v6)) if has_addresses(&v4) => {
            [v4, timeout(BOTH_WITHIN, v6).await.unwrap_or_else(|_| late())]
        }
        Either::Left((v4, v6)) => [v4, v6.await],
        Either::Right((v6, v4)) if has_addresses(&v6) => {
            [timeout(BOTH_WITHIN, v4).await.unwrap_or_else(|_| late()), v6]
        }
        Either::Right((v6, v4)) => [v4.await, v6],
    }
}

fn has_addresses(answer: &Answer) -> bool {
    matches!(answer, Answer::Addresses(..))
}

fn no_addresses_in_time(within: Duration) -> String {
    format!("no DNS server has answered within {within:?}")
}

fn no_addresses(error: &NetError) -> Answer {
    match error {
        error if error.is_nx_domain() => Answer::None("DNS does not know this name".to_owned()),
        error if error.is_no_records_found() => Answer::None("DNS has no address for this name".to_owned()),
        NetError::Timeout => Answer::Failed("no DNS server has answered in time".to_owned()),
        NetError::Dns(DnsError::ResponseCode(code)) => {
            Answer::Failed(format!("the DNS server has refused to answer: {code}"))
        }
        error => Answer::Failed(format!("DNS can't be asked: {error}")),
    }
}

/// The addresses that `/etc/hosts` has for `name`. `None`: it has none.
fn in_hosts_file(name: &str) -> Option<[Answer; 2]> {
    let (hosts, parsed) = (Hosts::from_system().ok()?, Name::from_utf8(name).ok()?);
    let found = [RecordType::A, RecordType::AAAA].map(|kind| {
        let lookup = hosts.lookup_static_host(&Query::query(parsed.clone(), kind));
        lookup.into_iter().flat_map(|lookup| {
            lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
        })
    });
    without_ttl(found.into_iter().flatten().collect(), "/etc/hosts has no such address")
}

async fn by_system(name: &str, within: Duration) -> Option<[Answer; 2]> {
    let found = timeout(within, tokio::net::lookup_host((name, 0))).await.ok()?.ok()?;
    without_ttl(found.map(|address| address.ip()).collect(), "the system knows no such address")
}

/// These `addresses`, if there are any, by version of IP.
fn without_ttl(mut addresses: Vec<IpAddr>, otherwise: &str) -> Option<[Answer; 2]> {
    addresses.sort_unstable();
    addresses.dedup();
    let until = Instant::now() + WITHOUT_TTL;
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv4);
    let answer = |addresses: Vec<IpAddr>| match addresses.is_empty() {
        true => Answer::None(otherwise.to_owned()),
        false => Answer::Addresses(addresses, until),
    };
    (!v4.is_empty() || !v6.is_empty()).then(|| [v4, v6].map(answer))
}

/// Without addresses that this machine has no route to: those of a version of IP that it does not have.
fn reachable(answer: Answer) -> Answer {
    let Answer::Addresses(addresses, until) = answer else { return answer };
    let (with_route, without): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|ip| has_route(*ip));
    match with_route.is_empty() {
        true => {
            let without = without.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Answer::None(format!("this machine has no route to {without}"))
        }
        false => Answer::Addresses(with_route, until),
    }
}

/// Whether the system knows a way to `ip`. No packet is sent.
fn has_route(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0));
    // The port does not matter.
    socket.and_then(|socket| socket.connect(SocketAddr::new(ip, 9))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_system_are_told_apart_by_version() {
        let addresses = ["::1", "10.0.0.1", "::1"].map(|address| address.parse().unwrap());
        let [v4, v6] = without_ttl(addresses.to_vec(), "none").unwrap();
        assert!(matches!(v4, Answer::Addresses(found, _) if found == [Ipv4Addr::new(10, 0, 0, 1)]));
        assert!(matches!(v6, Answer::Addresses(found, _) if found == [Ipv6Addr::LOCALHOST]));
        let [v4, v6] = without_ttl(vec![Ipv4Addr::LOCALHOST.into()], "none").unwrap();
        assert!(has_addresses(&v4) && v6 == Answer::None("none".into()));
        assert_eq!(without_ttl(Vec::new(), "none"), None);
    }

    #[test]
    fn an_address_without_a_route_is_not_used() {
        let until = Instant::now();
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        let all = vec![loopback];
        assert_eq!(reachable(Answer::Addresses(all.clone(), until)), Answer::Addresses(all, until));
        // Broadcast is forbidden to sockets that have not asked for it.
        let broadcast = vec![Ipv4Addr::BROADCAST.into()];
        assert!(matches!(reachable(Answer::Addresses(broadcast, until)), Answer::None(_)));
    }
}
