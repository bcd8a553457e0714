//! Requests to upstreams over TLS.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use rustls::{HandshakeKind, version::TLS12};
use tempfile::TempDir;

use super::{PATIENT, before, trusting};
use crate::harness::{
    Authority, Client, Conn, Issued, Origin, Tollgate, command, eventually, file_name, get, printed, program,
    server_config,
};

/// What origins see of each handshake.
type Handshakes = Arc<Mutex<Vec<Handshake>>>;

#[derive(Debug, PartialEq, Clone)]
struct Handshake {
    kind: Option<HandshakeKind>,
    server_name: Option<String>,
    protocol: Option<Vec<u8>>,
}

/// An origin that notes each handshake, and then serves as [`Conn::serve_ok`] does.
fn noting(config: rustls::ServerConfig) -> (Origin, Handshakes) {
    let seen = Handshakes::default();
    let notes = Arc::clone(&seen);
    let origin = Origin::start_tls(config, move |conn: &mut Conn| {
        let (tls, mut stream) = (conn.tls.as_mut().unwrap(), &conn.stream);
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        notes.lock().unwrap().push(Handshake {
            kind: tls.handshake_kind(),
            server_name: tls.server_name().map(str::to_owned),
            protocol: tls.alpn_protocol().map(<[u8]>::to_vec),
        });
        conn.serve_ok()
    });
    (origin, seen)
}

#[test]
fn bodies_go_both_ways_over_one_connection() {
    let authority = Authority::new("ca");
    let config = server_config(&authority.issue("origin", &["127.0.0.1"]));
    let origin = Origin::start_tls(config, |conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            conn.answer("200 OK", &[], &body)?;
        }
        Ok(())
    });
    let tollgate = before(origin.address, &authority, "");
    let mut client = Client::connect(tollgate.address);
    // Also after the session tickets of TLS 1.3, which come behind the handshake.
    for length in [0, 1, 16 << 10, 1 << 20, 100] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let reply = client.request("POST", "/", &[], &body);
        assert_eq!((reply.status, &reply.body), (200, &body), "{length}");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_name_is_sent_and_an_address_is_not() {
    let authority = Authority::new("ca");
    let issued = authority.issue("origin", &["127.0.0.1", "localhost", "orders.internal"]);
    let port_of = |origin: &Origin| origin.address.port();
    for (host, more, expected) in [
        ("127.0.0.1", "", None),
        ("localhost", "", Some("localhost")),
        ("127.0.0.1", ", server_name: orders.internal", Some("orders.internal")),
        ("localhost", ", server_name: 127.0.0.1", None),
    ] {
        let mut config = server_config(&issued);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (origin, seen) = noting(config);
        let urls = [format!("https://{host}:{}", port_of(&origin))];
        let tls = format!("tls: {{ ca: {}{more} }}, {PATIENT}", authority.file().display());
        let tollgate = Tollgate::start(super::upstream(&urls, &tls));
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        let handshake = Handshake {
            kind: Some(HandshakeKind::Full),
            server_name: expected.map(str::to_owned),
            protocol: Some(b"http/1.1".to_vec()),
        };
        assert_eq!(*seen.lock().unwrap(), [handshake], "{host} {more}");
    }
}

#[test]
fn sessions_are_resumed_in_either_version() {
    let authority = Authority::new("ca");
    let issued = authority.issue("origin", &["127.0.0.1"]);
    let old = {
        let builder = rustls::ServerConfig::builder_with_protocol_versions(&[&TLS12]).with_no_client_auth();
        let (chain, key) = issued.read();
        builder.with_single_cert(chain, key).unwrap()
    };
    for config in [old, server_config(&issued)] {
        let (origin, seen) = noting(config);
        // No connection is kept.
        let settings =
            format!("idle_connections: 0, tls: {{ ca: {} }}, {PATIENT}", authority.file().display());
        let tollgate = Tollgate::start(super::upstream(&[format!("https://{}", origin.address)], &settings));
        for _ in 0..3 {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
        let kinds: Vec<_> = seen.lock().unwrap().iter().map(|seen| seen.kind.unwrap()).collect();
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed]);
    }
}

