//! The words for one policy that depend on no request, written once.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use super::seconds;
use crate::{
    config::model::DenialReply,
    limit::{
        Policy,
        algorithm::{Kind, Tier},
    },
};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// What a client is told that may come back.
pub(super) const USED_UP: &str = "The quota of this policy is used up.";
/// What a client is told that need not: it asks for more than there ever is, or lacks what the policy counts by.
pub(super) const NEVER: &str = "This policy never admits such a request.";

/// The words for one policy.
#[derive(Debug)]
pub(super) struct Words {
    /// The policy's name.
    pub(super) name: String,
    /// In the place of problem details.
    pub(super) reply: Option<DenialReply>,
    /// That of its denials.
    pub(super) status: StatusCode,
    /// Its own quota, then those of its overrides.
    variants: Vec<Quota>,
}

/// The words for one set of limits.
#[derive(Debug)]
pub(super) struct Quota {
    /// `"login-1s";q=10;w=1, "login-1m";q=120;w=60`
    pub(super) policy: HeaderValue,
    /// By tier.
    pub(super) tiers: Vec<TierWords>,
    /// Whether units come back as time passes, and not as requests end.
    pub(super) is_timed: bool,
}

#[derive(Debug)]
pub(super) struct TierWords {
    /// As a quoted string.
    pub(super) name: String,
    /// The problem details of a denial by it alone.
    pub(super) problem: Bytes,
}

impl Words {
    pub(super) fn new(
        policy: &Policy,
        reply: Option<DenialReply>,
    ) -> Result<Self, header::InvalidHeaderValue> {
        let status = reply.as_ref().map_or(StatusCode::TOO_MANY_REQUESTS, |reply| reply.status);
        let variants =
            policy.variants().map(|variant| Quota::new(variant, status)).collect::<Result<_, _>>()?;
        Ok(Self { name: policy.name.clone(), reply, status, variants })
    }

    /// The words for one of its variants.
    pub(super) fn variant(&self, index: usize) -> Option<&Quota> {
        self.variants.get(index)
    }
}

impl Quota {
    fn new(policy: &Policy, status: StatusCode) -> Result<Self, header::InvalidHeaderValue> {
        let names: Vec<String> = policy.quota_names.iter().map(|name| format!("\"{name}\"")).collect();
        let items: Vec<String> = names
            .iter()
            .zip(&policy.tiers)
            .map(|(name, tier)| format!("{name};{}", parameters(policy.kind, *tier)))
            .collect();
        let tiers = names.into_iter().map(|name| {
            let problem = problem(status, USED_UP, &[&name]);
            TierWords { name, problem }
        });
        Ok(Self {
            policy: HeaderValue::try_from(items.join(", "))?,
            tiers: tiers.collect(),
            is_timed: policy.kind != Kind::Concurrency,
        })
    }
}

/// `q=10;w=1` (draft-ietf-httpapi-ratelimit-headers-11, 4.1).
fn parameters(kind: Kind, tier: Tier) -> String {
    match kind {
        Kind::Concurrency => format!("q={};qu=\"concurrent-requests\"", tier.limit),
        // As many in as long as it takes to fill the bucket: the same rate.
        Kind::Gcra { burst, .. } => {
            let window = i128::from(burst) * i128::from(tier.window);
            let window = (window + i128::from(tier.limit) - 1) / i128::from(tier.limit.max(1));
            format!("q={burst};w={}", seconds(i64::try_from(window).unwrap_or(i64::MAX)))
        }
        _ => format!("q={};w={}", tier.limit, seconds(tier.window)),
    }
}

/// Problem details (RFC 9457) of a denial. `names` are quoted already: policy names have no characters that JSON
/// would escape, nor has `detail`.
pub(super) fn problem(status: StatusCode, detail: &str, names: &[&str]) -> Bytes {
    format!(
        "{{\"type\":\"{QUOTA_EXCEEDED}\",\"title\":\"{}\",\"status\":{},\
         \"detail\":\"{detail}\",\"violated-policies\":[{}]}}",
        status.canonical_reason().unwrap_or("Error"),
        status.as_u16(),
        names.join(",")
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_tells_its_quota_in_its_own_unit() {
        let tier = |limit, seconds: i64| Tier { limit, window: seconds * 1_000_000 };
        for (kind, tier, expected) in [
            (Kind::FixedWindow, tier(10, 1), "q=10;w=1"),
            (Kind::Distinct, tier(20, 600), "q=20;w=600"),
            (Kind::Concurrency, tier(8, 60), "q=8;qu=\"concurrent-requests\""),
            (Kind::Gcra { burst: 100, delay: 0 }, tier(50, 1), "q=100;w=2"),
            (Kind::Gcra { burst: 1, delay: 0 }, tier(3, 1), "q=1;w=1"),
            (Kind::Gcra { burst: 1_000_000_000, delay: 0 }, tier(1, 86_400), "q=1000000000;w=9223372036854"),
        ] {
            assert_eq!(parameters(kind, tier), expected);
        }
    }
}
