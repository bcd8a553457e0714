//! `GET /incidents` and `GET /incidents/{id}`: what many clients do together, and acts on them.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        dto::{CustomersAtLimit, Fault, Incident, IncidentList, IncidentMember, IncidentMembers},
        extract::{IncidentParam, Query, RemoteAddress},
        incidents::{Acts, IncidentsQuery, MembersQuery, find, incident_dto, list_dto, members_page},
        problem::Problem,
    },
    components::{self, percent_encode},
    dialogs,
    format::{format_count, format_duration, parse_micros},
    layout::{NavItem, Page, PageFrame},
};

/// Incidents and faults that the overview shows.
const SHOWN: usize = 5;

pub(super) async fn incidents(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<IncidentsQuery>, Problem>,
) -> Response {
    let page = query.map(|Query(query)| {
        let mut list = list_dto(&context, &query);
        // The frame of the page has them already.
        let outages = context.state.warnings.outages();
        list.faults.retain(|fault| !outages.iter().any(|outage| outage.text == fault.text));
        Page { title: "Incidents".to_owned(), body: view(&list, context.state.clock.now()) }
    });
    frame.render(NavItem::Incidents, page)
}

fn view(list: &IncidentList, now: i64) -> Markup {
    let is_open = |incident: &&Incident| incident.end.is_none();
    let (open, over): (Vec<_>, Vec<_>) = list.incidents.iter().partition(is_open);
    html! {
        div.head {
            div {
                h1 { "Incidents" }
                p.meta { "Attacks and refusals that many addresses take part in, as all instances see them" @if list.partial { ". Redis is away: this instance sees only its own requests." } }
            }
        }
        section aria-labelledby="open" {
            div.bar-head { h2 #open { "Now" } }
            (faults(&list.faults, now))
            @if open.is_empty() {
                div.card { (components::empty_state("No incidents", "Nobody guesses passwords from many addresses, and no group of clients is refused more than usual.")) }
            } @else {
                (cards(&open, now))
            }
        }
        (customers(&list.customers_at_limits))
        @if !over.is_empty() {
            section aria-labelledby="over" {
                div.bar-head { h2 #over { "Over" } }
                (cards(&over, now))
            }
        }
    }
}

/// What does not work.
fn faults(faults: &[Fault], now: i64) -> Markup {
    html! {
        @if !faults.is_empty() {
            div.notice {
                ul {
                    @for fault in faults {
                        li { (components::with_code(&fault.text)) @if let Some(since) = &fault.since { span.since { (components::time_ago(since, now)) } } }
                    }
                }
            }
        }
    }
}

fn customers(customers: &[CustomersAtLimit]) -> Markup {
    html! {
        @if !customers.is_empty() {
            section aria-labelledby="customers" {
                div.bar-head { h2 #customers { "Customers at their limits" } a href="/customers" { "All" span.hidden { " customers" } } }
                div.card.pad {
                    ul {
                        @for of in customers {
                            li { (format_count(of.customers)) @if of.customers == 1 { " customer" } @else { " customers" } " at the limit of " code { (components::untrusted(&of.policy)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The first block of the overview: what goes on now. Nothing without incidents.
pub(super) fn now_open(context: &HandlerContext, now: i64) -> Markup {
    let list = list_dto(context, &IncidentsQuery { open: Some(true) });
    let open: Vec<_> = list.incidents.iter().filter(|incident| incident.muted_until.is_none()).collect();
    html! {
        @if !open.is_empty() {
            section aria-labelledby="incidents" {
                div.bar-head { h2 #incidents { "Incidents" } a href="/incidents" { "All" span.hidden { " incidents" } } }
                (cards(&open[..open.len().min(SHOWN)], now))
                @if open.len() > SHOWN { p.faint { "and " (open.len() - SHOWN) " more" } }
            }
        }
    }
}

fn cards(incidents: &[&Incident], now: i64) -> Markup {
    html! {
        div.card.incidents {
            @for incident in incidents {
                article.incident data-key={ "incident " (incident.id) } {
                    div.line {
                        (kind_badge(incident))
                        a.plain href={ "/incidents/" (incident.id) } { (components::untrusted(&incident.text)) }
                    }
                    p.meta {
                        span { "since " (components::time_of_day(&incident.start)) " UTC" }
                        @match &incident.end {
                            Some(end) => span { "ended " (components::time_ago(end, now)) },
                            None => span { "last seen " (components::time_ago(&incident.last, now)) },
                        }
                        @if incident.possible_takeovers > 0 { span.bad { (incident.possible_takeovers) " let in after failing" } }
                        @if let Some(word) = &incident.acknowledged { span { "acknowledged by " (components::untrusted(&word.by)) } }
                        @if let Some(until) = &incident.muted_until { span { "muted for " (components::time_left(until, now)) } }
                        @if incident.partial { span { "of this instance alone: Redis is away" } }
                    }
                }
            }
        }
    }
}

fn kind_badge(incident: &Incident) -> Markup {
    let class = match (incident.attack, &incident.end) {
        (_, Some(_)) => "badge quiet",
        (true, None) => "badge bad",
        (false, None) => "badge warn",
    };
    html! { span class=(class) { (incident.kind) } " " }
}

pub(super) async fn incident(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    IncidentParam(id): IncidentParam,
    peer: Option<Extension<RemoteAddress>>,
    query: Result<Query<MembersQuery>, Problem>,
) -> Response {
    let page = query.and_then(|Query(query)| {
        let kept = find(&context, &id)?;
        let acts = Acts::new(&context, peer.map(|Extension(RemoteAddress(address))| address));
        let members = members_page(&kept.incident, &acts, &query)?;
        let now = context.state.clock.now();
        let body = one(&incident_dto(&context, &kept), &members, query.cursor.is_none(), now);
        Ok(Page { title: format!("Incident {id}"), body })
    });
    frame.render(NavItem::Incidents, page)
}

fn one(incident: &Incident, members: &IncidentMembers, is_first: bool, now: i64) -> Markup {
    let end = incident.end.as_deref();
    let lasted = parse_micros(end.unwrap_or(&incident.last)) - parse_micros(&incident.start);
    let listed = |names: &[String]| html! { (components::chips(names)) };
    html! {
        div.head {
            div {
                h1 { (components::untrusted(&incident.text)) }
                p.meta {
                    (kind_badge(incident))
                    span { "Incident " code { (incident.id) } }
                    @match end {
                        Some(end) => span { "ended " (components::time_ago(end, now)) },
                        None => span { "goes on, last seen " (components::time_ago(&incident.last, now)) },
                    }
                    @if let Some(word) = &incident.acknowledged { span { "acknowledged by " (components::untrusted(&word.by)) } }
                    @if let Some(until) = &incident.muted_until { span { "muted for " (components::time_left(until, now)) } }
                }
            }
            div.buttons.js {
                @if incident.attack {
                    (dialogs::open_button("ban-incident", "Ban …", "danger"))
                    (dialogs::open_button("unblock-incident", "Unblock …", ""))
                }
                @if incident.acknowledged.is_none() { (dialogs::open_button("acknowledge-incident", "Acknowledge …", "")) }
                (dialogs::open_button("mute-incident", "Mute …", ""))
                a.button href={ "/v1/incidents/" (incident.id) "/members?format=csv" } download={ "incident-" (incident.id) ".csv" } { "CSV" }
            }
        }
        section aria-labelledby="facts" {
            h2.hidden #facts { "Facts" }
            dl.tiles {
                div { dt { "Addresses" } dd { (format_count(incident.addresses)) } }
                div { dt { "Denied" } dd { (format_count(incident.denied_addresses as u64)) } }
                div { dt { "Let in after failing" } dd.bad[incident.possible_takeovers > 0] { (format_count(incident.possible_takeovers as u64)) } }
                div { dt { "Requests" } dd { (format_count(incident.requests)) } }
                div { dt { "Busiest minute" } dd { (format_count(incident.peak_per_minute.into())) } }
            }
            div.card.pad {
                dl.facts {
                    div { dt { "Since" } dd { (components::utc(&incident.start)) ", for " (format_duration(lasted.max(0))) } }
                    @if !incident.routes.is_empty() { div { dt { "Routes" } dd { (listed(&incident.routes)) } } }
                    @if !incident.policies.is_empty() { div { dt { "Policies" } dd { (listed(&incident.policies)) } } }
                    @if incident.users > 0 { div { dt { "Users that were tried" } dd { "about " (format_count(incident.users)) } } }
                    @if incident.user_agents > 0 { div { dt { "User-Agents" } dd { "about " (format_count(incident.user_agents)) } } }
                    @if let Some(network) = &incident.network {
                        div { dt { "Network" } dd { span.mono { (network.prefix) } " has " (network.addresses) " of the addresses" } }
                    }
                }
            }
            @if incident.possible_takeovers > 0 {
                p.notice { "Addresses that were let in after failing come first. They may have found a password: end the sessions of these users, and ask them for new passwords. They are not banned with the others." }
            }
            @if !incident.attack {
                p.faint { "Nothing says that these clients attack, so there is nothing to ban." }
            }
        }
        section aria-labelledby="members" {
            div.bar-head { h2 #members { "Addresses" } }
            div.card { (table(&members.members, now)) }
            nav.pages aria-label="Pages of the list" {
                @if !is_first { a.button href={ "/incidents/" (incident.id) } { "First page" } }
                @if let Some(next) = &members.cursor { a.button rel="next" href={ "/incidents/" (incident.id) "?cursor=" (percent_encode(next)) } { "Next page" } }
            }
        }
        (dialogs::of_incident(&incident.id, &incident.kind))
    }
}

fn table(members: &[IncidentMember], now: i64) -> Markup {
    html! {
        table.cards {
            caption.hidden { "Addresses of the incident" }
            thead { tr {
                th scope="col" { "Address" } th scope="col" { "Note" }
                th.num scope="col" { "Refused" } th.num scope="col" { "Denied" } th.num scope="col" { "Let in" } th.num scope="col" { "Last seen" }
            } }
            tbody {
                @for member in members {
                    tr data-key=(member.address) {
                        th scope="row" { (components::address_link(&member.address)) @if member.banned { " " span.badge.bad { "Banned" } } }
                        td data-label="Note" {
                            @if member.possible_takeover { span.badge.bad { "let in after failing" } " " }
                            @if let Some(spared) = &member.spared { span.badge { (spared) } " " }
                            @if let Some(hint) = &member.hint { span.badge.quiet { (hint) } }
                        }
                        td.num data-label="Refused" { (format_count(member.refused.into())) }
                        td.num data-label="Denied" { (format_count(member.denied.into())) }
                        td.num data-label="Let in" { (format_count(member.let_in.into())) }
                        td.num data-label="Last seen" { (components::time_ago(&member.last, now)) }
                    }
                }
            }
        }
    }
}
