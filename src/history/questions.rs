//! What is asked of the history: who has used how much, and who was denied, when and why.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use jiff::{civil::Date, tz};

use super::{
    apply::{date_of_day, day_of_date},
    months::Month,
    recorder::{DenialSample, RequestCounts},
    sql::{Sql, SqlError, SqlRow, SqlValue},
};

/// The most rows of an answer.
pub const MAX_ROWS: usize = 500_000;

/// What usage is told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Customer,
    User,
    Plan,
    Route,
    Value,
    /// A day of the time zone.
    Day,
    /// An hour of UTC. Kept for 35 days.
    Hour,
    Policy,
}

impl Dimension {
    pub const ALL: [Self; 8] = [
        Self::Customer,
        Self::User,
        Self::Plan,
        Self::Route,
        Self::Value,
        Self::Day,
        Self::Hour,
        Self::Policy,
    ];

    /// `customer`
    pub fn name(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::User => "user",
            Self::Plan => "plan",
            Self::Route => "route",
            Self::Value => "value",
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Policy => "policy",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.name() == name)
    }

    /// Its column. `None`: units alone have it.
    fn column(self) -> Option<&'static str> {
        Some(match self {
            Self::Customer => "s.customer",
            Self::User => "s.user_name",
            Self::Plan => "s.plan",
            Self::Route => "s.route",
            Self::Value => "s.value",
            Self::Day => "t.day",
            Self::Hour => "t.hour",
            Self::Policy => return None,
        })
    }
}

/// Whose usage, of when, told apart by what.
#[derive(Debug, Clone)]
pub struct UsageQuestion {
    /// By its name, and its rules.
    pub zone: (String, tz::TimeZone),
    pub from: Date,
    /// The day after the last one.
    pub to: Date,
    pub customer: Option<String>,
    pub user: Option<String>,
    pub by: Vec<Dimension>,
}

impl UsageQuestion {
    /// The month that it is about, if it is one.
    pub fn month(&self) -> Option<Month> {
        let month = Month::of(self.from);
        (month.first_day() == self.from && month.next().first_day() == self.to).then_some(month)
    }
}

/// What was used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageAnswer {
    /// Whether the month is closed, and whether every process had reported all of it then. `None`: it is not.
    pub closed: Option<bool>,
    /// In the order of their keys.
    pub rows: Vec<UsageRow>,
}

/// What was used, of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// Of each dimension that was asked for.
    pub keys: Vec<String>,
    /// Whether it came after the month was closed.
    pub is_late: bool,
    pub counts: RequestCounts,
    /// By policy.
    pub units: Vec<(String, u64)>,
}

/// Answers a question about usage.
pub(super) fn usage(sql: &mut dyn Sql, question: &UsageQuestion) -> Result<UsageAnswer, SqlError> {
    let zone = sql.rows("SELECT id FROM zones WHERE name = $1", &[question.zone.0.as_str().into()], 1)?;
    let Some(zone) = zone.first().map(|row| row[0].integer()) else { return Ok(UsageAnswer::default()) };
    let closed = match question.month() {
        Some(month) => {
            let of_month = "SELECT complete FROM months WHERE zone = $1 AND month = $2";
            let found = sql.rows(of_month, &[zone.into(), month.number().into()], 1)?;
            found.first().map(|row| row[0].integer() != 0)
        }
        None => None,
    };
    let query = UsageQuery::new(question, zone, closed.is_some());
    let mut rows = UsageRows::new();
    if !question.by.contains(&Dimension::Policy) {
        query.add_requests(sql, &mut rows)?;
    }
    query.add_units(sql, &mut rows)?;
    if rows.len() > MAX_ROWS {
        let detail = format!("there are more than {MAX_ROWS} rows: ask for a shorter time, or by less");
        return Err(SqlError::Refused(detail));
    }
    let mut rows: Vec<UsageRow> = rows.into_values().collect();
    rows.iter_mut().for_each(|row| row.units.sort_unstable());
    Ok(UsageAnswer { closed, rows })
}

/// By their keys, and whether they are late.
type UsageRows = BTreeMap<(Vec<String>, bool), UsageRow>;

