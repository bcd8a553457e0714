//! The export of spans to the collector: a queue, a thread, and their metrics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanProcessor},
};

use super::otlp_client::OtlpClient;
use crate::{
    config::model::{Config, Tracing},
    telemetry::metrics::Metrics,
};

/// Maximum number of spans waiting for the collector.
const QUEUE: usize = 8_192;
/// Maximum number of spans per request to the collector.
const BATCH: usize = 512;
/// Time that spans wait for others, to be sent together.
const DELAY: Duration = Duration::from_millis(500);
/// Maximum time for sending a batch, including retries.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for sending the remaining spans when the process ends.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    #[error("cannot send traces: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("cannot start the trace exporter: {0}")]
    Runtime(#[from] std::io::Error),
}

/// The traces of the process.
#[derive(Debug)]
pub struct Traces {
    pub(super) sample: f64,
    pub(super) exporter: Arc<Exporter>,
}

impl Traces {
    /// Starts the thread that sends to the collector in `config`; `None` if there is none. `instance` identifies this
    /// process.
    ///
    /// # Errors
    /// Environment variables OTEL_EXPORTER_OTLP_… are invalid, or no runtime could be started.
    pub fn open(
        config: &Config,
        instance: String,
        metrics: Arc<Metrics>,
    ) -> Result<Option<Self>, TracingError> {
        let store = if config.store.redis.is_some() { "redis" } else { "memory" };
        config.tracing.as_ref().map(|tracing| Self::start(tracing, store, instance, metrics)).transpose()
    }

    fn start(
        config: &Tracing,
        store: &'static str,
        instance: String,
        metrics: Arc<Metrics>,
    ) -> Result<Self, TracingError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(OtlpClient::new(TIMEOUT)?)
            .with_endpoint(config.otlp.to_string())
            .with_timeout(TIMEOUT)
            .build()?;
        let waiting = Arc::<AtomicUsize>::default();
        let monitored = MonitoredExporter {
            exporter,
            waiting: Arc::clone(&waiting),
            metrics: Arc::clone(&metrics),
            failing: AtomicBool::new(false),
            collector: config.otlp.to_string(),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(DELAY)
            .build();
        let mut processor = BatchSpanProcessor::builder(monitored).with_batch_config(batches).build();
        processor.set_resource(&resource(instance));
        let exporter = Exporter { processor, waiting, metrics, store };
        Ok(Self { sample: config.sample, exporter: Arc::new(exporter) })
    }

    /// Sends the remaining spans within a second; returns whether it succeeded.
    pub fn close(self) -> bool {
        self.exporter.processor.shutdown_with_timeout(LAST_SPANS).is_ok()
    }
}

fn resource(instance: String) -> Resource {
    Resource::builder_empty()
        .with_service_name("tollgate")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .build()
}

/// Takes the spans of workers.
#[derive(Debug)]
pub(super) struct Exporter {
    processor: BatchSpanProcessor,
    /// Queued spans that are not being sent yet.
    waiting: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    store: &'static str,
}

impl Exporter {
    /// `redis` or `memory`.
    pub(super) fn store(&self) -> &'static str {
        self.store
    }

    /// Queues the spans of one request, all or none. Never waits.
    pub(super) fn hand_over(&self, spans: Vec<SpanData>) {
        let room = |waiting: usize| (waiting + spans.len() <= QUEUE).then_some(waiting + spans.len());
        if self.waiting.fetch_update(Relaxed, Relaxed, room).is_err() {
            self.metrics.add_spans_dropped(spans.len() as u64);
            return;
        }
        for span in spans {
            self.processor.on_end(span);
        }
    }
}

/// An exporter that counts and logs its results.
#[derive(Debug)]
struct MonitoredExporter {
    exporter: SpanExporter,
    waiting: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    failing: AtomicBool,
    collector: String,
}

impl opentelemetry_sdk::trace::SpanExporter for MonitoredExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.waiting.fetch_sub(spans, Relaxed);
        let result = self.exporter.export(batch).await;
        match &result {
            Ok(()) => {
                self.metrics.add_spans_exported(spans as u64);
                if self.failing.swap(false, Relaxed) {
                    tracing::info!(collector = %self.collector, "traces can be sent to {} again", self.collector);
                }
            }
            Err(error) => {
                self.metrics.add_spans_dropped(spans as u64);
                // Logged once until it works again.
                if !self.failing.swap(true, Relaxed) {
                    tracing::warn!(collector = %self.collector, "traces can't be sent to {}: {error}", self.collector);
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
