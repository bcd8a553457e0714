//! A request from its head to the verdict.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use compact_str::CompactString;
use http::{Method, StatusCode, header, request};

use super::{
    body::{self, ExplainedBodyLimit},
    changes,
    checks::{self, ExplainedCheck},
    endpoint::{self, ExplainedEndpoint},
    host::{self, AssumedHost},
    identity,
    listeners::{self, ExplainedListener},
};
use crate::{
    abuse::bans::{Ban, BanTable},
    config::model::{Route, RouteAction, Split},
    identity::{AccessDenial, AddressIdentifier, ClientIp, Credentials, Identity},
    limit::Store,
    proxy::{
        bans::{BanMatch, decisive_ban, matching_bans},
        checks::CheckInputs,
        cors::{CorsResponse, CorsRule, is_preflight},
        placeholders::PlaceholderValues,
        quota,
        reply::Reply,
        request_context::RequestContext,
        reservation::LeaseTokens,
        route_reply,
        rules::{Rules, parse_target},
        split::split_route,
    },
    router::{IgnoredDifferences, Mismatch, Rejection, Target},
    tls::TlsIdentity,
    upstream::SharedUpstream,
};

/// The explained outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// `None`: the request names its host.
    pub assumed_host: Option<AssumedHost>,
    /// The client's address in the form that limits and records use, and its source.
    pub address: (CompactString, String),
    /// The user in the form that keys use, and the source that names it; or why none does.
    pub user: (Option<CompactString>, String),
    /// Listeners that reply to the request themselves, if they receive it. The rest is about the others.
    pub listeners: Vec<ExplainedListener>,
    /// `None`: the request's target is malformed.
    pub route: Option<ExplainedRoute>,
    pub upstream: Option<String>,
    /// `None`: any of the upstream's endpoints may get the request.
    pub endpoint: Option<ExplainedEndpoint>,
    /// Whether pages of its origin may read the response. `None`: the route has no `cors`, or no page has sent the
    /// request.
    pub cors: Option<String>,
    /// The route's reply; `None`: it has an upstream.
    pub reply: Option<ExplainedReply>,
    /// The path and the query that the upstream gets. `None`: the client's.
    pub rewritten_path: Option<String>,
    pub request_headers: Vec<HeaderChange>,
    pub response_headers: Vec<HeaderChange>,
    /// `None`: the body may have any length.
    pub body_limit: Option<ExplainedBodyLimit>,
    pub verdict: ExplainedVerdict,
    /// The status of the proxy's own reply; `None`: the request is forwarded.
    pub status: Option<StatusCode>,
    pub because: String,
    /// In the order of the route's policies. Included even if a ban denies the request, although a real one is not
    /// checked then.
    pub checks: Vec<ExplainedCheck>,
    /// Those that match the client, whether they deny the request or not.
    pub bans: Vec<Arc<Ban>>,
}

/// The route of the request, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRoute {
    /// `None`: no route matches.
    pub name: Option<String>,
    pub because: String,
    /// Routes before it, and why each does not match.
    pub passed_over: Vec<(String, String)>,
    /// How many more do not match.
    pub others: usize,
}

/// A route's reply to every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedReply {
    pub status: StatusCode,
    /// Where a redirect leads.
    pub location: Option<String>,
}

/// A change of a header, of these names and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderChange {
    /// A name, or the beginning of names and `*`.
    Remove(String),
    Set(String, String),
    Add(String, String),
}

/// The proxy's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainedVerdict {
    Allowed,
    Denied,
    /// The client is banned.
    Banned,
    /// The store can't be asked, and a policy says `on_store_error: deny`.
    Undecided,
    /// `deny` or `allow` refuses its address.
    Forbidden,
    /// No route matches, the request is malformed, or its body is too long.
    Refused,
}

/// The request to explain.
pub struct ExplainedRequest {
    pub request: request::Parts,
    /// The peer address of its connection.
    pub peer: IpAddr,
    /// Whether it arrives over HTTPS. `None`: either way.
    pub is_https: Option<bool>,
    /// The certificate that the client would have proved to hold.
    pub certificate: Option<TlsIdentity>,
}

