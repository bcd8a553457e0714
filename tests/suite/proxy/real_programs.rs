//! Real clients and real origins: curl, h2load, nginx, Python.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::Stdio,
};

use tempfile::TempDir;

use super::before;
use crate::harness::{self, Config, Origin, Running, Tollgate, printed, program};

/// Runs curl with `arguments`: what it printed.
#[track_caller]
fn curl(arguments: &[&str]) -> String {
    printed(program("curl", "curl").args(["-sS", "--max-time", "20"]).args(arguments))
}

/// A site with a small file and one of 8 MiB.
fn site() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("small.txt"), "0123456789").unwrap();
    fs::write(directory.path().join("large.bin"), large()).unwrap();
    directory
}

fn large() -> Vec<u8> {
    (0..8u32 << 18).flat_map(u32::to_le_bytes).collect()
}

/// nginx, serving `directory`.
fn nginx(directory: &Path) -> (Running, SocketAddr) {
    let compressing =
        "gzip on; gzip_types text/plain; gzip_min_length 1; gzip_proxied any; gzip_http_version 1.0;";
    harness::nginx(directory, compressing, "")
}

#[test]
fn curl_gets_and_posts() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let url = format!("http://{}/a?b=c", tollgate.address);
    assert!(curl(&[&url]).contains("\"target\":\"/a?b=c\""));
    assert!(curl(&["-d", "name=value", &url]).contains("\"body\":\"name=value\""));
    assert!(curl(&["--http1.0", &url]).contains("\"method\":\"GET\""));
    assert!(curl(&["-I", &url]).starts_with("HTTP/1.1 200"));
    assert!(curl(&[&url, &url]).matches("\"target\"").count() == 2);
}

#[test]
fn curl_uploads_with_and_without_waiting_for_a_100() {
    let (origin, site) = (Origin::echo(), site());
    let tollgate = before(&origin);
    let (url, file) = (format!("http://{}/", tollgate.address), site.path().join("large.bin"));
    let file = file.to_str().unwrap();
    let taken = format!("\"body_bytes\":{}", 8 << 20);
    for arguments in [
        vec!["-H", "expect: 100-continue"],
        vec!["-H", "expect: 100-continue", "--expect100-timeout", "10"],
        vec!["-H", "expect:"],
        vec!["-H", "transfer-encoding: chunked"],
        vec!["-H", "transfer-encoding: chunked", "-H", "expect: 100-continue"],
    ] {
        let arguments = [arguments, vec!["-T", file, &url]].concat();
        assert!(curl(&arguments).contains(&taken), "{arguments:?}");
    }
}

#[test]
fn nginx_serves_files_ranges_and_conditions() {
    let site = site();
    let (_nginx, address) = nginx(site.path());
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    let url = format!("http://{}/small.txt", tollgate.address);
    assert_eq!(curl(&[&url]), "0123456789");
    assert_eq!(curl(&["-r", "2-4", &url]), "234");
    let (from, status) = (site.path().join("small.txt"), "%{http_code} %{size_download}");
    let same = curl(&["-z", from.to_str().unwrap(), "-w", status, &url]);
    assert_eq!(same, "304 0");
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("{url}x")]), "404");
}

#[test]
fn nginx_s_large_and_compressed_answers_arrive_whole() {
    let site = site();
    let (_nginx, address) = nginx(site.path());
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    let copy = site.path().join("copy.bin");
    let url = format!("http://{}/large.bin", tollgate.address);
    curl(&["-o", copy.to_str().unwrap(), &url]);
    assert!(fs::read(copy).unwrap() == large());
    let url = format!("http://{}/small.txt", tollgate.address);
    let encoded = curl(&["--compressed", "-D", "-", &url]).to_ascii_lowercase();
    assert!(encoded.contains("content-encoding: gzip") && encoded.ends_with("0123456789"), "{encoded}");
}

#[test]
fn an_nginx_that_takes_no_uploads_says_so_to_curl() {
    let site = site();
    let (_nginx, address) = nginx(site.path());
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    let (file, url) = (site.path().join("large.bin"), format!("http://{}/small.txt", tollgate.address));
    for expect in ["expect: 100-continue", "expect:"] {
        let arguments = ["-o", "/dev/null", "-w", "%{http_code}", "-H", expect, "-X", "POST", "-T"];
        assert_eq!(curl(&[&arguments[..], &[file.to_str().unwrap(), &url]].concat()), "413", "{expect}");
    }
}

#[test]
fn python_s_http_1_0_server_is_an_origin_like_any() {
    let site = site();
    let mut child = program("python3", "python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(site.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let _running = Running(child);
    let port = said.split("port ").nth(1).unwrap().split(' ').next().unwrap();
    let tollgate = Tollgate::start(Config::new(&[format!("127.0.0.1:{port}").parse().unwrap()], ""));
    let copy = site.path().join("copy.bin");
    let url = format!("http://{}/large.bin", tollgate.address);
    curl(&["-o", copy.to_str().unwrap(), &url]);
    assert!(fs::read(copy).unwrap() == large());
    let small = format!("http://{}/small.txt", tollgate.address);
    assert_eq!(curl(&[&small, &small]), "01234567890123456789");
    assert_eq!(curl(&["-X", "POST", "-d", "x", "-o", "/dev/null", "-w", "%{http_code}", &small]), "501");
}

#[test]
fn h2load_gets_an_answer_to_every_request() {
    let site = site();
    let (_nginx, address) = nginx(site.path());
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    let output = program("h2load", "nghttp2-client")
        .args(["--h1", "-n", "3000", "-c", "32", "-t", "1"])
        .arg(format!("http://{}/small.txt", tollgate.address))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{said}");
}
