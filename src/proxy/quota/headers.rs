//! The fields that tell a client its quota: `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-11), and the `X-RateLimit-*` that were common before.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{seconds, texts::QuotaTexts};
use crate::proxy::{headers::never_indexed, outcome::PolicyOutcome};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds the fields of the draft: all quotas that applied, and what remains of the tightest.
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

/// Adds the fields that were common before.
pub(super) fn add_legacy(texts: &QuotaTexts, headers: &mut HeaderMap, tightest: PolicyOutcome) {
    let verdict = tightest.verdict;
    headers.append(&X_RATELIMIT_LIMIT, HeaderValue::from(verdict.limit));
    headers.append(&X_RATELIMIT_REMAINING, never_indexed(HeaderValue::from(verdict.remaining)));
    if texts.variant(tightest).is_some_and(|limits| limits.is_timed) {
        headers.append(&X_RATELIMIT_RESET, never_indexed(HeaderValue::from(seconds(verdict.reset))));
    }
}

/// Lets a page's script read those of these fields that are present (Fetch, 3.2.3).
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

/// The value of `RateLimit-Policy`: each policy once.
fn policies(texts: &QuotaTexts, outcomes: &[PolicyOutcome]) -> Option<HeaderValue> {
    let only = |outcome| texts.variant(outcome).map(|limits| limits.policy.clone());
    // Most requests have one limit, and need no list.
    if let [outcome] = *outcomes {
        return only(outcome);
    }
    let mut distinct: SmallVec<[PolicyOutcome; 4]> = SmallVec::new();
    for outcome in outcomes {
        if !distinct.iter().any(|other| other.variant.policy == outcome.variant.policy) {
            distinct.push(*outcome);
        }
    }
    if let [outcome] = *distinct {
        return only(outcome);
    }
    let limits = distinct.iter().filter_map(|&outcome| texts.variant(outcome));
    let parts: SmallVec<[&[u8]; 4]> = limits.map(|limits| limits.policy.as_bytes()).collect();
    HeaderValue::from_bytes(&parts.join(&b", "[..])).ok()
}

/// The value of `RateLimit`.
fn remaining(texts: &QuotaTexts, outcome: PolicyOutcome) -> Option<HeaderValue> {
    let limits = texts.variant(outcome)?;
    let mut numbers = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [remaining, reset] = &mut numbers;
    let name = &limits.tiers.get(outcome.verdict.tier)?.name;
    let remaining = remaining.format(outcome.verdict.remaining);
    let text = match limits.is_timed {
        true => [name, ";r=", remaining, ";t=", reset.format(seconds(outcome.verdict.reset))].concat(),
        false => [name, ";r=", remaining].concat(),
    };
    // The text becomes the value as it is: it is not copied.
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}
