//! Declarations of all settings: type, default, range, meaning and an example.
//!
//! They are the one source of `docs/reference.md`, of the JSON Schema, and of `tollgate explain-setting`. A reader
//! names the `Mapping` that it reads, and a debug build panics if it reads a key that the mapping lacks. The tests
//! compare types, ranges, defaults and examples with the readers.

mod declaration;
mod derived;
mod entries;
mod explain;
mod markdown;
mod place;
mod schema;
pub(super) mod shims;
#[cfg(test)]
mod tests;
pub(super) mod text;
mod upstreams;

use self::declaration::{Default, Text};
pub(super) use self::{
    declaration::{Items, Kind, Mapping, Rule, Setting},
    derived::{
        Ignored, Read, ReadOver, Settings, Value, count_in, duration_in, flatten, opened, parsed,
        share_up_to, size_in,
    },
    entries::{confidential, of_the_instance},
    place::Place,
    upstreams::{
        BALANCE, ENDPOINT, ENDPOINTS_FILE, HEALTH, OUTLIER, RESOLVER, RETRY, STICKY, TIMEOUTS,
        TLS_TO_UPSTREAM, UPSTREAM,
    },
};
pub use self::{
    entries::{Entry, entries},
    explain::explain,
    markdown::markdown,
    schema::json_schema,
};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The longest duration of most settings.
const LONGEST: u64 = 366 * DAY;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
