//! `tollgate why`: why requests were denied at some time.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;
use jiff::{
    SignedDuration, Timestamp,
    civil::{DateTime, Time},
    tz::TimeZone,
};

use super::{
    client::{self, AdminError, EXIT_CODES, Options},
    terminal::printable,
};
use crate::{
    admin::dto::{DenialSummary, HistoryEvent},
    telemetry::time::parse_duration,
};

/// Say why requests were denied, now or at some time before
///
/// For example: tollgate why --customer acme --at '2026-11-27 14:05'
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Requests of this customer
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub customer: Option<String>,
    /// Requests of this user
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub user: Option<String>,
    /// Requests of this address, or of addresses in this network
    #[arg(long, value_hint = ValueHint::Other)]
    pub address: Option<String>,
    /// The request with this ID, if it was kept as an example
    #[arg(long, value_name = "ID", value_hint = ValueHint::Other)]
    pub request: Option<String>,
    /// When: 2026-11-27 14:05, or only 14:05 for the last time that it was [default: now]
    #[arg(long, value_name = "TIME", value_hint = ValueHint::Other)]
    pub at: Option<String>,
    /// How long before and after that
    #[arg(long, value_name = "DURATION", default_value = "10m", value_hint = ValueHint::Other)]
    pub within: String,
    /// The time zone of times, such as Europe/Berlin [default: this machine's]
    #[arg(long, value_hint = ValueHint::Other)]
    pub zone: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

impl Args {
    /// About the last minutes of a customer.
    pub(super) fn now(customer: &str, options: Options) -> Self {
        Self {
            customer: Some(customer.to_owned()),
            user: None,
            address: None,
            request: None,
            at: None,
            within: "10m".to_owned(),
            zone: None,
            options,
        }
    }
}

const NOT_KEPT: &str = "No denied request with this ID is kept: of those that are alike in a minute, one is. Ask about its time: --at.\n";

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args, Timestamp::now()))
}

fn output(args: &Args, now: Timestamp) -> Result<String, AdminError> {
    let wrong = |reason: String| AdminError::WrongArgument(reason);
    let zone = match &args.zone {
        Some(name) => TimeZone::get(name).map_err(|_| wrong(format!("--zone: {name} is not a time zone")))?,
        None => TimeZone::system(),
    };
    let at = match &args.at {
        Some(text) => moment(text, &zone, now)
            .ok_or_else(|| wrong(format!("--at: {text} is not a time: write '2026-11-27 14:05'")))?,
        None => now,
    };
    let within = parse_duration(&args.within).filter(|within| *within > 0).map(SignedDuration::from_micros);
    let within = within
        .ok_or_else(|| wrong(format!("--within: {} is not a duration, such as 10m or 2h", args.within)))?;
    let [from, to] = [at.checked_sub(within), at.checked_add(within)];
    let (Ok(from), Ok(to)) = (from, to) else { return Err(wrong("--within is too long".to_owned())) };
    let (from, to) = (from.to_string(), to.min(now.max(at)).to_string());
    let target = client::with_query(
        "/v1/denials/summary",
        &[
            ("customer", args.customer.as_deref()),
            ("user", args.user.as_deref()),
            ("address", args.address.as_deref()),
            ("request", args.request.as_deref()),
            ("from", Some(&from)),
            ("to", Some(&to)),
        ],
    );
    client::request(&args.options, Method::GET, &target, |summary: &DenialSummary| match &args.request {
        Some(_) if summary.groups.is_empty() => NOT_KEPT.to_owned(),
        _ => text(summary, &zone),
    })
}

/// A time in RFC 3339, or in `zone`, with its day or without: then it is the last time that it was.
fn moment(text: &str, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let at = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|time| time.timestamp());
    if let Ok(time) = text.parse::<DateTime>() {
        return at(time);
    }
    let time: Time = text.parse().ok().filter(|_| text.contains(':'))?;
    let today = now.to_zoned(zone.clone()).date();
    let of_today = at(today.to_datetime(time))?;
    match of_today <= now {
        true => Some(of_today),
        false => at(today.yesterday().ok()?.to_datetime(time)),
    }
}

fn text(summary: &DenialSummary, zone: &TimeZone) -> String {
    let time = |text: &str, format: &str| {
        let time = text.parse::<Timestamp>().unwrap_or_default().to_zoned(zone.clone());
        time.strftime(format).to_string()
    };
    let name = zone.iana_name().unwrap_or("this machine's time zone");
    let (from, to) = (time(&summary.from, "%Y-%m-%d %H:%M"), time(&summary.to, "%Y-%m-%d %H:%M"));
    let mut out = format!("{from} to {to} ({name})\n\n");
    if summary.groups.is_empty() {
        out += "No request was denied.\n";
    }
    for group in &summary.groups {
        out += &format!("{}\n", printable(&group.sentence(zone)));
    }
    if summary.truncated {
        out += "There are more: ask about a shorter time, or one customer, user or address.\n";
    }
    if !summary.events.is_empty() {
        out += "\nMeanwhile:\n";
    }
    for HistoryEvent { time: at, by, action, target, detail } in &summary.events {
        let what = [action.as_str(), target, detail].into_iter().filter(|part| !part.is_empty());
        let line = format!("{}: {by}: {}", time(at, "%H:%M:%S"), what.collect::<Vec<_>>().join(" "));
        out += &format!("{}\n", printable(&line));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_lack_its_day_and_its_zone() {
        let now: Timestamp = "2026-11-27T13:30:00Z".parse().unwrap();
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        for (text, expected) in [
            ("2026-11-27T14:05:00Z", "2026-11-27T14:05:00Z"),
            ("2026-11-27 14:05", "2026-11-27T13:05:00Z"),
            ("2026-07-01 14:05:30", "2026-07-01T12:05:30Z"),
            ("14:05", "2026-11-27T13:05:00Z"),
            ("14:31", "2026-11-26T13:31:00Z"),
        ] {
            assert_eq!(moment(text, &berlin, now), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "yesterday", "2026-11-27 25:00", "14"] {
            assert_eq!(moment(text, &berlin, now), None, "{text}");
        }
    }
}
