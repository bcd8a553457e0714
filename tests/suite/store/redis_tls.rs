//! Redis over TLS: who is trusted, who is known, and what is said when one of them is not.

use std::path::Path;

use super::redis_audit::{AS_IT_SHOULD_BE, warnings};
use crate::harness::{
    Authority, Config, Issued, Origin, Redis, Tollgate, command, eventually, file_name, free_port, get,
};

/// A Redis with a port for TLS beside its plain one.
struct Secure {
    redis: Redis,
    port: u16,
}

impl Secure {
    fn start(authority: &Authority, server: &Issued, arguments: &[&str]) -> Self {
        let (port, ca) = (free_port(), authority.file());
        let of_tls = [
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            file_name(&server.cert),
            "--tls-key-file",
            file_name(&server.key),
            "--tls-ca-cert-file",
            file_name(&ca),
        ];
        let redis = Redis::with(&[of_tls.as_slice(), &AS_IT_SHOULD_BE, arguments].concat());
        Self { redis, port }
    }

    fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }
}

/// What stands in `store.redis` for TLS: the authority that is trusted, and who we are.
fn tls(authority: &Authority, identity: Option<&Issued>) -> String {
    let ca = authority.file();
    let identity = identity
        .map(|Issued { cert, key }| format!(", cert: \"{}\", key: \"{}\"", file_name(cert), file_name(key)));
    format!(", tls: {{ ca: \"{}\"{} }}", file_name(&ca), identity.unwrap_or_default())
}

/// Three requests an hour for each address, counted in Redis at `url`.
fn limited(origin: &Origin, url: &str, tls: &str) -> Tollgate {
    Tollgate::start(counting(origin, url, tls))
}

fn counting(origin: &Origin, url: &str, tls: &str) -> Config {
    Config::new(
        &[origin.address],
        &format!(
            "store: {{ redis: {{ url: \"{url}\"{tls}, timeout: 5s }} }}
policies: {{ per-ip: {{ algorithm: fixed_window, key: ip, limit: 3/365d }} }}
"
        ),
    )
    .with_policy("per-ip")
}

fn status(tollgate: &Tollgate) -> u16 {
    get(tollgate.address, "/", &[]).status
}

/// The check of Redis fails for this reason: that is said once, and requests are served all the same.
#[track_caller]
fn is_told(tollgate: &Tollgate, why: &str) {
    let names_cause = |line: &String| line.contains("is unavailable (") && line.contains(why);
    eventually(&format!("`{why}` is told"), || warnings(tollgate).iter().any(names_cause));
    assert_eq!(status(tollgate), 200);
    let log = tollgate.log();
    assert_eq!(log.iter().filter(|line| names_cause(line)).count(), 1, "{log:#?}");
}

/// The cause is gone: it has gone on trying, and counts in Redis again.
#[track_caller]
fn recovers(tollgate: &Tollgate, redis: &Redis) {
    eventually("no warning is left", || warnings(tollgate).is_empty());
    eventually("it counts in Redis", || {
        status(tollgate);
        redis.keys().iter().any(|key| key.contains("{ip:127.0.0.1}"))
    });
    assert_eq!(tollgate.log().iter().filter(|line| line.contains("is unavailable (")).count(), 1);
}

/// Both count in one Redis, and hear of each other.
#[track_caller]
fn share(one: &Tollgate, other: &Tollgate) {
    for tollgate in [one, other] {
        eventually("no warning is left", || warnings(tollgate).is_empty());
    }
    assert_eq!([one, other, one, other, one].map(status), [200, 200, 200, 429, 429]);
    let is = |tollgate: &Tollgate, state: &str| {
        let reply = tollgate.admin("GET", "/v1/blocked/127.0.0.1");
        reply.status == 200 && reply.json()["state"] == state
    };
    eventually("both have noted it", || is(one, "limited") && is(other, "limited"));
    assert_eq!(one.command(&["unblock", "127.0.0.1"]).code, Some(0));
    eventually("the other one has heard of it", || is(other, "unblocked"));
    eventually("it is let in", || status(other) == 200);
}

#[test]
fn instances_share_limits_and_hear_of_each_other_over_tls() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let secure =
        Secure::start(&authority, &authority.issue("server", &["localhost"]), &["--tls-auth-clients", "no"]);
    let [one, other] = [0, 1].map(|_| limited(&origin, &secure.url(), &tls(&authority, None)));
    share(&one, &other);
}

