//! Which hosts may get the next request.

use std::{ptr, sync::Arc, time::Instant};

use crate::upstream::{Standing, UpstreamHost};

/// The hosts of an upstream that may get the next request. There is always one.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct Eligible<'a> {
    /// The least fit standing among them.
    worst: Standing,
    /// Hosts that are left out because the request has failed on them.
    avoided: &'a [Arc<UpstreamHost>],
    now: Instant,
}

impl<'a> Eligible<'a> {
    /// The usable ones of `hosts`. If these are fewer than half, the suspect ones as well, because the few could hardly
    /// take the load of all ("panic mode"). If there are neither, all hosts.
    ///
    /// The request has failed on the hosts `tried`, in this order. It is sent to one of them again only if all others
    /// are less fit, and to the last of them only if it is the only one.
    pub(in crate::upstream) fn new(
        hosts: &[Arc<UpstreamHost>],
        tried: &'a [Arc<UpstreamHost>],
        now: Instant,
    ) -> Self {
        let (mut usable, mut suspect) = (0, 0);
        for host in hosts {
            match host.state.standing(now) {
                Standing::Usable => usable += 1,
                Standing::Suspect => suspect += 1,
                Standing::Unreachable => {}
            }
        }
        let worst = match usable + suspect {
            _ if usable > 0 && usable * 2 >= hosts.len() => Standing::Usable,
            0 => Standing::Unreachable,
            _ => Standing::Suspect,
        };
        let all = Self { worst, avoided: &[], now };
        if tried.is_empty() {
            return all;
        }
        let last = &tried[tried.len() - 1..];
        [tried, last]
            .into_iter()
            .map(|avoided| Self { avoided, ..all })
            .find(|some| hosts.iter().any(|host| some.admits(host)))
            .unwrap_or(all)
    }

    /// Whether `host` is one of them.
    pub(in crate::upstream) fn admits(&self, host: &UpstreamHost) -> bool {
        host.state.standing(self.now) <= self.worst
            && self.avoided.iter().all(|avoided| !ptr::eq(&**avoided, host))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{config::model::OutlierDetection, upstream::hosts::tests::hosts};

    /// The eligible ones of these hosts. Each is usable (`u`), suspect (`s`) or unreachable (`x`); hosts that were
    /// tried are in upper case, the last one last.
    fn eligible(standings: &str) -> String {
        let (hosts, now) = (hosts(&vec![1; standings.len()]), Instant::now());
        let settings = OutlierDetection { failures: 1, eject: Duration::from_secs(30), at_most: 1.0 };
        let mut tried = Vec::new();
        for (host, standing) in hosts.iter().zip(standings.chars()) {
            match standing.to_ascii_lowercase() {
                's' => drop(host.state.eject(&settings, String::new(), now)),
                'x' => drop(host.state.mark_unreachable(String::new(), now)),
                _ => {}
            }
            tried.extend(standing.is_uppercase().then(|| Arc::clone(host)));
        }
        let eligible = Eligible::new(&hosts, &tried, now);
        let show =
            |(host, standing): (&Arc<UpstreamHost>, char)| if eligible.admits(host) { standing } else { '-' };
        hosts.iter().zip(standings.chars()).map(show).collect()
    }

    #[test]
    fn the_fittest_get_requests() {
        for (standings, admitted) in [
            ("u", "u"),
            ("uu", "uu"),
            ("us", "u-"),
            ("ux", "u-"),
            ("uus", "uu-"),
            // Half of them suffice, fewer do not.
            ("uuss", "uu--"),
            ("usss", "usss"),
            ("ssss", "ssss"),
            // Unreachable hosts would not help.
            ("uxxx", "u---"),
            ("usxx", "us--"),
            ("sxxx", "s---"),
            ("xxxx", "xxxx"),
        ] {
            assert_eq!(eligible(standings), admitted, "{standings}");
        }
    }

    #[test]
    fn one_that_was_tried_gets_a_request_again_only_where_others_are_less_fit() {
        for (standings, admitted) in [
            ("U", "U"),
            ("X", "X"),
            ("Uu", "-u"),
            ("Us", "U-"),
            ("Ux", "U-"),
            ("Uxx", "U--"),
            ("Xu", "-u"),
            ("Xx", "-x"),
            ("Ss", "-s"),
            ("Sx", "S-"),
            ("Usss", "-sss"),
            ("Uuss", "-u--"),
            // All hosts that were tried, not only the last one.
            ("UUuu", "--uu"),
            ("UUx", "U--"),
            ("UUss", "U---"),
            ("UUU", "UU-"),
            ("SSSs", "---s"),
            ("XXX", "XX-"),
        ] {
            assert_eq!(eligible(standings), admitted, "{standings}");
        }
    }
}
