//! `deny` and `allow`: addresses that may send requests, at the top level and on a route, by both versions of HTTP.

use std::fmt::Write;

use serde_json::{Value, json};

use super::assert_problem;
use crate::harness::{Client, Config, Origin, Reply, Tollgate, by_http2, eventually, get_from, request};

/// Before `origin`, with `top` at the top level and `route` in the route for `/inner/*`, which a trusted proxy reaches.
fn guarded(origin: &Origin, top: &str, route: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "trusted_proxies: [127.0.0.1]\n{top}\nupstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\n\
         routes:\n  - {{ path: /inner/*, upstream: origin{route} }}\n  - {{ path: /*, upstream: origin }}\n",
        origin.address
    )))
}

/// What a client with this address gets.
fn from(tollgate: &Tollgate, address: &str, path: &str) -> Reply {
    request(tollgate.address, "GET", path, &[("x-forwarded-for", address)], b"")
}

#[test]
fn deny_at_the_top_level_comes_before_everything_else() {
    let origin = Origin::ok();
    let top = "deny: [192.0.2.0/24, \"2001:db8::/32\", \"::ffff:198.51.100.7\"]\n\
               policies:\n  few: { algorithm: fixed_window, key: ip, limit: 1/1h }\n\
               bans:\n  hammering: { key: ip, after: 1/1m, for: 5m, max: 1h }\n\
               access_log: { format: json }";
    let tollgate = guarded(&origin, top, ", policies: [few]");
    for address in ["192.0.2.7", "2001:db8::1", "198.51.100.7", "::ffff:192.0.2.9", "[2001:db8::2]:4711"] {
        for path in ["/inner/x", "/inner/x", "/", "/inner/x"] {
            assert_problem(&from(&tollgate, address, path), 403, &[origin.address]);
        }
    }
    assert_eq!(origin.connections(), 0);
    assert_eq!(from(&tollgate, "192.0.3.7", "/inner/x").status, 200);
    assert_eq!(from(&tollgate, "2001:db9::1", "/").status, 200);
    eventually("they are counted", || {
        tollgate.metric("tollgate_requests_refused_total{reason=\"address\"}") == 20.0
    });
    assert_eq!(tollgate.metric("tollgate_decisions_total{policy=\"few\",verdict=\"denied\""), 0.0);
    let blocked = tollgate.admin("GET", "/v1/blocked").json();
    assert_eq!(blocked["blocked"], json!([]), "they are no limited clients");
    assert_eq!(tollgate.admin("GET", "/v1/bans").json()["bans"], json!([]));
    let mut line = Value::Null;
    eventually("the first is logged", || {
        let lines = tollgate.stdout();
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        line = lines.into_iter().find(|line| line["client"] == "192.0.2.7").unwrap_or_default();
        !line.is_null()
    });
    assert_eq!(
        [&line["client"], &line["verdict"], &line["policy"], &line["status"], &line["route"]],
        [&json!("192.0.2.7"), &json!("forbidden"), &json!("deny"), &json!(403), &json!(null)]
    );
}

#[test]
fn a_denied_peer_is_hung_up_on_and_a_trusted_proxy_is_not() {
    let origin = Origin::ok();
    let tollgate = guarded(&origin, "deny: [127.0.0.2, 192.0.2.1]", "");
    let mut client = Client::connect_from("127.0.0.2".parse().unwrap(), tollgate.address);
    let reply = client.request("GET", "/", &[("x-forwarded-for", "10.0.0.1")], b"");
    assert_eq!((reply.status, reply.header("connection")), (403, Some("close")), "it is no trusted proxy");
    assert!(client.closed());
    let mut proxy = Client::connect(tollgate.address);
    assert_eq!(proxy.request("POST", "/", &[("x-forwarded-for", "192.0.2.1")], b"some body").status, 403);
    assert_eq!(proxy.request("GET", "/", &[("x-forwarded-for", "192.0.2.2")], b"").status, 200);
    assert_eq!(get_from("127.0.0.3", tollgate.address, "/", &[]).status, 200);
}

