//! Bans that all instances share: counted and given by scripts, so that instances count together and ban once, and published
//! on the store's channel.
//!
//! Each change has a number. An instance that applies them one after the other has all bans; one that missed some, or has just
//! started, reads a snapshot. Twice a second the number in Redis is compared, so that a lost message does no lasting harm.

mod change_log;
mod codec;
mod keys;
mod read;
mod sync;
mod write;

pub(super) use keys::key;
pub(super) use read::count_bans;
pub(super) use sync::BanSync;

use bb8_redis::redis::Script;

/// Its scripts.
pub(super) fn scripts() -> [&'static Script; 3] {
    [&read::BANS, &write::BAN, &write::OFFENSE]
}
