//! The texts about each policy that depend on no request, made once per configuration.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{headers, replies, seconds};
use crate::{
    config::model::{self, DenialReply, RateLimitFields},
    limit::{
        Policy,
        algorithm::{Kind, Tier, Verdict},
    },
    proxy::{
        outcome::{PolicyOutcome, tightest},
        reply::Reply,
    },
};

/// The greatest integer of a structured field (RFC 9651, 3.3.1). A larger number is written as this one.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The texts about each policy, by index.
#[derive(Debug)]
pub(in crate::proxy) struct QuotaTexts {
    policies: Vec<PolicyTexts>,
    fields: RateLimitFields,
}

impl QuotaTexts {
    /// The texts about `policies`, which are made from `configs`. `fields`: the quota fields that clients get.
    ///
    /// # Errors
    /// A policy's name has characters that are not allowed in a field.
    pub(in crate::proxy) fn new(
        policies: &[Policy],
        configs: &[Arc<model::Policy>],
        fields: RateLimitFields,
    ) -> Result<Self, header::InvalidHeaderValue> {
        let texts = policies
            .iter()
            .zip(configs)
            .map(|(policy, config)| PolicyTexts::new(policy, config.reply.clone()));
        Ok(Self { policies: texts.collect::<Result<_, _>>()?, fields })
    }

    /// Adds the quota fields to a response, beside the ones that the upstream may have sent.
    pub(in crate::proxy) fn add_fields(&self, fields: &mut HeaderMap, outcomes: &[PolicyOutcome]) {
        let tightest = tightest(outcomes).and_then(|index| outcomes.get(index));
        let Some(&tightest) = tightest.filter(|outcome| outcome.verdict != Verdict::UNKNOWN) else { return };
        if matches!(self.fields, RateLimitFields::Draft | RateLimitFields::Both) {
            headers::add_draft(self, fields, outcomes, tightest);
        }
        if matches!(self.fields, RateLimitFields::Legacy | RateLimitFields::Both) {
            headers::add_legacy(self, fields, tightest);
        }
    }

    /// The reply to a denied request. `decisive`: the index of the outcome for the client to follow. Its fields are put
    /// into `headers`, the request's, which are emptied.
    pub(in crate::proxy) fn denial(
        &self,
        outcomes: &[PolicyOutcome],
        decisive: usize,
        headers: HeaderMap,
    ) -> Reply {
        let cross_origin = headers.contains_key(header::ORIGIN);
        let decisive = outcomes.get(decisive).copied();
        let mut reply = replies::denial(self, outcomes, decisive, headers);
        self.add_fields(&mut reply.headers, outcomes);
        if cross_origin {
            headers::expose(&mut reply.headers);
        }
        reply
    }

    /// The reply to a request that lacks the value that identifies it for a policy. It shows no quota, because the
    /// store was not asked: a client that reads "nothing remains, reset now" would come back at once.
    pub(in crate::proxy) fn unidentified(&self, outcome: PolicyOutcome) -> Reply {
        replies::denial(self, &[outcome], Some(outcome), HeaderMap::new())
    }

    /// The texts about the outcome's policy.
    pub(super) fn policy(&self, outcome: PolicyOutcome) -> Option<&PolicyTexts> {
        self.policies.get(outcome.variant.policy)
    }

    /// The texts about the outcome's limits.
    pub(super) fn variant(&self, outcome: PolicyOutcome) -> Option<&VariantTexts> {
        self.policy(outcome)?.variants.get(outcome.variant.variant as usize)
    }
}

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The detail for a client that may come back.
pub(super) const USED_UP: &str = "The rate limit of this policy is exceeded.";
/// The detail for a client that cannot succeed by waiting: its cost is above the limit, or it lacks the value that
/// identifies it.
pub(super) const NEVER: &str = "This policy never admits a request like this one.";

/// The texts about one policy.
#[derive(Debug)]
pub(super) struct PolicyTexts {
    /// The policy's name.
    pub(super) name: String,
    /// The configured reply to a denial, in place of problem details.
    pub(super) reply: Option<DenialReply>,
    /// The status of its denials.
    pub(super) status: StatusCode,
    /// Its own limits, then its overrides'.
    variants: Vec<VariantTexts>,
}

/// The texts about one set of limits.
#[derive(Debug)]
pub(super) struct VariantTexts {
    /// The value of `RateLimit-Policy`: `"login-1s";q=10;w=1, "login-1m";q=120;w=60`
    pub(super) policy: HeaderValue,
    /// By tier.
    pub(super) tiers: Vec<TierTexts>,
    /// Whether units become free as time passes, rather than as requests end.
    pub(super) is_timed: bool,
}

/// The texts about one tier.
#[derive(Debug)]
pub(super) struct TierTexts {
    /// Its name as a quoted string.
    pub(super) name: String,
    /// The beginning of its item in `RateLimit`: `"login-1s";r=`
    pub(super) remaining: String,
    /// The configured limit.
    pub(super) quota: u64,
    /// The parameters after a limit in `RateLimit-Policy`: `;w=60`. Windows of the calendar differ in length, and have
    /// none.
    pub(super) unit: String,
    /// The problem details of a denial by this tier alone.
    pub(super) problem: Bytes,
}

