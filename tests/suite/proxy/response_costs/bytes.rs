//! `response: bytes`: traffic, charged step by step as it passes.

use std::io;

use super::{ask, left, left_in, logged, path_of, settles, start, units, used};
use crate::harness::{
    Client, Conn, Deployment, Origin, Tollgate, becomes, by_http2, eventually, get, on_each_store, request,
};

const MIB: u64 = 1 << 20;

const POLICIES: &str = "
policies: { tokens: { algorithm: single_counter, key: user, limit: 10MiB/1h, cost: { response: bytes, reserve: 1MiB } } }
routes: [{ path: /*, upstream: api, policies: [tokens] }]
";

/// `/A/B` sends A bytes, waits until the test says so, and sends B bytes.
fn in_parts() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let lengths: Vec<usize> =
                path_of(&head)[1..].split('/').map(|length| length.parse().unwrap()).collect();
            let total: usize = lengths.iter().sum();
            conn.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n").as_bytes())?;
            for (nth, length) in lengths.into_iter().enumerate() {
                if nth > 0 {
                    conn.pause()?;
                }
                send_zeros(conn, length)?;
            }
        }
        Ok(())
    })
}

fn send_zeros(conn: &mut Conn, length: usize) -> io::Result<()> {
    conn.send(&vec![0; length])
}

#[track_caller]
fn open(tollgate: &Tollgate, path: &str) -> Client {
    let mut client = Client::connect(tollgate.address);
    client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-user: ann\r\n\r\n"));
    assert_eq!(client.head().status, 200);
    client
}

fn steps_are_charged_while_downloads_are_under_way(redis: Option<&Deployment>) {
    let origin = in_parts();
    let tollgate = start(redis, origin.address, POLICIES);
    // 1.5 MiB and 1 byte more than 2 MiB; then 10 bytes each.
    let (first, second) = (3 * MIB / 2, 2 * MIB + 1);
    let mut downloads = [open(&tollgate, &format!("/{first}/10")), open(&tollgate, &format!("/{second}/10"))];
    downloads[0].take(first as usize).unwrap();
    downloads[1].take(second as usize).unwrap();
    becomes(5 * MIB, || used(&tollgate, "tokens", "ann"));
    assert_eq!((units(&tollgate, "tokens").open, units(&tollgate, "tokens").charged), (5 * MIB, 0));
    // Five more may begin.
    let mut others: Vec<_> = (0..5).map(|_| open(&tollgate, "/0/1000")).collect();
    let denied = get(tollgate.address, "/0", &[("x-user", "ann")]);
    assert_eq!((denied.status, left(&denied)), (429, 0));
    for _ in 0..7 {
        origin.resume();
    }
    for client in &mut downloads {
        client.take(10).unwrap();
    }
    for client in &mut others {
        client.take(1_000).unwrap();
    }
    becomes(0, || units(&tollgate, "tokens").open);
    let spent = first + second + 20 + 5_000;
    settles(&tollgate, "tokens", "ann", spent);
    let found = units(&tollgate, "tokens");
    assert_eq!((found.reserved, found.charged, found.excess, found.missing), (10 * MIB, spent, 0, 0));
    assert_eq!(found.refunded, 10 * MIB - spent);
    // On a connection that is kept. The last step is settled after the store has taken it.
    let mut client = Client::connect(tollgate.address);
    let mut spent = spent;
    for length in [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB / 2] {
        let reply = ask(&mut client, &format!("/{length}"), "ann");
        assert_eq!(left(&reply), 10 * MIB - spent - MIB, "before {length}");
        spent += length;
        settles(&tollgate, "tokens", "ann", spent);
    }
    let denied = ask(&mut client, "/0", "ann");
    assert_eq!((denied.status, left(&denied)), (429, 10 * MIB - spent));
    eventually("all are logged", || logged(&tollgate).len() == 15);
    let lines = logged(&tollgate);
    assert_eq!(lines.iter().filter_map(|(_, charged)| *charged).sum::<u64>(), spent);
    assert!(lines.iter().filter(|line| line.0.is_some()).all(|line| line.0 == Some(MIB)), "{lines:?}");
}

/// A download that was admitted passes whole, even past the limit.
fn a_download_beyond_the_limit_is_never_cut(redis: Option<&Deployment>) {
    let origin = in_parts();
    let tollgate = start(redis, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    // At most one limit above what was reserved is charged, if all bytes pass before the store has answered once.
    let length = 21 * MIB / 2 + 5;
    let reply = ask(&mut client, &format!("/{length}"), "ann");
    assert_eq!((reply.status, reply.body.len() as u64), (200, length));
    let denied = ask(&mut client, "/0", "ann");
    assert_eq!((denied.status, left(&denied)), (429, 0));
    settles(&tollgate, "tokens", "ann", length);
}

fn a_client_that_leaves_pays_the_bytes_that_have_passed(redis: Option<&Deployment>) {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        let passed: usize = path_of(&head)[1..].parse().unwrap();
        conn.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", passed + 10).as_bytes())?;
        send_zeros(conn, passed)?;
        conn.closed();
        Ok(())
    });
    let tollgate = start(redis, origin.address, POLICIES);
    for (nth, passed) in [10, MIB + 10, 2 * MIB].into_iter().enumerate() {
        let mut client = open(&tollgate, &format!("/{passed}"));
        client.take(passed as usize).unwrap();
        client.reset();
        becomes(nth + 1, || tollgate.stdout().len());
        becomes(0, || units(&tollgate, "tokens").open);
    }
    becomes(3 * MIB + 20, || used(&tollgate, "tokens", "ann"));
    assert_eq!(units(&tollgate, "tokens").charged, 3 * MIB + 20);
}

/// The upstream gets each request, and closes its connection.
fn a_request_without_a_response_costs_no_bytes(redis: Option<&Deployment>) {
    let origin = Origin::start(|conn| conn.head().map(drop));
    let tollgate = start(redis, origin.address, POLICIES);
    for _ in 0..20 {
        assert_eq!(get(tollgate.address, "/", &[("x-user", "ann")]).status, 502);
    }
    settles(&tollgate, "tokens", "ann", 0);
    let units = units(&tollgate, "tokens");
    assert_eq!((units.charged, units.missing, units.open), (0, 0, 0));
}

on_each_store!(
    steps_are_charged_while_downloads_are_under_way,
    a_download_beyond_the_limit_is_never_cut,
    a_client_that_leaves_pays_the_bytes_that_have_passed,
    a_request_without_a_response_costs_no_bytes,
);

#[test]
fn clients_of_http2_are_charged_alike() {
    let origin = in_parts();
    let tollgate = start(None, origin.address, POLICIES);
    by_http2(tollgate.address, async |mut client| {
        let mut spent = 0;
        for length in [0, 1, MIB + 1, 100] {
            let reply = client.get(&format!("/{length}"), &[("x-user", "ann")]).await.unwrap();
            assert_eq!(reply.body.len() as u64, length);
            let told = left_in(reply.head.headers()["ratelimit"].to_str().unwrap());
            assert_eq!(told, 10 * MIB - spent - MIB, "before {length}");
            spent += length;
        }
    });
}

#[test]
fn a_websocket_is_charged_what_it_has_sent_when_it_ends() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        if !head.contains("upgrade: websocket") {
            return conn.answer("200 OK", &[], b"12345");
        }
        conn.send(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )?;
        // An unmasked frame of 3 bytes with 100,000, in answer to what the client says.
        conn.take(8)?;
        let length = 100_000_u64.to_be_bytes();
        conn.send(&[&[0x82, 127], length.as_slice(), &[7; 100_000]].concat())?;
        conn.closed();
        Ok(())
    });
    let tollgate = start(None, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    client.send(
        "GET / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = client.head();
    assert_eq!((head.status, left(&head)), (101, 9 * MIB), "{head:?}");
    assert_eq!(units(&tollgate, "tokens").open, MIB);
    // A masked frame of two bytes.
    client.send([0x82, 0x82, 0, 0, 0, 0, 1, 2]);
    client.take(10 + 100_000).unwrap();
    assert_eq!(used(&tollgate, "tokens", "ann"), MIB, "until it ends");
    client.reset();
    becomes(0, || units(&tollgate, "tokens").open);
    settles(&tollgate, "tokens", "ann", 100_010);
    let reply = request(tollgate.address, "GET", "/", &[("x-user", "ann")], b"");
    assert_eq!(left(&reply), 10 * MIB - 100_010 - MIB);
}
