//! A DNS server that answers as a test says.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

const A: u16 = 1;
const AAAA: u16 = 28;

/// A DNS server on a free UDP port.
pub struct Dns {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    names: HashMap<String, DnsAnswer>,
    /// Names that were asked for, each with its type.
    queries: Vec<(String, u16)>,
}

/// What is answered to questions for a name.
#[derive(Debug, Clone)]
pub enum DnsAnswer {
    /// These addresses, for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// Likewise, but to questions for IPv6 nothing is answered.
    SilentAboutIpv6(Vec<IpAddr>, u32),
    /// The name does not exist. So it is for names of which nothing is known.
    NoSuchName,
    /// The server has failed.
    ServerFailure,
    /// Nothing.
    Silence,
}

impl Dns {
    /// Knows no name.
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let known = Arc::clone(&state);
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                if let Some(answer) = known.lock().unwrap().answer(&packet[..length]) {
                    // Who has asked may be gone.
                    let _gone = socket.send_to(&answer, peer);
                }
            }
        });
        Self { address, state }
    }

    /// From now on this is answered to questions for `name`.
    pub fn set(&self, name: &str, answer: DnsAnswer) {
        self.state.lock().unwrap().names.insert(name.to_owned(), answer);
    }

    /// How often the addresses of `name` were asked for by IPv4.
    pub fn queries(&self, name: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.queries.iter().filter(|(asked, kind)| asked == name && *kind == A).count()
    }
}

impl State {
    /// The answer to `query` (RFC 1035, 4.1): a head of twelve bytes, and one question.
    fn answer(&mut self, query: &[u8]) -> Option<Vec<u8>> {
        let (mut labels, mut at) = (Vec::new(), 12);
        while query[at] > 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
            at = end;
        }
        let (name, kind) = (labels.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]));
        self.queries.push((name.clone(), kind));
        let (code, addresses, ttl) = match self.names.get(&name) {
            Some(DnsAnswer::Addresses(addresses, ttl)) => (0, addresses.clone(), *ttl),
            Some(DnsAnswer::SilentAboutIpv6(addresses, ttl)) if kind == A => (0, addresses.clone(), *ttl),
            Some(DnsAnswer::Silence | DnsAnswer::SilentAboutIpv6(..)) => return None,
            Some(DnsAnswer::ServerFailure) => (2, Vec::new(), 0),
            Some(DnsAnswer::NoSuchName) | None => (3, Vec::new(), 0),
        };
        let records: Vec<Vec<u8>> = addresses
            .iter()
            .filter_map(|address| match address {
                IpAddr::V4(address) if kind == A => Some(address.octets().to_vec()),
                IpAddr::V6(address) if kind == AAAA => Some(address.octets().to_vec()),
                _ => None,
            })
            .collect();
        let mut answer = query[..2].to_vec();
        // A response, with recursion desired and available.
        answer.extend([0x81, 0x80 | code, 0, 1]);
        answer.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
        answer.extend([0, 0, 0, 0]);
        answer.extend(&query[12..at + 5]);
        for record in records {
            // The name is that of the question; the class is the Internet's.
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
            answer.extend(record);
        }
        Some(answer)
    }
}
