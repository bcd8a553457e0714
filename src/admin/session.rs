//! The session cookie, set after a login with the token.
//!
//! Its value is an expiry time and a MAC of it, keyed with the token: every instance with the same token can check it
//! without stored state, and the token cannot be derived from it. It expires at that time, or when the token changes.
//! It can't be revoked for one browser alone: signing out only removes the cookie from the browser.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, header::COOKIE};
use sha2::Sha256;

use crate::config::model::Secret;

/// The cookie's name.
const NAME: &str = "tollgate_token";
/// Part of the MAC, so that no other MAC keyed with the token is valid as a session.
const LABEL: &[u8] = b"tollgate admin session v1\0";
/// Lifetime in seconds: a working day.
const LASTS: i64 = 12 * 60 * 60;
const SECOND: i64 = 1_000_000;

/// `Set-Cookie` after a login with `token` at `now`, in microseconds since the Unix epoch. `is_tls`: the browser uses
/// https, so the cookie is restricted to https.
pub(super) fn issue(token: &Secret, now: i64, is_tls: bool) -> String {
    let end = now / SECOND + LASTS;
    let mac = URL_SAFE_NO_PAD.encode(mac(token, end).finalize().into_bytes());
    set(&format!("{end}.{mac}"), LASTS, is_tls)
}

/// `Set-Cookie` that removes the cookie.
pub(super) fn expire(is_tls: bool) -> String {
    set("", 0, is_tls)
}

/// Whether a request has a cookie that was issued for `token` and has not expired.
pub(super) fn is_valid(token: &Secret, headers: &HeaderMap, now: i64) -> bool {
    cookie(headers, NAME).is_some_and(|value| is_valid_value(token, value, now))
}

/// The value of a cookie. Only the first of that name counts.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(found, value)| (found == name).then_some(value))
}

fn set(value: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn is_valid_value(token: &Secret, value: &str, now: i64) -> bool {
    let read = || {
        let (end, given) = value.split_once('.')?;
        Some((end.parse::<i64>().ok()?, URL_SAFE_NO_PAD.decode(given).ok()?))
    };
    read().is_some_and(|(end, given)| {
        // In constant time.
        let is_ours = mac(token, end).verify_slice(&given).is_ok();
        // An end later than any that is issued now was set by a wrong clock.
        is_ours && (1..=LASTS).contains(&end.saturating_sub(now / SECOND))
    })
}

fn mac(token: &Secret, end: i64) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mac = Hmac::<Sha256>::new_from_slice(token.reveal().as_bytes()).expect("any key will do");
    mac.chain_update(LABEL).chain_update(end.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: i64 = 1_783_080_001_000_000;

    fn value(cookie: &str) -> &str {
        cookie.split_once('=').unwrap().1.split(';').next().unwrap()
    }

    #[test]
    fn a_cookie_holds_until_it_ends_and_for_its_token_alone() {
        let token = Secret::new("s3cret");
        let cookie = issue(&token, NOW, false);
        let value = value(&cookie);
        let end = NOW + LASTS * SECOND;
        assert!(is_valid_value(&token, value, NOW) && is_valid_value(&token, value, end - 1_000_001));
        assert!(!is_valid_value(&token, value, end), "it is over");
        assert!(!is_valid_value(&token, value, NOW - 10 * SECOND), "it would last too long");
        assert!(!is_valid_value(&Secret::new("s3cres"), value, NOW));
        assert!(!value.contains("s3cret"));
        assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"));
        assert!(issue(&token, NOW, true).ends_with("; Secure"));
    }

    #[test]
    fn a_cookie_that_was_tampered_with_is_no_session() {
        let token = Secret::new("s3cret");
        let cookie = issue(&token, NOW, false);
        let (end, mac) = value(&cookie).split_once('.').unwrap();
        let later = end.parse::<i64>().unwrap() + 1;
        let flipped = if mac.starts_with('A') { "B" } else { "A" };
        for wrong in [
            String::new(),
            ".".to_owned(),
            end.to_owned(),
            format!("{end}."),
            format!("{later}.{mac}"),
            format!("{end}.{flipped}{}", &mac[1..]),
            format!("{end}.{}", &mac[..mac.len() - 4]),
            format!("{}.{mac}", i64::MIN),
            format!("{}.{mac}", i64::MAX),
            "s3cret".to_owned(),
        ] {
            assert!(!is_valid_value(&token, &wrong, NOW), "{wrong}");
        }
    }

    #[test]
    fn cookies_are_found_among_others() {
        let headers: HeaderMap = ["a=1; tollgate_token=x.y", "b=2"]
            .into_iter()
            .map(|value| (COOKIE, HeaderValue::from_static(value)))
            .collect();
        assert_eq!(cookie(&headers, NAME), Some("x.y"));
        assert_eq!(cookie(&headers, "b"), Some("2"));
        assert_eq!(cookie(&headers, "token"), None);
    }
}
