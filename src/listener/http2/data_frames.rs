//! Joins small DATA frames of a client.
//!
//! A gRPC client sends each message in a frame of its own. h2 keeps unread frames as they arrived, and closes a
//! connection with some 2,000 small unread ones: a client that sends many messages at a time would be taken for a
//! flood. The boundaries between DATA frames of one stream have no meaning (RFC 9113, 6.1), so adjacent ones that
//! arrive together can be joined.

/// Frames of this size or longer are not joined to the previous one: h2's overhead per frame is of this order.
const SMALL: usize = 256;
/// The longest payload of a frame: hyper leaves SETTINGS_MAX_FRAME_SIZE at its default (RFC 9113, 6.5.2).
const MAX_FRAME: usize = 16 << 10;
/// The length of the client's preface (RFC 9113, 3.4). All bytes after it are frames.
const PREFACE: usize = 24;
/// RFC 9113, 4.1
const HEADER: usize = 9;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;

/// The position in the client's bytes, and the joining of DATA frames in them.
pub(super) struct DataFrames {
    /// Bytes of the preface or of a frame's payload that have not arrived yet.
    rest: usize,
    /// The beginning of a frame's header that has not fully arrived yet.
    header: [u8; HEADER],
    header_length: usize,
}

/// A DATA frame that the next one may be joined to: the last one written.
struct OpenFrame {
    at: usize,
    stream: [u8; 4],
    length: usize,
}

impl DataFrames {
    pub(super) fn new() -> Self {
        Self { rest: PREFACE, header: [0; HEADER], header_length: 0 }
    }

    /// Joins DATA frames in `bytes`, the next bytes of the client, in place. Returns how many bytes remain, at the
    /// beginning of `bytes`.
    pub(super) fn join(&mut self, bytes: &mut [u8]) -> usize {
        let (mut read, mut written) = (0, 0);
        let mut open: Option<OpenFrame> = None;
        // Copies `length` bytes unchanged.
        let pass = |bytes: &mut [u8], read: &mut usize, written: &mut usize, length: usize| {
            if read != written {
                bytes.copy_within(*read..*read + length, *written);
            }
            *read += length;
            *written += length;
        };
        while read < bytes.len() {
            let left = bytes.len() - read;
            if self.rest > 0 {
                let length = self.rest.min(left);
                self.rest -= length;
                pass(bytes, &mut read, &mut written, length);
                continue;
            }
            if self.header_length > 0 || left < HEADER {
                let length = left.min(HEADER - self.header_length);
                self.header[self.header_length..][..length].copy_from_slice(&bytes[read..read + length]);
                self.header_length += length;
                if self.header_length == HEADER {
                    self.header_length = 0;
                    self.rest = payload_length(&self.header);
                }
                pass(bytes, &mut read, &mut written, length);
                continue;
            }
            let mut header = [0; HEADER];
            header.copy_from_slice(&bytes[read..read + HEADER]);
            let [.., kind, flags, a, b, c, d] = header;
            let (length, stream) = (payload_length(&header), [a, b, c, d]);
            let is_whole = kind == DATA && length > 0 && left - HEADER >= length;
            let before = open.take();
            if let Some(mut before) = before
                && is_whole
                && flags & !END_STREAM == 0
                && length < SMALL
                && before.stream == stream
                && before.length + length <= MAX_FRAME
            {
                read += HEADER;
                pass(bytes, &mut read, &mut written, length);
                before.length += length;
                let joined = &mut bytes[before.at..][..HEADER];
                // At most MAX_FRAME.
                joined[..3].copy_from_slice(&(before.length as u32).to_be_bytes()[1..]);
                joined[4] |= flags;
                open = (flags == 0).then_some(before);
                continue;
            }
            if is_whole && flags == 0 {
                open = Some(OpenFrame { at: written, stream, length });
            }
            self.rest = length;
            pass(bytes, &mut read, &mut written, HEADER);
        }
        written
    }
}

