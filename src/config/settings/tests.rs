//! Checks the declaration of each setting against its reader.

use std::{io, path::Path};

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Map, Value, json};

use super::{
    Default, Kind, Mapping, Rule, SettingEntry,
    entries::{PathStep, entries},
    explain,
};
use crate::config::{self, Errors, Lookup, resolved::Config};

/// A machine that has every variable and every file.
struct Machine {
    pair: CertifiedKey<KeyPair>,
}

impl Machine {
    fn new() -> Self {
        let names = vec!["api.example.com".to_owned()];
        Self { pair: generate_simple_self_signed(names).unwrap() }
    }

    fn load(&self, document: &Value) -> Result<Config, Errors> {
        config::parse("proxy.yaml", &document.to_string(), self)
    }
}

impl Lookup for Machine {
    fn variable(&self, name: &str) -> Option<String> {
        let value = match name {
            "HOOK_URL" => "https://hooks.example.com/T0/B0",
            _ => "9c1185a5c5e9fc54612808977ee8f548b2258d31",
        };
        Some(value.to_owned())
    }

    fn read_text(&self, _: &Path) -> io::Result<String> {
        Ok("9c1185a5c5e9fc54612808977ee8f548b2258d31\n".to_owned())
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = match path.to_str().unwrap() {
            "keys/public.pem" => self.pair.signing_key.public_key_pem(),
            name if name.ends_with(".key") => self.pair.signing_key.serialize_pem(),
            name if name.ends_with(".pem") => self.pair.cert.pem(),
            "blocked.txt" => "192.0.2.1\n".to_owned(),
            "keys.yaml" => "keys: []\n".to_owned(),
            "endpoints.yaml" => "- http://10.0.0.5:3000\n".to_owned(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(text.into_bytes())
    }
}

/// YAML as it is written in examples.
fn yaml(text: &str) -> Value {
    let options = serde_yaml::options! { strict_booleans: true };
    serde_yaml::from_str_with_options(text, options).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn mapping(text: &str) -> Map<String, Value> {
    match yaml(&format!("{{ {text} }}")) {
        Value::Object(members) => members,
        other => panic!("{text}: {other}"),
    }
}

/// The sections that every configuration needs.
fn base() -> Map<String, Value> {
    mapping(
        "trusted_proxies: [10.0.0.0/8], \
         listeners: [{ address: 127.0.0.1:8443, name: internal, tls: { certificates: [{ cert: a.pem, key: a.key }], client_ca: c.pem } }, \
                     { address: 127.0.0.1:8444, serves: decisions }], \
         user: [{ jwt: { key: { file: keys/public.pem }, algorithm: ES256 } }, { header: x-user-id }], \
         policies: { per-ip: { algorithm: gcra, key: ip, limit: 1000000000/1s }, \
                     monthly: { algorithm: fixed_window, key: customer, limit: 1000000000/month } }, \
         api_keys: { file: keys.yaml }, \
         values: { model: { json: model } }, \
         upstreams: { api: { endpoints: [\"http://127.0.0.1:3000\"] }, canary: { endpoints: [\"http://127.0.0.1:3009\"] } }, \
         routes: [{ path: /*, upstream: api }]",
    )
}

/// Settings that a setting needs in a mapping above it, and that its example does not show. `*`: all that begin so.
const CONTEXTS: [(&str, &str, &str); 10] = [
    ("alerts*", "alerts", "history: { store: { file: history.db } }"),
    ("upstreams.*.health.service", "upstreams.*.health", "protocol: h2"),
    ("upstreams.*.health.type", "upstreams.*.health", "protocol: h2"),
    (
        "store.redis.database",
        "store.redis.database",
        "sentinel: { master: m, nodes: [\"redis://10.0.0.1:26379\"] }",
    ),
    ("policies.*.cost", "policies.*.cost", "limit: 1000000000/1m"),
    ("policies.*.cost.max", "policies.*.cost", "limit: 1000000000/1m"),
    ("policies.*.cost.default", "policies.*.cost.default", "max: 1000000000"),
    ("policies.*.cost.default", "policies.*.cost", "limit: 1000000000/1m"),
    ("policies.*.overrides[].value:*", "policies.*.overrides", "key: \"ip+value:model\""),
    ("upstreams.*.sticky.max_age", "upstreams.*.sticky", "slow_start: 0s"),
];

/// A configuration in which the setting has this value. `None`: it is left out.
fn document(entry: &SettingEntry, value: Option<Value>) -> Value {
    let own = entry.path();
    let mut built = value;
    for depth in (0..entry.steps.len()).rev() {
        built = Some(match entry.steps[depth] {
            PathStep::Item => json!([built.unwrap()]),
            PathStep::Name => json!({ "example": built.unwrap() }),
            PathStep::Key(setting) => {
                let steps = entry.steps[..=depth].to_vec();
                let here = SettingEntry { steps, ..entry.clone() }.path();
                let above = entries().into_iter().find(|entry| entry.path() == here).unwrap().mapping;
                let mut beside = mapping(setting.beside);
                for (of, at, more) in CONTEXTS {
                    let is_one = of.strip_suffix('*').map_or(of == own, |begin| own.starts_with(begin));
                    if is_one && at == here {
                        beside.extend(mapping(more));
                    }
                }
                let key = match setting.key {
                    "tls:*" => "tls:subject".to_owned(),
                    "value:*" => "value:model".to_owned(),
                    key => key.replace('*', "example"),
                };
                let mut members = beside;
                if let Some(value) = built {
                    members.insert(key.clone(), value);
                }
                for (name, sample) in mapping(above.sample) {
                    if name != key && !conflicts(above, &name, &members) {
                        members.entry(name).or_insert(sample);
                    }
                }
                Value::Object(members)
            }
        });
    }
    let mut all = base();
    for (key, value) in built.unwrap().as_object().unwrap() {
        match (all.get_mut(key), value) {
            (Some(Value::Object(members)), Value::Object(more)) if key != "client_limits" => {
                members.extend(more.clone());
            }
            (Some(Value::Array(items)), Value::Array(more)) if key == "routes" => {
                items.splice(..0, more.clone());
            }
            _ => {
                all.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(all)
}

/// Whether a rule excludes `name` beside `members`.
fn conflicts(mapping: &Mapping, name: &str, members: &Map<String, Value>) -> bool {
    mapping.rules.iter().any(|rule| match rule {
        Rule::One(keys) | Rule::AtMostOne(keys) => {
            keys.contains(&name)
                && keys.iter().any(|key| match key.strip_suffix('*') {
                    Some(prefix) => members.keys().any(|member| member.starts_with(prefix)),
                    None => members.contains_key(*key),
                })
        }
        // It needs another one, which is excluded.
        Rule::With(one, other) => {
            *one == name && !members.contains_key(*other) && conflicts(mapping, other, members)
        }
        Rule::NotWhere(one, other, values) => {
            *one == name
                && members.get(*other).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
        }
        _ => false,
    })
}

/// The errors of a configuration, with their help.
fn errors(found: &Result<Config, Errors>) -> String {
    found.as_ref().err().map(ToString::to_string).unwrap_or_default()
}

/// Fails with all errors.
#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_setting_is_described_in_full_and_its_example_is_right() {
    let machine = Machine::new();
    let all = entries();
    let mut wrong = Vec::new();
    assert!(all.len() > 200, "{}", all.len());
    for entry in &all {
        let (path, setting) = (entry.path(), entry.setting);
        for see in setting.see {
            if !all.iter().any(|other| other.path() == *see) {
                wrong.push(format!("{path}: no setting is {see}"));
            }
        }
        if !setting.about.ends_with('.') || setting.example.is_empty() {
            wrong.push(format!("{path}: {}, {:?}", setting.about, setting.example));
            continue;
        }
        let found = machine.load(&document(entry, Some(yaml(setting.example))));
        if found.is_err() {
            wrong.push(format!("{path}: {}", errors(&found)));
        }
    }
    none(&wrong);
}

#[test]
fn a_setting_that_is_left_out_has_its_default() {
    let machine = Machine::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in entries() {
        let without = || machine.load(&document(&entry, None));
        match entry.setting.default {
            Default::Value(value) => {
                count += 1;
                let with = machine.load(&document(&entry, Some(yaml(value))));
                let without = without();
                if with.is_err() || with.as_ref().ok() != without.as_ref().ok() {
                    wrong.push(format!("{}: {value}: {}{}", entry.path(), errors(&with), errors(&without)));
                }
            }
            // The others are beside a route.
            Default::Required
                if entry.mapping.requires(entry.setting) && entry.path() != "routes" && without().is_ok() =>
            {
                wrong.push(format!("{}: it is not required", entry.path()));
            }
            _ => {}
        }
    }
    assert!(count > 60, "{count}");
    none(&wrong);
}

/// A value beyond the end of a range, and the message that the reader must give.
fn beyond(kind: &Kind) -> Option<(Value, Vec<String>)> {
    let ends = || {
        let name = kind.name();
        let (_, ends) = name.rsplit_once("from ")?;
        Some(ends.split(" to ").map(str::to_owned).collect())
    };
    match kind {
        Kind::Count(_, most) => Some((json!(most + 1), ends()?)),
        Kind::Duration(_, most) => Some((json!(format!("{}ms", most + 1)), ends()?)),
        Kind::Size(_, most) => Some((json!(most + 1), ends()?)),
        Kind::Percentage(true, most) if *most < 100 => Some((json!(format!("{}%", most + 1)), ends()?)),
        Kind::Percentage(true, _) => Some((json!("100.1%"), vec!["is more than 100%".to_owned()])),
        Kind::Percentage(false, _) => Some((json!("0%"), vec!["more than 0%".to_owned()])),
        Kind::Word(words) => Some((json!("nonsense"), words.iter().map(|word| (*word).to_owned()).collect())),
        Kind::Boolean => Some((json!("nonsense"), vec!["one of true, false".to_owned()])),
        _ => None,
    }
}

/// Settings whose words are not read by `choice`, which lists all words in its help.
const UNLISTED: [&str; 5] = ["redis.database", "status", "upstreams.*.outlier", ".limit", "redirect.status"];

#[test]
fn ranges_and_words_are_those_of_the_reader() {
    let machine = Machine::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in entries() {
        let path = entry.path();
        let kinds = match &entry.setting.kind {
            Kind::Either(kinds) => kinds,
            kind => std::slice::from_ref(kind),
        };
        for (value, said) in kinds.iter().filter_map(beyond) {
            let is_unlisted = UNLISTED.iter().any(|end| path.ends_with(end));
            count += 1;
            let told = errors(&machine.load(&document(&entry, Some(value.clone()))));
            let help =
                told.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
            if told.is_empty() || !is_unlisted && !said.iter().all(|end| help.contains(end)) {
                wrong.push(format!("{path}: {value}: expected {said:?}: {help}"));
            }
        }
    }
    assert!(count > 90, "{count}");
    none(&wrong);
}

#[test]
fn a_setting_is_found_by_its_place_in_the_file() {
    let first = |name: &str| explain(name).unwrap().lines().next().unwrap().to_owned();
    for name in ["policies.*.slice", "policies.per-ip.slice", "slice"] {
        assert_eq!(first(name), "policies.*.slice", "{name}");
    }
    for name in [
        "listeners[].tls.min_version",
        "listeners.0.tls.min_version",
        "listeners[3].tls.min_version",
        "listeners.*.tls.min_version",
    ] {
        assert_eq!(first(name), "listeners[].tls.min_version", "{name}");
    }
    assert_eq!(first("policies.login.overrides.0.jwt:plan"), "policies.*.overrides[].jwt:*");
    assert_eq!(first("bans.hammering.for"), "bans.*.for");
    assert_eq!(first("bans.close_tunnels"), "bans.close_tunnels");
    assert_eq!(explain("ipv6_prefix").unwrap().matches("default").count(), 1);
    assert!(explain("max_body").unwrap().contains("\nroutes[].max_body\n"));
    let error = |name: &str| explain(name).unwrap_err();
    assert_eq!(
        error("policies.*.slize"),
        "no setting is named `policies.*.slize`; did you mean `policies.*.slice`?"
    );
    assert!(error("polices.x.slice").contains("`policies.*.slice`"), "{}", error("polices.x.slice"));
    assert!(error("qqq").ends_with("docs/reference.md lists them all"), "{}", error("qqq"));
    assert!(explain("").is_err());
}
