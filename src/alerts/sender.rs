//! The thread that notes what was reached, and sends what is due.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use compact_str::CompactString;
use parking_lot::Mutex;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    message,
    watch::{AlertPlan, Reached},
    webhook::{SendFailure, Webhook},
};
use crate::{
    history::{AlertOutcome, DueAlert, History, HistoryError, NewAlert, NewEvent, TakenAlerts},
    limit::{Clock, WallClock},
};

/// How often it is looked what is due.
const INTERVAL: Duration = Duration::from_secs(5);
/// New messages that are noted at once.
const BATCH: usize = 500;
/// New messages that wait for the database.
const MAX_PENDING: usize = 10_000;
/// Messages that are on their way to one webhook.
const AT_ONCE: usize = 4;
/// How long a message is tried, in seconds.
const TRIED_FOR: i64 = 3_600;
/// The pause before the second attempt, and the longest, in seconds. It doubles with each.
const FIRST_PAUSE: i64 = 5;
const LONGEST_PAUSE: i64 = 300;
/// Messages in an hour about limits that one customer or address has used, and all that are about one policy. Further ones are
/// dropped, and counted.
const MAX_OF_CLIENT: u32 = 200;
const MAX_OF_POLICY: u32 = 10_000;

/// What the thread tells of its work.
#[derive(Debug, Default)]
pub(super) struct SenderState {
    pub(super) delivered: u64,
    pub(super) given_up: u64,
    pub(super) dropped: u64,
    /// By the ID of the webhook: why it has not taken all messages.
    pub(super) failing: HashMap<String, String>,
}

pub(super) struct Sender {
    history: Arc<History>,
    plan: Arc<Mutex<Arc<AlertPlan>>>,
    received: mpsc::Receiver<Reached>,
    state: Arc<Mutex<SenderState>>,
    instance: String,
    clock: WallClock,
    /// New messages that are not noted yet.
    pending: Arc<Vec<NewAlert>>,
    allowance: Allowance,
    /// Messages on their way, by the ID of their webhook.
    under_way: HashMap<String, usize>,
    attempts: JoinSet<(DueAlert, Result<String, SendFailure>)>,
}

impl Sender {
    pub(super) fn new(
        history: Arc<History>,
        plan: Arc<Mutex<Arc<AlertPlan>>>,
        received: mpsc::Receiver<Reached>,
        state: Arc<Mutex<SenderState>>,
        instance: String,
        clock: WallClock,
    ) -> Self {
        Self {
            history,
            plan,
            received,
            state,
            instance,
            clock,
            pending: Arc::default(),
            allowance: Allowance::default(),
            under_way: HashMap::new(),
            attempts: JoinSet::new(),
        }
    }

