//! Lists the changes from one configuration to the next, and which of them need a restart.
//!
//! Two configurations are compared as trees of values ([`Config::values`]), key by key, so a new setting is compared
//! like all the others. Policies, bans, upstreams and routes are compared by name, and listeners by their addresses;
//! their order in the lists does not matter. Values that came from the environment or from files are compared, but
//! never shown.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::config::model::{Config, Listener, Route, Secret};

/// The difference between the configuration in force and the next one.
pub(super) struct Difference {
    /// The next configuration, with the old values of the settings that need a restart.
    pub(super) in_force: Config,
    /// Changes that take effect at once, each as `setting: old → new`.
    pub(super) changed: Vec<String>,
    /// Changes that take effect after a restart, in the same form.
    pub(super) needs_restart: Vec<String>,
}

impl Difference {
    /// From `old`, which is in force, to `new`, which is in the file. `has_access_log`: whether Tollgate was started
    /// with an access log.
    pub(super) fn between(old: &Config, mut new: Config, has_access_log: bool) -> Self {
        // No setting of a route needs a restart, and there may be many routes: they are neither cloned nor compared twice.
        let routes = std::mem::take(&mut new.routes);
        let mut in_force = without_restart(old, new.clone(), has_access_log);
        let needs_restart = changes(&in_force, &new);
        in_force.routes = routes;
        Self { changed: changes(old, &in_force), needs_restart, in_force }
    }
}

/// `new` with the values of `old` for every setting that takes effect only at startup.
fn without_restart(old: &Config, mut new: Config, has_access_log: bool) -> Config {
    // Old values from the environment or from files must not be shown, either.
    new.source.inserted.extend(old.source.inserted.iter().cloned());
    new.listeners = on_open_sockets(&old.listeners, &new.listeners);
    if !has_access_log {
        new.access_log.clone_from(&old.access_log);
    }
    new.keep_until_restart(old);
    if let (Some(keys), Some(old)) = (&mut new.api_keys, &old.api_keys) {
        keys.store = old.store;
        keys.data.clone_from(&old.data);
    }
    new
}

/// Whether `new` needs a store of API keys, which opens only when Tollgate starts: until then, requests that have needed
/// no key, or one of a file, would get 401.
pub(super) fn lacks_key_store(old: &Config, new: &Config) -> bool {
    let Some(keys) = new.api_keys.as_ref().filter(|keys| keys.store) else { return false };
    old.api_keys.as_ref().is_none_or(|old| !old.store && keys.file.is_none())
}

/// The listeners in force, whose sockets are open, each with the settings that `new` has for its addresses. A listener
/// that `new` lacks keeps its settings. It loses its name if `new` gives that to another one whose socket is open: routes
/// for the name must not hold on a listener that the file no longer has.
fn on_open_sockets(old: &[Listener], new: &[Listener]) -> Vec<Listener> {
    // Several may have port 0, so each is used once.
    let mut unused: Vec<&Listener> = new.iter().collect();
    let settings = |old: &Listener| {
        let index = unused.iter().position(|new| new.addresses == old.addresses)?;
        Some(unused.remove(index).clone())
    };
    let configured: Vec<Option<Listener>> = old.iter().map(settings).collect();
    let names: HashSet<String> = configured.iter().flatten().filter_map(|new| new.name.clone()).collect();
    let kept = |old: &Listener| {
        let name = old.name.clone().filter(|name| !names.contains(name));
        Listener { name, ..old.clone() }
    };
    let in_force = configured.into_iter().zip(old).map(|(new, old)| new.unwrap_or_else(|| kept(old)));
    in_force.collect()
}

/// Lists whose items have names, and the noun for an item.
const NAMED: [(&str, &str); 4] =
    [("policies", "policy"), ("bans", "ban"), ("upstreams", "upstream"), ("routes", "route")];

/// Longer values are not shown, in characters.
const LONGEST_VALUE: usize = 1_000;