#[test]
fn without_a_ca_the_system_s_authorities_are_trusted() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let server = authority.issue("server", &["localhost"]);
    let secure = Secure::start(&authority, &server, &["--tls-auth-clients", "no"]);
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).env("SSL_CERT_FILE", authority.file());
    let tollgate = Tollgate::launch(command, counting(&origin, &secure.url(), ""));
    eventually("no warning is left", || warnings(&tollgate).is_empty());
    assert_eq!(status(&tollgate), 200);
    assert!(secure.redis.keys().iter().any(|key| key.contains("{ip:127.0.0.1}")));
}

#[test]
fn a_certificate_of_the_client_is_shown_where_the_server_wants_one() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let secure =
        Secure::start(&authority, &authority.issue("server", &["localhost"]), &["--tls-auth-clients", "yes"]);
    let identity = authority.issue("tollgate", &[]);
    let [one, other] = [0, 1].map(|_| limited(&origin, &secure.url(), &tls(&authority, Some(&identity))));
    share(&one, &other);
}

#[test]
fn a_server_that_wants_a_certificate_and_gets_none_is_named_as_such() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let server = authority.issue("server", &["localhost"]);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let arguments = ["--tls-auth-clients", "yes", "--tls-protocols", version];
        let secure = Secure::start(&authority, &server, &arguments);
        let tollgate = limited(&origin, &secure.url(), &tls(&authority, None));
        is_told(&tollgate, "store.redis.tls.cert and key");
        secure.redis.cli(&["config", "set", "tls-auth-clients", "no"]);
        recovers(&tollgate, &secure.redis);
    }
}

#[test]
fn a_certificate_of_the_client_that_the_server_does_not_trust_is_named_as_such() {
    let (authority, stranger, origin) = (Authority::new("redis"), Authority::new("stranger"), Origin::ok());
    let secure = Secure::start(&authority, &authority.issue("server", &["localhost"]), &[]);
    let identity = stranger.issue("tollgate", &[]);
    let tollgate = limited(&origin, &secure.url(), &tls(&authority, Some(&identity)));
    is_told(&tollgate, "the server rejects the certificate in store.redis.tls.cert");
    secure.redis.cli(&["config", "set", "tls-ca-cert-file", file_name(&stranger.file())]);
    recovers(&tollgate, &secure.redis);
}

#[test]
fn an_untrusted_server_is_not_asked_and_the_reason_is_reported() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let (stranger, namesake) = (Authority::new("stranger"), Authority::new("redis"));
    let good = authority.issue("good", &["localhost"]);
    for (server, why) in [
        (stranger.issue("server", &["localhost"]), "is not from a trusted authority"),
        (namesake.issue("server", &["localhost"]), "is not from a trusted authority"),
        (authority.issue("server", &["redis.example"]), "does not match the host"),
        (authority.issue_expired("expired", &["localhost"]), "the server's certificate has expired"),
    ] {
        let secure = Secure::start(&authority, &server, &["--tls-auth-clients", "no"]);
        let tollgate = limited(&origin, &secure.url(), &tls(&authority, None));
        is_told(&tollgate, why);
        assert_eq!(secure.redis.keys(), [""; 0]);
        let (cert, key) = (file_name(&good.cert), file_name(&good.key));
        let set = ["config", "set", "tls-cert-file", cert, "tls-key-file", key];
        assert_eq!(secure.redis.cli(&set), "OK");
        recovers(&tollgate, &secure.redis);
    }
}

#[test]
fn without_an_authority_of_its_own_those_that_browsers_trust_are_asked() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let secure =
        Secure::start(&authority, &authority.issue("server", &["localhost"]), &["--tls-auth-clients", "no"]);
    let tollgate = limited(&origin, &secure.url(), "");
    is_told(&tollgate, "store.redis.tls.ca");
}

#[test]
fn the_wrong_scheme_for_a_port_is_reported() {
    let (authority, origin) = (Authority::new("redis"), Origin::ok());
    let secure =
        Secure::start(&authority, &authority.issue("server", &["localhost"]), &["--tls-auth-clients", "no"]);
    let plain = limited(&origin, &format!("redis://127.0.0.1:{}", secure.port), "");
    is_told(&plain, "write rediss://");
    let encrypted = format!("rediss://localhost:{}", secure.redis.port);
    is_told(&limited(&origin, &encrypted, &tls(&authority, None)), "write redis://");
}