/// Explains a request received at the time `now`, in microseconds since the Unix epoch. `upstreams`: the
/// configuration's, in its order.
pub async fn explain<S: Store>(
    rules: &Rules,
    upstreams: &[Arc<SharedUpstream>],
    store: &S,
    bans: &BanTable,
    mut asked: ExplainedRequest,
    now: i64,
) -> Explanation {
    let assumed_host = host::assume(rules, &mut asked.request);
    let ExplainedRequest { request, peer, certificate, .. } = &asked;
    let (peer, certificate) = (*peer, certificate.as_ref());
    let is_peer_trusted = rules.trusted_proxies.contains(peer);
    let (client, why_address) = identity::address(rules, peer, is_peer_trusted, &request.headers);
    let credentials = Credentials { headers: &request.headers, is_peer_trusted, certificate };
    let (identity, why_user) = identity::user(rules, credentials);
    let ClientIp { ip: address, is_known: is_address_known } = client;
    let client_address = AddressIdentifier::new(address, rules.config.client_address.ipv6_prefix);
    let mut explained = Explanation {
        assumed_host,
        address: (client_address.address().into(), why_address),
        user: (identity.pseudonym.clone().or_else(|| identity.user.clone()), why_user),
        listeners: Vec::new(),
        route: None,
        upstream: None,
        endpoint: None,
        cors: None,
        reply: None,
        rewritten_path: None,
        request_headers: Vec::new(),
        response_headers: Vec::new(),
        body_limit: None,
        verdict: ExplainedVerdict::Allowed,
        status: None,
        because: String::new(),
        checks: Vec::new(),
        bans: Vec::new(),
    };
    if let Ok(target) = parse_target(request, rules.survey(&request.headers)) {
        explained.listeners = listeners::explain(rules, &asked, is_peer_trusted, &target);
    }
    let (target, route_index) = match destination(rules, request, &mut explained) {
        Ok(found) => found,
        Err(Rejection { status, detail }) => {
            (explained.verdict, explained.status) = (ExplainedVerdict::Refused, Some(status));
            detail.clone_into(&mut explained.because);
            // A malformed request is refused before its address is looked at.
            if explained.route.is_some() {
                check_access(rules, None, client, &mut explained);
            }
            return explained;
        }
    };
    let route = &rules.config.routes[route_index];
    let identity: &Identity = &identity;
    let mut context = RequestContext {
        request,
        target: &target,
        route,
        address,
        is_address_known,
        identity,
        certificate,
        is_peer_trusted,
    };
    if let Some(split) = &route.split {
        context.route = explain_split(rules, split, &context, &client_address, &mut explained);
    }
    let route = context.route;
    explained.upstream = upstream_name(rules, route).map(str::to_owned);
    let tokens = LeaseTokens::new();
    let inputs = CheckInputs { time: now, tokens: &tokens };
    checks::explain(rules, store, &context, &client_address, &inputs, &mut explained).await;
    let upstream = route.action.upstream().and_then(|index| upstreams.get(index));
    explained.endpoint =
        upstream.and_then(|upstream| endpoint::explain(upstream, &context.attributes(&client_address)));
    body::explain(&rules.config, route, request, &mut explained);
    explain_cors(&context, &mut explained);
    check_bans(rules, bans, &context, &client_address, now, &mut explained);
    check_access(rules, Some(route_index), client, &mut explained);
    let request_id = match is_peer_trusted {
        true => request.headers.get(&rules.config.request_id).unwrap_or(&changes::REQUEST_ID),
        false => &changes::REQUEST_ID,
    };
    let router = &rules.router;
    let values =
        PlaceholderValues { router, route: route_index, target: &target, address, identity, request_id };
    changes::explain(route, &values, &mut explained);
    explain_redirect(route, &values, &mut explained);
    explained
}

/// Where the route redirects to, if it does.
fn explain_redirect(route: &Route, values: &PlaceholderValues<'_>, explained: &mut Explanation) {
    let RouteAction::Redirect(redirect) = &route.action else { return };
    let is_allowed = explained.verdict == ExplainedVerdict::Allowed;
    match route_reply::location(redirect, values) {
        Ok(location) => {
            let location = if redirect.is_secret() { changes::MASK.to_owned() } else { location };
            explained.reply = Some(ExplainedReply { status: redirect.status, location: Some(location) });
            if is_allowed {
                // A preflight got its reply before.
                explained.status.get_or_insert(redirect.status);
            }
        }
        Err(Rejection { status, detail }) if is_allowed => {
            (explained.verdict, explained.status) = (ExplainedVerdict::Refused, Some(status));
            detail.clone_into(&mut explained.because);
        }
        Err(_) => {}
    }
}

