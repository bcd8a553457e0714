//! Who the client is: what the origin learns of it, and which peers are trusted.

use std::net::IpAddr;

use crate::harness::{Client, Config, Origin, Tollgate};

/// Everything by which a client could claim to be another.
const CLAIMS: [(&str, &str); 25] = [
    ("x-forwarded-for", "6.6.6.6"),
    ("X-Forwarded-For", "6.6.6.7"),
    ("X_Forwarded_For", "6.6.6.6"),
    ("X-Forwarded_For", "6.6.6.6"),
    ("x-forwarded-proto", "6.6.6.6"),
    ("x_forwarded_proto", "6.6.6.6"),
    ("x-forwarded-host", "6.6.6.6"),
    ("x-forwarded-port", "6666"),
    ("x-forwarded-prefix", "/6.6.6.6"),
    ("x-forwarded-server", "6.6.6.6"),
    ("x-forwarded", "6.6.6.6"),
    ("forwarded", "for=6.6.6.6"),
    ("forwarded", "for=\"6.6.6.6"),
    ("x-real-ip", "6.6.6.6"),
    ("x_real_ip", "6.6.6.6"),
    ("x-client-ip", "6.6.6.6"),
    ("true-client-ip", "6.6.6.6"),
    ("cf-connecting-ip", "6.6.6.6"),
    ("x-cluster-client-ip", "6.6.6.6"),
    ("fastly-client-ip", "6.6.6.6"),
    ("proxy-client-ip", "6.6.6.6"),
    ("wl-proxy-client-ip", "6.6.6.6"),
    ("x-azure-clientip", "6.6.6.6"),
    ("x-envoy-external-address", "6.6.6.6"),
    ("x-original-forwarded-for", "6.6.6.6"),
];

/// What the origin learns of the client, sorted: `forwarded` and `x-forwarded-*`, of a client with
/// `fields` and a proxy with `settings`.
fn forwarding_fields(settings: &str, fields: &[(&str, &str)]) -> Vec<String> {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    let mut fields = fields.to_vec();
    fields.push(("host", "api.example:81"));
    assert_eq!(Client::connect(tollgate.address).request("GET", "/", &fields, b"").status, 200);
    let head = origin.heads()[0].clone();
    let is_ours = |line: &&str| line.contains("orwarded") || line.contains("6.6.6") || line.contains("6666");
    let mut lines: Vec<_> = head.split("\r\n").filter(is_ours).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

const X_FORWARDED: [&str; 3] =
    ["x-forwarded-for: 127.0.0.1", "x-forwarded-host: api.example:81", "x-forwarded-proto: http"];
const TRUSTED: &str = "trusted_proxies: [127.0.0.0/8]\nforwarded: both\n";
const FORWARDED: &str = "forwarded: for=127.0.0.1;host=\"api.example:81\";proto=http";

#[test]
fn claims_of_an_untrusted_client_are_replaced_in_every_form_of_forwarding_fields() {
    let both = [&[FORWARDED], &X_FORWARDED[..]].concat();
    for (settings, expected) in [
        ("", &X_FORWARDED[..]),
        ("forwarded: x-forwarded\n", &X_FORWARDED),
        ("forwarded: forwarded\n", &[FORWARDED]),
        ("forwarded: off\n", &[]),
        ("forwarded: both\n", &both),
    ] {
        assert_eq!(forwarding_fields(settings, &CLAIMS), expected, "{settings}");
    }
}

#[test]
fn the_configured_address_field_is_a_claim_too() {
    let settings = "client_address: { header: fastly-client-ip }\nforwarded: off\n";
    assert_eq!(forwarding_fields(settings, &[("fastly-client-ip", "6.6.6.6")]), [""; 0]);
}

#[test]
fn the_fields_of_a_trusted_proxy_are_appended_to() {
    let fields = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "orwarded.example"),
        ("forwarded", "for=203.0.113.7;proto=https"),
    ];
    let expected = [
        "forwarded: for=203.0.113.7;proto=https, for=127.0.0.1;host=\"api.example:81\";proto=http",
        "x-forwarded-for: 203.0.113.7, 10.0.0.2, 127.0.0.1",
        "x-forwarded-host: orwarded.example",
        "x-forwarded-proto: https",
    ];
    assert_eq!(forwarding_fields(TRUSTED, &fields), expected);

    // Empty elements at the ends are left out.
    let fields = [
        ("x-forwarded-for", "203.0.113.7,"),
        ("x-forwarded-for", ""),
        ("x-forwarded-for", " , 10.0.0.2"),
        ("forwarded", "for=203.0.113.7;, ,"),
    ];
    let expected =
        ["forwarded: for=203.0.113.7;, for=127.0.0.1;host=\"api.example:81\";proto=http", expected[1]];
    assert_eq!(forwarding_fields(TRUSTED, &fields)[..2], expected);
}

