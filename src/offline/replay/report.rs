//! The report of a replay.

use serde::Serialize;

use super::changes::ReplayComparison;
use crate::{offline::access_logs::UnreadableLines, text::count};

/// The decisions that the policies would have made on all requests of the logs.
#[derive(Debug, Serialize)]
pub struct Report {
    pub requests: u64,
    /// Times of the first and the last request (RFC 3339). `None`: no line is about HTTP.
    pub first: Option<String>,
    pub last: Option<String>,
    /// Requests that enforced policies would have denied.
    pub denied: u64,
    /// Requests that only shadow policies would have denied.
    pub shadow_denied: u64,
    /// Requests that `deny` or `allow` would have refused.
    pub forbidden: u64,
    /// Requests without a matching route, malformed requests, and lines that are not HTTP.
    pub refused: u64,
    /// Requests that Tollgate refused before the policies, according to the log: for a ban, or because of a too long
    /// body.
    pub unchecked: u64,
    /// Requests whose route depends on the listener on which they came in. Logs do not have it, so they were not decided.
    pub unknown: u64,
    /// Lines that can't be read.
    pub unreadable: UnreadableLines,
    /// Logs without a request.
    pub without_requests: Vec<String>,
    /// Logs whose compressed data is damaged: they were not read to the end.
    pub broken_off: Vec<String>,
    /// Requests replayed at a later time than logged, because their lines were too far out of order.
    pub late: u64,
    /// Requests without a host in the log: the host of the first matching route was assumed. 0 if no route has `hosts`.
    pub without_host: u64,
    /// Whether requests with whole seconds were spread over their second.
    pub spread: bool,
    pub timeline: Timeline,
    /// In the configuration's order.
    pub policies: Vec<PolicyReport>,
    /// The most often denied first.
    pub keys: Vec<LimitedKey>,
    /// The decisions of another configuration. `None`: there is none to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<ReplayComparison>,
}

impl Report {
    /// What the operator should know of the figures, a sentence or two each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.policies.iter().any(|policy| policy.not_in_log > 0) {
            notes.push(
                "NOT IN LOG: requests that were not checked, since the log does not have what the policy's keys are made of."
                    .to_owned(),
            );
        }
        for PolicyReport { policy, unknown_conditions, unknown_costs, .. } in &self.policies {
            if !unknown_conditions.is_empty() {
                notes.push(format!(
                    "Policy {policy}: the log does not tell whether {} holds (exempt, overrides). It was taken not to.",
                    unknown_conditions.join(", ")
                ));
            }
            if *unknown_costs > 0 {
                notes.push(format!(
                    "Policy {policy}: the log does not have the cost of {}. Each cost what it had reserved.",
                    count(*unknown_costs, "response")
                ));
            }
        }
        if self.keys.iter().any(|key| key.hint.is_none()) {
            notes.push(
                "Too many keys are denied to observe them all: the last of them have no hint.".to_owned(),
            );
        }
        if self.without_host > 0 {
            notes.push(format!(
                "{} without a host in the log. Each was taken to be for the host of the first route that matches.",
                count(self.without_host, "request")
            ));
        }
        if self.unknown > 0 {
            notes.push(format!(
                "{} not decided: the route depends on the listener, which no log has. To replay them, log each listener on \
                 its own, and use a configuration with its routes alone.",
                count(self.unknown, "request")
            ));
        }
        if self.late > 0 {
            notes.push(format!(
                "{} further out of order than Tollgate can sort, and taken to have come later. The report may be wrong: give \
                 each log as an argument of its own.",
                count(self.late, "request")
            ));
        }
        if !self.without_requests.is_empty() {
            notes.push(format!("Without requests: {}.", self.without_requests.join(", ")));
        }
        if !self.broken_off.is_empty() {
            notes.push(format!(
                "Not read to the end, since the compressed data is damaged: {}.",
                self.broken_off.join(", ")
            ));
        }
        if self.spread {
            notes.push(
                "The log has whole seconds. The requests of a second were spread evenly over it.".to_owned(),
            );
        }
        if self.unreadable.count > 0 {
            let examples = self.unreadable.examples.join(", ");
            let lines = count(self.unreadable.count, "line");
            let reason =
                self.unreadable.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            notes.push(format!("{lines} could not be read, such as {examples}{reason}."));
        }
        notes
    }
}

/// The requests over time.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// When the first bar begins (RFC 3339).
    pub first: String,
    /// The length of a bar: `5m`.
    pub step: String,
    pub bars: Vec<TimelineBar>,
}

/// The requests of one period.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TimelineBar {
    pub requests: u64,
    pub denied: u64,
    pub shadow_denied: u64,
}

/// The decisions of one policy.
#[derive(Debug, Default, Serialize)]
pub struct PolicyReport {
    pub policy: String,
    /// `enforce` or `shadow`. A shadow policy is replayed as one: requests that it denies are admitted.
    pub mode: &'static str,
    /// Checks; one for each request and key of the policy.
    pub checked: u64,
    pub denied: u64,
    /// Checks that would have waited for their slot (`delay`).
    pub delayed: u64,
    /// Number of distinct denied keys.
    pub denied_keys: u64,
    /// Requests that were not checked by all keys, because the log lacks parts of them.
    pub not_in_log: u64,
    /// How close its keys came to their limits.
    pub closeness: Closeness,
    /// The minute with the most denials. `None`: there were none.
    pub worst_minute: Option<Minute>,
    /// Requests that it admitted and whose response tells a cost that the log does not have. They cost what they had
    /// reserved.
    pub unknown_costs: u64,
    /// Conditions of its `exempt` and `overrides` that were taken as false, because the log lacks the information.
    pub unknown_conditions: Vec<String>,
}

/// Numbers of keys, by the most that each used of its tightest limit.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Closeness {
    /// All keys.
    pub keys: u64,
    /// Keys that used up to 25 % at most; more, and up to 50 %; and so on.
    pub to_25: u64,
    pub to_50: u64,
    pub to_75: u64,
    pub to_90: u64,
    pub to_100: u64,
    /// Keys that were denied.
    pub denied: u64,
}

/// The checks of a policy in one minute.
#[derive(Debug, Clone, Serialize)]
pub struct Minute {
    /// When it begins (RFC 3339).
    pub minute: String,
    pub requests: u64,
    pub denied: u64,
}

/// A key that a policy would have denied.
#[derive(Debug, Clone, Serialize)]
pub struct LimitedKey {
    /// `ip:203.0.113.7`
    pub key: String,
    pub policy: String,
    pub mode: &'static str,
    pub requests: u64,
    pub denied: u64,
    /// Times of the first and the last denial (RFC 3339).
    pub first: String,
    pub last: String,
    /// What kind of client it seems to be, from its requests since the first denial or
    /// response of 401 or 403, and why. `None`: too many keys are denied to observe them all.
    pub hint: Option<&'static str>,
    pub reasons: Option<String>,
    /// Number of users of these requests in the log, and the first of them.
    pub users: u64,
    pub named_users: Vec<String>,
    /// Number of different `User-Agent`s of these requests.
    pub agents: u64,
}
