//! `rate-limiting` (kong/plugins/rate-limiting/handler.lua) and `rate-limiting-advanced` (its documentation) become
//! policies.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Effects, Kong, always,
    plugins::message,
    values::{flag, ignore, number, numbers},
};
use crate::offline::convert::{
    condition::RequestCondition,
    document::Fields,
    draft::{duration, is_field_name, resource_name},
    site::Effect,
    yaml::{Comment, Map, YamlNode, YamlValue},
};

/// The highest limit of a policy.
const MOST: u64 = 1_000_000_000;

/// The windows of `rate-limiting` that both count by the calendar, in UTC. A `year` closes.
const WINDOWS: [(&str, &str); 5] =
    [("second", "1s"), ("minute", "1m"), ("hour", "1h"), ("day", "1d"), ("month", "month")];

/// Where and how often counts are kept, which changes no limit; settings that are read elsewhere; and those of Redis in
/// versions before 3.8.
const NEEDS_NOTHING: &str = "policy strategy fault_tolerant sync_rate header_name path redis namespace dictionary_name \
                             lock_dictionary_name retry_after_jitter_max disable_penalty redis_host redis_password \
                             redis_port redis_database redis_ssl redis_username redis_timeout redis_ssl_verify \
                             redis_server_name";

/// The policies that were written, and their names: by plugin or namespace, and by what they count.
pub(super) type Policies = BTreeMap<(String, String), (Vec<Map>, Vec<String>)>;

