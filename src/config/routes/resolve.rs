//! Makes the routes of their settings, and reports contradictions.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue, Method};

use crate::config::{
    checks::{
        ineffective_limits, key_limits, unreachable_limits,
        unserved_listeners::{self, DraftListener},
    },
    identity::{self, access::Access, settings::IdentitySources},
    keys::settings::{ApiKeySettings, Require},
    policies::{resolve::key, settings::ReadPolicies},
    reader::{Cursor, MappingCursor, NameTable},
    request_values::{self, resolve::ReadValues},
    routes::{
        action::{RouteAction, Shares, action, explain_foreign, shares},
        checks,
        cors::Cors,
        coverage::{DraftIndex, DraftRoute},
        message_changes::{HeaderEdits, Rewrite},
        placeholder_text::TextReader,
        policies::{route_policies, with_inherited},
        settings::{Route, RouteDefaults, RouteSettings, Split},
    },
    settings::{Read, ReadOver, Settings},
    upstreams::{resolve::ReadUpstreams, retry::Retry, settings::Timeouts},
    value::{
        Invalid, Placeholders, cookie_name, cookie_value, field_name, field_value, host_pattern, method,
        parameter_name, parameter_value, path_pattern,
        path_regex::PathRegexSet,
        patterns::{HostPattern, PathPattern},
        printable_text, route_name, suggest_hosts,
    },
};

/// Whether a route requires a credential. Unlike [`routes`], this needs no other section.
pub(in crate::config) fn require_credentials(value: Option<Cursor<'_>>) -> bool {
    let items = value.filter(|list| list.is_list()).and_then(Cursor::list).unwrap_or_default();
    let mut required = items.into_iter().filter_map(|route| route.entry("require")?.scalar());
    required.any(|required| required != Require::None.name())
}

