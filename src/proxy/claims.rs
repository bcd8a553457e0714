//! Header fields that tell the sender or the purpose of a request. Routes, limits and origins rely on them, so only
//! trusted peers may send them, and only in the head of a message.

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use crate::config::model::{
    AddressHeader, Condition, Config, Cost, HeaderFrom, KeyPart, KeyRecipe, KeySource, MethodOverride,
    Policy, UserSource,
};

/// The fields that clients must not set for themselves, under one configuration.
#[derive(Debug)]
pub(super) struct ClaimFields {
    /// Configured fields that proxies in front set: users, and `trusted_headers`.
    of_proxies: Vec<HeaderName>,
    /// Configured fields that only trusted peers may send, including those of proxies.
    reserved: Vec<HeaderName>,
    /// All fields that a setting names, including the reserved ones.
    named: Vec<HeaderName>,
}

impl ClaimFields {
    pub(super) fn new(config: &Config) -> Self {
        let of_proxies = fields_of_proxies(config);
        let reserved = of_proxies.iter().cloned().chain(reserved_fields(config)).collect::<Vec<_>>();
        let named = reserved.iter().cloned().chain(named_fields(config)).collect();
        Self { of_proxies, reserved, named }
    }

    /// The fields of `headers` that only proxies in front may set, in any spelling.
    pub(super) fn of_proxies(&self, headers: &HeaderMap) -> SmallVec<[HeaderName; 4]> {
        if self.of_proxies.is_empty() {
            return SmallVec::new();
        }
        let is_theirs = |name: &&HeaderName| {
            self.of_proxies.iter().any(|field| is_spelling(name.as_str(), field.as_str()))
        };
        headers.keys().filter(is_theirs).cloned().collect()
    }

    /// Removes a client's claims about itself from the head of a request: all claims of an untrusted peer, and the
    /// misspelled ones of a trusted peer, which that peer only passed on from its client.
    pub(super) fn remove_from_head(
        &self,
        headers: &mut HeaderMap,
        is_peer_trusted: bool,
        method_override: MethodOverride,
    ) {
        let is_allowed = |name: &str| method_override == MethodOverride::Allow && is_method_override(name);
        remove_where(headers, |name| {
            let name = name.as_str();
            (self.is_reserved(name) || is_claim(name) && !is_allowed(name))
                && (!is_peer_trusted || self.is_misspelled(name))
        });
    }

    /// Whether a claim is spelled differently than in the setting that names it, or, if no setting does, than proxies
    /// spell it.
    pub(super) fn is_misspelled(&self, name: &str) -> bool {
        let has_only_dashes = || name.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric());
        !self.named.iter().any(|field| field == name) && (self.is_reserved(name) || !has_only_dashes())
    }

    /// Whether only trusted peers may send a field of this name, unless the route allows it.
    pub(super) fn reserves(&self, name: &str) -> bool {
        is_claim(name) || self.is_reserved(name)
    }

    fn is_reserved(&self, name: &str) -> bool {
        self.reserved.iter().any(|field| is_spelling(name, field.as_str()))
    }

    /// Whether a field of this name is a claim or is named in a setting. Clients cannot remove such a field of a
    /// trusted proxy by `Connection`, nor send it as a trailer.
    pub(super) fn mentions(&self, name: &str) -> bool {
        is_claim(name) || self.named.iter().any(|field| is_spelling(name, field.as_str()))
    }
}

