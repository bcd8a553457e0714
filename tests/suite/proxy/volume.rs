//! Large bodies in both directions: whole, at constant memory, and no faster than the slower side.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::before;
use crate::harness::{Client, Config, Latch, Origin, PATIENCE, Tollgate, becomes, eventually};

/// `TOLLGATE_TEST_BODY_MIB=1024` for the full size.
fn large() -> usize {
    let mib = std::env::var("TOLLGATE_TEST_BODY_MIB").map_or(256, |mib| mib.parse().unwrap());
    mib << 20
}

const PIECE: usize = 1 << 20;
/// What memory may grow by, however large the body.
const GROWTH_KIB: u64 = 48 << 10;
/// More than all socket buffers on the way hold together.
const BUFFERS: usize = 48 << 20;

/// Sends `length` bytes, as chunks or not.
fn send_body(stream: &mut TcpStream, length: usize, chunked: bool) -> std::io::Result<()> {
    let piece = vec![b'x'; PIECE];
    for _ in 0..length / PIECE {
        if chunked {
            write!(stream, "{PIECE:x}\r\n")?;
        }
        stream.write_all(&piece)?;
        if chunked {
            stream.write_all(b"\r\n")?;
        }
    }
    if chunked { stream.write_all(b"0\r\n\r\n") } else { Ok(()) }
}

fn framing(length: usize, chunked: bool) -> String {
    if chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {length}") }
}

#[track_caller]
fn assert_memory_stays(tollgate: &Tollgate, work: impl FnOnce()) {
    let before = tollgate.forget_peak();
    work();
    let grown = tollgate.peak_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grew by {grown} KiB from {before} KiB");
}

fn upload(chunked: bool) {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        let length = conn.skip_body(&head)?;
        conn.answer("200 OK", &[], length.to_string().as_bytes())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_memory_stays(&tollgate, || {
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{}\r\n\r\n", framing(large(), chunked)));
        send_body(&mut client.stream, large(), chunked).unwrap();
        assert_eq!(client.reply().text(), large().to_string());
    });
}

fn download(chunked: bool) {
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", framing(large(), chunked)).as_bytes())?;
        send_body(&mut conn.stream, large(), chunked)
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_memory_stays(&tollgate, || {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let head = client.head();
        assert_eq!(client.skip_body(&head).unwrap(), large());
    });
}

#[test]
fn a_large_upload_with_a_length_takes_constant_memory() {
    upload(false);
}

#[test]
fn a_large_upload_in_chunks_takes_constant_memory() {
    upload(true);
}

#[test]
fn a_large_download_with_a_length_takes_constant_memory() {
    download(false);
}

#[test]
fn a_large_download_in_chunks_takes_constant_memory() {
    download(true);
}

/// A string of all of it, before the number that tells the cost, and every byte a unit of another policy.
#[test]
fn a_large_download_that_tells_its_cost_takes_constant_memory() {
    const BEGIN: &str = "{\"text\":\"";
    const END: &str = "\",\"usage\":{\"total_tokens\":7}}";
    let length = BEGIN.len() + large() + END.len();
    let origin = Origin::start(move |conn| {
        let head = conn.head()?.unwrap();
        conn.skip_body(&head)?;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        conn.send(format!("{head}{BEGIN}").as_bytes())?;
        send_body(&mut conn.stream, large(), false)?;
        conn.send(END.as_bytes())
    });
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            "policies:
  tokens: { algorithm: sliding_window, key: ip, limit: 1000/1d, cost: { response: openai, reserve: 100 } }
  bytes: { algorithm: fixed_window, key: ip, limit: 1PiB/1d, cost: { response: bytes, reserve: 1MiB } }
",
        )
        .with_policy("tokens, bytes"),
    );
    let mut client = Client::connect(tollgate.address);
    assert_memory_stays(&tollgate, || {
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}");
        let head = client.head();
        assert_eq!(client.skip_body(&head).unwrap(), length);
    });
    for (policy, units) in [("tokens", 7), ("bytes", length as u64)] {
        let path = format!("/v1/limits?policy={policy}&key=ip:127.0.0.1");
        becomes(Some(units), || tollgate.admin("GET", &path).json()["limits"][0]["used"].as_u64());
    }
}

/// Writes until the other side has taken nothing for a while, or `length` bytes are gone: how many are.
fn write_until_stuck(stream: &mut TcpStream, length: usize) -> usize {
    let piece = vec![b'x'; PIECE];
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    while sent < length {
        match stream.write(&piece[..PIECE.min(length - sent)]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("after {sent} bytes: {error}"),
        }
    }
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    sent
}

#[test]
fn a_client_that_does_not_read_stops_the_origin() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")?;
        count.store(write_until_stuck(&mut conn.stream, 1 << 30), Ordering::SeqCst);
        conn.closed();
        Ok(())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_memory_stays(&tollgate, || {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
        eventually("the origin is stopped", || sent.load(Ordering::SeqCst) > 0);
    });
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < BUFFERS, "the origin could send {sent} bytes");
}

#[test]
fn an_origin_that_does_not_read_stops_the_client_and_loses_nothing() {
    let (length, read) = (96 << 20, Latch::new());
    let begins = read.clone();
    let origin = Origin::start(move |conn| {
        let head = conn.head()?.unwrap();
        begins.wait();
        let length = conn.skip_body(&head)?;
        conn.answer("200 OK", &[], length.to_string().as_bytes())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"));
    let sent = write_until_stuck(&mut client.stream, length);
    assert!(sent < BUFFERS, "the client could send {sent} bytes");
    read.open();
    client.send(vec![b'x'; length - sent]);
    assert_eq!(client.reply().text(), length.to_string());
}

#[test]
fn answers_that_clients_do_not_read_take_little_memory() {
    let stuck = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&stuck);
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")?;
        write_until_stuck(&mut conn.stream, 1 << 30);
        count.fetch_add(1, Ordering::SeqCst);
        conn.closed();
        Ok(())
    });
    let tollgate = before(&origin);
    let connect = |clients: usize| -> Vec<Client> {
        let before = stuck.load(Ordering::SeqCst);
        let clients =
            (0..clients).map(|_| Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
        let clients: Vec<Client> = clients.collect();
        eventually("the origin is stopped", || stuck.load(Ordering::SeqCst) == before + clients.len());
        clients
    };
    // What the first take is the process's.
    let _first = connect(8);
    let before = tollgate.resident_kib();
    let clients = connect(40);
    let each = (tollgate.resident_kib() - before) / clients.len() as u64;
    assert!(each <= 450, "{each} KiB an answer");
}
