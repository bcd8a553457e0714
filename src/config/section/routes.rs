//! `routes`: which requests go to which upstream.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};

use super::{
    access::access,
    bypassable_limits,
    cors::cors,
    doubtful_paths,
    message_changes::MessageChanges,
    other_spellings,
    policies::Policies,
    redirect::warn_of_loops,
    route_action::action,
    split::{self, split},
    unreachable_routes, unused_policies,
    upstreams::Upstreams,
    user::IdentitySources,
};
use crate::config::{
    model::{
        DotSegments, EarlyHints, MethodOverride, PathCase, PathMatching, PathPattern, PathRegexSet, Retry,
        Route, RouteAction, Split, Timeouts, Trailers, TrailingSlash,
    },
    reader::{Cursor, MappingCursor, NameTable},
    settings::{self, ReadOver},
    value::{
        Invalid, body_size, choice, cookie_name, cookie_value, field_name, field_value, host_pattern, method,
        parameter_name, parameter_value, path_pattern, route_name, suggest_hosts,
    },
};

/// Settings of routes that also stand at the top level, for the routes without them.
#[derive(Clone, Copy)]
pub(super) struct RouteDefaults {
    matching: PathMatching,
    dot_segments: DotSegments,
    method_override: MethodOverride,
    trailers: Trailers,
    early_hints: EarlyHints,
}

impl Default for RouteDefaults {
    fn default() -> Self {
        Self {
            matching: PathMatching::LOOSE,
            dot_segments: DotSegments::Normalize,
            method_override: MethodOverride::Remove,
            trailers: Trailers::Drop,
            early_hints: EarlyHints::Drop,
        }
    }
}

impl RouteDefaults {
    /// These, except where `mapping` has its own.
    pub(super) fn overridden(self, mapping: &mut MappingCursor<'_>) -> Self {
        Self {
            matching: path_matching(mapping.take("match"), self.matching),
            dot_segments: dot_segments(mapping.take("paths")).unwrap_or(self.dot_segments),
            method_override: mapping.parse_or(
                "method_override",
                self.method_override,
                choice(&[("remove", MethodOverride::Remove), ("allow", MethodOverride::Allow)]),
            ),
            trailers: mapping.parse_or(
                "trailers",
                self.trailers,
                choice(&[("drop", Trailers::Drop), ("pass", Trailers::Pass)]),
            ),
            early_hints: mapping.parse_or(
                "early_hints",
                self.early_hints,
                choice(&[("drop", EarlyHints::Drop), ("pass", EarlyHints::Pass)]),
            ),
        }
    }
}

fn path_matching(value: Option<Cursor<'_>>, default: PathMatching) -> PathMatching {
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::MATCH);
    let case = choice(&[("sensitive", PathCase::Sensitive), ("insensitive", PathCase::Insensitive)]);
    let trailing_slash = choice(&[("exact", TrailingSlash::Exact), ("either", TrailingSlash::Either)]);
    let matching = PathMatching {
        case: mapping.parse_or("case", default.case, case),
        trailing_slash: mapping.parse_or("trailing_slash", default.trailing_slash, trailing_slash),
    };
    mapping.finish();
    matching
}

fn dot_segments(value: Option<Cursor<'_>>) -> Option<DotSegments> {
    let value = value?;
    // Other proxies list here what a route matches.
    if value.is_list() {
        let help = "a route has one path: `path: /files/*`; here stands normalise, pass or refuse".to_owned();
        value.report("this says what becomes of dot segments in a path, and lists no paths", help);
        return None;
    }
    value.parse(|text| {
        let options = [
            ("normalise", DotSegments::Normalize),
            ("pass", DotSegments::Pass),
            ("refuse", DotSegments::Refuse),
        ];
        let meant = match text.to_ascii_lowercase().as_str() {
            path if path.starts_with('/') => format!("path: {path}"),
            "true" | "on" | "yes" | "resolve" | "clean" | "merge" => "normalise".to_owned(),
            "false" | "off" | "no" | "raw" | "keep" | "keep_unchanged" | "allow" | "preserve" => {
                "pass".to_owned()
            }
            "reject" | "reject_request" | "deny" | "block" => "refuse".to_owned(),
            _ => return choice(&options)(text),
        };
        choice(&options)(text).map_err(|invalid| invalid.suggestion(format!("did you mean `{meant}`?")))
    })
}

/// A route that is not yet compared with the others.
pub(super) struct DraftRoute<'t> {
    /// The route in the file.
    pub(super) cursor: Cursor<'t>,
    /// Its configured name. `None`: it is named after its path.
    pub(super) name: Option<Cursor<'t>>,
    pub(super) route: Route,
}

