//! Which tokens name a user, and which name nobody.

use std::{fs, path::PathBuf, sync::LazyLock};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{
    config::model::{HeaderFrom, Jwt, UserSource},
    identity::{Credentials, Identity, Verifier, explain_failure, identify},
    jwt_keys::JwtAlgorithm,
};

use crate::harness::{Issuer, in_seconds};

/// Keys of RSA take a while to make.
static RSA: LazyLock<Issuer> = LazyLock::new(|| Issuer::new(Algorithm::RS256));

/// Sources, and the directory of their keys.
struct Sources {
    sources: Vec<UserSource>,
    verifier: Verifier,
    _directory: TempDir,
}

impl Sources {
    /// One source of tokens whose file of keys holds `keys`.
    fn new(keys: &str, algorithm: Option<JwtAlgorithm>) -> Self {
        Self::with(keys, algorithm, |_| ())
    }

    fn with(keys: &str, algorithm: Option<JwtAlgorithm>, change: impl FnOnce(&mut Jwt)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut jwt = jwt(directory.path().join("keys"), algorithm);
        fs::write(jwt.key.as_ref().unwrap(), keys).unwrap();
        change(&mut jwt);
        let sources = vec![UserSource::Jwt(Box::new(jwt))];
        Self { verifier: Verifier::new(&sources).unwrap(), sources, _directory: directory }
    }

    /// Who sends these fields.
    fn who(&self, fields: &[(HeaderName, &str)]) -> Identity {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let credentials =
            Credentials { headers: &headers, is_peer_trusted: false, certificate: None, key: None };
        let found = identify(&self.sources, &self.verifier, credentials);
        // What is remembered of a token is what it was.
        assert_eq!(identify(&self.sources, &self.verifier, credentials), found);
        found
    }

    /// The user of this token, who is always a verified one.
    fn user(&self, token: &str) -> Option<String> {
        let found = self.who(&[(AUTHORIZATION, &format!("Bearer {token}"))]);
        assert_eq!(found.is_verified, found.user.is_some());
        assert!(found.user.is_none() || found.claims.is_some());
        found.user.map(Into::into)
    }
}

fn jwt(key: PathBuf, algorithm: Option<JwtAlgorithm>) -> Jwt {
    Jwt { key: Some(key), algorithm, ..Jwt::default() }
}

fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

#[test]
fn every_algorithm_is_verified_and_no_other_key_will_do() {
    for (algorithm, of_model) in [
        (Algorithm::RS256, JwtAlgorithm::Rs256),
        (Algorithm::RS384, JwtAlgorithm::Rs384),
        (Algorithm::RS512, JwtAlgorithm::Rs512),
        (Algorithm::PS256, JwtAlgorithm::Ps256),
        (Algorithm::PS384, JwtAlgorithm::Ps384),
        (Algorithm::PS512, JwtAlgorithm::Ps512),
        (Algorithm::ES256, JwtAlgorithm::Es256),
        (Algorithm::ES384, JwtAlgorithm::Es384),
        (Algorithm::EdDSA, JwtAlgorithm::EdDsa),
        (Algorithm::HS256, JwtAlgorithm::Hs256),
        (Algorithm::HS384, JwtAlgorithm::Hs384),
        (Algorithm::HS512, JwtAlgorithm::Hs512),
    ] {
        let (issuer, other) = (Issuer::new(algorithm), Issuer::new(algorithm));
        let sources = Sources::new(&issuer.public(), Some(of_model));
        assert_eq!(sources.user(&issuer.token("acme")).as_deref(), Some("acme"), "{algorithm:?}");
        assert_eq!(sources.user(&other.token("acme")), None, "{algorithm:?}");
        if !matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
            let certified = Sources::new(&issuer.certificate(), Some(of_model));
            assert_eq!(certified.user(&issuer.token("acme")).as_deref(), Some("acme"), "{algorithm:?}");
        }
        let of_set = Sources::new(&set(&[issuer.jwk("a")]), None);
        assert_eq!(of_set.user(&issuer.token("acme")).as_deref(), Some("acme"), "{algorithm:?}");
        assert_eq!(of_set.user(&other.sign_as("a", &json!({"sub": "x", "exp": in_seconds(60)}))), None);
    }
}

