//! Decodes gzip (RFC 1952) that arrives in pieces, for a reader beside the stream.
//!
//! `flate2` inflates. It could read the headers of members, too, but would keep up to 192 KiB of each. Checksums are
//! not checked: the client, which gets the same bytes, does that.

use flate2::{Decompress, FlushDecompress, Status};

/// Bytes decoded at a time.
const BUFFER: usize = 8 << 10;
/// Deflate expands up to 1,032 times. More than so many bytes are decoded in several steps, between which others have
/// their turn.
const MAX_STEP: usize = 256 << 10;

const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Lengths of the fixed part of a header, which ends with the flags and six bytes more, and of a trailer.
const FIXED: usize = 10;
const TRAILER: usize = 8;
/// Flags of a header, for the fields that follow its fixed part (RFC 1952, 2.3.1).
const HEADER_CHECKSUM: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;

/// The state between two pieces: about 50 KiB.
#[derive(Debug)]
pub(super) struct Gunzip {
    inflate: Decompress,
    buffer: Box<[u8]>,
    position: Position,
    /// The fields that this header still has.
    flags: u8,
    /// Whether a member has ended.
    has_member: bool,
}

/// The position in a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// After so many bytes of the fixed part.
    Fixed(usize),
    /// In the length of the extra field, with its first byte if that has arrived.
    ExtraLength(Option<u8>),
    /// So many bytes of a field are left.
    Skip(u16),
    /// In a name or a comment, which ends with a zero.
    Text,
    Body,
    /// So many bytes of the trailer are left.
    Trailer(usize),
    /// After the last member. The rest is ignored, as gzip itself does.
    End,
    Failed,
}

impl Gunzip {
    pub(super) fn new() -> Self {
        Self {
            inflate: Decompress::new(false),
            buffer: vec![0; BUFFER].into(),
            position: Position::Fixed(0),
            flags: 0,
            has_member: false,
        }
    }

    /// Whether the stream is not gzip. Nothing more is decoded then.
    pub(super) fn has_failed(&self) -> bool {
        self.position == Position::Failed
    }

    /// Decodes `piece`, and calls `decoded` with each part of the result. Returns how many bytes of it were decoded: less than
    /// all where they expand far.
    pub(super) fn read(&mut self, piece: &[u8], mut decoded: impl FnMut(&[u8])) -> usize {
        let (mut rest, mut written) = (piece, 0);
        while let Some((byte, after)) = rest.split_first() {
            match self.position {
                Position::End | Position::Failed => return piece.len(),
                Position::Body if written >= MAX_STEP => break,
                Position::Body => rest = self.inflate(rest, &mut written, &mut decoded),
                position => {
                    self.position = self.after_byte(position, *byte);
                    rest = after;
                }
            }
        }
        piece.len() - rest.len()
    }

    /// The position after a byte of a header or a trailer.
    fn after_byte(&mut self, position: Position, byte: u8) -> Position {
        match position {
            Position::Fixed(seen) => {
                if MAGIC.get(seen).is_some_and(|expected| *expected != byte) {
                    return if self.has_member { Position::End } else { Position::Failed };
                }
                if seen == MAGIC.len() {
                    self.flags = byte;
                }
                if seen + 1 < FIXED { Position::Fixed(seen + 1) } else { self.next_field() }
            }
            Position::ExtraLength(None) => Position::ExtraLength(Some(byte)),
            Position::ExtraLength(Some(first)) => self.skip(u16::from_le_bytes([first, byte])),
            Position::Skip(left) => self.skip(left.saturating_sub(1)),
            Position::Text if byte == 0 => self.next_field(),
            Position::Trailer(1) => {
                self.has_member = true;
                Position::Fixed(0)
            }
            Position::Trailer(left) => Position::Trailer(left.saturating_sub(1)),
            Position::Text | Position::Body | Position::End | Position::Failed => position,
        }
    }

    fn skip(&mut self, left: u16) -> Position {
        if left > 0 { Position::Skip(left) } else { self.next_field() }
    }

    /// The next part of the header, by its flags, or the body.
    fn next_field(&mut self) -> Position {
        for (flag, field) in [
            (EXTRA, Position::ExtraLength(None)),
            (NAME, Position::Text),
            (COMMENT, Position::Text),
            (HEADER_CHECKSUM, Position::Skip(2)),
        ] {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                return field;
            }
        }
        if self.has_member {
            self.inflate.reset(false);
        }
        Position::Body
    }

    /// Decodes a piece of a body. Returns the bytes after the body, or after this step.
    fn inflate<'p>(
        &mut self,
        mut piece: &'p [u8],
        step: &mut usize,
        decoded: &mut impl FnMut(&[u8]),
    ) -> &'p [u8] {
        loop {
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(piece, &mut self.buffer, FlushDecompress::None);
            let (read, written) = (self.inflate.total_in() - read, self.inflate.total_out() - written);
            piece = piece.get(read as usize..).unwrap_or_default();
            let output = self.buffer.get(..written as usize).unwrap_or_default();
            let is_done = piece.is_empty() && output.len() < self.buffer.len();
            let is_stuck = !is_done && read == 0 && written == 0;
            self.position = match status {
                Ok(_) if is_stuck => Position::Failed,
                Ok(Status::StreamEnd) => Position::Trailer(TRAILER),
                Ok(_) => Position::Body,
                Err(_) => Position::Failed,
            };
            *step += output.len();
            if !self.has_failed() {
                decoded(output);
            }
            if is_done || self.position != Position::Body || *step >= MAX_STEP && !piece.is_empty() {
                return piece;
            }
        }
    }
}
