//! `/v1/incidents`: what many clients do together, and acts on them.

use std::{
    cmp::Reverse,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::header::CONTENT_TYPE;
use ipnet::IpNet;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    ConfigSnapshot,
    ban_reach::shut_out,
    bans,
    context::{HandlerContext, to_completion},
    dto::{self, schema},
    extract::{IncidentParam, JsonBody, NoParams, Operator, Query, RemoteAddress, checked_reason},
    openapi::{
        BodyErrors, LookupErrors, NotFoundError, ReadErrors, RefusedError, UnavailableError, WriteErrors,
    },
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
    status,
};
use crate::{
    abuse::{self, Cause, Hint, Incident, KeptIncident, Member, Mute, Unblock, bans::BannedKey},
    config::model::Condition,
    limit::StoreAdmin,
    telemetry::{
        Event, IncidentAct,
        time::{self, rfc3339},
    },
};

const SECOND: i64 = 1_000_000;
/// How long one request unblocks addresses: each takes a call of the store.
const UNBLOCKING: Duration = Duration::from_secs(15);
/// How long an acknowledgement holds: longer than any incident is kept.
const ACKNOWLEDGED: i64 = 400 * 86_400 * SECOND;
/// How long before or after its start a reload may be the cause of refusals, in seconds.
const RELOAD_NEAR: i64 = 120;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct IncidentsQuery {
    /// Only incidents that go on, or only those that are over.
    pub(super) open: Option<bool>,
}

/// Lists the incidents of all instances, with outages and warnings of this one.
#[utoipa::path(
    get,
    path = "/v1/incidents",
    operation_id = "incidents",
    tag = "incidents",
    params(IncidentsQuery),
    responses(
        (
            status = 200,
            body = dto::IncidentList,
            description = "all incidents",
            links(
                ("incident" = (operation_id = "incident", parameters(("id" = "$response.body#/incidents/0/id")))),
                ("members" = (operation_id = "incidentMembers", parameters(("id" = "$response.body#/incidents/0/id"))))
            )
        ),
        ReadErrors
    )
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<IncidentsQuery>,
) -> Json<dto::IncidentList> {
    Json(list_dto(&context, &query))
}

/// All incidents, and what does not work.
pub(super) fn list_dto(context: &HandlerContext, query: &IncidentsQuery) -> dto::IncidentList {
    let incidents = context.state.registry.incidents();
    let mut all = incidents.all(context.state.clock.now());
    all.retain(|kept| query.open.is_none_or(|open| open != kept.is_over));
    let customers = incidents.customers_at_limits().into_iter();
    dto::IncidentList {
        incidents: all.iter().map(|kept| incident_dto(context, kept)).collect(),
        faults: faults(context),
        customers_at_limits: customers
            .map(|(policy, customers)| dto::CustomersAtLimit { policy, customers })
            .collect(),
        partial: incidents.is_partial(),
    }
}

/// What does not work, as this instance sees it.
fn faults(context: &HandlerContext) -> Vec<dto::Fault> {
    let status = status::status_dto(&context.state);
    let outages = status
        .outages
        .iter()
        .map(|outage| dto::Fault { text: outage.text.clone(), since: Some(outage.since.clone()) });
    let reload = status.configuration.failed_reload().map(|(time, error)| dto::Fault {
        text: format!("the last reload failed, and the configuration of before is still running: {error}"),
        since: Some(time.to_owned()),
    });
    let warnings = status.remaining_warnings().map(|text| dto::Fault { text: text.clone(), since: None });
    outages.chain(reload).chain(warnings).collect()
}

