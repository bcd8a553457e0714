//! Limited clients: the users behind an address, its evidence, and bans.

mod attack;
mod bans;
mod blocked;
mod claimed_users;
mod hashed_users;
mod hints;
mod incidents;
mod ladders;
mod retention;
