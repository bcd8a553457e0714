//! The pages of `docs/tasks` about operation: their configurations run as they stand there, but for addresses and files, and do
//! what the pages say.

use std::{fs, thread};

use tempfile::TempDir;

use super::{Page, replace};
use crate::harness::{
    Authority, Config, Issued, Latch, Origin, Redis, TlsConnector, Tollgate, eventually, file_name, get,
    program,
};

/// Tollgate with the page's configuration, once `changes` are made in it.
#[track_caller]
fn start(page: &Page, changes: &[(&str, &str)]) -> Tollgate {
    Tollgate::start(Config::yaml(replace(&page.block("yaml", "routes:"), changes)))
}

/// The commands of the page that contain `mark`: what is indented, and what follows a backslash.
fn commands(page: &Page, mark: &str) -> String {
    let text = page.text.replace("\\\n", "");
    let lines = text.lines().filter(|line| line.starts_with("    ") && line.contains(mark));
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty(), "{} has no command with {mark}", page.name);
    lines.join("\n")
}

/// Runs them in this directory.
#[track_caller]
fn run(commands: &str, directory: &std::path::Path) {
    let output = program("bash", "bash").current_dir(directory).args(["-ec", commands]).output().unwrap();
    assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A service that answers with its name.
fn named(name: &'static str) -> Origin {
    Origin::start(move |conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], name.as_bytes())?;
        }
        Ok(())
    })
}

#[test]
fn several_instances() {
    let page = Page::open("tasks/several-instances.md");
    let (origin, redis) = (Origin::ok(), Redis::start());
    let changes = [
        (
            "\"redis://tollgate:${REDIS_PASSWORD}@10.0.0.9:6379\"",
            &*format!("\"{}\", timeout: 5s", redis.url()),
        ),
        ("10.0.0.5:3000", &*origin.address.to_string()),
    ];
    let instances = [start(&page, &changes), start(&page, &changes)];
    for instance in &instances {
        eventually("they know each other", || instance.command(&["status"]).stdout.contains("2 instances"));
    }
    let statuses = (0..12).map(|number| get(instances[number % 2].address, "/", &[]).status.to_string());
    let statuses = statuses.collect::<Vec<_>>().join(" ");
    assert!(page.block("text", "seq 12").contains(&statuses), "{statuses}");
}

#[test]
fn a_canary() {
    let page = Page::open("tasks/canary.md");
    let (stable, canary) = (named("stable"), named("canary"));
    let changes = [
        ("10.0.0.5:3000, http://10.0.0.6:3000", &*stable.address.to_string()),
        ("10.0.0.7:3000", &*canary.address.to_string()),
    ];
    let tollgate = start(&page, &changes);
    let by = |headers: &[(&str, &str)]| get(tollgate.address, "/", headers).text();
    assert_eq!(by(&[("x-canary", "1")]), "canary");
    let sessions = || -> Vec<usize> {
        (0..400).filter(|number| by(&[("cookie", &format!("session={number}"))]) == "canary").collect()
    };
    let before = sessions();
    assert!((4..=50).contains(&before.len()), "{before:?}");
    run(&commands(&page, "sed -i"), tollgate.directory());
    let reloaded = tollgate.command(&["reload"]).stdout;
    let shown = page.block("text", "Changed:");
    assert!(shown.contains(reloaded.trim()), "{reloaded}");
    let after = sessions();
    assert!(before.iter().all(|session| after.contains(session)), "{before:?} {after:?}");
    assert!((40..=130).contains(&after.len()), "{after:?}");
}

