//! Clients of HTTP/2 that read slowly: hyper and the kernel have a response long before its client has it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::Https;
use crate::harness::{
    Client, Config, Origin, PATIENCE, TlsConnector, Tollgate, becomes, eventually,
    frames::{
        DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, frame, request, setting,
        window_update,
    },
};

/// Room for all that a test sends.
const WINDOW: u32 = 1 << 28;

/// How often a client reads.
const STEP: Duration = Duration::from_millis(50);

/// What most clients open their windows by.
const CREDIT: usize = 8 << 10;

trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

/// A client that has asked for a response, and opens its windows as it reads.
struct Reader {
    stream: Box<dyn ReadWrite>,
    raw: Vec<u8>,
    /// Bytes of the body that have come.
    received: usize,
    credit: usize,
    /// What it opens its windows by.
    step: usize,
    is_complete: bool,
}

impl Reader {
    /// Its system acknowledges little more than it has read.
    fn connect(address: SocketAddr, tls: Option<&TlsConnector>) -> Self {
        Self::with_window(address, tls, WINDOW, CREDIT)
    }

    /// Its window has room for so much, and is opened by `step` when as much was read.
    fn with_window(address: SocketAddr, tls: Option<&TlsConnector>, window: u32, step: usize) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(&address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream: Box<dyn ReadWrite> = match tls {
            Some(tls) => Box::new(tls.over(stream, "localhost").unwrap().0),
            None => Box::new(stream),
        };
        let windows = [setting(INITIAL_WINDOW_SIZE, window), window_update(0, WINDOW)].concat();
        let get = frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", "/"));
        stream.write_all(&[PREFACE, &windows, &get].concat()).unwrap();
        Self { stream, raw: Vec::new(), received: 0, credit: 0, step, is_complete: false }
    }

    /// Reads that many bytes a second, for this time at most, or to the end of the response.
    fn read(&mut self, rate: usize, time: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut taken = 0;
        while begun.elapsed() < time && !self.is_complete {
            let mut part = vec![0; rate / 20];
            let read = self.stream.read(&mut part)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.raw.extend_from_slice(&part[..read]);
            self.take_frames()?;
            taken += read;
            let due = Duration::from_secs_f64(taken as f64 / rate as f64);
            thread::sleep(due.saturating_sub(begun.elapsed()).min(STEP));
        }
        Ok(())
    }

    fn take_frames(&mut self) -> io::Result<()> {
        while self.raw.len() >= 9 {
            let length = u32::from_be_bytes([0, self.raw[0], self.raw[1], self.raw[2]]) as usize;
            if self.raw.len() < 9 + length {
                break;
            }
            let (kind, flags) = (self.raw[3], self.raw[4]);
            self.raw.drain(..9 + length);
            if kind == DATA {
                self.received += length;
                self.credit += length;
                self.is_complete |= flags & END_STREAM != 0;
            }
            if self.credit >= self.step {
                let step = u32::try_from(self.credit).unwrap();
                self.credit = 0;
                self.stream.write_all(&[window_update(0, step), window_update(1, step)].concat())?;
            }
        }
        Ok(())
    }
}

fn answering(length: usize) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[], &vec![b'x'; length])?;
        }
        Ok(())
    })
}

fn cut_off(tollgate: &Tollgate) -> f64 {
    tollgate.metric_total("tollgate_requests_cut_off_total")
}

/// A Tollgate that serves https, and the same without TLS.
fn with_and_without_tls(origin: &Origin, rest: &str) -> (Https, Tollgate) {
    (Https::with(origin, "", rest), Tollgate::start(Config::new(&[origin.address], rest)))
}

/// Reads a whole response over TLS and without, at this rate, and has `meanwhile` run once it was handed to the kernel.
#[track_caller]
fn is_read_to_its_end(rest: &str, length: usize, rate: usize, meanwhile: impl Fn(&Tollgate)) {
    let origin = answering(length);
    let (https, plain) = with_and_without_tls(&origin, rest);
    let tls = https.connector().choosing_http2();
    let readers = [Reader::connect(https.address(), Some(&tls)), Reader::connect(plain.address, None)];
    let readers = readers.map(|mut reader| {
        thread::spawn(move || {
            let ended = reader.read(rate, PATIENCE);
            (reader.received, ended.map_err(|error| error.kind()))
        })
    });
    eventually("all is handed over", || {
        [&https.tollgate, &plain].iter().all(|of| of.metric_total("tollgate_requests_total") == 1.0)
    });
    // The connections would count as idle.
    thread::sleep(Duration::from_millis(500));
    meanwhile(&https.tollgate);
    meanwhile(&plain);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), (length, Ok(())));
    }
}

#[test]
fn a_drain_waits_until_slow_clients_have_their_responses() {
    // Longer than a client has to answer GOAWAY, and to close the connection.
    is_read_to_its_end("", 380_000, 42_000, |tollgate| tollgate.signal("TERM"));
}

#[test]
fn a_connection_is_not_idle_while_its_client_still_reads() {
    let limits = "client_limits: { idle_timeout: 700ms, min_rate: { bytes: 20KiB, grace: 3s } }\n";
    is_read_to_its_end(limits, 380_000, 42_000, |_| {});
}

