//! Plugins become policies, and settings of routes.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{Kong, leftovers, transformers};
use crate::convert::{
    document::{Fields, Item},
    draft::resource_name,
    route_draft::{Action, RouteDraft, duration, speaks_of_credentials},
    yaml::{Comment, Map, Node, Value},
};

/// A plugin, and what it is for. Without service, route and consumer, it is global.
pub(super) struct Plugin<'d> {
    pub(super) name: &'d str,
    pub(super) item: Item<'d>,
    service: Option<usize>,
    route: Option<usize>,
    consumer: Option<String>,
    pub(super) is_enabled: bool,
}

impl<'d> Plugin<'d> {
    pub(super) fn new(
        item: Item<'d>,
        service: Option<usize>,
        route: Option<usize>,
        consumer: Option<&str>,
    ) -> Self {
        let fields = item.fields();
        Self {
            name: fields.text("name").unwrap_or_default(),
            item,
            service,
            route,
            consumer: consumer.map(str::to_owned),
            is_enabled: fields.take("enabled").is_none_or(|item| item.text() != Some("false")),
        }
    }

    /// Whether it is for a consumer on all routes.
    fn limits_everywhere(&self) -> bool {
        self.consumer.is_some() && self.route.is_none() && self.service.is_none() && self.is_enabled
    }

    /// How specific it is for a consumer on a route. `None`: it is not for this route, or for all routes.
    fn specificity_of_consumer(&self, service: Option<usize>, route: usize) -> Option<u8> {
        let is_for = self.is_enabled
            && self.consumer.is_some()
            && !self.limits_everywhere()
            && self.route.is_none_or(|of| of == route)
            && self.service.is_none_or(|of| Some(of) == service);
        is_for.then(|| self.scope())
    }

    /// The narrower it is, the greater.
    fn scope(&self) -> u8 {
        2 * u8::from(self.route.is_some()) + u8::from(self.service.is_some())
    }

    /// How specific it is for a route. `None`: it is not for this route.
    fn specificity(&self, service: Option<usize>, route: usize) -> Option<u8> {
        match (self.route, self.service) {
            _ if !self.is_enabled || self.consumer.is_some() => None,
            (Some(of), _) => (of == route).then_some(2),
            (None, Some(of)) => (Some(of) == service).then_some(1),
            (None, None) => Some(0),
        }
    }
}

/// Settings of Redis in versions before 3.8, behind `redis_`.
const REDIS_KEYS: [&str; 9] =
    ["host", "password", "port", "database", "ssl", "username", "timeout", "ssl_verify", "server_name"];

/// The windows of `rate-limiting`.
const WINDOWS: [(&str, &str); 6] =
    [("second", "1s"), ("minute", "1m"), ("hour", "1h"), ("day", "1d"), ("month", "month"), ("year", "365d")];

