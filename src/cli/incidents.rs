//! `tollgate incidents`: attacks and refusals of many clients, and acts on them.

use std::process::ExitCode;

use clap::{Subcommand, ValueHint};
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, page_size, place, unshared},
    terminal::{moment, printable, table},
};
use crate::admin::dto::{
    CustomersAtLimit, Incident, IncidentActed, IncidentList, IncidentMember, IncidentMembers,
    IncidentUnblocked, NewIncidentBan, NewIncidentMute, NewIncidentUnblock,
};

/// List attacks and refusals of many clients, show one, or act on it
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<IncidentsCommand>,
    /// The ID of the incident to show, with its addresses
    #[arg(value_hint = ValueHint::Other)]
    id: Option<String>,
    /// Only incidents that go on
    #[arg(long, conflicts_with = "id")]
    open: bool,
    /// Print all addresses of the incident as CSV
    #[arg(long, requires = "id", conflicts_with_all = ["limit", "cursor", "json"])]
    csv: bool,
    /// The number of addresses to list, 1 to 1000 [default: 20]
    #[arg(long, value_name = "NUMBER", requires = "id", value_parser = page_size(), value_hint = ValueHint::Other)]
    limit: Option<u16>,
    /// Continue where the previous page of addresses ended
    #[arg(long, requires = "id", value_hint = ValueHint::Other)]
    cursor: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Subcommand)]
