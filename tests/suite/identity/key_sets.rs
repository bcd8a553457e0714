//! The key sets of providers: fetched at the start, before they grow old, and for a token with an unknown key.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tollgate::{
    config::model::{Jwt, UserSource},
    identity::{Credentials, Identity, KeySetTiming, TokenRefusal, Verifier, explain_failure, identify},
};

use crate::harness::{
    Authority, Config, Issuer, Origin, Tollgate, becomes, command, eventually, free_port, get, in_seconds,
    server_config,
};

/// What a provider responds with.
#[derive(Clone)]
struct Response {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

/// A provider of tokens. Its keys are at every path that is for nothing else.
struct Provider {
    origin: Origin,
    response: Arc<Mutex<Response>>,
}

impl Provider {
    fn new(keys: &[Value]) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), keys)
    }

    fn at(listener: TcpListener, keys: &[Value]) -> Self {
        let address = listener.local_addr().unwrap();
        let response = Arc::new(Mutex::new(Self::set(keys)));
        let served = Arc::clone(&response);
        let origin = Origin::at(listener, move |conn| {
            while let Some(head) = conn.head()? {
                if head.starts_with("GET /.well-known/openid-configuration ") {
                    let metadata =
                        json!({ "issuer": issuer(address), "jwks_uri": format!("http://{address}/keys") });
                    conn.answer("200 OK", &[], metadata.to_string().as_bytes())?;
                    continue;
                }
                let Response { status, headers, body } = match head.split(' ').nth(1) {
                    Some("/here") => Self::redirect("/keys"),
                    Some("/circle") => Self::redirect("/circle"),
                    _ => served.lock().unwrap().clone(),
                };
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                conn.answer(status, &headers, body.as_bytes())?;
            }
            Ok(())
        });
        Self { origin, response }
    }

    fn set(keys: &[Value]) -> Response {
        Response { status: "200 OK", headers: Vec::new(), body: json!({ "keys": keys }).to_string() }
    }

    fn redirect(to: &str) -> Response {
        Response { status: "302 Found", headers: vec![("location", to.to_owned())], body: String::new() }
    }

    /// Responds in this way from now on.
    fn responds(&self, response: Response) {
        *self.response.lock().unwrap() = response;
    }

    fn publishes(&self, keys: &[Value]) {
        self.responds(Self::set(keys));
    }

    /// How often its keys were fetched.
    fn fetches(&self) -> usize {
        self.origin.heads().iter().filter(|head| !head.contains("openid-configuration")).count()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.origin.address)
    }
}

