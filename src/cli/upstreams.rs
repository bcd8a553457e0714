//! `tollgate upstreams`: the upstreams and the state of their endpoints.

use std::process::ExitCode;

use http::Method;
use jiff::Timestamp;

use super::{
    client::{self, EXIT_CODES, Options},
    terminal::{moment, printable, span, table},
};
use crate::admin::dto::{Endpoint, EndpointAddress, Upstreams};

/// List the upstreams and the state of their endpoints
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(client::request(&args.options, Method::GET, "/v1/upstreams", |upstreams| {
        list(upstreams, Timestamp::now())
    }))
}

const HEAD: [&str; 9] =
    ["UPSTREAM", "ENDPOINT", "ADDRESS", "RESOLVED", "WEIGHT", "STATE", "IN FLIGHT", "REQUESTS", "ERRORS"];
/// A separate table, so that a long reason has room.
const REASONS_HEAD: [&str; 5] = ["ENDPOINT", "STATE", "SINCE (UTC)", "BY", "REASON"];

fn list(upstreams: &Upstreams, now: Timestamp) -> String {
    let (mut rows, mut reasons) = (Vec::new(), Vec::new());
    for upstream in &upstreams.upstreams {
        for endpoint in &upstream.endpoints {
            add_endpoint(&upstream.name, endpoint, now, &mut rows, &mut reasons);
        }
    }
    let mut text = table(HEAD, rows);
    if !reasons.is_empty() {
        text += &format!("\n{}", table(REASONS_HEAD, reasons));
    }
    for drain in &upstreams.other_drains {
        let [endpoint, upstream] = [&drain.endpoint, &drain.upstream].map(|text| printable(text));
        text += &format!(
            "\n{endpoint} of upstream {upstream} is drained, and not configured here. To forget that: tollgate undrain {upstream} {endpoint}\n"
        );
    }
    text + "\nCounts are those of this instance since its start.\n"
}

/// Adds rows for the endpoint and each address of its name, and their reasons.
fn add_endpoint(
    upstream: &str,
    endpoint: &Endpoint,
    now: Timestamp,
    rows: &mut Vec<[String; 9]>,
    why: &mut Vec<[String; 5]>,
) {
    let Endpoint { state, changed, by, active, requests, errors, .. } = endpoint;
    let resolver = endpoint.resolver_error().map(|error| format!("the resolver fails: {error}"));
    let reasons: Vec<String> = endpoint.reason.iter().cloned().chain(resolver).collect();
    let resolved = endpoint.resolution.as_ref().and_then(|resolution| resolution.resolved.as_deref());
    let age = resolved.and_then(|time| time.parse::<Timestamp>().ok());
    let age = age.map(|time| format!("{} ago", span((now.as_second() - time.as_second()).max(0))));
    let whole = EndpointAddress {
        address: match endpoint.addresses.as_slice() {
            [only] => only.address.clone(),
            addresses => format!("{} addresses", addresses.len()),
        },
        state: state.clone(),
        reason: Some(reasons.join("; ")),
        changed: changed.clone(),
        by: by.clone(),
        active: *active,
        requests: *requests,
        errors: *errors,
        ejections: endpoint.ejections,
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut add = |names: [&str; 3], age: String, weight: String, address: &EndpointAddress| {
        let [upstream, url, name] = names.map(str::to_owned);
        let [active, requests, errors] =
            [address.active, address.requests, address.errors].map(|count| count.to_string());
        let state = address.state.clone();
        rows.push([
            upstream,
            url,
            address.address.clone(),
            age,
            weight,
            state.clone(),
            active,
            requests,
            errors,
        ]);
        let reason = address.reason.clone().unwrap_or_default();
        if !reason.is_empty() || address.changed.is_some() || address.by.is_some() {
            let since = or_dash(address.changed.as_deref().map(moment));
            why.push([name, state, since, or_dash(address.by.clone()), reason]);
        }
    };
    add([upstream, &endpoint.url, &endpoint.url], or_dash(age), endpoint.weight.to_string(), &whole);
    let each: &[EndpointAddress] = if endpoint.addresses.len() > 1 { &endpoint.addresses } else { &[] };
    for address in each {
        add(["", "", &address.address], String::new(), String::new(), address);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_endpoint_and_each_of_several_addresses_is_a_row() {
        let address = |address: &str, state: &str| {
            json!({
                "address": address, "state": state, "reason": null, "changed": null, "by": null,
                "active": 0, "requests": 5, "errors": 0, "ejections": 0,
            })
        };
        let upstreams = json!({
            "upstreams": [{
                "name": "api", "policies": [], "attempts": {}, "connections": {"active": 1, "idle": 2},
                "endpoints": [
                    {
                        "url": "http://orders:3000", "weight": 2, "state": "healthy", "healthy": true, "active": 1,
                        "requests": 10, "errors": 1,
                        "resolution": {"resolved": "2026-07-03T11:57:00.000Z", "next": null, "error": "no server answers"},
                        "addresses": [address("10.0.0.5:3000", "healthy"), address("10.0.0.6:3000", "ejected")],
                    },
                    {
                        "url": "http://10.0.0.7", "weight": 1, "state": "drained", "healthy": true, "active": 0,
                        "reason": "a new disk", "changed": "2026-07-03T12:00:00.000Z", "by": "operator at ::1",
                        "addresses": [address("10.0.0.7:80", "drained")],
                    },
                ],
            }],
            "other_drains": [{
                "upstream": "api", "endpoint": "http://gone", "since": "2026-07-03T12:00:00.000Z", "reason": "",
                "by": "operator at ::1", "configured": false,
            }],
        });
        assert_eq!(
            list(&serde_json::from_value(upstreams).unwrap(), "2026-07-03T12:00:01Z".parse().unwrap()),
            "\
UPSTREAM  ENDPOINT            ADDRESS        RESOLVED   WEIGHT  STATE    IN FLIGHT  REQUESTS  ERRORS
api       http://orders:3000  2 addresses    3m 1s ago  2       healthy  1          10        1
                              10.0.0.5:3000                     healthy  0          5         0
                              10.0.0.6:3000                     ejected  0          5         0
api       http://10.0.0.7     10.0.0.7:80    -          1       drained  0          0         0

ENDPOINT            STATE    SINCE (UTC)          BY               REASON
http://orders:3000  healthy  -                    -                the resolver fails: no server answers
http://10.0.0.7     drained  2026-07-03 12:00:00  operator at ::1  a new disk

http://gone of upstream api is drained, and not configured here. To forget that: tollgate undrain api http://gone

Counts are those of this instance since its start.
"
        );
    }
}
