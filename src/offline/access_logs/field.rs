//! What the fields of a log line tell of a request, by the names that servers have for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    sync::LazyLock,
};

use compact_str::CompactString;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, request};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use smallvec::SmallVec;

use super::{
    LoggedKey, LoggedProgress, LoggedRequest, LoggedUser,
    value::{LogTime, LogValue, TimeCache, address, address_with_port},
};
use crate::{
    limit::{GrpcOutcome, ResponseStatus},
    router,
};

/// What a field tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    /// Nothing about the request.
    Ignored,
    /// When the request arrived.
    Start,
    /// When the response ended or the line was written.
    End,
    /// [`Start`](Self::Start) in Tollgate's log, [`End`](Self::End) in others.
    Time,
    /// The date of [`TimeOfDay`](Self::TimeOfDay), UTC: `2026-07-03`.
    Date,
    TimeOfDay,
    Duration(Unit),
    /// One of several that add up.
    PartOfDuration(Unit),
    /// Only Tollgate's log has it.
    TollgateDuration,
    /// Seconds in Caddy's log, milliseconds in Envoy's.
    CaddyOrEnvoyDuration,
    /// Only Caddy's log has it.
    CaddyLogger,
    Client,
    /// With a port, and IPv6 without brackets.
    ClientAndPort,
    /// `X-Forwarded-For`, if no other field has the client: its last address.
    LastForwardedFor,
    User,
    /// `GET /path HTTP/1.1`, or with a whole URL: `GET https://host:443/path HTTP/1.1`
    RequestLine,
    Method,
    /// The path with the query, as the client sent it.
    Target,
    /// The path without the query, as the client sent it.
    Path,
    /// The path, decoded.
    DecodedPath,
    /// The path, decoded, followed by the query as the client sent it.
    DecodedPathAndQuery,
    Query,
    Host,
    Status,
    GrpcStatus,
    Bytes,
    Reserved,
    Charged,
    Header(HeaderName),
    /// A header field, percent-encoded.
    EncodedHeader(HeaderName),
    /// An object of header fields.
    Headers,
    /// An object of the values that Tollgate's configuration names.
    Values,
    Cookie(String),
    /// Tollgate's.
    Verdict,
    Route,
    Upstream,
    ApiKey,
    Customer,
    Plan,
    /// HAProxy's: `PR--`.
    Termination,
    /// Of nginx' `limit_req` and `limit_conn`.
    LimitStatus,
    /// Envoy's: `UF,URX`.
    ResponseFlags,
    /// The status that an AWS load balancer got from the service.
    TargetStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    fn micros(self, number: f64) -> i64 {
        let micros = match self {
            Self::Seconds => 1e6,
            Self::Millis => 1e3,
            Self::Micros => 1.0,
            Self::Nanos => 1e-3,
        };
        (number * micros).round() as i64
    }
}

/// A field, and its rank among those that tell the same: the lowest that a line has counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) field: Field,
    pub(super) rank: u8,
}