/// The limits of each policy, which all have one algorithm.
type Quotas = (&'static str, Vec<Vec<String>>);

impl<'d> Kong<'d> {
    /// The limits of a plugin on a route.
    ///
    /// # Errors
    /// Something cannot be read, or counts in another way.
    pub(super) fn limits(
        &mut self,
        nth: usize,
        route: usize,
        config: &Fields<'d>,
    ) -> Result<Effects, String> {
        let is_advanced = self.plugins.get(nth).is_some_and(|plugin| plugin.name != "rate-limiting");
        let (algorithm, quotas) =
            if is_advanced { advanced_quotas(config)? } else { ("fixed_window", vec![quotas(config)?]) };
        let settings = self.settings(config, is_advanced)?;
        let namespace = config.text("namespace").filter(|_| is_advanced);
        let of = namespace.map_or_else(|| nth.to_string(), |name| format!("namespace {name}"));
        let by = config.text(if is_advanced { "identifier" } else { "limit_by" }).unwrap_or("consumer");
        ignore(config, NEEDS_NOTHING);
        let (key, instance) = self.key(by, route, config)?;
        let exempt = self.exempt(nth, route, matches!(by, "consumer" | "credential"));
        let policy = |limits: &Vec<String>| {
            let map = Map::new().with("algorithm", algorithm).with("key", key.as_str());
            let mut policy = limited(map, limits);
            if !matches!(key.as_str(), "ip" | "global") {
                policy.set("missing", "ip");
            }
            settings.iter().for_each(|(key, node)| policy.set(key, node.clone()));
            if !exempt.is_empty() {
                policy.set("exempt", exempt.clone());
            }
            policy
        };
        let mut effects = Vec::new();
        for policy in self.policy_names(nth, "rate", (of, instance), quotas.iter().map(policy).collect())? {
            // Kong counts preflights that `cors` does not answer.
            if self.effective("cors", route, None).is_none()
                && let Some(YamlNode { value: YamlValue::Map(map), .. }) =
                    self.draft.policies.get_mut(&policy)
            {
                map.set("preflight", true);
            }
            effects.push(Effect::Limit { policy, counted: RequestCondition::ALWAYS });
        }
        Ok(always(effects))
    }

    /// What is counted by which key (`get_identifier`). Each of them has its own counts, by the second text.
    fn key(&self, by: &str, route: usize, config: &Fields<'d>) -> Result<(String, String), String> {
        let key = match by {
            "consumer" if self.is_keyed(route) => "customer".to_owned(),
            "credential" if self.is_keyed(route) => "api_key".to_owned(),
            // Kong counts those that it does not know by their addresses.
            "consumer" | "credential" | "ip" => return Ok(("ip".to_owned(), "ip".to_owned())),
            "service" => {
                let service = self.routes.get(route).map(|(service, _)| service);
                return Ok(("global".to_owned(), format!("{service:?}")));
            }
            "header" => match config.text("header_name").filter(|name| is_field_name(name)) {
                Some(name) => format!("header:{}", name.to_ascii_lowercase()),
                None => return Err("`header_name` is no header".to_owned()),
            },
            other => return Err(format!("`{other}`: Tollgate does not count by this")),
        };
        Ok((key, by.to_owned()))
    }

    /// What all policies of a plugin have.
    fn settings(&mut self, config: &Fields<'d>, is_advanced: bool) -> Result<Map, String> {
        let mut settings = Map::new();
        let is_redis = config.text(if is_advanced { "strategy" } else { "policy" }) == Some("redis");
        let counts_denied = match is_advanced {
            true => !flag(config, "disable_penalty", false)?,
            // Redis counts each request as it reads the counts (policies/init.lua).
            false => is_redis && matches!(config.text("sync_rate"), None | Some("-1")),
        };
        if counts_denied {
            settings.set("count_denied", true);
        }
        if is_redis {
            self.store(config);
            if !flag(config, "fault_tolerant", true)? {
                settings.set("on_store_error", "deny");
            }
        }
        let status = number(config, "error_code")?.filter(|status| matches!(status, 400..=428 | 430..=599));
        let text = config.text("error_message").filter(|text| *text != "API rate limit exceeded");
        let mut reply = Map::new();
        reply.extend_some("status", status);
        reply.extend_some("content_type", text.map(|_| "application/json"));
        reply.extend_some("body", text.map(message));
        if !reply.is_empty() {
            settings.set("reply", reply);
        }
        // Clients are told their limits, unless no plugin does.
        if !flag(config, "hide_client_headers", false)? {
            self.draft.settings.set("reply_headers", Map::new().with("ratelimit", "both"));
        } else if !self.draft.settings.has("reply_headers") {
            self.draft.settings.set("reply_headers", Map::new().with("ratelimit", "off"));
        }
        Ok(settings)
    }

    /// The names of policies, which are written once. Plugins with the same namespace share their counts.
    fn policy_names(
        &mut self,
        nth: usize,
        suffix: &str,
        of: (String, String),
        policies: Vec<Map>,
    ) -> Result<Vec<String>, String> {
        if let Some((written, names)) = self.policies.get(&of) {
            let is_same = *written == policies;
            let other = || "it shares its counts with a plugin that has other settings".to_owned();
            return is_same.then(|| names.clone()).ok_or_else(other);
        }
        let scope = self.plugins.get(nth).map(|plugin| plugin.scope.clone()).unwrap_or_default();
        let entity = match (scope.route, scope.service) {
            (Some(route), _) => self.routes.get(route).map(|(_, item)| item),
            (None, service) => service.and_then(|nth| self.services.get(nth)),
        };
        let entity = entity.and_then(|item| item.fields().text("name"));
        let name = entity.map_or_else(|| suffix.to_owned(), |entity| format!("{entity}-{suffix}"));
        let mut names = Vec::new();
        for policy in &policies {
            let name = resource_name(&name, |name| self.draft.policies.has(name));
            self.draft.policies.set(&name, policy.clone());
            names.push(name);
        }
        self.policies.insert(of, (policies, names.clone()));
        Ok(names)
    }

    /// The consumers that a plugin does not limit on any of its routes, since they have one of their own. Elsewhere both
    /// count, so that neither is exceeded.
    fn exempt(&self, nth: usize, route: usize, is_by_consumer: bool) -> Vec<String> {
        let is_one = |of: &usize| {
            self.effective("rate-limiting", *of, None) == Some(nth)
                && (!is_by_consumer || self.is_keyed(*of) == self.is_keyed(route))
        };
        let routes: Vec<usize> = (0..self.routes.len()).filter(is_one).collect();
        let own = self.plugins.iter().filter(|plugin| plugin.name == "rate-limiting");
        let consumers: BTreeSet<&String> = own.filter_map(|plugin| plugin.scope.consumer.as_ref()).collect();
        let is_exempt = |consumer: &&String| {
            let has_own = |route: &usize| {
                self.is_keyed(*route) && self.effective("rate-limiting", *route, Some(consumer)) != Some(nth)
            };
            !routes.is_empty() && routes.iter().all(has_own)
        };
        consumers.into_iter().filter(is_exempt).map(|consumer| format!("customer:{consumer}")).collect()
    }

    /// What a plugin does that is for a consumer or a group: a policy has the limits of all consumers with plugins of
    /// one scope.
    pub(super) fn of_consumers(&mut self, nth: usize, route: usize) -> Result<Effects, String> {
        let Some(plugin) = self.plugins.get(nth).filter(|_| self.is_keyed(route)) else {
            return Ok(Vec::new());
        };
        let (name, consumer) = (plugin.name, plugin.scope.consumer.as_deref());
        if plugin.scope.has_group {
            return Err("it is for a group of consumers, which Tollgate does not know".to_owned());
        }
        if self.effective(name, route, consumer) != Some(nth) {
            return Ok(Vec::new());
        }
        if name != "rate-limiting" {
            return Err("only limits can differ between consumers".to_owned());
        }
        let scope = (plugin.scope.service, plugin.scope.route);
        let mut overrides = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| plugin.name == name && !plugin.scope.has_group) {
            let Some(consumer) = plugin.scope.consumer.as_deref() else { continue };
            if (plugin.scope.service, plugin.scope.route) == scope {
                let limits = quotas(&plugin.config())?;
                overrides.push(limited(Map::new().with("customer", consumer), &limits));
            }
        }
        let config = plugin.config();
        if config.text("policy") == Some("redis") {
            self.store(&config);
        }
        let policy = Map::new().with("algorithm", "fixed_window").with("key", "customer");
        let policy = policy.with("limit", format!("{MOST}/1s")).with("overrides", overrides);
        let of = (format!("consumers of {scope:?}"), String::new());
        let names = self.policy_names(nth, "consumers", of, vec![policy])?;
        let limit = |policy: String| Effect::Limit { policy, counted: RequestCondition::ALWAYS };
        Ok(always(names.into_iter().map(limit)))
    }

    /// `store.redis`, once.
    fn store(&mut self, config: &Fields<'d>) {
        let redis = config.fields("redis");
        let text = |key: &str| redis.text(key).or_else(|| config.text(&format!("redis_{key}")));
        let host =
            text("host").filter(|host| host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)));
        let number = |key: &str, usual| text(key).map_or(Some(usual), |text| text.parse::<u16>().ok());
        // A password is not copied: the variable is inserted when the file is read.
        let password = if text("password").is_some() { ":${REDIS_PASSWORD:-}@" } else { "" };
        let scheme = if text("ssl") == Some("true") { "rediss" } else { "redis" };
        let (Some(host), Some(port), Some(database)) = (host, number("port", 6379), number("database", 0))
        else {
            return self.draft.head.push(config.note("set `store: { redis: { url: … } }`"));
        };
        let url =
            YamlNode::from(YamlValue::Bare(format!("\"{scheme}://{password}{host}:{port}/{database}\"")));
        let mut node = YamlNode::from(Map::new().with("redis", Map::new().with("url", url)));
        if !password.is_empty() {
            node = node.commented(Comment::Plain("Set REDIS_PASSWORD in the environment.".to_owned()));
        }
        match self.draft.settings.get("store") {
            Some(other) if *other != node => {
                self.draft.head.push(config.note("another Redis: Tollgate has one store for all policies"));
            }
            _ => self.draft.settings.set("store", node),
        }
    }
}

