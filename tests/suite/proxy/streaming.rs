//! What is sent goes on at once: nothing waits for the end of a body, or for more bytes.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::before;
use crate::harness::{Client, Config, Latch, Origin, Tollgate, by_http2, eventually};

/// The kernel of the origin keeps the body until the head is acknowledged, which takes 40 ms unless somebody sees to it. Half of
/// the responses are at least as fast as the median, however much else the machine does.
#[test]
fn an_origin_that_writes_in_parts_is_not_kept_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut head = [0; 4_096];
                while (&stream).read(&mut head).is_ok_and(|read| read > 0) {
                    // Without TCP_NODELAY, in three parts.
                    for part in ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", "hel", "lo"] {
                        (&stream).write_all(part.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    let mut client = Client::connect(tollgate.address);
    let mut times: Vec<Duration> = (0..41)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(client.request("GET", "/", &[], b"").text(), "hello");
            begun.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[20] < Duration::from_millis(30), "{times:?}");
}

#[test]
fn events_reach_the_client_one_by_one() {
    let seen: Vec<Latch> = (0..5).map(|_| Latch::new()).collect();
    let wait_for = seen.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        for seen in &wait_for {
            conn.send(b"7\r\ndata: x\r\n")?;
            seen.wait();
        }
        conn.send(b"0\r\n\r\n")
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").head().status, 200);
    for seen in &seen {
        assert_eq!(client.chunk().unwrap().unwrap(), b"data: x");
        seen.open();
    }
    assert_eq!(client.chunk().unwrap(), None);
}

#[test]
fn the_head_of_an_answer_does_not_wait_for_its_body() {
    let seen = Latch::new();
    let head_seen = seen.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")?;
        head_seen.wait();
        conn.send(b"ok")
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").head().status, 200);
    seen.open();
    assert_eq!(client.take(2).unwrap(), b"ok");
}

#[test]
fn pieces_of_an_upload_reach_the_origin_one_by_one() {
    let seen: Vec<Latch> = (0..5).map(|_| Latch::new()).collect();
    let arrived = seen.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        for arrived in &arrived {
            assert_eq!(conn.chunk()?.unwrap(), b"piece");
            arrived.open();
        }
        assert_eq!(conn.chunk()?, None);
        conn.answer("200 OK", &[], b"")
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    for seen in &seen {
        client.send("5\r\npiece\r\n");
        seen.wait();
    }
    assert_eq!(client.send("0\r\n\r\n").reply().status, 200);
}

#[test]
fn both_directions_stream_at_the_same_time() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        while let Some(chunk) = conn.chunk()? {
            let chunk = String::from_utf8(chunk).unwrap();
            conn.send(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes())?;
        }
        conn.send(b"0\r\n\r\n")
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for word in ["ping", "and", "pong"] {
        client.send(format!("{:x}\r\n{word}\r\n", word.len()));
        assert_eq!(client.chunk().unwrap().unwrap(), word.as_bytes());
    }
    assert_eq!(client.send("0\r\n\r\n").chunk().unwrap(), None);
}

/// Two small writes after each other are where Nagle's algorithm and delayed acknowledgements hold the
/// second one back for 40 ms.
const ROUNDS: usize = 40;
const FAR_BELOW_A_DELAYED_ACK: Duration = Duration::from_millis(20);

/// Half of the rounds take no longer: what a busy machine holds up is not all of them.
fn median(mut round: impl FnMut()) -> Duration {
    let mut took: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            round();
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[ROUNDS / 2]
}

#[test]
fn small_pieces_of_an_answer_are_not_held_back() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            for piece in ["1\r\na\r\n", "1\r\nb\r\n", "1\r\nc\r\n", "0\r\n\r\n"] {
                std::thread::sleep(Duration::from_millis(1)); // so that each is a segment of its own
                conn.send(piece.as_bytes())?;
            }
        }
        Ok(())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    let each = median(|| assert_eq!(client.request("GET", "/", &[], b"").text(), "abc"));
    assert!(each < FAR_BELOW_A_DELAYED_ACK, "{each:?} a request");
}