#[test]
fn allow_denies_all_others_and_deny_wins() {
    let origin = Origin::ok();
    let tollgate = guarded(
        &origin,
        "access_log: { format: json }",
        ", allow: [10.0.0.0/8, \"2001:db8::/32\"], deny: [10.1.0.0/16]",
    );
    for (address, status) in
        [("10.2.3.4", 200), ("2001:db8::9", 200), ("10.1.2.3", 403), ("192.0.2.1", 403), ("::1", 403)]
    {
        assert_eq!(from(&tollgate, address, "/inner/x").status, status, "{address}");
        assert_eq!(from(&tollgate, address, "/outer").status, 200, "{address}");
    }
    let mut client = Client::connect(tollgate.address);
    let reply = client.request("GET", "/inner/x", &[("x-forwarded-for", "192.0.2.1")], b"");
    assert_eq!(
        (reply.status, reply.header("connection")),
        (403, None),
        "other routes may be for this client"
    );
    eventually("all are logged", || tollgate.stdout().len() == 11);
    let lines: Vec<Value> =
        tollgate.stdout().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut forbidden: Vec<&str> = lines
        .iter()
        .filter(|line| line["verdict"] == "forbidden" && line["route"] == "/inner/*")
        .filter_map(|line| line["policy"].as_str())
        .collect();
    forbidden.sort_unstable();
    assert_eq!(forbidden, ["allow", "allow", "allow", "deny"]);
    let route = &tollgate.admin("GET", "/v1/routes").json()["routes"][0];
    assert_eq!((&route["deny"], &route["allow"]), (&json!(1), &json!(2)));
}

#[test]
fn http_2_and_grpc_are_denied_alike() {
    let origin = Origin::ok();
    let tollgate = guarded(&origin, "deny: [192.0.2.1]", ", allow: [10.0.0.1]");
    by_http2(tollgate.address, async |mut client| {
        for (path, address, status) in [
            ("/", "192.0.2.1", 403),
            ("/", "10.0.0.2", 200),
            ("/inner/", "10.0.0.2", 403),
            ("/inner/", "10.0.0.1", 200),
        ] {
            let reply = client.get(path, &[("x-forwarded-for", address)]).await.unwrap();
            assert_eq!(reply.status(), status, "{path} {address}");
        }
        let fields = [("x-forwarded-for", "192.0.2.1"), ("content-type", "application/grpc")];
        let (answer, _) = client.send("POST", "/svc/Call", &fields, true).await.unwrap();
        let reply = crate::harness::read(answer).await.unwrap();
        assert_eq!((reply.status(), &reply.head.headers()["grpc-status"]), (200, &"7".parse().unwrap()));
    });
}

#[test]
fn explain_names_the_entry() {
    let origin = Origin::ok();
    let tollgate = guarded(&origin, "deny: [192.0.2.0/24]", ", allow: [10.0.0.0/8]");
    let explain = |address: &str, path: &str| {
        tollgate.command(&["explain", "-H", &format!("x-forwarded-for: {address}"), path])
    };
    for (address, path, because) in [
        ("192.0.2.9", "/", "forbidden with 403: deny at the top level names 192.0.2.9: 192.0.2.0/24"),
        ("192.0.2.9", "/inner/x", "forbidden with 403: deny at the top level names 192.0.2.9: 192.0.2.0/24"),
        ("198.51.100.1", "/inner/x", "forbidden with 403: allow of the route does not name 198.51.100.1"),
    ] {
        let explained = explain(address, path);
        assert_eq!(explained.code, Some(1));
        assert!(explained.stdout.contains(because), "{}", explained.stdout);
    }
    assert_eq!(explain("10.0.0.1", "/inner/x").code, Some(0));
}

