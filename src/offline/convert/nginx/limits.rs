//! `limit_req` and `limit_conn`: policies.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    NginxReader, noted, rule,
    scope::BlockScope,
    state::{RewriteState, Seen},
    syntax::Directive,
    unconverted,
    values::{VariablePart, parts},
};
use crate::offline::convert::{
    condition::RequestCondition,
    draft::{duration, resource_name},
    site::{Effect, SiteRule},
    yaml::{Comment, Map, YamlNode, YamlValue},
};

/// The longest wait of a policy, in milliseconds, and the largest number of a limit.
const LONGEST_DELAY: u64 = 3_600_000;
const LARGEST: u64 = 1_000_000_000;

/// The zones of all limits, and the policies that were made of them.
#[derive(Debug, Default)]
pub(super) struct Zones<'d> {
    by_name: BTreeMap<&'d str, &'d Directive>,
    /// The names in all limits.
    pub(super) used: BTreeSet<&'d str>,
    /// The name and the settings of each policy.
    made: BTreeMap<Made, (String, ZoneSettings)>,
}

/// What has one count in nginx, and one policy here: a zone, the key, and the constant part of the key.
type Made = (String, String, String);

/// The settings that may differ between the uses of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ZoneSettings {
    /// Requests at once, or for `limit_conn` in progress.
    at_once: u64,
    /// In milliseconds.
    wait: u64,
    status: u16,
    /// It denies nothing.
    is_trial: bool,
}

/// What requests are counted by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) key: String,
    /// The constant part: another one has a count of its own.
    pub(super) constant: String,
    pub(super) notes: Vec<String>,
}

/// The text behind `NAME=` among the arguments.
pub(super) fn parameter<'d>(directive: &'d Directive, name: &str) -> Option<&'d str> {
    directive.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
}

impl<'d> NginxReader<'d> {
    /// Reads `limit_req_zone` or `limit_conn_zone`.
    pub(super) fn add_zone(&mut self, zone: &'d Directive) {
        if let Some(name) = parameter(zone, "zone").map(|zone| zone.split(':').next().unwrap_or(zone)) {
            self.zones.by_name.insert(name, zone);
            if zone.arguments.iter().any(|argument| argument == "sync") {
                self.head(zone, "instances share limits by `store: { redis: … }`");
            }
        }
    }

    /// Says which zones no limit uses.
    pub(super) fn unused_zones(&mut self) {
        let unused = self.zones.by_name.iter().filter(|(name, _)| !self.zones.used.contains(*name));
        let text = |(name, zone): (&&str, &&Directive)| {
            Comment::Plain(format!("{}: no limit uses zone `{name}`.", zone.place))
        };
        self.draft.head.extend(unused.map(text));
    }

    /// The policies of zones alone, for a file without servers, as another file would include it.
    pub(super) fn policies_of_zones(&mut self) {
        let state = RewriteState::new("", "");
        for (name, zone) in self.zones.by_name.clone() {
            let text = self.text(zone.argument(0), &state).unwrap_or_default();
            let recipe = match recipe(&text, &state) {
                Ok(recipe) if !text.is_empty() && zone.name == "limit_req_zone" => recipe,
                _ => {
                    self.head(zone, "write the policy that its limits have");
                    continue;
                }
            };
            let settings = ZoneSettings { at_once: 1, wait: 0, status: 429, is_trial: false };
            let Ok(map) = policy(zone, &recipe, settings) else { continue };
            let text = format!("{}: set `burst` to that of `limit_req` and one more.", zone.place);
            self.draft
                .policies
                .set(&resource_name(name, |_| false), YamlNode::from(map).commented(Comment::Plain(text)));
        }
    }

