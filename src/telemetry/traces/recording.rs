//! The recording of a sampled request: spans of the server, the decision and the upstream, by OpenTelemetry's semantic
//! conventions for HTTP.

use std::{
    borrow::Cow,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{Method, StatusCode, uri::Authority};
use opentelemetry::{
    InstrumentationScope, KeyValue, Value,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{
    context::{TraceContext, new_span},
    export::Exporter,
};
use crate::config::model::Endpoint;

/// The attributes of a request when it arrives.
#[derive(Debug)]
pub struct RequestStart {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    /// `http` or `https`.
    pub scheme: &'static str,
    pub method: Method,
    /// Without the query, which may contain secrets.
    pub path: String,
    pub host: Option<String>,
    /// The ID in its log lines.
    pub request_id: String,
}

/// The outcome of forwarding a request.
#[derive(Debug, Clone, Copy)]
pub enum UpstreamResult<'a> {
    /// This endpoint responded.
    Answered(&'a Endpoint, StatusCode),
    /// No endpoint responded, and the client gets this status.
    Failed(StatusCode),
}

/// The attributes of a request when it has ended.
#[derive(Debug)]
pub struct RequestEnd<'a> {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    /// `None`: the client closed the connection before.
    pub status: Option<StatusCode>,
    /// `grpc-status`; `None`: it is not a gRPC call, or has no status.
    pub grpc_status: Option<u32>,
    pub client: IpAddr,
    pub route: Option<&'a str>,
    pub policy: Option<&'a str>,
    pub verdict: Option<&'static str>,
}

/// The recording of a request in progress.
#[derive(Debug)]
pub(super) struct Recording {
    exporter: Arc<Exporter>,
    trace: TraceId,
    parent: Option<TraceContext>,
    link: Option<TraceContext>,
    start: RequestStart,
    server: SpanId,
    /// Chosen in advance, because the upstream gets it before the span is recorded.
    forwarding_span: SpanId,
    deciding: Option<OpenSpan>,
    forwarding: Option<OpenSpan>,
    /// Whose API key the request has.
    of_key: Vec<KeyValue>,
    /// The proxy that has asked about the request.
    front: Option<&'static str>,
    done: Vec<SpanData>,
}

/// A span that has not ended yet.
#[derive(Debug)]
struct OpenSpan {
    began: i64,
    attributes: Vec<KeyValue>,
}

impl Recording {
    pub(super) fn new(
        exporter: Arc<Exporter>,
        trace: TraceId,
        parent: Option<TraceContext>,
        link: Option<TraceContext>,
        start: RequestStart,
    ) -> Self {
        Self {
            exporter,
            trace,
            parent,
            link,
            start,
            server: new_span(),
            forwarding_span: new_span(),
            deciding: None,
            forwarding: None,
            of_key: Vec::new(),
            front: None,
            done: Vec::with_capacity(3),
        }
    }

    pub(super) fn forwarding_span(&self) -> SpanId {
        self.forwarding_span
    }

    pub(super) fn set_key<'a>(&mut self, attributes: impl IntoIterator<Item = (&'static str, &'a str)>) {
        let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value.to_owned()));
        self.of_key = attributes.collect();
    }

    pub(super) fn set_front(&mut self, front: &'static str) {
        self.front = Some(front);
    }

    pub(super) fn start_decision(&mut self, began: i64, checks: usize) {
        let checks = KeyValue::new("tollgate.checks", i64::try_from(checks).unwrap_or(i64::MAX));
        let store = KeyValue::new("tollgate.store", self.exporter.store());
        self.deciding = Some(OpenSpan { began, attributes: vec![store, checks] });
    }

    pub(super) fn end_decision(&mut self, time: i64, source: Option<&'static str>) {
        let Some(mut step) = self.deciding.take() else { return };
        let status = match source {
            Some(source) => {
                step.attributes.push(KeyValue::new("tollgate.source", source));
                Status::Unset
            }
            None => error(&mut step.attributes, "undecided"),
        };
        self.child(new_span(), SpanKind::Internal, "decide".into(), step, time, status);
    }

    pub(super) fn start_forwarding(&mut self, began: i64, upstream: &str) {
        let mut attributes = vec![KeyValue::new("tollgate.upstream", upstream.to_owned())];
        attributes.extend(method(&self.start.method));
        self.forwarding = Some(OpenSpan { began, attributes });
    }

    pub(super) fn end_forwarding(&mut self, time: i64, result: UpstreamResult<'_>) {
        let Some(OpenSpan { began, mut attributes }) = self.forwarding.take() else { return };
        let status = match result {
            UpstreamResult::Answered(endpoint, status) => {
                attributes.extend(server(&endpoint.authority));
                let url = format!("{}://{}{}", endpoint.scheme(), endpoint.authority, self.start.path);
                attributes.push(KeyValue::new("url.full", url));
                attributes.push(status_code(status));
                // Errors of a client span include 4xx; those of a server span only 5xx.
                let is_error = status.is_client_error() || status.is_server_error();
                if is_error { error(&mut attributes, status.as_str().to_owned()) } else { Status::Unset }
            }
            UpstreamResult::Failed(StatusCode::GATEWAY_TIMEOUT) => error(&mut attributes, "timeout"),
            UpstreamResult::Failed(StatusCode::SERVICE_UNAVAILABLE) => error(&mut attributes, "overloaded"),
            UpstreamResult::Failed(
                StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE,
            ) => error(&mut attributes, "request_body"),
            UpstreamResult::Failed(_) => error(&mut attributes, "no_answer"),
        };
        let (span, name) = (self.forwarding_span, name(&self.start.method, None));
        self.child(span, SpanKind::Client, name, OpenSpan { began, attributes }, time, status);
    }

    /// Queues all spans.
    pub(super) fn end(mut self: Box<Self>, end: &RequestEnd<'_>) {
        // Open spans: the client closed the connection meanwhile.
        if let Some(mut step) = self.deciding.take() {
            let status = error(&mut step.attributes, "cancelled");
            self.child(new_span(), SpanKind::Internal, "decide".into(), step, end.time, status);
        }
        if let Some(mut step) = self.forwarding.take() {
            let status = error(&mut step.attributes, "cancelled");
            let (span, name) = (self.forwarding_span, name(&self.start.method, None));
            self.child(span, SpanKind::Client, name, step, end.time, status);
        }
        let mut attributes = self.request_attributes(end);
        attributes.extend(end.grpc_status.map(|of| KeyValue::new("rpc.grpc.status_code", i64::from(of))));
        let status = match end.status {
            Some(status) if end.grpc_status.is_some_and(is_server_error_of_grpc) => {
                attributes.push(status_code(status));
                error(&mut attributes, end.grpc_status.unwrap_or_default().to_string())
            }
            Some(status) => {
                attributes.push(status_code(status));
                match status.is_server_error() {
                    true => error(&mut attributes, status.as_str().to_owned()),
                    false => Status::Unset,
                }
            }
            None => {
                // Not an error of the server span.
                attributes.push(KeyValue::new("error.type", "cancelled"));
                Status::Unset
            }
        };
        let name = name(&self.start.method, end.route);
        let step = OpenSpan { began: self.start.time, attributes };
        let mut server = self.span(self.server, SpanKind::Server, name, step, end.time, status);
        if let Some(parent) = self.parent {
            (server.parent_span_id, server.parent_span_is_remote) = (parent.span, true);
        } else {
            (server.parent_span_id, server.parent_span_is_remote) = (SpanId::INVALID, false);
        }
        let link = self.link.map(|link| {
            let context = SpanContext::new(link.trace, link.span, link.flags(), true, TraceState::NONE);
            Link::new(context, Vec::new(), 0)
        });
        server.links.links.extend(link);
        self.done.push(server);
        let Self { exporter, done, .. } = *self;
        exporter.hand_over(done);
    }

    fn request_attributes(&self, end: &RequestEnd<'_>) -> Vec<KeyValue> {
        let mut attributes: Vec<KeyValue> = method(&self.start.method).collect();
        attributes.push(KeyValue::new("url.scheme", self.start.scheme));
        attributes.push(KeyValue::new("url.path", self.start.path.clone()));
        attributes.push(KeyValue::new("client.address", end.client.to_string()));
        attributes.push(KeyValue::new("tollgate.request_id", self.start.request_id.clone()));
        if let Some(host) = self.start.host.as_ref().and_then(|host| host.parse::<Authority>().ok()) {
            attributes.extend(server(&host));
        }
        let optional = [
            ("http.route", end.route.map(|route| Value::from(route.to_owned()))),
            ("tollgate.policy", end.policy.map(|policy| Value::from(policy.to_owned()))),
            ("tollgate.verdict", end.verdict.map(Value::from)),
            ("tollgate.front", self.front.map(Value::from)),
        ];
        let present = optional.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        attributes.extend(present);
        attributes.extend_from_slice(&self.of_key);
        attributes
    }

    fn child(
        &mut self,
        id: SpanId,
        kind: SpanKind,
        name: Cow<'static, str>,
        step: OpenSpan,
        ended: i64,
        status: Status,
    ) {
        let span = self.span(id, kind, name, step, ended, status);
        self.done.push(span);
    }

    /// Builds a span below the server span.
    fn span(
        &self,
        id: SpanId,
        kind: SpanKind,
        name: Cow<'static, str>,
        step: OpenSpan,
        ended: i64,
        status: Status,
    ) -> SpanData {
        let span_context = SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE);
        SpanData {
            span_context,
            parent_span_id: self.server,
            parent_span_is_remote: false,
            span_kind: kind,
            name,
            start_time: system_time(step.began),
            end_time: system_time(ended.max(step.began)),
            attributes: step.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("tollgate").build(),
        }
    }
}

