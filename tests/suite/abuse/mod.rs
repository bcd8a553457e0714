//! Limited clients: the users behind an address, its evidence, and bans.

mod attack;
mod bans;
mod blocked;
mod ladders;
mod retention;
