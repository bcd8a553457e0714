//! How far limits in Redis scale: what calls cost, and what many instances and shards would do.
//!
//! `cargo bench --bench scale -- measure` measures one server, and compares the simulation with a real cluster of three; with
//! `--write`, the simulation uses what was measured from then on (`model.json`). `cargo bench --bench scale -- simulate` prints the
//! tables of docs/scaling.md, and `outage` the last alone; with `--write`, it draws their picture. Takes `redis-server` from the PATH.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a table is what it is for, and it may end"
)]

use std::{env, fs, ops::Range};

use plotters::prelude::*;
use tollgate::{config::model::Algorithm, limit::Policy};

mod model;
mod servers;
mod simulation;
#[path = "../support/mod.rs"]
mod support;
mod traffic;

use model::Model;
use servers::Run;
use simulation::{MILLI, Outcome, SECOND, Setup};
use support::{Redis, policy};
use traffic::{Demand, Variant};

/// Instances, and decisions a second, of which each is a call of its own: how long that takes is what a call takes.
const ALONE: (usize, f64) = (16, 1_000.0);
const UNREACHED: u64 = 1_000_000_000;
/// Of which each may take as much of a limit in a slice as all others.
const INSTANCES: u64 = 1_000;
/// How busy a shard may be for most of the time.
const BUSY: f64 = 0.7;
/// Decisions a second up to which it is simulated.
const MOST: f64 = 1.5e6;
const VARIANTS: [Variant; 3] = [Variant::Bare, Variant::Denials, Variant::Slices];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("measure") {
        measure(has("--write"));
    }
    if has("simulate") {
        simulate(has("--write"));
    }
    if has("simulate") || has("outage") {
        outage();
    }
}

/// A limit of so many a second, of which instances take slices of so many.
fn limit(units: u64, slice: u64, variant: Variant) -> Policy {
    let policy = policy(Algorithm::FixedWindow, &[(units, 1_000)]);
    Policy { slice: if variant == Variant::Slices { slice } else { 0 }, ..policy }
}

/// The run of three of which each decision took Redis the least time: others take theirs on the same machine.
fn least_disturbed(run: impl Fn() -> Run) -> Run {
    let busy = |run: &Run| run.servers.iter().map(|done| done.busy).sum::<f64>() / run.decisions;
    let runs = (0..3).map(|_| run());
    runs.min_by(|one, other| busy(one).total_cmp(&busy(other))).expect("there are three")
}

fn measure(writes: bool) {
    let demand = Demand::zipf(100_000);
    let span = (SECOND, 3 * SECOND);
    let unreached = limit(UNREACHED, 0, Variant::Bare);
    let (mut rows, mut waits) = (Vec::new(), Vec::new());
    println!(
        "one server\n{:>9} {:>9} {:>14} {:>10} {:>10} {:>12}",
        "instances", "a second", "a call", "wakes", "calls", "µs each"
    );
    for instances in [1, 4, 16] {
        for rate in [1_000.0, 4_000.0, 12_000.0, 20_000.0] {
            let run = least_disturbed(|| {
                let nodes = [Redis::start()];
                servers::run(&nodes, &demand, &unreached, Variant::Bare, instances, rate, span)
            });
            let done = run.servers[0];
            println!(
                "{instances:>9} {rate:>9} {:>14.2} {:>10} {:>10} {:>12.2}",
                run.decisions / done.calls,
                done.wakes,
                done.calls,
                done.busy / run.decisions / 1e3
            );
            rows.push(([done.wakes, done.calls, run.decisions], done.busy));
            if waits.is_empty() || (instances, rate) == ALONE {
                waits = run.waits;
            }
        }
    }
    let [wake, call, decision] = model::fit(&rows);
    let worst = rows.iter().map(|([wakes, calls, decisions], busy)| {
        ((wakes * wake + calls * call + decisions * decision) / busy - 1.0).abs()
    });
    println!(
        "wake {:.2} µs, call {:.2} µs, decision {:.2} µs; off by at most {:.0} %",
        wake / 1e3,
        call / 1e3,
        decision / 1e3,
        100.0 * worst.fold(0.0, f64::max)
    );
    let own = (wake + call + decision) as i64;
    let one_way = (0..200).map(|nth| (waits[waits.len() * nth / 200] - own).max(0) / 2).collect();
    let model = Model { wake, call, decision, cluster: 1.0, one_way };
    let cluster = compare(&model, &demand, span);
    println!("a node of a cluster takes {cluster:.2} times as much");
    if writes {
        Model { cluster, ..model }.write();
    }
}