fn payload_length(header: &[u8; HEADER]) -> usize {
    let [a, b, c, ..] = *header;
    u32::from_be_bytes([0, a, b, c]) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// The output for `bytes` that arrive in pieces of these lengths and then all the rest, without the preface.
    fn joined(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
        let mut frames = DataFrames::new();
        let mut all = vec![b'p'; PREFACE];
        all.extend(bytes);
        let (mut out, mut rest) = (Vec::new(), all.as_slice());
        for length in pieces.iter().copied().chain([usize::MAX]) {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            let mut piece = piece.to_vec();
            let left = frames.join(&mut piece);
            out.extend(&piece[..left]);
            rest = behind;
        }
        out.split_off(PREFACE)
    }

    /// Frames as kind, flags, stream and payload.
    fn parse(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at(HEADER);
            let (payload, rest) = rest.split_at(payload_length(header.try_into().unwrap()));
            let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
            frames.push((header[3], header[4], stream, payload.to_vec()));
            bytes = rest;
        }
        frames
    }

    #[test]
    fn small_frames_of_one_stream_become_one() {
        let messages: Vec<_> = (0..3_000_u32).map(|n| frame(DATA, 0, 5, &n.to_be_bytes())).collect();
        let bytes = [messages.concat(), frame(DATA, END_STREAM, 5, b"end"), frame(6, 0, 0, &[0; 8])].concat();
        let frames = parse(&joined(&bytes, &[]));
        assert_eq!(frames.len(), 2);
        let sent: Vec<u8> = (0..3_000_u32).flat_map(u32::to_be_bytes).chain(*b"end").collect();
        assert_eq!(frames[0], (DATA, END_STREAM, 5, sent));
    }

    #[test]
    fn other_frames_stay_as_they_are() {
        for bytes in [
            // Two streams.
            [frame(DATA, 0, 1, b"a"), frame(DATA, 0, 3, b"b")].concat(),
            // Another kind of frame in between, or empty frames of a flood.
            [frame(DATA, 0, 1, b"a"), frame(8, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"b")].concat(),
            [frame(DATA, 0, 1, b"a"), frame(DATA, 0, 1, b""), frame(DATA, 0, 1, b"")].concat(),
            // Padded.
            [frame(DATA, 8, 1, b"\x01a\0"), frame(DATA, 8, 1, b"\x01b\0")].concat(),
            [frame(DATA, 0, 1, b"a"), frame(DATA, 8, 1, b"\x01b\0")].concat(),
            // After the end of the stream: an error, which h2 has to see.
            [frame(DATA, END_STREAM, 1, b"a"), frame(DATA, 0, 1, b"b")].concat(),
            // Long frames.
            [frame(DATA, 0, 1, b"a"), frame(DATA, 0, 1, &[0; SMALL])].concat(),
            [frame(DATA, 0, 1, &[0; MAX_FRAME]), frame(DATA, 0, 1, b"a")].concat(),
            // An incomplete frame.
            [frame(DATA, 0, 1, b"a"), frame(DATA, 0, 1, b"bcd")[..10].to_vec()].concat(),
        ] {
            assert_eq!(joined(&bytes, &[]), bytes);
        }
    }

    proptest! {
        /// The streams are the same for any split into pieces.
        #[test]
        fn streams_stay_the_same(
            frames in prop::collection::vec((0..3_u8, 0..2_u8, 1..3_u32, 0..300_usize), 0..40),
            pieces in prop::collection::vec(1..400_usize, 0..30),
        ) {
            let sent: Vec<_> = frames.iter().map(|(kind, flags, stream, length)| {
                frame(*kind, *flags, *stream, &vec![*stream as u8; *length])
            }).collect();
            let sent = sent.concat();
            let came = parse(&joined(&sent, &pieces));
            // One after the other, as far as they may be.
            let all = |frames: Vec<(u8, u8, u32, Vec<u8>)>| {
                let mut all: Vec<(u8, u8, u32, Vec<u8>)> = Vec::new();
                for (kind, flags, stream, payload) in frames {
                    match all.last_mut() {
                        Some((DATA, last, of, held))
                            if kind == DATA && *last == 0 && *of == stream && !held.is_empty() && !payload.is_empty() =>
                        {
                            held.extend(payload);
                            *last = flags;
                        }
                        _ => all.push((kind, flags, stream, payload)),
                    }
                }
                all
            };
            prop_assert!(came.iter().all(|(.., payload)| payload.len() <= MAX_FRAME));
            prop_assert_eq!(all(came), all(parse(&sent)));
        }
    }
}
