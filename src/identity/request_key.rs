//! The API key of a request: where it stands, and whose it is.

use std::{borrow::Cow, sync::Arc};

use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Uri,
    header::{AUTHORIZATION, REFERER},
    request,
    uri::{Parts, PathAndQuery},
};

use super::user::{Identity, RequestKeyFault};
use crate::{
    api_keys::{ApiKey, ApiKeys, KeyFault, KeyHash, MAX_KEY_LENGTH, MIN_KEY_LENGTH},
    config::model::{ApiKeySettings, KeySource, UserSource},
    router::query_values,
};

/// Finds the API keys of requests.
pub struct RequestKeys {
    settings: ApiKeySettings,
    /// With which bearer tokens begin that are keys: `tgk_`.
    bearer_prefix: String,
    /// Whether other bearer tokens are keys, too.
    takes_any_bearer: bool,
    keys: Arc<ApiKeys>,
}

/// The key in a request's query, which was removed from there so that nothing else sees it.
#[derive(Clone)]
struct ConcealedQuery {
    /// The parameters that hold it, as they were written.
    written: String,
}

impl RequestKeys {
    /// `users`: the sources of user IDs, some of which may read bearer tokens, too.
    pub fn new(settings: &ApiKeySettings, users: &[UserSource], keys: Arc<ApiKeys>) -> Self {
        let reads_bearer =
            |source: &UserSource| matches!(source, UserSource::Jwt(jwt) if jwt.header == AUTHORIZATION);
        Self {
            settings: settings.clone(),
            bearer_prefix: format!("{}_", settings.prefix),
            takes_any_bearer: settings.required && !users.iter().any(reads_bearer),
            keys,
        }
    }

    pub fn settings(&self) -> &ApiKeySettings {
        &self.settings
    }

    /// The keys that are known.
    pub fn registry(&self) -> &ApiKeys {
        &self.keys
    }

    /// Whether the query may have a key.
    pub fn reads_query(&self) -> bool {
        self.settings.from.iter().any(|source| matches!(source, KeySource::Query(_)))
    }

    /// Removes the key from the query, so that neither logs nor records, traces, redirects or the upstream have it.
    /// It is still found in `request`.
    pub fn conceal(&self, request: &mut request::Parts) {
        if !self.reads_query() {
            return;
        }
        // The page with this URL sends it with each of its requests.
        let referer = request.headers.get(REFERER).map(HeaderValue::as_bytes);
        if referer.is_some_and(|referer| self.is_in_query(&String::from_utf8_lossy(referer))) {
            request.headers.remove(REFERER);
        }
        let Some(query) = request.uri.query().filter(|query| self.has_key(query)) else { return };
        let (written, kept): (Vec<&str>, Vec<&str>) = query.split('&').partition(|part| self.has_key(part));
        let concealed = ConcealedQuery { written: written.join("&") };
        if let Some(uri) = with_query(&request.uri, &kept.join("&")) {
            request.uri = uri;
            request.extensions.insert(concealed);
        }
    }

    /// Whether a key is in the query of this URL.
    fn is_in_query(&self, url: &str) -> bool {
        url.split_once('?').is_some_and(|(_, query)| self.has_key(query))
    }

    /// Whether one of the parameters is a key.
    fn has_key(&self, query: &str) -> bool {
        self.settings.from.iter().any(|source| match source {
            KeySource::Query(name) => query_values(query, name).next().is_some(),
            KeySource::Header(_) | KeySource::Bearer => false,
        })
    }

    /// The key of a request, if it has one, at the time `now`, in microseconds since the Unix epoch.
    ///
    /// # Errors
    /// The key is not valid.
    pub fn find(
        &self,
        request: &request::Parts,
        now: impl FnOnce() -> i64,
    ) -> Option<Result<Arc<ApiKey>, RequestKeyFault>> {
        let mut found: Option<Cow<'_, [u8]>> = None;
        let texts = self.settings.from.iter().flat_map(|source| self.texts(source, request));
        // An empty one is none.
        for text in texts.filter(|text| !text.trim_ascii().is_empty()) {
            match &found {
                None => found = Some(text),
                Some(first) if *first == text => {}
                Some(_) => return Some(Err(RequestKeyFault::Several)),
            }
        }
        let find = |text: &[u8]| self.keys.find(&KeyHash::of(text), now());
        let Some(text) = found else {
            let other = self.other_bearer(&request.headers).filter(|other| is_key_text(other))?;
            return Some(find(other).map_err(|fault| match fault {
                KeyFault::Unknown => self.unknown(RequestKeyFault::OtherToken),
                fault => RequestKeyFault::OtherInvalid(fault),
            }));
        };
        // Another bearer token beside it is the upstream's. Nobody looks whether it is a key, too: a response that
        // depends on this would tell it to guessers.
        if !is_key_text(&text) {
            return Some(Err(RequestKeyFault::Malformed));
        }
        Some(find(&text).map_err(|fault| match fault {
            KeyFault::Unknown => self.unknown(RequestKeyFault::Invalid(fault)),
            fault => RequestKeyFault::Invalid(fault),
        }))
    }

