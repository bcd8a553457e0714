//! Recognises configurations of other proxies, which users pass to a command by mistake.

use super::yaml::{self, NodeKind};

/// A proxy whose configurations are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignProxy {
    Nginx,
    Haproxy,
    Caddy,
    Envoy,
    Traefik,
    Kong,
}

impl ForeignProxy {
    const ALL: [Self; 6] = [Self::Nginx, Self::Haproxy, Self::Caddy, Self::Envoy, Self::Traefik, Self::Kong];

    /// The noun for its configuration: `an nginx configuration`.
    pub fn configuration(self) -> &'static str {
        match self {
            Self::Nginx => "an nginx configuration",
            Self::Haproxy => "an HAProxy configuration",
            Self::Caddy => "a Caddyfile",
            Self::Envoy => "an Envoy configuration",
            Self::Traefik => "a Traefik configuration",
            Self::Kong => "a Kong configuration",
        }
    }

    /// The page of the guide for its users.
    pub fn page(self) -> &'static str {
        match self {
            Self::Nginx => "docs/migration/nginx.md",
            Self::Haproxy => "docs/migration/haproxy.md",
            Self::Caddy => "examples/README.md",
            Self::Envoy => "docs/migration/envoy.md",
            Self::Traefik => "docs/migration/traefik.md",
            Self::Kong => "docs/migration/kong.md",
        }
    }

    /// Whether `tollgate convert` reads its configurations.
    fn is_converted(self) -> bool {
        !matches!(self, Self::Caddy | Self::Envoy)
    }

    fn is_one(self, text: &ForeignText<'_>) -> bool {
        match self {
            Self::Nginx => is_nginx(text),
            Self::Haproxy => is_haproxy(text),
            Self::Caddy => is_caddy(text),
            Self::Envoy => is_envoy(text),
            Self::Traefik => is_traefik(text),
            Self::Kong => is_kong(text),
        }
    }
}

/// The error for `text`, the file of this name, if it is a configuration of another proxy. Call it only for text that
/// is not a valid configuration of Tollgate.
pub(super) fn foreign(file_name: &str, text: &str) -> Option<String> {
    let proxy = foreign_proxy(text)?;
    let configuration = proxy.configuration();
    let convert = match proxy.is_converted() && file_name != "stdin" {
        true => format!("`tollgate convert {file_name}` converts it; "),
        false => String::new(),
    };
    Some(format!("this is {configuration}; Tollgate reads proxy.yaml: {convert}see {}", proxy.page()))
}

/// The proxy that `text` is a configuration of. `None` if it is one of Tollgate, or of none that is known.
pub fn foreign_proxy(text: &str) -> Option<ForeignProxy> {
    let lines: Vec<&str> = text.lines().map(without_comment).filter(|line| !line.trim().is_empty()).collect();
    let text = ForeignText { keys: keys_of_tree(text).unwrap_or_else(|| keys_of_lines(&lines)), lines };
    // Kong has `upstreams` and `routes`, too.
    if ["listeners", "policies", "upstreams", "routes"].iter().any(|key| text.has_key(key)) && !is_kong(&text)
    {
        return None;
    }
    ForeignProxy::ALL.into_iter().find(|proxy| proxy.is_one(&text))
}

/// Whether `text` is YAML with a section that only Tollgate has.
pub fn is_of_tollgate(text: &str) -> bool {
    keys_of_tree(text).is_some_and(|keys| keys.iter().any(|key| key == "listeners" || key == "policies"))
}

struct ForeignText<'a> {
    /// The lines that are not empty, without comments.
    lines: Vec<&'a str>,
    /// `http` for a key of the top level, `http.routers` for a key below it.
    keys: Vec<String>,
}

impl ForeignText<'_> {
    fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Whether this is YAML or JSON, valid or nearly so: such text has no directives.
    fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    fn begins_a_line(&self, words: &str) -> bool {
        self.lines.iter().any(|line| is_among(first_word(line), words))
    }
}

/// The keys of valid YAML or JSON.
fn keys_of_tree(text: &str) -> Option<Vec<String>> {
    let NodeKind::Mapping { entries, .. } = yaml::parse(text).ok()?.root.kind else { return None };
    let mut keys = Vec::new();
    for (key, value) in entries.into_iter().filter(|(key, _)| is_identifier(&key.name)) {
        if let NodeKind::Mapping { entries, .. } = value.kind {
            keys.extend(entries.iter().map(|(below, _)| format!("{}.{}", key.name, below.name)));
        }
        keys.push(key.name);
    }
    Some(keys)
}

/// The keys at the beginning of lines, for text that cannot be parsed. In JSON, all are taken for keys of the top
/// level.
fn keys_of_lines(lines: &[&str]) -> Vec<String> {
    let is_json = lines.first().is_some_and(|line| line.trim_start().starts_with('{'));
    let (mut keys, mut top) = (Vec::new(), "");
    for line in lines {
        let Some(key) = key(line) else { continue };
        match is_json || !line.starts_with([' ', '\t']) {
            true => {
                top = key;
                keys.push(key.to_owned());
            }
            false if !top.is_empty() => keys.push(format!("{top}.{key}")),
            false => {}
        }
    }
    keys
}

