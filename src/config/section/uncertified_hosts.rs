//! Warns about routes for hosts that no certificate names.

use super::routes::DraftRoute;
use crate::{config::model::HostPattern, tls};

/// Warns about every route with hosts for which no certificate is. Their clients get the first certificate, and refuse
/// it. `certified`: the names of all certificates; `None` where clients may do without one.
pub(super) fn warn(drafts: &[DraftRoute<'_>], certified: Option<&[String]>) {
    let Some(certified) = certified else { return };
    for DraftRoute { cursor, route, .. } in drafts {
        let hosts = route.hosts.iter().filter(|host| !is_certified(host, certified));
        let hosts: Vec<String> = hosts.map(|host| format!("`{host}`")).collect();
        if !hosts.is_empty() {
            let message = format!(
                "no certificate is for {}, and plain HTTP is not served: clients will refuse the first certificate, \
                 which they get instead",
                hosts.join(", ")
            );
            cursor.warn(message, "add a certificate with this name to `listeners`".to_owned());
        }
    }
}

/// Whether a certificate is for this host, or for one of these hosts.
fn is_certified(host: &HostPattern, certified: &[String]) -> bool {
    match host {
        // Certificates name IPv6 addresses without brackets.
        HostPattern::Exact(host) => tls::covers(certified, host.trim_matches(['[', ']'])),
        HostPattern::Suffix(suffix) => certified.iter().any(|name| name.ends_with(suffix.as_str())),
    }
}
