//! What the suite has to know of a program whose configurations are converted.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::sent::Sent;
use crate::harness::Running;

/// A program whose configurations are converted.
pub trait Source {
    /// As `--from` names it.
    const NAME: &'static str;
    /// The seed of the first configuration. The run from here on meets all of `TO_BE_MET`.
    const FIRST_SEED: u64;
    /// What has to happen at least once in a run, or it has tested less than it should: kinds of outcomes (see
    /// `agreement`), and the words of configurations.
    const TO_BE_MET: &'static [&'static str];
    /// What may differ if a note says so, without being closed. All else has to be the same, or closed.
    const NOTED: &'static [Noted];
    /// Fields that the program adds by itself to what services get, and Tollgate does not: names in lower case.
    const ADDED: &'static [&'static str] = &[];

    /// The configuration with this seed, and requests at its edges. Only the ports of `places` differ between the real
    /// program's and the one to convert, and all have five digits: lines and columns stay the same.
    fn generate(seed: u64, places: &Places<'_>) -> Generated;

    /// Starts the program, in a directory that holds the files. It need not listen yet.
    fn start(directory: &Path, generated: &Generated) -> Running;

    /// The same request to Tollgate in another spelling, which the program may tell from this one: where the outcomes
    /// differ, both are asked again with it (2, 8, 16, 24 and 25 of `standing`).
    fn alike(_: &Sent) -> Option<Sent> {
        None
    }

    /// Whether the program is there. A test that needs it fails or is left out otherwise, as the source thinks right.
    fn is_installed() -> bool {
        true
    }
}

/// A word that changes something for clients without opening or closing anything.
pub struct Noted {
    /// A comment of the result has it.
    pub word: &'static str,
    /// What may be different then, or how that begins: see `compare`.
    pub what: &'static str,
    /// Only in errors.
    pub is_of_errors: bool,
}

/// Where a configuration listens and forwards to, and its files.
pub struct Places<'a> {
    /// Ports for the listeners: more than any configuration needs.
    pub ports: &'a [u16],
    /// The addresses of the services, in the order of [`super::origins::NAMES`].
    pub origins: &'a [SocketAddr],
    pub tls: &'a TlsFiles,
}

/// How many ports a configuration may use.
pub const PORTS: usize = 5;

/// The files of listeners with TLS, as absolute names.
#[derive(Default)]
pub struct TlsFiles {
    pub cert: String,
    pub key: String,
    /// Both of them in one file.
    pub both: String,
    /// The authority of the clients' certificates.
    pub ca: String,
}

/// Hosts that the certificate of listeners with TLS is for: all that requests have. A client names one of them when it
/// shakes hands.
pub const CERTIFIED: [&str; 14] = [
    "a.test",
    "b.test",
    "c.test",
    "*.a.test",
    "*.b.test",
    "*.x.a.test",
    "*.x.b.test",
    "*.x.x.a.test",
    "nota.test",
    "notb.test",
    "notc.test",
    "other.test",
    "*.test.evil.test",
    "127.0.0.1",
];

/// A configuration, and requests for it.
#[derive(Clone, Default)]
pub struct Generated {
    /// Names and texts; the first is the file to convert.
    pub files: Vec<(String, String)>,
    pub listeners: Vec<Listener>,
    pub requests: Vec<Sent>,
    /// The addresses of clients that the configuration trusts as proxies: what they say of other clients is believed.
    pub trusted: Vec<IpAddr>,
    /// A word of the configuration that the converter does not know: it has to be noted.
    pub unknown: Option<String>,
    /// The configuration has tests that Tollgate does not know. It is not counted how much of it is forwarded.
    pub is_odd: bool,
    /// Words of the configuration, for `TO_BE_MET`.
    pub words: Vec<&'static str>,
    /// Words of the configuration that have no equal, and close nothing: they have to be noted, too.
    pub noted: Vec<&'static str>,
    /// Where nobody may listen: sections that are off have these addresses.
    pub off: Vec<SocketAddr>,
}

/// A socket that the configuration listens on.
#[derive(Debug, Clone, Copy)]
pub struct Listener {
    pub address: SocketAddr,
    pub is_tls: bool,
}

impl Listener {
    /// Where a client connects to: a listener on all addresses is reached at the first.
    pub fn reached_at(&self) -> SocketAddr {
        match self.address.ip().is_unspecified() {
            true => (Ipv4Addr::LOCALHOST, self.address.port()).into(),
            false => self.address,
        }
    }
}

/// Waits until the program listens everywhere. What it wrote to `log` if it ends before.
pub fn listens(
    running: &mut Running,
    listeners: &[Listener],
    log: &Path,
    patience: Duration,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let wrote = || fs::read_to_string(log).unwrap_or_default();
        if let Some(status) = running.0.try_wait().unwrap() {
            return Err(format!("{status}: {}", wrote()));
        }
        if listeners.iter().all(|listener| TcpStream::connect(listener.reached_at()).is_ok()) {
            return Ok(());
        }
        if begun.elapsed() > patience {
            return Err(format!("it does not listen: {}", wrote()));
        }
        thread::sleep(Duration::from_millis(2));
    }
}