/// Each setting that differs, in one line.
fn changes(old: &Config, new: &Config) -> Vec<String> {
    let unchanged = unchanged_routes(old, new);
    let values = |config: &Config| config.values_with_routes(|route| !unchanged.contains(&*route.name));
    let (old_values, new_values) = (values(old), values(new));
    let inserted: BTreeSet<&str> =
        [old, new].into_iter().flat_map(|config| &config.source.inserted).map(String::as_str).collect();
    let mut comparison = Comparison {
        inserted,
        confidential: Config::confidential(),
        root: String::new(),
        changes: Vec::new(),
    };
    let mut lines = Vec::new();
    for (list, noun) in NAMED {
        let (old, new) = (items(&old_values, list), items(&new_values, list));
        comparison.compare_named((list, noun), &by_name(old), &by_name(new), &mut lines);
    }
    let (old_listeners, new_listeners) = (listeners(&old_values), listeners(&new_values));
    let [old_listeners, new_listeners] = [&old_listeners, &new_listeners]
        .map(|of| of.iter().map(|(addresses, settings)| (&**addresses, settings)).collect::<Vec<_>>());
    comparison.compare_named(("listeners", "listener"), &old_listeners, &new_listeners, &mut lines);
    if kept_names(old, new) != kept_names(new, old) {
        lines.push("routes: order changed".to_owned());
    }
    let secrets = changed_secrets(old, new).filter(|path| look_the_same(path, &old_values, &new_values));
    let secrets: Vec<_> = secrets.map(|path| format!("{path}: changed")).collect();
    comparison.root.clear();
    comparison.compare("", &without_named(old_values), &without_named(new_values));
    lines.extend(comparison.changes.into_iter().map(|Change { path, shown }| format!("{path}: {shown}")));
    lines.extend(secrets);
    lines
}

/// A setting that differs: its path, and `old → new`, or `changed` if the values must not be shown.
struct Change {
    path: String,
    shown: String,
}

/// Collects differences.
struct Comparison<'a> {
    /// The paths of the settings that must not be shown.
    inserted: BTreeSet<&'a str>,
    /// The keys of a policy, ban, upstream or route whose values must not be shown: they may contain names of users, or
    /// secrets of clients. Only the fact of a change is reported.
    confidential: Vec<&'static str>,
    /// The path of the compared value. Empty: the whole configuration.
    root: String,
    changes: Vec<Change>,
}

impl Comparison<'_> {
    /// Compares mappings key by key, and everything else as a whole.
    fn compare(&mut self, path: &str, old: &Value, new: &Value) {
        if let (Value::Object(old), Value::Object(new)) = (old, new)
            && !self.confidential.contains(&path)
        {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                self.compare(&below(path, key), value(old, key), value(new, key));
            }
        } else if old != new {
            let (old, new) = (written(old), written(new));
            let is_long = |text: &str| text.chars().count() > LONGEST_VALUE;
            let is_hidden =
                self.confidential.contains(&path) || self.is_inserted(path) || is_long(&old) || is_long(&new);
            let shown = if is_hidden { "changed".to_owned() } else { format!("{old} → {new}") };
            self.changes.push(Change { path: path.to_owned(), shown });
        }
    }

    /// Reports items of `list` that were added or removed, and the changes in the others. Each item is beside the name by
    /// which it is compared. `noun`: the noun for an item.
    fn compare_named(
        &mut self,
        (list, noun): (&str, &str),
        old: &[(&str, &Value)],
        new: &[(&str, &Value)],
        lines: &mut Vec<String>,
    ) {
        let [olds, news] = [old, new].map(|items| items.iter().copied().collect::<HashMap<_, _>>());
        for gone in old.iter().map(|(name, _)| name).filter(|name| !news.contains_key(*name)) {
            lines.push(format!("{noun} {gone}: removed"));
        }
        for &(name, item) in new {
            let Some(before) = olds.get(name) else {
                lines.push(format!("{noun} {name}: added"));
                continue;
            };
            self.root = format!("{list}.{name}");
            self.compare("", before, item);
            let changes = self.changes.drain(..);
            lines.extend(changes.map(|Change { path, shown }| format!("{noun} {name}: {path} {shown}")));
        }
    }

    /// Whether the value at `path`, a part of it, or a value that contains it, must not be shown.
    fn is_inserted(&self, path: &str) -> bool {
        let path = below(&self.root, path);
        let is_in = |part: &str, whole: &str| {
            part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.inserted.iter().any(|inserted| is_in(inserted, &path) || is_in(&path, inserted))
    }
}

