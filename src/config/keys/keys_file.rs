//! The file of API keys, for those who keep them in git.

use std::collections::BTreeMap;

use compact_str::CompactString;
use foldhash::HashMap;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::Deserialize;

use crate::{
    api_keys::{ApiKey, KeyHash, KeySecret, KeyState, MAX_FILE_KEYS},
    config::{FileLocation, Problem, nearest::suggestion, yaml},
};

/// Most problems that are collected: nobody reads more.
const MAX_PROBLEMS: usize = 20;

/// The names that the keys of a file may refer to, and how strictly they are read.
#[derive(Debug, Clone)]
pub struct KeysFileRules {
    /// The names of the plans. `None`: any.
    pub plans: Option<Vec<String>>,
    /// The names of the routes.
    pub routes: Vec<String>,
}

/// The keys of a file.
#[derive(Debug, Clone, Default)]
pub struct KeysInFile {
    pub keys: Vec<ApiKey>,
    /// The warnings, each with its line.
    pub warnings: Vec<String>,
}

/// A key as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    id: CompactString,
    hash: Option<String>,
    hashes: Option<Vec<String>>,
    customer: CompactString,
    plan: Option<CompactString>,
    #[serde(default)]
    name: CompactString,
    expires: Option<String>,
    #[serde(default)]
    routes: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl KeysFileRules {
    /// Reads the keys of a file, in YAML or JSON: `keys:` with a list of `{ id, hash, customer, … }`. `now`:
    /// microseconds since the Unix epoch.
    ///
    /// # Errors
    /// The first problem in one line, and the number of the others.
    pub fn read(&self, bytes: &[u8], now: i64) -> Result<KeysInFile, String> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
        let mut reading = KeysReading::new(self, now);
        let read = yaml::read_listing(text, "keys", |location, written| reading.take(location, written));
        // Errors come in the order of their lines.
        let mut problems = reading.problems;
        problems.extend(read.err());
        match problems.split_first() {
            None => Ok(KeysInFile { keys: reading.keys, warnings: reading.warnings }),
            Some((first, [])) => Err(first.in_one_line()),
            Some((first, others)) => Err(format!("{} (and {} more)", first.in_one_line(), others.len())),
        }
    }
}

/// The keys that were read so far.
struct KeysReading<'r> {
    rules: &'r KeysFileRules,
    now: i64,
    keys: Vec<ApiKey>,
    /// The lines of the IDs and of the hashes.
    ids: HashMap<CompactString, usize>,
    hashes: HashMap<KeyHash, usize>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl<'r> KeysReading<'r> {
    fn new(rules: &'r KeysFileRules, now: i64) -> Self {
        let (keys, problems, warnings) = Default::default();
        let (ids, hashes) = (HashMap::default(), HashMap::default());
        Self { rules, now, keys, ids, hashes, problems, warnings }
    }

    fn take(&mut self, location: FileLocation, written: WrittenKey) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        if self.keys.len() >= MAX_FILE_KEYS {
            self.problems.push(Problem::new(location, format!("a file has {MAX_FILE_KEYS} keys at most")));
            return;
        }
        let id = written.id.clone();
        match self.key(location, written) {
            Ok(key) => self.keys.push(key),
            Err((message, help)) => {
                self.problems.push(Problem::new(location, format!("key `{id}`: {message}")).help(help));
            }
        }
    }

    fn warn(&mut self, location: FileLocation, message: &str) {
        if self.warnings.len() < MAX_PROBLEMS {
            self.warnings.push(format!("line {}: {message}", location.line));
        }
    }

    fn key(
        &mut self,
        location: FileLocation,
        written: WrittenKey,
    ) -> Result<ApiKey, (String, Option<String>)> {
        let WrittenKey { id, hash, hashes, customer, plan, name, expires, routes, labels } = written;
        let plain = |message: String| (message, None);
        if let Some(line) = self.ids.insert(id.clone(), location.line) {
            return Err(plain(format!("this ID is used in line {line} already")));
        }
        let hashes = match (hash, hashes) {
            (Some(hash), None) => vec![hash],
            (None, Some(hashes)) if !hashes.is_empty() => hashes,
            (Some(_), Some(_)) => return Err(plain("has `hash` and `hashes`: write one of them".to_owned())),
            _ => {
                let help = "such as `hash: \"sha256:…\"`: `tollgate keys create --file` writes it".to_owned();
                return Err(("`hash` is missing".to_owned(), Some(help)));
            }
        };
        let mut secrets = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let hash = KeyHash::parse(&hash).ok_or_else(|| {
                let help =
                    "`sha256:` and the 64 hexadecimal digits of the key's SHA-256, never the key itself";
                ("the hash is not one".to_owned(), Some(help.to_owned()))
            })?;
            if let Some(line) = self.hashes.insert(hash, location.line) {
                return Err(plain(format!("the same hash is in line {line} already")));
            }
            secrets.push(KeySecret { hash, created: 0, expires: None });
        }
        if let Some(plan) = &plan
            && let Some(plans) = &self.rules.plans
            && !plans.iter().any(|known| known == plan)
        {
            let known = plans.iter().map(String::as_str);
            return Err((format!("there is no plan `{plan}`"), suggestion(plan, known, "known plans:")));
        }
        let expires = expires.map(|text| instant(&text)).transpose()?;
        if expires.is_some_and(|expires| expires <= self.now) {
            // Not an error: it would keep the file from being read again, and a machine from starting at night. The key
            // is still known, so that it is no guess.
            self.warn(location, &format!("key `{id}` has expired: remove it"));
        }
        for route in routes.iter().filter(|route| !self.rules.routes.contains(route)).take(1) {
            self.warn(location, &format!("key `{id}`: there is no route `{route}`"));
        }
        let key = ApiKey {
            id,
            secrets,
            customer,
            plan,
            name,
            labels,
            created: 0,
            expires,
            routes,
            state: KeyState::Active,
            changed: 0,
        };
        key.check().map_err(plain)?;
        Ok(key)
    }
}

