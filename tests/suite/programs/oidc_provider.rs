//! A real OpenID provider, whose tokens are verified by the keys that it publishes.

use std::{
    env,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Instant,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Running, Tollgate, eventually, free_port, get, in_seconds, program, request,
};

const PROVIDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/programs/oidc_provider.mjs");

/// oidc-provider of Node.
struct Provider {
    address: SocketAddr,
    _process: Running,
}

impl Provider {
    /// `None`: npm's packages are not installed.
    fn start(port: u16) -> Option<Self> {
        let Some(packages) = env::var_os("NODE_PACKAGES") else {
            eprintln!("NODE_PACKAGES is not set: no OpenID provider is tested");
            return None;
        };
        let mut process = program("node", "nodejs")
            .arg(PROVIDER)
            .arg(packages)
            .arg(port.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map(Running)
            .unwrap();
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        // It prints notices, too.
        let port = lines.map_while(Result::ok).find_map(|line| line.trim().parse().ok());
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("the provider listens")));
        Some(Self { address, _process: process })
    }

    /// A token, as the value of `Authorization`.
    fn bearer(&self) -> String {
        let credentials = [
            ("authorization", "Basic YWNtZTpzZWNyZXQ="),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let reply = request(self.address, "POST", "/token", &credentials, b"grant_type=client_credentials");
        assert_eq!(reply.status, 200, "{reply:?}");
        format!("Bearer {}", reply.json()["access_token"].as_str().unwrap())
    }

    fn rotate(&self) {
        assert_eq!(get(self.address, "/rotate", &[]).status, 200);
    }

    /// Sets how long its tokens are valid (`lifetime`, in seconds), or how long it takes to send its keys (`delay`, in
    /// milliseconds).
    fn set(&self, setting: &str, value: i32) {
        assert_eq!(get(self.address, &format!("/{setting}/{value}"), &[]).status, 200);
    }

    /// How often its keys were fetched.
    fn fetches(&self) -> usize {
        get(self.address, "/fetches", &[]).text().parse().unwrap()
    }

    /// A Tollgate that finds its keys by discovery, and refuses requests without a user.
    fn guarded(&self) -> Tollgate {
        let issuer = format!("http://{}", self.address);
        Tollgate::start(Config::yaml(format!(
            "user: [{{ jwt: {{ discover: true, issuer: \"{issuer}\", audience: api }} }}]\n\
             policies:\n  users: {{ algorithm: sliding_window, key: user, missing: deny, limit: 1000000/1d }}\n\
             routes:\n  - {{ path: /*, reply: {{ status: 200 }}, policies: [users] }}\n"
        )))
    }
}

fn status(tollgate: &Tollgate, bearer: &str) -> u16 {
    get(tollgate.address, "/", &[("authorization", bearer)]).status
}

/// Well-formed tokens for the API, with keys that nobody has.
fn forged(issuer: SocketAddr, number: usize) -> String {
    let head = json!({ "alg": "RS256", "typ": "at+jwt", "kid": format!("forged-{number}") });
    let claims =
        json!({ "iss": format!("http://{issuer}"), "aud": "api", "sub": "acme", "exp": in_seconds(600) });
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("Bearer {}.{}.{}", part(head), part(claims), URL_SAFE_NO_PAD.encode([7; 256]))
}

#[test]
fn no_request_fails_while_the_provider_rotates_its_key() {
    let Some(provider) = Provider::start(0) else { return };
    let tollgate = provider.guarded();
    assert_eq!(provider.fetches(), 1);
    let token = Arc::new(Mutex::new(provider.bearer()));
    let (end, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (token, end, answered) = (Arc::clone(&token), Arc::clone(&end), Arc::clone(&answered));
            let mut client = Client::connect(tollgate.address);
            thread::spawn(move || {
                let mut failed = 0;
                while !end.load(SeqCst) {
                    let bearer = token.lock().unwrap().clone();
                    let reply = client.request("GET", "/", &[("authorization", &bearer)], b"");
                    failed += usize::from(reply.status != 200);
                    answered.fetch_add(1, SeqCst);
                }
                failed
            })
        })
        .collect();
    let goes_on = |more: usize| {
        let enough = answered.load(SeqCst) + more;
        eventually("more responses", || answered.load(SeqCst) >= enough);
    };
    goes_on(500);
    let before = token.lock().unwrap().clone();
    provider.rotate();
    *token.lock().unwrap() = provider.bearer();
    goes_on(500);
    end.store(true, SeqCst);
    let failed: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(failed, 0, "of {}", answered.load(SeqCst));
    assert_ne!(before, *token.lock().unwrap());
    assert_eq!(provider.fetches(), 2, "all that met the new key waited for one fetch");
    assert_eq!(status(&tollgate, &before), 200, "the old key still verifies");
}

