//! Bans: those that an operator gives, and those that rules give, longer each time in a row.
//!
//! A worker looks into the [`BanTable`] on the way of a request, and notes what policies denied in its
//! [`OffenseRecorder`], which it hands over every tick. Off the way of requests the offenses are counted by key: a key that
//! has too many within the window of a [`LadderRule`] is banned, and climbs a step of its [ladder](Ladder). Instances that share
//! a store count there, so that all count together and ban once. While the store is away each counts by itself, and sends
//! its bans afterwards.

mod announcements;
mod ban;
mod change;
mod index;
mod key;
mod ladder;
mod ladders;
mod lifts;
mod offense_counter;
mod offenses;
mod prefix_lengths;
mod replication;
mod rule;
mod table;
mod user_name;
mod window;

pub use ban::{Ban, BanClass, MANUAL};
pub use change::{BanChange, BanUpdate};
pub use index::BanPosition;
pub use key::{BannedKey, UnusableKey};
pub use ladder::{Ladder, LadderStep, LadderTerms};
pub use offenses::{Offense, OffenseRecorder};
pub use replication::UpdateMark;
pub use rule::LadderRule;
pub use table::{BanPage, BanTable};
pub use user_name::normalize as normalize_user;

/// Bans of each [class](BanClass) at most; and addresses, as well as users, with ladders at most.
pub const MAX_BANS: usize = 100_000;
