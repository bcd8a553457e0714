//! The admin port: its authorization, its API and its page.

mod access;
pub mod behind_proxy;
mod browser;
mod configuration;
mod explain;
mod explain_keys;
mod hostile_operators;
pub mod keys;
mod keys_under_load;
mod limits;
mod openapi;
