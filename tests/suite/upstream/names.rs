//! Endpoints with names: their addresses come and go.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use crate::harness::{
    Client, Config, Conn, Dns, DnsAnswer, Latch, Load, Origin, Tollgate, eventually, free_port, get,
};

/// Listeners at these addresses of this machine, all on one port.
fn on_one_port<const N: usize>(addresses: [&str; N]) -> [TcpListener; N] {
    let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap());
    loop {
        let port = free_port();
        let bound: Result<Vec<_>, _> =
            addresses.iter().map(|ip| TcpListener::bind(SocketAddr::new(*ip, port))).collect();
        // Another test may have the port at one of them.
        if let Ok(bound) = bound {
            return bound.try_into().unwrap();
        }
    }
}

fn origins<const N: usize>(addresses: [&str; N]) -> [Origin; N] {
    on_one_port(addresses).map(|listener| Origin::at(listener, Conn::serve_ok))
}

/// Before `endpoints`, whose names `dns` knows.
fn tollgate(dns: &Dns, endpoints: &str) -> Tollgate {
    Tollgate::start(config(dns, endpoints, ""))
}

fn config(dns: &Dns, endpoints: &str, settings: &str) -> Config {
    Config::yaml(format!(
        "resolver: {{ servers: [\"{}\"], timeout: 1s }}\nupstreams:\n  api: {{ endpoints: {endpoints}{settings} }}\nroutes: [{{ path: /*, upstream: api }}]\n",
        dns.address
    ))
}

fn addresses(of: &[&str], ttl: u32) -> DnsAnswer {
    DnsAnswer::Addresses(of.iter().map(|address| address.parse().unwrap()).collect(), ttl)
}

#[test]
fn requests_follow_a_name_to_another_address_and_none_fails() {
    let (dns, [before, after]) = (Dns::start(), origins(["127.0.0.1", "127.0.0.2"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", before.address.port()));
    let load = Load::start(&[tollgate.address], &["/"], 4, Duration::from_millis(2));
    eventually("the first address has them", || before.heads().len() > 100);
    dns.set("api.test", addresses(&["127.0.0.2"], 1));
    eventually("the second address has them", || after.heads().len() > 100);
    eventually("the connections to the first address are closed", || before.open_connections() == 0);
    let at_first = before.heads().len();
    let more = after.heads().len() + 100;
    eventually("the second address has more", || after.heads().len() > more);
    assert_eq!(before.heads().len(), at_first, "the first address gets none");
    let samples = load.stop();
    let failed: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(tollgate.has_logged(&["upstream api: api.test has the addresses 127.0.0.2"]));
}

#[test]
fn a_request_under_way_ends_where_it_was_sent() {
    let (release, dns) = (Latch::new(), Dns::start());
    let released = release.clone();
    let [before, after] = on_one_port(["127.0.0.1", "127.0.0.2"]);
    let before = Origin::at(before, move |conn| {
        while conn.head()?.is_some() {
            released.wait();
            conn.answer("200 OK", &[], b"late")?;
        }
        Ok(())
    });
    let after = Origin::at(after, Conn::serve_ok);
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", before.address.port()));
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || before.heads().len() == 1);
    dns.set("api.test", addresses(&["127.0.0.2"], 1));
    eventually("the name has moved", || tollgate.has_logged(&["api.test has the addresses 127.0.0.2"]));
    assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    assert_eq!(after.heads().len(), 1);
    release.open();
    assert_eq!(client.reply().text(), "late");
    eventually("its connection is closed", || before.open_connections() == 0);
}

#[test]
fn all_addresses_share_the_weight_of_the_endpoint() {
    let (dns, [v4, other_v4, v6]) = (Dns::start(), origins(["127.0.0.1", "127.0.0.2", "::1"]));
    let alone = Origin::ok();
    dns.set("api.test", addresses(&["127.0.0.1", "127.0.0.2", "::1"], 30));
    let endpoints = format!("[\"http://api.test:{}\", \"http://{}\"]", v4.address.port(), alone.address);
    let config = config(&dns, &endpoints, ", balance: round_robin");
    let tollgate = Tollgate::start(config);
    eventually("it is resolved", || tollgate.has_logged(&["127.0.0.1, 127.0.0.2, ::1"]));
    let counts = || [&v4, &other_v4, &v6, &alone].map(|origin| origin.heads().len());
    // Each of two workers takes its own turns.
    let before = counts();
    let mut client = Client::connect(tollgate.address);
    for _ in 0..60 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    let each: Vec<_> = counts().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(each, [10, 10, 10, 30]);
}

#[test]
fn addresses_stay_while_no_server_knows_better() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", origin.address.port()));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let words = [
        (DnsAnswer::ServerFailure, "Server Failure"),
        (DnsAnswer::Silence, "in"),
        (DnsAnswer::NoSuchName, "DNS does not know this name"),
    ];
    for (answer, why) in words {
        dns.set("api.test", answer.clone());
        let asked = dns.queries("api.test");
        eventually("it was asked again", || dns.queries("api.test") > asked + 1);
        eventually("it is logged", || {
            tollgate.has_logged(&["WARN", "api.test was not resolved again, and keeps 127.0.0.1", why])
        });
        assert_eq!(get(tollgate.address, "/", &[]).status, 200, "{answer:?}");
    }
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    eventually("it is resolved again", || tollgate.has_logged(&["api.test is resolved again: 127.0.0.1"]));
}

