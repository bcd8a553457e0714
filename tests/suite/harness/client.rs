//! A client that sends exactly the bytes of a test, and reads answers strictly.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
};

use super::{
    PATIENCE, eventually,
    http_reader::{Framing, HttpReader, field, fields, framing},
};

/// One connection, over a socket or over TLS.
pub struct Client<S = TcpStream> {
    /// What it is on, for what has no method here.
    pub stream: S,
    /// The Host of its requests.
    pub(super) host: String,
    pub(super) reader: HttpReader,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// What follows the status.
    pub reason: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    /// The first field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// All fields of this name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// GET over a connection of its own.
#[track_caller]
pub fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Reply {
    request(address, "GET", path, headers, b"")
}

/// A request over a connection of its own, with a Content-Length where there is a body.
#[track_caller]
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    Client::connect(address).request(method, path, headers, body)
}

/// GET over a connection of its own, from another of the loopback's addresses.
#[track_caller]
pub fn get_from(source: &str, address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Reply {
    Client::connect_from(source.parse().unwrap(), address).request("GET", path, headers, b"")
}

impl Client {
    /// Connects from 127.0.0.1.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap()).unwrap()
    }

    /// Connects from 127.0.0.1, and sends these bytes.
    #[track_caller]
    pub fn sending(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Self {
        let mut client = Self::connect(address);
        client.send(bytes);
        client
    }

    /// The same, if anybody listens there.
    pub fn try_connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).and_then(Self::over).ok()
    }

    /// An error: the other side has reset the connection at once.
    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let host = stream.peer_addr()?.to_string();
        Ok(Self { stream, host, reader: HttpReader::default() })
    }

    /// GET / over a connection of its own, where there may be no answer.
    pub fn try_get(address: SocketAddr) -> io::Result<Reply> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, host: address.to_string(), reader: HttpReader::default() };
        client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
        client.try_reply()
    }

    /// Connects from another of the loopback's addresses: another client to the proxy.
    #[track_caller]
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        Self::try_connect_from(source, address).unwrap()
    }

    /// The same, if anybody listens there.
    pub fn try_connect_from(source: IpAddr, address: SocketAddr) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        socket.connect(&address.into())?;
        Self::over(socket.into())
    }

    /// Sends no more, but still reads.
    #[track_caller]
    pub fn finish(&mut self) -> &mut Self {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
        self
    }

    /// Breaks the connection with a RST.
    #[track_caller]
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Whether an answer has begun to come, or the connection has ended.
    pub fn has_something_to_read(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until the proxy has read all that was sent: nothing is left in its socket's queue.
    pub fn wait_until_read(&self) {
        let (near, far) = (self.stream.local_addr().unwrap(), self.stream.peer_addr().unwrap());
        let hex = |address: SocketAddr| format!(":{:04X}", address.port());
        eventually("the proxy reads", || {
            // proc(5), net/tcp: local address, remote address, state, tx_queue:rx_queue.
            std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                words[1].ends_with(&hex(far))
                    && words[2].ends_with(&hex(near))
                    && words[4].ends_with(":00000000")
            })
        });
    }
}

impl<S: Read + Write> Client<S> {
    /// On a connection of any kind, whose requests name their host themselves.
    pub fn on(stream: S) -> Self {
        Self { stream, host: String::new(), reader: HttpReader::default() }
    }

    /// Sends these bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap();
        self
    }

    /// The same on a connection that may have ended.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends a request and reads its answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        self.send(head).send(body);
        if method == "HEAD" { self.head() } else { self.reply() }
    }

    /// Reads one answer. A 100 counts as one.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.try_reply()
            .unwrap_or_else(|error| panic!("no whole answer: {error}; read so far: {:?}", self.unread()))
    }

    /// Reads one answer, or says why there is no whole one.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        let mut reply = self.try_head()?;
        if matches!(reply.status, 100..=199 | 204 | 304) {
            return Ok(reply);
        }
        match framing(&reply.headers)? {
            Framing::Length(length) => reply.body = self.take(length)?,
            Framing::Chunked => {
                let (body, trailers) = self.reader.chunks(&mut self.stream)?;
                reply.body = body;
                reply.trailers = trailers.iter().map(|line| field(line)).collect::<io::Result<_>>()?;
            }
            Framing::Unframed => {
                while self.fill()? {}
                reply.body = self.reader.take_unread();
            }
        }
        Ok(reply)
    }

    /// Reads until the connection ends before an answer does.
    #[track_caller]
    pub fn broken_off(&mut self) {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        let reply = self.try_reply();
        let ended =
            reply.as_ref().is_err_and(|error| matches!(error.kind(), ConnectionReset | UnexpectedEof));
        assert!(ended, "not broken off: {reply:?}; read so far: {:?}", self.unread());
    }

    /// Reads the head of an answer that has no body.
    #[track_caller]
    pub fn head(&mut self) -> Reply {
        self.try_head().unwrap_or_else(|error| panic!("no head: {error}; read so far: {:?}", self.unread()))
    }

    /// Likewise, or says why there is none.
    pub fn try_head(&mut self) -> io::Result<Reply> {
        let head = self.reader.head(&mut self.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status_line = head.split("\r\n").next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {status_line:?}")))?;
        let reason = status_line.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
        Ok(Reply { status, reason, headers: fields(&head)?, body: Vec::new(), trailers: Vec::new() })
    }

    /// Reads the next chunk; `None` for the last one.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.reader.chunk(&mut self.stream)
    }

    /// Reads the trailers behind the last chunk.
    pub fn trailers(&mut self) -> io::Result<Vec<(String, String)>> {
        self.reader.trailers(&mut self.stream)?.iter().map(|line| field(line)).collect()
    }

    /// Reads the body that `head` announces, and forgets it: how many bytes it had.
    pub fn skip_body(&mut self, head: &Reply) -> io::Result<usize> {
        self.reader.skip_body(&mut self.stream, framing(&head.headers)?)
    }

    /// Reads a line, without its end.
    pub fn line(&mut self) -> io::Result<String> {
        self.reader.line(&mut self.stream)
    }

    /// Reads so many bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.reader.take(&mut self.stream, length)
    }

    /// Whether the proxy closes the connection in order, rather than with a RST; waits for it.
    pub fn closed_in_order(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Whatever still comes until the proxy closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        self.closed();
        self.reader.take_unread()
    }

    /// Whether the proxy has closed the connection; waits for it.
    pub fn closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    return matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                    );
                }
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.reader.fill(&mut self.stream)
    }

    /// What came and was not taken yet.
    pub fn unread(&self) -> String {
        String::from_utf8_lossy(self.reader.unread()).into_owned()
    }
}