    /// The rules of the limits that apply.
    pub(super) fn limits(&mut self, scope: &BlockScope<'d>, state: &RewriteState<'d>) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        for name in ["limit_req", "limit_conn"] {
            for limit in scope.all(&[name]).into_iter().filter(|_| !state.counted.contains(&name)) {
                match self.limit(limit, scope, state) {
                    Ok(limits) => rules.extend(limits),
                    Err(why) => rules.push(rule(limit, RequestCondition::ALWAYS, Effect::Close(why))),
                }
            }
        }
        rules
    }

    /// The rules of a limit: one for each key that requests are counted by.
    fn limit(
        &mut self,
        limit: &'d Directive,
        scope: &BlockScope<'d>,
        state: &RewriteState<'d>,
    ) -> Result<Vec<SiteRule>, String> {
        let is_rate = limit.name == "limit_req";
        let name = if is_rate { parameter(limit, "zone").unwrap_or_default() } else { limit.argument(0) };
        let zone = self.zones.by_name.get(name).copied().ok_or(format!("no zone is named `{name}`"))?;
        let word = |word: &str| scope.value(&format!("{}_{word}", limit.name));
        let is_trial = word("dry_run") == "on";
        let status = word("status").parse().ok().filter(|status| (400..=599).contains(status)).unwrap_or(503);
        let settings = ZoneSettings { status, is_trial, ..settings(limit, zone)? };
        let texts = self.texts(zone.argument(0), state);
        let mut recipes: Vec<Recipe> = Vec::new();
        for (_, text) in &texts.0 {
            let text = text.as_ref().ok_or("its key has variables that Tollgate does not know")?;
            // Without a key, nothing is limited.
            let found = if text.is_empty() { None } else { Some(recipe(text, state)?) };
            recipes.extend(found.filter(|found| !recipes.contains(found)));
        }
        let mut rules = Vec::new();
        for own in recipes {
            let is_own = |text: Option<&str>| {
                let found = text.filter(|text| !text.is_empty()).map(|text| recipe(text, state));
                RequestCondition::from(found == Some(Ok(own.clone())))
            };
            let when = texts.meets(&is_own);
            let policy = self.policy(limit, (name, zone), &own, settings)?;
            rules.push(rule(limit, when.clone(), Effect::Limit { policy, counted: when }));
        }
        Ok(rules)
    }

    /// The name of the policy for these requests. One zone has one count, and so one policy, with the strictest settings.
    fn policy(
        &mut self,
        limit: &'d Directive,
        (zone_name, zone): (&'d str, &'d Directive),
        recipe: &Recipe,
        settings: ZoneSettings,
    ) -> Result<String, String> {
        let id = (zone_name.to_owned(), recipe.key.clone(), recipe.constant.clone());
        let known = self.zones.made.get(&id).cloned();
        let (name, strictest) = match &known {
            Some((name, known)) => (name.clone(), known.strictest(settings)),
            None => (resource_name(zone_name, |name| self.draft.policies.has(name)), settings),
        };
        let map = policy(zone, recipe, strictest)?;
        let comments = recipe.notes.iter().map(|note| unconverted(&zone.place, note.as_str())).collect();
        let new = || YamlNode { comments, ..YamlNode::from(Map::new()) };
        let mut node = self.draft.policies.get(&name).cloned().unwrap_or_else(new);
        node.value = YamlValue::Map(map);
        if known.is_some_and(|(_, known)| known != settings) {
            let text = format!(
                "a policy has the same settings on all routes, as its count is one. `{name}` has the strictest that zone \
                 `{zone_name}` has anywhere"
            );
            let note = noted(limit, &text);
            node.comments.retain(|known| *known != note);
            node.comments.push(note);
        }
        self.draft.policies.set(&name, node);
        self.zones.made.insert(id, (name.clone(), strictest));
        if recipe.key.split('+').any(|part| part == "user") && !self.draft.settings.has("user") {
            // nginx knows users by HTTP Basic alone.
            self.draft.settings.set("user", vec!["basic"]);
        }
        Ok(name)
    }
}

impl ZoneSettings {
    /// What is within both.
    fn strictest(self, other: Self) -> Self {
        Self {
            at_once: self.at_once.min(other.at_once),
            wait: self.wait.min(other.wait),
            is_trial: self.is_trial && other.is_trial,
            ..self
        }
    }
}

/// The numbers of one use of a zone.
fn settings(limit: &Directive, zone: &Directive) -> Result<ZoneSettings, String> {
    if limit.name == "limit_conn" {
        let most: u64 = limit.argument(1).parse().map_err(|_| "its number cannot be read")?;
        if !(1..=LARGEST).contains(&most) {
            return Err(format!("a limit of Tollgate is a number from 1 to {LARGEST}"));
        }
        return Ok(ZoneSettings { at_once: most, wait: 0, status: 0, is_trial: false });
    }
    let (count, window, _) = rate(zone)?;
    let number = |name: &str| match parameter(limit, name) {
        None => Ok(0),
        Some(text) => text.parse::<u64>().map_err(|_| format!("its {name} cannot be read")),
    };
    let burst = number("burst")?.min(LARGEST - 1);
    let at_once = match limit.arguments.iter().any(|argument| argument == "nodelay") {
        true => burst,
        false => number("delay")?.min(burst),
    };
    // Those who would wait longer are denied at once.
    let wait = (burst - at_once).saturating_mul(window).div_ceil(count).min(LONGEST_DELAY);
    Ok(ZoneSettings { at_once: at_once + 1, wait, status: 0, is_trial: false })
}

