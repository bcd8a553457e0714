//! Picks one of several upstreams for a request.

use xxhash_rust::xxh3::xxh3_64;

use super::request_context::RequestContext;
use crate::{config::model::Split, identity::identifier};

/// The point of the request among the weights of `split`, if it is chosen by a key: the same on each instance and after
/// each restart. A request that lacks the key is identified by its address. `None`: chosen at random.
pub(super) fn point_of(split: &Split, context: &RequestContext<'_, '_>) -> Option<u64> {
    let identifier = identifier(split.by.as_ref()?, context.attributes());
    let address = context.attributes().address.address();
    let hash = xxh3_64(identifier.as_deref().unwrap_or(address).as_bytes());
    Some(hash % split.total().max(1))
}
