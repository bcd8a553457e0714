//! Bans that all instances share: counted and given by scripts, so that many count together and ban once, and told to all over
//! the channel of unblocks.
//!
//! Each change has a number. Who hears them one after the other knows all bans; who missed one, or has just come, reads them
//! all anew. Once a second the number is looked at, so that a message that was lost does no lasting harm.

mod change;
mod keys;
mod read;
mod sync;
mod write;

pub(super) use keys::Keys;
pub(super) use read::count;
pub(super) use sync::Keeper;