impl<'d> Kong<'d> {
    /// Applies the plugins that are for a route.
    pub(super) fn apply_plugins(
        &mut self,
        service: Option<usize>,
        route: usize,
        draft: &mut RouteDraft,
        is_first: bool,
    ) {
        let mut names: Vec<&str> = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| plugin.specificity(service, route).is_some()) {
            if !names.contains(&plugin.name) {
                names.push(plugin.name);
            }
        }
        self.uses_keys = self
            .plugins
            .iter()
            .any(|plugin| plugin.name == "key-auth" && plugin.is_enabled && plugin.consumer.is_none());
        if self.uses_keys && !names.contains(&"key-auth") {
            draft.require = Some("none");
        }
        for name in &names {
            if let Some(nth) = self.best(name, service, route) {
                let mut comments = Vec::new();
                self.apply(nth, draft, &mut comments);
                if is_first {
                    draft.comments.append(&mut comments);
                }
            }
        }
        let (has_keys, has_tokens) = (names.contains(&"key-auth"), names.contains(&"jwt"));
        let mut comments = Vec::new();
        let is_known = draft.require != Some("none") && (has_keys || has_tokens);
        for (name, is_lost, text) in [
            (
                "jwt",
                has_keys,
                "`key-auth` and `jwt`: Kong asks for both, and `require` for one of them. This route serves \
                    only this machine until you choose one and remove `allow`",
            ),
            (
                "acl",
                !is_known,
                "`acl`: this route admits requests without a key or a token. It serves only this machine \
                    until you set `require` and remove `allow`",
            ),
        ] {
            let plugin = self.best(name, service, route).filter(|_| is_lost);
            if let Some(plugin) = plugin.and_then(|nth| self.plugins.get(nth)) {
                comments.push(plugin.item.note(text));
                draft.is_closed = true;
            }
        }
        self.limits_of_consumers(service, route, has_keys, draft, &mut comments);
        if is_first {
            draft.comments.append(&mut comments);
        }
        if has_keys {
            draft.policies.extend(self.consumer_policy());
        }
    }

    /// Adds policies for the consumers whose limits on this route are not among the `overrides` of its policy.
    fn limits_of_consumers(
        &mut self,
        service: Option<usize>,
        route: usize,
        has_keys: bool,
        draft: &mut RouteDraft,
        comments: &mut Vec<Comment>,
    ) {
        let base = self.best("rate-limiting", service, route);
        let overridden = base.map(|nth| self.overriding(nth)).unwrap_or_default();
        let mut own: Vec<(u8, usize)> = self
            .plugins
            .iter()
            .enumerate()
            .filter(|(nth, plugin)| plugin.name == "rate-limiting" && !overridden.contains(nth))
            .filter_map(|(nth, plugin)| Some((plugin.specificity_of_consumer(service, route)?, nth)))
            .collect();
        own.sort_by_key(|(rank, _)| Reverse(*rank));
        let mut known = BTreeSet::new();
        for (_, nth) in own {
            let Some(plugin) = self.plugins.get(nth) else { continue };
            let (item, consumer) = (plugin.item, plugin.consumer.clone().unwrap_or_default());
            // The most specific one counts.
            if !known.insert(consumer.clone()) {
                continue;
            }
            let limits = limits(&item.fields().fields("config"), comments);
            if limits.is_empty() {
                continue;
            }
            if !has_keys {
                comments.push(item.note(format!(
                    "the limits of {consumer}: without `key-auth`, this route does not know customers, so \
                        they do not apply"
                )));
                continue;
            }
            if base.is_some() {
                comments.push(item.note(format!(
                    "the limits of {consumer} on this route count beside those of the route's other policies: \
                        the lower ones hold"
                )));
            }
            let names = match self.policies.get(&nth) {
                Some(names) => names.clone(),
                None => {
                    let mut written = Map::new().with("customer", consumer.as_str());
                    set_limits(&mut written, &limits);
                    let name = self.policy_name(nth, &format!("rate-{consumer}"));
                    self.draft.policies.set(&name, only(vec![written], vec![only_overrides()]));
                    self.policies.insert(nth, vec![name.clone()]);
                    vec![name]
                }
            };
            draft.policies.extend(names);
        }
    }

    /// The plugin with this name that applies to a route.
    fn best(&self, name: &str, service: Option<usize>, route: usize) -> Option<usize> {
        let candidates = self.plugins.iter().enumerate().filter(|(_, plugin)| plugin.name == name);
        let ranked =
            candidates.filter_map(|(nth, plugin)| Some((plugin.specificity(service, route)?, Reverse(nth))));
        ranked.max().map(|(_, Reverse(nth))| nth)
    }

    fn apply(&mut self, nth: usize, route: &mut RouteDraft, comments: &mut Vec<Comment>) {
        let Some(plugin) = self.plugins.get(nth) else { return };
        let (name, item) = (plugin.name, plugin.item);
        let fields = item.fields();
        fields.ignore(&["name", "enabled", "service", "route", "consumer", "protocols", "ordering"]);
        let config = fields.fields("config");
        match name {
            "rate-limiting" | "rate-limiting-advanced" => {
                let names = match self.policies.get(&nth) {
                    Some(names) => names.clone(),
                    None => {
                        let names = if name == "rate-limiting" {
                            self.rate_limiting(nth, &config)
                        } else {
                            self.advanced(nth, &config)
                        };
                        self.policies.insert(nth, names.clone());
                        names
                    }
                };
                route.policies.extend(names);
                return;
            }
            "key-auth" => {
                if config.text("anonymous").is_some() {
                    // The requirement of another plugin remains.
                    route.require = route.require.or(Some("none"));
                }
                return;
            }
            "jwt" => {
                if self.consumers.has_tokens() {
                    route.require = Some("user");
                } else {
                    comments.push(item.note(
                        "`jwt`: this file has no `jwt_secrets`. This route serves \
                        only this machine until you set `user: [{ jwt: … }]` and write `require: user` \
                        in place of `allow`",
                    ));
                    route.is_closed = true;
                }
                for key in ["uri_param_names", "cookie_names"] {
                    if let Some(names) =
                        config.take(key).filter(|item| !item.items().is_empty() && item.texts() != ["jwt"])
                    {
                        comments.push(names.note(format!("`{key}`: tokens are read from a header")));
                    }
                }
                config.ignore(&[
                    "key_claim_name",
                    "secret_is_base64",
                    "claims_to_verify",
                    "header_names",
                    "run_on_preflight",
                    "anonymous",
                    "realm",
                    "maximum_expiration",
                    "uri_param_names",
                ]);
            }
            "acl" => {
                let groups: Vec<_> =
                    ["allow", "whitelist"].iter().flat_map(|key| config.texts(key)).collect();
                config.ignore(&[
                    "hide_groups_header",
                    "always_use_authenticated_groups",
                    "include_consumer_groups",
                ]);
                if let Some(deny) = ["deny", "blacklist"]
                    .iter()
                    .find_map(|key| config.take(key))
                    .filter(|item| !item.items().is_empty())
                {
                    comments.push(
                        deny.note("`deny`: give the keys of all other customers `routes`, in keys.yaml"),
                    );
                    route.is_closed = true;
                }
                if !groups.is_empty() && !self.consumers.all_in(&groups) {
                    let members: Vec<_> = self.consumers.members(&groups).into_iter().collect();
                    let members = members.join(", ");
                    let who = if members.is_empty() { "the groups" } else { &members };
                    let tokens = if self.consumers.has_tokens() {
                        "; the service must refuse the tokens of others"
                    } else {
                        ""
                    };
                    comments.push(item.note(format!(
                        "`acl`: only {who} may use this route. Write `routes` at the other keys in \
                            keys.yaml, without {}{tokens}. This route serves only this machine until you \
                            remove `allow`",
                        route.name
                    )));
                    route.is_closed = true;
                }
            }
            "ip-restriction" => {
                let networks: Vec<_> =
                    ["allow", "whitelist"].iter().flat_map(|key| config.texts(key)).collect();
                if !networks.is_empty() && !route.admit_only(&networks) {
                    comments.push(item.note(
                        "no client is in `allow`: this route serves only this machine until you correct it",
                    ));
                }
                for key in ["deny", "blacklist"] {
                    route.deny.extend(config.texts(key).into_iter().map(str::to_owned));
                }
                for key in ["status", "message"] {
                    if let Some(item) =
                        config.take(key).filter(|item| !item.is_null() && item.text() != Some("403"))
                    {
                        comments.push(item.note(format!(
                            "`{key}`: these clients get 403 with problem \
                                details"
                        )));
                    }
                }
            }
            "request-size-limiting" => {
                let size = config.number("allowed_payload_size").unwrap_or(128);
                let bits = match config.text("size_unit").unwrap_or("megabytes") {
                    "bytes" => 0,
                    "kilobytes" => 10,
                    _ => 20,
                };
                route.max_body = Some(size << bits);
                if config.is_true("require_content_length") {
                    comments.push(
                        item.note(
                            "`require_content_length`: bodies without a length are measured as they come",
                        ),
                    );
                }
            }
            "cors" => route.cors = Some(cors(&config, comments)),
            "request-termination" => {
                let status = config.number("status_code").unwrap_or(503);
                let mut reply = Map::new().with("status", status);
                match (config.text("body"), config.text("message")) {
                    (Some(body), _) => {
                        reply.set("body", body);
                        if let Some(kind) = config.text("content_type") {
                            reply.set("content_type", kind);
                        }
                    }
                    (None, Some(message)) => {
                        reply.set("body", format!("{{\"message\":{}}}", serde_json::Value::from(message)));
                    }
                    (None, None) => {}
                }
                if let Some(trigger) = config.take("trigger").filter(|item| !item.is_null()) {
                    comments.push(trigger.note(
                        "`trigger`: write a route with this header or query parameter before this one",
                    ));
                } else if matches!(status, 200..=299 | 400..=599) {
                    route.action = Action::Reply(reply);
                } else {
                    comments.push(item.note(format!("{status} is no status that `reply` takes")));
                }
            }
            "request-transformer" | "request-transformer-advanced" => {
                transformers::request(&config, route, item, comments);
            }
            "response-transformer" | "response-transformer-advanced" => {
                transformers::response(&config, route, item, comments);
            }
            "correlation-id" => {
                let header = config.text("header_name").unwrap_or("Kong-Request-ID").to_ascii_lowercase();
                self.draft.settings.set("request_id", header);
                // They are UUIDs here, told to the client as well.
                config.ignore(&["generator", "echo_downstream"]);
            }
            "basic-auth"
            | "hmac-auth"
            | "ldap-auth"
            | "ldap-auth-advanced"
            | "oauth2"
            | "oauth2-introspection"
            | "openid-connect"
            | "mtls-auth"
            | "jwt-signer"
            | "key-auth-enc"
            | "vault-auth"
            | "saml"
            | "opa"
            | "header-cert-auth"
            | "session" => {
                let hint = match name {
                    "openid-connect" => {
                        "set `user: [{ jwt: { issuer: …, discover: true } }]` and `require: user`"
                    }
                    "mtls-auth" => "set `client_ca` of a listener with TLS",
                    _ => {
                        "use API keys (`api_keys`), tokens (`user: [{ jwt: … }]`), or check this in the \
                            service"
                    }
                };
                comments.push(item.note(format!(
                    "`{name}`: {hint}. This route serves only this machine until you remove `allow`"
                )));
                route.is_closed = true;
                return;
            }
            _ => {
                let hint = match name {
                    "prometheus" | "statsd" | "datadog" | "statsd-advanced" => {
                        "/metrics of the admin port is for Prometheus"
                    }
                    "http-log" | "file-log" | "tcp-log" | "udp-log" | "syslog" | "loggly" | "kafka-log"
                    | "splunk-log" => "see `access_log`",
                    "zipkin" | "opentelemetry" => "see `tracing`",
                    "proxy-cache" | "proxy-cache-advanced" => "Tollgate does not cache",
                    "bot-detection" => {
                        "any client can send any User-Agent; see `deny` for networks, and bans"
                    }
                    "response-ratelimiting" => {
                        "a policy whose cost the response tells: `cost: { response: { header: … } }`"
                    }
                    "acme" => "let certbot or lego write certificates",
                    _ if speaks_of_credentials(name) => {
                        comments.push(item.note(format!(
                            "`{name}` has no equal, and it may check who asks. This route serves only this \
                                machine until you remove `allow`"
                        )));
                        route.is_closed = true;
                        return;
                    }
                    _ => "it has no equal",
                };
                let comment = item.note(format!("`{name}`: {hint}"));
                if self.told.insert(item.place().to_string()) {
                    comments.push(comment);
                }
                return;
            }
        }
        comments.extend(leftovers(&config, name));
        comments.extend(leftovers(&fields, name));
    }

    /// A name for a policy of a plugin.
    fn policy_name(&self, nth: usize, suffix: &str) -> String {
        let plugin = self.plugins.get(nth);
        let of =
            |item: Option<&Item<'d>>| item.and_then(|item| item.fields().text("name")).map(str::to_owned);
        let scope = plugin.and_then(|plugin| match (plugin.route, plugin.service) {
            (Some(route), _) => of(self.routes.get(route).map(|(_, item)| item)),
            (None, Some(service)) => of(self.services.get(service)),
            (None, None) => None,
        });
        let name = scope.map_or_else(|| suffix.to_owned(), |scope| format!("{scope}-{suffix}"));
        resource_name(&name, |name| self.draft.policies.has(name))
    }

    /// What `limit_by` counts by.
    fn key(&self, by: &str, config: &Fields<'d>, comments: &mut Vec<Comment>) -> (String, bool) {
        let has_tokens = self.plugins.iter().any(|plugin| plugin.name == "jwt" && plugin.is_enabled)
            && self.consumers.has_tokens();
        match by {
            "consumer" | "consumer-group" if self.uses_keys => ("customer".to_owned(), true),
            "credential" if self.uses_keys => ("api_key".to_owned(), true),
            "consumer" | "credential" | "consumer-group" if has_tokens => ("user".to_owned(), true),
            // Without a consumer, Kong counts by address.
            "consumer" | "credential" | "consumer-group" | "ip" => ("ip".to_owned(), false),
            "header" => {
                let name = config.text("header_name").unwrap_or("x-api-key").to_ascii_lowercase();
                (format!("header:{name}"), true)
            }
            "service" => ("global".to_owned(), false),
            "path" => {
                let path = config.text("path").unwrap_or_default();
                comments.push(config.note(format!(
                    "`limit_by: path`: Kong has one count for {path}, and one for each address \
                        elsewhere; write a route for {path} with a policy with \
                     `key: global`"
                )));
                ("ip".to_owned(), false)
            }
            other => {
                comments.push(config.note(format!("`limit_by: {other}` has no equal: counted by address")));
                ("ip".to_owned(), false)
            }
        }
    }

    fn rate_limiting(&mut self, nth: usize, config: &Fields<'d>) -> Vec<String> {
        let mut comments = Vec::new();
        let limits = limits(config, &mut comments);
        if limits.is_empty() {
            self.draft.head.push(config.note("`rate-limiting` without limits: not converted"));
            return Vec::new();
        }
        let by = config.text("limit_by").unwrap_or("consumer");
        let (key, may_lack) = self.key(by, config, &mut comments);
        let mut policy = Map::new().with("algorithm", "fixed_window").with("key", key.as_str());
        if may_lack {
            policy.set("missing", "ip");
        }
        set_limits(&mut policy, &limits);
        let overrides = self.overrides(nth, &key, &mut comments);
        // Those with limits here and on all routes are limited by both: here, the exemption would win.
        let has_override = |consumer: &str| {
            overrides.iter().any(|written| written.get("customer") == Some(&Node::from(consumer)))
        };
        let own = self.own_limits();
        let (both, others): (Vec<&str>, Vec<&str>) =
            own.iter().map(|(consumer, _)| *consumer).partition(|consumer| has_override(consumer));
        comments.extend(both.iter().map(|consumer| {
            config.note(format!(
                "{consumer} has limits here and on all routes: both count, and the lower ones hold"
            ))
        }));
        let exempt: Vec<_> = others.iter().map(|consumer| format!("customer:{consumer}")).collect();
        if !exempt.is_empty() {
            policy.set("exempt", exempt);
        }
        if !overrides.is_empty() {
            policy.set("overrides", overrides);
        }
        match config.text("policy").unwrap_or("local") {
            "local" => {}
            "redis" => self.store(config, &mut policy),
            _ => comments.push(config.note(
                "`policy: cluster`: to count over several instances, set `store: { redis: … \
                    }`",
            )),
        }
        // Redis' settings count with `policy: redis` only.
        config.ignore(&["fault_tolerant", "sync_rate", "header_name", "path", "redis"]);
        for key in REDIS_KEYS {
            config.take(&format!("redis_{key}"));
        }
        self.reply(config, &mut policy);
        comments.extend(leftovers(config, "rate-limiting"));
        let name = self.policy_name(nth, "rate");
        let mut node = Node::from(policy);
        node.comments = comments;
        self.draft.policies.set(&name, node);
        vec![name]
    }

    /// `rate-limiting-advanced`, of Kong Enterprise.
    fn advanced(&mut self, nth: usize, config: &Fields<'d>) -> Vec<String> {
        let numbers = |key: &str| -> Vec<u64> {
            config.texts(key).iter().filter_map(|text| text.parse().ok()).collect()
        };
        let pairs: Vec<(u64, u64)> = numbers("limit").into_iter().zip(numbers("window_size")).collect();
        let mut comments = Vec::new();
        let by = config.text("identifier").unwrap_or("consumer");
        let (key, may_lack) = self.key(by, config, &mut comments);
        let is_fixed = config.text("window_type") == Some("fixed");
        let groups: Vec<Vec<(u64, u64)>> =
            if is_fixed { vec![pairs] } else { pairs.into_iter().map(|pair| vec![pair]).collect() };
        let strategy = config.text("strategy").unwrap_or("local");
        let counts_denied = config.take("disable_penalty").is_none_or(|item| !item.is_true());
        config.ignore(&[
            "namespace",
            "sync_rate",
            "dictionary_name",
            "header_name",
            "path",
            "retry_after_jitter_max",
            "lock_dictionary_name",
            "redis",
            "disable_penalty",
        ]);
        let mut names = Vec::new();
        for pairs in groups.into_iter().filter(|pairs| !pairs.is_empty()) {
            let algorithm = if is_fixed { "fixed_window" } else { "sliding_counter" };
            let mut policy = Map::new().with("algorithm", algorithm).with("key", key.as_str());
            if may_lack {
                policy.set("missing", "ip");
            }
            let written: Vec<_> = pairs
                .iter()
                .map(|(limit, seconds)| format!("{limit}/{}", duration(seconds * 1000)))
                .collect();
            set_limits(&mut policy, &written);
            if counts_denied {
                policy.set("count_denied", true);
            }
            if strategy == "redis" {
                self.store(config, &mut policy);
            }
            self.reply(config, &mut policy);
            let name = self.policy_name(nth, "burst");
            let mut node = Node::from(policy);
            node.comments = std::mem::take(&mut comments);
            self.draft.policies.set(&name, node);
            names.push(name);
        }
        self.draft.head.extend(leftovers(config, "rate-limiting-advanced"));
        names
    }

    /// `reply` of a policy, unless it is Kong's default, and whether clients are told their limits.
    fn reply(&mut self, config: &Fields<'d>, policy: &mut Map) {
        let status = config.number("error_code").unwrap_or(429);
        let message = config.text("error_message").filter(|message| *message != "API rate limit exceeded");
        if status != 429 || message.is_some() {
            let mut reply = Map::new().with("status", status);
            if let Some(message) = message {
                reply.set("content_type", "application/json");
                reply.set("body", format!("{{\"message\":{}}}", serde_json::Value::from(message)));
            }
            policy.set("reply", reply);
        }
        self.hides_headers.insert(config.is_true("hide_client_headers"));
    }

    /// `store.redis`, once.
    fn store(&mut self, config: &Fields<'d>, policy: &mut Map) {
        let redis = config.fields("redis");
        let text = |key: &str| redis.text(key).or_else(|| config.text(&format!("redis_{key}")));
        if let Some(host) = text("host") {
            let scheme = if text("ssl") == Some("true") { "rediss" } else { "redis" };
            let database = text("database")
                .filter(|database| *database != "0")
                .map(|database| format!("/{database}"))
                .unwrap_or_default();
            let address = format!("{host}:{}{database}", text("port").unwrap_or("6379"));
            let user = text("username").unwrap_or_default();
            let mut comments = Vec::new();
            let url = if text("password").is_some() {
                let comment = "The password is not copied: set REDIS_PASSWORD in the environment.";
                comments.push(Comment::Plain(comment.to_owned()));
                // The variable is inserted when the file is read.
                let url = format!("\"{scheme}://{user}:${{REDIS_PASSWORD:-}}@{address}\"");
                Node::from(Value::Bare(url))
            } else {
                Node::from(format!("{scheme}://{address}"))
            };
            let setting = Map::new().with("url", url);
            let mut node = Node::from(Map::new().with("redis", setting));
            node.comments = comments;
            let is_other = self.draft.settings.get("store").is_some_and(|other| other.value != node.value);
            match is_other {
                true => self
                    .draft
                    .head
                    .push(config.note("another Redis: Tollgate has one store for all policies")),
                false => self.draft.settings.set("store", node),
            }
        } else {
            self.draft
                .head
                .push(config.note("`policy: redis` without a host: set `store: { redis: { url: … } }`"));
        }
        if config.take("fault_tolerant").is_some_and(|item| item.text() == Some("false")) {
            policy.set("on_store_error", "deny");
        }
    }

    /// The consumers that have limits of their own on all routes: those precede the others, and are counted together.
    fn own_limits(&self) -> Vec<(&str, Fields<'d>)> {
        let own =
            self.plugins.iter().filter(|plugin| plugin.name == "rate-limiting" && plugin.limits_everywhere());
        let own = own.filter_map(|plugin| {
            let config = plugin.item.fields().fields("config");
            Some((plugin.consumer.as_deref()?, config))
        });
        own.filter(|(_, config)| self.uses_keys && !limits(config, &mut Vec::new()).is_empty()).collect()
    }

    /// The plugins of consumers that apply wherever this one does, the most specific of each consumer first.
    fn overriding(&self, nth: usize) -> Vec<usize> {
        let Some(base) = self.plugins.get(nth) else { return Vec::new() };
        let of_consumers = self.plugins.iter().enumerate().filter(|(_, plugin)| {
            let same_route = plugin.route.is_none() || plugin.route == base.route;
            let same_service = plugin.service.is_none() || plugin.service == base.service;
            plugin.name == "rate-limiting"
                && plugin.consumer.is_some()
                && plugin.is_enabled
                && !plugin.limits_everywhere()
                && same_route
                && same_service
        });
        let mut ranked: Vec<_> = of_consumers.map(|(nth, plugin)| (Reverse(plugin.scope()), nth)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, nth)| nth).collect()
    }

    /// The limits of consumers that have a plugin of their own for a route or a service.
    fn overrides(&self, nth: usize, key: &str, comments: &mut Vec<Comment>) -> Vec<Map> {
        let mut overrides = Vec::new();
        let mut known = BTreeSet::new();
        for plugin in self.overriding(nth).into_iter().filter_map(|nth| self.plugins.get(nth)) {
            if !known.insert(plugin.consumer.as_deref()) {
                continue;
            }
            let config = plugin.item.fields().fields("config");
            let limits = limits(&config, comments);
            let Some(consumer) = plugin.consumer.as_deref().filter(|_| !limits.is_empty()) else { continue };
            if key != "customer" {
                comments.push(plugin.item.note(format!(
                    "the limits of {consumer}: this policy does not count by customer, so they do not apply"
                )));
                continue;
            }
            let mut written = Map::new().with("customer", consumer);
            set_limits(&mut written, &limits);
            overrides.push(written);
        }
        overrides
    }

    /// The policy for routes without limits, of consumers that have some.
    fn consumer_policy(&mut self) -> Option<String> {
        const NAME: &str = "consumers";
        if !self.uses_keys || self.draft.policies.has(NAME) {
            return self.draft.policies.has(NAME).then(|| NAME.to_owned());
        }
        let mut comments = vec![only_overrides()];
        let mut overrides = Vec::new();
        for (consumer, config) in self.own_limits() {
            if let Some(by) = config.text("limit_by").filter(|by| !matches!(*by, "consumer" | "credential")) {
                comments.push(
                    config.note(format!("`limit_by: {by}`: the limit of {consumer} counts by customer")),
                );
            }
            let mut written = Map::new().with("customer", consumer);
            set_limits(&mut written, &limits(&config, &mut comments));
            overrides.push(written);
        }
        if overrides.is_empty() {
            return None;
        }
        self.draft.policies.set(NAME, only(overrides, comments));
        Some(NAME.to_owned())
    }

    /// Notes about plugins that no route has.
    pub(super) fn global_notes(&mut self) {
        let disabled: Vec<_> = self
            .plugins
            .iter()
            .filter(|plugin| !plugin.is_enabled)
            .map(|plugin| plugin.item.note(format!("`{}` is not enabled: not converted", plugin.name)))
            .collect();
        let others: Vec<_> = self
            .plugins
            .iter()
            .filter(|plugin| plugin.is_enabled && plugin.consumer.is_some() && plugin.name != "rate-limiting")
            .map(|plugin| {
                plugin.item.note(format!(
                    "`{}` of {}: only limits can differ between customers",
                    plugin.name,
                    plugin.consumer.as_deref().unwrap_or_default()
                ))
            })
            .collect();
        // Without keys, customers are not known.
        let own = self
            .plugins
            .iter()
            .filter(|plugin| plugin.name == "rate-limiting" && plugin.limits_everywhere() && !self.uses_keys);
        let lost: Vec<_> = own
            .map(|plugin| {
                plugin.item.note(format!(
                    "the limits of {}: without `key-auth`, Tollgate does not know customers, so they do not \
                        apply",
                    plugin.consumer.as_deref().unwrap_or_default()
                ))
            })
            .collect();
        self.draft.head.extend(disabled.into_iter().chain(others).chain(lost));
    }
}