    /// The fault of a key that is not known: `unknown`, if all keys are.
    fn unknown(&self, unknown: RequestKeyFault) -> RequestKeyFault {
        if self.keys.is_loaded() { unknown } else { RequestKeyFault::NotLoaded }
    }

    /// A bearer token that may be an imported key: it has no prefix, and nothing else verifies tokens.
    fn other_bearer<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (line, more) = (lines.next()?, lines.next());
        let is_read = self.takes_any_bearer && self.settings.from.contains(&KeySource::Bearer);
        bearer_token(line).filter(|_| is_read && more.is_none())
    }

    /// Notes that `key` was used at the time `now`.
    pub fn note_use(&self, key: &ApiKey, now: i64) {
        self.keys.note_use(&key.id, now);
    }

    /// The texts at one place of the request.
    fn texts<'a>(
        &'a self,
        source: &'a KeySource,
        request: &'a request::Parts,
    ) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let concealed = || request.extensions.get::<ConcealedQuery>();
        let (headers, query) = match source {
            KeySource::Header(name) => (Some(request.headers.get_all(name)), None),
            KeySource::Bearer => (Some(request.headers.get_all(AUTHORIZATION)), None),
            KeySource::Query(name) => (None, concealed().map(|query| query_values(&query.written, name))),
        };
        let is_bearer = *source == KeySource::Bearer;
        let of_headers = headers.into_iter().flatten().filter_map(move |line| match is_bearer {
            true => self.bearer_key(line),
            false => Some(line.as_bytes()),
        });
        of_headers.map(Cow::Borrowed).chain(query.into_iter().flatten())
    }

    /// The key in a line of `Authorization`, if it has the prefix of keys.
    fn bearer_key<'a>(&self, line: &'a HeaderValue) -> Option<&'a [u8]> {
        bearer_token(line).filter(|token| token.starts_with(self.bearer_prefix.as_bytes()))
    }

    /// Prepares the header of a request for the upstream: removes the key, unless upstreams get keys, and tells whose
    /// key it is.
    pub fn prepare_upstream(&self, headers: &mut HeaderMap, identity: &Identity) {
        if !self.settings.forward {
            self.remove(headers, identity);
        }
        let key = identity.valid_key();
        for (name, field) in self.settings.headers.all() {
            let value = key.and_then(|key| key.field(field));
            match value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(name)),
            }
        }
    }

    /// The fields that tell upstreams whose key a request has.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.settings.headers.all().map(|(name, _)| name)
    }

    /// The URI for the upstream, with the key that was removed from the query, if upstreams get keys.
    pub fn revealed(&self, uri: &Uri, extensions: &Extensions) -> Option<Uri> {
        let concealed = extensions.get::<ConcealedQuery>().filter(|_| self.settings.forward)?;
        let query = match uri.query() {
            Some(query) if !query.is_empty() => format!("{query}&{}", concealed.written),
            _ => concealed.written.clone(),
        };
        with_query(uri, &query)
    }

    /// Removes the key from the header. Another token in `Authorization` is the upstream's.
    fn remove(&self, headers: &mut HeaderMap, identity: &Identity) {
        let is_of_key = |token: &[u8]| match &identity.key {
            Some(Ok(key)) => {
                let hash = KeyHash::of(token);
                key.secrets.iter().any(|secret| secret.hash == hash)
            }
            Some(Err(RequestKeyFault::OtherInvalid(_))) => true,
            _ => false,
        };
        for source in &self.settings.from {
            match source {
                KeySource::Header(name) => drop(headers.remove(name)),
                KeySource::Bearer => {
                    let has_prefix = |line| self.bearer_key(line).is_some();
                    let is_key = headers.get_all(AUTHORIZATION).iter().any(has_prefix)
                        || self.other_bearer(headers).is_some_and(is_of_key);
                    if is_key {
                        headers.remove(AUTHORIZATION);
                    }
                }
                KeySource::Query(_) => {}
            }
        }
    }
}

/// Whether a key can be written like this.
fn is_key_text(text: &[u8]) -> bool {
    (MIN_KEY_LENGTH..=MAX_KEY_LENGTH).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic)
}

/// The token in a line of `Authorization` (RFC 6750, 2.1).
fn bearer_token(line: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = line.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The URI with another query. Without one, its question mark goes as well.
fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let target = match query {
        "" => uri.path().to_owned(),
        query => format!("{}?{query}", uri.path()),
    };
    let mut parts: Parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}
