//! Entry points become listeners; certificates become theirs.

use std::{collections::BTreeSet, path::Path};

use super::{Traefik, dynamic_files, leftovers, plain_name, routers::Router};
use crate::convert::{
    ConvertError, Draft,
    document::{Document, Fields, Item},
    read,
    yaml::{Comment, Map, Node},
};

/// Keys of a static configuration.
pub(super) const STATIC_KEYS: [&str; 18] = [
    "entryPoints",
    "providers",
    "certificatesResolvers",
    "api",
    "log",
    "accessLog",
    "metrics",
    "tracing",
    "ping",
    "global",
    "serversTransport",
    "experimental",
    "hub",
    "core",
    "pilot",
    "spiffe",
    "hostResolver",
    "ocsp",
];

/// An address on which Traefik listens.
pub(super) struct EntryPoint {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) is_tls: bool,
    /// Redirects everything to HTTPS, to this port if it is not 443.
    pub(super) redirect: Option<Option<String>>,
    pub(super) middlewares: Vec<String>,
    pub(super) proxy_protocol: bool,
    pub(super) trusted: Vec<String>,
    pub(super) notes: Vec<Comment>,
}

/// Certificates and options of TLS.
#[derive(Default)]
pub(super) struct Tls<'d> {
    certificates: Vec<(&'d str, &'d str)>,
    min_version: Option<&'static str>,
    client_ca: Option<&'d str>,
    client_auth: Option<&'static str>,
}

/// Reads a static configuration: its entry points, and the files of `providers.file`.
pub(super) fn read_static(
    root: &Fields<'_>,
    path: &Path,
    draft: &mut Draft,
) -> Result<(Vec<Document>, Option<Vec<EntryPoint>>), ConvertError> {
    let entry_points: Vec<_> =
        root.fields("entryPoints").each().into_iter().map(|(name, item)| entry_point(name, item)).collect();
    let providers = root.fields("providers");
    let mut documents = Vec::new();
    if let Some(file) = providers.take("file") {
        let fields = file.fields();
        fields.ignore(&["watch", "debugLogGeneratedTemplate"]);
        for named in ["filename", "directory"].into_iter().filter_map(|key| fields.take(key)) {
            let Some(name) = named.text() else { continue };
            let beside = path.parent().unwrap_or(Path::new("."));
            // The path is one in a container, more often than not.
            let candidates =
                [beside.join(name), beside.join(Path::new(name).file_name().unwrap_or_default())];
            match candidates.iter().find(|candidate| candidate.exists()) {
                Some(found) => {
                    for file in dynamic_files(found).iter().filter(|file| file.as_path() != path) {
                        documents.push(Document::parse(&file.display().to_string(), &read(file)?)?);
                    }
                }
                None => draft.head.push(named.note(format!(
                    "{name} is not on this machine: convert it as \
                        well"
                ))),
            }
        }
        draft.head.extend(leftovers(&fields, "providers.file"));
    }
    for (name, item) in providers.rest().into_iter().filter(|(name, _)| *name != "providersThrottleDuration")
    {
        draft.head.push(item.note(format!(
            "the routers that `providers.{name}` finds are not in this file: write their routes and \
                upstreams by hand"
        )));
    }
    for (key, item) in root.fields("certificatesResolvers").each() {
        draft.head.push(item.note(format!(
            "`{key}`: Tollgate fetches no certificates. Let certbot or \
            lego write them; they are read again when they change"
        )));
    }
    let hints = [
        ("api", "the admin port takes the place of the dashboard: see `admin`"),
        ("accessLog", "see `access_log`"),
        ("metrics", "/metrics of the admin port is for Prometheus"),
        ("tracing", "see `tracing`"),
        ("ping", "/healthz and /readyz of the admin port"),
        ("serversTransport", "see `tls` and `timeouts` of upstreams"),
        ("experimental", "Tollgate has no plugins"),
    ];
    for (key, hint) in hints {
        if let Some(item) = root.take(key).filter(|item| !item.is_null()) {
            draft.head.push(item.note(format!("`{key}`: {hint}")));
        }
    }
    root.ignore(&["log", "global", "core", "hub", "pilot", "http", "tcp", "udp", "tls"]);
    for (key, item) in root
        .rest()
        .into_iter()
        .filter(|(key, _)| STATIC_KEYS.iter().any(|known| known.eq_ignore_ascii_case(key)))
    {
        draft.head.push(item.note(format!("`{key}` has no equal")));
    }
    Ok((documents, Some(entry_points)))
}

