//! `client_limits.min_rate`: clients that send or read too slowly are cut off, and those that are just fast enough are
//! served to the end.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::assert_problem;
use crate::harness::{
    Authority, Client, Config, Origin, TlsConnector, Tollgate, becomes, eventually, file_name,
};

/// The beginnings of uploads: one that is passed on as it comes, by length and in chunks, and one that is received first.
const UPLOADS: [(&str, &str); 3] = [
    ("content-length: 1000000", ""),
    ("transfer-encoding: chunked", "1\r\nx\r\n"),
    ("content-length: 10000", ""),
];

/// Twice the default would be tested by nobody: a rate that a test has the time for.
const LIMITS: &str = "client_limits: { min_rate: { bytes: 1000, grace: 300ms } }\n";

fn start(origin: &Origin, rest: &str) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], rest))
}

fn cut_off(tollgate: &Tollgate, body: &str, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_requests_cut_off_total{{body=\"{body}\",reason=\"{reason}\"}}"))
}

/// Sends `bytes` again and again, until the proxy answers or closes.
fn trickle(client: &mut Client, bytes: &str, every: Duration) {
    let end = Instant::now() + Duration::from_secs(10);
    while !client.has_something_to_read() && client.stream.write_all(bytes.as_bytes()).is_ok() {
        assert!(Instant::now() < end, "it is let go on");
        thread::sleep(every);
    }
}

#[test]
fn an_upload_below_the_rate_gets_a_408_and_leaves_the_origin() {
    for (framing, chunk) in UPLOADS {
        let origin = Origin::sink();
        let tollgate = start(&origin, LIMITS);
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        // 50 bytes a second, and never silent for long.
        trickle(&mut client, if chunk.is_empty() { "x" } else { chunk }, Duration::from_millis(20));
        let reply = client.reply();
        assert_problem(&reply, 408, &[origin.address]);
        assert!(reply.text().contains("too slowly"), "{}", reply.text());
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.closed());
        eventually("the origin is left", || origin.open_connections() == 0);
        eventually("it is counted", || cut_off(&tollgate, "request", "min_rate") == 1.0);
        let told = " sent its request body too slowly, and was cut off";
        eventually("it is logged", || tollgate.has_logged(&[told, "min_rate"]));
    }
}

#[test]
fn an_upload_just_above_the_rate_arrives() {
    // A grace as long as a busy machine may hold up the client, and all of them at once: it takes four times as long.
    let limits = "client_limits: { min_rate: { bytes: 1000, grace: 2s } }\n";
    let arrives = |framing: &str, buffering: &str| {
        let origin = Origin::echo();
        let settings = format!("request_buffering: {buffering}");
        let tollgate = Tollgate::start(Config::upstream(&[origin.address], &settings, limits));
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        let begun = Instant::now();
        for part in 1..=80 {
            client.send(match framing {
                "transfer-encoding: chunked" => format!("78\r\n{}\r\n", "x".repeat(120)),
                _ => "x".repeat(120),
            });
            // 1,200 bytes a second.
            thread::sleep(
                (begun + part * Duration::from_millis(100)).saturating_duration_since(Instant::now()),
            );
        }
        if framing == "transfer-encoding: chunked" {
            client.send("0\r\n\r\n");
        }
        assert_eq!(client.reply().json()["body_bytes"], 9600, "{framing}, {buffering}");
    };
    thread::scope(|scope| {
        for framing in ["content-length: 9600", "transfer-encoding: chunked"] {
            for buffering in ["16KiB", "0"] {
                scope.spawn(move || arrives(framing, buffering));
            }
        }
    });
}

#[test]
fn an_upload_that_was_fast_may_stall_for_as_long_as_the_idle_timeout_allows() {
    let origin = Origin::echo();
    let tollgate =
        start(&origin, "client_limits: { idle_timeout: 4s, min_rate: { bytes: 1000, grace: 2s } }\n");
    let upload = |stall: u64| {
        let mut client = Client::connect(tollgate.address);
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").send("x".repeat(50_000));
        let half = Instant::now();
        while half.elapsed() < Duration::from_millis(stall) && !client.has_something_to_read() {
            thread::sleep(Duration::from_millis(10));
        }
        let _closed = client.stream.write_all("x".repeat(50_000).as_bytes());
        client.reply().status
    };
    assert_eq!(upload(1_000), 200);
    assert_eq!(upload(60_000), 408);
    becomes(1.0, || cut_off(&tollgate, "request", "idle_timeout"));
}

