//! One request and its answer, for as long as they last: what is counted and logged when they end.

use std::{net::IpAddr, rc::Rc, sync::Arc, time::Duration, time::Instant};

use compact_str::CompactString;
use http::{HeaderValue, Method, Response, StatusCode, Uri, Version, header, request, response};

use super::{
    client::Client,
    held::Held,
    judged::Judged,
    patience::Waiting,
    reply::Reply,
    response_body::{BodyError, ResponseBody, Source},
    traced,
};
use crate::{
    limit::SystemClock,
    telemetry::{
        Throttle,
        access_log::{Line, Verdict, WorkerLog},
        metrics::WorkerMetrics,
        traces::{End, Trace, Tracer},
    },
};

/// Where a worker's exchanges are counted and logged, and how long a client may be silent after one.
#[derive(Debug)]
pub struct Ledger {
    /// The worker's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The worker's end of the access log.
    pub access_log: Rc<WorkerLog>,
    /// Tells the time that is logged.
    pub clock: SystemClock,
    /// By index.
    pub routes: Vec<String>,
    /// By index.
    pub policies: Vec<String>,
    /// `None`: requests are not traced.
    pub tracer: Option<Tracer>,
    /// The field that carries the request's ID.
    pub request_id: header::HeaderName,
    /// Until the next request begins.
    pub idle_timeout: Duration,
    /// Messages about upstreams that fail.
    pub complaints: Throttle,
}

/// What clients that went away before they were answered are logged with. nginx' number for it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Counts and logs its request when it is dropped.
#[derive(Debug)]
pub struct Exchange {
    pub(super) ledger: Rc<Ledger>,
    client: Rc<Client>,
    started: Instant,
    request_id: HeaderValue,
    route: Option<usize>,
    status: Option<StatusCode>,
    sent: u64,
    log: Option<Box<Logged>>,
    /// The client's address, as far as it is known.
    address: IpAddr,
    pub(super) judged: Judged,
    pub(super) trace: Option<Trace>,
    /// Dropped with the exchange, which is what gives it back.
    held: Option<Held>,
}

/// What the access log tells beside what is counted anyway.
#[derive(Debug)]
struct Logged {
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    user: Option<CompactString>,
    upstream: Option<String>,
}

impl Exchange {
    /// A request has come.
    pub fn begin(
        ledger: &Rc<Ledger>,
        client: &Rc<Client>,
        request: &request::Parts,
        request_id: HeaderValue,
    ) -> Self {
        let log = ledger.access_log.wants().then(|| {
            Box::new(Logged {
                method: request.method.clone(),
                uri: request.uri.clone(),
                version: request.version,
                host: request.headers.get(header::HOST).cloned(),
                referer: request.headers.get(header::REFERER).cloned(),
                user_agent: request.headers.get(header::USER_AGENT).cloned(),
                user: None,
                upstream: None,
            })
        });
        let trace = traced::begin(ledger, client, request, &request_id);
        Self {
            ledger: Rc::clone(ledger),
            client: Rc::clone(client),
            started: client.patience().now(),
            request_id,
            route: None,
            status: None,
            sent: 0,
            log,
            address: client.peer().ip().to_canonical(),
            judged: Judged::default(),
            trace,
            held: None,
        }
    }

    /// The request's ID.
    pub fn request_id(&self) -> &HeaderValue {
        &self.request_id
    }

    /// When the request came, in microseconds since the Unix epoch.
    pub fn time(&self) -> i64 {
        self.ledger.clock.at(self.started)
    }

    /// Notes who is behind the request.
    pub fn identified(&mut self, address: IpAddr, user: Option<&CompactString>) {
        self.address = address;
        if let Some(log) = &mut self.log {
            log.user = user.cloned();
        }
    }

    /// Notes the route that it took.
    pub fn routed(&mut self, route: usize) {
        self.route = Some(route);
    }

    /// Notes the policy that held it back.
    pub fn limited(&mut self, policy: usize) {
        self.judged.deny(policy);
    }

    /// Notes the ban that shut it out, by its index behind the policies.
    pub fn banned(&mut self, rule: usize) {
        self.judged.ban(rule);
    }