/// A limit as policies have it.
fn quota(count: u64, window: &str) -> Result<String, String> {
    match count {
        // Zero denies all but one.
        0..=MOST => Ok(format!("{}/{window}", count.max(1))),
        _ => Err(format!("a policy has a limit of at most {MOST}")),
    }
}

/// The limits of `rate-limiting`.
fn quotas(config: &Fields<'_>) -> Result<Vec<String>, String> {
    let mut limits = Vec::new();
    for (key, window) in WINDOWS {
        if let Some(count) = number(config, key)? {
            limits.push(quota(count, window)?);
        }
    }
    if limits.is_empty() { Err("it has no limit that can be read".to_owned()) } else { Ok(limits) }
}

/// The limits of `rate-limiting-advanced`.
fn advanced_quotas(config: &Fields<'_>) -> Result<Quotas, String> {
    let (counts, windows) = (numbers(config, "limit")?, numbers(config, "window_size")?);
    let is_window = |seconds: &u64| (1..=366 * 86_400).contains(seconds);
    let are_apart = windows.iter().collect::<BTreeSet<_>>().len() == windows.len();
    if counts.is_empty() || counts.len() != windows.len() || !are_apart || !windows.iter().all(is_window) {
        return Err("`limit` and `window_size` cannot be read".to_owned());
    }
    let pairs = counts.into_iter().zip(windows);
    let limits: Vec<String> =
        pairs.map(|(count, seconds)| quota(count, &duration(seconds * 1000))).collect::<Result<_, _>>()?;
    match config.text("window_type").unwrap_or("sliding") {
        "fixed" => Ok(("fixed_window", vec![limits])),
        "sliding" => Ok(("sliding_counter", limits.into_iter().map(|limit| vec![limit]).collect())),
        other => Err(format!("`window_type: {other}` cannot be read")),
    }
}

fn limited(map: Map, limits: &[String]) -> Map {
    match limits {
        [only] => map.with("limit", only.as_str()),
        _ => map.with("limits", limits.to_vec()),
    }
}
