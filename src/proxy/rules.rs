//! The rules for requests under one configuration: shared by all workers and by `explain`.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderMap, StatusCode, Version,
    header::{self, InvalidHeaderValue},
    request,
};

use super::{
    claims::ClaimFields,
    cors::CorsRule,
    decisions::{DecisionWarnings, Question},
    field_survey::{FieldKind, FieldSurvey},
    headers::{self, Via, X_FORWARDED_FOR},
    peer::Peer,
    quota::QuotaTexts,
    read_request::AskedOfRoute,
    request_facts::{RequestFacts, RequestKey},
};
use crate::{
    abuse::{self, UserNaming, bans},
    api_keys::ApiKeys,
    config::model::{AddressHeader, ClientLimits, Config},
    identity::{
        AccessRules, AddressIdentifier, Identity, RequestKeys, TrustedProxies, Verifier, identify_with,
    },
    limit::Policy,
    router::{Rejection, Router, Target},
    telemetry::diagnostics::UntrustedPeer,
};

/// One configuration, prepared for checking requests. Immutable: another configuration has its own rules.
pub struct Rules {
    pub(super) config: Arc<Config>,
    pub router: Router,
    pub(super) trusted_proxies: TrustedProxies,
    /// Which addresses may send requests.
    pub(super) access: Arc<AccessRules>,
    /// The CORS rule of each route, in the configuration's order.
    pub(super) cors: Box<[Option<Arc<CorsRule>>]>,
    pub(super) verifier: Arc<Verifier>,
    /// Finds the API keys of requests. `None`: no request has one.
    pub(super) keys: Option<Box<RequestKeys>>,
    /// How users are stored and logged.
    pub names: UserNaming,
    /// What each route asks of its requests, in the configuration's order.
    pub(super) asked: Box<[AskedOfRoute]>,
    /// Whether usage is recorded, also of requests that a policy exempts.
    pub(super) records_usage: bool,
    /// Whether plans allow only some values.
    pub(super) has_restricted_plans: bool,
    /// In the configuration's order.
    pub(super) policies: Arc<[Policy]>,
    /// The same for requests about which another proxy asks: they do not wait. Empty if no listener serves decisions.
    pub(super) undelayed: Arc<[Policy]>,
    /// Warnings about what such questions ask in vain.
    pub(super) warnings: DecisionWarnings,
    /// In the configuration's order.
    pub(super) bans: Vec<Arc<bans::LadderRule>>,
    /// The texts for clients about the policies.
    pub(super) quotas: QuotaTexts,
    /// The proxy's member of `Via`.
    pub(super) via: Via,
    /// The fields that clients must not set for themselves.
    pub(super) claims: Arc<ClaimFields>,
}

