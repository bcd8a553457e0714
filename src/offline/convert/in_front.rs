//! `--in-front-of`: Tollgate before the old proxy, which goes on to do everything. Tollgate counts, and changes nothing.

use url::Url;

use super::{
    Source, SourceLine,
    condition::HostCondition,
    draft::ConfigDraft,
    networks::Networks,
    requests::Requests,
    routes::{RouteDraft, RouteEnd},
    site::{RuleResponse, SiteListener},
    yaml::{Comment, Map, YamlNode, YamlValue},
};

/// The name of the upstream that is the old proxy.
const OLD: &str = "old-proxy";

/// Reads the URL of the old proxy: `http` or `https`, a host, and no path.
///
/// # Errors
/// The error.
pub(super) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{text}` is no URL: {error}"))?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.username().is_empty();
    match matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare {
        true => Ok(url),
        false => Err(format!("`{text}` has to be a URL like http://127.0.0.1:8443, without a path")),
    }
}

impl ConfigDraft {
    /// Sends every request of these routes to the old proxy as it is. Its own limits stay on; the policies here only
    /// count.
    pub(super) fn put_in_front(
        &mut self,
        routes: Vec<RouteDraft>,
        old: &Url,
        source: Source,
    ) -> Vec<RouteDraft> {
        let served = self.keep_listeners(source);
        let host =
            routes.iter().flat_map(|route| route.requests.hosts.iter().flatten()).find_map(
                |host| match host {
                    HostCondition::Exact(name) => Some(name.clone()),
                    HostCondition::Below(_) => None,
                },
            );
        self.set_for_front(old, host);
        self.explain_front(old, source);
        let to_old = |requests: Requests, limits| RouteDraft {
            requests,
            name: None,
            end: RouteEnd::Act(RuleResponse::Upstream(OLD.to_owned())),
            limits,
            admitted: Networks::all(),
            edits: Vec::new(),
            comments: Vec::new(),
            place: SourceLine { file: String::new(), line: 0 },
        };
        let is_served = |requests: &Requests| match (&requests.listeners, served.is_empty()) {
            (Some(names), false) => names.iter().any(|name| served.contains(name)),
            _ => true,
        };
        let mut front: Vec<RouteDraft> = Vec::new();
        for route in routes.into_iter().filter(|route| is_served(&route.requests)) {
            let mut requests = route.requests;
            if let Some(names) = requests.listeners.as_mut() {
                names.retain(|name| served.contains(name));
            }
            // Closed and refused requests go to the old proxy, too, which refuses them.
            let limits = if matches!(route.end, RouteEnd::Act(_)) { route.limits } else { Vec::new() };
            front.push(to_old(requests, limits));
        }
        let is_unlimited = |route: &RouteDraft| route.limits.is_empty();
        while front.last().is_some_and(is_unlimited) {
            front.pop();
        }
        if front.iter().all(|route| !route.requests.covers(&Requests::default())) {
            front.push(to_old(Requests::default(), Vec::new()));
        }
        front
    }

    /// Takes out the listeners that stay with the old proxy: those in clear text, if there are others with TLS. Returns
    /// the names of those that are left.
    fn keep_listeners(&mut self, source: Source) -> Vec<String> {
        let is_tls = |settings: &Map| settings.has("tls");
        if self.listeners.iter().any(|listener| is_tls(&listener.settings)) {
            for listener in self.listeners.extract_if(.., |listener| !is_tls(&listener.settings)) {
                let address = match listener.settings.get("address").map(|node| &node.value) {
                    Some(YamlValue::Text(address)) => address.clone(),
                    _ => listener.name,
                };
                let text = format!("{address} is in clear text, and stays with {}.", source.title());
                self.head.push(Comment::Plain(text));
            }
        }
        for listener in &mut self.listeners {
            listener.settings.remove("redirect");
        }
        self.listeners.iter().map(|listener| listener.name.clone()).collect()
    }

    /// The upstream, and settings with which nothing is refused or changed.
    fn set_for_front(&mut self, old: &Url, host: Option<String>) {
        let url = old.as_str().trim_end_matches('/');
        let mut upstream = Map::new()
            .with("endpoints", vec![url])
            .with("timeouts", Map::new().with("response", "1h").with("idle", "1h"))
            .with("retry", Map::new().with("max", 0))
            .with("outlier", "off")
            .with("max_connections", 100_000);
        if let Some(host) = host.filter(|_| old.scheme() == "https") {
            upstream.set("tls", Map::new().with("server_name", host));
        }
        self.upstreams = Map::new().with(OLD, upstream);
        for name in ["deny", "allow", "client_limits", "user", "api_keys", "plans", "bans"] {
            self.settings.remove(name);
        }
        for (name, value) in [("method_override", "allow"), ("trailers", "pass"), ("early_hints", "pass")] {
            self.settings.set(name, value);
        }
        self.settings.set("reply_headers", Map::new().with("ratelimit", "off").with("via", "off"));
        let names: Vec<String> = self.policies.iter().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            if let Some(YamlNode { value: YamlValue::Map(policy), .. }) = self.policies.get_mut(&name) {
                policy.remove("reply");
                policy.remove("delay");
                policy.set("mode", "shadow");
            }
        }
    }

    /// Notes the settings that the old proxy needs.
    fn explain_front(&mut self, old: &Url, source: Source) {
        let (name, address) = (source.title(), old.as_str().trim_end_matches('/'));
        let client = match source {
            Source::Nginx => {
                "`set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;` (and Tollgate's address, if it runs on \
                 another machine). `port_in_redirect off;` keeps its new port out of its redirects"
            }
            Source::Haproxy => {
                "`http-request set-src req.hdr(x-forwarded-for) if { src 127.0.0.1 }` as its first rule"
            }
            Source::Traefik => {
                "`forwardedHeaders: { trustedIPs: [127.0.0.1] }` on the entry point, and `ipStrategy: { depth: 1 \
                                }` where it compares addresses"
            }
            Source::Kong => "`trusted_ips = 127.0.0.1` and `real_ip_header = X-Forwarded-For` in kong.conf",
        };
        let texts = [
            format!("Tollgate before {name}: every request goes to {address} as it came, and the policies only count."),
            format!("1. Let {name} listen on {address} in place of the ports of the listeners below."),
            format!("2. Let it take the client's address from Tollgate: {client}."),
            "3. Compare: `tollgate policies`, and `shadow_policy` in the access log, tell what would have been denied.".to_owned(),
            "Tollgate refuses only requests that are malformed or whose path is ambiguous (docs/routes.md).".to_owned(),
        ];
        self.head.extend(texts.map(Comment::Plain));
        if old.scheme() == "http" && self.listeners.iter().any(|listener| listener.settings.has("tls")) {
            let text = format!(
                "TLS ends at Tollgate: {name} gets these requests in clear text, with `X-Forwarded-Proto: https`. If it \
                 compares or passes on its own scheme, let it listen with TLS, and convert with https:// in the URL."
            );
            self.head.push(Comment::Plain(text));
        }
        let has_client_ca =
            |listener: &SiteListener| match listener.settings.get("tls").map(|node| &node.value) {
                Some(YamlValue::Map(tls)) => tls.has("client_ca"),
                _ => false,
            };
        if self.listeners.iter().any(has_client_ca) {
            let text = format!("Tollgate checks the clients' certificates, and {name} no longer sees them.");
            self.head.push(Comment::Plain(text));
        }
    }
}
