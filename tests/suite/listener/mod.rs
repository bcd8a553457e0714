//! How connections begin: TLS, and the PROXY headers of load balancers.

mod balancers;
mod browser;
mod certificate_changes;
mod connection_limits;
mod curl;
mod http2;
mod http2_clients;
mod http2_floods;
mod http2_fuzzing;
mod http2_slow_readers;
mod http2_smuggling;
mod names;
mod node;
mod openssl;
mod proxy_protocol;
mod python;
mod robustness;
mod scanners;
mod streams;
mod tls;
mod unix_sockets;
mod websockets;

use std::net::SocketAddr;

use crate::harness::{
    Authority, Config, HttpsClient, Issued, Origin, TlsConnector, Tollgate, eventually, file_name,
};

/// A Tollgate that serves https, and the authority that its clients trust.
struct Https {
    tollgate: Tollgate,
    authority: Authority,
    /// For `localhost`, 127.0.0.1 and ::1.
    certificate: Issued,
}

impl Https {
    /// With every setting at its default.
    fn before(origin: &Origin) -> Self {
        Self::with(origin, "", "")
    }

    /// `listener` is what stands beside `tls` in the listener's settings, `rest` YAML for the top level.
    fn with(origin: &Origin, listener: &str, rest: &str) -> Self {
        Self::on("127.0.0.1:0", origin, listener, rest)
    }

    fn on(address: &str, origin: &Origin, listener: &str, rest: &str) -> Self {
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost", "127.0.0.1", "::1"]);
        let tls = format!("tls: {{ certificates: [{}] }}", pair(&certificate));
        let listeners = format!("listeners: [{{ address: \"{address}\", {tls}{listener} }}]\n{rest}");
        let tollgate = Tollgate::start(Config::new(&[origin.address], &listeners));
        Self { tollgate, authority, certificate }
    }

    fn address(&self) -> SocketAddr {
        self.tollgate.address
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address().port())
    }

    /// A client that trusts the authority.
    fn connector(&self) -> TlsConnector {
        TlsConnector::new(&self.authority)
    }

    /// A connection for requests.
    fn connect(&self) -> HttpsClient {
        self.connector().connect(self.address(), "localhost").unwrap().into_http()
    }

    /// How many handshakes there were.
    fn handshakes(&self, version: &str, resumed: bool) -> f64 {
        let resumed = if resumed { "yes" } else { "no" };
        self.tollgate
            .metric(&format!("tollgate_tls_handshakes_total{{version=\"{version}\",resumed=\"{resumed}\"}}"))
    }

    /// How many handshakes failed for this reason.
    fn failures(&self, reason: &str) -> f64 {
        self.tollgate.metric(&format!("tollgate_tls_handshake_failures_total{{reason=\"{reason}\"}}"))
    }

    /// Waits until so many handshakes have failed for this reason: clients may know before it is counted.
    #[track_caller]
    fn has_failed(&self, reason: &str, times: f64) {
        eventually(&format!("{times} failures by {reason}"), || self.failures(reason) == times);
    }
}

/// A certificate, as an entry of `certificates`.
fn pair(issued: &Issued) -> String {
    format!("{{ cert: \"{}\", key: \"{}\" }}", file_name(&issued.cert), file_name(&issued.key))
}