#[test]
fn a_name_that_is_unknown_at_the_start_works_as_soon_as_it_is_known() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", origin.address.port()));
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    }
    let asked = dns.queries("api.test");
    assert!(asked <= 2 + began.elapsed().as_secs() as usize, "not for each request: {asked}");
    assert!(
        tollgate.has_logged(&["ERROR", "no request can be sent to api.test: DNS does not know this name"])
    );
    let is_told = || tollgate.admin("GET", "/v1/status").text().contains("DNS does not know this name");
    eventually("the status says it", is_told);
    dns.set("api.test", addresses(&["127.0.0.1"], 30));
    eventually("it works", || get(tollgate.address, "/", &[]).status == 200);
    eventually("all is well", || !is_told());
}

/// How long each of so many requests takes that get this status.
fn times(tollgate: &Tollgate, requests: usize, status: u16) -> Vec<Duration> {
    let time = |_| {
        let began = Instant::now();
        assert_eq!(get(tollgate.address, "/", &[]).status, status);
        began.elapsed()
    };
    (0..requests).map(time).collect()
}

#[test]
fn requests_wait_for_a_server_that_is_silent_no_longer_than_for_a_connection() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", DnsAnswer::Silence);
    let endpoints = format!("[\"http://api.test:{}\"]", origin.address.port());
    let config = config(&dns, &endpoints, ", timeouts: { connect: 300ms }");
    let tollgate = Tollgate::start(config);
    let began = Instant::now();
    assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    // Generous, and yet less than hickory's own patience.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    eventually("it is logged", || tollgate.has_logged(&["ERROR", "no request can be sent to api.test"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 30));
    eventually("it works", || get(tollgate.address, "/", &[]).status == 200);
}

#[test]
fn only_the_first_requests_wait_for_a_server_that_is_silent() {
    let dns = Dns::start();
    dns.set("api.test", DnsAnswer::Silence);
    let tollgate = Tollgate::start(config(&dns, "[\"http://api.test\"]", ", timeouts: { connect: 30s }"));
    let patience = Duration::from_secs(10);
    let [first] = times(&tollgate, 1, 502)[..] else { unreachable!() };
    assert!(first < patience, "it waits for `resolver.timeout`, a second: {first:?}");
    let (began, mut all) = (Instant::now(), Vec::new());
    // Over several attempts to resolve it.
    while began.elapsed() < Duration::from_secs(6) {
        all.extend(times(&tollgate, 20, 502));
    }
    let slow = all.iter().filter(|time| **time > Duration::from_millis(700)).count();
    assert!(all.len() > 100 && slow * 20 < all.len(), "{slow} of {} have waited", all.len());
    assert!(tollgate.has_logged(&[
            "endpoint http://api.test could not be reached: the name api.test has no address: no DNS server has answered within 1s"
        ]));
    assert!(dns.queries("api.test") < 30, "pauses grow: {}", dns.queries("api.test"));
}

#[test]
fn a_name_without_an_address_delays_no_request_that_another_endpoint_can_serve() {
    let (dns, other) = (Dns::start(), Origin::ok());
    for answer in [DnsAnswer::Silence, DnsAnswer::NoSuchName] {
        dns.set("api.test", answer.clone());
        let endpoints = format!("[\"http://api.test\", \"http://{}\"]", other.address);
        let settings = ", balance: round_robin, timeouts: { connect: 30s }, retry: { max: 0 }";
        let tollgate = Tollgate::start(config(&dns, &endpoints, settings));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            let times = times(&tollgate, 20, 200);
            let slow = times.iter().filter(|time| **time > Duration::from_millis(700)).count();
            assert!(slow < 3, "{answer:?}: {times:?}");
        }
        let endpoint = &tollgate.admin("GET", "/v1/upstreams").json()["upstreams"][0]["endpoints"][0];
        assert_eq!(
            (&endpoint["state"], &endpoint["requests"]),
            (&"unresolved".into(), &0.into()),
            "{endpoint}"
        );
    }
}