fn entry_point(name: &str, item: Item<'_>) -> EntryPoint {
    let fields = item.fields();
    let mut notes = Vec::new();
    let address = fields.text("address").unwrap_or(":80");
    let (address, protocol) = address.split_once('/').unwrap_or((address, "tcp"));
    if protocol != "tcp" {
        notes.push(fields.note(format!("`{name}`: Tollgate does not listen on {protocol}")));
    }
    let address = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    };
    let http = fields.fields("http");
    let redirection = http.fields("redirections");
    let redirect = redirection.take("entryPoint").map(|item| {
        let fields = item.fields();
        let to = fields.text("to").unwrap_or_default();
        if fields.take("permanent").is_some_and(|item| !item.is_true()) {
            notes.push(item.note("the redirect is permanent (308) here"));
        }
        fields.ignore(&["scheme", "priority"]);
        notes.extend(leftovers(&fields, "redirections.entryPoint"));
        to.strip_prefix(':').filter(|port| *port != "443").map(str::to_owned)
    });
    let tls = http.take("tls");
    let proxy = fields.take("proxyProtocol");
    let proxy_fields = proxy.map(Item::fields);
    let forwarded = fields.fields("forwardedHeaders");
    let mut trusted: Vec<String> = forwarded.texts("trustedIPs").into_iter().map(str::to_owned).collect();
    for fields in proxy_fields.iter().chain([&forwarded]) {
        trusted.extend(fields.texts("trustedIPs").into_iter().map(str::to_owned));
        if let Some(insecure) = fields.take("insecure").filter(|item| item.is_true()) {
            notes.push(insecure.note(
                "`insecure` trusts every client: list the proxies in \
                    `trusted_proxies`",
            ));
        }
        notes.extend(leftovers(fields, name));
    }
    let middlewares = http.texts("middlewares").into_iter().map(str::to_owned).collect();
    http.ignore(&["encodeQuerySemicolons", "sanitizePath"]);
    notes.extend(leftovers(&http, &format!("{name}.http")));
    fields.ignore(&["asDefault", "http2"]);
    notes.extend(leftovers(&fields, name));
    EntryPoint {
        name: name.to_owned(),
        address,
        is_tls: tls.is_some_and(|item| !item.is_null() && item.text() != Some("false")),
        redirect,
        middlewares,
        proxy_protocol: proxy.is_some(),
        trusted,
        notes,
    }
}

impl<'d> Tls<'d> {
    pub(super) fn collect(&mut self, tls: &Fields<'d>, head: &mut Vec<Comment>) {
        let mut certificates = Vec::new();
        for (name, item) in tls.fields("stores").each() {
            let fields = item.fields();
            let default = fields.fields("defaultCertificate");
            certificates.extend(default.text("certFile").zip(default.text("keyFile")));
            head.extend(leftovers(&fields, &format!("tls.stores.{name}")));
        }
        for item in tls.items("certificates") {
            let fields = item.fields();
            certificates.extend(fields.text("certFile").zip(fields.text("keyFile")));
            fields.ignore(&["stores"]);
            head.extend(leftovers(&fields, "tls.certificates"));
        }
        for certificate in certificates {
            if !self.certificates.contains(&certificate) {
                self.certificates.push(certificate);
            }
        }
        for (name, item) in tls.fields("options").each() {
            if name != "default" {
                head.push(item.note(format!(
                    "`tls.options.{name}`: a listener has the same options for all \
                        hosts"
                )));
                continue;
            }
            let fields = item.fields();
            match fields.take("minVersion").map(|item| (item, item.text().unwrap_or_default())) {
                Some((_, "VersionTLS13")) => self.min_version = Some("1.3"),
                None | Some((_, "VersionTLS12")) => {}
                Some((item, version)) => {
                    head.push(item.note(format!("{version}: Tollgate speaks TLS 1.2 and 1.3")));
                }
            }
            let client = fields.fields("clientAuth");
            let files = client.texts("caFiles");
            self.client_ca = self.client_ca.or(files.first().copied());
            if files.len() > 1 {
                head.push(item.note("`caFiles`: `client_ca` is one file; join them"));
            }
            match client.take("clientAuthType").map(|item| (item, item.text().unwrap_or_default())) {
                None | Some((_, "RequireAndVerifyClientCert" | "NoClientCert")) => {}
                Some((_, "VerifyClientCertIfGiven")) => self.client_auth = Some("optional"),
                Some((item, kind)) => {
                    head.push(item.note(format!("`{kind}`: Tollgate verifies every client certificate")));
                }
            }
            fields.ignore(&["alpnProtocols", "preferServerCipherSuites"]);
            head.extend(leftovers(&client, "tls.options.clientAuth"));
            head.extend(leftovers(&fields, "tls.options.default"));
        }
        head.extend(leftovers(tls, "tls"));
    }
}

