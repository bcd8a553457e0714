//! The services behind both programs: they remember what they get.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::harness::{Conn, Origin};

/// The names of the services. Those with one name are endpoints of one upstream, which of them gets a request is chance.
pub const NAMES: [&str; 5] = ["one", "two", "three", "pool", "pool"];

/// A request header with which a client wants another status than 200 of a service: `x-want: 404`.
pub const WANT: &str = "x-want";

/// The path at which programs ask whether a service is healthy: whenever they like, so that it is not remembered.
pub const HEALTH: &str = "/health";

/// What a service got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub origin: &'static str,
    pub method: String,
    pub target: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body_bytes: usize,
}

pub struct Origins {
    origins: Vec<Origin>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Origins {
    pub fn start() -> Self {
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let start = |name: &'static str| {
            let received = Arc::clone(&received);
            Origin::start(move |conn| serve(name, conn, &received))
        };
        Self { origins: NAMES.into_iter().map(start).collect(), received }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.origins.iter().map(|origin| origin.address).collect()
    }

    /// What was received since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

/// How long a body may take.
const BODY: Duration = Duration::from_secs(3);

/// Where a service redirects to that does not know what it is called by clients.
pub const OWN: &str = "http://127.0.0.1:1/own";

/// What services add to their responses, for configurations that hide some of it.
pub const ADDED: [(&str, &str); 6] = [
    ("content-type", "text/html"),
    ("x-powered-by", "origin"),
    ("x-origin-a", "1"),
    ("x-origin-b", "2"),
    ("set-cookie", "origin=1; Path=/"),
    ("cache-control", "no-cache"),
];

fn serve(name: &'static str, conn: &mut Conn, received: &Mutex<Vec<Received>>) -> std::io::Result<()> {
    while let Some(head) = conn.head()? {
        // A request whose body breaks off was not received. nginx' `auth_request` tells the length of one that never comes,
        // and takes an endpoint that does not answer for down.
        conn.stream.set_read_timeout(Some(BODY))?;
        let body = match conn.body(&head) {
            Ok((body, _)) => body,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Vec::new(),
            Err(error) => return Err(error),
        };
        conn.stream.set_read_timeout(None)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers: Vec<_> = lines.filter_map(field).collect();
        let value =
            |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let mut fields = ADDED.to_vec();
        let status = match value(WANT) {
            Some("302") => {
                fields.push(("location", "/elsewhere"));
                "302 Found".to_owned()
            }
            Some("301") => {
                fields.push(("location", OWN));
                "301 Moved".to_owned()
            }
            Some(status) if status.parse::<u16>().is_ok() => format!("{status} Wanted"),
            _ => "200 OK".to_owned(),
        };
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_head = method == "HEAD";
        if target != HEALTH {
            let body_bytes = body.len();
            received.lock().unwrap().push(Received { origin: name, method, target, headers, body_bytes });
        }
        let text = format!("<p>{name}</p>");
        match is_head {
            true => {
                let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", text.len());
                head.extend(fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
                conn.send(format!("{head}\r\n").as_bytes())?;
            }
            false => conn.answer(&status, &fields, text.as_bytes())?,
        }
    }
    Ok(())
}
