//! What is recorded of a request that is sampled: the spans of its server, its decision and its upstream, by the
//! semantic conventions for HTTP of OpenTelemetry.

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
    context::{Context, new_span},
    export::Exporter,
};

/// What is known of a request when it comes.
#[derive(Debug)]
pub struct Head {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    pub method: Method,
    /// Without the query, in which there may be secrets.
    pub path: String,
    pub host: Option<String>,
    /// By which its lines in logs are found.
    pub request_id: String,
}

/// How an attempt at an upstream ended.
#[derive(Debug, Clone, Copy)]
pub enum Sent<'a> {
    /// This endpoint answered.
    Answered(&'a Authority, StatusCode),
    /// None did, and the client gets this status.
    Failed(StatusCode),
}

/// What is known of a request when it has ended.
#[derive(Debug)]
pub struct End<'a> {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    /// `None`: the client went away before.
    pub status: Option<StatusCode>,
    pub client: IpAddr,
    pub route: Option<&'a str>,
    pub policy: Option<&'a str>,
    pub verdict: Option<&'static str>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Recording {
    exporter: Arc<Exporter>,
    trace: TraceId,
    parent: Option<Context>,
    link: Option<Context>,
    head: Head,
    server: SpanId,
    /// Made beforehand: the upstream is told of it before it begins.
    forwarding_span: SpanId,
    deciding: Option<Step>,
    forwarding: Option<Step>,
    done: Vec<SpanData>,
}

/// A part of the way that has not ended yet.
#[derive(Debug)]
struct Step {
    began: i64,
    attributes: Vec<KeyValue>,
}

impl Recording {
    pub(super) fn new(
        exporter: Arc<Exporter>,
        trace: TraceId,
        parent: Option<Context>,
        link: Option<Context>,
        head: Head,
    ) -> Self {
        Self {
            exporter,
            trace,
            parent,
            link,
            head,
            server: new_span(),
            forwarding_span: new_span(),
            deciding: None,
            forwarding: None,
            done: Vec::with_capacity(3),
        }
    }

    pub(super) fn forwarding_span(&self) -> SpanId {
        self.forwarding_span
    }

    pub(super) fn deciding(&mut self, began: i64, checks: usize) {
        let checks = KeyValue::new("tollgate.checks", i64::try_from(checks).unwrap_or(i64::MAX));
        let store = KeyValue::new("tollgate.store", self.exporter.store());
        self.deciding = Some(Step { began, attributes: vec![store, checks] });
    }