#[test]
fn a_token_counts_in_its_time_alone() {
    let sources = Sources::new(&RSA.public(), Some(JwtAlgorithm::Rs256));
    let user = |claims: Value| sources.user(&RSA.sign(&claims));
    let acme = Some("acme".to_owned());
    assert_eq!(user(json!({"sub": "acme", "exp": in_seconds(3600), "nbf": in_seconds(-9)})), acme);
    assert_eq!(user(json!({"sub": "acme", "exp": in_seconds(3600) as f64 + 0.5})), acme);
    // Clocks may differ by a minute.
    assert_eq!(user(json!({"sub": "acme", "exp": in_seconds(-20), "nbf": in_seconds(20)})), acme);
    for claims in [
        json!({"sub": "acme", "exp": in_seconds(-3600)}),
        json!({"sub": "acme", "exp": in_seconds(-90)}),
        json!({"sub": "acme", "exp": in_seconds(3600), "nbf": in_seconds(1800)}),
        json!({"sub": "acme", "exp": in_seconds(3600), "nbf": "soon"}),
        json!({"sub": "acme"}),
        json!({"sub": "acme", "exp": null}),
        json!({"sub": "acme", "exp": "never"}),
        json!({"sub": "acme", "exp": 0}),
        json!({"sub": "acme", "exp": -1}),
    ] {
        assert_eq!(user(claims.clone()), None, "{claims}");
    }
}

