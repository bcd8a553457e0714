//! Finding the route of a request among 10 and among 10,000: the first, the last, and none. And how long a file of so
//! many routes takes to be read.
//!
//! `cargo bench --bench router [KIND]`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{
    env,
    fmt::Write,
    hint::black_box,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header::HOST};
use tollgate::{
    config,
    router::{Router, Target},
};

/// The allocator of the proxy.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNTS: [usize; 2] = [10, 10_000];
/// How long each figure is measured.
const RUN_TIME: Duration = Duration::from_millis(300);

/// Routes of one kind. `{}` stands for a route's number.
struct Kind {
    name: &'static str,
    route: fn(usize) -> String,
    /// A path that route `nth` matches, and no other.
    path: fn(usize) -> String,
}

const KINDS: [Kind; 6] = [
    Kind { name: "exact", route: |nth| format!("path: /exact/{nth}"), path: |nth| format!("/exact/{nth}") },
    Kind {
        name: "prefix",
        route: |nth| format!("path: /prefix/{nth}/*"),
        path: |nth| format!("/prefix/{nth}/a/b"),
    },
    Kind {
        name: "captures",
        route: |nth| format!("path: \"/users/{{id}}/{nth}\""),
        path: |nth| format!("/users/4711/{nth}"),
    },
    Kind {
        name: "hosts",
        route: |nth| format!("path: /*, hosts: [h{nth}.example.org]"),
        path: |nth| format!("http://h{nth}.example.org/a"),
    },
    Kind {
        name: "regexes",
        route: |nth| format!("path: '~^/r{nth}/[a-z]+$'"),
        path: |nth| format!("/r{nth}/abc"),
    },
    Kind { name: "all, 1 % regexes", route: mixed_route, path: mixed_path },
];

fn mixed_route(nth: usize) -> String {
    (KINDS[mixed_kind(nth)].route)(nth)
}

fn mixed_path(nth: usize) -> String {
    (KINDS[mixed_kind(nth)].path)(nth)
}

/// One of a hundred routes has a regular expression, the first of them first.
fn mixed_kind(nth: usize) -> usize {
    match nth % 100 {
        0 => 4,
        1..40 => 0,
        40..70 => 1,
        70..90 => 2,
        _ => 3,
    }
}

fn main() {
    let only = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("| routes | | read | first | last | none |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for kind in KINDS.iter().filter(|kind| only.as_deref().is_none_or(|only| kind.name.contains(only))) {
        for count in COUNTS {
            measure(kind, count);
        }
    }
}

fn measure(kind: &Kind, count: usize) {
    let mut yaml = "upstreams: { a: { endpoints: [\"http://127.0.0.1:3000\"] } }\nroutes:\n".to_owned();
    for nth in 0..count {
        writeln!(yaml, "  - {{ {}, upstream: a }}", (kind.route)(nth)).unwrap();
    }
    let start = Instant::now();
    let config = config::parse("proxy.yaml", &yaml, &config::SystemLookup).unwrap();
    let router = Router::new(&config.routes);
    let read = start.elapsed();
    let [first, last] = [0, count - 1].map(|nth| {
        assert_eq!(find(&router, &(kind.path)(nth)), Some(nth), "{}", kind.name);
        nanos(&router, &(kind.path)(nth))
    });
    assert_eq!(find(&router, "/none/of/these"), None);
    let none = nanos(&router, "/none/of/these");
    println!("| {} | {count} | {read:.0?} | {first} ns | {last} ns | {none} ns |", kind.name);
}

fn find(router: &Router, path: &str) -> Option<usize> {
    let (target, headers) = request(path);
    router.find(&Method::GET, &target, &headers).ok()
}

/// The time of one search, with the path in the cache.
fn nanos(router: &Router, path: &str) -> u128 {
    let (target, headers) = request(path);
    let (start, mut searches) = (Instant::now(), 0_u128);
    while start.elapsed() < RUN_TIME {
        for _ in 0..100 {
            let _found = black_box(router.find(&Method::GET, black_box(&target), &headers));
        }
        searches += 100;
    }
    start.elapsed().as_nanos() / searches
}

fn request(path: &str) -> (Target, HeaderMap) {
    let uri: Uri = path.parse().unwrap();
    let host = uri.host().unwrap_or("localhost");
    let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
    (Target::parse(&Method::GET, &uri, Version::HTTP_11, &headers).unwrap(), headers)
}
