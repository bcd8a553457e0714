//! `GET /v1/blocked`: addresses limited now or lately.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    ConfigSnapshot,
    context::HandlerContext,
    dto::{self, schema},
    extract::Query,
    openapi::ReadErrors,
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    abuse::{self, ClientPosition, LimitedClient, PageScan, Sort, bans::MANUAL},
    telemetry::time::rfc3339,
};

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockedQuery {
    /// Only addresses that this policy limited; `ban` stands for bans by operators, `bans.NAME` for an automatic ban.
    #[param(min_length = 1, example = "per-ip")]
    pub(super) policy: Option<String>,
    /// Only addresses within this prefix.
    #[param(value_type = Option<schema::Prefix>)]
    pub(super) prefix: Option<String>,
    /// Only addresses that are still limited, or only those that no longer are.
    pub(super) active: Option<bool>,
    /// Only addresses with this number of users behind them.
    #[param(inline)]
    pub(super) hint: Option<Hint>,
    /// What to sort by: highest first, or by address.
    #[serde(default)]
    #[param(inline)]
    pub(super) sort: Sort,
    /// Addresses per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// What is said of an address by how many users were behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hint {
    /// None that is known.
    None,
    One,
    Many,
}

/// Lists addresses that are or were recently limited, one page at a time.
#[utoipa::path(
    get,
    path = "/v1/blocked",
    operation_id = "blocked",
    tag = "limited clients",
    params(BlockedQuery),
    responses(
        (
            status = 200,
            body = dto::Blocked,
            description = "one page of addresses",
            links(
                ("evidence" = (operation_id = "evidence", parameters(("ip" = "$response.body#/blocked/0/address")))),
                ("unblock" = (operation_id = "unblock", parameters(("ip" = "$response.body#/blocked/0/address")))),
                ("next" = (operation_id = "blocked", parameters(("cursor" = "$response.body#/cursor"))))
            )
        ),
        ReadErrors
    )
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<BlockedQuery>,
) -> Result<Json<dto::Blocked>, Problem> {
    page(&context, &query).await.map(Json)
}

/// A page of the list.
pub(super) async fn page(context: &HandlerContext, query: &BlockedQuery) -> Result<dto::Blocked, Problem> {
    let state = &context.state;
    let limit = page_size(query.limit)?;
    let mut walk = PageScan::new(query.filter(&state.active_config.snapshot())?, limit);
    context.peers.refresh().await;
    let now = state.clock.now();
    while state.registry.advance(&mut walk, now) {
        // Others who ask have their turn: among a million addresses it may take a while to find those that are wanted.
        tokio::task::yield_now().await;
    }
    let (clients, next) = walk.page();
    let cursor = next
        .map(|place| encode_cursor(&(query.sort.name(), place.sort_key(), abuse::shown(place.address()))));
    Ok(dto::Blocked { blocked: clients.iter().map(dto::BlockedAddress::from).collect(), cursor })
}

impl BlockedQuery {
    /// What to look for.
    fn filter(&self, config: &ConfigSnapshot) -> Result<abuse::ClientQuery, Problem> {
        let policy = self.policy.as_deref().map(|name| {
            let unknown = || Problem::bad_request(format!("no policy is named {}", name.escape_debug()));
            // What bans deny is listed by their rules' names.
            let is_ban = name == MANUAL || name.starts_with("bans.");
            let is_known = is_ban || config.policy_named(name).is_some();
            is_known.then(|| name.into()).ok_or_else(unknown)
        });
        let prefix = self.prefix.as_deref().map(|text| {
            let malformed = || format!("not an address or a prefix: {}", text.escape_debug());
            abuse::parse(text).ok_or_else(|| Problem::bad_request(malformed()))
        });
        let after =
            decode_cursor(self.cursor.as_deref(), |(sort, number, address): (String, u64, String)| {
                Some((sort, ClientPosition::new(number, abuse::parse(&address)?)))
            })?;
        if after.as_ref().is_some_and(|(sort, _)| *sort != self.sort.name()) {
            return Err(Problem::bad_request("the cursor belongs to a list with another sort"));
        }
        Ok(abuse::ClientQuery {
            sort: self.sort,
            after: after.map(|(_, place)| place),
            policy: policy.transpose()?,
            prefix: prefix.transpose()?,
            is_active: self.active,
            users: self.hint.map(|hint| match hint {
                Hint::None => (0, 0),
                Hint::One => (1, 1),
                Hint::Many => (2, u64::MAX),
            }),
        })
    }
}

impl From<&LimitedClient> for dto::BlockedAddress {
    fn from(client: &LimitedClient) -> Self {
        let hint = match client.users {
            0 => "no user known",
            1 => "one user",
            _ => "many users: shared address or stuffing",
        };
        Self {
            address: client.shown.to_string(),
            policies: client.policies.iter().map(ToString::to_string).collect(),
            first: rfc3339(client.first),
            last: rfc3339(client.last),
            until: rfc3339(client.until),
            denied: client.denied,
            distinct_users: usize::try_from(client.users).unwrap_or(usize::MAX),
            hint: hint.to_owned(),
        }
    }
}