fn issuer(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Never refreshed, and fetched for every token with an unknown key.
fn eager() -> KeySetTiming {
    KeySetTiming { ask: Duration::ZERO, fetch: Duration::from_secs(60), ..KeySetTiming::default() }
}

/// Refreshed all the time.
fn restless() -> KeySetTiming {
    let moment = Duration::from_millis(20);
    KeySetTiming { lifetime: (moment, moment), retry: (moment, moment), ..KeySetTiming::default() }
}

/// A source of tokens for `api`, whose keys are at `url`.
struct Source {
    sources: Vec<UserSource>,
    verifier: Verifier,
}

impl Source {
    fn new(url: &str, timing: KeySetTiming) -> Self {
        Self::with(timing, |jwt| jwt.jwks = Some(url.parse().unwrap()))
    }

    /// Of tokens of `https://id`.
    fn of_issuer(provider: &Provider) -> Self {
        Self::with(eager(), |jwt| {
            jwt.jwks = Some(provider.url("/keys").parse().unwrap());
            jwt.issuer = Some("https://id".to_owned());
        })
    }

    fn with(timing: KeySetTiming, change: impl FnOnce(&mut Jwt)) -> Self {
        let mut jwt = Jwt { audience: Some("api".to_owned()), ..Jwt::default() };
        change(&mut jwt);
        let sources = vec![UserSource::Jwt(Box::new(jwt))];
        Self { verifier: Verifier::with_timing(&sources, timing).unwrap(), sources }
    }

    fn identity(&self, token: &str) -> Identity {
        let headers = headers(token);
        let credentials =
            Credentials { headers: &headers, is_peer_trusted: false, certificate: None, key: None };
        identify(&self.sources, &self.verifier, credentials)
    }

    fn user(&self, token: &str) -> Option<String> {
        self.identity(token).user.map(Into::into)
    }

    /// Why there is no user.
    fn why(&self, token: &str) -> String {
        let headers = headers(token);
        let credentials =
            Credentials { headers: &headers, is_peer_trusted: false, certificate: None, key: None };
        explain_failure(&self.sources, 0, &self.verifier, credentials)
    }

    /// The user after a fetch for this token.
    fn user_after_fetch(&self, token: &str) -> Option<String> {
        self.is_unjudged(token);
        self.user(token)
    }

    /// Asks for a fetch for this token, and tells whether nobody can judge it yet.
    fn is_unjudged(&self, token: &str) -> bool {
        block_on(self.verifier.fetch_missing_key(&headers(token), CLIENT, Duration::MAX))
    }

    /// Why the last fetch failed.
    fn error(&self) -> Option<String> {
        self.verifier.key_set_facts().remove(0).error
    }
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn headers(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

fn claims() -> Value {
    json!({ "sub": "acme", "aud": "api", "exp": in_seconds(3600) })
}

/// A token that names a key that nobody has.
fn forged(id: &str, claims: &Value) -> String {
    let head = json!({ "alg": "ES256", "kid": id }).to_string();
    let [head, claims] = [head, claims.to_string()].map(|part| URL_SAFE_NO_PAD.encode(part));
    format!("{head}.{claims}.{}", URL_SAFE_NO_PAD.encode([7; 64]))
}

const ACME: Option<&str> = Some("acme");

#[test]
fn a_set_is_fetched_at_the_start_and_again_for_an_unknown_key() {
    let [old, new] = [(); 2].map(|()| Issuer::new(Algorithm::ES256));
    let provider = Provider::new(&[old.jwk("old")]);
    let source = Source::new(&provider.url("/keys"), eager());
    let [of_old, of_new] = [old.sign_as("old", &claims()), new.sign_as("new", &claims())];
    assert_eq!(source.user(&of_old).as_deref(), ACME);
    assert_eq!(source.identity(&of_new).refused_token, Some(TokenRefusal::UnknownKey));
    assert!(source.why(&of_new).contains("no key of the provider's set has signed the token"));
    // The provider has it not yet.
    assert_eq!(source.user_after_fetch(&of_new), None);
    provider.publishes(&[old.jwk("old"), new.jwk("new")]);
    assert_eq!(source.user_after_fetch(&of_new).as_deref(), ACME);
    assert_eq!(source.identity(&of_new).refused_token, None);
    assert_eq!(source.user(&of_old).as_deref(), ACME);
    assert_eq!(provider.fetches(), 3);
    // A key that is gone verifies nothing, not even a token that it has verified before.
    provider.publishes(&[new.jwk("new")]);
    assert_eq!(source.user_after_fetch(&forged("other", &claims())), None);
    assert_eq!([source.user(&of_old), source.user(&of_new)], [None, Some("acme".to_owned())]);
}

#[test]
fn ten_thousand_unknown_keys_are_one_fetch() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let source = Source::new(&provider.url("/keys"), KeySetTiming::default());
    for number in 0..10_000 {
        assert_eq!(source.user_after_fetch(&forged(&format!("x{number}"), &claims())), None);
    }
    assert_eq!(provider.fetches(), 2, "at the start, and for the first of them");
    assert_eq!(source.user(&signer.sign_as("a", &claims())).as_deref(), ACME);
}

#[test]
fn a_provider_may_use_a_kid_again_for_another_key() {
    let [old, new] = [(); 2].map(|()| Issuer::new(Algorithm::ES256));
    let provider = Provider::new(&[old.jwk("a")]);
    let source = Source::new(&provider.url("/keys"), KeySetTiming::default());
    let of_new = new.sign_as("a", &claims());
    assert_eq!(source.identity(&of_new).refused_token, Some(TokenRefusal::OtherKey));
    provider.publishes(&[new.jwk("a")]);
    assert_eq!(source.user_after_fetch(&of_new).as_deref(), ACME);
    for _ in 0..20 {
        assert_eq!(source.user_after_fetch(&old.sign_as("a", &claims())), None);
    }
    assert_eq!(provider.fetches(), 2, "at the start, and for the first of them");
}

#[test]
fn a_token_whose_provider_has_signed_it_is_proven() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let source = Source::of_issuer(&provider);
    let (early, late) = (in_seconds(-3600), in_seconds(3600));
    for claims in [
        json!({ "iss": "https://id", "aud": "api", "exp": early }),
        json!({ "iss": "https://id", "aud": "api", "exp": late, "nbf": late }),
        json!({ "iss": "https://id", "aud": "other", "exp": late }),
        json!({ "iss": "https://other", "aud": "api", "exp": late }),
        json!({ "iss": "https://id", "aud": "api" }),
    ] {
        let refused = |token: &str| source.identity(token).refused_token;
        assert_eq!(refused(&signer.sign_as("a", &claims)), Some(TokenRefusal::Signed), "{claims}");
        assert_eq!(refused(&forged("b", &claims)).filter(|refusal| *refusal == TokenRefusal::Signed), None);
    }
    assert_eq!(provider.fetches(), 1);
}

/// A proxy that requires users, and bans who guesses.
fn guarded(url: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "user: [{{ jwt: {{ jwks: \"{url}\", audience: api }} }}]\n\
         bans: {{ guessing: {{ key: ip, policies: [api_keys], after: 20/10m, for: 1h }} }}\n\
         routes:\n  - {{ path: /*, require: user, reply: {{ status: 200 }} }}\n"
    )))
}

