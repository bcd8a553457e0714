//! A request as its steps see it: the facts that it brings along, and the findings of the steps.

use std::{cell::OnceCell, net::IpAddr, sync::Arc};

use http::{HeaderValue, request};

use super::{field_survey::FieldSurvey, placeholders::PlaceholderValues, rules::Rules};
use crate::{
    abuse::{self, RequestLine, bans::BanTable},
    api_keys::ApiKey,
    config::model::Route,
    identity::{AddressIdentifier, ClientIp, Credentials, Identity, RequestAttributes, RequestKeyFault},
    limit::algorithm::metadata_list::Entry,
    router::{Host, RequestParts, Target},
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
    /// The bans in force. `None`: they are not known for the time of the request.
    pub bans: Option<&'a BanTable>,
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
        RequestParts { method: &self.request.method, target, headers: &self.request.headers, listener }
    }
}

/// The findings of the first steps: whose request it is, and its route.
pub struct FoundRoute {
    pub target: Target,
    pub client: ClientIp,
    /// The identifier of the client's address. `None`: it is the peer's.
    pub address: Option<AddressIdentifier>,
    pub identity: Identity,
    /// The index of the route.
    pub route: usize,
}

impl FoundRoute {
    /// The values of placeholders.
    pub(super) fn placeholders<'a>(
        &'a self,
        rules: &'a Rules,
        request_id: &'a HeaderValue,
    ) -> PlaceholderValues<'a> {
        let Self { target, client, identity, route, .. } = self;
        let (router, address) = (&rules.router, client.ip);
        PlaceholderValues { router, route: *route, target, address, identity, request_id }
    }
}

/// A request whose route is found.
pub struct RequestContext<'r: 'a, 'a> {
    pub rules: &'r Rules,
    pub facts: &'a RequestFacts<'a>,
    pub found: &'a FoundRoute,
    /// The route. If it has several upstreams, the route to the one that gets the request.
    pub route: &'r Route,
    /// See [`RequestContext::attributes`].
    attributes: OnceCell<RequestAttributes<'a>>,
}

impl<'r: 'a, 'a> RequestContext<'r, 'a> {
    pub fn new(rules: &'r Rules, facts: &'a RequestFacts<'a>, found: &'a FoundRoute) -> Self {
        Self { rules, facts, found, route: &rules.config.routes[found.route], attributes: OnceCell::new() }
    }

    /// The attributes for identifiers and conditions, made when a step needs them for the first time.
    pub fn attributes(&self) -> &RequestAttributes<'a> {
        self.attributes.get_or_init(|| {
            let RequestFacts { request, is_peer_trusted, certificate, .. } = *self.facts;
            let FoundRoute { target, address, identity, .. } = self.found;
            RequestAttributes {
                address: address.as_ref().unwrap_or(self.facts.peer_identifier),
                user: identity.user.as_deref(),
                pseudonym: identity.pseudonym.as_deref(),
                is_user_verified: identity.is_verified,
                claims: identity.claims.as_deref(),
                certificate,
                key: identity.valid_key(),
                is_peer_trusted,
                method: &request.method,
                host: target.host().map(Host::name_bytes),
                path: target.loosest_path(),
                path_matching: self.route.matching,
                query: target.query(),
                headers: &request.headers,
                route: &self.route.name,
            }
        })
    }

    /// The head of the request.
    pub fn request(&self) -> &'a request::Parts {
        self.facts.request
    }

    /// The method and the URL, for the traffic records.
    pub fn request_line(&self) -> RequestLine<'a> {
        let target = &self.found.target;
        RequestLine { is_safe: self.request().method.is_safe(), path: target.path(), query: target.query() }
    }

    /// The request, received at `time`, as evidence, with the user in the form that may be stored. Names and paths are
    /// cut, because clients can make them long and evidence is kept for a while.
    pub fn evidence(&self, time: i64) -> Arc<Entry> {
        let user = self.rules.written_user(&self.found.identity).map(abuse::shorten_name);
        Arc::new(Entry {
            time,
            user: user.map(Into::into),
            method: self.request().method.clone(),
            path: self.request_line().recorded_path().into(),
        })
    }

    /// The client's address, if it is known.
    pub fn known_address(&self) -> Option<IpAddr> {
        let ClientIp { ip, is_known } = self.found.client;
        is_known.then_some(ip)
    }
}