    pub(super) fn decided(&mut self, time: i64, source: Option<&'static str>) {
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

    pub(super) fn forwarding(&mut self, began: i64, upstream: &str) {
        let mut attributes = vec![KeyValue::new("tollgate.upstream", upstream.to_owned())];
        attributes.extend(method(&self.head.method));
        self.forwarding = Some(Step { began, attributes });
    }

    pub(super) fn forwarded(&mut self, time: i64, sent: Sent<'_>) {
        let Some(Step { began, mut attributes }) = self.forwarding.take() else { return };
        let status = match sent {
            Sent::Answered(endpoint, status) => {
                attributes.extend(server(endpoint));
                let url = format!("http://{endpoint}{}", self.head.path);
                attributes.push(KeyValue::new("url.full", url));
                attributes.push(status_code(status));
                // Of a client, these are errors all; a server's own are those from 500.
                let is_error = status.is_client_error() || status.is_server_error();
                if is_error { error(&mut attributes, status.as_str().to_owned()) } else { Status::Unset }
            }
            Sent::Failed(StatusCode::GATEWAY_TIMEOUT) => error(&mut attributes, "timeout"),
            Sent::Failed(StatusCode::SERVICE_UNAVAILABLE) => error(&mut attributes, "overloaded"),
            Sent::Failed(StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT) => {
                error(&mut attributes, "request_body")
            }
            Sent::Failed(_) => error(&mut attributes, "no_answer"),
        };
        let (span, name) = (self.forwarding_span, name(&self.head.method, None));
        self.child(span, SpanKind::Client, name, Step { began, attributes }, time, status);
    }

    /// Hands over all spans.
    pub(super) fn end(mut self: Box<Self>, end: &End<'_>) {
        // The client went away in the middle of it.
        if let Some(mut step) = self.deciding.take() {
            let status = error(&mut step.attributes, "cancelled");
            self.child(new_span(), SpanKind::Internal, "decide".into(), step, end.time, status);
        }
        if let Some(mut step) = self.forwarding.take() {
            let status = error(&mut step.attributes, "cancelled");
            let (span, name) = (self.forwarding_span, name(&self.head.method, None));
            self.child(span, SpanKind::Client, name, step, end.time, status);
        }
        let mut attributes = self.of_request(end);
        let status = match end.status {
            Some(status) => {
                attributes.push(status_code(status));
                match status.is_server_error() {
                    true => error(&mut attributes, status.as_str().to_owned()),
                    false => Status::Unset,
                }
            }
            None => {
                // It is nobody's fault.
                attributes.push(KeyValue::new("error.type", "cancelled"));
                Status::Unset
            }
        };
        let name = name(&self.head.method, end.route);
        let step = Step { began: self.head.time, attributes };
        let mut server = self.span(self.server, SpanKind::Server, name, step, end.time, status);
        if let Some(parent) = self.parent {
            (server.parent_span_id, server.parent_span_is_remote) = (parent.span, true);
        } else {
            (server.parent_span_id, server.parent_span_is_remote) = (SpanId::INVALID, false);
        }
        let link = self.link.map(|said| {
            let context = SpanContext::new(said.trace, said.span, said.flags(), true, TraceState::NONE);
            Link::new(context, Vec::new(), 0)
        });
        server.links.links.extend(link);
        self.done.push(server);
        let Self { exporter, done, .. } = *self;
        exporter.hand_over(done);
    }

    fn of_request(&self, end: &End<'_>) -> Vec<KeyValue> {
        let mut attributes: Vec<KeyValue> = method(&self.head.method).collect();
        attributes.push(KeyValue::new("url.scheme", "http"));
        attributes.push(KeyValue::new("url.path", self.head.path.clone()));
        attributes.push(KeyValue::new("client.address", end.client.to_string()));
        attributes.push(KeyValue::new("tollgate.request_id", self.head.request_id.clone()));
        if let Some(host) = self.head.host.as_ref().and_then(|host| host.parse::<Authority>().ok()) {
            attributes.extend(server(&host));
        }
        let optional = [
            ("http.route", end.route.map(|route| Value::from(route.to_owned()))),
            ("tollgate.policy", end.policy.map(|policy| Value::from(policy.to_owned()))),
            ("tollgate.verdict", end.verdict.map(Value::from)),
        ];
        let told = optional.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        attributes.extend(told);
        attributes
    }

    fn child(
        &mut self,
        id: SpanId,
        kind: SpanKind,
        name: Cow<'static, str>,
        step: Step,
        ended: i64,
        status: Status,
    ) {
        let span = self.span(id, kind, name, step, ended, status);
        self.done.push(span);
    }

    /// A span below the server's.
    fn span(
        &self,
        id: SpanId,
        kind: SpanKind,
        name: Cow<'static, str>,
        step: Step,
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
            start_time: at(step.began),
            end_time: at(ended.max(step.began)),
            attributes: step.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("tollgate").build(),
        }
    }
}

/// `GET login`: the method and the route, neither of which a client can make many of.
fn name(method: &Method, route: Option<&str>) -> Cow<'static, str> {
    let method = known(method).unwrap_or("HTTP");
    match route {
        Some(route) => format!("{method} {route}").into(),
        None => method.into(),
    }
}

/// A method that the conventions know.
fn known(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str())
}

fn method(method: &Method) -> impl Iterator<Item = KeyValue> {
    let original = match known(method) {
        Some(_) => None,
        None => Some(KeyValue::new("http.request.method_original", method.as_str().to_owned())),
    };
    std::iter::once(KeyValue::new("http.request.method", known(method).unwrap_or("_OTHER"))).chain(original)
}

fn server(authority: &Authority) -> impl Iterator<Item = KeyValue> {
    let port = authority.port_u16().map(|port| KeyValue::new("server.port", i64::from(port)));
    std::iter::once(KeyValue::new("server.address", authority.host().to_owned())).chain(port)
}

fn status_code(status: StatusCode) -> KeyValue {
    KeyValue::new("http.response.status_code", i64::from(status.as_u16()))
}

/// Notes what went wrong, and gives the status that says so.
fn error(attributes: &mut Vec<KeyValue>, kind: impl Into<Value>) -> Status {
    attributes.push(KeyValue::new("error.type", kind));
    Status::error("")
}

/// Microseconds since the Unix epoch.
fn at(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
