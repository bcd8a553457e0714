//! The last hour of a route, drawn: what was asked and denied, and how long answers took.

use std::fmt::Write;

use maud::{Markup, html};

use super::format::{count, rate, seconds};
use crate::telemetry::{
    metrics::{History, Sample},
    time::rfc3339,
};

/// The drawing's own units: it is stretched to whatever room there is.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 72.0;
/// Samples that are drawn: the shortest of these that holds all there are.
const WINDOWS: [usize; 3] = [60, 180, History::LENGTH];
/// Seconds between two samples.
const EVERY: usize = 10;
/// Samples a line of the table that tells the same: five minutes.
const LINE: usize = 30;

/// One value a sample; `None` leaves a gap.
type Series = Vec<Option<f64>>;

/// Requests and denials a second, and latency beside them. `id`: what no other chart of the page has.
pub(super) fn charts(id: usize, name: &str, samples: &[Sample], end: i64) -> Markup {
    let every = History::EVERY.as_secs_f64();
    let window = WINDOWS.into_iter().find(|&window| window >= samples.len()).unwrap_or(History::LENGTH);
    let per_second =
        |of: fn(&Sample) -> u64| -> Series { samples.iter().map(|s| Some(number(of(s)) / every)).collect() };
    let requests = per_second(|sample| sample.requests);
    let denied = per_second(|sample| sample.denied);
    let slow: Series = samples.iter().map(|sample| sample.p99).collect();
    let usual: Series = samples.iter().map(|sample| sample.p50).collect();
    let (most, slowest) = (nice(highest(&requests)), nice(highest(&slow) * 1_000.0) / 1_000.0);
    let asked: u64 = samples.iter().map(|sample| sample.requests).sum();
    let refused: u64 = samples.iter().map(|sample| sample.denied).sum();
    let told = format!(
        "{} requests in the last hour, {} of them denied; at most {} a second",
        count(asked),
        count(refused),
        rate(highest(&requests))
    );
    let minutes = window * EVERY / 60;
    let traffic = Figure {
        id: format!("traffic-{id}"),
        title: format!("Requests and denials of {name}"),
        told,
        top: format!("{}/s", rate(most)),
        minutes,
    };
    let latency = Figure {
        id: format!("latency-{id}"),
        title: format!("Latency of {name}"),
        told: format!("99 of 100 answers took no longer than {} at worst", seconds(highest(&slow))),
        top: seconds(slowest),
        minutes,
    };
    html! {
        div.charts data-points=(points(samples)) data-end=(end / 1_000) data-window=(window) {
            (traffic.drawn(&html! {
                path.area.requests d=(area(&requests, most, window)) {}
                path.line.requests d=(line(&requests, most, window)) {}
                path.area.denied d=(area(&denied, most, window)) {}
                path.line.denied d=(line(&denied, most, window)) {}
            }))
            (latency.drawn(&html! {
                path.line.usual d=(line(&usual, slowest, window)) {}
                path.line.slow d=(line(&slow, slowest, window)) {}
            }))
        }
        (table(name, samples, end))
    }
}

/// What is around the lines of a chart.
struct Figure {
    id: String,
    title: String,
    /// The same in words.
    told: String,
    /// What the upper edge stands for.
    top: String,
    /// How long ago the left edge is.
    minutes: usize,
}

