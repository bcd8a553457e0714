//! Endpoints with names: their addresses come and go.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use crate::harness::{Client, Config, Conn, Dns, DnsAnswer, Latch, Load, Origin, Tollgate, eventually, get};

/// Listeners at these addresses of this machine, all on one port.
fn on_one_port<const N: usize>(addresses: [&str; N]) -> [TcpListener; N] {
    let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap());
    loop {
        let port = TcpListener::bind((addresses[0], 0)).unwrap().local_addr().unwrap().port();
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

fn has_logged(tollgate: &Tollgate, words: &[&str]) -> bool {
    tollgate.log().iter().any(|line| words.iter().all(|word| line.contains(word)))
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
    assert!(has_logged(&tollgate, &["upstream api: api.test has the addresses 127.0.0.2"]));
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
    let mut client = Client::connect(tollgate.address);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || before.heads().len() == 1);
    dns.set("api.test", addresses(&["127.0.0.2"], 1));
    eventually("the name has moved", || has_logged(&tollgate, &["api.test has the addresses 127.0.0.2"]));
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
    eventually("it is resolved", || has_logged(&tollgate, &["127.0.0.1, 127.0.0.2, ::1"]));
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
            has_logged(&tollgate, &["WARN", "api.test was not resolved again, and keeps 127.0.0.1", why])
        });
        assert_eq!(get(tollgate.address, "/", &[]).status, 200, "{answer:?}");
    }
    dns.set("api.test", addresses(&["127.0.0.1"], 1));
    eventually("it is resolved again", || has_logged(&tollgate, &["api.test is resolved again: 127.0.0.1"]));
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
    assert!(has_logged(
        &tollgate,
        &["ERROR", "no request can be sent to api.test: DNS does not know this name"]
    ));
    let is_told = || tollgate.admin("GET", "/v1/status").text().contains("DNS does not know this name");
    eventually("the status says it", is_told);
    dns.set("api.test", addresses(&["127.0.0.1"], 30));
    eventually("it works", || get(tollgate.address, "/", &[]).status == 200);
    eventually("all is well", || !is_told());
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
    eventually("it is logged", || has_logged(&tollgate, &["ERROR", "no request can be sent to api.test"]));
    dns.set("api.test", addresses(&["127.0.0.1"], 30));
    eventually("it works", || get(tollgate.address, "/", &[]).status == 200);
}

#[test]
fn a_server_that_is_silent_about_ipv6_delays_nobody_for_long() {
    let (dns, [origin]) = (Dns::start(), origins(["127.0.0.1"]));
    dns.set("api.test", DnsAnswer::SilentAboutIpv6(vec!["127.0.0.1".parse().unwrap()], 30));
    let tollgate = tollgate(&dns, &format!("[\"http://api.test:{}\"]", origin.address.port()));
    eventually("it works", || get(tollgate.address, "/", &[]).status == 200);
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
