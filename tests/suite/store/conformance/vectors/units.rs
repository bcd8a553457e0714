//! Durations, rates and bounds, as the vectors write them.

use serde::Deserialize;

/// Microseconds: `3100ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Micros(pub(super) i64);

impl TryFrom<String> for Micros {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const UNITS: [(&str, i64); 6] = [
            ("us", 1),
            ("ms", 1_000),
            ("s", 1_000_000),
            ("m", 60_000_000),
            ("h", 3_600_000_000),
            ("d", 86_400_000_000),
        ];
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, micros)| micros);
        match (number.parse::<i64>().ok(), unit) {
            (Some(number), Some(unit)) => number.checked_mul(*unit).map(Self).ok_or(text),
            _ => Err(format!("{text} is no duration")),
        }
    }
}

/// So many in so long: `10/1s`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Rate {
    pub(super) limit: u64,
    pub(super) window: Micros,
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (limit, window) = text.split_once('/').ok_or_else(|| format!("{text} is no rate"))?;
        let limit = limit.parse().map_err(|_| format!("{text} is no rate"))?;
        let window = Micros::try_from(window.to_owned())?;
        Ok(Self { limit, window })
    }
}

/// What a source says of a duration, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Told {
    Is(i64),
    AtMost(i64),
    Above(i64),
    Never,
}

impl TryFrom<String> for Told {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let micros = |text: &str| Micros::try_from(text.to_owned()).map(|micros| micros.0);
        match text.as_str() {
            "never" => Ok(Self::Never),
            bound if bound.starts_with("<=") => micros(&bound[2..]).map(Self::AtMost),
            bound if bound.starts_with('>') => micros(&bound[1..]).map(Self::Above),
            exact => micros(exact).map(Self::Is),
        }
    }
}

impl Told {
    /// Whether ours is as told, `None` for never. The source may round up to a unit, and may be off by so much.
    pub(super) fn agrees(self, ours: Option<i64>, unit: i64, within: i64) -> bool {
        let rounded = ours.map(|micros| (micros + unit - 1) / unit * unit);
        match (self, rounded) {
            (Self::Never, rounded) => rounded.is_none(),
            (Self::Is(theirs), Some(ours)) => (ours - theirs).abs() <= within,
            (Self::AtMost(theirs), Some(ours)) => ours <= theirs + within,
            (Self::Above(theirs), Some(ours)) => ours > theirs,
            (_, None) => false,
        }
    }
}

#[test]
fn durations_are_read_and_compared_as_they_are_written() {
    let told = |text: &str| Told::try_from(text.to_owned());
    assert_eq!(told("3100ms"), Ok(Told::Is(3_100_000)));
    assert_eq!(told("<=1h"), Ok(Told::AtMost(3_600_000_000)));
    assert_eq!(told(">0s"), Ok(Told::Above(0)));
    for wrong in ["", "1", "s", "1.5s", "-1s", "1 s", "1y", "<1s", ">=1s", "99999999999999d"] {
        assert!(told(wrong).is_err(), "{wrong}");
    }
    assert!(Told::Is(3).agrees(Some(3), 1, 0) && !Told::Is(3).agrees(Some(4), 1, 0));
    assert!(Told::Is(3).agrees(Some(4), 1, 1) && !Told::Is(3).agrees(Some(5), 1, 1));
    assert!(Told::Is(6).agrees(Some(4), 3, 0) && !Told::Is(6).agrees(Some(7), 3, 0));
    assert!(Told::AtMost(3).agrees(Some(3), 1, 0) && !Told::AtMost(3).agrees(Some(4), 1, 0));
    assert!(Told::Above(3).agrees(Some(4), 1, 0) && !Told::Above(3).agrees(Some(3), 1, 0));
    assert!(Told::Never.agrees(None, 1, 0) && !Told::Never.agrees(Some(0), 1, 0));
    assert!(!Told::Is(0).agrees(None, 1, 0) && !Told::Above(0).agrees(None, 1, 0));
}
