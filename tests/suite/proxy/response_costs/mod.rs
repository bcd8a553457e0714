//! Costs that the response tells: reserved before the request, settled to the unit before the response ends.

mod aborts;
mod asking;
mod bytes;
mod missing;
mod requests;
mod settling;
mod streams;
mod told;

use std::{io::Write, net::SocketAddr};

use flate2::{Compression, write::GzEncoder};

use crate::harness::{Client, Config, Conn, Deployment, Origin, Reply, Tollgate, becomes};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A Tollgate in front of the upstream `api` at `origin`, whose users say who they are. `rest`: its policies, and routes that
/// use them.
fn start(redis: Option<&Deployment>, origin: SocketAddr, rest: &str) -> Tollgate {
    start_with(redis, origin, "protocol: h1", rest)
}

/// Likewise with these settings of the upstream.
fn start_with(redis: Option<&Deployment>, origin: SocketAddr, upstream: &str, rest: &str) -> Tollgate {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 10s }} }}\n", redis.settings())
    });
    Tollgate::start(Config::yaml(format!(
        "user: [{{ header: x-user, from: anyone }}]\n\
         access_log: {{ format: json, to: stdout }}\n\
         upstreams: {{ api: {{ endpoints: [\"http://{origin}\"], {upstream} }} }}\n{store}{rest}\n"
    )))
}

/// One route for everything, with one policy `tokens` of a `limit` an hour and this `cost`.
fn one_policy(limit: u64, cost: &str) -> String {
    format!(
        "policies: {{ tokens: {{ algorithm: sliding_window, key: user, limit: {limit}/1h, cost: {{ {cost} }} }} }}\n\
         routes: [{{ path: /*, upstream: api, policies: [tokens] }}]"
    )
}

/// Answers each request with the bytes of its path, in pieces.
fn answering(answers: Vec<(String, Vec<u8>)>) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let path = path_of(&head);
            let answer = answers.iter().find(|(name, _)| path == name);
            let (_, answer) = answer.unwrap_or_else(|| panic!("no answer for {path}"));
            for piece in answer.chunks(29) {
                conn.send(piece)?;
            }
        }
        Ok(())
    })
}

/// Answers `/N` with a cost of N in JSON.
fn costing_as_asked() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            answer_cost(conn, path_of(&head).trim_start_matches('/'))?;
        }
        Ok(())
    })
}

/// Answers with this cost in JSON.
fn answer_cost(conn: &mut Conn, cost: &str) -> std::io::Result<()> {
    conn.send(&whole(JSON, format!("{{\"cost\":{cost}}}")))
}

/// The path of a request.
fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// A response with a length.
fn whole(media_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    with_fields("200 OK", &format!("content-type: {media_type}\r\n"), body)
}

/// Likewise with another status, and these fields.
fn with_fields(status: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A response in chunks of three bytes, with these trailers.
fn in_chunks(fields: &str, body: impl AsRef<[u8]>, trailers: &str) -> Vec<u8> {
    let mut answer = chunked_head(fields);
    answer.extend(body.as_ref().chunks(3).flat_map(chunk));
    answer.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    answer
}

fn chunked_head(fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}transfer-encoding: chunked\r\n\r\n").into_bytes()
}

fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// What the field `RateLimit` says is left.
#[track_caller]
fn left(reply: &Reply) -> u64 {
    left_in(reply.header("ratelimit").unwrap_or_else(|| panic!("no RateLimit: {reply:?}")))
}

#[track_caller]
fn left_in(field: &str) -> u64 {
    let left = field.split("r=").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
    left.unwrap_or_else(|| panic!("says nothing left: {field}"))
}

/// A GET of `user`.
#[track_caller]
fn ask(client: &mut Client, path: &str, user: &str) -> Reply {
    client.request("POST", path, &[("x-user", user), ("content-type", JSON)], b"{}")
}

/// The units that the store holds against `user`.
#[track_caller]
fn used(tollgate: &Tollgate, policy: &str, user: &str) -> u64 {
    let reply = tollgate.admin("GET", &format!("/v1/limits?policy={policy}&key=user:{user}"));
    // Each variant of the limit is counted by itself.
    let limits = reply.json()["limits"].as_array().cloned().unwrap_or_default();
    limits.iter().map(|limit| limit["used"].as_u64().unwrap()).sum()
}

/// Waits until no request is in progress, and the store holds so many units against `user`: on Redis, the admin port asks over
/// another connection.
#[track_caller]
fn settles(tollgate: &Tollgate, policy: &str, user: &str, units_used: u64) {
    becomes(0, || units(tollgate, policy).open);
    becomes(units_used, || used(tollgate, policy, user));
}

/// What became of the units of a policy.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Units {
    reserved: u64,
    charged: u64,
    refunded: u64,
    excess: u64,
    /// Of requests in progress.
    open: u64,
    missing: u64,
}

fn units(tollgate: &Tollgate, policy: &str) -> Units {
    let text = tollgate.admin("GET", "/metrics").text();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    };
    let kind =
        |kind: &str| value(&format!("tollgate_cost_units_total{{policy=\"{policy}\",kind=\"{kind}\"}}"));
    Units {
        reserved: kind("reserved"),
        charged: kind("charged"),
        refunded: kind("refunded"),
        excess: kind("excess"),
        open: value(&format!("tollgate_cost_units_open{{policy=\"{policy}\"}}")),
        missing: value(&format!("tollgate_cost_missing_total{{policy=\"{policy}\"}}")),
    }
}

/// `reserved` and `charged` of the lines of the access log so far.
fn logged(tollgate: &Tollgate) -> Vec<(Option<u64>, Option<u64>)> {
    let lines = tollgate.stdout();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.map(|line| (line["reserved"].as_u64(), line["charged"].as_u64())).collect()
}