#[test]
fn a_connection_whose_client_still_reads_makes_no_room_for_others() {
    let newcomer = |tollgate: &Tollgate| Client::connect_from([127, 0, 0, 11].into(), tollgate.address);
    is_read_to_its_end("client_limits: { connections: 1 }\n", 150_000, 42_000, |tollgate| {
        let _newcomers: Vec<_> = (0..5).map(|_| newcomer(tollgate)).collect();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(tollgate.metric_total("tollgate_idle_connections_closed_total"), 0.0);
        assert_eq!(tollgate.metric("tollgate_connections_refused_total{reason=\"connections\"}"), 5.0);
    });
}

#[test]
fn a_reader_just_above_the_rate_goes_on_reading() {
    // More than the kernel holds, which takes no more until a third of it is gone.
    let origin = answering(32 << 20);
    let limits = "client_limits: { idle_timeout: 700ms, min_rate: { bytes: 20KiB, grace: 500ms } }\n";
    let (https, plain) = with_and_without_tls(&origin, limits);
    let tls = https.connector().choosing_http2();
    let mut over_tls = Reader::connect(https.address(), Some(&tls));
    let reading = thread::spawn(move || over_tls.read(40_000, Duration::from_secs(4)).map(|()| over_tls));
    let mut reader = Reader::connect(plain.address, None);
    reader.read(30_000, Duration::from_secs(4)).unwrap();
    let over_tls = reading.join().unwrap().unwrap();
    assert_eq!(origin.open_connections(), 2);
    assert_eq!(cut_off(&plain) + cut_off(&https.tollgate), 0.0);
    // Both stop.
    for tollgate in [&plain, &https.tollgate] {
        becomes(1.0, || cut_off(tollgate));
        eventually("the connection is closed", || tollgate.metric("tollgate_connections ") == 0.0);
    }
    drop((reader, over_tls));
}

#[test]
fn a_reader_below_the_rate_is_cut_off_and_leaves_the_origin() {
    let origin = answering(32 << 20);
    let limits = "client_limits: { min_rate: { bytes: 20KiB, grace: 500ms } }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    let mut reader = Reader::connect(tollgate.address, None);
    let begun = Instant::now();
    let reading = thread::spawn(move || reader.read(4_000, Duration::from_secs(20)));
    becomes(1.0, || {
        tollgate.metric("tollgate_requests_cut_off_total{body=\"response\",reason=\"min_rate\"}")
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    eventually("the origin is left", || origin.open_connections() == 0);
    assert!(reading.join().unwrap().is_err(), "the kernel keeps nothing for it");
}

#[test]
fn a_reader_that_leaves_the_end_of_a_response_is_cut_off() {
    let origin = answering(300_000);
    let limits = "client_limits: { idle_timeout: 700ms, min_rate: { bytes: 20KiB, grace: 500ms } }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    let mut reader = Reader::connect(tollgate.address, None);
    reader.read(30_000, Duration::from_millis(1_500)).unwrap();
    assert_eq!(cut_off(&tollgate), 0.0);
    becomes(1.0, || cut_off(&tollgate));
    eventually("the connection is closed", || tollgate.metric("tollgate_connections ") == 0.0);
    assert_eq!(cut_off(&tollgate), 1.0);
}

#[test]
fn a_reader_that_opens_a_small_window_bit_by_bit_goes_on_reading() {
    // hyper has all of it at once, and waits for nothing more until all of that is gone.
    let origin = answering(60_000);
    let limits = "client_limits: { idle_timeout: 1s, min_rate: { bytes: 240, grace: 1s } }\n";
    let (https, plain) = with_and_without_tls(&origin, limits);
    let tls = https.connector().choosing_http2();
    let readers = [
        Reader::with_window(https.address(), Some(&tls), 2_000, 1_000),
        Reader::with_window(plain.address, None, 2_000, 1_000),
    ];
    let readers = readers.map(|mut reader| {
        thread::spawn(move || (reader.read(8_000, PATIENCE).map_err(|error| error.kind()), reader.received))
    });
    for reader in readers {
        assert_eq!(reader.join().unwrap(), (Ok(()), 60_000));
    }
    assert_eq!(cut_off(&plain) + cut_off(&https.tollgate), 0.0);
}

#[test]
fn a_response_that_waits_for_its_client_s_window_is_not_over() {
    let origin = answering(7_000);
    let limits = "client_limits: { idle_timeout: 1s, connections: 1 }\n";
    for is_drained in [false, true] {
        let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
        let mut reader = Reader::with_window(tollgate.address, None, 500, 500);
        let reading = thread::spawn(move || {
            (reader.read(1_000, PATIENCE).map_err(|error| error.kind()), reader.received)
        });
        eventually("hyper has it", || tollgate.metric_total("tollgate_requests_total") == 1.0);
        // The connection would count as idle.
        thread::sleep(Duration::from_millis(500));
        if is_drained {
            tollgate.signal("TERM");
        } else {
            drop(Client::connect_from([127, 0, 0, 11].into(), tollgate.address));
        }
        assert_eq!(reading.join().unwrap(), (Ok(()), 7_000), "drained: {is_drained}");
    }
}
