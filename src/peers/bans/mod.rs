//! Bans that all instances share. Scripts count offenses and issue bans, so that instances count together and ban once;
//! changes are published on the store's channel.
//!
//! Each change has a number. An instance that applies them in order has all bans; one that missed some, or has just
//! started, reads a snapshot. Twice a second it compares the number with the one in Redis, so that a lost message does
//! no lasting harm.

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

/// All scripts of bans.
pub(super) fn scripts() -> [&'static Script; 3] {
    [&read::BANS, &write::BAN, &write::OFFENSE]
}