impl Rules {
    /// The rules of `config` with these `policies`. `verifier` verifies its tokens, and `access` decides which
    /// addresses may send requests. `keys`: the API keys that are known.
    ///
    /// # Errors
    /// A policy's or the proxy's own name has characters that are not allowed in a field.
    pub fn new(
        config: Arc<Config>,
        policies: Arc<[Policy]>,
        verifier: Arc<Verifier>,
        access: Arc<AccessRules>,
        keys: Arc<ApiKeys>,
    ) -> Result<Self, InvalidHeaderValue> {
        let keys = config.api_keys.as_ref().map(|settings| RequestKeys::new(settings, &config.user, keys));
        Ok(Self {
            router: Router::with_listeners(&config.routes, &config.listeners),
            trusted_proxies: TrustedProxies::new(&config.trusted_proxies, &config.client_address.header),
            access,
            cors: config
                .routes
                .iter()
                .map(|route| Some(Arc::new(CorsRule::new(route.cors.as_deref()?))))
                .collect(),
            verifier,
            keys: keys.map(Box::new),
            names: UserNaming::new(&config.abuse),
            quotas: QuotaTexts::new(&policies, &config.policies, config.reply_headers.ratelimit)?,
            via: Via::new(&config.reply_headers.via)?,
            claims: Arc::new(ClaimFields::new(&config)),
            asked: config.routes.iter().map(|route| AskedOfRoute::new(&config, &policies, route)).collect(),
            records_usage: config.history.is_some(),
            has_restricted_plans: config.plans.iter().any(|plan| !plan.allow_values.is_empty()),
            bans: bans::LadderRule::from_config(config.bans.iter().map(Arc::as_ref)),
            undelayed: match config.listeners.iter().any(|listener| listener.decisions.is_some()) {
                true => policies.iter().map(Policy::undelayed).collect(),
                false => Arc::default(),
            },
            warnings: DecisionWarnings::default(),
            policies,
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The address of the client that sends `headers` by `peer`. If a trusted proxy does not tell it, that proxy's own.
    pub fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let proxies = &self.trusted_proxies;
        proxies.client_address(peer, proxies.contains(peer), headers).ip
    }

    /// The policies, in the configuration's order.
    pub fn policies(&self) -> &Arc<[Policy]> {
        &self.policies
    }

    /// Identifies the user of a request. If names are not stored, the user's pseudonym for keys is made here, once
    /// per request. `now`: its time, in microseconds since the Unix epoch. `on_source`: called with the index of each
    /// source that is tried.
    pub(super) fn identify(
        &self,
        facts: &RequestFacts<'_>,
        now: impl FnOnce() -> i64,
        on_source: impl FnMut(usize),
    ) -> Identity {
        let key = self.keys.as_ref().and_then(|keys| keys.find(facts.request, now));
        self.identify_holder(facts, key, on_source)
    }

    /// Identifies the user of a request whose API key is `key`. `on_source`: called with the index of each source that is tried.
    pub fn identify_holder(
        &self,
        facts: &RequestFacts<'_>,
        key: RequestKey,
        on_source: impl FnMut(usize),
    ) -> Identity {
        let credentials = facts.credentials(&key);
        let mut identity = identify_with(&self.config.user, &self.verifier, credentials, on_source);
        identity.key = key;
        if let Some(user) = facts.question.and_then(Question::user) {
            (identity.user, identity.is_verified) = (Some(user.clone()), true);
        }
        self.add_pseudonym(&mut identity);
        identity
    }

    /// Whether other proxies ask on the listener of this index.
    pub(super) fn is_asked_on(&self, listener: usize) -> bool {
        self.config.listeners.get(listener).is_some_and(|listener| listener.decisions.is_some())
    }

    /// Removes from `request`, before anything else sees it, an API key in the query, and the fields that only proxies in front
    /// may set, unless its peer is one.
    pub fn conceal(&self, request: &mut request::Parts, is_peer_trusted: bool) {
        if !is_peer_trusted {
            for name in self.claims.of_proxies(&request.headers) {
                request.headers.remove(name);
            }
        }
        self.conceal_key(request);
    }

    /// Removes an API key from the query of `request`, before anything else sees it.
    pub fn conceal_key(&self, request: &mut request::Parts) {
        if let Some(keys) = &self.keys {
            keys.conceal(request);
        }
    }

    /// The target of a request that is not served, as it may be logged: without its query, if that may have an API key.
    pub(super) fn loggable_target<'t>(&self, target: &'t [u8]) -> &'t [u8] {
        match &self.keys {
            Some(keys) if keys.reads_query() => target.split(|&byte| byte == b'?').next().unwrap_or_default(),
            _ => target,
        }
    }

    /// The keys that were not read since the start, and why: API keys, and key sets of providers of tokens.
    pub fn unread_key_sets(&self) -> Vec<String> {
        let mut unread = self.verifier.unread_key_sets();
        if self.keys.as_ref().is_some_and(|keys| !keys.registry().is_loaded()) {
            unread.push("the API keys in Redis were not read yet".to_owned());
        }
        unread
    }

    /// Adds the user's pseudonym for keys.
    pub fn add_pseudonym(&self, identity: &mut Identity) {
        if let Some(user) = &identity.user {
            identity.pseudonym = self.names.pseudonym(user);
        }
    }