/// The names of fields, those that count first being first: variables of nginx, and members of the JSON logs of Tollgate,
/// Caddy, Traefik, Envoy and Cloudflare. `request.uri` is a nested member.
const NAMES: &[(Field, &[&str])] = &[
    (Field::Start, &["StartUTC", "start_time", "EdgeStartTimestamp", "request_creation_time"]),
    (Field::Time, &["time", "timestamp", "@timestamp"]),
    (Field::End, &["EdgeEndTimestamp", "msec", "ts", "time_iso8601", "time_local"]),
    (Field::TollgateDuration, &["duration_ms"]),
    (Field::Duration(Unit::Seconds), &["request_time"]),
    (Field::CaddyOrEnvoyDuration, &["duration"]),
    (Field::Duration(Unit::Nanos), &["Duration"]),
    (Field::Duration(Unit::Millis), &["milliseconds"]),
    (Field::PartOfDuration(Unit::Seconds), &["processing_time"]),
    (Field::CaddyLogger, &["logger"]),
    (
        Field::Client,
        &[
            "client",
            "request.client_ip",
            "request.remote_ip",
            "ClientHost",
            "remote_addr",
            "client_ip",
            "remote_ip",
            "clientip",
            "ClientIP",
            "downstream_remote_address_without_port",
            "downstream_remote_address",
            "realip_remote_addr",
        ],
    ),
    (Field::ClientAndPort, &["client_and_port"]),
    (Field::User, &["user", "user_id", "remote_user", "ClientUsername"]),
    (Field::Method, &["method", "request.method", "RequestMethod", "request_method", "ClientRequestMethod"]),
    (Field::Target, &["path", "request.uri", "RequestPath", "request_uri", "ClientRequestURI"]),
    (Field::RequestLine, &["request", "request_line", "request_with_url"]),
    (Field::DecodedPath, &["uri", "url", "document_uri"]),
    (Field::Query, &["args", "query_string"]),
    (
        Field::Host,
        &[
            "host",
            "request.host",
            "RequestHost",
            "http_host",
            "authority",
            "ClientRequestHost",
            "server_name",
        ],
    ),
    (Field::Status, &["status", "DownstreamStatus", "response_code", "EdgeResponseStatus"]),
    (Field::GrpcStatus, &["grpc_status"]),
    (
        Field::Bytes,
        &["bytes", "size", "DownstreamContentSize", "body_bytes_sent", "bytes_sent", "EdgeResponseBytes"],
    ),
    (Field::Reserved, &["reserved"]),
    (Field::Charged, &["charged"]),
    (Field::Header(header::USER_AGENT), &["user_agent", "ClientRequestUserAgent"]),
    (Field::Header(header::REFERER), &["referer", "referrer", "ClientRequestReferer"]),
    (Field::Headers, &["request.headers", "RequestHeaders"]),
    (Field::Verdict, &["verdict"]),
    (Field::Route, &["route"]),
    (Field::Upstream, &["upstream"]),
    (Field::ApiKey, &["api_key"]),
    (Field::Customer, &["customer"]),
    (Field::Plan, &["plan"]),
    (Field::Values, &["values"]),
    (Field::Termination, &["termination_state"]),
    (Field::LimitStatus, &["limit_req_status", "limit_conn_status"]),
    (Field::ResponseFlags, &["response_flags"]),
    (Field::TargetStatus, &["target_status"]),
];

/// The meanings by name.
static MEANINGS: LazyLock<HashMap<&str, Meaning>> = LazyLock::new(|| {
    let ranked = NAMES.iter().flat_map(|(field, names)| {
        (0..).zip(*names).map(|(rank, name)| (*name, Meaning { field: field.clone(), rank }))
    });
    ranked.collect()
});

impl Meaning {
    pub(super) fn of(field: Field) -> Self {
        Self { field, rank: 0 }
    }

    /// The meaning of a variable of nginx, or of a member of a JSON object. An unknown one tells nothing.
    pub(super) fn by_name(name: &str) -> Self {
        if let Some(meaning) = MEANINGS.get(name) {
            return meaning.clone();
        }
        let header = |name: &str, separator: &str| {
            let name = name.replace(separator, "-").to_ascii_lowercase();
            name.parse().map_or(Field::Ignored, Field::Header)
        };
        Self::of(if let Some(name) = name.strip_prefix("http_") {
            header(name, "_")
        } else if let Some(name) = name.strip_prefix("cookie_") {
            Field::Cookie(name.to_owned())
        } else if let Some(name) = name
            .strip_prefix("request_")
            .filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
        {
            // Traefik's. Variables of nginx, such as `request_length`, are in lower case.
            header(name, "-")
        } else {
            Field::Ignored
        })
    }

    /// Ignores a header field that the caller does not want.
    pub(super) fn only(mut self, wanted: &WantedHeaders) -> Self {
        let is_wanted = match &self.field {
            Field::Header(name) | Field::EncodedHeader(name) => wanted.has(name),
            Field::Cookie(_) => wanted.has(&header::COOKIE),
            Field::Host => wanted.has(&header::HOST),
            Field::Headers => wanted.0.as_ref().is_none_or(|wanted| !wanted.is_empty()),
            _ => true,
        };
        if !is_wanted {
            self.field = Field::Ignored;
        }
        self
    }
}

