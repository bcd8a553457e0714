//! Middlewares that limit, and that admit addresses.

#![expect(clippy::result_large_err, reason = "the error is the rule that closes a route, and few are made")]

use super::{Traefik, middlewares::Middleware, milliseconds};
use crate::convert::{
    condition::{Condition, Test},
    document::Item,
    draft::{duration, is_field_name, resource_name},
    networks::Networks,
    site::{Effect, Rule},
    yaml::{Comment, Map, Node},
};

/// The largest number of a limit.
const MAX_LIMIT: u64 = 1_000_000_000;
/// The longest window, in milliseconds: 366 days.
const MAX_WINDOW: u64 = 366 * 86_400_000;

const FRONT: &str = "Traefik compares the address of the proxy in front here, and Tollgate the client's";

/// Whose address a middleware looks at.
enum Client {
    /// That of the connection.
    Peer,
    /// The one that the proxies in front tell, as Tollgate finds it by `trusted_proxies`.
    Forwarded,
    Unknown(String),
}

impl<'d> Traefik<'d> {
    /// `rateLimit` and `inFlightReq`. Each router counts by itself; `entry_point`: one that has routers of its own.
    pub(super) fn limits(
        &mut self,
        middleware: &Middleware<'d>,
        router: &str,
        entry_point: &str,
    ) -> Vec<Rule> {
        let is_rate = middleware.kind.eq_ignore_ascii_case("rateLimit");
        let policy = match is_rate {
            true => self.rate(middleware),
            false => self.in_flight(middleware),
        };
        let policy = match policy {
            Ok(Some(policy)) => policy,
            Ok(None) => return Vec::new(),
            Err(rule) => return vec![rule],
        };
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
        vec![middleware.always(Effect::Limit { policy: name, counted: Condition::ALWAYS })]
    }

    /// The limit of a middleware that no router uses.
    pub(super) fn limits_alone(&mut self, name: &'d str, item: Item<'d>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (kind, item) in item.fields().each() {
            if ["rateLimit", "inFlightReq"].iter().any(|known| known.eq_ignore_ascii_case(kind)) {
                let middleware = Middleware { name, kind, item, fields: item.fields() };
                rules.extend(self.limits(&middleware, "", ""));
            }
        }
        rules.retain(|rule| matches!(rule.effect, Effect::Limit { .. }));
        rules
    }

    fn rate(&mut self, middleware: &Middleware<'d>) -> Result<Option<Node>, Rule> {
        let average = middleware.number("average", 0)?;
        let burst = middleware.number("burst", 1)?.max(1);
        let period = match middleware.fields.take("period") {
            None => 1000,
            Some(item) => item
                .text()
                .and_then(milliseconds)
                .ok_or_else(|| middleware.close("`period` is no time that can be read"))?,
        };
        let period = if period == 0 { 1000 } else { period.min(MAX_WINDOW) };
        let (map, mut comments) = self.keyed(middleware, "gcra", "ip")?;
        if middleware.fields.take("redis").is_some() {
            let text = "counts are in Redis: set `store: { redis: { url: … } }`, and forward this route then";
            return Err(middleware.close(text));
        }
        let Some(average) = u64::try_from(average).ok().filter(|average| *average > 0) else {
            return Ok(None);
        };
        let average = average.min(MAX_LIMIT);
        let mut map = map
            .with("limit", format!("{average}/{}", duration(period)))
            .with("burst", u64::try_from(burst).unwrap_or(1).min(MAX_LIMIT));
        // A request waits for up to half of the time between two, and at most for 500 ms.
        let rate = u64::try_from(u128::from(average) * 1000 / u128::from(period)).unwrap_or(u64::MAX);
        let delay = if rate < 1 { 500 } else { 1000 / (rate.saturating_mul(2)) };
        if delay > 0 {
            map.set("delay", duration(delay));
        }
        let mut node = Node::from(map);
        node.comments.append(&mut comments);
        Ok(Some(node))
    }

    fn in_flight(&mut self, middleware: &Middleware<'d>) -> Result<Option<Node>, Rule> {
        let amount = middleware.number("amount", 0)?;
        let (map, mut comments) = self.keyed(middleware, "concurrency", "host")?;
        let Some(amount) = u64::try_from(amount).ok().filter(|amount| *amount > 0) else {
            return Err(middleware.always(Effect::Refuse(429)));
        };
        let mut node = Node::from(map.with("limit", amount.min(MAX_LIMIT)));
        node.comments.append(&mut comments);
        Ok(Some(node))
    }

