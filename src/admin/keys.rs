//! `/v1/keys`: lists API keys, and makes, changes, rotates, revokes, deletes and imports them.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::{Request, State},
};
use compact_str::CompactString;
use http::{HeaderName, StatusCode, header::ETAG};
use serde::Deserialize;
use tokio::task;
use utoipa::{IntoParams, ToSchema};

use super::{
    context::{HandlerContext, crashed, is_shared, to_completion},
    dto::{self, schema},
    extract::{IfMatch, JsonBody, KeyParam, NoParams, Operator, Query, parse_json, read_body},
    key_changes::{self, ChangeAuthor, Made, WithoutReply, existing},
    openapi::{
        BodyErrors, LookupErrors, NotFoundError, PreconditionError, ReadErrors, RefusedError,
        UnavailableError, WriteErrors,
    },
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    api_keys::{
        ApiKey, ApiKeys, KeyMark, KeyState, KeyText, PutError, Stamp, check_rows, describe,
        operations::{self, FieldError, KeyChange, KeyFields, OperationError, parse_expiry},
        record::check_name,
    },
    config::model::Config,
    telemetry::time::{format_duration, parse_duration, rfc3339},
    text::nearest,
};

/// Longest body of an import, in bytes: 100,000 keys of 335 bytes.
const MAX_IMPORT: usize = 32 << 20;
/// Names that warnings list.
const MAX_LISTED: usize = 10;

