//! Where limits live: both stores by one conformance suite, and Redis with its rights, its TLS and its outages.

mod conformance;
mod endless_replies;
mod memory_budgets;
mod memory_store;
mod nodes;
mod outage;
pub mod redis_audit;
mod redis_rights;
mod redis_tls;
mod round_trips;
mod shared_limits;
mod spoilt_values;
mod topologies;
