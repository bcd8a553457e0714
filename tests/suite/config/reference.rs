//! The reference of all settings, and the JSON Schema: generated, and right.
//!
//! `UPDATE_GOLDEN=1` writes both anew.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use jsonschema::Validator;
use serde_json::Value;
use tollgate::config::{self, settings};

use super::{
    environment::Environment,
    golden::{doubtful, golden},
    shipped::Machine,
};
use crate::harness::tollgate;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn is_golden(name: &str, found: &str) {
    let path = root().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == found, "{name} lags behind the settings; run the tests with UPDATE_GOLDEN=1");
}

#[test]
fn the_reference_is_generated_from_the_settings() {
    is_golden("docs/reference.md", &settings::markdown());
}

#[test]
fn the_shipped_schema_is_what_the_command_prints() {
    let ended = tollgate(&["schema"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    is_golden("proxy.schema.json", &ended.stdout);
    let shipped = fs::read_to_string(root().join("proxy.yaml")).unwrap();
    assert!(shipped.starts_with("# yaml-language-server: $schema=proxy.schema.json\n"), "{shipped:.100}");
}

/// A file as an editor reads it. `None`: it is not YAML.
fn yaml(text: &str) -> Option<Value> {
    let options = serde_yaml::options! { strict_booleans: true };
    serde_yaml::from_str_with_options(text.trim_start_matches('\u{feff}'), options).ok()
}

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&settings::json_schema()).unwrap());

/// Whether the schema accepts this file, and why not.
fn accepted(text: &str) -> Result<(), String> {
    let document = yaml(text).ok_or("not YAML")?;
    let errors: Vec<_> = VALIDATOR
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()).chars().take(300).collect::<String>())
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

#[test]
fn the_schema_is_a_schema() {
    let schema = settings::json_schema();
    assert!(jsonschema::meta::is_valid(&schema));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for wrong in ["routes: []", "routes: [{ path: 1 }]", "worker: 2", "", "{}", "routes:"] {
        assert!(accepted(wrong).is_err(), "{wrong}");
    }
    accepted("routes: [{ path: /*, reply: { status: 204 } }]").unwrap();
}

/// The golden files that the check refuses and the schema accepts, and why. A schema sees one value at a time, and has
/// neither files nor the environment.
const BEYOND: [(&str, &[&str]); 6] = [
    (
        "Settings far from each other contradict each other: the address and the token of the admin port, the scheme of a \
         URL and `tls`, `user` and what needs users, names and paths of two routes, the names of listeners.",
        &[
            "admin_without_token",
            "alerts_of_wrong_policies",
            "alerts_without_history",
            "api_keys_missing",
            "api_keys_without_keys",
            "bans_of_users",
            "body_memory",
            "credentials_required",
            "domain_for_a_host",
            "history_of_each_instance",
            "listeners_without_names",
            "policy_named_api_keys",
            "policy_named_api_keys_beside_users",
            "policy_of_wrong_keys",
            "redis_tls_in_clear",
            "route_names_taken",
            "routes_never_reached",
            "values_unread",
        ],
    ),
    ("It takes arithmetic: a share of a limit.", &["slices"]),
    ("It takes counting: a list is too long.", &["many_limits"]),
    (
        "A variable or a file is not there, or what it holds is wrong.",
        &[
            "abuse_users",
            "certificate_inserted",
            "empty_token_inserted",
            "missing_variables",
            "redis_tls_damaged",
            "redis_tls_files",
            "redis_tls_pair",
            "redis_tls_swapped",
            "redis_url_port_inserted",
            "secrets_in_braces",
            "redis_url_variable",
            "secrets",
            "token_keys",
            "variables_as_secrets",
        ],
    ),
    (
        "The parts of a URL have a parser of their own. An expression for them would say only that the URL is wrong, where \
         the check says what is wrong with it.",
        &[
            "history_urls",
            "redis_url_database",
            "redis_url_fallback",
            "redis_url_insecure",
            "redis_url_no_host",
            "redis_url_password_as_user",
            "redis_url_password_with_slash",
            "redis_url_port_too_high",
            "redis_url_port_zero",
            "redis_url_query",
            "redis_url_socket_with_host",
        ],
    ),
    ("Some names of headers have another meaning.", &["fields_taken", "request_id_with_a_meaning"]),
];