    /// The user in the form that may be stored.
    pub(super) fn written_user<'i>(&self, identity: &'i Identity) -> Option<&'i str> {
        self.names.written(identity.user.as_deref(), identity.pseudonym.as_deref())
    }

    /// The address that identifies a client: for IPv6, the first bits only.
    pub(super) fn identifying_address(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(_) => abuse::masked(address, self.config.client_address.ipv6_prefix).addr(),
        }
    }

    /// The identifier of a client's address.
    pub fn address_identifier(&self, address: IpAddr) -> AddressIdentifier {
        AddressIdentifier::new(address, self.config.client_address.ipv6_prefix)
    }

    /// Surveys the head of a request.
    pub fn survey(&self, headers: &HeaderMap) -> FieldSurvey {
        FieldSurvey::new(headers, Some(&self.claims))
    }

    /// The peer, which is not trusted, if it sends a forwarding field.
    pub(super) fn untrusted_peer(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        survey: FieldSurvey,
    ) -> Option<UntrustedPeer> {
        if !survey.has(FieldKind::Claim) {
            return None;
        }
        let peer = match peer {
            Peer::Address(address) => UntrustedPeer::Address(address.ip().to_canonical()),
            Peer::Balancer(address) => UntrustedPeer::Balancer(address.ip().to_canonical()),
            Peer::Unix => return None,
        };
        let configured = match &self.config.client_address.header {
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => &X_FORWARDED_FOR,
            AddressHeader::Single(name) => name,
        };
        let forwards = headers.contains_key(configured) || headers.contains_key(header::FORWARDED);
        forwards.then_some(peer)
    }

    /// Whether the forwarding fields of `peer` count. A load balancer forwards bytes, so the fields are the client's,
    /// and a client that its PROXY header does not name can't be trusted.
    pub(super) fn is_trusted_proxy(&self, peer: Peer) -> bool {
        match peer {
            Peer::Address(address) => self.trusted_proxies.contains(address.ip()),
            Peer::Unix => self.trusted_proxies.has_unix(),
            Peer::Balancer(_) => false,
        }
    }
}

/// Parses the target of the request.
///
/// # Errors
/// It is malformed or ambiguous, or has too many fields, or a transfer coding or an expectation that is not supported.
pub(super) fn parse_target(
    request: &request::Parts,
    survey: FieldSurvey,
    limits: &ClientLimits,
) -> Result<Target, Rejection> {
    // hyper counts the fields of HTTP/1 itself.
    if request.version == Version::HTTP_2 && request.headers.len() > limits.headers {
        return Err(Rejection {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            detail: "The request has too many header fields.",
        });
    }
    check_framing(&request.headers, survey)?;
    if request.version == Version::HTTP_2 && !headers::are_readable(&request.headers) {
        return Err(Rejection {
            status: StatusCode::BAD_REQUEST,
            detail: "A header field is malformed, or its value begins or ends with white space.",
        });
    }
    check_expectation(&request.headers, survey)?;
    Target::parse(&request.method, &request.uri, request.version, &request.headers)
}

/// Refuses all expectations but 100-continue (RFC 9110, 10.1.1).
fn check_expectation(headers: &HeaderMap, survey: FieldSurvey) -> Result<(), Rejection> {
    let is_known = |expectation: &[u8]| expectation.eq_ignore_ascii_case(b"100-continue");
    if !survey.has(FieldKind::Expect)
        || headers.get_all(header::EXPECT).iter().flat_map(headers::elements).all(is_known)
    {
        return Ok(());
    }
    Err(Rejection {
        status: StatusCode::EXPECTATION_FAILED,
        detail: "The only supported expectation is 100-continue.",
    })
}

fn check_framing(headers: &HeaderMap, survey: FieldSurvey) -> Result<(), Rejection> {
    match headers::has_other_coding(headers, survey) {
        false => Ok(()),
        true => Err(Rejection {
            status: StatusCode::NOT_IMPLEMENTED,
            detail: "The only supported transfer coding is chunked.",
        }),
    }
}
