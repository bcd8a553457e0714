//! The history: usage, and denials.

use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;
use crate::abuse::bans::MANUAL;

/// `GET /v1/usage`: what was used, in the order of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// The time zone of its days: `Europe/Berlin`.
    pub zone: String,
    /// The first day.
    #[schema(value_type = schema::Date)]
    pub from: String,
    /// The last day.
    #[schema(value_type = schema::Date)]
    pub to: String,
    /// `open`: it may still grow. `closed`: a month whose sums stay as they are. `incomplete`: the same, but some process had
    /// not reported all of it.
    #[schema(value_type = schema::UsageState)]
    pub state: String,
    pub rows: Vec<UsageRow>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// What was used. It has the members that were asked for with `by`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// Empty: requests without a customer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// `(unverified)`: users that nobody has verified. Empty: requests without a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Empty: requests that no route matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The value that tells usage apart, such as the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `2026-11-27`, in the time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// `2026-11-27T14:00Z`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `2xx`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Whether it came after its month was closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// All requests, with the denied ones. 0 by `policy`.
    pub requests: u64,
    /// Requests that a limit or a ban has denied.
    pub denied: u64,
    pub status_1xx: u64,
    pub status_2xx: u64,
    pub status_3xx: u64,
    /// With the denied ones.
    pub status_4xx: u64,
    pub status_5xx: u64,
    /// What each policy has charged, or would have without an exemption.
    pub units: Vec<UsedUnits>,
}

/// What a policy has charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsedUnits {
    pub policy: String,
    pub units: u64,
}

/// `POST /v1/usage/close`: the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseMonth {
    /// `2026-11`
    #[schema(value_type = schema::Month)]
    pub month: String,
    /// By default, the zone of the first policy with a calendar, or UTC.
    #[serde(default)]
    pub zone: Option<String>,
}

/// A month that is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedMonth {
    #[schema(value_type = schema::Month)]
    pub month: String,
    pub zone: String,
    /// Whether every process had reported all of it.
    pub complete: bool,
}

/// `GET /v1/denials`: who was denied, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Denials {
    pub denials: Vec<Denial>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// Requests of one client that were denied in one minute for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Denial {
    /// The minute.
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// An address; or a network, where very many were denied in this minute.
    pub address: String,
    pub customer: Option<String>,
    pub user: Option<String>,
    pub plan: Option<String>,
    /// Why they were denied.
    #[schema(value_type = schema::DenialKind)]
    pub kind: String,
    /// The policy, or the rule of the ban.
    pub policy: Option<String>,
    /// The policy's limit: `60/1m`.
    pub limit: Option<String>,
    pub route: Option<String>,
    pub method: String,
    /// How many there were.
    pub count: u64,
    #[schema(value_type = schema::Time)]
    pub first: String,
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// One of them.
    pub sample: DenialSample,
}

/// One of several requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DenialSample {
    pub status: u16,
    pub path: String,
    pub host: String,
    pub user_agent: String,
    pub request_id: String,
}

/// `GET /v1/denials/summary`: why requests were denied in a time, and what happened then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DenialSummary {
    #[schema(value_type = schema::Time)]
    pub from: String,
    #[schema(value_type = schema::Time)]
    pub to: String,
    /// Oldest first.
    pub groups: Vec<DenialGroup>,
    /// How many requests were denied in each minute in which there were any. Oldest first.
    pub timeline: Vec<DeniedMinute>,
    /// Changes and warnings in this time that name who was asked for, or all if nobody was. Oldest first.
    pub events: Vec<HistoryEvent>,
    /// Whether there were more denials than were read.
    pub truncated: bool,
}

/// How many requests were denied in a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeniedMinute {
    #[schema(value_type = schema::Time)]
    pub time: String,
    pub count: u64,
}

/// Requests of one customer or user that were denied for the same reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DenialGroup {
    pub customer: Option<String>,
    pub user: Option<String>,
    pub plan: Option<String>,
    #[schema(value_type = schema::DenialKind)]
    pub kind: String,
    pub policy: Option<String>,
    pub limit: Option<String>,
    pub route: Option<String>,
    pub method: String,
    /// The path of one of them.
    pub path: Option<String>,
    pub count: u64,
    /// How many addresses or networks.
    pub addresses: usize,
    /// The one with the most requests.
    pub address: String,
    #[schema(value_type = schema::Time)]
    pub first: String,
    #[schema(value_type = schema::Time)]
    pub last: String,
    pub status: u16,
    /// The ID of one of the requests.
    pub request_id: String,
}

