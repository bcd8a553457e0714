//! One request and its response, for as long as they last: they are counted, logged and traced when they end.

use std::{
    cell::Cell,
    fmt,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use compact_str::CompactString;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version, header, request, response};
use serde_json::{Map, Value};

use super::{
    client::ClientInfo,
    connection_state::{ConnectionState, Phase},
    cors::{self, CorsResponse},
    grpc::{self, GrpcCall},
    header_edits::FilledEdits,
    outcome::Outcomes,
    reply::Reply,
    request_verdict::RequestVerdict,
    reservation::{MissingReason, ReservationGuard},
    worker_telemetry::WorkerTelemetry,
};
use crate::{
    api_keys::{ApiKey, KeyField},
    config::model::Endpoint,
    history::{ChargedUnits, HistoryRecorder, SEVERAL, UNVERIFIED, UsageOwner},
    limit::Clock,
    request_values::FoundValues,
    telemetry::{
        access_log::{AbortedBy, Line, LogVerdict, RetriedTry, protocol_name},
        metrics::{
            Answer, AskedBy, CutOff, CutOffBody, CutOffReason, Refusal, ServerErrorSource, SourceLabel,
        },
        traces::{RequestEnd, RequestStart, RequestTrace, UpstreamResult},
    },
    tls::TlsIdentity,
};

/// A time that was not asked for yet.
const NOT_READ: i64 = i64::MIN;
/// The longest value that usage is told apart by, in bytes.
const MAX_VALUE: usize = 128;

/// The status that is logged if the client goes away before the response. The number is nginx'.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

// Larger ones are of another size class, in which the allocator was three times slower.
const _: () = assert!(size_of::<Exchange>() <= 512);

/// One request and its response. Counts, logs and traces them when it is dropped.
#[derive(Debug)]
pub(super) struct Exchange {
    telemetry: Rc<WorkerTelemetry>,
    client: Rc<ClientInfo>,
    started: Instant,
    /// See [`Exchange::time`]. [`NOT_READ`] before it is asked for.
    time: Cell<i64>,
    request_id: HeaderValue,
    /// The HTTP status. For the proxy's own reply to a gRPC call it is not the status sent, which is always 200.
    status: Option<StatusCode>,
    /// Whether the status is the origin's rather than the proxy's own.
    is_from_origin: bool,
    /// Whether it is the status of a configured reply of the route, which never counts as an error.
    is_of_route: bool,
    sent: u64,
    /// Whether it is a tunnel, and the bytes that this has received from the client.
    is_tunnel: bool,
    received: u64,
    aborted_by: Option<AbortedBy>,
    log: Option<Box<LoggedFields>>,
    /// Whether the response has no body.
    is_head: bool,
    /// Whether it answers a call of gRPC, whose status is still to be sent behind the message.
    answers_call: bool,
    /// The CORS fields, if the route has `cors`.
    cors: Option<Box<CorsResponse>>,
    /// The gRPC call, if the request makes one.
    grpc: Option<Box<GrpcCall>>,
    /// The client's address; until it is known, the peer's.
    address: IpAddr,
    /// The verdict of limits and bans.
    pub(super) verdict: RequestVerdict,
    trace: Option<RequestTrace>,
    /// Dropped with the exchange, which releases it.
    reservation: Option<ReservationGuard>,
    /// Of the enforced policies.
    pub(super) outcomes: Outcomes,
    /// Whose usage it is, for the history and the log.
    pub(super) owner: UsageOwner,
    /// The units that it has cost for good. Its reservation records others.
    pub(super) units: ChargedUnits,
    /// Changes that settings make to the response's header, in this order.
    edits: Vec<FilledEdits>,
}

/// Fields of the access log that are not kept elsewhere.
#[derive(Debug)]
struct LoggedFields {
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    user: Option<CompactString>,
    upstream: Option<String>,
    retried: Vec<RetriedTry>,
    /// Its values, as a JSON object.
    values: Option<String>,
    /// The proxy that asks about the request.
    front: Option<&'static str>,
}

impl Exchange {
    /// Whether the request is HEAD: its response has no body, even if its head has a length.
    pub(super) fn is_head(&self) -> bool {
        self.is_head
    }

