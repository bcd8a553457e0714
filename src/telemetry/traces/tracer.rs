//! A worker's end of the traces.

use std::sync::Arc;

use http::HeaderMap;

use super::{
    context::{Context, is_state_sound},
    export::Exporter,
    recording::{Head, Recording},
    trace::{Told, Trace},
};

/// Begins the traces of one worker's requests.
#[derive(Debug, Clone)]
pub struct Tracer {
    sample: f64,
    exporter: Arc<Exporter>,
}

impl Tracer {
    pub(super) fn new(sample: f64, exporter: Arc<Exporter>) -> Self {
        Self { sample, exporter }
    }

    /// The trace of a request with these headers. A trusted peer's is continued, and sampled if it is; any other begins
    /// here, lest everybody could have us trace what he likes. `head` is called where the request is sampled.
    pub fn begin(&self, headers: &HeaderMap, is_peer_trusted: bool, head: impl FnOnce() -> Head) -> Trace {
        let said = Context::of(headers);
        match said {
            Some(parent) if is_peer_trusted => {
                let told = match (parent.sampled, is_state_sound(headers)) {
                    (false, _) => Told::AsItCame,
                    (true, true) => Told::Parent,
                    (true, false) => Told::Anew,
                };
                let recording = parent.sampled.then(|| self.record(parent, Some(parent), None, head()));
                Trace::new(parent, told, recording)
            }
            _ => {
                let sampled = self.sample > 0.0 && fastrand::f64() < self.sample;
                let own = Context::begin(sampled);
                let link = said.filter(|said| said.sampled);
                let recording = sampled.then(|| self.record(own, None, link, head()));
                Trace::new(own, Told::Anew, recording)
            }
        }
    }

    fn record(
        &self,
        at: Context,
        parent: Option<Context>,
        link: Option<Context>,
        head: Head,
    ) -> Box<Recording> {
        Box::new(Recording::new(Arc::clone(&self.exporter), at.trace, parent, link, head))
    }
}
