//! The thread that looks after the upstreams, while workers serve requests.

use std::{io, sync::Arc, thread};

use tokio::{runtime, task::LocalSet};

use super::{SharedUpstream, names};
use crate::config::model;

/// Starts the thread `upstreams`, which resolves the names of endpoints again, for as long as the process lives. `in_force`
/// tells the upstreams, and who resolves names: a reload changes them.
///
/// # Errors
/// The system has no thread left.
pub fn keep_up(
    in_force: impl Fn() -> (Vec<Arc<SharedUpstream>>, model::Resolver) + Send + 'static,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, names::keep_resolved(in_force));
    thread::Builder::new().name("upstreams".into()).spawn(run)?;
    Ok(())
}
