//! The commands' client of the admin port, over HTTP/1.1.

use std::{
    io::{self, Write, stdout},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use clap::{ValueHint, builder::RangedI64ValueParser};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, IF_MATCH},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, runtime, time};

use super::{
    admin_url::AdminUrl,
    failure::{WRONG_ARGUMENTS, print_error},
    terminal::{printable, printable_json},
};
use crate::admin::dto::{ConfigurationError, ProblemDetails};

/// Maximum time for connecting and for the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const MAX_BODY: usize = 64 << 20;
/// All but the unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The exit codes of commands that use the admin port, for their help.
pub(super) const EXIT_CODES: &str =
    "Exit code: 0 on success, 1 if the admin port cannot be reached or refuses, 2 if an argument is wrong.";

/// The valid range of `limit`: entries per page of a list.
pub(super) fn page_size() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=1_000)
}

/// The admin port, and how its answer is shown.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Options {
    /// The address of the admin port, as HOST:PORT or http://HOST:PORT
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TOLLGATE_ADMIN",
        default_value = "127.0.0.1:9900",
        value_hint = ValueHint::Hostname
    )]
    pub admin: AdminUrl,
    /// The token set under `admin` in proxy.yaml
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true, value_hint = ValueHint::Other)]
    pub token: Option<String>,
    /// Print the admin API's response as JSON
    #[arg(long)]
    pub json: bool,
}

/// Why a request failed, in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error("the token contains characters that are not allowed in a header")]
    Token,
    #[error(
        "cannot connect to the admin port at {admin}: {source}. Check that Tollgate is running, and that `admin.address` in \
         proxy.yaml is this address; --admin or TOLLGATE_ADMIN names another"
    )]
    Connect { admin: AdminUrl, source: io::Error },
    #[error("the admin port at {admin} did not respond within {within:?}")]
    Timeout { admin: AdminUrl, within: Duration },
    #[error("the connection to the admin port at {admin} failed: {reason}")]
    Broken { admin: AdminUrl, reason: String },
    #[error(
        "the admin port at {0} requires a token: pass --token or set TOLLGATE_ADMIN_TOKEN to `admin.token` of proxy.yaml"
    )]
    Unauthorized(AdminUrl),
    #[error("the admin port at {0} rejects the token from --token or TOLLGATE_ADMIN_TOKEN")]
    WrongToken(AdminUrl),
    /// The admin port rejected an argument.
    #[error("{0}")]
    WrongArgument(String),
    #[error("{0}")]
    Refused(String),
    /// It may work later.
    #[error("{0}")]
    Unavailable(String),
    /// The configuration to be read has errors. `problem`: the response body, in JSON.
    #[error("the configuration has errors")]
    Misconfigured { errors: Vec<ConfigurationError>, problem: String },
    #[error("{admin} is not Tollgate's admin port: {reason}")]
    NotTollgate { admin: AdminUrl, reason: String },
    #[error("{0}")]
    Local(#[from] io::Error),
}

impl AdminError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Token | Self::WrongArgument(_) => ExitCode::from(WRONG_ARGUMENTS),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Where a change holds.
pub(super) fn place(is_shared: bool) -> &'static str {
    if is_shared { "" } else { " at this instance" }
}

/// A note about a change that was not sent to the other instances yet.
pub(super) fn unshared(is_shared: bool) -> &'static str {
    match is_shared {
        true => "",
        false => "The other instances have not been told yet: Tollgate goes on trying.\n",
    }
}

/// Sends a request for `target` and returns the response as formatted by `show`, or unchanged with `--json`.
pub(super) fn request<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    send_and_show(options, method, target, (Bytes::new(), None), show)
}

/// As [`request`], with `body` in JSON.
pub(super) fn post_json<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    body: &impl Serialize,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    change_json(options, method, (target, None), body, show)
}

/// As [`post_json`], if `version` is still the target's. `None`: whatever its version is.
pub(super) fn change_json<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    (target, version): (&str, Option<&str>),
    body: &impl Serialize,
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    let body = serde_json::to_vec(body).map_err(io::Error::from)?;
    send_and_show(options, method, target, (body.into(), version), show)
}