/// Reads all routes. `None` if one is invalid. `certified`: see [`unreachable_routes::warn_of_uncertified`].
pub(super) fn routes(
    value: Option<Cursor<'_>>,
    defaults: RouteDefaults,
    policies: &Policies<'_>,
    upstreams: &Upstreams<'_>,
    identity: IdentitySources,
    certified: Option<&[String]>,
) -> Option<Vec<Route>> {
    let list = value?;
    let items = list.list()?;
    if items.is_empty() {
        list.report("no route is configured, so nothing would be served", None);
    }
    let reading = RouteReading { defaults, policies: &policies.names, upstreams, identity };
    let mut drafts = Vec::new();
    let mut complete = true;
    for item in items {
        let draft = |mapping| draft_route(item, mapping, &reading, None);
        match item.mapping_such_as("{ path: VALUE, upstream: NAME }").and_then(draft) {
            Some(draft) => drafts.push(draft),
            None => complete = false,
        }
    }
    let index = unreachable_routes::DraftIndex::new(&drafts);
    unreachable_routes::report_covered(&drafts, &index);
    unreachable_routes::warn_of_uncertified(&drafts, certified);
    report_large_expressions(&drafts);
    if complete {
        unused_policies::warn(&drafts, policies, upstreams);
    }
    doubtful_paths::warn_of_root_alone(&drafts);
    warn_of_loops(&drafts);
    other_spellings::warn(&drafts, &index, policies.resolved.as_deref().unwrap_or_default());
    bypassable_limits::warn(&drafts, policies.resolved.as_deref().unwrap_or_default(), identity);
    let routes = with_unique_names(drafts);
    complete.then_some(routes)
}

