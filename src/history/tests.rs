//! Batches in a real file: what is added, once, and what is asked of it.

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use jiff::{
    civil::{Date, date},
    tz,
};

use super::{
    AlertOutcome, AlertState, History, NewAlert, alerts,
    apply::{KnownIds, add_batch, date_of_day, day_at, day_of_date},
    batch::{Batch, Cause, DenialRow, EventRow, Series, Sums, UsageRow},
    months::{self, Closing, Month},
    outbox::{Outbox, Spool},
    questions::{self, Dimension, UsageQuestion},
    recorder::{DenialSample, RequestCounts},
    sql::{Sql, SqlError, Sqlite, migrate},
};
use crate::limit::WallClock;

const BERLIN: &str = "Europe/Berlin";

fn open(path: &Path) -> Box<dyn Sql> {
    let mut sql: Box<dyn Sql> = Box::new(Sqlite::open(path, 64 << 20).unwrap());
    migrate(&mut *sql).unwrap();
    sql
}

fn file() -> (tempfile::TempDir, Box<dyn Sql>) {
    let directory = tempfile::tempdir().unwrap();
    let sql = open(&directory.path().join("history.db"));
    (directory, sql)
}

fn seconds(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// What `customer` has used at this time: requests, of which the first is denied, and as many units.
fn used(customer: &str, at: &str, requests: u64) -> UsageRow {
    let counts = RequestCounts { requests, denied: 1, classes: [0, requests - 1, 0, 1, 0] };
    UsageRow {
        quarter: seconds(at).div_euclid(900),
        series: Series { customer: customer.into(), route: "all".into(), ..Series::default() },
        counts,
        units: vec![("monthly".into(), requests)],
    }
}

fn batch(watermark: &str, usage: Vec<UsageRow>) -> Batch {
    let mut batch = Sums::default().take(seconds("2026-10-01T00:00:00Z"), seconds(watermark), false);
    batch.zones = vec![BERLIN.to_owned(), "Asia/Kolkata".to_owned()];
    batch.usage = usage;
    batch
}

fn add(sql: &mut dyn Sql, process: &str, number: u64, batch: &Batch) {
    add_batch(sql, &mut KnownIds::default(), process, number, batch, batch.watermark).unwrap();
}

fn zone(name: &str) -> (String, tz::TimeZone) {
    (name.to_owned(), tz::TimeZone::get(name).unwrap())
}

fn ask(sql: &mut dyn Sql, zone_name: &str, days: [Date; 2], by: &[Dimension]) -> questions::UsageAnswer {
    let [from, to] = days;
    let question =
        UsageQuestion { zone: zone(zone_name), from, to, customer: None, user: None, by: by.to_vec() };
    questions::usage(sql, &question).unwrap()
}

/// Keys, requests and units, and whether they are late.
fn shown(answer: &questions::UsageAnswer) -> Vec<(String, u64, u64, bool)> {
    let row = |row: &questions::UsageRow| {
        let units = row.units.iter().map(|(_, units)| units).sum();
        (row.keys.join(","), row.counts.requests, units, row.is_late)
    };
    answer.rows.iter().map(row).collect()
}

const OCTOBER: [Date; 2] = [date(2026, 10, 1), date(2026, 11, 1)];

#[test]
fn a_batch_is_added_once() {
    let (_directory, mut sql) = file();
    let first = batch("2026-10-05T12:00:00Z", vec![used("acme", "2026-10-05T11:00:00Z", 7)]);
    for _ in 0..3 {
        add(&mut *sql, "one", 1, &first);
    }
    // Another process has numbers of its own. A number that was passed over was dropped.
    add(&mut *sql, "two", 1, &first);
    add(&mut *sql, "one", 5, &batch("2026-10-05T12:00:05Z", vec![used("globex", "2026-10-05T11:00:00Z", 2)]));
    add(&mut *sql, "one", 4, &first);
    let answer = ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Customer]);
    assert_eq!(shown(&answer), [("acme".into(), 14, 14, false), ("globex".into(), 2, 2, false)]);
    assert_eq!(answer.rows[0].counts.classes, [0, 12, 0, 2, 0]);
    assert_eq!(answer.rows[0].counts.denied, 2);
    let total = ask(&mut *sql, BERLIN, OCTOBER, &[]);
    assert_eq!(shown(&total), [(String::new(), 16, 16, false)]);
    let by_policy = ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Customer, Dimension::Policy]);
    assert_eq!(
        shown(&by_policy),
        [("acme,monthly".into(), 0, 14, false), ("globex,monthly".into(), 0, 2, false)]
    );
}

