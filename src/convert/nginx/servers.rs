//! `server` blocks: listeners, hosts, and the order of servers.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Converter, Scope, locations::ordered, syntax::Directive, unconverted, values::has_variable};
use crate::convert::{
    Place,
    yaml::{Comment, Map, Node, Value},
};

/// An address of a `listen`.
#[derive(Debug, Clone)]
struct Listen<'d> {
    /// As Tollgate writes it: `0.0.0.0:80`, `[::]:80`, `unix:/run/nginx.sock`.
    address: String,
    /// The port, or the whole address if it is not for all addresses: what nginx chooses servers by.
    key: String,
    is_default: bool,
    is_tls: bool,
    is_proxy_protocol: bool,
    directive: Option<&'d Directive>,
}

/// A `server` block.
#[derive(Clone)]
pub(super) struct Server<'d> {
    directives: Vec<&'d Directive>,
    listens: Vec<Listen<'d>>,
    /// Hosts as Tollgate matches them; both `a` and `*.a` for `.a`.
    hosts: Vec<String>,
    names: Vec<&'d str>,
    place: Place,
    /// Whether requests for hosts that no server names come here.
    is_default: bool,
}

impl<'d> Server<'d> {
    /// The server with these directives.
    pub(super) fn new(directives: Vec<&'d Directive>) -> Self {
        let place =
            directives.first().map_or(Place { file: String::new(), line: 1 }, |first| first.place.clone());
        Self {
            directives,
            listens: Vec::new(),
            hosts: Vec::new(),
            names: Vec::new(),
            place,
            is_default: false,
        }
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'d Directive> {
        self.directives.iter().copied().filter(move |directive| directive.name == name)
    }

    /// What the server is called in comments.
    fn shown(&self) -> String {
        match self.names.first() {
            Some(name) => format!("`{name}` ({})", self.place),
            None => self.place.to_string(),
        }
    }

    /// The longest wildcard among the hosts; 0 if there is none.
    fn wildcard(&self) -> usize {
        self.hosts.iter().filter(|host| host.starts_with("*.")).map(String::len).max().unwrap_or(0)
    }

    /// A part for all exact hosts, one for each wildcard, and one for all other hosts if it is the default.
    fn split(&self) -> Vec<Self> {
        let (wildcards, exact): (Vec<_>, Vec<_>) =
            self.hosts.iter().cloned().partition(|host| host.starts_with("*."));
        let part = |hosts: Vec<String>| Self { hosts, is_default: false, ..self.clone() };
        let mut parts: Vec<Self> = wildcards.into_iter().map(|host| part(vec![host])).collect();
        if !exact.is_empty() {
            parts.push(part(exact));
        }
        if self.is_default || parts.is_empty() {
            parts.push(Self { hosts: Vec::new(), ..self.clone() });
        }
        parts
    }

