//! Looks up the addresses of a name: in `/etc/hosts`, then by DNS, and if DNS knows none, by the system.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};
use nix::errno::Errno;
use tokio::time::{sleep, timeout, timeout_at};

use crate::{
    config::model,
    file::{self, WatchedFile},
};

/// The system's DNS settings.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How often that file is checked, and how long addresses from `/etc/hosts` or from the system, which have no TTL, are
/// valid.
const INTERVAL: Duration = Duration::from_secs(1);
const WITHOUT_TTL: Duration = Duration::from_secs(5);

/// Queries for each version of IP, spread over the timeout because packets get lost. The first reply to any of them
/// counts. Until then each keeps up to three sockets open per server, on which hickory repeats it.
const QUERIES: u32 = 2;

/// How long the second version of IP may take after the first. Some servers never reply for IPv6.
const BOTH_WITHIN: Duration = Duration::from_secs(1);

/// How long until requests get the addresses of the first version of IP (RFC 8305, 3).
const EARLY_AFTER: Duration = Duration::from_millis(50);

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedName {
    /// The name with the domain in which DNS has the addresses.
    pub(super) full_name: Option<String>,
    /// For IPv4, and for IPv6.
    pub(super) results: [FamilyResult; 2],
}

/// The result for one version of IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FamilyResult {
    /// Addresses, valid until then.
    Addresses(Vec<IpAddr>, Instant),
    /// The name has none, for this reason.
    None(String),
    /// The lookup failed, for this reason.
    Failed(String),
}

/// Looks up names, by the settings of the configuration and of the system.
#[derive(Default)]
pub(super) struct NameResolver {
    settings: Option<model::Resolver>,
    resolv_conf: Option<WatchedFile>,
    /// When the file was last checked.
    checked: Option<Instant>,
    /// `None`: the system has no DNS servers, or none that can be used.
    dns: Option<Dns>,
}

impl NameResolver {
    /// Uses the servers in `settings`, or else the system's current ones. Returns whether they have changed.
    pub(super) fn follow(&mut self, settings: &model::Resolver) -> bool {
        let is_new = self.settings.as_ref() != Some(settings);
        if is_new {
            self.settings = Some(settings.clone());
        }
        let has_changed = settings.servers.is_empty() && self.resolv_conf_has_changed();
        if is_new || has_changed {
            let bytes = self.resolv_conf.as_ref().map_or(&[][..], WatchedFile::bytes);
            self.dns = Dns::new(settings, bytes);
        }
        is_new || has_changed
    }

    fn resolv_conf_has_changed(&mut self) -> bool {
        if self.checked.is_some_and(|checked| checked.elapsed() < INTERVAL) {
            return false;
        }
        self.checked = Some(Instant::now());
        match &mut self.resolv_conf {
            // A file that can't be read keeps its last content.
            Some(file) => file.refresh().unwrap_or(false),
            None => {
                self.resolv_conf = file::open(Path::new(RESOLV_CONF)).ok();
                self.resolv_conf.is_some()
            }
        }
    }

    /// Looks up the addresses of `name`. `known`: its full name so far. `early` is called with the addresses of one
    /// version of IP if the other takes longer.
    pub(super) fn lookup<F: Fn(Vec<IpAddr>)>(
        &self,
        name: &str,
        known: Option<String>,
        early: F,
    ) -> impl Future<Output = ResolvedName> + use<F> {
        let settings = self.settings.clone();
        let (name, dns) = (name.to_owned(), self.dns.clone());
        async move {
            if let Some(results) = in_hosts_file(&name) {
                return ResolvedName { full_name: None, results };
            }
            let (within, asks_system) =
                settings.map_or((INTERVAL, true), |settings| (settings.timeout, settings.servers.is_empty()));
            let late = tokio::time::Instant::now() + within;
            let early = |result| match reachable(result) {
                FamilyResult::Addresses(addresses, _) => early(addresses),
                FamilyResult::None(_) | FamilyResult::Failed(_) => {}
            };
            let ResolvedName { full_name, results } = match &dns {
                Some(dns) => dns.lookup(&name, known.as_deref(), within, &early).await,
                None => ResolvedName::same(FamilyResult::None("the system has no DNS server".to_owned())),
            };
            let knows_nothing = results.iter().all(|result| matches!(result, FamilyResult::None(_)));
            // Hosts have names outside of DNS, too: see `nsswitch.conf`.
            let by_system = match knows_nothing && asks_system {
                true => timeout_at(late, by_system(&name)).await.ok().flatten(),
                false => None,
            };
            ResolvedName { full_name, results: by_system.unwrap_or(results).map(reachable) }
        }
    }
}

