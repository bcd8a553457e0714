//! Wakes threads that rest until something changes that other threads decide about: the bans, the API keys, the hosts
//! of an upstream and their ejections, the configuration in force.

use std::sync::LazyLock;

use tokio::sync::watch;

/// All threads of the process: a thread that a change does not concern rests again. Each pauses after a change, because
/// there may be many in a flood.
static NEWEST: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));

/// Wakes the threads that rest. To be called after the change.
pub fn announce() {
    NEWEST.send_replace(());
}

/// The changes that were announced since this was made.
#[derive(Debug)]
pub struct Changes(watch::Receiver<()>);

impl Changes {
    pub fn new() -> Self {
        Self(NEWEST.subscribe())
    }

    /// Ready if a change was announced since the last call, or once one is. Cancel-safe.
    pub async fn next(&mut self) {
        // The sender is never dropped.
        let _changed = self.0.changed().await;
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime;

    use super::*;

    #[test]
    fn a_change_wakes_a_thread_that_rests_and_one_that_does_not_yet() {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let mut changes = Changes::new();
        announce();
        runtime.block_on(changes.next());
        let other = thread::spawn(announce);
        runtime.block_on(changes.next());
        other.join().unwrap();
    }
}