/// The statements that answer a question.
struct UsageQuery<'q> {
    question: &'q UsageQuestion,
    /// `hours`, `days` or `months`: the end of the names of the tables with the sums.
    tables: &'static str,
    /// The column that tells late rows.
    late: Option<&'static str>,
    conditions: String,
    parameters: Vec<SqlValue>,
}

impl<'q> UsageQuery<'q> {
    /// `is_closed`: whether the question is about a month that is closed.
    fn new(question: &'q UsageQuestion, zone: i64, is_closed: bool) -> Self {
        let days = [question.from, question.to];
        let hour = |date: Date| {
            let begins = question.zone.1.to_ambiguous_zoned(date.at(0, 0, 0, 0)).compatible();
            begins.map_or(0, |begins| begins.timestamp().as_second().div_euclid(3_600))
        };
        let (tables, column, [from, to]) = match question.month() {
            _ if question.by.contains(&Dimension::Hour) => ("hours", "hour", days.map(hour)),
            Some(month) if is_closed && !question.by.contains(&Dimension::Day) => {
                ("months", "month", [month.number(), month.number() + 1])
            }
            _ => ("days", "day", days.map(day_of_date)),
        };
        let mut parameters = vec![SqlValue::from(from), to.into()];
        let mut conditions = format!("t.{column} >= $1 AND t.{column} < $2");
        let mut add = |column: &str, value: SqlValue| {
            parameters.push(value);
            conditions += &format!(" AND {column} = ${}", parameters.len());
        };
        if tables != "hours" {
            add("t.zone", zone.into());
        }
        for (column, name) in [("s.customer", &question.customer), ("s.user_name", &question.user)] {
            if let Some(name) = name {
                add(column, name.as_str().into());
            }
        }
        Self { question, tables, late: (tables == "months").then_some("t.late"), conditions, parameters }
    }

    /// The columns of the keys.
    fn columns(&self) -> Vec<&'static str> {
        self.question.by.iter().filter_map(|dimension| dimension.column()).collect()
    }

    /// The rows of the keys, of whether they are late, and of `more`. `table`: `usage` or `unit`.
    fn rows(
        &self,
        sql: &mut dyn Sql,
        (table, join): (&str, &str),
        more: &str,
        name: Option<&str>,
    ) -> Result<Vec<SqlRow>, SqlError> {
        let columns = self.columns();
        let groups: Vec<&str> = columns.iter().copied().chain(self.late).chain(name).collect();
        let group =
            if groups.is_empty() { String::new() } else { format!(" GROUP BY {}", groups.join(", ")) };
        let keys: String = columns.iter().map(|column| format!("{column}, ")).collect();
        // Typed, for PostgreSQL.
        let late = format!("CAST({} AS BIGINT)", self.late.unwrap_or("0"));
        let (tables, conditions, most) = (self.tables, &self.conditions, MAX_ROWS + 1);
        let query = format!(
            "SELECT {keys}{late}, {more} FROM {table}_{tables} t JOIN series s ON s.id = t.series{join} \
             WHERE {conditions}{group} LIMIT {most}"
        );
        sql.rows(&query, &self.parameters, most)
    }

    /// The key of a row, whether it is late, and its other values.
    fn key_of<'r>(&self, row: &'r SqlRow) -> (Vec<String>, bool, &'r [SqlValue]) {
        let dimensions = self.question.by.iter().filter(|dimension| dimension.column().is_some());
        let keys: Vec<String> =
            dimensions.zip(row).map(|(dimension, value)| key_text(*dimension, value)).collect();
        let (late, others) =
            row[keys.len()..].split_first().map_or((0, &[][..]), |(late, others)| (late.integer(), others));
        (keys, late != 0, others)
    }

    fn add_requests(&self, sql: &mut dyn Sql, rows: &mut UsageRows) -> Result<(), SqlError> {
        let sums = ["requests", "denied", "status_1xx", "status_3xx", "status_4xx", "status_5xx"];
        let sums = sums.map(|column| format!("CAST(COALESCE(SUM(t.{column}), 0) AS BIGINT)")).join(", ");
        for row in self.rows(sql, ("usage", ""), &sums, None)? {
            let (keys, is_late, sums) = self.key_of(&row);
            let number = |index: usize| sums.get(index).map_or(0, |sum| sum.integer().unsigned_abs());
            let [requests, denied, c1, c3, c4, c5] = std::array::from_fn(number);
            if requests > 0 {
                let c2 = requests.saturating_sub(c1 + c3 + c4 + c5);
                let counts = RequestCounts { requests, denied, classes: [c1, c2, c3, c4, c5] };
                rows.insert((keys.clone(), is_late), UsageRow { keys, is_late, counts, units: Vec::new() });
            }
        }
        Ok(())
    }

    fn add_units(&self, sql: &mut dyn Sql, rows: &mut UsageRows) -> Result<(), SqlError> {
        let sums = "p.name, CAST(COALESCE(SUM(t.units), 0) AS BIGINT)";
        let tables = ("unit", " JOIN policies p ON p.id = t.policy");
        for row in self.rows(sql, tables, sums, Some("p.name"))? {
            let (mut keys, is_late, values) = self.key_of(&row);
            let [policy, units] = values else { continue };
            let (policy, units) = (policy.text().to_owned(), units.integer().unsigned_abs());
            if let Some(at) = self.question.by.iter().position(|dimension| *dimension == Dimension::Policy) {
                keys.insert(at, policy.clone());
            }
            let of_key = rows.entry((keys.clone(), is_late));
            let of_key = of_key.or_insert_with(|| UsageRow { keys, is_late, ..UsageRow::default() });
            of_key.units.push((policy, units));
        }
        Ok(())
    }
}

