//! Finds the ends of WebSocket frames (RFC 6455, 5.2) in a stream: the proxy inserts its own frame between two.

/// The control frame that ends a WebSocket.
const CLOSE: u8 = 0x8;
const MASKED: u8 = 0x80;
const FINAL: u8 = 0x80;

/// Follows one direction of a WebSocket.
#[derive(Debug, Clone, Default)]
pub(super) struct WebSocketFrames {
    /// The header of the frame, as far as it was received.
    header: [u8; 14],
    header_length: usize,
    /// Bytes of the frame that follow its header.
    payload_left: u64,
    has_close: bool,
}

impl WebSocketFrames {
    /// Whether the last frame has ended.
    pub(super) fn is_between(&self) -> bool {
        self.header_length == 0
    }

    /// Whether a Close has passed, or begun to: no other frame may follow it.
    pub(super) fn has_close(&self) -> bool {
        self.has_close
    }

    /// Follows `bytes`.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let followed = self.follow_frame(bytes);
            bytes = &bytes[followed..];
        }
    }

    /// How many of `bytes` belong to the frame in transit. 0: there is none.
    pub(super) fn rest_of_frame(&self, bytes: &[u8]) -> usize {
        if self.is_between() { 0 } else { self.clone().follow_frame(bytes) }
    }

    /// Follows `bytes` to the end of a frame at most, and returns their number.
    fn follow_frame(&mut self, bytes: &[u8]) -> usize {
        let mut followed = 0;
        if self.payload_left == 0 {
            while self.header_length < self.whole_header() {
                let Some(&byte) = bytes.get(followed) else { return followed };
                self.header[self.header_length] = byte;
                self.header_length += 1;
                followed += 1;
            }
            self.payload_left = self.payload_length();
            self.has_close |= self.header[0] & 0xf == CLOSE;
        }
        let rest = bytes.len() - followed;
        let payload = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(rest);
        self.payload_left -= payload as u64;
        if self.payload_left == 0 {
            self.header_length = 0;
        }
        followed + payload
    }

    /// The length of the header, as far as its first two bytes tell.
    fn whole_header(&self) -> usize {
        if self.header_length < 2 {
            return 2;
        }
        let mask = if self.header[1] & MASKED == 0 { 0 } else { 4 };
        2 + self.extended_length() + mask
    }

    /// Bytes of the header that hold a long payload's length.
    fn extended_length(&self) -> usize {
        match self.header[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    fn payload_length(&self) -> u64 {
        match self.extended_length() {
            0 => u64::from(self.header[1] & !MASKED),
            extended => {
                let length = &self.header[2..2 + extended];
                length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
            }
        }
    }
}

/// A Close with this code and reason (at most 123 bytes), masked as a client has to send it.
pub(super) fn close_frame(code: u16, reason: &str, is_from_client: bool) -> Vec<u8> {
    let length = u8::try_from(2 + reason.len()).unwrap_or(0) & !MASKED;
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    payload.truncate(length.into());
    let mut frame = vec![FINAL | CLOSE, length];
    if is_from_client {
        let mask = fastrand::u32(..).to_be_bytes();
        frame[1] |= MASKED;
        frame.extend_from_slice(&mask);
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    }
    frame.append(&mut payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, is_masked: bool, length: usize) -> Vec<u8> {
        let mask = if is_masked { MASKED } else { 0 };
        let mut frame = vec![FINAL | opcode];
        match length {
            0..126 => frame.push(mask | length as u8),
            126..0x1_0000 => {
                frame.push(mask | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(if is_masked { &[1, 2, 3, 4] } else { &[] });
        // Bytes that look like frames of their own.
        frame.extend(std::iter::repeat_n(0x88, length));
        frame
    }

    #[test]
    fn the_ends_of_frames_are_found_however_their_bytes_come() {
        let frames: Vec<Vec<u8>> = [0, 1, 125, 126, 127, 0xffff, 0x1_0000]
            .into_iter()
            .flat_map(|length| [frame(1, false, length), frame(2, true, length)])
            .collect();
        let all = frames.concat();
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| {
                *end += frame.len();
                Some(*end)
            })
            .collect();
        for step in [1, 2, 3, 7, 1_000, 16_384, all.len()] {
            let mut followed = WebSocketFrames::default();
            let mut at = 0;
            for piece in all.chunks(step) {
                let next_end = ends.iter().find(|end| **end > at).copied().unwrap_or(all.len());
                let rest = followed.rest_of_frame(&all[at..]);
                assert_eq!(rest, if followed.is_between() { 0 } else { next_end - at }, "{step} {at}");
                followed.follow(piece);
                at += piece.len();
                assert_eq!(followed.is_between(), ends.contains(&at), "{step} {at}");
            }
            assert!(!followed.has_close());
        }
    }

    #[test]
    fn a_close_is_noticed_and_one_of_our_own_is_a_frame() {
        for is_from_client in [false, true] {
            let mut frames = WebSocketFrames::default();
            let close = close_frame(1001, "going away", is_from_client);
            frames.follow(&close);
            assert!(frames.is_between() && frames.has_close());
            let payload = &close[close.len() - 12..];
            let mask = if is_from_client { &close[2..6] } else { &[0; 4] };
            let plain: Vec<u8> =
                payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            assert_eq!((&plain[..2], &plain[2..]), (&1001_u16.to_be_bytes()[..], &b"going away"[..]));
        }
    }
}
