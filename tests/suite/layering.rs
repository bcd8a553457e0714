//! Which module may use which. The tables here are the reference: this test reads the sources and fails on everything
//! that they do not allow. Code under `#[cfg(test)]` may use any module.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// Each module, and the other modules of the crate that it may use. A module that is not listed is part of its nearest
/// listed parent. A module that may use `limit` may use `limit::algorithm`. Permission to use `config::model`, the
/// resolved configuration, does not include `config`, which reads files and YAML.
const MAY_KNOW: [(&str, &[&str]); 41] = [
    ("main", &["cli"]),
    (
        "cli",
        &[
            "history",
            "app",
            "admin",
            "api_keys",
            "offline::convert",
            "file",
            "offline::access_logs",
            "offline::replay",
            "offline::suggest",
            "abuse",
            "memory_budget",
            "config",
            "config::model",
            "telemetry",
            "text",
        ],
    ),
    // The composition root uses everything below it, and only the commands use it.
    (
        "app",
        &[
            "alerts",
            "history",
            "file",
            "api_keys",
            "changes",
            "listener",
            "admin",
            "proxy",
            "identity",
            "upstream",
            "limit",
            "store",
            "store::memory",
            "store::redis",
            "peers",
            "abuse",
            "peaks",
            "memory_budget",
            "config::model",
            "telemetry",
        ],
    ),
    ("listener", &["changes", "proxy", "http2_frames", "limit", "tls", "file", "config::model", "telemetry"]),
    (
        "admin",
        &[
            "alerts",
            "history",
            "api_keys",
            "changes",
            "abuse",
            "peaks",
            "proxy",
            "router",
            "tls",
            "upstream",
            "limit",
            "memory_budget",
            "config::model",
            "telemetry",
            "text",
        ],
    ),
    // The tools that serve no request; nothing that serves one uses them.
    ("offline", &[]),
    (
        "offline::replay",
        &[
            "api_keys",
            "router",
            "abuse",
            "offline::access_logs",
            "proxy",
            "request_values",
            "identity",
            "limit",
            "store::memory",
            "config::model",
            "telemetry",
            "text",
        ],
    ),
    (
        "offline::suggest",
        &[
            "offline::replay",
            "offline::access_logs",
            "proxy",
            "identity",
            "limit",
            "store::memory",
            "config",
            "config::model",
            "telemetry",
            "text",
        ],
    ),
    ("alerts", &["history", "api_keys", "config::model", "http_client", "limit", "telemetry", "tls"]),
    ("http_client", &[]),
    // Below the request: sums that it hands over. Nothing waits for its threads.
    ("history", &["abuse", "api_keys", "config::model", "limit", "telemetry", "tls"]),
    ("offline::access_logs", &["router", "limit", "file"]),
    ("offline::convert", &["config", "config::model", "file"]),
    (
        "proxy",
        &[
            "alerts",
            "history",
            "api_keys",
            "router",
            "upstream",
            "identity",
            "tls",
            "limit",
            "abuse",
            "peaks",
            "memory_budget",
            "http2_frames",
            "request_values",
            "response_cost",
            "config::model",
            "telemetry",
        ],
    ),
    // Neither uses limits.
    ("router", &["config::model", "telemetry"]),
    ("upstream", &["changes", "http2_frames", "tls", "file", "config::model", "telemetry"]),
    (
        "identity",
        &[
            "http_client",
            "api_keys",
            "router",
            "request_values",
            "jwt_keys",
            "address_set",
            "tls",
            "file",
            "config::model",
            "telemetry",
        ],
    ),
    ("limit", &["limit::algorithm", "config::model", "telemetry"]),
    // Pure: integers in, integers out.
    ("limit::algorithm", &["memory_budget"]),
    // A store implements traits that other modules own. It uses neither these modules nor the peers.
    ("store", &["store::memory", "store::redis"]),
    ("store::memory", &["limit", "memory_budget"]),
    ("store::redis", &["file", "tls", "limit", "config::model", "telemetry"]),
    (
        "peers",
        &[
            "api_keys",
            "peers::bans::change_log",
            "api_keys",
            "store::redis",
            "upstream",
            "abuse",
            "limit",
            "config::model",
            "telemetry",
        ],
    ),
    // Pure: versions and times in, actions out.
    ("peers::bans::change_log", &[]),
    ("abuse", &["changes", "limit", "memory_budget", "config::model", "telemetry"]),
    ("peaks", &["limit", "memory_budget", "config::model", "telemetry"]),
    ("telemetry", &["file", "tls", "memory_budget", "config::model", "text"]),
    // The configuration uses only modules that use no other module.
    (
        "config",
        &[
            "api_keys",
            "file",
            "jwt_keys",
            "address_set",
            "tls",
            "memory_budget",
            "json_path",
            "request_values",
            "response_cost",
            "text",
        ],
    ),
    // Names of it, without how it is written and read; nobody else knows that.
    ("config::model", &["config"]),
    ("api_keys", &["changes", "file", "text"]),
    ("changes", &[]),
    ("tls", &[]),
    ("jwt_keys", &[]),
    ("address_set", &[]),
    ("file", &[]),
    ("http2_frames", &[]),
    ("memory_budget", &[]),
    // Pure: bytes in, numbers or bytes out.
    ("json_path", &[]),
    ("request_values", &["json_path"]),
    ("response_cost", &["json_path"]),
    ("text", &[]),
];

