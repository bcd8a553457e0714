//! When the windows of the calendar begin.

use std::fmt;

use jiff::tz;
use serde::Serialize;

use crate::config::{
    nearest::nearest,
    settings::{Kind, Value, text},
    value::Invalid,
};

/// The calendar of a policy's hours, days, weeks and months.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Calendar {
    pub time_zone: TimeZone,
    /// The day of the month on which months begin, 1 to 28.
    pub reset_day: u8,
}

/// A time zone of the IANA database, which is built in: all instances of a version have the same rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone(pub tz::TimeZone);

impl TimeZone {
    pub const UTC: Self = Self(tz::TimeZone::UTC);

    /// The zone with this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let zone = tz::db().get(name).ok().filter(|zone| !zone.is_unknown())?;
        zone.iana_name()?;
        Some(Self(zone))
    }

    /// `Europe/Berlin`
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value for TimeZone {
    const KIND: Kind = Kind::Text(&text::TIME_ZONE);

    fn parse(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| {
            let invalid = Invalid::new("is not a time zone")
                .expected("a name of the IANA database, such as UTC, Europe/Berlin or America/New_York");
            let names: Vec<_> = tz::db().available().collect();
            let names = names.iter().map(|name| name.as_str());
            // A city without its continent, in most cases.
            let city = names.clone().find(|name| {
                name.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(&text.replace(' ', "_")))
            });
            match city.or_else(|| nearest(text, names)) {
                Some(name) => invalid.suggestion(format!("did you mean `{name}`?")),
                None => invalid,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_the_names_of_the_database() {
        for (written, name) in
            [("UTC", "UTC"), ("Europe/Berlin", "Europe/Berlin"), ("america/new_york", "America/New_York")]
        {
            assert_eq!(TimeZone::named(written).unwrap().name(), name);
        }
        for written in
            ["", "Europe/Berln", "Berlin", "Etc/Unknown", "+02:00", "CEST", "../etc/passwd", "local"]
        {
            assert!(TimeZone::named(written).is_none(), "{written}");
        }
    }

    #[test]
    fn a_similar_name_is_suggested() {
        for (written, meant) in [
            ("Europe/Berln", "did you mean `Europe/Berlin`?"),
            ("berlin", "did you mean `Europe/Berlin`?"),
            ("New York", "did you mean `America/New_York`?"),
            ("CEST+1", "a name of the IANA database, such as UTC, Europe/Berlin or America/New_York"),
        ] {
            assert_eq!(TimeZone::parse(written).unwrap_err().help(false).unwrap(), meant);
        }
    }
}