/// Reports the route with whose regular expression all take too much together, if one does.
fn report_large_expressions(drafts: &[DraftRoute<'_>]) {
    let expressions = drafts.iter().filter_map(|draft| match &draft.route.path {
        PathPattern::Regex(regex) => Some((draft, (&**regex, draft.route.matching))),
        _ => None,
    });
    let (drafts, expressions): (Vec<_>, Vec<_>) = expressions.unzip();
    if PathRegexSet::fits(&expressions) {
        return;
    }
    let ends: Vec<usize> = (0..expressions.len()).collect();
    let first = ends.partition_point(|&end| expressions.get(..=end).is_some_and(PathRegexSet::fits));
    if let Some(draft) = drafts.get(first) {
        let message = format!(
            "the regular expressions of the routes up to this one take more than {} MiB together",
            PathRegexSet::MAX_COMPILED >> 20
        );
        let help = "a prefix such as /files/* or a template such as \"/users/{id}\" costs far less; or use fewer and shorter \
                    expressions";
        draft.cursor.report(message, help.to_owned());
    }
}

/// What a route's conditions ask for that browsers do not send with a CORS preflight.
fn unsent_with_preflights(
    headers: &[(HeaderName, HeaderValue)],
    cookies: &[(String, String)],
) -> Option<String> {
    let is_unsent = |name: &&HeaderName| {
        let name = name.as_str();
        let is_sent =
            ["origin", "host", "user-agent", "accept", "accept-language", "accept-encoding", "referer"]
                .contains(&name)
                || ["sec-", "access-control-request-"].iter().any(|start| name.starts_with(start));
        !is_sent
    };
    let header = headers.iter().map(|(name, _)| name).find(is_unsent);
    header.map(ToString::to_string).or_else(|| (!cookies.is_empty()).then(|| "cookies".to_owned()))
}

/// What a route is read with.
struct RouteReading<'a, 't> {
    defaults: RouteDefaults,
    policies: &'a NameTable<'t>,
    upstreams: &'a Upstreams<'t>,
    identity: IdentitySources,
}

/// Warns about an empty list of policies on a route whose upstreams have some: it may be meant to drop them.
fn warn_of_kept_policies(list: Cursor<'_>, upstreams: &[usize], reading: &RouteReading<'_, '_>) {
    let of_upstream = |&upstream: &usize| {
        let policies = reading.upstreams.inherited(Some(upstream)).policies;
        let names = policies.iter().filter_map(|policy| reading.policies.name(*policy));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let upstream = reading.upstreams.names.name(upstream)?;
        (!names.is_empty()).then(|| format!("{} of upstream `{upstream}`", names.join(", ")))
    };
    let kept: Vec<String> = upstreams.iter().filter_map(of_upstream).collect();
    if kept.is_empty() {
        return;
    }
    let message = format!("an empty list drops no policy: this route still has {}", kept.join(", and "));
    let help = "for a route without them, add an upstream with the same endpoints and no `policies`, or answer by `reply`; \
                if they are meant to apply, remove `policies: []`";
    list.warn(message, help.to_owned());
}

/// Reads one route. `only`: of several upstreams, the one that counts.
fn draft_route<'t>(
    cursor: Cursor<'t>,
    mut mapping: MappingCursor<'t>,
    reading: &RouteReading<'_, '_>,
    only: Option<usize>,
) -> Option<DraftRoute<'t>> {
    let RouteReading { defaults, policies, upstreams, identity } = *reading;
    mapping = mapping.of(&settings::ROUTE).knowing("routes[]");
    let name = mapping.take("name").map(|value| Some((value, value.parse(route_name)?)));
    let hosts = mapping.take("hosts").map_or(Some(Vec::new()), |list| match list.scalar() {
        // Its own error shows the whole line.
        Some(_) => list.parse(host_in_place_of_hosts),
        None => conditions(list, |item| item.parse(host_pattern)),
    });
    let mut written_path = None;
    let path = mapping.require("path", "such as `path: /*`").and_then(|value| {
        let (text, pattern) = value.parse(|text| Ok((text.to_owned(), path_pattern(text)?)))?;
        written_path = value.scalar().filter(|_| value.is_inserted()).map(str::to_owned);
        let text = written_path.clone().unwrap_or(text);
        doubtful_paths::warn(value, &text, &pattern);
        Some((text, pattern))
    });
    let methods =
        mapping.take("methods").map_or(Some(Vec::new()), |list| conditions(list, |item| item.parse(method)));
    let mut has_secrets = false;
    let mut condition = |key| {
        let value = mapping.take(key)?;
        has_secrets |= value.is_hidden();
        Some(value)
    };
    let headers = condition("headers").map_or(Some(Vec::new()), headers);
    let query =
        condition("query").map_or(Some(Vec::new()), |value| pairs(value, parameter_name, parameter_value));
    let cookies =
        condition("cookie").map_or(Some(Vec::new()), |value| pairs(value, cookie_name, cookie_value));
    let split = split(&mut mapping, upstreams, identity);
    let shared = split.as_ref().map(|split| only.or(split.as_ref().and_then(split::Split::heaviest)));
    let action = action(&mut mapping, upstreams, shared, path.as_ref().map(|(_, path)| path), identity);
    let own = mapping.take("policies");
    if let Some(list) = own.filter(|list| list.is_empty_list()) {
        let led_to: Vec<usize> = match &split {
            Some(Some(split)) => split.upstreams.iter().map(|(upstream, _)| *upstream).collect(),
            _ => action.as_ref().and_then(RouteAction::upstream).into_iter().collect(),
        };
        warn_of_kept_policies(list, &led_to, reading);
    }
    let own = own.map(|list| list.unique_items(|item| policies.resolve(item))).unwrap_or_default();
    let inherited = upstreams.inherited(action.as_ref().and_then(RouteAction::upstream));
    let timeouts = Timeouts::or(mapping.take("timeouts"), inherited.timeouts);
    let retry = Retry::or(mapping.take("retry"), inherited.retry);
    let RouteDefaults { matching, dot_segments, method_override, trailers, early_hints } =
        defaults.overridden(&mut mapping);
    let MessageChanges { rewrite, request_headers, response_headers } =
        MessageChanges::read(&mut mapping, path.as_ref().map(|(_, path)| path), matching.case, identity);
    let max_body = mapping.take("max_body").and_then(|value| value.parse(body_size));
    let access = access(&mut mapping);
    let cors = mapping.take("cors").map(|value| {
        let unsent = unsent_with_preflights(
            headers.as_deref().unwrap_or_default(),
            cookies.as_deref().unwrap_or_default(),
        );
        cors(value, methods.as_deref().unwrap_or_default(), unsent.as_deref())
    });
    mapping.finish();

    let mut all = inherited.policies;
    for policy in own {
        if !all.contains(&policy) {
            all.push(policy);
        }
    }
    let (text, path) = path?;
    let (name, called) = match name {
        Some(given) => given.map(|(cursor, name)| (Some(cursor), name))?,
        None => (None, text),
    };
    let mut route = Route {
        name: called,
        hosts: hosts?,
        path,
        written_path,
        matching,
        dot_segments,
        methods: methods?,
        headers: headers?,
        query: query?,
        cookies: cookies?,
        has_secrets,
        action: action?,
        split: None,
        policies: all,
        timeouts,
        retry,
        method_override,
        trailers,
        early_hints,
        max_body,
        access,
        cors: match cors {
            Some(cors) => Some(Box::new(cors?)),
            None => None,
        },
        rewrite,
        request_headers,
        response_headers,
    };
    if let (Some(Some(split)), None) = (split, only) {
        let (upstreams, weights): (Vec<_>, Vec<_>) = split.upstreams.into_iter().unzip();
        let variant = |upstream| {
            let draft = cursor.again(|| draft_route(cursor, cursor.mapping()?, reading, Some(upstream)));
            Some(draft?.route)
        };
        let routes = upstreams.into_iter().map(variant).collect::<Option<_>>()?;
        route.split = Some(Box::new(Split { by: split.by, weights, routes }));
    }
    Some(DraftRoute { cursor, name, route })
}