    /// Notes the shadow policy that would have.
    pub fn shadow_limited(&mut self, policy: usize) {
        self.judged.deny_in_shadow(policy);
    }

    /// Notes that its policies let it pass.
    pub fn admitted(&mut self) {
        self.judged.allow();
    }

    /// Keeps what the request holds of its limits until it ends.
    pub(super) fn hold(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// What the request holds of its limits, if anything.
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Notes the endpoint that answered, for the access log.
    pub(super) fn log_upstream(&mut self, endpoint: &str) {
        if let Some(log) = &mut self.log {
            log.upstream = Some(endpoint.to_owned());
        }
    }

    /// Notes that so many bytes of the answer's body were handed on.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Notes that the answer's body broke off.
    pub fn broke_off(&self, error: &BodyError) {
        if let Some(held_back) = self.ledger.complaints.pass(self.client.patience().now()) {
            let request_id = self.request_id.to_str().unwrap_or_default();
            tracing::warn!(request_id, held_back, "{error}");
        }
    }

    /// Answers with `reply`.
    pub fn reply(self, reply: Reply) -> Response<ResponseBody> {
        if let Some(held) = &self.held {
            held.answered(None);
        }
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = reply.status;
        head.headers = reply.headers;
        self.respond(head, Source::Whole(reply.body))
    }

    /// Answers with what the upstream or the proxy has to say.
    pub fn respond(mut self, mut head: response::Parts, body: Source) -> Response<ResponseBody> {
        self.status = Some(head.status);
        // hyper answers a client of HTTP/1.0 in its own version; an upstream's is of no concern.
        head.version = Version::HTTP_11;
        head.headers.insert(&self.ledger.request_id, self.request_id.clone());
        self.client.patience().wait(Waiting::Client, self.ledger.idle_timeout);
        Response::from_parts(head, ResponseBody::new(body, self))
    }

    fn route_name(&self) -> Option<&str> {
        self.ledger.routes.get(self.route?).map(String::as_str)
    }

    fn policy(&self, index: Option<usize>) -> Option<&str> {
        self.ledger.policies.get(index?).map(String::as_str)
    }

    fn log(&self, log: &Logged, status: StatusCode, elapsed: Duration) {
        let path = log.uri.path_and_query().map_or(log.uri.path(), |path| path.as_str());
        self.ledger.access_log.write(&Line {
            time: self.time(),
            client: self.address,
            method: &log.method,
            path: path.as_bytes(),
            version: log.version,
            status,
            bytes: self.sent,
            elapsed,
            route: self.route_name(),
            upstream: log.upstream.as_deref(),
            request_id: Some(self.request_id.as_bytes()),
            user: log.user.as_ref().map(|user| user.as_bytes()),
            host: log.host.as_ref().map(HeaderValue::as_bytes),
            referer: log.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: log.user_agent.as_ref().map(HeaderValue::as_bytes),
            verdict: self.judged.verdict(),
            policy: self.policy(self.judged.policy()),
            shadow_policy: self.policy(self.judged.shadow_policy()),
            source: self.judged.source(),
            trace_id: self.trace.as_ref().map(Trace::id),
        });
    }

    fn end_trace(&self, trace: Trace) {
        trace.end(&End {
            time: self.ledger.clock.at(Instant::now()),
            status: self.status,
            client: self.address,
            route: self.route_name(),
            policy: self.policy(self.judged.policy()),
            verdict: self.judged.verdict().map(Verdict::name),
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let patience = self.client.patience();
        let elapsed = patience.now().saturating_duration_since(self.started);
        let closed = StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::BAD_REQUEST);
        let status = self.status.unwrap_or(closed);
        self.ledger.metrics.request(self.route, status, elapsed);
        if matches!(self.judged.verdict(), Some(Verdict::Denied | Verdict::Banned)) {
            self.ledger.metrics.denied(self.route);
        }
        if let Some(log) = &self.log {
            self.log(log, status, elapsed);
        }
        if let Some(trace) = self.trace.take().filter(Trace::is_sampled) {
            self.end_trace(trace);
        }
        patience.wait(Waiting::Request, self.ledger.idle_timeout);
    }
}