#[test]
fn days_are_those_of_each_zone() {
    let (_directory, mut sql) = file();
    // 00:30 of the next day in Berlin, 05:00 in India; the clock in Berlin goes back on the 25th.
    let rows = vec![
        used("acme", "2026-10-24T22:30:00Z", 5),
        used("acme", "2026-10-25T22:30:00Z", 3),
        used("acme", "2026-10-25T18:30:00Z", 2),
    ];
    add(&mut *sql, "one", 1, &batch("2026-10-26T12:00:00Z", rows));
    let of = |sql: &mut dyn Sql, zone| shown(&ask(sql, zone, OCTOBER, &[Dimension::Day]));
    assert_eq!(of(&mut *sql, BERLIN), [("2026-10-25".into(), 10, 10, false)]);
    assert_eq!(
        of(&mut *sql, "Asia/Kolkata"),
        [("2026-10-25".into(), 5, 5, false), ("2026-10-26".into(), 5, 5, false)]
    );
    let hours = shown(&ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Hour]));
    assert_eq!(
        hours.iter().map(|row| (row.0.as_str(), row.1)).collect::<Vec<_>>(),
        [("2026-10-24T22:00Z", 5), ("2026-10-25T18:00Z", 2), ("2026-10-25T22:00Z", 3)]
    );
    assert!(ask(&mut *sql, "UTC", OCTOBER, &[]).rows.is_empty(), "it is not kept by days of UTC");
}

#[test]
fn days_begin_where_a_quarter_of_an_hour_does() {
    for name in ["UTC", BERLIN, "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"] {
        let zone = tz::TimeZone::get(name).unwrap();
        let begin = seconds("2026-01-01T00:00:00Z");
        let mut changes = 0;
        for second in (begin..begin + 366 * 86_400).step_by(900) {
            let day = day_at(&zone, second);
            assert_eq!(day, day_at(&zone, second + 899), "{name} {second}");
            changes += i64::from(day != day_at(&zone, second - 1));
            let date = jiff::Timestamp::from_second(second).unwrap().to_zoned(zone.clone()).date();
            assert_eq!(date_of_day(day), date, "{name} {second}");
            assert_eq!(day_of_date(date), day);
        }
        assert!((366..=367).contains(&changes), "{name}: {changes}");
    }
}