/// The fields of users that a gateway sets, those that tell upstreams about an API key, and `trusted_headers`.
fn fields_of_proxies(config: &Config) -> Vec<HeaderName> {
    let users = config.user.iter().filter_map(|source| match source {
        UserSource::Header { name, from: HeaderFrom::TrustedProxies } => Some(name),
        _ => None,
    });
    let told = config.api_keys.iter().flat_map(|keys| keys.headers.all()).map(|(name, _)| name);
    let mut all: Vec<HeaderName> = Vec::new();
    for name in users.chain(&config.trusted_headers).chain(told) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// The fields of the client's address and the request's ID.
fn reserved_fields(config: &Config) -> impl Iterator<Item = HeaderName> {
    let address = match &config.client_address.header {
        AddressHeader::Single(name) => Some(name.clone()),
        AddressHeader::XForwardedFor | AddressHeader::Forwarded => None,
    };
    address.into_iter().chain([config.request_id.clone()])
}

/// The other fields that settings name: for users, keys, costs, exemptions and routes.
fn named_fields(config: &Config) -> Vec<HeaderName> {
    let users = config.user.iter().filter_map(|source| match source {
        UserSource::Header { name, .. } => Some(name),
        UserSource::Jwt(token) => Some(&token.header),
        UserSource::Cookie(_) | UserSource::Basic | UserSource::Tls(_) | UserSource::ApiKey(_) => None,
    });
    let policies = config.policies.iter().flat_map(|policy| {
        let Policy { keys, value, cost, exempt, overrides, .. } = &**policy;
        let keys =
            keys.iter().chain(value).flat_map(|KeyRecipe(parts)| parts).filter_map(|part| match part {
                KeyPart::Header(name) => Some(name),
                _ => None,
            });
        let cost = match cost {
            Cost::Header { name, .. } => Some(name),
            Cost::Fixed(_) | Cost::Response(_) => None,
        };
        let conditions = exempt.iter().chain(overrides.iter().map(|of| &of.condition));
        keys.chain(cost).chain(conditions.filter_map(Condition::header))
    });
    let bans = config.bans.iter().flat_map(|rule| rule.exempt.iter().filter_map(Condition::header));
    let routes = config.routes.iter().flat_map(|route| route.headers.iter().map(|(name, _)| name));
    let keys = config.api_keys.iter().flat_map(|keys| &keys.from).filter_map(|source| match source {
        KeySource::Header(name) => Some(name),
        KeySource::Bearer | KeySource::Query(_) => None,
    });
    users.chain(policies).chain(bans).chain(routes).chain(keys).cloned().collect()
}

/// Whether proxies use this field to tell each other the sender or the purpose of a request, or clients use it to ask
/// for another method, path or host than the ones that were matched.
///
/// Other spellings count, too: CGI programs read `X-Forwarded-For` as `HTTP_X_FORWARDED_FOR` (RFC 3875, 4.1.18), and
/// many frameworks do not distinguish `X_Forwarded_For` and `X.Forwarded.For` from it.
pub fn is_claim(name: &str) -> bool {
    // Hardly any field of a client begins with one of these letters.
    let claims: &[&str] = match name.as_bytes().first() {
        Some(b'c') => &CLAIMS_OF_C,
        Some(b'f') => &["forwarded", "fastly-client-ip"],
        // CGI programs read the first as the variable HTTP_PROXY, the proxy for their own requests.
        Some(b'p') => &["proxy", "proxy-client-ip"],
        Some(b't') => &["true-client-ip"],
        Some(b'w') => &["wl-proxy-client-ip"],
        Some(b'x') => return is_x_claim(name),
        _ => return false,
    };
    claims.iter().any(|claim| is_spelling(name, claim))
}

const CLAIMS_OF_C: [&str; 4] = [
    "cf-connecting-ip",
    "client-ip",
    // RFC 9440
    "client-cert",
    "client-cert-chain",
];

fn is_x_claim(name: &str) -> bool {
    has_prefix(name, "x-forwarded-")
        || CLAIMS_OF_X.iter().any(|claim| is_spelling(name, claim))
        || is_method_override(name)
}

const CLAIMS_OF_X: [&str; 15] = [
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    // Some origins read the host, the path or the method from these, which would then differ from the matched ones.
    "x-host",
    "x-http-host-override",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-rewrite-url",
];

/// Whether a client asks by this field for another method than the request line's. Rails, Laravel and Express'
/// `method-override` obey it.
pub(super) fn is_method_override(name: &str) -> bool {
    ["x-http-method-override", "x-http-method", "x-method-override"].iter().any(|of| is_spelling(name, of))
}

/// Whether `name` is a spelling of `field`: the same letters and digits, with any separators.
pub(super) fn is_spelling(name: &str, field: &str) -> bool {
    name.len() == field.len() && has_prefix(name, field)
}

pub(super) fn has_prefix(name: &str, prefix: &str) -> bool {
    name.len() >= prefix.len()
        && name.bytes().zip(prefix.bytes()).all(|(byte, want)| {
            byte == want || !byte.is_ascii_alphanumeric() && !want.is_ascii_alphanumeric()
        })
}

/// Removes the fields whose names fulfil the condition.
pub(super) fn remove_where(headers: &mut HeaderMap, condition: impl Fn(&HeaderName) -> bool) {
    let names: SmallVec<[HeaderName; 4]> = headers.keys().filter(|name| condition(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::{
        proxy::headers::testing::{headers, names},
        telemetry,
    };

    fn claims(reserved: &'static str, named: &'static str) -> ClaimFields {
        let field = HeaderName::from_static;
        let named = vec![field(reserved), field(named)];
        ClaimFields { of_proxies: Vec::new(), reserved: vec![field(reserved)], named }
    }

    #[test]
    fn claims_are_removed_in_every_spelling() {
        let mut map = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("x-edge-ip", "1.1.1.1"),
            ("fastly-client-ip", "1.1.1.1"),
            ("proxy-client-ip", "1.1.1.1"),
            ("wl-proxy-client-ip", "1.1.1.1"),
            ("x-azure-clientip", "1.1.1.1"),
            ("x-envoy-external-address", "1.1.1.1"),
            ("x-original-forwarded-for", "1.1.1.1"),
            ("x-forwarded-client-cert", "Hash=1"),
            ("x_forwarded_client_cert", "Hash=1"),
            ("x.forwarded.for", "1.1.1.1"),
            ("x-forwarded~for", "1.1.1.1"),
            ("x!real+ip", "1.1.1.1"),
            ("x.edge-ip", "1.1.1.1"),
            ("wl_proxy_client_ip", "1.1.1.1"),
            ("client-cert", ":AA==:"),
            ("client_cert", ":AA==:"),
            ("client-cert-chain", ":AA==:"),
            ("client_cert-chain", ":AA==:"),
            ("proxy", "http://1.1.1.1"),
            ("x-host", "evil.example"),
            ("x_original_method", "DELETE"),
            ("x-rewrite-url", "/admin"),
            ("x-http-method-override", "DELETE"),
            ("x_http_method", "DELETE"),
            ("client-certs", "kept"),
            ("x-request-id", "abc"),
            ("forwarded-by-me", "kept"),
            ("from", "me@example.org"),
        ]);
        let kept = ["client-certs", "forwarded-by-me", "from"];
        let edge = claims("x-edge-ip", "x-plan");
        let mut of_trusted = map.clone();
        edge.remove_from_head(&mut of_trusted, true, MethodOverride::Remove);
        let misspelled = |map: &HeaderMap| {
            map.keys().filter(|name| name.as_str().contains(['_', '.', '~', '!', '+'])).count()
        };
        assert_eq!((misspelled(&map), misspelled(&of_trusted)), (11, 0));
        assert_eq!(of_trusted.len(), map.len() - 11);
        edge.remove_from_head(&mut map, false, MethodOverride::Remove);
        assert_eq!(names(&map), [&kept[..], &["x-request-id"]].concat());
        map.insert("x_request_id", HeaderValue::from_static("abc"));
        claims("x-request-id", "x-plan").remove_from_head(&mut map, false, MethodOverride::Remove);
        assert_eq!(names(&map), kept);
    }

    #[test]
    fn a_method_override_stays_where_the_route_allows_it() {
        let mut map = headers(&[("x-http-method-override", "PUT"), ("x-original-method", "PUT")]);
        claims("x-request-id", "x-plan").remove_from_head(&mut map, false, MethodOverride::Allow);
        assert_eq!(names(&map), ["x-http-method-override"]);
    }

    #[test]
    fn a_trusted_peer_sends_a_reserved_field_as_it_is_configured() {
        let mut map = headers(&[("x_plan", "free"), ("x-plan", "gold"), ("x.plan", "gold")]);
        claims("x_plan", "x-other").remove_from_head(&mut map, true, MethodOverride::Remove);
        assert_eq!(names(&map), ["x_plan"]);
        let mut map = headers(&[("x_http_method", "PUT")]);
        claims("x-plan", "x-other").remove_from_head(&mut map, true, MethodOverride::Allow);
        assert_eq!(names(&map), ["x_http_method"]);
    }

    #[test]
    fn the_fields_of_every_setting_are_known() {
        let mut config = telemetry::testing::config();
        config.user = vec![
            UserSource::Header { name: HeaderName::from_static("x-user"), from: HeaderFrom::TrustedProxies },
            UserSource::Header { name: HeaderName::from_static("x-name"), from: HeaderFrom::Anyone },
        ];
        config.routes[0].headers.push((HeaderName::from_static("x-version"), HeaderValue::from_static("2")));
        let ClaimFields { reserved, named, .. } = ClaimFields::new(&config);
        let request_id = config.request_id.as_str();
        assert_eq!(reserved.iter().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-user", request_id]);
        for name in ["x-user", "x-name", "x-version", request_id] {
            assert!(named.iter().any(|of| of == name), "{name}");
        }
    }
}
