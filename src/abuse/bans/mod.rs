//! Bans: those that an operator gives, and those that rules give, longer each time in a row.
//!
//! A worker looks into [`BanTable`] on the way of a request, and notes what policies denied in [`OffenseRecorder`], which it hands over
//! every tick. Off the way of requests these are counted by key, and whoever has too many within the window of a
//! [`Rule`] climbs a step of its [ladder](ladder::Ladder). Where instances share a store they are counted there, so that
//! all count together and ban once; while it is away each counts alone, and tells of its bans afterwards.

mod ban;
mod change;
mod index;
mod key;
mod ladder;
mod ladders;
mod offenses;
mod prefix_lengths;
mod rule;
mod table;
mod user_name;
mod window;

pub use ban::{Ban, MANUAL};
pub use change::{BanChange, BanUpdate};
pub use index::BanPosition;
pub use key::{Key, UnusableKey};
pub use ladder::{Ladder, LadderStep, LadderTerms};
pub use offenses::{Offense, OffenseRecorder};
pub use rule::Rule;
pub use table::{BanPage, BanTable};

/// Bans held, and keys counted, at most.
pub const MOST: usize = 100_000;