#[test]
fn a_month_is_closed_when_all_have_reported_it() {
    let (_directory, mut sql) = file();
    let known = &mut KnownIds::default();
    let october = Month { year: 2026, month: 10 };
    let mut close = |sql: &mut dyn Sql, name: &str, now: &str, forced| {
        let (name, zone) = zone(name);
        months::close(sql, known, (&name, &zone), october, seconds(now), forced).unwrap()
    };
    add(&mut *sql, "one", 1, &batch("2026-10-31T22:50:00Z", vec![used("acme", "2026-10-31T22:30:00Z", 7)]));
    add(&mut *sql, "two", 1, &batch("2026-10-31T22:50:00Z", vec![used("acme", "2026-10-31T22:30:00Z", 1)]));
    // In India it ends at 18:30, in Berlin at 23:00.
    assert_eq!(close(&mut *sql, "Asia/Kolkata", "2026-10-31T18:31:00Z", true), Closing::TooEarly);
    assert_eq!(
        close(&mut *sql, "Asia/Kolkata", "2026-10-31T18:36:00Z", false),
        Closing::Closed { complete: true }
    );
    assert!(
        matches!(close(&mut *sql, BERLIN, "2026-10-31T23:06:00Z", false), Closing::Waits(two) if two.len() == 2)
    );
    add(&mut *sql, "one", 2, &batch("2026-10-31T23:06:00Z", Vec::new()));
    let waits = close(&mut *sql, BERLIN, "2026-10-31T23:06:00Z", false);
    assert!(matches!(&waits, Closing::Waits(two) if two[0].id == "two"), "{waits:?}");
    // After two days, it is closed without the one that is silent.
    assert!(matches!(close(&mut *sql, BERLIN, "2026-11-02T22:49:00Z", false), Closing::Waits(_)));
    assert_eq!(close(&mut *sql, BERLIN, "2026-11-02T22:50:00Z", false), Closing::Closed { complete: false });
    let answer = ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Customer]);
    assert_eq!((answer.closed, shown(&answer)), (Some(false), vec![("acme".into(), 8, 8, false)]));

    // What comes later is apart, and beside the day.
    add(&mut *sql, "two", 2, &batch("2026-11-03T00:00:00Z", vec![used("acme", "2026-10-31T22:45:00Z", 4)]));
    let answer = ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Customer]);
    assert_eq!(shown(&answer), [("acme".into(), 8, 8, false), ("acme".into(), 4, 4, true)]);
    let by_day = ask(&mut *sql, BERLIN, OCTOBER, &[Dimension::Day]);
    assert_eq!(shown(&by_day), [("2026-10-31".into(), 12, 12, false)]);
    assert_eq!(close(&mut *sql, BERLIN, "2026-11-04T00:00:00Z", true), Closing::Closed { complete: false });
    // It is the first of November in India.
    let november = [date(2026, 11, 1), date(2026, 12, 1)];
    assert_eq!(shown(&ask(&mut *sql, "Asia/Kolkata", november, &[])), [(String::new(), 12, 12, false)]);
}

#[test]
fn a_clean_end_and_a_force_close_a_month() {
    let (_directory, mut sql) = file();
    let mut last = batch("2026-10-20T00:00:00Z", vec![used("acme", "2026-10-19T00:00:00Z", 3)]);
    add(&mut *sql, "silent", 1, &last);
    let (name, berlin) = zone(BERLIN);
    let october = Month { year: 2026, month: 10 };
    let now = seconds("2026-11-01T01:00:00Z");
    let open = months::open_months(&mut *sql, (&name, &berlin), now).unwrap();
    assert_eq!(open, [october]);
    let close = |sql: &mut dyn Sql, forced| {
        months::close(sql, &mut KnownIds::default(), (&name, &berlin), october, now, forced).unwrap()
    };
    // It was last heard of twelve days ago.
    assert_eq!(close(&mut *sql, false), Closing::Closed { complete: false });
    assert!(months::open_months(&mut *sql, (&name, &berlin), now).unwrap().is_empty());
    // The next month does not wait for it, and is complete.
    let later = batch("2026-12-01T00:00:00Z", vec![used("acme", "2026-11-19T00:00:00Z", 3)]);
    add(&mut *sql, "alive", 1, &later);
    let (november, later) = (october.next(), seconds("2026-12-01T00:00:00Z"));
    let closed =
        months::close(&mut *sql, &mut KnownIds::default(), (&name, &berlin), november, later, false).unwrap();
    assert_eq!(closed, Closing::Closed { complete: true });

    let (_directory, mut sql) = file();
    last.has_ended = true;
    add(&mut *sql, "ended", 1, &last);
    assert_eq!(close(&mut *sql, false), Closing::Closed { complete: true });

    let (_directory, mut sql) = file();
    let recent = batch("2026-10-31T22:59:00Z", vec![used("acme", "2026-10-19T00:00:00Z", 3)]);
    add(&mut *sql, "slow", 1, &recent);
    assert!(matches!(close(&mut *sql, false), Closing::Waits(_)));
    assert_eq!(close(&mut *sql, true), Closing::Closed { complete: false });
}

