//! `tollgate suggest --live`: limits by how close clients of a running Tollgate come to those in force.

use std::{fmt::Write as _, io, process::ExitCode, str::FromStr};

use bytes::Bytes;
use http::Method;
use tokio::runtime;

use super::{
    client::{self, AdminConnection, AdminError, Options},
    terminal::{printable, printable_json},
};
use crate::admin::dto::{LimitPeaks, Policies, Policy, PolicyPeaks};

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
    let own = || peaks.limits.iter().filter(|limit| limit.condition.is_none());
    let mut limits: Vec<(&LimitPeaks, u64)> = Vec::new();
    for limit in own() {
        let Some(suggested) = limit.suggested else { continue };
        // A policy that several routes use is one limit for all of them.
        match limits.iter_mut().find(|(known, _)| known.window == limit.window) {
            Some((_, most)) => *most = (*most).max(suggested),
            None => limits.push((limit, suggested)),
        }
    }
    let name = yaml_text(&policy.name);
    let settings = match limits.as_slice() {
        [] => {
            let _written = writeln!(out, "  # {name}: keep it as it is");
            return;
        }
        // The rate of a bucket stays; its size is what clients come close to.
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

fn evidence(out: &mut String, limit: &LimitPeaks) -> std::fmt::Result {
    let condition = limit.condition.as_ref().map(|of| format!(", for {}", printable(of))).unwrap_or_default();
    writeln!(out, "  # {} on {}{condition}", printable(&limit.limit), printable(&limit.route))?;
    let Some(quantiles) = &limit.quantiles else { return writeln!(out, "  #   no client was seen") };
    let about = if limit.exact { "" } else { "about " };
    writeln!(
        out,
        "  #   {about}{} clients; half stay within {}, 90% within {}, 99% within {}, 99.9% within {}; the highest is {}",
        limit.keys, quantiles.p50, quantiles.p90, quantiles.p99, quantiles.p99_9, quantiles.max
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
    match name.chars().all(is_plain) && name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => name.to_owned(),
        false => serde_json::Value::from(name).to_string(),
    }
}
