//! What commands say to the admin port, in HTTP/1.1.

use std::{
    io::{self, Write, stdout},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, runtime, time};

use super::{
    complain,
    terminal::{printable, printable_json},
};
use crate::admin::dto::{ConfigurationError, ProblemDetails};

/// For an answer, from the connection on.
const TIMEOUT: Duration = Duration::from_secs(30);
/// No page of the admin port is longer.
const MAX_BODY: usize = 64 << 20;
/// What stands for itself in a path or a query (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where the admin port is, and how its answer is shown.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Where the admin port listens
    #[arg(long, value_name = "URL", env = "TOLLGATE_ADMIN", default_value = "http://127.0.0.1:9900")]
    pub admin: String,
    /// The token that proxy.yaml sets under `admin`
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print the answer as it came, in JSON
    #[arg(long)]
    pub json: bool,
}

/// Why there is no answer. One line, for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("--admin must be a URL such as http://127.0.0.1:9900, not {0}")]
    Url(String),
    #[error("the token holds characters that no header may")]
    Token,
    #[error("cannot connect to the admin port at {authority}: {source}; is tollgate running there?")]
    Connect { authority: String, source: io::Error },
    #[error("the admin port at {authority} gave no answer within {within:?}")]
    Timeout { authority: String, within: Duration },
    #[error("the admin port at {authority} broke off: {reason}")]
    Broken { authority: String, reason: String },
    #[error("the admin port at {0} wants its token: give --token, or set TOLLGATE_ADMIN_TOKEN")]
    Unauthorized(String),
    #[error("the admin port at {0} has another token than the one given by --token or TOLLGATE_ADMIN_TOKEN")]
    WrongToken(String),
    #[error("{0}")]
    Refused(String),
    /// The configuration that it was to read has errors. `problem`: what it said of them, in JSON.
    #[error("the configuration has errors")]
    Misconfigured { errors: Vec<ConfigurationError>, problem: String },
    #[error("what answers at {authority} is not Tollgate's admin port: {reason}")]
    Foreign { authority: String, reason: String },
    #[error("{0}")]
    Local(#[from] io::Error),
}

/// Asks for `target`, and shows the answer as `show` tells it, or as it came.
pub(super) fn answer<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    show: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    shown(options, method, target, Bytes::new(), show)
}

/// The same, with `body` in JSON.
pub(super) fn answer_to<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    body: &impl Serialize,
    show: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    let body = serde_json::to_vec(body).map_err(io::Error::from)?;
    shown(options, method, target, body.into(), show)
}

fn shown<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    body: Bytes,
    show: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    let authority = authority(&options.admin)?.to_string();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let body = runtime.block_on(in_time(options, TIMEOUT, async {
        let mut connection = Connection::open(options).await?;
        connection.send(method, target, body).await
    }))?;
    let foreign = |reason: &dyn ToString| foreign(&authority, reason);
    let shown = serde_json::from_slice(&body).map(|answer| show(&answer));
    if options.json {
        let text = std::str::from_utf8(&body).map_err(|error| foreign(&error))?;
        return Ok(printable_json(text.trim_end()) + "\n");
    }
    shown.map_err(|error| foreign(&error))
}

/// Prints what there is to say, and gives the exit code.
pub(super) fn finish(result: Result<String, Failure>) -> ExitCode {
    match result {
        Ok(text) => match stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // Whoever reads has seen enough (`| head`).
            Err(_) => ExitCode::FAILURE,
        },
        Err(failure) => {
            complain(format_args!("tollgate: {}\n", printable(&failure.to_string())));
            ExitCode::FAILURE
        }
    }
}

/// As a segment of a path or a value of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn authority(admin: &str) -> Result<Authority, Failure> {
    let malformed = || Failure::Url(admin.to_owned());
    let uri: Uri = admin.parse().map_err(|_| malformed())?;
    let plain = uri.scheme() == Some(&Scheme::HTTP) && uri.path() == "/" && uri.query().is_none();
    let authority = uri.authority().filter(|authority| plain && !authority.as_str().contains('@'));
    authority.cloned().ok_or_else(malformed)
}

fn foreign(authority: &str, reason: &dyn ToString) -> Failure {
    Failure::Foreign { authority: authority.to_owned(), reason: reason.to_string() }
}