/// Whether the client's address may send the request: at all, or for the route of this index. This is checked before
/// all other reasons to refuse a well-formed request.
fn check_access(rules: &Rules, route: Option<usize>, client: ClientIp, explained: &mut Explanation) {
    let address = client.ip;
    let everywhere = rules.access.everywhere().map(|rule| (rule, "at the top level"));
    let of_route = route.and_then(|route| rules.access.of_route(route)).map(|rule| (rule, "of the route"));
    let denied = [everywhere, of_route].into_iter().flatten().find_map(|(rule, place)| {
        let because = match rule.denial(client)? {
            denial if !client.is_known => {
                format!("the client's address is unknown, and {} {place} is set", denial.setting())
            }
            AccessDenial::Denied => {
                let entry = rule.denied_by(address).unwrap_or_default();
                format!("deny {place} names {address}: {entry}")
            }
            AccessDenial::NotAllowed => format!("allow {place} does not name {address}"),
        };
        Some(because)
    });
    if let Some(because) = denied {
        (explained.verdict, explained.status) =
            (ExplainedVerdict::Forbidden, Some(Reply::forbidden_address().status));
        explained.because = because;
    }
}

/// Explains the CORS fields.
fn explain_cors(context: &RequestContext<'_>, explained: &mut Explanation) {
    let headers = &context.request.headers;
    let (Some(cors), Some(origin)) = (&context.route.cors, headers.get(header::ORIGIN)) else { return };
    let response = CorsResponse::new(&Arc::new(CorsRule::new(cors)), headers);
    let origin = String::from_utf8_lossy(origin.as_bytes());
    let allowed = cors.origins.names().join(", ");
    explained.cors = Some(match response.allows_origin() {
        true => format!("pages of {origin} may read the response: {allowed}"),
        false => format!("pages of {origin} may not read the response: only {allowed}"),
    });
    if is_preflight(context.request, context.route) && explained.verdict == ExplainedVerdict::Allowed {
        explained.status = Some(response.preflight(headers).status);
        "it is a CORS preflight, which Tollgate answers".clone_into(&mut explained.because);
    }
}

/// Whether the client is banned, which is decided before all checks.
fn check_bans(
    rules: &Rules,
    bans: &BanTable,
    context: &RequestContext<'_>,
    address: &AddressIdentifier,
    now: i64,
    explained: &mut Explanation,
) {
    let matches = matching_bans(rules, bans, context, now);
    explained.bans = matches.iter().map(|matched| Arc::clone(&matched.ban)).collect();
    let Some(BanMatch { ban, rule }) =
        decisive_ban(&rules.config, matches, context, &context.attributes(address), |_| ())
    else {
        return;
    };
    let rule = rules.config.bans.get(rule).map(|rule| &**rule);
    let reply = quota::banned(rule, &ban, now, false);
    (explained.verdict, explained.status) = (ExplainedVerdict::Banned, Some(reply.status));
    explained.because = format!("{} is banned by {}", ban.key, ban.by);
    if !ban.reason.is_empty() {
        explained.because += &format!(": {}", ban.reason);
    }
}

/// The request's target and route.
fn destination(
    rules: &Rules,
    request: &request::Parts,
    explained: &mut Explanation,
) -> Result<(Target, usize), Rejection> {
    let target = parse_target(request, rules.survey(&request.headers))?;
    let found = rules.router.find(&request.method, &target, &request.headers);
    let explanation = rules.router.explain(&request.method, &target, &request.headers);
    let named = |index: usize| rules.config.routes.get(index);
    let passed_over = explanation.passed_over.iter().filter_map(|&(index, mismatch)| {
        let route = named(index)?;
        Some((route.name.clone(), describe_mismatch(route, mismatch)))
    });
    let route = found.as_ref().ok().and_then(|index| named(*index));
    explained.route = Some(ExplainedRoute {
        name: route.map(|route| route.name.clone()),
        because: route
            .map(|route| describe_match(route, &target, &request.method))
            .unwrap_or_else(|| "no route matches".to_owned()),
        passed_over: passed_over.collect(),
        others: explanation.others,
    });
    let index = found?;
    let route = route.ok_or(Rejection { status: StatusCode::NOT_FOUND, detail: "No route matches." })?;
    if let RouteAction::Reply(reply) = &route.action {
        // Unless something refuses the request.
        explained.status = Some(reply.status);
        explained.reply = Some(ExplainedReply { status: reply.status, location: None });
    }
    Ok((target, index))
}