/// The key at the beginning of a line. Addresses are not keys: `localhost:3000`, `http://localhost`.
fn key(line: &str) -> Option<&str> {
    let (key, value) = line.trim_start_matches(['{', '"', '\'', ' ', '\t']).split_once(':')?;
    let key = key.trim_end_matches(['"', '\'']);
    (is_identifier(key) && !value.starts_with(|next: char| next == '/' || next.is_ascii_digit()))
        .then_some(key)
}

fn is_identifier(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || "_-".contains(char))
}

fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').map(|(at, _)| at);
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    comment.into_iter().find(begins).map_or(line, |at| &line[..at]).trim_end()
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Whether `word` is one of `words`, which spaces separate.
fn is_among(word: &str, words: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// Blocks of directives that end in `;`, or such directives alone, as in an included file.
fn is_nginx(text: &ForeignText<'_>) -> bool {
    const BLOCKS: &str = "http events stream server upstream location map geo";
    const DIRECTIVES: &str = "\
        listen server_name user include pid root rewrite add_header access_log error_log log_format \
        load_module";
    const FAMILIES: &str = "\
        proxy_ limit_ ssl_ worker_ client_ keepalive_ gzip fastcgi_ uwsgi_ grpc_ real_ip_ set_real_ip_";
    let has_block = text.lines.iter().any(|line| is_among(first_word(line), BLOCKS) && line.contains('{'));
    let is_known =
        |word: &str| is_among(word, DIRECTIVES) || FAMILIES.split(' ').any(|family| word.starts_with(family));
    let ends = |line: &&&str| line.trim_end_matches([' ', '\t', '}']).ends_with(';');
    !text.has_keys() && text.lines.iter().filter(ends).any(|line| has_block || is_known(first_word(line)))
}

/// Sections that begin with a word alone, or with a word and a name.
fn is_haproxy(text: &ForeignText<'_>) -> bool {
    const KEYWORDS: &str = "\
        bind server mode timeout default_backend use_backend balance option log stick-table http-request \
        http-response tcp-request stick acl default-server maxconn stats daemon errorfile";
    let is_section = |line: &&str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["global" | "defaults"] => true,
        ["frontend" | "backend" | "listen" | "defaults", name]
        | ["frontend" | "backend" | "listen" | "defaults", name, "from", _] => !name.contains(['{', ';']),
        _ => false,
    };
    !text.has_keys() && text.lines.iter().any(is_section) && text.begins_a_line(KEYWORDS)
}

/// Directives without a colon; all but the commonest in a block of a site, or behind one of global options.
fn is_caddy(text: &ForeignText<'_>) -> bool {
    const COMMON: &str = "reverse_proxy file_server php_fastcgi";
    const OTHERS: &str = "\
        respond handle handle_path handle_errors redir root encode rewrite header import tls basic_auth \
        forward_auth templates metrics abort try_files";
    let is_site = |line: &&str| !line.starts_with([' ', '\t']) && line.ends_with('{');
    !text.has_keys()
        && (text.begins_a_line(COMMON) || text.begins_a_line(OTHERS) && text.lines.iter().any(is_site))
}

fn is_envoy(text: &ForeignText<'_>) -> bool {
    text.has_key("static_resources") || text.has_key("dynamic_resources")
}

/// In YAML or in TOML.
fn is_traefik(text: &ForeignText<'_>) -> bool {
    const KEYS: &str = "\
        entryPoints providers certificatesResolvers http.routers http.services http.middlewares \
        tcp.routers tcp.services udp.routers";
    const TABLES: &str = "[entryPoints [providers [http. [tcp. [udp.";
    KEYS.split(' ').any(|key| text.has_key(key))
        || text.lines.iter().any(|line| TABLES.split(' ').any(|table| line.trim_start().starts_with(table)))
}

