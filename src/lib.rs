//! Tollgate: a reverse proxy with built-in rate limiting.
//!
//! To see what happens to a request, start at [`proxy::serve`]. The modules, in the order in which a
//! request meets them:
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`cli`] | the commands |
//! | [`config`] | `proxy.yaml`, from its text to what it means |
//! | [`app`] | builds, starts, reloads and ends everything |
//! | [`listener`] | sockets, and the connections of clients on them |
//! | [`proxy`] | a request, from its head to the end of the response |
//! | [`router`] | the request target, and the route of a request |
//! | [`route_index`] | the routes among many that may match a host and a path |
//! | [`request_values`] | the values of cookies and query parameters |
//! | [`identity`] | the client's address, the user, and the identifiers that limits count by |
//! | [`tls`] | certificates and private keys, and what a client proves in its TLS handshake |
//! | [`mod@file`] | reads files, which may be none or hang |
//! | [`http2_frames`] | follows the frames of HTTP/2 in a stream of bytes |
//! | [`watched_file`] | a file that is read again when it changes |
//! | [`system_authorities`] | the certificate authorities that the system trusts |
//! | [`unicode`] | characters that deceive the eye |
//! | [`memory`] | what memory costs, how much of it there is, and how it is shared out |
//! | [`limit`] | policies, and the algorithms that decide |
//! | [`store`] | where the state of limits is kept |
//! | [`peers`] | what instances that share a Redis exchange: heartbeats, bans, records |
//! | [`abuse`] | evidence of denials, limited clients, and bans |
//! | [`upstream`] | endpoints, and the connections to them |
//! | [`replay`] | which clients the policies would have limited, by access logs |
//! | [`admin`] | the admin port: its API and its page |
//! | [`telemetry`] | metrics, the access log, traces, diagnostics, events, the process' own log |
//!
//! `tests/suite/layering.rs` states which module may use which, and tests it.

pub mod abuse;
pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod file;
pub mod http2_frames;
pub mod identity;
pub mod limit;
pub mod listener;
pub mod memory;
pub mod peers;
pub mod proxy;
pub mod replay;
pub mod request_values;
pub mod route_index;
pub mod router;
pub mod store;
pub mod system_authorities;
pub mod telemetry;
pub mod tls;
pub mod unicode;
pub mod upstream;
pub mod watched_file;
