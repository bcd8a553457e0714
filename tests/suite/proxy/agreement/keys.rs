//! API keys of random configurations: the settings, the file that lists them, and the keys and tokens of requests.

use std::path::{Path, PathBuf};

use jsonwebtoken::Algorithm;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::generator::{Dice, Kind, WINDOW};
use crate::harness::{Issuer, in_seconds};

/// A key of the file.
#[derive(Debug)]
pub struct Key {
    pub text: &'static str,
    pub id: &'static str,
    pub customer: &'static str,
    pub plan: Option<&'static str>,
    /// Whether it has expired.
    is_expired: bool,
    /// Whether it is for some routes only.
    is_bound: bool,
}

const fn key(text: &'static str, id: &'static str, customer: &'static str) -> Key {
    Key { text, id, customer, plan: None, is_expired: false, is_bound: false }
}

const KEYS: [Key; 7] = [
    Key {
        plan: Some("pro"),
        ..key("tgk_acmeacme01_0123456789abcdefghijABCDEFGHIJ01_000000", "acme1", "acme")
    },
    Key { plan: Some("pro"), ..key("acme-second-key-0001", "acme2", "acme") },
    Key {
        plan: Some("free"),
        ..key("tgk_globex0001_0123456789abcdefghijABCDEFGHIJ01_000000", "globex1", "globex")
    },
    Key { plan: Some("all"), ..key("initech-key-00000001", "initech1", "initech") },
    key("tgk_umbrella01_0123456789abcdefghijABCDEFGHIJ01_000000", "umbrella1", "umbrella"),
    Key { is_bound: true, ..key("umbrella-bound-key-1", "umbrella2", "umbrella") },
    Key { is_expired: true, ..key("acme-expired-key-001", "acme3", "acme") },
];

/// Texts that are no key of anybody.
const WRONG: [&str; 4] = [
    "tgk_acmeacme01_0123456789abcdefghijABCDEFGHIJ02_000000",
    "unknown-key-of-nobody",
    "short",
    "a key with spaces in it",
];

/// The parameter that holds a key.
const PARAMETER: &str = "api_key";

/// The files and tokens of a run.
pub struct Material {
    directory: PathBuf,
    pub issuer: PathBuf,
    /// Tokens: one that is valid, and others that are not.
    tokens: [String; 3],
}

impl Material {
    pub fn new(directory: &Path) -> Self {
        let (by, other) = (Issuer::new(Algorithm::ES256), Issuer::new(Algorithm::ES256));
        let issuer = directory.join("issuer.pem");
        std::fs::write(&issuer, by.public()).unwrap();
        let expired = by.sign(&json!({ "sub": "ann", "exp": in_seconds(-3600) }));
        let tokens = [by.token("ann"), expired, other.token("ann")];
        Self { directory: directory.to_owned(), issuer, tokens }
    }

    /// The file of keys.
    pub fn keys(&self) -> PathBuf {
        self.directory.join("keys.yaml")
    }

    /// Writes the keys for the routes and the plans of a configuration.
    pub fn write(&self, configuration: &str) {
        let has = |text: &str| configuration.contains(text);
        let mut file = "keys:\n".to_owned();
        for key in &KEYS {
            let hash: String =
                Sha256::digest(key.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            file += &format!("- {{ id: {}, hash: \"sha256:{hash}\", customer: {}", key.id, key.customer);
            if let Some(plan) = key.plan.filter(|_| has("\nplans:\n")) {
                file += &format!(", plan: {plan}");
            }
            if key.is_expired {
                file += ", expires: 2020-01-01";
            }
            if key.is_bound {
                let names = (0..10).map(|nth| format!("r{nth}"));
                let routes: Vec<_> = names.filter(|name| has(&format!("name: {name},"))).step_by(2).collect();
                file += &format!(", routes: [{}]", routes.join(", "));
            }
            file += " }\n";
        }
        std::fs::write(self.keys(), file).unwrap();
    }
}

/// `api_keys` of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    in_header: bool,
    in_bearer: bool,
    in_query: bool,
    pub forward: bool,
    /// Whether headers tell upstreams whose key it is.
    pub tells: bool,
    pub has_plans: bool,
}

/// The headers that tell upstreams whose key it is, and the fields of the log that say the same.
pub const TOLD: [(&str, &str); 3] =
    [("x-customer", "customer"), ("x-key-plan", "plan"), ("x-key-id", "api_key")];

/// Whether the log has all that decisions by customer, plan and key need, as far as the replay reads it.
pub fn are_replayed(kind: Kind) -> bool {
    kind != Kind::Replayable
}

/// Settings, and their text.
pub fn settings(dice: &mut Dice, kind: Kind, file: &Path) -> (Settings, String) {
    let from = dice.pick(&[
        "",
        "from: [{ header: x-api-key }]",
        "from: [bearer, { header: x-api-key }]",
        "from: [{ header: x-api-key }, bearer, { query: api_key }]",
        "from: [{ header: x-api-key }, bearer, { query: api_key }]",
        "from: [{ query: api_key }, bearer]",
    ]);
    let has = |place: &str| from.is_empty() && place != PARAMETER || from.contains(place);
    let settings = Settings {
        in_header: has("x-api-key"),
        in_bearer: has("bearer"),
        in_query: has(PARAMETER),
        forward: dice.chance(30),
        tells: dice.chance(50),
        has_plans: are_replayed(kind) && dice.chance(85),
    };
    let mut all = vec![format!("file: \"{}\"", file.display()), from.to_owned()];
    all.push(format!("attempts: {}/{WINDOW}", dice.pick(&[1, 1, 1, 1000])));
    all.extend(dice.maybe(50, &["required: false"]).map(str::to_owned));
    all.extend(settings.forward.then(|| "forward: true".to_owned()));
    if settings.tells {
        all.push("headers: { customer: x-customer, plan: x-key-plan, key: x-key-id }".to_owned());
    }
    all.retain(|setting| !setting.is_empty());
    (settings, format!("api_keys: {{ {} }}\n", all.join(", ")))
}

