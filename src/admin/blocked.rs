//! `GET /v1/blocked`: addresses limited now or recently.

use std::sync::Arc;

use axum::{Json, extract::State};
use ipnet::IpNet;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    ConfigSnapshot,
    context::HandlerContext,
    dto::{self, schema},
    extract::Query,
    openapi::LookupErrors,
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::abuse::{
    self, ClientPosition, Hint, PageScan, Sort,
    bans::{BanTable, MANUAL},
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
    /// Only addresses that are still limited or banned, or only those that no longer are.
    pub(super) active: Option<bool>,
    /// Only addresses that seem to be this.
    #[param(value_type = Option<schema::Hint>)]
    pub(super) hint: Option<Hint>,
    /// Only addresses with this number of users behind them.
    #[param(inline)]
    pub(super) users: Option<UsersBehind>,
    /// The sort order: highest first, or by address.
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

/// How many users were behind an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum UsersBehind {
    /// None known.
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
        LookupErrors
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
    let config = state.active_config.snapshot();
    let mut walk = PageScan::new(query.filter(&config, &state.bans)?, limit);
    context.peers.refresh().await;
    let now = state.clock.now();
    while state.registry.advance(&mut walk, now) {
        // Lets other requests run: filtering a million addresses may take a while.
        tokio::task::yield_now().await;
    }
    let (clients, next) = walk.page();
    // A policy that a reload removed can be searched for while its clients are listed.
    if clients.is_empty() {
        query.check_policy(&config)?;
    }
    let cursor = next
        .map(|place| encode_cursor(&(query.sort.name(), place.sort_key(), abuse::shown(place.address()))));
    let blocked = clients
        .iter()
        .map(|client| dto::BlockedAddress::new(client, &state.bans.covering(client.address), now));
    Ok(dto::Blocked { blocked: blocked.collect(), cursor })
}

impl BlockedQuery {
    /// Checks that the policy exists.
    pub(super) fn check_policy(&self, config: &ConfigSnapshot) -> Result<(), Problem> {
        let Some(name) = self.policy.as_deref() else { return Ok(()) };
        // Denials by bans are listed under the names of their rules.
        let is_ban = name == MANUAL || name.starts_with("bans.");
        if is_ban || config.policy_named(name).is_some() {
            return Ok(());
        }
        Err(Problem::not_found(format!("no policy is named {}", name.escape_debug())))
    }

    /// The prefix to search in.
    pub(super) fn network(&self) -> Result<Option<IpNet>, Problem> {
        let Some(text) = self.prefix.as_deref() else { return Ok(None) };
        let malformed = || {
            format!(
                "not an address or a prefix: {}; write 203.0.113.7 or 203.0.113.0/24",
                text.escape_debug()
            )
        };
        abuse::parse(text).map(Some).ok_or_else(|| Problem::bad_request(malformed()))
    }

    /// The query as the registry takes it.
    fn filter(&self, config: &ConfigSnapshot, bans: &Arc<BanTable>) -> Result<abuse::ClientQuery, Problem> {
        // Clients are listed by the prefix that identifies them: an address in it becomes that prefix.
        let client = |net: IpNet| abuse::masked(net.addr(), config.ipv6_prefix());
        let prefix = self.network()?.map(|net| if client(net).contains(&net) { client(net) } else { net });
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
            policy: self.policy.as_deref().map(Into::into),
            prefix,
            is_active: self.active,
            bans: Some(Arc::clone(bans)),
            users: self.users.map(|users| match users {
                UsersBehind::None => (0, 0),
                UsersBehind::One => (1, 1),
                UsersBehind::Many => (2, u64::MAX),
            }),
            hint: self.hint,
        })
    }
}
