//! Hints at the kind of a limited client, for the operator who decides how to react.

mod reasons;
mod rules;
#[cfg(test)]
mod traces;

use serde::Deserialize;

pub(super) use reasons::{Behind, reasons};
pub(super) use rules::classify;

/// The kind of client that a limited client seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum Hint {
    /// Many requests in a short time, for any purpose.
    #[serde(rename = "flood")]
    Flood,
    /// One client that reads one URL after the other.
    #[serde(rename = "scraping")]
    Scraping,
    /// Few users, many failures.
    #[serde(rename = "password guessing")]
    PasswordGuessing,
    /// Many users, many failures.
    #[serde(rename = "credential stuffing")]
    CredentialStuffing,
    /// Many users, few requests each.
    #[serde(rename = "shared address")]
    SharedAddress,
    /// None of these, or not known yet.
    #[serde(rename = "unknown")]
    Unknown,
}

impl Hint {
    /// All hints.
    pub const ALL: [Self; 6] = [
        Self::Flood,
        Self::Scraping,
        Self::PasswordGuessing,
        Self::CredentialStuffing,
        Self::SharedAddress,
        Self::Unknown,
    ];

    /// The name that is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Scraping => "scraping",
            Self::PasswordGuessing => "password guessing",
            Self::CredentialStuffing => "credential stuffing",
            Self::SharedAddress => "shared address",
            Self::Unknown => "unknown",
        }
    }

    /// What helps where the limit holds several people for one client.
    pub fn advice(self) -> Option<&'static str> {
        (self == Self::SharedAddress).then_some(
            "A ban would shut out everybody there. Limit by user or session beside the address, or give the address a higher \
             limit (`overrides`).",
        )
    }
}