#[test]
fn explain_tells_of_a_malformed_path_before_the_address() {
    let origin = Origin::ok();
    let tollgate = guarded(&origin, "deny: [192.0.2.0/24]", "");
    for (address, path, status) in
        [("192.0.2.9", "/a%", 400), ("unknown", "/a%", 400), ("192.0.2.9", "/a", 403), ("unknown", "/a", 403)]
    {
        assert_eq!(from(&tollgate, address, path).status, status, "{address} {path}");
        let explained =
            tollgate.command(&["explain", "--json", "-H", &format!("x-forwarded-for: {address}"), path]);
        let explained: Value = serde_json::from_str(&explained.stdout).unwrap();
        assert_eq!(explained["status"], status, "{explained}");
    }
}

#[test]
fn ten_thousand_networks_are_read_and_changed_by_a_reload() {
    let origin = Origin::ok();
    let mut list = String::new();
    for index in 0..10_000_u32 {
        write!(list, "{}11.{}.{}.0/25", if index > 0 { ", " } else { "" }, index >> 8, index & 255).unwrap();
    }
    let tollgate = guarded(&origin, &format!("deny: [{list}]"), "");
    for (address, status) in
        [("11.0.0.1", 403), ("11.39.15.127", 403), ("11.39.15.128", 200), ("11.39.16.0", 200)]
    {
        assert_eq!(from(&tollgate, address, "/").status, status, "{address}");
    }
    let path = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, yaml.replace("11.39.15.0/25", "11.39.16.0/25")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload").json();
    assert_eq!(reloaded["changed"], json!(["deny: changed"]));
    assert_eq!(
        [from(&tollgate, "11.39.15.1", "/").status, from(&tollgate, "11.39.16.1", "/").status],
        [200, 403]
    );
    std::fs::write(&path, yaml.replace(&format!("deny: [{list}]"), "deny: [192.0.2.1]")).unwrap();
    tollgate.admin("POST", "/v1/reload");
    std::fs::write(&path, yaml.replace(&format!("deny: [{list}]"), "deny: [192.0.2.1, 10.0.0.0/8]")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload").json();
    assert_eq!(reloaded["changed"], json!(["deny: 192.0.2.1 → 192.0.2.1, 10.0.0.0/8"]));
    let audit = tollgate.admin("GET", "/v1/audit").json();
    assert!(audit.to_string().contains("deny: 192.0.2.1 → 192.0.2.1, 10.0.0.0/8"), "{audit}");
}

#[test]
fn a_file_of_addresses_is_reread_when_it_changes() {
    let origin = Origin::ok();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("blocked.txt");
    std::fs::write(&file, "# from the feed\n192.0.2.1\n").unwrap();
    let top = format!("deny: [198.51.100.1, {{ file: {} }}]", file.display());
    let tollgate = guarded(&origin, &top, "");
    let status = |address: &str| from(&tollgate, address, "/").status;
    assert_eq!(["192.0.2.1", "198.51.100.1", "192.0.2.2"].map(status), [403, 403, 200]);
    std::fs::write(&file, "192.0.2.2/32\n").unwrap();
    eventually("the file is reread", || ["192.0.2.1", "192.0.2.2"].map(status) == [200, 403]);
    std::fs::write(&file, "nonsense\n").unwrap();
    eventually("the error is logged", || tollgate.has_logged(&["the previous addresses of", "line 1"]));
    assert_eq!(status("192.0.2.2"), 403);
}

/// Nobody knows who the client is whose address a trusted proxy does not tell. It is not the proxy.
#[test]
fn a_file_may_have_a_million_addresses() {
    const COUNT: u32 = 1_000_000;
    let (origin, directory) = (Origin::ok(), tempfile::tempdir().unwrap());
    let path = directory.path().join("blocked.txt");
    let write = |first: u32| {
        let mut text = String::new();
        // Every other address, so that no network takes several.
        (0..COUNT).for_each(|n| {
            writeln!(text, "{}", std::net::Ipv4Addr::from(first + 2 * n)).unwrap();
        });
        std::fs::write(&path, text).unwrap();
    };
    let first = u32::from(std::net::Ipv4Addr::new(20, 0, 0, 0));
    let last = std::net::Ipv4Addr::from(first + 2 * COUNT - 2).to_string();
    write(first);
    let tollgate = guarded(&origin, &format!("deny: [{{ file: {} }}]", path.display()), "");
    let status = |address: &str| from(&tollgate, address, "/").status;
    assert_eq!([status("20.0.0.0"), status(&last), status("20.0.0.1")], [403, 403, 200]);
    write(first + 1);
    eventually("it is read again", || status("20.0.0.1") == 403);
    assert_eq!([status("20.0.0.0"), status(&last)], [200, 200]);
    assert!(!tollgate.has_logged(&["ERROR"]), "{:?}", tollgate.log());
}

#[test]
fn a_client_whose_address_is_unknown_is_let_in_by_no_list() {
    let origin = Origin::ok();
    let settings = "client_address: { header: x-real-ip }\naccess_log: { format: json }";
    let start = |top: &str, route: &str| guarded(&origin, &format!("{settings}\n{top}"), route);
    let status = |tollgate: &Tollgate, path: &str, fields: &[(&str, &str)]| {
        request(tollgate.address, "GET", path, fields, b"").status
    };
    let name = "x-real-ip";
    let unknown: [&[(&str, &str)]; 5] = [
        &[(name, "192.0.2.1"), (name, "127.0.0.1")],
        &[(name, "127.0.0.1"), (name, "127.0.0.1")],
        &[(name, "unknown")],
        &[(name, "127.0.0.1, 127.0.0.1")],
        &[(name, "")],
    ];
    let allowing = start("", ", allow: [127.0.0.0/8, 10.0.0.0/8]");
    let denying = start("deny: [192.0.2.1]", "");
    for fields in unknown {
        assert_eq!(status(&allowing, "/inner/x", fields), 403, "{fields:?}");
        assert_eq!(status(&allowing, "/outer", fields), 200, "{fields:?}");
        assert_eq!(status(&denying, "/outer", fields), 403, "{fields:?}");
    }
    // The proxy itself asks, as for its health checks.
    assert_eq!([status(&allowing, "/inner/x", &[]), status(&denying, "/", &[])], [200, 200]);
    for (address, of_allow, of_deny) in [("10.0.0.1", 200, 200), ("192.0.2.1", 403, 403)] {
        let found =
            [status(&allowing, "/inner/x", &[(name, address)]), status(&denying, "/", &[(name, address)])];
        assert_eq!(found, [of_allow, of_deny], "{address}");
    }
    eventually("they are counted", || {
        allowing.metric("tollgate_requests_refused_total{reason=\"address\"}") == 6.0
    });
    let explained = allowing.command(&["explain", "-H", "x-real-ip: unknown", "/inner/x"]);
    let because = "forbidden with 403: the client's address is unknown, and allow of the route is set";
    assert!(explained.stdout.contains(because), "{}", explained.stdout);
}

/// In a list, what a trusted proxy has written counts, whatever a client sends.
#[test]
fn an_unknown_element_of_a_list_is_no_address_of_a_proxy() {
    let origin = Origin::ok();
    let tollgate = guarded(
        &origin,
        "policies:\n  few: { algorithm: fixed_window, key: ip, limit: 1/1h, exempt: [127.0.0.0/8] }",
        ", allow: [127.0.0.0/8, 10.0.0.0/8], policies: [few]",
    );
    for (list, status) in [
        ("unknown, 10.0.0.1", 200),
        ("10.0.0.2, unknown", 403),
        ("10.0.0.2,", 200),
        ("10.0.0.2, ;", 403),
        ("unknown, 127.0.0.1", 403),
        ("127.0.0.1", 200),
    ] {
        assert_eq!(from(&tollgate, list, "/inner/x").status, status, "{list}");
    }
    let tollgate = guarded(
        &origin,
        "policies:\n  few: { algorithm: fixed_window, key: ip, limit: 1/1h, exempt: [127.0.0.0/8] }",
        ", policies: [few]",
    );
    let statuses = |list: &str| [(); 2].map(|()| from(&tollgate, list, "/inner/x").status);
    assert_eq!(statuses("127.0.0.1"), [200, 200], "the proxy is exempt");
    assert_eq!(statuses("unknown"), [200, 429], "and the client that it does not name is not");
}
