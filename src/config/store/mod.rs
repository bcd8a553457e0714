//! `store`: where limits are kept.

pub(in crate::config) mod settings;