    /// The `return` or `rewrite` to https that this server is for, with its status.
    fn redirect_to_https(&self) -> Option<&'d Directive> {
        let of_ifs = |variable: &str| -> Vec<&'d Directive> {
            let ifs = self.directives.iter().filter(|directive| directive.name == "if");
            ifs.filter(|directive| directive.argument(0) == variable)
                .flat_map(|directive| directive.children())
                .collect()
        };
        // Whatever else such a server does, it does by https.
        let by_scheme = [of_ifs("($scheme"), of_ifs("($https")].concat();
        if let Some(redirect) = by_scheme.into_iter().find(|directive| self.leads_to_https(directive)) {
            return Some(redirect);
        }
        let locations: Vec<&'d Directive> = self.named("location").collect();
        // A challenge of a certificate, or a reply to health checks; it is noted.
        let is_small = |location: &&&Directive| {
            let is_root = location.arguments == ["/"];
            location.arguments.last().is_some_and(|path| path.contains("/.well-known/acme-challenge"))
                || !is_root && location.children().iter().any(|directive| directive.name == "return")
        };
        let others: Vec<_> = locations.iter().filter(|location| !is_small(location)).collect();
        let inner = match others.as_slice() {
            [] => None,
            [root] if root.arguments == ["/"] => Some(root.children()),
            _ => return None,
        };
        let of_server = self.directives.iter().copied();
        let mut all: Vec<&Directive> = of_server.chain(inner.into_iter().flatten()).collect();
        // Certbot writes `if ($host = NAME) { return 301 …; }` for each name, and `return 404` for others.
        let of_ifs = of_ifs("($host");
        all.extend(of_ifs);
        if all.iter().any(|directive| directive.name.ends_with("_pass")) {
            return None;
        }
        all.into_iter().find(|directive| self.leads_to_https(directive))
    }

    /// Whether this is a redirect to the same host and path by https.
    fn leads_to_https(&self, directive: &Directive) -> bool {
        let target = match (directive.name.as_str(), directive.arguments.as_slice()) {
            ("return", [status, url]) if status.starts_with('3') => url,
            ("rewrite", [pattern, url, _])
                if matches!(pattern.as_str(), "^" | "^(.*)" | "^(.*)$" | "^/(.*)$" | "^/(.*)" | "(.*)") =>
            {
                url
            }
            _ => return false,
        };
        let Some(rest) = target.strip_prefix("https://") else { return false };
        let at = rest
            .find("$request_uri")
            .or_else(|| rest.find("$uri"))
            .or_else(|| rest.find("/$1"))
            .or_else(|| rest.find("$1"));
        let Some(at) = at else { return false };
        let host = &rest[..at];
        matches!(host, "$host" | "$server_name" | "$http_host")
            || self.hosts.len() == 1 && self.hosts.first().is_some_and(|name| name == host)
    }
}

impl<'d> Converter<'d> {
    pub(super) fn servers(&mut self, mut servers: Vec<Server<'d>>, scope: &Scope<'d>) {
        for server in &mut servers {
            self.read_listens(server);
            self.read_names(server);
        }
        if servers.is_empty() {
            return self.policies_of_zones();
        }
        // nginx compares paths letter by letter.
        let exact = Map::new().with("case", "sensitive").with("trailing_slash", "exact");
        self.draft.settings.set("match", exact);
        let redirects: Vec<_> = servers.iter().map(Server::redirect_to_https).collect();
        let skipped: Vec<bool> = (0..servers.len())
            .map(|index| {
                redirects[index]
                    .is_some_and(|redirect| self.is_skipped(index, redirect, &servers, &redirects))
            })
            .collect();
        self.choose_defaults(&mut servers, &skipped);
        self.listeners(&servers, &redirects);
        // Exact names win over wildcards, longer wildcards over shorter ones, and the default takes what is left.
        let kept: Vec<&Server<'d>> = servers
            .iter()
            .zip(&skipped)
            .filter(|(_, skipped)| !**skipped)
            .map(|(server, _)| server)
            .collect();
        let has_others = kept.len() > 1;
        let is_split = overlap(&kept);
        let mut order: Vec<Server<'d>> = Vec::new();
        for server in kept {
            match is_split {
                true => order.extend(server.split()),
                false => order.push(server.clone()),
            }
        }
        // Of two for one host, the one by TLS: it is rarely the laxer one.
        order.sort_by_key(|server| {
            let is_tls = server.listens.iter().any(|listen| listen.is_tls);
            (server.is_default, server.wildcard() > 0, Reverse(server.wildcard()), !is_tls)
        });
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        for server in &order {
            self.redirects_plain = server
                .listens
                .iter()
                .all(|listen| listen.is_tls || only_redirects(&listen.key, &servers, &redirects));
            let first = self.draft.routes.len();
            self.server(server, has_others, &mut taken, scope);
            self.keep_inside(server, &servers, first);
        }
    }

