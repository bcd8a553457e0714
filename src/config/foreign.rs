//! Recognises the configurations of other proxies, which are easily given to a command by mistake.

/// A proxy, and where its users begin.
struct Proxy {
    /// What its configuration is called: `an nginx configuration`.
    configuration: &'static str,
    page: &'static str,
    is_one: fn(&[&str]) -> bool,
}

const PROXIES: [Proxy; 6] = [
    Proxy { configuration: "an nginx configuration", page: "docs/migration/nginx.md", is_one: is_nginx },
    Proxy {
        configuration: "an HAProxy configuration",
        page: "docs/migration/haproxy.md",
        is_one: is_haproxy,
    },
    Proxy { configuration: "a Caddyfile", page: "examples/README.md", is_one: is_caddy },
    Proxy { configuration: "an Envoy configuration", page: "docs/migration/envoy.md", is_one: is_envoy },
    Proxy { configuration: "a Traefik configuration", page: "docs/migration/traefik.md", is_one: is_traefik },
    Proxy { configuration: "a Kong configuration", page: "docs/migration/kong.md", is_one: is_kong },
];

/// What to say of `text`, which is no configuration of Tollgate, if it is one of another proxy.
pub(super) fn foreign(text: &str) -> Option<String> {
    let is_said = |line: &&str| !line.trim_start().starts_with('#') && !line.trim().is_empty();
    let lines: Vec<&str> = text.lines().filter(is_said).collect();
    // Kong has `upstreams` and `routes`, too.
    if ["listeners", "policies", "upstreams", "routes"].iter().any(|key| has_key(&lines, key))
        && !is_kong(&lines)
    {
        return None;
    }
    let Proxy { configuration, page, .. } = PROXIES.iter().find(|proxy| (proxy.is_one)(&lines))?;
    Some(format!("this is {configuration}; Tollgate reads proxy.yaml: see {page}"))
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Blocks with directives, each of which ends in `;`; or directives of one alone, as in a file that is included.
fn is_nginx(lines: &[&str]) -> bool {
    const BLOCKS: [&str; 8] = ["http", "events", "stream", "server", "upstream", "location", "map", "geo"];
    const DIRECTIVES: [&str; 6] =
        ["listen", "server_name", "proxy_pass", "limit_req", "limit_req_zone", "worker_processes"];
    let has_block = lines.iter().any(|line| BLOCKS.contains(&first_word(line)) && line.contains('{'));
    let mut directives = lines.iter().filter(|line| line.contains(';'));
    match has_block {
        true => directives.next().is_some(),
        false => directives.any(|line| DIRECTIVES.contains(&first_word(line))),
    }
}

/// Sections that begin with a word alone, or with a word and a name.
fn is_haproxy(lines: &[&str]) -> bool {
    const KEYWORDS: [&str; 9] =
        ["bind", "server", "mode", "timeout", "default_backend", "use_backend", "balance", "option", "log"];
    let is_section = |line: &&&str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["global" | "defaults"] => true,
        ["frontend" | "backend" | "listen", name] => !name.contains(['{', ';']),
        _ => false,
    };
    lines.iter().any(|line| is_section(&line))
        && lines.iter().any(|line| line.starts_with([' ', '\t']) && KEYWORDS.contains(&first_word(line)))
}

/// Directives without a colon; all but the commonest in a block of a site.
fn is_caddy(lines: &[&str]) -> bool {
    const COMMON: [&str; 3] = ["reverse_proxy", "file_server", "php_fastcgi"];
    const OTHERS: [&str; 8] =
        ["respond", "handle", "handle_path", "redir", "root", "encode", "rewrite", "header"];
    let is_site = |line: &&&str| !line.starts_with([' ', '\t']) && line.trim_end().ends_with('{');
    let has = |words: &[&str]| lines.iter().any(|line| words.contains(&first_word(line)));
    has(&COMMON) || has(&OTHERS) && lines.iter().any(|line| is_site(&line))
}

fn is_envoy(lines: &[&str]) -> bool {
    has_key(lines, "static_resources") || has_key(lines, "dynamic_resources")
}

/// In YAML or in TOML.
fn is_traefik(lines: &[&str]) -> bool {
    const PARTS: [&str; 3] = ["routers:", "services:", "middlewares:"];
    const TABLES: [&str; 3] = ["[entryPoints", "[providers", "[http."];
    has_key(lines, "entryPoints")
        || has_key(lines, "http") && lines.iter().any(|line| PARTS.contains(&line.trim()))
        || lines.iter().any(|line| TABLES.iter().any(|table| line.trim_start().starts_with(table)))
}

fn is_kong(lines: &[&str]) -> bool {
    has_key(lines, "_format_version")
}

/// Whether this is a key at the top level.
fn has_key(lines: &[&str], key: &str) -> bool {
    lines.iter().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn each_is_called_by_its_name() {
        for (text, configuration) in [
            ("server {\n  listen 80;\n  location / { proxy_pass http://a; }\n}", "an nginx configuration"),
            ("worker_processes auto;\nevents {}\nhttp { include x; }", "an nginx configuration"),
            ("limit_req_zone $binary_remote_addr zone=a:10m rate=1r/s;", "an nginx configuration"),
            ("global\n  log /dev/log local0\nfrontend web\n  bind :80\n", "an HAProxy configuration"),
            ("backend api\n\tserver a 10.0.0.1:80 check\n", "an HAProxy configuration"),
            ("example.com\nreverse_proxy localhost:3000", "a Caddyfile"),
            (":80 {\n\trespond \"ok\"\n}", "a Caddyfile"),
            ("static_resources:\n  listeners: []\n", "an Envoy configuration"),
            ("http:\n  routers:\n    a: { rule: x }\n", "a Traefik configuration"),
            ("entryPoints: { web: { address: :80 } }", "a Traefik configuration"),
            ("[http.routers.a]\n  rule = \"Host(`a`)\"", "a Traefik configuration"),
            ("_format_version: \"3.0\"\nservices: []", "a Kong configuration"),
        ] {
            let said = foreign(text).unwrap_or_else(|| panic!("{text}"));
            assert!(
                said.starts_with(&format!("this is {configuration}; Tollgate reads proxy.yaml: see ")),
                "{said}"
            );
        }
    }

    #[test]
    fn those_of_the_examples_are_recognised_and_ours_are_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for directory in fs::read_dir(root.join("examples")).unwrap().map(|entry| entry.unwrap().path()) {
            for (name, is_foreign) in
                [("nginx.conf", true), ("Caddyfile", true), ("traefik.yaml", true), ("proxy.yaml", false)]
            {
                if let Ok(text) = fs::read_to_string(directory.join(name)) {
                    assert_eq!(foreign(&text).is_some(), is_foreign, "{}/{name}", directory.display());
                }
            }
        }
        // Also where they are wrong.
        for path in fs::read_dir(root.join("tests/golden")).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".yaml") && !name.starts_with("of_another_") {
                assert_eq!(foreign(&fs::read_to_string(&path).unwrap()), None, "{name}");
            }
        }
    }

    #[test]
    fn the_pages_are_there() {
        for proxy in PROXIES {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(proxy.page).exists(), "{}", proxy.page);
        }
    }
}
