//! nghttp and h2load, of nghttp2's authors.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{AT_ONCE, Served, content, digest};
use crate::harness::{file_name, printed, program};

/// nghttp, which prints all frames, and trusts anybody.
fn nghttp(arguments: &[&str]) -> Command {
    let mut nghttp = program("nghttp", "nghttp2-client");
    nghttp.args(["-v", "-t", "60"]).args(arguments);
    nghttp
}

/// What h2load says it did.
fn h2load(served: &Served, arguments: &[&str], path: &str) -> String {
    printed(program("h2load", "nghttp2-client").args(arguments).arg(served.url(path)))
}

fn has_served(said: &str, requests: usize) {
    let all = format!(
        "requests: {requests} total, {requests} started, {requests} done, {requests} succeeded, 0 failed, 0 errored, 0 timeout"
    );
    assert!(said.contains(&all), "{said}");
}

#[test]
fn nghttp_is_served() {
    let (mut served, directory) = (Served::start(), TempDir::new().unwrap());
    let file = directory.path().join("body");

    // Without -v, it prints the body alone.
    let download = program("nghttp", "nghttp2-client").arg(served.url("/download")).output().unwrap();
    assert!(download.stdout == content(), "the download is whole");
    fs::write(&file, content()).unwrap();
    let upload = printed(&mut nghttp(&["-d", file_name(&file), &served.url("/upload")]));
    assert!(upload.contains(&digest(&content())), "{upload}");

    let urls: Vec<_> = (0..100).map(|number| served.url(&format!("/number/{number}"))).collect();
    let all = printed(nghttp(&["-n"]).args(urls));
    assert_eq!(all.matches(":status: 200").count(), 100, "{all}");
    assert_eq!(all.matches("Connected").count(), 1, "all over one connection: {all}");

    let limited = [(); 3].map(|()| printed(&mut nghttp(&[&served.url("/limited")])));
    for said in [":status: 429", "retry-after: ", "ratelimit: \"two\";r=0;t=", "\"status\":429"] {
        assert!(limited[2].contains(said), "{said}: {}", limited[2]);
    }

    let trailers = printed(&mut nghttp(&["-H", "te: trailers", &served.url("/trailers")]));
    assert!(trailers.contains("hello") && trailers.contains("x-checksum: 5d41402a"), "{trailers}");

    let frames = directory.path().join("frames");
    let seen = || fs::read_to_string(&frames).unwrap_or_default();
    let is_told = || seen().contains("recv GOAWAY frame");
    served.hand_over_until(is_told, |served| {
        let urls = ["/number/0", "/held"].map(|path| served.url(path));
        printed(nghttp(&[]).args(urls).stdout(fs::File::create(&frames).unwrap()))
    });
    let held = seen();
    assert!(is_told() && held.contains("error_code=NO_ERROR(0x00)"), "{held}");
    assert_eq!(held.matches(":status: 200").count(), 2, "{held}");
}

#[test]
fn h2load_is_served() {
    let (served, directory) = (Served::start(), TempDir::new().unwrap());
    let file = directory.path().join("body");
    fs::write(&file, content()).unwrap();
    let many = h2load(&served, &["-n", "5000", "-c", "2", "-m", "30"], "/number/7");
    has_served(&many, 5000);
    assert!(many.contains("status codes: 5000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{many}");
    has_served(&h2load(&served, &["-n", "20", "-c", "2", "-m", "5"], "/download"), 20);
    // Of each connection, more than any client may send without a purpose.
    has_served(&h2load(&served, &["-n", "20", "-c", "2", "-m", "5", "-d", file_name(&file)], "/upload"), 20);
    let denied = h2load(&served, &["-n", &AT_ONCE.to_string(), "-c", "2", "-m", "50"], "/limited");
    assert!(denied.contains(&format!("status codes: 2 2xx, 0 3xx, {} 4xx, 0 5xx", AT_ONCE - 2)), "{denied}");
    // Bodies that are refused are no flood either.
    let uploads = AT_ONCE.to_string();
    let arguments = ["-n", &uploads, "-c", "1", "-m", "10", "-d", file_name(&file)];
    let denied = h2load(&served, &arguments, "/limited");
    assert!(denied.contains(&format!("status codes: 0 2xx, 0 3xx, {AT_ONCE} 4xx, 0 5xx")), "{denied}");
}
