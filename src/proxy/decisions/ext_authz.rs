//! Envoy's `ext_authz` by gRPC: a question has the whole head of a request, and tells the peer of Envoy.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request};
use percent_encoding::percent_decode_str;
use prost::Message;

use super::{
    Question,
    calls::{self, CallFault},
    decide,
    messages::{
        AttributeContext, CheckRequest, CheckResponse, DeniedResponse, Header, HeaderOption, HttpRequest,
        HttpResponse, HttpStatus, OkResponse, Peer, RpcStatus,
    },
    question::{Source, TOO_MANY_FIELDS, append, described_uri, read_address},
};
use crate::{
    limit::StoreAdmin,
    proxy::{
        client::ClientInfo, client_request::ClientRequest, grpc::GrpcStatus, reply::Reply,
        response_body::ResponseBody, rules::Rules, steps::RefusedBy, worker::Worker,
    },
    router::Rejection,
    telemetry::metrics::{Answer, AskedBy},
    tls::TlsIdentity,
};

pub(super) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// `OVERWRITE_IF_EXISTS_OR_ADD`: what the client sent under this name does not reach the upstream.
const OVERWRITE: i32 = 2;

/// Answers the question in `message`.
///
/// # Errors
/// The question does not describe an HTTP request.
pub(super) async fn check<S: StoreAdmin + 'static>(
    message: &[u8],
    worker: &Rc<Worker<S>>,
    client: &Rc<ClientInfo>,
) -> Result<Response<ResponseBody>, CallFault> {
    let malformed = |_| CallFault::invalid("The message is no CheckRequest.");
    let attributes = CheckRequest::decode(message).map_err(malformed)?.attributes.unwrap_or_default();
    let AttributeContext { source, request } = attributes;
    let http = request
        .and_then(|request| request.http)
        .filter(|http| !http.path.is_empty() || !http.host.is_empty());
    let http = http.ok_or(CallFault::invalid("The question describes no HTTP request with a path."))?;
    let peer = source.map_or(Ok(None), |peer| read_peer(peer, &worker.rules));
    let described = describe(http, worker.config().client_limits.headers);
    let (mut request, question, fault) = match peer.and_then(|source| Ok((described?, source))) {
        Ok((request, source)) => (request, Question { source, descriptor: None }, None),
        Err(rejection) => (Request::new(()).into_parts().0, Question::default(), Some(rejection)),
    };
    worker.rules.conceal_key(&mut request);
    let mut served = ClientRequest::described(worker, client, &request);
    served.exchange.set_front(AskedBy::ExtAuthz, false);
    let decided = match fault {
        None => decide(&mut served, &request, &question).await,
        Some(rejection) => Err(RefusedBy::Head(rejection)),
    };
    Ok(match decided {
        Ok(told) => {
            served.charge().await;
            let mut quota = HeaderMap::new();
            worker.rules.quotas.add_fields(&mut quota, &served.exchange.outcomes);
            let ok = OkResponse {
                headers: options(&told.headers),
                headers_to_remove: told.removed.iter().map(ToString::to_string).collect(),
                response_headers_to_add: options(&quota),
            };
            served.exchange.count_answer(AskedBy::ExtAuthz, Answer::Allowed);
            served.exchange.take_answer(Reply { status: StatusCode::OK, ..Reply::no_content() });
            let response = CheckResponse {
                status: Some(RpcStatus { code: 0 }),
                http_response: Some(HttpResponse::Ok(ok)),
            };
            calls::reply(served.exchange, &response)
        }
        Err(refused) => {
            let mut exchange = served.exchange;
            let is_undecided = refused.is_undecided();
            let reply = refused.described_reply(&worker.rules, &exchange, request.headers);
            if is_undecided {
                let detail = reply.detail.clone();
                exchange.count_answer(AskedBy::ExtAuthz, Answer::Undecided);
                exchange.take_answer(reply);
                return Ok(calls::undecided(exchange, &detail));
            }
            exchange.count_answer(AskedBy::ExtAuthz, Answer::Refused);
            let (head, body) = exchange.take_answer(reply);
            let denied = DeniedResponse {
                status: Some(HttpStatus { code: i32::from(head.status.as_u16()) }),
                headers: options(&head.headers),
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            let response = CheckResponse {
                status: Some(RpcStatus { code: GrpcStatus::from_http(head.status) as i32 }),
                http_response: Some(HttpResponse::Denied(denied)),
            };
            calls::reply(exchange, &response)
        }
    })
}

/// The other end of Envoy's connection. `None`: it has no address, such as a Unix socket.
///
/// # Errors
/// 400: its address is none.
fn read_peer(Peer { address, certificate }: Peer, rules: &Rules) -> Result<Option<Source>, Rejection> {
    let Some(address) = address.and_then(|address| address.socket_address) else { return Ok(None) };
    let address = read_address(&address.address)
        .ok_or(Rejection::bad_request("The address of the described connection is none."))?;
    let pem: Vec<u8> = percent_decode_str(&certificate).collect();
    let certificate = if pem.is_empty() { None } else { TlsIdentity::from_pem(&pem).ok() };
    Ok(Some(Source::new(address, rules, certificate)))
}

/// The head of the described request, of at most `most` fields.
///
/// # Errors
/// 400 or 431: the described request is malformed, or has too many fields.
fn describe(http: HttpRequest, most: usize) -> Result<request::Parts, Rejection> {
    const MALFORMED: Rejection = Rejection::bad_request("A field of the described request is malformed.");
    let HttpRequest { method, headers, path, host, header_map } = http;
    let (mut request, ()) = Request::new(()).into_parts();
    let method = Method::from_bytes(&method);
    request.method = method.map_err(|_| Rejection::bad_request("The method is malformed."))?;
    // CONNECT has a host alone.
    request.uri = described_uri(if path.is_empty() { &host } else { &path })?;
    let raw = header_map.unwrap_or_default().headers.into_iter();
    let raw = raw.map(|Header { key, value, raw_value }| {
        (key, if raw_value.is_empty() { value.into_bytes() } else { raw_value })
    });
    let fields = headers.into_iter().chain(raw);
    // Names that begin with a colon stand for parts of the first line.
    for (name, value) in fields.filter(|(name, _)| !name.starts_with(':')) {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MALFORMED)?;
        append(&mut request.headers, name, HeaderValue::from_bytes(&value).map_err(|_| MALFORMED)?)?;
    }
    if request.headers.len() > most {
        return Err(TOO_MANY_FIELDS);
    }
    if !host.is_empty() {
        request.headers.insert(header::HOST, HeaderValue::from_bytes(&host).map_err(|_| MALFORMED)?);
    }
    Ok(request)
}

