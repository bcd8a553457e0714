//! Middlewares that limit, and that admit addresses.

#![expect(clippy::result_large_err, reason = "the error is the rule that closes a route, and few are made")]

use super::{Traefik, middlewares::Middleware, milliseconds};
use crate::offline::convert::{
    condition::{RequestCondition, Test},
    document::Item,
    draft::{duration, is_field_name, resource_name},
    networks::Networks,
    site::{Effect, SiteRule},
    yaml::{Map, YamlNode},
};

/// The largest number of a limit.
const MAX_LIMIT: u64 = 1_000_000_000;
/// The longest window, in milliseconds: 366 days.
const MAX_WINDOW: u64 = 366 * 86_400_000;

const FRONT: &str = "Traefik compares the address of the proxy in front here, and Tollgate the client's";
const FORWARDED: &str = "of a client that does not come through the proxies in front, its own address counts here; \
                         Traefik takes it for unknown";

/// Whose address a middleware looks at.
enum LimitedAddress {
    /// That of the connection.
    Peer,
    /// The one that the proxies in front tell, as Tollgate finds it by `trusted_proxies`.
    Forwarded,
    Unknown(&'static str),
}

impl<'d> Traefik<'d> {
    /// `rateLimit` and `inFlightReq`. Each router counts by itself; `entry_point`: one that has routers of its own.
    ///
    /// # Errors
    /// The rule that closes, if it has no equal.
    pub(super) fn limits(
        &mut self,
        middleware: &Middleware<'d>,
        router: &str,
        entry_point: &str,
    ) -> Result<Option<SiteRule>, SiteRule> {
        let policy = match middleware.kind.eq_ignore_ascii_case("rateLimit") {
            true => self.rate(middleware)?,
            false => Some(self.in_flight(middleware)?),
        };
        let Some(policy) = policy else { return Ok(None) };
        let key = [middleware.name, router, entry_point].map(str::to_owned);
        let name = match self.policies.get(&key) {
            Some(name) => name.clone(),
            None => {
                let is_new = |parts: usize| !self.policies.keys().any(|known| known[..parts] == key[..parts]);
                let parts = (1..3).find(|parts| is_new(*parts)).unwrap_or(3);
                let name = resource_name(&key[..parts].join("-"), |name| self.draft.policies.has(name));
                self.draft.policies.set(&name, policy);
                self.policies.insert(key, name.clone());
                name
            }
        };
        Ok(Some(middleware.always(Effect::Limit { policy: name, counted: RequestCondition::ALWAYS })))
    }

    /// The limit of a middleware that no router uses.
    pub(super) fn limits_alone(&mut self, name: &'d str, item: Item<'d>) -> Vec<SiteRule> {
        let is_limit = |kind: &str| matches!(kind.to_ascii_lowercase().as_str(), "ratelimit" | "inflightreq");
        let kinds = item.fields().each().into_iter().filter(|(kind, _)| is_limit(kind));
        let limits = kinds.filter_map(|(kind, item)| {
            let middleware = Middleware { name, kind, item, fields: item.fields() };
            self.limits(&middleware, "", "").ok().flatten()
        });
        limits.collect()
    }

    fn rate(&mut self, middleware: &Middleware<'d>) -> Result<Option<YamlNode>, SiteRule> {
        let average = middleware.number("average", 0)?.min(MAX_LIMIT);
        let burst = middleware.number("burst", 1)?.clamp(1, MAX_LIMIT);
        let period = match middleware.fields.take("period") {
            None => 1000,
            Some(item) => item
                .text()
                .and_then(milliseconds)
                .ok_or_else(|| middleware.close("`period` is no time that can be read"))?,
        };
        let period = if period == 0 { 1000 } else { period.min(MAX_WINDOW) };
        let (policy, note) = self.keyed(middleware, "gcra", "ip")?;
        if average == 0 {
            return Ok(None);
        }
        let mut policy = policy.with("limit", format!("{average}/{}", duration(period))).with("burst", burst);
        // A request waits for up to half of the time between two, and at most for 500 ms.
        let rate = average * 1000 / period;
        let delay = if rate < 1 { 500 } else { 1000 / (rate * 2) };
        policy.extend_some("delay", (delay > 0).then(|| duration(delay)));
        Ok(Some(noted(middleware, policy, note)))
    }

    fn in_flight(&mut self, middleware: &Middleware<'d>) -> Result<YamlNode, SiteRule> {
        let amount = middleware.number("amount", 0)?.min(MAX_LIMIT);
        let (policy, note) = self.keyed(middleware, "concurrency", "host")?;
        match amount {
            0 => Err(middleware.always(Effect::Refuse(429))),
            amount => Ok(noted(middleware, policy.with("limit", amount), note)),
        }
    }

