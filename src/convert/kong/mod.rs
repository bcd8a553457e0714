//! Converts the declarative configuration of Kong, as `deck` writes it (`_format_version` 1.1 to 3.0).
//!
//! Routes are brought into the order in which Kong's router tries them. Of the plugins with one name, the most specific
//! applies: that of the route, else that of the service, else the global one.

mod consumers;
mod plugins;
mod routes;
mod transformers;
mod upstreams;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    ConvertError, Draft,
    document::{Document, Fields, Item},
    yaml::{Comment, Map, Node},
};
use consumers::Consumers;
use plugins::Plugin;
use routes::KongRoute;

/// Keys of entities that change nothing for requests.
const META: [&str; 7] = ["id", "tags", "created_at", "updated_at", "ws_id", "instance_name", "_comment"];

/// Converts `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<Draft, ConvertError> {
    let document = Document::parse(&path.display().to_string(), text)?;
    let root = document.root().fields();
    let mut kong = Kong::new(&root);
    kong.convert();
    Ok(kong.draft)
}

struct Kong<'d> {
    /// Before 3.0, a path with characters that no plain path has is a regular expression.
    has_bare_regexes: bool,
    services: Vec<Item<'d>>,
    /// With the numbers of their services.
    routes: Vec<(Option<usize>, Item<'d>)>,
    /// By their names, and their IDs.
    upstreams: BTreeMap<String, Item<'d>>,
    /// Targets outside of an upstream, by its name.
    targets: Vec<Item<'d>>,
    plugins: Vec<Plugin<'d>>,
    consumers: Consumers<'d>,
    draft: Draft,
    /// Upstreams of the draft, by service and by whether they preserve the host.
    written: BTreeMap<(usize, bool), String>,
    used_upstreams: BTreeSet<String>,
    /// Policies by the places of their plugins.
    policies: BTreeMap<usize, Vec<String>>,
    /// Comments told once.
    told: BTreeSet<String>,
    uses_keys: bool,
    hides_headers: BTreeSet<bool>,
}