#[test]
fn months_are_read_and_follow_each_other() {
    for wrong in ["", "2026", "2026-13", "2026-00", "26-11", "2026-1", "1969-12", "2026-11-01", "+026-11"] {
        assert_eq!(Month::parse(wrong), None, "{wrong}");
    }
    let december = Month::parse("2026-12").unwrap();
    assert_eq!((december.to_string().as_str(), december.next().to_string().as_str()), ("2026-12", "2027-01"));
}

fn denial(minute: i64, address: &str, customer: &str, count: u64) -> DenialRow {
    let series = Series { customer: customer.into(), route: "all".into(), ..Series::default() };
    DenialRow {
        minute,
        address: address.into(),
        cause: Cause {
            series,
            kind: "limit".into(),
            policy: "per-minute".into(),
            limit: "60/1m".into(),
            method: "GET".into(),
        },
        count,
        first: minute * 60_000_000 + 5,
        last: minute * 60_000_000 + 9,
        sample: DenialSample {
            path: "/a\0b".into(),
            request_id: format!("{customer}-{minute}"),
            status: 429,
            ..DenialSample::default()
        },
    }
}

#[test]
fn denials_are_counted_by_minute_and_found() {
    let (_directory, mut sql) = file();
    let mut all = batch("2026-10-05T12:00:00Z", Vec::new());
    all.denials = vec![
        denial(100, "203.0.113.7", "acme", 3),
        denial(100, "203.0.113.9", "acme", 1),
        denial(101, "198.51.100.0/24", "globex", 50),
        denial(102, "2001:db8::/64", "", 2),
    ];
    add(&mut *sql, "one", 1, &all);
    add(&mut *sql, "one", 2, &all);
    let mut find = |question: questions::DenialQuestion| {
        let question = questions::DenialQuestion { limit: 100, ..question };
        let found = questions::denials(&mut *sql, &question).unwrap();
        found.iter().map(|denial| (denial.minute, denial.address.clone(), denial.count)).collect::<Vec<_>>()
    };
    let row = |minute: i64, address: &str, count: u64| (minute, address.to_owned(), count);
    let any = questions::DenialQuestion::default;
    assert_eq!(
        find(any()),
        [
            row(102, "2001:db8::/64", 4),
            row(101, "198.51.100.0/24", 100),
            row(100, "203.0.113.9", 2),
            row(100, "203.0.113.7", 6),
        ]
    );
    let minutes = Some([101, 101]);
    assert_eq!(find(questions::DenialQuestion { minutes, ..any() }), [row(101, "198.51.100.0/24", 100)]);
    let customer = Some("acme".to_owned());
    assert_eq!(find(questions::DenialQuestion { customer, ..any() }).len(), 2);
    for (asked, expected) in [
        ("203.0.113.0/24", 2),
        ("203.0.113.7/32", 1),
        // Its network was counted as a whole.
        ("198.51.100.77/32", 1),
        ("2001:db8::1/128", 1),
        ("0.0.0.0/0", 3),
    ] {
        let address = Some(asked.parse().unwrap());
        assert_eq!(find(questions::DenialQuestion { address, ..any() }).len(), expected, "{asked}");
    }
    let request_id = Some("acme-100".to_owned());
    assert_eq!(find(questions::DenialQuestion { request_id, ..any() }).len(), 2);
    assert!(find(questions::DenialQuestion { status: Some(403), ..any() }).is_empty());
}

#[test]
fn denials_are_listed_page_by_page() {
    let (_directory, mut sql) = file();
    let mut all = batch("2026-10-05T12:00:00Z", Vec::new());
    all.denials = (0..40).map(|nth| denial(100 + nth / 20, &format!("10.0.0.{nth}"), "acme", 1)).collect();
    add(&mut *sql, "one", 1, &all);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let minutes = Some([0, 1_000]);
        let question =
            questions::DenialQuestion { minutes, after, limit: 7, ..questions::DenialQuestion::default() };
        let page = questions::denials(&mut *sql, &question).unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.minute, last.address.clone(), last.cause));
        seen.extend(page.iter().map(|denial| denial.address.clone()));
    }
    assert_eq!(seen.len(), 40);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 40);
}

