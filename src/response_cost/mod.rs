//! Costs that only the response tells, for example tokens of language models: finds their numbers in bodies that pass.
//!
//! | file | content |
//! | --- | --- |
//! | `json_sum` | which numbers of a JSON text make up the cost, and the presets of providers |
//! | `json_scanner` | finds these numbers in JSON that arrives in pieces |
//! | `event_stream` | the fields of `text/event-stream` |
//! | `gzip` | decodes gzip for the scanner |
//! | `body_scanner` | the scanner of a response: its media type and its coding choose how it is read |
//! | `usage_event_filter` | takes the event out again that a client has not asked for |
//!
//! Everything here is pure: bytes in, numbers or bytes out. A scanner holds less than 64 KiB, however long and however
//! malformed the body is.

mod body_scanner;
mod event_stream;
mod gzip;
mod json_scanner;
mod json_sum;
mod usage_event_filter;

pub use body_scanner::{BodyScanner, Unscannable, media_type};
pub use json_sum::{FoundNumber, JsonNumber, JsonSum, MAX_NUMBER};
pub use usage_event_filter::UsageEventFilter;
