//! What decides over a request, apart from where it is asked and sent: the same for all workers, and for whoever only wants
//! to know what would become of a request.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{self, InvalidHeaderValue},
    request,
};

use super::{
    client::Client,
    forwarded,
    headers::{self, Via, X_FORWARDED_FOR},
    quota::Quotas,
};
use crate::{
    abuse::bans,
    config::model::{AddressHeader, Config},
    identity::{TrustedProxies, Verifier},
    limit::Policy,
    router::{Refused, Router, Target},
};

/// One configuration as requests are held against it. Immutable: another configuration has rules of its own.
pub struct Rules {
    pub(super) config: Arc<Config>,
    pub(super) router: Router,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) verifier: Arc<Verifier>,
    /// In the configuration's order.
    pub(super) policies: Arc<[Policy]>,
    /// Likewise.
    pub(super) bans: Vec<Arc<bans::Rule>>,
    /// What clients are told of the policies.
    pub(super) quotas: Quotas,
    /// How the proxy calls itself.
    pub(super) via: Via,
    /// The fields that only trusted peers may send.
    pub(super) claims: Vec<HeaderName>,
}

impl Rules {
    /// The rules of `config`, whose policies are `policies` and whose tokens `verifier` verifies.
    ///
    /// # Errors
    /// A policy's or the proxy's own name has characters that a field must not have.
    pub fn new(
        config: Arc<Config>,
        policies: Arc<[Policy]>,
        verifier: Arc<Verifier>,
    ) -> Result<Self, InvalidHeaderValue> {
        Ok(Self {
            router: Router::new(&config.routes),
            trusted_proxies: TrustedProxies::new(&config.trusted_proxies, &config.client_address.header),
            verifier,
            quotas: Quotas::new(&policies, &config.policies, config.reply_headers.ratelimit)?,
            via: Via::new(&config.reply_headers.via)?,
            claims: forwarded::claims(&config),
            bans: bans::Rule::all(config.bans.iter().map(Arc::as_ref)),
            policies,
            config,
        })
    }

    /// What is configured.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The policies, in the configuration's order.
    pub fn policies(&self) -> &Arc<[Policy]> {
        &self.policies
    }

    /// The peer, if it is not trusted and sends a forwarding field all the same.
    pub(super) fn untrusted_peer(&self, client: &Client, headers: &HeaderMap) -> Option<IpAddr> {
        if client.is_trusted() {
            return None;
        }
        let configured = match &self.config.client_address.header {
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => &X_FORWARDED_FOR,
            AddressHeader::Single(name) => name,
        };
        let is_forwarded = headers.contains_key(configured) || headers.contains_key(header::FORWARDED);
        is_forwarded.then(|| client.peer().ip().to_canonical())
    }

    /// Whether what `peer` says of others counts.
    pub(super) fn trusts(&self, peer: SocketAddr) -> bool {
        self.trusted_proxies.contains(peer.ip())
    }
}

/// What the request is for, if it can be read in one way only.
pub(super) fn target(request: &request::Parts) -> Result<Target, Refused> {
    framing(&request.headers)?;
    Target::of(&request.method, &request.uri, request.version, &request.headers)
}

fn framing(headers: &HeaderMap) -> Result<(), Refused> {
    match headers::is_coded(headers) {
        false => Ok(()),
        true => Err(Refused {
            status: StatusCode::NOT_IMPLEMENTED,
            detail: "No transfer coding but chunked is supported.",
        }),
    }
}
