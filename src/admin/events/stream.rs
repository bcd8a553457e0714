//! One listener's stream.
//!
//! It holds no more than its place among the events, which are kept once for all, and the event that is being written:
//! whoever reads slowly misses some, and is told how many.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::Event;
use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    super::{server::Ending, shapes, state::Shared},
    told::told,
};
use crate::{
    limit::Clock,
    telemetry::{Heard, Listener},
};

/// After which a browser comes back when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

struct Listening {
    events: Listener,
    ticks: watch::Receiver<Option<Arc<shapes::Tick>>>,
    ending: Ending,
    clock: Arc<dyn Clock>,
    /// Nothing was said yet.
    is_new: bool,
    _place: OwnedSemaphorePermit,
}

/// Whatever is told from now on, until the connection or the process ends.
pub(super) fn stream(
    shared: &Shared,
    ending: Ending,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let listening = Listening {
        events: shared.state.events.listen(),
        ticks: shared.ticks.subscribe(),
        ending,
        clock: Arc::clone(&shared.state.clock),
        is_new: true,
        _place: place,
    };
    stream::unfold(listening, |mut listening| async move {
        let event = listening.next().await?;
        Some((Ok(event), listening))
    })
}

impl Listening {
    async fn next(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.is_new) {
            // So that the listener knows at once that it listens.
            return Some(Event::default().retry(RETRY).comment("listening"));
        }
        let (name, data) = tokio::select! {
            biased;
            () = self.ending.ended() => return None,
            heard = self.events.next() => match heard {
                Heard::Event(event) => (event.name(), told(&event)),
                Heard::Missed(missed) => ("missed", serde_json::json!({"missed": missed})),
                Heard::End => return None,
            },
            tick = tick(&mut self.ticks) => ("tick", serde_json::to_value(&*tick?).unwrap_or_default()),
        };
        let id = self.clock.now().to_string();
        // One line: JSON escapes all others.
        Some(Event::default().event(name).id(id).data(data.to_string()))
    }
}

/// The next that is not known yet. `None`: there will be none.
async fn tick(ticks: &mut watch::Receiver<Option<Arc<shapes::Tick>>>) -> Option<Arc<shapes::Tick>> {
    loop {
        ticks.changed().await.ok()?;
        let tick = ticks.borrow_and_update().clone();
        if tick.is_some() {
            return tick;
        }
    }
}
