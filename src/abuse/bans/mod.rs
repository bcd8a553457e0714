//! Bans by operators and by rules, which are longer each time in a row.
//!
//! A worker looks into the [`BanTable`] for each request, and notes denied requests in its [`OffenseRecorder`], which
//! it hands over every tick. Elsewhere, the offenses are counted by key: a key that has too many within the window of
//! a [`LadderRule`] is banned, and climbs a step of its [ladder](Ladder). Instances that share a store count there,
//! so that all count together and ban once. While the store is unavailable, each counts by itself, and sends its bans
//! afterwards.

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

/// Maximum number of bans of each [class](BanClass), and of addresses and of users with ladders.
pub const MAX_BANS: usize = 100_000;