impl<'d> Kong<'d> {
    fn new(root: &Fields<'d>) -> Self {
        let version =
            root.text("_format_version").and_then(|version| version.parse::<f32>().ok()).unwrap_or(3.0);
        let mut draft = Draft::default();
        let services = root.items("services");
        let mut plugins = Vec::new();
        let consumers = Consumers::new(root, &mut draft.head);
        let mut routes = Vec::new();
        for (nth, service) in services.iter().enumerate() {
            let fields = service.fields();
            for plugin in fields.items("plugins") {
                plugins.push(Plugin::new(plugin, Some(nth), None, None));
            }
            routes.extend(fields.items("routes").into_iter().map(|route| (Some(nth), route)));
        }
        let find_service = |item: Item<'d>| {
            let name = reference(item)?;
            services.iter().position(|service| is_named(*service, name))
        };
        for route in root.items("routes") {
            let service = route.fields().take("service").filter(|item| !item.is_null());
            let found = service.and_then(find_service);
            if let Some(service) = service.filter(|_| found.is_none()) {
                draft.head.push(service.note("no service has this name: the route is not converted"));
                continue;
            }
            routes.push((found, route));
        }
        for plugin in root.items("plugins") {
            let fields = plugin.fields();
            let service = fields.take("service").filter(|item| !item.is_null()).map(find_service);
            let route = fields.take("route").filter(|item| !item.is_null()).and_then(reference);
            let route = route.map(|name| routes.iter().position(|(_, route)| is_named(*route, name)));
            let consumer = fields.take("consumer").filter(|item| !item.is_null()).and_then(reference);
            if service == Some(None) || route == Some(None) {
                draft.head.push(
                    plugin.note(
                        "this plugin is for a service or a route that is not in this file: not converted",
                    ),
                );
                continue;
            }
            plugins.push(Plugin::new(plugin, service.flatten(), route.flatten(), consumer));
        }
        for (nth, (service, route)) in routes.iter().enumerate() {
            for plugin in route.fields().items("plugins") {
                plugins.push(Plugin::new(plugin, *service, Some(nth), None));
            }
        }
        consumers.collect_plugins(&mut plugins);
        let mut upstreams = BTreeMap::new();
        for item in root.items("upstreams") {
            if let Some(name) = item.fields().text("name") {
                upstreams.insert(name.to_owned(), item);
            }
        }
        let targets = root.items("targets");
        root.ignore(&["_transform", "_info", "_comment", "_workspace", "_konnect", "_plugin_configs"]);
        let hints = [
            (
                "certificates",
                "write certificate and key into files, and name them in `tls: { certificates: … }` of a \
                    listener",
            ),
            ("snis", "names of certificates: Tollgate reads them in the certificates"),
            (
                "ca_certificates",
                "write them into a file for `tls: { ca: … }` of an upstream, or `client_ca` of a listener",
            ),
            ("vaults", "secrets come from files (`${file:PATH}`) and the environment (`${NAME}`)"),
        ];
        for (key, item) in root.rest() {
            let hint =
                hints.iter().find(|(name, _)| *name == key).map_or("it has no equal", |(_, hint)| hint);
            draft.head.push(item.note(format!("`{key}`: {hint}")));
        }
        Self {
            has_bare_regexes: version < 3.0,
            services,
            routes,
            upstreams,
            targets,
            plugins,
            consumers,
            draft,
            written: BTreeMap::new(),
            used_upstreams: BTreeSet::new(),
            policies: BTreeMap::new(),
            told: BTreeSet::new(),
            uses_keys: false,
            hides_headers: BTreeSet::new(),
        }
    }

    fn convert(&mut self) {
        let listener = Node::from(Map::new().with("address", "0.0.0.0:8000"));
        self.draft.listeners.push(
            listener.commented(Comment::Plain(
                "Kong's default. Its addresses are in kong.conf (`proxy_listen`); for TLS, add a listener \
                with `tls`."
                    .to_owned(),
            )),
        );
        let routes: Vec<KongRoute<'d>> = self.ordered_routes();
        self.write_routes(routes);
        self.finish_consumers();
        self.global_notes();
        let unused: Vec<_> = self
            .upstreams
            .iter()
            .filter(|(name, _)| !self.used_upstreams.contains(*name))
            .map(|(name, item)| item.note(format!("no service uses the upstream `{name}`: not converted")))
            .collect();
        self.draft.head.extend(unused);
        self.draft.head.push(Comment::Plain(
            "Timeouts: Kong waits up to 60s for a connection, and 60s for a response; Tollgate 1s and \
                30s, unless `timeouts` says otherwise."
                .to_owned(),
        ));
        let comment = "Kong compares paths letter by letter. Without this, /LOGIN and /login/ are \
            /login, too, so that no spelling bypasses \
            a limit. A path /api is also the beginning of /apis in Kong: where it is written /api/* \
            here, it is not.";
        let strict = Node::from(Map::new().with("case", "sensitive").with("trailing_slash", "exact"));
        self.draft.settings.set("match", strict.commented(Comment::Plain(comment.to_owned())));
        if !self.hides_headers.is_empty() {
            let shown = if self.hides_headers.contains(&false) { "both" } else { "off" };
            self.draft.settings.set("reply_headers", Map::new().with("ratelimit", shown));
        }
    }
}

/// The name or ID by which an entity refers to another.
fn reference(item: Item<'_>) -> Option<&str> {
    if let Some(name) = item.text() {
        return Some(name);
    }
    let fields = item.fields();
    fields.text("id").or_else(|| fields.text("name")).or_else(|| fields.text("username"))
}

fn is_named(item: Item<'_>, name: &str) -> bool {
    let fields = item.fields();
    ["name", "id", "username"].iter().any(|key| fields.text(key) == Some(name))
}

