//! `limit_req` and `limit_conn`: policies.

use std::collections::BTreeMap;

use super::{Converter, Scope, keys::Key, syntax::Directive, unconverted};
use crate::convert::{
    draft::resource_name,
    route_draft::duration,
    yaml::{Comment, Map, Node},
};

/// The longest wait of a policy, in milliseconds.
const LONGEST_DELAY: u64 = 3_600_000;

/// The zones of all limits by name.
#[derive(Debug, Default)]
pub(super) struct Zones<'d>(BTreeMap<&'d str, &'d Directive>);

impl<'d> Zones<'d> {
    /// Adds `limit_req_zone` or `limit_conn_zone`.
    pub(super) fn add(&mut self, zone: &'d Directive) {
        if let Some(name) = parameter(zone, "zone").map(|zone| zone.split(':').next().unwrap_or(zone)) {
            self.0.insert(name, zone);
        }
    }
}

/// A policy of a location, and the methods that it is for; none for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocationPolicy {
    pub(super) name: String,
    pub(super) methods: Vec<String>,
}

/// The text behind `NAME=` among the arguments.
pub(super) fn parameter<'d>(directive: &'d Directive, name: &str) -> Option<&'d str> {
    directive.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
}

impl<'d> Converter<'d> {
    /// Notes zones that nothing can use.
    pub(super) fn zone_notes(&mut self) {
        let zones: Vec<_> = self.zones.0.values().copied().collect();
        for zone in zones {
            if let Err(reason) = self.tables.key(zone.argument(0)) {
                self.head(&zone.place, format!("`{}`: {reason}", zone.shown()));
            } else if zone.arguments.iter().any(|argument| argument == "sync") {
                self.head(&zone.place, "`sync`: instances share limits by `store: { redis: … }`");
            }
        }
    }

    /// Says which zones no limit uses.
    pub(super) fn unused_zones(&mut self) {
        let is_unused = |name: &str| !self.said.contains(&format!("zone {name}"));
        let unused =
            self.zones.0.iter().filter(|(name, _)| is_unused(name) && !self.draft.policies.has(name));
        let unused: Vec<_> =
            unused.map(|(name, zone)| format!("{}: no limit uses zone `{name}`.", zone.place)).collect();
        self.draft.head.extend(unused.into_iter().map(Comment::Plain));
    }

    /// The policies of zones alone, for a file without servers, as another file would include it.
    pub(super) fn policies_of_zones(&mut self) {
        let zones: Vec<_> = self.zones.0.iter().map(|(name, zone)| ((*name).to_owned(), *zone)).collect();
        for (_, zone) in zones.iter().filter(|(_, zone)| zone.name == "limit_conn_zone") {
            let text = format!(
                "`{}`: write a policy with `algorithm: concurrency`, and the number of `limit_conn`",
                zone.shown()
            );
            self.head(&zone.place, text);
        }
        for (name, zone) in zones.iter().filter(|(_, zone)| zone.name == "limit_req_zone") {
            let key = self.tables.key(zone.argument(0));
            let Ok(Key { key: Some(key), exempt, .. }) = key else { continue };
            let Ok(mut map) = rate(zone, zone) else { continue };
            map.set("key", key);
            if !exempt.is_empty() {
                map.set("exempt", exempt);
            }
            let text = format!("{}: set `burst` to that of `limit_req` and one more.", zone.place);
            let policy = Node::from(map).commented(Comment::Plain(text));
            self.draft.policies.set(&resource_name(name, |name| self.draft.policies.has(name)), policy);
        }
    }

    /// The policies of a location, and comments on limits without an equal.
    pub(super) fn policies(&mut self, scope: &Scope<'d>) -> (Vec<LocationPolicy>, Vec<Comment>) {
        let (mut policies, mut comments) = (Vec::new(), Vec::new());
        for limit in scope.list("limit_req").iter().chain(scope.list("limit_conn")) {
            match self.policy(limit, scope) {
                Ok(Some(policy)) if !policies.contains(&policy) => policies.push(policy),
                Ok(_) => {}
                Err(reason) => {
                    let text = format!("`{}`: {reason}; it is left out", limit.shown());
                    comments.push(unconverted(&limit.place, text));
                }
            }
        }
        (policies, comments)
    }

