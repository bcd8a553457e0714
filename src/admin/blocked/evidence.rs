//! `GET /v1/blocked/{ip}`: who was behind a blocked address.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use compact_str::CompactString;
use http::StatusCode;
use ipnet::IpNet;

use super::{
    super::{
        Configured, bans,
        openapi::{Away, LookUps},
        params::{Address, Nothing, Params},
        problem::Problem,
        shapes,
        state::Shared,
        vocabulary,
    },
    list::told,
};
use crate::{
    abuse::{self, Client, Limited, Names, Record},
    config::model::{Condition, KeyPart},
    limit::{Policy, PolicyId},
    telemetry::time::{duration, rfc3339},
};

/// Who was behind an address: the last records, the limits that hold it, its bans.
#[utoipa::path(
    get,
    path = "/v1/blocked/{ip}",
    operation_id = "evidence",
    tag = "limited clients",
    params(("ip" = vocabulary::Client, Path, description = "an address, or the prefix that a client is known by")),
    responses(
        (
            status = 200,
            body = shapes::Evidence,
            description = "what is known of it",
            links(
                ("user" = (operation_id = "user", parameters(("user" = "$response.body#/records/0/user")))),
                ("limit" = (operation_id = "peek", parameters(("key" = "$response.body#/limits/0/key")))),
                ("reset" = (operation_id = "reset", parameters(("key" = "$response.body#/limits/0/key"))))
            )
        ),
        LookUps,
        Away
    )
)]
pub(in super::super) async fn evidence(
    State(shared): State<Arc<Shared>>,
    address: Address,
    _: Params<Nothing>,
) -> Result<Json<shapes::Evidence>, Problem> {
    match found(&shared, &address).await {
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            banned(&shared, &address)?.map(Json).ok_or(problem)
        }
        found => found.map(Json),
    }
}

/// What is told of an address that is banned and was never denied: since when, and until when, it would be.
fn banned(shared: &Shared, address: &Address) -> Result<Option<shapes::Evidence>, Problem> {
    let state = &shared.state;
    let address = address.client(state.in_force.now().ipv6_prefix())?;
    let bans = state.bans.over(address);
    let (first, last) = (bans.iter().map(|ban| ban.since).min(), bans.iter().map(|ban| ban.since).max());
    let (Some(first), Some(last), Some(until)) = (first, last, bans.iter().map(|ban| ban.until).max()) else {
        return Ok(None);
    };
    let shown = abuse::shown(address);
    let client = Client { address, shown, first, last, until, denied: 0, policies: Vec::new(), users: 0 };
    Ok(Some(shapes::Evidence {
        address: told(&client),
        records: Vec::new(),
        limits: Vec::new(),
        bans: bans.iter().map(|ban| bans::list::told(ban)).collect(),
    }))
}

/// What is known of an address.
pub(in super::super) async fn found(shared: &Shared, address: &Address) -> Result<shapes::Evidence, Problem> {
    let state = &shared.state;
    let configured = state.in_force.now();
    let address = address.client(configured.ipv6_prefix())?;
    shared.desk.look_up(address).await;
    let known = state.registry.client(address, state.clock.now());
    let (client, records, limited) = known
        .ok_or_else(|| Problem::not_found(format!("{} was not limited lately", abuse::shown(address))))?;
    let mut limits = Vec::new();
    for (policy, key) in keys(&configured, &state.registry.names(), &client.shown, &limited) {
        for (nth, variant) in variants(configured.policies(), policy, address).into_iter().enumerate() {
            let peek = shared.desk.peek(configured.policies(), policy, variant, &key).await?;
            // Whether somebody behind the address has other limits shows by what was taken of them.
            if nth > 0 && peek.used == 0 {
                continue;
            }
            limits.push(shapes::Limit {
                policy: configured.policy(policy).to_owned(),
                key: key.to_string(),
                used: peek.used,
                limit: peek.verdict.limit,
                remaining: peek.verdict.remaining,
                // To the second, rounded up, as clients are told.
                reset: duration((peek.verdict.reset + 999_999) / 1_000_000 * 1_000_000),
            });
        }
    }
    let record = |Record { policy, entry }: &Record| shapes::Record {
        time: rfc3339(entry.time),
        user: entry.user.as_deref().map(str::to_owned),
        method: entry.method.to_string(),
        path: entry.path.to_string(),
        policy: policy.to_string(),
    };
    Ok(shapes::Evidence {
        address: told(&client),
        records: records.iter().map(record).collect(),
        limits,
        bans: state.bans.over(address).iter().map(|ban| bans::list::told(ban)).collect(),
    })
}

/// Which of a policy's [`Policy::variants`] may hold requests from this address back: first that for the address itself,
/// then others, for users behind it, that count apart.
fn variants(policies: &[Policy], policy: usize, address: IpNet) -> Vec<usize> {
    let Some(policy) = policies.get(policy) else { return Vec::new() };
    let is_own = |of: &Condition| matches!(of, Condition::Address(net) if net.contains(&address));
    let own = policy.overrides.iter().position(|(of, _)| is_own(of)).map_or(0, |place| place + 1);
    let ids: Vec<PolicyId> = policy.variants().map(|variant| variant.id).collect();
    let counts_apart = |&other: &usize| {
        let id = ids.get(other);
        id != ids.get(own) && ids.iter().position(|known| Some(known) == id) == Some(other)
    };
    std::iter::once(own).chain((0..ids.len()).filter(counts_apart)).collect()
}

/// The limits of an address: of every policy that is keyed by it alone, and whichever others of its own
/// held it back (composites, and what fell back to the address).
fn keys(
    configured: &Configured,
    names: &Names,
    shown: &str,
    limited: &[Limited],
) -> BTreeSet<(usize, CompactString)> {
    let own = abuse::identifier(shown);
    let policies = configured.policies().iter().enumerate();
    let by_address = policies.filter(|(_, policy)| policy.keys.iter().any(|key| key.0 == [KeyPart::Ip]));
    let denied = limited.iter().filter(|limit| abuse::is_of(&limit.identifier, shown));
    // Where a user in a key is hashed, the limit can't be found by it.
    let denied = denied.filter(|limit| names.shows(&limit.identifier));
    // Policies that only another instance has can't be asked about here.
    let known =
        denied.filter_map(|limit| Some((configured.policy_named(&limit.policy)?, limit.identifier.clone())));
    by_address.map(|(index, _)| (index, own.clone())).chain(known).collect()
}