fn upstream_name<'r>(rules: &'r Rules, route: &Route) -> Option<&'r str> {
    Some(&*rules.config.upstreams.get(route.action.upstream()?)?.name)
}

/// For a route with several upstreams, the route to the upstream that gets the request; if that is random, the one
/// that most requests get.
fn explain_split<'r>(
    rules: &Rules,
    split: &'r Split,
    context: &RequestContext<'r>,
    address: &AddressIdentifier,
    explained: &mut Explanation,
) -> &'r Route {
    let total = split.total();
    let shares =
        split.weights.iter().zip(&split.routes).map(|(weight, route)| {
            format!("{weight} to {}", upstream_name(rules, route).unwrap_or_default())
        });
    let shares = shares.collect::<Vec<_>>().join(", ");
    let (route, how) = match &split.by {
        None => (context.route, format!("; of {total} requests go {shares}, at random")),
        Some(key) => {
            let route = split_route(split, context, || Cow::Borrowed(address));
            (route.unwrap_or(context.route), format!("; of {total} go {shares}, chosen by {key}"))
        }
    };
    if let Some(explained) = &mut explained.route {
        explained.because += &how;
    }
    route
}

/// Everything that the route matches by.
fn describe_match(route: &Route, target: &Target, method: &Method) -> String {
    let mut why = format!("the path matches {}", route.shown_path());
    why += match IgnoredDifferences::new(route, target) {
        IgnoredDifferences { case: true, trailing_slash: true } => {
            " (in any case, with or without trailing slash)"
        }
        IgnoredDifferences { case: true, trailing_slash: false } => " (in any case)",
        IgnoredDifferences { case: false, trailing_slash: true } => " (with or without trailing slash)",
        IgnoredDifferences { case: false, trailing_slash: false } => "",
    };
    if target.has_dot_segments() {
        why += &format!(" without its dot segments, and is sent as {}", target.forwarded(route.dot_segments));
    }
    for (of, names) in [("the host is one of", hosts(route)), ("the method is one of", methods(route))] {
        if !names.is_empty() {
            why += &format!(", {of} {names}");
        }
    }
    if !route.methods.is_empty() && !route.methods.contains(method) {
        why += if *method == Method::HEAD {
            " (HEAD follows GET)"
        } else {
            " (a CORS preflight asks for one of them)"
        };
    }
    for (name, _) in &route.headers {
        why += &format!(", {name} matches");
    }
    for (name, _) in &route.query {
        why += &format!(", the query parameter {name} matches");
    }
    for (name, _) in &route.cookies {
        why += &format!(", the cookie {name} matches");
    }
    why
}

fn describe_mismatch(route: &Route, mismatch: Mismatch) -> String {
    let shown = |value| if route.has_secrets { changes::MASK.into() } else { value };
    match mismatch {
        Mismatch::Path => format!("the path does not match {}", route.shown_path()),
        Mismatch::Host => format!("the host is not one of {}", hosts(route)),
        Mismatch::Method => format!("the method is not one of {}", methods(route)),
        Mismatch::Header(index) => match route.headers.get(index) {
            Some((name, value)) => {
                format!("{name} is not {}", shown(String::from_utf8_lossy(value.as_bytes())))
            }
            None => "a header differs".to_owned(),
        },
        Mismatch::Query(index) => match route.query.get(index) {
            Some((name, value)) => {
                format!("the query parameter {name} is not {}", shown(value.into()))
            }
            None => "a query parameter differs".to_owned(),
        },
        Mismatch::Cookie(index) => match route.cookies.get(index) {
            Some((name, value)) => format!("the cookie {name} is not {}", shown(value.into())),
            None => "a cookie differs".to_owned(),
        },
    }
}

fn hosts(route: &Route) -> String {
    route.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn methods(route: &Route) -> String {
    route.methods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Explanation {
    pub(super) fn set_undecided(&mut self) {
        (self.verdict, self.status) = (ExplainedVerdict::Undecided, Some(Reply::undecided().status));
        "the store is unavailable, and a policy has on_store_error: deny".clone_into(&mut self.because);
    }

    pub(super) fn set_denied(&mut self, by: &str, status: StatusCode, because: &str) {
        (self.verdict, self.status) = (ExplainedVerdict::Denied, Some(status));
        self.because = format!("denied by {by}: {because}");
    }
}
