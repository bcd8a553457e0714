//! The commands' client of the admin port, over HTTP/1.1.

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
    print_error,
    terminal::{printable, printable_json},
};
use crate::admin::dto::{ConfigurationError, ProblemDetails};

/// For an answer, from the connection on.
const TIMEOUT: Duration = Duration::from_secs(30);
/// No answer of the admin port is longer.
const MAX_BODY: usize = 64 << 20;
/// All but the unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The admin port, and how its answer is shown.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The URL of the admin port
    #[arg(long, value_name = "URL", env = "TOLLGATE_ADMIN", default_value = "http://127.0.0.1:9900")]
    pub admin: String,
    /// The token set under `admin` in proxy.yaml
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print the admin API's response as JSON
    #[arg(long)]
    pub json: bool,
}

/// Why there is no answer, in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error("--admin must be a URL such as http://127.0.0.1:9900, not {0}")]
    Url(String),
    #[error("the token contains characters that are not allowed in a header")]
    Token,
    #[error("cannot connect to the admin port at {authority}: {source}; is Tollgate running there?")]
    Connect { authority: String, source: io::Error },
    #[error("the admin port at {authority} did not respond within {within:?}")]
    Timeout { authority: String, within: Duration },
    #[error("the connection to the admin port at {authority} failed: {reason}")]
    Broken { authority: String, reason: String },
    #[error("the admin port at {0} requires a token: pass --token or set TOLLGATE_ADMIN_TOKEN")]
    Unauthorized(String),
    #[error("the admin port at {0} rejects the token from --token or TOLLGATE_ADMIN_TOKEN")]
    WrongToken(String),
    #[error("{0}")]
    Refused(String),
    /// The configuration to be read has errors. `problem`: the answer's body, in JSON.
    #[error("the configuration has errors")]
    Misconfigured { errors: Vec<ConfigurationError>, problem: String },
    #[error("{authority} is not Tollgate's admin port: {reason}")]
    NotTollgate { authority: String, reason: String },
    #[error("{0}")]
    Local(#[from] io::Error),
}

/// Sends a request for `target`, and returns the answer as `show` formats it, or as it came with `--json`.
pub(super) fn request<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    send_and_show(options, method, target, Bytes::new(), show)
}

/// As [`request`], with `body` in JSON.
pub(super) fn post_json<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    body: &impl Serialize,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    let body = serde_json::to_vec(body).map_err(io::Error::from)?;
    send_and_show(options, method, target, body.into(), show)
}

fn send_and_show<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    body: Bytes,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    let authority = authority(&options.admin)?.to_string();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let body = runtime.block_on(with_timeout(options, TIMEOUT, async {
        let mut connection = Connection::open(options).await?;
        connection.send(method, target, body).await
    }))?;
    let unexpected = |reason: &dyn ToString| unexpected(&authority, reason);
    let text = serde_json::from_slice(&body).map(|answer| show(&answer));
    if options.json {
        let json = std::str::from_utf8(&body).map_err(|error| unexpected(&error))?;
        return Ok(printable_json(json.trim_end()) + "\n");
    }
    text.map_err(|error| unexpected(&error))
}

/// Prints the text or the error, and returns the exit code.
pub(super) fn print_result(result: Result<String, AdminError>) -> ExitCode {
    match result {
        Ok(text) => match stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader has closed the pipe (`| head`).
            Err(_) => ExitCode::FAILURE,
        },
        Err(failure) => {
            print_error(format_args!("tollgate: {}\n", printable(&failure.to_string())));
            ExitCode::FAILURE
        }
    }
}

/// `text` as a path segment or a query value.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn authority(admin: &str) -> Result<Authority, AdminError> {
    let malformed = || AdminError::Url(admin.to_owned());
    let uri: Uri = admin.parse().map_err(|_| malformed())?;
    let is_plain = uri.scheme() == Some(&Scheme::HTTP) && uri.path() == "/" && uri.query().is_none();
    let authority = uri.authority().filter(|authority| is_plain && !authority.as_str().contains('@'));
    authority.cloned().ok_or_else(malformed)
}

fn unexpected(authority: &str, reason: &dyn ToString) -> AdminError {
    AdminError::NotTollgate { authority: authority.to_owned(), reason: reason.to_string() }
}

