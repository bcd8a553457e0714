//! A passive parser of HTTP/2 frames in a stream of bytes, and the fields that frames carry.

use http::{HeaderMap, HeaderValue};

/// Types of frames (RFC 9113, 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// RFC 9113, 4.1
const HEADER: usize = 9;
/// The length of a WINDOW_UPDATE's payload (RFC 9113, 6.9).
const INCREMENT: usize = 4;
/// The length of the connection preface, which a client sends before its first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// The type of bytes that are not a frame. No frame has it.
const NONE: u8 = u8::MAX;

/// Copies each value of a head or of trailers that are sent over HTTP/2. h2 keeps fields that it has sent in a table
/// (RFC 7541, 2.3.2), where each value would keep the whole buffer that it was received in.
pub fn copy_values(fields: &mut HeaderMap) {
    for value in fields.values_mut() {
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
}

/// The position within a stream of bytes.
#[derive(Debug)]
pub struct FrameFollower {
    /// The beginning of a frame, until its header is complete.
    head: [u8; HEADER + INCREMENT],
    length: usize,
    /// The current frame, and the bytes of its payload that have not arrived yet.
    frame: FramePart,
    rest: usize,
}

/// A part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePart {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// Bytes of the payload in this part.
    pub bytes: usize,
    /// Whether this is the end of the frame.
    pub is_last: bool,
    /// The increment of a WINDOW_UPDATE.
    pub increment: u32,
}

impl FramePart {
    /// The empty beginning of the frame with this header.
    fn new([_, _, _, kind, flags, a, b, c, d]: [u8; HEADER]) -> Self {
        let stream = u32::from_be_bytes([a, b, c, d]) & (u32::MAX >> 1);
        Self { kind, flags, stream, bytes: 0, is_last: false, increment: 0 }
    }

    /// Whether its sender has ended the stream.
    pub fn ends_stream(self) -> bool {
        match self.kind {
            DATA | HEADERS => self.is_last && self.flags & END_STREAM != 0,
            RST_STREAM => self.is_last,
            _ => false,
        }
    }
}

impl FrameFollower {
    /// Follows the bytes of a client, from the first one.
    pub fn of_client() -> Self {
        Self { rest: PREFACE, ..Self::of_server() }
    }

    /// Follows the bytes of a server, from the first one.
    pub fn of_server() -> Self {
        let frame = FramePart { kind: NONE, flags: 0, stream: 0, bytes: 0, is_last: false, increment: 0 };
        Self { head: [0; HEADER + INCREMENT], length: 0, frame, rest: 0 }
    }

    /// Calls `seen` with each part of a frame in `bytes`, the next ones of the stream.
    pub fn follow(&mut self, mut bytes: &[u8], mut seen: impl FnMut(FramePart)) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let length = self.rest.min(bytes.len());
                bytes = &bytes[length..];
                self.rest -= length;
                seen(FramePart { bytes: length, is_last: self.rest == 0, ..self.frame });
                continue;
            }
            if self.length == 0
                && let Some((head, rest)) = bytes.split_first_chunk::<HEADER>()
                && head[3] != WINDOW_UPDATE
            {
                // Most headers arrive whole. This saves a copy.
                self.begin(FramePart::new(*head), payload_length(head), &mut seen);
                bytes = rest;
                continue;
            }
            let wanted = if self.length >= HEADER { HEADER + INCREMENT } else { HEADER };
            let taken = bytes.len().min(wanted - self.length);
            self.head[self.length..][..taken].copy_from_slice(&bytes[..taken]);
            self.length += taken;
            bytes = &bytes[taken..];
            if self.length < wanted || wanted == HEADER && self.is_update() {
                continue;
            }
            let [head @ .., a, b, c, d] = self.head;
            let mut frame = FramePart::new(head);
            if wanted > HEADER {
                frame.increment = u32::from_be_bytes([a, b, c, d]) & (u32::MAX >> 1);
                frame.bytes = INCREMENT;
            }
            self.length = 0;
            self.begin(frame, payload_length(&head) - frame.bytes, &mut seen);
        }
    }

    /// Begins `frame`. `rest`: bytes of its payload that have not arrived yet.
    #[inline]
    fn begin(&mut self, frame: FramePart, rest: usize, mut seen: impl FnMut(FramePart)) {
        self.rest = rest;
        if rest == 0 {
            seen(FramePart { is_last: true, ..frame });
        }
        self.frame = frame;
    }

    /// Whether the header is a WINDOW_UPDATE's, with its increment still to arrive.
    fn is_update(&self) -> bool {
        let [head @ .., _, _, _, _] = &self.head;
        head[3] == WINDOW_UPDATE && payload_length(head) == INCREMENT
    }
}

fn payload_length(head: &[u8; HEADER]) -> usize {
    u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// The frames of `bytes`, which arrive in pieces of these lengths and then all the rest: kind, flags, stream,
    /// length of the payload, increment.
    fn followed(
        mut follower: FrameFollower,
        bytes: &[u8],
        pieces: &[usize],
    ) -> Vec<(u8, u8, u32, usize, u32)> {
        let (mut frames, mut open, mut rest) = (Vec::new(), 0, bytes);
        for length in pieces.iter().copied().chain([usize::MAX]) {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            follower.follow(piece, |part| {
                open += part.bytes;
                if part.is_last && part.kind != NONE {
                    frames.push((
                        part.kind,
                        part.flags,
                        part.stream,
                        std::mem::take(&mut open),
                        part.increment,
                    ));
                } else if part.kind == NONE {
                    open = 0;
                }
            });
        }
        frames
    }

    proptest! {
        #[test]
        fn frames_are_told_however_they_are_cut(
            frames in prop::collection::vec((0..12_u8, any::<u8>(), 0..100_u32, 0..40_usize), 0..8),
            pieces in prop::collection::vec(1..30_usize, 0..20),
            is_client in any::<bool>(),
        ) {
            let mut bytes = if is_client { vec![b'p'; PREFACE] } else { Vec::new() };
            let mut expected = Vec::new();
            for (kind, flags, stream, length) in frames {
                let payload: Vec<u8> = (1..=length as u8).collect();
                let increment = match (kind, length) {
                    (WINDOW_UPDATE, INCREMENT) => 0x0102_0304,
                    _ => 0,
                };
                bytes.extend(frame(kind, flags, stream, &payload));
                expected.push((kind, flags, stream, length, increment));
            }
            let follower = if is_client { FrameFollower::of_client() } else { FrameFollower::of_server() };
            prop_assert_eq!(followed(follower, &bytes, &pieces), expected);
        }
    }

    #[test]
    fn a_stream_ends_with_the_last_byte_of_its_last_frame() {
        let mut follower = FrameFollower::of_server();
        let mut ends = Vec::new();
        let mut follow = |bytes: &[u8]| {
            ends.clear();
            follower.follow(bytes, |part| ends.push(part.ends_stream()));
            ends.clone()
        };
        let data = frame(DATA, END_STREAM, 1, b"abc");
        assert_eq!(follow(&data[..11]), [false]);
        assert_eq!(follow(&data[11..]), [true]);
        assert_eq!(follow(&frame(DATA, END_STREAM, 1, b"")), [true]);
        assert_eq!(follow(&frame(RST_STREAM, 0, 1, &[0; 4])), [true]);
        assert_eq!(follow(&frame(WINDOW_UPDATE, END_STREAM, 1, &[0; 4])), [false]);
    }
}