/// The header fields that the caller wants. `None`: all.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedHeaders(pub(super) Option<HashSet<HeaderName>>);

impl WantedHeaders {
    pub(super) fn has(&self, name: &HeaderName) -> bool {
        self.0.as_ref().is_none_or(|wanted| wanted.contains(name))
    }
}

impl Field {
    /// What a value of this field must be.
    pub(super) fn expected(&self) -> &'static str {
        match self {
            Self::Start | Self::End | Self::Time => "a time",
            Self::Client | Self::ClientAndPort | Self::LastForwardedFor => "an IP address",
            Self::Status => "a status",
            _ => "a value",
        }
    }

    /// Whether few texts are a value of this field.
    pub(super) fn is_strict(&self) -> bool {
        self.expected() != "a value"
    }

    /// Whether it is text of the client, which servers escape.
    pub(super) fn is_escaped(&self) -> bool {
        matches!(
            self,
            Self::User
                | Self::RequestLine
                | Self::Method
                | Self::Target
                | Self::Path
                | Self::DecodedPath
                | Self::DecodedPathAndQuery
                | Self::Query
                | Self::Host
                | Self::Header(_)
                | Self::Cookie(_)
        )
    }
}

/// Why a line has no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The client sent something other than HTTP, which policies never check.
    Http,
    /// A field that each request has: `time`.
    Field(&'static str),
}

/// A request, and the precision of its time.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) request: LoggedRequest,
    /// Whether its time has no fraction of a second.
    pub(super) is_whole_second: bool,
}

/// What the fields of one line have told so far.
#[derive(Default)]
pub(super) struct LogFields<'l> {
    start: Ranked<LogTime>,
    end: Ranked<LogTime>,
    time: Ranked<LogTime>,
    date: Option<Cow<'l, [u8]>>,
    time_of_day: Option<Cow<'l, [u8]>>,
    /// In microseconds.
    duration: Ranked<i64>,
    caddy_or_envoy_duration: Option<f64>,
    is_caddy: bool,
    is_tollgate: bool,
    client: Ranked<IpAddr>,
    user: Ranked<Cow<'l, [u8]>>,
    has_null_user: bool,
    method: Ranked<Cow<'l, [u8]>>,
    target: Ranked<Cow<'l, [u8]>>,
    line: Ranked<Cow<'l, [u8]>>,
    path: Option<Cow<'l, [u8]>>,
    query: Option<Cow<'l, [u8]>>,
    /// Whether it has a field for the request, even one without a value.
    has_request: bool,
    host: Ranked<Cow<'l, [u8]>>,
    status: Ranked<StatusCode>,
    has_no_status: bool,
    grpc_status: Option<u32>,
    bytes: Ranked<u64>,
    reserved: Option<u64>,
    charged: Option<u64>,
    headers: SmallVec<[(HeaderName, Cow<'l, [u8]>); 2]>,
    progress: Option<LoggedProgress>,
    tollgate: TollgateFields<'l>,
}

/// What only Tollgate's log tells. The outer `None`: it has no such field. The inner: the value is null.
#[derive(Default)]
struct TollgateFields<'l> {
    verdict: Option<Option<Cow<'l, [u8]>>>,
    has_route: Option<bool>,
    has_upstream: Option<bool>,
    api_key: Option<Cow<'l, [u8]>>,
    customer: Option<Cow<'l, [u8]>>,
    plan: Option<Cow<'l, [u8]>>,
    values: BTreeMap<String, Option<CompactString>>,
}

/// A value with its rank.
struct Ranked<T>(u8, Option<T>);

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self(u8::MAX, None)
    }
}

impl<T> Ranked<T> {
    /// Keeps `value` if it counts before the present one. Returns whether there is a value.
    fn put(&mut self, rank: u8, value: Option<T>) -> bool {
        let is_some = value.is_some();
        if is_some && rank < self.0 {
            *self = Self(rank, value);
        }
        is_some
    }
}

/// What a decoded path has to have encoded to be a request target.
const PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