impl<'d> Traefik<'d> {
    /// Adds listeners for the entry points.
    pub(super) fn listeners(&mut self, routers: &[Router<'d>]) {
        let (entry_points, is_guess) = match self.entry_points.take() {
            Some(known) => (known, false),
            None => (guessed(routers), true),
        };
        let mut names = BTreeSet::new();
        for entry_point in entry_points.iter().filter(|entry_point| names.insert(entry_point.name.clone())) {
            let on_it = |router: &&Router<'_>| router.is_on(&entry_point.name);
            let is_tls = entry_point.is_tls || routers.iter().filter(on_it).any(|router| router.is_tls);
            if !is_guess && routers.iter().filter(on_it).count() == 0 && entry_point.redirect.is_none() {
                let text = format!(
                    "no router of this file is on the entry point `{}` ({}): no listener",
                    entry_point.name, entry_point.address
                );
                self.draft.head.push(Comment::Plain(text));
                self.draft.head.extend(entry_point.notes.iter().cloned());
                continue;
            }
            let mut listener = Map::new().with("address", entry_point.address.as_str());
            let mut comments = entry_point.notes.clone();
            if is_guess {
                comments.insert(
                    0,
                    Comment::Plain(format!(
                        "The entry point `{}`. Its address is in Traefik's static configuration.",
                        entry_point.name
                    )),
                );
            }
            let redirecting = routers.iter().filter(on_it).find_map(|router| router.https.clone());
            let plain = routers
                .iter()
                .filter(on_it)
                .filter(|router| router.https.is_none() && !router.is_tls)
                .count();
            match (&entry_point.redirect, redirecting.as_ref()) {
                (Some(port), _) | (None, Some(port)) if !is_tls && plain == 0 => {
                    let redirect = match port {
                        Some(port) => Map::new()
                            .with("to", "https")
                            .with("port", port.parse::<u64>().unwrap_or(443))
                            .into(),
                        None => Node::from("https"),
                    };
                    listener.set("redirect", redirect);
                }
                _ => {}
            }
            if entry_point.proxy_protocol {
                listener.set("proxy_protocol", true);
            }
            if is_tls {
                listener.set("tls", self.listener_tls(routers, &mut comments));
            }
            self.trusted.extend(entry_point.trusted.iter().cloned());
            let mut node = Node::from(listener);
            node.comments = comments;
            self.draft.listeners.push(node);
        }
        if !self.draft.listeners.is_empty()
            && self.tls.certificates.is_empty()
            && self.tls.min_version.is_none()
        {
            return;
        }
        if self.draft.listeners.is_empty() && !self.tls.certificates.is_empty() {
            let mut comments = vec![Comment::Plain(
                "No router tells an entry point: certificates are served on port 443.".to_owned(),
            )];
            let tls = self.listener_tls(routers, &mut comments);
            let mut node = Node::from(Map::new().with("address", "0.0.0.0:443").with("tls", tls));
            node.comments = comments;
            self.draft.listeners.push(node);
        }
    }

    fn listener_tls(&self, routers: &[Router<'d>], comments: &mut Vec<Comment>) -> Map {
        let mut certificates: Vec<Map> = self
            .tls
            .certificates
            .iter()
            .map(|(cert, key)| Map::new().with("cert", *cert).with("key", *key))
            .collect();
        let is_covered = !certificates.is_empty();
        let fetched = routers.iter().filter(|router| router.has_resolver || (router.is_tls && !is_covered));
        let resolved: BTreeSet<_> = fetched.flat_map(|router| router.certified.iter()).collect();
        if !is_covered || !resolved.is_empty() {
            let names: Vec<_> = if resolved.is_empty() && certificates.is_empty() {
                vec!["server"]
            } else {
                resolved.iter().map(|name| name.as_str()).collect()
            };
            comments.push(Comment::Plain(
                "Tollgate fetches no certificates. Let certbot, lego or acme.sh write these files; they \
                    are read again when they change."
                    .to_owned(),
            ));
            certificates.extend(names.iter().map(|name| {
                Map::new().with("cert", format!("certs/{name}.pem")).with("key", format!("certs/{name}.key"))
            }));
        }
        let mut tls = Map::new().with("certificates", certificates);
        if let Some(version) = self.tls.min_version {
            tls.set("min_version", version);
        }
        if let Some(file) = self.tls.client_ca {
            tls.set("client_ca", file);
            if let Some(mode) = self.tls.client_auth {
                tls.set("client_auth", mode);
            }
        }
        tls
    }
}

/// The entry points that routers name, with the ports that these names have in Traefik's documentation.
fn guessed(routers: &[Router<'_>]) -> Vec<EntryPoint> {
    let mut names: Vec<String> = Vec::new();
    for name in routers.iter().flat_map(|router| &router.entry_points) {
        if !names.iter().any(|known| plain_name(known) == plain_name(name)) {
            names.push(name.clone());
        }
    }
    if names.is_empty() && !routers.is_empty() {
        let is_tls = routers.iter().any(|router| router.is_tls);
        names.push(if is_tls { "websecure" } else { "web" }.to_owned());
    }
    let mut next = 8080_u16;
    let entry_point = |name: String| {
        let port = match plain_name(&name).as_str() {
            "web" | "http" => 80,
            "websecure" | "https" | "web-secure" => 443,
            _ => {
                next += 1;
                next - 1
            }
        };
        EntryPoint {
            name,
            address: format!("0.0.0.0:{port}"),
            is_tls: false,
            redirect: None,
            middlewares: Vec::new(),
            proxy_protocol: false,
            trusted: Vec::new(),
            notes: Vec::new(),
        }
    };
    names.into_iter().map(entry_point).collect()
}
