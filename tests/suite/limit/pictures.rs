//! The pictures of `docs/limits.md`: what each algorithm admits of the same traffic. They are drawn from what the
//! algorithms do, and a test fails where a picture shows something else. `TOLLGATE_DRAW=1` draws them anew.

use std::{env, fs, path::PathBuf, sync::Arc, time::Duration};

use plotters::prelude::*;
use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Check, ManualClock, Policy, PolicyId, Receipt, Taken,
        algorithm::{Detail, Member},
    },
    store::memory::MemoryStore,
};

const SECOND: i64 = 1_000_000;
const END: i64 = 40 * SECOND;
const LIMIT: u64 = 20;
const WINDOW: i64 = 10 * SECOND;
/// Width of a bar.
const BIN: i64 = SECOND / 2;

const ADMITTED: RGBColor = RGBColor(46, 139, 87);
const DENIED: RGBColor = RGBColor(232, 163, 147);
const LINE: RGBColor = RGBColor(29, 53, 87);
const LIMIT_LINE: RGBColor = RGBColor(190, 30, 45);

/// A picture: an algorithm and what comes.
struct Picture {
    name: &'static str,
    caption: &'static str,
    policy: Policy,
    arrivals: Vec<Arrival>,
    /// What the line shows.
    line: Line,
}

/// A request.
#[derive(Clone, Copy)]
struct Arrival {
    time: i64,
    member: Member,
    /// How long it runs.
    lasts: i64,
}

#[derive(Clone, Copy)]
enum Line {
    /// Units admitted in the window that ends now.
    Units,
    /// Different members of those.
    Members,
    /// Requests under way.
    UnderWay,
}

fn policy(algorithm: Algorithm, limit: u64) -> Policy {
    let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
    let rate = model::Rate { limit, window: Duration::from_micros(WINDOW.unsigned_abs()) };
    Policy::new(&model::Policy::new("p", algorithm, keys, vec![rate]), PolicyId(0))
}

/// So many a second between two seconds.
fn steady(from: i64, to: i64, rate: i64) -> impl Iterator<Item = i64> {
    (0..(to - from) * rate).map(move |i| from * SECOND + i * SECOND / rate)
}

/// One request that opens a window, a burst where calendar windows meet, and three times what the limit allows.
fn traffic() -> Vec<Arrival> {
    let times = std::iter::once(0).chain(steady(9, 11, 25)).chain(steady(20, 36, 6));
    times.map(|time| Arrival { time, member: 0, lasts: 0 }).collect()
}

/// Two requests a second that take four seconds each.
fn slow_requests() -> Vec<Arrival> {
    steady(2, 30, 2).zip(1..).map(|(time, member)| Arrival { time, member, lasts: 4 * SECOND }).collect()
}

/// An office of fifteen users who come again and again; from 15 s to 20 s somebody tries names.
fn users() -> Vec<Arrival> {
    let office = steady(0, 36, 3).zip(0_u128..).map(|(time, i)| (time, i % 15));
    let guesses = steady(15, 20, 8).zip(100_u128..);
    let mut all: Vec<_> =
        office.chain(guesses).map(|(time, member)| Arrival { time, member, lasts: 0 }).collect();
    all.sort_by_key(|arrival| arrival.time);
    all
}

fn pictures() -> Vec<Picture> {
    let windows = [
        (
            "single_counter",
            "single_counter: 20 from the first request of a window on",
            Algorithm::SingleCounter,
        ),
        ("fixed_window", "fixed_window: 20 in each calendar window of 10 s", Algorithm::FixedWindow),
        (
            "sliding_window",
            "sliding_window: 20 in any 10 s, counted in 10 buckets",
            Algorithm::SlidingWindow { buckets: 10 },
        ),
        ("sliding_log", "sliding_log: 20 in any 10 s, each remembered", Algorithm::SlidingLog),
        (
            "sliding_counter",
            "sliding_counter: 20 in 10 s, two counters and a share",
            Algorithm::SlidingCounter,
        ),
        ("gcra", "gcra: 2 a second, 20 at once", Algorithm::Gcra { burst: LIMIT, delay: Duration::ZERO }),
    ];
    let of = |(name, caption, algorithm)| Picture {
        name,
        caption,
        policy: policy(algorithm, LIMIT),
        arrivals: traffic(),
        line: Line::Units,
    };
    let mut pictures: Vec<Picture> = windows.into_iter().map(of).collect();
    pictures.push(Picture {
        name: "concurrency",
        caption: "concurrency: 5 under way; each takes 4 s",
        policy: policy(Algorithm::Concurrency, 5),
        arrivals: slow_requests(),
        line: Line::UnderWay,
    });
    pictures.push(Picture {
        name: "distinct",
        caption: "distinct: 20 different users in 10 s; from 15 s on somebody tries names",
        policy: policy(Algorithm::Distinct, LIMIT),
        arrivals: users(),
        line: Line::Members,
    });
    pictures
}

