//! Questions by gRPC: the message of a call, and the reply to it
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::{borrow::Cow, rc::Rc};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, Version, header, request};
use hyper::body::Incoming;
use prost::Message;

use super::{ext_authz, messages::HealthCheckResponse, rate_limits};
use crate::{
    limit::StoreAdmin,
    proxy::{
        client::ClientInfo,
        client_request::ClientRequest,
        exchange::Exchange,
        grpc::{self, GrpcStatus},
        reply::Reply,
        request_buffering::{NeededPart, NotReceived, ReceivedBody, receive_before_decision},
        response_body::{BodySource, ResponseBody},
        steps::RefusedBy,
        worker::Worker,
    },
    telemetry::metrics::{Answer, AskedBy},
};

/// The longest message of a call, in bytes. Envoy's have the head of a request.
const LONGEST_MESSAGE: usize = 1 << 20;
/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Whether calls are answered (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const SERVING: i32 = 1;

static CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Why a call fails.
#[derive(Debug)]
pub(super) struct CallFault {
    status: GrpcStatus,
    message: Cow<'static, str>,
}

impl CallFault {
    /// The message of the call is malformed, or asks for something that its route does not do.
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: GrpcStatus::InvalidArgument, message: message.into() }
    }

    /// The HTTP status under which it is logged.
    fn http_status(&self) -> StatusCode {
        match self.status {
            GrpcStatus::InvalidArgument => StatusCode::BAD_REQUEST,
            GrpcStatus::Unimplemented => StatusCode::NOT_FOUND,
            GrpcStatus::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Answers a call.
pub(super) async fn answer<S: StoreAdmin + 'static>(
    (request, body): (request::Parts, Incoming),
    worker: &Rc<Worker<S>>,
    client: &Rc<ClientInfo>,
) -> Response<ResponseBody> {
    if !is_call(&request) {
        let served = ClientRequest::new(worker, client, &request, body);
        let detail = "This listener answers questions by gRPC, and by HTTP only those of its `front`.";
        worker.rules.warnings.warn_of_question(detail);
        let refused = RefusedBy::Listener(Box::new(Reply::problem(StatusCode::BAD_REQUEST, detail)));
        return served.refuse(refused, request.version, request.headers);
    }
    let answered = match message(&request, body, worker, client).await {
        Ok(message) => match request.uri.path() {
            ext_authz::CHECK => ext_authz::check(&message, worker, client).await,
            rate_limits::SHOULD_RATE_LIMIT => rate_limits::limit(&message, worker, client).await,
            HEALTH => {
                let mut served = ClientRequest::described(worker, client, &request);
                served.exchange.take_answer(Reply { status: StatusCode::OK, ..Reply::no_content() });
                Ok(reply(served.exchange, &HealthCheckResponse { status: SERVING }))
            }
            _ => Err(CallFault {
                status: GrpcStatus::Unimplemented,
                message: "There is no such method.".into(),
            }),
        },
        Err(fault) => Err(fault),
    };
    answered.unwrap_or_else(|fault| {
        let mut served = ClientRequest::described(worker, client, &request);
        served.exchange.set_front(AskedBy::Grpc, false);
        served.exchange.count_answer(AskedBy::Grpc, Answer::Refused);
        served.exchange.take_answer(Reply::problem(fault.http_status(), fault.message.clone()));
        failed(served.exchange, fault.status, &fault.message)
    })
}

/// Whether the request is a call of gRPC, and not of gRPC-Web.
fn is_call(request: &request::Parts) -> bool {
    let is_web = |value: &HeaderValue| value.as_bytes().get(16..20).is_some_and(|form| form == b"-web");
    request.version == Version::HTTP_2
        && grpc::is_grpc(&request.headers)
        && !request.headers.get(header::CONTENT_TYPE).is_some_and(is_web)
}

/// Receives the only message of a call.
async fn message<S>(
    request: &request::Parts,
    body: Incoming,
    worker: &Rc<Worker<S>>,
    client: &Rc<ClientInfo>,
) -> Result<Bytes, CallFault> {
    let limits = &worker.config().client_limits;
    let memory = (&worker.body_memory, client.peer().address().ip());
    let needed = (NeededPart::Whole, LONGEST_MESSAGE + PREFIX);
    let received = receive_before_decision(body, needed, memory, client.connection(), limits).await;
    let exhausted =
        |message: &'static str| CallFault { status: GrpcStatus::ResourceExhausted, message: message.into() };
    let body = match received {
        Ok((ReceivedBody::Whole(body), _memory)) => body,
        Ok(_) => return Err(exhausted("The message is too long.")),
        Err(NotReceived { reply, .. }) if reply.status == StatusCode::SERVICE_UNAVAILABLE => {
            return Err(CallFault { status: GrpcStatus::Unavailable, message: reply.detail });
        }
        Err(NotReceived { reply, .. }) => return Err(CallFault::invalid(reply.detail)),
    };
    let is_encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if request.headers.get("grpc-encoding").is_some_and(is_encoded) || body.first() == Some(&1) {
        let message = "Compressed messages are not read.".into();
        return Err(CallFault { status: GrpcStatus::Unimplemented, message });
    }
    let length = body.get(1..PREFIX).and_then(|length| Some(u32::from_be_bytes(length.try_into().ok()?)));
    match length {
        Some(length) if body.first() == Some(&0) && body.len() - PREFIX == length as usize => {
            Ok(body.slice(PREFIX..))
        }
        _ => Err(CallFault::invalid("The call has not exactly one message.")),
    }
}

/// Replies to a call with this message.
pub(super) fn reply(mut exchange: Box<Exchange>, message: &impl Message) -> Response<ResponseBody> {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The buffer grows where it has to.
    let _infallible = message.encode(&mut framed);
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers.insert(header::CONTENT_TYPE, CONTENT_TYPE.clone());
    exchange.answer_call();
    exchange.respond(head, BodySource::Whole(framed.freeze()))
}

/// The reply to a call whose question could not be decided: the store was not available, or keys were not read yet.
pub(super) fn undecided(exchange: Box<Exchange>, detail: &str) -> Response<ResponseBody> {
    failed(exchange, GrpcStatus::Unavailable, detail)
}

/// Ends a call with this status, without a message.
fn failed(exchange: Box<Exchange>, status: GrpcStatus, message: &str) -> Response<ResponseBody> {
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers.insert(header::CONTENT_TYPE, CONTENT_TYPE.clone());
    grpc::set_status(&mut head.headers, status, message);
    exchange.respond(head, BodySource::Whole(Bytes::new()))
}
