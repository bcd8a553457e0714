//! What can be seen of Tollgate from outside.

mod conformance;
mod memory_store;