/// In YAML, or `kong.conf`.
fn is_kong(text: &ForeignText<'_>) -> bool {
    const SETTINGS: &str = "\
        proxy_listen admin_listen declarative_config database pg_host proxy_access_log admin_gui_listen \
        nginx_worker_processes";
    let is_setting =
        |line: &&str| line.split_once('=').is_some_and(|(name, _)| is_among(name.trim(), SETTINGS));
    text.has_key("_format_version") || !text.has_keys() && text.lines.iter().any(is_setting)
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
            ("user www-data;\npid /run/nginx.pid;", "an nginx configuration"),
            ("include conf.d/*.conf;", "an nginx configuration"),
            ("proxy_set_header Host $host;  # as it came", "an nginx configuration"),
            ("limit_req_zone $a zone=b:10m rate=1r/s; # caf\u{fffd}", "an nginx configuration"),
            ("log_format main '$remote_addr: $status';", "an nginx configuration"),
            ("frontend web\nbind :80\ndefault_backend api", "an HAProxy configuration"),
            ("frontend web from base\n  acl a path /\n", "an HAProxy configuration"),
            (
                "backend api\n  stick-table type ip size 1m expire 1m store http_req_rate(1m)",
                "an HAProxy configuration",
            ),
            ("frontend web\n  http-request deny if { src -f a.txt }", "an HAProxy configuration"),
            ("{\n\temail a@example.com\n}\nlocalhost:3000 {\n\ttls internal\n}", "a Caddyfile"),
            ("{\n\tdebug\n}\nhttp://example.com {\n\tmetrics /metrics\n}", "a Caddyfile"),
            ("{\"admin\": {}, \"static_resources\": {\"listeners\": []}}", "an Envoy configuration"),
            ("{\n  \"static_resources\": {\n    \"listeners\": []\n  }\n}", "an Envoy configuration"),
            ("\"static_resources\":\n  listeners: []", "an Envoy configuration"),
            // Not valid.
            ("{\n  \"static_resources\": {\n    \"clusters\": [\n", "an Envoy configuration"),
            ("http: { routers: { a: { rule: x } } }", "a Traefik configuration"),
            ("providers:\n  file: { directory: /etc/traefik }", "a Traefik configuration"),
            ("tcp:\n  routers:\n    a: { rule: x }", "a Traefik configuration"),
            ("udp:\n  routers: # those\n    a: { rule: {{ env }} }", "a Traefik configuration"),
            ("[tcp.routers.a]\n  rule = \"x\"", "a Traefik configuration"),
            ("{\"_format_version\": \"3.0\", \"routes\": []}", "a Kong configuration"),
            ("'_format_version': \"3.0\"\nservices: []", "a Kong configuration"),
            ("# of Kong\ndatabase = off\ndeclarative_config = /kong/kong.yml", "a Kong configuration"),
        ] {
            let said = foreign("a.conf", text).unwrap_or_else(|| panic!("{text}"));
            let begin = format!("this is {configuration}; Tollgate reads proxy.yaml: ");
            assert!(said.starts_with(&begin), "{said}");
            let is_converted = !said.contains("Caddyfile") && !said.contains("Envoy");
            assert_eq!(said.contains("`tollgate convert a.conf`"), is_converted, "{said}");
        }
    }

    #[test]
    fn a_configuration_with_typos_is_not_anothers() {
        for text in [
            "upstream { api: { endpoints: [http://127.0.0.1:3000] } }\nrouts: [{ path: /* }]  # x;",
            "listners:\n  - address: 0.0.0.0:80\nroute:\n  - path: /*\n    reply: { body: \"a {}\" } # first; second;",
            "server { listen: 80 }\nlocation: { path: / } # a;",
            "server:\n  listen 80;\nlocation / {\n  proxy_pass http://a;\n}",
            "{ \"listeners\": [{ \"address\": \"0.0.0.0:80\" ] }",
            "routs: [{ path: /*, upstream: api }\nreverse_proxy localhost",
            "frontend web\nupstream:\n  server a\n",
            "",
        ] {
            assert_eq!(foreign_proxy(text), None, "{text}");
        }
    }

    #[test]
    fn configurations_of_other_proxies_are_recognised_and_ours_are_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for directory in fs::read_dir(root.join("examples")).unwrap().map(|entry| entry.unwrap().path()) {
            for (name, is_foreign) in
                [("nginx.conf", true), ("Caddyfile", true), ("traefik.yaml", true), ("proxy.yaml", false)]
            {
                if let Ok(text) = fs::read_to_string(directory.join(name)) {
                    assert_eq!(foreign_proxy(&text).is_some(), is_foreign, "{}/{name}", directory.display());
                }
            }
        }
        // Also invalid ones: each of its own keys is misspelled, or lacks its colon.
        for directory in fs::read_dir(root.join("examples")).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(text) = fs::read_to_string(directory.join("proxy.yaml")) else { continue };
            for (key, typo) in [
                ("listeners:", "listners:"),
                ("policies:", "polices:"),
                ("upstreams:", "upstream "),
                ("routes:", "routs:"),
            ] {
                let mangled = text.replace(key, typo);
                assert_eq!(foreign_proxy(&mangled), None, "{}: {key}", directory.display());
            }
            let all = text.replace("listeners:", "listner:").replace("policies:", "policy:");
            let all = all.replace("upstreams:", "upstream:").replace("routes:", "route:");
            assert_eq!(foreign_proxy(&all), None, "{}", directory.display());
        }
        for path in fs::read_dir(root.join("tests/golden")).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".yaml") && !name.starts_with("of_another_") {
                assert_eq!(foreign_proxy(&fs::read_to_string(&path).unwrap()), None, "{name}");
            }
        }
    }

    #[test]
    fn the_pages_are_there() {
        for proxy in ForeignProxy::ALL {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(proxy.page()).exists(), "{}", proxy.page());
        }
    }
}