#[test]
fn the_schema_refuses_what_the_check_refuses() {
    let mut listed: BTreeSet<&str> = BEYOND.iter().flat_map(|(_, names)| *names).copied().collect();
    let mut unlisted = Vec::new();
    for path in golden() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_accepted = accepted(&fs::read_to_string(&path).unwrap()).is_ok();
        if is_accepted && !listed.remove(name.as_str()) {
            unlisted.push(name);
        }
    }
    assert!(unlisted.is_empty(), "the schema accepts these, and the check does not: {unlisted:#?}");
    assert!(listed.is_empty(), "the schema refuses these by now: {listed:#?}");
}

#[test]
fn the_schema_accepts_what_the_check_accepts() {
    let mut files: Vec<PathBuf> = doubtful();
    for (directory, depth) in
        [("", 1), ("deploy", 1), ("benches/peers", 1), ("examples", 2), ("tests/suite/config", 1)]
    {
        collect(&root().join(directory), depth, &mut files);
    }
    assert!(files.len() > 50, "{}", files.len());
    let mut wrong = Vec::new();
    for path in files {
        // The keys of the tests are of elliptic curves.
        let text = fs::read_to_string(&path).unwrap().replace("algorithm: RS256", "algorithm: ES256");
        let check = match doubtful().contains(&path) {
            true => config::parse("proxy.yaml", &text, &Environment),
            false => config::parse("proxy.yaml", &text, &Machine),
        };
        if let Err(error) = check {
            wrong.push(format!("{}: the check: {error}", path.display()));
        }
        if let Err(error) = accepted(&text) {
            wrong.push(format!("{}: the schema: {error}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The configurations of Tollgate in a directory.
fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && depth > 1 {
            collect(&path, depth - 1, files);
        } else if name == "full.yaml"
            || name.starts_with("proxy") && name.ends_with(".yaml")
            || directory.ends_with("benches/peers") && name.ends_with(".yaml")
        {
            files.push(path);
        }
    }
}

/// The keys of all mappings in it, each with its path, as [`settings::entries`] write them.
fn keys(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                all.insert(path.clone());
                keys(value, &path, all);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{path}[]"), all)),
        _ => {}
    }
}

#[test]
fn every_setting_of_the_full_configuration_is_in_the_reference() {
    let text = fs::read_to_string(root().join("tests/suite/config/full.yaml")).unwrap();
    let mut written = BTreeSet::new();
    keys(&yaml(&text).unwrap(), "", &mut written);
    assert!(written.len() > 180, "{}", written.len());
    let page = settings::markdown();
    // Below these, keys are names that the operator chooses.
    let names = ["headers", "set", "add", "query", "cookie"];
    for path in written {
        let above = path.rsplit('.').nth(1).unwrap_or_default();
        if names.contains(&above) || ["policies", "upstreams", "bans"].contains(&above) {
            continue;
        }
        let entry = settings::explain(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let found = entry.lines().next().unwrap();
        assert!(page.contains(&format!("\n### `{found}`\n")), "{path}: {found}");
    }
}

#[test]
fn a_command_explains_a_setting() {
    let ended = tollgate(&["explain-setting", "policies.*.slice"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for part in
        ["policies.*.slice\n", "a percentage from 0% to 50%", "default   0%", "slice: 5%", "docs/limits.md"]
    {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    let unknown = tollgate(&["explain-setting", "policies.x.slyce"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        unknown.stderr,
        "tollgate: no setting is named `policies.x.slyce`; did you mean `policies.*.slice`?\n"
    );
}
