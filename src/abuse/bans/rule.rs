//! A rule of the configuration that bans keys.

use std::{sync::Arc, time::Duration};

use super::LadderTerms;
use crate::config::model::{BanKey, BanRule, Mode};

/// A configured rule, in the units of the ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderRule {
    /// `bans.hammering`
    pub name: Arc<str>,
    pub key: BanKey,
    pub terms: LadderTerms,
    /// Maximum share by which a ban is randomly longer or shorter.
    pub jitter: f64,
    pub is_shadow: bool,
}

impl LadderRule {
    /// All rules, in the order of the configuration.
    pub fn from_config<'a>(rules: impl IntoIterator<Item = &'a BanRule>) -> Vec<Arc<Self>> {
        rules.into_iter().map(|rule| Arc::new(Self::new(rule))).collect()
    }

    fn new(rule: &BanRule) -> Self {
        let window = micros(rule.after.window);
        Self {
            name: format!("bans.{}", rule.name).into(),
            key: rule.key,
            terms: LadderTerms {
                limit: rule.after.limit,
                window,
                first_duration: micros(rule.first_duration),
                factor: rule.factor,
                max_duration: micros(rule.max),
            },
            jitter: rule.jitter,
            is_shadow: rule.mode == Mode::Shadow,
        }
    }

    /// The reason for a ban after `policy` denied the last request: `bans.hammering: 20 requests denied within 1m,
    /// the last by per-ip`.
    pub fn reason(&self, policy: &str) -> String {
        let LadderTerms { limit, window, .. } = self.terms;
        let window = crate::telemetry::time::format_duration(window);
        match limit {
            1 => format!("{}: a request denied by {policy}", self.name),
            _ => format!("{}: {limit} requests denied within {window}, the last by {policy}", self.name),
        }
    }

    /// A random factor for the duration of the next ban, in millionths.
    pub fn draw_jitter(&self) -> u32 {
        let share = self.jitter * (fastrand::f64() * 2.0 - 1.0);
        ((1.0 + share) * 1e6) as u32
    }
}

/// Microseconds.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(in crate::abuse) mod testing {
    use super::*;
    use crate::config::model::{DenialReply, Rate};

    /// `bans.hammering`: three a minute per address, for ten seconds at first, without jitter.
    pub(in crate::abuse) fn rule() -> Arc<LadderRule> {
        Arc::new(LadderRule::new(&configured()))
    }

    pub(in crate::abuse) fn configured() -> BanRule {
        BanRule {
            name: "hammering".into(),
            key: BanKey::Ip,
            policies: None,
            after: Rate { limit: 3, window: Duration::from_secs(60) },
            first_duration: Duration::from_secs(10),
            factor: 2.0,
            jitter: 0.0,
            max: Duration::from_secs(3_600),
            mode: Mode::Enforce,
            exempt: Vec::new(),
            reply: DenialReply { status: http::StatusCode::FORBIDDEN, headers: Vec::new(), body: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::Rate;

    #[test]
    fn a_rule_says_why_it_bans() {
        let rule = testing::rule();
        let reason = "bans.hammering: 3 requests denied within 1m, the last by per-ip";
        assert_eq!((&*rule.name, rule.reason("per-ip").as_str()), ("bans.hammering", reason));
        let after = Rate { limit: 1, window: Duration::from_secs(60) };
        let rule = LadderRule::new(&BanRule { after, ..testing::configured() });
        assert_eq!(rule.reason("traps"), "bans.hammering: a request denied by traps");
    }

    #[test]
    fn no_draw_exceeds_the_jitter() {
        let rule = LadderRule::new(&BanRule { jitter: 0.1, ..testing::configured() });
        let draws: Vec<u32> = (0..10_000).map(|_| rule.draw_jitter()).collect();
        assert!(draws.iter().all(|draw| (899_999..=1_100_000).contains(draw)));
        assert!(draws.iter().any(|draw| *draw < 950_000) && draws.iter().any(|draw| *draw > 1_050_000));
        assert_eq!(testing::rule().draw_jitter(), 1_000_000);
    }
}
