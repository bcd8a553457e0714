//! How instances that share a Redis introduce themselves: their clock, version and configuration.

use std::fmt;

use super::monitor_config::MonitorConfig;
use crate::telemetry::metrics::InstanceFacts;

/// Most other instances kept.
const MAX_OTHERS: usize = 256;
/// Most bytes of a word.
const MAX_WORD: usize = 64;

/// The introduction of this instance: `CONFIGURATION VERSION`. The script stores it after the clock's offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Introduction {
    configuration: String,
    version: &'static str,
}

impl Introduction {
    pub(super) fn new(config: &MonitorConfig) -> Self {
        Self { configuration: (config.configuration)(), version: env!("CARGO_PKG_VERSION") }
    }
}

impl fmt::Display for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.configuration, self.version)
    }
}

/// This instance and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) own: Option<InstanceFacts>,
    pub(super) others: Vec<InstanceFacts>,
}

impl Peers {
    /// `clock_offset`: microseconds by which this instance's clock is ahead. `others`: the introductions of other
    /// instances.
    pub(super) fn new(introduction: &Introduction, clock_offset: i64, others: &[Vec<u8>]) -> Self {
        let own = InstanceFacts {
            clock_offset,
            configuration: introduction.configuration.clone(),
            version: introduction.version.to_owned(),
        };
        Self {
            own: Some(own),
            others: others.iter().take(MAX_OTHERS).filter_map(|text| parse(text)).collect(),
        }
    }
}

/// Parses `OFFSET CONFIGURATION VERSION`. Other clients of Redis may write anything there: `None` for all other text.
fn parse(text: &[u8]) -> Option<InstanceFacts> {
    let mut words = str::from_utf8(text).ok()?.split(' ');
    let clock_offset = words.next()?.parse::<i64>().ok()?.clamp(-i64::MAX / 4, i64::MAX / 4);
    let (configuration, version) = (parse_word(words.next()?)?, parse_word(words.next()?)?);
    Some(InstanceFacts { clock_offset, configuration, version })
}

fn parse_word(text: &str) -> Option<String> {
    let is_word = text.len() <= MAX_WORD && text.chars().all(|c| c.is_ascii_graphic());
    is_word.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introductions_are_parsed_and_all_else_is_passed_over() {
        let own = Introduction { configuration: "3c4d".into(), version: "0.1.0" };
        let others = [
            format!("-1500000 {own}"),
            "12 1a2b 0.2.0 more".into(),
            "soon 1a2b 0.1.0".into(),
            "1".into(),
            "1 a\nb 0.1.0".into(),
            format!("1 {} 0.1.0", "x".repeat(65)),
            String::new(),
        ];
        let others: Vec<_> = others.into_iter().map(String::into_bytes).chain([vec![0xff, b' ']]).collect();
        let peers = Peers::new(&own, 7, &others);
        assert_eq!(peers.own.unwrap().clock_offset, 7);
        let instance = |clock_offset, configuration: &str, version: &str| InstanceFacts {
            clock_offset,
            configuration: configuration.into(),
            version: version.into(),
        };
        assert_eq!(peers.others, [instance(-1_500_000, "3c4d", "0.1.0"), instance(12, "1a2b", "0.2.0")]);
    }
}
