//! One line a request, to stdout or to a file, in JSON or in Apache's combined format.
//!
//! A worker writes lines into a buffer of its own and hands it over when it is full or when it is time;
//! one thread does the I/O. Between them is a bounded queue: where the disk can't keep up, lines are
//! dropped and counted, and no request waits.

mod combined;
mod escape;
mod json;
mod line;
mod output;
mod timestamp;
mod worker;
mod writer;

pub use line::{AbortedBy, Line, LogVerdict, RetriedTry, protocol_name};
pub use output::{AccessLog, OpenError};
pub use worker::WorkerLog;