/// Something that was changed, or happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEvent {
    #[schema(value_type = schema::Time)]
    pub time: String,
    pub by: String,
    pub action: String,
    pub target: String,
    pub detail: String,
}

/// The columns of usage as CSV, which do not change. Those of dimensions that were not asked for are empty.
const USAGE_COLUMNS: [&str; 22] = [
    "zone",
    "from",
    "to",
    "state",
    "late",
    "customer",
    "user",
    "plan",
    "route",
    "value",
    "day",
    "hour",
    "status",
    "requests",
    "denied",
    "status_1xx",
    "status_2xx",
    "status_3xx",
    "status_4xx",
    "status_5xx",
    "policy",
    "units",
];
/// The columns of denials as CSV, which do not change.
const DENIAL_COLUMNS: [&str; 18] = [
    "time",
    "address",
    "customer",
    "user",
    "plan",
    "kind",
    "policy",
    "limit",
    "route",
    "method",
    "count",
    "first",
    "last",
    "status",
    "path",
    "host",
    "user_agent",
    "request_id",
];

/// A table of CSV (RFC 4180). A cell that a spreadsheet would take for a formula gets an apostrophe: clients choose some.
fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = csv::Writer::from_writer(Vec::new());
    let safe = |cell: String| match cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{cell}"),
        false => cell,
    };
    // Writing to memory does not fail.
    let _written = table.write_record(columns);
    for row in rows {
        let _written = table.write_record(row.into_iter().map(safe));
    }
    String::from_utf8_lossy(&table.into_inner().unwrap_or_default()).into_owned()
}

impl Usage {
    /// A row for the requests of each row, and one for the units of each policy.
    pub fn csv(&self) -> String {
        let of_row = |row: &UsageRow| {
            let text = |key: &Option<String>| key.clone().unwrap_or_default();
            let late = if row.late { "true" } else { "false" }.to_owned();
            let of_all = [self.zone.clone(), self.from.clone(), self.to.clone(), self.state.clone(), late];
            let keys = [
                &row.customer,
                &row.user,
                &row.plan,
                &row.route,
                &row.value,
                &row.day,
                &row.hour,
                &row.status,
            ];
            let start: Vec<String> = of_all.into_iter().chain(keys.map(text)).collect();
            let counts = [
                row.requests,
                row.denied,
                row.status_1xx,
                row.status_2xx,
                row.status_3xx,
                row.status_4xx,
                row.status_5xx,
            ];
            let counts = counts.map(|count| count.to_string());
            let none = || String::new();
            let of_requests = start.iter().cloned().chain(counts).chain([none(), none()]).collect();
            let of_units = row.units.iter().map(|of| {
                let units = [of.policy.clone(), of.units.to_string()];
                start.iter().cloned().chain(std::iter::repeat_n(none(), 7)).chain(units).collect()
            });
            let of_requests: Option<Vec<String>> = row.policy.is_none().then_some(of_requests);
            of_requests.into_iter().chain(of_units).collect::<Vec<Vec<String>>>()
        };
        table(&USAGE_COLUMNS, self.rows.iter().flat_map(of_row))
    }
}

impl Denials {
    /// A row for each.
    pub fn csv(&self) -> String {
        let of = |denial: &Denial| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let sample = denial.sample.clone();
            vec![
                denial.time.clone(),
                denial.address.clone(),
                text(&denial.customer),
                text(&denial.user),
                text(&denial.plan),
                denial.kind.clone(),
                text(&denial.policy),
                text(&denial.limit),
                text(&denial.route),
                denial.method.clone(),
                denial.count.to_string(),
                denial.first.clone(),
                denial.last.clone(),
                sample.status.to_string(),
                sample.path,
                sample.host,
                sample.user_agent,
                sample.request_id,
            ]
        };
        table(&DENIAL_COLUMNS, self.denials.iter().map(of))
    }
}

