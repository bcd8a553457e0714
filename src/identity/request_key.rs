//! The API key of a request: where it stands, and whose it is.

use std::{borrow::Cow, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Uri,
    header::AUTHORIZATION,
    request,
    uri::{Parts, PathAndQuery},
};

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

/// Why the key of a request is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKeyFault {
    /// The request has several that differ.
    Several,
    /// It is too short, too long, or has other characters than visible ASCII.
    Malformed,
    /// The keys were not read yet, so that nobody can tell whether it is valid.
    NotLoaded,
    Invalid(KeyFault),
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

    /// Removes the key from the query, so that neither logs nor records, traces, redirects or the upstream have it.
    /// It is still found in `request`.
    pub fn conceal(&self, request: &mut request::Parts) {
        let is_key = |parameter: &str| {
            let names = self.settings.from.iter().filter_map(|source| match source {
                KeySource::Query(name) => Some(name),
                _ => None,
            });
            names.into_iter().any(|name| query_values(parameter, name).next().is_some())
        };
        let Some(query) = request.uri.query() else { return };
        if !query.split('&').any(is_key) {
            return;
        }
        let (written, kept): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|parameter| is_key(parameter));
        let concealed = ConcealedQuery { written: written.join("&") };
        if let Some(uri) = with_query(&request.uri, &kept.join("&")) {
            request.uri = uri;
            request.extensions.insert(concealed);
        }
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
        for text in self.settings.from.iter().flat_map(|source| self.texts(source, request)) {
            match &found {
                None => found = Some(text),
                Some(first) if *first == text => {}
                Some(_) => return Some(Err(RequestKeyFault::Several)),
            }
        }
        let text = found?;
        let length = MIN_KEY_LENGTH..=MAX_KEY_LENGTH;
        if !length.contains(&text.len()) || !text.iter().all(u8::is_ascii_graphic) {
            return Some(Err(RequestKeyFault::Malformed));
        }
        Some(self.keys.find(&KeyHash::of(&text), now()).map_err(|fault| match fault {
            KeyFault::Unknown if !self.keys.is_loaded() => RequestKeyFault::NotLoaded,
            fault => RequestKeyFault::Invalid(fault),
        }))
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

    /// The key in a line of `Authorization`, if there is one.
    fn bearer_key<'a>(&self, line: &'a HeaderValue) -> Option<&'a [u8]> {
        let (scheme, token) = line.as_bytes().split_at_checked("Bearer ".len())?;
        let is_key = scheme.eq_ignore_ascii_case(b"Bearer ")
            && (self.takes_any_bearer || token.trim_ascii().starts_with(self.bearer_prefix.as_bytes()));
        is_key.then(|| token.trim_ascii())
    }

    /// Prepares the head of a request for the upstream: removes the key, unless upstreams get keys, and tells whose key
    /// it is.
    pub fn prepare_upstream(&self, head: &mut request::Parts, key: Option<&ApiKey>) {
        match self.settings.forward {
            false => self.remove(&mut head.headers),
            true => {
                if let Some(concealed) = head.extensions.remove::<ConcealedQuery>() {
                    let query = match head.uri.query() {
                        Some(query) if !query.is_empty() => format!("{query}&{}", concealed.written),
                        _ => concealed.written,
                    };
                    head.uri = with_query(&head.uri, &query).unwrap_or_else(|| head.uri.clone());
                }
            }
        }
        for (name, field) in self.settings.headers.all() {
            let value = key.and_then(|key| key.field(field));
            match value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
                Some(value) => drop(head.headers.insert(name, value)),
                None => drop(head.headers.remove(name)),
            }
        }
    }

    /// Removes the key from the header.
    fn remove(&self, headers: &mut HeaderMap) {
        for source in &self.settings.from {
            match source {
                KeySource::Header(name) => drop(headers.remove(name)),
                KeySource::Bearer => {
                    if headers.get_all(AUTHORIZATION).iter().any(|line| self.bearer_key(line).is_some()) {
                        headers.remove(AUTHORIZATION);
                    }
                }
                KeySource::Query(_) => {}
            }
        }
    }
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
