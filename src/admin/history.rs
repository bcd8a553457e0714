//! `/v1/usage` and `/v1/denials`: what was used, and who was denied, asked later.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use ipnet::IpNet;
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    context::HandlerContext,
    dto::{self, schema},
    extract::{JsonBody, Operator, Query},
    openapi::{LookupErrors, RefusedError, UnavailableError, WriteErrors},
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    abuse,
    history::{
        Closing, Denial, DenialQuestion, Dimension, History, HistoryError, HistoryEvent, Month, UsageAnswer,
        UsageQuestion, UsageRow,
    },
    telemetry::time::rfc3339,
};

/// Rows of denials that a summary reads.
const MAX_SUMMARIZED: usize = 50_000;
/// Events beside a summary.
const MAX_EVENTS: usize = 100;
/// Most rows of usage in a page.
pub(super) const MAX_USAGE: usize = 50_000;
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Unavailable(_) => Self::unavailable(error.to_string()),
            HistoryError::Refused(_) | HistoryError::Unfit(_) => Self::refused(error.to_string()),
        }
    }
}

/// The history, if one is kept.
pub(super) fn kept(context: &HandlerContext) -> Result<&Arc<History>, Problem> {
    let none = || Problem::not_found("no history is kept: set `history` in proxy.yaml, and restart Tollgate");
    context.state.history.as_ref().ok_or_else(none)
}

