//! OpenSSL's own client, which does what browsers no longer do.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Output, Stdio},
};

use tempfile::TempDir;

use super::Https;
use crate::harness::{Origin, file_name, program};

const REQUEST: &str = "GET /openssl HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Runs s_client with `arguments`, types `input`, and waits until the server has closed the connection.
fn s_client(https: &Https, arguments: &[&str], input: &str) -> Output {
    let mut child = program("openssl", "openssl")
        .args(["s_client", "-connect", &https.address().to_string(), "-ign_eof"])
        .args(["-verify_return_error", "-CAfile", file_name(&https.authority.file())])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have failed by now, and says so.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What a session printed that had to succeed.
#[track_caller]
fn succeeds(https: &Https, arguments: &[&str]) -> String {
    let output = s_client(https, &[&["-servername", "localhost"], arguments].concat(), REQUEST);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
    said
}

#[test]
fn sessions_are_resumed_in_either_version() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let directory = TempDir::new().unwrap();
    for (option, version) in [("-tls1_2", "1.2"), ("-tls1_3", "1.3")] {
        let session = directory.path().join(version);
        let said = succeeds(&https, &[option, "-sess_out", file_name(&session)]);
        assert!(said.contains(&format!("New, TLSv{version}")), "{said}");
        // More than once: the session is not used up.
        for _ in 0..2 {
            let said = succeeds(&https, &[option, "-sess_in", file_name(&session)]);
            assert!(said.contains(&format!("Reused, TLSv{version}")), "{said}");
        }
        assert_eq!((https.handshakes(version, false), https.handshakes(version, true)), (1.0, 2.0));
    }
}

#[test]
fn a_session_of_another_listener_is_not_resumed() {
    let origin = Origin::ok();
    let (one, other) = (Https::before(&origin), Https::before(&origin));
    let directory = TempDir::new().unwrap();
    for option in ["-tls1_2", "-tls1_3"] {
        let session = directory.path().join(option);
        succeeds(&one, &[option, "-sess_out", file_name(&session)]);
        let said = succeeds(&other, &[option, "-sess_in", file_name(&session)]);
        assert!(said.contains("New, TLSv1."), "{said}");
    }
}

#[test]
fn a_version_of_http_is_agreed_on() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (offered, agreed) in
        [("http/1.1", "http/1.1"), ("http/1.0,http/1.1", "http/1.1"), ("http/1.0", "http/1.0")]
    {
        let said = succeeds(&https, &["-alpn", offered]);
        assert!(said.contains(&format!("ALPN protocol: {agreed}\n")), "{said}");
    }
    assert!(succeeds(&https, &[]).contains("No ALPN negotiated"));
    // No protocol in common (RFC 7301, 3.2).
    let output = s_client(&https, &["-alpn", "h3"], REQUEST);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no application protocol"), "{said}");
}

#[test]
fn a_name_in_upper_case_is_the_same_name() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let output = s_client(&https, &["-servername", "LOCALHOST"], REQUEST);
    assert!(output.status.success());
}

#[test]
fn old_versions_are_refused_and_counted() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (number, option) in ["-tls1_1", "-tls1"].into_iter().enumerate() {
        // Without the level, OpenSSL itself refuses.
        let output = s_client(&https, &[option, "-cipher", "DEFAULT@SECLEVEL=0"], REQUEST);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("SSL alert number"), "{said}");
        https.has_failed("no_shared_version", number as f64 + 1.0);
    }
}

#[test]
fn tls_1_2_is_refused_where_1_3_is_the_least() {
    let origin = Origin::ok();
    let authority = crate::harness::Authority::new("Authority of the tests");
    let certificate = authority.issue("server", &["localhost"]);
    let tls = format!("tls: {{ certificates: [{}], min_version: \"1.3\" }}", super::pair(&certificate));
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", {tls} }}]\n");
    let config = crate::harness::Config::new(&[origin.address], &listeners);
    let https = Https { tollgate: crate::harness::Tollgate::start(config), authority, certificate };
    succeeds(&https, &["-tls1_3"]);
    assert!(!s_client(&https, &["-tls1_2"], REQUEST).status.success());
    https.has_failed("no_shared_version", 1.0);
}

/// A session in which a letter alone on a line is a command, and the request follows what the command says.
fn commanded(https: &Https, version: &str, command: &str, says: &str) -> (String, String) {
    let mut child = program("openssl", "openssl")
        .args(["s_client", "-connect", &https.address().to_string(), version])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(command.as_bytes()).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.ends_with(says) {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // It may have given up by now.
    let _ = stdin.write_all(REQUEST.as_bytes());
    let mut answer = String::new();
    child.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    (answer, said)
}

#[test]
fn nothing_is_agreed_on_anew_within_a_connection() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let (_, said) = commanded(&https, "-tls1_2", "R\n", "RENEGOTIATING\n");
    assert!(said.contains("no renegotiation"), "{said}");
    // In TLS 1.3 a client may ask for new keys (RFC 8446, 4.6.3), which is another thing, and works.
    let (answer, said) = commanded(&https, "-tls1_3", "K\n", "KEYUPDATE\n");
    assert!(answer.contains("HTTP/1.1 200 OK"), "{answer}{said}");
}

#[test]
fn suites_without_forward_secrecy_are_refused() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for suite in ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"] {
        let output = s_client(&https, &["-tls1_2", "-cipher", suite], REQUEST);
        assert!(!output.status.success(), "{suite}");
    }
    https.has_failed("no_shared_parameters", 3.0);
}
