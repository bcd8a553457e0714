//! A worker's look at decisions: has somebody used a share of a limit? It is on the path of a request, where there are alerts.

use std::{cell::RefCell, collections::HashMap, hash::BuildHasher, sync::Arc};

use compact_str::CompactString;
use foldhash::fast::RandomState;
use tokio::sync::mpsc;

use super::{message::names_customer, webhook::Webhook};
use crate::{
    api_keys::ApiKey,
    config::model::{Alert, Config},
    limit::{Check, Receipt, algorithm::Verdict},
};

/// What a worker remembers to have handed over. If there is more, it is handed over again, and noted once all the same.
const MAX_KNOWN: usize = 65_536;
/// After this time, in microseconds, a worker hands it over again: it may not have been noted.
const REMEMBERED: i64 = 600_000_000;
/// From this share on, a denial counts as all of the limit: what is left is too little for a request.
const NEARLY_ALL: u32 = 9_000;

/// The alerts of one configuration.
#[derive(Debug, Default)]
pub struct AlertPlan {
    /// By the index of the policy. Empty: there are no alerts.
    policies: Vec<Option<WatchedPolicy>>,
    webhooks: Vec<Arc<Webhook>>,
}

/// A policy, and who is told when which share of its limit is used.
#[derive(Debug)]
struct WatchedPolicy {
    name: CompactString,
    is_shadow: bool,
    /// Never empty. The lowest share first.
    levels: Vec<AlertLevel>,
}

#[derive(Debug)]
struct AlertLevel {
    /// In hundredths of a percent.
    share: u32,
    webhooks: Vec<Arc<Webhook>>,
}

impl AlertPlan {
    /// The alerts of `config`.
    pub fn new(config: &Config) -> Self {
        let mut webhooks: Vec<Webhook> = Vec::new();
        for alert in &config.alerts {
            let told = config.alerts.iter().filter(|other| other.to == alert.to);
            let mut policies: Vec<String> = told.map(|other| other.policy.clone()).collect();
            policies.sort_unstable();
            policies.dedup();
            let webhook = Webhook::new(alert, policies);
            if !webhooks.iter().any(|known| known.id == webhook.id) {
                webhooks.push(webhook);
            }
        }
        let receivers: Vec<String> = webhooks.iter().map(|webhook| webhook.receiver.clone()).collect();
        for webhook in &mut webhooks {
            if receivers.iter().filter(|receiver| **receiver == webhook.receiver).count() > 1 {
                webhook.tell_apart();
            }
        }
        let webhooks: Vec<Arc<Webhook>> = webhooks.into_iter().map(Arc::new).collect();
        if webhooks.is_empty() {
            return Self::default();
        }
        let watched = |(name, is_shadow): (&str, bool)| {
            let alerts: Vec<&Alert> =
                config.alerts.iter().map(AsRef::as_ref).filter(|alert| alert.policy == name).collect();
            let mut shares: Vec<u32> =
                alerts.iter().flat_map(|alert| &alert.at).map(|share| hundredths(*share)).collect();
            shares.sort_unstable();
            shares.dedup();
            let level = |share: u32| AlertLevel {
                share,
                webhooks: webhooks
                    .iter()
                    .filter(|webhook| {
                        let of_it = |alert: &&Alert| webhook.is_of(alert);
                        let told = alerts.iter().copied().filter(of_it);
                        told.flat_map(|alert| &alert.at).any(|at| hundredths(*at) == share)
                    })
                    .map(Arc::clone)
                    .collect(),
            };
            let levels: Vec<AlertLevel> = shares.into_iter().map(level).collect();
            (!levels.is_empty()).then(|| WatchedPolicy { name: name.into(), is_shadow, levels })
        };
        let policies = config.policies.iter();
        let policies =
            policies.map(|policy| watched((&policy.name, policy.mode == crate::config::model::Mode::Shadow)));
        Self { policies: policies.collect(), webhooks }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.webhooks.is_empty()
    }

    /// Each once.
    pub(super) fn webhooks(&self) -> &[Arc<Webhook>] {
        &self.webhooks
    }
}

/// A share of 1, in hundredths of a percent, at least one of them.
fn hundredths(share: f64) -> u32 {
    ((share * 10_000.0).round() as u32).max(1)
}

