//! `tollgate suggest --live`: limits by how close clients of a running Tollgate come to those in force.

use std::{fmt::Write as _, io, process::ExitCode, str::FromStr};

use bytes::Bytes;
use http::Method;
use tokio::runtime;

use super::{
    client::{self, AdminConnection, AdminError, Options},
    terminal::{printable, printable_json},
};
use crate::{
    admin::dto::{LimitPeaks, Policies, Policy, PolicyPeaks},
    text::yaml_quoted,
};

/// The share of the clients that a limit spares, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spare(pub f64);

impl FromStr for Spare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self).ok_or_else(|| "expected a percentage from 0% to 100%, such as 99.9%".to_owned())
    }
}

/// Asks the admin port for the peaks of all policies, and prints a limit for each that spares this share of the clients.
pub(super) fn run_live(options: &Options, spare: Spare) -> ExitCode {
    client::print_result(output(options, spare))
}

fn output(options: &Options, spare: Spare) -> Result<String, AdminError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let found =
        runtime.block_on(client::with_timeout(options, client::TIMEOUT, all_peaks(options, spare)))?;
    if options.json {
        let peaks: Vec<&PolicyPeaks> = found.iter().map(|(_, peaks)| peaks).collect();
        let text = serde_json::to_string_pretty(&peaks).map_err(io::Error::other)?;
        return Ok(printable_json(&text) + "\n");
    }
    Ok(suggestions(&found, spare))
}

/// Each policy that a route uses, with its peaks.
async fn all_peaks(options: &Options, spare: Spare) -> Result<Vec<(Policy, PolicyPeaks)>, AdminError> {
    let mut connection = AdminConnection::open(options).await?;
    let policies: Policies = connection.request(Method::GET, "/v1/policies", Bytes::new()).await?;
    let mut all = Vec::new();
    for policy in policies.policies.into_iter().filter(|policy| !policy.routes.is_empty()) {
        let path = format!("/v1/policies/{}/peaks", client::percent_encoded(&policy.name));
        let target = client::with_query(&path, &[("spare", Some(&spare.0.to_string()))]);
        let peaks = connection.request(Method::GET, &target, Bytes::new()).await?;
        all.push((policy, peaks));
    }
    Ok(all)
}

/// A policy with a limit for each of its limits, in the form of proxy.yaml, with the evidence as comments.
fn suggestions(all: &[(Policy, PolicyPeaks)], spare: Spare) -> String {
    if all.is_empty() {
        return "# No route has a policy: no request is limited.\n".to_owned();
    }
    let mut out = format!(
        "# Limits that would have spared {}% of the clients, by the peaks that this instance has seen in the last 24\n\
         # hours. The peak of a client is the most units that it had in use in one window, with those that were denied.\n\
         # Settings that are not shown here stay as they are in proxy.yaml.\n\
         policies:\n",
        spare.0
    );
    for (policy, peaks) in all {
        suggest(&mut out, policy, peaks);
    }
    out
}

fn suggest(out: &mut String, policy: &Policy, peaks: &PolicyPeaks) {
    for limit in &peaks.limits {
        // Writing to a string does not fail.
        let _written = evidence(out, limit);
    }
    let limits = own_limits(peaks);
    let name = yaml_text(&policy.name);
    let settings = match limits.as_slice() {
        [] => {
            let _written = writeln!(out, "  # {name}: keep it as it is");
            return;
        }
        // The rate of a bucket stays; clients come close to its size.
        [(limit, units)] if policy.algorithm == "gcra" => {
            format!("limit: {}, burst: {}", without_zone(&limit.limit), (*units).max(1))
        }
        [(limit, units)] => format!("limit: {}", rate(limit, *units)),
        several => {
            let rates: Vec<String> = several.iter().map(|(limit, units)| rate(limit, *units)).collect();
            format!("limits: [{}]", rates.join(", "))
        }
    };
    let keys: Vec<String> = policy.keys.iter().map(|key| yaml_text(key)).collect();
    let key = match keys.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let mode = if policy.mode == "shadow" { ", mode: shadow" } else { "" };
    let _written =
        writeln!(out, "  {name}: {{ algorithm: {}, key: {key}, {settings}{mode} }}", policy.algorithm);
}

/// The policy's own limits with the suggested units, the shortest window first. Empty: no client was seen.
fn own_limits(peaks: &PolicyPeaks) -> Vec<(&LimitPeaks, u64)> {
    let own = || peaks.limits.iter().filter(|limit| limit.condition.is_none());
    if own().all(|limit| limit.suggested.is_none()) {
        return Vec::new();
    }
    let mut limits: Vec<(&LimitPeaks, Option<u64>)> = Vec::new();
    for limit in own() {
        // A policy that several routes use is one limit for all of them.
        match limits.iter_mut().find(|(known, _)| known.window == limit.window) {
            Some((_, most)) => *most = (*most).max(limit.suggested),
            None => limits.push((limit, limit.suggested)),
        }
    }
    // A longer window must not allow less than a shorter one. A window without a suggestion keeps its limit. Windows longer
    // than one that has denied are not lowered: they did not see the denied requests.
    let (mut least, mut has_denied) = (0, false);
    let rising = limits.into_iter().map(|(limit, suggested)| {
        let suggested = suggested.unwrap_or(limit.units);
        least = if has_denied { suggested.max(limit.units) } else { suggested }.max(least);
        has_denied |= limit.shares.iter().any(|share| share.up_to.is_none() && share.keys > 0);
        (limit, least)
    });
    rising.collect()
}

