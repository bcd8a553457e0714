//! Tollgate: a reverse proxy with built-in rate limiting.
//!
//! To follow a request through the code, start at [`proxy::serve`]. The modules, in the order in which a request meets
//! them:
//!
//! | module | content |
//! | --- | --- |
//! | [`cli`] | the commands |
//! | [`app`] | builds, starts, reloads and ends everything |
//! | [`listener`] | sockets, and the connections of clients on them |
//! | [`proxy`] | a request, from its head to the end of the response |
//! | [`router`] | the request target, and the route of a request |
//! | [`identity`] | the client's address, the user, and the identifiers that limits count by |
//! | [`limit`] | policies, and the algorithms that decide |
//! | [`store`] | the state of limits, in memory or in Redis |
//! | [`peers`] | exchange between instances that share a Redis: heartbeats, bans, records |
//! | [`abuse`] | evidence of denials, limited clients, and bans |
//! | [`peaks`] | how close clients come to their limits |
//! | [`history`] | what was used and who was denied, kept in a database |
//! | [`alerts`] | webhooks that are told that a share of a limit is used |
//! | [`upstream`] | endpoints, and the connections to them |
//! | [`admin`] | the admin port: its API and its page |
//! | [`telemetry`] | metrics, the access log, traces, diagnostics, events, the process' own log |
//! | [`config`] | `proxy.yaml`, from its text to the checked configuration |
//! | [`offline`] | tools that serve no request: replay, suggest, convert |
//!
//! Below them, and used by several:
//!
//! | module | content |
//! | --- | --- |
//! | [`tls`] | certificates, private keys and certificate authorities, and the identity in a client's certificate |
//! | [`api_keys`] | the API keys of customers |
//! | [`http_client`] | the HTTP client for requests of our own |
//! | [`jwt_keys`] | the keys that verify tokens |
//! | [`address_set`] | sets of IP networks, and files that list them |
//! | [`mod@file`] | reads files within a time limit, and again when they change |
//! | [`changes`] | wakes threads that rest until something changes |
//! | [`http2_frames`] | follows the frames of HTTP/2 in a stream of bytes |
//! | [`json_path`] | paths to members of JSON objects |
//! | [`request_values`] | reads members of request bodies, and refuses bodies that servers read in different ways |
//! | [`response_cost`] | finds the cost of a response in its body, for example in tokens |
//! | [`memory_budget`] | the available memory, its budgets, and the memory that a value takes |
//! | [`text`] | invisible and misleading characters |
//!
//! `tests/suite/layering.rs` states which module may use which, and tests it.

pub mod abuse;
pub mod address_set;
pub mod admin;
pub mod alerts;
pub mod api_keys;
pub mod app;
pub mod changes;
pub mod cli;
pub mod config;
pub mod file;
pub mod history;
pub mod http2_frames;
pub mod http_client;
pub mod identity;
pub mod json_path;
pub mod jwt_keys;
pub mod limit;
pub mod listener;
pub mod memory_budget;
pub mod offline;
pub mod peaks;
pub mod peers;
pub mod proxy;
pub mod request_values;
pub mod response_cost;
pub mod router;
pub mod store;
pub mod telemetry;
pub mod text;
pub mod tls;
pub mod upstream;
