//! A request as its steps see it: its facts, and the findings of the steps.

use std::{borrow::Cow, cell::OnceCell, net::IpAddr, sync::Arc};

use http::{HeaderValue, Method, header, request};
use smallvec::{SmallVec, smallvec};

use super::{
    decisions::Question, placeholders::PlaceholderValues, read_request::AskedOfRoute,
    request_facts::RequestFacts, rules::Rules,
};
use crate::{
    abuse::{self, RequestLine},
    config::model::Route,
    identity::{AddressIdentifier, ClientIp, Identity, RequestAttributes},
    limit::algorithm::metadata_list::Entry,
    request_values::FoundValues,
    router::{Host, Target},
};

/// The findings of the first steps: whose request it is, and its route.
pub struct FoundRoute {
    pub target: Target,
    pub client: ClientIp,
    /// The identifier of the client's address. `None`: it is the peer's.
    pub address: Option<AddressIdentifier>,
    pub identity: Identity,
    /// The index of the route.
    pub route: usize,
    /// The values that decide on the request: of each call, if it is a batch. Unset: they were not read, or it has none.
    pub(super) values: OnceCell<SmallVec<[FoundValues; 1]>>,
}

impl FoundRoute {
    /// The values of placeholders.
    pub(super) fn placeholders<'a>(
        &'a self,
        rules: &'a Rules,
        request_id: &'a HeaderValue,
    ) -> PlaceholderValues<'a> {
        let Self { target, client, identity, route, values, .. } = self;
        let (router, address) = (&rules.router, client.ip);
        let values = (&*rules.config.values, values.get().map_or(&[][..], |uses| uses));
        PlaceholderValues { router, route: *route, target, address, identity, request_id, values }
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

    /// Whether it has no body, and asks for no tunnel.
    pub(super) fn is_without_body(&self) -> bool {
        !self.facts.has_body && !self.asks_for_tunnel()
    }

    /// Whether it asks for a tunnel, whose bytes are no body.
    pub(super) fn asks_for_tunnel(&self) -> bool {
        let request = self.request();
        request.method == Method::CONNECT || request.headers.contains_key(header::UPGRADE)
    }

    /// What the route asks of the request.
    pub(super) fn asked(&self) -> &'r AskedOfRoute {
        &self.rules.asked[self.found.route]
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
                values: FoundValues::NONE,
                descriptor: self.facts.question.map_or(&[], Question::entries),
                has_address: self.facts.has_address(),
            }
        })
    }

    /// The attributes with the values that were read: of each call, if it is a batch.
    pub(crate) fn uses(&self) -> SmallVec<[RequestAttributes<'a>; 1]> {
        match self.found.values.get() {
            Some(uses) => {
                uses.iter().map(|values| RequestAttributes { values, ..*self.attributes() }).collect()
            }
            None => smallvec![*self.attributes()],
        }
    }

    /// The head of the request.
    pub fn request(&self) -> &'a request::Parts {
        self.facts.request
    }

    /// The method and the URL, for the traffic records.
    pub fn request_line(&self) -> RequestLine<'a> {
        let target = &self.found.target;
        let request = self.request();
        RequestLine {
            is_safe: request.method.is_safe(),
            path: target.path(),
            query: target.query(),
            headers: Some(&request.headers),
            // Bans are not known for the time of a logged request.
            is_logged: self.facts.bans.is_none(),
        }
    }

    /// The user in the form that may be stored: of the request, or else the name in its login form, which nobody has verified.
    pub fn recorded_user(&self) -> Option<Cow<'_, str>> {
        let identity = &self.found.identity;
        if let Some(user) = self.rules.written_user(identity) {
            return Some(user.into());
        }
        let mut uses = self.found.values.get()?.iter();
        let login = uses.find_map(FoundValues::person).filter(|_| identity.user.is_none())?;
        self.rules.names.stored_name(login)
    }

    /// The request, received at `time`, as evidence, with the user in the form that may be stored. Names and paths are
    /// cut, because clients can make them long and evidence is kept for a while.
    pub fn evidence(&self, time: i64) -> Arc<Entry> {
        let user = self.recorded_user();
        Arc::new(Entry {
            time,
            user: user.as_deref().map(|user| abuse::shorten_name(user).into()),
            method: self.request().method.clone(),
            path: self.request_line().recorded_path().into(),
        })
    }

    /// The client's address, if it is known.
    pub fn known_address(&self) -> Option<IpAddr> {
        let ClientIp { ip, is_known } = self.found.client;
        (is_known && self.facts.has_address()).then_some(ip)
    }
}