/// The simulation beside a real cluster of three. Returns how many times as much CPU time the real one took: the median.
fn compare(model: &Model, demand: &Demand, (warm, end): (i64, i64)) -> f64 {
    let mut ratios = Vec::new();
    println!(
        "\ncluster of three: real, simulated, ratio\n{:<10} {:>9} {:>26} {:>26} {:>26} {:>26}",
        "", "a second", "decisions of Redis", "a call", "busy, all", "busy, hottest"
    );
    for variant in VARIANTS {
        for rate in [3_000.0, 8_000.0, 16_000.0] {
            let policy = limit(500, 20, variant);
            let instances = 8;
            let real = least_disturbed(|| {
                let nodes = Redis::cluster(3);
                servers::run(&nodes, demand, &policy, variant, instances, rate, (warm, end))
            });
            let setup = Setup {
                policy,
                variant,
                instances,
                shards: 3,
                rate,
                warm,
                end,
                tick: MILLI,
                away: None,
                seed: 1,
                model,
                demand,
            };
            let simulated = simulation::run(&setup);
            let lasts = (end - warm) as f64;
            let hottest = real.servers.iter().map(|done| done.busy).fold(0.0, f64::max);
            let sum = |of: fn(&servers::Done) -> f64| real.servers.iter().map(of).sum::<f64>();
            let asked = simulated.sum(|load| load.decisions as f64);
            let pairs = [
                (real.decisions / real.waits.len() as f64, asked / simulated.requests as f64),
                (real.decisions / sum(|done| done.calls), asked / simulated.sum(|load| load.calls as f64)),
                (sum(|done| done.busy) / lasts, simulated.sum(|load| load.busy) / lasts),
                (hottest / lasts, simulated.hottest() / lasts),
            ];
            ratios.push(pairs[2].0 / pairs[2].1);
            let cells = pairs
                .map(|(real, simulated)| format!("{real:>9.3} {simulated:>8.3} {:>7.2}", simulated / real));
            println!("{:<10} {rate:>9} {}", format!("{variant:?}"), cells.join(" "));
        }
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// The rate at which the hottest shard is as busy as it may be, and what was seen there.
fn capacity(setup: &Setup<'_>, rates: Range<f64>) -> (f64, Outcome) {
    let mut rate = (2e4 * setup.shards as f64).min(rates.end);
    for last in [false, false, false, true] {
        let setup = Setup { rate, policy: setup.policy.clone(), ..*setup };
        let outcome = simulation::run(&setup);
        let busy = outcome.hottest() / (setup.end - setup.warm) as f64;
        let better = (rate * (BUSY / busy).clamp(0.2, 5.0)).clamp(rates.start, rates.end);
        if last || (better / rate - 1.0).abs() < 0.02 {
            return (rate, outcome);
        }
        rate = better;
    }
    unreachable!("the last returns")
}

/// A thousand instances, and a shard.
fn base<'a>(model: &'a Model, demand: &'a Demand, policy: Policy, variant: Variant) -> Setup<'a> {
    Setup {
        policy,
        variant,
        model,
        demand,
        instances: INSTANCES as usize,
        shards: 1,
        rate: 0.0,
        warm: SECOND / 2,
        end: 3 * SECOND / 2,
        tick: 1,
        away: None,
        seed: 1,
    }
}

fn simulate(writes: bool) {
    let model = &Model::read();
    let demand = &Demand::zipf(10_000_000);
    let mut curves = Vec::new();
    for (name, units, variant) in
        [("100,000 a second", 100_000, Variant::Slices), ("100 a second", 100, Variant::Denials)]
    {
        println!(
            "\nlimits of {name}\n| shards | Redis decides all | hottest shard | with {} | of Redis | hottest shard |\n\
             | ---: | ---: | ---: | ---: | ---: | ---: |",
            variant.name()
        );
        let variants = [Variant::Bare, variant];
        let mut points = variants.map(|_| Vec::new());
        for shards in [1, 2, 4, 8, 16, 32, 64, 128] {
            print!("| {shards} |");
            for (points, variant) in points.iter_mut().zip(variants) {
                let setup = Setup {
                    shards,
                    ..base(model, demand, limit(units, units / INSTANCES, variant), variant)
                };
                let (rate, outcome) = capacity(&setup, 100.0..MOST);
                let shown = if rate < MOST { format!("{rate:.0}") } else { format!("{MOST:.0} or more") };
                let hottest = outcome.hottest() * shards as f64 / outcome.sum(|load| load.busy);
                let of_redis = 100.0 * outcome.sum(|load| load.decisions as f64) / outcome.requests as f64;
                match variant {
                    Variant::Bare => print!(" {shown} | × {hottest:.2} |"),
                    _ => print!(" {shown} | {of_redis:.0} % | × {hottest:.2} |"),
                }
                points.push((shards as f64, rate));
            }
            println!();
        }
        let of_variant = |(variant, points)| Curve { name, variant, points };
        curves.extend(variants.into_iter().zip(points).map(of_variant));
    }
    println!(
        "\nby instances, 4 shards\n| instances | decisions/s | a call | p50 / p99 ms |\n| ---: | ---: | ---: | ---: |"
    );
    for instances in [1, 10, 100, 1_000] {
        let variant = Variant::Denials;
        let setup =
            Setup { instances, shards: 4, ..base(model, demand, limit(UNREACHED, 0, variant), variant) };
        let (rate, outcome) = capacity(&setup, 100.0..MOST);
        let decisions = outcome.sum(|load| load.decisions as f64);
        let a_call = decisions / outcome.sum(|load| load.calls as f64);
        println!(
            "| {instances} | {rate:.0} | {a_call:.2} | {:.2} / {:.2} |",
            outcome.wait(0.5),
            outcome.wait(0.99)
        );
    }
    if writes {
        draw(&curves);
    }
}

/// What limits admit while the shard of the hottest key is away.
fn outage() {
    let model = &Model::read();
    let demand = &Demand::zipf(10_000_000);
    println!(
        "\na shard of 16 is away for a second\n| limit | slices | admitted of one key in a window | by the fallback | failed | p99.9 ms |\n| ---: | --- | ---: | ---: | ---: | ---: |"
    );
    let cases = [
        (100, Variant::Denials),
        (1_000, Variant::Denials),
        (10_000, Variant::Denials),
        (10_000, Variant::Slices),
    ];
    for (units, variant) in cases {
        let away = Some((SECOND / 2, 3 * SECOND / 2));
        let setup = Setup {
            shards: 16,
            rate: 1e5,
            end: 2 * SECOND,
            away,
            ..base(model, demand, limit(units, units / INSTANCES, variant), variant)
        };
        let outcome = simulation::run(&setup);
        println!(
            "| {units} | {} | {} | {} | {} | {:.1} |",
            variant == Variant::Slices,
            outcome.most,
            outcome.by_fallback,
            outcome.failed,
            outcome.wait(0.999)
        );
    }
}

/// Shards, and decisions a second.
struct Curve {
    name: &'static str,
    variant: Variant,
    points: Vec<(f64, f64)>,
}

fn draw(curves: &[Curve]) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pictures/scale.svg");
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (720, 360)).into_drawing_area();
        area.fill(&WHITE).unwrap();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..128.0).log_scale(), (1e3..2e6).log_scale())
            .unwrap();
        chart.configure_mesh().x_desc("shards").y_desc("decisions a second").draw().unwrap();
        for (nth, Curve { name, variant, points }) in curves.iter().enumerate() {
            let color = Palette99::pick(nth).to_rgba();
            let series = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            chart
                .draw_series(series)
                .unwrap()
                .label(format!("limits of {name}, {}", variant.name()))
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color));
        }
        chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).draw().unwrap();
        area.present().unwrap();
    }
    fs::write(file, svg).unwrap();
}
