//! The limits that hold for a key now, by the rules that requests are held against: plans, overrides and exemptions.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use super::{
    context::HandlerContext,
    dto,
    keys::{is_valid, search},
    limit_key::LimitKey,
    problem::Problem,
};
use crate::{
    abuse::{UserNaming, bans::normalize_user},
    api_keys::{ApiKey, KeyField},
    config::model::{Condition, HeaderFrom, UserSource},
    limit::{Policy, StoreAdmin},
};

/// API keys of a holder that are looked at.
const MAX_API_KEYS: usize = 1_000;
/// API keys of a user whose limits are shown.
const MAX_API_KEYS_SHOWN: usize = 20;
/// Limits of a policy that are shown although nobody knows whether they apply.
const MAX_POSSIBLE: usize = 20;

/// Who has the key of a limit, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    key: LimitKey,
    /// Other keys of the same requests: their address, their user.
    others: Vec<LimitKey>,
    /// The API keys that the requests may have. `None`: none, or one that is not known.
    api_keys: Vec<Option<Arc<ApiKey>>>,
    /// Whether all users are verified. If not, a condition that names one may not be met by requests with the name.
    are_users_verified: bool,
}

/// The limits of requests with a key, under one policy.
struct HeldLimit<'p> {
    /// `None`: the policy's own limits.
    condition: Option<&'p Condition>,
    /// `None`: they are not limited.
    limits: Option<&'p Policy>,
    /// Whether it holds, and does not depend on something that is not known.
    is_certain: bool,
}

impl Holder {
    /// Looks up the API keys that requests with this key may have. `others`: other keys of the same requests.
    pub(super) async fn new(context: &HandlerContext, key: LimitKey, others: Vec<LimitKey>) -> Self {
        let (config, names) = (context.state.active_config.snapshot(), context.state.registry.names());
        let sources = &config.rules.config().user;
        let is_told = KeyField::ALL.iter().any(|field| key.value_of(field.name()).is_some());
        let is_told_by_user = key.value_of("user").is_some()
            && sources.iter().any(|source| matches!(source, UserSource::ApiKey(_)));
        let are_users_verified = sources.iter().all(is_verified);
        let mut holder = Self { key, others, api_keys: vec![None], are_users_verified };
        if is_told || is_told_by_user {
            let now = context.state.clock.now();
            let is_wanted = |of: &ApiKey| is_valid(of, now) && holder.key.is_held_with(of, sources, &names);
            let (found, has_more) = search(&context.state.api_keys, None, MAX_API_KEYS, is_wanted).await;
            // The user may be named by another source, too.
            let is_complete = !has_more && (is_told || sources.len() == 1) && !found.is_empty();
            holder.api_keys.extend(found.into_iter().map(Some));
            if is_complete {
                holder.api_keys.remove(0);
            }
        }
        holder
    }

    /// The customer of an API key, with this key.
    pub(super) fn customer(api_key: Arc<ApiKey>) -> Self {
        let key = LimitKey::of_field(&api_key, KeyField::Customer);
        Self { key, others: Vec::new(), api_keys: vec![Some(api_key)], are_users_verified: true }
    }

    /// The same requests, by another of their keys.
    pub(super) fn by(&self, key: LimitKey) -> Self {
        let others = self.others.iter().chain([&self.key]).cloned().collect();
        Self { key, others, ..self.clone() }
    }

    /// The same requests, by each key that they have: this one, and by the customers and the IDs of their API keys.
    pub(super) async fn by_each(self, context: &HandlerContext) -> Vec<Self> {
        let api_keys: Vec<_> = self.api_keys.iter().flatten().take(MAX_API_KEYS_SHOWN).collect();
        let fields = |field| api_keys.iter().map(move |of| LimitKey::of_field(of, field));
        let customers: BTreeSet<_> = fields(KeyField::Customer).collect();
        let mut all = Vec::new();
        for customer in customers {
            all.push(Self::new(context, customer, vec![self.key.clone()]).await);
        }
        all.extend(api_keys.iter().map(|&api_key| {
            let key = LimitKey::of_field(api_key, KeyField::ApiKey);
            Self { key, others: vec![self.key.clone()], api_keys: vec![Some(Arc::clone(api_key))], ..self }
        }));
        all.insert(0, self);
        all
    }