    /// The exchange of a new request. Boxed: it is moved several times.
    pub(super) fn new(
        telemetry: &Rc<WorkerTelemetry>,
        client: &Rc<ClientInfo>,
        request: &request::Parts,
        request_id: HeaderValue,
    ) -> Box<Self> {
        let log = telemetry.access_log.samples_next().then(|| {
            Box::new(LoggedFields {
                method: request.method.clone(),
                uri: request.uri.clone(),
                version: request.version,
                host: requested_host(request),
                referer: request.headers.get(header::REFERER).cloned(),
                user_agent: request.headers.get(header::USER_AGENT).cloned(),
                user: None,
                upstream: None,
                retried: Vec::new(),
                values: None,
                front: None,
            })
        });
        let trace = begin_trace(telemetry, client, request, &request_id);
        let started = client.timer().now();
        // The answer to a question is not the reply to the call that it describes.
        let grpc = GrpcCall::new(request, started).filter(|_| client.decisions().is_none());
        if let Some(call) = &grpc {
            client.timer().set_call_deadline(call.deadline());
        }
        // Written in place.
        Box::write(
            Box::new_uninit(),
            Self {
                telemetry: Rc::clone(telemetry),
                client: Rc::clone(client),
                started,
                time: Cell::new(NOT_READ),
                request_id,
                status: None,
                is_from_origin: false,
                is_of_route: false,
                sent: 0,
                is_tunnel: false,
                received: 0,
                aborted_by: None,
                log,
                answers_call: false,
                is_head: request.method == Method::HEAD,
                cors: None,
                grpc,
                address: client.peer().address().ip().to_canonical(),
                verdict: RequestVerdict::default(),
                trace,
                reservation: None,
                outcomes: Outcomes::new(),
                owner: UsageOwner::default(),
                units: ChargedUnits::new(),
                edits: Vec::new(),
            },
        )
    }

    /// Another proxy asks about the request. `is_head`: whether its question is a HEAD itself.
    pub(super) fn set_front(&mut self, by: AskedBy, is_head: bool) {
        self.is_head = is_head;
        if let Some(log) = &mut self.log {
            log.front = Some(by.name());
        }
        if let Some(trace) = &mut self.trace {
            trace.set_front(by.name());
        }
    }

    /// Counts the answer that this proxy gets.
    pub(super) fn count_answer(&self, by: AskedBy, answer: Answer) {
        self.telemetry.metrics.thread().questions().counter(by, answer).inc();
    }

    /// The request's ID.
    pub(super) fn request_id(&self) -> &HeaderValue {
        &self.request_id
    }

    /// When the request was received, in microseconds since the Unix epoch.
    pub(super) fn time(&self) -> i64 {
        if self.time.get() == NOT_READ {
            self.time.set(self.telemetry.wall_time(self.started));
        }
        self.time.get()
    }

    /// Sets the client's address.
    pub(super) fn set_address(&mut self, address: IpAddr) {
        self.address = address;
    }

    /// The client's address; until it is known, the peer's.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Sets the user, in the form that may be logged.
    pub(super) fn set_user(&mut self, user: Option<&str>) {
        if let Some(log) = &mut self.log {
            log.user = user.map(CompactString::from);
        }
    }

    /// The worker's end of the history; `None`: none is kept.
    pub(super) fn history(&self) -> Option<&HistoryRecorder> {
        self.telemetry.history.as_ref()
    }

    /// Sets the user whose usage it is. `written`: the name that may be stored.
    pub(super) fn set_usage_user(&mut self, written: Option<&str>, is_verified: bool) {
        if self.telemetry.history.as_ref().is_some_and(|history| history.plan().counts_users()) {
            let name = if is_verified { written } else { written.map(|_| UNVERIFIED) };
            self.owner.set_user(name.unwrap_or_default());
        }
    }

    /// Sets the value that tells usage apart. `uses`: the values of the request, or of each call of its batch.
    pub(super) fn set_usage_value(&mut self, uses: &[FoundValues]) {
        let name = self.telemetry.history.as_ref().and_then(|history| history.plan().value());
        let Some(name) = name else { return };
        let mut texts =
            uses.iter().filter(|values| values.has(name)).filter_map(|values| values.key_text(name));
        let Some(first) = texts.next() else { return };
        self.owner.set_value(match texts.all(|text| text == first) {
            true => &first[..first.floor_char_boundary(MAX_VALUE)],
            false => SEVERAL,
        });
    }

