//! A client of HTTP/2 that sends exactly the bytes a test wants, well-formed or not.

use std::{
    io::{BufReader, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    thread::{self, JoinHandle},
};

use super::{Client, PATIENCE};

/// Types of frames (RFC 9113, 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// Settings (RFC 9113, 6.5.2).
pub const HEADER_TABLE_SIZE: u16 = 1;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A SETTINGS frame with one of them.
pub fn setting(name: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A field of a header block, whatever its bytes: a literal without indexing and without Huffman coding (RFC 7541, 6.2.2).
pub fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0], &*string(name), &*string(value)].concat()
}

/// A string of a header block (RFC 7541, 5.2).
pub fn string(bytes: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let mut left = bytes.len();
    if left < 127 {
        coded.push(u8::try_from(left).unwrap());
    } else {
        coded.push(127);
        left -= 127;
        while left >= 128 {
            coded.push(u8::try_from(left % 128).unwrap() | 128);
            left /= 128;
        }
        coded.push(u8::try_from(left).unwrap());
    }
    coded.extend_from_slice(bytes);
    coded
}

/// A header block with these fields.
pub fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// The header block of a request.
pub fn request(method: &str, path: &str) -> Vec<u8> {
    block(&[
        (b":method", method.as_bytes()),
        (b":scheme", b"http"),
        (b":path", path.as_bytes()),
        (b":authority", b"a.example"),
    ])
}

/// What has come of a request, or of the connection with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Status(u16),
    /// The stream was reset, with this code.
    Reset(u32),
    /// The connection ends, with this code.
    GoAway(u32),
    /// The connection has ended without a word.
    Closed,
}

/// A frame that has come.
pub struct Received {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection.
pub struct FrameClient(TcpStream);

impl FrameClient {
    /// A connection that nothing was sent on.
    pub fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// A connection that has begun. Answers to it have no compressed fields, so that they can be read in any order.
    pub fn connect(address: SocketAddr) -> Self {
        let mut client = Self::silent(address);
        client.send(&[PREFACE, &setting(HEADER_TABLE_SIZE, 0), &frame(SETTINGS, 1, 0, &[])].concat());
        client
    }

    /// Another client: from this one of the loopback's addresses, with `settings` of its own.
    pub fn connect_from(source: IpAddr, address: SocketAddr, settings: &[u8]) -> Self {
        let stream = Client::connect_from(source, address).stream;
        let mut client = Self(stream);
        client.send(&[PREFACE, settings, &frame(SETTINGS, 1, 0, &[])].concat());
        client
    }

    /// Sends these bytes. Whether there was still somebody to take them.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Says that no more will come.
    pub fn finish(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// The next frame that comes. `None`: the connection has ended.
    pub fn next(&mut self) -> Option<Received> {
        next(&mut self.0)
    }

    /// Waits for what comes of the request on `stream`.
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            let Some(frame) = self.next() else { return Outcome::Closed };
            match frame.kind {
                HEADERS if frame.stream == stream => return Outcome::Status(status(&frame.payload)),
                RST_STREAM if frame.stream == stream => return Outcome::Reset(code(&frame.payload)),
                GOAWAY if code(&frame.payload[4..]) != 0 => {
                    return Outcome::GoAway(code(&frame.payload[4..]));
                }
                _ => {}
            }
        }
    }

    /// Reads to the end in a thread: with which code the connection ended, if it was told one.
    pub fn read_to_end(&self) -> JoinHandle<Option<u32>> {
        let mut reader = BufReader::with_capacity(1 << 20, self.0.try_clone().unwrap());
        thread::spawn(move || {
            let mut told = None;
            while let Some(frame) = next(&mut reader) {
                if frame.kind == GOAWAY {
                    told = Some(code(&frame.payload[4..]));
                }
            }
            told
        })
    }
}

fn next(from: &mut impl Read) -> Option<Received> {
    let mut head = [0; 9];
    from.read_exact(&mut head).ok()?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).ok()?;
    let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
    Some(Received { kind: head[3], flags: head[4], stream, payload })
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

/// The status at the beginning of a header block that was written without a table.
fn status(mut block: &[u8]) -> u16 {
    // The size of the table (RFC 7541, 6.3).
    while block[0] >> 5 == 1 {
        block = &block[1..];
    }
    match block[0] {
        indexed @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        // A literal whose name is the eighth of the table, three digits.
        0x48 | 0x18 | 0x08 if block[1] & 0x80 == 0 => str::from_utf8(&block[2..5]).unwrap().parse().unwrap(),
        0x48 | 0x18 | 0x08 => {
            let coded = block[2..5].iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            let mut left = 24;
            (0..3).fold(0, |number, _| {
                // 0, 1 and 2 have five bits, the other digits six (RFC 7541, appendix B).
                let five = coded >> (left - 5) & 31;
                let (digit, bits) = if five < 3 { (five, 5) } else { ((coded >> (left - 6) & 63) - 22, 6) };
                left -= bits;
                number * 10 + u16::try_from(digit).unwrap()
            })
        }
        other => panic!("{other:#x} is no status"),
    }
}
