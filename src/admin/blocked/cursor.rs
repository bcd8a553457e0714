//! The order of a list, and where its next page begins.
//!
//! A cursor holds the place of the last address that was told, not a count of them: what comes and goes
//! meanwhile neither hides an address nor tells it twice.

use std::cmp::Reverse;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ipnet::IpNet;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::abuse::{self, Client};

/// By what addresses are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum Sort {
    /// Most lately denied first.
    #[default]
    Last,
    /// Most lately listed first.
    First,
    /// Most denied first.
    Denied,
    Address,
}

/// The place of an address in a list: these are in ascending order.
pub(super) type Place = (Reverse<u64>, IpNet);

impl Sort {
    pub(super) fn place(self, client: &Client) -> Place {
        let number = match self {
            Self::Last => u64::try_from(client.last).unwrap_or(0),
            Self::First => u64::try_from(client.first).unwrap_or(0),
            Self::Denied => client.denied,
            Self::Address => 0,
        };
        (Reverse(number), client.address)
    }

    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::First => "first",
            Self::Denied => "denied",
            Self::Address => "address",
        }
    }

    /// The cursor for what comes after `place`.
    pub(super) fn cursor(self, (Reverse(number), address): Place) -> String {
        URL_SAFE_NO_PAD.encode(format!("{} {number} {}", self.name(), abuse::shown(address)))
    }

    /// Reads a cursor. `None` where it is none of this order's.
    pub(super) fn read(self, cursor: &str) -> Option<Place> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let mut parts = text.splitn(3, ' ');
        let sort = parts.next()?;
        let number = parts.next()?.parse().ok()?;
        let address = abuse::parse(parts.next()?)?;
        (sort == self.name()).then_some((Reverse(number), address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_by_its_own_order_alone() {
        for address in ["203.0.113.7", "2001:db8::/64"] {
            let place = (Reverse(u64::MAX), abuse::parse(address).unwrap());
            let cursor = Sort::Denied.cursor(place);
            assert_eq!(Sort::Denied.read(&cursor), Some(place));
            assert_eq!(Sort::Last.read(&cursor), None);
        }
        for nonsense in ["", "???", "bGFzdCAx", "bGFzdCAxIHg"] {
            assert_eq!(Sort::Last.read(nonsense), None);
        }
    }
}