fn status(tollgate: &Tollgate, token: &str) -> u16 {
    get(tollgate.address, "/", &[("authorization", &format!("Bearer {token}"))]).status
}

#[test]
fn expired_tokens_of_an_office_count_for_no_limit_and_no_ban() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let tollgate = guarded(&provider.url("/keys"));
    for user in 0..120 {
        let claims = json!({ "sub": format!("user-{user}"), "aud": "api", "exp": in_seconds(-3600) });
        assert_eq!(status(&tollgate, &signer.sign_as("a", &claims)), 401);
    }
    assert_eq!(status(&tollgate, &signer.sign_as("a", &claims())), 200);
    let expired = "tollgate_requests_refused_total{reason=\"expired_credential\"}";
    assert_eq!(tollgate.metric(expired), 120.0);
    assert_eq!(tollgate.metric("tollgate_requests_refused_total{reason=\"wrong_credential\"}"), 0.0);
    // Made-up ones do.
    let statuses: Vec<u16> = (0..60).map(|_| status(&tollgate, "made.up.token")).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 30, "{statuses:?}");
}

#[test]
fn tokens_wait_for_the_fetch_of_their_key_however_long_it_takes() {
    let [old, new] = [(); 2].map(|()| Issuer::new(Algorithm::ES256));
    let sets = [old.jwk("old"), new.jwk("new")].map(|key| json!({ "keys": [key] }).to_string());
    let fetches = AtomicUsize::new(0);
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            let nth = fetches.fetch_add(1, SeqCst);
            if nth > 0 {
                thread::sleep(Duration::from_secs(2));
            }
            conn.answer("200 OK", &[], sets[nth.min(1)].as_bytes())?;
        }
        Ok(())
    });
    let tollgate = guarded(&format!("http://{}/keys", origin.address));
    let of_new = new.sign_as("new", &claims());
    let statuses: Vec<u16> = thread::scope(|scope| {
        let sent: Vec<_> = (0..60).map(|_| scope.spawn(|| status(&tollgate, &of_new))).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 60]);
}