fn key_text(dimension: Dimension, value: &SqlValue) -> String {
    match dimension {
        Dimension::Day => date_of_day(value.integer()).to_string(),
        Dimension::Hour => jiff::Timestamp::from_second(value.integer() * 3_600)
            .map_or_else(|_| String::new(), |time| time.strftime("%Y-%m-%dT%H:00Z").to_string()),
        _ => value.text().to_owned(),
    }
}

/// Which denials.
#[derive(Debug, Clone, Default)]
pub struct DenialQuestion {
    /// In minutes since the Unix epoch, both included.
    pub minutes: Option<[i64; 2]>,
    pub customer: Option<String>,
    pub user: Option<String>,
    /// An address or a network: of the clients, or of networks that have them.
    pub address: Option<IpNet>,
    pub request_id: Option<String>,
    pub policy: Option<String>,
    pub route: Option<String>,
    pub status: Option<u16>,
    /// The place of the last row that is known: older ones are asked for.
    pub after: Option<(i64, String, i64)>,
    pub limit: usize,
}

/// Requests that were denied in a minute, for one cause, of one client or network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denial {
    /// In minutes since the Unix epoch.
    pub minute: i64,
    pub address: String,
    /// The number of the cause, for the place in the list.
    pub cause: i64,
    pub customer: String,
    pub user: String,
    pub plan: String,
    /// `limit`, `ban`, `deny`, `allow`, `credential`, `unidentified`.
    pub kind: String,
    pub policy: String,
    /// `60/1m`
    pub limit: String,
    pub route: String,
    pub method: String,
    pub count: u64,
    /// In microseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    pub sample: DenialSample,
}

