//! The answer to a request that is shut out: as the rule says, or else problem details that tell until when.

use http::{HeaderValue, StatusCode, header};

use super::{denial::rendered, fields, seconds};
use crate::{abuse::bans::Ban, config::model::BanRule, proxy::reply::Reply, telemetry::time::rfc3339};

/// The answer. `rule`: the one that `ban` comes from, if it comes from one. `now`: microseconds since the Unix epoch.
/// `cross_origin`: whether a page's script asks.
pub(in crate::proxy) fn banned(rule: Option<&BanRule>, ban: &Ban, now: i64, cross_origin: bool) -> Reply {
    // To come back at once is to be shut out again.
    let retry_after = seconds(ban.until.saturating_sub(now)).max(1);
    let told = rule.map(|rule| &rule.reply);
    let status = told.map_or(StatusCode::FORBIDDEN, |told| told.status);
    let mut reply = match (rule, told.and_then(|told| told.body.as_ref())) {
        (Some(rule), Some(body)) => {
            let text = rendered(body, ban.name(), rule.after.limit, Some(retry_after));
            let mut reply = Reply::json(status, text.into());
            reply.headers.insert(header::CONTENT_TYPE, body.content_type.clone());
            reply
        }
        _ => Reply::problem(status, &format!("This client is shut out until {}.", rfc3339(ban.until))),
    };
    for (name, value) in told.iter().flat_map(|told| &told.headers) {
        reply.headers.append(name, value.clone());
    }
    reply.headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
    if cross_origin {
        fields::expose(&mut reply.headers);
    }
    reply
}
