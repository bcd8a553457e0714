//! Messages to webhooks: noted once, so that one instance sends each, and sent again until they arrive.

use super::sql::{Sql, SqlError, SqlValue, in_transaction};

const INSERT: &str = include_str!("../../sql/insert_alert.sql");
const DUE: &str = include_str!("../../sql/due_alerts.sql");
const TAKE: &str = include_str!("../../sql/take_alert.sql");
const FAILING: &str = "SELECT result FROM alerts WHERE webhook = $1 AND state = 0 AND result <> '' LIMIT 1";
const RECENT: &str = include_str!("../../sql/recent_alerts.sql");

/// How long nobody else sends a message that an instance has taken, in seconds: longer than an attempt takes.
const LEASE: i64 = 60;
/// How long a message is kept after the end of its window, in seconds: another instance may still come to the same.
const KEPT: i64 = 35 * 86_400;
/// The most messages that are kept. The oldest are forgotten first, and might be sent again.
const MAX_ALERTS: i64 = 200_000;
/// How long a message may wait for a webhook that no configuration has any longer, in seconds.
const UNCLAIMED: i64 = 24 * 3_600;
/// Values of a new message's row.
const WIDTH: usize = 12;

/// A message to a webhook. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAlert {
    /// All instances give the same message the same ID.
    pub id: String,
    /// Tells webhooks apart.
    pub webhook: String,
    pub policy: String,
    pub subject: String,
    /// `1000/month (Europe/Berlin)`
    pub limit: String,
    /// In hundredths of a percent.
    pub share: u32,
    pub used: u64,
    pub window_end: i64,
    /// The webhook, as people may see it.
    pub receiver: String,
    pub body: String,
}

/// A message that this instance is to send now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAlert {
    pub id: String,
    pub webhook: String,
    /// When it was noted.
    pub created: i64,
    /// With this one.
    pub attempts: u32,
    pub subject: String,
    pub policy: String,
    pub share: u32,
    pub receiver: String,
    pub body: String,
}

/// The messages that this instance is to send now, and the webhooks that have not taken all that was sent to them, by any
/// instance: the webhook, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenAlerts {
    pub due: Vec<DueAlert>,
    pub failing: Vec<(String, String)>,
}

/// What became of an attempt, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertOutcome {
    Delivered(String),
    /// The next one is at this time, in seconds since the Unix epoch.
    Again(i64, String),
    GivenUp(String),
}

/// A message, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAlert {
    pub id: String,
    pub webhook: String,
    pub created: i64,
    pub policy: String,
    pub subject: String,
    pub limit: String,
    pub share: u32,
    pub used: u64,
    pub receiver: String,
    pub state: AlertState,
    pub attempts: u32,
    /// Of the last attempt. Empty: there was none.
    pub result: String,
}

/// Whether a message has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertState {
    Waiting,
    Delivered,
    GivenUp,
}

/// Notes what is new, and takes what is due for these webhooks, of each at most as many as stand beside it.
pub(super) fn note_and_take(
    sql: &mut dyn Sql,
    new: &[NewAlert],
    webhooks: &[(String, usize)],
    now: i64,
) -> Result<TakenAlerts, SqlError> {
    in_transaction(sql, |sql| {
        // All instances note them in the same order, so that none waits for another that waits for it.
        let mut sorted: Vec<&NewAlert> = new.iter().collect();
        sorted.sort_unstable_by(|one, other| (&one.id, &one.webhook).cmp(&(&other.id, &other.webhook)));
        let mut rows = Vec::with_capacity(sorted.len() * WIDTH);
        for alert in sorted {
            let row: [SqlValue; WIDTH] = [
                alert.id.as_str().into(),
                alert.webhook.as_str().into(),
                now.into(),
                alert.policy.as_str().into(),
                alert.subject.as_str().into(),
                alert.limit.as_str().into(),
                i64::from(alert.share).into(),
                alert.used.into(),
                alert.window_end.into(),
                alert.receiver.as_str().into(),
                alert.body.as_str().into(),
                now.into(),
            ];
            rows.extend(row);
        }
        sql.run_each(INSERT, WIDTH, &rows)?;
        let mut taken = TakenAlerts::default();
        for (webhook, most) in webhooks {
            if let Some(row) = sql.rows(FAILING, &[webhook.as_str().into()], 1)?.first() {
                taken.failing.push((webhook.clone(), row[0].text().to_owned()));
            }
            let due = format!("{DUE} LIMIT {most}");
            for row in sql.rows(&due, &[webhook.as_str().into(), now.into()], *most)? {
                let key = [(now + LEASE).into(), row[0].clone(), webhook.as_str().into(), row[3].clone()];
                if sql.run(TAKE, &key)? == 0 {
                    continue;
                }
                taken.due.push(DueAlert {
                    id: row[0].text().to_owned(),
                    webhook: webhook.clone(),
                    created: row[1].integer(),
                    attempts: small(&row[2]).saturating_add(1),
                    subject: row[4].text().to_owned(),
                    policy: row[5].text().to_owned(),
                    share: small(&row[6]),
                    receiver: row[7].text().to_owned(),
                    body: row[8].text().to_owned(),
                });
            }
        }
        Ok(taken)
    })
}

