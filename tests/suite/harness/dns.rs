//! A DNS server that answers as a test says.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// A DNS server on a port that is free for UDP and for TCP.
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
    /// Likewise, but the first query for each version of IP is lost.
    FirstLost(Vec<IpAddr>, u32),
    /// Likewise, but each query is answered only when so many others have come for the same version of IP.
    Late(Vec<IpAddr>, u32, usize),
    /// Likewise, but too long for UDP.
    ForTcp(Vec<IpAddr>, u32),
    /// An alias, for so many seconds, of this name, which is among those that are known.
    Alias(String, u32),
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
        let (socket, listener) = sockets();
        let address = socket.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let known = Arc::clone(&state);
        thread::spawn(move || {
            let mut packet = [0; 1500];
            // By question.
            let mut late: HashMap<Vec<u8>, VecDeque<(Vec<u8>, SocketAddr)>> = HashMap::new();
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                let Some((answer, holds)) = known.lock().unwrap().answer(&packet[..length], false) else {
                    continue;
                };
                // All but the ID, which comes first.
                let held = late.entry(packet[2..length].to_vec()).or_default();
                held.push_back((answer, peer));
                while held.len() > holds
                    && let Some((answer, peer)) = held.pop_front()
                {
                    // Who has asked may be gone.
                    let _gone = socket.send_to(&answer, peer);
                }
            }
        });
        let known = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let known = Arc::clone(&known);
                thread::spawn(move || serve(stream, &known));
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

/// Both on one port.
fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Another program may have the port for TCP.
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
}

/// Answers what is asked over TCP, where each message begins with its length.
fn serve(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let answer = state.lock().unwrap().answer(&query, true);
        if let Some((answer, _)) = answer {
            stream.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes())?;
            stream.write_all(&answer)?;
        }
    }
}

impl State {
    /// The answer to `query` (RFC 1035, 4.1): a head of twelve bytes, and one question. And behind how many other queries it
    /// comes.
    fn answer(&mut self, query: &[u8], is_tcp: bool) -> Option<(Vec<u8>, usize)> {
        let (mut labels, mut at) = (Vec::new(), 12);
        while query[at] > 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
            at = end;
        }
        let (name, kind) = (labels.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]));
        let is_first = !self.queries.contains(&(name.clone(), kind));
        self.queries.push((name.clone(), kind));
        let (alias, target) = match self.names.get(&name) {
            Some(DnsAnswer::Alias(of, ttl)) => (Some((of, *ttl)), self.names.get(of)),
            answer => (None, answer),
        };
        let (code, addresses, ttl) = match target {
            Some(DnsAnswer::FirstLost(..)) if is_first => return None,
            Some(
                DnsAnswer::Addresses(addresses, ttl)
                | DnsAnswer::FirstLost(addresses, ttl)
                | DnsAnswer::Late(addresses, ttl, _),
            ) => (0, addresses.clone(), *ttl),
            Some(DnsAnswer::SilentAboutIpv6(addresses, ttl)) if kind == A => (0, addresses.clone(), *ttl),
            Some(DnsAnswer::ForTcp(addresses, ttl)) if is_tcp => (0, addresses.clone(), *ttl),
            Some(DnsAnswer::ForTcp(..)) => (0, Vec::new(), 0),
            Some(DnsAnswer::Silence | DnsAnswer::SilentAboutIpv6(..)) => return None,
            Some(DnsAnswer::ServerFailure) => (2, Vec::new(), 0),
            Some(DnsAnswer::NoSuchName | DnsAnswer::Alias(..)) | None => (3, Vec::new(), 0),
        };
        let records = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) if kind == A => Some(address.octets().to_vec()),
            IpAddr::V6(address) if kind == AAAA => Some(address.octets().to_vec()),
            _ => None,
        });
        let question = query[12..=at].to_vec();
        // The name that each record is of, its type, and what it says.
        let mut answers: Vec<(Vec<u8>, u16, u32, Vec<u8>)> = Vec::new();
        let mut owner = question;
        if let Some((of, ttl)) = alias {
            let encoded: Vec<u8> = of
                .split('.')
                .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
                .chain([0])
                .collect();
            answers.push((owner, CNAME, ttl, encoded.clone()));
            owner = encoded;
        }
        answers.extend(records.map(|record| (owner.clone(), kind, ttl, record)));
        let mut answer = query[..2].to_vec();
        let holds = if let Some(DnsAnswer::Late(_, _, queries)) = target { *queries } else { 0 };
        let is_truncated = matches!(target, Some(DnsAnswer::ForTcp(..))) && !is_tcp;
        // A response, with recursion desired and available.
        answer.extend([0x81 | if is_truncated { 2 } else { 0 }, 0x80 | code, 0, 1]);
        answer.extend(u16::try_from(answers.len()).unwrap().to_be_bytes());
        answer.extend([0, 0, 0, 0]);
        answer.extend(&query[12..at + 5]);
        for (owner, kind, ttl, record) in answers {
            answer.extend(owner);
            answer.extend(kind.to_be_bytes());
            // The class is the Internet's.
            answer.extend([0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
            answer.extend(record);
        }
        Some((answer, holds))
    }
}
