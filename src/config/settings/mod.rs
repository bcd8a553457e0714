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
#[cfg(test)]
mod tests;
pub(super) mod text;

use self::declaration::{Default, Text};
pub(super) use self::{
    declaration::{Items, Kind, Mapping, Rule, Setting},
    derived::{
        Read, ReadOver, Settings, Value, count_in, duration_in, flatten, opened, parsed, share_up_to, size_in,
    },
    entries::{confidential, of_the_instance},
    place::Place,
};
pub use self::{
    entries::{SettingEntry, entries},
    explain::explain,
    markdown::markdown,
    schema::json_schema,
};
