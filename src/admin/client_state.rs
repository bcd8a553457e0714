//! Whether clients are limited or banned, until when, and how many are: shared by lists, pages, events and ticks.

use std::sync::Arc;

use super::{context::HandlerContext, dto};
use crate::{
    abuse::{LimitedClient, Unblock, bans::Ban},
    telemetry::time::rfc3339,
};

/// The end of the last of these bans; `None` if none of them denies requests.
pub(super) fn banned_until(bans: &[Arc<Ban>]) -> Option<i64> {
    bans.iter().filter(|ban| !ban.is_shadow).map(|ban| ban.until).max()
}

/// Number of listed addresses that are limited or banned now.
pub(super) async fn count_active(context: &HandlerContext) -> usize {
    let state = &context.state;
    let now = state.clock.now();
    let mut count = state.registry.active_count(now);
    for prefix in state.bans.banned_prefixes() {
        let mut after = None;
        loop {
            let (banned, next) = state.registry.count_unlimited(prefix, after, now);
            count += banned;
            if next.is_none() {
                break;
            }
            after = next;
            tokio::task::yield_now().await;
        }
    }
    count
}

impl dto::BlockedAddress {
    /// `bans`: bans of the client and of prefixes around it.
    pub(super) fn new(client: &LimitedClient, bans: &[Arc<Ban>], now: i64) -> Self {
        let (banned_until, unblocked) = (banned_until(bans), client.unblocked.as_ref());
        Self {
            address: client.shown.to_string(),
            policies: client.policies.iter().map(ToString::to_string).collect(),
            first: rfc3339(client.first),
            last: rfc3339(client.last),
            until: rfc3339(banned_until.map_or(client.until, |banned| banned.max(client.until))),
            state: match banned_until {
                Some(_) => "banned",
                None if client.until > now => "limited",
                None if unblocked.is_some_and(|unblocked| client.last <= unblocked.time) => "unblocked",
                None => "free",
            }
            .to_owned(),
            banned_until: banned_until.map(rfc3339),
            unblocked: unblocked.map(|Unblock { time, by }| dto::Unblock {
                time: rfc3339(*time),
                by: Some(by.clone()).filter(|by| !by.is_empty()),
            }),
            denied: client.denied,
            distinct_users: usize::try_from(client.users).unwrap_or(usize::MAX),
            hint: client.hint.name().to_owned(),
            hint_reason: client.reasons.clone(),
            hint_advice: client.hint.advice().map(str::to_owned),
        }
    }
}