#[test]
fn the_forwarded_host_is_the_one_asked_for() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], "forwarded: both\n"));
    let mut client = Client::connect(tollgate.address);
    client.send("GET http://real.example/ HTTP/1.1\r\nhost: other.example\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    let head = &origin.heads()[0];
    assert!(head.contains("\r\nx-forwarded-host: real.example"), "{head}");
    assert!(head.contains(";host=\"real.example\"") && !head.contains("other.example"), "{head}");
}

/// Two requests a minute for each address.
const TWO: &str = "policies:\n  per-ip: { algorithm: sliding_log, key: ip, limit: 2/1m }\n";

fn limited(trusted: &str) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let yaml = format!(
        "{trusted}{TWO}upstreams:\n  a: {{ endpoints: [\"http://{}\"], policies: [per-ip] }}\nroutes:\n  - {{ path: /*, upstream: a }}\n",
        origin.address
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    (origin, tollgate)
}

/// The statuses of requests with these X-Forwarded-For fields, from `peer`.
fn statuses(tollgate: &Tollgate, peer: &str, chains: &[&str]) -> Vec<u16> {
    let peer: IpAddr = peer.parse().unwrap();
    let mut client = Client::connect_from(peer, tollgate.address);
    chains.iter().map(|chain| client.request("GET", "/", &[("x-forwarded-for", chain)], b"").status).collect()
}

#[test]
fn spoofed_addresses_are_no_way_around_a_limit() {
    let (origin, tollgate) = limited("");
    assert_eq!(statuses(&tollgate, "127.0.0.5", &["1.1.1.1", "2.2.2.2", "3.3.3.3"]), [200, 200, 429]);
    assert_eq!(origin.heads().len(), 2);
    assert_eq!(statuses(&tollgate, "127.0.0.6", &["127.0.0.5"]), [200]);
}

#[test]
fn the_address_behind_trusted_proxies_is_what_is_limited() {
    let (_origin, tollgate) = limited("trusted_proxies: [127.0.0.1, 10.0.0.0/8]\n");
    let one = "203.0.113.7";
    assert_eq!(statuses(&tollgate, "127.0.0.1", &[one, "203.0.113.7, 10.1.2.3", one]), [200, 200, 429]);
    assert_eq!(statuses(&tollgate, "127.0.0.1", &["203.0.113.8"]), [200]);
    // Whatever the client wrote stands left of what the proxies saw.
    assert_eq!(
        statuses(&tollgate, "127.0.0.1", &["198.51.100.1, 203.0.113.7", "x, , 203.0.113.7"]),
        [429, 429]
    );
}

#[test]
fn empty_elements_hide_no_address() {
    let (_origin, tollgate) = limited("trusted_proxies: [127.0.0.1, 10.0.0.0/8]\n");
    let chains = ["203.0.113.7,", ", 203.0.113.7, , 10.1.2.3", "203.0.113.7"];
    assert_eq!(statuses(&tollgate, "127.0.0.1", &chains), [200, 200, 429]);
}

#[test]
fn a_client_that_is_no_trusted_proxy_can_not_use_up_anothers_limit() {
    let (_origin, tollgate) = limited("trusted_proxies: [127.0.0.1]\n");
    assert_eq!(statuses(&tollgate, "127.0.0.9", &["203.0.113.7"; 3]), [200, 200, 429]);
    assert_eq!(statuses(&tollgate, "127.0.0.1", &["203.0.113.7"]), [200]);
}

#[test]
fn nobody_can_shake_off_the_field_that_tells_who_he_is() {
    let (origin, tollgate) = limited("trusted_proxies: [127.0.0.1]\n");
    let mut client = Client::connect(tollgate.address);
    let fields = [("connection", "x-forwarded-for"), ("x-forwarded-for", "203.0.113.7")];
    let statuses: Vec<_> = (0..3).map(|_| client.request("GET", "/", &fields, b"").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert!(origin.heads()[0].contains("x-forwarded-for: "), "{:?}", origin.heads());
}

#[test]
fn trace_and_options_are_forwarded_as_often_as_they_may() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let ask = |method: &str, value: &str| {
        let before = origin.heads().len();
        let fields = [("host", "api.example"), ("max-forwards", value)];
        let reply = Client::connect(tollgate.address).request(method, "/", &fields, b"");
        let head = origin.heads().get(before).cloned();
        let line = |head: String| {
            let lines = head.split("\r\n").filter_map(|line| line.strip_prefix("max-forwards: "));
            lines.map(str::to_owned).collect::<Vec<_>>().join("|")
        };
        (reply.status, head.map(line))
    };
    let forwarded = |left: &str| (200, Some(left.to_owned()));
    assert_eq!(ask("OPTIONS", "10"), forwarded("9"));
    assert_eq!(ask("TRACE", "1"), forwarded("0"));
    assert_eq!(ask("OPTIONS", "0"), (204, None));
    assert_eq!(ask("TRACE", "0"), (405, None));
    assert_eq!(ask("GET", "0"), forwarded("0"), "the field is for these two methods alone");
    assert_eq!(ask("OPTIONS", "many"), forwarded("many"));
    assert_eq!(ask("OPTIONS", "99999999999999999999999"), forwarded("18446744073709551614"));
}
