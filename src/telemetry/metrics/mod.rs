//! Metrics: one set of counters for each worker, added up at each scrape.
//!
//! A worker increments its own counters without a locked instruction. No label has a value that a client can choose.

mod bans;
mod certificates;
mod connections;
mod counter;
mod cut_offs;
mod endpoints;
mod exposition;
mod families;
mod format;
mod generation;
mod histogram;
mod history;
mod kept_history;
mod key_sets;
mod names;
mod nodes;
mod openings;
mod questions;
mod refusals;
mod registry;
mod server_errors;
mod store;
mod totals;
mod worker;

pub use bans::{BanFacts, BanVerdict};
pub use certificates::{CertificateFacts, ClientCaFacts, TlsFacts, UpstreamTlsFacts};
pub use connections::{ConnectionFacts, ConnectionRefusal, Http2Abuse, IdleClosure};
pub use counter::{Counter, Gauge};
pub use cut_offs::{CutOff, CutOffBody, CutOffMetrics, CutOffReason};
pub use endpoints::{AddressFacts, EndpointFacts, EndpointState, ResolutionFacts, StateChange};
pub use format::ExpositionFormat;
pub use history::{History, HistoryPoint, RouteHistory};
pub use kept_history::{AlertFacts, KeptHistoryFacts};
pub use key_sets::KeySetFacts;
pub use nodes::{NodeFacts, NodeRole, NodeState, StoreTopology, unavailable_node};
pub use openings::{Handshake, HandshakeFailure, OpeningMetrics, ProxyHeaderFailure};
pub use questions::{Answer, AskedBy, QuestionMetrics};
pub use refusals::Refusal;
pub use registry::{BudgetFacts, EvidenceFacts, FactSource, InstanceFacts, MemoryFacts, Metrics, StoreFacts};
pub use server_errors::{ServerErrorCounts, ServerErrorSource};
pub use store::{StoreFailure, StoreMetrics};
pub use totals::{PolicyTotals, RouteOutcomes, RouteTotals, Totals, UpstreamTotals};
pub use worker::{
    AttemptOutcome, PoolMetrics, PoolState, SourceLabel, ThreadMetrics, VerdictLabel, WorkerMetrics,
};