/// Notes the outcome of an attempt, unless there was another one meanwhile that ended it or came later.
pub(super) fn settle(sql: &mut dyn Sql, alert: &DueAlert, outcome: &AlertOutcome) -> Result<(), SqlError> {
    let again = "UPDATE alerts SET next_attempt = $1, result = $2 \
                 WHERE id = $3 AND webhook = $4 AND state = 0 AND attempts = $5";
    let end = "UPDATE alerts SET state = $1, result = $2, body = '' \
               WHERE id = $3 AND webhook = $4 AND state = 0 AND attempts = $5";
    let delivered = "UPDATE alerts SET state = $1, result = $2, body = '' \
                     WHERE id = $3 AND webhook = $4 AND attempts >= $5";
    let (statement, number, result) = match outcome {
        AlertOutcome::Again(at, result) => (again, *at, result),
        AlertOutcome::Delivered(result) => (delivered, 1, result),
        AlertOutcome::GivenUp(result) => (end, 2, result),
    };
    let key = [alert.id.as_str().into(), alert.webhook.as_str().into(), i64::from(alert.attempts).into()];
    sql.run(statement, &[&[number.into(), result.as_str().into()][..], &key].concat()).map(|_| ())
}

/// The messages that were noted before this place in the list, newest first.
pub(super) fn recent(
    sql: &mut dyn Sql,
    after: Option<(i64, String, String)>,
    limit: usize,
) -> Result<Vec<KeptAlert>, SqlError> {
    let (created, id, webhook) = after.unwrap_or((i64::MAX, String::new(), String::new()));
    let query = format!("{RECENT} LIMIT {limit}");
    let rows = sql.rows(&query, &[created.into(), id.as_str().into(), webhook.as_str().into()], limit)?;
    let kept = |row: &Vec<SqlValue>| {
        let text = |index: usize| row[index].text().to_owned();
        KeptAlert {
            id: text(0),
            webhook: text(1),
            created: row[2].integer(),
            policy: text(3),
            subject: text(4),
            limit: text(5),
            share: small(&row[6]),
            used: row[7].integer().unsigned_abs(),
            receiver: text(8),
            state: match row[9].integer() {
                0 => AlertState::Waiting,
                1 => AlertState::Delivered,
                _ => AlertState::GivenUp,
            },
            attempts: small(&row[10]),
            result: text(11),
        }
    };
    Ok(rows.iter().map(kept).collect())
}

/// Gives up messages that no instance sends any longer, and forgets old ones.
pub(super) fn drop_old(sql: &mut dyn Sql, now: i64) -> Result<(), SqlError> {
    let unsent = sql.run(
        "UPDATE alerts SET state = 2, body = '', result = 'no instance has sent it' \
         WHERE state = 0 AND created < $1",
        &[(now - UNCLAIMED).into()],
    )?;
    if unsent > 0 {
        tracing::error!("{unsent} alerts were given up: no instance has sent them within a day");
    }
    sql.run(
        "DELETE FROM alerts WHERE state > 0 AND window_end < $1 AND created < $1",
        &[(now - KEPT).into()],
    )?;
    // Those whose windows end first may be forgotten first.
    for order in ["window_end", "created"] {
        let count = sql.rows("SELECT COUNT(*) FROM alerts WHERE state > 0", &[], 1)?;
        let excess = count.first().map_or(0, |row| row[0].integer()) - MAX_ALERTS;
        if excess > 0 {
            let edge =
                format!("SELECT {order} FROM alerts WHERE state > 0 ORDER BY {order} LIMIT 1 OFFSET $1");
            let edge = sql.rows(&edge, &[excess.into()], 1)?;
            let edge = edge.first().map_or(0, |row| row[0].integer());
            sql.run(&format!("DELETE FROM alerts WHERE state > 0 AND {order} < $1"), &[edge.into()])?;
        }
    }
    Ok(())
}

fn small(number: &SqlValue) -> u32 {
    u32::try_from(number.integer()).unwrap_or_default()
}
