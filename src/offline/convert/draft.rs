//! The `proxy.yaml` that a converter fills, and how it is written.

use std::collections::BTreeSet;

use url::Url;

use super::{
    Conversion, Note, Source,
    condition::HostCondition,
    networks::Networks,
    path::{self, Path, regex_text},
    routes::{self, RouteDraft, RouteEnd},
    site::{self, Edit, HeaderRule, PathEdit, RuleResponse, Site, SiteListener},
    yaml::{Comment, Map, YamlNode, YamlValue, document},
};

/// The sections of a file in the order in which they are written. Others come behind them.
const ORDER: [&str; 16] = [
    "listeners",
    "trusted_proxies",
    "trusted_headers",
    "client_address",
    "deny",
    "allow",
    "user",
    "api_keys",
    "plans",
    "store",
    "policies",
    "bans",
    "upstreams",
    "match",
    "paths",
    "routes",
];

/// A configuration of Tollgate that is being written. Comments may be attached to the whole, and to each entry.
#[derive(Debug, Default)]
pub(super) struct ConfigDraft {
    /// Comments at the head of the file, which belong to no entry.
    pub(super) head: Vec<Comment>,
    pub(super) listeners: Vec<SiteListener>,
    pub(super) sites: Vec<Site>,
    /// Without `exempt` for addresses that a rule excepts: the writer adds it.
    pub(super) policies: Map,
    pub(super) upstreams: Map,
    /// All other sections: `trusted_proxies`, `client_address`, `client_limits`, …
    pub(super) settings: Map,
    /// Notes for the head of the file, unless one at a route begins with the same words.
    pub(super) unsaid: Vec<Note>,
}