/// What came, and whether it was admitted.
fn play(policy: &Policy, arrivals: &[Arrival]) -> Vec<(Arrival, bool)> {
    let clock = Arc::new(ManualClock::new(0));
    let store = MemoryStore::new(10, Arc::clone(&clock) as _);
    let check = |member| Check {
        policy,
        identifier: "ip:1".into(),
        cost: 1,
        detail: if policy.kind.counts_members() { Detail::Member(member) } else { Detail::None },
    };
    let mut running: Vec<(i64, Member, Receipt)> = Vec::new();
    let mut played = Vec::new();
    for &arrival in arrivals {
        clock.set(arrival.time);
        running.retain(|&(end, member, receipt)| {
            if end <= arrival.time {
                store.settle_now(&Taken::all(&[check(member)], receipt));
            }
            end > arrival.time
        });
        let decision = store.decide_now(&[check(arrival.member)]);
        if decision.admitted && arrival.lasts > 0 {
            running.push((arrival.time + arrival.lasts, arrival.member, decision.receipt(0)));
        }
        played.push((arrival, decision.admitted));
    }
    played
}

/// What the line shows at a time.
fn level(line: Line, played: &[(Arrival, bool)], now: i64) -> usize {
    let admitted = played.iter().filter(|(_, admitted)| *admitted).map(|(arrival, _)| arrival);
    let in_window = |arrival: &&Arrival| now - WINDOW < arrival.time && arrival.time <= now;
    match line {
        Line::Units => admitted.filter(in_window).count(),
        Line::Members => {
            let mut members: Vec<_> = admitted.filter(in_window).map(|arrival| arrival.member).collect();
            members.sort_unstable();
            members.dedup();
            members.len()
        }
        Line::UnderWay => {
            admitted.filter(|arrival| arrival.time <= now && now < arrival.time + arrival.lasts).count()
        }
    }
}

fn seconds(time: i64) -> f64 {
    time as f64 / SECOND as f64
}

fn draw(picture: &Picture) -> String {
    let played = play(&picture.policy, &picture.arrivals);
    let limit = picture.policy.tiers[0].limit;
    let levels: Vec<(f64, f64)> = (0..=END / (SECOND / 10))
        .map(|tenth| tenth * SECOND / 10)
        .map(|now| (seconds(now), level(picture.line, &played, now) as f64))
        .collect();
    let bars: Vec<(i64, usize, usize)> = (0..END / BIN)
        .map(|bin| {
            let within = |time: i64| bin * BIN <= time && time < (bin + 1) * BIN;
            let count =
                |wanted| played.iter().filter(|(a, admitted)| within(a.time) && *admitted == wanted).count();
            (bin * BIN, count(true), count(false))
        })
        .collect();
    let highest =
        levels.iter().map(|point| point.1 as usize).chain(bars.iter().map(|bar| bar.1 + bar.2)).max();
    let top = highest.unwrap_or_default().max(limit as usize) as f64 * 1.4;

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (720, 260)).into_drawing_area();
        area.fill(&WHITE).unwrap();
        let mut chart = ChartBuilder::on(&area)
            .caption(picture.caption, ("sans-serif", 15))
            .margin(8)
            .margin_right(20)
            .x_label_area_size(28)
            .y_label_area_size(34)
            .build_cartesian_2d(0.0..seconds(END), 0.0..top)
            .unwrap();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_desc("seconds")
            .x_label_formatter(&|seconds| format!("{seconds:.0}"))
            .y_label_formatter(&|count| format!("{count:.0}"))
            .label_style(("sans-serif", 12))
            .draw()
            .unwrap();
        let bar = |from: i64, low: usize, high: usize, colour: RGBColor| {
            let corners =
                [(seconds(from + BIN / 10), low as f64), (seconds(from + BIN - BIN / 10), high as f64)];
            Rectangle::new(corners, colour.filled())
        };
        let admitted = bars.iter().map(|&(from, admitted, _)| bar(from, 0, admitted, ADMITTED));
        chart.draw_series(admitted).unwrap().label("admitted in half a second").legend(square(ADMITTED));
        let denied =
            bars.iter().map(|&(from, admitted, denied)| bar(from, admitted, admitted + denied, DENIED));
        chart.draw_series(denied).unwrap().label("denied").legend(square(DENIED));
        let what = match picture.line {
            Line::Units => "admitted in the last 10 s",
            Line::Members => "different users in the last 10 s",
            Line::UnderWay => "under way",
        };
        chart
            .draw_series(LineSeries::new(levels, LINE.stroke_width(2)))
            .unwrap()
            .label(what)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], LINE.stroke_width(2)));
        let across = [(0.0, limit as f64), (seconds(END), limit as f64)];
        chart
            .draw_series(DashedLineSeries::new(across, 6, 4, LIMIT_LINE.into()))
            .unwrap()
            .label("limit")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], LIMIT_LINE));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 12))
            .draw()
            .unwrap();
        area.present().unwrap();
    }
    svg
}

fn square(colour: RGBColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled())
}

#[test]
fn the_pictures_of_the_guide_show_what_the_algorithms_do() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let is_drawing = env::var_os("TOLLGATE_DRAW").is_some();
    for picture in pictures() {
        let (file, svg) = (folder.join(format!("{}.svg", picture.name)), draw(&picture));
        if is_drawing {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &svg).unwrap();
        }
        let shown = fs::read_to_string(&file).unwrap_or_default();
        assert!(shown == svg, "{} shows something else: draw it with TOLLGATE_DRAW=1", file.display());
    }
}
