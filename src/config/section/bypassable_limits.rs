//! Warns about routes whose limits count only by values that the client chooses.

use std::sync::Arc;

use super::{routes::DraftRoute, user::IdentitySources};
use crate::config::model::{HostPattern, KeyPart, KeyRecipe, Mode, PathPattern, Policy, Route};

/// How many key parts a warning names.
const MAX_NAMED: usize = 4;

/// Warns about every route on which each enforced limit counts by a value that the client chooses. With a new value in
/// each request, the client never reaches a limit.
pub(super) fn warn(drafts: &[DraftRoute<'_>], policies: &[Arc<Policy>], identity: IdentitySources) {
    let routes =
        drafts.iter().flat_map(|draft| draft.route.variants().iter().map(|route| (draft.cursor, route)));
    for (cursor, route) in routes {
        let of_route = route.policies.iter().filter_map(|policy| policies.get(*policy));
        let keys = of_route.filter(|policy| policy.mode == Mode::Enforce).flat_map(|policy| &policy.keys);
        let keys: Vec<&KeyRecipe> = keys.collect();
        let chosen = |part: &&KeyPart| is_chosen_by_client(part, route, identity);
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
fn is_chosen_by_client(part: &KeyPart, route: &Route, identity: IdentitySources) -> bool {
    match part {
        KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_) => true,
        KeyPart::User => identity.has_unverified_users,
        KeyPart::Path => !matches!(route.path, PathPattern::Exact(_)),
        KeyPart::Host => {
            route.hosts.is_empty() || route.hosts.iter().any(|host| matches!(host, HostPattern::Suffix(_)))
        }
        KeyPart::Method => route.methods.is_empty(),
        KeyPart::Ip | KeyPart::Jwt(_) | KeyPart::Tls(_) | KeyPart::Route | KeyPart::Global => false,
    }
}