/// The denials that match a question, newest first.
pub(super) fn denials(sql: &mut dyn Sql, question: &DenialQuestion) -> Result<Vec<Denial>, SqlError> {
    let mut parameters: Vec<SqlValue> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut add = |condition: &str, value: SqlValue| {
        parameters.push(value);
        conditions.push(condition.replace('?', &format!("${}", parameters.len())));
    };
    if let Some([first, last]) = question.minutes {
        add("d.minute >= ?", first.into());
        add("d.minute <= ?", last.into());
    }
    for (column, text) in [
        ("c.customer = ?", &question.customer),
        ("c.user_name = ?", &question.user),
        // The index has only these.
        ("d.request_id <> '' AND d.request_id = ?", &question.request_id),
        ("c.policy = ?", &question.policy),
        ("c.route = ?", &question.route),
    ] {
        if let Some(text) = text {
            add(column, text.as_str().into());
        }
    }
    if let Some(status) = question.status {
        add("d.status = ?", i64::from(status).into());
    }
    if let Some((minute, address, cause)) = &question.after {
        let [m, a, c] = [1, 2, 3].map(|nth| format!("${}", parameters.len() + nth));
        parameters.extend([(*minute).into(), address.as_str().into(), (*cause).into()]);
        conditions.push(format!("(d.minute, d.address, d.cause) < ({m}, {a}, {c})"));
    }
    let all =
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let query = format!(
        "SELECT d.minute, d.address, d.cause, c.customer, c.user_name, c.plan, c.kind, c.policy, c.limit_text, c.route, \
         c.method, d.count, d.first_at, d.last_at, d.status, d.path, d.host, d.user_agent, d.request_id \
         FROM denials d JOIN causes c ON c.id = d.cause{all} ORDER BY d.minute DESC, d.address DESC, d.cause DESC"
    );
    let most = if question.address.is_some() { MAX_ROWS } else { question.limit };
    let query = format!("{query} LIMIT {most}");
    let rows = sql.rows(&query, &parameters, most)?;
    let is_asked = |denial: &Denial| question.address.is_none_or(|asked| is_within(&denial.address, asked));
    Ok(rows.iter().map(denial).filter(is_asked).take(question.limit).collect())
}

/// Whether the address or network of a row is in the one that is asked for, or has it.
fn is_within(text: &str, asked: IpNet) -> bool {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
    net.is_ok_and(|net| asked.contains(&net) || net.contains(&asked))
}

fn denial(row: &SqlRow) -> Denial {
    let text = |index: usize| row[index].text().to_owned();
    let number = |index: usize| row[index].integer();
    Denial {
        minute: number(0),
        address: text(1),
        cause: number(2),
        customer: text(3),
        user: text(4),
        plan: text(5),
        kind: text(6),
        policy: text(7),
        limit: text(8),
        route: text(9),
        method: text(10),
        count: number(11).unsigned_abs(),
        first: number(12),
        last: number(13),
        sample: DenialSample {
            status: u16::try_from(number(14)).unwrap_or_default(),
            path: text(15),
            host: text(16),
            user_agent: text(17),
            request_id: text(18),
        },
    }
}

/// When each customer was denied last, since this minute: in microseconds since the Unix epoch.
pub(super) fn last_denials(sql: &mut dyn Sql, minute: i64) -> Result<HashMap<String, i64>, SqlError> {
    let query = "SELECT c.customer, MAX(d.last_at) FROM denials d JOIN causes c ON c.id = d.cause \
                 WHERE d.minute >= $1 AND c.customer <> '' GROUP BY c.customer";
    let rows = sql.rows(query, &[minute.into()], MAX_ROWS)?;
    Ok(rows.iter().map(|row| (row[0].text().to_owned(), row[1].integer())).collect())
}

/// A change, or something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEvent {
    /// In microseconds since the Unix epoch.
    pub time: i64,
    pub id: String,
    pub instance: String,
    pub by: String,
    pub action: String,
    pub target: String,
    pub detail: String,
}

/// The events between two times, both included, newest first. `text`: only those whose target or detail has it.
pub(super) fn events(
    sql: &mut dyn Sql,
    [from, to]: [i64; 2],
    text: Option<&str>,
    limit: usize,
) -> Result<Vec<HistoryEvent>, SqlError> {
    let query = "SELECT time, id, instance, author, action, target, detail FROM events \
                 WHERE time >= $1 AND time <= $2 ORDER BY time DESC, id LIMIT 100000";
    let rows = sql.rows(query, &[from.into(), to.into()], MAX_ROWS)?;
    let event = |row: &SqlRow| {
        let text = |index: usize| row[index].text().to_owned();
        HistoryEvent {
            time: row[0].integer(),
            id: text(1),
            instance: text(2),
            by: text(3),
            action: text(4),
            target: text(5),
            detail: text(6),
        }
    };
    let is_asked = |event: &HistoryEvent| {
        text.is_none_or(|text| event.target.contains(text) || event.detail.contains(text))
    };
    Ok(rows.iter().map(event).filter(is_asked).take(limit).collect())
}