#[test]
fn blue_and_green() {
    let page = Page::open("tasks/blue-green.md");
    let latch = Latch::new();
    let blue = {
        let latch = latch.clone();
        Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                if head.starts_with("GET /slow ") {
                    latch.wait();
                }
                conn.answer("200 OK", &[], b"blue")?;
            }
            Ok(())
        })
    };
    let green = named("green");
    let changes = [
        ("0.0.0.0:8080", "\"127.0.0.1:0\""),
        ("10.0.0.5:3000", &*blue.address.to_string()),
        ("10.0.0.6:3000", &*green.address.to_string()),
    ];
    let tollgate = start(&page, &changes);
    let address = tollgate.address;
    let by = |headers: &[(&str, &str)]| get(address, "/", headers);
    assert_eq!(by(&[]).text(), "blue");
    assert_eq!(by(&[("host", "preview.example.com")]).status, 403, "from another network");
    let slow = thread::spawn(move || get(address, "/slow", &[]).text());
    eventually("blue has it", || blue.heads().iter().any(|head| head.starts_with("GET /slow ")));
    run("sed -i 's/upstream: blue/upstream: green/' proxy.yaml", tollgate.directory());
    let reloaded = tollgate.command(&["reload"]).stdout;
    assert!(page.block("text", "Changed:").contains(reloaded.trim()), "{reloaded}");
    assert_eq!(by(&[]).text(), "green");
    latch.open();
    assert_eq!(slow.join().unwrap(), "blue", "it began there");
}

#[test]
fn client_certificates() {
    let page = Page::open("tasks/client-certificates.md");
    let (origin, authority, directory) = (Origin::ok(), Authority::new("us"), TempDir::new().unwrap());
    fs::create_dir(directory.path().join("certs")).unwrap();
    run(&commands(&page, "openssl req"), directory.path());
    let file = |name: &str| file_name(&directory.path().join(name)).to_owned();
    let own = authority.issue("api", &["localhost"]);
    let changes = [
        ("0.0.0.0:443", "\"127.0.0.1:0\""),
        ("certs/api.pem", file_name(&own.cert)),
        ("certs/api.key", file_name(&own.key)),
        ("certs/clients.pem", &*file("certs/clients.pem")),
        ("10.0.0.5:3000", &*origin.address.to_string()),
    ];
    let tollgate = start(&page, &changes);
    let shown = page.block("text", "tollgate limits");
    let answer = |connector: &TlsConnector| {
        connector.connect(tollgate.address, "localhost").unwrap().get("/", "").unwrap()
    };
    let refused = answer(&TlsConnector::new(&authority));
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(shown.contains(refused.rsplit("\r\n").next().unwrap()), "{refused}");

    let billing = Issued { cert: file("client.pem").into(), key: file("client.key").into() };
    let connector = TlsConnector::with_certificate(&authority, &billing);
    let statuses = (0..6).map(|_| answer(&connector)[9..12].to_owned()).collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&statuses), "{statuses}");
    let limits = tollgate.command(&["limits", "tls:subject=CN=billing,O=Acme"]).stdout;
    let shown = "per-client  tls:subject=CN=billing,O=Acme  5     5      0 ";
    assert!(limits.contains(shown) && page.text.contains(shown), "{limits}");
}

#[test]
fn the_commands_of_the_page_delete_records_from_redis() {
    let page = Page::open("tasks/personal-data.md");
    let (origin, redis) = (Origin::ok(), Redis::start());
    let rest = format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\npolicies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: 1/1h }} }}\n",
        redis.url()
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("per-ip"));
    let has = |part: &str| redis.keys().iter().any(|key| key.contains(part));
    for status in [200, 429] {
        assert_eq!(get(tollgate.address, "/", &[]).status, status);
    }
    assert!(tollgate.command(&["unblock", "127.0.0.1"]).stdout.contains("is unblocked"));
    eventually("it is recorded", || has("{abuse}:v3:client:127.0.0.1") && has("{audit}"));
    let commands = commands(&page, "redis-cli").replace("redis-cli", &format!("redis-cli -p {}", redis.port));
    eventually("it is gone", || {
        run(&commands, tollgate.directory());
        !has("{abuse}") && !has("{audit}")
    });
}