/// Somebody has used shares of a limit.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    pub(super) policy: CompactString,
    pub(super) is_shadow: bool,
    /// What is counted: `customer:acme`.
    pub(super) subject: CompactString,
    /// Of the API key, if it is a part of what is counted.
    pub(super) customer: Option<CompactString>,
    pub(super) plan: Option<CompactString>,
    /// The client's address, unless a customer is counted. Each may cause so many alerts, and no more.
    pub(super) client: CompactString,
    pub(super) limit: u64,
    /// `1000/month (Europe/Berlin)`
    pub(super) limit_text: String,
    pub(super) used: u64,
    /// From when to when, in microseconds since the Unix epoch, and the time zone.
    pub(super) window: [i64; 2],
    pub(super) time_zone: String,
    /// Microseconds since the Unix epoch.
    pub(super) time: i64,
    /// The shares that were reached for the first time, and who is told.
    pub(super) shares: Vec<(u32, Vec<Arc<Webhook>>)>,
}

/// A decision on a limit.
#[derive(Clone, Copy)]
pub struct DecidedLimit<'a> {
    /// The index of the policy.
    pub policy: usize,
    pub check: &'a Check<'a>,
    pub verdict: &'a Verdict,
    /// By whom, and when.
    pub receipt: Receipt,
    pub key: Option<&'a ApiKey>,
}

/// A worker's look at decisions, under one configuration.
#[derive(Debug)]
pub struct AlertWatch {
    plan: Arc<AlertPlan>,
    reached: mpsc::Sender<Reached>,
    /// By a hash of the limit: how many shares were handed over, of the window that ends then, and until when that is
    /// remembered.
    known: RefCell<HashMap<u64, (usize, i64, i64)>>,
    state: RandomState,
}

impl AlertWatch {
    pub(super) fn new(plan: Arc<AlertPlan>, reached: mpsc::Sender<Reached>) -> Self {
        Self { plan, reached, known: RefCell::default(), state: RandomState::default() }
    }

    /// Compares a decision of the store with the shares. `client`: the client's address, as it is counted.
    #[inline]
    pub fn compare(&self, decided: DecidedLimit<'_>, client: impl FnOnce() -> CompactString) {
        if let Some(Some(policy)) = self.plan.policies.get(decided.policy)
            && policy.reached(decided.verdict) > 0
        {
            self.hand_over(policy, decided, client);
        }
    }

    #[cold]
    fn hand_over(
        &self,
        policy: &WatchedPolicy,
        decided: DecidedLimit<'_>,
        client: impl FnOnce() -> CompactString,
    ) {
        let DecidedLimit { check, verdict, receipt, key, .. } = decided;
        let reached = policy.reached(verdict);
        let window = check.policy.window(receipt.time);
        let hash = self.state.hash_one((decided.policy, &*check.identifier, verdict.limit));
        let mut known = self.known.borrow_mut();
        let is_now = |(_, end, until): &&(usize, i64, i64)| *end == window[1] && receipt.time < *until;
        let before = known.get(&hash).filter(is_now).map_or(0, |(count, ..)| *count);
        if before >= reached {
            return;
        }
        let of_key = key.filter(|_| names_customer(&check.identifier));
        let message = Reached {
            policy: policy.name.clone(),
            is_shadow: policy.is_shadow,
            subject: check.identifier.clone(),
            customer: of_key.map(|key| key.customer.clone()),
            plan: of_key.and_then(|key| key.plan.clone()),
            client: of_key.map_or_else(client, |key| key.customer.clone()),
            limit: verdict.limit,
            limit_text: check.policy.limits().next().unwrap_or_default(),
            used: verdict.limit.saturating_sub(verdict.remaining),
            window,
            time_zone: check
                .policy
                .calendar(0)
                .map_or_else(|| "UTC".to_owned(), |of| of.time_zone().to_owned()),
            time: receipt.time,
            shares: policy.levels[before..reached]
                .iter()
                .map(|level| (level.share, level.webhooks.clone()))
                .collect(),
        };
        // If there is no room, the next request of it tries again.
        if self.reached.try_send(message).is_err() {
            return;
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(hash, (reached, window[1], receipt.time + REMEMBERED));
    }
}

impl WatchedPolicy {
    /// How many of the shares are used.
    #[inline]
    fn reached(&self, verdict: &Verdict) -> usize {
        let used = u128::from(verdict.limit.saturating_sub(verdict.remaining)) * 10_000;
        let is_used = |share: u32| used >= u128::from(verdict.limit) * u128::from(share);
        if !verdict.admitted && is_used(NEARLY_ALL) {
            return self.levels.len();
        }
        self.levels.iter().take_while(|level| is_used(level.share)).count()
    }
}