#[test]
fn a_new_key_just_behind_a_fetch_bans_nobody() {
    let [old, new] = [(); 2].map(|()| Issuer::new(Algorithm::ES256));
    let provider = Provider::new(&[old.jwk("old")]);
    let tollgate = guarded(&provider.url("/keys"));
    // A stranger has it fetched just before.
    assert_eq!(status(&tollgate, &forged("made-up", &claims())), 401);
    provider.publishes(&[old.jwk("old"), new.jwk("new")]);
    let of_new = new.sign_as("new", &claims());
    let statuses: Vec<u16> = (0..60).map(|_| status(&tollgate, &of_new)).collect();
    assert!(statuses.iter().all(|status| [200, 401].contains(status)), "{statuses:?}");
    // The next fetch is due ten seconds after the last.
    becomes(200, || {
        thread::sleep(Duration::from_millis(500));
        status(&tollgate, &of_new)
    });
    // Who makes names of keys up is limited in the end.
    let made_up = |nth: usize| status(&tollgate, &forged(&format!("x{nth}"), &claims()));
    assert!((0..1_000).map(made_up).any(|status| status == 429));
}

#[test]
fn tokens_that_no_key_could_make_valid_cause_no_fetch() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let source = Source::of_issuer(&provider);
    let exp = in_seconds(3600);
    for claims in [
        json!({ "iss": "https://id", "aud": "api", "exp": in_seconds(-3600) }),
        json!({ "iss": "https://id", "aud": "api" }),
        json!({ "iss": "https://other", "aud": "api", "exp": exp }),
        json!({ "aud": "api", "exp": exp }),
        json!({ "iss": "https://id", "aud": ["other"], "exp": exp }),
        json!({ "iss": "https://id", "exp": exp }),
        json!([]),
    ] {
        let token = forged("new", &claims);
        assert_eq!(source.identity(&token).refused_token, Some(TokenRefusal::Unproven), "{claims}");
        assert_eq!(source.user_after_fetch(&token), None);
    }
    assert_eq!(provider.fetches(), 1);
    let claims = json!({ "iss": "https://id", "aud": ["api"], "exp": exp });
    assert_eq!(source.identity(&forged("new", &claims)).refused_token, Some(TokenRefusal::UnknownKey));
    // A provider without key IDs may have another key as well.
    let nameless =
        Issuer::new(Algorithm::ES256).sign(&json!({ "iss": "https://id", "aud": "api", "exp": exp }));
    assert_eq!(source.identity(&nameless).refused_token, Some(TokenRefusal::UnknownKey));
}

#[test]
fn a_set_is_refreshed_before_it_grows_old_and_used_while_the_provider_is_away() {
    let [old, new] = [(); 2].map(|()| Issuer::new(Algorithm::ES256));
    let provider = Provider::new(&[old.jwk("old")]);
    let source = Source::new(&provider.url("/keys"), restless());
    let [of_old, of_new] = [old.sign_as("old", &claims()), new.sign_as("new", &claims())];
    assert_eq!(source.user(&of_old).as_deref(), ACME);
    provider.publishes(&[new.jwk("new")]);
    eventually("the new key is known without a token's help", || source.user(&of_new).as_deref() == ACME);
    assert_eq!(source.user(&of_old), None);
    let away = Response { status: "503 Service Unavailable", headers: Vec::new(), body: String::new() };
    provider.responds(away);
    eventually("fetching fails", || source.error().is_some());
    let fetches = provider.fetches();
    eventually("it is tried again and again", || provider.fetches() > fetches + 5);
    assert_eq!(source.user(&of_new).as_deref(), ACME);
    assert!(source.error().unwrap().contains("/keys responds with 503 Service Unavailable"));
    provider.publishes(&[old.jwk("old")]);
    eventually("the provider is back", || source.user(&of_old).as_deref() == ACME);
    assert_eq!(source.error(), None);
}

#[test]
fn keys_that_are_too_old_verify_nothing_until_they_are_fetched_again() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let source = Source::with(restless(), |jwt| {
        jwt.jwks = Some(provider.url("/keys").parse().unwrap());
        jwt.stale = Some(Duration::ZERO);
    });
    let token = signer.sign_as("a", &claims());
    provider.responds(Response { status: "404 Not Found", headers: Vec::new(), body: String::new() });
    eventually("the keys are too old", || {
        source.identity(&token).refused_token == Some(TokenRefusal::NoKeySet)
    });
    assert!(source.why(&token).contains("the key set of the token's provider could not be fetched"));
    assert_eq!(source.verifier.unread_key_sets(), [""; 0], "it was read once");
    provider.publishes(&[signer.jwk("a")]);
    eventually("they are fetched again", || source.user(&token).as_deref() == ACME);
}