impl ResolvedName {
    /// The same result, without addresses, for both versions of IP.
    fn same(result: FamilyResult) -> Self {
        Self { full_name: None, results: [result.clone(), result] }
    }
}

/// DNS, and the search domains of names.
#[derive(Clone)]
struct Dns {
    servers: ResolverConfig,
    options: ResolverOpts,
    /// As `search` in resolv.conf.
    domains: Arc<[Name]>,
    /// A name with fewer dots is first looked up in the domains.
    ndots: usize,
}

impl Dns {
    /// Uses `settings`, or else `resolv_conf`.
    fn new(settings: &model::Resolver, resolv_conf: &[u8]) -> Option<Self> {
        let (config, options) = match settings.servers.as_slice() {
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
        Some(Self::asking(config, options, settings.timeout))
    }

    fn asking(servers: ResolverConfig, mut options: ResolverOpts, within: Duration) -> Self {
        // As in resolv.conf(5): without `search`, the domain of this machine counts.
        let domains = match servers.search() {
            [] => servers.domain().into_iter().cloned().collect(),
            search => search.into(),
        };
        let ndots = options.ndots;
        // hickory would read the file only once, and it was already consulted.
        options.use_hosts_file = ResolveHosts::Never;
        // Valid addresses are kept anyway, and names whose addresses fail are resolved early.
        options.cache_size = 0;
        options.timeout = within;
        // How often a server that has refused is queried.
        options.attempts = 2;
        // A server behind silent ones would never get its turn.
        options.num_concurrent_reqs = servers.name_servers().len();
        Self { servers, options, domains, ndots }
    }

    /// Sends one query. Each has a client of its own, so that no other query closes its sockets.
    async fn query(&self, full_name: &Name, kind: RecordType) -> Result<Lookup, NetError> {
        let mut builder =
            TokioResolver::builder_with_config(self.servers.clone(), TokioRuntimeProvider::default());
        builder.options_mut().clone_from(&self.options);
        builder.build()?.lookup(full_name.clone(), kind).await
    }

    /// The addresses of `name` in the first domain that has any, in either version of IP, as with getaddrinfo(3). If
    /// the lookup in the domain where the name was `known` fails, later domains are not tried: there it may be another
    /// host's name.
    async fn lookup(
        &self,
        name: &str,
        known: Option<&str>,
        within: Duration,
        early: &dyn Fn(FamilyResult),
    ) -> ResolvedName {
        let late = tokio::time::Instant::now() + within;
        let full_names = match Name::from_utf8(name) {
            Ok(name) => self.full_names(&name),
            Err(error) => {
                return ResolvedName::same(FamilyResult::None(format!("it is no name of DNS: {error}")));
            }
        };
        let mut last: Option<[FamilyResult; 2]> = None;
        for full_name in full_names {
            let results = self.addresses(&full_name, late, within, early).await;
            let full_name = full_name.to_utf8();
            if results.iter().any(has_addresses) {
                return ResolvedName { full_name: Some(full_name), results };
            }
            // A server that fails for one domain may know another, but if none replies, none will.
            let is_late = tokio::time::Instant::now() >= late;
            let is_failure = |result: &FamilyResult| matches!(result, FamilyResult::Failed(_));
            if known == Some(&*full_name) && results.iter().any(is_failure) {
                return ResolvedName { full_name: None, results };
            }
            if !last.as_ref().is_some_and(|last| last.iter().any(is_failure)) {
                last = Some(results);
            }
            if is_late {
                break;
            }
        }
        let unknown = || [(); 2].map(|()| FamilyResult::None(UNKNOWN_NAME.to_owned()));
        ResolvedName { full_name: None, results: last.unwrap_or_else(unknown) }
    }

    /// The full names of `name` to try, in the order of resolv.conf(5).
    fn full_names(&self, name: &Name) -> Vec<Name> {
        if name.is_fqdn() {
            return vec![name.clone()];
        }
        let mut itself = name.clone();
        itself.set_fqdn(true);
        // A name that becomes too long is skipped.
        let in_domains = self.domains.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        match dots >= self.ndots {
            true => std::iter::once(itself).chain(in_domains).collect(),
            false => in_domains.chain([itself]).collect(),
        }
    }

    /// The addresses of a full name.
    async fn addresses(
        &self,
        full_name: &Name,
        late: tokio::time::Instant,
        within: Duration,
        early: &dyn Fn(FamilyResult),
    ) -> [FamilyResult; 2] {
        let ask = async |kind| {
            let query = |nth| async move {
                sleep(within / QUERIES * nth).await;
                self.query(full_name, kind).await
            };
            // None ends before `late`: a server may take longer than until the next query.
            let mut queries: FuturesUnordered<_> = (0..QUERIES).map(query).collect();
            match timeout_at(late, queries.next()).await {
                Ok(Some(Ok(lookup))) => {
                    let records = lookup.answers();
                    let mut addresses: Vec<_> =
                        records.iter().filter_map(|record| record.data.ip_addr()).collect();
                    if addresses.is_empty() {
                        return FamilyResult::None(NO_ADDRESS.to_owned());
                    }
                    // Servers vary the order of addresses.
                    addresses.sort_unstable();
                    addresses.dedup();
                    FamilyResult::Addresses(addresses, lookup.valid_until())
                }
                Ok(Some(Err(error))) => no_addresses(&error),
                Ok(None) | Err(_) => FamilyResult::Failed(no_addresses_in_time(within)),
            }
        };
        match select(pin!(ask(RecordType::A)), pin!(ask(RecordType::AAAA))).await {
            Either::Left((v4, v6)) if has_addresses(&v4) => {
                let v6 = other_result(&v4, v6, early).await;
                [v4, v6]
            }
            Either::Left((v4, v6)) => [v4, v6.await],
            Either::Right((v6, v4)) if has_addresses(&v6) => [other_result(&v6, v4, early).await, v6],
            Either::Right((v6, v4)) => [v4.await, v6],
        }
    }
}

const UNKNOWN_NAME: &str = "DNS does not know this name";
const NO_ADDRESS: &str = "DNS has no address for this name";

/// Waits for the result of the other version of IP, after the `first` one has addresses. If it is late, `early` is
/// called with these.
async fn other_result(
    first: &FamilyResult,
    mut other: impl Future<Output = FamilyResult> + Unpin,
    early: &dyn Fn(FamilyResult),
) -> FamilyResult {
    if let Ok(other) = timeout(EARLY_AFTER, &mut other).await {
        return other;
    }
    early(first.clone());
    let late = |_| FamilyResult::Failed(no_addresses_in_time(BOTH_WITHIN));
    timeout(BOTH_WITHIN.saturating_sub(EARLY_AFTER), other).await.unwrap_or_else(late)
}

fn has_addresses(result: &FamilyResult) -> bool {
    matches!(result, FamilyResult::Addresses(..))
}

fn no_addresses_in_time(within: Duration) -> String {
    format!("no DNS server has answered within {within:?}")
}

fn no_addresses(error: &NetError) -> FamilyResult {
    match error {
        error if error.is_nx_domain() => FamilyResult::None(UNKNOWN_NAME.to_owned()),
        error if error.is_no_records_found() => FamilyResult::None(NO_ADDRESS.to_owned()),
        NetError::Timeout => FamilyResult::Failed("no DNS server has answered in time".to_owned()),
        NetError::Dns(DnsError::ResponseCode(code)) => {
            FamilyResult::Failed(format!("the DNS server has refused to answer: {code}"))
        }
        error => FamilyResult::Failed(format!("DNS can't be asked: {error}")),
    }
}

/// The addresses of `name` in `/etc/hosts`. `None`: it has none.
fn in_hosts_file(name: &str) -> Option<[FamilyResult; 2]> {
    let (hosts, parsed) = (Hosts::from_system().ok()?, Name::from_utf8(name).ok()?);
    let found = [RecordType::A, RecordType::AAAA].map(|kind| {
        let lookup = hosts.lookup_static_host(&Query::query(parsed.clone(), kind));
        lookup.into_iter().flat_map(|lookup| {
            lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
        })
    });
    without_ttl(found.into_iter().flatten().collect(), "/etc/hosts has no such address")
}

async fn by_system(name: &str) -> Option<[FamilyResult; 2]> {
    let found = tokio::net::lookup_host((name, 0)).await.ok()?;
    without_ttl(found.map(|address| address.ip()).collect(), "the system knows no such address")
}

/// These `addresses`, if there are any, by version of IP.
fn without_ttl(mut addresses: Vec<IpAddr>, otherwise: &str) -> Option<[FamilyResult; 2]> {
    addresses.sort_unstable();
    addresses.dedup();
    let until = Instant::now() + WITHOUT_TTL;
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv4);
    let result = |addresses: Vec<IpAddr>| match addresses.is_empty() {
        true => FamilyResult::None(otherwise.to_owned()),
        false => FamilyResult::Addresses(addresses, until),
    };
    (!v4.is_empty() || !v6.is_empty()).then(|| [v4, v6].map(result))
}