/// A policy that limits only the customers with overrides.
fn only(overrides: Vec<Map>, comments: Vec<Comment>) -> Node {
    let policy = Map::new()
        .with("algorithm", "fixed_window")
        .with("key", "customer")
        .with("limit", "1000000000/1s")
        .with("overrides", overrides);
    let mut node = Node::from(policy);
    node.comments = comments;
    node
}

fn only_overrides() -> Comment {
    Comment::Plain("Only customers with a limit of their own are limited.".to_owned())
}

/// The limits of `rate-limiting`.
fn limits(config: &Fields<'_>, comments: &mut Vec<Comment>) -> Vec<String> {
    let mut limits = Vec::new();
    for (key, window) in WINDOWS {
        let Some(count) = config.number(key).filter(|count| *count > 0) else { continue };
        if key == "year" {
            comments.push(config.note("`year` is a window of 365 days here, not a year of the calendar"));
        }
        limits.push(format!("{count}/{window}"));
    }
    limits
}

fn set_limits(map: &mut Map, limits: &[String]) {
    match limits {
        [only] => map.set("limit", only.as_str()),
        _ => map.set("limits", limits.to_vec()),
    }
}

fn cors(config: &Fields<'_>, comments: &mut Vec<Comment>) -> Map {
    let origins = config.texts("origins");
    let is_plain = |origin: &&str| {
        *origin == "*" || (origin.contains("://") && !origin.contains(['(', '[', '\\', '^', '$']))
    };
    let (plain, patterns): (Vec<&str>, Vec<&str>) = origins.iter().copied().partition(is_plain);
    if !patterns.is_empty() {
        comments.push(config.note(format!(
            "origins with regular expressions ({}): list them, with `https://*.example.org` for names \
                below",
            patterns.join(", ")
        )));
    }
    let is_any = origins.is_empty() || plain.contains(&"*");
    let mut cors = Map::new();
    match (is_any, plain.is_empty()) {
        (true, _) => cors.set("origins", "*"),
        (false, true) => cors.set("origins", vec!["https://example.invalid"]),
        (false, false) => {
            cors.set("origins", plain.iter().map(|origin| origin.trim_end_matches('/')).collect::<Vec<_>>());
        }
    }
    let methods = config.texts("methods");
    match methods.is_empty() {
        true => cors.set("methods", vec!["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"]),
        false => cors.set(
            "methods",
            methods.into_iter().filter(|method| !matches!(*method, "TRACE" | "CONNECT")).collect::<Vec<_>>(),
        ),
    }
    let headers = config.texts("headers");
    match headers.is_empty() || headers.contains(&"*") {
        true => cors.set("headers", "*"),
        false => cors.set("headers", headers),
    }
    let exposed: Vec<_> = config.texts("exposed_headers").into_iter().filter(|name| *name != "*").collect();
    if !exposed.is_empty() {
        cors.set("expose", exposed);
    }
    if config.is_true("credentials") {
        match is_any {
            true => comments.push(
                config.note("`credentials` with every origin: Tollgate refuses this. List the origins"),
            ),
            false => cors.set("credentials", true),
        }
    }
    if let Some(seconds) = config.number("max_age") {
        cors.set("max_age", duration(seconds * 1000));
    }
    if config.is_true("preflight_continue") {
        comments.push(config.note(
            "`preflight_continue`: Tollgate answers preflights itself; without `cors` the service does",
        ));
    }
    config.ignore(&["private_network", "allow_origin_absent"]);
    cors
}