/// `GET login`: method and route, both from a bounded set, so that clients cannot create many names.
fn name(method: &Method, route: Option<&str>) -> Cow<'static, str> {
    let method = known_method(method).unwrap_or("HTTP");
    match route {
        Some(route) => format!("{method} {route}").into(),
        None => method.into(),
    }
}

/// The method, if the conventions list it.
fn known_method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str())
}

fn method(method: &Method) -> impl Iterator<Item = KeyValue> {
    let original = match known_method(method) {
        Some(_) => None,
        None => Some(KeyValue::new("http.request.method_original", method.as_str().to_owned())),
    };
    std::iter::once(KeyValue::new("http.request.method", known_method(method).unwrap_or("_OTHER")))
        .chain(original)
}

fn server(authority: &Authority) -> impl Iterator<Item = KeyValue> {
    let port = authority.port_u16().map(|port| KeyValue::new("server.port", i64::from(port)));
    std::iter::once(KeyValue::new("server.address", authority.host().to_owned())).chain(port)
}

fn status_code(status: StatusCode) -> KeyValue {
    KeyValue::new("http.response.status_code", i64::from(status.as_u16()))
}

/// UNKNOWN, `DEADLINE_EXCEEDED`, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and `DATA_LOSS` are server errors (semantic
/// conventions for gRPC).
fn is_server_error_of_grpc(status: u32) -> bool {
    matches!(status, 2 | 4 | 12..=15)
}

/// Adds `error.type` and returns an error status.
fn error(attributes: &mut Vec<KeyValue>, kind: impl Into<Value>) -> Status {
    attributes.push(KeyValue::new("error.type", kind));
    Status::error("")
}

/// Microseconds since the Unix epoch.
fn system_time(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