#[test]
fn keys_of_other_kinds_are_skipped_and_a_set_without_ours_replaces_none() {
    let signer = Issuer::new(Algorithm::RS256);
    let secret = Issuer::new(Algorithm::HS256);
    let mut nameless = signer.jwk("a");
    nameless.as_object_mut().unwrap().remove("alg");
    let others = [
        json!({ "kty": "oct", "kid": "s", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode(secret.public().trim_end()) }),
        json!({ "kty": "EC", "kid": "k1", "crv": "secp256k1", "x": "AA", "y": "AA" }),
        json!({ "kty": "OKP", "kid": "x", "crv": "X25519", "x": "AA" }),
        json!({ "kty": "LATTICE", "kid": "pq" }),
        json!({ "kty": "RSA", "kid": "short", "alg": "RS256", "e": "AQAB", "n": URL_SAFE_NO_PAD.encode([0xab; 128]) }),
        json!({ "kty": "RSA", "kid": "enc", "use": "enc", "e": "AQAB", "n": URL_SAFE_NO_PAD.encode([0xab; 256]) }),
        json!("nonsense"),
    ];
    let provider = Provider::new(&[&others[..], &[nameless]].concat());
    let source = Source::new(&provider.url("/keys"), eager());
    assert_eq!(source.user(&signer.sign_as("a", &claims())).as_deref(), ACME);
    assert_eq!(source.user(&secret.sign_as("s", &claims())), None, "everybody knows this secret");
    assert_eq!(source.verifier.key_set_facts()[0].keys, 1);
    let many: Vec<_> = (0..=100).map(|_| json!({ "kty": "LATTICE" })).collect();
    for (response, error) in [
        (Provider::set(&others), "the key set contains"),
        (Provider::set(&[]), "the key set contains no key that could verify a token"),
        (Provider::set(&many), "the key set contains more than 100 keys"),
        (Response { body: "<html>".to_owned(), ..Provider::set(&[]) }, "is not a JSON Web Key set"),
        (
            Response { body: " ".repeat((1 << 20) + 1), ..Provider::set(&[]) },
            "responds with more than 1024 KiB",
        ),
    ] {
        provider.responds(response);
        assert_eq!(source.user_after_fetch(&forged("new", &claims())), None);
        let found = source.error().unwrap();
        assert!(found.contains(error), "{found}");
        assert_eq!(source.user(&signer.sign_as("a", &claims())).as_deref(), ACME, "the last set is kept");
    }
}

#[test]
fn redirects_are_followed_within_the_origin_alone() {
    let signer = Issuer::new(Algorithm::EdDSA);
    let [provider, other] = [(); 2].map(|()| Provider::new(&[signer.jwk("a")]));
    let token = signer.sign_as("a", &claims());
    assert_eq!(Source::new(&provider.url("/here"), eager()).user(&token).as_deref(), ACME);
    let circle = Source::new(&provider.url("/circle"), eager());
    assert!(circle.error().unwrap().ends_with("/circle redirects too often, or to nowhere"));
    provider.responds(Provider::redirect(&other.url("/keys")));
    let moved = Source::new(&provider.url("/moved"), eager());
    assert!(moved.error().unwrap().ends_with("/moved redirects to another origin, which is not followed"));
    assert_eq!(moved.identity(&token).refused_token, Some(TokenRefusal::NoKeySet));
    assert_eq!(other.fetches(), 0);
}

