//! The PROXY protocol, versions 1 and 2: a load balancer starts a connection with the address of its client
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Section 2.1: the longest header of version 1, with its CRLF.
const MAX_V1: usize = 107;
/// The longest header of version 2 that is accepted. With all fields of the specification it has some 600 bytes.
const MAX_V2: usize = 4096;
/// Section 2.2: signature, version, family and length.
const V2_FIXED: usize = 16;

/// Why a header is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyHeaderError {
    /// The first bytes are not a PROXY header.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    #[error("the PROXY header is malformed")]
    Malformed,
    /// The connection ended or broke within the header.
    #[error("the connection ended before the PROXY header was complete")]
    Incomplete,
}

/// Whether a PROXY header may begin with the byte `first`.
pub(super) fn begins_header(first: u8) -> bool {
    Some(&first) == v2::PROTOCOL_PREFIX.first() || Some(&first) == v1::PROTOCOL_PREFIX.as_bytes().first()
}

/// Reads a header from `stream`, of which `buffer` may already have the beginning. Bytes after the header are left in
/// `buffer`. Returns the client's address; `None` if the header names none, as in a load balancer's own health check
/// (`LOCAL`, `UNKNOWN`).
///
/// # Errors
/// The header is missing, malformed or incomplete.
pub(super) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    loop {
        if let Some(length) = header_length(buffer)? {
            let address = parse(&buffer[..length]);
            buffer.advance(length);
            return address;
        }
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return Err(ProxyHeaderError::Incomplete);
        }
    }
}

/// The length of the header at the beginning of `bytes`, once it is complete.
fn header_length(bytes: &[u8]) -> Result<Option<usize>, ProxyHeaderError> {
    let begins = |prefix: &[u8]| {
        let length = bytes.len().min(prefix.len());
        bytes[..length] == prefix[..length]
    };
    if begins(v2::PROTOCOL_PREFIX) {
        let Some(&[high, low]) = bytes.get(V2_FIXED - 2..V2_FIXED) else { return Ok(None) };
        let length = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
        match length {
            ..=MAX_V2 => Ok((bytes.len() >= length).then_some(length)),
            _ => Err(ProxyHeaderError::Malformed),
        }
    } else if begins(v1::PROTOCOL_PREFIX.as_bytes()) {
        let head = &bytes[..bytes.len().min(MAX_V1)];
        match head.windows(2).position(|two| two == b"\r\n") {
            Some(end) => Ok(Some(end + 2)),
            None if head.len() == MAX_V1 => Err(ProxyHeaderError::Malformed),
            None => Ok(None),
        }
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// The address in a complete header.
fn parse(header: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    if header.starts_with(v2::PROTOCOL_PREFIX) {
        let header = v2::Header::try_from(header).map_err(|_| ProxyHeaderError::Malformed)?;
        return Ok(match (header.command, header.protocol, header.addresses) {
            (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv4(ip)) => {
                Some((ip.source_address, ip.source_port).into())
            }
            (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv6(ip)) => {
                Some((ip.source_address, ip.source_port).into())
            }
            _ => None,
        });
    }
    let header = v1::Header::try_from(header).map_err(|_| ProxyHeaderError::Malformed)?;
    Ok(match header.addresses {
        v1::Addresses::Tcp4(ip) => Some((ip.source_address, ip.source_port).into()),
        v1::Addresses::Tcp6(ip) => Some((ip.source_address, ip.source_port).into()),
        v1::Addresses::Unknown => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The result for `bytes` that arrive in pieces of `piece` bytes, and the remaining bytes.
    fn read(bytes: &[u8], piece: usize) -> (Result<Option<SocketAddr>, ProxyHeaderError>, Vec<u8>) {
        let (mut client, mut stream) = tokio::io::duplex(piece.max(1));
        let mut buffer = BytesMut::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let send = async move {
                // The reader may have stopped before the end.
                let _sent = client.write_all(bytes).await;
            };
            let receive = async {
                let address = read_header(&mut stream, &mut buffer).await;
                let mut rest = buffer.to_vec();
                if address.is_ok() {
                    stream.read_to_end(&mut rest).await.unwrap();
                }
                drop(stream);
                (address, rest)
            };
            tokio::join!(send, receive).1
        })
    }

    fn v2(command: u8, family: u8, addresses: &[u8], more: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len() + more.len()).unwrap().to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, family][..], &length, addresses, more].concat()
    }

    #[test]
    fn both_versions_name_the_client() {
        let four = [192, 0, 2, 1, 10, 0, 0, 1, 0xdc, 0x04, 0x01, 0xbb];
        let tlv = [0x04, 0x00, 0x02, 0, 0];
        for (header, address) in [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n".to_vec(), Some("192.0.2.1:56324")),
            (b"PROXY TCP6 2001:db8::1 ::1 56324 443\r\n".to_vec(), Some("[2001:db8::1]:56324")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), None),
            (v2(1, 0x11, &four, &[]), Some("192.0.2.1:56324")),
            (v2(1, 0x11, &four, &tlv), Some("192.0.2.1:56324")),
            (v2(0, 0x11, &four, &[]), None),
            (v2(0, 0x00, &[], &[]), None),
            // UDP, and Unix sockets.
            (v2(1, 0x12, &four, &[]), None),
            (v2(1, 0x31, &[7; 216], &[]), None),
        ] {
            for piece in [1, 7, 15, 4096] {
                let bytes = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
                let (read, rest) = read(&bytes, piece);
                assert_eq!(
                    read,
                    Ok(address.map(|address| address.parse().unwrap())),
                    "{header:?} by {piece}"
                );
                assert_eq!(rest, b"GET / HTTP/1.1\r\n");
            }
        }
    }

    #[test]
    fn other_beginnings_are_refused() {
        use ProxyHeaderError::{Incomplete, Malformed, Missing};
        for (bytes, error) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), Missing),
            (b"POST / HTTP/1.1\r\n".to_vec(), Missing),
            (b"\x16\x03\x01".to_vec(), Missing),
            (b"\r\nGET / HTTP/1.1\r\n".to_vec(), Missing),
            (b"".to_vec(), Incomplete),
            (b"PROXY TCP4 192.0.2.1".to_vec(), Incomplete),
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324\r\n".to_vec(), Malformed),
            (b"PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n".to_vec(), Malformed),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), Malformed),
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 1 65536\r\n".to_vec(), Malformed),
            ([b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat(), Malformed),
            (v2(2, 0x11, &[0; 12], &[]), Malformed),
            (v2(1, 0x11, &[0; 4], &[]), Malformed),
            (v2(1, 0x41, &[0; 12], &[]), Malformed),
            (v2(0, 0x00, &[0; 5000], &[]), Malformed),
            (v2(1, 0x11, &[0; 12], &[])[..20].to_vec(), Incomplete),
        ] {
            for piece in [1, 4096] {
                assert_eq!(read(&bytes, piece).0, Err(error), "{bytes:?} by {piece}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..300usize) {
            let _verdict = read(&bytes, piece);
            let _verdict = read(&[b"PROXY ", &bytes[..]].concat(), piece);
            let _verdict = read(&[v2::PROTOCOL_PREFIX, &bytes[..]].concat(), piece);
        }

        #[test]
        fn pieces_do_not_matter(port: u16, at in 1..60usize, rest in "[ -~]{0,40}") {
            let header = format!("PROXY TCP4 192.0.2.1 10.0.0.1 {port} 443\r\n{rest}");
            prop_assert_eq!(read(header.as_bytes(), at), read(header.as_bytes(), 4096));
        }
    }
}
