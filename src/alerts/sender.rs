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
    telemetry::Throttle,
};

/// How often it is looked what is due.
const INTERVAL: Duration = Duration::from_secs(5);
/// New messages that are noted at once.
const BATCH: usize = 200;
/// New messages that wait for the database.
const MAX_PENDING: usize = 10_000;
/// Messages that are known to be noted. If there are more, they are noted again, which changes nothing.
const MAX_NOTED: usize = 100_000;
/// How long a message is tried, in seconds.
const TRIED_FOR: i64 = 3_600;
/// The pause before the second attempt, and the longest, in seconds. It doubles with each.
const FIRST_PAUSE: i64 = 5;
const LONGEST_PAUSE: i64 = 300;
/// Messages in an hour that one customer or address may cause under a policy, and all addresses together. Further ones are
/// dropped, and counted, but may be sent later.
const MAX_OF_CLIENT: u32 = 200;
const MAX_OF_OTHERS: u32 = 10_000;

/// What the thread tells of its work.
#[derive(Debug, Default)]
pub(super) struct SenderState {
    /// New messages that are not noted yet.
    pub(super) pending: usize,
    pub(super) delivered: u64,
    pub(super) given_up: u64,
    /// All, and those of this hour.
    pub(super) dropped: u64,
    pub(super) dropped_now: u64,
    /// Why messages can't be noted although the database is there.
    pub(super) fault: Option<String>,
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
    /// Not noted yet, oldest first.
    pending: Vec<NewAlert>,
    /// The messages that were made, by their ID and their webhook's, and the ends of their windows, in microseconds since the
    /// Unix epoch.
    noted: HashMap<(String, String), i64>,
    allowance: Allowance,
    attempts: JoinSet<(DueAlert, Result<String, SendFailure>)>,
    given_up_messages: Throttle,
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
            pending: Vec::new(),
            noted: HashMap::new(),
            allowance: Allowance::default(),
            attempts: JoinSet::new(),
            given_up_messages: Throttle::default(),
        }
    }

    /// Notes and sends until the process ends.
    pub(super) async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            tokio::select! {
                reached = timeout(due.saturating_duration_since(Instant::now()), self.received.recv()) => match reached {
                    Ok(Some(reached)) => {
                        // Before the queue is seen to be empty, it is seen that there is something to be noted.
                        self.state.lock().pending += 1;
                        self.add(&reached);
                        while self.pending.len() < MAX_PENDING
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
            let before = self.pending.len();
            self.take().await;
            // What is left is noted at once, unless the database does not take it.
            let goes_on = !self.pending.is_empty() && self.pending.len() < before;
            due = Instant::now() + if goes_on { Duration::ZERO } else { INTERVAL };
            let mut state = self.state.lock();
            state.pending = self.pending.len();
            state.dropped_now = self.allowance.dropped_at(self.now());
        }
    }

    /// Makes the messages of what was reached, unless they were made before.
    fn add(&mut self, reached: &Reached) {
        for (share, webhooks) in &reached.shares {
            let id = message::id(reached, *share);
            for webhook in webhooks {
                let key = (id.clone(), webhook.id.clone());
                if self.noted.contains_key(&key) {
                    continue;
                }
                if self.pending.len() >= MAX_PENDING || !self.allowance.allows(reached, self.now()) {
                    self.state.lock().dropped += 1;
                    continue;
                }
                if self.noted.len() >= MAX_NOTED {
                    self.noted.retain(|_, end| *end > reached.time);
                    if self.noted.len() >= MAX_NOTED {
                        self.noted.clear();
                    }
                }
                self.noted.insert(key, reached.window[1]);
                self.pending.push(NewAlert {
                    id: id.clone(),
                    webhook: webhook.id.clone(),
                    policy: reached.policy.to_string(),
                    subject: reached.subject.to_string(),
                    limit: reached.limit_text.clone(),
                    share: *share,
                    used: reached.used,
                    window_end: reached.window[1].div_euclid(1_000_000),
                    receiver: webhook.receiver.clone(),
                    body: message::body(reached, *share, &self.instance),
                });
            }
        }
    }

    /// Notes some of what is new, and begins to send what is due.
    async fn take(&mut self) {
        let plan = Arc::clone(&self.plan.lock());
        let room = |webhook: &Arc<Webhook>| (webhook.id.clone(), webhook.room.available_permits());
        let webhooks: Vec<_> = plan.webhooks().iter().map(room).collect();
        if webhooks.is_empty() && self.pending.is_empty() {
            return;
        }
        let new: Vec<NewAlert> = self.pending.iter().take(BATCH).cloned().collect();
        let count = new.len();
        let taken = self.history.take_alerts(new, webhooks).await;
        let fault = match &taken {
            Err(HistoryError::Refused(reason)) => Some(reason.clone()),
            _ => None,
        };
        self.state.lock().fault = fault;
        let TakenAlerts { due, failing } = match taken {
            Ok(taken) => taken,
            // They are noted when the database takes them again.
            Err(HistoryError::Unavailable(_) | HistoryError::Refused(_)) => return,
            Err(HistoryError::Unfit(reason)) => {
                tracing::error!(
                    "the history's database can't take {count} messages to webhooks, which are dropped: {reason}"
                );
                self.state.lock().dropped += count as u64;
                self.pending.drain(..count);
                return;
            }
        };
        self.pending.drain(..count);
        self.state.lock().failing = failing.into_iter().collect();
        for alert in due {
            let webhook = plan.webhooks().iter().find(|webhook| webhook.id == alert.webhook);
            let Some((webhook, permit)) = webhook
                .and_then(|webhook| Some((webhook, Arc::clone(&webhook.room).try_acquire_owned().ok()?)))
            else {
                continue;
            };
            let (webhook, now) = (Arc::clone(webhook), self.now());
            self.attempts.spawn(async move {
                let sent = webhook.send(&alert.id, now, alert.body.clone()).await;
                drop(permit);
                (alert, sent.map(|status| status.to_string()))
            });
        }
    }

    /// Notes what became of an attempt.
    async fn settle(&mut self, alert: DueAlert, sent: Result<String, SendFailure>) {
        let DueAlert { subject, receiver, policy, .. } = &alert;
        let outcome = outcome(&alert, sent, self.now(), fastrand::f64());
        let what = match &outcome {
            AlertOutcome::Delivered(_) => {
                self.state.lock().delivered += 1;
                Some(format!("{receiver} was told"))
            }
            AlertOutcome::GivenUp(reason) => {
                self.state.lock().given_up += 1;
                if self.given_up_messages.pass(Instant::now()).is_some() {
                    tracing::error!("an alert about {subject} was not sent to {receiver}: {reason}");
                }
                Some(format!("{receiver} could not be told: {reason}"))
            }
            AlertOutcome::Again(..) => None,
        };
        // Of other clients, there may be very many.
        if let Some(what) = what
            && message::names_customer(subject)
        {
            let share = f64::from(alert.share) / 100.0;
            self.history.record_event(NewEvent {
                time: self.clock.now(),
                id: format!("{:016x}", fastrand::u64(..)),
                instance: self.instance.clone(),
                by: "tollgate".to_owned(),
                action: "alert".to_owned(),
                target: subject.clone(),
                detail: format!("{share} % of {policy} is used: {what}"),
            });
        }
        // If the database is away, it is sent again, under the same ID.
        let _away = self.history.settle_alert(alert, outcome).await;
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
    let last = alert.created.saturating_add(TRIED_FOR);
    match is_final || now >= last {
        true => AlertOutcome::GivenUp(reason),
        false => AlertOutcome::Again(now.saturating_add(pause.max(asked)).min(last), reason),
    }
}

/// How many messages there were in this hour.
#[derive(Debug, Default)]
struct Allowance {
    hour: i64,
    /// By policy: those that are not about customers.
    others: HashMap<CompactString, u32>,
    /// By policy, and customer or address.
    clients: HashMap<(CompactString, CompactString), u32>,
    dropped: u64,
}

impl Allowance {
    /// Counts a message at the time `now`, in seconds since the Unix epoch, if there may be another one.
    fn allows(&mut self, reached: &Reached, now: i64) -> bool {
        self.enter(now);
        let key = (reached.policy.clone(), reached.client.clone());
        let of_client = self.clients.get(&key).copied().unwrap_or_default();
        let of_others = self.others.get(&reached.policy).copied().unwrap_or_default();
        let is_customer = reached.customer.is_some();
        if of_client >= MAX_OF_CLIENT || !is_customer && of_others >= MAX_OF_OTHERS {
            self.dropped += 1;
            return false;
        }
        self.clients.insert(key, of_client + 1);
        if !is_customer {
            self.others.insert(reached.policy.clone(), of_others + 1);
        }
        true
    }

    /// The messages that were refused in the hour of `now`.
    fn dropped_at(&mut self, now: i64) -> u64 {
        self.enter(now);
        self.dropped
    }

    fn enter(&mut self, now: i64) {
        let hour = now.div_euclid(3_600);
        if hour != self.hour {
            *self = Self { hour, ..Self::default() };
        }
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
            receiver: "https://hooks.example.com".into(),
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
        assert_eq!(now, 4_600, "the last attempt is at the end of the hour");
        let again = |retry_after| outcome(&due(1), failed(false, retry_after), 1_000, 1.0);
        assert_eq!(again(None), AlertOutcome::Again(1_006, "no".into()), "with jitter");
        assert_eq!(again(Some(120)), AlertOutcome::Again(1_120, "no".into()));
        assert_eq!(again(Some(u64::MAX)), AlertOutcome::Again(4_600, "no".into()));
        assert_eq!(outcome(&due(1), failed(true, None), 1_000, 0.0), AlertOutcome::GivenUp("no".into()));
        let sent = outcome(&due(1), Ok("200 OK".into()), 9_000, 0.0);
        assert_eq!(sent, AlertOutcome::Delivered("200 OK".into()));
    }

    #[test]
    fn other_clients_take_nothing_from_customers() {
        let reached = |client: &str, customer: Option<&str>| Reached {
            policy: "monthly".into(),
            is_shadow: false,
            subject: client.into(),
            customer: customer.map(Into::into),
            plan: None,
            client: client.into(),
            limit: 10,
            limit_text: "10/month".into(),
            used: 10,
            window: [0, 1],
            time_zone: "UTC".into(),
            time: 0,
            shares: Vec::new(),
        };
        let mut allowance = Allowance::default();
        let mut count = |client: &str, customer: Option<&str>, now| {
            (0..300).filter(|_| allowance.allows(&reached(client, customer), now)).count()
        };
        let addresses: Vec<usize> = (0..60).map(|nth| count(&format!("10.0.0.{nth}"), None, 0)).collect();
        assert_eq!((addresses[0], addresses[49], addresses[50]), (200, 200, 0));
        assert_eq!(count("acme", Some("acme"), 3_599), 200);
        assert_eq!(count("10.0.0.59", None, 3_600), 200, "in the next hour");
        assert_eq!(allowance.dropped_at(3_600), 100);
    }
}
