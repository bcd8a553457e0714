//! A route that is being written, and what the path of its requests becomes.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::{
    conditions::{Conditions, Path},
    yaml::{Comment, Map, Node},
};

/// A route that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct RouteDraft {
    pub(super) name: String,
    pub(super) conditions: Conditions,
    pub(super) comments: Vec<Comment>,
    pub(super) action: Action,
    pub(super) policies: Vec<String>,
    /// Networks, of those in `conditions.clients`: see [`RouteDraft::admit_only`].
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    /// Something that admits requests has no equal: until somebody has read the comment, only this machine is served.
    pub(super) is_closed: bool,
    pub(super) require: Option<&'static str>,
    pub(super) path: PathChange,
    pub(super) request_headers: HeaderChanges,
    pub(super) response_headers: HeaderChanges,
    /// In bytes.
    pub(super) max_body: Option<u64>,
    pub(super) cors: Option<Map>,
    pub(super) retry: Option<Map>,
    pub(super) timeouts: Option<Map>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Action {
    #[default]
    NotFound,
    Upstream(String),
    /// Upstreams with weights.
    Split(Vec<(String, u64)>),
    Redirect(Map),
    Reply(Map),
}

#[derive(Debug, Clone, Default)]
pub(super) struct HeaderChanges {
    pub(super) set: Vec<(String, String)>,
    pub(super) add: Vec<(String, String)>,
    pub(super) remove: Vec<String>,
}

/// What the upstream gets as the path of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum PathChange {
    #[default]
    Unchanged,
    /// The text in place of what the route's path has before its `*`; the rest follows.
    Beginning(String),
    /// This path for all requests.
    Whole(String),
    /// Without this prefix, where the path has it.
    Stripped(String),
}

/// A change of paths that a route cannot make.
pub(super) struct NoRewrite;

impl PathChange {
    /// This change, and then `prefix` removed from the beginning.
    pub(super) fn strip(&self, prefix: &str, path: &Path) -> Result<Self, NoRewrite> {
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() {
            return Ok(self.clone());
        }
        let without = |text: &str| {
            let rest = text.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            rest.map(str::to_owned)
        };
        match self.shape(path) {
            Shape::Beginning(text) => match without(&text) {
                Some(rest) => Ok(Self::Beginning(rest)),
                // The rest of a path may begin with it.
                None if prefix.starts_with(&text) && *self == Self::Unchanged => {
                    Ok(Self::Stripped(prefix.to_owned()))
                }
                None if prefix.starts_with(&text) => Err(NoRewrite),
                None => Ok(self.clone()),
            },
            Shape::Whole(text) => {
                Ok(without(&text).map_or_else(|| self.clone(), |rest| Self::Whole(slashed(&rest))))
            }
            Shape::Opaque if *self == Self::Unchanged => Ok(Self::Stripped(prefix.to_owned())),
            Shape::Opaque => Err(NoRewrite),
        }
    }

    /// This change, and then `prefix` put before the path.
    pub(super) fn prepend(&self, prefix: &str, path: &Path) -> Result<Self, NoRewrite> {
        let prefix = prefix.trim_end_matches('/');
        match self.shape(path) {
            _ if prefix.is_empty() => Ok(self.clone()),
            Shape::Beginning(text) => Ok(Self::Beginning(slashed(&format!("{prefix}{text}")))),
            Shape::Whole(text) => Ok(Self::Whole(slashed(&format!("{prefix}{text}")))),
            Shape::Opaque => Err(NoRewrite),
        }
    }

    fn shape(&self, path: &Path) -> Shape {
        match (self, path) {
            (Self::Beginning(text), _) => Shape::Beginning(text.clone()),
            (Self::Whole(text), _) => Shape::Whole(text.clone()),
            (Self::Stripped(_), _) => Shape::Opaque,
            (Self::Unchanged, Path::Any) => Shape::Beginning(String::new()),
            (Self::Unchanged, Path::Below(text)) => Shape::Beginning(text.clone()),
            (Self::Unchanged, Path::Prefix(text)) if text.ends_with('/') => {
                Shape::Beginning(text.trim_end_matches('/').to_owned())
            }
            (Self::Unchanged, Path::Exact(text)) => Shape::Whole(text.clone()),
            (Self::Unchanged, Path::Prefix(_) | Path::Regex(_)) => Shape::Opaque,
        }
    }