/// Notes about keys that nobody has read.
fn leftovers(fields: &Fields<'_>, of: &str) -> Vec<Comment> {
    fields.ignore(&META);
    let is_empty = |item: &Item<'_>| {
        item.text() == Some("false")
            || (!item.is_mapping() && item.text().is_none() && item.items().is_empty())
    };
    let rest = fields.rest().into_iter().filter(|(_, item)| !is_empty(item));
    rest.map(|(key, item)| item.note(format!("`{of}.{key}` has no equal"))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn converted(text: &str) -> String {
        super::convert(text, Path::new("kong.yml")).unwrap().finish("test").yaml
    }

    fn is_closed(yaml: &str) -> bool {
        yaml.contains("- 127.0.0.1") || yaml.contains("[127.0.0.1, ")
    }

    const SERVICE: &str = "_format_version: '3.0'
services: [{ name: a, url: 'http://10.0.0.5', routes: [{ name: r, paths: [/a] }, { name: s, paths: [/s] }] }]
";

    #[test]
    fn lists_of_groups_hold_for_keys_and_tokens() {
        const KEY: &str = "keyauth_credentials: [{ key: 8b1a9953c4611296a827abf8c47804d7 }]";
        const TOKEN: &str = "jwt_secrets: [{ key: issuer, algorithm: HS256 }]";
        let acl = "{ name: acl, config: { allow: [staff] } }";
        for (plugins, consumer, closed) in [
            (format!("{{ name: jwt }}, {acl}"), TOKEN.to_owned(), true),
            (format!("{{ name: jwt }}, {acl}"), format!("{TOKEN}, acls: [{{ group: staff }}]"), false),
            (format!("{{ name: key-auth }}, {acl}"), format!("{KEY}, acls: [{{ group: staff }}]"), false),
            (format!("{{ name: key-auth }}, {acl}"), "acls: []".to_owned(), true),
            (acl.to_owned(), format!("{KEY}, acls: [{{ group: staff }}]"), true),
            (
                format!("{acl}, {{ name: key-auth, config: {{ anonymous: b }} }}"),
                format!("{KEY}, acls: [{{ group: staff }}]"),
                true,
            ),
            ("{ name: key-auth }, { name: jwt }".to_owned(), format!("{KEY}, {TOKEN}"), true),
            ("{ name: my-oidc }".to_owned(), KEY.to_owned(), true),
            ("{ name: prometheus }".to_owned(), KEY.to_owned(), false),
        ] {
            let text = format!("{SERVICE}plugins: [{plugins}]\nconsumers: [{{ username: b, {consumer} }}]\n");
            let yaml = converted(&text);
            assert_eq!(is_closed(&yaml), closed, "{text}\n{yaml}");
        }
    }

    #[test]
    fn limits_of_a_consumer_on_a_route_are_kept() {
        let yaml = converted(&format!(
            "{SERVICE}plugins:
- {{ name: key-auth }}
- {{ name: rate-limiting, config: {{ minute: 100 }} }}
- {{ name: rate-limiting, consumer: b, route: r, config: {{ minute: 7 }} }}
- {{ name: rate-limiting, service: a, consumer: c, config: {{ minute: 8 }} }}
- {{ name: rate-limiting, service: a, route: s, config: {{ minute: 50 }} }}
- {{ name: rate-limiting, service: a, route: s, consumer: c, config: {{ minute: 9 }} }}
consumers: [{{ username: b, keyauth_credentials: [{{ key: 8b1a9953c4611296a827abf8c47804d7 }}] }}]
"
        ));
        assert!(yaml.contains("7/1m") && yaml.contains("8/1m") && yaml.contains("9/1m"), "{yaml}");
        let (general, narrow) = yaml.split_once("s-rate:").unwrap_or_default();
        assert!(!general.contains("limit: 9/1m") && narrow.contains("limit: 9/1m"), "{yaml}");
    }
}
