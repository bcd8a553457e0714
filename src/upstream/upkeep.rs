//! The thread that maintains the upstreams while workers serve requests.

use std::{
    io,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime, task::LocalSet};

use super::{SharedUpstream, names::WANTED, resolver::NameResolver};
use crate::{changes::Changes, config::model};

/// The pause after a change, before the thread looks whether there are names.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the thread looks for new names.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread `upstreams`, which resolves the names of endpoints again, for as long as the process lives.
/// `in_force` returns the upstreams and the settings of the resolver: a reload changes them.
///
/// # Errors
/// The system has no thread left.
pub fn keep_up(
    in_force: impl Fn() -> (Vec<Arc<SharedUpstream>>, model::Resolver) + Send + 'static,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, keep_resolved(in_force));
    thread::Builder::new().name("upstreams".into()).spawn(run)?;
    Ok(())
}

/// Resolves the names of all upstreams, each when it is due, as long as the process lives. `in_force` returns the
/// upstreams and the settings of the resolver.
async fn keep_resolved(in_force: impl Fn() -> (Vec<Arc<SharedUpstream>>, model::Resolver) + 'static) {
    let in_force = Rc::new(in_force);
    let (mut resolver, mut changes) = (NameResolver::default(), Changes::new());
    loop {
        let (upstreams, settings) = in_force();
        let names: Vec<_> = upstreams.iter().flat_map(|upstream| upstream.names()).collect();
        if names.is_empty() {
            changes.next().await;
            // In a flood of bans, there are many changes.
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let has_changed = resolver.follow(&settings);
        let now = Instant::now();
        let mut wake = now + INTERVAL;
        for name in names {
            if has_changed {
                name.want();
            }
            match name.begin(now) {
                Ok(()) => {
                    let waiting = Arc::clone(&name);
                    let early = move |addresses| waiting.found_early(addresses);
                    let lookup = resolver.lookup(name.as_str(), name.full_name(), early);
                    let in_force = Rc::clone(&in_force);
                    tokio::task::spawn_local(async move {
                        let change = name.end(lookup.await, Instant::now());
                        // A reload may have replaced the upstreams in the meantime.
                        for upstream in in_force().0 {
                            if upstream.name_resolved(&name) {
                                change.announce(&upstream.config.name, name.as_str());
                            }
                        }
                    });
                }
                Err(Some(due)) => wake = wake.min(due),
                Err(None) => {}
            }
        }
        tokio::select! {
            () = WANTED.notified() => {}
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}