impl DenialGroup {
    /// `14:04–14:06: 31 requests of acme, such as POST /v1/orders, were denied by per-minute (60/1m, plan free); 2 addresses.`
    pub fn sentence(&self, zone: &TimeZone) -> String {
        let minute = |time: &str| {
            let time = time.parse::<Timestamp>().unwrap_or_default().to_zoned(zone.clone());
            time.strftime("%H:%M").to_string()
        };
        let (first, last) = (minute(&self.first), minute(&self.last));
        let when = if first == last { first } else { format!("{first}–{last}") };
        let requests =
            if self.count == 1 { "1 request".to_owned() } else { format!("{} requests", self.count) };
        let whose = match (&self.customer, &self.user) {
            (Some(customer), Some(user)) if customer != user => format!("{user} ({customer})"),
            (Some(who), _) | (None, Some(who)) => who.clone(),
            (None, None) => self.address.clone(),
        };
        // One example is kept of many requests, which may have had other paths.
        let example = match &self.path {
            Some(path) if self.count == 1 => format!(" to {} {path}", self.method),
            Some(path) => format!(", such as {} {path},", self.method),
            None => String::new(),
        };
        let were = if self.count == 1 { "was" } else { "were" };
        let plan = self.plan.as_ref().map(|plan| format!("plan {plan}"));
        let details: Vec<String> = self.limit.iter().cloned().chain(plan).collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let policy = self.policy.as_deref().unwrap_or_default();
        let by = match self.kind.as_str() {
            "limit" => format!("denied by {policy}{details}"),
            "ban" if policy == MANUAL => "refused by an operator's ban".to_owned(),
            "ban" => format!("refused by a ban ({policy})"),
            "deny" => "refused by `deny`".to_owned(),
            "allow" => "refused by `allow`".to_owned(),
            "credential" => "refused for lack of a valid credential".to_owned(),
            _ => format!("denied by {policy}, as they lack the value that it counts by"),
        };
        let addresses = match self.addresses {
            0 | 1 if self.customer.is_none() && self.user.is_none() => String::new(),
            0 | 1 => format!("; from {}", self.address),
            many => format!("; {many} addresses"),
        };
        format!("{when}: {requests} of {whose}{example} {were} {by}{addresses}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_sentence() {
        let group = DenialGroup {
            customer: Some("acme".into()),
            plan: Some("free".into()),
            kind: "limit".into(),
            policy: Some("per-minute".into()),
            limit: Some("60/1m".into()),
            method: "POST".into(),
            path: Some("/v1/orders".into()),
            count: 31,
            addresses: 2,
            first: "2026-11-27T13:04:10Z".into(),
            last: "2026-11-27T13:06:59Z".into(),
            ..DenialGroup::default()
        };
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            group.sentence(&berlin),
            "14:04–14:06: 31 requests of acme, such as POST /v1/orders, were denied by per-minute (60/1m, plan free); 2 addresses."
        );
        let one = DenialGroup {
            kind: "credential".into(),
            address: "203.0.113.7".into(),
            method: "GET".into(),
            count: 1,
            addresses: 1,
            first: "2026-11-27T13:04:10Z".into(),
            last: "2026-11-27T13:04:10Z".into(),
            ..DenialGroup::default()
        };
        assert_eq!(
            one.sentence(&TimeZone::UTC),
            "13:04: 1 request of 203.0.113.7 was refused for lack of a valid credential."
        );
    }

    fn usage() -> Usage {
        let row = |customer: &str, requests, units| UsageRow {
            customer: Some(customer.into()),
            requests,
            status_2xx: requests,
            units: vec![UsedUnits { policy: "monthly".into(), units }],
            ..UsageRow::default()
        };
        Usage {
            zone: "Europe/Berlin".into(),
            from: "2026-11-01".into(),
            to: "2026-11-30".into(),
            state: "closed".into(),
            rows: vec![row("", 3, 1), row("acme, \"inc\"", 400, 400)],
            cursor: None,
        }
    }

    #[test]
    fn the_columns_of_csv_are_always_the_same() {
        let table = usage().csv();
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), USAGE_COLUMNS);
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let of = |row: usize, column: &str| {
            let at = USAGE_COLUMNS.iter().position(|name| *name == column).unwrap();
            rows[row].get(at).unwrap().to_owned()
        };
        assert_eq!(rows.len(), 4);
        assert_eq!([of(2, "customer"), of(2, "requests"), of(2, "units")], ["acme, \"inc\"", "400", ""]);
        assert_eq!([of(3, "policy"), of(3, "units"), of(3, "requests")], ["monthly", "400", ""]);
    }

    #[test]
    fn a_cell_is_never_a_formula() {
        assert_eq!(
            table(&["a"], [vec!["=1+1".to_owned()], vec!["a,b".to_owned()]].into_iter()),
            "a\n'=1+1\n\"a,b\"\n"
        );
    }
}