    /// The policy for a `limit_req` or `limit_conn`. `None` if it limits nothing.
    fn policy(&mut self, limit: &'d Directive, scope: &Scope<'d>) -> Result<Option<LocationPolicy>, String> {
        let is_rate = limit.name == "limit_req";
        let zone_name = match is_rate {
            true => parameter(limit, "zone").unwrap_or_default(),
            false => limit.argument(0),
        };
        let Some(zone) = self.zones.0.get(zone_name).copied() else {
            return Err(format!("no zone is named `{zone_name}`"));
        };
        self.said.insert(format!("zone {zone_name}"));
        let key = self.tables.key(zone.argument(0))?;
        let Key { key: Some(recipe), exempt, methods, notes } = key else {
            return Err(key.notes.first().cloned().unwrap_or_else(|| "its key is empty".to_owned()));
        };
        let mut map = match is_rate {
            true => rate(limit, zone)?,
            false => {
                let most: u64 = limit.argument(1).parse().map_err(|_| "its number is missing".to_owned())?;
                if most == 0 {
                    return Err(
                        "Tollgate's least limit is 1: answer by `reply` to close the route".to_owned()
                    );
                }
                Map::new().with("algorithm", "concurrency").with("key", "ip").with("limit", most)
            }
        };
        map.set("key", recipe.as_str());
        if recipe.split('+').any(|part| part == "user") && !self.draft.settings.has("user") {
            // nginx knows users by HTTP Basic alone.
            self.draft.settings.set("user", vec!["basic"]);
        }
        if !exempt.is_empty() {
            map.set("exempt", exempt);
        }
        let prefix = if is_rate { "limit_req" } else { "limit_conn" };
        if scope.value(&format!("{prefix}_dry_run")) == Some("on") {
            map.set("mode", "shadow");
        }
        let status = scope.value(&format!("{prefix}_status")).unwrap_or("503");
        if let Some(status) = status.parse::<u64>().ok().filter(|status| *status != 429) {
            map.set("reply", Map::new().with("status", status));
        }
        let mut comments: Vec<Comment> =
            notes.into_iter().map(|note| unconverted(&zone.place, note)).collect();
        if zone.arguments.iter().any(|argument| argument == "burst") {
            comments.push(unconverted(&zone.place, "`burst` belongs to `limit_req`"));
        }
        let name = self.named_policy(zone_name, Node::from(map), comments, limit);
        Ok(Some(LocationPolicy { name, methods }))
    }

    /// The name of this policy. Equal ones have one name; others of the same zone get a number.
    fn named_policy(
        &mut self,
        zone: &str,
        policy: Node,
        mut comments: Vec<Comment>,
        limit: &'d Directive,
    ) -> String {
        let known = |node: &Node| node.value == policy.value;
        let base = resource_name(zone, |_| false);
        let is_variant =
            |name: &str| name == base || name.strip_prefix(&base).is_some_and(|rest| rest.starts_with('-'));
        let found = self
            .draft
            .policies
            .iter()
            .find(|(name, node)| is_variant(name) && known(node))
            .map(|(name, _)| name);
        if let Some(name) = found {
            return name.to_owned();
        }
        let name = resource_name(zone, |name| self.draft.policies.has(name));
        if name != base {
            comments.push(unconverted(
                &limit.place,
                format!(
                    "nginx counts all of zone `{zone}` together. Tollgate counts `{name}` on its own, since its settings \
                     differ from those of `{base}`"
                ),
            ));
        }
        self.draft.policies.set(&name, Node { comments, ..policy });
        name
    }
}

/// The policy for a rate: `algorithm`, `key`, `limit`, `burst` and `delay`.
fn rate(limit: &Directive, zone: &Directive) -> Result<Map, String> {
    let rate = parameter(zone, "rate").unwrap_or_default();
    let split = rate.strip_suffix("r/s").map(|count| (count, 1_000, "1s"));
    let split = split.or_else(|| rate.strip_suffix("r/m").map(|count| (count, 60_000, "1m")));
    let Some((count, window, unit)) = split else { return Err(format!("its rate `{rate}` cannot be read")) };
    let count: u64 =
        count.parse().ok().filter(|count| *count > 0).ok_or(format!("its rate `{rate}` cannot be read"))?;
    let number = |name: &str| parameter(limit, name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let burst = number("burst");
    let at_once = match limit.arguments.iter().any(|argument| argument == "nodelay") {
        true => burst,
        false => number("delay").min(burst),
    };
    let mut map = Map::new()
        .with("algorithm", "gcra")
        .with("key", "ip")
        .with("limit", format!("{count}/{unit}"))
        .with("burst", at_once + 1);
    let wait = (burst - at_once).saturating_mul(window).div_ceil(count);
    if wait > LONGEST_DELAY {
        return Err("requests would wait longer than an hour: use `nodelay`".to_owned());
    }
    if wait > 0 {
        map.set("delay", duration(wait));
    }
    Ok(map)
}
