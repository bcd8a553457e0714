//! The records of an address over time, with a lane for each of the users with most records.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    super::dto::Record,
    components,
    format::{format_count, format_duration, parse_micros},
};
use crate::telemetry::time::rfc3339;

/// Users with a lane of their own; all others share one more.
const LANES: usize = 6;
/// In units of the SVG's view box.
const WIDTH: f64 = 1_000.0;

/// Users with their numbers of records, most first.
pub(super) fn users(records: &[Record]) -> Vec<(Option<&str>, usize)> {
    let mut counted = BTreeMap::<Option<&str>, usize>::new();
    for record in records {
        *counted.entry(record.user.as_deref()).or_default() += 1;
    }
    let mut users: Vec<_> = counted.into_iter().collect();
    users.sort_by_key(|&(_, records)| std::cmp::Reverse(records));
    users
}

pub(super) fn timeline(records: &[Record]) -> Markup {
    let times = records.iter().map(|record| parse_micros(&record.time));
    let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { return html! {} };
    let users = users(records);
    let shown = &users[..users.len().min(LANES)];
    let others = &users[shown.len()..];
    let positions_of = |user: Option<&str>| -> Vec<f64> {
        records
            .iter()
            .filter(|r| r.user.as_deref() == user)
            .map(|r| x_position(parse_micros(&r.time), first, last))
            .collect()
    };
    let other_positions: Vec<f64> = others.iter().flat_map(|&(user, _)| positions_of(user)).collect();
    html! {
        div.timeline role="group" aria-label={ "Records over " (format_duration(last - first)) ", by user; the table below has the same data" } {
            @for &(user, records) in shown {
                (lane(&html! { (components::user_link(user)) }, records, &positions_of(user)))
            }
            @if !others.is_empty() {
                (lane(&html! { span.faint { (format_count(others.len() as u64)) " others" } }, other_positions.len(), &other_positions))
            }
            div.axis aria-hidden="true" {
                span { (components::time_of_day(&rfc3339(first))) " UTC" }
                span { (components::time_of_day(&rfc3339(last))) " UTC" }
            }
        }
    }
}

fn lane(label: &Markup, records: usize, positions: &[f64]) -> Markup {
    html! {
        div.lane {
            span.who { (label) }
            svg viewBox={ "0 0 " (WIDTH) " 20" } preserveAspectRatio="none" aria-hidden="true" {
                line.grid x1="0" x2=(WIDTH) y1="10" y2="10" {}
                @for x in positions {
                    line.mark x1=(format!("{x:.1}")) x2=(format!("{x:.1}")) y1="3" y2="17" {}
                }
            }
            span.num { (format_count(records as u64)) }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn x_position(time: i64, first: i64, last: i64) -> f64 {
    let span = (last - first).max(1) as f64;
    // Keeps half a mark's width from the edges.
    4.0 + (time - first) as f64 / span * (WIDTH - 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(second: u8, user: &str) -> Record {
        Record {
            time: format!("2026-07-03T12:00:{second:02}.000Z"),
            user: Some(user).filter(|user| !user.is_empty()).map(str::to_owned),
            method: "GET".into(),
            path: "/".into(),
            policy: "per-ip".into(),
        }
    }

    #[test]
    fn users_with_most_records_come_first_and_the_rest_share_a_lane() {
        let mut records: Vec<_> = (0..10).map(|n| record(n, &format!("u{n}"))).collect();
        records.extend([record(20, "<eve>"), record(30, "<eve>")]);
        assert_eq!(users(&records)[0], (Some("<eve>"), 2));
        let html = timeline(&records).into_string();
        assert_eq!(html.matches("class=\"lane\"").count(), LANES + 1);
        assert!(html.contains("&lt;eve&gt;") && html.contains("5 others") && !html.contains("<eve>"));
        assert_eq!(html.matches("class=\"mark\"").count(), records.len());
        assert!(timeline(&[]).into_string().is_empty());
    }
}