/// The time zone of this name, or the one of questions that name none.
pub(super) fn zone(context: &HandlerContext, name: Option<&str>) -> Result<(String, TimeZone), Problem> {
    let config = context.state.active_config.snapshot();
    let known: Vec<&str> = config.history.iter().flat_map(|plan| plan.zone_names()).collect();
    let name = name.or_else(|| known.first().copied()).unwrap_or("UTC").to_owned();
    let Some(name) = known.iter().find(|known| known.eq_ignore_ascii_case(&name)) else {
        let detail =
            format!("usage is not kept by days of {}, but of {}", name.escape_debug(), known.join(", "));
        return Err(Problem::bad_request(detail));
    };
    let zone = TimeZone::get(name).map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(((*name).to_owned(), zone))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// The month; by default, the current one.
    #[param(value_type = Option<schema::Month>)]
    pub(super) month: Option<String>,
    /// The first day, in place of a month.
    #[param(value_type = Option<schema::Date>)]
    pub(super) from: Option<String>,
    /// The last day, in place of a month.
    #[param(value_type = Option<schema::Date>)]
    pub(super) to: Option<String>,
    /// The time zone of days: one that a policy's calendar has. By default, that of the first policy with a calendar; if
    /// there is none, UTC.
    #[param(example = "Europe/Berlin")]
    pub(super) zone: Option<String>,
    /// Only this customer.
    pub(super) customer: Option<String>,
    /// Only this user, as records name it.
    pub(super) user: Option<String>,
    /// What tells rows apart: `customer` (the default), `user`, `plan`, `route`, `value`, `day`, `hour`, `policy` and
    /// `status`, or several with commas between them.
    #[param(example = "customer,day")]
    pub(super) by: Option<String>,
    /// Rows per page; 100 by default. Rows of one page are of one moment.
    #[param(minimum = 1, maximum = 50000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// Shows what was used: requests of customers or users, and the units that policies have charged for them. It lags a few seconds
/// behind.
#[utoipa::path(
    get,
    path = "/v1/usage",
    operation_id = "usage",
    tag = "history",
    params(UsageQuery),
    responses((status = 200, body = dto::Usage, description = "one page of rows"), LookupErrors, UnavailableError)
)]
pub(super) async fn usage(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<dto::Usage>, Problem> {
    page_of_usage(&context, &query).await.map(Json)
}

/// A page of usage.
pub(super) async fn page_of_usage(
    context: &HandlerContext,
    query: &UsageQuery,
) -> Result<dto::Usage, Problem> {
    let history = kept(context)?;
    let limit = query.limit.unwrap_or(100);
    if !(1..=MAX_USAGE).contains(&limit) {
        return Err(Problem::bad_request(format!("limit must be 1 to {MAX_USAGE}")));
    }
    let after = decode_cursor(query.cursor.as_deref(), Some::<(Vec<String>, bool)>)?;
    let (question, by_status) = question(context, query)?;
    let answer = history.usage(question.clone()).await?;
    let UsageAnswer { closed, rows } = answer;
    let rows = if by_status { rows.iter().flat_map(by_class).collect() } else { rows };
    let is_new = |row: &&UsageRow| {
        after.as_ref().is_none_or(|(keys, is_late)| (&row.keys, row.is_late) > (keys, *is_late))
    };
    let mut found = rows.iter().filter(is_new);
    let page: Vec<&UsageRow> = found.by_ref().take(limit).collect();
    let has_more = found.next().is_some();
    let last = page.last().filter(|_| has_more);
    let day_before = question.to.checked_sub(1.day()).unwrap_or(question.to);
    Ok(dto::Usage {
        zone: question.zone.0.clone(),
        from: question.from.to_string(),
        to: day_before.to_string(),
        state: match closed {
            None => "open",
            Some(true) => "closed",
            Some(false) => "incomplete",
        }
        .to_owned(),
        cursor: last.map(|row| encode_cursor(&(&row.keys, row.is_late))),
        rows: page.into_iter().map(|row| shown(&question, by_status, row)).collect(),
    })
}

/// The question of a query, and whether rows are told apart by the class of their status.
pub(super) fn question(
    context: &HandlerContext,
    query: &UsageQuery,
) -> Result<(UsageQuestion, bool), Problem> {
    let zone = zone(context, query.zone.as_deref())?;
    let now = Timestamp::from_microsecond(context.state.clock.now()).unwrap_or_default();
    let today = now.to_zoned(zone.1.clone()).date();
    let (from, to) = match (&query.month, &query.from, &query.to) {
        (None, None, None) => days_of(Month::of(today)),
        (Some(month), None, None) => days_of(month_of(month)?),
        (None, Some(from), to) => {
            let to = to.as_deref().map_or(Ok(today), date_of)?;
            (date_of(from)?, to.checked_add(1.day()).unwrap_or(to))
        }
        _ => return Err(Problem::bad_request("name a month, or the first day (from) and the last (to)")),
    };
    if from >= to {
        return Err(Problem::bad_request("the last day is before the first"));
    }
    let mut by_status = false;
    let mut by = Vec::new();
    for name in query.by.as_deref().unwrap_or("customer").split(',').map(str::trim) {
        match (name, Dimension::named(name)) {
            ("status", _) => by_status = true,
            (_, Some(dimension)) if !by.contains(&dimension) => by.push(dimension),
            (_, Some(_)) => {}
            (name, None) => {
                let all: Vec<&str> = Dimension::ALL.iter().map(|of| of.name()).chain(["status"]).collect();
                let detail =
                    format!("usage is not told apart by {}, but by {}", name.escape_debug(), all.join(", "));
                return Err(Problem::bad_request(detail));
            }
        }
    }
    if by.contains(&Dimension::Hour) && by.contains(&Dimension::Day) {
        return Err(Problem::bad_request("tell usage apart by day or by hour, not by both"));
    }
    if by_status && by.contains(&Dimension::Policy) {
        return Err(Problem::bad_request("what policies charge is not kept by status"));
    }
    let (customer, user) = (query.customer.clone(), query.user.clone());
    Ok((UsageQuestion { zone, from, to, customer, user, by }, by_status))
}

fn days_of(month: Month) -> (Date, Date) {
    (month.first_day(), month.next().first_day())
}

pub(super) fn month_of(text: &str) -> Result<Month, Problem> {
    Month::parse(text)
        .ok_or_else(|| Problem::bad_request(format!("not a month: {}; write 2026-11", text.escape_debug())))
}

fn date_of(text: &str) -> Result<Date, Problem> {
    text.parse::<Date>()
        .ok()
        .filter(|date| date.year() >= 1970 && text.len() == 10)
        .ok_or_else(|| Problem::bad_request(format!("not a day: {}; write 2026-11-27", text.escape_debug())))
}

/// A row for each class of status that the requests have.
fn by_class(row: &UsageRow) -> Vec<UsageRow> {
    let of_class = |(class, count): (usize, u64)| {
        let mut counts = crate::history::RequestCounts { requests: count, ..Default::default() };
        counts.classes[class] = count;
        let keys = row.keys.iter().cloned().chain([CLASSES[class].to_owned()]).collect();
        UsageRow { keys, counts, units: Vec::new(), is_late: row.is_late }
    };
    row.counts.classes.into_iter().enumerate().filter(|(_, count)| *count > 0).map(of_class).collect()
}

fn shown(question: &UsageQuestion, by_status: bool, row: &UsageRow) -> dto::UsageRow {
    let [status_1xx, status_2xx, status_3xx, status_4xx, status_5xx] = row.counts.classes;
    let mut shown = dto::UsageRow {
        late: row.is_late,
        requests: row.counts.requests,
        denied: row.counts.denied,
        status_1xx,
        status_2xx,
        status_3xx,
        status_4xx,
        status_5xx,
        units: row
            .units
            .iter()
            .map(|(policy, units)| dto::UsedUnits { policy: policy.clone(), units: *units })
            .collect(),
        ..dto::UsageRow::default()
    };
    for (dimension, key) in question.by.iter().zip(&row.keys) {
        let member = match dimension {
            Dimension::Customer => &mut shown.customer,
            Dimension::User => &mut shown.user,
            Dimension::Plan => &mut shown.plan,
            Dimension::Route => &mut shown.route,
            Dimension::Value => &mut shown.value,
            Dimension::Day => &mut shown.day,
            Dimension::Hour => &mut shown.hour,
            Dimension::Policy => &mut shown.policy,
        };
        *member = Some(key.clone());
    }
    if by_status {
        shown.status = row.keys.last().cloned();
    }
    shown
}

/// Closes a month that has ended, also if a process has not reported all of it. Its sums stay as they are from then on; what
/// comes later is shown apart.
#[utoipa::path(
    post,
    path = "/v1/usage/close",
    operation_id = "closeMonth",
    tag = "history",
    request_body = dto::CloseMonth,
    responses(
        (status = 200, body = dto::ClosedMonth, description = "the month is closed, now or before"),
        RefusedError,
        WriteErrors,
        LookupErrors,
        UnavailableError
    )
)]
pub(super) async fn close(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    JsonBody(body): JsonBody<dto::CloseMonth>,
) -> Result<Json<dto::ClosedMonth>, Problem> {
    let history = kept(&context)?;
    let (month, zone) = (month_of(&body.month)?, zone(&context, body.zone.as_deref())?);
    let name = zone.0.clone();
    match history.close_month(zone, month).await? {
        Closing::Closed { complete } => {
            let how = if complete { "complete" } else { "without what some process had not reported" };
            context.audit(&by, "close_month", &format!("usage of {month} ({name})"), how);
            Ok(Json(dto::ClosedMonth { month: month.to_string(), zone: name, complete }))
        }
        Closing::TooEarly => Err(Problem::refused(format!(
            "{month} has not ended in {name}, or less than five minutes ago: it is closed then, by itself"
        ))),
        // It is closed in any case.
        Closing::Waits(_) => Err(Problem::refused(format!("{month} can't be closed yet"))),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DenialsQuery {
    /// The first moment; its whole minute counts. By default, an hour ago.
    #[param(value_type = Option<schema::Time>)]
    pub(super) from: Option<String>,
    /// The last moment; its whole minute counts. By default, now.
    #[param(value_type = Option<schema::Time>)]
    pub(super) to: Option<String>,
    /// Only of this customer.
    pub(super) customer: Option<String>,
    /// Only of this user, as records name it.
    pub(super) user: Option<String>,
    /// Only of this address, or of addresses in this network.
    #[param(value_type = Option<schema::Prefix>)]
    pub(super) address: Option<String>,
    /// Only with this request as their example, at any time.
    pub(super) request: Option<String>,
    /// Only by this policy, or this rule of a ban.
    pub(super) policy: Option<String>,
    /// Only on this route.
    pub(super) route: Option<String>,
    /// Only with this status.
    pub(super) status: Option<u16>,
    /// Rows per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

impl DenialsQuery {
    /// The question, and its first and last moment, in microseconds since the Unix epoch.
    pub(super) fn question(
        &self,
        context: &HandlerContext,
        limit: usize,
    ) -> Result<(DenialQuestion, [i64; 2]), Problem> {
        let now = context.state.clock.now();
        let moment = |text: &Option<String>, default: i64| match text {
            Some(text) => text.parse::<Timestamp>().map(Timestamp::as_microsecond).map_err(|_| {
                Problem::bad_request(format!(
                    "not a time: {}; write 2026-11-27T14:05:00Z",
                    text.escape_debug()
                ))
            }),
            None => Ok(default),
        };
        let to = moment(&self.to, now)?;
        let from = moment(&self.from, to.saturating_sub(3_600_000_000))?;
        if from > to {
            return Err(Problem::bad_request("the last moment is before the first"));
        }
        let address = self.address.as_deref().map(|text| {
            let malformed = || Problem::bad_request(format!("not an address: {}", text.escape_debug()));
            abuse::parse(text).or_else(|| text.parse::<IpNet>().ok()).ok_or_else(malformed)
        });
        let minutes = [from, to].map(|moment| moment.div_euclid(60_000_000));
        Ok((
            DenialQuestion {
                minutes: self.request.is_none().then_some(minutes),
                customer: self.customer.clone(),
                user: self.user.clone(),
                address: address.transpose()?,
                request_id: self.request.clone(),
                policy: self.policy.clone(),
                route: self.route.clone(),
                status: self.status,
                after: decode_cursor(self.cursor.as_deref(), Some::<(i64, String, i64)>)?,
                limit,
            },
            [from, to],
        ))
    }
}

/// Lists requests that were denied, by minute, client and reason, newest first. Counts are exact; the requests themselves are
/// examples. It lags a few seconds behind.
#[utoipa::path(
    get,
    path = "/v1/denials",
    operation_id = "denials",
    tag = "history",
    params(DenialsQuery),
    responses((status = 200, body = dto::Denials, description = "one page of denials"), LookupErrors, UnavailableError)
)]
pub(super) async fn denials(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<DenialsQuery>,
) -> Result<Json<dto::Denials>, Problem> {
    page_of_denials(&context, &query).await.map(Json)
}

/// A page of denials.
pub(super) async fn page_of_denials(
    context: &HandlerContext,
    query: &DenialsQuery,
) -> Result<dto::Denials, Problem> {
    let history = kept(context)?;
    let limit = page_size(query.limit)?;
    let (question, _) = query.question(context, limit + 1)?;
    let mut found = history.denials(question).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let cursor = last.map(|denial| encode_cursor(&(denial.minute, &denial.address, denial.cause)));
    Ok(dto::Denials { denials: found.into_iter().map(dto::Denial::from).collect(), cursor })
}

/// Says why requests were denied in a time, in groups with the same reason, and what was changed and happened then.
#[utoipa::path(
    get,
    path = "/v1/denials/summary",
    operation_id = "why",
    tag = "history",
    params(DenialsQuery),
    responses(
        (status = 200, body = dto::DenialSummary, description = "the reasons, oldest first"),
        LookupErrors,
        UnavailableError
    )
)]
pub(super) async fn why(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<DenialsQuery>,
) -> Result<Json<dto::DenialSummary>, Problem> {
    summary(&context, &query).await.map(Json)
}