    /// Sets the valid API key.
    pub(super) fn set_key(&mut self, key: &Arc<ApiKey>) {
        if self.log.is_some() || self.telemetry.history.is_some() {
            self.owner.key = Some(Arc::clone(key));
        }
        if let Some(trace) = &mut self.trace {
            let attributes =
                KeyField::ALL.into_iter().filter_map(|field| Some((field.attribute(), key.field(field)?)));
            trace.set_key(attributes);
        }
    }

    /// The request's API key does not count.
    pub(super) fn forget_key(&mut self) {
        self.owner.key = None;
        if let Some(trace) = &mut self.trace {
            trace.set_key([]);
        }
    }

    /// The index of the request's route; `None`: it has matched none, or none yet.
    fn route(&self) -> Option<usize> {
        self.owner.route.map(|route| route as usize)
    }

    /// Sets the request's route, by its index.
    pub(super) fn set_route(&mut self, route: usize) {
        self.owner.route = u32::try_from(route).ok();
    }

    /// Adds these CORS fields to the response.
    pub(super) fn set_cors(&mut self, cors: Box<CorsResponse>) {
        self.cors = Some(cors);
    }

    /// The CORS fields, if the route has `cors`.
    pub(super) fn cors(&self) -> Option<&CorsResponse> {
        self.cors.as_deref()
    }

    /// Removes an upstream's CORS fields, if the route has `cors`.
    pub(super) fn remove_foreign_cors(&self, headers: &mut HeaderMap) {
        if self.cors.is_some() {
            cors::remove_foreign(headers);
        }
    }

    /// Adds changes to the response's header.
    pub(super) fn edit_response(&mut self, edits: FilledEdits) {
        self.edits.push(edits);
    }

    /// Keeps the request's reservation until it ends.
    pub(super) fn set_reservation(&mut self, reservation: Option<ReservationGuard>) {
        self.reservation = reservation;
    }

    /// The state of the connection, or of the stream.
    pub(super) fn connection(&self) -> &Rc<ConnectionState> {
        self.client.connection()
    }

    /// The request's reservation, if it has one.
    pub(super) fn reservation(&self) -> Option<&ReservationGuard> {
        self.reservation.as_ref()
    }

    /// The request's reservation, and the outcomes that it may change.
    pub(super) fn reserved(&mut self) -> (Option<&ReservationGuard>, &mut Outcomes) {
        (self.reservation.as_ref(), &mut self.outcomes)
    }