#[test]
fn a_body_that_ends_with_the_connection_is_whole_only_if_tls_ends_in_order() {
    let authority = Authority::new("ca");
    let config = || server_config(&authority.issue("origin", &["127.0.0.1"]));
    let answer = b"HTTP/1.1 200 OK\r\n\r\nall there is";
    for is_cut_off in [false, true] {
        let origin = Origin::start_tls(config(), move |conn| {
            conn.head()?;
            conn.send(answer)?;
            // An error: the end of TLS is not told.
            if is_cut_off { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) }
        });
        let tollgate = before(origin.address, &authority, "");
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let reply = client.try_reply();
        match is_cut_off {
            false => assert_eq!(reply.unwrap().body, b"all there is"),
            true => {
                assert!(reply.is_err(), "a whole answer");
                eventually("it is in the log", || {
                    let log = tollgate.log();
                    log.iter().any(|line| line.contains("failed") && line.contains("close_notify"))
                });
            }
        }
    }
}

#[test]
fn a_certificate_that_has_signed_itself_may_be_trusted_by_itself() {
    // As `openssl req -x509` makes them: marked as authorities.
    let signed = |days: &str, name: &str| {
        let directory = TempDir::new().unwrap();
        let (cert, key) = (directory.path().join("own.pem"), directory.path().join("own.key"));
        let mut command = program("openssl", "openssl");
        command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=own", "-days", days]);
        command.args(["-addext", &format!("subjectAltName={name}"), "-out", file_name(&cert)]);
        printed(command.args(["-keyout", file_name(&key)]));
        (directory, Issued { cert, key })
    };
    let ((_one, own), (_other, other)) = (signed("9", "IP:127.0.0.1"), signed("9", "IP:127.0.0.1"));
    let (_named, named) = signed("9", "DNS:orders.internal");
    for (shown, trusted, status) in
        [(&own, &own, 200), (&own, &other, 502), (&named, &named, 502), (&other, &own, 502)]
    {
        let origin = Origin::ok_tls(server_config(shown));
        let tls = format!("tls: {{ ca: {} }}, {PATIENT}", trusted.cert.display());
        let tollgate = Tollgate::start(super::upstream(&[format!("https://{}", origin.address)], &tls));
        assert_eq!(get(tollgate.address, "/", &[]).status, status);
    }
}

#[test]
fn an_early_answer_is_passed_on_while_the_request_is_still_sent() {
    let authority = Authority::new("ca");
    let config = server_config(&authority.issue("origin", &["127.0.0.1"]));
    let origin = Origin::start_tls(config, |conn| {
        conn.head()?;
        conn.answer("413 Content Too Large", &[("connection", "close")], b"too much")?;
        conn.rest();
        Ok(())
    });
    let tollgate = before(origin.address, &authority, "");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n");
    client.send("x".repeat(100_000));
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.as_slice()), (413, &b"too much"[..]));
}

#[test]
fn the_end_of_a_kept_connection_is_told() {
    let authority = Authority::new("ca");
    let ends = Arc::<Mutex<Vec<bool>>>::default();
    let notes = Arc::clone(&ends);
    let config = server_config(&authority.issue("origin", &["127.0.0.1"]));
    let origin = Origin::start_tls(config, move |conn| {
        let ended = conn.serve_ok();
        notes.lock().unwrap().push(ended.is_ok());
        ended
    });
    let settings = format!("idle_connections: 0, tls: {{ ca: {} }}, {PATIENT}", authority.file().display());
    let tollgate = Tollgate::start(super::upstream(&[format!("https://{}", origin.address)], &settings));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    eventually("the connection ends in order", || *ends.lock().unwrap() == [true]);
}

#[test]
fn an_origin_that_dies_is_tried_again_on_another_connection() {
    let authority = Authority::new("ca");
    let config = || server_config(&authority.issue("origin", &["127.0.0.1"]));
    let dying = Origin::start_tls(config(), |conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /die") {
                conn.reset()?;
                return Err(std::io::ErrorKind::Other.into());
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(trusting(&[dying.address], &authority, ""));
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    // The kept connection dies, and so does the one that is opened for the second attempt.
    assert_eq!(client.request("GET", "/die", &[], b"").status, 502);
    assert_eq!(dying.connections(), 2);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
}

#[test]
fn without_a_ca_the_system_s_authorities_are_trusted() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let origin = Origin::ok_tls(server_config(&authority.issue("origin", &["127.0.0.1"])));
    for (system, status) in [(&authority, 200), (&other, 502)] {
        let mut command = command(Path::new("."));
        command.args(["run", "--config", "proxy.yaml"]).env("SSL_CERT_FILE", system.file());
        let config = super::upstream(&[format!("https://{}", origin.address)], "policies: []");
        let tollgate = Tollgate::launch(command, config);
        assert_eq!(get(tollgate.address, "/", &[]).status, status);
    }
}