impl ConfigDraft {
    /// Writes the file. Its first comment is `title`. Sections without entries are left out. `front`: the old proxy that
    /// all requests go to, and what it is.
    pub(super) fn finish(mut self, title: &str, front: Option<(&Url, Source)>) -> Conversion {
        // Notes also on parts that no request reaches.
        let mut unsaid = std::mem::take(&mut self.unsaid);
        self.sites.iter().for_each(|site| site::notes(&site.rules, &mut unsaid));
        let mut routes = self.routes();
        if let Some((old, source)) = front {
            routes = self.put_in_front(routes, old, source);
        }
        let written = self.written_routes(&routes);
        let Self { head, listeners, policies, upstreams, settings, .. } = self;
        let (route_count, policy_count) = (written.len(), policies.len());
        let mut sections = settings;
        if !written.is_empty() {
            sections.set("match", Map::new().with("case", "sensitive").with("trailing_slash", "exact"));
        }
        let is_named = |listener: &SiteListener| {
            let all = listeners.len();
            routes
                .iter()
                .filter_map(|route| route.requests.listeners.as_ref())
                .any(|names| names.len() < all && names.contains(&listener.name))
        };
        let listeners: Vec<_> = listeners
            .iter()
            .map(|listener| {
                let mut map = listener.settings.clone();
                if is_named(listener) {
                    map.set("name", listener.name.as_str());
                    map.sort_by_key(|key| match key {
                        "address" => 0,
                        "name" => 1,
                        _ => 2,
                    });
                }
                YamlNode { comments: listener.comments.clone(), ..YamlNode::from(map) }
            })
            .collect();
        for (name, list) in [("listeners", listeners), ("routes", written)] {
            if !list.is_empty() {
                sections.set(name, YamlNode::from(YamlValue::List(list)));
            }
        }
        for (name, map) in [("policies", policies), ("upstreams", upstreams)] {
            if !map.is_empty() {
                sections.set(name, YamlNode::from(map));
            }
        }
        sections.sort_by_key(|name| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len()));
        let mut unconverted: Vec<Note> = head.iter().filter_map(Comment::note).cloned().collect();
        sections.collect_notes(&mut unconverted);
        let is_said = |note: &Note| {
            let words = note.text.split_once("`: ").map_or(note.text.as_str(), |(shown, _)| shown);
            unconverted.iter().any(|said| said.place == note.place && said.text.starts_with(words))
        };
        let unsaid = unsaid.into_iter().filter(|note| front.is_none() && !is_said(note));
        let unsaid: Vec<Note> = unsaid.collect();
        unconverted.extend(unsaid.iter().cloned());
        unconverted.sort();
        unconverted.dedup();
        let unsaid = unsaid.into_iter().map(Comment::Unconverted);
        let comments: Vec<_> =
            [Comment::Plain(title.to_owned())].into_iter().chain(head).chain(unsaid).collect();
        Conversion {
            yaml: document(&comments, &sections),
            unconverted,
            routes: route_count,
            policies: policy_count,
        }
    }

    /// The routes of all sites. Sites with the same rules become one.
    fn routes(&mut self) -> Vec<RouteDraft> {
        let mut sites: Vec<Site> = Vec::new();
        for site in std::mem::take(&mut self.sites) {
            match sites.iter_mut().find(|known| known.rules == site.rules) {
                Some(known) => known.listeners.extend(site.listeners),
                None => sites.push(site),
            }
        }
        let is_by_address = |policy: &str| match self.policies.get(policy).map(|node| &node.value) {
            Some(YamlValue::Map(map)) => match map.get("key").map(|node| &node.value) {
                Some(YamlValue::Text(key)) => key.split('+').any(|part| part == "ip"),
                _ => false,
            },
            _ => false,
        };
        // Without a route, a request gets 404 anyway.
        let is_for_nothing = |last: &mut RouteDraft| {
            last.end == RouteEnd::Refused(404) && last.comments.is_empty() && last.limits.is_empty()
        };
        let mut routes: Vec<RouteDraft> = Vec::new();
        for site in &sites {
            routes.extend(routes::routes(site, &is_by_address));
            if routes.len() > 1 {
                routes.pop_if(is_for_nothing);
            }
        }
        routes
    }

    /// The items of `routes`, and `exempt` of the policies.
    fn written_routes(&mut self, routes: &[RouteDraft]) -> Vec<YamlNode> {
        self.exempt(routes);
        let all = self.listeners.len();
        let (mut names, mut said, mut heads) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let written = routes.iter().map(|route| {
            let mut route = route.clone();
            let name = route.name.take().map(|name| unique(&name, &mut names));
            let listeners = route.requests.listeners.take().filter(|listeners| listeners.len() < all);
            let mut node = route.written(name, listeners);
            // A note on all routes of a rule is written at the first.
            node.comments.retain(|comment| comment.note().is_some() || heads.insert(comment.clone()));
            for comment in &mut node.comments {
                if let Some(note) = comment.note().cloned()
                    && !said.insert(note.clone())
                {
                    *comment = Comment::Plain(format!("{}: see above.", note.place));
                }
            }
            node.comments.dedup();
            node
        });
        let written = written.collect();
        if !routes.is_empty() {
            let used =
                |name: &str| routes.iter().any(|route| route.limits.iter().any(|(policy, _)| policy == name));
            let unused: Vec<String> =
                self.policies.iter().map(|(name, _)| name.to_owned()).filter(|name| !used(name)).collect();
            unused.iter().for_each(|name| self.policies.remove(name));
        }
        written
    }

    /// Sets the addresses that a policy does not limit on any of its routes. A policy has one count on all of them, so
    /// that it cannot have others for each.
    fn exempt(&mut self, routes: &[RouteDraft]) {
        let names: Vec<String> = self.policies.iter().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            // A route that refuses all addresses says nothing of those that others except.
            let of_route = |route: &RouteDraft| {
                let mut limits = route.limits.iter().filter(|_| !matches!(route.end, RouteEnd::Refused(_)));
                limits.find(|(policy, _)| *policy == name).map(|(_, exempt)| exempt.clone())
            };
            let exempt: Vec<Networks> = routes.iter().filter_map(of_route).collect();
            let Some(both) = exempt.iter().cloned().reduce(|one, other| one.and(&other)) else { continue };
            let Some(node) = self.policies.get_mut(&name) else { continue };
            if exempt.iter().any(|exempt| *exempt != both) {
                let route = routes.iter().find(|route| of_route(route).is_some_and(|exempt| exempt != both));
                let text = "a policy has the same `exempt` on all of its routes: addresses that only some of them except \
                            are limited";
                if let Some(note) = route.and_then(|route| route.notes().next()) {
                    node.comments.push(Comment::Unconverted(Note {
                        place: note.place.clone(),
                        text: text.to_owned(),
                    }));
                } else {
                    node.comments.push(Comment::Plain(text.to_owned()));
                }
            }
            if let (YamlValue::Map(map), false) = (&mut node.value, both.is_empty()) {
                map.set("exempt", both.written());
            }
        }
    }
}

