//! What can be seen of Tollgate from outside. One binary: it is linked once.

mod config_golden;
mod config_model;
mod config_robust;
mod conformance;
mod environment;
mod harness;
mod memory_store;