    /// Notes and sends until the process ends.
    pub(super) async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            tokio::select! {
                reached = timeout(due.saturating_duration_since(Instant::now()), self.received.recv()) => match reached {
                    Ok(Some(reached)) => {
                        self.add(&reached);
                        while self.pending.len() < BATCH
                            && let Ok(reached) = self.received.try_recv()
                        {
                            self.add(&reached);
                        }
                    }
                    Ok(None) => return,
                    Err(_) => {}
                },
                Some(attempted) = self.attempts.join_next() => {
                    let Ok((alert, sent)) = attempted else { continue };
                    self.settle(alert, sent).await;
                }
            }
            due = Instant::now() + INTERVAL;
            self.take().await;
        }
    }

    /// Makes the messages of what was reached.
    fn add(&mut self, reached: &Reached) {
        for (share, webhooks) in &reached.shares {
            let is_allowed = self.allowance.allows(reached, self.now());
            if !is_allowed || self.pending.len() + webhooks.len() > MAX_PENDING {
                self.state.lock().dropped += 1;
                continue;
            }
            let (id, body) = (message::id(reached, *share), message::body(reached, *share, &self.instance));
            let pending = Arc::make_mut(&mut self.pending);
            pending.extend(webhooks.iter().map(|webhook| NewAlert {
                id: id.clone(),
                webhook: webhook.id.clone(),
                policy: reached.policy.to_string(),
                subject: reached.subject.to_string(),
                limit: reached.limit_text.clone(),
                share: *share,
                used: reached.used,
                window_end: reached.window[1].div_euclid(1_000_000),
                receiver: webhook.receiver.clone(),
                body: body.clone(),
            }));
        }
    }

    /// Notes what is new, and begins to send what is due.
    async fn take(&mut self) {
        let plan = Arc::clone(&self.plan.lock());
        let room = |webhook: &Arc<Webhook>| {
            let under_way = self.under_way.get(&webhook.id).copied().unwrap_or_default();
            (webhook.id.clone(), AT_ONCE.saturating_sub(under_way))
        };
        let webhooks: Vec<_> = plan.webhooks().iter().map(room).collect();
        if webhooks.is_empty() && self.pending.is_empty() {
            return;
        }
        let TakenAlerts { due, failing } =
            match self.history.take_alerts(Arc::clone(&self.pending), webhooks).await {
                Ok(taken) => taken,
                // They are noted when the database is back.
                Err(HistoryError::Unavailable(_)) => return,
                Err(HistoryError::Refused(reason)) => {
                    tracing::error!("the history's database does not take messages to webhooks: {reason}");
                    self.state.lock().dropped += self.pending.len() as u64;
                    self.pending = Arc::default();
                    return;
                }
            };
        self.pending = Arc::default();
        self.state.lock().failing = failing.into_iter().collect();
        for alert in due {
            let Some(webhook) = plan.webhooks().iter().find(|webhook| webhook.id == alert.webhook) else {
                continue;
            };
            *self.under_way.entry(alert.webhook.clone()).or_default() += 1;
            let (webhook, now) = (Arc::clone(webhook), self.now());
            self.attempts.spawn(async move {
                let sent = webhook.send(&alert.id, now, alert.body.clone()).await;
                (alert, sent.map(|status| status.to_string()))
            });
        }
    }

    /// Notes what became of an attempt.
    async fn settle(&mut self, alert: DueAlert, sent: Result<String, SendFailure>) {
        if let Some(under_way) = self.under_way.get_mut(&alert.webhook) {
            *under_way = under_way.saturating_sub(1);
        }
        let receiver = {
            let plan = self.plan.lock();
            let webhook = plan.webhooks().iter().find(|webhook| webhook.id == alert.webhook);
            webhook.map(|webhook| webhook.receiver.clone()).unwrap_or_default()
        };
        let outcome = outcome(&alert, sent, self.now(), fastrand::f64());
        {
            let mut state = self.state.lock();
            match &outcome {
                AlertOutcome::Delivered(_) => state.delivered += 1,
                AlertOutcome::Again(..) => {}
                AlertOutcome::GivenUp(reason) => {
                    state.given_up += 1;
                    tracing::error!("an alert about {} was not sent to {receiver}: {reason}", alert.subject);
                }
            }
        }
        let what = match &outcome {
            AlertOutcome::Delivered(_) => Some(format!("{receiver} was told")),
            AlertOutcome::GivenUp(reason) => Some(format!("{receiver} could not be told: {reason}")),
            AlertOutcome::Again(..) => None,
        };
        if let Some(what) = what {
            let share = f64::from(alert.share) / 100.0;
            self.history.record_event(NewEvent {
                time: self.clock.now(),
                id: format!("{:016x}", fastrand::u64(..)),
                instance: self.instance.clone(),
                by: "tollgate".to_owned(),
                action: "alert".to_owned(),
                target: alert.subject.clone(),
                detail: format!("{share} % of {} is used: {what}", alert.policy),
            });
        }
        // If the database is away, it is sent again, under the same ID.
        let _away = self.history.settle_alert(alert.id, alert.webhook, outcome).await;
    }

    /// Seconds since the Unix epoch.
    fn now(&self) -> i64 {
        self.clock.now().div_euclid(1_000_000)
    }
}