/// The result of `request`, or an error after `within`.
pub(super) async fn with_timeout<T>(
    options: &Options,
    within: Duration,
    request: impl Future<Output = Result<T, AdminError>>,
) -> Result<T, AdminError> {
    let late =
        |_| AdminError::Timeout { authority: options.admin.trim_start_matches("http://").to_owned(), within };
    time::timeout(within, request).await.map_err(late)?
}

/// A connection to the admin port, for one request after another.
#[derive(Debug)]
pub(super) struct Connection {
    authority: Authority,
    authorization: Option<HeaderValue>,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(super) async fn open(options: &Options) -> Result<Self, AdminError> {
        let authority = authority(&options.admin)?;
        let token = options.token.as_deref().filter(|token| !token.is_empty());
        let bearer = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let authorization = bearer.transpose().map_err(|_| AdminError::Token)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80)))
            .await
            .map_err(|source| AdminError::Connect { authority: authority.to_string(), source })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| {
            AdminError::Broken { authority: authority.to_string(), reason: error.to_string() }
        })?;
        // Ends with the runtime or the sender. Its errors show in the answer.
        tokio::spawn(connection);
        Ok(Self { authority, authorization, sender })
    }

    /// Sends a request and parses the answer.
    pub(super) async fn request<T: DeserializeOwned>(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<T, AdminError> {
        let answer = self.send(method, target, body).await?;
        self.parse(&answer)
    }

    /// Parses an answer.
    pub(super) fn parse<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, AdminError> {
        serde_json::from_slice(answer).map_err(|error| unexpected(self.authority.as_str(), &error))
    }

    /// Sends a request and returns the answer's body, if its status is a success.
    pub(super) async fn send(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<Bytes, AdminError> {
        let authority = self.authority.as_str();
        let broken = |reason: &dyn ToString| AdminError::Broken {
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
        check_status(authority, self.authorization.is_some(), status, body)
    }
}

/// The body of a successful answer. `with_token`: whether a token was sent.
fn check_status(
    authority: &str,
    with_token: bool,
    status: StatusCode,
    body: Bytes,
) -> Result<Bytes, AdminError> {
    match status {
        StatusCode::OK | StatusCode::CREATED => Ok(body),
        StatusCode::UNAUTHORIZED if with_token => Err(AdminError::WrongToken(authority.to_owned())),
        StatusCode::UNAUTHORIZED => Err(AdminError::Unauthorized(authority.to_owned())),
        _ => match serde_json::from_slice::<ProblemDetails>(&body) {
            Ok(problem) if !problem.errors.is_empty() => Err(AdminError::Misconfigured {
                errors: problem.errors,
                problem: String::from_utf8_lossy(&body).into_owned(),
            }),
            Ok(problem) if !problem.detail.is_empty() => Err(AdminError::Refused(problem.detail)),
            _ => Err(unexpected(authority, &format_args!("it responded with {status}"))),
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
        request(options, Method::GET, "/v1/status", version).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_token_is_required_and_sent() {
        let harness = Harness::start(Some("s3cret"));
        let wants = status(&options(harness.address, None)).unwrap_err();
        assert!(wants.contains("requires a token: pass --token"), "{wants}");
        let wrong = status(&options(harness.address, Some("wrong"))).unwrap_err();
        assert!(wrong.contains("rejects the token from --token"), "{wrong}");
        let version = status(&options(harness.address, Some("s3cret")));
        assert_eq!(version, Ok(format!("\"{}\"", env!("CARGO_PKG_VERSION"))));
    }

    #[test]
    fn a_refused_connection_is_reported_in_one_line() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
        let refused = status(&options(free, None)).unwrap_err();
        assert!(refused.starts_with(&format!("cannot connect to the admin port at {free}: ")), "{refused}");
        assert_eq!(refused.lines().count(), 1);
    }

    #[test]
    fn invalid_urls_are_refused() {
        for wrong in ["127.0.0.1:9900", "https://127.0.0.1", "http://", "http://a@b", "http://a/b", ""] {
            let options = Options { admin: wrong.to_owned(), token: None, json: false };
            assert!(status(&options).unwrap_err().starts_with("--admin must be a URL"), "{wrong}");
        }
    }
}