/// Crates that only some modules may use, with these modules or their parents.
const MAY_USE: [(&str, &[&str]); 39] = [
    ("serde_yaml", &["config"]),
    ("clap", &["cli"]),
    ("ratatui", &["cli"]),
    ("axum", &["admin"]),
    ("maud", &["admin", "offline::replay"]),
    ("prometheus_client", &["telemetry"]),
    ("tracing_subscriber", &["telemetry"]),
    ("socket2", &["listener", "upstream"]),
    ("tokio_rustls", &["listener", "upstream", "store::redis"]),
    ("hickory_resolver", &["upstream"]),
    ("rustls_native_certs", &["tls"]),
    ("webpki_roots", &["tls"]),
    ("ppp", &["listener"]),
    ("x509_cert", &["tls"]),
    ("listenfd", &["listener"]),
    ("command_fds", &["cli"]),
    ("nix", &["cli", "history", "listener", "file", "upstream", "limit"]),
    ("sd_notify", &["cli"]),
    ("hyper", &["listener", "proxy", "upstream", "admin", "cli", "telemetry::traces"]),
    ("hyper_util", &["listener", "proxy", "upstream", "admin", "cli", "telemetry::traces", "http_client"]),
    ("hyper_rustls", &["http_client"]),
    (
        "tokio",
        &[
            "alerts",
            "app",
            "changes",
            "history",
            "identity::jwt",
            "listener",
            "proxy",
            "upstream",
            "admin",
            "cli",
            "store::redis",
            "peers",
            "telemetry",
        ],
    ),
    ("rusqlite", &["history::sql"]),
    ("tokio_postgres", &["history::sql"]),
    ("rustls_tokio_postgres", &["history::sql"]),
    ("bb8_redis", &["store::redis", "peers"]),
    // By its re-export.
    ("redis", &["store::redis", "peers"]),
    ("rmp", &["store::redis"]),
    ("postcard", &["history", "peers"]),
    ("prost", &["proxy", "upstream"]),
    ("glob", &["file"]),
    ("regex", &["config", "offline::convert", "request_values"]),
    ("regex_syntax", &["config", "offline::convert"]),
    ("jsonwebtoken", &["identity", "jwt_keys"]),
    ("icu_properties", &["text", "request_values"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry::traces"]),
    ("opentelemetry_otlp", &["telemetry::traces"]),
    ("opentelemetry_http", &["telemetry::traces"]),
];

/// Pure modules, and everything that they may use from outside the crate.
const PURE: [(&str, &[&str]); 2] = [
    (
        "limit::algorithm",
        &[
            "std::collections",
            "std::iter",
            "std::sync::Arc",
            "smallvec",
            "compact_str::CompactString",
            // For the metadata of an entry.
            "http::Method",
            // Of this crate: the size of heap blocks.
            "heap",
        ],
    ),
    ("peers::bans::change_log", &["std::collections", "std::time"]),
];

/// A source file: its module and its text.
struct Source {
    module: Vec<String>,
    text: String,
}

impl Source {
    /// `path`: relative to `src`.
    fn new(path: &Path, text: &str) -> Self {
        let mut module: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let file = module.pop().unwrap();
        match file.trim_end_matches(".rs") {
            "mod" | "lib" => {}
            name => module.push(name.to_owned()),
        }
        Self { module, text: code(text) }
    }

    /// The most specific module of the table that this module is part of.
    fn layer(&self) -> &'static str {
        layer(&self.module).unwrap_or("")
    }

    /// All names that it uses by a path: `std::sync::Arc`, `crate::limit::Store`.
    fn paths(&self) -> BTreeSet<Vec<String>> {
        let mut found = BTreeSet::new();
        let words = words(&self.text);
        let mut at = 0;
        while at < words.len() {
            let begins = is_name(words[at]) && words.get(at + 1).is_some_and(|next| *next == "::");
            at = if begins { branch(&words, at, &mut Vec::new(), &mut found) } else { at + 1 };
        }
        found.into_iter().map(|path| self.absolute(path)).collect()
    }

    /// `super::super::x` as `crate::…`.
    fn absolute(&self, mut path: Vec<String>) -> Vec<String> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        if ups > 0 {
            let above = self.module.len().saturating_sub(ups);
            path.splice(
                ..ups,
                std::iter::once("crate".to_owned()).chain(self.module[..above].iter().cloned()),
            );
        }
        path
    }

    /// The paths that it uses without permission.
    fn violations(&self) -> Vec<String> {
        let of = self.layer();
        let allowed = MAY_KNOW.iter().find(|(module, _)| *module == of).map_or(&[][..], |(_, known)| known);
        let mut violations = Vec::new();
        for path in self.paths() {
            let forbidden = if path[0] == "crate" {
                layer(&path[1..]).is_some_and(|known| known != of && !covers(allowed, known))
            } else if let Some((_, may_use)) = PURE.iter().find(|(module, _)| *module == of) {
                let written = path.join("::");
                is_foreign(&path[0]) && !may_use.iter().any(|allowed| written.starts_with(allowed))
            } else {
                let users = MAY_USE.iter().find(|(name, _)| *name == path[0]);
                let module = self.module.join("::");
                users.is_some_and(|(_, users)| !users.iter().any(|user| is_in(&module, user)))
            };
            if forbidden {
                violations.push(format!("{of} ({}) knows {}", self.module.join("::"), path.join("::")));
            }
        }
        violations
    }
}