    /// Counts bytes of the response's body that were passed on.
    pub(super) fn add_sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.client.meter().add_sent(bytes);
    }

    /// Counts bytes that a tunnel has received from the client.
    pub(super) fn add_received(&mut self, bytes: u64) {
        self.received += bytes;
        self.client.meter().add_received(bytes);
    }

    /// The client has gone, or was too slow, before the response ended.
    pub(super) fn client_broke_off(&mut self) {
        self.broke_off(AbortedBy::Client);
    }

    /// This side broke off before the other had ended.
    pub(super) fn broke_off(&mut self, side: AbortedBy) {
        self.aborted_by.get_or_insert(side);
    }

    /// The response body of the endpoint with this URL broke off.
    pub(super) fn upstream_broke_off(&mut self, endpoint: Option<String>, error: &dyn fmt::Display) {
        if self.client.hand_off().cut_off_reason().is_some() || self.client.timer().is_call_over() {
            // It is the client's fault, and logged as that.
            self.client_broke_off();
            return;
        }
        self.aborted_by = Some(AbortedBy::Upstream);
        if let Some(held_back) = self.telemetry.upstream_warnings.pass(self.client.timer().now()) {
            let request_id = self.request_id.to_str().unwrap_or_default();
            let endpoint = endpoint.unwrap_or_default();
            tracing::warn!(request_id, held_back, "endpoint {endpoint} failed: {error}");
        }
    }

    /// Notes that the client gets the proxy's own `reply`, and makes the head and the body of its response.
    #[inline(always)]
    pub(super) fn take_reply(&mut self, mut reply: Reply) -> (response::Parts, Bytes) {
        if let Some(reservation) = &self.reservation {
            reservation.refused();
        }
        self.status = Some(reply.status);
        if let Some(mut call) = self.grpc.take() {
            let is_denied = self.verdict.verdict() == Some(LogVerdict::Denied);
            let denied_by = self.policy_name(self.verdict.policy()).filter(|_| is_denied);
            reply = call.convert(reply, denied_by, Instant::now());
            self.grpc = Some(call);
        }
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = reply.status;
        head.headers = reply.headers;
        // hyper leaves the body out over HTTP/1 only.
        if self.is_head && self.client.connection().is_stream() && reply.status != StatusCode::NO_CONTENT {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(reply.body.len()));
            reply.body.clear();
        }
        (head, reply.body)
    }

    /// The same for an answer to another proxy. Out of line: it has several callers.
    #[inline(never)]
    pub(super) fn take_answer(&mut self, reply: Reply) -> (response::Parts, Bytes) {
        self.take_reply(reply)
    }

    /// Notes that the reply is the route's configured one.
    pub(super) fn set_of_route(&mut self) {
        self.is_of_route = true;
    }

    /// Completes `head`, with which the response begins.
    pub(super) fn begin_response(&mut self, head: &mut response::Parts) {
        self.complete_head(head);
        if self.client.connection().is_last_response() {
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.client.meter().begin_response(|| head.headers.contains_key(header::CONTENT_LENGTH));
        self.client.timer().enter(Phase::Client, self.telemetry.idle_timeout);
    }

    /// Completes `head`, after which the connection carries a tunnel, idle for `idle_timeout` at most. The request counts
    /// as responded to from now on, and is logged when the tunnel has ended.
    pub(super) fn begin_tunnel(&mut self, head: &mut response::Parts, idle_timeout: Duration) {
        self.complete_head(head);
        // An HTTP/2 client gets another status.
        self.status = Some(StatusCode::SWITCHING_PROTOCOLS);
        self.is_tunnel = true;
        let elapsed = self.client.timer().now().saturating_duration_since(self.started);
        let metrics = &self.telemetry.metrics;
        metrics.request(self.route(), StatusCode::SWITCHING_PROTOCOLS, elapsed);
        metrics.tunnel_opened(self.route());
        self.client.meter().begin_response(|| false);
        self.client.timer().enter(Phase::Tunnel, idle_timeout);
    }

    /// Notes that the tunnel is closed because its address has more than its share of the upstream's connections.
    pub(super) fn tunnel_evicted(&mut self) {
        self.broke_off(AbortedBy::Client);
        let reason = CutOffReason::MaxConnectionsPerAddress;
        self.client.hand_off().cut_off(CutOff { body: CutOffBody::Tunnel, reason });
    }

    /// Notes the status in the response's trailers.
    pub(super) fn note_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(call) = &mut self.grpc {
            call.note_status(trailers);
        }
    }

    /// The response is the proxy's own answer to a call, which has succeeded.
    pub(super) fn answer_call(&mut self) {
        self.answers_call = true;
    }

    /// Whether trailers are still to be sent behind the proxy's own answer.
    pub(super) fn ends_with_trailers(&self) -> bool {
        self.answers_call
    }

    /// The trailers behind the proxy's own answer to a call, once.
    pub(super) fn take_answer_trailers(&mut self) -> Option<HeaderMap> {
        std::mem::take(&mut self.answers_call).then(grpc::success)
    }

    /// The trailers that end the response early, because the client of the call no longer waits. None over HTTP/1.1,
    /// where gRPC-Web clients do not read them.
    pub(super) fn late_trailers(&mut self) -> Option<HeaderMap> {
        let call = self.grpc.as_mut().filter(|_| self.client.connection().is_stream())?;
        call.late_trailers(Instant::now())
    }

    /// The trailers that end the response early, because the client was banned.
    pub(super) fn banned_trailers(&mut self) -> Option<HeaderMap> {
        self.client_broke_off();
        let call = self.grpc.as_mut().filter(|_| self.client.connection().is_stream())?;
        call.banned_trailers()
    }

    /// The status that is sent to the client.
    fn sent_status(&self) -> Option<StatusCode> {
        match self.grpc {
            Some(_) if !self.is_from_origin => self.status.map(|_| StatusCode::OK),
            _ => self.status,
        }
    }

    /// Adds the fields that each response has.
    fn complete_head(&mut self, head: &mut response::Parts) {
        self.status.get_or_insert(head.status);
        if let Some(call) = &mut self.grpc {
            call.note_status(&head.headers);
        }
        // hyper replies to an HTTP/1.0 client in that version; the upstream's version does not matter.
        head.version = Version::HTTP_11;
        head.headers.insert(&self.telemetry.request_id, self.request_id.clone());
        if let Some(cors) = &self.cors {
            cors.add_to(&mut head.headers);
        }
        if let Some(hsts) = self.client.hsts() {
            head.headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        if !self.edits.is_empty() {
            for edits in std::mem::take(&mut self.edits) {
                edits.apply_to_response(&mut head.headers);
            }
        }
    }

    /// Adds the trace's context to a request for the upstream.
    pub(super) fn propagate_trace(&self, headers: &mut HeaderMap) {
        if let Some(trace) = &self.trace {
            trace.inject(headers);
        }
    }

    /// Traces that the store is asked about this number of checks.
    pub(super) fn decision_started(&mut self, checks: usize) {
        self.trace_event(|trace, time| trace.start_decision(time, checks));
    }

    /// Notes the source of the decision. `None`: there is no decision.
    pub(super) fn decision_ended(&mut self, source: Option<SourceLabel>) {
        match source {
            Some(source) => self.verdict.set_source(source),
            None => self.verdict.set_undecided(),
        }
        self.trace_event(|trace, time| trace.end_decision(time, source.map(SourceLabel::name)));
    }

    /// Traces that the request is sent to this upstream.
    pub(super) fn forward_started(&mut self, upstream: &str) {
        self.trace_event(|trace, time| trace.start_forwarding(time, upstream));
    }

    /// Notes the attempts that were followed by a retry.
    pub(super) fn set_retried(&mut self, retried: Vec<RetriedTry>) {
        if let Some(log) = &mut self.log {
            log.retried = retried;
        }
    }

    /// Notes the endpoint that responded.
    pub(super) fn forward_responded(&mut self, endpoint: &Endpoint, status: StatusCode) {
        self.is_from_origin = true;
        if let Some(log) = &mut self.log {
            log.upstream = Some(endpoint.authority.as_str().to_owned());
        }
        self.trace_event(|trace, time| {
            trace.end_forwarding(time, UpstreamResult::Answered(endpoint, status));
        });
    }

    /// Traces that no endpoint responded, and the status that the client gets instead.
    pub(super) fn forward_failed(&mut self, status: StatusCode) {
        self.trace_event(|trace, time| trace.end_forwarding(time, UpstreamResult::Failed(status)));
    }

    /// Calls `event` if the trace is sampled. Otherwise not even the clock is read.
    fn trace_event(&mut self, event: impl FnOnce(&mut RequestTrace, i64)) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.is_sampled()) {
            event(trace, self.telemetry.clock.now());
        }
    }

    fn route_name(&self) -> Option<&str> {
        self.telemetry.routes.get(self.route()?).map(String::as_str)
    }

    fn policy_name(&self, index: Option<usize>) -> Option<&str> {
        self.telemetry.policies.get(index?).map(String::as_str)
    }

    fn grpc_status(&self) -> Option<u32> {
        self.grpc.as_ref()?.status()
    }

    fn write_log(&self, log: &LoggedFields, elapsed: Duration) {
        let path = log.uri.path_and_query().map_or(log.uri.path(), |path| path.as_str());
        let tls = self.client.tls();
        let subject = self.client.certificate().map(TlsIdentity::subject);
        let subject = subject.and_then(|subject| self.telemetry.subject_names.log_name(subject));
        let key_field =
            |field: KeyField| self.owner.key.as_ref().and_then(|key| key.field(field)).map(str::as_bytes);
        let line = Line {
            time: self.time(),
            client: self.address,
            method: log.method.as_str().as_bytes(),
            path: path.as_bytes(),
            protocol: protocol_name(log.version).as_bytes(),
            status: self.sent_status().unwrap_or(client_closed_request()),
            grpc_status: self.grpc_status(),
            aborted_by: if self.status.is_none() { Some(AbortedBy::Client) } else { self.aborted_by },
            bytes: self.sent,
            received: self.is_tunnel.then_some(self.received),
            elapsed,
            route: self.route_name(),
            upstream: log.upstream.as_deref(),
            retried: &log.retried,
            request_id: Some(self.request_id.as_bytes()),
            user: log.user.as_ref().map(|user| user.as_bytes()),
            customer: key_field(KeyField::Customer),
            plan: key_field(KeyField::Plan),
            api_key: key_field(KeyField::ApiKey),
            host: log.host.as_ref().map(HeaderValue::as_bytes),
            referer: log.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: log.user_agent.as_ref().map(HeaderValue::as_bytes),
            verdict: self.verdict.verdict(),
            policy: self.policy_name(self.verdict.policy()),
            shadow_policy: self.policy_name(self.verdict.shadow_policy()),
            source: self.verdict.source(),
            delay_millis: self.verdict.delay_millis(),
            shadow_delay_millis: self.verdict.shadow_delay_millis(),
            cost: None,
            values: log.values.as_deref(),
            front: log.front,
            trace_id: self.trace.as_ref().map(RequestTrace::id),
            tls_version: tls.map(|tls| tls.version),
            tls_subject: subject.as_deref().map(str::as_bytes),
        };
        match self.reservation.as_ref().and_then(|of| Some((of, of.first_cost()?))) {
            None => self.telemetry.access_log.write(&line),
            Some((_, (reserved, Some(charged)))) => {
                self.telemetry.access_log.write(&Line { cost: Some((reserved, charged)), ..line });
            }
            // Its client has left, or its response broke off: the line waits for the cost.
            Some((reservation, (_, None))) => {
                let line = self.telemetry.access_log.compose(&line);
                reservation.set_line(line, Rc::clone(&self.telemetry));
            }
        }
    }

    #[cold]
    fn warn_of_faulty_cost(&self, reason: MissingReason) {
        let Some(held_back) = self.telemetry.cost_warnings.pass(self.client.timer().now()) else {
            return;
        };
        let route = self.route_name().unwrap_or_default();
        let request_id = self.request_id.to_str().unwrap_or_default();
        match reason {
            MissingReason::ContentCoding => tracing::warn!(
                request_id,
                route,
                held_back,
                "a response has a content coding in which its cost can't be read: `missing` is charged"
            ),
            MissingReason::FaultyNumber | MissingReason::NoNumber => tracing::warn!(
                request_id,
                route,
                held_back,
                "a response tells a cost that is no whole number from 0 to 1000000000: `missing` is charged"
            ),
        }
    }

    /// Keeps the values called `names` for the log. `uses`: the values of the request, or of each call of its batch.
    pub(super) fn log_values(&mut self, names: &[String], uses: &[FoundValues]) {
        let Some(log) = self.log.as_mut().filter(|_| !names.is_empty()) else { return };
        let logged = |name: &String| {
            let mut texts: Vec<Value> = uses.iter().map(|values| values.key_text(name).into()).collect();
            texts.dedup();
            let value = if texts.len() == 1 { texts.remove(0) } else { texts.into() };
            uses.iter().any(|values| values.has(name)).then(|| (name.clone(), value))
        };
        let object: Map<String, Value> = names.iter().filter_map(logged).collect();
        log.values = Some(Value::from(object).to_string());
    }

    /// Counts the request as refused for this reason, independently of its status.
    pub(super) fn count_refusal(&self, refusal: Refusal) {
        self.telemetry.metrics.thread().refused(refusal).inc();
    }

    #[cold]
    fn count_error(&self, status: StatusCode) {
        if self.is_of_route {
            return;
        }
        if status.is_server_error() {
            let source = match self.is_from_origin {
                true => ServerErrorSource::Origin,
                false => ServerErrorSource::from_proxy(status),
            };
            self.telemetry.metrics.server_error(self.route(), source);
        }
        let refusal = match self.verdict.verdict() {
            Some(LogVerdict::Forbidden) => Some(Refusal::Address),
            _ => Refusal::of(status).filter(|_| !self.is_from_origin),
        };
        if let Some(refusal) = refusal {
            self.count_refusal(refusal);
        }
    }

    /// Counts and logs that the client was too slow.
    fn report_cut_off(&self, cut_off: CutOff) {
        self.telemetry.metrics.thread().cut_offs().counter(cut_off).inc();
        let CutOff { body, reason } = cut_off;
        if let Some(held_back) = self.telemetry.cut_off_messages.pass(self.client.timer().now()) {
            let request_id = self.request_id.to_str().unwrap_or_default();
            let what = match body {
                CutOffBody::Request => "sent its request body too slowly",
                CutOffBody::Response => "read its response too slowly",
                CutOffBody::Tunnel => "held a tunnel",
            };
            let (client, name) = (self.address, reason.name());
            match reason {
                CutOffReason::IdleTimeout | CutOffReason::MinRate => {
                    tracing::info!(%client, request_id, reason = name, held_back, "client {client} {what}, and was cut off");
                }
                CutOffReason::Memory => {
                    tracing::warn!(
                        %client, request_id, reason = name, held_back,
                        "client {client} {what} while too much was held for such clients, and was cut off"
                    );
                }
                CutOffReason::MaxConnectionsPerAddress => {
                    tracing::warn!(
                        %client, request_id, reason = name, held_back,
                        "client {client} {what} while others waited for a connection, and was cut off"
                    );
                }
            }
        }
    }

    fn end_trace(&self, trace: RequestTrace) {
        trace.end(&RequestEnd {
            time: self.telemetry.clock.now(),
            status: self.sent_status(),
            grpc_status: self.grpc_status(),
            client: self.address,
            route: self.route_name(),
            policy: self.policy_name(self.verdict.policy()),
            verdict: self.verdict.verdict().map(LogVerdict::name),
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let timer = self.client.timer();
        let is_tunnel = self.is_tunnel;
        let now = if is_tunnel { Instant::now() } else { timer.now() };
        let elapsed = now.saturating_duration_since(self.started);
        let status = self.status.unwrap_or(client_closed_request());
        if is_tunnel {
            self.telemetry.metrics.tunnel_closed(self.route());
            if let Some(reservation) = &self.reservation {
                reservation.tunnel_closed(self.sent);
            }
        } else {
            self.telemetry.metrics.request(self.route(), status, elapsed);
        }
        if matches!(self.verdict.verdict(), Some(LogVerdict::Denied | LogVerdict::Banned)) {
            self.telemetry.metrics.denied(self.route());
        } else if status.is_client_error() || status.is_server_error() {
            self.count_error(status);
        }
        if let Some(history) = &self.telemetry.history {
            let is_denied = matches!(self.verdict.verdict(), Some(LogVerdict::Denied | LogVerdict::Banned));
            history.record(&self.owner, now, status, is_denied, &self.units);
        }
        if let Some(reason) = self.reservation.as_ref().and_then(ReservationGuard::faulty_cost) {
            self.warn_of_faulty_cost(reason);
        }
        if let Some(log) = &self.log {
            self.write_log(log, elapsed);
        }
        if let Some(trace) = self.trace.take().filter(RequestTrace::is_sampled) {
            self.end_trace(trace);
        }
        if let Some(cut_off) = self.client.hand_off().take_cut_off() {
            self.report_cut_off(cut_off);
        }
        if self.grpc.is_some() {
            timer.set_call_deadline(None);
        }
        timer.enter(Phase::Request, self.telemetry.idle_timeout);
    }
}

/// Begins the trace of a request, if requests are traced.
fn begin_trace(
    telemetry: &WorkerTelemetry,
    client: &ClientInfo,
    request: &request::Parts,
    request_id: &HeaderValue,
) -> Option<RequestTrace> {
    let head = || RequestStart {
        time: telemetry.clock.now(),
        scheme: client.scheme(),
        method: request.method.clone(),
        path: request.uri.path().to_owned(),
        host: text(requested_host(request).as_ref()),
        request_id: text(Some(request_id)).unwrap_or_default(),
    };
    Some(telemetry.tracer.as_ref()?.begin(&request.headers, client.is_trusted(), head))
}

/// The host that the client named: in `:authority` for HTTP/2.
fn requested_host(request: &request::Parts) -> Option<HeaderValue> {
    match request.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => request.headers.get(header::HOST).cloned(),
    }
}

fn text(value: Option<&HeaderValue>) -> Option<String> {
    Some(value?.to_str().ok()?.to_owned())
}
