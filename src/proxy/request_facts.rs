//! The facts of a request that are known before its first step.

use std::{net::IpAddr, sync::Arc};

use http::{Method, request};

use super::{decisions::Question, field_survey::FieldSurvey};
use crate::{
    abuse::bans::BanTable,
    api_keys::ApiKey,
    identity::{AddressIdentifier, Credentials, RequestKeyFault},
    router::{RequestParts, Target},
    tls::TlsIdentity,
};

/// The API key of a request, or why it is not valid. `None`: the request has none.
pub type RequestKey = Option<Result<Arc<ApiKey>, RequestKeyFault>>;

/// The facts of a request that are known before its first step. A request that no client has sent, such as one in an
/// access log, lacks some of them.
pub struct RequestFacts<'a> {
    pub request: &'a request::Parts,
    /// The survey of its head.
    pub survey: FieldSurvey,
    /// The address of the connection's other end: the client or a proxy.
    pub peer: IpAddr,
    /// The identifier of that address, which is the client's for most requests.
    pub peer_identifier: &'a AddressIdentifier,
    /// Whether the peer is a trusted proxy, whose forwarding fields count.
    pub is_peer_trusted: bool,
    /// The verified certificate of the connection.
    pub certificate: Option<&'a TlsIdentity>,
    /// The index of the listener. `None`: any may receive the request, or nobody knows which one did.
    pub listener: Option<usize>,
    /// The length of the body, in bytes; more may follow if its length was not announced. `None`: nobody knows.
    pub body_length: Option<u64>,
    /// Whether it has a body, which may be empty in the end. True if nobody knows.
    pub has_body: bool,
    /// The bans in force. `None`: they are not known for the time of the request.
    pub bans: Option<&'a BanTable>,
    /// The question of another proxy that describes the request. `None`: the request itself is there.
    pub question: Option<&'a Question>,
}

/// Whether requests of this method have a body, for one of which nothing else is known.
pub(crate) fn usually_has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

impl<'a> RequestFacts<'a> {
    /// The proofs of the client's identity. `key`: the request's API key.
    pub fn credentials<'k>(&'k self, key: &'k RequestKey) -> Credentials<'k> {
        let Self { request, is_peer_trusted, certificate, .. } = *self;
        let key = key.as_ref().and_then(|key| key.as_deref().ok());
        Credentials { headers: &request.headers, is_peer_trusted, certificate, key }
    }

    /// The parts of the request for `target` that decide its route, if it comes in on the listener of this index.
    pub fn parts<'p>(&'p self, target: &'p Target, listener: usize) -> RequestParts<'p> {
        let descriptor = self.question.and_then(Question::routed);
        let request::Parts { method, headers, .. } = self.request;
        RequestParts { method, target, headers, listener, is_question: self.question.is_some(), descriptor }
    }

    /// Whether the client's address is known, at least as that of a proxy before it. A descriptor may lack it.
    pub(super) fn has_address(&self) -> bool {
        self.question.is_none_or(Question::has_address)
    }
}