impl RouteDraft {
    /// The route as an item of `routes`.
    fn written(mut self, name: Option<String>, listeners: Option<BTreeSet<String>>) -> YamlNode {
        let mut map = Map::new();
        let (mut path, mut rewrite) = (self.requests.path.written(), None);
        if matches!(self.end, RouteEnd::Act(RuleResponse::Upstream(_) | RuleResponse::Split(_))) {
            match rewritten(&self.requests.path, &self.edits) {
                Ok((new, change)) => (path, rewrite) = (new, change),
                Err(NoRewrite) => self.close("Tollgate cannot make this change to the paths of this route"),
            }
        }
        self.settle_port();
        self.check_redirect();
        self.settle_preflights();
        map.extend_some("name", name);
        map.extend_some("listeners", listeners.map(|names| names.into_iter().collect::<Vec<_>>()));
        self.requests.write(&path, &mut map);
        let forwards = matches!(self.end, RouteEnd::Act(RuleResponse::Upstream(_) | RuleResponse::Split(_)));
        let refuses = matches!(self.end, RouteEnd::Closed | RouteEnd::Refused(_));
        let is_closed = self.end == RouteEnd::Closed;
        match self.end {
            RouteEnd::Act(RuleResponse::Upstream(name)) => map.set("upstream", name),
            RouteEnd::Act(RuleResponse::Split(upstreams)) => {
                let upstreams = upstreams.into_iter();
                let upstreams =
                    upstreams.map(|(name, weight)| Map::new().with("name", name).with("weight", weight));
                map.set("upstreams", upstreams.collect::<Vec<_>>());
            }
            RouteEnd::Act(RuleResponse::Redirect(redirect)) => map.set("redirect", redirect),
            RouteEnd::Act(RuleResponse::Reply(reply)) => map.set("reply", reply),
            RouteEnd::Refused(status) => {
                map.set("reply", Map::new().with("status", u64::from(status.clamp(400, 599))));
            }
            RouteEnd::Closed => map.set("reply", Map::new().with("status", 501)),
        }
        if !self.limits.is_empty() {
            map.set("policies", self.limits.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        }
        if !self.admitted.is_all() {
            let (allow, deny) = (self.admitted.written(), self.admitted.not().written());
            match allow.len() <= deny.len() {
                true => map.set("allow", allow),
                false => map.set("deny", deny),
            }
        }
        map.extend_some("rewrite", rewrite.filter(|_| forwards));
        let changes = |pick: fn(&Edit) -> Option<&HeaderRule>| changes(self.edits.iter().filter_map(pick));
        let request = changes(|edit| if let Edit::Request(change) = edit { Some(change) } else { None });
        let response = changes(|edit| if let Edit::Response(change) = edit { Some(change) } else { None });
        map.extend_some("request_headers", request.filter(|_| forwards));
        map.extend_some("response_headers", response.filter(|_| !refuses));
        for edit in &self.edits {
            match edit {
                Edit::Setting("retry" | "timeouts", _) if !forwards => {}
                Edit::Setting("max_body", _) if refuses => {}
                // The response of the source is unknown there, also to a preflight.
                Edit::Setting("cors", _) if is_closed => {}
                Edit::Setting(key, node) => map.set(key, node.clone()),
                _ => {}
            }
        }
        YamlNode { comments: self.comments, ..YamlNode::from(map) }
    }

    /// Closes a redirect that would lead to another path.
    fn check_redirect(&mut self) {
        let RouteEnd::Act(RuleResponse::Redirect(redirect)) = &self.end else { return };
        let keeps_path = !redirect.has("path") && !redirect.has("to");
        if keeps_path && self.edits.iter().any(|edit| matches!(edit, Edit::Path(_))) {
            self.close("Tollgate redirects to the path as the client sent it, before it is changed");
        } else if !has_groups(&self.requests.path, redirect) {
            self.close("Tollgate cannot take the parts of this path for the redirect");
        }
    }

    /// Gives a redirect to another port the one host of the route.
    fn settle_port(&mut self) {
        let RouteEnd::Act(RuleResponse::Redirect(redirect)) = &mut self.end else { return };
        if !redirect.has("port") || redirect.has("host") {
            return;
        }
        match self.requests.hosts.iter().flatten().collect::<Vec<_>>().as_slice() {
            [HostCondition::Exact(name)] => redirect.set("host", name.as_str()),
            _ => self.close("a redirect to another port needs a host"),
        }
    }

    /// A route with `cors` and `methods` also takes preflights for these methods, and no others, where another program
    /// goes by their own method, OPTIONS.
    fn settle_preflights(&mut self) {
        let is_cors = |edit: &Edit| matches!(edit, Edit::Setting("cors", _));
        let has_cors =
            !matches!(self.end, RouteEnd::Closed | RouteEnd::Refused(_)) && self.edits.iter().any(is_cors);
        let Some(methods) = self.requests.methods.as_ref().filter(|_| has_cors) else { return };
        if methods.contains("OPTIONS") {
            return self.close("Tollgate would forward preflights for other methods");
        }
        self.edits.retain(|edit| !is_cors(edit));
        let text = "`cors` would also answer preflights, which have another method: responses have no \
                    `access-control-allow-origin`, `access-control-allow-credentials`, `access-control-expose-headers` and `vary`";
        self.comments.push(Comment::Unconverted(Note { place: self.place.clone(), text: text.to_owned() }));
    }

    fn close(&mut self, text: &str) {
        let place = self.notes().next().map(|note| note.place.clone());
        let text = format!("{text}. Until you decide, it answers 501");
        self.comments.push(match place {
            Some(place) => Comment::Unconverted(Note { place, text }),
            None => Comment::Unconverted(Note { place: self.place.clone(), text }),
        });
        self.end = RouteEnd::Closed;
    }
}

/// `set`, `add` and `remove` for changes that are made one after the other.
fn changes<'c>(changes: impl Iterator<Item = &'c HeaderRule>) -> Option<Map> {
    let (mut set, mut add, mut remove) = (Map::new(), Vec::<(&str, &str)>::new(), Vec::<&str>::new());
    for change in changes {
        let name = change.name();
        match change {
            HeaderRule::Add(_, value) => {
                // A route adds each value once.
                if !add.contains(&(name, value)) {
                    add.push((name, value));
                }
                continue;
            }
            HeaderRule::Set(_, value) => {
                set.set(name, value.as_str());
                remove.retain(|known| *known != name);
            }
            HeaderRule::Undo(_) => {}
            HeaderRule::Remove(_) => {
                set.retain(|known| !change.is_of(known));
                if !remove.contains(&name) {
                    remove.push(name);
                }
            }
        }
        add.retain(|(known, _)| !change.is_of(known));
    }
    let mut added = Map::new();
    for (name, value) in add {
        match added.get_mut(name) {
            None => added.set(name, value),
            Some(YamlNode { value: YamlValue::List(values), .. }) => values.push(YamlNode::from(value)),
            Some(node) => {
                *node =
                    YamlNode::from(vec![std::mem::replace(node, YamlNode::from("")), YamlNode::from(value)]);
            }
        }
    }
    let mut map = Map::new();
    for (key, headers) in [("set", set), ("add", added)] {
        if !headers.is_empty() {
            map.set(key, headers);
        }
    }
    if !remove.is_empty() {
        map.set("remove", remove);
    }
    (!map.is_empty()).then_some(map)
}