#[test]
fn discovery_finds_the_keys_of_this_issuer_and_of_no_other() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let discover = |issuer: &str| {
        Source::with(eager(), |jwt| {
            jwt.discover = true;
            jwt.issuer = Some(issuer.to_owned());
        })
    };
    let name = issuer(provider.origin.address);
    let signed = |issuer: &str| {
        signer.sign_as("a", &json!({ "sub": "acme", "iss": issuer, "aud": "api", "exp": in_seconds(60) }))
    };
    let source = discover(&name);
    assert_eq!(source.user(&signed(&name)).as_deref(), ACME);
    assert_eq!(source.user(&signed("https://other")), None);
    // The issuer must be the same to the letter.
    let slash = discover(&format!("{name}/"));
    let error = slash.error().unwrap();
    assert!(error.ends_with(&format!("is the metadata of another issuer: `{name}`")), "{error}");
    assert_eq!(slash.user(&signed(&format!("{name}/"))), None);
    let lying = |metadata: Value| {
        let body = metadata.to_string();
        let origin = Origin::start(move |conn| {
            while conn.head()?.is_some() {
                conn.answer(
                    "200 OK",
                    &[],
                    body.replace("SELF", &conn.stream.local_addr()?.to_string()).as_bytes(),
                )?;
            }
            Ok(())
        });
        discover(&issuer(origin.address)).error().unwrap()
    };
    let keys = |url: &str| json!({ "issuer": "http://SELF", "jwks_uri": url });
    assert!(lying(json!({})).contains("is not the metadata of an OpenID provider"));
    assert!(
        lying(keys("http://10.0.0.1/keys")).contains("has a jwks_uri that has a scheme other than https")
    );
    assert!(lying(keys("file:///etc/passwd")).contains("has a jwks_uri that has a scheme other than https"));
    // The keys may be at another host.
    let elsewhere = Provider::new(&[signer.jwk("a")]);
    let url = elsewhere.url("/keys");
    let origin = Origin::start(move |conn| {
        let address = conn.stream.local_addr()?;
        while conn.head()?.is_some() {
            let metadata = json!({ "issuer": issuer(address), "jwks_uri": url });
            conn.answer("200 OK", &[], metadata.to_string().as_bytes())?;
        }
        Ok(())
    });
    let name = issuer(origin.address);
    assert_eq!(discover(&name).user(&signed(&name)).as_deref(), ACME);
}

/// A configuration with the keys at `url`, and a policy that refuses requests without a user.
fn configuration(url: &str, more: &str) -> String {
    format!(
        "user: [{{ jwt: {{ jwks: \"{url}\", audience: api{more} }} }}]\n\
         policies:\n  users: {{ algorithm: sliding_window, key: user, missing: deny, limit: 1000000/1d }}\n\
         routes:\n  - {{ path: /*, reply: {{ status: 200 }}, policies: [users] }}\n"
    )
}

#[test]
fn tollgate_is_not_ready_until_the_first_set_is_read() {
    let signer = Issuer::new(Algorithm::ES256);
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let url = format!("http://{address}/keys");
    let tollgate = Tollgate::start(Config::yaml(configuration(&url, "")));
    let bearer = format!("Bearer {}", signer.sign_as("a", &claims()));
    let status = || get(tollgate.address, "/", &[("authorization", &bearer)]).status;
    assert_eq!(status(), 429);
    let ready = tollgate.admin("GET", "/readyz");
    assert_eq!(ready.status, 503);
    let detail = ready.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with(&format!("the JWT keys of {url} were not fetched yet: {url}: ")), "{detail}");
    let of_status = || tollgate.admin("GET", "/v1/status").json();
    assert_eq!(of_status()["ready"], false);
    assert_eq!(of_status()["key_sets"][0]["fetched"], Value::Null);
    assert_eq!(tollgate.metric("tollgate_jwt_key_set_keys"), 0.0);
    assert!(tollgate.has_logged(&["can't be fetched"]), "{:?}", tollgate.log());
    eventually("a warning", || {
        of_status()["warnings"].to_string().contains("can't be fetched: no token of it is valid")
    });
    let _provider = Provider::at(TcpListener::bind(address).unwrap(), &[signer.jwk("a")]);
    becomes(200, || tollgate.admin("GET", "/readyz").status);
    assert_eq!(status(), 200);
    assert_eq!(of_status()["key_sets"][0]["keys"], 1);
    assert_eq!(of_status()["key_sets"][0]["error"], Value::Null);
    assert_eq!(tollgate.metric("tollgate_jwt_key_set_keys"), 1.0);
    assert!(tollgate.metric("tollgate_jwt_key_set_fetches_total{source=\"http") >= 1.0);
    eventually("it is resolved", || !of_status()["warnings"].to_string().contains("can't be fetched"));
    let text = tollgate.command(&["status"]).stdout;
    assert!(text.contains(&format!("key set        {url}: 1 key, fetched ")), "{text}");
}

