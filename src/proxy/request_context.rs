//! The facts of a request that checks, bans and records need.

use std::{borrow::Cow, net::IpAddr};

use http::request;

use super::{client::ClientInfo, worker::Worker};
use crate::{
    abuse::RequestLine,
    config::model::Route,
    identity::{AddressIdentifier, Identity, RequestAttributes},
    router::{Host, Target},
    tls::TlsIdentity,
};

/// The facts of a request once its route is found.
pub(super) struct RequestContext<'a> {
    pub(super) request: &'a request::Parts,
    pub(super) target: &'a Target,
    pub(super) route: &'a Route,
    /// The client's address.
    pub(super) address: IpAddr,
    /// Whether `address` is really the client's: see [`ClientIp`](crate::identity::ClientIp).
    pub(super) is_address_known: bool,
    pub(super) identity: &'a Identity,
    /// The verified certificate of the connection.
    pub(super) certificate: Option<&'a TlsIdentity>,
    /// Whether the request came through a trusted proxy.
    pub(super) is_peer_trusted: bool,
}

impl<'a> RequestContext<'a> {
    /// The method and the URL, for the traffic records.
    pub(super) fn request_line(&self) -> RequestLine<'a> {
        let (path, query) = (self.target.path(), self.target.query());
        RequestLine { is_safe: self.request.method.is_safe(), path, query }
    }

    /// The client's address, if it is known.
    pub(super) fn known_address(&self) -> Option<IpAddr> {
        self.is_address_known.then_some(self.address)
    }

    /// The attributes for identifiers and conditions. `address`: the client's, from [`client_address`].
    pub(super) fn attributes(&self, address: &'a AddressIdentifier) -> RequestAttributes<'a> {
        RequestAttributes {
            address,
            user: self.identity.user.as_deref(),
            pseudonym: self.identity.pseudonym.as_deref(),
            is_user_verified: self.identity.is_verified,
            claims: self.identity.claims.as_deref(),
            certificate: self.certificate,
            is_peer_trusted: self.is_peer_trusted,
            method: &self.request.method,
            host: self.target.host().map(Host::name_bytes),
            path: self.target.loosest_path(),
            path_matching: self.route.matching,
            query: self.target.query(),
            headers: &self.request.headers,
            route: &self.route.name,
        }
    }
}

/// The identifier of the client's `address`. Usually that is the peer's, whose identifier exists already.
pub(super) fn client_address<'c, S>(
    worker: &Worker<S>,
    client: &'c ClientInfo,
    address: IpAddr,
) -> Cow<'c, AddressIdentifier> {
    if client.peer().address().ip() == address {
        Cow::Borrowed(client.address())
    } else {
        Cow::Owned(AddressIdentifier::new(address, worker.config().client_address.ipv6_prefix))
    }
}
