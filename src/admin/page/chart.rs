//! Charts of a route's last hour: requests, denials, 5xx responses and latencies.

use std::fmt::Write;

use maud::{Markup, html};

use super::format::{format_count, format_latency, format_rate};
use crate::telemetry::{
    metrics::{History, HistoryPoint, ServerErrorCounts},
    time::rfc3339,
};

/// In units of the SVG's view box, which is stretched to the available space.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 72.0;
/// Possible widths of a chart in samples: the smallest that fits all samples is used.
const WINDOWS: [usize; 3] = [60, 180, History::LENGTH];
/// Seconds between two samples.
const INTERVAL_SECONDS: usize = 10;
/// Samples per row of the table: five minutes.
const SAMPLES_PER_ROW: usize = 30;

/// One value per sample; `None` leaves a gap.
type Series = Vec<Option<f64>>;

/// Two charts side by side: requests, denials and 5xx responses per second, and latency. `id` is unique on the page.
pub(super) fn charts(id: usize, name: &str, samples: &[HistoryPoint], end: i64) -> Markup {
    let every = History::EVERY.as_secs_f64();
    let window = WINDOWS.into_iter().find(|&window| window >= samples.len()).unwrap_or(History::LENGTH);
    let per_second = |field: fn(&HistoryPoint) -> u64| -> Series {
        samples.iter().map(|s| Some(to_f64(field(s)) / every)).collect()
    };
    let requests = per_second(|sample| sample.requests);
    let denied = per_second(|sample| sample.denied);
    let errors = per_second(|sample| sample.errors.total());
    let p99: Series = samples.iter().map(|sample| sample.p99).collect();
    let p50: Series = samples.iter().map(|sample| sample.p50).collect();
    let (max_rate, max_latency) =
        (round_up_scale(maximum(&requests)), round_up_scale(maximum(&p99) * 1_000.0) / 1_000.0);
    let total_requests: u64 = samples.iter().map(|sample| sample.requests).sum();
    let total_denied: u64 = samples.iter().map(|sample| sample.denied).sum();
    let total_errors: ServerErrorCounts = samples.iter().map(|sample| sample.errors).sum();
    let description = format!(
        "{} requests in the last hour, {} of them denied; {} got 5xx, {} of them from Tollgate itself; at most {} requests a second",
        format_count(total_requests),
        format_count(total_denied),
        format_count(total_errors.total()),
        format_count(total_errors.proxy()),
        format_rate(maximum(&requests))
    );
    let minutes = window * INTERVAL_SECONDS / 60;
    let traffic = Figure {
        id: format!("traffic-{id}"),
        title: format!("Requests, denials and 5xx responses of {name}"),
        description,
        top: format!("{}/s", format_rate(max_rate)),
        minutes,
    };
    let latency = Figure {
        id: format!("latency-{id}"),
        title: format!("Latency of {name}"),
        description: format!(
            "99 % of responses took at most {} at the worst time",
            format_latency(maximum(&p99))
        ),
        top: format_latency(max_latency),
        minutes,
    };
    html! {
        div.charts data-points=(samples_json(samples)) data-end=(end / 1_000) data-window=(window) {
            (traffic.render(&html! {
                path.area.requests d=(area(&requests, max_rate, window)) {}
                path.line.requests d=(line(&requests, max_rate, window)) {}
                path.point.requests d=(points(&requests, max_rate, window)) {}
                path.area.denied d=(area(&denied, max_rate, window)) {}
                @for (class, series) in [("denied", without_idle(&denied)), ("errors", without_idle(&errors))] {
                    path class={ "line " (class) } d=(line(&series, max_rate, window)) {}
                    path class={ "point " (class) } d=(points(&series, max_rate, window)) {}
                }
            }))
            (latency.render(&html! {
                path.line.usual d=(line(&p50, max_latency, window)) {}
                path.line.slow d=(line(&p99, max_latency, window)) {}
                path.point.usual d=(points(&p50, max_latency, window)) {}
                path.point.slow d=(points(&p99, max_latency, window)) {}
            }))
        }
        (table(name, samples, end))
    }
}

/// A chart without its lines.
struct Figure {
    id: String,
    title: String,
    /// The chart in words.
    description: String,
    /// The value at the upper edge.
    top: String,
    /// Minutes from the left edge until now.
    minutes: usize,
}