    pub(super) fn key(&self) -> &LimitKey {
        &self.key
    }

    /// Whether limits of `key` belong to the holder, by its user and its API keys. `None`: it names neither.
    pub(super) fn is_of(&self, key: &LimitKey) -> Option<bool> {
        let fields = KeyField::ALL.map(KeyField::name);
        let mut named =
            ["user"].into_iter().chain(fields).filter_map(|kind| Some((kind, key.value_of(kind)?)));
        let is_own = |(kind, value): (&str, &str)| {
            let mut api_keys = self.api_keys.iter().flatten();
            let of_key = KeyField::named(kind).is_some_and(|field| {
                api_keys.any(|of| of.field(field).map(normalize_user).as_deref() == Some(value))
            });
            of_key || self.key.value_of(kind) == Some(value)
        };
        let first = named.next()?;
        Some(is_own(first) && named.all(is_own))
    }

    /// Reads the limits of `policy` that apply. `if_used`: only limits with units in use.
    ///
    /// # Errors
    /// The store is unavailable.
    pub(super) async fn read(
        &self,
        context: &HandlerContext,
        policy: &Policy,
        if_used: bool,
        into: &mut dto::Limits,
    ) -> Result<(), Problem> {
        let names = context.state.registry.names();
        let key = &self.key.text;
        let mut possible = 0;
        for HeldLimit { condition, limits, is_certain } in self.held(policy, &names) {
            let condition = condition.map(Condition::shown);
            let Some(limits) = limits else {
                if is_certain && !if_used {
                    let (policy, key) = (policy.name.clone(), key.clone());
                    into.unlimited.push(dto::Unlimited { policy, key, condition });
                }
                continue;
            };
            possible += usize::from(!is_certain);
            if !is_certain && possible > MAX_POSSIBLE {
                continue;
            }
            let usage = context.store.peek(limits, key).await?;
            if usage.used > 0 || is_certain && !if_used {
                let now = context.state.clock.now();
                into.limits.push(dto::LimitUsage::new(limits, key, condition, &usage, now));
            }
        }
        Ok(())
    }

    /// The limits that apply, or may apply, under `policy`: certain ones come first.
    fn held<'p>(&self, policy: &'p Policy, names: &UserNaming) -> Vec<HeldLimit<'p>> {
        let mut held: Vec<HeldLimit<'p>> = Vec::new();
        for api_key in &self.api_keys {
            for (condition, limits) in policy.candidates() {
                let is_met = condition.map_or(Some(true), |of| self.meets(of, api_key.as_deref(), names));
                let is_certain = is_met == Some(true);
                if is_met != Some(false) {
                    held.push(HeldLimit {
                        condition,
                        limits: limits.ok().map(|(_, limits)| limits),
                        is_certain,
                    });
                }
                if is_certain {
                    break;
                }
            }
        }
        held.sort_by_key(|held| !held.is_certain);
        // Several conditions may have the same limits.
        let mut known = HashSet::new();
        held.retain(|of| {
            known.insert(of.limits.map(|limits| (limits.id, limits.limits().collect::<Vec<_>>())))
        });
        held
    }

    /// Whether requests with the key, and with `api_key`, meet the condition. `None`: some may.
    fn meets(&self, condition: &Condition, api_key: Option<&ApiKey>, names: &UserNaming) -> Option<bool> {
        let mut keys = [&self.key].into_iter().chain(&self.others);
        match (keys.find_map(|key| key.is_certain_of(condition, names)), condition) {
            (Some(true), Condition::User(_)) if !self.are_users_verified => None,
            (Some(true), Condition::Value { client: Some(client), .. }) => self.meets(client, api_key, names),
            (Some(told), _) => Some(told),
            (None, Condition::OfKey { field, value }) => Some(api_key?.field(*field) == Some(value)),
            (None, _) => None,
        }
    }
}

/// Whether users of this source are verified.
fn is_verified(source: &UserSource) -> bool {
    match source {
        UserSource::Header { from, .. } => *from == HeaderFrom::TrustedProxies,
        UserSource::Cookie(_) | UserSource::Basic => false,
        UserSource::Jwt(_) | UserSource::Tls(_) | UserSource::ApiKey(_) => true,
    }
}
