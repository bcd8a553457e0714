//! The way of a request: [`serve`] reads as the list of what happens to it.

mod admit;
mod bans;
mod certificate_fields;
mod checks;
mod client;
mod denial_record;
mod exchange;
mod expect_continue;
pub mod explain;
mod forward;
mod forwarding_headers;
mod headers;
mod listener_reply;
mod outcome;
mod phase_timer;
mod quota;
mod reply;
mod request_body;
mod request_context;
mod request_verdict;
mod reservation;
mod response_body;
mod rewrite;
mod rules;
mod serve;
mod upstream_pools;
mod worker;
mod worker_telemetry;

pub use client::{ClientConnection, ClientInfo, Peer, Transport};
pub use phase_timer::{Phase, PhaseTimer};
pub use request_body::RequestBody;
pub use response_body::ResponseBody;
pub use rules::Rules;
pub use serve::serve;
pub use worker::{Worker, WorkerConfig, WorkerParts};