/// The modules of `limit::algorithm`, whose own files use them without a path.
static ALGORITHM_MODULES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/limit/algorithm");
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    files.filter_map(|file| Some(file.to_str()?.strip_suffix(".rs")?.to_owned())).collect()
});

/// Whether the first name of a path is a crate, rather than a type or a sibling module.
fn is_foreign(name: &str) -> bool {
    let primitive = ["i64", "u64", "usize", "i128", "u128", "u32", "f64", "bool"];
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !matches!(name, "self" | "clippy")
        && !ALGORITHM_MODULES.contains(name)
        && !primitive.contains(&name)
}

fn covers(allowed: &[&str], known: &str) -> bool {
    // Permission for `limit` includes the algorithms; permission for `config` does not include `config::model`.
    allowed.contains(&known) || known == "limit::algorithm" && allowed.contains(&"limit")
}

fn is_in(module: &str, above: &str) -> bool {
    module == above || module.strip_prefix(above).is_some_and(|rest| rest.starts_with("::"))
}

/// The module of the table that a path within the crate belongs to.
fn layer(path: &[String]) -> Option<&'static str> {
    let path = path.join("::");
    let entries = MAY_KNOW.iter().map(|(module, _)| *module).filter(|module| is_in(&path, module));
    entries.max_by_key(|module| module.len())
}

/// The text without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next| next.trim());
        if line == "#[cfg(test)]" && next.contains("mod ") && next.ends_with('{') {
            break;
        }
        code += line.split("//").next().unwrap_or_default();
        code.push('\n');
    }
    code
}

/// Splits into names, `::`, and all other single characters but spaces.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    words
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(word: &str) -> bool {
    word.starts_with(is_part)
}