/// Reads all routes. `None` if one is invalid.
pub(in crate::config) fn routes(
    value: Option<Cursor<'_>>,
    defaults: RouteDefaults,
    policies: &ReadPolicies<'_>,
    upstreams: &ReadUpstreams<'_>,
    (identity, values): (IdentitySources, &ReadValues<'_>),
    listeners: &[DraftListener<'_>],
    api_keys: Option<&ApiKeySettings>,
) -> Option<Vec<Route>> {
    let list = value?;
    let items = list.list()?;
    if items.is_empty() {
        list.report("no route is configured, so nothing would be served", None);
    }
    let mut listener_names: Vec<&str> = Vec::new();
    for name in listeners.iter().filter_map(|listener| listener.name.as_deref()) {
        if !listener_names.contains(&name) {
            listener_names.push(name);
        }
    }
    let listener_names = NameTable::new("listener", listener_names);
    let reading = RouteReading {
        defaults,
        policies,
        upstreams,
        values,
        identity,
        listeners: &listener_names,
        drafts: listeners,
        api_keys,
    };
    let mut drafts = Vec::new();
    let mut complete = true;
    for item in items {
        let draft = |mapping| draft_route(item, mapping, &reading, None);
        match item.mapping_such_as("{ path: VALUE, upstream: NAME }").and_then(draft) {
            Some(draft) => drafts.push(draft),
            None => complete = false,
        }
    }
    let index = DraftIndex::new(&drafts);
    checks::report_covered(&drafts, &index);
    checks::warn_of_uncertified(&drafts, listeners);
    report_large_expressions(&drafts);
    if complete {
        unserved_listeners::warn(listeners, &drafts);
        let of_upstream = |policy| upstreams.first_with(policy);
        ineffective_limits::warn_of_unused(&drafts, &policies.cursors, of_upstream);
        let cursors = policies.cursors.iter().enumerate();
        unreachable_limits::warn(cursors.map(|(index, (_, value))| (*value, policies.get(index))), &drafts);
    }
    checks::warn_of_root_alone(&drafts);
    checks::warn_of_loops(&drafts);
    let cursors = &policies.cursors;
    let policies = policies.resolved.as_deref().unwrap_or_default();
    let values = values.resolved().unwrap_or_default();
    request_values::checks::warn_of_made_up(&drafts, &values, policies, cursors);
    ineffective_limits::warn_of_spellings(&drafts, &index, policies);
    ineffective_limits::warn_of_chosen_keys(&drafts, policies, identity, &values);
    ineffective_limits::warn_of_chosen_users(&drafts, policies, identity, &values);
    ineffective_limits::warn_of_unlimited_usage(&drafts, policies);
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

/// The other sections, as routes refer to them.
struct RouteReading<'a, 't> {
    defaults: RouteDefaults,
    policies: &'a ReadPolicies<'t>,
    upstreams: &'a ReadUpstreams<'t>,
    values: &'a ReadValues<'t>,
    identity: IdentitySources,
    listeners: &'a NameTable<'a>,
    drafts: &'a [DraftListener<'t>],
    api_keys: Option<&'a ApiKeySettings>,
}

/// Warns about an empty list of policies on a route whose upstreams have some: it may be meant to drop them.
fn warn_of_kept_policies(list: Cursor<'_>, upstreams: &[usize], reading: &RouteReading<'_, '_>) {
    let of_upstream = |&upstream: &usize| {
        let policies = reading.upstreams.inherited(Some(upstream)).policies;
        let names = policies.iter().filter_map(|of| reading.policies.names.name(of.policy));
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

/// The conditions of a route, as far as they are valid.
struct Conditions {
    listeners: Option<Vec<String>>,
    hosts: Option<Vec<HostPattern>>,
    /// Its text, and the pattern.
    path: Option<(String, PathPattern)>,
    written_path: Option<String>,
    methods: Option<Vec<Method>>,
    headers: Option<Vec<(HeaderName, HeaderValue)>>,
    query: Option<Vec<(String, String)>>,
    cookies: Option<Vec<(String, String)>>,
    /// `None`: it is invalid. `Some(None)`: the route is for requests.
    domain: Option<Option<String>>,
    descriptor: Option<Vec<(String, String)>>,
    has_secrets: bool,
}

impl Conditions {
    fn read(settings: &RouteSettings<'_>, reading: &RouteReading<'_, '_>) -> Self {
        let RouteReading { listeners, api_keys, .. } = *reading;
        let listeners = settings
            .listeners
            .map_or(Some(Vec::new()), |list| conditions(list, |item| listener_name(item, listeners)));
        let hosts = settings.hosts.map_or(Some(Vec::new()), |list| match list.scalar() {
            // Its own error shows the whole line.
            Some(_) => list.parse(host_in_place_of_hosts),
            None => conditions(list, |item| item.parse(host_pattern)),
        });
        let mut written_path = None;
        let path = settings.path.and_then(|value| {
            let (text, pattern) = value.parse(|text| Ok((text.to_owned(), path_pattern(text)?)))?;
            written_path = value.scalar().filter(|_| value.is_inserted()).map(str::to_owned);
            let text = written_path.clone().unwrap_or(text);
            checks::warn_of_doubtful_path(value, &text, &pattern);
            Some((text, pattern))
        });
        let methods =
            settings.methods.map_or(Some(Vec::new()), |list| conditions(list, |item| item.parse(method)));
        let headers = settings.headers.map_or(Some(Vec::new()), |value| {
            value.entries_by_name(field_name, |value| required_value(value, field_value))
        });
        let query =
            settings.query.map_or(Some(Vec::new()), |value| pairs(value, parameter_name, parameter_value));
        if let (Some(value), Some(api_keys)) = (settings.query, api_keys) {
            key_limits::warn_of_condition(value, query.as_deref().unwrap_or_default(), api_keys);
        }
        let cookies =
            settings.cookie.map_or(Some(Vec::new()), |value| pairs(value, cookie_name, cookie_value));
        let domain = settings.domain.map_or(Some(None), |value| value.parse(printable_text).map(Some));
        let descriptor = settings
            .descriptor
            .map_or(Some(Vec::new()), |value| pairs(value, parameter_name, parameter_value));
        let confidential = [settings.headers, settings.query, settings.cookie, settings.descriptor];
        let has_secrets = confidential.into_iter().flatten().any(Cursor::is_hidden);
        // A descriptor need not have a path.
        let path = match settings.path {
            None if settings.domain.is_some() => path_pattern("/*").ok().map(|any| ("/*".to_owned(), any)),
            _ => path,
        };
        Self {
            listeners,
            hosts,
            path,
            written_path,
            methods,
            headers,
            query,
            cookies,
            domain,
            descriptor,
            has_secrets,
        }
    }

    /// Whether a listener that forwards requests may reach the route. False if that can't be told.
    fn are_forwarded(&self, drafts: &[DraftListener<'_>]) -> bool {
        let (Some(None), Some(listeners)) = (&self.domain, &self.listeners) else { return false };
        drafts.is_empty()
            || drafts.iter().any(|draft| {
                let is_named = || draft.name.as_ref().is_some_and(|name| listeners.contains(name));
                !draft.decides && (listeners.is_empty() || is_named())
            })
    }
}

/// Reads one route. `only`: of several upstreams, the one that counts.
fn draft_route<'t>(
    cursor: Cursor<'t>,
    mapping: MappingCursor<'t>,
    reading: &RouteReading<'_, '_>,
    only: Option<usize>,
) -> Option<DraftRoute<'t>> {
    let RouteReading { defaults, policies, upstreams, values, identity, api_keys, .. } = *reading;
    let mut mapping = mapping.of(RouteSettings::mapping());
    let settings = RouteSettings::fields(&mut mapping)?;
    checks::check_actions(&mapping);
    let name = settings.name.map(|value| Some((value, value.parse(route_name)?)));
    let conditions = Conditions::read(&settings, reading);
    let is_forwarded = conditions.are_forwarded(reading.drafts) && settings.descriptor.is_none();
    let Conditions {
        listeners,
        hosts,
        path,
        written_path,
        methods,
        headers,
        query,
        cookies,
        domain,
        descriptor,
        has_secrets,
    } = conditions;
    if let Some(domain) = settings.domain.filter(|_| !reading.drafts.iter().any(|draft| draft.decides)) {
        let host = domain.scalar().unwrap_or("api.example.com");
        let help = format!(
            "for requests to a host, write `hosts: [{host}]`; to answer Envoy, add a listener with `serves: decisions`"
        );
        domain.report(
            "`domain` is for descriptors of Envoy's rate limits, and no listener serves decisions",
            help,
        );
    }
    let misses_domain = mapping.key_location("descriptor").filter(|_| settings.domain.is_none());
    match misses_domain {
        Some(location) => {
            let help = "add the `domain` of the descriptors, such as `domain: edge`".to_owned();
            mapping.report_at(location, "`descriptor` works only with `domain`", help);
        }
        None if settings.domain.is_none() => {
            mapping.report_if_missing("path", "such as `path: /*`");
        }
        None => {}
    }
    let captures = path.as_ref().map(|(_, path)| path.captures());
    let value_names = values.placeholders();
    let reader = captures.as_deref().map(|captures| TextReader {
        placeholders: Placeholders { captures, values: &value_names },
        identity,
    });
    // Their placeholders are filled in before the body is read.
    let early_reader = reader.map(|reader| TextReader {
        placeholders: Placeholders { values: &[], ..reader.placeholders },
        identity,
    });
    let path_and_reader = path.as_ref().map(|(_, path)| path).zip(reader);
    explain_foreign(&mut mapping);
    let (split, action) = read_action(&mapping, (&settings, is_forwarded), reading, only, path_and_reader);
    let own = settings.policies.map(|list| route_policies(list, policies));
    let inherited = upstreams.inherited(action.as_ref().and_then(RouteAction::upstream));
    let timeouts = Timeouts::or(settings.timeouts, inherited.timeouts);
    let retry = Retry::or(settings.retry, inherited.retry);
    let RouteDefaults { matching, dot_segments, method_override, trailers, early_hints } =
        RouteDefaults::over(defaults, &mut mapping);
    let rewrite = settings.rewrite.zip(path_and_reader).and_then(|(value, (path, reader))| {
        let written = settings.path.and_then(Cursor::scalar).unwrap_or_default();
        Rewrite::read(value, reader, (path, written), matching.case)
    });
    let edits = |value: Option<Cursor<'t>>, key, reader: Option<_>| HeaderEdits::read(value?, key, reader?);
    let request_headers = edits(settings.request_headers, "request_headers", reader);
    let response_headers = edits(settings.response_headers, "response_headers", early_reader);
    let are_keys_required = api_keys.is_some_and(|keys| keys.required);
    let require = settings.require.or(are_keys_required.then_some(Require::ApiKey));
    if let (Some(require), Some(value)) = (settings.require, mapping.peek("require")) {
        identity.report_without_credential(require, value);
    }
    if settings.usage
        && let Some(value) = mapping.peek("usage")
    {
        identity.report_without_api_keys(value);
    }
    let access = Access { deny: settings.deny, allow: settings.allow };
    identity::checks::warn_of_denied_networks(&mapping, Some(&access));
    let allow_values = values.allowed(settings.allow_values);
    let cors = settings.cors.map(|value| {
        let cors = Cors::of_route(value, methods.as_deref().unwrap_or_default());
        if value.is_mapping() {
            let (headers, cookies) = (headers.as_deref(), cookies.as_deref());
            checks::warn_of_preflights(value, headers.unwrap_or_default(), cookies.unwrap_or_default());
        }
        cors
    });
    mapping.finish();

    let ((text, path), domain) = (path?, domain?);
    let (name, called) = match (name, &domain) {
        (Some(given), _) => given.map(|(cursor, name)| (Some(cursor), name))?,
        (None, Some(domain)) if settings.path.is_none() => (None, domain.clone()),
        (None, _) => (None, text),
    };
    let mut route = Route {
        name: called,
        listeners: listeners?,
        hosts: hosts?,
        path,
        written_path,
        matching,
        dot_segments,
        methods: methods?,
        headers: headers?,
        query: query?,
        cookies: cookies?,
        domain,
        descriptor: descriptor?,
        has_secrets,
        action: action?,
        split: None,
        policies: with_inherited(inherited.policies, own.unwrap_or_default()),
        require,
        timeouts,
        retry,
        method_override,
        trailers,
        early_hints,
        max_body: settings.max_body,
        allow_values,
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

/// Reads the action of a route, and the upstreams that share its requests. `only`: as in [`draft_route`].
fn read_action(
    mapping: &MappingCursor<'_>,
    (settings, is_forwarded): (&RouteSettings<'_>, bool),
    reading: &RouteReading<'_, '_>,
    only: Option<usize>,
    path_and_reader: Option<(&PathPattern, TextReader<'_>)>,
) -> (Option<Option<Shares>>, Option<RouteAction>) {
    let by = settings.split_by.map(|value| {
        let key = key(value, reading.identity)?;
        request_values::checks::report_in_choice(value, &key);
        Some(key)
    });
    // Without a value, which was reported, `upstreams` is no list, and the route has no other action either.
    let split =
        mapping.key_location("upstreams").map(|_| shares(settings.upstreams?, by, &reading.upstreams.names));
    let action = match &split {
        Some(split) => only.or(split.as_ref().and_then(Shares::heaviest)).map(RouteAction::Upstream),
        None => {
            let RouteSettings { upstream, reply, redirect, .. } = *settings;
            action(
                mapping,
                [upstream, reply, redirect],
                (settings.usage, is_forwarded),
                &reading.upstreams.names,
                path_and_reader,
            )
        }
    };
    if let Some(list) = settings.policies.filter(|list| list.is_empty_list()) {
        let led_to: Vec<usize> = match &split {
            Some(Some(split)) => split.upstreams.iter().map(|(upstream, _)| *upstream).collect(),
            _ => action.as_ref().and_then(RouteAction::upstream).into_iter().collect(),
        };
        warn_of_kept_policies(list, &led_to, reading);
    }
    (split, action)
}

/// The name of one of the `listeners`.
fn listener_name(item: Cursor<'_>, listeners: &NameTable<'_>) -> Option<String> {
    item.parse(|name| match listeners.find(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(unknown) if listeners.name(0).is_none() => {
            Err(unknown.suggestion("no listener has a name: give it one, as in `listeners: [{ address: 0.0.0.0:8080, name: public }]`"))
        }
        Err(unknown) => Err(unknown),
    })
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

/// The value that a condition requires. It is read as plain text.
fn required_value<T>(value: Cursor<'_>, read: impl Fn(&str) -> Result<T, Invalid>) -> Option<T> {
    warn_of_expression(value);
    value.parse(read)
}

/// Query parameters or cookies that a request must have. `None` if one is invalid.
fn pairs(
    value: Cursor<'_>,
    read_name: fn(&str) -> Result<String, Invalid>,
    read_value: fn(&str) -> Result<String, Invalid>,
) -> Option<Vec<(String, String)>> {
    let all = value.entries_by_name(read_name, |value| required_value(value, read_value))?;
    if all.is_empty() {
        value.report("this matches any request", "remove it, or name what a request must have".to_owned());
        return None;
    }
    Some(all)
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
