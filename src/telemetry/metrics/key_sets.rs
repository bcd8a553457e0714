//! The key sets of the providers of tokens: their age, and whether fetching them succeeds.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::encoding::DescriptorEncoder;

use super::families::{count, counter, gauge};

/// The key set of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySetFacts {
    /// The URL of the set, or of its issuer.
    pub source: String,
    /// The keys in use.
    pub keys: u64,
    /// When the set was last fetched. `None`: never since the start.
    pub fetched: Option<SystemTime>,
    /// Until when the keys are used, unless the set is fetched again. `None`: there are none.
    pub usable_until: Option<SystemTime>,
    /// Why the last fetch failed.
    pub error: Option<String>,
    /// Fetches that succeeded, and that failed.
    pub fetches: [u64; 2],
}

/// Writes the families of key sets.
pub(super) fn expose(sets: &[KeySetFacts], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut family = gauge(out, "tollgate_jwt_key_set_keys", "Keys of the provider that verify tokens")?;
    for set in sets {
        family.encode_family(&[("source", set.source.as_str())])?.encode_gauge(&set.keys)?;
    }
    let (name, help) = (
        "tollgate_jwt_key_set_last_fetch_successful",
        "Whether the provider's key set could be fetched the last time",
    );
    let mut family = gauge(out, name, help)?;
    for set in sets {
        let is_successful = set.fetched.is_some() && set.error.is_none();
        family.encode_family(&[("source", set.source.as_str())])?.encode_gauge(&u64::from(is_successful))?;
    }
    let (name, help) = (
        "tollgate_jwt_key_set_fetched_timestamp_seconds",
        "When the provider's key set was last fetched, since the Unix epoch",
    );
    let mut family = gauge(out, name, help)?;
    for set in sets {
        if let Some(fetched) = set.fetched {
            let seconds = fetched.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            family.encode_family(&[("source", set.source.as_str())])?.encode_gauge(&seconds)?;
        }
    }
    let mut family = counter(out, "tollgate_jwt_key_set_fetches", "Fetches of the provider's key set")?;
    for set in sets {
        for (result, value) in ["success", "failure"].into_iter().zip(set.fetches) {
            count(&mut family, [("source", set.source.as_str()), ("result", result)], value)?;
        }
    }
    Ok(())
}