/// The reasons of denials.
pub(super) async fn summary(
    context: &HandlerContext,
    query: &DenialsQuery,
) -> Result<dto::DenialSummary, Problem> {
    let history = kept(context)?;
    page_size(query.limit)?;
    let (question, [mut from, mut to]) = query.question(context, MAX_SUMMARIZED + 1)?;
    let found = history.denials(question).await?;
    if query.request.is_some()
        && let Some(denial) = found.first()
    {
        [from, to] = [denial.first, denial.last];
    }
    let who = query.customer.clone().or_else(|| query.user.clone()).or_else(|| query.address.clone());
    let mut events = history.events([from, to], who, MAX_EVENTS).await?;
    events.reverse();
    let truncated = found.len() > MAX_SUMMARIZED;
    let found = &found[..found.len().min(MAX_SUMMARIZED)];
    Ok(dto::DenialSummary {
        from: rfc3339(from),
        to: rfc3339(to),
        groups: groups(found),
        timeline: timeline(found),
        events: events.into_iter().map(dto::HistoryEvent::from).collect(),
        truncated,
    })
}

/// How many requests were denied in each minute in which there were any, oldest first.
fn timeline(denials: &[Denial]) -> Vec<dto::DeniedMinute> {
    let mut minutes: BTreeMap<i64, u64> = BTreeMap::new();
    for denial in denials {
        *minutes.entry(denial.minute).or_default() += denial.count;
    }
    let minute =
        |(minute, count): (i64, u64)| dto::DeniedMinute { time: rfc3339(minute * 60_000_000), count };
    minutes.into_iter().map(minute).collect()
}