#[test]
fn events_are_kept_once() {
    let (_directory, mut sql) = file();
    let event = |time: i64, id: &str, target: &str| EventRow {
        time,
        id: id.into(),
        instance: "one".into(),
        by: "operator at 127.0.0.1".into(),
        action: "ban".into(),
        target: target.into(),
        detail: String::new(),
    };
    let mut all = batch("2026-10-05T12:00:00Z", Vec::new());
    all.events = vec![event(10, "a", "user:acme"), event(20, "b", "ip:203.0.113.7")];
    add(&mut *sql, "one", 1, &all);
    add(&mut *sql, "two", 1, &all);
    let mut find = |between, text: Option<&str>| {
        let found = questions::events(&mut *sql, between, text, 100).unwrap();
        found.into_iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(find([0, 100], None), ["b", "a"]);
    assert_eq!(find([0, 15], None), ["a"]);
    assert_eq!(find([0, 100], Some("acme")), ["a"]);
}

#[test]
fn a_flood_is_counted_by_network_and_then_as_a_whole() {
    use super::{
        collector::Message,
        plan::HistoryPlan,
        recorder::{DeniedBy, DeniedRequest, HistoryRecorder, TallySender, UsageOwner},
    };
    use crate::{
        config::model,
        limit::{Policy, WallClock},
        telemetry::testing,
    };
    let config = testing::config();
    let policies = Policy::all(config.policies.iter().map(Arc::as_ref));
    let settings = crate::config::parse(
        "proxy.yaml",
        "history: { store: { file: h.db } }\nupstreams: { a: { endpoints: [\"http://127.0.0.1:1\"] } }\nroutes: [{ path: /*, upstream: a }]",
        &crate::config::SystemLookup,
    );
    let history: model::History = settings.unwrap().history.unwrap();
    let plan = Arc::new(HistoryPlan::new(&config, &policies, &history));
    let (queue, messages) = std::sync::mpsc::channel();
    let sender = TallySender { queue, queued: Arc::default(), dropped: Arc::default() };
    let recorder = HistoryRecorder::new(plan, sender, WallClock);
    let by = DeniedBy::Limit { policy: 0, variant: 0, tier: 0 };
    let now = 1_783_080_000_000_000;
    for nth in 0..100_000_u32 {
        // Many networks of many addresses each; the last ones are seen by nobody else.
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + nth * 37);
        let request = DeniedRequest {
            address: address.into(),
            ipv6_prefix: 64,
            owner: &UsageOwner::default(),
            user: None,
            by,
            method: &http::Method::GET,
            time: now,
        };
        // Each is denied a second time at once.
        for _ in 0..2 {
            recorder.record_denial(request, DenialSample::default);
        }
    }
    recorder.flush();
    let mut sums = Sums::default();
    while let Ok(message) = messages.try_recv() {
        match message {
            Message::Tick(tick) => {
                assert!(tick.denials.len() <= 4_097, "{}", tick.denials.len());
                sums.add_tick(tick);
            }
            other => panic!("{other:?}"),
        }
    }
    let taken = sums.take(0, 0, false);
    assert_eq!(taken.denials.iter().map(|row| row.count).sum::<u64>(), 200_000);
    assert!(taken.denials.iter().any(|row| row.address == "10.0.0.0"));
    assert!(taken.denials.iter().any(|row| row.address.ends_with("/24")));
    assert!(taken.denials.iter().any(|row| row.address == "0.0.0.0/0"));
}

