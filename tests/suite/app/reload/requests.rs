//! No request is dropped, and each goes by one configuration from its beginning to its end.

use std::{collections::BTreeSet, fs, time::Duration};

use super::{HEAD, KEY, file, keys_file, plain, reload, start, words};
use crate::harness::{Client, Load, Origin, becomes, eventually, get};

/// Waits for leave before it answers with `name`.
fn patient(name: &'static str) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            if head.starts_with("GET /slow") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], name.as_bytes())?;
        }
        Ok(())
    })
}

#[test]
fn requests_under_way_end_at_the_old_upstream_and_kept_connections_go_on_at_the_new_one() {
    let (old, new) = (patient("old"), patient("new"));
    let tollgate = start(&plain(old.address, ""));
    let mut kept = Client::connect(tollgate.address);
    assert_eq!(kept.request("GET", "/", &[], b"").text(), "old");
    let mut slow = Client::sending(tollgate.address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    // Its body is half sent, too.
    let mut upload = Client::connect(tollgate.address);
    upload.send("POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: 20000\r\n\r\nab");
    eventually("both are under way", || old.heads().len() == 3);

    let changed = words(&reload(&tollgate, &plain(new.address, "")), "changed");
    let endpoints = format!("http://{} → http://{}", old.address, new.address);
    assert_eq!(changed, [format!("upstream origin: endpoints {endpoints}")]);
    assert_eq!(kept.request("GET", "/", &[], b"").text(), "new", "on the same connection");
    assert_eq!(get(tollgate.address, "/", &[]).text(), "new");
    upload.send("cd".repeat(9_999));
    assert_eq!(upload.reply().text(), "old");
    eventually("only the slow one is left of the old upstream", || old.open_connections() == 1);
    old.resume();
    assert_eq!(slow.reply().text(), "old");
    slow.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(slow.reply().text(), "new");
    eventually("no connection to the old one is kept", || old.open_connections() == 0);
    let gauge = |state: &str| {
        tollgate.metric(&format!("tollgate_upstream_connections{{upstream=\"origin\",state=\"{state}\"}}"))
    };
    eventually("what is counted is what there is", || {
        gauge("active") == 0.0 && gauge("idle") == new.open_connections() as f64
    });
}

#[test]
fn an_upstream_that_stays_as_it_is_keeps_its_connections() {
    let (origin, other) = (Origin::ok(), Origin::ok());
    // One worker: each has connections of its own.
    let yaml = |rest: &str| plain(origin.address, rest).replace("workers: 2", "workers: 1");
    let tollgate = start(&yaml(""));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let more = format!("  more: {{ endpoints: [\"http://{}\"] }}\nroutes:\n", other.address);
    for n in 0..10 {
        let next = yaml(&format!("shutdown: {{ drain: {}s }}\n", n + 1));
        reload(&tollgate, &if n % 2 == 0 { next.replace("routes:\n", &more) } else { next });
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn routes_and_upstreams_come_and_go() {
    let (old, new) = (patient("old"), patient("new"));
    let yaml = |upstreams: &str, routes: &str| format!("{HEAD}upstreams:\n{upstreams}routes:\n{routes}");
    let one = format!("  one: {{ endpoints: [\"http://{}\"] }}\n", old.address);
    let two = format!("{one}  two: {{ endpoints: [\"http://{}\"] }}\n", new.address);
    let all = "  - { path: /*, upstream: one }\n";
    let tollgate = start(&yaml(&one, all));
    let mut client = Client::connect(tollgate.address);
    let mut text = |path: &str| {
        let reply = client.request("GET", path, &[], b"");
        if reply.status == 200 { reply.text() } else { reply.status.to_string() }
    };
    assert_eq!(text("/b/1"), "old");
    let both = "  - { path: /b/*, upstream: two }\n  - { path: /*, upstream: one }\n";
    assert_eq!(
        words(&reload(&tollgate, &yaml(&two, both)), "changed"),
        ["upstream two: added", "route /b/*: added"]
    );
    assert_eq!((text("/b/1"), text("/a")), ("new".to_owned(), "old".to_owned()));
    let swapped = "  - { path: /b/*, upstream: one }\n  - { path: /*, upstream: two }\n";
    assert_eq!(
        words(&reload(&tollgate, &yaml(&two, swapped)), "changed"),
        ["route /b/*: upstream two → one", "route /*: upstream one → two"]
    );
    assert_eq!((text("/b/1"), text("/a")), ("old".to_owned(), "new".to_owned()));
    let last = "  - { path: /b/*, upstream: one }\n";
    assert_eq!(
        words(&reload(&tollgate, &yaml(&one, last)), "changed"),
        ["upstream two: removed", "route /*: removed"]
    );
    assert_eq!((text("/b/1"), text("/a")), ("old".to_owned(), "404".to_owned()));
    eventually("no connection to what is gone is kept", || new.open_connections() == 0);
}

#[test]
fn trusted_proxies_and_forwarded_fields_change_on_kept_connections() {
    let origin = Origin::echo();
    let tollgate = start(&plain(origin.address, ""));
    let mut client = Client::connect(tollgate.address);
    let mut told = || {
        let sent = [("x-forwarded-for", "203.0.113.9")];
        let seen = client.request("GET", "/", &sent, b"").json();
        let fields = seen["headers"].as_array().unwrap().clone();
        let field = fields.into_iter().find(|field| field[0] == "x-forwarded-for").unwrap();
        field[1].as_str().unwrap().to_owned()
    };
    assert_eq!(told(), "127.0.0.1");
    let changed = reload(&tollgate, &plain(origin.address, "trusted_proxies: [127.0.0.0/8]\n"));
    assert_eq!(words(&changed, "changed"), ["trusted_proxies: none → 127.0.0.0/8"]);
    assert_eq!(told(), "203.0.113.9, 127.0.0.1");
    reload(&tollgate, &plain(origin.address, ""));
    assert_eq!(told(), "127.0.0.1");
}

#[test]
fn under_load_no_request_fails_and_no_connection_is_closed() {
    let (first, second) = (Origin::ok(), Origin::ok());
    let yaml = |n: usize| {
        let policies = format!(
            "policies:\n  p: {{ algorithm: sliding_window, key: ip, limit: {}/1s }}\n",
            1_000_000 + n
        );
        let address = if n.is_multiple_of(2) { first.address } else { second.address };
        let endpoints = format!("endpoints: [\"http://{address}\"]");
        plain(address, &policies).replace(&endpoints, &format!("{endpoints}, policies: [p]"))
    };
    let tollgate = start(&yaml(0));
    // Its clients fail where a connection is closed or an answer is cut.
    let load = Load::start(&[tollgate.address], &["/"], 16, Duration::ZERO);
    for n in 1..=50 {
        fs::write(file(&tollgate), yaml(n)).unwrap();
        if n % 5 == 0 {
            tollgate.signal("HUP");
        } else {
            assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
        }
    }
    let samples = load.stop();
    let failed: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
    assert!(failed.is_empty() && samples.len() > 500, "{} of {}: {failed:?}", failed.len(), samples.len());
    becomes(samples.len() as f64, || tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"2xx\"}"));
    let decided = "tollgate_decisions_total{policy=\"p\",verdict=\"allowed\",source=\"store\"}";
    becomes(samples.len() as f64, || tollgate.metric(decided));
}

#[test]
fn a_valid_api_key_is_valid_under_each_configuration_that_lists_it() {
    let (origin, directory) = (Origin::ok(), tempfile::TempDir::new().unwrap());
    // Many, so that it takes a while to replace them.
    let many: Vec<String> = (0..20_000).map(|n| format!("another-key-of-many-{n}")).collect();
    let keys: Vec<&str> = many.iter().map(String::as_str).chain([KEY]).collect();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("one.yaml"), keys_file(&keys)).unwrap();
    fs::write(path("other.yaml"), keys_file(&[KEY])).unwrap();
    let with = |name: &str| {
        let settings = format!("api_keys: {{ file: {}, from: [{{ query: key }}] }}\n", path(name));
        plain(origin.address, &settings)
    };
    let without = plain(origin.address, "");
    let tollgate = start(&without);
    let load = Load::start(&[tollgate.address], &["/?key=a-key-of-a-customer"], 8, Duration::ZERO);
    for _ in 0..3 {
        for yaml in [&with("one.yaml"), &with("other.yaml"), &with("one.yaml"), &without] {
            reload(&tollgate, yaml);
        }
    }
    let statuses: BTreeSet<u16> = load.stop().iter().map(|sample| sample.status).collect();
    assert_eq!(statuses, BTreeSet::from([200]));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    reload(&tollgate, &with("other.yaml"));
    assert_eq!(
        get(tollgate.address, "/?key=another-key-of-many-7", &[]).status,
        401,
        "it is in the other file"
    );
}