#[test]
fn the_algorithm_that_a_token_names_is_never_followed() {
    let claims = json!({"sub": "acme", "exp": in_seconds(3600)});
    let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
    let none = |head: &str| format!("{}.{payload}.", URL_SAFE_NO_PAD.encode(head));
    let public = RSA.public();
    // The public key is known to all; a verifier that believed the token would take it for a secret.
    let confused: Vec<_> = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512]
        .iter()
        .flat_map(|algorithm| {
            [public.as_bytes(), public.trim_end().as_bytes()].map(|secret| {
                encode(&Header::new(*algorithm), &claims, &EncodingKey::from_secret(secret)).unwrap()
            })
        })
        .collect();
    let good = RSA.token("acme");
    let signature = good.rsplit('.').next().unwrap();
    let renamed = format!("{}.{payload}.{signature}", URL_SAFE_NO_PAD.encode(r#"{"alg":"PS256"}"#));
    for sources in [
        Sources::new(&public, Some(JwtAlgorithm::Rs256)),
        Sources::new(&RSA.certificate(), Some(JwtAlgorithm::Rs256)),
        Sources::new(&set(&[RSA.jwk("a")]), None),
    ] {
        assert!(sources.user(&good).is_some());
        for token in confused.iter().chain([&renamed]) {
            assert_eq!(sources.user(token), None, "{token}");
        }
        for head in [r#"{"alg":"none"}"#, r#"{"alg":"NONE"}"#, r#"{"alg":""}"#, "{}", r#"{"alg":"RS256"}"#] {
            assert_eq!(sources.user(&none(head)), None, "{head}");
        }
    }
    // Another algorithm of the same key is another one all the same.
    let pss = Issuer::new(Algorithm::RS256).with(Algorithm::PS256);
    let sources = Sources::new(&pss.public(), Some(JwtAlgorithm::Rs256));
    assert_eq!(sources.user(&pss.token("acme")), None);
    assert!(sources.user(&pss.with(Algorithm::RS256).token("acme")).is_some());
}

#[test]
fn garbage_names_nobody() {
    let sources = Sources::new(&RSA.public(), Some(JwtAlgorithm::Rs256));
    let token = RSA.token("acme");
    let parts: Vec<_> = token.split('.').collect();
    let other = RSA.token("other");
    let claims = other.split('.').nth(1).unwrap();
    for garbage in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "x".to_owned(),
        "x.y.z".to_owned(),
        "{}.{}.{}".to_owned(),
        format!("{}.{}", parts[0], parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{token}."),
        format!("{token}.x"),
        format!("x{token}"),
        token[..token.len() - 4].to_owned(),
        format!("{}.{claims}.{}", parts[0], parts[2]),
        "a".repeat(20_000),
    ] {
        assert_eq!(sources.user(&garbage), None, "{garbage}");
    }
    for (claims, user) in [
        (json!({"sub": "", "exp": in_seconds(60)}), None),
        (json!({"sub": "a\nb", "exp": in_seconds(60)}), None),
        (json!({"sub": ["a"], "exp": in_seconds(60)}), None),
        (json!({"name": "a", "exp": in_seconds(60)}), None),
        (json!({"sub": 7, "exp": in_seconds(60)}), Some("7".to_owned())),
    ] {
        assert_eq!(sources.user(&RSA.sign(&claims)), user, "{claims}");
    }
}

#[test]
fn a_token_with_critical_extensions_is_refused() {
    let issuer = Issuer::new(Algorithm::HS256);
    let sources = Sources::new(&issuer.public(), Some(JwtAlgorithm::Hs256));
    let claims = json!({"sub": "acme", "exp": in_seconds(60)});
    let secret = EncodingKey::from_secret(issuer.public().trim_end().as_bytes());
    let plain = Header::new(Algorithm::HS256);
    assert!(sources.user(&encode(&plain, &claims, &secret).unwrap()).is_some());
    let crit = Header { crit: Some(vec!["exp".to_owned()]), ..plain };
    assert_eq!(sources.user(&encode(&crit, &claims, &secret).unwrap()), None);
}

#[test]
fn a_token_stands_in_its_field_once() {
    let issuer = Issuer::new(Algorithm::ES256);
    let sources = Sources::new(&issuer.public(), Some(JwtAlgorithm::Es256));
    let (token, bearer) = (issuer.token("acme"), issuer.bearer("acme"));
    let user = |lines: &[&str]| {
        let fields: Vec<_> = lines.iter().map(|line| (AUTHORIZATION, *line)).collect();
        sources.who(&fields).user.is_some()
    };
    assert!(user(&[&bearer]));
    assert!(user(&[&format!("bEARER   {token}")]));
    for line in [&token, &format!("Basic {token}"), &format!("Bearer{token}"), "Bearer", "Bearer "] {
        assert!(!user(&[line]), "{line}");
    }
    assert!(!user(&[&bearer, &bearer]), "of two, the origin may take another");
    assert!(!user(&[&bearer, "Basic YTpi"]));
    assert!(!user(&[&format!("{bearer}, {bearer}")]));

    let field = HeaderName::from_static("x-token");
    let elsewhere =
        Sources::with(&issuer.public(), Some(JwtAlgorithm::Es256), |jwt| jwt.header = field.clone());
    assert!(elsewhere.who(&[(field.clone(), &token)]).user.is_some());
    assert!(elsewhere.who(&[(field, &bearer)]).user.is_none());
    assert!(elsewhere.who(&[(AUTHORIZATION, &bearer)]).user.is_none());
}

#[test]
fn issuer_and_audience_must_be_those_that_are_asked_for() {
    let issuer = Issuer::new(Algorithm::EdDSA);
    let strict = Sources::with(&issuer.public(), Some(JwtAlgorithm::EdDsa), |jwt| {
        jwt.issuer = Some("https://id".to_owned());
        jwt.audience = Some("api".to_owned());
    });
    let lax = Sources::new(&issuer.public(), Some(JwtAlgorithm::EdDsa));
    let exp = in_seconds(60);
    for (claims, counts) in [
        (json!({"sub": "a", "exp": exp, "iss": "https://id", "aud": "api"}), true),
        (json!({"sub": "a", "exp": exp, "iss": "https://id", "aud": ["other", "api"]}), true),
        (json!({"sub": "a", "exp": exp, "iss": "https://other", "aud": "api"}), false),
        (json!({"sub": "a", "exp": exp, "iss": "https://id", "aud": "other"}), false),
        (json!({"sub": "a", "exp": exp, "iss": "https://id", "aud": []}), false),
        (json!({"sub": "a", "exp": exp, "iss": "https://id"}), false),
        (json!({"sub": "a", "exp": exp, "iss": 7, "aud": "api"}), false),
        (json!({"sub": "a", "exp": exp, "aud": "api"}), false),
    ] {
        let token = issuer.sign(&claims);
        assert_eq!(strict.user(&token).is_some(), counts, "{claims}");
        assert!(lax.user(&token).is_some(), "{claims}");
    }
}

#[test]
fn a_key_set_goes_by_the_name_of_the_key() {
    let (old, new) = (Issuer::new(Algorithm::ES256), Issuer::new(Algorithm::ES256));
    let other = Issuer::new(Algorithm::EdDSA);
    let unused = json!({"kty": "EC", "use": "enc", "crv": "P-256", "x": "AA", "y": "AA", "kid": "enc"});
    let unknown = json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "kid": "pq"});
    let all = [old.jwk("old"), new.jwk("new"), other.jwk("ed"), RSA.jwk("rsa"), unused, unknown];
    let sources = Sources::new(&set(&all), None);
    let claims = json!({"sub": "acme", "exp": in_seconds(60)});
    for (issuer, id) in [(&old, "old"), (&new, "new"), (&other, "ed"), (&RSA, "rsa")] {
        assert!(sources.user(&issuer.sign_as(id, &claims)).is_some(), "{id}");
        for wrong in ["old", "new", "ed", "rsa", "enc", "pq", ""].iter().filter(|wrong| **wrong != id) {
            assert_eq!(sources.user(&issuer.sign_as(wrong, &claims)), None, "{id} as {wrong}");
        }
        assert!(sources.user(&issuer.sign(&claims)).is_some(), "{id} without its name");
    }
    let pinned = Sources::new(&set(&all), Some(JwtAlgorithm::Es256));
    assert!(pinned.user(&new.sign_as("new", &claims)).is_some());
    assert_eq!(pinned.user(&other.sign_as("ed", &claims)), None);
}