    /// A policy with the key of `sourceCriterion`, and a note. `default`: the key without it.
    fn keyed(
        &mut self,
        middleware: &Middleware<'d>,
        algorithm: &str,
        default: &str,
    ) -> Result<(Map, Option<String>), SiteRule> {
        let policy = |key: &str| Map::new().with("algorithm", algorithm).with("key", key);
        let criterion = middleware.fields.fields("sourceCriterion");
        let strategy = criterion.take("ipStrategy");
        let (header, is_by_host) = (criterion.text("requestHeaderName"), criterion.is_true("requestHost"));
        if let Some((key, _)) = criterion.rest().first() {
            return Err(middleware.close(format!("`{key}` has no equal")));
        }
        if let Some(name) = header {
            if !is_field_name(name) {
                return Err(middleware.close(format!("`{name}` is no header")));
            }
            let text = format!(
                "requests without {name} are denied here, and have one count together in Traefik: `missing: ip` limits \
                 each address"
            );
            let policy = policy(&format!("header:{}", name.to_ascii_lowercase())).with("missing", "deny");
            return Ok((policy, Some(text)));
        }
        if is_by_host || strategy.is_none() && default == "host" {
            return Ok((policy("host"), None));
        }
        let why = match self.client(strategy) {
            LimitedAddress::Forwarded => return Ok((policy("ip"), Some(FORWARDED.to_owned()))),
            LimitedAddress::Peer if self.trusted.is_empty() => return Ok((policy("ip"), None)),
            LimitedAddress::Peer => FRONT,
            LimitedAddress::Unknown(why) => why,
        };
        let text = format!("{why}. All clients have one count: `key: ip` counts each by itself");
        Ok((policy("global"), Some(text)))
    }

    /// The client that `ipStrategy` chooses.
    fn client(&self, strategy: Option<Item<'d>>) -> LimitedAddress {
        let Some(strategy) = strategy else { return LimitedAddress::Peer };
        let fields = strategy.fields();
        let depth = fields.take("depth").map(|item| item.text().unwrap_or_default().parse::<u64>());
        let excluded = fields.take("excludedIPs").map(|item| Networks::parse(item.texts()));
        match (depth, excluded) {
            _ if !fields.rest().is_empty() => LimitedAddress::Unknown("this `ipStrategy` has no equal"),
            (None | Some(Ok(0)), None) => LimitedAddress::Peer,
            (Some(Ok(1)), None) if !self.trusted.is_empty() => LimitedAddress::Forwarded,
            (None | Some(Ok(0)), Some(Ok(excluded))) if excluded == self.trusted && !excluded.is_empty() => {
                LimitedAddress::Forwarded
            }
            _ => LimitedAddress::Unknown(
                "`ipStrategy`: Tollgate finds the client by `trusted_proxies`, and not by `depth` or `excludedIPs`: list \
                 the proxies in front in `forwardedHeaders.trustedIPs` of the entry point",
            ),
        }
    }

    /// `ipAllowList`.
    ///
    /// # Errors
    /// The rule that closes, if it has no equal.
    pub(super) fn allow_list(&mut self, middleware: &Middleware<'d>) -> Result<Vec<SiteRule>, SiteRule> {
        let status = middleware.number("rejectStatusCode", 403)?;
        let status = u16::try_from(status).ok().filter(|status| (400..=599).contains(status)).unwrap_or(403);
        let ranges = middleware.fields.texts("sourceRange");
        let strategy = middleware.fields.take("ipStrategy");
        let networks = Networks::parse(ranges.iter().copied())
            .map_err(|text| middleware.close(format!("`{text}` is no network")))?;
        if networks.is_empty() {
            return Err(middleware.close("`sourceRange` is empty"));
        }
        let (mut rules, listed) = (Vec::new(), RequestCondition::from(Test::Addresses(networks.clone())));
        let admitted = match self.client(strategy) {
            LimitedAddress::Peer if self.trusted.is_empty() => listed,
            LimitedAddress::Peer if networks.and(&self.trusted) == self.trusted => {
                RequestCondition::between(listed, RequestCondition::ALWAYS, FRONT)
            }
            LimitedAddress::Peer => RequestCondition::unknown(FRONT),
            LimitedAddress::Forwarded => {
                rules.push(middleware.note(FORWARDED));
                listed
            }
            LimitedAddress::Unknown(text) => return Err(middleware.close(text)),
        };
        rules.push(middleware.rule(admitted.not(), Effect::Refuse(status)));
        Ok(rules)
    }
}

fn noted(middleware: &Middleware<'_>, policy: Map, note: Option<String>) -> YamlNode {
    YamlNode {
        comments: note.map(|text| middleware.item.note(text)).into_iter().collect(),
        ..YamlNode::from(policy)
    }
}