#[test]
fn a_server_that_is_silent_about_ipv6_delays_nobody_for_long() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", DnsAnswer::SilentAboutIpv6(vec!["127.0.0.1".parse().unwrap()], 30));
    let endpoints = format!("[\"http://api.test:{}\"]", origin.address.port());
    let tollgate = Tollgate::start(config(&dns, &endpoints, ", timeouts: { connect: 500ms }"));
    let times = times(&tollgate, 20, 200);
    // Each would wait as long as a connection may take, otherwise. A busy machine holds a few up.
    let mut sorted = times.clone();
    sorted.sort_unstable();
    assert!(sorted[10] < Duration::from_millis(250) && sorted[16] < Duration::from_millis(450), "{times:?}");
    let unknown = "api.test has the addresses 127.0.0.1, and its IPv6 addresses are unknown";
    eventually("it is logged", || tollgate.has_logged(&["WARN", unknown]));
    assert!(!tollgate.has_logged(&["was not resolved again"]));
}

#[test]
fn a_name_is_resolved_at_once_when_none_of_its_addresses_can_be_reached() {
    let (dns, [listener, after]) = (Dns::start(), on_one_port(["127.0.0.1", "127.0.0.2"]));
    // Serves one request, and is gone.
    let port = listener.local_addr().unwrap().port();
    let gone = std::thread::spawn(move || -> io::Result<()> {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept()?;
        let mut head = [0; 1024];
        assert!(stream.read(&mut head)? > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nfirst")
    });
    let after = Origin::at(after, Conn::serve_ok);
    // Long, but the address fails.
    dns.set("api.test", addresses(&["127.0.0.1"], 600));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{port}\"]"));
    assert_eq!(get(tollgate.address, "/", &[]).text(), "first");
    gone.join().unwrap().unwrap();
    dns.set("api.test", addresses(&["127.0.0.2"], 600));
    let moved = Instant::now();
    eventually("the new address serves", || get(tollgate.address, "/", &[]).text() == "ok");
    assert!(moved.elapsed() < Duration::from_secs(15), "before its time: {:?}", moved.elapsed());
    assert!(!after.heads().is_empty());
}

#[test]
fn a_name_is_resolved_at_once_when_none_of_its_addresses_passes_its_health_check() {
    let (dns, [gone, after]) = (Dns::start(), on_one_port(["127.0.0.1", "127.0.0.2"]));
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let after = Origin::at(after, Conn::serve_ok);
    dns.set("api.test", addresses(&["127.0.0.1"], 600));
    let endpoints = format!("[\"http://api.test:{port}\"]");
    let health = ", health: { type: tcp, interval: 200ms, timeout: 2s, unhealthy: 1 }";
    let tollgate = Tollgate::start(config(&dns, &endpoints, health));
    eventually("it is unhealthy", || tollgate.has_logged(&["WARN", "(127.0.0.1:", "is unhealthy"]));
    dns.set("api.test", addresses(&["127.0.0.2"], 600));
    let moved = Instant::now();
    // Without a single request.
    eventually("the new address is probed", || after.connections() > 0);
    assert!(moved.elapsed() < Duration::from_secs(15), "before its time: {:?}", moved.elapsed());
}

#[test]
fn a_reload_forgets_no_address() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 600));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", origin.address.port()));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    dns.set("api.test", DnsAnswer::Silence);
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, yaml.replace("  api: { ", "  api: { max_connections: 7, ")).unwrap();
    tollgate.signal("HUP");
    eventually("it is reloaded", || {
        tollgate.has_logged(&["upstream api"]) && {
            let shown = tollgate.admin("GET", "/v1/config").text();
            shown.contains("max_connections: 7") || shown.contains("\"max_connections\":7")
        }
    });
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
}

