//! Of what is shipped, and of what the documentation shows, is not warned.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tollgate::config::{self, Lookup};

use super::environment::Environment;

/// A machine on which the examples are used as they stand: every file is there, and every variable is set well.
pub(super) struct Machine;

impl Lookup for Machine {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "TOLLGATE_ADMIN_TOKEN" | "REDIS_PASSWORD" | "OPENAI_API_KEY" | "HOOK_SECRET" => {
                Some("9c1185a5c5e9fc54612808977ee8f548b2258d31".to_owned())
            }
            "HOOK_URL" => Some("https://hooks.example.com/T0/B0".to_owned()),
            "PEERS_CERTS" => Some("/certs".to_owned()),
            _ => None,
        }
    }

    fn read_text(&self, _: &Path) -> io::Result<String> {
        Ok("9c1185a5c5e9fc54612808977ee8f548b2258d31\n".to_owned())
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".txt") {
            return Ok(b"203.0.113.7\n".to_vec());
        }
        if name == "keys.yaml" {
            return Ok(b"keys: []\n".to_vec());
        }
        if name == "orders.yaml" {
            return Ok(b"- http://10.0.0.5:3000\n".to_vec());
        }
        let issued = match () {
            () if name == "jwt.json" || name == "issuer.json" => "keys/set.json",
            () if path.starts_with("keys") => "keys/public.pem",
            () if name.ends_with(".key") || name.contains("key.pem") => "tls/api.key",
            () => "tls/api.pem",
        };
        Environment.read_bytes(Path::new(issued))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(directory: &str, is_one: fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(directory)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| is_one(path.file_name().unwrap().to_str().unwrap())).collect();
    files.sort();
    files
}

/// What is warned of this text. It must be right.
fn warnings(name: &str, text: &str) -> String {
    match config::parse_with_warnings(name, text, &Machine) {
        Ok((_, warnings)) => warnings.to_string(),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

#[test]
fn shipped_files_cause_no_warning() {
    let mut all = files("deploy", |name| name.starts_with("proxy") && name.ends_with(".yaml"));
    assert!(all.len() >= 3, "{all:?}");
    all.extend(files("benches/peers", |name| name.ends_with(".yaml")));
    all.push(root().join("proxy.yaml"));
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        let found = warnings(&path.display().to_string(), &text);
        // Two workloads count by an API key alone, as those of the other proxies do.
        let by_api_key = text.contains("key: \"header:x-api-key\"") && found.matches("warning:").count() == 1;
        assert!(found.is_empty() || by_api_key && found.contains("every limit of route"), "{found}");
    }
}

#[test]
fn examples_in_the_documentation_cause_no_warning() {
    let mut guides: Vec<_> = ["docs", "docs/fronts", "docs/migration", "docs/tasks"]
        .into_iter()
        .flat_map(|directory| files(directory, |name| name.ends_with(".md")))
        .collect();
    guides.push(root().join("README.md"));
    let mut count = 0;
    for path in guides {
        let text = fs::read_to_string(&path).unwrap();
        for example in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            // A part of a section, one with gaps, or another file.
            if example.contains('…')
                || example.starts_with("- ")
                || ["tls:", "redirect:"].iter().any(|part| example.starts_with(part))
            {
                continue;
            }
            count += 1;
            let found = warnings(&path.display().to_string(), &completed(example));
            assert_eq!(found, "", "{}", path.display());
        }
    }
    assert!(count > 12, "{count}");
}

/// The example with the sections that it leaves out.
fn completed(example: &str) -> String {
    let has = |section: &str| example.lines().any(|line| line.starts_with(&format!("{section}:")));
    let mut text = example.to_owned();
    if !has("listeners") {
        text += "listeners: [{ address: 0.0.0.0:443, tls: { certificates: [{ cert: a.pem, key: a.key }], client_ca: b.pem } }]\n";
    }
    if !has("user") {
        text += "user: [{ jwt: { key: { file: keys/issuer.json } } }]\n";
    }
    let policies = example.split_once("policies:\n").map_or("", |(_, rest)| rest).lines();
    let policies = policies.take_while(|line| line.starts_with("  "));
    let names = policies.filter_map(|line| line.strip_prefix("  ")?.split_once(':'));
    let mut policies: Vec<_> = names.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
    if !has("policies") && (example.contains("policies: [") || has("bans")) {
        policies = after(example, "policies: [");
        // Rules for bans count what policies deny.
        policies.extend(policies.is_empty().then_some("per-ip"));
        let each =
            policies.iter().map(|name| format!("  {name}: {{ algorithm: gcra, key: ip, limit: 9/1s }}\n"));
        text += &format!("policies:\n{}", each.collect::<String>());
    }
    if !has("upstreams") {
        let policies = policies.join(", ");
        let mut names = after(example, "upstream: ");
        names.extend(names.is_empty().then_some("api"));
        let each = names.iter().map(|name| {
            format!("  {name}: {{ endpoints: [http://127.0.0.1:3000], policies: [{policies}] }}\n")
        });
        text += &format!("upstreams:\n{}", each.collect::<String>());
    }
    if !has("routes") {
        let upstreams = example.lines().skip_while(|line| *line != "upstreams:").skip(1);
        let upstreams = upstreams.take_while(|line| line.starts_with("  "));
        let names = upstreams.filter_map(|line| line.strip_prefix("  ")?.split_once(':'));
        let names: Vec<_> = names.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
        let names = if names.is_empty() { vec!["api"] } else { names };
        let each = names.iter().map(|name| format!("  - {{ path: /{name}/*, upstream: {name} }}\n"));
        text += &format!("routes:\n{}", each.collect::<String>());
    }
    text.replace("algorithm: RS256", "algorithm: ES256")
}

/// The words after each `mark`, once each.
fn after<'e>(example: &'e str, mark: &str) -> Vec<&'e str> {
    let mut words: Vec<&str> = example
        .split(mark)
        .skip(1)
        .flat_map(|rest| rest.split(['}', ']', '\n']).next().unwrap_or_default().split(','))
        .map(|word| word.split('#').next().unwrap_or_default().trim())
        .filter(|word| !word.is_empty() && !word.contains(':'))
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}