#[test]
fn a_token_without_a_name_of_its_key_tries_four_at_most() {
    let claims = json!({"sub": "acme", "exp": in_seconds(60)});
    let stranger = Issuer::new(Algorithm::ES256);
    let issuers: Vec<Issuer> = (0..6).map(|_| Issuer::new(Algorithm::ES256)).collect();
    let other = Issuer::new(Algorithm::ES384);
    // Keys with the names of `named`, behind one of another algorithm.
    let sources = |named: [Option<&str>; 6]| {
        let keys = issuers.iter().zip(named).map(|(issuer, id)| match id {
            Some(id) => issuer.jwk(id),
            None => without_name(issuer.jwk("")),
        });
        Sources::new(&set(&[other.jwk("other")].into_iter().chain(keys).collect::<Vec<_>>()), None)
    };
    let counting = |sources: &Sources, sign: &dyn Fn(&Issuer) -> String| -> Vec<usize> {
        assert_eq!(sources.user(&sign(&stranger)), None);
        (0..6).filter(|&index| sources.user(&sign(&issuers[index])).is_some()).collect()
    };
    let nameless = |issuer: &Issuer| issuer.sign(&claims);
    let as_c = |issuer: &Issuer| issuer.sign_as("c", &claims);
    let as_unknown = |issuer: &Issuer| issuer.sign_as("x", &claims);

    let named = sources(["a", "b", "c", "d", "e", "f"].map(Some));
    assert_eq!(counting(&named, &nameless), [0, 1, 2, 3]);
    assert_eq!(counting(&named, &as_c), [2]);
    assert_eq!(counting(&named, &as_unknown), [0; 0], "a name that no key has");

    let unnamed = sources([None; 6]);
    for sign in [&nameless as &dyn Fn(&Issuer) -> String, &as_c] {
        assert_eq!(counting(&unnamed, sign), [0, 1, 2, 3]);
    }

    // The key that fits best comes first, wherever it stands.
    let mixed = sources([Some("a"), Some("b"), Some("d"), Some("e"), None, Some("c")]);
    assert_eq!(counting(&mixed, &nameless), [0, 1, 2, 4]);
    assert_eq!(counting(&mixed, &as_c), [4, 5]);
    assert_eq!(counting(&mixed, &as_unknown), [4]);
}

