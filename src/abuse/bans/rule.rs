//! A rule of the configuration that bans keys.

use std::{sync::Arc, time::Duration};

use super::LadderTerms;
use crate::config::model::{BanKey, BanRule, Mode};

/// A configured rule, in the units of the ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// `bans.hammering`
    pub name: Arc<str>,
    pub key: BanKey,
    pub terms: LadderTerms,
    /// By what share a ban is longer or shorter at most, at random.
    pub jitter: f64,
    pub is_shadow: bool,
    /// `20 denied requests within 1m`
    pub reason: String,
}

impl Rule {
    /// All rules, in the order of the configuration.
    pub fn from_config<'a>(rules: impl IntoIterator<Item = &'a BanRule>) -> Vec<Arc<Self>> {
        rules.into_iter().map(|rule| Arc::new(Self::new(rule))).collect()
    }

    fn new(rule: &BanRule) -> Self {
        let window = micros(rule.after.window);
        let plural = if rule.after.limit == 1 { "" } else { "s" };
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
            reason: format!(
                "{} denied request{plural} within {}",
                rule.after.limit,
                crate::telemetry::time::format_duration(window)
            ),
        }
    }

    /// By what the duration of the next ban is multiplied, drawn at random, in millionths.
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

    /// `bans.hammering`: three a minute of an address, for ten seconds at first, without jitter.
    pub(in crate::abuse) fn rule() -> Arc<Rule> {
        Arc::new(Rule::new(&configured()))
    }

    pub(in crate::abuse) fn configured() -> BanRule {
        BanRule {
            name: "hammering".into(),
            key: BanKey::Ip,
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

    #[test]
    fn a_rule_says_why_it_bans() {
        let rule = testing::rule();
        assert_eq!((&*rule.name, rule.reason.as_str()), ("bans.hammering", "3 denied requests within 1m"));
    }

    #[test]
    fn no_draw_exceeds_the_jitter() {
        let rule = Rule::new(&BanRule { jitter: 0.1, ..testing::configured() });
        let draws: Vec<u32> = (0..10_000).map(|_| rule.draw_jitter()).collect();
        assert!(draws.iter().all(|draw| (899_999..=1_100_000).contains(draw)));
        assert!(draws.iter().any(|draw| *draw < 950_000) && draws.iter().any(|draw| *draw > 1_050_000));
        assert_eq!(testing::rule().draw_jitter(), 1_000_000);
    }
}