#[test]
fn a_spool_is_inherited_when_its_process_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("spool");
    let outbox = Outbox::new(Some(Spool::create(&path, "one", 1 << 20).unwrap()), false);
    let batches: Vec<Batch> = (1..=3)
        .map(|n| batch("2026-10-05T12:00:00Z", vec![used("acme", "2026-10-05T11:00:00Z", n)]))
        .collect();
    batches.iter().for_each(|batch| outbox.push(batch));
    let (number, bytes) = outbox.first().unwrap();
    assert_eq!((number, Batch::decode(&bytes)), (1, Some(batches[0].clone())));
    outbox.acknowledged(number, bytes);
    assert!(Spool::abandoned(&path).is_empty(), "its process lives");
    assert_eq!(outbox.facts().batches, 2);
    drop(outbox);
    let mut abandoned = Spool::abandoned(&path);
    let (process, spool) = abandoned.pop().unwrap();
    assert_eq!((process.as_str(), spool.numbers()), ("one", vec![2, 3]));
    assert_eq!(Batch::decode(&spool.read(3).unwrap()), Some(batches[2].clone()));
    assert_eq!(Batch::decode(b"\x02nonsense"), None);
    spool.numbers().into_iter().for_each(|number| spool.remove(number));
    spool.finish();
    assert!(Spool::abandoned(&path).is_empty() && !path.join("one").exists());
}

#[test]
fn without_a_spool_the_oldest_batches_are_dropped_and_counted() {
    let outbox = Outbox::new(None, false);
    let mut large = batch("2026-10-05T12:00:00Z", Vec::new());
    large.events = vec![EventRow {
        time: 0,
        id: String::new(),
        instance: String::new(),
        by: String::new(),
        action: String::new(),
        target: String::new(),
        detail: "x".repeat(1 << 20),
    }];
    for _ in 0..40 {
        outbox.push(&large);
    }
    let facts = outbox.facts();
    assert_eq!((facts.batches, facts.dropped), (31, 9));
    assert_eq!(outbox.first().map(|(number, _)| number), Some(10));
}

#[test]
fn a_full_spool_drops_its_oldest_batch_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let one = batch("2026-10-05T12:00:00Z", vec![used("acme", "2026-10-05T11:00:00Z", 5)]);
    let room = one.encode().len() as u64 * 3 + 1;
    let outbox = Outbox::new(Some(Spool::create(directory.path(), "one", room).unwrap()), false);
    (0..5).for_each(|_| outbox.push(&one));
    let facts = outbox.facts();
    assert_eq!((facts.batches, facts.dropped, facts.bytes), (3, 2, facts.on_disk));
    assert_eq!(outbox.first().map(|(number, _)| number), Some(3));
    outbox.put_aside(3);
    assert_eq!(outbox.first().map(|(number, _)| number), Some(4));
    assert!(directory.path().join("one/3.unreadable").exists());
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    std::fs::write(&path, "not a database, but some text that is long enough to be one".repeat(100)).unwrap();
    assert!(matches!(Sqlite::open(&path, 1 << 20).map(|_| ()), Err(SqlError::Refused(_))));
    assert!(Sqlite::open(&directory.path().join("missing/history.db"), 1 << 20).is_err());
}

#[test]
fn a_backup_is_a_whole_copy() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("history.db"), directory.path().join("copy.db"));
    let mut sql = open(&path);
    add(&mut *sql, "one", 1, &batch("2026-10-05T12:00:00Z", vec![used("acme", "2026-10-05T11:00:00Z", 7)]));
    super::back_up(&path, &copy).unwrap();
    assert_eq!(shown(&ask(&mut *open(&copy), BERLIN, OCTOBER, &[])), [(String::new(), 7, 7, false)]);
    assert!(super::back_up(&path, &copy).is_err(), "it would be overwritten");
}

#[test]
fn a_clock_that_differs_from_that_of_the_limits_closes_no_month() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let yaml = format!(
        "history: {{ store: {{ file: {} }} }}\nroutes: [{{ path: /*, reply: {{ status: 200 }} }}]",
        file.display()
    );
    let config = crate::config::parse("proxy.yaml", &yaml, &crate::config::SystemLookup).unwrap();
    let history = History::start(config.history.as_ref().unwrap(), WallClock, || Some(-400_000_000)).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while history.facts().clock_offset.is_none() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(history.facts().clock_offset, Some(-400_000_000));
    assert!(history.finish(Duration::from_secs(30)));
}