impl<'l> LogFields<'l> {
    /// Takes in the value of a field. Returns whether the value can be one of this field.
    pub(super) fn set(&mut self, meaning: &Meaning, value: LogValue<'l>, times: &mut TimeCache) -> bool {
        let rank = meaning.rank;
        match &meaning.field {
            Field::Ignored => {}
            Field::Start => return self.start.put(rank, times.of(&value)),
            Field::End => return self.end.put(rank, times.of(&value)),
            Field::Time => return self.time.put(rank, times.of(&value)),
            Field::Date => self.date = value.into_text(),
            Field::TimeOfDay => self.time_of_day = value.into_text(),
            Field::Duration(unit) => {
                self.duration.put(rank, value.number().map(|number| unit.micros(number)));
            }
            Field::PartOfDuration(unit) => {
                // AWS writes -1 if there was no response.
                let part = value.number().map_or(0, |number| unit.micros(number));
                let sum = self.duration.1.unwrap_or(0).saturating_add(part);
                self.duration = Ranked(rank, Some(sum));
            }
            Field::TollgateDuration => {
                self.is_tollgate = true;
                self.duration.put(rank, value.number().map(|number| Unit::Millis.micros(number)));
            }
            Field::CaddyOrEnvoyDuration => self.caddy_or_envoy_duration = value.number(),
            Field::CaddyLogger => self.is_caddy = true,
            Field::Client => return self.client.put(rank, text(&value).and_then(address)),
            Field::ClientAndPort => return self.client.put(rank, text(&value).and_then(address_with_port)),
            Field::LastForwardedFor => return self.tell_forwarded_for(value),
            Field::User => {
                self.has_null_user |= value == LogValue::Null;
                self.user.put(rank, value.into_text());
            }
            Field::RequestLine => {
                self.has_request = true;
                self.line.put(rank, value.into_text());
            }
            Field::Method => {
                self.method.put(rank, value.into_text());
            }
            Field::Target => {
                self.has_request = true;
                self.target.put(rank, value.into_text());
            }
            Field::Path => {
                self.has_request = true;
                self.path = value.into_text();
            }
            Field::DecodedPath => {
                self.has_request = true;
                self.path = value.into_text().map(|path| encoded(&path).into());
            }
            Field::DecodedPathAndQuery => {
                self.has_request = true;
                let Some(text) = value.into_text() else { return true };
                let mut parts = text.splitn(2, |&byte| byte == b'?');
                self.path = parts.next().map(|path| encoded(path).into());
                self.query = parts.next().map(|query| query.to_vec().into());
            }
            Field::Query => self.query = value.into_text(),
            Field::Host => {
                // nginx' server without a name.
                self.host.put(rank, value.into_text().filter(|host| **host != *b"_"));
            }
            Field::Status => return self.tell_status(rank, &value),
            Field::GrpcStatus => self.grpc_status = value.integer().and_then(|status| status.try_into().ok()),
            Field::Bytes => {
                let bytes = match &value {
                    // Apache writes `-` for none.
                    LogValue::Text(text) if **text == *b"-" => Some(0),
                    LogValue::Text(text) => {
                        LogValue::Text(text.strip_prefix(b"+").unwrap_or(text).into()).integer()
                    }
                    value => value.integer(),
                };
                self.bytes.put(rank, bytes.and_then(|bytes| bytes.try_into().ok()));
            }
            Field::Reserved => self.reserved = value.integer().and_then(|units| units.try_into().ok()),
            Field::Charged => self.charged = value.integer().and_then(|units| units.try_into().ok()),
            Field::Header(name) => self.tell_header(name, value),
            Field::EncodedHeader(name) => {
                if let Some(text) = value.into_text() {
                    self.headers.push((name.clone(), percent_decode(&text).collect::<Vec<_>>().into()));
                }
            }
            Field::Headers | Field::Values => {}
            Field::Cookie(name) => {
                if let Some(text) = value.into_text() {
                    let cookie = [name.as_bytes(), b"=", &text].concat();
                    self.headers.push((header::COOKIE, cookie.into()));
                }
            }
            Field::Verdict => self.tollgate.verdict = Some(value.into_text()),
            Field::Route => self.tollgate.has_route = Some(value != LogValue::Null),
            Field::Upstream => self.tollgate.has_upstream = Some(value != LogValue::Null),
            Field::ApiKey => self.tollgate.api_key = value.into_text(),
            Field::Customer => self.tollgate.customer = value.into_text(),
            Field::Plan => self.tollgate.plan = value.into_text(),
            Field::Termination | Field::LimitStatus | Field::ResponseFlags | Field::TargetStatus => {
                self.tell_progress(&meaning.field, &value);
            }
        }
        true
    }