/// A key with its version in `ETag`.
type Versioned<T> = ([(HeaderName, String); 1], Json<T>);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysQuery {
    /// Only keys of this customer.
    #[param(value_type = Option<schema::KeyName>)]
    pub(super) customer: Option<String>,
    /// Only keys of this plan.
    #[param(value_type = Option<schema::KeyName>)]
    pub(super) plan: Option<String>,
    /// Only keys in this state.
    #[param(inline)]
    pub(super) state: Option<StateFilter>,
    /// Keys per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// The header of requests that change a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes what `IfMatch` reads")]
struct IfMatchParam {
    /// The version that is to be changed, as `ETag` has it: if the key has another one, nothing is changed (412). Without
    /// it, the change is made to the newest version.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}

/// Whether a key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateFilter {
    Active,
    Expired,
    Revoked,
}

impl StateFilter {
    /// The state of a key; `None` if it was deleted.
    fn of(key: &ApiKey, now: i64) -> Option<Self> {
        match key.state {
            KeyState::Active if key.expires.is_some_and(|expires| expires <= now) => Some(Self::Expired),
            KeyState::Active => Some(Self::Active),
            KeyState::Revoked { .. } => Some(Self::Revoked),
            KeyState::Deleted { .. } => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// Lists API keys, one page at a time, in the order of their IDs. Deleted ones are left out.
#[utoipa::path(
    get,
    path = "/v1/keys",
    operation_id = "keys",
    tag = "keys",
    params(KeysQuery),
    responses(
        (
            status = 200,
            body = dto::ApiKeys,
            description = "one page of keys",
            links(("show" = (operation_id = "key", parameters(("id" = "$response.body#/keys/0/id")))))
        ),
        ReadErrors
    )
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<KeysQuery>,
) -> Result<Json<dto::ApiKeys>, Problem> {
    page(&context, &query).await.map(Json)
}

/// Refuses names that no customer and no plan can have.
pub(super) fn check_names(customer: Option<&str>, plan: Option<&str>) -> Result<(), Problem> {
    for (field, name) in [("customer", customer), ("plan", plan)] {
        let wrong = name.and_then(|name| check_name(field, name).err());
        wrong.map_or(Ok(()), |reason| Err(Problem::wrong_field(field, &reason)))?;
    }
    Ok(())
}

/// A page of the keys.
pub(super) async fn page(context: &HandlerContext, query: &KeysQuery) -> Result<dto::ApiKeys, Problem> {
    let now = context.state.clock.now();
    let after: Option<String> = decode_cursor(query.cursor.as_deref(), Some)?;
    check_names(query.customer.as_deref(), query.plan.as_deref())?;
    let is_wanted = |key: &ApiKey| {
        let state = StateFilter::of(key, now);
        state.is_some()
            && query.state.is_none_or(|wanted| state == Some(wanted))
            && query.customer.as_ref().is_none_or(|customer| key.customer == *customer)
            && query.plan.as_ref().is_none_or(|plan| key.plan.as_deref() == Some(plan))
    };
    let limit = page_size(query.limit)?;
    let (found, has_more) = search(&context.state.api_keys, after, limit, is_wanted).await;
    let last = found.last().filter(|_| has_more);
    let cursor = last.map(|key| encode_cursor(&key.id));
    Ok(dto::ApiKeys { keys: found.iter().map(|key| record(context, key)).collect(), cursor })
}

/// Up to `limit` keys that are wanted, in the order of their IDs, after the ID `after`; and whether there are more.
/// Other requests to the admin port are served in between.
pub(super) async fn search(
    keys: &ApiKeys,
    after: Option<String>,
    limit: usize,
    is_wanted: impl Fn(&ApiKey) -> bool,
) -> (Vec<Arc<ApiKey>>, bool) {
    let (mut found, mut after) = (Vec::new(), after.map(CompactString::from));
    loop {
        let (some, last) = keys.some_after(after.as_deref());
        found.extend(some.into_iter().filter(|key| is_wanted(key)));
        after = last;
        if after.is_none() || found.len() > limit {
            break;
        }
        task::yield_now().await;
    }
    let has_more = found.len() > limit;
    found.truncate(limit);
    (found, has_more)
}

/// Shows an API key.
#[utoipa::path(
    get,
    path = "/v1/keys/{id}",
    operation_id = "key",
    tag = "keys",
    params(("id" = schema::KeyId, Path, description = "the ID of the key")),
    responses(
        (
            status = 200,
            body = dto::ApiKey,
            description = "the key, without its text",
            headers(("ETag" = String, description = "its version, for If-Match"))
        ),
        LookupErrors
    )
)]
pub(super) async fn show(
    State(context): State<Arc<HandlerContext>>,
    KeyParam(id): KeyParam,
    _: Query<NoParams>,
) -> Result<Versioned<dto::ApiKey>, Problem> {
    let record = record(&context, &*existing(&context, &id)?);
    Ok((etag(&record), Json(record)))
}

/// Makes an API key. The response has its text, which can't be read again.
#[utoipa::path(
    post,
    path = "/v1/keys",
    operation_id = "create_key",
    tag = "keys",
    request_body(
        content = dto::NewApiKey,
        description = "whose key it is",
        example = json!({"customer": "acme", "plan": "pro", "name": "CI", "expires": "90d"})
    ),
    responses(
        (
            status = 201,
            body = dto::MadeApiKey,
            description = "the key was made",
            headers(("ETag" = String, description = "its version, for If-Match")),
            links(
                ("show" = (operation_id = "key", parameters(("id" = "$response.body#/id")))),
                ("change" = (operation_id = "change_key", parameters(("id" = "$response.body#/id")))),
                ("rotate" = (operation_id = "rotate_key", parameters(("id" = "$response.body#/id")))),
                ("revoke" = (operation_id = "revoke_key", parameters(("id" = "$response.body#/id")))),
                ("delete" = (operation_id = "delete_key", parameters(("id" = "$response.body#/id"))))
            )
        ),
        WriteErrors,
        BodyErrors,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn create(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    JsonBody(new): JsonBody<dto::NewApiKey>,
) -> Result<(StatusCode, Versioned<dto::MadeApiKey>), Problem> {
    let now = context.state.clock.now();
    let dto::NewApiKey { id, customer, plan, name, labels, routes, expires } = new;
    // Another instance may be making a key with the same ID, but not with the same random one.
    let without_reply = if id.is_none() { WithoutReply::Made } else { WithoutReply::NotMade };
    let fields = KeyFields {
        id: id.map(Into::into),
        customer: customer.into(),
        plan: plan.map(Into::into),
        name: name.into(),
        labels,
        routes,
        created: None,
        expires: expires.map(|text| expiry(&text, now)).transpose()?,
    };
    let (key, new) = operations::create(fields, &prefix(&context), now)?;
    to_completion(async move {
        let author = ChangeAuthor { by: &by, action: "create_key", without_reply };
        let made = key_changes::create(&context, key, author).await?;
        let changed = changed(&context, author, &described(&made.key), &made);
        let etag = etag(&changed.record);
        Ok((StatusCode::CREATED, (etag, Json(dto::MadeApiKey { key: KeyText(new.text), changed }))))
    })
    .await
}

/// Changes an API key: its plan, name, labels, routes or expiry. Fields that are left out keep the values that the newest
/// version has.
#[utoipa::path(
    patch,
    path = "/v1/keys/{id}",
    operation_id = "change_key",
    tag = "keys",
    params(("id" = schema::KeyId, Path, description = "the ID of the key"), IfMatchParam),
    request_body(
        content = dto::ApiKeyChange,
        description = "the fields to change",
        example = json!({"plan": "enterprise", "expires": null})
    ),
    responses(
        (
            status = 200,
            body = dto::ChangedApiKey,
            description = "the key as it is now",
            headers(("ETag" = String, description = "its version, for If-Match"))
        ),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        PreconditionError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn change(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    KeyParam(id): KeyParam,
    if_match: IfMatch,
    JsonBody(change): JsonBody<dto::ApiKeyChange>,
) -> Result<Versioned<dto::ChangedApiKey>, Problem> {
    let now = context.state.clock.now();
    let detail = change_detail(&change);
    let dto::ApiKeyChange { plan, name, labels, routes, expires } = change;
    let expires = match expires {
        Some(Some(text)) => Some(Some(expiry(&text, now)?)),
        Some(None) => Some(None),
        None => None,
    };
    let plan = plan.map(|plan| plan.map(Into::into));
    let change = KeyChange { plan, name: name.map(Into::into), labels, routes, expires };
    to_completion(async move {
        let operation = |key: &ApiKey| operations::change(key, change.clone(), now);
        let author = ChangeAuthor { by: &by, action: "change_key", without_reply: WithoutReply::NotMade };
        let made = key_changes::change(&context, &id, &if_match, author, operation).await?;
        let changed = changed(&context, author, &detail, &made);
        Ok((etag(&changed.record), Json(changed)))
    })
    .await
}

/// Gives an API key another text, which the response has. The one that it has now stays valid for `overlap`.
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/rotate",
    operation_id = "rotate_key",
    tag = "keys",
    params(("id" = schema::KeyId, Path, description = "the ID of the key"), IfMatchParam),
    request_body(
        content = dto::Rotation,
        description = "how long the old key stays valid",
        example = json!({"overlap": "24h"})
    ),
    responses(
        (
            status = 200,
            body = dto::MadeApiKey,
            description = "the key was rotated",
            headers(("ETag" = String, description = "its version, for If-Match"))
        ),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        PreconditionError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn rotate(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    KeyParam(id): KeyParam,
    if_match: IfMatch,
    JsonBody(dto::Rotation { overlap }): JsonBody<dto::Rotation>,
) -> Result<Versioned<dto::MadeApiKey>, Problem> {
    let overlap = parse_duration(&overlap)
        .ok_or_else(|| Problem::wrong_field("overlap", "must be a duration from 0s to 366d, such as 24h"))?;
    let detail = match overlap {
        0 => "the old key is not valid any more".to_owned(),
        overlap => format!("the old key is valid for another {}", format_duration(overlap)),
    };
    let (prefix, now) = (prefix(&context), context.state.clock.now());
    to_completion(async move {
        let mut text = None;
        let operation = |key: &ApiKey| {
            let (key, new) = operations::rotate(key, &prefix, overlap, now)?;
            text = Some(new.text);
            Ok(key)
        };
        let author = ChangeAuthor { by: &by, action: "rotate_key", without_reply: WithoutReply::NotMade };
        let made = key_changes::change(&context, &id, &if_match, author, operation).await?;
        let changed = changed(&context, author, &detail, &made);
        let key = KeyText(text.unwrap_or_default());
        Ok((etag(&changed.record), Json(dto::MadeApiKey { key, changed })))
    })
    .await
}

/// Revokes an API key on every instance, and for good. It stays in the list for 366 days, and until its expiry.
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/revoke",
    operation_id = "revoke_key",
    tag = "keys",
    params(("id" = schema::KeyId, Path, description = "the ID of the key"), IfMatchParam),
    request_body(
        content = dto::Revocation,
        description = "why",
        example = json!({"reason": "it was in a public repository"})
    ),
    responses(
        (
            status = 200,
            body = dto::ChangedApiKey,
            description = "the key was revoked",
            headers(("ETag" = String, description = "its version, for If-Match"))
        ),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        PreconditionError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn revoke(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    KeyParam(id): KeyParam,
    if_match: IfMatch,
    JsonBody(dto::Revocation { reason }): JsonBody<dto::Revocation>,
) -> Result<Versioned<dto::ChangedApiKey>, Problem> {
    let now = context.state.clock.now();
    to_completion(async move {
        let operation = |key: &ApiKey| operations::revoke(key, &reason, now);
        let author = ChangeAuthor { by: &by, action: "revoke_key", without_reply: WithoutReply::Made };
        let made = key_changes::change(&context, &id, &if_match, author, operation).await?;
        let changed = changed(&context, author, &reason, &made);
        Ok((etag(&changed.record), Json(changed)))
    })
    .await
}

/// Deletes an API key: it is never valid again, and is not listed any more.
#[utoipa::path(
    delete,
    path = "/v1/keys/{id}",
    operation_id = "delete_key",
    tag = "keys",
    params(("id" = schema::KeyId, Path, description = "the ID of the key"), IfMatchParam),
    responses(
        (status = 200, body = dto::DeletedApiKey, description = "the key was deleted"),
        WriteErrors,
        NotFoundError,
        PreconditionError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn delete(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    KeyParam(id): KeyParam,
    if_match: IfMatch,
    _: Query<NoParams>,
) -> Result<Json<dto::DeletedApiKey>, Problem> {
    let now = context.state.clock.now();
    to_completion(async move {
        let operation = |key: &ApiKey| Ok(operations::delete(key, now));
        let author = ChangeAuthor { by: &by, action: "delete_key", without_reply: WithoutReply::Made };
        let Made { key, is_shared } =
            key_changes::change(&context, &id, &if_match, author, operation).await?;
        context.audit(&by, "delete_key", &key.id, &described(&key));
        Ok(Json(dto::DeletedApiKey { id, shared: is_shared }))
    })
    .await
}

/// Imports up to 100,000 API keys that were made elsewhere, by their text or their hash; all of them or none. A body has
/// at most 32 MiB.
#[utoipa::path(
    post,
    path = "/v1/keys/import",
    operation_id = "import_keys",
    tag = "keys",
    request_body(
        content = dto::Import,
        description = "the keys",
        example = json!({"keys": [{"key": "a-key-of-a-customer", "customer": "acme", "plan": "pro"}]})
    ),
    responses(
        (status = 200, body = dto::Imported, description = "the keys are known now"),
        WriteErrors,
        BodyErrors,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn import(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    request: Request,
) -> Result<Json<dto::Imported>, Problem> {
    // Each may take 500 MiB, so the bodies of the others are not read yet.
    let turn = Arc::clone(&context.import_turn).lock_owned().await;
    let body = read_body(request, MAX_IMPORT).await?;
    to_completion(async move {
        let (keys, now) = (Arc::clone(&context.state.api_keys), context.state.clock.now());
        let config = context.state.active_config.snapshot();
        let import = move || import_body(&keys, config.rules.config(), body, now);
        let ImportResult { marks, unchanged, warnings, failure } =
            task::spawn_blocking(import).await.map_err(crashed)??;
        drop(turn);
        let imported = marks.len();
        if imported > 0 {
            context.audit(&by, "import_keys", &format!("{imported} keys"), "");
        }
        match failure {
            Some(error) if imported > 0 => {
                let status = Problem::from(error.clone()).status();
                let detail = format!("{error}; {imported} keys were imported before. Import all again: those are left as they are");
                return Err(Problem::new(status, detail));
            }
            Some(error) => return Err(error.into()),
            None => {}
        }
        let shared = are_shared(&context, &marks).await;
        Ok(Json(dto::Imported { imported: imported as u64, unchanged, warnings, shared }))
    })
    .await
}

/// The result of an import.
struct ImportResult {
    marks: Vec<KeyMark>,
    unchanged: u64,
    warnings: Vec<String>,
    /// Why the other keys were not stored.
    failure: Option<PutError>,
}

/// Stores the keys of an import's body. Takes a second for 100,000 keys.
///
/// # Errors
/// Some are wrong, or other keys are in their way: none was stored.
fn import_body(keys: &ApiKeys, config: &Config, body: Bytes, now: i64) -> Result<ImportResult, Problem> {
    let dto::Import { keys: rows } = parse_json(&body)?;
    drop(body);
    let checked = check_rows(&rows, now)
        .map_err(|errors| Problem::wrong_field("keys", &describe(&errors).join("; ")))?;
    drop(rows);
    let (fresh, unchanged) = fresh(keys, checked)?;
    let warnings = warnings(config, &fresh);
    let (mut marks, mut failure) = (Vec::with_capacity(fresh.len()), None);
    for key in fresh {
        match keys.import(key) {
            Ok(mark) => marks.push(mark),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    Ok(ImportResult { marks, unchanged, warnings, failure })
}

/// The unknown keys of an import, and the number of the known ones.
fn fresh(keys: &ApiKeys, rows: Vec<(u64, ApiKey)>) -> Result<(Vec<ApiKey>, u64), Problem> {
    let (mut fresh, mut unchanged, mut errors) = (Vec::with_capacity(rows.len()), 0, Vec::new());
    for (line, key) in rows {
        // Also a revoked or deleted one: an import must not bring it back.
        let holder = key.secrets.last().and_then(|secret| keys.holder(&secret.hash));
        match (holder, keys.get(&key.id)) {
            (Some(holder), _) if holder.state != KeyState::Active => {
                errors.push(format!("line {line}: this key was revoked or deleted, as {}", holder.id));
            }
            (Some(holder), _) if holder.customer == key.customer => unchanged += 1,
            (Some(holder), _) => errors
                .push(format!("line {line}: customer {} has this key, as {}", holder.customer, holder.id)),
            (None, Some(_)) => {
                errors.push(format!("line {line}: id: there is another key {} already", key.id));
            }
            (None, None) => fresh.push(key),
        }
    }
    match errors.as_slice() {
        [] => Ok((fresh, unchanged)),
        errors => {
            let more = errors.len().saturating_sub(MAX_LISTED);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let listed = errors[..errors.len().min(MAX_LISTED)].join("; ");
            Err(Problem::wrong_field("keys", &format!("{listed}{more}")))
        }
    }
}

/// The first part of keys that are made here.
fn prefix(context: &HandlerContext) -> String {
    let config = context.state.active_config.snapshot();
    let keys = config.rules.config().api_keys.as_ref();
    keys.map_or_else(|| "tgk".to_owned(), |keys| keys.prefix.clone())
}

fn expiry(text: &str, now: i64) -> Result<i64, Problem> {
    parse_expiry(text, now).ok_or_else(|| {
        Problem::wrong_field("expires", "write a duration (90d), a date (2027-01-31) or a time of RFC 3339")
    })
}

async fn are_shared(context: &HandlerContext, marks: &[KeyMark]) -> bool {
    let mut sent = 0;
    is_shared(context, || {
        sent += marks[sent..].iter().take_while(|mark| context.state.api_keys.is_shared(mark)).count();
        sent == marks.len()
    })
    .await
}

/// Writes a change of a key to the audit log.
fn changed(
    context: &HandlerContext,
    ChangeAuthor { by, action, .. }: ChangeAuthor<'_>,
    detail: &str,
    Made { key, is_shared }: &Made,
) -> dto::ChangedApiKey {
    context.audit(by, action, &key.id, detail);
    dto::ChangedApiKey {
        record: record(context, key),
        warnings: warnings(context.state.active_config.snapshot().rules.config(), std::slice::from_ref(key)),
        shared: *is_shared,
    }
}

/// Whether requests may have the key.
pub(super) fn is_valid(key: &ApiKey, now: i64) -> bool {
    StateFilter::of(key, now) == Some(StateFilter::Active)
}

/// The version of a key, as a field of the response.
fn etag(record: &dto::ApiKey) -> [(HeaderName, String); 1] {
    [(ETAG, format!("\"{}\"", record.version))]
}

/// The description of a key in an audit entry.
fn described(key: &ApiKey) -> String {
    let plan = key.plan.as_ref().map_or_else(String::new, |plan| format!(", plan {plan}"));
    format!("customer {}{plan}", key.customer)
}

fn change_detail(change: &dto::ApiKeyChange) -> String {
    let dto::ApiKeyChange { plan, name, labels, routes, expires } = change;
    let shown = |value: &Option<String>| value.as_deref().unwrap_or("none").to_owned();
    let parts = [
        plan.as_ref().map(|plan| format!("plan {}", shown(plan))),
        expires.as_ref().map(|expires| format!("expires {}", shown(expires))),
        name.as_ref().map(|_| "name".to_owned()),
        (!labels.is_empty()).then(|| "labels".to_owned()),
        routes.as_ref().map(|_| "routes".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Plans and routes of these keys that are not there: the policies' own limits hold, and no request is let through.
pub(super) fn warnings(config: &Config, keys: &[ApiKey]) -> Vec<String> {
    let plans: Vec<&str> = config.plans.iter().map(|plan| &*plan.name).collect();
    let routes: Vec<&str> = config.routes.iter().map(|route| route.name.as_str()).collect();
    let unknown = |names: BTreeSet<&str>, known: &[&str], what: &str, effect: &str| {
        let describe = |name: &str| {
            let meant = nearest(name, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            format!("no {what} is named {}: {effect}{meant}", name.escape_debug())
        };
        let unknown = names.into_iter().filter(|name| !known.contains(name));
        unknown.take(MAX_LISTED).map(describe).collect::<Vec<_>>()
    };
    let used_plans = keys.iter().filter_map(|key| key.plan.as_deref()).collect();
    let used_routes = keys.iter().flat_map(|key| &key.routes).map(String::as_str).collect();
    let mut warnings = unknown(used_plans, &plans, "plan", "the policies' own limits hold");
    warnings.extend(unknown(used_routes, &routes, "route", "the key is valid for no such route"));
    warnings
}

/// The record of a key, as it is shown.
fn record(context: &HandlerContext, key: &ApiKey) -> dto::ApiKey {
    let keys = &context.state.api_keys;
    let revoked = match &key.state {
        KeyState::Revoked { at, reason } => Some(dto::Revoked { at: rfc3339(*at), reason: reason.clone() }),
        KeyState::Active | KeyState::Deleted { .. } => None,
    };
    let state = StateFilter::of(key, context.state.clock.now()).map_or("deleted", StateFilter::name);
    let secrets = key.secrets.iter().map(|secret| dto::KeySecret {
        hash: secret.hash.to_string(),
        created: rfc3339(secret.created),
        expires: secret.expires.map(rfc3339),
    });
    dto::ApiKey {
        id: key.id.to_string(),
        customer: key.customer.to_string(),
        plan: key.plan.as_ref().map(ToString::to_string),
        name: key.name.to_string(),
        labels: key.labels.clone(),
        routes: key.routes.clone(),
        created: rfc3339(key.created),
        expires: key.expires.map(rfc3339),
        state: state.to_owned(),
        revoked,
        secrets: secrets.collect(),
        source: if keys.is_in_file(&key.id) { "file" } else { "store" }.to_owned(),
        last_used: keys.last_use(&key.id).map(rfc3339),
        version: Stamp::of(key).to_string(),
    }
}

impl From<FieldError> for Problem {
    fn from(FieldError { field, reason }: FieldError) -> Self {
        Self::wrong_field(field, &reason)
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Field(error) => error.into(),
            OperationError::Revoked(_) | OperationError::Expired(_) => Self::refused(error.to_string()),
            OperationError::NoRandomNumbers(_) => Self::unavailable(error.to_string()),
        }
    }
}

impl From<PutError> for Problem {
    fn from(error: PutError) -> Self {
        let detail = error.to_string();
        match error {
            PutError::Away | PutError::Busy => Self::unavailable(detail),
            PutError::NoStore
            | PutError::InFile(_)
            | PutError::IdInUse(_)
            | PutError::Revoked(_)
            | PutError::SecretInUse(_)
            | PutError::TooMany
            | PutError::Invalid(_) => Self::refused(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use futures_util::{future::poll_fn, pin_mut};
    use serde_json::{Value, json};

    use super::search;
    use crate::{
        admin::testing::{Harness, NOW},
        api_keys::{ApiKeys, KeyHash, KeyStore, testing::key},
    };

    fn make(harness: &Harness, body: &Value) -> Value {
        let reply = harness.send_json("POST", "/v1/keys", body);
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()
    }

    #[test]
    fn a_key_is_made_changed_rotated_revoked_and_deleted() {
        let harness = Harness::start(None);
        let made =
            make(&harness, &json!({"customer": "acme", "plan": "por", "name": "CI", "expires": "90d"}));
        let (text, id) = (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned());
        assert!(text.starts_with(&format!("tgk_{id}_")));
        assert!(harness.api_keys.find(&KeyHash::of(text.as_bytes()), NOW).is_ok());
        assert_eq!(made["expires"], "2026-10-01T12:00:01.000Z");
        assert_eq!(made["warnings"], json!(["no plan is named por: the policies' own limits hold"]));
        let path = format!("/v1/keys/{id}");
        let changed = harness
            .send_json("PATCH", &path, &json!({"plan": null, "expires": null, "labels": {"a": "b"}}))
            .json();
        assert_eq!(
            (&changed["plan"], &changed["expires"], &changed["name"]),
            (&Value::Null, &Value::Null, &json!("CI"))
        );
        let rotated = harness.send_json("POST", &format!("{path}/rotate"), &json!({"overlap": "1h"})).json();
        let newer = rotated["key"].as_str().unwrap();
        assert_eq!(rotated["secrets"][0]["expires"], "2026-07-03T13:00:01.000Z");
        for key in [&*text, newer] {
            assert!(harness.api_keys.find(&KeyHash::of(key.as_bytes()), NOW).is_ok());
        }
        assert!(harness.api_keys.find(&KeyHash::of(text.as_bytes()), NOW + 3_600_000_000).is_err());
        let revoked =
            harness.send_json("POST", &format!("{path}/revoke"), &json!({"reason": "leaked"})).json();
        assert_eq!((&revoked["state"], &revoked["revoked"]["reason"]), (&json!("revoked"), &json!("leaked")));
        harness.send_json("POST", &format!("{path}/rotate"), &json!({})).is_problem(422);
        assert_eq!(harness.get(&path).json()["state"], "revoked");
        assert_eq!(harness.send("DELETE", &path, "").status, 200);
        harness.get(&path).is_problem(404);
        harness.send("DELETE", &path, "").is_problem(404);
        let audit = harness.get("/v1/audit").body;
        for action in ["create_key", "change_key", "rotate_key", "revoke_key", "delete_key"] {
            assert!(audit.contains(action), "{action}: {audit}");
        }
        assert!(!audit.contains(&text) && !audit.contains(newer) && !audit.contains("sha256"));
    }

    #[test]
    fn a_change_is_made_to_the_version_that_if_match_names() {
        let harness = Harness::start(None);
        make(&harness, &json!({"id": "a", "customer": "acme", "plan": "pro"}));
        let version = |reply: &crate::admin::testing::Reply| {
            let etag = reply.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
            assert_eq!(etag, format!("\"{}\"", reply.json()["version"].as_str().unwrap()));
            etag
        };
        let send = |method: &str, path: &str, body: &Value, if_match: &str| {
            let request = harness.json_request(method, path, body);
            let (line, rest) = request.split_once("\r\n").unwrap();
            harness.raw(&format!("{line}\r\nif-match: {if_match}\r\n{rest}"))
        };
        let first = version(&harness.get("/v1/keys/a"));
        let changed = send("PATCH", "/v1/keys/a", &json!({"plan": "free"}), &first);
        let second = version(&changed);
        assert!(changed.status == 200 && first != second, "{changed:?}");
        harness.api_keys.note_use("a", NOW);
        assert_eq!(version(&harness.get("/v1/keys/a")), second, "a use is no change");
        let stale = [first.clone(), format!("W/{second}"), format!("{first}, \"x\""), "\"\"".to_owned()];
        for stale in &stale {
            for (method, path) in [
                ("PATCH", "/v1/keys/a"),
                ("POST", "/v1/keys/a/rotate"),
                ("POST", "/v1/keys/a/revoke"),
                ("DELETE", "/v1/keys/a"),
            ] {
                let refused = send(method, path, &json!({}), stale);
                assert!(refused.is_problem(412).body.contains("Read it again"), "{refused:?}");
            }
        }
        for malformed in ["x", "*, \"x\"", "\"x", ""] {
            send("PATCH", "/v1/keys/a", &json!({"name": "x"}), malformed).is_problem(400);
        }
        assert_eq!(version(&harness.get("/v1/keys/a")), second);
        assert_eq!(send("PATCH", "/v1/keys/a", &json!({"name": "x"}), "*").status, 200);
        let third = version(&harness.get("/v1/keys/a"));
        let rotated = send("POST", "/v1/keys/a/rotate", &json!({}), &format!("{first}, {third}"));
        assert_eq!((rotated.status, &rotated.json()["plan"]), (200, &json!("free")));
        assert_eq!(send("DELETE", "/v1/keys/a", &json!({}), &version(&rotated)).status, 200);
    }

    #[test]
    fn a_revocation_holds_here_though_the_store_does_not_reply_and_no_other_change_is_made() {
        let mut harness = Harness::start(None);
        for id in ["a", "b"] {
            make(&harness, &json!({"id": id, "customer": "acme"}));
        }
        harness.lose_key_store();
        harness.api_keys.set_store_up(true);
        harness.send_json("PATCH", "/v1/keys/a", &json!({"plan": "pro"})).is_problem(503);
        harness.send_json("POST", "/v1/keys/a/rotate", &json!({})).is_problem(503);
        harness.send_json("POST", "/v1/keys", &json!({"id": "c", "customer": "acme"})).is_problem(503);
        assert!(!harness.api_keys.has_pending(), "nobody waits for them");
        let key = harness.get("/v1/keys/a").json();
        assert_eq!((&key["plan"], key["secrets"].as_array().unwrap().len()), (&Value::Null, 1));
        let revoked = harness.send_json("POST", "/v1/keys/a/revoke", &json!({})).json();
        assert_eq!((&revoked["state"], &revoked["shared"]), (&json!("revoked"), &json!(false)));
        let deleted = harness.send("DELETE", "/v1/keys/b", "").json();
        assert_eq!(deleted["shared"], false);
        harness.get("/v1/keys/b").is_problem(404);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let harness = Harness::start(None);
        for (body, field) in [
            (json!({"customer": ""}), "customer"),
            (json!({"customer": "a", "expires": "soon"}), "expires"),
            (json!({"customer": "a", "id": "a b"}), "id"),
            (json!({"customer": "a", "id": "import"}), "id"),
            (json!({"customer": "a", "labels": {"": "x"}}), "labels"),
        ] {
            let reply = harness.send_json("POST", "/v1/keys", &body);
            assert_eq!(reply.is_problem(400).json()["field"], field, "{body}");
        }
        let id = make(&harness, &json!({"customer": "a"}))["id"].as_str().unwrap().to_owned();
        let reply = harness.send_json("POST", &format!("/v1/keys/{id}/rotate"), &json!({"overlap": "400d"}));
        assert_eq!(reply.is_problem(400).json()["field"], "overlap");
        harness.send_json("POST", "/v1/keys", &json!({"customer": "a", "id": id})).is_problem(422);
        harness.send_json("POST", "/v1/keys", &json!({"customer": "a", "key": "x"})).is_problem(400);
    }

    #[test]
    fn keys_are_listed_by_customer_plan_and_state_in_pages() {
        let harness = Harness::start(None);
        for (id, customer, plan) in [("a", "acme", "pro"), ("b", "acme", "free"), ("c", "other", "pro")] {
            make(&harness, &json!({"id": id, "customer": customer, "plan": plan}));
        }
        assert_eq!(harness.send_json("POST", "/v1/keys/b/revoke", &json!({})).status, 200);
        let ids = |query: &str| {
            let reply = harness.get(&format!("/v1/keys{query}")).json();
            let ids =
                reply["keys"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned());
            (ids.collect::<String>(), reply["cursor"].as_str().map(str::to_owned))
        };
        assert_eq!(ids(""), ("abc".into(), None));
        assert_eq!(ids("?customer=acme").0, "ab");
        assert_eq!(ids("?plan=pro&state=active").0, "ac");
        assert_eq!(ids("?state=revoked").0, "b");
        let (first, cursor) = ids("?limit=2");
        assert_eq!(first, "ab");
        assert_eq!(ids(&format!("?limit=2&cursor={}", cursor.unwrap())), ("c".into(), None));
        for wrong in
            ["?state=deleted", "?limit=0", "?cursor=x", "?x=y", "?plan=", "?plan=%20pro", "?customer=a%0a"]
        {
            harness.get(&format!("/v1/keys{wrong}")).is_problem(400);
        }
    }

    #[test]
    fn an_import_is_all_or_nothing_and_may_be_repeated() {
        let harness = Harness::start(None);
        let import = |keys: Value| harness.send_json("POST", "/v1/keys/import", &json!({"keys": keys}));
        let good = json!({"key": "a-key-of-a-customer", "customer": "acme"});
        let wrong = import(json!([good, {"key": "short", "customer": "acme", "line": 9}]));
        assert!(
            wrong.is_problem(400).json()["detail"]
                .as_str()
                .unwrap()
                .contains("line 9: key: has 5 characters")
        );
        assert_eq!(harness.api_keys.all().len(), 0);
        let other = json!({"hash": KeyHash::of(b"another").to_string(), "customer": "acme", "id": "x"});
        let imported = import(json!([good, other])).json();
        assert_eq!((&imported["imported"], &imported["unchanged"]), (&json!(2), &json!(0)));
        let again = import(json!([good, {"key": "one-more-key-of-theirs", "customer": "b"}])).json();
        assert_eq!((&again["imported"], &again["unchanged"]), (&json!(1), &json!(1)));
        let stolen = import(json!([{"key": "a-key-of-a-customer", "customer": "b"}]));
        assert!(
            stolen.is_problem(400).json()["detail"].as_str().unwrap().contains("customer acme has this key")
        );
        import(json!([{"key": "yet-another-key-here", "customer": "b", "id": "x"}])).is_problem(400);
        import(json!([])).is_problem(400);
        assert!(harness.api_keys.find(&KeyHash::of(b"a-key-of-a-customer"), NOW).is_ok());
    }

    #[test]
    fn health_is_answered_while_keys_are_imported() {
        let harness = Harness::start(None);
        let held = harness.api_keys.hold_changes();
        let keys = json!({"keys": [{"key": "a-key-of-a-customer", "customer": "acme"}]});
        let import = harness.begin(&harness.json_request("POST", "/v1/keys/import", &keys));
        // By the second one, the import has arrived.
        for _ in 0..20 {
            assert_eq!(harness.get("/readyz").status, 200);
        }
        drop(held);
        assert_eq!(Harness::reply(import).json()["imported"], 1);
    }

    #[test]
    fn an_import_is_not_read_before_the_one_ahead_of_it_has_ended() {
        let harness = Harness::start(None);
        let import = |customer: &str| {
            let keys = json!({"keys": [{"key": "a-key-of-a-customer", "customer": customer}]});
            harness.json_request("POST", "/v1/keys/import", &keys)
        };
        let request = import("first");
        let (part, rest) = request.split_at(request.len() - 5);
        let mut first = harness.begin(part);
        assert_eq!(harness.get("/readyz").status, 200);
        let second = harness.begin(&import("second"));
        for _ in 0..20 {
            assert_eq!(harness.get("/readyz").status, 200);
        }
        first.write_all(rest.as_bytes()).unwrap();
        assert_eq!(Harness::reply(first).json()["imported"], 1);
        let refused = Harness::reply(second);
        assert!(refused.is_problem(400).body.contains("customer first has this key"), "{refused:?}");
    }

    #[test]
    fn an_import_of_too_many_keys_is_refused_as_soon_as_there_are_too_many() {
        let harness = Harness::start(None);
        let rows = vec![json!({"customer": ""}); crate::api_keys::MAX_IMPORTED + 1];
        let reply = harness.send_json("POST", "/v1/keys/import", &json!({"keys": rows}));
        assert!(reply.is_problem(400).body.contains("import them in several parts at line 1"), "{reply:?}");
    }

    #[tokio::test]
    async fn others_are_served_while_keys_are_searched() {
        let keys = ApiKeys::new(KeyStore::DataFile);
        let known = |n: u32| Arc::new(key(&format!("k{n:05}")));
        keys.set_file((0..2_300).map(known).collect());
        let (mut pauses, mut found, mut after) = (0, Vec::new(), None);
        loop {
            let search = search(&keys, after, 700, |key| !key.id.ends_with('7'));
            pin_mut!(search);
            let (page, has_more) = poll_fn(|task| {
                let polled = search.as_mut().poll(task);
                pauses += u32::from(polled.is_pending());
                polled
            })
            .await;
            after = page.last().map(|key| key.id.to_string());
            found.extend(page.into_iter().map(|key| key.id.to_string()));
            if !has_more {
                break;
            }
        }
        let expected = (0..2_300).map(|n| format!("k{n:05}")).filter(|id| !id.ends_with('7'));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(pauses, 3, "after each 500 keys");
    }

    #[test]
    fn no_key_is_changed_while_the_store_is_away() {
        let mut harness = Harness::start(None);
        make(&harness, &json!({"id": "a", "customer": "acme"}));
        harness.lose_key_store();
        harness.send_json("POST", "/v1/keys", &json!({"customer": "acme"})).is_problem(503);
        harness.send_json("POST", "/v1/keys/a/revoke", &json!({})).is_problem(503);
        harness.send("DELETE", "/v1/keys/a", "").is_problem(503);
        assert_eq!(harness.get("/v1/keys/a").json()["state"], "active");
        assert!(!harness.get("/v1/audit").body.contains("revoke_key"));
    }
}