/// The rate of a zone: a number, in how many milliseconds, and how these are written.
fn rate(zone: &Directive) -> Result<(u64, u64, &'static str), String> {
    let rate = parameter(zone, "rate").unwrap_or_default();
    let unreadable = || format!("its rate `{rate}` cannot be read");
    let split = rate.strip_suffix("r/s").map(|count| (count, 1_000, "1s"));
    let split = split.or_else(|| rate.strip_suffix("r/m").map(|count| (count, 60_000, "1m")));
    let (count, window, unit) = split.ok_or_else(unreadable)?;
    let count = count.parse().ok().filter(|count| (1..=LARGEST).contains(count)).ok_or_else(unreadable)?;
    Ok((count, window, unit))
}

/// A policy.
fn policy(zone: &Directive, recipe: &Recipe, settings: ZoneSettings) -> Result<Map, String> {
    let ZoneSettings { at_once, wait, status, is_trial } = settings;
    let key = recipe.key.as_str();
    let mut map = match zone.name.as_str() {
        "limit_conn_zone" => {
            Map::new().with("algorithm", "concurrency").with("key", key).with("limit", at_once)
        }
        _ => {
            let (count, _, unit) = rate(zone)?;
            Map::new()
                .with("algorithm", "gcra")
                .with("key", key)
                .with("limit", format!("{count}/{unit}"))
                .with("burst", at_once)
        }
    };
    if wait > 0 {
        map.set("delay", duration(wait));
    }
    if is_trial {
        map.set("mode", "shadow");
    }
    if status != 429 {
        map.set("reply", Map::new().with("status", u64::from(status)));
    }
    Ok(map)
}

/// The key for a text with variables of the request. It may be a coarser one: never a finer one.
///
/// # Errors
/// Why Tollgate cannot count by it.
pub(super) fn recipe(text: &str, state: &RewriteState<'_>) -> Result<Recipe, String> {
    let mut recipe = Recipe::default();
    let (mut words, mut unknown): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for part in parts(text) {
        match part {
            VariablePart::Literal(text) => recipe.constant += &text,
            VariablePart::Variable(name) => match variable_key(&name, state) {
                Some((word, note)) => {
                    recipe.notes.extend(note);
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
                None => unknown.push(name),
            },
        }
    }
    match (words.is_empty(), unknown.first()) {
        (true, Some(name)) => return Err(format!("Tollgate has no key for `${name}`")),
        (false, Some(name)) => recipe.notes.push(format!(
            "Tollgate has no key for `${name}`: all requests with the same rest of the key count together"
        )),
        _ => {}
    }
    recipe.key = if words.is_empty() { "global".to_owned() } else { words.join("+") };
    Ok(recipe)
}

/// The key for a variable, and what differs.
fn variable_key(name: &str, state: &RewriteState<'_>) -> Option<(String, Option<String>)> {
    let key = match name {
        "binary_remote_addr" | "remote_addr" | "proxy_protocol_addr" => "ip",
        "host" | "http_host" => "host",
        // The path may be another one by now.
        "uri" | "document_uri"
            if !matches!(state.seen, Seen::Original(_) | Seen::Whole { is_new: false, .. }) =>
        {
            return None;
        }
        "uri" | "document_uri" => "path",
        "request_uri" => {
            let note = "`$request_uri` counts each query separately; Tollgate counts by the path alone";
            return Some(("path".to_owned(), Some(note.to_owned())));
        }
        "request_method" => "method",
        "remote_user" => "user",
        "ssl_client_s_dn" => "tls:subject",
        "ssl_client_fingerprint" => "tls:fingerprint",
        "http_x_forwarded_for"
        | "http_x_real_ip"
        | "http_cf_connecting_ip"
        | "http_true_client_ip"
        | "proxy_add_x_forwarded_for" => {
            let note = format!(
                "any client can write the header of `${name}`. Tollgate counts by the client's address: list the \
                 proxies in front in `trusted_proxies`"
            );
            return Some(("ip".to_owned(), Some(note)));
        }
        _ => {
            let named = [("http_", "header"), ("cookie_", "cookie"), ("arg_", "query")];
            let (kind, rest) =
                named.into_iter().find_map(|(begin, kind)| Some((kind, name.strip_prefix(begin)?)))?;
            let rest = if kind == "header" { rest.replace('_', "-") } else { rest.to_owned() };
            let note = format!(
                "nginx does not limit a request without `${name}`; Tollgate limits it by its address"
            );
            return Some((format!("{kind}:{rest}"), Some(note)));
        }
    };
    let note = (key == "user").then(|| {
        "nginx does not limit a request without a user; Tollgate limits it by its address".to_owned()
    });
    Some((key.to_owned(), note))
}
