//! The fields that tell a client how its limits stand: `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-11), and those that were common before.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{quotas::Quotas, said::Said, seconds};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds the fields of the draft: all quotas that applied, and how the tightest stands.
pub(super) fn draft(quotas: &Quotas, headers: &mut HeaderMap, said: &[Said], tightest: Said) {
    if let Some(policies) = policies(quotas, said) {
        headers.append(&RATELIMIT_POLICY, policies);
    }
    if let Some(state) = state(quotas, tightest) {
        headers.append(&RATELIMIT, state);
    }
}

/// Adds the fields that were common before.
pub(super) fn legacy(quotas: &Quotas, headers: &mut HeaderMap, tightest: Said) {
    let verdict = tightest.verdict;
    headers.append(&X_RATELIMIT_LIMIT, HeaderValue::from(verdict.limit));
    headers.append(&X_RATELIMIT_REMAINING, HeaderValue::from(verdict.remaining));
    if quotas.quota(tightest).is_some_and(|quota| quota.is_timed) {
        headers.append(&X_RATELIMIT_RESET, HeaderValue::from(seconds(verdict.reset)));
    }
}

/// Lets a page's script read those of our fields that are there (Fetch, 3.2.3).
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

fn policies(quotas: &Quotas, said: &[Said]) -> Option<HeaderValue> {
    let mut seen: SmallVec<[Said; 4]> = SmallVec::new();
    for said in said {
        if !seen.iter().any(|seen| seen.policy == said.policy) {
            seen.push(*said);
        }
    }
    if let [only] = *seen {
        return quotas.quota(only).map(|quota| quota.policy.clone());
    }
    let parts: SmallVec<[&[u8]; 4]> =
        seen.iter().filter_map(|&said| quotas.quota(said)).map(|quota| quota.policy.as_bytes()).collect();
    HeaderValue::from_bytes(&parts.join(&b", "[..])).ok()
}

fn state(quotas: &Quotas, said: Said) -> Option<HeaderValue> {
    let quota = quotas.quota(said)?;
    let mut numbers = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [remaining, reset] = &mut numbers;
    let mut text: SmallVec<[u8; 96]> = SmallVec::new();
    text.extend_from_slice(quota.tiers.get(said.verdict.tier)?.name.as_bytes());
    text.extend_from_slice(b";r=");
    text.extend_from_slice(remaining.format(said.verdict.remaining).as_bytes());
    if quota.is_timed {
        text.extend_from_slice(b";t=");
        text.extend_from_slice(reset.format(seconds(said.verdict.reset)).as_bytes());
    }
    HeaderValue::from_bytes(&text).ok()
}
