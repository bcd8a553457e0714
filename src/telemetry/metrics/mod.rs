//! Metrics: one set of counters a worker, added up at each scrape.
//!
//! A worker increments its own counters without a locked instruction; a scrape adds them up. No label
//! takes a value that a client chose.

mod bans;
mod certificates;
mod connections;
mod counter;
mod cut_offs;
mod endpoints;
mod exposition;
mod format;
mod generation;
mod histogram;
mod history;
mod nodes;
mod openings;
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
pub use history::{History, RouteHistory, Sample};
pub use nodes::{NodeFacts, NodeRole, NodeState, StoreTopology, unavailable_node};
pub use openings::{Handshake, HandshakeFailure, OpeningMetrics, ProxyHeaderFailure};
pub use refusals::Refusal;
pub use registry::{BudgetFacts, EvidenceFacts, InstanceFacts, MemoryFacts, Metrics, StoreFacts};
pub use server_errors::{ServerErrorSource, ServerErrors};
pub use store::{StoreFailure, StoreMetrics};
pub use totals::{PolicyTotals, RouteOutcomes, RouteTotals, Totals, UpstreamTotals};
pub use worker::{Outcome, PoolMetrics, PoolState, SourceLabel, ThreadMetrics, VerdictLabel, WorkerMetrics};
