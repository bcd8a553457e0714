//! Writes metric families: the lines that begin with one name.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

/// Opens a family of counters; the encoder appends `_total` to their names.
pub(super) fn counter<'a>(
    out: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    out.encode_descriptor(name, help, None, MetricType::Counter)
}

/// Opens a family of gauges.
pub(super) fn gauge<'a>(
    out: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    out.encode_descriptor(name, help, None, MetricType::Gauge)
}

/// Adds a counter to a family.
pub(super) fn count<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: [(&str, &str); N],
    value: u64,
) -> fmt::Result {
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// Writes a family of counters with one label: `reason`.
pub(super) fn counters_by_reason(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut family = counter(out, name, help)?;
    counts.into_iter().try_for_each(|(reason, value)| count(&mut family, [("reason", reason)], value))
}
