//! Tollgate: a reverse proxy with built-in throttling.
//!
//! To see what happens to a request, start at [`proxy::serve`]. The modules, in the order in which a
//! request meets them:
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`cli`] | the commands |
//! | [`config`] | `proxy.yaml`, from its text to what it means |
//! | [`app`] | builds everything, starts it, ends it |
//! | [`listener`] | sockets, and the connections of clients on them |
//! | [`proxy`] | a request, from its head to the end of its answer |
//! | [`router`] | what it is for, and the route it takes |
//! | [`identity`] | whose it is |
//! | [`limit`] | the policies that hold for it, and what their algorithms say |
//! | [`store`] | where the state of limits is kept |
//! | [`peers`] | what instances that share a Redis tell each other |
//! | [`abuse`] | who was behind what was denied |
//! | [`upstream`] | endpoints, and the connections to them |
//! | [`admin`] | what operators ask and change |
//! | [`telemetry`] | metrics, the access log, messages |
//!
//! Who may know whom is written down, and tested, in `tests/suite/layering.rs`.

pub mod abuse;
pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod identity;
pub mod limit;
pub mod listener;
pub mod peers;
pub mod proxy;
pub mod router;
pub mod store;
pub mod telemetry;
pub mod upstream;
