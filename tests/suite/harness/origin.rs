//! Origins that do exactly what a test tells them, and remember what they were sent.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::PATIENCE;

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
    /// Counted from 0.
    pub number: usize,
    read: Vec<u8>,
    heads: Arc<Mutex<Vec<String>>>,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    turns: Arc<(Mutex<usize>, Condvar)>,
}

impl Origin {
    /// Every connection is handled by `handler`; the connection ends when it returns.
    pub fn start(handler: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
                thread::spawn(move || {
                    // A connection that the proxy ends is part of many tests.
                    let mut conn = Conn { stream, number, read: Vec::new(), heads, received, turns };
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
        Self::start(|conn| {
            while let Some(head) = conn.head()? {
                conn.body(&head)?;
                conn.answer("200 OK", &[], b"ok")?;
            }
            Ok(())
        })
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

impl Conn {
    /// Reads the head of a request, without the empty line. `None` at the end of the connection.
    pub fn head(&mut self) -> io::Result<Option<String>> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if !self.fill()? {
                return if self.read.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head[..end]).into_owned();
        self.heads.lock().unwrap().push(head.clone());
        Ok(Some(head))
    }

    /// Reads the head of a request as it is, with the empty line.
    pub fn head_bytes(&mut self) -> io::Result<Vec<u8>> {
        while !self.read.ends_with(b"\r\n\r\n") {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(std::mem::take(&mut self.read))
    }

    /// The body that `head` announces, strictly, and its trailers.
    ///
    /// # Errors
    /// It breaks off, or is framed in two ways or badly.
    pub fn body(&mut self, head: &str) -> io::Result<(Vec<u8>, Vec<String>)> {
        match (field(head, "content-length"), field(head, "transfer-encoding")) {
            (Some(_), Some(_)) => Err(io::Error::other("two framings")),
            (Some(length), None) => Ok((self.take(length.parse().map_err(io::Error::other)?)?, Vec::new())),
            (None, Some(_)) => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk()? {
                    body.extend(chunk);
                }
                Ok((body, self.trailers()?))
            }
            (None, None) => Ok((Vec::new(), Vec::new())),
        }
    }

    /// Reads the body that `head` announces, and forgets it: how many bytes it had.
    pub fn skip_body(&mut self, head: &str) -> io::Result<usize> {
        let Some(length) = field(head, "content-length") else {
            let mut length = 0;
            while let Some(chunk) = self.chunk()? {
                length += chunk.len();
            }
            self.trailers()?;
            return Ok(length);
        };
        let length = length.parse().map_err(io::Error::other)?;
        let mut left: usize = length;
        while left > 0 {
            if self.read.is_empty() && !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let ready = self.read.len().min(left);
            self.read.drain(..ready);
            left -= ready;
        }
        Ok(length)
    }

    /// Reads the next chunk, or the last one's size line.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let size = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
        if size == 0 {
            return Ok(None);
        }
        let chunk = self.take(size)?;
        if !self.line()?.is_empty() {
            return Err(io::Error::other("a chunk is longer than it says"));
        }
        Ok(Some(chunk))
    }

    fn trailers(&mut self) -> io::Result<Vec<String>> {
        let mut trailers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.push(line);
        }
    }

    /// Reads a line, without its end.
    pub fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.read.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads so many bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.read.drain(..length).collect())
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

    /// Sends these bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
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
        std::mem::take(&mut self.read)
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
        let mut chunk = [0; 64 << 10];
        let read = self.stream.read(&mut chunk)?;
        self.read.extend_from_slice(&chunk[..read]);
        self.received.lock().unwrap()[self.number].extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }
}

fn field(head: &str, name: &str) -> Option<String> {
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}
