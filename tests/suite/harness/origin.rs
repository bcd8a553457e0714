//! Origins that do exactly what a test says, and remember what they received.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustls::{ServerConfig, ServerConnection};

use super::{
    PATIENCE,
    http_reader::{Framing, HttpReader, fields, framing},
};

/// An origin on a free port; a thread a connection.
pub struct Origin {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    ended: Arc<AtomicUsize>,
    turns: Arc<(Mutex<usize>, Condvar)>,
}

/// One connection of the proxy to an origin.
pub struct Conn {
    /// The socket, for what has no method here.
    pub stream: TcpStream,
    /// TLS on it.
    pub tls: Option<Box<ServerConnection>>,
    /// Counted from 0.
    pub number: usize,
    reader: HttpReader,
    heads: Arc<Mutex<Vec<String>>>,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    turns: Arc<(Mutex<usize>, Condvar)>,
}

impl Origin {
    /// Every connection is handled by `handler`; the connection ends when it returns.
    pub fn start(handler: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::at(free_address(), handler)
    }

    /// The same where `listener` listens.
    pub fn at(
        listener: TcpListener,
        handler: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(listener, None, handler)
    }

    /// The same over TLS. The end of TLS is told when `handler` returns without an error.
    pub fn start_tls(
        config: ServerConfig,
        handler: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let handler = move |conn: &mut Conn| {
            handler(conn)?;
            if let Some(tls) = &mut conn.tls {
                tls.send_close_notify();
                tls.write_tls(&mut conn.stream)?;
            }
            Ok(())
        };
        Self::serve(free_address(), Some(Arc::new(config)), handler)
    }

