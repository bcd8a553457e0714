//! Clients of HTTP/2 that others wrote: downloads, uploads, many requests at once, a limit, trailers, and a new process that
//! takes over in the middle.

mod chromium;
mod curl;
mod httpx;
mod nghttp;
mod node;
mod prometheus;

use std::thread;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::pair;
use crate::{
    app::handover::{Service, start},
    harness::{Authority, Config, Issued, Origin, eventually},
};

/// The bytes of a download and of an upload.
const LENGTH: usize = 4 << 20;
/// How many requests are sent at once.
const AT_ONCE: usize = 200;

/// A Tollgate that serves https with a limit on `/limited`, an origin, and the authority that clients trust.
struct Served {
    origin: Origin,
    service: Service,
    authority: Authority,
    certificate: Issued,
}

impl Served {
    fn start() -> Self {
        Self::with_page("")
    }

    /// The origin's `/page` is this one.
    fn with_page(page: &str) -> Self {
        let origin = origin(page.to_owned());
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost", "127.0.0.1", "::1"]);
        let service = start(Config::yaml(format!(
            "
listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}] }} }}]
policies: {{ two: {{ algorithm: sliding_log, key: ip, limit: 2/1h }} }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ path: /limited, upstream: origin, policies: [two] }}
  - {{ path: /*, upstream: origin, trailers: pass }}
access_log: {{ format: json, to: stdout }}
",
            pair(&certificate),
            origin.address
        )));
        Self { origin, service, authority, certificate }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.service.0.address.port())
    }

    /// Runs a client that asks for `/held`, and meanwhile hands over to a new process. What the client returned.
    fn hand_over_during<T: Send>(&mut self, client: impl FnOnce(&Self) -> T + Send) -> T {
        self.hand_over_until(|| true, client)
    }

    /// The same, with the request held until `is_told` that the connection ends.
    fn hand_over_until<T: Send>(
        &mut self,
        is_told: impl Fn() -> bool,
        client: impl FnOnce(&Self) -> T + Send,
    ) -> T {
        let (returned, is_handed_over) = thread::scope(|scope| {
            let this = &*self;
            let running = scope.spawn(|| client(this));
            let is_held = || this.origin.heads().iter().any(|head| head.starts_with("GET /held"));
            eventually("a request is held, or the client has failed", || is_held() || running.is_finished());
            if is_held() {
                this.service.hand_over();
                eventually("the client is told, or has failed", || is_told() || running.is_finished());
                this.origin.resume();
            }
            (running.join().unwrap(), is_held())
        });
        // A client that is not installed asks for nothing.
        if is_handed_over {
            assert_eq!(self.service.0.wait().code(), Some(0), "the old process ends");
        }
        returned
    }

    /// The requests of the access log, as path, protocol and status.
    fn logged(&self) -> Vec<(String, String, u64)> {
        let lines = self.service.0.stdout();
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
        lines
            .map(|line| {
                (text(&line, "path"), text(&line, "protocol"), line["status"].as_u64().unwrap_or_default())
            })
            .collect()
    }

    /// All requests to paths that begin so, of which there were `count`, came by HTTP/2 and were served with this status.
    #[track_caller]
    fn has_served(&self, path: &str, count: usize, status: u64) {
        let of = || self.logged().into_iter().filter(|(of, ..)| of.starts_with(path)).collect::<Vec<_>>();
        eventually(&format!("{count} of {path} are logged"), || of().len() >= count);
        let all = of();
        assert_eq!(all.len(), count, "{all:?}");
        let is_fine = |(_, protocol, of): &(String, String, u64)| protocol == "HTTP/2.0" && *of == status;
        assert!(all.iter().all(is_fine), "{all:?}");
    }
}

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves a download, says what was uploaded, names numbers, sends trailers, and holds `/held` until the test says so.
fn origin(page: String) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            let path = head.split(' ').nth(1).unwrap_or_default();
            match path.strip_prefix("/number/") {
                Some(number) => conn.answer("200 OK", &[], number.as_bytes())?,
                None => match path {
                    "/download" => conn.answer("200 OK", &[], &content())?,
                    "/upload" => conn.answer("200 OK", &[], digest(&body).as_bytes())?,
                    "/trailers" => conn.send(
                        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-checksum\r\n\r\n\
                          5\r\nhello\r\n0\r\nx-checksum: 5d41402a\r\n\r\n",
                    )?,
                    "/held" => {
                        conn.pause()?;
                        conn.answer("200 OK", &[], b"held")?;
                    }
                    "/held/samples" => {
                        conn.pause()?;
                        conn.answer("200 OK", &[], b"held 1\n")?;
                    }
                    "/samples" => conn.answer("200 OK", &[], &samples())?,
                    metrics if metrics.starts_with("/metrics?") => conn.answer("200 OK", &[], b"a 1\n")?,
                    _ => conn.answer("200 OK", &[("content-type", "text/html")], page.as_bytes())?,
                },
            }
        }
        Ok(())
    })
}

/// 20,000 samples that can hardly be compressed.
fn samples() -> Vec<u8> {
    let sample = |number: usize| format!("sample{{id=\"{0}{0}\"}} 1\n", digest(&number.to_be_bytes()));
    (0..20_000).map(sample).collect::<String>().into_bytes()
}

/// What a client saw that does everything by a script.
#[track_caller]
fn check(served: &Served, seen: &Value) {
    let expected = digest(&content());
    assert_eq!(seen["download"], expected, "{seen}");
    assert_eq!(seen["upload"], expected, "{seen}");
    assert_eq!(seen["numbers"], AT_ONCE, "{seen}");
    let denied = &seen["denied"];
    assert_eq!(
        (&denied["status"], &denied["type"], &denied["body"]["status"]),
        (&json!(429), &json!("application/problem+json"), &json!(429)),
        "{seen}"
    );
    let seconds = denied["retry_after"].as_str().unwrap().parse::<u64>().unwrap();
    assert!((1..=3600).contains(&seconds), "{seen}");
    assert!(denied["ratelimit"].as_str().unwrap().starts_with("\"two\";r=0;t="), "{seen}");
    assert_eq!((&seen["held"], &seen["after"]), (&json!("held"), &json!(50)), "{seen}");
    served.has_served("/download", 1, 200);
    served.has_served("/upload", 1, 200);
    // Those that the client has given up were served nevertheless.
    let failed = seen["failed"].as_u64().map_or(0, |failed| usize::try_from(failed).unwrap());
    served.has_served("/number/", AT_ONCE + 50 + failed, 200);
}