    /// `rewrite` of a route with this path.
    fn written(&self, path: &Path) -> Option<Map> {
        let original = Self::Unchanged.shape(path);
        match (self, &original) {
            (Self::Unchanged, _) => None,
            (Self::Stripped(prefix), _) => Some(Map::new().with("strip_prefix", prefix.as_str())),
            (Self::Beginning(text), Shape::Beginning(before)) if text == before => None,
            (Self::Beginning(text), Shape::Beginning(before))
                if before.ends_with(text.as_str()) && (text.is_empty() || text.starts_with('/')) =>
            {
                let prefix = before.strip_suffix(text.as_str()).unwrap_or(before);
                Some(Map::new().with("strip_prefix", prefix))
            }
            (Self::Beginning(text), _) => {
                Some(Map::new().with("path", format!("{}/{{rest}}", literal(text))))
            }
            (Self::Whole(text), Shape::Whole(before)) if text == before => None,
            (Self::Whole(text), _) => Some(Map::new().with("path", literal(text))),
        }
    }
}

/// The path before the rest that a request chooses.
enum Shape {
    /// A text without the slash behind it, and then the rest.
    Beginning(String),
    Whole(String),
    Opaque,
}

fn slashed(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// A text in which nothing is a placeholder.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

impl HeaderChanges {
    fn written(&self) -> Option<Map> {
        let mut map = Map::new();
        if !self.remove.is_empty() {
            map.set("remove", self.remove.clone());
        }
        for (key, changes) in [("set", &self.set), ("add", &self.add)] {
            if changes.is_empty() {
                continue;
            }
            let mut headers = Map::new();
            for (name, _) in changes {
                let values: Vec<_> =
                    changes.iter().filter(|(other, _)| other == name).map(|(_, value)| value).collect();
                match (key, values.as_slice()) {
                    ("add", [_, _, ..]) => {
                        headers.set(name, values.iter().map(|value| value.as_str()).collect::<Vec<_>>());
                    }
                    (_, values) => headers.set(name, values.last().map_or("", |value| value.as_str())),
                }
            }
            map.set(key, headers);
        }
        (!map.is_empty()).then_some(map)
    }
}

impl RouteDraft {
    /// Admits the clients of these networks, of those that it has admitted so far. Returns whether any are left: if
    /// not, the route is closed.
    #[must_use]
    pub(super) fn admit_only(&mut self, networks: &[&str]) -> bool {
        let admitted: Option<Vec<String>> = match (&self.conditions.clients, self.allow.is_empty()) {
            (_, false) => Some(std::mem::take(&mut self.allow)),
            (Some(clients), true) => Some(clients.iter().map(ToString::to_string).collect()),
            (None, true) => None,
        };
        let mut allow: Vec<String> = match admitted {
            None => networks.iter().map(|network| (*network).to_owned()).collect(),
            Some(admitted) => {
                let pairs = admitted.iter().flat_map(|one| networks.iter().map(move |other| (one, *other)));
                pairs.filter_map(|(one, other)| narrower(one, other)).map(str::to_owned).collect()
            }
        };
        let mut known = BTreeSet::new();
        allow.retain(|network| known.insert(network.clone()));
        self.is_closed |= allow.is_empty();
        self.allow = allow;
        !self.allow.is_empty()
    }

    /// The route as an item of `routes`.
    pub(super) fn written(self) -> Node {
        let mut map = Map::new();
        map.set("name", self.name.as_str());
        self.conditions.write(&mut map);
        let forwards = matches!(self.action, Action::Upstream(_) | Action::Split(_));
        match self.action {
            Action::NotFound => map.set("reply", Map::new().with("status", 404)),
            Action::Upstream(name) => map.set("upstream", name),
            Action::Split(upstreams) => {
                let upstreams = upstreams
                    .into_iter()
                    .map(|(name, weight)| Map::new().with("name", name).with("weight", weight));
                map.set("upstreams", upstreams.collect::<Vec<_>>());
            }
            Action::Redirect(redirect) => map.set("redirect", redirect),
            Action::Reply(reply) => map.set("reply", reply),
        }
        if let Some(require) = self.require {
            map.set("require", require);
        }
        if !self.policies.is_empty() {
            map.set("policies", self.policies);
        }
        match (self.is_closed, self.allow.is_empty()) {
            (true, _) => map.set("allow", vec!["127.0.0.1", "::1"]),
            (false, false) => map.set("allow", self.allow),
            (false, true) => {}
        }
        if !self.deny.is_empty() {
            map.set("deny", self.deny);
        }
        if let Some(rewrite) = self.path.written(&self.conditions.path).filter(|_| forwards) {
            map.set("rewrite", rewrite);
        }
        if let Some(changes) = self.request_headers.written().filter(|_| forwards) {
            map.set("request_headers", changes);
        }
        if let Some(changes) = self.response_headers.written() {
            map.set("response_headers", changes);
        }
        if let Some(bytes) = self.max_body {
            map.set("max_body", size(bytes));
        }
        if let Some(cors) = self.cors {
            map.set("cors", cors);
        }
        if let Some(retry) = self.retry.filter(|_| forwards) {
            map.set("retry", retry);
        }
        if let Some(timeouts) = self.timeouts.filter(|_| forwards) {
            map.set("timeouts", timeouts);
        }
        let mut node = Node::from(map);
        node.comments = self.comments;
        node
    }
}

/// The one of two networks that is inside of the other.
fn narrower<'n>(one: &'n str, other: &'n str) -> Option<&'n str> {
    let read = |text: &str| text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok();
    match (read(one), read(other)) {
        (Some(a), Some(b)) if b.contains(&a) => Some(one),
        (Some(a), Some(b)) if a.contains(&b) => Some(other),
        _ => (one == other).then_some(one),
    }
}

/// Whether a plugin with this name may be one that refuses requests without a credential.
pub(super) fn speaks_of_credentials(name: &str) -> bool {
    const WORDS: [&str; 11] =
        ["auth", "oidc", "openid", "jwt", "saml", "ldap", "acl", "hmac", "token", "sso", "keycloak"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// A name that no other route has.
pub(super) fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
    let free = [name.to_owned()].into_iter().chain(numbered).find(|name| !names.contains(name));
    let free = free.unwrap_or_else(|| name.to_owned());
    names.insert(free.clone());
    free
}

/// A number of bytes in the largest unit that divides it.
pub(super) fn size(bytes: u64) -> String {
    let unit = [("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, bits)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(name, bits)| format!("{}{name}", bytes >> bits))
}

/// A duration in milliseconds in the largest unit that divides it.
pub(super) fn duration(milliseconds: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let unit = units.into_iter().find(|(_, unit)| milliseconds > 0 && milliseconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{milliseconds}ms"), |(name, unit)| format!("{}{name}", milliseconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(change: &PathChange, path: &Path) -> String {
        let written = change
            .written(path)
            .map(|map| map.iter().map(|(key, node)| format!("{key} {:?}", node.value)).collect::<String>());
        written.unwrap_or_default().replace("Text(", "").replace([')', '"'], "")
    }

    #[test]
    fn durations_have_the_largest_unit_that_fits() {
        for (ms, text) in [(1500, "1500ms"), (2000, "2s"), (90_000, "90s"), (120_000, "2m"), (0, "0ms")] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn changes_of_a_path_are_one_rewrite() {
        let below = Path::Below("/api".to_owned());
        let unchanged = PathChange::Unchanged;
        let stripped = unchanged.strip("/api/", &below).ok().unwrap();
        assert_eq!(rewrite(&stripped, &below), "strip_prefix /api");
        let moved = stripped.prepend("/v2", &below).ok().unwrap();
        assert_eq!(rewrite(&moved, &below), "path /v2/{rest}");
        // Back where it was.
        let back = stripped.prepend("/api", &below).ok().unwrap();
        assert_eq!(rewrite(&back, &below), "");
        // A prefix that some paths have.
        let some = unchanged.strip("/api", &Path::Any).ok().unwrap();
        assert_eq!(rewrite(&some, &Path::Any), "strip_prefix /api");
        assert!(some.prepend("/v2", &Path::Any).is_err());
        let other = unchanged.strip("/web", &below).ok().unwrap();
        assert_eq!(rewrite(&other, &below), "");
        let exact = Path::Exact("/api/{a}".to_owned());
        let one = unchanged.prepend("/v2", &exact).ok().unwrap();
        assert_eq!(rewrite(&one, &exact), "path /v2/api/{{a}}");
        assert!(unchanged.prepend("/v2", &Path::Regex("^/a".to_owned())).is_err());
    }

    #[test]
    fn clients_must_be_in_all_lists() {
        let mut route = RouteDraft::default();
        assert!(route.admit_only(&["10.0.0.0/8", "192.168.1.1", "2001:db8::/32"]));
        assert!(route.admit_only(&["10.1.0.0/16", "192.168.0.0/16", "10.1.0.0/16"]));
        assert_eq!(route.allow, ["10.1.0.0/16", "192.168.1.1"]);
        assert!(!route.admit_only(&["172.16.0.0/12"]));
        assert!(route.is_closed);
        let clients = Some(vec!["10.0.0.0/8".parse().unwrap()]);
        let conditions = Conditions { clients, ..Conditions::default() };
        let mut route = RouteDraft { conditions, ..RouteDraft::default() };
        assert!(route.admit_only(&["0.0.0.0/0"]));
        assert_eq!(route.allow, ["10.0.0.0/8"]);
        assert!(!RouteDraft::default().admit_only(&[]));
    }

    #[test]
    fn quantities_have_the_largest_unit() {
        assert_eq!([0, 1, 1024, 5 << 20, 3 << 30].map(size), ["0", "1", "1KiB", "5MiB", "3GiB"]);
        assert_eq!(
            [50, 1000, 90_000, 3_600_000, 86_400_000].map(duration),
            ["50ms", "1s", "90s", "1h", "1d"]
        );
    }
}