fn send_and_show<T: DeserializeOwned>(
    options: &Options,
    method: Method,
    target: &str,
    (body, version): (Bytes, Option<&str>),
    show: impl FnOnce(&T) -> String,
) -> Result<String, AdminError> {
    let if_match = version.map(|version| HeaderValue::try_from(format!("\"{version}\"")));
    let if_match = if_match.transpose().map_err(|_| {
        AdminError::WrongArgument("--if-match: write a version as `tollgate keys show` prints it".into())
    })?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let body = runtime.block_on(with_timeout(options, TIMEOUT, async {
        let mut connection = AdminConnection { if_match, ..AdminConnection::open(options).await? };
        connection.send(method, target, body).await
    }))?;
    let unexpected = |reason: &dyn ToString| unexpected(&options.admin, reason);
    // Parsed with `--json`, too: another server's response is an error.
    let text =
        serde_json::from_slice(&body).map(|response| show(&response)).map_err(|error| unexpected(&error))?;
    if options.json {
        let json = std::str::from_utf8(&body).map_err(|error| unexpected(&error))?;
        return Ok(printable_json(json.trim_end()) + "\n");
    }
    Ok(text)
}

/// Sends a request for `target` and returns the response as it is.
pub(super) fn text(options: &Options, target: &str) -> Result<String, AdminError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let body = runtime.block_on(with_timeout(options, TIMEOUT, async {
        AdminConnection::open(options).await?.send(Method::GET, target, Bytes::new()).await
    }))?;
    String::from_utf8(body.into()).map_err(|error| unexpected(&options.admin, &error))
}

/// Prints the text or the error and returns the exit code.
pub(super) fn print_result(result: Result<String, AdminError>) -> ExitCode {
    match result {
        Ok(text) => match stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader closed the pipe (`| head`).
            Err(_) => ExitCode::FAILURE,
        },
        Err(failure) => {
            print_error(format_args!("tollgate: {}\n", printable(&failure.to_string())));
            failure.exit_code()
        }
    }
}

