//! The metrics page that Prometheus scrapes.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::Registry,
};

use super::{
    AttemptOutcome, BanVerdict, EvidenceFacts, MemoryFacts, Metrics, NodeRole, NodeState, PoolState,
    ServerErrorSource, SourceLabel, StoreFacts, StoreFailure, StoreMetrics, StoreTopology, ThreadMetrics,
    VerdictLabel,
    bans::BanRow,
    certificates, connections, cut_offs, endpoints,
    families::{count, counter, gauge},
    format::{ExpositionFormat, as_text},
    histogram::HistogramTotal,
    kept_history, key_sets, openings, questions, refusals,
    totals::Totals,
    worker::UnitsLabel,
};
use crate::config::model::RetryReason;

impl Metrics {
    /// Sums the counters of all workers and writes the page.
    ///
    /// # Errors
    /// None in practice: writing to memory does not fail.
    pub fn expose(self: &Arc<Self>, format: ExpositionFormat) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(match format {
            ExpositionFormat::Text => as_text(&page),
            ExpositionFormat::OpenMetrics => page,
        })
    }

    fn sum(&self, value: impl Fn(&ThreadMetrics) -> u64) -> u64 {
        self.threads.iter().map(|thread| value(thread)).sum()
    }

    fn upstream_connections_of(&self, totals: &Totals, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("tollgate_upstream_connections", "Connections to upstreams, by state");
        let mut family = gauge(out, name, help)?;
        for upstream in totals.upstreams.keys() {
            for state in PoolState::ALL {
                let labels = [("upstream", upstream.as_str()), ("state", state.name())];
                let value = self.upstream_connections(upstream, state);
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn bans(&self, totals: &Totals, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = counter(out, "tollgate_ban_denials", "Requests that bans denied, by rule")?;
        for (ban, BanRow(counters)) in &totals.bans {
            for verdict in BanVerdict::ALL {
                let value = counters[verdict as usize].value();
                count(&mut family, [("ban", ban.as_str()), ("verdict", verdict.name())], value)?;
            }
        }
        let mut family = counter(out, "tollgate_bans_issued", "Bans issued by this instance, by rule")?;
        for (ban, issued) in self.bans.issued() {
            count(&mut family, [("ban", &ban)], issued)?;
        }
        let dropped = self.bans.dropped.load(std::sync::atomic::Ordering::Relaxed);
        let help = "Bans not issued or dropped because there were too many";
        counter(out, "tollgate_bans_dropped", help)?.encode_counter::<NoLabelSet, _, u64>(&dropped, None)?;
        let facts = self.active_bans.read();
        let mut family = gauge(out, "tollgate_bans", "Active bans, by mode")?;
        for (mode, value) in [("enforce", facts.enforced), ("shadow", facts.shadow)] {
            family.encode_family(&[("mode", mode)])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// The shared store, if one is configured.
    fn store_metrics(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(facts) = self.store.read() else { return Ok(()) };
        let store_connections = self.store_connections.lock();
        let sum = |value: &dyn Fn(&StoreMetrics) -> u64| {
            store_connections.iter().map(|connection| value(connection)).sum::<u64>()
        };
        let latency =
            HistogramTotal::from_histograms(store_connections.iter().map(|connection| &connection.latency));
        let batches =
            HistogramTotal::from_histograms(store_connections.iter().map(|connection| &connection.batches));
        for (name, help, total) in [
            ("tollgate_store_latency_seconds", "Time from sending a batch to its reply", latency),
            ("tollgate_store_batch_size", "Decisions per batch", batches),
        ] {
            out.encode_descriptor(name, help, None, MetricType::Histogram)?.encode_histogram::<NoLabelSet>(
                total.sum,
                total.count,
                &total.buckets,
                None,
            )?;
        }
        let mut family = counter(out, "tollgate_store_errors", "Batches without a reply, by cause")?;
        for failure in StoreFailure::ALL {
            let value = sum(&|connection| connection.failures[failure as usize].value());
            count(&mut family, [("kind", failure.name())], value)?;
        }
        let discarded = sum(&|connection| connection.discarded.value());
        let help = "Limits dropped because their times were in the future";
        counter(out, "tollgate_store_discarded", help)?
            .encode_counter::<NoLabelSet, _, u64>(&discarded, None)?;
        let spoilt = sum(&|connection| connection.spoilt.value());
        let help = "Limits dropped because another program has overwritten them";
        counter(out, "tollgate_store_spoilt", help)?.encode_counter::<NoLabelSet, _, u64>(&spoilt, None)?;
        let gauges = [
            (
                "tollgate_store_breaker_open",
                "Whether the circuit breaker of the store is open",
                u64::from(facts.breaker_open),
            ),
            ("tollgate_instances", "Instances that share the store", u64::from(facts.instances)),
        ];
        for (name, help, value) in gauges {
            gauge(out, name, help)?.encode_gauge(&value)?;
        }
        redis_nodes(&facts, out)
    }

    /// Families without labels, and those of the whole process.
    fn process(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (memory, evidence) = (self.memory.read(), self.evidence.read());
        budgets(&memory, &evidence, out)?;
        let gauges = [
            ("tollgate_connections", "Open client connections", self.sum(|w| w.connections().value())),
            ("tollgate_leases", "Slots of concurrency policies in use", self.sum(|w| w.leases().value())),
            ("tollgate_memory_keys", "Limits held in the memory store", memory.keys),
            (
                "tollgate_config_last_reload_successful",
                "Whether the last reload of the configuration took effect, or there was none",
                u64::from(!self.has_failed_reload()),
            ),
        ];
        for (name, help, value) in gauges {
            gauge(out, name, help)?.encode_gauge(&value)?;
        }
        let counters = [
            ("tollgate_memory_evicted", "Limits dropped because the memory store was full", memory.evicted),
            (
                "tollgate_memory_discarded",
                "Limits dropped because their times were in the future",
                memory.discarded,
            ),
            ("tollgate_abuse_records_dropped", "Denials that were not recorded", self.abuse_dropped()),
            (
                "tollgate_peak_records_dropped",
                "Records of how close clients come to limits that were dropped",
                self.peaks_dropped(),
            ),
            (
                "tollgate_abuse_addresses_evicted",
                "Limited clients dropped to make room for others",
                self.abuse_evicted(),
            ),
            ("tollgate_access_log_dropped", "Access log lines not written", self.access_log_dropped()),
            ("tollgate_spans_exported", "Trace spans accepted by the collector", self.spans_exported()),
            ("tollgate_spans_dropped", "Trace spans not accepted by the collector", self.spans_dropped()),
        ];
        for (name, help, value) in counters {
            counter(out, name, help)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let mut family = counter(out, "tollgate_config_reloads", "Reloads of the configuration")?;
        for (result, value) in ["success", "failure"].into_iter().zip(self.reloads()) {
            count(&mut family, [("result", result)], value)?;
        }
        connections::expose_refused(
            |reason| self.sum(|worker| worker.connections_refused(reason).value()),
            out,
        )?;
        connections::expose_idle_closed(|reason| self.sum(|worker| worker.idle_closed(reason).value()), out)?;
        let help = "Costs that responses told and the store did not get";
        let lost = self.sum(|worker| worker.settlements_lost().value());
        counter(out, "tollgate_cost_settlements_lost", help)?
            .encode_counter::<NoLabelSet, _, u64>(&lost, None)?;
        connections::expose_http2_abuse(|abuse| self.sum(|worker| worker.http2_abuse(abuse).value()), out)?;
        refusals::expose(|refusal| self.sum(|worker| worker.refused(refusal).value()), out)?;
        questions::expose(
            |by, answer| self.sum(|worker| worker.questions().counter(by, answer).value()),
            out,
        )?;
        cut_offs::expose(|cut_off| self.sum(|worker| worker.cut_offs().counter(cut_off).value()), out)?;
        openings::expose(|count| self.sum(|worker| count(worker.openings()).value()), out)?;
        certificates::expose(&self.tls.read(), out)?;
        certificates::expose_upstreams(&self.upstream_tls.read(), out)?;
        key_sets::expose(&self.key_sets.read(), out)?;
        kept_history::expose(&self.kept_history.read(), out)?;
        kept_history::expose_alerts(&self.alerts.read(), out)?;
        let mut family =
            gauge(out, "tollgate_incidents", "Attacks and refusals of many clients that go on, by kind")?;
        for (kind, open) in self.incidents.read() {
            family.encode_family(&[("kind", kind)])?.encode_gauge(&open)?;
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        gauge(out, "tollgate_build_info", "Version of this build")?
            .encode_family(&version)?
            .encode_gauge(&1_u64)?;
        let (name, help) = ("process_start_time_seconds", "When the process started, since the Unix epoch");
        gauge(out, name, help)?.encode_gauge(&self.started().as_secs_f64())
    }
}

impl Totals {
    fn requests(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            counter(out, "tollgate_requests", "Requests responded to, by route and status class")?;
        for (route, row) in &self.routes {
            for (status, counted) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(&row.requests) {
                count(&mut family, [("route", route), ("status", status)], counted.value())?;
            }
        }
        Ok(())
    }

    fn denied(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            counter(out, "tollgate_requests_denied", "Requests denied by a policy or a ban, by route")?;
        for (route, row) in &self.routes {
            count(&mut family, [("route", route)], row.denied.value())?;
        }
        Ok(())
    }

    fn server_errors(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Responses with a 5xx status, by route, by who gave them (the origin or Tollgate itself) and by \
                    status; denials are not among them";
        let mut family = counter(out, "tollgate_server_errors", help)?;
        for (route, row) in &self.routes {
            for (kind, source, status) in ServerErrorSource::ALL {
                let labels = [("route", route.as_str()), ("source", source), ("status", status)];
                count(&mut family, labels, row.server_errors[kind as usize].value())?;
            }
        }
        Ok(())
    }

    fn tunnels(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Open WebSockets and other upgraded connections, by route";
        let mut family = gauge(out, "tollgate_tunnels", help)?;
        for (route, row) in &self.routes {
            family.encode_family(&[("route", route.as_str())])?.encode_gauge(&row.tunnels.value())?;
        }
        Ok(())
    }

    fn durations(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "tollgate_request_duration_seconds";
        let help = "Time from the head of a request to the end of its response, by route";
        let mut family = out.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (route, row) in &self.routes {
            let total = HistogramTotal::from_histograms(std::iter::once(&row.duration));
            let labels = [("route", route.as_str())];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(total.sum, total.count, &total.buckets, None)?;
        }
        Ok(())
    }

    fn decisions(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Decisions of policies, by where they were made";
        let mut family = counter(out, "tollgate_decisions", help)?;
        for (policy, row) in &self.policies {
            for verdict in VerdictLabel::ALL {
                for source in SourceLabel::ALL {
                    let counted = &row.decisions[verdict as usize][source as usize];
                    let labels =
                        [("policy", policy.as_str()), ("verdict", verdict.name()), ("source", source.name())];
                    count(&mut family, labels, counted.value())?;
                }
            }
        }
        Ok(())
    }

    fn costs(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Units of costs that responses tell, by what became of them";
        let mut family = counter(out, "tollgate_cost_units", help)?;
        for (policy, row) in &self.policies {
            for label in UnitsLabel::ALL {
                let labels = [("policy", policy.as_str()), ("kind", label.name())];
                count(&mut family, labels, row.units[label as usize].value())?;
            }
        }
        let help = "Units that requests in progress have reserved";
        let mut family = gauge(out, "tollgate_cost_units_open", help)?;
        for (policy, row) in &self.policies {
            family.encode_family(&[("policy", policy.as_str())])?.encode_gauge(&row.open_units.value())?;
        }
        let help = "Responses that did not tell their cost";
        let mut family = counter(out, "tollgate_cost_missing", help)?;
        for (policy, row) in &self.policies {
            count(&mut family, [("policy", policy.as_str())], row.costs_missing.value())?;
        }
        Ok(())
    }

    fn upstream_requests(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests to upstreams, by outcome";
        let mut family = counter(out, "tollgate_upstream_requests", help)?;
        for (upstream, row) in &self.upstreams {
            for outcome in AttemptOutcome::ALL {
                let labels = [("upstream", upstream.as_str()), ("result", outcome.name())];
                count(&mut family, labels, row.requests[outcome as usize].value())?;
            }
        }
        Ok(())
    }

    fn upstream_retries(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = counter(out, "tollgate_upstream_retries", "Requests retried, by reason")?;
        for (upstream, row) in &self.upstreams {
            for reason in RetryReason::ALL {
                let labels = [("upstream", upstream.as_str()), ("reason", reason.name())];
                count(&mut family, labels, row.retries[reason as usize].value())?;
            }
        }
        let help = "Requests not retried because the retry budget was exhausted";
        let mut family = counter(out, "tollgate_upstream_retry_budget_exhausted", help)?;
        for (upstream, row) in &self.upstreams {
            count(&mut family, [("upstream", upstream.as_str())], row.retry_budget_exhausted.value())?;
        }
        Ok(())
    }
}

impl Collector for Metrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.totals();
        totals.requests(&mut out)?;
        totals.denied(&mut out)?;
        totals.server_errors(&mut out)?;
        totals.durations(&mut out)?;
        totals.tunnels(&mut out)?;
        totals.decisions(&mut out)?;
        totals.costs(&mut out)?;
        self.bans(&totals, &mut out)?;
        totals.upstream_requests(&mut out)?;
        totals.upstream_retries(&mut out)?;
        self.upstream_connections_of(&totals, &mut out)?;
        endpoints::expose(&self.endpoints.read(), &mut out)?;
        self.store_metrics(&mut out)?;
        self.process(&mut out)
    }
}

/// Memory of limits and evidence, their budgets, and evictions.
fn budgets(memory: &MemoryFacts, evidence: &EvidenceFacts, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let parts = [("limits", memory.bytes), ("evidence", evidence.bytes)];
    let (name, help) = ("tollgate_memory_held_bytes", "Memory that limits and evidence take");
    let mut family = gauge(out, name, help)?;
    for (part, bytes) in parts {
        family.encode_family(&[("part", part)])?.encode_gauge(&bytes.held)?;
    }
    let (name, help) = ("tollgate_memory_budget_bytes", "Memory that limits and evidence may take");
    let mut family = gauge(out, name, help)?;
    for (part, bytes) in parts {
        family.encode_family(&[("part", part)])?.encode_gauge(&bytes.budget)?;
    }
    let help =
        "Evidence given up to make room: entries of metadata_list, and clients whose records were dropped";
    let mut family = counter(out, "tollgate_evidence_evicted", help)?;
    count(&mut family, [("kind", "entries")], memory.evicted_entries)?;
    count(&mut family, [("kind", "records")], evidence.evicted)
}

/// The Redis servers. Addresses come from the configuration and the servers, so the number of series is bounded by the
/// number of servers.
fn redis_nodes(store: &StoreFacts, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let nodes = &store.nodes;
    let (name, help) = ("tollgate_redis_node_up", "Whether the Redis server answers and is asked");
    let mut family = gauge(out, name, help)?;
    // A server that was never used has an unknown state: a 0 would raise an alert.
    for node in nodes.iter().filter(|node| node.state != NodeState::Unknown) {
        let labels = [("node", node.address.as_str()), ("role", node.role.map_or("unknown", NodeRole::name))];
        family.encode_family(&labels)?.encode_gauge(&u64::from(node.state == NodeState::Up))?;
    }
    let help = "Decisions of this instance that the Redis server has answered";
    let mut family = counter(out, "tollgate_redis_node_decisions", help)?;
    for node in nodes {
        count(&mut family, [("node", &node.address)], node.decisions)?;
    }
    let (name, help) = ("tollgate_redis_node_latency_seconds", "Last round trip to the Redis server");
    let mut family = gauge(out, name, help)?;
    for (node, latency) in nodes.iter().filter_map(|node| Some((node, node.latency?))) {
        let seconds = Duration::from_micros(latency).as_secs_f64();
        family.encode_family(&[("node", node.address.as_str())])?.encode_gauge(&seconds)?;
    }
    let (name, help) = (
        "tollgate_redis_node_replication_lag_bytes",
        "Bytes that the primary has written and the replica has not acknowledged",
    );
    let mut family = gauge(out, name, help)?;
    for (node, lag) in nodes.iter().filter_map(|node| Some((node, node.lag?))) {
        family.encode_family(&[("node", node.address.as_str())])?.encode_gauge(&lag)?;
    }
    let (name, help) = ("tollgate_redis_node_slots", "Slots of the cluster that the Redis server serves");
    let mut family = gauge(out, name, help)?;
    for node in nodes.iter().filter(|_| store.topology == StoreTopology::Cluster) {
        family.encode_family(&[("node", node.address.as_str())])?.encode_gauge(&node.slot_count())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::telemetry::{metrics::BudgetFacts, testing};

    #[test]
    fn workers_are_summed() {
        let metrics = Metrics::new(&testing::config(), 2);
        let pools = [metrics.pool("api"), metrics.pool("api")];
        for (index, pool) in pools.iter().enumerate() {
            let worker = metrics.worker(index);
            worker.request(Some(0), StatusCode::OK, Duration::from_millis(3));
            worker.request(None, StatusCode::NOT_FOUND, Duration::from_secs(40));
            worker.denied(Some(0));
            worker.decision(0, VerdictLabel::Denied, SourceLabel::Store);
            worker.upstream(0, AttemptOutcome::Timeout);
            worker.thread().connections().inc();
            pool.connections(PoolState::Idle).set(3);
        }
        metrics.add_abuse_dropped(7);
        metrics.add_peaks_dropped(8);
        metrics.record_reload(true);
        metrics.record_reload(false);
        metrics.record_reload(false);
        metrics.memory.watch(|| MemoryFacts {
            keys: 11,
            bytes: BudgetFacts { held: 1_000, budget: 4_096 },
            evicted: 2,
            evicted_entries: 3,
            discarded: 5,
        });
        metrics.evidence.watch(|| EvidenceFacts {
            clients: 1,
            bytes: BudgetFacts { held: 500, budget: 2_048 },
            evicted: 4,
        });
        let page = metrics.expose(ExpositionFormat::OpenMetrics).unwrap();
        for line in [
            r#"tollgate_requests_total{route="all",status="2xx"} 2"#,
            r#"tollgate_requests_total{route="",status="4xx"} 2"#,
            r#"tollgate_requests_denied_total{route="all"} 2"#,
            "tollgate_config_last_reload_successful 0",
            r#"tollgate_config_reloads_total{result="success"} 1"#,
            r#"tollgate_config_reloads_total{result="failure"} 2"#,
            r#"tollgate_requests_denied_total{route=""} 0"#,
            r#"tollgate_request_duration_seconds_bucket{le="0.0025",route="all"} 0"#,
            r#"tollgate_request_duration_seconds_bucket{le="0.005",route="all"} 2"#,
            r#"tollgate_request_duration_seconds_bucket{le="30.0",route=""} 0"#,
            r#"tollgate_request_duration_seconds_bucket{le="+Inf",route=""} 2"#,
            r#"tollgate_request_duration_seconds_sum{route=""} 80.0"#,
            r#"tollgate_decisions_total{policy="per-ip",verdict="denied",source="store"} 2"#,
            r#"tollgate_upstream_requests_total{upstream="api",result="timeout"} 2"#,
            r#"tollgate_upstream_connections{upstream="api",state="idle"} 6"#,
            "tollgate_connections 2",
            "tollgate_memory_keys 11",
            "tollgate_memory_evicted_total 2",
            r#"tollgate_memory_held_bytes{part="limits"} 1000"#,
            r#"tollgate_memory_held_bytes{part="evidence"} 500"#,
            r#"tollgate_memory_budget_bytes{part="limits"} 4096"#,
            r#"tollgate_memory_budget_bytes{part="evidence"} 2048"#,
            r#"tollgate_evidence_evicted_total{kind="entries"} 3"#,
            r#"tollgate_evidence_evicted_total{kind="records"} 4"#,
            "tollgate_memory_discarded_total 5",
            "tollgate_abuse_records_dropped_total 7",
            "tollgate_peak_records_dropped_total 8",
        ] {
            assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn each_redis_server_has_its_series() {
        let metrics = Metrics::new(&testing::config(), 1);
        metrics.store.watch(|| Some(testing::cluster()));
        let page = metrics.expose(ExpositionFormat::OpenMetrics).unwrap();
        let found: Vec<_> = page.lines().filter(|line| line.starts_with("tollgate_redis_node")).collect();
        assert_eq!(
            found,
            [
                r#"tollgate_redis_node_up{node="10.0.0.1:6379",role="primary"} 1"#,
                r#"tollgate_redis_node_up{node="10.0.0.2:6379",role="primary"} 0"#,
                r#"tollgate_redis_node_up{node="10.0.0.4:6379",role="replica"} 0"#,
                r#"tollgate_redis_node_decisions_total{node="10.0.0.1:6379"} 1200"#,
                r#"tollgate_redis_node_decisions_total{node="10.0.0.2:6379"} 900"#,
                r#"tollgate_redis_node_decisions_total{node="10.0.0.3:6379"} 0"#,
                r#"tollgate_redis_node_decisions_total{node="10.0.0.4:6379"} 0"#,
                r#"tollgate_redis_node_latency_seconds{node="10.0.0.1:6379"} 0.00031"#,
                r#"tollgate_redis_node_replication_lag_bytes{node="10.0.0.4:6379"} 4096"#,
                r#"tollgate_redis_node_slots{node="10.0.0.1:6379"} 8193"#,
                r#"tollgate_redis_node_slots{node="10.0.0.2:6379"} 8191"#,
                r#"tollgate_redis_node_slots{node="10.0.0.3:6379"} 0"#,
                r#"tollgate_redis_node_slots{node="10.0.0.4:6379"} 0"#,
            ]
        );
    }

    #[test]
    fn an_index_without_a_row_counts_nothing() {
        let metrics = Metrics::new(&testing::config(), 1);
        let worker = metrics.worker(0);
        worker.request(Some(99), StatusCode::OK, Duration::ZERO);
        worker.decision(99, VerdictLabel::Allowed, SourceLabel::Store);
        worker.upstream(99, AttemptOutcome::Ok);
        let page = metrics.expose(ExpositionFormat::OpenMetrics).unwrap();
        let counted =
            |line: &str| line.starts_with("tollgate_") && line.contains("_total") && !line.ends_with(" 0");
        assert_eq!(page.lines().find(|line| counted(line)), None);
    }
}
