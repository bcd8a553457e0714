//! The tools that serve no request: they read access logs and the configurations of other proxies.
//!
//! | module | content |
//! | --- | --- |
//! | [`access_logs`] | reads access logs of any proxy |
//! | [`replay`] | applies the policies to access logs: which clients they would have limited |
//! | [`suggest`] | finds limits for the traffic in access logs |
//! | [`mod@convert`] | converts configurations of other proxies |

pub mod access_logs;
pub mod convert;
pub mod replay;
pub mod suggest;