    /// Keeps clients of other listeners away from the routes, from `first` on, of a server that has listeners of its own.
    fn keep_inside(&mut self, server: &Server<'d>, servers: &[Server<'d>], first: usize) {
        let asks = |server: &Server<'_>| {
            server.named("ssl_verify_client").last().is_some_and(|verify| verify.argument(0) == "on")
        };
        let all = || servers.iter().flat_map(|other| &other.listens);
        if asks(server) && servers.iter().any(|other| !asks(other)) {
            let text = "`ssl_verify_client on`: routes of Tollgate hold for all listeners, also for those that ask for no \
                        certificate: run another Tollgate for these routes, or remove the other listeners";
            self.head(&server.place, text);
        }
        let is_inner = |listen: &Listen<'_>| {
            ["127.", "[::1]", "unix:"].iter().any(|begin| listen.address.starts_with(begin))
        };
        if !server.listens.iter().all(is_inner) || all().all(is_inner) {
            return;
        }
        let mut is_noted = false;
        for route in self.draft.routes.iter_mut().skip(first) {
            let Value::Map(map) = &mut route.value else { continue };
            if map.has("upstream") {
                map.set("allow", vec!["127.0.0.1", "::1"]);
                is_noted = true;
            }
        }
        if is_noted {
            let text = "this server listens on this machine alone, and routes of Tollgate hold for all listeners: they \
                        allow only clients on this machine";
            self.head(&server.place, text);
        }
    }

    /// Whether a server that redirects to https needs no routes: its listeners do it, or its hosts are served by TLS,
    /// where its routes would redirect again and again. Says so.
    fn is_skipped(
        &mut self,
        index: usize,
        redirect: &'d Directive,
        servers: &[Server<'d>],
        redirects: &[Option<&'d Directive>],
    ) -> bool {
        let server = &servers[index];
        if server.listens.iter().all(|listen| only_redirects(&listen.key, servers, redirects)) {
            self.note_redirect(server, redirect);
            return true;
        }
        let is_tls = |server: &Server<'_>| server.listens.iter().any(|listen| listen.is_tls);
        let mut by_tls = servers.iter().filter(|other| is_tls(other));
        let is_served = match server.hosts.is_empty() {
            true => by_tls.next().is_some(),
            false => by_tls.any(|other| server.hosts.iter().any(|host| other.hosts.contains(host))),
        };
        let is_skipped = !is_tls(server) && is_served;
        if is_skipped {
            let text = format!(
                "`{}`: Tollgate redirects whole listeners to https, and other servers on this port are not redirected: these \
                 hosts are served in clear text, too. Set `redirect: https` on the listener if no client needs clear text",
                redirect.shown()
            );
            self.head(&redirect.place, text);
        }
        is_skipped
    }

    fn note_redirect(&mut self, server: &Server<'d>, redirect: &'d Directive) {
        let status = if redirect.name == "return" { redirect.argument(0) } else { "301" };
        if status != "308" {
            self.draft.head.push(Comment::Plain(format!(
                "{}: the listener redirects to https with status 308 in place of {status}.",
                redirect.place
            )));
        }
        for location in server
            .named("location")
            .filter(|location| location.argument(0) != "/" || location.arguments.len() > 1)
        {
            let text = format!("`{}`: the listener redirects these requests, too", location.shown());
            self.head(&location.place, text);
        }
    }

    fn read_listens(&mut self, server: &mut Server<'d>) {
        let listens: Vec<_> = server.named("listen").collect();
        let has_ssl = server.named("ssl").any(|ssl| ssl.argument(0) == "on");
        for listen in listens {
            match listen_of(listen, has_ssl) {
                Ok(listen) => server.listens.push(listen),
                Err(reason) => self.head(&listen.place, format!("`{}`: {reason}", listen.shown())),
            }
        }
        if server.named("listen").next().is_none() {
            let address = "0.0.0.0:80".to_owned();
            server.listens.push(Listen {
                address,
                key: "80".to_owned(),
                is_default: false,
                is_tls: has_ssl,
                is_proxy_protocol: false,
                directive: None,
            });
        }
    }

    fn read_names(&mut self, server: &mut Server<'d>) {
        let directives: Vec<_> = server.named("server_name").collect();
        for directive in directives {
            for name in &directive.arguments {
                let host = name.to_ascii_lowercase();
                let is_valid = |host: &str| {
                    !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
                };
                match host.strip_prefix("*.").or_else(|| host.strip_prefix('.')) {
                    // Names that no request has, for a server that is the default.
                    _ if matches!(host.as_str(), "_" | "" | "__" | "--" | "!@#" | "-") => continue,
                    Some(suffix) if is_valid(suffix) => {
                        if host.starts_with('.') {
                            server.hosts.push(suffix.to_owned());
                        }
                        server.hosts.push(format!("*.{suffix}"));
                    }
                    None if host.starts_with('~')
                        || host.ends_with(".*")
                        || !is_valid(&host)
                        || host.contains('_') =>
                    {
                        let text = format!(
                            "`server_name {name}`: list the hosts, or `*.example.com` for all below one"
                        );
                        self.head(&directive.place, text);
                    }
                    _ => server.hosts.push(host),
                }
                server.names.push(name);
            }
        }
        let mut seen = BTreeSet::new();
        server.hosts.retain(|host| seen.insert(host.clone()));
    }

    /// Marks the server that takes requests for other hosts.
    fn choose_defaults(&mut self, servers: &mut [Server<'d>], skipped: &[bool]) {
        let mut defaults: BTreeMap<String, usize> = BTreeMap::new();
        for (index, server) in servers.iter().enumerate() {
            for listen in &server.listens {
                if listen.is_default {
                    defaults.insert(listen.key.clone(), index);
                }
            }
        }
        for (index, server) in servers.iter().enumerate() {
            for listen in &server.listens {
                defaults.entry(listen.key.clone()).or_insert(index);
            }
        }
        let mut indices: Vec<usize> = defaults.into_values().filter(|index| !skipped[*index]).collect();
        indices.sort_unstable();
        indices.dedup();
        // Of several, one with a name only for itself is not meant as the default.
        let chosen = indices.iter().copied().min_by_key(|&index| {
            let is_explicit = servers[index].listens.iter().any(|listen| listen.is_default);
            (!servers[index].hosts.is_empty(), !is_explicit, index)
        });
        if let Some(chosen) = chosen {
            servers[chosen].is_default = true;
            for other in indices.into_iter().filter(|index| *index != chosen) {
                let text = format!(
                    "nginx sends requests for hosts without a server to this one on some ports, Tollgate on all ports to {}",
                    servers[chosen].shown()
                );
                let place = servers[other].place.clone();
                self.head(&place, text);
            }
        }
    }

    /// One listener for each address.
    fn listeners(&mut self, servers: &[Server<'d>], redirects: &[Option<&'d Directive>]) {
        let mut addresses: Vec<&str> = Vec::new();
        for listen in servers.iter().flat_map(|server| &server.listens) {
            if !addresses.contains(&listen.address.as_str()) {
                addresses.push(&listen.address);
            }
        }
        for address in addresses {
            let mut map = Map::new().with("address", address);
            let mut comments = Vec::new();
            let mut certificates: Vec<Node> = Vec::new();
            let on = || {
                servers
                    .iter()
                    .flat_map(|server| server.listens.iter().map(move |listen| (server, listen)))
                    .filter(|(_, listen)| listen.address == address)
            };
            if on().any(|(_, listen)| listen.is_proxy_protocol) {
                map.set("proxy_protocol", true);
            }
            let is_tls = on().any(|(_, listen)| listen.is_tls);
            if let Some((_, listen)) = on().next()
                && !is_tls
                && only_redirects(&listen.key, servers, redirects)
            {
                map.set("redirect", "https");
            }
            if is_tls {
                let mut tls = Map::new();
                // The default comes first: it serves clients without SNI.
                let mut of_tls: Vec<_> = on().collect();
                of_tls.sort_by_key(|(server, listen)| (!listen.is_default, !server.is_default));
                for (server, _) in of_tls {
                    self.server_tls(server, &mut certificates, &mut tls, &mut comments);
                }
                if certificates.is_empty() {
                    let text = "no certificate is named: nginx would refuse handshakes. Add `tls: { certificates: … }`";
                    if let Some((_, Listen { directive: Some(directive), .. })) = on().next() {
                        comments.push(unconverted(&directive.place, text));
                    }
                } else {
                    let mut with_certificates = Map::new().with("certificates", Value::List(certificates));
                    for (key, node) in tls.iter() {
                        with_certificates.set(key, node.clone());
                    }
                    map.set("tls", with_certificates);
                }
            }
            self.draft.listeners.push(Node { comments, ..Node::from(map) });
        }
    }

    fn server_tls(
        &mut self,
        server: &Server<'d>,
        certificates: &mut Vec<Node>,
        tls: &mut Map,
        comments: &mut Vec<Comment>,
    ) {
        let pairs = server.named("ssl_certificate").zip(server.named("ssl_certificate_key"));
        for (cert, key) in pairs {
            if has_variable(cert.argument(0)) || has_variable(key.argument(0)) {
                comments.push(unconverted(&cert.place, format!("`{}`: name each certificate", cert.shown())));
                continue;
            }
            let files =
                Map::new().with("cert", self.file(cert.argument(0))).with("key", self.file(key.argument(0)));
            let node = Node::from(files);
            if !certificates.contains(&node) {
                certificates.push(node);
            }
        }
        for protocols in server.named("ssl_protocols") {
            let old =
                protocols.arguments.iter().any(|word| matches!(word.as_str(), "SSLv3" | "TLSv1" | "TLSv1.1"));
            if old && self.said.insert("protocols".to_owned()) {
                comments.push(unconverted(
                    &protocols.place,
                    format!("`{}`: Tollgate has TLS 1.2 and 1.3", protocols.shown()),
                ));
            }
            if protocols.arguments == ["TLSv1.3"] {
                tls.set("min_version", Value::Text("1.3".to_owned()));
            }
        }
        if let (Some(ca), Some(verify)) =
            (server.named("ssl_client_certificate").last(), server.named("ssl_verify_client").last())
        {
            match verify.argument(0) {
                mode @ ("on" | "optional") => {
                    let file = Node::from(self.file(ca.argument(0)));
                    if tls.get("client_ca").is_some_and(|earlier| earlier.value != file.value) {
                        let text = format!(
                            "`{}`: another server of this listener has other authorities or asks otherwise; a listener of \
                             Tollgate has one `client_ca`, and `on` wins",
                            ca.shown()
                        );
                        comments.push(unconverted(&ca.place, text));
                    }
                    let is_first = !tls.has("client_ca");
                    let was_optional = tls.has("client_auth");
                    if is_first || was_optional && mode == "on" {
                        tls.set("client_ca", file);
                    }
                    if mode == "on" {
                        tls.remove("client_auth");
                    } else if is_first {
                        tls.set("client_auth", "optional");
                    }
                }
                "off" => {}
                _ => comments.push(unconverted(&verify.place, format!("`{}` has no equal", verify.shown()))),
            }
        }
    }

    /// The routes of a server. `taken`: hosts of servers before, with the names of these.
    fn server(
        &mut self,
        server: &Server<'d>,
        has_others: bool,
        taken: &mut BTreeMap<String, String>,
        scope: &Scope<'d>,
    ) {
        let mut head = Vec::new();
        let (mine, others): (Vec<_>, Vec<_>) =
            server.hosts.iter().cloned().partition(|host| !taken.contains_key(host));
        if let Some(other) = others.first() {
            let text = format!(
                "host `{other}` is also served by {}. Routes of Tollgate hold for all listeners, so that this server takes \
                 no request for it",
                taken[other]
            );
            head.push(unconverted(&server.place, text));
        }
        if !server.is_default && mine.is_empty() {
            if server.hosts.is_empty() {
                let text = "no request reaches this server by a host that Tollgate can match: its routes are left out";
                head.push(unconverted(&server.place, text));
            }
            self.draft.head.extend(head);
            return;
        }
        for host in &mine {
            taken.insert(host.clone(), server.shown());
        }
        // With others before it, the default takes all hosts that are left.
        let hosts = if server.is_default { Vec::new() } else { mine };
        if has_others || !server.names.is_empty() {
            let names =
                if server.names.is_empty() { "without a name".to_owned() } else { server.names.join(" ") };
            let default = if server.is_default { ": also for hosts that no server names" } else { "" };
            head.push(Comment::Plain(format!("server {names} ({}){default}", server.place)));
        }
        let inner = scope.enter(server.directives.iter().copied());
        for directive in &server.directives {
            let name = directive.name.as_str();
            let is_known = matches!(
                name,
                "listen"
                    | "server_name"
                    | "location"
                    | "return"
                    | "rewrite"
                    | "if"
                    | "set"
                    | "ssl_certificate"
                    | "ssl_certificate_key"
                    | "ssl_protocols"
                    | "ssl_client_certificate"
                    | "ssl_verify_client"
                    | "try_files"
            ) || Scope::is_inherited(name);
            if matches!(name, "set_real_ip_from" | "real_ip_header") {
                head.push(unconverted(
                    &directive.place,
                    format!("`{}`: write `trusted_proxies`, which hold for all hosts", directive.shown()),
                ));
            } else if !is_known {
                head.extend(self.note_for(directive));
            }
        }
        let first = self.draft.routes.len();
        let ordered = ordered(server.directives.iter().copied());
        self.server_routes(&server.directives, &hosts, &inner, &ordered, has_others);
        match self.draft.routes.get_mut(first) {
            Some(route) => {
                head.append(&mut route.comments);
                route.comments = head;
            }
            None => self.draft.head.append(&mut head),
        }
    }
}

/// Whether a host of one server is below a wildcard of another, or is also one of the default server.
fn overlap(servers: &[&Server<'_>]) -> bool {
    let is_in = |host: &str, other: &Server<'_>| {
        other.hosts.iter().any(|outer| {
            host == outer || outer.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix))
        })
    };
    servers.iter().enumerate().any(|(index, server)| {
        let others = || servers.iter().enumerate().filter(|(other, _)| *other != index);
        server.hosts.iter().any(|host| others().any(|(_, other)| is_in(host, other)))
    })
}