/// Parses a path with its branches in `{…}` from `at`. Returns the position after it.
fn branch(words: &[&str], mut at: usize, stem: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) -> usize {
    let depth = stem.len();
    loop {
        match words.get(at) {
            Some(&"{") => {
                at += 1;
                while words.get(at).is_some_and(|word| *word != "}") {
                    at = if words[at] == "," { at + 1 } else { branch(words, at, stem, found) };
                }
                at += 1;
                break;
            }
            Some(word) => {
                stem.push((*word).to_owned());
                at += 1;
                if words.get(at).is_none_or(|next| *next != "::") {
                    found.insert(stem.clone());
                    break;
                }
                at += 1;
            }
            None => break,
        }
    }
    stem.truncate(depth);
    // `as name`
    if words.get(at) == Some(&"as") { at + 2 } else { at }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let for_tests = matches!(path.file_stem().and_then(|stem| stem.to_str()), Some("tests" | "testing"));
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !for_tests {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_module_uses_one_that_the_table_does_not_allow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    assert!(files.len() > 100, "only {} sources were found", files.len());
    let mut violations = Vec::new();
    for file in files {
        let source = Source::new(file.strip_prefix(&root).unwrap(), &fs::read_to_string(&file).unwrap());
        assert!(!source.layer().is_empty() || source.module.is_empty(), "in no table: {}", file.display());
        violations.extend(source.violations());
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_violation_is_found_however_it_is_written() {
    for (file, text) in [
        ("proxy/serve.rs", "use crate::store::memory::MemoryStore;"),
        ("proxy/serve.rs", "use crate::{config::model::Config, admin::{self, State}};"),
        ("proxy/serve.rs", "fn f() { let _ = crate::app::start; }"),
        (
            "router/table.rs",
            "use crate::{\n    config::model::Route,\n    limit::{algorithm::Kind, Check},\n};",
        ),
        ("upstream/pool.rs", "use super::super::limit::Store;"),
        ("limit/store.rs", "use crate::store;"),
        ("limit/algorithm/window.rs", "use std::{sync::Arc, time::Instant};"),
        ("limit/algorithm/window.rs", "async fn f() { tokio::task::yield_now().await }"),
        ("limit/algorithm/mod.rs", "use http::{Method, Request};"),
        ("limit/algorithm/mod.rs", "use super::Clock;"),
        ("telemetry/log.rs", "use crate::config::load;"),
        ("app.rs", "use serde_yaml as yaml; fn f() { serde_yaml::from_str(x) }"),
        ("store/memory/shard.rs", "use hyper::body::Incoming;"),
        ("config/load.rs", "use crate::telemetry::log;"),
        ("store/memory/shard.rs", "use redis::Client;"),
        ("proxy/serve.rs", "use bb8_redis::redis::Client;"),
        ("store/memory/shard.rs", "use crate::telemetry::metrics::Metrics;"),
        ("store/redis/store.rs", "use crate::abuse::Registry;"),
        ("store/redis/store.rs", "use crate::peers::Monitor;"),
        ("peers/heartbeat.rs", "use crate::store::memory::MemoryStore;"),
        ("admin/mod.rs", "use crate::peers;"),
        ("peers/bans/change_log.rs", "use super::super::heartbeat::Heartbeat;"),
        ("peers/bans/change_log.rs", "use tokio::time::Instant;"),
        ("peers/bans/change_log.rs", "use bb8_redis::redis::RedisResult;"),
    ] {
        let found = Source::new(Path::new(file), text).violations();
        assert!(!found.is_empty(), "{file}: {text}");
    }
}

#[test]
fn allowed_uses_comments_and_tests_are_no_violations() {
    for (file, text) in [
        ("proxy/serve.rs", "use crate::{limit::{Store, algorithm::Verdict}, router::Target};"),
        ("proxy/serve.rs", "// use crate::app;\n/// [`crate::admin`]\nfn f() {}"),
        ("peers/records/read.rs", "use bb8_redis::redis::{Value, aio::ConnectionLike}; use crate::abuse;"),
        ("router/table.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::limit::Check;\n}"),
        ("limit/algorithm/window.rs", "use std::sync::Arc; use super::{Tier, verdict::Standing};"),
        ("limit/algorithm/metadata_list.rs", "pub method: http::Method, x: i64::MAX"),
        ("config/yaml/parse.rs", "use serde_yaml::Spanned; use super::super::errors::Location;"),
        ("store/memory/decide.rs", "use crate::limit::algorithm::LimitState;"),
    ] {
        assert_eq!(Source::new(Path::new(file), text).violations(), [""; 0], "{file}: {text}");
    }
}