/// A change of paths that a route cannot make.
struct NoRewrite;

/// The path of a route, and its `rewrite`, for these changes of the paths of its requests.
fn rewritten(path: &Path, edits: &[Edit]) -> Result<(String, Option<Map>), NoRewrite> {
    let edits = edits.iter().filter_map(|edit| if let Edit::Path(edit) = edit { Some(edit) } else { None });
    let (before, has_rest) = match path {
        Path::Any => ("/", true),
        Path::Prefix(text) => (text.as_str(), true),
        Path::Exact(text) => (text.as_str(), false),
        Path::Regex(_) => ("", true),
    };
    let (mut after, mut has_rest_after, mut taken) = (before.to_owned(), has_rest, "");
    let (mut template, mut is_replaced): (Option<String>, _) = (None, false);
    for edit in edits {
        match (edit, &mut template) {
            (PathEdit::Template(text), _) => template = Some(text.clone()),
            (PathEdit::Whole(text), _) => (after, has_rest_after, template) = (text.clone(), false, None),
            (PathEdit::Prepend(text), Some(template)) => template.insert_str(0, &literal(text)),
            (PathEdit::Prepend(text), None) => {
                let is_bare = is_replaced && !after.starts_with('/') && (has_rest_after || !after.is_empty());
                let slash = if is_bare { "/" } else { "" };
                after = format!("{text}{slash}{after}");
            }
            (PathEdit::Replace { .. }, Some(_)) => return Err(NoRewrite),
            (PathEdit::Replace { prefix, by }, None) => {
                is_replaced = true;
                match after.strip_prefix(prefix.as_str()) {
                    Some(rest) => after = format!("{by}{rest}"),
                    None if after.is_empty() && taken.is_empty() => (taken, after) = (prefix, by.clone()),
                    None => return Err(NoRewrite),
                }
            }
        }
    }
    if let Some(template) = template {
        let map = Map::new().with("path", template);
        return if has_groups(path, &map) { Ok((path.written(), Some(map))) } else { Err(NoRewrite) };
    }
    if let Path::Regex(pattern) = path {
        return rewritten_regex(pattern, taken, &after, has_rest_after);
    }
    if after == before && has_rest == has_rest_after {
        return Ok((path.written(), None));
    }
    let slashed =
        |text: &str| if text.starts_with('/') { literal(text) } else { format!("/{}", literal(text)) };
    if !has_rest_after {
        return Ok((path.written(), Some(Map::new().with("path", slashed(&after)))));
    }
    if before.ends_with('/') && (after.is_empty() || after.ends_with('/')) {
        let after = if after.is_empty() { "/".to_owned() } else { after };
        let stripped =
            before.strip_suffix(&after).filter(|stripped| after.starts_with('/') && !stripped.is_empty());
        return Ok((
            path.written(),
            Some(match stripped {
                Some(stripped) => Map::new().with("strip_prefix", stripped),
                None => Map::new().with("path", format!("{}{{rest}}", slashed(&after))),
            }),
        ));
    }
    // The rest may begin with a slash, which is there already.
    let optional = if after.is_empty() || after.ends_with('/') { "/?" } else { "" };
    let slash = if before.ends_with('/') { "" } else { optional };
    let path = format!("~^{}{slash}(?P<rest>.*)$", regex_text(before));
    Ok((path, Some(Map::new().with("path", format!("{}{{rest}}", slashed(&after))))))
}