/// The error for a single host where a list of them belongs.
fn host_in_place_of_hosts<T>(text: &str) -> Result<T, Invalid> {
    Err(Invalid::new("is not a list").suggestion(format!("did you mean `hosts: [{}]`?", suggest_hosts(text))))
}

/// Reads a list of alternatives. `None` if one is invalid: the others alone would mean something else.
fn conditions<'t, T: PartialEq>(
    list: Cursor<'t>,
    read: impl FnMut(Cursor<'t>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = list.list()?.len();
    if count == 0 {
        list.report("an empty list matches no request", "remove it to match any".to_owned());
        return None;
    }
    let all = list.unique_items(read);
    (all.len() == count).then_some(all)
}

/// Header fields that a request must have. `None` if one is invalid.
fn headers(value: Cursor<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let entries = value.named_entries()?;
    let count = entries.len();
    let mut all: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (location, name, value) in entries {
        warn_of_expression(value);
        let content = value.parse(field_value);
        match field_name(name) {
            Err(invalid) => {
                value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            }
            Ok(name) if all.iter().any(|(other, _)| *other == name) => {
                value.report_at(
                    location,
                    format!("`{name}` is set twice; header names are case-insensitive"),
                    None,
                );
            }
            Ok(name) => all.extend(content.map(|content| (name, content))),
        }
    }
    (all.len() == count).then_some(all)
}

/// Warns of a value that is written as a regular expression, or as if it stood for any.
fn warn_of_expression(value: Cursor<'_>) {
    if value.scalar() == Some("*") {
        value.warn(
            "`*` is plain text here: it matches only this value itself",
            "to match any value, leave this condition out".to_owned(),
        );
    }
    if let Some(text) = value.scalar().filter(|text| text.starts_with('~')) {
        let message = format!("`{text}` is plain text here: it matches only this value itself");
        value.warn(
            message,
            "regular expressions are for `path`; list the values, each in a route of its own".to_owned(),
        );
    }
}

/// Query parameters or cookies that a request must have. `None` if one is invalid.
fn pairs(
    value: Cursor<'_>,
    read_name: fn(&str) -> Result<String, Invalid>,
    read_value: fn(&str) -> Result<String, Invalid>,
) -> Option<Vec<(String, String)>> {
    let entries = value.named_entries()?;
    let count = entries.len();
    if count == 0 {
        value.report("this matches any request", "remove it, or name what a request must have".to_owned());
        return None;
    }
    let mut all = Vec::new();
    for (location, name, value) in entries {
        warn_of_expression(value);
        let content = value.parse(read_value);
        match read_name(name) {
            Err(invalid) => {
                value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            }
            Ok(name) => all.extend(content.map(|content| (name, content))),
        }
    }
    (all.len() == count).then_some(all)
}

/// Reports duplicate names, and gives unique names to routes that are named after their path: the second route for `/a`
/// is `/a#2`, unless another route has that name.
fn with_unique_names(drafts: Vec<DraftRoute<'_>>) -> Vec<Route> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    for draft in &drafts {
        let Some(cursor) = draft.name else { continue };
        if let Some(line) = lines.get(&draft.route.name) {
            let help = format!(
                "the route in line {line} already has it; route names must be unique, since metrics use them"
            );
            cursor.report(format!("the name `{}` is taken", cursor.scalar().unwrap_or_default()), help);
        } else {
            lines.insert(draft.route.name.clone(), cursor.location().line);
        }
    }
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::with_capacity(drafts.len());
    for DraftRoute { cursor, name, mut route } in drafts {
        if name.is_none() {
            let path = route.name.clone();
            let time = times.entry(path.clone()).or_insert(0);
            while *time == 0 || lines.contains_key(&route.name) {
                *time += 1;
                route.name = if *time == 1 { path.clone() } else { format!("{path}#{time}") };
            }
            lines.insert(route.name.clone(), cursor.location().line);
        }
        for variant in route.split.iter_mut().flat_map(|split| &mut split.routes) {
            variant.name.clone_from(&route.name);
        }
        routes.push(route);
    }
    routes
}
