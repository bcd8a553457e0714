//! The admin port: its guard, its API and its page.

mod access;
mod browser;
mod explain;
mod hostile_operators;
mod in_force;
mod limits_of_keys;
mod openapi;