/// `taken`: the text in place of which `after` is put.
fn rewritten_regex(
    pattern: &str,
    taken: &str,
    after: &str,
    has_rest: bool,
) -> Result<(String, Option<Map>), NoRewrite> {
    if !has_rest {
        return Ok((format!("~{pattern}"), Some(Map::new().with("path", literal(after)))));
    }
    if taken.is_empty() && after.is_empty() {
        return Ok((format!("~{pattern}"), None));
    }
    let rest =
        pattern.strip_prefix('^').and_then(|rest| rest.strip_prefix(&regex_text(taken))).ok_or(NoRewrite)?;
    let is_whole = |text: &str| !text.contains("(?P<rest>") && !path::is_open(text);
    let group = match rest.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) if is_whole(rest) => format!("(?P<rest>{rest})$"),
        None if is_whole(rest) => format!("(?P<rest>{rest}.*)$"),
        _ => return Err(NoRewrite),
    };
    // Of two slashes at the beginning, one is sent.
    let slash = if after.starts_with('/') { "" } else { "/" };
    let after = format!("{slash}{}", literal(after));
    Ok((format!("~^{}{group}", regex_text(taken)), Some(Map::new().with("path", format!("{after}{{rest}}")))))
}

/// Whether a path has all named groups that the texts of a redirect or a rewrite use.
fn has_groups(path: &Path, texts: &Map) -> bool {
    let text: String = texts
        .iter()
        .filter(|(key, _)| matches!(*key, "to" | "path"))
        .filter_map(|(_, node)| match &node.value {
            YamlValue::Text(text) => Some(text.replace("{{", "").replace("}}", "")),
            _ => None,
        })
        .collect();
    let mut names = text.split('{').skip(1).filter_map(|part| part.split('}').next());
    let written = path.written();
    names.all(|name| match name {
        "rest" if written.ends_with("/*") => true,
        "client_address" | "user" | "request_id" | "host" => true,
        name => written.contains(&format!("(?P<{name}>")),
    })
}

