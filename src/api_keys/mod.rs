//! API keys: their format, their records, and the registry in which a request's key is looked up.
//!
//! Keys come from a file, and from the store, where operators make and change them. Only the SHA-256 of a key is kept.
//! In the store a key is never removed, but replaced by a later version, and a tombstone is a version, too. So any
//! instance may hold any version at any time, and the greatest one ([`Stamp`]) comes out everywhere. A change of a key is
//! made of one version, and the store makes it only if it still has that one ([`PendingChange`]).

pub mod data_file;
pub mod file_text;
mod import;
mod key;
mod key_set;
mod last_uses;
mod merge;
pub mod operations;
mod pending;
pub mod record;
mod registry;
mod secret;
#[cfg(test)]
pub(crate) mod testing;
mod unsent;

pub use import::{ImportRow, KeyText, LineError, MAX_IMPORTED, check_rows, describe, read_csv, write_csv};
pub use key::{ApiKey, KeyField, KeySecret, KeyState};
pub use last_uses::LastUses;
pub use merge::{Stamp, kept_until};
pub use pending::{ChangeState, PendingChange};
pub use registry::{ApiKeys, KeyFault, KeyMark, KeyStore, MAX_FILE_KEYS, MAX_STORED_KEYS, PutError};
pub use secret::{KeyHash, MAX_KEY_LENGTH, MIN_KEY_LENGTH, NewKey, is_mistyped};
pub use unsent::UnsentKey;