    fn serve(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let handler = Arc::new(handler);
        let received = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let ended = Arc::<AtomicUsize>::default();
        let (counter, log) = (Arc::clone(&connections), Arc::clone(&heads));
        let (bytes, ends) = (Arc::clone(&received), Arc::clone(&ended));
        let turns = Arc::<(Mutex<usize>, Condvar)>::default();
        let their_turns = Arc::clone(&turns);
        let open = Arc::<AtomicUsize>::default();
        let opened = Arc::clone(&open);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                bytes.lock().unwrap().push(Vec::new());
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let (handler, heads) = (Arc::clone(&handler), Arc::clone(&log));
                let (received, ends) = (Arc::clone(&bytes), Arc::clone(&ends));
                let (turns, opened) = (Arc::clone(&their_turns), Arc::clone(&opened));
                opened.fetch_add(1, Ordering::SeqCst);
                let tls = tls.clone().map(|tls| Box::new(ServerConnection::new(tls).unwrap()));
                thread::spawn(move || {
                    // A connection that the proxy ends is part of many tests.
                    let mut conn =
                        Conn { stream, tls, number, reader: HttpReader::default(), heads, received, turns };
                    let _ = handler(&mut conn);
                    // Before it is counted as ended, it has.
                    drop(conn);
                    opened.fetch_sub(1, Ordering::SeqCst);
                    ends.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, connections, open, heads, received, ended, turns }
    }

    /// Reads every request to its end and answers 200 with a JSON description of it, on kept connections:
    /// `{"method","target","headers":[[name,value]],"body_bytes","trailers"}`.
    pub fn echo() -> Self {
        Self::start(|conn| {
            while let Some(head) = conn.head()? {
                let (body, trailers) = conn.body(&head)?;
                let mut lines = head.split("\r\n");
                let mut words = lines.next().unwrap_or_default().split(' ');
                let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
                let answer = serde_json::json!({
                    "method": words.next(), "target": words.next(), "headers": headers,
                    "body_bytes": body.len(), "body": String::from_utf8_lossy(&body[..body.len().min(4096)]),
                    "trailers": trailers,
                })
                .to_string();
                conn.answer("200 OK", &[("content-type", "application/json")], answer.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Answers every request with 200 and a short body.
    pub fn ok() -> Self {
        Self::start(Conn::serve_ok)
    }

    /// The same over TLS.
    pub fn ok_tls(config: ServerConfig) -> Self {
        Self::start_tls(config, Conn::serve_ok)
    }

    /// Never answers, and reads until the proxy ends the connection.
    pub fn sink() -> Self {
        Self::start(|conn| {
            conn.closed();
            Ok(())
        })
    }

    /// Sends `answer` byte for byte to the head of every request, and ends the connection.
    pub fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |conn| {
            conn.head()?;
            conn.send(&answer)
        })
    }

    /// What came over each connection so far, byte for byte.
    pub fn received(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Lets one [`Conn::pause`] end.
    pub fn resume(&self) {
        *self.turns.0.lock().unwrap() += 1;
        self.turns.1.notify_one();
    }

    /// Connections whose handlers have returned.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections that are being handled now.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The heads of all requests so far, as they came.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn free_address() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

impl Conn {
    /// The reader, and the socket whose bytes it is to read.
    fn input(&mut self) -> (&mut HttpReader, Input<'_>) {
        let input = Input {
            stream: &self.stream,
            tls: self.tls.as_deref_mut(),
            number: self.number,
            received: &self.received,
        };
        (&mut self.reader, input)
    }

    /// Reads the head of a request, without the empty line. `None` at the end of the connection.
    pub fn head(&mut self) -> io::Result<Option<String>> {
        let (reader, mut input) = self.input();
        let head = reader.head(&mut input)?;
        self.heads.lock().unwrap().extend(head.clone());
        Ok(head)
    }

    /// Reads the head of a request as it is, with the empty line.
    pub fn head_bytes(&mut self) -> io::Result<Vec<u8>> {
        while !self.reader.unread().ends_with(b"\r\n\r\n") {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.reader.take_unread())
    }

    /// The body that `head` announces, strictly, and its trailers.
    ///
    /// # Errors
    /// It breaks off, or is framed in two ways or badly.
    pub fn body(&mut self, head: &str) -> io::Result<(Vec<u8>, Vec<String>)> {
        let (reader, mut input) = self.input();
        match framing(&fields(head)?)? {
            Framing::Length(length) => Ok((reader.take(&mut input, length)?, Vec::new())),
            Framing::Chunked => reader.chunks(&mut input),
            Framing::Unframed => Ok((Vec::new(), Vec::new())),
        }
    }

    /// Reads the body that `head` announces, and forgets it: how many bytes it had.
    pub fn skip_body(&mut self, head: &str) -> io::Result<usize> {
        let (reader, mut input) = self.input();
        reader.skip_body(&mut input, framing(&fields(head)?)?)
    }

    /// Reads the next chunk; `None` for the last one.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (reader, mut input) = self.input();
        reader.chunk(&mut input)
    }

    /// Reads so many bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let (reader, mut input) = self.input();
        reader.take(&mut input, length)
    }

    /// Sends an answer with a Content-Length.
    pub fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Answers every request with 200 and a short body.
    pub fn serve_ok(&mut self) -> io::Result<()> {
        while let Some(head) = self.head()? {
            self.body(&head)?;
            self.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes),
            None => self.stream.write_all(bytes),
        }
    }

    /// Waits until the test says [`Origin::resume`].
    pub fn pause(&mut self) -> io::Result<()> {
        let turns = self.turns.0.lock().unwrap();
        let (mut turns, late) =
            self.turns.1.wait_timeout_while(turns, PATIENCE, |turns| *turns == 0).unwrap();
        if late.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        *turns -= 1;
        Ok(())
    }

    /// Ends the connection with a RST when the handler returns.
    pub fn reset(&mut self) -> io::Result<()> {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO))
    }

    /// Whatever still comes until the proxy ends the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        self.closed();
        self.reader.take_unread()
    }

    /// Whether the proxy has ended the connection; waits for it.
    pub fn closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let (reader, mut input) = self.input();
        reader.fill(&mut input)
    }
}

/// The socket of one connection; what is read there is remembered for [`Origin::received`].
struct Input<'a> {
    stream: &'a TcpStream,
    tls: Option<&'a mut ServerConnection>,
    number: usize,
    received: &'a Mutex<Vec<Vec<u8>>>,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(*tls, &mut self.stream).read(buffer)?,
            None => self.stream.read(buffer)?,
        };
        self.received.lock().unwrap()[self.number].extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}