    pub(super) fn tell_header(&mut self, name: &HeaderName, value: LogValue<'l>) {
        // Caddy redacts credentials.
        if let Some(text) = value.into_text().filter(|text| **text != *b"REDACTED") {
            self.headers.push((name.clone(), text));
        }
    }

    /// The last address is the one that the proxy itself has seen.
    fn tell_forwarded_for(&mut self, value: LogValue<'l>) -> bool {
        let Some(all) = value.into_text() else { return false };
        let last = all.rsplit(|&byte| byte == b',').next().and_then(|last| address(last.trim_ascii()));
        self.client.put(u8::MAX - 1, last)
    }

    fn tell_status(&mut self, rank: u8, value: &LogValue<'_>) -> bool {
        let number = match text(value) {
            Some(b"-" | b"000") => Some(0),
            _ => value.integer(),
        };
        match number {
            // The response never began.
            Some(-1 | 0) => {
                self.has_no_status = true;
                true
            }
            number => {
                let status = number.and_then(|number| StatusCode::from_u16(number.try_into().ok()?).ok());
                self.status.put(rank, status)
            }
        }
    }

    fn tell_progress(&mut self, field: &Field, value: &LogValue<'_>) {
        let Some(text) = text(value) else { return };
        let progress = match field {
            Field::Termination => progress_of_termination(text),
            Field::LimitStatus => (text == b"REJECTED").then_some(LoggedProgress::Unforwarded),
            Field::ResponseFlags => progress_of_flags(text),
            // The fields of an AWS load balancer have the status before.
            _ if text == b"-" => match self.status.1.map(|status| status.as_u16()) {
                Some(460 | 502 | 504) | None => Some(LoggedProgress::NoResponse),
                Some(_) => Some(LoggedProgress::Unforwarded),
            },
            _ => None,
        };
        self.progress = self.progress.or(progress);
    }