#[test]
fn answers_that_are_late_or_lost_at_first_or_too_long_for_udp_are_heard() {
    let address = || vec!["127.0.0.1".parse().unwrap()];
    for (case, answer, least_queries, may_fail) in [
        // Later than in a third of `resolver.timeout`: queries are a third of a second apart.
        ("after other queries", DnsAnswer::Late(address(), 30, 2), 3, true),
        ("to a query that is sent again within the attempt", DnsAnswer::FirstLost(address(), 30), 0, false),
        ("over TCP", DnsAnswer::ForTcp(address(), 30), 0, true),
    ] {
        let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
        dns.set("api.test", answer);
        let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", origin.address.port()));
        eventually(&format!("an answer {case}"), || get(tollgate.address, "/", &[]).status == 200);
        assert!(dns.queries("api.test") >= least_queries, "{case}");
        assert!(may_fail || !tollgate.has_logged(&["ERROR"]), "{case}: {:?}", tollgate.log());
    }
}

#[test]
fn an_alias_holds_no_longer_than_its_own_ttl() {
    let (dns, [before, after]) = (Dns::start(), origins(["127.0.0.1", "127.0.0.2"]));
    dns.set("blue.test", addresses(&["127.0.0.1"], 600));
    dns.set("green.test", addresses(&["127.0.0.2"], 600));
    dns.set("api.test", DnsAnswer::Alias("blue.test".to_owned(), 1));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", before.address.port()));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert_eq!(before.heads().len(), 1);
    dns.set("api.test", DnsAnswer::Alias("green.test".to_owned(), 1));
    let moved = Instant::now();
    eventually("it has moved", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        !after.heads().is_empty()
    });
    assert!(moved.elapsed() < Duration::from_secs(15), "{:?}", moved.elapsed());
}

#[test]
fn a_ttl_of_0_is_one_of_a_second_and_a_name_may_end_with_a_dot() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 0));
    let began = Instant::now();
    let tollgate = tollgate(&dns, &format!("[\"http://api.test.:{}\"]", origin.address.port()));
    while dns.queries("api.test") < 3 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    let asked = dns.queries("api.test");
    assert!(asked <= 2 + began.elapsed().as_secs() as usize, "once a second: {asked}");
}

#[test]
fn names_in_etc_hosts_are_not_asked_of_dns() {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let own = hosts.lines().filter_map(|line| line.strip_prefix("127.0.0.1")).flat_map(str::split_whitespace);
    // Where the file has no other name of this machine, `localhost` alone is tried.
    for name in own.take_while(|name| !name.starts_with('#')).chain(["localhost"]) {
        let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
        let tollgate = tollgate(&dns, &format!("[\"http://{name}:{}\"]", origin.address.port()));
        assert_eq!(get(tollgate.address, "/", &[]).status, 200, "{name}");
        assert_eq!(dns.queries(name), 0, "{name}");
    }
}

#[test]
fn operators_see_the_age_of_addresses_and_why_the_resolver_fails() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    let endpoints = format!("[\"http://api.test:{}\", \"http://nowhere.test\"]", origin.address.port());
    let tollgate = tollgate(&dns, &endpoints);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    dns.set("api.test", DnsAnswer::ServerFailure);
    let error = "the DNS server has refused to answer: Server Failure";
    let shows = |command: &str, words: &[&str]| {
        let shown = tollgate.command(&[command]).stdout;
        // A reason has a line of its own.
        let lines: String = shown.lines().filter(|line| line.contains("http://api.test:")).collect();
        words.iter().all(|word| lines.contains(word))
    };
    eventually("the endpoints show it", || {
        shows("upstreams", &["api ", "s ago ", "healthy", &format!("the resolver fails: {error}")])
    });
    eventually("the status shows it", || {
        shows(
            "status",
            &["api: ", "1 of 2", "was last resolved ", &format!("s ago; the resolver fails: {error}")],
        )
    });
    let status = tollgate.command(&["status"]).stdout;
    assert!(status.contains("http://nowhere.test is unresolved: DNS does not know this name"), "{status}");
    let page = tollgate.admin("GET", "/upstreams").text();
    assert!(page.contains("1 address, last resolved ") && page.contains("; the resolver fails: "), "{page}");
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    eventually("all is well", || !shows("status", &["the resolver fails"]));
}

#[test]
fn a_reload_may_name_other_servers() {
    let (dns, other, [before, after]) = (Dns::start(), Dns::start(), origins(["127.0.0.1", "127.0.0.2"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    other.set("api.test", addresses(&["127.0.0.2"], 1));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", before.address.port()));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, yaml.replace(&dns.address.to_string(), &other.address.to_string())).unwrap();
    tollgate.signal("HUP");
    eventually("the other server is asked", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        !after.heads().is_empty()
    });
}
