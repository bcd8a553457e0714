//! Routes that no request can reach, because an earlier route matches all their requests, or because no certificate is for
//! their hosts; and conditions that no preflight meets.

use http::{HeaderName, HeaderValue};

use super::{
    route_coverage::{DraftIndex, DraftRoute, covers, covers_spelling},
    unserved_listeners::DraftListener,
};
use crate::{
    config::{
        model::{HostPattern, PathPattern},
        reader::Cursor,
    },
    tls,
};

/// Reports every route that one earlier route covers.
pub(in crate::config) fn report_covered(drafts: &[DraftRoute<'_>], index: &DraftIndex) {
    for (nth, later) in drafts.iter().enumerate() {
        let around = index.around(&later.route).into_iter().take_while(|earlier| *earlier < nth);
        let mut earlier = around.filter_map(|earlier| drafts.get(earlier));
        if let Some(earlier) = earlier.find(|earlier| covers(&earlier.route, &later.route)) {
            let line = earlier.cursor.location().line;
            let mut help = format!(
                "the route in line {line} matches all of its requests first; move this route before it"
            );
            let (one, other) = (&earlier.route.path, &later.route.path);
            if !matches!(one, PathPattern::Regex(_)) && !covers_spelling(one, other) {
                help += ", or let that one compare its path letter by letter: `match: { case: sensitive, \
                    trailing_slash: exact }`";
            }
            later.cursor.report("no request ever reaches this route", help);
        }
    }
}

/// Warns about every route with hosts for which none of its listeners has a certificate. Their clients get the first
/// certificate, and refuse it.
pub(in crate::config) fn warn_of_uncertified(drafts: &[DraftRoute<'_>], listeners: &[DraftListener<'_>]) {
    let of_all = certified(listeners, |_| true);
    for DraftRoute { cursor, route, .. } in drafts {
        let of_route =
            (!route.listeners.is_empty()).then(|| certified(listeners, |listener| listener.may_take(route)));
        let Some(certified) = of_route.as_ref().unwrap_or(&of_all) else { continue };
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

/// The names of all certificates of the listeners that `is_meant` accepts. `None`: clients may do without TLS there, or
/// nothing is served.
fn certified(
    listeners: &[DraftListener<'_>],
    is_meant: impl Fn(&DraftListener<'_>) -> bool,
) -> Option<Vec<String>> {
    let serves = |listener: &&DraftListener<'_>| is_meant(listener) && !listener.is_redirecting;
    let names: Option<Vec<&Vec<String>>> =
        listeners.iter().filter(serves).map(|listener| listener.certified.as_ref()).collect();
    names.filter(|names| !names.is_empty()).map(|names| names.into_iter().flatten().cloned().collect())
}

/// Whether a certificate is for this host, or for one of these hosts.
fn is_certified(host: &HostPattern, certified: &[String]) -> bool {
    match host {
        // Certificates name IPv6 addresses without brackets.
        HostPattern::Exact(host) => tls::covers(certified, host.trim_matches(['[', ']'])),
        HostPattern::Suffix(suffix) => certified.iter().any(|name| name.ends_with(suffix.as_str())),
    }
}

/// Warns at `cors` about conditions of the route that browsers do not meet with a preflight.
pub(in crate::config) fn warn_of_preflights(
    cors: Cursor<'_>,
    headers: &[(HeaderName, HeaderValue)],
    cookies: &[(String, String)],
) {
    let is_unsent = |name: &&HeaderName| {
        let name = name.as_str();
        let is_sent =
            ["origin", "host", "user-agent", "accept", "accept-language", "accept-encoding", "referer"]
                .contains(&name)
                || ["sec-", "access-control-request-"].iter().any(|start| name.starts_with(start));
        !is_sent
    };
    let header = headers.iter().map(|(name, _)| name).find(is_unsent).map(ToString::to_string);
    if let Some(unsent) = header.or_else(|| (!cookies.is_empty()).then(|| "cookies".to_owned())) {
        let message = format!(
            "browsers send no {unsent} with a preflight, so preflights for this route take another one, which needs \
             `cors`, too"
        );
        cors.warn(message, None);
    }
}