    /// The request.
    ///
    /// # Errors
    /// The line lacks a field that each request has, or the client did not send HTTP.
    pub(super) fn into_line(self, times: &mut TimeCache) -> Result<LogLine, Lack> {
        let duration = self.duration();
        let time = self.arrival(duration, times).ok_or(Lack::Field("time"))?;
        let client = self.client.1.ok_or(Lack::Field("client"))?;
        if !self.has_request {
            return Err(Lack::Field("request"));
        }
        let duration = duration.or_else(|| {
            let (start, end) = (self.start.1?, self.end.1?);
            let is_exact = !start.is_whole_second && !end.is_whole_second && start.micros <= end.micros;
            is_exact.then(|| end.micros - start.micros)
        });
        let progress = self.progress();
        let (mut parts, host_of_url) = self.request().ok_or(Lack::Http)?;
        let host = host_of_url.or(self.host.1).map(|host| (header::HOST, host));
        for (name, value) in self.headers.into_iter().chain(host) {
            // Invalid fields were altered by the log.
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                parts.headers.append(name, value);
            }
        }
        let user = match self.user.1 {
            Some(name) => LoggedUser::Named(String::from_utf8_lossy(&name).as_ref().into()),
            None if self.is_tollgate && self.has_null_user => LoggedUser::Absent,
            None => LoggedUser::Unknown,
        };
        let no_response = if self.has_no_status { client_closed() } else { StatusCode::OK };
        let status = self.status.1.unwrap_or(no_response);
        let request = LoggedRequest {
            time: time.micros,
            duration,
            client,
            user,
            key: if self.is_tollgate { self.tollgate.key() } else { None },
            request: parts,
            status: ResponseStatus { http: status, grpc: GrpcOutcome::Known(self.grpc_status) },
            bytes: self.bytes.1,
            reserved: self.reserved.filter(|_| self.is_tollgate),
            charged: self.charged.filter(|_| self.is_tollgate),
            progress,
            values: if self.is_tollgate { self.tollgate.values } else { BTreeMap::new() },
        };
        Ok(LogLine { request, is_whole_second: time.is_whole_second })
    }

    fn duration(&self) -> Option<i64> {
        // A day: requests that last longer would all be in memory until they end.
        const LONGEST: i64 = 86_400_000_000;
        let unit = if self.is_caddy { Unit::Seconds } else { Unit::Millis };
        let other = || self.caddy_or_envoy_duration.map(|number| unit.micros(number));
        self.duration.1.or_else(other).filter(|micros| *micros <= LONGEST)
    }

    fn arrival(&self, duration: Option<i64>, times: &mut TimeCache) -> Option<LogTime> {
        let start = self.start.1.or(self.time.1.filter(|_| self.is_tollgate));
        let of_day = || {
            let (date, time) = (self.date.as_ref()?, self.time_of_day.as_ref()?);
            times.read(&[date, &b"T"[..], time].concat())
        };
        start.or_else(|| {
            let end = self.end.1.or(self.time.1).or_else(of_day)?;
            let lasted = duration.unwrap_or(0);
            // Keep whole seconds whole.
            let lasted = if end.is_whole_second { lasted - lasted % 1_000_000 } else { lasted };
            Some(LogTime { micros: end.micros.saturating_sub(lasted), ..end })
        })
    }

    /// The request, and its host if its line has a URL. `None`: it is not HTTP.
    fn request(&self) -> Option<(request::Parts, Option<Cow<'l, [u8]>>)> {
        let line = self.line.1.as_deref().and_then(request_line);
        let of_path = || {
            let path = self.path.as_deref()?;
            Some(match self.query.as_deref() {
                None => Cow::Borrowed(path),
                Some(query) => [path, b"?", query].concat().into(),
            })
        };
        let method = self.method.1.as_deref();
        let (method, target) = match (method, self.target.1.as_deref(), line) {
            (Some(method), Some(target), _) => (method, Cow::Borrowed(target)),
            (_, _, Some((method, target))) => (method, target.into()),
            (Some(method), None, None) => (method, of_path()?),
            _ => return None,
        };
        if method == b"-" {
            return None;
        }
        let (target, host) = match origin_form(&target) {
            Some((host, path)) => (path, Some(host.to_vec().into())),
            None => (target, None),
        };
        let mut parts = Request::new(()).into_parts().0;
        parts.method = Method::from_bytes(method).ok()?;
        parts.uri = Uri::try_from(&*router::encode_target(&target)).ok()?;
        Some((parts, host))
    }

    fn progress(&self) -> LoggedProgress {
        let status = self.status.1.unwrap_or(StatusCode::OK);
        let of_tollgate = match self.is_tollgate {
            true => self.tollgate.progress(status),
            false => self.tollgate.progress_in_combined(),
        };
        let no_response = self.has_no_status.then_some(LoggedProgress::NoResponse);
        of_tollgate.or(self.progress).or(no_response).unwrap_or(LoggedProgress::Responded)
    }
}

impl LogFields<'_> {
    /// Takes in the values of a request. One that is neither a text nor `null`, as of a batch, is not known.
    pub(super) fn tell_values(&mut self, values: &serde_json::Value) {
        for (name, value) in values.as_object().into_iter().flatten() {
            let text = match value {
                serde_json::Value::Null => None,
                serde_json::Value::String(text) => Some(text.into()),
                _ => continue,
            };
            self.tollgate.values.insert(name.clone(), text);
        }
    }
}

