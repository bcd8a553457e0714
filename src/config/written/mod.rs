//! Values as `proxy.yaml` writes them.

pub(in crate::config) mod display;
pub(in crate::config) mod format;
pub(in crate::config) mod serialize;
pub(in crate::config) mod values;