impl PolicyTexts {
    pub(super) fn new(
        policy: &Policy,
        reply: Option<DenialReply>,
    ) -> Result<Self, header::InvalidHeaderValue> {
        let status = reply.as_ref().map_or(StatusCode::TOO_MANY_REQUESTS, |reply| reply.status);
        let variants =
            policy.variants().map(|variant| VariantTexts::new(variant, status)).collect::<Result<_, _>>()?;
        Ok(Self { name: policy.name.clone(), reply, status, variants })
    }
}

impl VariantTexts {
    fn new(policy: &Policy, status: StatusCode) -> Result<Self, header::InvalidHeaderValue> {
        let names: Vec<String> = policy.quota_names.iter().map(|name| format!("\"{name}\"")).collect();
        let tiers = names.into_iter().zip(&policy.tiers).enumerate().map(|(index, (name, tier))| {
            let window =
                if policy.calendar(index).is_some() { String::new() } else { unit(policy.kind, *tier) };
            let unit = match policy.counts_bytes() {
                true => format!(";qu=\"content-bytes\"{window}"),
                false => window,
            };
            let problem = problem(status, USED_UP, &[&name]);
            let remaining = format!("{name};r=");
            TierTexts { name, remaining, quota: quota(policy.kind, *tier), unit, problem }
        });
        let tiers: Vec<TierTexts> = tiers.collect();
        let items: Vec<String> = tiers.iter().map(|tier| tier.item(tier.quota)).collect();
        Ok(Self {
            policy: HeaderValue::try_from(items.join(", "))?,
            tiers,
            is_timed: policy.kind != Kind::Concurrency,
        })
    }
}

impl TierTexts {
    /// Its item in `RateLimit-Policy`, with the limit `quota`: `"login-1s";q=10;w=1`
    /// (draft-ietf-httpapi-ratelimit-headers-11, 4.1).
    pub(super) fn item(&self, quota: u64) -> String {
        format!("{};q={}{}", self.name, quota.min(MAX_INTEGER), self.unit)
    }
}

/// The limit that verdicts show.
fn quota(kind: Kind, tier: Tier) -> u64 {
    if let Kind::Gcra { burst, .. } = kind { burst } else { tier.limit }
}

fn unit(kind: Kind, tier: Tier) -> String {
    match kind {
        Kind::Concurrency => ";qu=\"concurrent-requests\"".to_owned(),
        // The burst per time to fill the bucket, which is the same rate.
        Kind::Gcra { burst, .. } => {
            let window = i128::from(burst) * i128::from(tier.window);
            let window = (window + i128::from(tier.limit) - 1) / i128::from(tier.limit.max(1));
            format!(";w={}", seconds(i64::try_from(window).unwrap_or(i64::MAX)))
        }
        _ => format!(";w={}", seconds(tier.window)),
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
    fn each_algorithm_writes_its_quota_in_its_own_unit() {
        let tier = |limit, seconds: i64| Tier { limit, window: seconds * 1_000_000 };
        for (kind, tier, expected) in [
            (Kind::FixedWindow, tier(10, 1), "q=10;w=1"),
            (Kind::Distinct, tier(20, 600), "q=20;w=600"),
            (Kind::Concurrency, tier(8, 60), "q=8;qu=\"concurrent-requests\""),
            (Kind::Gcra { burst: 100, delay: 0 }, tier(50, 1), "q=100;w=2"),
            (Kind::Gcra { burst: 1, delay: 0 }, tier(3, 1), "q=1;w=1"),
            (Kind::Gcra { burst: 1_000_000_000, delay: 0 }, tier(1, 86_400), "q=1000000000;w=9223372036854"),
        ] {
            assert_eq!(format!("q={}{}", quota(kind, tier), unit(kind, tier)), expected);
        }
    }

    #[test]
    fn no_integer_has_more_digits_than_a_structured_field_may() {
        let window = model::Window::Length(std::time::Duration::from_secs(60));
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        for limit in [MAX_INTEGER, 1 << 50] {
            let tiers = vec![model::Quota { limit, window }];
            let config = model::Policy::new("bytes", model::Algorithm::FixedWindow, keys.clone(), tiers);
            let policy = Policy::new(&config, crate::limit::PolicyId(0));
            let texts = VariantTexts::new(&policy, StatusCode::TOO_MANY_REQUESTS).unwrap();
            assert_eq!(texts.policy, "\"bytes\";q=999999999999999;w=60");
        }
    }

    #[test]
    fn windows_of_the_calendar_have_no_length() {
        let month = model::Window::Calendar(model::CalendarUnit::Month);
        let minute = model::Window::Length(std::time::Duration::from_secs(60));
        let tiers =
            vec![model::Quota { limit: 1_000, window: month }, model::Quota { limit: 10, window: minute }];
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let config = model::Policy::new("plan", model::Algorithm::FixedWindow, keys, tiers);
        let policy = Policy::new(&config, crate::limit::PolicyId(0));
        let texts = VariantTexts::new(&policy, StatusCode::TOO_MANY_REQUESTS).unwrap();
        assert_eq!(texts.policy, "\"plan-1m\";q=10;w=60, \"plan-month\";q=1000");
        assert_eq!(texts.tiers[1].item(500), "\"plan-month\";q=500");
    }
}
