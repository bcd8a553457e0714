//! Limits by what tokens say, and keys that change while it runs.

use std::fs;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::harness::{Config, Issuer, Origin, Tollgate, becomes, eventually, get, get_from, in_seconds};

/// One policy for everything, and a source of tokens whose keys are in `keys`, beside the configuration.
fn protected(origin: &Origin, keys: &str, algorithm: &str, policy: &str) -> (Tollgate, tempfile::TempDir) {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("keys");
    fs::write(&file, keys).unwrap();
    let yaml = format!(
        "
user:
  - jwt: {{ key: {{ file: {} }}{algorithm} }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [one] }}
policies:
  one: {{ {policy} }}
routes:
  - {{ path: /*, upstream: origin }}
",
        file.display(),
        origin.address
    );
    (Tollgate::start(Config::yaml(yaml)), directory)
}

const ONE_EACH: &str = "algorithm: single_counter, limit: 1/1d, missing: deny, key";

/// The status of a request with this token.
fn ask(tollgate: &Tollgate, token: &str) -> u16 {
    get(tollgate.address, "/", &[("authorization", &format!("Bearer {token}"))]).status
}

#[test]
fn a_limit_by_a_claim_counts_by_what_was_verified() {
    let origin = Origin::ok();
    let (issuer, stranger) = (Issuer::new(Algorithm::ES256), Issuer::new(Algorithm::ES256));
    let policy = format!("{ONE_EACH}: \"jwt:sub\"");
    let (tollgate, _keys) = protected(&origin, &issuer.public(), ", algorithm: ES256", &policy);
    for user in ["ann", "bob"] {
        assert_eq!(ask(&tollgate, &issuer.token(user)), 200, "{user}");
        // Another token of the same user is no way around.
        assert_eq!(ask(&tollgate, &issuer.sign(&json!({"sub": user, "exp": in_seconds(99)}))), 429, "{user}");
    }
    let missing = ask(&tollgate, &stranger.token("eve"));
    assert_eq!(missing, get(tollgate.address, "/", &[]).status, "an unverified token is as good as none");
    assert!(missing >= 400, "{missing}");
    assert_eq!(ask(&tollgate, &issuer.token("eve")), 200);
}

#[test]
fn the_evidence_tells_the_user_of_the_token() {
    let origin = Origin::ok();
    let issuer = Issuer::new(Algorithm::RS256);
    let policy = "algorithm: metadata_list, key: ip, limit: 1/1h";
    let (tollgate, _keys) = protected(&origin, &issuer.public(), ", algorithm: RS256", policy);
    for (user, status) in [("ann", 200), ("bob", 429)] {
        let reply = get_from("127.0.0.5", tollgate.address, "/", &[("authorization", &issuer.bearer(user))]);
        assert_eq!(reply.status, status);
    }
    let mut found = Value::Null;
    eventually("both are in the evidence", || {
        found = tollgate.admin("GET", "/v1/blocked/127.0.0.5").json();
        found["records"].as_array().is_some_and(|records| records.len() == 2)
    });
    let users: Vec<_> = found["records"].as_array().unwrap().iter().map(|record| &record["user"]).collect();
    assert!(users.contains(&&json!("ann")) && users.contains(&&json!("bob")), "{found}");
}

#[test]
fn keys_that_change_count_at_once_and_broken_ones_change_nothing() {
    let origin = Origin::ok();
    let (old, new) = (Issuer::new(Algorithm::EdDSA), Issuer::new(Algorithm::EdDSA));
    let policy = "algorithm: single_counter, limit: 1000000/1d, missing: deny, key: \"jwt:sub\"";
    let (tollgate, directory) = protected(&origin, &old.public(), ", algorithm: EdDSA", policy);
    let file = directory.path().join("keys");
    // The same tokens all along: what was remembered of them must not outlive the keys.
    let (of_old, of_new) = (old.token("ann"), new.token("bob"));
    assert_eq!(ask(&tollgate, &of_old), 200);
    assert_ne!(ask(&tollgate, &of_new), 200);

    let said = |what: &str| tollgate.log().iter().filter(|line| line.contains(what)).count();
    for broken in ["", "nonsense", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        let before = said("the previous JWT keys stay in use");
        fs::write(&file, broken).unwrap();
        eventually("the broken file is noticed", || said("the previous JWT keys stay in use") > before);
        assert_eq!(ask(&tollgate, &of_old), 200);
        assert_ne!(ask(&tollgate, &of_new), 200);
    }
    fs::remove_file(&file).unwrap();
    eventually("the missing file is noticed", || said("No such file") == 1);
    assert_eq!(ask(&tollgate, &of_old), 200);

    // As tools do it: a new file takes the place of the old one.
    let next = directory.path().join("next");
    fs::write(&next, new.public()).unwrap();
    fs::rename(&next, &file).unwrap();
    eventually("the new key counts", || ask(&tollgate, &of_new) == 200);
    assert_ne!(ask(&tollgate, &of_old), 200, "the old key counts no more");

    // Or it is written in place.
    fs::write(&file, old.public()).unwrap();
    eventually("the old key is back", || ask(&tollgate, &of_old) == 200);
    assert_ne!(ask(&tollgate, &of_new), 200);
    assert_eq!(said("the file contains neither"), 1, "it is said once");
    becomes(2, || said(" were reloaded"));
}

#[test]
fn a_key_is_added_to_a_set_and_taken_out_again() {
    let origin = Origin::ok();
    let (first, second) = (Issuer::new(Algorithm::ES384), Issuer::new(Algorithm::RS256));
    let set = |keys: &[Value]| json!({ "keys": keys }).to_string();
    let policy = "algorithm: single_counter, limit: 1000000/1d, missing: deny, key: user";
    let (tollgate, directory) = protected(&origin, &set(&[first.jwk("1")]), "", policy);
    let claims = json!({"sub": "ann", "exp": in_seconds(3600)});
    let (of_first, of_second) = (first.sign_as("1", &claims), second.sign_as("2", &claims));
    assert_eq!(ask(&tollgate, &of_first), 200);
    assert_ne!(ask(&tollgate, &of_second), 200);

    let file = directory.path().join("keys");
    fs::write(&file, set(&[first.jwk("1"), second.jwk("2")])).unwrap();
    eventually("the second key counts", || ask(&tollgate, &of_second) == 200);
    assert_eq!(ask(&tollgate, &of_first), 200);
    fs::write(&file, set(&[second.jwk("2")])).unwrap();
    eventually("the first key counts no more", || ask(&tollgate, &of_first) != 200);
    assert_eq!(ask(&tollgate, &of_second), 200);
    let short = json!({"kty": "RSA", "alg": "RS256", "kid": "short", "e": "AQAB", "n": "AQAB"});
    fs::write(&file, set(&[short, first.jwk("1")])).unwrap();
    eventually("the first key is back beside one that is too short", || ask(&tollgate, &of_first) == 200);
    let log = tollgate.log();
    assert_eq!(log.iter().filter(|line| line.contains("key `short` is ignored")).count(), 1, "{log:#?}");
}