    /// A policy with the key of `sourceCriterion`. `default`: the key without it.
    fn keyed(
        &mut self,
        middleware: &Middleware<'d>,
        algorithm: &str,
        default: &str,
    ) -> Result<(Map, Vec<Comment>), Rule> {
        let mut policy = Map::new().with("algorithm", algorithm).with("key", default);
        let mut comments = Vec::new();
        let criterion = middleware.fields.fields("sourceCriterion");
        let strategy = criterion.take("ipStrategy");
        let is_by_address = strategy.is_some() || default == "ip";
        if let Some(name) = criterion.text("requestHeaderName") {
            if !is_field_name(name) {
                return Err(middleware.close(format!("`{name}` is no header")));
            }
            policy.set("key", format!("header:{}", name.to_ascii_lowercase()));
            policy.set("missing", "deny");
            let text = format!(
                "requests without {name} are denied here, and have one count together in Traefik: `missing: ip` limits \
                 each address"
            );
            comments.push(middleware.item.note(text));
        } else if criterion.is_true("requestHost") {
            policy.set("key", "host");
        } else if is_by_address {
            policy.set("key", "ip");
            match self.client(strategy) {
                Client::Forwarded => comments.push(middleware.item.note(forwarded())),
                Client::Peer if self.trusted.is_empty() => {}
                client => {
                    policy.set("key", "global");
                    let why = if let Client::Unknown(why) = client { why } else { FRONT.to_owned() };
                    let text = format!("{why}. All clients have one count: `key: ip` counts each by itself");
                    comments.push(middleware.item.note(text));
                }
            }
        }
        match criterion.rest().first() {
            Some((key, _)) => Err(middleware.close(format!("`{key}` has no equal"))),
            None => Ok((policy, comments)),
        }
    }

    /// The client that `ipStrategy` chooses.
    fn client(&mut self, strategy: Option<Item<'d>>) -> Client {
        let Some(strategy) = strategy else { return Client::Peer };
        let fields = strategy.fields();
        let depth = fields.take("depth").map(|item| item.text().unwrap_or_default().parse::<u64>());
        let excluded = fields.take("excludedIPs").map(|item| Networks::parse(item.texts()));
        let subnet = fields.take("ipv6Subnet").map(|item| item.text().unwrap_or_default().parse::<u64>());
        let is_unknown = !fields.rest().is_empty();
        match subnet {
            None => {}
            // An address counts with its network, of 64 bits without this setting.
            Some(Ok(bits @ 1..=128)) => {
                let known = self.ipv6_prefix.unwrap_or(64);
                self.ipv6_prefix = Some(bits.min(known));
            }
            Some(_) => return Client::Unknown("`ipv6Subnet` cannot be read".to_owned()),
        }
        match (depth, excluded) {
            _ if is_unknown => Client::Unknown("this `ipStrategy` has no equal".to_owned()),
            (None | Some(Ok(0)), None) => Client::Peer,
            (Some(Ok(1)), None) if !self.trusted.is_empty() => Client::Forwarded,
            (None | Some(Ok(0)), Some(Ok(excluded))) if excluded == self.trusted && !excluded.is_empty() => {
                Client::Forwarded
            }
            _ => Client::Unknown(
                "Tollgate finds the client by `trusted_proxies`, and not by `depth` or `excludedIPs`: list the proxies \
                 in front in `forwardedHeaders.trustedIPs` of the entry point"
                    .to_owned(),
            ),
        }
    }

    /// `ipAllowList`.
    pub(super) fn allow_list(&mut self, middleware: &Middleware<'d>) -> Vec<Rule> {
        let status = match middleware.number("rejectStatusCode", 403) {
            Ok(status) => {
                u16::try_from(status).ok().filter(|status| (400..=599).contains(status)).unwrap_or(403)
            }
            Err(close) => return vec![close],
        };
        let ranges = middleware.fields.texts("sourceRange");
        let strategy = middleware.fields.take("ipStrategy");
        let has_subnet = strategy.is_some_and(|item| item.fields().take("ipv6Subnet").is_some());
        let networks = match Networks::parse(ranges.iter().copied()) {
            Ok(networks) if networks.is_empty() => return vec![middleware.close("`sourceRange` is empty")],
            Ok(networks) => networks,
            Err(text) => return vec![middleware.close(format!("`{text}` is no network"))],
        };
        let (mut rules, listed) = (Vec::new(), Condition::from(Test::Addresses(networks.clone())));
        let admitted = match self.client(strategy) {
            _ if has_subnet => Condition::unknown("it compares networks of IPv6 addresses"),
            Client::Peer if self.trusted.is_empty() => listed,
            Client::Peer if networks.and(&self.trusted) == self.trusted => {
                Condition::between(listed, Condition::ALWAYS, FRONT)
            }
            Client::Peer => Condition::unknown(FRONT),
            Client::Forwarded => {
                rules.push(middleware.note(forwarded()));
                listed
            }
            Client::Unknown(text) => Condition::unknown(text),
        };
        rules.push(middleware.rule(admitted.not(), Effect::Refuse(status)));
        rules
    }
}

fn forwarded() -> String {
    "of a client that does not come through the proxies in front, its own address counts here; Traefik takes it for \
     unknown"
        .to_owned()
}
