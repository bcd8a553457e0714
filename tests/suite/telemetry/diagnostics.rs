//! Warnings about what is not as it should be, with a minute that is short.

use std::{path::Path, process::Stdio};

use crate::{
    harness::{Client, Config, Origin, Redis, Tollgate, becomes, command, eventually},
    store::redis_audit::{AS_IT_SHOULD_BE, warnings},
};

/// Runs with a minute of so many milliseconds.
fn start(origin: &Origin, minute: u64, rest: &str) -> Tollgate {
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
    command.env("TOLLGATE_DOCTOR_MINUTE_MS", minute.to_string());
    Tollgate::launch(command, Config::new(&[origin.address], rest).with_policy("per-ip"))
}

const POLICY: &str = "policies: { per-ip: { algorithm: fixed_window, key: ip, limit: 1000000/1h } }\n";
const TRUSTED: &str = "trusted_proxies: [127.0.0.0/8]\n";
/// Longer than a test takes: nothing that was counted is forgotten.
const LONG: u64 = 30_000;
/// So short that something can go within it.
const SHORT: u64 = 5_000;

/// So many requests, the n-th with the fields that `fields` gives. Many are under way at a time, so that a busy machine holds up
/// few of them.
fn ask(tollgate: &Tollgate, count: usize, fields: impl Fn(usize) -> Vec<(&'static str, String)>) {
    let mut client = Client::connect(tollgate.address);
    let numbers: Vec<_> = (0..count).collect();
    for some in numbers.chunks(200) {
        for &n in some {
            let lines: String =
                fields(n).into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n"));
        }
        for _ in some {
            assert_eq!(client.reply().status, 200);
        }
    }
}

fn from(address: String) -> Vec<(&'static str, String)> {
    vec![("x-forwarded-for", address)]
}

#[track_caller]
fn comes_up(tollgate: &Tollgate, word: &str) -> String {
    let find = || warnings(tollgate).into_iter().find(|warning| warning.contains(word));
    eventually(word, || find().is_some());
    find().unwrap()
}

#[track_caller]
fn goes(tollgate: &Tollgate, word: &str) {
    eventually(word, || !warnings(tollgate).iter().any(|warning| warning.contains(word)));
}

/// Lines of the log that hold both.
fn said(tollgate: &Tollgate, level: &str, word: &str) -> usize {
    let log = tollgate.log();
    log.iter().filter(|line| line.contains(level) && line.contains(word)).count()
}

#[test]
fn one_client_that_makes_most_requests_is_named() {
    let origin = Origin::ok();
    let tollgate = start(&origin, SHORT, &format!("{TRUSTED}{POLICY}"));
    let mut turns = 0;
    // As fast as the machine is, there are enough within a minute at some time.
    eventually("it comes up", || {
        turns += 1;
        ask(&tollgate, 400, |n| {
            from(if n % 5 < 4 { "203.0.113.7".into() } else { format!("198.51.100.{n}") })
        });
        warnings(&tollgate).iter().any(|warning| warning.contains("of all requests"))
    });
    let warning = comes_up(&tollgate, "of all requests");
    assert!(warning.contains("203.0.113.7 sent at least"), "{warning}");
    let share: u64 = warning.split(' ').nth(4).unwrap().parse().unwrap();
    // It is said as soon as it is more than half, to the percent below.
    assert!((50..=90).contains(&share), "{warning}");
    becomes(1, || said(&tollgate, "WARN", "203.0.113.7 sent at least"));
    assert!(!warnings(&tollgate).iter().any(|warning| warning.contains("private")), "they are none");
    goes(&tollgate, "of all requests");
    eventually("it says so", || said(&tollgate, "INFO", "this is resolved: 203.0.113.7 sent") == 1);
}

#[test]
fn where_many_share_the_traffic_nothing_is_said() {
    let origin = Origin::ok();
    let tollgate = start(&origin, LONG, &format!("{TRUSTED}{POLICY}"));
    ask(&tollgate, 1_500, |n| from(format!("203.0.113.{}", n % 4)));
    // Half a second a beat.
    let looked = std::time::Instant::now();
    eventually("it has looked twice", || looked.elapsed().as_millis() > u128::from(LONG / 60 * 2));
    assert_eq!(warnings(&tollgate), [""; 0]);
}

#[test]
fn private_addresses_alone_point_to_a_proxy_in_front() {
    let origin = Origin::ok();
    let tollgate = start(&origin, LONG, POLICY);
    eventually("it comes up", || {
        ask(&tollgate, 400, |_| Vec::new());
        warnings(&tollgate).iter().any(|warning| warning.contains("private addresses"))
    });
    let warning = comes_up(&tollgate, "private addresses");
    assert!(
        warning.contains("X-Forwarded-For: add the proxy in front of Tollgate to trusted_proxies"),
        "{warning}"
    );
    becomes(1, || said(&tollgate, "WARN", "private addresses"));
}

#[test]
fn a_proxy_that_is_not_trusted_is_named() {
    let origin = Origin::ok();
    let tollgate = start(&origin, SHORT, POLICY);
    let fields = [from("203.0.113.7".into()), vec![("forwarded", "for=203.0.113.7".to_owned())]];
    ask(&tollgate, 40, |n| fields[n % 2].clone());
    let warning = comes_up(&tollgate, "was ignored");
    assert!(
        warning.contains("of 40 requests") || warning.contains("requests in the last minute"),
        "{warning}"
    );
    assert!(warning.contains("if 127.0.0.1 is your proxy, add it to trusted_proxies"), "{warning}");
    let trusting = start(&origin, SHORT, &format!("{TRUSTED}{POLICY}"));
    ask(&trusting, 40, |n| fields[n % 2].clone());
    assert!(!warnings(&trusting).iter().any(|warning| warning.contains("was ignored")));
}

fn shared(redis: &Redis, limit: u64) -> String {
    format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}
policies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: {limit}/1h }} }}
",
        redis.url()
    )
}