fn evidence(out: &mut String, limit: &LimitPeaks) -> std::fmt::Result {
    let condition = limit.condition.as_ref().map(|of| format!(", for {}", printable(of))).unwrap_or_default();
    writeln!(out, "  # {} on {}{condition}", printable(&limit.limit), printable(&limit.route))?;
    let Some(quantiles) = &limit.quantiles else { return writeln!(out, "  #   no client was seen") };
    let about = if limit.exact { "" } else { "about " };
    writeln!(
        out,
        "  #   {about}{}; half stay within {}, 90% within {}, 99% within {}, 99.9% within {}; the highest is {}",
        clients(limit.keys),
        quantiles.p50,
        quantiles.p90,
        quantiles.p99,
        quantiles.p99_9,
        quantiles.max
    )?;
    let above = limit.shares.iter().find(|share| share.up_to.is_none());
    if let Some(above) = above.filter(|above| above.keys > 0) {
        writeln!(out, "  #   {about}{} of them came above the limit of {}", above.keys, limit.units)?;
    }
    if let Some(suggested) = limit.suggested.filter(|_| limit.condition.is_some()) {
        writeln!(out, "  #   suggested: {}", rate(limit, suggested))?;
    }
    Ok(())
}

fn clients(keys: u64) -> String {
    if keys == 1 { "1 client".to_owned() } else { format!("{keys} clients") }
}

/// A limit as proxy.yaml has it: `60/1m`; for `concurrency` and the bucket of `gcra`, a number.
fn rate(limit: &LimitPeaks, units: u64) -> String {
    let units = units.max(1);
    match limit.limit.split_once('/') {
        Some((_, window)) => format!("{units}/{}", without_zone(window)),
        None => units.to_string(),
    }
}

/// `1000/month` of `1000/month (Europe/Berlin)`
fn without_zone(limit: &str) -> &str {
    limit.split_once(" (").map_or(limit, |(limit, _)| limit)
}

/// A name or a key as a scalar of YAML.
fn yaml_text(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | ':' | '=');
    // Words of YAML 1.1, which other tools may read.
    let is_word =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*name.to_ascii_lowercase());
    let is_text = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.ends_with(':');
    match name.chars().all(is_plain) && is_text && !is_word {
        true => name.to_owned(),
        false => yaml_quoted(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::ShareOfKeys;

    fn limit(text: &str, units: u64, suggested: Option<u64>) -> LimitPeaks {
        LimitPeaks {
            route: "api".into(),
            condition: None,
            limit: text.into(),
            units,
            window: text.split_once('/').map(|(_, window)| window.to_owned()),
            keys: 0,
            sampled: 0,
            exact: true,
            quantiles: None,
            shares: Vec::new(),
            highest: Vec::new(),
            suggested,
            change: None,
        }
    }

    fn suggested(limits: Vec<LimitPeaks>) -> Vec<u64> {
        let peaks = PolicyPeaks {
            policy: "p".into(),
            algorithm: "fixed_window".into(),
            mode: "enforce".into(),
            limits,
        };
        own_limits(&peaks).iter().map(|(_, units)| *units).collect()
    }

    #[test]
    fn a_longer_window_never_allows_less_and_an_unknown_one_stays() {
        let tiers = |minute, hour| vec![limit("100/1m", 100, minute), limit("500/1h", 500, hour)];
        assert_eq!(suggested(tiers(Some(180), Some(90))), [180, 180]);
        assert_eq!(suggested(tiers(Some(20), None)), [20, 500]);
        assert_eq!(suggested(tiers(None, None)), [0; 0]);
        // The hour has not seen the requests that the minute has denied: its limit stays.
        let mut denying = tiers(Some(180), Some(300));
        denying[0].shares = vec![ShareOfKeys { above: 100, up_to: None, keys: 1, share: 0.1 }];
        assert_eq!(suggested(denying), [180, 500]);
        // Of two routes, the higher one counts.
        let routes = [tiers(Some(20), Some(60)), tiers(Some(30), None)].concat();
        assert_eq!(suggested(routes), [30, 60]);
    }

    #[test]
    fn rates_names_and_shares_are_written_as_proxy_yaml_has_them() {
        assert_eq!(rate(&limit("1000/month (Europe/Berlin)", 1_000, None), 70), "70/month");
        assert_eq!(rate(&limit("2 at a time", 2, None), 0), "1");
        assert_eq!(["true", "No", "a:"].map(yaml_text), ["\"true\"", "\"No\"", "\"a:\""]);
        assert_eq!(
            ["per-ip", "ip+path", "a b", "1"].map(yaml_text),
            ["per-ip", "ip+path", "\"a b\"", "\"1\""]
        );
        let parse = |text: &str| text.parse::<Spare>().map(|spare| spare.0);
        assert_eq!([parse("99.9%"), parse("99"), parse("0 %")], [Ok(99.9), Ok(99.0), Ok(0.0)]);
        assert!(["", "%", "101%", "-1%", "NaN", "all"].into_iter().all(|text| parse(text).is_err()));
    }
}