/// What `asked` gives, if it does so within that time.
pub(super) async fn in_time<T>(
    options: &Options,
    within: Duration,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late =
        |_| Failure::Timeout { authority: options.admin.trim_start_matches("http://").to_owned(), within };
    time::timeout(within, asked).await.map_err(late)?
}

/// A connection to the admin port, for one request after another.
#[derive(Debug)]
pub(super) struct Connection {
    authority: Authority,
    authorization: Option<HeaderValue>,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(super) async fn open(options: &Options) -> Result<Self, Failure> {
        let authority = authority(&options.admin)?;
        let token = options.token.as_deref().filter(|token| !token.is_empty());
        let bearer = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let authorization = bearer.transpose().map_err(|_| Failure::Token)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80)))
            .await
            .map_err(|source| Failure::Connect { authority: authority.to_string(), source })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| {
            Failure::Broken { authority: authority.to_string(), reason: error.to_string() }
        })?;
        // Ends with the runtime, or with the sender; what goes wrong with it, the answer tells.
        tokio::spawn(connection);
        Ok(Self { authority, authorization, sender })
    }

    /// What the answer to it says.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<T, Failure> {
        let answer = self.send(method, target, body).await?;
        self.read(&answer)
    }

    /// What an answer says.
    pub(super) fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(answer).map_err(|error| foreign(self.authority.as_str(), &error))
    }

    /// The answer as it came, if it is a good one.
    pub(super) async fn send(&mut self, method: Method, target: &str, body: Bytes) -> Result<Bytes, Failure> {
        let authority = self.authority.as_str();
        let broken = |reason: &dyn ToString| Failure::Broken {
            authority: authority.to_owned(),
            reason: reason.to_string(),
        };
        let mut request = Request::builder().method(method).uri(target).header(HOST, authority);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        self.sender.ready().await.map_err(|error| broken(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| broken(&error))?.to_bytes();
        answered(authority, self.authorization.is_some(), status, body)
    }
}

/// The body of an answer that is a good one. `with_token`: whether one was sent.
fn answered(authority: &str, with_token: bool, status: StatusCode, body: Bytes) -> Result<Bytes, Failure> {
    match status {
        StatusCode::OK | StatusCode::CREATED => Ok(body),
        StatusCode::UNAUTHORIZED if with_token => Err(Failure::WrongToken(authority.to_owned())),
        StatusCode::UNAUTHORIZED => Err(Failure::Unauthorized(authority.to_owned())),
        _ => match serde_json::from_slice::<ProblemDetails>(&body) {
            Ok(problem) if !problem.errors.is_empty() => Err(Failure::Misconfigured {
                errors: problem.errors,
                problem: String::from_utf8_lossy(&body).into_owned(),
            }),
            Ok(problem) if !problem.detail.is_empty() => Err(Failure::Refused(problem.detail)),
            _ => Err(foreign(authority, &format_args!("it said {status}"))),
        },
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::net::SocketAddr;

    use super::*;

    /// Options for an admin port at `address`.
    pub(in super::super) fn options(address: SocketAddr, token: Option<&str>) -> Options {
        Options { admin: format!("http://{address}"), token: token.map(str::to_owned), json: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{testing::options, *};
    use crate::admin::testing::Harness;

    fn status(options: &Options) -> Result<String, String> {
        let version = |status: &Value| status["version"].to_string();
        answer(options, Method::GET, "/v1/status", version).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_token_is_asked_for_and_sent() {
        let harness = Harness::start(Some("s3cret"));
        let wants = status(&options(harness.address, None)).unwrap_err();
        assert!(wants.contains("wants its token: give --token"), "{wants}");
        let wrong = status(&options(harness.address, Some("wrong"))).unwrap_err();
        assert!(wrong.contains("has another token than the one given"), "{wrong}");
        let version = status(&options(harness.address, Some("s3cret")));
        assert_eq!(version, Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION"))));
    }

    #[test]
    fn nobody_there_is_said_in_one_line() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
        let refused = status(&options(free, None)).unwrap_err();
        assert!(refused.starts_with(&format!("cannot connect to the admin port at {free}: ")), "{refused}");
        assert_eq!(refused.lines().count(), 1);
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for wrong in ["127.0.0.1:9900", "https://127.0.0.1", "http://", "http://a@b", "http://a/b", ""] {
            let options = Options { admin: wrong.to_owned(), token: None, json: false };
            assert!(status(&options).unwrap_err().starts_with("--admin must be a URL"), "{wrong}");
        }
    }
}
