//! Picks one of several upstreams for a request.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::request_context::RequestContext;
use crate::{
    config::model::{KeyRecipe, Route, Split},
    identity::{AddressIdentifier, identifier},
};

/// The request's route to the upstream that gets it. `address`: the client's.
pub(super) fn split_route<'s, 'a>(
    split: &'s Split,
    context: &RequestContext<'_>,
    address: impl FnOnce() -> Cow<'a, AddressIdentifier>,
) -> Option<&'s Route> {
    let point = match &split.by {
        None => fastrand::u64(..split.total().max(1)),
        Some(key) => point_of(key, split, context, &address()),
    };
    split.at(point)
}

/// The point of the request's identifier: the same on each instance and after each restart. A request that lacks the
/// key is identified by its address.
fn point_of(
    key: &KeyRecipe,
    split: &Split,
    context: &RequestContext<'_>,
    address: &AddressIdentifier,
) -> u64 {
    let attributes = context.attributes(address);
    let identifier = identifier(key, &attributes);
    let hash = xxh3_64(identifier.as_deref().unwrap_or(address.address()).as_bytes());
    hash % split.total().max(1)
}
