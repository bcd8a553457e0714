//! The configuration: what it means, and how errors in it are reported.

pub mod environment;
mod golden;
mod model;
mod reference;
mod robust;
mod shipped;
mod warnings;