pub(super) fn incident_dto(context: &HandlerContext, kept: &KeptIncident) -> dto::Incident {
    let KeptIncident { incident, acknowledged, muted, is_over } = kept;
    let named = |is_wanted: fn(&Cause) -> bool| -> Vec<String> {
        incident.causes.iter().filter(|cause| is_wanted(cause)).map(|cause| cause.name().to_owned()).collect()
    };
    let seconds = |time: i64| rfc3339(time.saturating_mul(SECOND));
    dto::Incident {
        id: incident.id.clone(),
        kind: incident.kind.name().to_owned(),
        attack: incident.kind.is_attack(),
        text: sentence(context, incident),
        start: seconds(incident.start),
        last: seconds(incident.last),
        end: is_over.then(|| seconds(incident.last)),
        peak_per_minute: incident.peak,
        routes: named(|cause| matches!(cause, Cause::Route(_))),
        policies: named(|cause| matches!(cause, Cause::Policy(_))),
        addresses: incident.addresses(),
        denied_addresses: incident.denied(),
        possible_takeovers: incident.takeovers(),
        requests: incident.requests(),
        users: incident.total.users.count(),
        user_agents: incident.total.agents.count(),
        network: incident
            .network()
            .map(|(prefix, addresses)| dto::IncidentNetwork { prefix: prefix.to_string(), addresses }),
        partial: incident.is_partial,
        acknowledged: acknowledged
            .as_ref()
            .map(|word| dto::OperatorWord { time: rfc3339(word.said), by: word.by.clone() }),
        muted_until: muted.as_ref().map(|mute| rfc3339(mute.until)),
    }
}

/// The incident in a sentence. Of refusals, it names a reload that may have caused them.
fn sentence(context: &HandlerContext, incident: &Incident) -> String {
    let mut text = incident.sentence();
    let loaded = context.state.active_config.snapshot().loaded / SECOND;
    let is_reload = loaded > context.state.facts.started / SECOND + 1;
    if !incident.kind.is_attack() && is_reload && (loaded - incident.start).abs() <= RELOAD_NEAR {
        let time = rfc3339(loaded * SECOND);
        text += &format!(" The configuration was reloaded at {}.", time.get(11..16).unwrap_or(&time));
    }
    text
}

pub(super) fn find(context: &HandlerContext, id: &str) -> Result<KeptIncident, Problem> {
    let found = context.state.registry.incidents().find(id, context.state.clock.now());
    found.ok_or_else(|| Problem::not_found(format!("there is no incident {}", id.escape_debug())))
}

/// Shows an incident.
#[utoipa::path(
    get,
    path = "/v1/incidents/{id}",
    operation_id = "incident",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident")),
    responses((status = 200, body = dto::Incident, description = "the incident"), LookupErrors)
)]
pub(super) async fn show(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    _: Query<NoParams>,
) -> Result<Json<dto::Incident>, Problem> {
    Ok(Json(incident_dto(&context, &find(&context, &id)?)))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct MembersQuery {
    /// Members per page; 100 by default. CSV has all of them.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
    /// JSON by default.
    #[param(inline)]
    pub(super) format: Option<MembersFormat>,
}

/// The format of the members of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum MembersFormat {
    Json,
    Csv,
}

/// Lists the addresses of an incident, one page at a time: possible takeovers first, then those with the most requests.
#[utoipa::path(
    get,
    path = "/v1/incidents/{id}/members",
    operation_id = "incidentMembers",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident"), MembersQuery),
    responses(
        (
            status = 200,
            description = "one page of members; all of them as CSV",
            content((dto::IncidentMembers = "application/json"), (String = "text/csv"))
        ),
        LookupErrors
    )
)]
pub(super) async fn members(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    peer: Option<Extension<RemoteAddress>>,
    Query(query): Query<MembersQuery>,
) -> Result<Response, Problem> {
    let incident = find(&context, &id)?.incident;
    let acts = Acts::new(&context, peer.map(|Extension(RemoteAddress(address))| address));
    if query.format == Some(MembersFormat::Csv) {
        if query.limit.is_some() || query.cursor.is_some() {
            return Err(Problem::bad_request("CSV has all members: leave out limit and cursor"));
        }
        let all = ordered(&incident);
        let csv = csv(all.iter().map(|(address, member)| acts.member_dto(&incident, *address, member)));
        return Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], csv).into_response());
    }
    members_page(&incident, &acts, &query).map(|page| Json(page).into_response())
}

/// A page of the members.
pub(super) fn members_page(
    incident: &Incident,
    acts: &Acts<'_>,
    query: &MembersQuery,
) -> Result<dto::IncidentMembers, Problem> {
    let limit = page_size(query.limit)?;
    let after = decode_cursor(query.cursor.as_deref(), |(is_other, requests, text): (bool, u32, String)| {
        Some((is_other, Reverse(requests), abuse::parse(&text)?))
    })?;
    // The order changes while it goes on, so that a page may repeat a few.
    let all = ordered(incident);
    let is_before = |(address, member): &(IpNet, &Member)| {
        after.is_some_and(|after| position(incident, *address, member) <= after)
    };
    let page = &all[all.partition_point(is_before)..];
    let last = page.get(limit - 1).filter(|_| page.len() > limit);
    Ok(dto::IncidentMembers {
        cursor: last.map(|(address, member)| {
            let (is_other, Reverse(requests), address) = position(incident, *address, member);
            encode_cursor(&(is_other, requests, address.to_string()))
        }),
        members: page
            .iter()
            .take(limit)
            .map(|(address, member)| acts.member_dto(incident, *address, member))
            .collect(),
    })
}

