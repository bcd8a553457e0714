//! Who a client is: its address and its user, and which addresses may send requests.

pub(in crate::config) mod access;
pub(in crate::config) mod checks;
pub(in crate::config) mod resolve;
pub(in crate::config) mod settings;
