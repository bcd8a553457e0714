//! Random stick tables: one tracker in each frontend, counted and denied under conditions of their own.

use super::super::{
    dice::Dice,
    sent::Sent,
    source::{Generated, Listener, Places},
};

/// Conditions under which requests count, and are denied.
const CONDITIONS: [&str; 7] = [
    "",
    "",
    "{ path_beg /api/ }",
    "{ path /login }",
    "METH_POST",
    "{ hdr(host) -i a.test }",
    "!{ path_beg /static/ }",
];
/// What is counted by.
const KEYS: [(&str, &str); 8] = [
    ("src", "ip"),
    ("src", "ip"),
    ("src", "ip"),
    ("src", "ip"),
    ("src", "ip"),
    ("src", "ipv6"),
    ("req.hdr(x-key)", "string len 64"),
    ("base32+src", "binary len 20"),
];
const PATHS: [&str; 6] = ["/", "/api/x", "/login", "/static/x", "/closed", "/api/y"];

pub fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let dice = &mut Dice::new(seed);
    let mut text = String::from(
        "defaults\n    mode http\n    timeout connect 2s\n    timeout client 10s\n    timeout server 10s\n",
    );
    let is_shared = dice.chance(40);
    let frontends = dice.number(1..3);
    let shared = dice.pick(&KEYS);
    for nth in 0..frontends {
        let (key, kind) = if is_shared { shared } else { dice.pick(&KEYS) };
        text += &format!("frontend front{nth}\n    bind 127.0.0.1:{}\n", places.ports[nth]);
        let table = if is_shared { " table all" } else { "" };
        if !is_shared {
            text += &table_line(kind);
        }
        text += dice.maybe(20, &["    http-request deny if { path /closed }\n"]).unwrap_or("");
        let counted = dice.pick(&CONDITIONS);
        text += &format!("    http-request track-sc0 {key}{table}{}\n", condition(&[counted]));
        for _ in 0..dice.weighted(&[(5, 1), (1, 2)]) {
            let denied = if dice.chance(60) { counted } else { dice.pick(&CONDITIONS) };
            let exempt =
                dice.maybe(25, &["!{ src 127.0.0.2 }", "!{ src 127.1.0.0/16 127.0.0.9 }"]).unwrap_or("");
            let most = dice.number(2..7);
            let rate = dice.pick(&[
                format!("{{ sc_http_req_rate(0) gt {most} }}"),
                format!("{{ sc0_http_req_rate ge {} }}", most + 1),
            ]);
            let status = dice.pick(&["", " deny_status 429", " deny_status 503"]);
            text += &format!("    http-request deny{status}{}\n", condition(&[denied, &rate, exempt]));
        }
        text += &format!("    default_backend service{nth}\n");
    }
    if is_shared {
        text += &format!("backend all\n{}", table_line(shared.1));
    }
    for nth in 0..frontends {
        text += &format!("backend service{nth}\n    server one {}\n", places.origins[nth]);
    }
    let listener = |port: &u16| Listener { address: ([127, 0, 0, 1], *port).into(), is_tls: false };
    let mut requests = Vec::new();
    for _ in 0..dice.number(10..16) {
        let request = request(dice, frontends);
        requests.extend(vec![request; dice.number(1..6)]);
    }
    Generated {
        files: vec![("haproxy.cfg".to_owned(), text)],
        listeners: places.ports[..frontends].iter().map(listener).collect(),
        requests,
        ..Generated::default()
    }
}

fn table_line(kind: &str) -> String {
    format!("    stick-table type {kind} size 1k expire 2h store http_req_rate(1h)\n")
}

fn condition(terms: &[&str]) -> String {
    let terms: Vec<&str> = terms.iter().copied().filter(|term| !term.is_empty()).collect();
    if terms.is_empty() { String::new() } else { format!(" if {}", terms.join(" ")) }
}

fn request(dice: &mut Dice, frontends: usize) -> Sent {
    let method = dice.weighted(&[(5, "GET"), (3, "POST"), (1, "HEAD")]);
    let host = dice.weighted(&[(3, "a.test"), (1, "b.test")]);
    let path = dice.pick(&PATHS);
    let peer = dice.weighted(&[(4, "127.0.0.1"), (2, "127.0.0.2"), (1, "127.0.0.9"), (1, "127.1.0.1")]);
    let listener = dice.number(..frontends);
    let key = dice.pick(&["", " | x-key: one", " | x-key: one", " | x-key: two"]);
    Sent::parse(&format!("{method} {host}{path} from {peer} at {listener}{key}"))
}