/// Possible takeovers first, then those with the most requests.
fn ordered(incident: &Incident) -> Vec<(IpNet, &Member)> {
    let mut all: Vec<_> = incident.members.iter().map(|(address, member)| (*address, member)).collect();
    all.sort_by_key(|(address, member)| position(incident, *address, member));
    all
}

/// The place of a member in the list.
fn position(incident: &Incident, address: IpNet, member: &Member) -> (bool, Reverse<u32>, IpNet) {
    let requests = member.counts.refused.saturating_add(member.counts.denied);
    (!incident.is_takeover(member), Reverse(requests), address)
}

fn csv(members: impl Iterator<Item = dto::IncidentMember>) -> String {
    let mut text =
        "address,refused,attempts,let_in,served,denied,first,last,hint,possible_takeover,spared,banned\r\n"
            .to_owned();
    for member in members {
        let dto::IncidentMember { address, refused, attempts, let_in, served, denied, first, last, .. } =
            &member;
        let [hint, spared] = [&member.hint, &member.spared].map(|text| text.as_deref().unwrap_or_default());
        let (takeover, banned) = (member.possible_takeover, member.banned);
        text += &format!(
            "{address},{refused},{attempts},{let_in},{served},{denied},{first},{last},{hint},{takeover},{spared},{banned}\r\n"
        );
    }
    text
}

/// Whom acts on incidents are done to.
pub(super) struct Acts<'a> {
    context: &'a HandlerContext,
    operator: Option<IpAddr>,
    config: Arc<ConfigSnapshot>,
}

impl<'a> Acts<'a> {
    pub(super) fn new(context: &'a HandlerContext, operator: Option<IpAddr>) -> Self {
        Self { context, operator, config: context.state.active_config.snapshot() }
    }

    /// Why a member is spared.
    fn spares(&self, address: IpNet, member: &Member) -> Option<&'static str> {
        let config = self.config.rules.config();
        let of_policies = config.policies.iter().flat_map(|policy| &policy.exempt);
        let of_bans = config.bans.iter().flat_map(|rule| &rule.exempt);
        let is_exempt = of_policies.chain(of_bans).any(|condition| {
            // The /64 of a client around an address that is exempt, too.
            matches!(condition, Condition::Address(net) if net.contains(&address) || address.contains(net))
        });
        let is_shared = || {
            let now = self.context.state.clock.now();
            let hint = member.hint().or_else(|| self.context.state.registry.hint(address, now));
            hint == Some(Hint::SharedAddress)
        };
        let key = BannedKey::Address(address);
        if member.counts.is_customer {
            Some("customer")
        } else if is_shared() {
            Some("shared address")
        } else if is_exempt {
            Some("exempt")
        } else if !shut_out(&key, self.operator, &config.trusted_proxies).is_empty() {
            Some("operator or proxy")
        } else {
            None
        }
    }

    fn member_dto(&self, incident: &Incident, address: IpNet, member: &Member) -> dto::IncidentMember {
        let counts = &member.counts;
        let seconds = |time: u32| rfc3339(i64::from(time) * SECOND);
        dto::IncidentMember {
            address: abuse::shown(address).to_string(),
            refused: counts.refused,
            attempts: counts.attempts,
            let_in: counts.let_in,
            served: counts.served,
            denied: counts.denied,
            first: seconds(counts.first),
            last: seconds(counts.last),
            hint: member.hint().map(|hint| hint.name().to_owned()),
            possible_takeover: incident.is_takeover(member),
            spared: self.spares(address, member).map(str::to_owned),
            banned: self.context.state.bans.is_banned(address),
        }
    }

    /// The members that are meant, and those of them that are spared. `addresses`: `None` for all but possible takeovers.
    fn choose(
        &self,
        incident: &Incident,
        addresses: Option<&[String]>,
    ) -> Result<(Vec<IpNet>, Vec<dto::SparedMember>), Problem> {
        let chosen = named(incident, addresses)?.unwrap_or_else(|| {
            let all = ordered(incident).into_iter();
            all.filter(|(_, member)| !incident.is_takeover(member)).map(|(address, _)| address).collect()
        });
        let (mut members, mut spared) = (Vec::new(), Vec::new());
        for address in chosen {
            match incident.members.get(&address).and_then(|member| self.spares(address, member)) {
                Some(because) => spared.push(dto::SparedMember {
                    address: abuse::shown(address).to_string(),
                    because: because.to_owned(),
                }),
                None => members.push(address),
            }
        }
        Ok((members, spared))
    }
}