#[test]
fn the_page_shows_the_keys_of_a_provider_that_is_away() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let url = provider.url("/keys");
    let tollgate = Tollgate::start(Config::yaml(configuration(&url, "")));
    let row = || {
        let page = tollgate.admin("GET", "/").text();
        page.split("<tr ").find(|row| row.contains(&url)).unwrap().to_owned()
    };
    assert!(row().contains("current"), "{}", row());
    provider.responds(Response { status: "500 Internal Server Error", ..Provider::set(&[]) });
    let bearer = format!("Bearer {}", forged("new", &claims()));
    assert_eq!(get(tollgate.address, "/", &[("authorization", &bearer)]).status, 429);
    eventually("the page says so", || row().contains("not refreshed"));
    assert!(row().contains("responds with 500 Internal Server Error"), "{}", row());
}

#[test]
fn the_provider_is_one_that_the_system_trusts() {
    let signer = Issuer::new(Algorithm::ES256);
    let [trusted, other] = ["trusted", "other"].map(Authority::new);
    let body = json!({ "keys": [signer.jwk("a")] }).to_string();
    let origin = Origin::start_tls(server_config(&trusted.issue("provider", &["localhost"])), move |conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], body.as_bytes())?;
        }
        Ok(())
    });
    let bearer = format!("Bearer {}", signer.sign_as("a", &claims()));
    let status = |authority: &Authority| {
        let mut command = command(Path::new("."));
        command.args(["run", "--config", "proxy.yaml"]).env("SSL_CERT_FILE", authority.file());
        let url = format!("https://localhost:{}/keys", origin.address.port());
        let tollgate = Tollgate::launch(command, Config::yaml(configuration(&url, "")));
        (get(tollgate.address, "/", &[("authorization", &bearer)]).status, tollgate.log().join("\n"))
    };
    assert_eq!(status(&trusted).0, 200);
    let (status, log) = status(&other);
    assert_eq!(status, 429);
    assert!(log.contains("can't be fetched") && log.contains("UnknownIssuer"), "{log}");
}

#[test]
fn a_reload_takes_sets_over_and_refuses_new_ones_that_cannot_be_read() {
    let signer = Issuer::new(Algorithm::ES256);
    let provider = Provider::new(&[signer.jwk("a")]);
    let tollgate = Tollgate::start(Config::yaml(configuration(&provider.url("/keys"), "")));
    let bearer = format!("Bearer {}", signer.sign_as("a", &claims()));
    let status = || get(tollgate.address, "/", &[("authorization", &bearer)]).status;
    let reload = |yaml: String| {
        let file = tollgate.directory().join("proxy.yaml");
        let ports = std::fs::read_to_string(&file).unwrap();
        let ports = ports.split_once("user:").map_or(ports.clone(), |(before, _)| before.to_owned());
        std::fs::write(&file, format!("{ports}{yaml}")).unwrap();
        tollgate.admin("POST", "/v1/reload")
    };
    assert_eq!(status(), 200);
    let reply = reload(configuration(&provider.url("/keys"), ", claim: aud"));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(status(), 200);
    assert_eq!(provider.fetches(), 1, "the set was taken over");
    let gone = format!("http://127.0.0.1:{}/keys", free_port());
    let reply = reload(configuration(&gone, ""));
    assert_eq!(reply.status, 422, "{reply:?}");
    assert!(reply.text().contains(&format!("the keys of {gone} can't be fetched: {gone}: ")), "{reply:?}");
    assert_eq!((status(), tollgate.admin("GET", "/readyz").status), (200, 200));
    let reply = reload(configuration(&provider.url("/others"), ""));
    assert_eq!((reply.status, status(), provider.fetches()), (200, 200, 2));
}