#[test]
fn small_pieces_of_a_request_are_not_held_back() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    let each = median(|| {
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n");
        for piece in ["a", "b", "c"] {
            std::thread::sleep(Duration::from_millis(1));
            client.send(piece);
        }
        assert_eq!(client.reply().status, 200);
    });
    assert!(each < FAR_BELOW_A_DELAYED_ACK, "{each:?} a request");
}

/// Streams that send one event and then nothing more; a file sends its second half once `is_over`.
fn streams(is_over: Latch) -> Origin {
    Origin::start(move |conn| {
        if conn.head()?.is_some_and(|head| head.starts_with("GET /file")) {
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\ndata: x")?;
            is_over.wait();
            return conn.send(b"data: y");
        }
        conn.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n\
              7\r\ndata: x\r\n",
        )?;
        conn.closed();
        Ok(())
    })
}

#[test]
fn a_ban_ends_the_streams_of_whom_it_shuts_out() {
    let is_over = Latch::new();
    let origin = streams(is_over.clone());
    let rest = "user: [{ header: x-user, from: anyone }]\naccess_log: { format: json, to: stdout }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest));
    let kept =
        Tollgate::start(Config::new(&[origin.address], &format!("{rest}bans: {{ close_tunnels: false }}\n")));
    let open = |tollgate: &Tollgate, path: &str, user: &str| {
        let mut client = Client::connect(tollgate.address);
        let head = client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n")).head();
        assert_eq!(head.status, 200, "{head:?}");
        client
    };
    let mut clients =
        [(&tollgate, "mallory"), (&tollgate, "alice"), (&kept, "mallory")].map(|(tollgate, user)| {
            let mut client = open(tollgate, "/events", user);
            assert_eq!(client.chunk().unwrap().unwrap(), b"data: x");
            client
        });
    // What has a length has an end.
    let mut file = open(&tollgate, "/file", "mallory");
    assert_eq!(file.take(7).unwrap(), b"data: x");
    for tollgate in [&kept, &tollgate] {
        assert_eq!(tollgate.command(&["ban", "user:mallory", "--for=1h"]).code, Some(0));
    }
    let [mallory, alice, stays] = &mut clients;
    assert_eq!(mallory.rest(), b"", "the last chunk does not come");
    eventually("the upstream is told", || origin.open_connections() == 3);
    eventually("it is logged", || {
        tollgate
            .stdout()
            .iter()
            .any(|line| line.contains("/events") && line.contains("\"aborted_by\":\"client\""))
    });
    assert_eq!(
        tollgate.log().iter().filter(|line| line.contains("failed")).count(),
        0,
        "{:?}",
        tollgate.log()
    );
    assert!(!alice.has_something_to_read() && !stays.has_something_to_read());
    // One whose own address is banned as well.
    assert_eq!(tollgate.command(&["ban", "127.0.0.1", "--for=1h", "--force"]).code, Some(0));
    assert_eq!(alice.rest(), b"");
    is_over.open();
    assert_eq!(file.take(7).unwrap(), b"data: y");
}

#[test]
fn a_ban_ends_the_streams_of_grpc_with_a_status() {
    let origin = streams(Latch::new());
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "user: [{ header: x-user, from: anyone }]\n"));
    by_http2(tollgate.address, async |mut client| {
        let fields = [("content-type", "application/grpc"), ("te", "trailers"), ("x-user", "mallory")];
        let (answer, _) = client.send("POST", "/a.Service/Watch", &fields, true).await.unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), Bytes::from_static(b"data: x"));
        let banned = tollgate.command(&["ban", "user:mallory", "--for=1h"]);
        assert_eq!(banned.code, Some(0));
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"7".parse().unwrap(), &"The client is banned.".parse().unwrap())
        );
    });
    eventually("the upstream is told", || origin.open_connections() == 0);
}