impl Figure {
    fn render(&self, lines: &Markup) -> Markup {
        let Self { id, title, description, top, minutes } = self;
        html! {
            figure.chart {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                    title id={ (id) "-t" } { (title) }
                    desc id={ (id) "-d" } { (description) }
                    @for part in [0.0, 0.5, 1.0] {
                        line.grid x1="0" x2=(WIDTH) y1=(HEIGHT * part) y2=(HEIGHT * part) {}
                    }
                    (lines)
                }
                span.top aria-hidden="true" { (top) }
                div.axis aria-hidden="true" { span { (minutes) " min ago" } span { (minutes / 2) " min" } span { "now" } }
            }
        }
    }
}

/// The chart's samples as a table, for screen readers and exact values.
fn table(name: &str, samples: &[HistoryPoint], end: i64) -> Markup {
    let mut rows = Vec::new();
    let step = i64::try_from(History::EVERY.as_micros()).unwrap_or_default();
    let mut until = end;
    for chunk in samples.rchunks(SAMPLES_PER_ROW) {
        let began = until - step * i64::try_from(chunk.len()).unwrap_or_default();
        let sum = |value: fn(&HistoryPoint) -> u64| chunk.iter().map(value).sum::<u64>();
        let slowest = chunk.iter().filter_map(|sample| sample.p99).reduce(f64::max);
        rows.push((
            began,
            until,
            [sum(|s| s.requests), sum(|s| s.denied), sum(|s| s.errors.total())],
            slowest,
        ));
        until = began;
    }
    html! {
        details.numbers {
            summary { "As a table" span.hidden { ": " (name) } }
            div.scroll tabindex="0" role="region" aria-label={ (name) " as a table" } {
                table {
                    thead { tr {
                        th scope="col" { "From (UTC)" } th scope="col" { "To (UTC)" }
                        th.num scope="col" { "Requests" } th.num scope="col" { "Denied" } th.num scope="col" { "5xx" }
                        th.num scope="col" { "Slowest p99" }
                    } }
                    tbody {
                        @for (began, until, counts, slowest) in rows {
                            tr {
                                td.mono { (time_of_day(began)) } td.mono { (time_of_day(until)) }
                                @for count in counts { td.num { (format_count(count)) } }
                                td.num { @match slowest { Some(slowest) => (format_latency(slowest)), None => "–" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn time_of_day(time: i64) -> String {
    rfc3339(time).get(11..19).unwrap_or_default().to_owned()
}

/// The samples as JSON for the page's script, which shows the one under the pointer: requests, denials, p50 and p99 in
/// milliseconds, 5xx responses by the origin and by Tollgate itself.
fn samples_json(samples: &[HistoryPoint]) -> String {
    let millis = |latency: Option<f64>| {
        latency.map_or("null".to_owned(), |latency| format!("{:.1}", latency * 1_000.0))
    };
    let mut text = String::from("[");
    for (index, sample) in samples.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let (p50, p99) = (millis(sample.p50), millis(sample.p99));
        // Writing to a string can't fail.
        let _ok = write!(
            text,
            "{comma}[{},{},{p50},{p99},{},{}]",
            sample.requests,
            sample.denied,
            sample.errors.origin(),
            sample.errors.proxy()
        );
    }
    text + "]"
}

/// The point of a sample in the chart; the newest is at the right edge.
fn point(index: usize, len: usize, value: f64, max: f64, window: usize) -> (f64, f64) {
    let step = WIDTH / to_f64(window as u64 - 1);
    let x = WIDTH - step * to_f64((len - 1 - index) as u64);
    // Keeps the full width of the line inside.
    let y = HEIGHT - 1.0 - (value / max).clamp(0.0, 1.0) * (HEIGHT - 2.0);
    (x, y)
}

fn line(series: &Series, max: f64, window: usize) -> String {
    let mut path = String::new();
    let mut is_drawing = false;
    for (index, value) in series.iter().enumerate() {
        if let Some(value) = value {
            let (x, y) = point(index, series.len(), *value, max, window);
            let _ok = write!(path, "{}{x:.1} {y:.1}", if is_drawing { "L" } else { "M" });
        }
        is_drawing = value.is_some();
    }
    path
}

/// Removes the times without events: a line along the axis would look like events.
fn without_idle(series: &Series) -> Series {
    let happened = |index: usize| series.get(index).copied().flatten().is_some_and(|value| value > 0.0);
    let keep =
        |index: usize| happened(index) || index.checked_sub(1).is_some_and(happened) || happened(index + 1);
    series.iter().enumerate().map(|(index, value)| value.filter(|_| keep(index))).collect()
}

/// Samples without neighbours, which no line shows: each is drawn as a line of length 0, whose round ends make it a
/// point.
fn points(series: &Series, max: f64, window: usize) -> String {
    let mut path = String::new();
    let is_missing =
        |index: Option<usize>| index.and_then(|index| series.get(index)).is_none_or(Option::is_none);
    for (index, value) in series.iter().enumerate() {
        if let Some(value) = value
            && is_missing(index.checked_sub(1))
            && is_missing(Some(index + 1))
        {
            let (x, y) = point(index, series.len(), *value, max, window);
            let _ok = write!(path, "M{x:.1} {y:.1}h0");
        }
    }
    path
}

fn area(series: &Series, max: f64, window: usize) -> String {
    let Some(last) = series.len().checked_sub(1) else { return String::new() };
    let line = line(series, max, window);
    let (first, _) = point(0, series.len(), 0.0, max, window);
    let (end, _) = point(last, series.len(), 0.0, max, window);
    format!("{line}L{end:.1} {HEIGHT}L{first:.1} {HEIGHT}Z")
}

fn maximum(series: &Series) -> f64 {
    series.iter().flatten().copied().fold(0.0, f64::max)
}

/// The next of 1, 2, 5, 10, 20 …: scales that are easy to read.
fn round_up_scale(value: f64) -> f64 {
    let mut unit = 1.0;
    while unit * 10.0 < value {
        unit *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|&step| step >= value).unwrap_or(value)
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_at_the_right_edge_and_gaps_stay_gaps() {
        let series = vec![Some(1.0), None, Some(0.5)];
        assert_eq!(line(&series, 1.0, 360), "M716.0 1.0M720.0 36.0");
        assert!(area(&vec![Some(1.0)], 1.0, 60).ends_with("L720.0 72L720.0 72Z"));
        assert_eq!((line(&Vec::new(), 1.0, 60), area(&Vec::new(), 1.0, 60)), (String::new(), String::new()));
    }

    #[test]
    fn time_without_denials_or_errors_has_no_line() {
        let series: Series = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0].map(Some).to_vec();
        let expected = vec![None, None, Some(0.0), Some(2.0), Some(0.0), None];
        assert_eq!(without_idle(&series), expected);
        assert_eq!(line(&without_idle(&vec![Some(0.0); 9]), 1.0, 60), "");
    }

    #[test]
    fn samples_without_neighbours_are_points() {
        let series = vec![Some(1.0), None, Some(0.5), Some(0.5), None, Some(1.0)];
        assert_eq!(points(&series, 1.0, 360), "M710.0 1.0h0M720.0 1.0h0");
        assert_eq!(points(&vec![Some(1.0)], 1.0, 60), "M720.0 1.0h0");
        assert_eq!(points(&vec![Some(1.0), Some(1.0)], 1.0, 60), "");
    }

    #[test]
    fn the_width_is_that_of_the_samples() {
        assert_eq!(u128::from(INTERVAL_SECONDS as u64) * 1_000, History::EVERY.as_millis());
    }

    #[test]
    fn scales_are_round() {
        assert_eq!(
            [0.0, 1.0, 1.1, 3.0, 7.0, 11.0, 480.0].map(round_up_scale),
            [1.0, 1.0, 2.0, 5.0, 10.0, 20.0, 500.0]
        );
    }

    #[test]
    fn a_chart_has_a_description_and_a_table() {
        let errors = ServerErrorCounts::from_counts([2, 1, 0, 0, 0]);
        let sample = HistoryPoint { requests: 1_200, denied: 30, errors, p50: Some(0.002), p99: Some(0.2) };
        let html = charts(1, "orders <1>", &[sample; 31], 1_783_080_001_000_000).into_string();
        assert!(
            html.contains("role=\"img\"")
                && html.contains(
                    "37,200 requests in the last hour, 930 of them denied; 93 got 5xx, 31 of them from"
                )
        );
        assert!(html.contains("orders &lt;1&gt;") && !html.contains("<1>"));
        assert_eq!(html.matches("<tr>").count(), 3, "a head, five minutes, and what is left");
        assert!(html.contains("data-points=\"[[1200,30,2.0,200.0,2,1],"));
        assert!(!html.contains("style="));
    }
}