#[test]
fn instances_that_are_configured_otherwise_are_counted() {
    let (origin, redis) = (Origin::ok(), Redis::with(&AS_IT_SHOULD_BE));
    let one = start(&origin, 600, &shared(&redis, 100));
    let two = start(&origin, 600, &shared(&redis, 100));
    let odd = start(&origin, 600, &shared(&redis, 200));
    let hash = |tollgate: &Tollgate| {
        tollgate.admin("GET", "/v1/status").json()["configuration"]["decides"].as_str().unwrap().to_owned()
    };
    assert_eq!(hash(&one), hash(&two));
    let warning = comes_up(&odd, "configuration differs");
    eventually("it counts both", || {
        let hashes = format!("2 instances have {}, this one {}", hash(&one), hash(&odd));
        comes_up(&odd, "configuration differs").contains(&hashes)
    });
    assert!(warning.contains(&hash(&one)), "{warning}");
    let hashes = format!("1 instance has {}", hash(&odd));
    assert!(comes_up(&one, "configuration differs").contains(&hashes));
    becomes(1, || said(&one, "WARN", "configuration differs"));
    drop(odd);
    goes(&one, "configuration differs");
    eventually("it says so", || said(&one, "INFO", "this is resolved: configuration differs") == 1);
}

#[test]
fn where_an_instance_serves_and_what_it_writes_makes_no_difference() {
    let (origin, redis) = (Origin::ok(), Redis::with(&AS_IT_SHOULD_BE));
    let one = start(&origin, 600, &shared(&redis, 100));
    let own = "workers: 1\naccess_log: { format: json }\nshutdown: { drain: 7s }\n";
    let two = start(&origin, 600, &format!("{}{own}", shared(&redis, 100)));
    let hash = |tollgate: &Tollgate, of: &str| {
        tollgate.admin("GET", "/v1/status").json()["configuration"][of].as_str().unwrap().to_owned()
    };
    assert_ne!(hash(&one, "hash"), hash(&two, "hash"));
    assert_eq!(hash(&one, "decides"), hash(&two, "decides"));
}

#[test]
fn warnings_go_by_the_configuration_in_force() {
    let origin = Origin::ok();
    // No limit goes by addresses: it does not matter what they are.
    let by_host = POLICY.replace("key: ip", "key: host");
    let tollgate = start(&origin, LONG, &by_host);
    let path = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, yaml.replace("key: host", "key: ip")).unwrap();
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
    eventually("it comes up", || {
        ask(&tollgate, 400, |_| Vec::new());
        warnings(&tollgate).iter().any(|warning| warning.contains("private addresses"))
    });
}

#[test]
fn a_wrong_clock_elsewhere_is_reported() {
    let (origin, redis) = (Origin::ok(), Redis::with(&AS_IT_SHOULD_BE));
    let tollgate = start(&origin, 600, &shared(&redis, 100));
    eventually("it is known", || redis.keys().iter().any(|key| key.ends_with(":introductions")));
    assert_eq!(warnings(&tollgate), [""; 0], "its own clock is Redis'");
    // An instance whose clock is three seconds fast: it lives, and says so.
    let key = redis.keys().into_iter().find(|key| key.ends_with(":introductions")).unwrap();
    eventually("it is heard", || {
        let time = redis.cli(&["time"]);
        let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
        redis.cli(&["zadd", "ratelimit:instances", &format!("{seconds}000000"), "fast"]);
        redis.cli(&["hset", &key, "fast", "3000000 1a2b 0.1.0"]);
        warnings(&tollgate).iter().any(|warning| warning.contains("clocks"))
    });
    let warning = comes_up(&tollgate, "the clocks");
    assert!(warning.contains("of 1 instance differ from the clock of this machine by up to"), "{warning}");
}
