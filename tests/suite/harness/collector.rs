//! A collector of traces, as OTLP/HTTP has them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;

use super::{Origin, eventually};

/// Takes spans on a free port.
pub struct Collector {
    origin: Origin,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    /// Takes all that comes.
    pub fn start() -> Self {
        let taken = Arc::<Mutex<Vec<ExportTraceServiceRequest>>>::default();
        let requests = Arc::clone(&taken);
        let origin = Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                let (body, _) = conn.body(&head)?;
                requests.lock().unwrap().push(ExportTraceServiceRequest::decode(&*body).unwrap());
                let answer = ExportTraceServiceResponse::default().encode_to_vec();
                conn.answer("200 OK", &[("content-type", "application/x-protobuf")], &answer)?;
            }
            Ok(())
        });
        Self { origin, taken }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.origin.heads()
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let scopes = taken.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// What the spans come from.
    pub fn resource(&self) -> Vec<KeyValue> {
        let taken = self.taken.lock().unwrap();
        taken[0].resource_spans[0].resource.clone().unwrap().attributes
    }

    /// The spans once there are so many.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Span> {
        eventually("the spans are collected", || self.spans().len() >= count);
        let spans = self.spans();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

/// An attribute as text, if it is there.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.clone()?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