impl Figure {
    fn drawn(&self, lines: &Markup) -> Markup {
        let Self { id, title, told, top, minutes } = self;
        html! {
            figure.chart {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                    title id={ (id) "-t" } { (title) }
                    desc id={ (id) "-d" } { (told) }
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

/// The same in numbers, for whoever can't see it or wants to know exactly.
fn table(name: &str, samples: &[Sample], end: i64) -> Markup {
    let mut lines = Vec::new();
    let step = i64::try_from(History::EVERY.as_micros()).unwrap_or_default();
    let mut until = end;
    for of in samples.rchunks(LINE) {
        let began = until - step * i64::try_from(of.len()).unwrap_or_default();
        let sum = |value: fn(&Sample) -> u64| of.iter().map(value).sum::<u64>();
        let slowest = of.iter().filter_map(|sample| sample.p99).reduce(f64::max);
        lines.push((began, until, sum(|s| s.requests), sum(|s| s.denied), slowest));
        until = began;
    }
    html! {
        details.numbers {
            summary { "In numbers" span.hidden { ": " (name) } }
            div.scroll tabindex="0" role="region" aria-label={ (name) " in numbers" } {
                table {
                    thead { tr {
                        th scope="col" { "From" } th scope="col" { "To (UTC)" }
                        th.num scope="col" { "Requests" } th.num scope="col" { "Denied" } th.num scope="col" { "Slowest p99" }
                    } }
                    tbody {
                        @for (began, until, requests, denied, slowest) in lines {
                            tr {
                                td.mono { (minute(began)) } td.mono { (minute(until)) }
                                td.num { (count(requests)) } td.num { (count(denied)) }
                                td.num { @match slowest { Some(slowest) => (seconds(slowest)), None => "–" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn minute(time: i64) -> String {
    rfc3339(time).get(11..19).unwrap_or_default().to_owned()
}

/// For the eye that follows the pointer: requests, denials, and latencies in milliseconds.
fn points(samples: &[Sample]) -> String {
    let millis = |latency: Option<f64>| {
        latency.map_or("null".to_owned(), |latency| format!("{:.1}", latency * 1_000.0))
    };
    let mut text = String::from("[");
    for (place, sample) in samples.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (p50, p99) = (millis(sample.p50), millis(sample.p99));
        // Writing to a string can't fail.
        let _ok = write!(text, "{comma}[{},{},{p50},{p99}]", sample.requests, sample.denied);
    }
    text + "]"
}

/// Where a sample is: the newest at the right edge.
fn place(index: usize, of: usize, value: f64, most: f64, window: usize) -> (f64, f64) {
    let step = WIDTH / number(window as u64 - 1);
    let x = WIDTH - step * number((of - 1 - index) as u64);
    // A line at the very edge would be cut in half.
    let y = HEIGHT - 1.0 - (value / most).clamp(0.0, 1.0) * (HEIGHT - 2.0);
    (x, y)
}

fn line(series: &Series, most: f64, window: usize) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for (index, value) in series.iter().enumerate() {
        if let Some(value) = value {
            let (x, y) = place(index, series.len(), *value, most, window);
            let _ok = write!(path, "{}{x:.1} {y:.1}", if is_down { "L" } else { "M" });
        }
        is_down = value.is_some();
    }
    path
}

fn area(series: &Series, most: f64, window: usize) -> String {
    let Some(last) = series.len().checked_sub(1) else { return String::new() };
    let line = line(series, most, window);
    let (first, _) = place(0, series.len(), 0.0, most, window);
    let (end, _) = place(last, series.len(), 0.0, most, window);
    format!("{line}L{end:.1} {HEIGHT}L{first:.1} {HEIGHT}Z")
}

fn highest(series: &Series) -> f64 {
    series.iter().flatten().copied().fold(0.0, f64::max)
}

/// The next of 1, 2, 5, 10, 20 …, so that the scale is one that is read easily.
fn nice(value: f64) -> f64 {
    let mut unit = 1.0;
    while unit * 10.0 < value {
        unit *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|&step| step >= value).unwrap_or(value)
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn number(count: u64) -> f64 {
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
    fn the_width_is_that_of_the_samples() {
        assert_eq!(u128::from(EVERY as u64) * 1_000, History::EVERY.as_millis());
    }

    #[test]
    fn scales_are_round() {
        assert_eq!([0.0, 1.0, 1.1, 3.0, 7.0, 11.0, 480.0].map(nice), [1.0, 1.0, 2.0, 5.0, 10.0, 20.0, 500.0]);
    }

    #[test]
    fn a_chart_says_in_words_and_numbers_what_it_shows() {
        let sample = Sample { requests: 1_200, denied: 30, p50: Some(0.002), p99: Some(0.2) };
        let html = charts(1, "orders <1>", &[sample; 31], 1_783_080_001_000_000).into_string();
        assert!(
            html.contains("role=\"img\"")
                && html.contains("37,200 requests in the last hour, 930 of them denied")
        );
        assert!(html.contains("orders &lt;1&gt;") && !html.contains("<1>"));
        assert_eq!(html.matches("<tr>").count(), 3, "a head, five minutes, and what is left");
        assert!(html.contains("data-points=\"[[1200,30,2.0,200.0],"));
        assert!(!html.contains("style="));
    }
}