#[test]
fn a_flood_of_unknown_keys_fetches_the_set_once() {
    let Some(provider) = Provider::start(0) else { return };
    let tollgate = provider.guarded();
    let bearer = provider.bearer();
    let issuer = provider.address;
    let address = tollgate.address;
    let begun = Instant::now();
    let flood: Vec<_> = (0..8)
        .map(|nth| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..250).all(|number| {
                    let bearer = forged(issuer, nth * 1000 + number);
                    client.request("GET", "/", &[("authorization", &bearer)], b"").status == 429
                })
            })
        })
        .collect();
    assert!(flood.into_iter().all(|client| client.join().unwrap()), "a forged token was accepted");
    // At the start, for the first of 2,000, and for one more in each ten seconds that these take.
    let most = 2 + begun.elapsed().as_secs() as usize / 10;
    assert!((2..=most).contains(&provider.fetches()), "{} in {:?}", provider.fetches(), begun.elapsed());
    assert_eq!(status(&tollgate, &bearer), 200);
}

#[test]
fn known_keys_verify_tokens_while_the_provider_is_away() {
    let Some(provider) = Provider::start(free_port()) else { return };
    let (tollgate, bearer, issuer) = (provider.guarded(), provider.bearer(), provider.address);
    assert_eq!(status(&tollgate, &bearer), 200);
    drop(provider);
    assert_eq!(status(&tollgate, &forged(issuer, 0)), 429);
    let failed = || tollgate.admin("GET", "/v1/status").json()["key_sets"][0]["error"].is_string();
    eventually("the status says that the keys can't be fetched", failed);
    let log = || tollgate.log().join("\n");
    eventually("so does the log", || {
        log().contains(&format!("the previous JWT keys of http://{issuer} stay in use"))
    });
    eventually("so does a warning", || {
        let warnings = tollgate.admin("GET", "/v1/status").json()["warnings"].to_string();
        warnings.contains("can't be fetched: the last ones are used until")
    });
    let failures =
        format!("tollgate_jwt_key_set_fetches_total{{source=\"http://{issuer}\",result=\"failure\"}}");
    assert!(tollgate.metric(&failures) >= 1.0);
    let fresh = Client::connect(tollgate.address).request("GET", "/", &[("authorization", &bearer)], b"");
    assert_eq!((fresh.status, tollgate.admin("GET", "/readyz").status), (200, 200));
    // It comes back with another key.
    let provider = Provider::start(issuer.port()).unwrap();
    let bearer = provider.bearer();
    eventually("its new key is known", || status(&tollgate, &bearer) == 200);
    eventually("the log says so", || log().contains("can be fetched again"));
}

/// A Tollgate that requires a user, with the documented rule against guessing.
fn guards_against_guessing(provider: &Provider) -> Tollgate {
    let issuer = format!("http://{}", provider.address);
    Tollgate::start(Config::yaml(format!(
        "user: [{{ jwt: {{ discover: true, issuer: \"{issuer}\", audience: api }} }}]\n\
         bans: {{ guessing: {{ key: ip, policies: [api_keys], after: 20/10m, for: 1h }} }}\n\
         routes:\n  - {{ path: /*, require: user, reply: {{ status: 200 }} }}\n"
    )))
}

/// It takes the provider three seconds to send its keys.
#[test]
fn tokens_of_a_new_key_wait_for_it_and_count_as_no_guesses() {
    let Some(provider) = Provider::start(0) else { return };
    let tollgate = guards_against_guessing(&provider);
    provider.set("delay", 3_000);
    provider.rotate();
    let bearer = provider.bearer();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let sent: Vec<_> = (0..55).map(|_| scope.spawn(|| status(&tollgate, &bearer))).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 55]);
    assert_eq!(provider.fetches(), 2);
}

/// Sixty users behind one address, each with a token that has expired.
#[test]
fn expired_tokens_of_an_office_ban_nobody() {
    let Some(provider) = Provider::start(0) else { return };
    let tollgate = guards_against_guessing(&provider);
    provider.set("lifetime", -3_600);
    let expired: Vec<String> = (0..60).map(|_| provider.bearer()).collect();
    let statuses: Vec<u16> = expired.iter().map(|bearer| status(&tollgate, bearer)).collect();
    assert_eq!(statuses, [401; 60]);
    provider.set("lifetime", 3_600);
    assert_eq!(status(&tollgate, &provider.bearer()), 200);
    assert_eq!(tollgate.metric("tollgate_requests_refused_total{reason=\"expired_credential\"}"), 60.0);
    assert_eq!(tollgate.admin("GET", "/v1/bans").json()["bans"].as_array().unwrap().len(), 0);
    // Made-up tokens do count.
    let made_up = (0..60).map(|_| status(&tollgate, "Bearer made.up.token"));
    assert_eq!(made_up.filter(|status| *status == 401).count(), 30);
}