/// `plans`, with limits for those of the policies that may have others.
pub fn plans(dice: &mut Dice, policies: &[String], inexact: &[String]) -> String {
    let mut text = "plans:\n".to_owned();
    for plan in ["free", "pro", "all"] {
        let limits: Vec<String> = policies
            .iter()
            .filter_map(|policy| match plan {
                "all" => dice.chance(70).then(|| format!("{policy}: unlimited")),
                _ if inexact.contains(policy) => None,
                "free" => dice.chance(70).then(|| format!("{policy}: {}/{WINDOW}", dice.pick(&[2, 2, 3]))),
                _ => dice.chance(70).then(|| format!("{policy}: {}/{WINDOW}", dice.pick(&[4, 6]))),
            })
            .collect();
        text += &format!("  {plan}: {{ {} }}\n", limits.join(", "));
    }
    text
}

/// What a request has of keys.
#[derive(Debug, Default)]
pub struct SentKeys {
    /// The texts that must be nowhere but in the request, and with `forward` in the one for the upstream.
    pub concealed: Vec<&'static str>,
    /// The only key. `None`: none, or several.
    pub only: Option<&'static Key>,
}

impl Key {
    pub fn is_valid(&self) -> bool {
        !self.is_expired
    }
}

/// Gives a request keys and tokens.
pub fn add(
    dice: &mut Dice,
    settings: Settings,
    material: &Material,
    reads_tokens: bool,
    headers: &mut Vec<(&'static str, String)>,
    target: &mut String,
) -> SentKeys {
    headers.retain(|(name, _)| *name != "x-api-key");
    let mut sent = SentKeys::default();
    if dice.chance(12) {
        headers.push(("x-customer", "globex".to_owned()));
    }
    let has_authorization =
        |headers: &[(&str, String)]| headers.iter().any(|(name, _)| *name == "authorization");
    if reads_tokens && !has_authorization(headers) && dice.chance(40) {
        let token = dice.pick(&[0, 1, 2]);
        headers.push(("authorization", format!("Bearer {}", material.tokens[token])));
    } else if !has_authorization(headers) && dice.chance(6) {
        headers.push(("authorization", "Bearer a-token-of-the-upstream".to_owned()));
    }
    let count = match dice.0.u8(..100) {
        0..15 => 0,
        15..92 => 1,
        _ => 2,
    };
    let mut texts = Vec::new();
    for _ in 0..count {
        let known = if dice.chance(70) { Some(&KEYS[dice.0.usize(..KEYS.len())]) } else { None };
        let text = known.map_or_else(|| dice.pick(&WRONG), |key| key.text);
        let is_bearer = text.starts_with("tgk_") || dice.chance(20);
        let places: Vec<&str> = [
            ("header", settings.in_header),
            ("bearer", settings.in_bearer && is_bearer && !has_authorization(headers)),
            ("query", settings.in_query && target.starts_with('/')),
        ]
        .into_iter()
        .filter_map(|(place, is_there)| is_there.then_some(place))
        .collect();
        let Some(&place) = places.get(dice.0.usize(..places.len().max(1))) else { continue };
        match place {
            "header" => headers.push(("x-api-key", text.to_owned())),
            "bearer" => headers.push(("authorization", format!("Bearer {text}"))),
            _ => {
                let before = match target.split_once('?') {
                    None => "?",
                    Some((_, "")) => "",
                    Some(_) => "&",
                };
                *target += &format!("{before}{PARAMETER}={}", text.replace(' ', "+"));
            }
        }
        texts.push(text);
        // A bearer token without the prefix may be the upstream's, and a short text is in others.
        let is_key = place != "bearer" || text.starts_with("tgk_");
        sent.concealed.extend(Some(text).filter(|text| is_key && text.len() >= 16 && !text.contains(' ')));
        sent.only = known.filter(|_| place != "bearer" || is_key);
    }
    if texts.windows(2).any(|two| two[0] != two[1]) {
        sent.only = None;
    }
    if settings.in_query && dice.chance(5) {
        headers.push(("referer", format!("https://api.example.com/?{PARAMETER}={}", KEYS[0].text)));
    }
    sent
}

/// A target without the keys in its query.
pub fn without_key(target: &str) -> String {
    let is_key = |part: &&str| part.split('=').next() == Some(PARAMETER);
    match target.split_once('?') {
        Some((path, query)) if query.split('&').any(|part| is_key(&part)) => {
            let kept: Vec<_> = query.split('&').filter(|part| !is_key(part)).collect();
            let kept = kept.join("&");
            if kept.is_empty() { path.to_owned() } else { format!("{path}?{kept}") }
        }
        _ => target.to_owned(),
    }
}
