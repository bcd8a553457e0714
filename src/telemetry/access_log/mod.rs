//! The access log: one line per request, to stdout or to a file, in JSON or in Apache's combined format.
//!
//! Each worker writes lines into its own buffer and passes it on when it is full, or at regular intervals; one thread
//! does the I/O. The queue between them is bounded: if the disk can't keep up, lines are dropped and counted, and no
//! request waits.

mod combined;
mod escape;
mod json;
mod line;
mod output;
mod timestamp;
mod worker;
mod writer;

pub use line::{AbortedBy, Line, LogVerdict, RetriedTry, protocol_name};
pub use output::{AccessLogError, AccessLogHandle};
pub use worker::{ComposedLine, WorkerLog};
