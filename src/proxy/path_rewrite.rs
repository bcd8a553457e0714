//! The path that the upstream gets, for routes with `rewrite`.

use http::{HeaderName, HeaderValue, Request, Uri, uri::PathAndQuery};

use super::{headers::append_to_list, placeholders::PlaceholderValues};
use crate::{
    config::model::{Forwarded, Rewrite},
    router::{Rejection, assembled_path},
};

/// The stripped prefix of the client's path.
static X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// A path and the query of the request.
#[derive(Debug)]
pub struct RewrittenPath<'a> {
    path_and_query: PathAndQuery,
    /// The stripped prefix, as the configuration spells it.
    prefix: Option<&'a str>,
}

impl<'a> RewrittenPath<'a> {
    /// Applies `rewrite` to a request with these values. `None`: the path does not have the prefix to strip.
    ///
    /// # Errors
    /// 400 if a value from the request makes the path lead elsewhere.
    pub(super) fn new(
        rewrite: &'a Rewrite,
        values: &PlaceholderValues<'_>,
    ) -> Result<Option<Self>, Rejection> {
        let (path, prefix) = match rewrite {
            Rewrite::StripPrefix(prefix) => match values.router.strip_prefix(values.route, values.target) {
                Some(rest) => (assembled_path(&format!("/{rest}"))?, Some(prefix.as_str())),
                None => return Ok(None),
            },
            Rewrite::Path(text) => (values.path(text)?, None),
        };
        Ok(Some(Self { path_and_query: values.target.with_path(&path)?, prefix }))
    }

    pub(super) fn path_and_query(&self) -> &PathAndQuery {
        &self.path_and_query
    }

    /// Sends `request` to this path, and tells the upstream the stripped prefix.
    pub(super) fn apply<B>(self, request: &mut Request<B>, forwarded: Forwarded) {
        *request.uri_mut() = Uri::from(self.path_and_query);
        if matches!(forwarded, Forwarded::XForwarded | Forwarded::Both)
            && let Some(prefix) = self.prefix.and_then(|prefix| HeaderValue::from_str(prefix).ok())
        {
            append_to_list(request.headers_mut(), &X_FORWARDED_PREFIX, &prefix);
        }
    }
}