#[test]
fn a_rate_of_zero_sets_no_bound() {
    let origin = Origin::echo();
    let tollgate = start(&origin, "client_limits: { min_rate: { bytes: 0, grace: 100ms } }\n");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20\r\n\r\n");
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(50));
        client.send("x");
    }
    assert_eq!(client.reply().json()["body_bytes"], 20);
}

#[test]
fn time_that_the_origin_takes_is_not_the_client_s() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        // The body waits in the proxy meanwhile.
        thread::sleep(Duration::from_millis(1_500));
        let length = conn.skip_body(&head)?;
        thread::sleep(Duration::from_millis(1_500));
        conn.answer("200 OK", &[], length.to_string().as_bytes())
    });
    let tollgate = start(&origin, "client_limits: { min_rate: { bytes: 1000, grace: 1s } }\n");
    let mut client = Client::connect(tollgate.address);
    let reply = client.request("POST", "/", &[], &vec![b'x'; 24 << 20]);
    assert_eq!(reply.text(), (24 << 20).to_string());
}

#[test]
fn an_upload_that_trickles_during_its_answer_is_cut_off_as_well() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        // The answer's own time limits begin anew with each piece.
        loop {
            conn.send(b"2\r\nok\r\n")?;
            thread::sleep(Duration::from_millis(5));
        }
    });
    let tollgate = start(&origin, LIMITS);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let end = Instant::now() + Duration::from_secs(10);
    while client.stream.write_all(b"x").is_ok() {
        assert!(Instant::now() < end, "it is let go on");
        thread::sleep(Duration::from_millis(20));
    }
    eventually("the origin is left", || origin.open_connections() == 0);
    becomes(1.0, || cut_off(&tollgate, "request", "min_rate"));
}

#[test]
fn a_refused_upload_that_trickles_is_cut_off() {
    let origin = Origin::ok();
    let limits = format!("policies:\n  one: {{ algorithm: sliding_log, key: ip, limit: 1/1h }}\n{LIMITS}");
    let tollgate = Tollgate::start(Config::new(&[origin.address], &limits).with_policy("one"));
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10000\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (429, None));
    trickle(&mut client, "x", Duration::from_millis(20));
    assert!(client.closed());
    becomes(1.0, || cut_off(&tollgate, "request", "min_rate"));
}

/// Answers with more than all buffers hold.
fn endless() -> Origin {
    Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")?;
        loop {
            conn.send(&[b'x'; 1 << 16])?;
        }
    })
}

