//! What others published of their limiters, held against ours: `tests/vectors`, whose README.md explains it.

mod data;
mod examine;
mod replay;
mod units;

use std::{fs, path::Path};

use data::Vectors;

use super::Subject;

/// Whose there are.
const SOURCES: [&str; 10] = [
    "apisix",
    "gubernator",
    "kong",
    "limits",
    "nginx-tests",
    "redis-cell",
    "redis_rate",
    "spring-cloud-gateway",
    "throttled",
    "tyk",
];

fn text(source: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    fs::read_to_string(directory.join(format!("{source}.yaml")))
        .unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn vectors(source: &str) -> Vectors {
    Vectors::read(&text(source)).unwrap_or_else(|error| panic!("{source}: {error}"))
}

pub(crate) fn published_vectors_hold<S: Subject>() {
    let mut differences = Vec::new();
    for source in SOURCES {
        for case in &vectors(source).cases {
            for &algorithm in &case.algorithms {
                for difference in replay::replay::<S>(case, algorithm) {
                    differences.push(format!("{source}, {algorithm:?}, {}: {difference}", case.name));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn no_file_of_vectors_is_passed_over() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = names.filter(|name| name != "README.md").collect();
    files.sort();
    assert_eq!(files, SOURCES.map(|source| format!("{source}.yaml")));
}

#[test]
fn vectors_that_say_too_little_or_what_nobody_knows_are_refused() {
    let whole = text("throttled");
    assert!(Vectors::read(&whole).is_ok());
    for (part, instead) in [
        ("licence: BSD-3-Clause", "licence: ''"),
        ("  licence: BSD-3-Clause\n", ""),
        ("source:", "sources:"),
        ("files: [rate_test.go]", "files: []"),
        ("remaining: 5", "remainder: 5"),
        ("cost: 6", "coast: 6"),
        ("algorithms: [gcra]", "algorithms: []"),
        ("algorithms: [gcra]", "algorithms: [leaky_bucket]"),
        ("limits: [1/1s]", "limits: []"),
        ("limits: [1/1s], ", ""),
        ("burst: 5}", "burst: 5, buckets: 10}"),
        ("{at: 3000ms, cost: 1", "{at: 0s, cost: 1, checks: [other]"),
        ("{at: 3000ms", "{at: 9s"),
        ("{at: 3000ms", "{at: 3"),
        ("admitted: true", "clear: true"),
        ("why: about", "because: about"),
    ] {
        assert!(whole.contains(part), "{part}");
        assert!(Vectors::read(&whole.replacen(part, instead, 1)).is_err(), "{part} -> {instead}");
    }
    let emptied = |from: &str, to: &str| {
        let (head, rest) = whole.split_once(from).unwrap();
        let (_, tail) = rest.split_once(to).unwrap();
        format!("{head}{from} []\n{to}{tail}")
    };
    assert!(Vectors::read(&emptied("cases:", "left_out:")).is_err(), "no cases");
    assert!(Vectors::read(&emptied("    steps:", "left_out:")).is_err(), "no steps");
    assert!(Vectors::read("").is_err());
}
