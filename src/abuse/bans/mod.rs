//! Who is shut out: bans that an operator gives, and those that rules give, longer each time in a row.
//!
//! A worker looks into [`Bans`] on the way of a request, and notes what policies denied in [`Strikes`], which it hands over
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
mod registry;
mod rule;
mod user_name;
mod window;

pub use ban::{Ban, HAND};
pub use change::{Change, Order};
pub use index::Place;
pub use key::{Key, UnusableKey};
pub use ladder::{Ladder, Step, Terms};
pub use offenses::{Strike, Strikes};
pub use registry::{Bans, Page};
pub use rule::Rule;

/// Bans held, and keys counted, at most.
pub const MOST: usize = 100_000;
