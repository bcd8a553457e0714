//! The fields that show a client its quota: `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-11), and the older `X-RateLimit-*`.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{
    seconds,
    texts::{MAX_INTEGER, QuotaTexts, VariantTexts},
};
use crate::{
    limit::algorithm::Verdict,
    proxy::{headers::never_indexed, outcome::PolicyOutcome},
};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds the draft's fields: all quotas that applied, and the remaining units of the tightest.
pub(super) fn add_draft(
    texts: &QuotaTexts,
    headers: &mut HeaderMap,
    outcomes: &[PolicyOutcome],
    tightest: PolicyOutcome,
) {
    if let Some(policies) = policies(texts, outcomes) {
        headers.append(&RATELIMIT_POLICY, policies);
    }
    if let Some(remaining) = remaining(texts, tightest) {
        headers.append(&RATELIMIT, never_indexed(remaining));
    }
}

/// Adds the older fields.
pub(super) fn add_legacy(texts: &QuotaTexts, headers: &mut HeaderMap, tightest: PolicyOutcome) {
    let verdict = tightest.verdict;
    headers.append(&X_RATELIMIT_LIMIT, HeaderValue::from(verdict.limit));
    headers.append(&X_RATELIMIT_REMAINING, never_indexed(HeaderValue::from(verdict.remaining)));
    if texts.variant(tightest).is_some_and(|limits| limits.is_timed) {
        headers.append(&X_RATELIMIT_RESET, never_indexed(HeaderValue::from(seconds(verdict.reset))));
    }
}

