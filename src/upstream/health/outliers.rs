//! Outlier detection: hosts that fail requests are ejected for a while, but never too many of them.

use std::{ptr, sync::Arc, time::Instant};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use crate::{
    config::model::OutlierDetection,
    upstream::{HostChange, UpstreamHost},
};

/// The statuses of gRPC that correspond to 5xx: UNKNOWN, INTERNAL, UNAVAILABLE and DATA_LOSS.
const FAILURES_OF_GRPC: [&[u8]; 4] = [b"2", b"13", b"14", b"15"];

/// How a request failed because of its host.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) enum RequestFailure<'a> {
    /// It responded with this status.
    Status(StatusCode),
    /// It responded with this status of gRPC, in the head.
    GrpcStatus(&'a str),
    /// It accepted no connection in time.
    ConnectTimeout,
    /// It did not respond in time.
    ResponseTimeout,
    /// The connection broke before the response, for this reason.
    Broken(&'a str),
}

impl<'a> RequestFailure<'a> {
    /// The failure in this response, if it is one. `may_be_grpc`: whether it may be a response of gRPC.
    #[inline]
    pub(in crate::upstream) fn of_response(
        status: StatusCode,
        headers: &'a HeaderMap,
        may_be_grpc: bool,
    ) -> Option<Self> {
        if status.is_server_error() {
            return Some(Self::Status(status));
        }
        if !may_be_grpc {
            return None;
        }
        // The status is in the head if the response has no message.
        let status = headers.get("grpc-status")?;
        let is_failure = FAILURES_OF_GRPC.contains(&status.as_bytes());
        is_failure.then(|| Self::GrpcStatus(status.to_str().unwrap_or_default()))
    }

    fn reason(self) -> String {
        match self {
            Self::Status(status) => format!("it responded {status}"),
            Self::GrpcStatus(status) => format!("it responded grpc-status {status}"),
            Self::ConnectTimeout => "it accepted no connection in time".to_owned(),
            Self::ResponseTimeout => "it did not respond in time".to_owned(),
            Self::Broken(why) => format!("the connection broke before the response: {why}"),
        }
    }
}

/// The outlier detection of one upstream, for all workers.
#[derive(Debug)]
pub(in crate::upstream) struct Outliers {
    settings: Option<OutlierDetection>,
    /// Locked while the ejection of a host is decided: all workers together must not eject too many.
    deciding: Mutex<()>,
}

impl Outliers {
    /// `None`: no host is ever ejected.
    pub(in crate::upstream) fn new(settings: Option<OutlierDetection>) -> Self {
        Self { settings, deciding: Mutex::new(()) }
    }

    /// Counts a failed request to `host`, one of `hosts`, and ejects the host if that is due.
    pub(in crate::upstream) fn failed(
        &self,
        hosts: impl FnOnce() -> Arc<[Arc<UpstreamHost>]>,
        host: &UpstreamHost,
        failure: RequestFailure<'_>,
        now: Instant,
    ) -> Option<HostChange> {
        let settings = self.settings.as_ref()?;
        let in_a_row = host.state.failed(now)?;
        if in_a_row < settings.failures {
            return None;
        }
        let hosts = hosts();
        // It was drained or removed: its requests in flight do not count.
        if !contains(&hosts, host) {
            host.state.forget_failures();
            return None;
        }
        let _deciding = self.deciding.lock();
        // If several requests fail at the same time, one of them ejects the host.
        if host.state.is_ejected(now) {
            return None;
        }
        let (ejected, most) = (ejected(&hosts, now).count(), max_ejected(hosts.len(), settings.at_most));
        if ejected >= most {
            // Checked again after as many further failures.
            host.state.forget_failures();
            return None;
        }
        let reason = match in_a_row {
            1 => failure.reason(),
            _ => format!("{in_a_row} requests in a row failed, the last: {}", failure.reason()),
        };
        Some(host.state.eject(settings, reason, now))
    }

    /// Ends ejections whose time is over, ejections of drained hosts, and ejections that are too many for the hosts
    /// `in_use`, the earliest to end first. `all` includes drained hosts. Calls `changed` for each.
    pub(in crate::upstream) fn settle(
        &self,
        all: &[Arc<UpstreamHost>],
        in_use: &[Arc<UpstreamHost>],
        now: Instant,
        mut changed: impl FnMut(&UpstreamHost, HostChange),
    ) {
        for host in all {
            if let Some(change) = host.state.settle(now) {
                changed(host, change);
            }
        }
        let _deciding = self.deciding.lock();
        for host in ejected(all, now) {
            let why = match &self.settings {
                // A reload has turned it off.
                None => "outlier detection is off",
                Some(_) if !contains(in_use, host) => "it is drained",
                Some(_) => continue,
            };
            if let Some(change) = host.state.readmit(now, why) {
                changed(host, change);
            }
        }
        let (Some(settings), hosts) = (&self.settings, in_use) else { return };
        let most = max_ejected(hosts.len(), settings.at_most);
        while ejected(hosts, now).count() > most
            && let Some(first) = ejected(hosts, now).min_by_key(|host| host.state.ejected_until())
            && let Some(change) = first.state.readmit(now, "too few hosts are left")
        {
            changed(first, change);
        }
    }
}

fn contains(hosts: &[Arc<UpstreamHost>], host: &UpstreamHost) -> bool {
    hosts.iter().any(|other| ptr::eq(&**other, host))
}

fn ejected(hosts: &[Arc<UpstreamHost>], now: Instant) -> impl Iterator<Item = &Arc<UpstreamHost>> {
    hosts.iter().filter(move |host| host.state.is_ejected(now))
}

/// The most hosts that may be ejected at a time: the share `at_most` of them, rounded down, but at least one of
/// several. A single host is never ejected.
fn max_ejected(hosts: usize, at_most: f64) -> usize {
    match hosts {
        0 | 1 => 0,
        // Shares are parsed from decimals: 0.29 × 100 is not quite 29. In range: at most `hosts`.
        _ => ((hosts as f64 * at_most + 1e-9) as usize).clamp(1, hosts),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::upstream::{Standing, hosts::tests::hosts};

    const FAILURE: RequestFailure<'_> = RequestFailure::Status(StatusCode::INTERNAL_SERVER_ERROR);

    fn outliers(failures: u32, at_most: f64) -> Outliers {
        Outliers::new(Some(OutlierDetection { failures, eject: Duration::from_secs(30), at_most }))
    }

    #[test]
    fn failures_in_a_row_eject_a_host() {
        let (hosts, outliers, now) = (hosts(&[1, 1]), outliers(3, 0.5), Instant::now());
        let fail = || outliers.failed(|| Arc::clone(&hosts), &hosts[0], FAILURE, now);
        assert_eq!((fail(), fail()), (None, None));
        assert_eq!(hosts[0].state.succeeded(now, now), None);
        assert_eq!((fail(), fail()), (None, None));
        let change = fail().unwrap();
        assert_eq!(
            change.reason,
            "is ejected for 30s: 3 requests in a row failed, the last: it responded 500 Internal Server Error"
        );
        assert_eq!(hosts[0].state.standing(now), Standing::Suspect);
        assert_eq!((fail(), fail(), fail()), (None, None, None), "it is ejected already");
        assert_eq!(Outliers::new(None).failed(|| Arc::clone(&hosts), &hosts[1], FAILURE, now), None);
    }

    #[test]
    fn the_share_is_rounded_down_and_one_of_several_may_always_go() {
        for (count, at_most, most) in [
            (1, 1.0, 0),
            (2, 0.5, 1),
            (2, 0.1, 1),
            (3, 0.5, 1),
            (4, 0.5, 2),
            (5, 0.5, 2),
            (100, 0.29, 29),
            (10, 1.0, 10),
        ] {
            assert_eq!(max_ejected(count, at_most), most, "{count} × {at_most}");
        }
    }

    #[test]
    fn workers_that_see_all_hosts_fail_never_eject_more_than_the_share() {
        for (count, at_most) in [(2, 0.5), (4, 0.5), (7, 0.3), (5, 1.0), (1, 1.0)] {
            let hosts = hosts(&vec![1; count]);
            let outliers = outliers(2, at_most);
            let most = max_ejected(count, at_most);
            // Ticks of 100 ms: ejections end in between. Workers look at the clock, and decide later.
            let (start, clock) = (Instant::now(), AtomicU32::new(0));
            let at = |ticks| start + Duration::from_millis(100) * ticks;
            let working = AtomicUsize::new(4);
            thread::scope(|scope| {
                for worker in 0..4 {
                    let (hosts, outliers, clock, working) = (&hosts, &outliers, &clock, &working);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(worker);
                        for _ in 0..5_000 {
                            let now = at(clock.fetch_add(1, SeqCst));
                            let host = &hosts[random.usize(..hosts.len())];
                            match random.u8(..20) {
                                0 => drop(host.state.succeeded(now, now)),
                                1 => outliers.settle(hosts, hosts, now, |_, _| ()),
                                _ => drop(outliers.failed(|| Arc::clone(hosts), host, FAILURE, now)),
                            }
                        }
                        working.fetch_sub(1, SeqCst);
                    });
                }
                while working.load(SeqCst) > 0 {
                    // Between two decisions, and not before either.
                    let deciding = outliers.deciding.lock();
                    let ejected = ejected(&hosts, at(clock.load(SeqCst))).count();
                    assert!(ejected <= most, "{ejected} of {count} × {at_most}");
                    drop(deciding);
                    thread::yield_now();
                }
            });
            // Once all ejections are over, as many are ejected again.
            let now = at(clock.load(SeqCst)) + Duration::from_secs(600);
            for host in hosts.iter().chain(&*hosts) {
                outliers.failed(|| Arc::clone(&hosts), host, FAILURE, now);
            }
            assert_eq!(ejected(&hosts, now).count(), most, "{count} × {at_most}");
        }
    }

    #[test]
    fn ejections_that_have_become_too_many_end() {
        let (all, outliers, now) = (hosts(&[1, 1, 1, 1]), outliers(1, 0.5), Instant::now());
        assert!(outliers.failed(|| Arc::clone(&all), &all[0], FAILURE, now).is_some());
        assert!(
            outliers.failed(|| Arc::clone(&all), &all[1], FAILURE, now + Duration::from_secs(1)).is_some()
        );
        assert_eq!(
            outliers.failed(|| Arc::clone(&all), &all[2], FAILURE, now + Duration::from_secs(2)),
            None
        );
        let (mut readmitted, now) = (Vec::new(), now + Duration::from_secs(3));
        outliers.settle(&all[..3], &all[..3], now, |host, change| {
            readmitted.push((std::ptr::from_ref(host), change.is_healthy));
        });
        assert_eq!(readmitted, [(Arc::as_ptr(&all[0]), true)]);
        assert_eq!(ejected(&all, now).count(), 1);
    }

    #[test]
    fn a_drained_host_is_not_ejected() {
        let (all, outliers, now) = (hosts(&[1, 1, 1]), outliers(1, 0.5), Instant::now());
        let rest: Arc<[_]> = all[1..].into();
        assert!(outliers.failed(|| Arc::clone(&all), &all[0], FAILURE, now).is_some());
        let mut changes = Vec::new();
        outliers.settle(&all, &rest, now, |_, change| changes.push(change.reason));
        assert_eq!(changes, ["is no longer ejected: it is drained"]);
        assert!(all[0].state.is_healthy());
        assert_eq!(outliers.failed(|| Arc::clone(&rest), &all[0], FAILURE, now), None);
        assert!(outliers.failed(|| Arc::clone(&rest), &all[1], FAILURE, now).is_some());
    }

    #[test]
    fn without_outlier_detection_no_ejection_goes_on() {
        let (all, now) = (hosts(&[1, 1]), Instant::now());
        outliers(1, 0.5).failed(|| Arc::clone(&all), &all[0], FAILURE, now);
        Outliers::new(None).settle(&all, &all, now, |_, _| ());
        assert!(all[0].state.is_healthy());
    }

    #[test]
    fn responses_that_are_failures() {
        let mut headers = HeaderMap::new();
        let is_failure = |status, headers: &HeaderMap, grpc| {
            RequestFailure::of_response(StatusCode::from_u16(status).unwrap(), headers, grpc).is_some()
        };
        for (status, fails) in
            [(200, false), (404, false), (499, false), (500, true), (503, true), (599, true)]
        {
            assert_eq!(is_failure(status, &headers, false), fails, "{status}");
        }
        for (status, fails) in [("0", false), ("5", false), ("13", true), ("14", true)] {
            headers.insert("grpc-status", status.parse().unwrap());
            assert_eq!(is_failure(200, &headers, true), fails, "{status}");
            assert!(!is_failure(200, &headers, false));
        }
    }
}