/// Fields, each in place of what was there. Of several lines, the later ones are added.
fn options(headers: &HeaderMap) -> Vec<HeaderOption> {
    let mut options: Vec<HeaderOption> = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let is_first =
            options.iter().filter_map(|option| option.header.as_ref()).all(|of| of.key != name.as_str());
        options.push(HeaderOption {
            header: Some(written(name, value)),
            append_action: if is_first { OVERWRITE } else { 0 },
        });
    }
    options
}

/// A field as Envoy takes it: in bytes, since it need not be UTF-8.
pub(super) fn written(name: &HeaderName, value: &HeaderValue) -> Header {
    let key = name.as_str().to_owned();
    match value.to_str() {
        Ok(value) => Header { key, value: value.to_owned(), raw_value: Vec::new() },
        Err(_) => Header { key, value: String::new(), raw_value: value.as_bytes().to_vec() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::decisions::messages::Headers;

    fn raw(fields: &[(&str, &[u8])]) -> Headers {
        let header = |(key, value): &(&str, &[u8])| Header {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: value.to_vec(),
        };
        Headers { headers: fields.iter().map(header).collect() }
    }

    fn request(path: &str) -> HttpRequest {
        HttpRequest {
            method: b"POST".to_vec(),
            path: path.into(),
            host: b"api.example.org".to_vec(),
            ..HttpRequest::default()
        }
    }

    #[test]
    fn a_question_is_the_request_that_it_describes() {
        let headers = [(":path", "/other"), ("user-agent", "curl"), ("cookie", "a=b")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.into())).into();
        let described = describe(HttpRequest { headers, ..request("/a?b=\"") }, 100).unwrap();
        assert_eq!((described.method.as_str(), described.uri.to_string()), ("POST", "/a?b=%22".to_owned()));
        assert_eq!(described.headers["host"], "api.example.org");
        assert_eq!(
            (&described.headers["cookie"], described.headers.len()),
            (&HeaderValue::from_static("a=b"), 3)
        );
    }

    #[test]
    fn raw_fields_keep_their_bytes_and_their_lines() {
        let header_map = Some(raw(&[("x", b"\xff"), ("x", b"b"), (":scheme", b"http")]));
        let described = describe(HttpRequest { header_map, ..request("/") }, 100).unwrap();
        let lines: Vec<_> = described.headers.get_all("x").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(lines, [&b"\xff"[..], b"b"]);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (path, fields) in
            [("a b", &[][..]), ("/", &[("a b", &b"x"[..])]), ("/", &[("x", b"a\nb")]), ("/\u{1}", &[])]
        {
            let described = describe(HttpRequest { header_map: Some(raw(fields)), ..request(path) }, 100);
            assert_eq!(described.unwrap_err().status, 400, "{path} {fields:?}");
        }
    }
}
