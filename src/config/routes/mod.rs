//! `routes`: conditions, actions, and changes of messages.

pub(in crate::config) mod action;
pub(in crate::config) mod checks;
pub(in crate::config) mod cors;
pub(in crate::config) mod coverage;
pub(in crate::config) mod index;
pub(in crate::config) mod message_changes;
pub(in crate::config) mod placeholder_text;
pub(in crate::config) mod policies;
pub(in crate::config) mod redirect;
pub(in crate::config) mod resolve;
pub(in crate::config) mod settings;
