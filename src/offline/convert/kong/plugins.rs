//! Plugins become rules of a route, in the order in which Kong runs them.

use std::cmp::Reverse;

use super::{
    Effects, Kong, always,
    cors::cors,
    transformers,
    values::{all_read, given, ignore, number},
};
use crate::offline::convert::{
    condition::{RequestCondition, Test},
    document::Fields,
    draft::size,
    networks::Networks,
    site::{Edit, Effect, RuleResponse, SiteRule},
    yaml::Map,
};

/// Keys of plugins that are read elsewhere, or that change nothing for HTTP.
const PLUGIN_KEYS: &str = "name enabled service route consumer consumer_group protocols config";

/// Plugins that admit and change nothing, but add headers that nobody relies on for safety.
const NOTED: [(&str, &str); 6] = [
    ("prometheus statsd statsd-advanced datadog", "/metrics of the admin port is for Prometheus"),
    ("http-log file-log tcp-log udp-log syslog loggly kafka-log splunk-log", "see `access_log`"),
    ("zipkin opentelemetry", "see `tracing`"),
    ("proxy-cache proxy-cache-advanced", "Tollgate does not cache"),
    ("acme", "let certbot or lego write certificates"),
    ("correlation-id", "`request_id` names a header in which all requests get a UUID"),
];

/// The place of a plugin in the order (`PRIORITY` in kong/plugins/*/handler.lua).
fn priority(name: &str) -> u32 {
    match name {
        "cors" => 2000,
        "key-auth" => 1250,
        "ip-restriction" => 990,
        "request-size-limiting" => 951,
        "acl" => 950,
        "rate-limiting" | "rate-limiting-advanced" => 910,
        "request-transformer" | "request-transformer-advanced" => 801,
        "response-transformer" | "response-transformer-advanced" => 800,
        _ => 2,
    }
}

/// What closes a route stands behind its locks and limits, so that the route keeps them when it is opened.
const CLOSING: u32 = 905;

impl<'d> Kong<'d> {
    /// The rules of the plugins that apply to a route.
    pub(super) fn plugin_rules(&mut self, route: usize) -> Vec<SiteRule> {
        let mut rules: Vec<(u32, SiteRule)> = Vec::new();
        for nth in self.plugins_of(route) {
            let Some(plugin) = self.plugins.get(nth) else { continue };
            let (name, item) = (plugin.name, plugin.item);
            if let Some((_, hint)) = NOTED.iter().find(|(names, _)| names.split(' ').any(|one| one == name)) {
                self.note(item, format!("`{name}`: {hint}"));
                continue;
            }
            let applied = if plugin.scope.consumer.is_some() || plugin.scope.has_group {
                self.of_consumers(nth, route)
            } else if self.effective(name, route, None) == Some(nth) {
                self.apply(nth, route)
            } else {
                Ok(Vec::new())
            };
            let rule = |(when, effect)| SiteRule::new(when, effect, &item.place(), name);
            match applied {
                Ok(effects) => rules.extend(effects.into_iter().map(|one| (priority(name), rule(one)))),
                Err(text) => rules.push((CLOSING, rule((RequestCondition::ALWAYS, Effect::Close(text))))),
            }
        }
        rules.sort_by_key(|(priority, _)| Reverse(*priority));
        rules.into_iter().map(|(_, rule)| rule).collect()
    }