impl TollgateFields<'_> {
    /// The request's valid API key.
    fn key(&self) -> Option<LoggedKey> {
        let text =
            |value: &Option<Cow<'_, [u8]>>| Some(String::from_utf8_lossy(value.as_ref()?).as_ref().into());
        Some(LoggedKey { id: text(&self.api_key)?, customer: text(&self.customer)?, plan: text(&self.plan) })
    }

    /// How far the request was processed. `None`: the line is not Tollgate's.
    fn progress(&self, status: StatusCode) -> Option<LoggedProgress> {
        let (verdict, has_route, has_upstream) =
            (self.verdict.as_ref()?.as_deref(), self.has_route?, self.has_upstream?);
        Some(match (verdict, status.as_u16()) {
            _ if has_upstream => LoggedProgress::Responded,
            (Some(b"banned" | b"unauthorized" | b"expired"), _) => LoggedProgress::Unchecked,
            // Another configuration may have a route for it.
            (None, 404) if !has_route => LoggedProgress::Unforwarded,
            (None, _) if !has_route => LoggedProgress::Unrouted,
            (None, 413) => LoggedProgress::Unchecked,
            // The client gave it up, or the response was too late.
            (None | Some(b"allowed" | b"shadow_denied"), 499 | 504) => LoggedProgress::NoResponse,
            // Includes denied requests: the replayed policies decide on them again.
            _ => LoggedProgress::Unforwarded,
        })
    }

    /// The combined format has the verdict only. Other words behind its fields are those of another server.
    fn progress_in_combined(&self) -> Option<LoggedProgress> {
        match self.verdict.as_ref()?.as_deref()? {
            b"denied" => Some(LoggedProgress::Unforwarded),
            b"banned" | b"unauthorized" | b"expired" => Some(LoggedProgress::Unchecked),
            _ => None,
        }
    }
}

fn text<'v>(value: &'v LogValue<'_>) -> Option<&'v [u8]> {
    if let LogValue::Text(text) = value { Some(text) } else { None }
}

fn encoded(path: &[u8]) -> Vec<u8> {
    percent_encode(path, PATH).flat_map(str::bytes).collect()
}

/// nginx' status of a request whose client closed the connection.
fn client_closed() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or_default()
}

/// The method and the target of `GET /path HTTP/1.1`. `None`: it is not a request line.
fn request_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (method, rest) = line.split_at(memchr::memchr(b' ', line)?);
    let rest = rest.trim_ascii_start();
    let (target, protocol) = rest.split_at(memchr::memrchr(b' ', rest)?);
    protocol.starts_with(b" HTTP/").then_some((method, target))
}

/// The host, without the scheme's port, and the path of `https://host:443/path`: some logs write all requests like this, and
/// clients of a proxy send them like this (RFC 9112, 3.2.2).
fn origin_form(url: &[u8]) -> Option<(&[u8], Cow<'_, [u8]>)> {
    let after = |scheme: &str| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    };
    let (rest, port) = match (after("https://"), after("http://")) {
        (Some(rest), _) => (rest, &b":443"[..]),
        (_, Some(rest)) => (rest, &b":80"[..]),
        _ => return None,
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let target = if target.starts_with(b"/") { target.into() } else { [b"/", target].concat().into() };
    Some((host.strip_suffix(port).unwrap_or(host), target))
}

/// HAProxy's first two letters: what ended the session, and when.
fn progress_of_termination(state: &[u8]) -> Option<LoggedProgress> {
    match state {
        // Denied, held in a tarpit, or answered by itself.
        [b'P', b'R' | b'T', ..] | [b'L', ..] => Some(LoggedProgress::Unforwarded),
        // While it waited for the response.
        [b'C' | b'c' | b'S' | b's' | b'P', b'H', ..] => Some(LoggedProgress::NoResponse),
        // While it waited for the request, in the queue, or for a connection to the service.
        [b'C' | b'c' | b'S' | b's', b'R' | b'Q' | b'C', ..] => Some(LoggedProgress::Unforwarded),
        _ => None,
    }
}

/// Envoy's flags, separated by commas.
fn progress_of_flags(flags: &[u8]) -> Option<LoggedProgress> {
    flags.split(|&byte| byte == b',').find_map(|flag| match flag {
        // No route, limited, not authorized, no healthy endpoint, a failed connection, an overflow, an injected fault.
        b"NR" | b"NC" | b"RL" | b"RLSE" | b"UAEX" | b"UH" | b"UF" | b"UO" | b"FI" | b"IH" | b"LH" => {
            Some(LoggedProgress::Unforwarded)
        }
        // A timeout, a client that left, a connection that broke.
        b"UT" | b"DC" | b"UC" | b"LR" | b"UR" | b"SI" => Some(LoggedProgress::NoResponse),
        _ => None,
    })
}
