//! Which of several upstreams a request goes to.

use compact_str::CompactString;
use xxhash_rust::xxh3::xxh3_64;

use super::request_context::RequestContext;
use crate::{
    config::model::{KeyRecipe, Route, Split},
    identity::identifier,
};

/// The route of a request to the upstream that takes it. `address`: the client's, as keys name it.
pub(super) fn split_route<'s>(
    split: &'s Split,
    context: &RequestContext<'_>,
    address: impl FnOnce() -> CompactString,
) -> Option<&'s Route> {
    let point = match &split.by {
        None => fastrand::u64(..split.total().max(1)),
        Some(key) => point_of(key, split, context, &address()),
    };
    split.at(point)
}

/// Where the request's identifier falls: the same on each instance and after each restart. A request that lacks what the key
/// is made of goes by its address.
fn point_of(key: &KeyRecipe, split: &Split, context: &RequestContext<'_>, address: &str) -> u64 {
    let attributes = context.attributes(address);
    let identifier = identifier(key, &attributes);
    let hash = xxh3_64(identifier.as_deref().unwrap_or(address).as_bytes());
    hash % split.total().max(1)
}