    /// What a plugin does to the requests of a route. The error says why the route is closed.
    fn apply(&mut self, nth: usize, route: usize) -> Result<Effects, String> {
        let Some(plugin) = self.plugins.get(nth) else { return Ok(Vec::new()) };
        let (name, fields, config) = (plugin.name, plugin.item.fields(), plugin.config());
        ignore(&fields, PLUGIN_KEYS);
        let effects = match name {
            "key-auth" => self.key_auth(nth, route, &config)?,
            "rate-limiting" | "rate-limiting-advanced" => self.limits(nth, route, &config)?,
            "ip-restriction" => ip_restriction(&config)?,
            "request-size-limiting" => size_limit(&config)?,
            "cors" => cors(&config)?,
            "request-termination" => termination(&config)?,
            "request-transformer" | "request-transformer-advanced" => {
                transformers::changes(&config, Edit::Request)?
            }
            "response-transformer" | "response-transformer-advanced" => {
                transformers::changes(&config, Edit::Response)?
            }
            "acl" => {
                return Err(
                    "only some consumers may use this: write `routes` at their keys in keys.yaml".to_owned()
                );
            }
            "jwt" | "openid-connect" => return Err("set `user: [{ jwt: … }]` and `require: user`".to_owned()),
            "mtls-auth" => return Err("set `client_ca` of a listener with TLS".to_owned()),
            "response-ratelimiting" => {
                return Err("see policies with `cost: { response: { header: … } }`".to_owned());
            }
            _ if name.contains("auth") => {
                return Err("use API keys (`api_keys`), or check this in the service".to_owned());
            }
            _ => return Err("it has no equal, and it may check requests or change them".to_owned()),
        };
        all_read(&config).and_then(|()| all_read(&fields)).map(|()| effects)
    }
}

/// Denied addresses are refused, and then those that are not allowed; an empty list says nothing
/// (kong/plugins/ip-restriction/handler.lua).
fn ip_restriction(config: &Fields<'_>) -> Result<Effects, String> {
    let mut effects = Vec::new();
    let status = number(config, "status")?.and_then(|status| u16::try_from(status).ok()).unwrap_or(403);
    for (keys, is_allowed) in [(["deny", "blacklist"], false), (["allow", "whitelist"], true)] {
        let items = keys.iter().flat_map(|key| config.items(key));
        let texts: Vec<_> = items.map(|item| item.text().unwrap_or_default()).collect();
        if !texts.is_empty() {
            let networks = Networks::parse(texts).map_err(|text| format!("`{text}` is no address"))?;
            let meets = RequestCondition::from(Test::Addresses(networks));
            effects.push((if is_allowed { meets.not() } else { meets }, Effect::Refuse(status)));
        }
    }
    let message = given(config, "message").map(|_| "`message`: these clients get problem details".to_owned());
    effects.extend(always(message.map(Effect::Note)));
    Ok(effects)
}

fn size_limit(config: &Fields<'_>) -> Result<Effects, String> {
    const MOST: u64 = 1 << 50;
    let unit = match config.text("size_unit").unwrap_or("megabytes") {
        "bytes" => 1,
        "kilobytes" => 1 << 10,
        "megabytes" => 1 << 20,
        other => return Err(format!("`size_unit: {other}` cannot be read")),
    };
    // `max_body: 0` would allow any length.
    let bytes = number(config, "allowed_payload_size")?.unwrap_or(128).saturating_mul(unit).clamp(1, MOST);
    Ok(always([Effect::Edit(Edit::Setting("max_body", size(bytes).into()))]))
}

fn termination(config: &Fields<'_>) -> Result<Effects, String> {
    let status = number(config, "status_code")?.unwrap_or(503);
    if !matches!(status, 200..=299 | 400..=599) {
        return Err(format!("{status} is no status that `reply` takes"));
    }
    let mut reply = Map::new().with("status", status);
    let kind = config.text("content_type");
    match (config.text("body"), config.text("message")) {
        _ if status == 204 => {}
        (Some(body), _) => {
            reply.set("body", body);
            reply.extend_some("content_type", kind);
        }
        (None, Some(text)) => reply.set("body", message(text)),
        (None, None) => {}
    }
    Ok(always([Effect::Act(RuleResponse::Reply(reply))]))
}

/// The body of Kong's own responses.
pub(super) fn message(text: &str) -> String {
    format!("{{\"message\":{}}}", serde_json::Value::from(text))
}