/// Lets a page's script read the quota fields that are present (Fetch, 3.2.3).
pub(super) fn expose(headers: &mut HeaderMap) {
    let ours = [
        (&RATELIMIT, "RateLimit"),
        (&RATELIMIT_POLICY, "RateLimit-Policy"),
        (&X_RATELIMIT_LIMIT, "X-RateLimit-Limit"),
        (&X_RATELIMIT_REMAINING, "X-RateLimit-Remaining"),
        (&X_RATELIMIT_RESET, "X-RateLimit-Reset"),
        (&header::RETRY_AFTER, "Retry-After"),
    ];
    let sent: SmallVec<[&str; 6]> =
        ours.into_iter().filter(|(name, _)| headers.contains_key(*name)).map(|(_, name)| name).collect();
    if let Ok(names) = HeaderValue::try_from(sent.join(", "))
        && !sent.is_empty()
    {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
}

/// The value of `RateLimit-Policy`: each policy once, except the ones that can't be checked at the moment.
fn policies(texts: &QuotaTexts, outcomes: &[PolicyOutcome]) -> Option<HeaderValue> {
    let only = |outcome: PolicyOutcome| {
        let limits = texts.variant(outcome)?;
        match lowered(limits, outcome.verdict) {
            None => Some(limits.policy.clone()),
            Some(item) => HeaderValue::try_from(item).ok(),
        }
    };
    // Most requests have one limit, and need no list.
    if let [outcome] = *outcomes {
        return only(outcome);
    }
    // If a remembered denial decides, the other limits were not asked, but are in force.
    let is_denied = || outcomes.iter().any(|outcome| !outcome.verdict.admitted);
    let mut distinct: SmallVec<[PolicyOutcome; 4]> = SmallVec::new();
    for outcome in outcomes {
        if !distinct.iter().any(|other| other.variant.policy == outcome.variant.policy)
            && (outcome.verdict != Verdict::UNKNOWN || is_denied())
        {
            distinct.push(*outcome);
        }
    }
    if let [outcome] = *distinct {
        return only(outcome);
    }
    let parts = distinct.iter().filter_map(|&outcome| {
        let limits = texts.variant(outcome)?;
        Some(match lowered(limits, outcome.verdict) {
            None => Cow::Borrowed(limits.policy.as_bytes()),
            Some(item) => Cow::Owned(item.into_bytes()),
        })
    });
    let parts: SmallVec<[Cow<'_, [u8]>; 4]> = parts.collect();
    HeaderValue::from_bytes(&parts.join(&b", "[..])).ok()
}

/// The policy's item in `RateLimit-Policy` if a lower limit than the configured one is in force: an instance's share,
/// or the limit that fits into memory. The values of other tiers are not known.
fn lowered(limits: &VariantTexts, verdict: Verdict) -> Option<String> {
    let tier = limits.tiers.get(verdict.tier)?;
    (verdict.limit < tier.quota).then(|| tier.item(verdict.limit))
}

/// The value of `RateLimit`.
fn remaining(texts: &QuotaTexts, outcome: PolicyOutcome) -> Option<HeaderValue> {
    let limits = texts.variant(outcome)?;
    let mut numbers = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [remaining, reset] = &mut numbers;
    let begin = &limits.tiers.get(outcome.verdict.tier)?.remaining;
    let remaining = remaining.format(outcome.verdict.remaining.min(MAX_INTEGER));
    let (by, reset) = match limits.is_timed {
        true => (";t=", reset.format(seconds(outcome.verdict.reset))),
        false => ("", ""),
    };
    // Of exactly this length, the text becomes the value without a copy.
    let mut text = String::with_capacity(begin.len() + remaining.len() + by.len() + reset.len());
    [begin, remaining, by, reset].iter().for_each(|part| text.push_str(part));
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        config::model::{self, Algorithm, RateLimitFields},
        limit::{Policy, PolicyId},
        proxy::outcome::VariantRef,
    };

    const NAMES: [&str; 2] = ["a", "b"];

    /// The texts of policies with ten requests a minute.
    fn texts() -> QuotaTexts {
        let configs = NAMES.map(|name| {
            let rate = model::Rate { limit: 10, window: Duration::from_secs(60) };
            let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
            Arc::new(model::Policy::new(name, Algorithm::SlidingLog, keys, vec![rate]))
        });
        let policies = configs.each_ref().map(|config| Policy::new(config, PolicyId(0)));
        QuotaTexts::new(&policies, &configs, RateLimitFields::Both).unwrap()
    }

    fn outcome(policy: usize, limit: u64) -> PolicyOutcome {
        let verdict = Verdict { limit, remaining: limit - 1, ..Verdict::UNKNOWN };
        PolicyOutcome { variant: VariantRef { policy, variant: 0, is_further: false }, cost: 1, verdict }
    }

    fn fields_of(outcomes: &[PolicyOutcome]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        texts().add_fields(&mut fields, outcomes);
        fields
    }

    #[test]
    fn a_limit_that_is_lowered_is_told_as_it_is_in_force() {
        for (limits, policy) in [
            (&[10][..], "\"a\";q=10;w=60"),
            (&[5], "\"a\";q=5;w=60"),
            (&[10, 5], "\"a\";q=10;w=60, \"b\";q=5;w=60"),
            (&[5, 10], "\"a\";q=5;w=60, \"b\";q=10;w=60"),
        ] {
            let outcomes: Vec<_> = limits.iter().enumerate().map(|(i, &limit)| outcome(i, limit)).collect();
            let fields = fields_of(&outcomes);
            assert_eq!(fields[&RATELIMIT_POLICY], policy);
            let lowest = limits.iter().min().map(ToString::to_string).unwrap();
            assert_eq!(fields[&X_RATELIMIT_LIMIT], lowest);
        }
    }

    #[test]
    fn a_limit_that_is_not_in_force_is_not_told() {
        let unknown = PolicyOutcome { verdict: Verdict::UNKNOWN, ..outcome(1, 10) };
        assert_eq!(fields_of(&[outcome(0, 10), unknown])[&RATELIMIT_POLICY], "\"a\";q=10;w=60");
        // It is in force, and was not asked about.
        let mut denied = outcome(0, 10);
        denied.verdict.admitted = false;
        assert_eq!(fields_of(&[denied, unknown])[&RATELIMIT_POLICY], "\"a\";q=10;w=60, \"b\";q=10;w=60");
    }
}