/// The path of `key` in the mapping at `path`.
fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The paths of the secrets of `new` that `old` lacks, or has with another value.
fn changed_secrets<'a>(old: &'a Config, new: &'a Config) -> impl Iterator<Item = &'static str> + 'a {
    let is_new = |secret: &(&str, &Secret)| old.secrets().all(|known| known != *secret);
    new.secrets().filter(is_new).map(|(path, _)| path)
}

/// Whether masking hides that the setting at `path` differs.
fn look_the_same(path: &str, old: &Value, new: &Value) -> bool {
    let pointer = format!("/{}", path.replace('.', "/"));
    old.pointer(&pointer) == new.pointer(&pointer)
}

fn value<'a>(mapping: &'a Map<String, Value>, key: &str) -> &'a Value {
    mapping.get(key).unwrap_or(&Value::Null)
}

fn items<'a>(values: &'a Value, list: &str) -> &'a [Value] {
    values.get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The listeners' addresses, each with the other settings. A listener has a name only if it is given one, and a reload
/// may change it, so listeners are compared by their addresses.
fn listeners(values: &Value) -> Vec<(String, Value)> {
    let by_address = |listener: &Value| {
        let mut settings = listener.as_object().cloned().unwrap_or_default();
        // One without settings is its address alone.
        let address = settings.remove("address").unwrap_or_else(|| listener.clone());
        (written(&address), Value::Object(settings))
    };
    items(values, "listeners").iter().map(by_address).collect()
}

fn name(item: &Value) -> &str {
    item.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn by_name(items: &[Value]) -> Vec<(&str, &Value)> {
    items.iter().map(|item| (name(item), item)).collect()
}

/// The names of the routes that are the same in both. There may be many routes, which are a lot of values.
fn unchanged_routes<'a>(old: &Config, new: &'a Config) -> HashSet<&'a str> {
    // Routes refer to these by their positions.
    fn names(config: &Config) -> impl Iterator<Item = &str> {
        let policies = config.policies.iter().map(|policy| &*policy.name);
        policies.chain(["upstreams"]).chain(config.upstreams.iter().map(|upstream| &*upstream.name))
    }
    if !names(old).eq(names(new)) {
        return HashSet::new();
    }
    let olds: HashMap<&str, &Route> = old.routes.iter().map(|route| (&*route.name, route)).collect();
    let unchanged = new.routes.iter().filter(|route| olds.get(&*route.name) == Some(route));
    unchanged.map(|route| &*route.name).collect()
}

/// The names of the routes that `other` has as well, in the order in which they are tried.
fn kept_names<'a>(config: &'a Config, other: &Config) -> Vec<&'a str> {
    let others: HashSet<&str> = other.routes.iter().map(|route| &*route.name).collect();
    config.routes.iter().map(|route| &*route.name).filter(|name| others.contains(name)).collect()
}

fn without_named(mut values: Value) -> Value {
    if let Value::Object(values) = &mut values {
        for list in NAMED.map(|(list, _)| list).into_iter().chain(["listeners"]) {
            values.remove(list);
        }
    }
    values
}

