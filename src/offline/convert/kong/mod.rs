//! Converts the declarative configuration of Kong, as decK writes it (`_format_version` 1.1 to 3.0).
//!
//! There is no Kong to compare with: the rules are those of its source (github.com/Kong/kong, files named in comments).
//! One site has all routes, in the order in which Kong's router tries them. The rules of a route are its plugins, in the
//! order in which Kong runs them, and then its service.

mod consumers;
mod cors;
mod limits;
mod order;
mod paths;
mod plugins;
mod routes;
mod scopes;
#[cfg(test)]
mod tests;
mod transformers;
mod upstreams;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    ConvertError, SourceLine,
    condition::RequestCondition,
    document::{Fields, ForeignDocument, Item},
    draft::ConfigDraft,
    site::{Effect, Site, SiteListener, SiteRule},
    yaml::{Comment, Map},
};
use consumers::Consumers;
use limits::Policies;
use scopes::Plugin;
use values::{given, ignore, rest};

/// The listener without TLS.
const HTTP: &str = "http";

/// Sections that change nothing for requests: what decK needs, and the administration of Kong itself. Plugins that use
/// `_plugin_configs` are closed.
const NEEDS_NOTHING: &str = "_format_version _transform _comment _workspace _konnect _plugin_configs licenses acls \
                             rbac_roles rbac_role_endpoint_permissions rbac_endpoint_permissions";

/// Sections without which requests fail or are refused, but are not admitted.
const NOTED: [(&str, &str); 4] = [
    ("snis", "Tollgate reads names in certificates"),
    (
        "ca_certificates",
        "write them into a file for `tls: { ca: … }` of an upstream, or `client_ca` of a listener",
    ),
    ("vaults key_sets keys", "secrets come from files (`${file:PATH}`) and the environment (`${NAME}`)"),
    (
        consumers::OTHERS,
        "Tollgate does not check these: give their consumers API keys, or see `user: [{ jwt: … }]`",
    ),
];

/// What conditions do to the requests of a route.
type Effects = Vec<(RequestCondition, Effect)>;

/// Converts `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<ConfigDraft, ConvertError> {
    let document = ForeignDocument::parse(&path.display().to_string(), text)?;
    let root = document.root().fields();
    let mut kong = Kong::new(&root);
    let mut rules = kong.sections(&root);
    rules.extend(kong.ordered_routes());
    kong.finish_consumers();
    let mut listeners = vec![listener(HTTP, Map::new().with("address", "0.0.0.0:8000"))];
    if kong.needs_tls {
        let file =
            |name: String| Map::new().with("cert", format!("{name}.pem")).with("key", format!("{name}.key"));
        let count = root.items("certificates").len().max(1);
        let files: Vec<Map> = (1..=count).map(|nth| file(format!("tls/certificate-{nth}"))).collect();
        let tls = Map::new().with("certificates", files);
        listeners.push(listener("https", Map::new().with("address", "0.0.0.0:8443").with("tls", tls)));
    }
    let mut draft = kong.draft;
    draft.sites.push(Site { listeners: listeners.iter().map(|one| one.name.clone()).collect(), rules });
    draft.listeners = listeners;
    let text = "Timeouts: Kong waits up to 60s for a connection, and 60s for a response; Tollgate 1s and 30s, unless \
                `timeouts` says otherwise.";
    draft.head.push(Comment::Plain(text.to_owned()));
    Ok(draft)
}

struct Kong<'d> {
    /// Before 3.0, a path with characters that no plain path has is an expression.
    has_bare_regexes: bool,
    services: Vec<Item<'d>>,
    /// With the numbers of their services.
    routes: Vec<(Option<usize>, Item<'d>)>,
    /// By their names.
    upstreams: BTreeMap<&'d str, Item<'d>>,
    /// Targets outside of an upstream.
    targets: Vec<Item<'d>>,
    plugins: Vec<Plugin<'d>>,
    consumers: Consumers<'d>,
    draft: ConfigDraft,
    /// Upstreams of the draft, by service and by whether they preserve the host.
    written: BTreeMap<(usize, bool), String>,
    policies: Policies,
    /// The places of notes at the head.
    told: BTreeSet<SourceLine>,
    needs_tls: bool,
}

impl<'d> Kong<'d> {
    fn new(root: &Fields<'d>) -> Self {
        let version = root.text("_format_version").and_then(|version| version.parse().ok()).unwrap_or(3.0);
        let services = root.items("services");
        let upstreams = root.items("upstreams").into_iter();
        let routes = services.iter().enumerate();
        let routes = routes.flat_map(|(nth, service)| {
            service.fields().items("routes").into_iter().map(move |route| (Some(nth), route))
        });
        let mut kong = Self {
            has_bare_regexes: version < 3.0_f32,
            routes: routes.collect(),
            upstreams: upstreams.filter_map(|item| Some((item.fields().text("name")?, item))).collect(),
            targets: root.items("targets"),
            plugins: Vec::new(),
            consumers: Consumers::default(),
            draft: ConfigDraft::default(),
            written: BTreeMap::new(),
            policies: Policies::default(),
            told: BTreeSet::new(),
            needs_tls: given(root, "certificates").is_some(),
            services,
        };
        for route in root.items("routes") {
            let service = given(&route.fields(), "service");
            match service.map(|item| kong.service_named(item)) {
                Some(None) => kong.note(route, "no service has this name: the route is not converted"),
                found => kong.routes.push((found.flatten(), route)),
            }
        }
        kong.collect_consumers(root);
        kong.collect_plugins(root);
        kong
    }

    fn service_named(&self, item: Item<'d>) -> Option<usize> {
        let name = values::reference(item)?;
        self.services.iter().position(|service| values::is_named(*service, name))
    }

    /// Looks at the sections that are no part of a route. Those that nobody knows close all routes.
    fn sections(&mut self, root: &Fields<'d>) -> Vec<SiteRule> {
        ignore(root, NEEDS_NOTHING);
        for (keys, hint) in NOTED {
            for key in keys.split_whitespace() {
                if let Some(item) = given(root, key) {
                    self.note(item, format!("`{key}`: {hint}"));
                }
            }
        }
        let info = root.fields("_info");
        info.ignore(&["select_tags"]);
        let unknown = info.rest().into_iter().chain(rest(root));
        let rule = |(key, item): (&str, Item<'_>)| {
            let text = "it has no equal, and it may be for all routes".to_owned();
            SiteRule::new(RequestCondition::ALWAYS, Effect::Close(text), &item.place(), key)
        };
        unknown.map(rule).collect()
    }

    /// Adds a note at the head, once for each place.
    fn note(&mut self, item: Item<'d>, text: impl Into<String>) {
        if self.told.insert(item.place()) {
            self.draft.head.push(item.note(text));
        }
    }
}

fn listener(name: &str, settings: Map) -> SiteListener {
    let text = match settings.has("tls") {
        true => "Kong's default. Write its certificates and their keys into these files.",
        false => "Kong's default. Its addresses are in kong.conf (`proxy_listen`).",
    };
    SiteListener { name: name.to_owned(), settings, comments: vec![Comment::Plain(text.to_owned())] }
}

/// Effects on all requests.
fn always(effects: impl IntoIterator<Item = Effect>) -> Effects {
    effects.into_iter().map(|effect| (RequestCondition::ALWAYS, effect)).collect()
}
