//! Limited clients: who was behind an address, the evidence kept of it, and bans.

mod attack;
mod bans;
mod blocked;
mod ladders;