/// A value as `proxy.yaml` writes it, on one line; `none` if it is left out or empty.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        // 2, not 2.0.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(written).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(_, value)| is_set(value)).map(|(key, value)| match value {
                Value::Array(_) => format!("{key}: [{}]", written(value)),
                _ => format!("{key}: {}", written(value)),
            });
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Whether a value sets anything. An empty mapping or list does not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => entries.values().any(is_set),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        config::model::{
            AccessLogFormat, Algorithm, BanKey, BanRule, CertificateFiles, ClientAuth, Condition,
            DenialReply, HeaderFrom, Hsts, HttpsRedirect, KeyPart, KeyRecipe, ListenAddress, Mode,
            PathPattern, Policy, Rate, Redis, Route, Secret, Split, Tls, TlsVersion, Tracing, Upstream,
            UserSource, Workers,
        },
        telemetry::testing,
    };

    fn rate(limit: u64, seconds: u64) -> Rate {
        Rate { limit, window: Duration::from_secs(seconds) }
    }

    /// The lines for `change`, and the ones that need a restart.
    fn difference(change: impl FnOnce(&mut Config)) -> (Vec<String>, Vec<String>) {
        let old = testing::config();
        let mut new = old.clone();
        change(&mut new);
        let difference = Difference::between(&old, new, true);
        (difference.changed, difference.needs_restart)
    }

    fn changed(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let (changed, needs_restart) = difference(change);
        assert!(needs_restart.is_empty(), "{needs_restart:?}");
        changed
    }

    fn policy(config: &mut Config) -> &mut Policy {
        Arc::make_mut(&mut config.policies[0])
    }

    #[test]
    fn equal_configurations_have_no_difference() {
        assert_eq!(difference(|_| ()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn each_setting_of_a_policy_is_told() {
        let name = testing::config().policies[0].name.clone();
        let limits = changed(|config| policy(config).tiers = vec![rate(20, 1).into(), rate(7, 5_400).into()]);
        assert!(limits[0].starts_with(&format!("policy {name}: limits ")), "{limits:?}");
        assert!(limits[0].ends_with(" → 20/1s, 7/90m"), "{limits:?}");
        let several = changed(|config| {
            let policy = policy(config);
            policy.algorithm = Algorithm::Gcra { burst: 9, delay: Duration::from_millis(250) };
            policy.keys = vec![
                KeyRecipe(vec![KeyPart::Ip, KeyPart::Path]),
                KeyRecipe(vec![KeyPart::Header(http::HeaderName::from_static("x-key"))]),
            ];
            policy.mode = Mode::Shadow;
            policy.slice = 0.05;
            policy.preflight = true;
        });
        let ends = [
            ": algorithm metadata_list → gcra",
            ": key ip → ip+path, header:x-key",
            ": mode enforce → shadow",
            ": preflight false → true",
            ": slice 0% → 5%",
            ": burst none → 9",
            ": delay none → 250ms",
        ];
        assert_eq!(several.len(), ends.len(), "{several:?}");
        for (line, end) in several.iter().zip(ends) {
            assert!(line.starts_with(&format!("policy {name}: ")) && line.ends_with(end), "{line}");
        }
    }

    #[test]
    fn added_and_removed_parts_are_listed_by_name() {
        let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
        let added = Policy::new("login", Algorithm::SlidingLog, keys, vec![rate(1, 1)]);
        // Inserted before the other policy: a new index alone is not a change.
        assert_eq!(
            changed(|config| {
                config.policies.insert(0, Arc::new(added));
                config
                    .routes
                    .iter_mut()
                    .for_each(|route| route.policies.iter_mut().for_each(|of| of.policy += 1));
            }),
            ["policy login: added"]
        );
        let gone = changed(|config| {
            config.routes.clear();
            config.upstreams.clear();
        });
        assert_eq!(gone, ["upstream api: removed", "route all: removed"]);
    }

    #[test]
    fn prices_of_routes_are_told() {
        let priced = |config: &mut Config, price| config.routes[0].policies[0].price = Some(price);
        let name = testing::config().policies[0].name.clone();
        assert_eq!(
            changed(|config| priced(config, 5)),
            [format!("route all: policies {name} → {{ cost: 5, name: {name} }}")]
        );
        // The requests of a route go to two upstreams, for different prices.
        let mut old = testing::config();
        let mut routes = vec![old.routes[0].clone(), old.routes[0].clone()];
        routes[0].policies[0].price = Some(2);
        old.routes[0] = Route {
            split: Some(Box::new(Split { by: None, weights: vec![2, 1], routes })),
            ..old.routes[0].clone()
        };
        let mut new = old.clone();
        new.routes[0].split.as_mut().unwrap().routes[1].policies[0].price = Some(3);
        let told = Difference::between(&old, new.clone(), true).changed;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("route all: upstreams ") && told[0].contains("cost: 3"), "{told:?}");
    }

    #[test]
    fn rules_of_bans_are_told() {
        let rule = |limit| {
            Arc::new(BanRule {
                name: "hammering".to_owned(),
                key: BanKey::Ip,
                policies: None,
                after: rate(limit, 60),
                first_duration: Duration::from_secs(60),
                factor: 2.0,
                jitter: 0.1,
                max: Duration::from_secs(3_600),
                mode: Mode::Enforce,
                exempt: Vec::new(),
                reply: DenialReply { status: http::StatusCode::FORBIDDEN, headers: Vec::new(), body: None },
            })
        };
        let mut old = testing::config();
        assert_eq!(changed(|config| config.bans.push(rule(5))), ["ban hammering: added"]);
        old.bans.push(rule(5));
        let new = Config { bans: vec![rule(6)], ..old.clone() };
        assert_eq!(Difference::between(&old, new, true).changed, ["ban hammering: after 5/1m → 6/1m"]);
    }

    #[test]
    fn settings_that_need_a_restart_stay_as_they_were() {
        let old = testing::config();
        let mut new = old.clone();
        new.workers = Workers::Count(77);
        new.admin.token = Some(Secret::new("hush"));
        new.access_log.format = AccessLogFormat::Combined;
        new.client_limits.connections = 7;
        new.client_limits.headers = 50;
        let Difference { in_force, changed, needs_restart } = Difference::between(&old, new.clone(), false);
        let then = &old.client_limits;
        assert_eq!(
            changed,
            [
                format!("client_limits.connections: {} → 7", then.connections),
                format!("client_limits.headers: {} → 50", then.headers),
            ]
        );
        let expected = ["access_log.format: off → combined", "admin.token: none → ***", "workers: 1 → 77"];
        assert_eq!(needs_restart, expected);
        assert_eq!((in_force.workers, &in_force.admin), (old.workers, &old.admin));
        assert_eq!(in_force.access_log, old.access_log, "nobody would write it");
        assert_eq!(in_force.client_limits.connections, 7);
        let changed = Difference::between(&old, new, true).changed;
        assert!(
            old.access_log.format == AccessLogFormat::Combined
                || changed.iter().any(|line| line.starts_with("access_log.format: "))
        );
    }

    #[test]
    fn secrets_are_never_shown() {
        let mut old = testing::config();
        old.abuse.secret = Some(Secret::new("hush"));
        old.store.redis = Some(redis("redis://me:pass@host:6379"));
        let mut new = old.clone();
        new.abuse.secret = Some(Secret::new("hush-hush"));
        new.store.redis = Some(redis("redis://me:word@host:6379"));
        let Difference { changed, needs_restart, .. } = Difference::between(&old, new.clone(), true);
        assert_eq!(
            (changed, needs_restart),
            (vec!["abuse.secret: changed".to_owned()], vec!["store.redis.url: changed".to_owned()])
        );
        new.abuse.secret = None;
        new.store.redis = Some(redis("redis://other:word@elsewhere"));
        let Difference { changed, needs_restart, .. } = Difference::between(&old, new, true);
        assert_eq!(changed, ["abuse.secret: *** → none"]);
        assert_eq!(needs_restart, ["store.redis.url: redis://***@host:6379 → redis://***@elsewhere"]);
    }

    fn redis(url: &str) -> Redis {
        Redis::at(Secret::new(url))
    }

    #[test]
    fn names_of_users_and_values_of_fields_are_not_told() {
        let lines = changed(|config| {
            policy(config).exempt = vec![Condition::User("monitor".to_owned())];
            config.routes[0].headers =
                vec![(http::HeaderName::from_static("x-key"), http::HeaderValue::from_static("sesame"))];
        });
        assert_eq!(lines, ["policy per-ip: exempt changed", "route all: headers changed"]);
    }

    #[test]
    fn inserted_values_are_compared_and_not_shown() {
        let mut old = testing::config();
        let route = old.routes[0].name.clone();
        let inserted =
            [format!("routes.{route}.path"), "tracing.otlp".to_owned(), "client_limits".to_owned()];
        old.source.inserted = inserted.into();
        let mut new = old.clone();
        new.source.inserted.clear();
        new.routes[0].path = PathPattern::Exact("/hook/secret".to_owned());
        new.routes[0].retry.max += 1;
        new.client_limits.headers = 50;
        new.tracing = Some(Tracing { otlp: "http://secret".parse().unwrap(), sample: 1.0 });
        let Difference { in_force, changed, needs_restart } = Difference::between(&old, new.clone(), true);
        assert_eq!(changed.len(), 3, "{changed:?}");
        assert_eq!(changed[0], format!("route {route}: path changed"));
        assert!(changed[1].contains("retry.max") && changed[1].contains(" → "), "{changed:?}");
        assert_eq!(changed[2], "client_limits.headers: changed");
        assert_eq!(needs_restart, ["tracing: changed"]);
        // The old values that are still in force are hidden in the next reload, too.
        assert_eq!(in_force.source.inserted, old.source.inserted);
    }

    #[test]
    fn a_new_section_is_listed_with_its_settings() {
        let lines = changed(|config| {
            config.user = vec![
                UserSource::Header {
                    name: http::HeaderName::from_static("x-user"),
                    from: HeaderFrom::Anyone,
                },
                UserSource::Basic,
            ];
        });
        assert_eq!(lines, ["user: none → { from: anyone, header: x-user }, basic"]);
    }

    fn address(port: u16) -> ListenAddress {
        ListenAddress::Tcp(([127, 0, 0, 1], port).into())
    }

    fn tls(certificates: &[&str]) -> Tls {
        let files = |name: &&str| CertificateFiles {
            cert: format!("{name}.pem").into(),
            key: format!("{name}.key").into(),
            names: Vec::new(),
        };
        Tls {
            certificates: certificates.iter().map(files).collect(),
            client_auth: None,
            min_version: TlsVersion::V1_2,
            hsts: None,
        }
    }

    fn listener(port: u16, tls: Option<Tls>) -> Listener {
        Listener {
            name: None,
            addresses: vec![address(port)],
            has_proxy_protocol: false,
            redirect: None,
            tls,
            http2: true,
            max_body: None,
            decisions: None,
        }
    }

    /// From a configuration with the listeners `old` to one with `new`.
    fn listener_changes(old: Vec<Listener>, new: Vec<Listener>) -> (Config, Vec<String>, Vec<String>) {
        let old = Config { listeners: old, ..testing::config() };
        let new = Config { listeners: new, ..old.clone() };
        let Difference { in_force, changed, needs_restart } = Difference::between(&old, new, true);
        (in_force, changed, needs_restart)
    }

    #[test]
    fn settings_of_open_sockets_change_at_once() {
        let old = vec![listener(443, Some(tls(&["a"]))), listener(80, None), listener(8080, None)];
        let secured = Tls {
            client_auth: Some(ClientAuth { ca: "ca.pem".into(), required: Some(403) }),
            min_version: TlsVersion::V1_3,
            hsts: Some(Hsts {
                max_age: Duration::from_secs(3_600),
                include_subdomains: true,
                preload: false,
            }),
            ..tls(&["a", "b"])
        };
        let new = vec![
            listener(443, Some(secured)),
            Listener { redirect: Some(HttpsRedirect { port: 443 }), ..listener(80, None) },
            Listener { has_proxy_protocol: true, ..listener(8080, Some(tls(&["a"]))) },
        ];
        let (in_force, changed, needs_restart) = listener_changes(old, new.clone());
        assert_eq!(needs_restart, [""; 0]);
        assert_eq!(in_force.listeners, new);
        assert_eq!(
            changed,
            [
                "listener 127.0.0.1:443: tls.certificates { cert: a.pem, key: a.key } → \
                 { cert: a.pem, key: a.key }, { cert: b.pem, key: b.key }",
                "listener 127.0.0.1:443: tls.min_version 1.2 → 1.3",
                "listener 127.0.0.1:443: tls.client_auth none → { ca: ca.pem, required: 403 }",
                "listener 127.0.0.1:443: tls.hsts none → { include_subdomains: true, max_age: 1h, preload: false }",
                "listener 127.0.0.1:80: redirect none → { port: 443 }",
                "listener 127.0.0.1:8080: proxy_protocol none → true",
                "listener 127.0.0.1:8080: tls none → { certificates: [{ cert: a.pem, key: a.key }], min_version: 1.2 }",
            ]
        );
    }

    #[test]
    fn tls_can_be_turned_off_on_an_open_socket() {
        let (in_force, changed, needs_restart) =
            listener_changes(vec![listener(443, Some(tls(&["a"])))], vec![listener(443, None)]);
        assert_eq!((in_force.listeners[0].tls.as_ref(), needs_restart.len()), (None, 0));
        let tls = "{ certificates: [{ cert: a.pem, key: a.key }], min_version: 1.2 }";
        assert_eq!(changed, [format!("listener 127.0.0.1:443: tls {tls} → none")]);
    }

    #[test]
    fn other_addresses_need_a_restart() {
        let mut two = listener(80, None);
        two.addresses.push(address(81));
        let old = vec![listener(443, Some(tls(&["a"]))), listener(80, None)];
        let (in_force, changed, needs_restart) =
            listener_changes(old.clone(), vec![two, listener(443, Some(tls(&["b"])))]);
        let certificates = "{ cert: a.pem, key: a.key } → { cert: b.pem, key: b.key }";
        assert_eq!(changed, [format!("listener 127.0.0.1:443: tls.certificates {certificates}")]);
        assert_eq!(
            needs_restart,
            ["listener 127.0.0.1:80: removed", "listener 127.0.0.1:80, 127.0.0.1:81: added"]
        );
        assert_eq!(in_force.listeners[1], old[1]);
        // In another order, nothing is another.
        let (_, changed, needs_restart) = listener_changes(old.clone(), old.into_iter().rev().collect());
        assert_eq!((changed.len(), needs_restart.len()), (0, 0));
    }

    #[test]
    fn names_of_open_sockets_change_at_once_and_name_one_listener_each() {
        let named = |port, name: &str| Listener { name: Some(name.to_owned()), ..listener(port, None) };
        let old = vec![named(80, "public"), named(81, "internal"), listener(82, None)];
        let new = vec![listener(82, None), named(81, "public"), named(83, "internal")];
        let (in_force, changed, needs_restart) = listener_changes(old, new);
        // Port 80 is not in the file, where its name is that of port 81. Port 83 is not open.
        assert_eq!(in_force.listeners, [listener(80, None), named(81, "public"), listener(82, None)]);
        assert_eq!(
            changed,
            ["listener 127.0.0.1:80: name public → none", "listener 127.0.0.1:81: name internal → public"]
        );
        assert_eq!(needs_restart, ["listener 127.0.0.1:80: removed", "listener 127.0.0.1:83: added"]);
        // A name whose new address is not open yet stays where it is.
        let (in_force, changed, _) = listener_changes(vec![named(80, "a")], vec![named(83, "a")]);
        assert_eq!((in_force.listeners, changed), (vec![named(80, "a")], Vec::new()));
    }

    #[test]
    fn listeners_of_routes_are_told() {
        let on = |config: &mut Config, name: &str| config.routes[0].listeners = vec![name.to_owned()];
        assert_eq!(changed(|config| on(config, "internal")), ["route all: listeners none → internal"]);
    }

    #[test]
    fn routes_in_another_order_are_told() {
        let mut old = testing::config();
        let mut second = old.routes[0].clone();
        second.name = "second".to_owned();
        old.routes.push(second);
        let mut new = old.clone();
        new.routes.reverse();
        assert_eq!(Difference::between(&old, new.clone(), true).changed, ["routes: order changed"]);
    }

    #[test]
    fn a_route_that_refers_to_another_upstream_by_the_same_index_is_told() {
        let old = testing::config();
        let mut new = old.clone();
        let other = Upstream { name: "other".to_owned(), ..old.upstreams[0].clone() };
        new.upstreams.insert(0, other);
        assert_eq!(new.routes, old.routes);
        let told = Difference::between(&old, new, true).changed;
        assert!(told.iter().any(|line| line.ends_with(": upstream api → other")), "{told:?}");
    }
}