/// What becomes of an attempt. `jitter`, from 0 to 1: so that not all instances try at once.
fn outcome(alert: &DueAlert, sent: Result<String, SendFailure>, now: i64, jitter: f64) -> AlertOutcome {
    let SendFailure { reason, is_final, retry_after } = match sent {
        Ok(status) => return AlertOutcome::Delivered(status),
        Err(failure) => failure,
    };
    let doublings = alert.attempts.saturating_sub(1).min(16);
    let pause = (FIRST_PAUSE << doublings).min(LONGEST_PAUSE);
    let pause = pause + (pause as f64 * 0.2 * jitter) as i64;
    let asked = retry_after.map_or(0, |asked| i64::try_from(asked.as_secs()).unwrap_or(i64::MAX));
    let next = now.saturating_add(pause.max(asked));
    match is_final || next > alert.created.saturating_add(TRIED_FOR) {
        true => AlertOutcome::GivenUp(reason),
        false => AlertOutcome::Again(next, reason),
    }
}

/// How many messages there were in this hour, about what whose requests used.
#[derive(Debug, Default)]
struct Allowance {
    hour: i64,
    policies: HashMap<CompactString, u32>,
    clients: HashMap<(CompactString, CompactString), u32>,
}

impl Allowance {
    /// Counts a message at the time `now`, in seconds since the Unix epoch, if there may be another one.
    fn allows(&mut self, reached: &Reached, now: i64) -> bool {
        let hour = now.div_euclid(3_600);
        if hour != self.hour {
            *self = Self { hour, ..Self::default() };
        }
        let of_policy = self.policies.entry(reached.policy.clone()).or_default();
        if *of_policy >= MAX_OF_POLICY {
            return false;
        }
        let of_client = self.clients.entry((reached.policy.clone(), reached.client.clone())).or_default();
        if *of_client >= MAX_OF_CLIENT {
            return false;
        }
        *of_policy += 1;
        *of_client += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(attempts: u32) -> DueAlert {
        DueAlert {
            id: "msg_1".into(),
            webhook: "a".into(),
            created: 1_000,
            attempts,
            subject: "customer:acme".into(),
            policy: "monthly".into(),
            share: 8_000,
            body: "{}".into(),
        }
    }

    fn failed(is_final: bool, retry_after: Option<u64>) -> Result<String, SendFailure> {
        let retry_after = retry_after.map(Duration::from_secs);
        Err(SendFailure { reason: "no".into(), is_final, retry_after })
    }

    #[test]
    fn attempts_go_on_for_an_hour_with_longer_pauses() {
        let mut now = 1_000;
        let mut pauses = Vec::new();
        for attempt in 1.. {
            match outcome(&due(attempt), failed(false, None), now, 0.0) {
                AlertOutcome::Again(next, _) => {
                    pauses.push(next - now);
                    now = next;
                }
                end => {
                    assert_eq!(end, AlertOutcome::GivenUp("no".into()));
                    break;
                }
            }
        }
        assert_eq!(pauses[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
        assert!((4_000..=4_600).contains(&now), "{now}");
        let again = |retry_after| outcome(&due(1), failed(false, retry_after), 1_000, 1.0);
        assert_eq!(again(None), AlertOutcome::Again(1_006, "no".into()), "with jitter");
        assert_eq!(again(Some(120)), AlertOutcome::Again(1_120, "no".into()));
        assert_eq!(again(Some(u64::MAX)), AlertOutcome::GivenUp("no".into()));
        assert_eq!(outcome(&due(1), failed(true, None), 1_000, 0.0), AlertOutcome::GivenUp("no".into()));
        let sent = outcome(&due(1), Ok("200 OK".into()), 9_000, 0.0);
        assert_eq!(sent, AlertOutcome::Delivered("200 OK".into()));
    }
}
