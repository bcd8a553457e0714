//! `/v1/bans`: lists bans, bans a key, and lifts its bans.

use std::{ops::RangeInclusive, sync::Arc};

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    ban_reach::shut_out,
    context::{HandlerContext, is_shared, to_completion},
    dto::{self, schema},
    extract::{JsonBody, Operator, Query, RemoteAddress, checked_reason},
    openapi::{BodyErrors, ConflictError, NotFoundError, ReadErrors, WriteErrors},
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, BanTable, BannedKey},
    },
    telemetry::time::{self, rfc3339},
};

const SECOND: i64 = 1_000_000;
/// Allowed durations of a ban, in microseconds.
const DURATIONS: RangeInclusive<i64> = SECOND..=366 * 86_400 * SECOND;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct BansQuery {
    /// Only bans of this key.
    #[param(value_type = Option<schema::BanKey>)]
    pub(super) key: Option<String>,
    /// Only bans of addresses and prefixes within this prefix.
    #[param(value_type = Option<schema::Prefix>)]
    pub(super) prefix: Option<String>,
    /// Bans per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// Lists active bans, one page at a time, the one that ends last first.
#[utoipa::path(
    get,
    path = "/v1/bans",
    operation_id = "bans",
    tag = "bans",
    params(BansQuery),
    responses(
        (
            status = 200,
            body = dto::Bans,
            description = "one page of active bans",
            links(("lift" = (operation_id = "lift", parameters(("key" = "$response.body#/bans/0/key")))))
        ),
        ReadErrors
    )
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<BansQuery>,
) -> Result<Json<dto::Bans>, Problem> {
    page(&context, &query).map(Json)
}

/// A page of the active bans.
pub(super) fn page(context: &HandlerContext, query: &BansQuery) -> Result<dto::Bans, Problem> {
    let key = query.key.as_deref().map(|text| parse_key(context, text)).transpose()?;
    let prefix = query.prefix.as_deref().map(|text| {
        let malformed = || format!("not an address or a prefix: {}", text.escape_debug());
        abuse::parse(text).ok_or_else(|| Problem::bad_request(malformed()))
    });
    let prefix = prefix.transpose()?;
    let after = decode_cursor(query.cursor.as_deref(), |(until, key, is_shadow): (i64, String, bool)| {
        Some((until, BannedKey::from_canonical(&key)?, is_shadow))
    })?;
    let found = context.state.bans.page(after, page_size(query.limit)?, |ban| {
        key.as_ref().is_none_or(|key| ban.key == *key)
            && prefix.is_none_or(|prefix| matches!(&ban.key, BannedKey::Address(net) if prefix.contains(net)))
    });
    let last = found.bans.last().filter(|_| found.has_more);
    let cursor = last.map(|last| {
        let (until, key, is_shadow) = BanTable::position(last);
        encode_cursor(&(until, key.to_string(), is_shadow))
    });
    Ok(dto::Bans { bans: found.bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(), cursor })
}

/// Bans an address, a prefix or a user on every instance. Replaces any ban of the same key. A ban that would shut out a
/// large part of the internet, this machine, the operator's own address or a trusted proxy is refused unless `force` is
/// set; so is a user name as records shorten it.
#[utoipa::path(
    post,
    path = "/v1/bans",
    operation_id = "ban",
    tag = "bans",
    request_body(
        content = dto::NewBan,
        description = "what to ban, for how long, and why",
        example = json!({"key": "ip:203.0.113.7", "for": "1h", "reason": "scraping"})
    ),
    responses(
        (
            status = 201,
            body = dto::Banned,
            description = "the key is now banned; it was not banned before",
            links(
                ("lift" = (operation_id = "lift", parameters(("key" = "$response.body#/key")))),
                ("find" = (operation_id = "bans", parameters(("key" = "$response.body#/key"))))
            )
        ),
        (status = 200, body = dto::Banned, description = "the key is now banned; the new ban replaced an earlier one"),
        WriteErrors,
        BodyErrors,
        ConflictError
    )
)]
pub(super) async fn create(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    peer: Option<Extension<RemoteAddress>>,
    JsonBody(new): JsonBody<dto::NewBan>,
) -> Result<(StatusCode, Json<dto::Banned>), Problem> {
    let key = parse_key(&context, &new.key)?;
    let duration = duration(&new.lasts)?;
    let reason = new.reason;
    checked_reason(&reason)?;
    if !new.force && new.key.strip_prefix("user:").is_some_and(abuse::is_shortened) {
        let detail = format!(
            "{key} is the beginning of a name, as records keep a long one, and bans no user: write the whole name, as in the \
             access log; if it is the whole name, force it (tollgate ban --force; \"force\": true)"
        );
        return Err(Problem::bad_request(detail));
    }
    if !new.force {
        let config = context.state.active_config.snapshot();
        let operator = peer.map(|Extension(RemoteAddress(address))| address);
        let shuts_out = shut_out(&key, operator, &config.rules.config().trusted_proxies);
        if !shuts_out.is_empty() {
            return Err(Problem::far_reaching_ban(&key.to_string(), shuts_out));
        }
    }
    let (ban, replaced) = context.state.bans.ban(key, duration, reason.clone(), by.0.clone());
    let mut detail = format!("for {}", time::format_duration(duration));
    if !reason.is_empty() {
        detail += &format!(": {reason}");
    }
    context.audit(&by, "ban", &ban.key.to_string(), &detail);
    let status = if replaced { StatusCode::OK } else { StatusCode::CREATED };
    let shared = is_sent(&context).await;
    Ok((status, Json(dto::Banned { ban: dto::Ban::from(&*ban), shared })))
}