/// The members of these addresses.
fn named(incident: &Incident, addresses: Option<&[String]>) -> Result<Option<Vec<IpNet>>, Problem> {
    let parse = |text: &String| {
        let unknown =
            || Problem::bad_request(format!("{} is no member of the incident", text.escape_debug()));
        abuse::parse(text).filter(|address| incident.members.contains_key(address)).ok_or_else(unknown)
    };
    addresses.map(|addresses| addresses.iter().map(parse).collect()).transpose()
}

/// Bans members of an attack on every instance: those that are listed, or all but possible takeovers. Customers, exempt addresses, shared
/// addresses, trusted proxies and the operator's own address are spared.
#[utoipa::path(
    post,
    path = "/v1/incidents/{id}/ban",
    operation_id = "banIncident",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident")),
    request_body(
        content = dto::NewIncidentBan,
        description = "for how long, why, and whom",
        example = json!({"for": "1h"})
    ),
    responses(
        (status = 200, body = dto::IncidentActed, description = "who was banned, and who was spared"),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        RefusedError
    )
)]
pub(super) async fn ban(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    by: Operator,
    peer: Option<Extension<RemoteAddress>>,
    _: Query<NoParams>,
    JsonBody(new): JsonBody<dto::NewIncidentBan, MAX_LIST>,
) -> Result<Json<dto::IncidentActed>, Problem> {
    let duration = bans::duration(&new.lasts)?;
    let incident = attack(&context, &id)?;
    let reason = new.reason.unwrap_or_else(|| format!("{} (incident {id})", incident.kind.name()));
    checked_reason(&reason)?;
    let acts = Acts::new(&context, peer.map(|Extension(RemoteAddress(address))| address));
    let (members, spared) = acts.choose(&incident, new.addresses.as_deref())?;
    let keys = members.iter().map(|address| BannedKey::Address(*address));
    context.state.bans.ban_all(keys, duration, &reason, &by.0);
    let detail = format!("{} addresses for {}: {reason}", members.len(), time::format_duration(duration));
    finish(&context, &by, &id, "ban_incident", ("ban", &members, detail));
    let shared = bans::is_sent(&context).await;
    Ok(Json(dto::IncidentActed { addresses: members.len(), spared, shared }))
}

/// Longest body with a list of members, in bytes.
const MAX_LIST: usize = 1 << 20;

