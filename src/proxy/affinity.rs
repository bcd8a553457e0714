//! Ties a client to one endpoint of an upstream: by its key where requests are balanced by hash, and by the cookie of
//! `sticky`.

use std::slice;

use compact_str::CompactString;
use http::{HeaderMap, HeaderValue, header};

use super::{client::ClientInfo, headers::X_FORWARDED_PROTO, request_context::RequestContext};
use crate::{
    config::model::{Balance, KeyRecipe, Missing, Sticky, Upstream},
    identity::{RequestAttributes, identifiers, single_value},
    router::cookies,
    upstream::{AffinityHash, HostId},
};

/// The key that the request is balanced by, if the upstream balances by hash.
pub(super) fn request_key(context: &RequestContext<'_, '_>, upstream: &Upstream) -> AffinityHash {
    let Balance::Hash(recipe) = &upstream.balance else { return AffinityHash::default() };
    balancing_key(recipe, context.attributes())
        .map_or_else(AffinityHash::default, |key| AffinityHash::new(&key))
}

/// The key of `recipe`, or the client's address if a request with these `attributes` lacks it.
pub(super) fn balancing_key(recipe: &KeyRecipe, attributes: &RequestAttributes<'_>) -> Option<CompactString> {
    identifiers(slice::from_ref(recipe), Missing::Ip, attributes).ok()?.into_iter().next()
}

/// The cookie by which a client comes back to the endpoint that served it before.
pub(super) struct StickyCookie<'a> {
    sticky: &'a Sticky,
    /// The host that the request's cookie names.
    pub(super) host: Option<HostId>,
    is_secure: bool,
}

impl<'a> StickyCookie<'a> {
    /// Removes the cookie of `upstream` from the request's fields: the upstream has no use for it. `None`: the
    /// upstream has no `sticky`.
    pub(super) fn take(upstream: &'a Upstream, client: &ClientInfo, headers: &mut HeaderMap) -> Option<Self> {
        let sticky = upstream.sticky.as_ref()?;
        let sent = cookies(headers, &sticky.cookie).next().is_some();
        let host = cookies(headers, &sticky.cookie).find_map(HostId::read);
        if sent {
            remove_cookies(headers, &sticky.cookie);
        }
        Some(Self { sticky, host, is_secure: is_secure(client, headers) })
    }

    /// Sets the cookie for `host`, which has responded, unless the client has it already. Cookies of the origin are
    /// kept.
    pub(super) fn renew(&self, host: HostId, headers: &mut HeaderMap) {
        if self.host == Some(host) {
            return;
        }
        let Self { sticky: Sticky { cookie, max_age }, is_secure, .. } = self;
        let max_age = max_age.map(|age| format!("; Max-Age={}", age.as_secs())).unwrap_or_default();
        let secure = if *is_secure { "; Secure" } else { "" };
        let cookie = format!("{cookie}={host}; Path=/{max_age}{secure}; HttpOnly; SameSite=Lax");
        // The name is a token, and the rest has no other characters.
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
}

/// Removes the cookies of this name from a request.
fn remove_cookies(headers: &mut HeaderMap, name: &str) {
    let is_own = |pair: &[u8]| {
        let name_of_pair = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
        name_of_pair.trim_ascii() == name.as_bytes()
    };
    let mut rest = Vec::new();
    for field in headers.get_all(header::COOKIE) {
        for pair in field.as_bytes().split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
            if !is_own(pair) && !pair.is_empty() {
                if !rest.is_empty() {
                    rest.extend_from_slice(b"; ");
                }
                rest.extend_from_slice(pair);
            }
        }
    }
    headers.remove(header::COOKIE);
    // Parts of valid values, joined by valid bytes, are valid.
    if !rest.is_empty()
        && let Ok(rest) = HeaderValue::from_bytes(&rest)
    {
        headers.insert(header::COOKIE, rest);
    }
}

/// Whether clients send the cookie over HTTPS: to this proxy, or to a trusted one before it.
fn is_secure(client: &ClientInfo, headers: &HeaderMap) -> bool {
    client.scheme() == "https"
        || client.is_trusted()
            && single_value(headers, &X_FORWARDED_PROTO)
                .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::testing::headers;

    #[test]
    fn only_the_proxys_own_cookie_is_removed() {
        for (lines, rest) in [
            (&["tg=a"][..], None),
            (&["x=1; tg=a; y=2"], Some("x=1; y=2")),
            (&["tg = a;x=\"tg=b\""], Some("x=\"tg=b\"")),
            (&["tg=a", "x=1", "tg=b; y=tg"], Some("x=1; y=tg")),
            (&["xtg=1; tgx=2; my tg=3"], Some("xtg=1; tgx=2; my tg=3")),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
            let mut map = headers(&lines);
            remove_cookies(&mut map, "tg");
            let left: Vec<_> = map.get_all("cookie").iter().map(|line| line.to_str().unwrap()).collect();
            assert_eq!(left, rest.into_iter().collect::<Vec<_>>(), "{lines:?}");
        }
    }

    #[test]
    fn the_cookie_stands_beside_those_of_the_origin() {
        let mut map = headers(&[("set-cookie", "session=1")]);
        let host = HostId::read(b"00000000000000ff").unwrap();
        let sticky = Sticky { cookie: "tg".to_owned(), max_age: None };
        StickyCookie { sticky: &sticky, host: None, is_secure: false }.renew(host, &mut map);
        let sticky = Sticky { max_age: Some(std::time::Duration::from_secs(90)), ..sticky };
        StickyCookie { sticky: &sticky, host: HostId::read(b"0000000000000001"), is_secure: true }
            .renew(host, &mut map);
        StickyCookie { sticky: &sticky, host: Some(host), is_secure: true }.renew(host, &mut map);
        assert_eq!(
            map.get_all("set-cookie").iter().collect::<Vec<_>>(),
            [
                "session=1",
                "tg=00000000000000ff; Path=/; HttpOnly; SameSite=Lax",
                "tg=00000000000000ff; Path=/; Max-Age=90; Secure; HttpOnly; SameSite=Lax",
            ]
        );
    }
}