/// A text in which nothing is a placeholder.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// A name for a policy or an upstream: `text` with `-` in place of other characters than letters, digits, and `. _ -`,
/// and with a number if `taken` has it already.
pub(super) fn resource_name(text: &str, taken: impl Fn(&str) -> bool) -> String {
    const MOST_CHARACTERS: usize = 100;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = text.chars().take(MOST_CHARACTERS).map(|c| if allowed(c) { c } else { '-' }).collect();
    let name = match name.trim_matches('-') {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    };
    let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
    [name.clone()].into_iter().chain(numbered).find(|name| !taken(name)).unwrap_or(name)
}

/// Whether this can be the name of a header.
pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
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
    use crate::offline::convert::SourceLine;

    #[test]
    fn names_are_valid_and_unique() {
        assert_eq!(resource_name("api", |_| false), "api");
        assert_eq!(resource_name("a b/é", |_| false), "a-b");
        assert_eq!(resource_name("$$", |_| false), "unnamed");
        assert_eq!(resource_name("api", |name| ["api", "api-2"].contains(&name)), "api-3");
    }

    #[test]
    fn sections_are_in_order_and_notes_are_both_comments_and_items() {
        let note = |line| Note { place: SourceLine { file: "a".into(), line }, text: format!("t{line}") };
        let mut draft = ConfigDraft::default();
        draft.settings.set("client_limits", Map::new().with("max_body", "1MiB"));
        draft.policies.set(
            "a",
            YamlNode::from(Map::new().with("algorithm", "gcra")).commented(Comment::Unconverted(note(7))),
        );
        draft.head.push(Comment::Unconverted(note(9)));
        let conversion = draft.finish("Title", None);
        assert_eq!(
            conversion.yaml,
            "# Title\n# a:9: t9\n\npolicies:\n  # a:7: t7\n  a: { algorithm: gcra }\n\n\
             client_limits: { max_body: 1MiB }\n"
        );
        assert_eq!(conversion.unconverted, [note(7), note(9)]);
        assert_eq!((conversion.routes, conversion.policies), (0, 1));
    }

    #[test]
    fn quantities_have_the_largest_unit() {
        assert_eq!([0, 1, 1024, 5 << 20, 3 << 30].map(size), ["0", "1", "1KiB", "5MiB", "3GiB"]);
        assert_eq!(
            [0, 50, 1000, 1500, 90_000, 3_600_000, 86_400_000].map(duration),
            ["0ms", "50ms", "1s", "1500ms", "90s", "1h", "1d"]
        );
    }

    #[test]
    fn changes_of_paths_are_one_rewrite() {
        let prefix = |text: &str| Path::Prefix(text.to_owned());
        let replace = |prefix: &str, by: &str| PathEdit::Replace { prefix: prefix.into(), by: by.into() };
        let prepend = |text: &str| PathEdit::Prepend(text.into());
        let template = |text: &str| PathEdit::Template(text.into());
        let of_group = || Path::Regex("^/u/(?P<g>.*)$".into());
        for (path, edits, expected) in [
            (prefix("/api/"), vec![replace("/api/", "/")], "/api/* strip_prefix /api"),
            (prefix("/api/"), vec![replace("/api", "")], "/api/* strip_prefix /api"),
            (prefix("/api/"), vec![replace("/api/", "/v2/")], "/api/* path /v2/{rest}"),
            (prefix("/api/"), vec![replace("/api", ""), prepend("/api")], "/api/*"),
            (prefix("/api"), vec![replace("/api", "")], "~^/api/?(?P<rest>.*)$ path /{rest}"),
            (prefix("/api"), vec![replace("/api", "/v2")], "~^/api(?P<rest>.*)$ path /v2{rest}"),
            (Path::Any, vec![prepend("/v2")], "/* path /v2/{rest}"),
            (Path::Exact("/a{b}".into()), vec![prepend("/v2")], r"~^/a\{b\}$ path /v2/a{{b}}"),
            (prefix("/a/"), vec![PathEdit::Whole("/x".into())], "/a/* path /x"),
            (Path::Regex("^/a/.*x$".into()), vec![replace("/a/", "/")], "~^/a/(?P<rest>.*x)$ path /{rest}"),
            (Path::Regex("^/a/x|y".into()), vec![replace("/a/", "/")], "no"),
            (Path::Regex("x".into()), vec![prepend("/a")], "no"),
            (of_group(), vec![template("/p/{g}"), prepend("/v{2}")], "~^/u/(?P<g>.*)$ path /v{{2}}/p/{g}"),
            (of_group(), vec![template("/p/{g}"), PathEdit::Whole("/x".into())], "~^/u/(?P<g>.*)$ path /x"),
            (of_group(), vec![template("/p/{g}"), replace("/p/", "/")], "no"),
            (prefix("/u/"), vec![template("/p/{g}")], "no"),
        ] {
            let edits: Vec<Edit> = edits.into_iter().map(Edit::Path).collect();
            let found = match rewritten(&path, &edits) {
                Err(NoRewrite) => "no".to_owned(),
                Ok((path, map)) => {
                    let map = map.unwrap_or_default();
                    let text = map.iter().map(|(key, node)| match &node.value {
                        YamlValue::Text(text) => format!(" {key} {text}"),
                        other => format!("{other:?}"),
                    });
                    format!("{path}{}", text.collect::<String>())
                }
            };
            assert_eq!(found, expected, "{path:?}");
        }
    }
}