/// Groups with the same reason, oldest first.
fn groups(denials: &[Denial]) -> Vec<dto::DenialGroup> {
    type Key<'d> = (&'d str, &'d str, &'d str, &'d str, &'d str, &'d str, &'d str, &'d str, &'d str);
    let mut by_key: BTreeMap<Key<'_>, Vec<&Denial>> = BTreeMap::new();
    for denial in denials {
        let Denial { customer, user, plan, kind, policy, limit, route, method, .. } = denial;
        // Nobody else tells requests without a name apart.
        let address = if customer.is_empty() && user.is_empty() { denial.address.as_str() } else { "" };
        let key: Key<'_> = (customer, user, plan, kind, policy, limit, route, method, address);
        by_key.entry(key).or_default().push(denial);
    }
    let group = |rows: Vec<&Denial>| {
        let mut by_address: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &rows {
            *by_address.entry(&row.address).or_default() += row.count;
        }
        let most = by_address.iter().max_by_key(|(_, count)| **count).map(|(address, _)| *address);
        let first = rows.iter().map(|row| row.first).min().unwrap_or_default();
        let last = rows.iter().map(|row| row.last).max().unwrap_or_default();
        let one = rows.first().map(|row| dto::Denial::from((*row).clone()));
        let one = one.unwrap_or_else(|| dto::Denial::from(Denial::default()));
        (
            first,
            dto::DenialGroup {
                customer: one.customer,
                user: one.user,
                plan: one.plan,
                kind: one.kind,
                policy: one.policy,
                limit: one.limit,
                route: one.route,
                method: one.method,
                path: Some(one.sample.path).filter(|path| !path.is_empty()),
                count: rows.iter().map(|row| row.count).sum(),
                addresses: by_address.len(),
                address: most.unwrap_or_default().to_owned(),
                first: rfc3339(first),
                last: rfc3339(last),
                status: one.sample.status,
                request_id: one.sample.request_id,
            },
        )
    };
    let mut groups: Vec<(i64, dto::DenialGroup)> = by_key.into_values().map(group).collect();
    groups.sort_by_key(|(first, _)| *first);
    groups.into_iter().map(|(_, group)| group).collect()
}

impl From<Denial> for dto::Denial {
    fn from(denial: Denial) -> Self {
        let named = |text: String| (!text.is_empty()).then_some(text);
        let sample = denial.sample;
        Self {
            time: rfc3339(denial.minute * 60_000_000),
            address: denial.address,
            customer: named(denial.customer),
            user: named(denial.user),
            plan: named(denial.plan),
            kind: denial.kind,
            policy: named(denial.policy),
            limit: named(denial.limit),
            route: named(denial.route),
            method: denial.method,
            count: denial.count,
            first: rfc3339(denial.first),
            last: rfc3339(denial.last),
            sample: dto::DenialSample {
                status: sample.status,
                path: sample.path,
                host: sample.host,
                user_agent: sample.user_agent,
                request_id: sample.request_id,
            },
        }
    }
}

impl From<HistoryEvent> for dto::HistoryEvent {
    fn from(event: HistoryEvent) -> Self {
        let HistoryEvent { time, by, action, target, detail, .. } = event;
        Self { time: rfc3339(time), by, action, target, detail }
    }
}