/// Encodes a path segment or a query value.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Appends the parameters that have a value to `path`.
pub(super) fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters
        .iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name}={}", percent_encoded(value))));
    match given.collect::<Vec<_>>().join("&") {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

fn unexpected(admin: &AdminUrl, reason: &dyn ToString) -> AdminError {
    AdminError::NotTollgate { admin: admin.clone(), reason: reason.to_string() }
}

/// Awaits `request`; an error after `within`.
pub(super) async fn with_timeout<T>(
    options: &Options,
    within: Duration,
    request: impl Future<Output = Result<T, AdminError>>,
) -> Result<T, AdminError> {
    let late = |_| AdminError::Timeout { admin: options.admin.clone(), within };
    time::timeout(within, request).await.map_err(late)?
}

/// A connection to the admin port, for one request at a time.
#[derive(Debug)]
pub(super) struct AdminConnection {
    admin: AdminUrl,
    authorization: Option<HeaderValue>,
    /// The version that the requested change applies to, sent as `If-Match`.
    if_match: Option<HeaderValue>,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl AdminConnection {
    pub(super) async fn open(options: &Options) -> Result<Self, AdminError> {
        let admin = options.admin.clone();
        // A token read from a file often ends with a line break.
        let token = options.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        let bearer = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let authorization = bearer.transpose().map_err(|_| AdminError::Token)?;
        let stream = TcpStream::connect(admin.host_and_port())
            .await
            .map_err(|source| AdminError::Connect { admin: admin.clone(), source })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AdminError::Broken { admin: admin.clone(), reason: error.to_string() })?;
        // Ends with the runtime or the sender. Its errors show in the response.
        tokio::spawn(connection);
        Ok(Self { admin, authorization, if_match: None, sender })
    }

    /// Sends a request and parses the response.
    pub(super) async fn request<T: DeserializeOwned>(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<T, AdminError> {
        let response = self.send(method, target, body).await?;
        self.parse(&response)
    }

    /// Parses a response body.
    pub(super) fn parse<T: DeserializeOwned>(&self, response: &[u8]) -> Result<T, AdminError> {
        serde_json::from_slice(response).map_err(|error| unexpected(&self.admin, &error))
    }

    /// Sends a request and returns the response body, if its status is a success.
    pub(super) async fn send(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<Bytes, AdminError> {
        let response = self.response(method, target, body).await?;
        self.collect(response.into_body()).await
    }

    /// Requests the stream of events.
    pub(super) async fn events(&mut self) -> Result<Incoming, AdminError> {
        let response = self.response(Method::GET, "/v1/events", Bytes::new()).await?;
        let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        match kind.starts_with(b"text/event-stream") {
            true => Ok(response.into_body()),
            false => Err(unexpected(&self.admin, &"it sends no events")),
        }
    }

    /// Sends a request and returns the response, if its status is a success.
    async fn response(
        &mut self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, AdminError> {
        let mut request = Request::builder().method(method).uri(target).header(HOST, self.admin.authority());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(version) = &self.if_match {
            request = request.header(IF_MATCH, version);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| self.broken(&error))?;
        self.sender.ready().await.map_err(|error| self.broken(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        match response.status() {
            StatusCode::OK | StatusCode::CREATED => Ok(response),
            _ => Err(self.failure(response).await),
        }
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, AdminError> {
        let body = Limited::new(body, MAX_BODY).collect().await;
        Ok(body.map_err(|error| self.broken(&error))?.to_bytes())
    }

    /// The error in a response that is not a success.
    async fn failure(&self, response: Response<Incoming>) -> AdminError {
        let status = response.status();
        match status {
            StatusCode::UNAUTHORIZED if self.authorization.is_some() => {
                return AdminError::WrongToken(self.admin.clone());
            }
            StatusCode::UNAUTHORIZED => return AdminError::Unauthorized(self.admin.clone()),
            _ => {}
        }
        let body = match self.collect(response.into_body()).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        match serde_json::from_slice::<ProblemDetails>(&body) {
            Ok(problem) if !problem.errors.is_empty() => AdminError::Misconfigured {
                errors: problem.errors,
                problem: String::from_utf8_lossy(&body).into_owned(),
            },
            Ok(problem) if !problem.detail.is_empty() => match status {
                StatusCode::BAD_REQUEST => AdminError::WrongArgument(problem.detail),
                StatusCode::SERVICE_UNAVAILABLE => AdminError::Unavailable(problem.detail),
                _ => AdminError::Refused(problem.detail),
            },
            _ => unexpected(&self.admin, &format_args!("it responded with {status}")),
        }
    }

    fn broken(&self, reason: &dyn ToString) -> AdminError {
        AdminError::Broken { admin: self.admin.clone(), reason: reason.to_string() }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::net::SocketAddr;

    use super::*;

    /// Options for an admin port at `address`.
    pub(in super::super) fn options(address: SocketAddr, token: Option<&str>) -> Options {
        Options { admin: address.into(), token: token.map(str::to_owned), json: false }
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
    fn a_token_that_was_read_from_a_file_may_end_with_a_line_break() {
        let harness = Harness::start(Some("s3cret"));
        assert!(status(&options(harness.address, Some("s3cret\n"))).is_ok());
        let malformed = status(&options(harness.address, Some("s3\ncret"))).unwrap_err();
        assert!(malformed.starts_with("the token contains characters"), "{malformed}");
    }

    #[test]
    fn a_refused_connection_is_reported_in_one_line() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
        let refused = status(&options(free, None)).unwrap_err();
        assert!(
            refused.starts_with(&format!("cannot connect to the admin port at http://{free}: ")),
            "{refused}"
        );
        assert_eq!(refused.lines().count(), 1);
    }

    #[test]
    fn a_query_has_the_parameters_that_are_given() {
        assert_eq!(with_query("/v1/bans", &[("key", None), ("limit", None)]), "/v1/bans");
        let query =
            with_query("/v1/bans", &[("key", Some("user:a b")), ("limit", None), ("cursor", Some("x"))]);
        assert_eq!(query, "/v1/bans?key=user%3Aa%20b&cursor=x");
    }
}
