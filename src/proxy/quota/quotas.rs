//! The words for all policies.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{
    denial, fields,
    said::{Said, tightest},
    words::{Quota, Words},
};
use crate::{
    config::model::{self, RateLimitFields},
    limit::{Policy, algorithm::Verdict},
    proxy::reply::Reply,
};

/// The words for each policy, by index.
#[derive(Debug)]
pub struct Quotas {
    words: Vec<Words>,
    fields: RateLimitFields,
}

impl Quotas {
    /// The words for `policies`, which are those of `configs`, as far as clients are told in `fields`.
    ///
    /// # Errors
    /// A policy's name has characters that a field must not have.
    pub fn new(
        policies: &[Policy],
        configs: &[Arc<model::Policy>],
        fields: RateLimitFields,
    ) -> Result<Self, header::InvalidHeaderValue> {
        let words =
            policies.iter().zip(configs).map(|(policy, config)| Words::new(policy, config.reply.clone()));
        Ok(Self { words: words.collect::<Result<_, _>>()?, fields })
    }

    /// Adds the quota fields to an answer, beside those that the upstream may have sent.
    pub(in crate::proxy) fn tell(&self, headers: &mut HeaderMap, said: &[Said]) {
        let Some(tightest) = tightest(said).filter(|said| said.verdict != Verdict::UNKNOWN) else { return };
        if matches!(self.fields, RateLimitFields::Draft | RateLimitFields::Both) {
            fields::draft(self, headers, said, tightest);
        }
        if matches!(self.fields, RateLimitFields::Legacy | RateLimitFields::Both) {
            fields::legacy(self, headers, tightest);
        }
    }

    /// The answer to a request that was denied, and the index of the policy that decided. `cross_origin`: whether a
    /// page's script asks.
    pub(in crate::proxy) fn denial(&self, said: &[Said], cross_origin: bool) -> (usize, Reply) {
        let decisive = tightest(said);
        let mut reply = denial::reply(self, said, decisive);
        self.tell(&mut reply.headers, said);
        if cross_origin {
            fields::expose(&mut reply.headers);
        }
        (decisive.map_or(0, |said| said.policy), reply)
    }

    /// The answer to a request that lacks what a policy counts by. No quota was asked, so none is told: a client that
    /// reads of nothing left, and of a reset at once, would come back at once.
    pub(in crate::proxy) fn unidentified(&self, said: Said) -> Reply {
        denial::reply(self, &[said], Some(said))
    }

    /// The words for the policy that said this.
    pub(super) fn words(&self, said: Said) -> Option<&Words> {
        self.words.get(said.policy)
    }

    /// The words for the limits that it was held against.
    pub(super) fn quota(&self, said: Said) -> Option<&Quota> {
        self.words(said)?.variant(said.variant)
    }
}
