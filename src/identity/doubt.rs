//! Why a source that was asked names no user, in words.

use http::HeaderMap;

use super::{Verifier, cookie::cookies, field::sole};
use crate::config::model::{HeaderFrom, UserSource};

/// Why `sources[index]`, of which `verifier` is, names no user to a request of which
/// [`identify_telling`](super::identify_telling) found that.
pub fn doubt(
    sources: &[UserSource],
    index: usize,
    verifier: &Verifier,
    headers: &HeaderMap,
    peer_is_trusted: bool,
) -> String {
    let lines = |name| headers.get_all(name).iter().count();
    match sources.get(index) {
        Some(UserSource::Header { name, from: HeaderFrom::TrustedProxies })
            if !peer_is_trusted && lines(name) > 0 =>
        {
            format!("header {name}: it comes from a peer that is no trusted proxy")
        }
        Some(UserSource::Header { name, .. }) => match lines(name) {
            0 => format!("header {name}: it is not there"),
            1 => format!("header {name}: it is empty, or no name"),
            _ => format!("header {name}: it is there several times"),
        },
        Some(UserSource::Cookie(name)) => match cookies(headers, name).count() {
            0 => format!("cookie {name}: it is not there"),
            1 => format!("cookie {name}: it is empty, or no name"),
            _ => format!("cookie {name}: there are several that differ, or none is a name"),
        },
        Some(UserSource::Basic) => match sole(headers, &http::header::AUTHORIZATION) {
            None => "basic: there is no Authorization, or several".to_owned(),
            Some(_) => "basic: Authorization holds no Basic credentials with a name".to_owned(),
        },
        Some(UserSource::Jwt(jwt)) => {
            let before = sources.iter().take(index);
            let nth = before.filter(|source| matches!(source, UserSource::Jwt(_))).count();
            format!("jwt in {}: {}", jwt.header, verifier.doubt(nth, headers))
        }
        None => String::new(),
    }
}