/// One entry of the audit log and one event for an act.
fn finish(
    context: &HandlerContext,
    by: &Operator,
    id: &str,
    action: &str,
    (act, members, detail): (&'static str, &[IpNet], String),
) {
    context.audit(by, action, &format!("incident {id}"), &detail);
    context.state.events.publish(|| {
        Event::IncidentAct(IncidentAct { id: id.to_owned(), act, addresses: members.len(), by: by.0.clone() })
    });
}

/// Lifts the bans of members of an attack, and clears their limits, on every instance: of those that are listed, or of all that are banned
/// or were denied. It stops after a quarter of a minute, and says how many are left.
#[utoipa::path(
    post,
    path = "/v1/incidents/{id}/unblock",
    operation_id = "unblockIncident",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident")),
    request_body(content = dto::NewIncidentUnblock, description = "whom", example = json!({})),
    responses(
        (status = 200, body = dto::IncidentUnblocked, description = "how many were unblocked"),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn unblock(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    by: Operator,
    _: Query<NoParams>,
    JsonBody(new): JsonBody<dto::NewIncidentUnblock, MAX_LIST>,
) -> Result<Json<dto::IncidentUnblocked>, Problem> {
    to_completion(async move {
        let incident = attack(&context, &id)?;
        let members = named(&incident, new.addresses.as_deref())?.unwrap_or_else(|| {
            let all = ordered(&incident).into_iter();
            let is_held = |address: IpNet, member: &Member| {
                let last = i64::from(member.counts.last) * SECOND;
                let is_limited =
                    member.counts.denied > 0 && !context.state.registry.is_unblocked_since(address, last);
                is_limited || context.state.bans.is_banned(address)
            };
            all.filter(|(address, member)| is_held(*address, member)).map(|(address, _)| address).collect()
        });
        let (begun, mut done, mut failure) = (Instant::now(), Vec::new(), None);
        for &address in &members {
            if begun.elapsed() >= UNBLOCKING {
                break;
            }
            if let Err(problem) = unblock_one(&context, &by, address).await {
                failure = Some(problem);
                break;
            }
            done.push(address);
        }
        // What was done is written down, whatever comes of the rest.
        if !done.is_empty() {
            finish(
                &context,
                &by,
                &id,
                "unblock_incident",
                ("unblock", &done, format!("{} addresses", done.len())),
            );
        }
        if let Some(problem) = failure {
            return Err(problem);
        }
        let shared = bans::is_sent(&context).await;
        Ok(Json(dto::IncidentUnblocked { addresses: done.len(), left: members.len() - done.len(), shared }))
    })
    .await
}

async fn unblock_one(context: &HandlerContext, by: &Operator, address: IpNet) -> Result<(), Problem> {
    let config = context.state.active_config.snapshot();
    context.store.reset(config.policies(), &abuse::identifier(&abuse::shown(address))).await?;
    context.peers.unblock(address, &by.0).await?;
    let now = context.state.clock.now();
    context.state.registry.unblock(address, Unblock { time: now, by: by.0.clone() }, now);
    bans::lift_all(context, &BannedKey::Address(address)).await;
    Ok(())
}

/// The incident, if it is an attack: there are no acts on others.
fn attack(context: &HandlerContext, id: &str) -> Result<Arc<Incident>, Problem> {
    let incident = find(context, id)?.incident;
    match incident.kind.is_attack() {
        true => Ok(incident),
        false => {
            Err(Problem::refused("these are refusals, and no attack: nobody is banned or unblocked for them"))
        }
    }
}

/// Notes that the operator has taken the incident on.
#[utoipa::path(
    post,
    path = "/v1/incidents/{id}/acknowledge",
    operation_id = "acknowledgeIncident",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident")),
    responses((status = 200, body = dto::Incident, description = "the incident"), WriteErrors, NotFoundError)
)]
pub(super) async fn acknowledge(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    by: Operator,
    _: Query<NoParams>,
) -> Result<Json<dto::Incident>, Problem> {
    find(&context, &id)?;
    let said = context.state.clock.now();
    let word = Mute { said, until: said.saturating_add(ACKNOWLEDGED), by: by.0.clone() };
    context.state.registry.incidents().acknowledge(&id, word);
    context.audit(&by, "acknowledge_incident", &format!("incident {id}"), "");
    Ok(Json(incident_dto(&context, &find(&context, &id)?)))
}

/// Mutes the incident, and the next ones of its kind at the same place: they are listed, but not announced.
#[utoipa::path(
    post,
    path = "/v1/incidents/{id}/mute",
    operation_id = "muteIncident",
    tag = "incidents",
    params(("id" = schema::IncidentId, Path, description = "the ID of the incident")),
    request_body(content = dto::NewIncidentMute, description = "for how long", example = json!({"for": "8h"})),
    responses((status = 200, body = dto::Incident, description = "the incident"), WriteErrors, BodyErrors, NotFoundError)
)]
pub(super) async fn mute(
    State(context): State<Arc<HandlerContext>>,
    IncidentParam(id): IncidentParam,
    by: Operator,
    _: Query<NoParams>,
    JsonBody(new): JsonBody<dto::NewIncidentMute>,
) -> Result<Json<dto::Incident>, Problem> {
    let duration = bans::duration(&new.lasts)?;
    find(&context, &id)?;
    let said = context.state.clock.now();
    let until = said.saturating_add(duration);
    context.state.registry.incidents().mute(&id, Mute { said, until, by: by.0.clone() });
    let detail = format!("for {}", time::format_duration(duration));
    context.audit(&by, "mute_incident", &format!("incident {id}"), &detail);
    Ok(Json(incident_dto(&context, &find(&context, &id)?)))
}
