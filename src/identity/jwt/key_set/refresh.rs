//! The thread that fetches a key set, as long as the set is in use.

use std::{
    io,
    sync::{Arc, Weak},
    thread,
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    fetch::KeySetClient,
    set::{KeySet, SetError},
};

/// Starts the thread.
///
/// # Errors
/// There is no thread or no runtime for it.
pub(super) fn spawn(set: &Arc<KeySet>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = KeySetClient::new().map_err(io::Error::other)?;
    let (asks, set) = (set.asks(), Arc::downgrade(set));
    thread::Builder::new().name("key-set".into()).spawn(move || run(runtime, &client, &set, asks))?;
    Ok(())
}

fn run(runtime: Runtime, client: &KeySetClient, set: &Weak<KeySet>, asks: watch::Receiver<u64>) {
    runtime.block_on(keep_fresh(client, set, asks));
    // A name may still be being resolved.
    runtime.shutdown_background();
}

/// Fetches the set whenever it is due or asked for. One fetch follows another: there are never two at a time.
async fn keep_fresh(client: &KeySetClient, set: &Weak<KeySet>, mut asks: watch::Receiver<u64>) {
    while let Some((source, limit)) = set.upgrade().map(|set| (set.source().clone(), set.timing().fetch)) {
        // A fetch that began before a token asked may not have what the token needs.
        let asked = *asks.borrow_and_update();
        let fetched = match timeout(limit, client.fetch(&source)).await {
            Ok(fetched) => fetched.map_err(SetError::from),
            Err(_) => Err(SetError::TimedOut(limit)),
        };
        let Some(pause) = set.upgrade().map(|set| set.fetched(fetched, asked)) else { return };
        tokio::select! {
            () = sleep(pause) => {}
            // Dropping the set closes the channel.
            changed = asks.changed() => if changed.is_err() { return },
        }
    }
}