#[test]
fn a_message_is_noted_once_taken_by_one_and_ends_delivered_or_given_up() {
    let (_directory, mut sql) = file();
    let new = |id: &str, webhook: &str| NewAlert {
        id: id.into(),
        webhook: webhook.into(),
        policy: "monthly".into(),
        subject: "customer:acme".into(),
        limit: "100/month".into(),
        share: 8_000,
        used: 80,
        window_end: 2_000,
        receiver: "https://hooks.example.com".into(),
        body: "{}".into(),
    };
    let webhooks = [("a".to_owned(), 2), ("b".to_owned(), 0)];
    let take = |sql: &mut dyn Sql, new: &[NewAlert], now: i64| {
        alerts::note_and_take(sql, new, &webhooks, now).unwrap()
    };
    let all = [new("1", "a"), new("1", "a"), new("2", "a"), new("3", "a"), new("1", "b")];
    let ids = |taken: &super::TakenAlerts| {
        taken.due.iter().map(|due| format!("{} {}", due.id, due.attempts)).collect::<Vec<_>>()
    };
    assert_eq!(ids(&take(&mut *sql, &all, 1_000)), ["1 1", "2 1"], "as many as there is room for");
    assert_eq!(ids(&take(&mut *sql, &all, 1_001)), ["3 1"], "noted and taken before");
    let due = |id: &str, attempts| super::DueAlert {
        id: id.into(),
        webhook: "a".into(),
        created: 1_000,
        attempts,
        subject: String::new(),
        policy: String::new(),
        share: 0,
        receiver: String::new(),
        body: String::new(),
    };
    let settle = |sql: &mut dyn Sql, id: &str, attempts, outcome| {
        alerts::settle(sql, &due(id, attempts), &outcome).unwrap();
    };
    settle(&mut *sql, "1", 1, AlertOutcome::Delivered("200 OK".into()));
    settle(&mut *sql, "1", 1, AlertOutcome::GivenUp("another attempt, which came late".into()));
    settle(&mut *sql, "2", 1, AlertOutcome::Again(1_010, "it replies 500".into()));
    let taken = take(&mut *sql, &all, 1_009);
    assert_eq!((ids(&taken).len(), taken.failing), (0, vec![("a".to_owned(), "it replies 500".to_owned())]));
    assert_eq!(ids(&take(&mut *sql, &[], 1_010)), ["2 2"]);
    // Whoever has taken the third one has ended.
    assert_eq!(ids(&take(&mut *sql, &[], 1_061)), ["3 2"]);
    settle(&mut *sql, "2", 1, AlertOutcome::Again(1_020, "an attempt before, which came late".into()));
    settle(&mut *sql, "2", 2, AlertOutcome::GivenUp("it replies 500".into()));
    let recent = alerts::recent(&mut *sql, None, 10).unwrap();
    let states: Vec<_> = recent.iter().map(|kept| (&*kept.id, &*kept.webhook, kept.state)).collect();
    let expected = [
        ("3", "a", AlertState::Waiting),
        ("2", "a", AlertState::GivenUp),
        ("1", "b", AlertState::Waiting),
        ("1", "a", AlertState::Delivered),
    ];
    assert_eq!(states, expected);
    let after = Some((recent[1].created, recent[1].id.clone(), recent[1].webhook.clone()));
    assert_eq!(alerts::recent(&mut *sql, after, 1).unwrap(), recent[2..3]);
    // Nobody has the second webhook any longer; the windows are over for long.
    alerts::drop_old(&mut *sql, 1_000 + 24 * 3_600 + 1).unwrap();
    let states: Vec<_> = alerts::recent(&mut *sql, None, 10).unwrap().iter().map(|kept| kept.state).collect();
    assert!(states.len() == 4 && !states.contains(&AlertState::Waiting), "{states:?}");
    alerts::drop_old(&mut *sql, 2_001 + 35 * 86_400).unwrap();
    assert_eq!(alerts::recent(&mut *sql, None, 10).unwrap(), []);
}