enum IncidentsCommand {
    /// Ban the addresses of an attack, but for possible takeovers, customers, exempt and shared addresses
    Ban(BanArgs),
    /// Lift the bans of its addresses, and clear their limits
    Unblock(UnblockArgs),
    /// Tell other operators that you have taken it on
    Acknowledge(AcknowledgeArgs),
    /// Do not announce it, and the next ones of its kind at the same place
    Mute(MuteArgs),
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct BanArgs {
    /// The ID of the incident
    #[arg(value_hint = ValueHint::Other)]
    id: String,
    /// How long to ban them, 1s to 366d: 30m, 12h, 7d
    #[arg(long = "for", value_name = "DURATION", value_hint = ValueHint::Other)]
    lasts: String,
    /// A note for the list of bans, up to 256 characters [default: what the incident is]
    #[arg(long, value_hint = ValueHint::Other)]
    reason: Option<String>,
    /// Only this address; repeat it for more
    #[arg(long = "address", value_name = "ADDRESS", value_delimiter = ',', value_hint = ValueHint::Other)]
    addresses: Vec<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct UnblockArgs {
    /// The ID of the incident
    #[arg(value_hint = ValueHint::Other)]
    id: String,
    /// Only this address; repeat it for more
    #[arg(long = "address", value_name = "ADDRESS", value_delimiter = ',', value_hint = ValueHint::Other)]
    addresses: Vec<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct AcknowledgeArgs {
    /// The ID of the incident
    #[arg(value_hint = ValueHint::Other)]
    id: String,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct MuteArgs {
    /// The ID of the incident
    #[arg(value_hint = ValueHint::Other)]
    id: String,
    /// How long, 1s to 366d: 30m, 12h, 7d
    #[arg(long = "for", value_name = "DURATION", value_hint = ValueHint::Other)]
    lasts: String,
    #[command(flatten)]
    options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(match &args.command {
        None => output(args),
        Some(IncidentsCommand::Ban(args)) => ban(args),
        Some(IncidentsCommand::Unblock(args)) => unblock(args),
        Some(IncidentsCommand::Acknowledge(args)) => {
            let describe =
                |incident: &Incident| format!("Incident {} is acknowledged.\n", printable(&incident.id));
            let target = path(&args.id, "/acknowledge");
            client::request(&args.options, Method::POST, &target, describe)
        }
        Some(IncidentsCommand::Mute(args)) => {
            let mute = NewIncidentMute { lasts: args.lasts.clone() };
            client::post_json(
                &args.options,
                Method::POST,
                &path(&args.id, "/mute"),
                &mute,
                |incident: &Incident| {
                    let until = incident.muted_until.as_deref().map(moment).unwrap_or_default();
                    format!(
                        "Incident {} is muted until {} UTC.\n",
                        printable(&incident.id),
                        printable(&until)
                    )
                },
            )
        }
    })
}

/// The path of an incident, or of something of it.
fn path(id: &str, of: &str) -> String {
    format!("/v1/incidents/{}{of}", client::percent_encoded(id))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let Some(id) = &args.id else {
        let open = args.open.then_some("true");
        let target = client::with_query("/v1/incidents", &[("open", open)]);
        return client::request(&args.options, Method::GET, &target, list);
    };
    if args.csv {
        return client::text(&args.options, &path(id, "/members?format=csv"));
    }
    if args.options.json {
        let (limit, cursor) = (args.limit.map(|limit| limit.to_string()), args.cursor.as_deref());
        let target =
            client::with_query(&path(id, "/members"), &[("limit", limit.as_deref()), ("cursor", cursor)]);
        return client::request(&args.options, Method::GET, &target, |_: &IncidentMembers| String::new());
    }
    let mut text = match args.cursor {
        Some(_) => String::new(),
        None => client::request(&args.options, Method::GET, &path(id, ""), facts)?,
    };
    let limit = args.limit.unwrap_or(20).to_string();
    let query = [("limit", Some(limit.as_str())), ("cursor", args.cursor.as_deref())];
    let target = client::with_query(&path(id, "/members"), &query);
    text += &client::request(&args.options, Method::GET, &target, members)?;
    Ok(text)
}

fn list(list: &IncidentList) -> String {
    let mut text = String::new();
    for fault in &list.faults {
        let since =
            fault.since.as_deref().map(|since| format!(", since {} UTC", moment(since))).unwrap_or_default();
        text += &format!("{}{}\n", printable(&fault.text), printable(&since));
    }
    if !list.faults.is_empty() {
        text += "\n";
    }
    if list.partial {
        text += "Redis is away: this instance sees only its own requests.\n\n";
    }
    let row = |incident: &Incident| {
        let state = match (&incident.end, &incident.muted_until, &incident.acknowledged) {
            (Some(_), ..) => "over",
            (None, Some(_), _) => "muted",
            (None, None, Some(_)) => "acknowledged",
            (None, None, None) => "now",
        };
        [incident.id.clone(), moment(&incident.start), state.to_owned(), incident.text.clone()]
    };
    match list.incidents.is_empty() {
        true => text += "There are no incidents.\n",
        false => text += &table(["ID", "SINCE (UTC)", "STATE", "INCIDENT"], list.incidents.iter().map(row)),
    }
    for CustomersAtLimit { policy, customers } in &list.customers_at_limits {
        let plural = if *customers == 1 { "customer is" } else { "customers are" };
        text += &format!("\n{customers} {plural} at the limit of {}.\n", printable(policy));
    }
    text
}

fn facts(incident: &Incident) -> String {
    let end = match &incident.end {
        Some(end) => format!("to {} UTC", moment(end)),
        None => "and it goes on".to_owned(),
    };
    let mut text = format!(
        "{}\n\nsince      {} UTC, {}\naddresses  {}: {} denied, {} let in after failing\nrequests   {}, {} in the busiest minute\n",
        printable(&incident.text),
        printable(&moment(&incident.start)),
        printable(&end),
        incident.addresses,
        incident.denied_addresses,
        incident.possible_takeovers,
        incident.requests,
        incident.peak_per_minute,
    );
    for (name, names) in [("routes", &incident.routes), ("policies", &incident.policies)] {
        if !names.is_empty() {
            text += &format!("{name:<9}  {}\n", printable(&names.join(", ")));
        }
    }
    for (name, count) in [("users", incident.users), ("agents", incident.user_agents)] {
        if count > 0 {
            text += &format!("{name:<9}  about {count}\n");
        }
    }
    if let Some(network) = &incident.network {
        text += &format!(
            "network    {} has {} of the addresses\n",
            printable(&network.prefix),
            network.addresses
        );
    }
    text + "\n"
}

fn members(page: &IncidentMembers) -> String {
    let row = |member: &IncidentMember| {
        let mut notes: Vec<&str> = Vec::new();
        notes.extend(member.possible_takeover.then_some("let in after failing"));
        notes.extend(member.banned.then_some("banned"));
        notes.extend(member.spared.as_deref());
        notes.extend(member.hint.as_deref().filter(|hint| Some(*hint) != member.spared.as_deref()));
        [
            member.address.clone(),
            member.refused.to_string(),
            member.denied.to_string(),
            member.let_in.to_string(),
            moment(&member.last),
            notes.join(", "),
        ]
    };
    let head = ["ADDRESS", "REFUSED", "DENIED", "LET IN", "LAST (UTC)", "NOTE"];
    let mut text = table(head, page.members.iter().map(row));
    if let Some(cursor) = &page.cursor {
        text += &format!("\nFor the next page, add --cursor {}; for all, --csv\n", printable(cursor));
    }
    text
}

fn ban(args: &BanArgs) -> Result<String, AdminError> {
    let BanArgs { id, lasts, reason, addresses, options } = args.clone();
    let addresses = (!addresses.is_empty()).then_some(addresses);
    let ban = NewIncidentBan { lasts, reason, addresses };
    client::post_json(&options, Method::POST, &path(&id, "/ban"), &ban, |acted: &IncidentActed| {
        done("banned", acted)
    })
}

fn unblock(args: &UnblockArgs) -> Result<String, AdminError> {
    let addresses = (!args.addresses.is_empty()).then(|| args.addresses.clone());
    let body = NewIncidentUnblock { addresses };
    let describe = |IncidentUnblocked { addresses, left, shared }: &IncidentUnblocked| {
        let left = match left {
            0 => String::new(),
            left => format!("{left} are left: repeat the command.\n"),
        };
        done("unblocked", &IncidentActed { addresses: *addresses, spared: Vec::new(), shared: *shared })
            + &left
    };
    client::post_json(&args.options, Method::POST, &path(&args.id, "/unblock"), &body, describe)
}

fn done(what: &str, IncidentActed { addresses, spared, shared }: &IncidentActed) -> String {
    let plural = if *addresses == 1 { " is" } else { "es are" };
    let mut text = format!("{addresses} address{plural} {what}{}.\n{}", place(*shared), unshared(*shared));
    for member in spared {
        text += &format!("{} is spared: {}\n", printable(&member.address), printable(&member.because));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_faults_first_and_customers_last() {
        let incident = Incident {
            id: "0a1b2c3d".into(),
            kind: "password guessing".into(),
            attack: true,
            text: "40 addresses, POST /login, password guessing, 13/s at most; 5 were denied".into(),
            start: "2026-07-03T11:20:00Z".into(),
            last: "2026-07-03T11:29:00Z".into(),
            end: None,
            peak_per_minute: 780,
            routes: vec!["/login".into()],
            policies: Vec::new(),
            addresses: 40,
            denied_addresses: 5,
            possible_takeovers: 1,
            requests: 5_000,
            users: 0,
            user_agents: 3,
            network: None,
            partial: false,
            acknowledged: None,
            muted_until: None,
        };
        let all = IncidentList {
            incidents: vec![incident.clone()],
            faults: vec![crate::admin::dto::Fault {
                text: "Redis is down".into(),
                since: Some("2026-07-03T11:00:00Z".into()),
            }],
            customers_at_limits: vec![CustomersAtLimit { policy: "plan".into(), customers: 5 }],
            partial: false,
        };
        let text = list(&all);
        assert!(text.starts_with("Redis is down, since 2026-07-03 11:00:00 UTC\n\nID"), "{text}");
        assert!(
            text.contains("40 addresses, POST /login")
                && text.ends_with("5 customers are at the limit of plan.\n"),
            "{text}"
        );
        let shown = facts(&incident);
        assert!(
            shown.contains("addresses  40: 5 denied, 1 let in after failing\n")
                && shown.contains("agents     about 3"),
            "{shown}"
        );
        assert_eq!(
            done(
                "banned",
                &IncidentActed {
                    addresses: 38,
                    spared: vec![crate::admin::dto::SparedMember {
                        address: "10.0.0.1".into(),
                        because: "exempt".into()
                    }],
                    shared: true
                }
            ),
            format!("38 addresses are banned{}.\n10.0.0.1 is spared: exempt\n", place(true))
        );
    }
}
