//! What belongs to one connection stays on it, and what must go on does, in both directions.

use crate::harness::{Client, Config, Origin, Reply, Tollgate, get};

/// A request as the origin sees it: names and values of its fields, in the order in which they came.
fn seen(fields: &str) -> Vec<(String, String)> {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send(format!("GET /a HTTP/1.1\r\nhost: a.example\r\n{fields}\r\n"));
    assert_eq!(client.reply().status, 200, "{fields:?}");
    let head = origin.heads()[0].clone();
    head.split("\r\n")
        .skip(1)
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect()
}

fn names(fields: &[(String, String)]) -> Vec<&str> {
    fields.iter().map(|(name, _)| name.as_str()).collect()
}

/// An answer with these fields, as the client sees it.
fn answered(fields: &str) -> Reply {
    let origin = Origin::saying(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nok"));
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    get(tollgate.address, "/", &[])
}

/// What the proxy adds to every request.
const ADDED: [&str; 6] =
    ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via", "x-request-id"];

#[test]
fn what_connection_names_is_not_passed_to_the_origin() {
    let fields = seen(
        "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nx-mine: 2\r\nconnection: x-other,,x-third\r\nX-Other: 1\r\nx-third: 1\r\nx-stays: 1\r\n",
    );
    let mut expected = ADDED.to_vec();
    expected.insert(1, "x-stays");
    assert_eq!(names(&fields), expected);
}

#[test]
fn fields_of_the_connection_are_not_passed_to_the_origin() {
    let fields = seen(
        "keep-alive: timeout=5\r\nproxy-connection: keep-alive\r\nproxy-authorization: Basic eDp5\r\nte: gzip\r\nupgrade: websocket\r\nproxy-authenticate: Basic\r\n",
    );
    assert_eq!(names(&fields), ADDED);
}

#[test]
fn a_change_to_http_2_is_not_passed_to_the_origin() {
    for fields in [
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    ] {
        assert_eq!(names(&seen(fields)), ADDED, "{fields:?}");
    }
}

#[test]
fn a_connection_whose_upgrade_was_passed_over_serves_the_next_request() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    let upgrade = [("connection", "upgrade"), ("upgrade", "h2c")];
    assert_eq!(client.request("GET", "/", &upgrade, b"").status, 200);
    assert_eq!(client.request("GET", "/", &[], b"").text(), "ok");
}

#[test]
fn credentials_for_the_origin_are_passed_on() {
    let fields = seen("authorization: Bearer x\r\ncookie: a=b\r\ncookie: c=d\r\n");
    assert_eq!(names(&fields)[1..4], ["authorization", "cookie", "cookie"]);
}

#[test]
fn connection_can_not_take_what_the_proxy_adds() {
    let fields = seen("connection: x-forwarded-for, x-request-id, via, x-forwarded-host, host\r\n");
    assert_eq!(names(&fields), ADDED);
}

#[test]
fn fields_of_the_origins_connection_are_not_passed_to_the_client() {
    let reply = answered(
        "Connection: X-Internal, close\r\nx-internal: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\nproxy-connection: close\r\nx-stays: 1\r\nset-cookie: a=b\r\nset-cookie: c=d\r\n",
    );
    let gone =
        ["x-internal", "keep-alive", "proxy-authenticate", "upgrade", "proxy-connection", "connection"];
    assert!(gone.iter().all(|name| reply.header(name).is_none()), "{reply:?}");
    assert_eq!((reply.header("x-stays"), reply.all("set-cookie")), (Some("1"), vec!["a=b", "c=d"]));
}

#[test]
fn an_origin_that_closes_does_not_close_the_client() {
    let origin = Origin::saying("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        assert_eq!(client.request("GET", "/", &[], b"").text(), "ok");
    }
    assert_eq!(origin.connections(), 3);
}

#[test]
fn via_names_the_proxy_in_both_directions() {
    let fields = seen("via: 1.0 before\r\nvia: 1.1 between\r\n");
    assert!(fields.contains(&("via".into(), "1.0 before, 1.1 between, 1.1 tollgate".into())), "{fields:?}");
    assert_eq!(answered("via: 1.1 inner\r\n").header("via"), Some("1.1 inner, 1.1 tollgate"));
}

#[test]
fn trailers_are_passed_to_the_origin() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n");
    assert_eq!(client.reply().json()["trailers"], serde_json::json!(["x-sum: 42"]));
}

#[test]
fn trailers_that_were_not_announced_do_not_hold_the_request_up() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: 1\r\n\r\n",
    );
    assert_eq!(client.reply().json()["body"], "hello");
    assert_eq!(client.request("GET", "/b", &[], b"").json()["target"], "/b");
}

#[test]
fn trailers_can_not_say_what_only_a_head_may() {
    let forbidden = "host: evil\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\nx-forwarded-for: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\nconnection: x\r\nx-fine: 1\r\n";
    let announced = "host, content-length, transfer-encoding, x-forwarded-for, x_forwarded_for, forwarded, connection, x-fine";
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntrailer: {announced}\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    client.send(format!("5\r\nhello\r\n0\r\n{forbidden}\r\n"));
    assert_eq!(client.reply().json()["trailers"], serde_json::json!(["x-fine: 1"]));
}

#[test]
fn trailers_reach_a_client_that_takes_them() {
    let answer = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n";
    for (te, trailers) in [("trailers", vec![("x-sum".to_owned(), "42".to_owned())]), ("gzip", vec![])] {
        let origin = Origin::saying(answer);
        let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
        let reply = get(tollgate.address, "/", &[("te", te), ("connection", "te")]);
        assert_eq!((reply.text().as_str(), reply.trailers), ("hello", trailers), "te: {te}");
        let asked = origin.heads()[0].contains("\r\nte: trailers");
        assert_eq!(asked, te == "trailers", "{:?}", origin.heads());
    }
}

#[test]
fn trailers_of_an_answer_can_not_speak_of_the_connection() {
    let answer = "HTTP/1.1 200 OK\r\ntrailer: connection, upgrade, x-fine\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nconnection: close\r\nupgrade: h2c\r\nx-fine: 1\r\n\r\n";
    let origin = Origin::saying(answer);
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let reply = get(tollgate.address, "/", &[("te", "trailers"), ("connection", "te")]);
    assert_eq!(reply.trailers, [("x-fine".to_owned(), "1".to_owned())]);
}

#[test]
fn a_client_s_request_id_is_replaced_on_both_sides() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let first = get(tollgate.address, "/", &[("x-request-id", "mine"), ("x_request_id", "mine")]);
    let second = get(tollgate.address, "/", &[]);
    let id = first.header("x-request-id").unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(second.header("x-request-id"), Some(id.as_str()));
    assert!(origin.heads()[0].contains(&format!("\r\nx-request-id: {id}")), "{:?}", origin.heads());
    assert!(!origin.heads()[0].contains("mine"), "{:?}", origin.heads());
}

#[test]
fn a_request_id_of_a_trusted_proxy_is_kept() {
    let origin =
        Origin::saying("HTTP/1.1 200 OK\r\nx-request-id: the-origins\r\ncontent-length: 2\r\n\r\nok");
    let tollgate = Tollgate::start(Config::new(
        &[origin.address],
        "trusted_proxies: [127.0.0.1]\nrequest_id: x-request-id\n",
    ));
    let reply = get(tollgate.address, "/", &[("x-request-id", "gateway-1")]);
    assert_eq!(reply.all("x-request-id"), ["gateway-1"]);
    assert_eq!(origin.heads()[0].matches("x-request-id: gateway-1").count(), 1, "{:?}", origin.heads());
}