/// Removes addresses that this machine has no route to, such as those of a version of IP that it does not use.
fn reachable(result: FamilyResult) -> FamilyResult {
    let FamilyResult::Addresses(addresses, until) = result else { return result };
    let (with_route, without): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|ip| has_route(*ip));
    match with_route.is_empty() {
        true => {
            let without = without.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            FamilyResult::None(format!("this machine has no route to {without}"))
        }
        false => FamilyResult::Addresses(with_route, until),
    }
}

/// Whether the system has a route to `ip`, or can't tell. No packet is sent.
fn has_route(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0));
    // Any port will do.
    let connected = socket.and_then(|socket| socket.connect(SocketAddr::new(ip, 9)));
    // Other errors, such as too few file descriptors, do not concern the route.
    let errno = connected.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw);
    !matches!(
        errno,
        Some(
            // `EACCES`: broadcast addresses, and prohibited routes.
            Errno::EACCES
                | Errno::EADDRNOTAVAIL
                | Errno::EAFNOSUPPORT
                | Errno::EHOSTUNREACH
                | Errno::ENETUNREACH
        )
    )
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::{
        op::{Message, OpCode, ResponseCode},
        rr::{RData, Record},
        serialize::binary::BinDecodable,
    };

    use super::*;

    /// A name, the version of IP of the query, and the address or code in the reply.
    type Known = (&'static str, RecordType, Result<&'static str, ResponseCode>);

    /// Queries a server that knows these names, and replies to others that they do not exist. `resolv_conf` names no
    /// server.
    fn dns(resolv_conf: &str, known: &'static [Known]) -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || serve(&socket, known));
        asking(resolv_conf, &[address], Duration::from_secs(5))
    }

    fn serve(socket: &UdpSocket, known: &[Known]) {
        let mut packet = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut packet) {
            let query = Message::from_bytes(&packet[..length]).unwrap();
            let asked = query.queries[0].clone();
            let is_it = |known: &&Known| asked.name().to_utf8() == known.0 && asked.query_type() == known.1;
            let mut answer = Message::response(query.id, OpCode::Query);
            answer.add_query(asked.clone());
            match known.iter().find(is_it).map(|known| known.2) {
                Some(Ok(address)) => {
                    let data = RData::from(address.parse::<IpAddr>().unwrap());
                    answer.add_answer(Record::from_rdata(asked.name().clone(), 30, data));
                }
                Some(Err(code)) => answer.metadata.response_code = code,
                None => answer.metadata.response_code = ResponseCode::NXDomain,
            }
            socket.send_to(&answer.to_vec().unwrap(), peer).unwrap();
        }
    }

    fn asking(resolv_conf: &str, servers: &[SocketAddr], within: Duration) -> Dns {
        let (parsed, options) = parse_resolv_conf(format!("nameserver 127.0.0.1\n{resolv_conf}")).unwrap();
        let servers = servers.iter().map(|address| {
            let mut server = NameServerConfig::udp(address.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = address.port());
            server
        });
        let (domain, search) = (parsed.domain().cloned(), parsed.search().to_vec());
        Dns::asking(ResolverConfig::from_parts(domain, search, servers.collect()), options, within)
    }

    fn shown(found: ResolvedName) -> (String, [String; 2]) {
        let shown = |result| match result {
            FamilyResult::Addresses(found, _) => found[0].to_string(),
            FamilyResult::None(why) | FamilyResult::Failed(why) => why,
        };
        (found.full_name.unwrap_or_default(), found.results.map(shown))
    }

    #[tokio::test]
    async fn the_first_domain_with_an_address_of_any_version_has_the_name() {
        const KNOWN: &[Known] = &[
            ("db.two.test.", RecordType::AAAA, Ok("::2")),
            ("db.three.test.", RecordType::A, Ok("10.0.0.3")),
            ("db.three.test.", RecordType::AAAA, Ok("::3")),
            ("web.two.test.", RecordType::A, Err(ResponseCode::ServFail)),
            ("web.two.test.", RecordType::AAAA, Err(ResponseCode::ServFail)),
            ("web.three.test.", RecordType::A, Ok("10.0.0.3")),
            ("api.two.test.", RecordType::A, Err(ResponseCode::ServFail)),
            ("api.two.test.", RecordType::AAAA, Err(ResponseCode::ServFail)),
        ];
        let dns = dns("search one.test two.test three.test", KNOWN);
        let within = Duration::from_secs(10);
        let no_record = || UNKNOWN_NAME.to_owned();
        assert_eq!(
            shown(dns.lookup("db", None, within, &|_| ()).await),
            ("db.two.test.".into(), [no_record(), "::2".into()]),
            "not IPv4 of another domain"
        );
        assert_eq!(
            shown(dns.lookup("web", None, within, &|_| ()).await),
            ("web.three.test.".into(), ["10.0.0.3".into(), no_record()]),
            "a server that fails for one domain knows the next"
        );
        let failed = || "the DNS server has refused to answer: Server Failure".to_owned();
        assert_eq!(
            shown(dns.lookup("web", Some("web.two.test."), within, &|_| ()).await),
            (String::new(), [failed(), failed()]),
            "what the name stood for does not change because a server fails"
        );
        assert_eq!(
            shown(dns.lookup("db", Some("db.one.test."), within, &|_| ()).await).0,
            "db.two.test.",
            "one that is gone there may have moved"
        );
        assert_eq!(
            shown(dns.lookup("api", None, within, &|_| ()).await),
            (String::new(), [failed(), failed()])
        );
        assert_eq!(
            shown(dns.lookup("mail", None, within, &|_| ()).await),
            (String::new(), [no_record(), no_record()])
        );
        assert_eq!(shown(dns.lookup("db.", None, within, &|_| ()).await).0, "", "it is complete");
    }

    #[tokio::test]
    async fn a_server_is_heard_however_many_others_are_silent() {
        let servers = [(); 5].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = servers.each_ref().map(|server| server.local_addr().unwrap());
        let [answering, _silent @ ..] = servers;
        std::thread::spawn(move || serve(&answering, &[("db.", RecordType::A, Ok("10.0.0.3"))]));
        let within = Duration::from_secs(10);
        let found = asking("", &addresses, within).lookup("db.", None, within, &|_| ()).await;
        assert_eq!(shown(found).1, ["10.0.0.3", UNKNOWN_NAME]);
    }

    #[test]
    fn names_with_few_dots_are_looked_for_in_the_domains_first() {
        let full_names = |resolv_conf: &str, name: &str| {
            let names = dns(resolv_conf, &[]).full_names(&Name::from_utf8(name).unwrap());
            names.iter().map(Name::to_utf8).collect::<Vec<_>>()
        };
        assert_eq!(full_names("search a.test b.test", "db"), ["db.a.test.", "db.b.test.", "db."]);
        assert_eq!(full_names("search a.test b.test", "db.c"), ["db.c.", "db.c.a.test.", "db.c.b.test."]);
        assert_eq!(full_names("search a.test\noptions ndots:2", "db.c"), ["db.c.a.test.", "db.c."]);
        assert_eq!(full_names("search a.test\noptions ndots:5", "db.c."), ["db.c."]);
        assert_eq!(
            full_names("search a.test\ndomain b.test", "db"),
            ["db.b.test.", "db."],
            "the last counts"
        );
    }

    #[test]
    fn addresses_of_the_system_are_told_apart_by_version() {
        let addresses = ["::1", "10.0.0.1", "::1"].map(|address| address.parse().unwrap());
        let [v4, v6] = without_ttl(addresses.to_vec(), "none").unwrap();
        assert!(matches!(v4, FamilyResult::Addresses(found, _) if found == [Ipv4Addr::new(10, 0, 0, 1)]));
        assert!(matches!(v6, FamilyResult::Addresses(found, _) if found == [Ipv6Addr::LOCALHOST]));
        let [v4, v6] = without_ttl(vec![Ipv4Addr::LOCALHOST.into()], "none").unwrap();
        assert!(has_addresses(&v4) && v6 == FamilyResult::None("none".into()));
        assert_eq!(without_ttl(Vec::new(), "none"), None);
    }

    #[test]
    fn an_address_without_a_route_is_not_used() {
        let until = Instant::now();
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        let all = vec![loopback];
        assert_eq!(
            reachable(FamilyResult::Addresses(all.clone(), until)),
            FamilyResult::Addresses(all, until)
        );
        // Sockets may not send to broadcast addresses without an option.
        let broadcast = vec![Ipv4Addr::BROADCAST.into()];
        assert!(matches!(reachable(FamilyResult::Addresses(broadcast, until)), FamilyResult::None(_)));
    }
}