/// Whether all servers on this port redirect to https, and one serves it. A server that redirects elsewhere, and does so
/// by TLS, too, may get its requests there.
fn only_redirects(key: &str, servers: &[Server<'_>], redirects: &[Option<&Directive>]) -> bool {
    let is_tls = |server: &Server<'_>| server.listens.iter().any(|listen| listen.is_tls);
    let is_on = |server: &Server<'_>| server.listens.iter().any(|listen| listen.key == key && !listen.is_tls);
    let leads_elsewhere = |server: &Server<'_>| {
        is_tls(server)
            && server.named("return").any(|directive| directive.argument(1).starts_with("https://"))
    };
    let on: Vec<_> = servers.iter().zip(redirects).filter(|(server, _)| is_on(server)).collect();
    servers.iter().any(is_tls)
        && on.iter().any(|(_, redirect)| redirect.is_some())
        && on.iter().all(|(server, redirect)| redirect.is_some() || leads_elsewhere(server))
}

/// The address of a `listen`.
fn listen_of<'d>(listen: &'d Directive, has_ssl: bool) -> Result<Listen<'d>, String> {
    let text = listen.argument(0);
    let has = |word: &str| listen.arguments.iter().skip(1).any(|argument| argument == word);
    if has("quic") {
        return Err("Tollgate has no HTTP/3".to_owned());
    }
    let (address, key) = if let Some(path) = text.strip_prefix("unix:") {
        (format!("unix:{path}"), text.to_owned())
    } else if text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty() {
        (format!("0.0.0.0:{text}"), text.to_owned())
    } else {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (text, "80"),
        };
        if port.parse::<u16>().is_err() {
            return Err("its port cannot be read".to_owned());
        }
        match host {
            "*" | "0.0.0.0" => (format!("0.0.0.0:{port}"), port.to_owned()),
            "[::]" => (format!("[::]:{port}"), port.to_owned()),
            "localhost" => (format!("127.0.0.1:{port}"), format!("127.0.0.1:{port}")),
            host if host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() => {
                (format!("{host}:{port}"), format!("{host}:{port}"))
            }
            _ => return Err("listen on an IP address".to_owned()),
        }
    };
    Ok(Listen {
        address,
        key,
        is_default: has("default_server") || has("default"),
        is_tls: has("ssl") || has_ssl,
        is_proxy_protocol: has("proxy_protocol"),
        directive: Some(listen),
    })
}
