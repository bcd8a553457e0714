//! Warnings in words: what an operator should look at, found out from the traffic and from what the store says.
//!
//! Workers count a little of each request; a thread of its own adds it up every second, holds it against rules that know
//! nothing but these facts, and tells what has come up and what has gone.

mod board;
mod checkup;
mod facts;
mod health;
mod pace;
mod rules;
mod tally;
mod watch;
mod window;

pub use checkup::{Practice, Warnings, attend};
pub use pace::Pace;
pub use watch::Watch;
