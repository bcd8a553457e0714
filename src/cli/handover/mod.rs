//! SIGUSR2: a new process takes over the listening sockets, and this one ends once its requests have finished. Clients
//! do not notice an upgrade.
//!
//! The old process starts the new one with all listening sockets and a channel between the two. It keeps serving until
//! the new process reports that it serves, or for good if the new one fails. Both accept on the same sockets for a
//! moment, so no connection in their queues is lost.

mod messages;
mod new_process;
mod old_process;
mod program;
mod succession;

pub(super) use new_process::{Handover, HandoverError, NewProcess};
pub(super) use old_process::OldProcess;
pub(super) use succession::Succession;