/// Parses how long a ban is to last, in microseconds.
pub(super) fn duration(text: &str) -> Result<i64, Problem> {
    let duration = time::parse_duration(text).filter(|lasts| DURATIONS.contains(lasts));
    let malformed =
        || format!("for must be a duration from 1s to 366d, such as 30d, not {}", text.escape_debug());
    duration.ok_or_else(|| Problem::bad_request(malformed()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LiftQuery {
    /// The banned key: `ip:203.0.113.7`, `ip:10.0.0.0/8`, `user:acme`.
    #[param(value_type = schema::BanKey)]
    key: String,
}

/// Lifts the bans of exactly this key on every instance, and resets its level for automatic bans.
#[utoipa::path(
    delete,
    path = "/v1/bans",
    operation_id = "lift",
    tag = "bans",
    params(LiftQuery),
    responses((status = 200, body = dto::Lifted, description = "the bans were lifted"), WriteErrors, NotFoundError)
)]
pub(super) async fn lift(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    Query(query): Query<LiftQuery>,
) -> Result<Json<dto::Lifted>, Problem> {
    to_completion(async move {
        let key = parse_key(&context, &query.key)?;
        let bans_lifted = lift_all(&context, &key).await;
        if bans_lifted == 0 {
            return Err(Problem::not_found(format!("there is no ban of {key}")));
        }
        context.audit(&by, "lift", &key.to_string(), "");
        let shared = is_sent(&context).await;
        Ok(Json(dto::Lifted { key: key.to_string(), bans_lifted, shared }))
    })
    .await
}

/// Lifts the bans of a key. Returns their number, including bans that only other instances know yet.
pub(super) async fn lift_all(context: &HandlerContext, key: &BannedKey) -> u64 {
    let bans = &context.state.bans;
    let elsewhere = context.peers.count_bans(key).await;
    // May include a ban that has just ended.
    let here = bans.by_key(key).len() as u64;
    bans.lift(key);
    here.max(elsewhere)
}

/// Waits until all bans and lifts made here are sent to the other instances. `false`: they were not sent in time.
pub(super) async fn is_sent(context: &HandlerContext) -> bool {
    let bans = &context.state.bans;
    let mark = bans.mark_updates();
    is_shared(context, || bans.is_sent(mark)).await
}

/// Parses a key as operators write it.
fn parse_key(context: &HandlerContext, text: &str) -> Result<BannedKey, Problem> {
    let (config, names) = (context.state.active_config.snapshot(), context.state.registry.names());
    BannedKey::parse(text, config.ipv6_prefix(), &names)
        .map_err(|error| Problem::bad_request(error.to_string()))
}

impl From<&Ban> for dto::Ban {
    fn from(ban: &Ban) -> Self {
        Self {
            key: ban.key.to_string(),
            since: rfc3339(ban.since),
            until: rfc3339(ban.until),
            reason: ban.reason.clone(),
            by: ban.by.clone(),
            level: ban.level,
            mode: if ban.is_shadow { "shadow" } else { "enforce" }.to_owned(),
        }
    }
}
