//! What clients are told of the limits that hold for them: `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-11), `Retry-After`, and the body of a denial.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use smallvec::SmallVec;

use super::reply::Reply;
use crate::limit::{Policy, algorithm::Verdict};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Lets a page's script read the fields of a denial (Fetch, 3.2.3).
const EXPOSED: HeaderValue = HeaderValue::from_static("RateLimit, RateLimit-Policy, Retry-After");
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const MICROS: i64 = 1_000_000;

/// The words for each policy, by index. What does not depend on the request is written once.
#[derive(Debug)]
pub struct Quotas(Vec<Quota>);

#[derive(Debug)]
struct Quota {
    /// `"login-1s";q=10;w=1, "login-1m";q=120;w=60`
    policy: HeaderValue,
    /// By tier: the name as a quoted string, and the body of a denial by that tier alone.
    tiers: Vec<(String, Bytes)>,
}

/// What one policy said to one request. `policy` is its index.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// The policy's index.
    pub policy: usize,
    /// Its verdict.
    pub verdict: Verdict,
}

impl Quotas {
    /// The words for `policies`.
    ///
    /// # Errors
    /// A policy's name has characters that a field must not have.
    pub fn new(policies: &[Policy]) -> Result<Self, header::InvalidHeaderValue> {
        policies.iter().map(Quota::new).collect::<Result<_, _>>().map(Self)
    }

    /// Adds the quota fields to an answer, beside those that the upstream may have sent.
    pub fn tell(&self, headers: &mut HeaderMap, said: &[Said]) {
        let Some(tightest) = tightest(said).filter(|said| said.verdict != Verdict::UNKNOWN) else { return };
        if let Some(policies) = self.policies(said) {
            headers.append(&RATELIMIT_POLICY, policies);
        }
        if let Some(state) = self.state(tightest) {
            headers.append(&RATELIMIT, state);
        }
    }

    /// The answer to a request that was denied. `cross_origin`: whether a page's script asks.
    pub fn denial(&self, said: &[Said], cross_origin: bool) -> Reply {
        let mut reply = Reply::json(StatusCode::TOO_MANY_REQUESTS, self.denial_body(said));
        if let Some(retry_after) = tightest(said).and_then(|said| said.verdict.retry_after) {
            reply.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(retry_after).max(1)));
        }
        self.tell(&mut reply.headers, said);
        if cross_origin {
            reply.headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        reply
    }

    fn policies(&self, said: &[Said]) -> Option<HeaderValue> {
        let mut seen: SmallVec<[usize; 4]> = SmallVec::new();
        for Said { policy, .. } in said {
            if !seen.contains(policy) {
                seen.push(*policy);
            }
        }
        if let [only] = *seen {
            return self.0.get(only).map(|quota| quota.policy.clone());
        }
        let parts: SmallVec<[&[u8]; 4]> = seen
            .iter()
            .filter_map(|&policy| self.0.get(policy))
            .map(|quota| quota.policy.as_bytes())
            .collect();
        HeaderValue::from_bytes(&parts.join(&b", "[..])).ok()
    }

    fn state(&self, Said { policy, verdict }: Said) -> Option<HeaderValue> {
        let (name, _) = self.0.get(policy)?.tiers.get(verdict.tier)?;
        let mut numbers = [itoa::Buffer::new(), itoa::Buffer::new()];
        let [remaining, reset] = &mut numbers;
        let mut text: SmallVec<[u8; 96]> = SmallVec::new();
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b";r=");
        text.extend_from_slice(remaining.format(verdict.remaining).as_bytes());
        text.extend_from_slice(b";t=");
        text.extend_from_slice(reset.format(seconds(verdict.reset)).as_bytes());
        HeaderValue::from_bytes(&text).ok()
    }

    fn denial_body(&self, said: &[Said]) -> Bytes {
        let mut denying =
            said.iter().filter(|said| !said.verdict.admitted).filter_map(|said| self.tier(*said));
        match (denying.next(), denying.next()) {
            (Some((_, body)), None) => body.clone(),
            _ => {
                let mut names: Vec<&str> = Vec::new();
                for (name, _) in
                    said.iter().filter(|said| !said.verdict.admitted).filter_map(|said| self.tier(*said))
                {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
                body(&names)
            }
        }
    }

    fn tier(&self, said: Said) -> Option<&(String, Bytes)> {
        self.0.get(said.policy)?.tiers.get(said.verdict.tier)
    }
}

impl Quota {
    fn new(policy: &Policy) -> Result<Self, header::InvalidHeaderValue> {
        let names: Vec<String> = policy.quota_names.iter().map(|name| format!("\"{name}\"")).collect();
        let items: Vec<String> = names
            .iter()
            .zip(&policy.tiers)
            .map(|(name, tier)| format!("{name};q={};w={}", tier.limit, seconds(tier.window)))
            .collect();
        let tiers = names
            .into_iter()
            .map(|name| {
                let body = body(&[&name]);
                (name, body)
            })
            .collect();
        Ok(Self { policy: HeaderValue::try_from(items.join(", "))?, tiers })
    }
}

/// The one check that a client should heed: of those that deny the one that frees last, else the one
/// with the least left.
fn tightest(said: &[Said]) -> Option<Said> {
    let denying = said
        .iter()
        .filter(|said| !said.verdict.admitted)
        .max_by_key(|said| said.verdict.retry_after.unwrap_or(i64::MAX));
    denying.or_else(|| said.iter().min_by_key(|said| (said.verdict.remaining, -said.verdict.reset))).copied()
}

/// `names` are quoted already: policy names have no characters that JSON would escape.
fn body(names: &[&str]) -> Bytes {
    format!(
        "{{\"type\":\"{QUOTA_EXCEEDED}\",\"title\":\"Too Many Requests\",\"status\":429,\
         \"detail\":\"The quota of this policy is used up.\",\"violated-policies\":[{}]}}",
        names.join(",")
    )
    .into()
}

/// Whole seconds, rounded up: a client that waits so long does not come too early.
fn seconds(micros: i64) -> i64 {
    micros.max(0).saturating_add(MICROS - 1) / MICROS
}