/// Parses a time, or a date, at whose beginning in UTC a key expires, into microseconds since the Unix epoch.
fn instant(text: &str) -> Result<i64, (String, Option<String>)> {
    let time = text.parse::<Timestamp>().or_else(|_| {
        let date: Date = text.parse()?;
        date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    time.map(|time| time.as_microsecond()).map_err(|_| {
        let help = "a time such as `2027-01-31T12:00:00Z`, or a date such as `2027-01-31`".to_owned();
        (format!("`{text}` is no time"), Some(help))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of 2026.
    const NOW: i64 = 1_767_225_600_000_000;

    fn rules() -> KeysFileRules {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        KeysFileRules { plans: Some(names(&["free", "pro"])), routes: names(&["api"]) }
    }

    fn hash(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    fn read(text: &str) -> Result<KeysInFile, String> {
        rules().read(text.replace("HASH", &hash('a')).replace("OTHER", &hash('b')).as_bytes(), NOW)
    }

    #[test]
    fn keys_are_read_in_yaml_and_in_json() {
        let yaml = "# ours\nkeys:\n  - { id: ci, hash: HASH, customer: acme, plan: pro, name: CI of 7, expires: 2027-01-31 }\n  - id: web\n    hashes: [\"OTHER\"]\n    customer: 007\n    routes: [api]\n    labels: { team: web }\n";
        let found = read(yaml).unwrap();
        let [ci, web] = &found.keys[..] else { panic!("{found:?}") };
        assert_eq!(
            (&*ci.id, &*ci.customer, ci.plan.as_deref(), &*ci.name),
            ("ci", "acme", Some("pro"), "CI of 7")
        );
        assert_eq!(ci.expires, Some(1_801_353_600_000_000));
        assert!(KeyHash::parse(&hash('a')) == Some(ci.secrets[0].hash));
        assert_eq!(
            (&*web.customer, &web.routes[..], &*web.labels["team"]),
            ("007", &["api".to_owned()][..], "web")
        );
        assert_eq!(found.warnings, [""; 0]);
        let json = r#"{"keys": [{"id": "ci", "hash": "HASH", "customer": "acme"}]}"#;
        assert_eq!(read(json).unwrap().keys.len(), 1);
        assert_eq!(read("keys: []").unwrap().keys.len(), 0);
        assert_eq!(read("keys:\n").unwrap().keys.len(), 0);
    }

    #[test]
    fn errors_in_the_file_have_their_line() {
        let entry = "keys:\n- { id: a, hash: HASH, customer: x }\n";
        for (more, error) in [
            ("- { id: a, hash: OTHER, customer: x }", "line 3: key `a`: this ID is used in line 2 already"),
            ("- { id: b, hash: HASH, customer: x }", "line 3: key `b`: the same hash is in line 2 already"),
            (
                "- { id: b, hash: OTHER, customer: x, plan: por }",
                "line 3: key `b`: there is no plan `por`; did you mean `pro`?",
            ),
            (
                "- { id: b, hash: OTHER, customer: x, expires: soon }",
                "line 3: key `b`: `soon` is no time; a time such as",
            ),
            ("- { id: b, hash: tgk_secret, customer: x }", "line 3: key `b`: the hash is not one; `sha256:`"),
            ("- { id: b, customer: x }", "line 3: key `b`: `hash` is missing; such as"),
            ("- { id: b, hash: OTHER, hashes: [], customer: x }", "line 3: key `b`: has `hash` and `hashes`"),
            ("- { id: b, hash: OTHER }", "line 3: `customer` is missing"),
            (
                "- { id: b, hash: OTHER, custmer: x }",
                "line 3: `custmer` is not known here; did you mean `customer`?",
            ),
            ("- { id: b c, hash: OTHER, customer: x }", "line 3: key `b c`: an ID has"),
            ("- { id: b, id: c, hash: OTHER, customer: x }", "line 3: this key appears twice"),
            ("- { id: b, hash: OTHER, customer:", "line "),
            ("- b", "line 3: "),
            ("plans: {}", "line 3: "),
        ] {
            let told = read(&format!("{entry}{more}\n")).unwrap_err();
            assert!(told.starts_with(error), "{more}: {told}");
            assert!(!told.contains("tgk_secret"), "{told}");
        }
        for text in ["", "[]", "keyz: []", "keys: 7", "keys: {}", "key"] {
            let told = read(text).unwrap_err();
            assert!(told.starts_with("line 1: "), "{text}: {told}");
        }
        assert!(
            read("keys:\n- { id: 1, customer: x }\n- { id: 2, customer: x }")
                .unwrap_err()
                .ends_with("(and 1 more)")
        );
        assert!(rules().read(b"keys: \xff", NOW).unwrap_err().contains("byte 6 is not UTF-8"));
    }

    #[test]
    fn doubtful_keys_are_warnings() {
        let text = format!(
            "keys:\n- {{ id: a, hash: {}, customer: x, routes: [ap], expires: 2025-12-31 }}",
            hash('a')
        );
        let found = rules().read(text.as_bytes(), NOW).unwrap();
        assert_eq!(
            found.warnings,
            ["line 2: key `a` has expired: remove it", "line 2: key `a`: there is no route `ap`"]
        );
        assert_eq!(found.keys.len(), 1);
    }
}
