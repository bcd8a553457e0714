//! What instances that share a Redis tell each other of themselves: by whose clock they go, what they run, and with which
//! configuration.

use super::Duties;
use crate::telemetry::metrics::InstanceFacts;

/// Instances that are heard of.
const MOST: usize = 256;

/// What this instance says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Introduction {
    configuration: String,
    version: &'static str,
}

impl Introduction {
    pub(super) fn of(duties: &Duties) -> Self {
        Self { configuration: (duties.configuration)(), version: env!("CARGO_PKG_VERSION") }
    }

    /// `CONFIGURATION VERSION`, as the script keeps it behind the clock's offset.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.configuration, self.version)
    }
}

/// What is known of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fleet {
    pub(super) own: Option<InstanceFacts>,
    pub(super) others: Vec<InstanceFacts>,
}

impl Fleet {
    /// This instance, whose clock is `offset` microseconds ahead, and what the others said.
    pub(super) fn of(introduction: &Introduction, offset: i64, others: &[String]) -> Self {
        let own = InstanceFacts {
            clock_offset: offset,
            configuration: introduction.configuration.clone(),
            version: introduction.version.to_owned(),
        };
        Self { own: Some(own), others: others.iter().take(MOST).filter_map(|text| read(text)).collect() }
    }
}

/// Reads `OFFSET CONFIGURATION VERSION`. Who shares the Redis may write what he likes: what is something else is passed
/// over, and words are words.
fn read(text: &str) -> Option<InstanceFacts> {
    let mut words = text.split(' ');
    let clock_offset = words.next()?.parse::<i64>().ok()?.clamp(-i64::MAX / 4, i64::MAX / 4);
    let (configuration, version) = (word(words.next()?)?, word(words.next()?)?);
    Some(InstanceFacts { clock_offset, configuration, version })
}

fn word(text: &str) -> Option<String> {
    let is_word = text.len() <= 64 && text.chars().all(|c| c.is_ascii_graphic());
    is_word.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        let own = Introduction { configuration: "3c4d".into(), version: "0.1.0" };
        let others = [
            format!("-1500000 {}", own.text()),
            "12 1a2b 0.2.0 more".into(),
            "soon 1a2b 0.1.0".into(),
            "1".into(),
            "1 a\nb 0.1.0".into(),
            format!("1 {} 0.1.0", "x".repeat(65)),
            String::new(),
        ];
        let fleet = Fleet::of(&own, 7, &others);
        assert_eq!(fleet.own.unwrap().clock_offset, 7);
        let instance = |clock_offset, configuration: &str, version: &str| InstanceFacts {
            clock_offset,
            configuration: configuration.into(),
            version: version.into(),
        };
        assert_eq!(fleet.others, [instance(-1_500_000, "3c4d", "0.1.0"), instance(12, "1a2b", "0.2.0")]);
    }
}
