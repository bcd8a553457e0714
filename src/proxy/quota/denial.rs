//! The answer to a request that was denied: as the policy that decided says, or else problem details.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use smallvec::SmallVec;

use super::{
    quotas::Quotas,
    said::Said,
    seconds,
    words::{NEVER, TierWords, USED_UP, problem},
};
use crate::{
    config::model::{DenialBody, TemplatePart},
    proxy::reply::Reply,
};

/// The answer, but for the fields that tell of quotas.
pub(super) fn reply(quotas: &Quotas, said: &[Said], decisive: Option<Said>) -> Reply {
    let words = decisive.and_then(|decisive| quotas.words(decisive));
    let status = words.map_or(StatusCode::TOO_MANY_REQUESTS, |words| words.status);
    let retry_after = decisive
        .and_then(|decisive| decisive.verdict.retry_after)
        // To come back at once is to be denied again.
        .map(|retry_after| seconds(retry_after).max(1));

    let custom = words.and_then(|words| words.reply.as_ref());
    let mut reply = match (custom.and_then(|custom| custom.body.as_ref()), words, decisive) {
        (Some(body), Some(words), Some(decisive)) => {
            let text = rendered(body, &words.name, decisive.verdict.limit, retry_after);
            let mut reply = Reply::json(status, text.into());
            reply.headers.insert(header::CONTENT_TYPE, body.content_type.clone());
            reply
        }
        _ => Reply::json(status, details(quotas, said, status, retry_after.is_some())),
    };
    for (name, value) in custom.iter().flat_map(|custom| &custom.headers) {
        reply.headers.append(name, value.clone());
    }
    if let Some(retry_after) = retry_after {
        reply.headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
    }
    reply
}

/// The template with what this denial fills in.
pub(super) fn rendered(body: &DenialBody, policy: &str, limit: u64, retry_after: Option<i64>) -> String {
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
fn details(quotas: &Quotas, said: &[Said], status: StatusCode, may_come_back: bool) -> Bytes {
    let mut denying: SmallVec<[&TierWords; 4]> = SmallVec::new();
    for said in said.iter().filter(|said| !said.verdict.admitted) {
        let tier = quotas.quota(*said).and_then(|quota| quota.tiers.get(said.verdict.tier));
        denying.extend(tier.filter(|tier| !denying.iter().any(|known| known.name == tier.name)));
    }
    match denying.as_slice() {
        // Written already, with the status of this policy.
        [only] if may_come_back => only.problem.clone(),
        several => {
            let names: SmallVec<[&str; 4]> = several.iter().map(|tier| tier.name.as_str()).collect();
            problem(status, if may_come_back { USED_UP } else { NEVER }, &names)
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(rendered(&body, "login", 5, Some(42)), r#"{"error":"login","retry_after":42,"limit":5}"#);
        assert_eq!(rendered(&body, "login", 5, None), r#"{"error":"login","retry_after":null,"limit":5}"#);
    }
}
