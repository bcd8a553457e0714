//! The replies to denied requests: the configured one of the policy or the ban rule, or else problem details.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use smallvec::SmallVec;

use super::{
    headers, seconds, seconds_value,
    texts::{NEVER, QuotaTexts, TierTexts, USED_UP, problem},
};
use crate::{
    abuse::bans::Ban,
    config::model::{BanRule, DenialBody, TemplatePart},
    proxy::{outcome::PolicyOutcome, reply::Reply},
    telemetry::time::rfc3339,
};

/// The reply to a denied request, without the quota fields. Its fields are put into `headers`, which is emptied.
pub(super) fn denial(
    texts: &QuotaTexts,
    outcomes: &[PolicyOutcome],
    decisive: Option<PolicyOutcome>,
    headers: HeaderMap,
) -> Reply {
    let policy = decisive.and_then(|decisive| texts.policy(decisive));
    let status = policy.map_or(StatusCode::TOO_MANY_REQUESTS, |policy| policy.status);
    let exact = decisive.and_then(|decisive| decisive.verdict.retry_after);
    // A client that came back at once would be denied again.
    let retry_after = exact.map(|exact| seconds(exact).max(1));
    let detail = if exact.is_some() { USED_UP } else { NEVER };

    let custom = policy.and_then(|policy| policy.reply.as_ref());
    let (body, content_type) = match (custom.and_then(|custom| custom.body.as_ref()), policy, decisive) {
        (Some(body), Some(policy), Some(decisive)) => {
            let text = render(body, &policy.name, decisive.verdict.limit, retry_after);
            (text.into(), Some(&body.content_type))
        }
        _ => (details(texts, outcomes, status, exact.is_some()), None),
    };
    let mut reply = Reply::json_reusing(headers, status, detail.into(), body);
    if let Some(content_type) = content_type {
        reply.headers.insert(header::CONTENT_TYPE, content_type.clone());
    }
    for (name, value) in custom.iter().flat_map(|custom| &custom.headers) {
        reply.headers.append(name, value.clone());
    }
    if let Some(retry_after) = retry_after {
        reply.headers.insert(header::RETRY_AFTER, seconds_value(retry_after));
    }
    reply.retry_after = exact;
    reply
}

/// Fills in the template of a configured reply.
fn render(body: &DenialBody, policy: &str, limit: u64, retry_after: Option<i64>) -> String {
    let mut text = String::new();
    let mut number = itoa::Buffer::new();
    for part in &body.template {
        text.push_str(match part {
            TemplatePart::Text(text) => text,
            TemplatePart::RetryAfter => retry_after.map_or("null", |after| number.format(after)),
            TemplatePart::Policy => policy,
            TemplatePart::Limit => number.format(limit),
        });
    }
    text
}

/// Problem details that name every tier that denied, once. `may_come_back`: whether waiting helps.
fn details(texts: &QuotaTexts, outcomes: &[PolicyOutcome], status: StatusCode, may_come_back: bool) -> Bytes {
    let mut denying: SmallVec<[&TierTexts; 4]> = SmallVec::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.verdict.admitted) {
        let tier = texts.variant(*outcome).and_then(|limits| limits.tiers.get(outcome.verdict.tier));
        denying.extend(tier.filter(|tier| !denying.iter().any(|known| known.name == tier.name)));
    }
    match denying.as_slice() {
        // Prepared, with the status of this policy.
        [only] if may_come_back => only.problem.clone(),
        several => {
            let names: SmallVec<[&str; 4]> = several.iter().map(|tier| tier.name.as_str()).collect();
            problem(status, if may_come_back { USED_UP } else { NEVER }, &names)
        }
    }
}

/// The reply to a banned client. `rule`: the rule of `ban`, if it has one. `now`: microseconds since the Unix epoch.
/// `cross_origin`: whether a page's script sent the request.
pub(in crate::proxy) fn banned(rule: Option<&BanRule>, ban: &Ban, now: i64, cross_origin: bool) -> Reply {
    let exact = ban.until.saturating_sub(now);
    // A client that came back at once would be denied again.
    let retry_after = seconds(exact).max(1);
    let custom = rule.map(|rule| &rule.reply);
    let status = custom.map_or(StatusCode::FORBIDDEN, |custom| custom.status);
    let detail = format!("This client is banned until {}.", rfc3339(ban.until));
    let mut reply = match (rule, custom.and_then(|custom| custom.body.as_ref())) {
        (Some(rule), Some(body)) => {
            let text = render(body, ban.name(), rule.after.limit, Some(retry_after));
            let mut reply = Reply::json(status, detail.into(), text.into());
            reply.headers.insert(header::CONTENT_TYPE, body.content_type.clone());
            reply
        }
        _ => Reply::problem(status, detail),
    };
    for (name, value) in custom.iter().flat_map(|custom| &custom.headers) {
        reply.headers.append(name, value.clone());
    }
    reply.headers.insert(header::RETRY_AFTER, seconds_value(retry_after));
    reply.retry_after = Some(exact);
    if cross_origin {
        headers::expose(&mut reply.headers);
    }
    reply
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_template_is_filled_in() {
        let template = vec![
            TemplatePart::Text("{\"error\":\"".to_owned()),
            TemplatePart::Policy,
            TemplatePart::Text("\",\"retry_after\":".to_owned()),
            TemplatePart::RetryAfter,
            TemplatePart::Text(",\"limit\":".to_owned()),
            TemplatePart::Limit,
            TemplatePart::Text("}".to_owned()),
        ];
        let body = DenialBody { content_type: HeaderValue::from_static("application/json"), template };
        assert_eq!(render(&body, "login", 5, Some(42)), r#"{"error":"login","retry_after":42,"limit":5}"#);
        assert_eq!(render(&body, "login", 5, None), r#"{"error":"login","retry_after":null,"limit":5}"#);
    }
}