/// A connection whose own buffer is small, so that it acknowledges little more than is read.
fn small_buffer(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// Reads `bytes` every 50 ms, for `time` at most. How long it was let.
fn read_slowly(stream: &mut impl Read, bytes: usize, time: Duration) -> io::Result<()> {
    let begun = Instant::now();
    let mut buffer = vec![0; bytes];
    while begun.elapsed() < time {
        stream.read_exact(&mut buffer)?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// 20,000 bytes a second; between two writes that get through lies more time than the idle timeout.
const READER_LIMITS: &str = "client_limits: { idle_timeout: 2s, min_rate: { bytes: 20KiB, grace: 2s } }\n";

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn a_reader_below_the_rate_is_cut_off_and_leaves_the_origin() {
    let origin = endless();
    let tollgate = start(&origin, "client_limits: { min_rate: { bytes: 20KiB, grace: 500ms } }\n");
    let mut stream = small_buffer(tollgate.address);
    stream.write_all(GET).unwrap();
    // 4,000 bytes a second.
    let error = read_slowly(&mut stream, 200, Duration::from_secs(15)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "the kernel keeps nothing for it");
    eventually("the origin is left", || origin.open_connections() == 0);
    becomes(1.0, || cut_off(&tollgate, "response", "min_rate"));
    let told = " read its response too slowly, and was cut off";
    eventually("it is logged", || tollgate.has_logged(&[told]));
}

#[test]
fn a_reader_that_reads_nothing_is_cut_off() {
    let origin = endless();
    // What its kernel takes is worth less than a second.
    let tollgate = start(&origin, "client_limits: { min_rate: { bytes: 100KiB, grace: 500ms } }\n");
    let mut stream = small_buffer(tollgate.address);
    stream.write_all(GET).unwrap();
    eventually("the origin is left", || origin.connections() == 1 && origin.open_connections() == 0);
    becomes(1.0, || cut_off(&tollgate, "response", "min_rate"));
}

#[test]
fn a_reader_just_above_the_rate_goes_on_reading() {
    let origin = endless();
    let tollgate = start(&origin, READER_LIMITS);
    let mut stream = small_buffer(tollgate.address);
    stream.write_all(GET).unwrap();
    // 30,000 bytes a second: of the megabytes that the kernel holds, no third goes away meanwhile.
    read_slowly(&mut stream, 1_500, Duration::from_secs(8)).unwrap();
    assert_eq!(origin.open_connections(), 1);
}

/// The length of an answer that is more than the kernel holds for a client with small segments.
const LENGTH: usize = 300_000;

/// An origin with such an answer, the proxy before it, and such a client.
fn before_a_finite_answer() -> (Origin, Tollgate, TcpStream) {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.answer("200 OK", &[], &[b'x'; LENGTH])
    });
    let tollgate = start(&origin, READER_LIMITS);
    let socket = Socket::new(Domain::for_address(tollgate.address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.connect(&tollgate.address.into()).unwrap();
    (origin, tollgate, socket.into())
}

/// The last part of a response is not ours any more when the kernel takes it.
#[test]
fn a_reader_just_above_the_rate_gets_all_of_a_response() {
    let (_origin, tollgate, mut stream) = before_a_finite_answer();
    stream.write_all(GET).unwrap();
    let mut received = 0;
    let mut buffer = [0; 1_500];
    // 30,000 bytes a second.
    loop {
        let read = stream.read(&mut buffer).unwrap();
        received += read;
        if received >= LENGTH {
            break;
        }
        assert!(read > 0, "it ends after {received} bytes");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        cut_off(&tollgate, "response", "idle_timeout") + cut_off(&tollgate, "response", "min_rate"),
        0.0
    );
}

/// It is counted and reset as any other reader that is too slow.
#[test]
fn a_reader_that_leaves_the_end_of_a_response_is_cut_off() {
    let (origin, tollgate, mut stream) = before_a_finite_answer();
    stream.write_all(GET).unwrap();
    // Until the origin's part is done, and so slowly that little else is read before that is known.
    let mut buffer = [0; 1_500];
    while origin.open_connections() > 0 || origin.connections() == 0 {
        assert!(stream.read(&mut buffer).unwrap() > 0);
        thread::sleep(Duration::from_millis(10));
    }
    eventually("it is counted", || {
        cut_off(&tollgate, "response", "idle_timeout") + cut_off(&tollgate, "response", "min_rate") == 1.0
    });
}

#[test]
fn over_tls_readers_are_measured_likewise() {
    let (origin, authority) = (endless(), Authority::new("us"));
    let issued = authority.issue("us", &["localhost"]);
    let (cert, key) = (file_name(&issued.cert), file_name(&issued.key));
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: {cert}, key: {key} }}] }} }}]\n{READER_LIMITS}"
    );
    let tollgate = start(&origin, &listeners);
    let connector = TlsConnector::new(&authority);
    let connect = || {
        let mut client = connector.over(small_buffer(tollgate.address), "localhost").unwrap().0;
        client.write_all(GET).unwrap();
        client
    };
    // A record has 16 KiB, and nothing of it can be read before the whole.
    read_slowly(&mut connect(), 2_000, Duration::from_secs(6)).unwrap();
    eventually("the first has left", || origin.open_connections() == 0);
    read_slowly(&mut connect(), 100, Duration::from_secs(15)).unwrap_err();
    // A record that is not read moves nothing for longer than the idle timeout.
    eventually("the second is counted", || {
        cut_off(&tollgate, "response", "min_rate") + cut_off(&tollgate, "response", "idle_timeout") == 1.0
    });
}

#[test]
fn over_unix_sockets_readers_are_measured_likewise() {
    let (origin, directory) = (endless(), TempDir::new().unwrap());
    let path = directory.path().join("tollgate.sock");
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}, {{ address: \"unix:{}\" }}]\nclient_limits: {{ min_rate: {{ bytes: 100KiB, grace: 3s }} }}\n",
        file_name(&path)
    );
    let tollgate = start(&origin, &listeners);
    eventually("the socket is there", || path.exists());
    let connect = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(GET).unwrap();
        stream
    };
    // A megabyte a second.
    read_slowly(&mut connect(), 50_000, Duration::from_secs(6)).unwrap();
    eventually("the first has left", || origin.open_connections() == 0);
    let ended = read_slowly(&mut connect(), 100, Duration::from_secs(10));
    // What the kernel holds can still be read.
    drop(ended);
    eventually("the second is cut off", || origin.open_connections() == 0);
    becomes(1.0, || cut_off(&tollgate, "response", "min_rate"));
}