#[test]
fn a_second_key_does_not_hide_what_is_wrong_with_a_token() {
    let (old, new) = (Issuer::new(Algorithm::ES256), Issuer::new(Algorithm::ES256));
    for keys in [[old.jwk("old"), without_name(new.jwk(""))], [without_name(old.jwk("")), new.jwk("new")]] {
        let sources = Sources::new(&set(&keys), None);
        for issuer in [&old, &new] {
            let expired = issuer.sign(&json!({"sub": "acme", "exp": in_seconds(-3600)}));
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Bearer {expired}").parse().unwrap());
            let credentials =
                Credentials { headers: &headers, is_peer_trusted: false, certificate: None, key: None };
            let why = explain_failure(&sources.sources, 0, &sources.verifier, credentials);
            assert!(why.contains("the token has expired"), "{why}");
        }
    }
}

/// A key of a set without its `kid`.
fn without_name(mut jwk: Value) -> Value {
    jwk.as_object_mut().unwrap().remove("kid").unwrap();
    jwk
}

#[test]
fn a_key_that_cannot_be_used_leaves_the_others_of_its_set_in_use() {
    let issuer = Issuer::new(Algorithm::ES256);
    let short = json!({"kty": "RSA", "alg": "RS256", "kid": "short", "e": "AQAB", "n": "AQAB"});
    let damaged = json!({"kty": "EC", "crv": "P-256", "kid": "damaged", "x": "AA", "y": "AA"});
    let sources = Sources::new(&set(&[short, damaged, issuer.jwk("good")]), None);
    let claims = json!({"sub": "acme", "exp": in_seconds(60)});
    assert!(sources.user(&issuer.sign_as("good", &claims)).is_some());
    for id in ["short", "damaged"] {
        assert_eq!(sources.user(&issuer.sign_as(id, &claims)), None, "{id}");
    }
}

#[test]
fn claims_are_there_whichever_source_names_the_user() {
    let issuer = Issuer::new(Algorithm::HS256);
    let directory = TempDir::new().unwrap();
    let key = directory.path().join("keys");
    fs::write(&key, issuer.public()).unwrap();
    let name = HeaderName::from_static("x-user");
    let header = UserSource::Header { name: name.clone(), from: HeaderFrom::Anyone };
    let token = UserSource::Jwt(Box::new(jwt(key, Some(JwtAlgorithm::Hs256))));
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_static("claimed"));
    headers.insert(AUTHORIZATION, issuer.bearer("acme").parse().unwrap());
    for (sources, user, is_verified) in
        [(vec![header.clone(), token.clone()], "claimed", false), (vec![token, header], "acme", true)]
    {
        let credentials =
            Credentials { headers: &headers, is_peer_trusted: false, certificate: None, key: None };
        let found = identify(&sources, &Verifier::new(&sources).unwrap(), credentials);
        assert_eq!((found.user.as_deref(), found.is_verified), (Some(user), is_verified));
        assert_eq!(found.claims.unwrap().get("sub").as_deref(), Some("acme"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_sent_is_answered(
        head in r#"(\{"alg":"(RS256|HS256|none)"(,"kid":"[a-z]?"|,"jwk":\{\}|,"crit":\[\])?\}|[ -~]{0,20})"#,
        claims in r#"(\{"sub":"a","exp":(9999999999|1e400|-1|"x"|null)\}|[ -~]{0,20})"#,
        signature in "[A-Za-z0-9_=-]{0,40}",
        dots in r"\.{0,3}",
    ) {
        static SOURCES: LazyLock<Sources> = LazyLock::new(|| Sources::new(&set(&[RSA.jwk("a")]), None));
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = format!("{}.{}{dots}{signature}", part(&head), part(&claims));
        prop_assert_eq!(SOURCES.user(&token), None);
        prop_assert_eq!(SOURCES.user(&format!("{head}{dots}{claims}.{signature}")), None);
    }
}
