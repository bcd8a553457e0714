//! Limits that do not limit: limits of policies that no route uses, limits that another spelling of a path evades (as it
//! may evade a required credential), and limits that count only by values which clients choose.

use std::{collections::HashSet, sync::Arc};

use crate::{
    config::{
        FileLocation,
        identity::settings::IdentitySources,
        keys::settings::Require,
        policies::{
            algorithm::Algorithm,
            cost::Cost,
            settings::{Mode, Policy},
        },
        reader::Cursor,
        routes::{
            action::RouteAction,
            coverage::{DraftIndex, DraftRoute, covers, spellings},
            policies::RoutePolicy,
            settings::Route,
        },
        value::{
            key::{KeyPart, KeyRecipe},
            path_matching::PathMatching,
            patterns::{HostPattern, PathPattern},
            rate::Quota,
        },
    },
    request_values::RequestValue,
};

/// How many key parts a warning names.
const MAX_NAMED: usize = 4;
/// How many times the limit of a user an address may get: several users share one.
const COMPARABLE: u128 = 10;

/// Warns about policies that no route uses. `of_upstream`: the name of the first upstream that has a policy.
pub(in crate::config) fn warn_of_unused<'u>(
    drafts: &[DraftRoute<'_>],
    policies: &[(FileLocation, Cursor<'_>)],
    of_upstream: impl Fn(usize) -> Option<&'u str>,
) {
    let variants = drafts.iter().flat_map(|draft| draft.route.variants());
    let used: HashSet<usize> = variants.flat_map(|route| &route.policies).map(|of| of.policy).collect();
    for (index, (location, value)) in policies.iter().enumerate() {
        if used.contains(&index) {
            continue;
        }
        let help = match of_upstream(index) {
            Some(upstream) => {
                format!("no route leads to its upstream, `{upstream}`: add one, or remove both")
            }
            None => "add it to the `policies` of a route or of an upstream, or remove it".to_owned(),
        };
        value.warn_at(*location, "no route uses this policy, so it limits nothing", help);
    }
}

/// Warns about every route on which each enforced limit counts by a value that the client chooses. With a new value in
/// each request, the client never reaches a limit.
pub(in crate::config) fn warn_of_chosen_keys(
    drafts: &[DraftRoute<'_>],
    policies: &[Arc<Policy>],
    identity: IdentitySources,
    values: &[Arc<RequestValue>],
) {
    let routes =
        drafts.iter().flat_map(|draft| draft.route.variants().iter().map(|route| (draft.cursor, route)));
    for (cursor, route) in routes {
        let of_route = route.policies.iter().filter_map(|of| policies.get(of.policy));
        let keys = of_route.filter(|policy| policy.mode == Mode::Enforce).flat_map(|policy| &policy.keys);
        let keys: Vec<&KeyRecipe> = keys.collect();
        let chosen = |part: &&KeyPart| is_chosen_by_client(part, route, identity, values);
        if keys.is_empty() || !keys.iter().all(|key| key.0.iter().any(|part| chosen(&part))) {
            continue;
        }
        let mut names: Vec<String> = Vec::new();
        for name in keys.iter().flat_map(|key| &key.0).filter(chosen).map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = if names.len() > MAX_NAMED { ", …" } else { "" };
        names.truncate(MAX_NAMED);
        let message = format!(
            "every limit of route `{}` counts by values that clients choose ({}{more}): a client that changes \
                them in each request is never limited",
            route.name,
            names.join(", ")
        );
        let mut parts = keys.iter().flat_map(|key| &key.0).filter(chosen);
        let help = if parts.all(|part| is_conditioned(part, route)) {
            "a client can send further values beside the one that the route asks for, and the key has all of them: use \
             `key: route`, or add `ip` to a policy's keys, as in `key: [ip, …]`"
        } else {
            "add `ip` to a policy's keys, as in `key: [ip, …]`, or count by a verified identity: `user` from a `jwt`, a \
             client certificate or trusted_proxies, jwt:CLAIM, or tls:subject"
        };
        cursor.warn(message, help.to_owned());
    }
}

/// Warns about every route that limits users whom clients name themselves, if the limits by other keys admit far more: to a
/// client that changes the name in each request, only those apply.
pub(in crate::config) fn warn_of_chosen_users(
    drafts: &[DraftRoute<'_>],
    policies: &[Arc<Policy>],
    identity: IdentitySources,
    values: &[Arc<RequestValue>],
) {
    // Limits that count each request as one unit. Others can't be compared.
    let counts_requests = |(of, policy): &(RoutePolicy, &Policy)| {
        !matches!(policy.algorithm, Algorithm::Concurrency | Algorithm::Distinct)
            && policy.count.is_none()
            && of.price.is_none_or(|price| price == 1)
            && (of.price.is_some() || matches!(policy.cost, Cost::Fixed(1)))
    };
    let routes =
        drafts.iter().flat_map(|draft| draft.route.variants().iter().map(|route| (draft.cursor, route)));
    for (cursor, route) in routes.filter(|_| identity.has_unverified_users) {
        let is_chosen = |policy: &Policy| {
            let mut keys = policy.keys.iter();
            keys.all(|key| key.0.iter().any(|part| is_chosen_by_client(part, route, identity, values)))
        };
        // There is another warning if all limits are chosen.
        if enforced(route, policies).all(|(_, policy)| is_chosen(policy)) {
            continue;
        }
        let requests = enforced(route, policies).filter(counts_requests).map(|(_, policy)| policy);
        let (chosen, others): (Vec<&Policy>, Vec<&Policy>) = requests.partition(|policy| is_chosen(policy));
        // How many requests the others admit in the time of a user's limit. `None`: they limit none.
        let most = |of: Quota| {
            let tiers = others.iter().flat_map(|policy| &policy.tiers);
            let windows =
                |tier: &Quota| of.window.length().as_nanos().div_ceil(tier.window.length().as_nanos().max(1));
            tiers.map(|tier| windows(tier) * u128::from(tier.limit)).min()
        };
        let of_users =
            chosen.iter().filter(|policy| policy.keys.iter().any(|key| key.0.contains(&KeyPart::User)));
        let limits =
            of_users.flat_map(|policy| policy.tiers.iter().map(move |tier| (policy, *tier, most(*tier))));
        let excess =
            |limit: u64, most: Option<u128>| most.map_or(u128::MAX, |most| most / u128::from(limit.max(1)));
        let worst = limits.max_by_key(|(_, tier, most)| excess(tier.limit, *most));
        let Some((policy, tier, most)) =
            worst.filter(|(_, tier, most)| excess(tier.limit, *most) > COMPARABLE)
        else {
            continue;
        };
        let gets = match most {
            Some(most) => format!("is admitted {most} times in that time"),
            None => "may send as many as it likes".to_owned(),
        };
        let message = format!(
            "clients choose the user whom `{}` limits to {tier} on route `{}`: one that changes it in each request {gets}",
            policy.name, route.name
        );
        let help = format!(
            "add a policy with `key: ip` and a comparable limit, such as {}/{}; or take the user from a `jwt`, a client \
             certificate or a header that trusted_proxies set",
            u128::from(tier.limit) * COMPARABLE,
            tier.window
        );
        cursor.warn(message, help);
    }
}

/// Warns about every route that shows the usage of limits and has no limit by address: each of its requests asks the store,
/// and takes nothing from the limits of who sends it.
pub(in crate::config) fn warn_of_unlimited_usage(drafts: &[DraftRoute<'_>], policies: &[Arc<Policy>]) {
    // Others take nothing from the requests of such a route.
    let is_by_address = |policy: &Policy| {
        policy.keys.iter().all(|key| key.0.contains(&KeyPart::Ip)) && policy.cost.of_response().is_none()
    };
    for draft in drafts.iter().filter(|draft| draft.route.action == RouteAction::Usage) {
        if enforced(&draft.route, policies).any(|(_, policy)| is_by_address(policy)) {
            continue;
        }
        let message = format!(
            "route `{}` has no limit by address: each of its requests asks the store about all limits of a key, and takes \
             nothing from them",
            draft.route.name
        );
        let help =
            "add a policy with `key: ip` to its `policies`, such as `limit: 60/1m`: each request counts as 1";
        draft.cursor.warn(message, help.to_owned());
    }
}

/// Whether the route asks for a value of this part. A client can add others, since one of several suffices.
fn is_conditioned(part: &KeyPart, route: &Route) -> bool {
    match part {
        KeyPart::Header(name) => route.headers.iter().any(|(header, _)| header == name),
        KeyPart::Cookie(name) => route.cookies.iter().any(|(cookie, _)| cookie == name),
        KeyPart::Query(name) => route.query.iter().any(|(parameter, _)| parameter == name),
        _ => false,
    }
}

/// Whether a client can send another value of this part in each request to the route.
fn is_chosen_by_client(
    part: &KeyPart,
    route: &Route,
    identity: IdentitySources,
    values: &[Arc<RequestValue>],
) -> bool {
    match part {
        KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_) => true,
        KeyPart::User => identity.has_unverified_users,
        KeyPart::Path => !matches!(route.path, PathPattern::Exact(_)),
        KeyPart::Host => {
            route.hosts.is_empty() || route.hosts.iter().any(|host| matches!(host, HostPattern::Suffix(_)))
        }
        KeyPart::Method => route.methods.is_empty(),
        KeyPart::Ip
        | KeyPart::Jwt(_)
        | KeyPart::Tls(_)
        | KeyPart::OfKey(_)
        | KeyPart::Route
        // The proxy that asks makes it.
        | KeyPart::Descriptor(_)
        | KeyPart::Global => false,
        KeyPart::Value(name) => {
            let is_grouped = values.iter().any(|value| value.name == *name && !value.groups.is_empty());
            !is_grouped && !route.allow_values.iter().any(|allowed| allowed.value.name == *name)
        }
    }
}

/// Warns about every route that compares case or trailing slash, if another spelling of its path goes to the same upstream
/// by a route that lacks one of its policies, that costs less, or that requires less: to many an upstream, both are one path.
pub(in crate::config) fn warn_of_spellings(
    drafts: &[DraftRoute<'_>],
    index: &DraftIndex,
    policies: &[Arc<Policy>],
) {
    for draft in drafts {
        let Some((spelling, other)) = way_around(draft, drafts, index, policies) else { continue };
        let (route, way) = (&draft.route, &other.route);
        let credential =
            missing_credential(route, way).map(|require| format!("`require: {}`", require.name()));
        let missing = missing_policies(route, way, policies);
        let cheaper = cheaper_policies(route, way, policies);
        let (how, to_do) = match (&credential, missing.len(), cheaper.is_empty()) {
            (None, 0, _) => ("for less", "set the same cost on"),
            (None, 1, true) => ("without this policy", "add what is missing to"),
            (None, _, true) => ("without these policies", "add what is missing to"),
            (Some(_), 0, true) => ("without this credential", "add what is missing to"),
            _ => ("without them", "add what is missing to"),
        };
        let missing = missing.into_iter().map(|name| format!("`{name}`"));
        let cheaper = cheaper.into_iter().map(|name| format!("the cost of `{name}`"));
        let missing: Vec<String> = credential.into_iter().chain(missing).chain(cheaper).collect();
        let message = format!(
            "`{spelling}` goes around {}: route `{}` sends it to the same upstream {how}",
            missing.join(", "),
            way.name,
        );
        let help = format!(
            "many upstreams take it for `{}`; let this route match both (`match: {{ case: insensitive, trailing_slash: \
             either }}`), or {to_do} the route in line {}",
            route.shown_path(),
            other.cursor.location().line
        );
        draft.cursor.warn(message, help);
    }
}

/// A spelling of the route's path that it does not match, and the route that it takes instead.
fn way_around<'d, 't>(
    draft: &DraftRoute<'_>,
    drafts: &'d [DraftRoute<'t>],
    index: &DraftIndex,
    policies: &[Arc<Policy>],
) -> Option<(String, &'d DraftRoute<'t>)> {
    let route = &draft.route;
    if route.matching == PathMatching::LOOSE {
        return None;
    }
    spellings(&route.path, PathMatching::LOOSE).into_iter().find_map(|path| {
        let spelled = Route { path, matching: PathMatching::STRICT, ..route.clone() };
        // One that matches only some of these requests is passed over.
        let mut around = index.around(&spelled).into_iter().filter_map(|other| drafts.get(other));
        let other = around.find(|other| covers(&other.route, &spelled))?;
        let is_around = other.route.action == route.action
            && !covers(route, &spelled)
            && (missing_credential(route, &other.route).is_some()
                || !missing_policies(route, &other.route, policies).is_empty()
                || !cheaper_policies(route, &other.route, policies).is_empty());
        is_around.then(|| (route.written_path.clone().unwrap_or_else(|| spelled.path.to_string()), other))
    })
}

/// The credential that `route` requires, if a request to `other` may lack it.
fn missing_credential(route: &Route, other: &Route) -> Option<Require> {
    let required = route.require?;
    let is_required = match (required, other.require) {
        (Require::None, _) => true,
        (Require::Any, Some(other)) => other != Require::None,
        (_, other) => other == Some(required),
    };
    (!is_required).then_some(required)
}

/// The names of the policies that limit `route` and not `other`.
fn missing_policies<'p>(route: &Route, other: &Route, policies: &'p [Arc<Policy>]) -> Vec<&'p str> {
    let missing = |of: &RoutePolicy| other.policy(of.policy).is_none();
    enforced(route, policies).filter(|(of, _)| missing(of)).map(|(_, policy)| policy.name.as_str()).collect()
}

/// The names of the policies that limit both, and of which a request takes less on `other`. A cost that a header or the response
/// tells is not compared.
fn cheaper_policies<'p>(route: &Route, other: &Route, policies: &'p [Arc<Policy>]) -> Vec<&'p str> {
    let cost = |of: RoutePolicy, policy: &Policy| match policy.cost {
        _ if of.price.is_some() => of.price,
        Cost::Fixed(units) => Some(units),
        Cost::Header { .. } | Cost::Response(_) => None,
    };
    let is_cheaper = |(of, policy): &(RoutePolicy, &Policy)| {
        let costs = cost(*of, policy).zip(other.policy(of.policy).and_then(|of| cost(of, policy)));
        costs.is_some_and(|(here, there)| there < here)
    };
    enforced(route, policies).filter(is_cheaper).map(|(_, policy)| policy.name.as_str()).collect()
}

/// The enforced policies of `route`.
fn enforced<'r, 'p: 'r>(
    route: &'r Route,
    policies: &'p [Arc<Policy>],
) -> impl Iterator<Item = (RoutePolicy, &'p Policy)> + 'r {
    let all = route.policies.iter().filter_map(|of| Some((*of, &**policies.get(of.policy)?)));
    all.filter(|(_, policy)| policy.mode == Mode::Enforce)
}
