//! curl, one run for each thing that clients do.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{AT_ONCE, Served, content};
use crate::harness::{file_name, printed, program};

fn curl(served: &Served, arguments: &[&str]) -> Command {
    let mut curl = program("curl", "curl");
    let authority = served.authority.file();
    curl.args(["-sS", "--http2", "--max-time", "60", "--cacert", file_name(&authority)]).args(arguments);
    curl
}

#[test]
fn curl_is_served() {
    let (mut served, directory) = (Served::start(), TempDir::new().unwrap());
    let [body, fields] = ["body", "fields"].map(|name| directory.path().join(name));
    let written = |what: &std::path::Path| fs::read(what).unwrap();

    printed(&mut curl(&served, &["-o", file_name(&body), &served.url("/download")]));
    assert!(written(&body) == content(), "the download is whole");
    let upload = curl(&served, &["-X", "POST", "-T", file_name(&body), &served.url("/upload")]);
    assert_eq!(printed(&mut { upload }), super::digest(&content()));

    // All over one connection: `--parallel-immediate` would open many.
    let numbers = served.url(&format!("/number/[0-{}]", AT_ONCE - 1));
    let statuses = ["-Z", "--parallel-max", "100", "-w", "%{http_version} %{http_code}\n", "-o", "/dev/null"];
    let all = printed(curl(&served, &statuses).arg(&numbers));
    assert_eq!(all.lines().filter(|line| *line == "2 200").count(), AT_ONCE, "{all}");

    for _ in 0..3 {
        let common = ["-D", file_name(&fields), "-o", file_name(&body)];
        printed(curl(&served, &common).arg(served.url("/limited")));
    }
    let denied = String::from_utf8(written(&fields)).unwrap();
    assert!(denied.starts_with("HTTP/2 429 "), "{denied}");
    for field in ["content-type: application/problem+json", "retry-after: ", "ratelimit: \"two\";r=0;t="] {
        assert!(denied.contains(field), "{denied}");
    }
    let problem: serde_json::Value = serde_json::from_slice(&written(&body)).unwrap();
    assert_eq!(problem["status"], 429);
    // Those whose bodies nobody reads get it as well.
    for size in [3, 20_000, 3_000_000] {
        fs::write(&body, vec![b'x'; size]).unwrap();
        let data = format!("@{}", file_name(&body));
        let post = ["-w", "%{http_code}", "-o", "/dev/null", "--data-binary", &data];
        for _ in 0..5 {
            assert_eq!(printed(curl(&served, &post).arg(served.url("/limited"))), "429", "{size} bytes");
        }
    }

    let trailers = curl(&served, &["-H", "te: trailers", "-D", file_name(&fields), &served.url("/trailers")]);
    assert_eq!(printed(&mut { trailers }), "hello");
    let fields = String::from_utf8(written(&fields)).unwrap();
    assert!(fields.trim_end().ends_with("x-checksum: 5d41402a"), "{fields}");

    // One run, whose connection ends in the middle.
    let seen = served.hand_over_during(|served| {
        let arguments = ["-w", " %{http_code} %{num_connects}\n"];
        let urls = ["/number/0", "/held", "/number/[1-50]"].map(|path| served.url(path));
        printed(curl(served, &arguments).args(urls))
    });
    let without_connects = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    let expected = ["0 200".to_owned(), "held 200".to_owned()];
    let expected = expected.into_iter().chain((1..=50).map(|number| format!("{number} 200")));
    assert_eq!(seen.lines().map(without_connects).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    // The first and the held one are of one connection, and what comes after GOAWAY is of another.
    assert_eq!(seen.lines().filter(|line| line.ends_with(" 1")).count(), 2, "{seen}");
    assert!(seen.starts_with("0 200 1\nheld 200 0\n"), "{seen}");
    served.has_served("/number/", AT_ONCE + 51, 200);
}
