//! Policies, upstreams and routes: known by their names, whatever their places.

use std::sync::Arc;

use super::{
    Lines,
    words::{algorithm, endpoints, hosts, keys, limits, list, path, plain, time},
};
use crate::config::model::{BanRule, Config, Policy, Route, Timeouts, Upstream};

/// Tells what came and what went, and has `compare` tell what became of the rest.
fn named<T>(
    what: &str,
    (old, new): (&[T], &[T]),
    name: impl Fn(&T) -> &str,
    mut compare: impl FnMut(&T, &T, &mut Lines),
    lines: &mut Lines,
) {
    let find = |all: &[T], wanted: &T| all.iter().position(|known| name(known) == name(wanted));
    for gone in old.iter().filter(|known| find(new, known).is_none()) {
        lines.tell(format!("{what} {}: removed", name(gone)));
    }
    for item in new {
        match find(old, item).and_then(|place| old.get(place)) {
            None => lines.tell(format!("{what} {}: added", name(item))),
            Some(before) => {
                let mut own = Lines::default();
                compare(before, item, &mut own);
                lines.0.extend(own.0.into_iter().map(|line| format!("{what} {}: {line}", name(item))));
            }
        }
    }
}

impl Lines {
    /// As [`Lines::compare`], told as `limits 10/1s → 20/1s`.
    fn within<T: PartialEq + ?Sized>(&mut self, what: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if old != new {
            self.tell(format!("{what} {} → {}", show(old), show(new)));
        }
    }

    fn other<T: PartialEq + ?Sized>(&mut self, what: &str, old: &T, new: &T) {
        if old != new {
            self.tell(format!("{what} changed"));
        }
    }
}

pub(super) fn policies(old: &Config, new: &Config, lines: &mut Lines) {
    let both = (old.policies.as_slice(), new.policies.as_slice());
    named("policy", both, |policy| &policy.name, |old, new, lines| policy(old, new, lines), lines);
}

fn policy(old: &Policy, new: &Policy, lines: &mut Lines) {
    let Policy {
        name: _,
        algorithm: kind,
        keys: recipes,
        missing,
        value,
        tiers,
        count,
        on_store_error,
        record,
        cost,
        mode,
        count_denied,
        preflight,
        slice,
        exempt,
        overrides,
        reply,
    } = new;
    lines.within("algorithm", &old.algorithm, kind, algorithm);
    lines.within("limits", &old.tiers, tiers, |tiers| limits(tiers));
    lines.within("keys", &old.keys, recipes, |recipes| keys(recipes));
    lines.within("missing", &old.missing, missing, plain);
    lines.other("value", &old.value, value);
    lines.other("count", &old.count, count);
    lines.within("on_store_error", &old.on_store_error, on_store_error, plain);
    lines.within("record", &old.record, record, |record| {
        format!("{} for {}", record.keep, time(&record.retain))
    });
    lines.other("cost", &old.cost, cost);
    lines.within("mode", &old.mode, mode, plain);
    lines.within("count_denied", &old.count_denied, count_denied, bool::to_string);
    lines.within("preflight", &old.preflight, preflight, bool::to_string);
    lines.within("slice", &old.slice, slice, |slice| format!("{}%", slice * 100.0));
    lines.other("exempt", &old.exempt, exempt);
    lines.other("overrides", &old.overrides, overrides);
    lines.other("reply", &old.reply, reply);
}

pub(super) fn bans(old: &[Arc<BanRule>], new: &[Arc<BanRule>], lines: &mut Lines) {
    named("ban", (old, new), |rule| &rule.name, |old, new, lines| ban(old, new, lines), lines);
}

fn ban(old: &BanRule, new: &BanRule, lines: &mut Lines) {
    let BanRule { name: _, key, after, lasts, factor, jitter, max, mode, exempt, reply } = new;
    lines.within("key", &old.key, key, plain);
    lines.within("after", &old.after, after, |rate| limits(&[*rate]));
    lines.within("for", &old.lasts, lasts, time);
    lines.within("factor", &old.factor, factor, f64::to_string);
    lines.within("jitter", &old.jitter, jitter, f64::to_string);
    lines.within("max", &old.max, max, time);
    lines.within("mode", &old.mode, mode, plain);
    lines.other("exempt", &old.exempt, exempt);
    lines.other("reply", &old.reply, reply);
}

pub(super) fn upstreams(old: &Config, new: &Config, lines: &mut Lines) {
    let both = (old.upstreams.as_slice(), new.upstreams.as_slice());
    named("upstream", both, |upstream| &upstream.name, upstream, lines);
}

fn upstream(old: &Upstream, new: &Upstream, lines: &mut Lines) {
    let Upstream {
        name: _,
        endpoints: all,
        balance,
        timeouts: times,
        max_connections,
        idle_connections,
        host,
    } = new;
    lines.within("endpoints", &old.endpoints, all, |all| endpoints(all));
    lines.within("balance", &old.balance, balance, plain);
    timeouts(&old.timeouts, times, lines);
    lines.within("max_connections", &old.max_connections, max_connections, usize::to_string);
    lines.within("idle_connections", &old.idle_connections, idle_connections, usize::to_string);
    lines.within("host", &old.host, host, plain);
}

fn timeouts(old: &Timeouts, new: &Timeouts, lines: &mut Lines) {
    lines.within("timeouts.connect", &old.connect, &new.connect, time);
    lines.within("timeouts.response", &old.response, &new.response, time);
    lines.within("timeouts.idle", &old.idle, &new.idle, time);
}

pub(super) fn routes(old: &Config, new: &Config, lines: &mut Lines) {
    let name = |route: &Route| -> String { route.name.clone() };
    let compare = |before: &Route, now: &Route, lines: &mut Lines| {
        let Route {
            name: _,
            hosts: patterns,
            path: pattern,
            methods,
            headers,
            upstream,
            policies,
            timeouts: times,
        } = now;
        lines.within("hosts", &before.hosts, patterns, |patterns| hosts(patterns));
        lines.within("path", &before.path, pattern, path);
        lines.within("methods", &before.methods, methods, |methods| list(methods));
        lines.other("headers", &before.headers, headers);
        let (was, is) = (upstream_name(old, before.upstream), upstream_name(new, *upstream));
        lines.within("upstream", was, is, str::to_owned);
        let (were, are) = (policy_names(old, &before.policies), policy_names(new, policies));
        lines.within("policies", &were, &are, |names| list(names));
        timeouts(&before.timeouts, times, lines);
    };
    let both = (old.routes.as_slice(), new.routes.as_slice());
    named("route", both, |route| &route.name, compare, lines);
    // Those that both have, in the order in which each tries them.
    let order = |of: &Config, other: &Config| -> Vec<String> {
        let known = |route: &&Route| other.routes.iter().any(|also| also.name == route.name);
        of.routes.iter().filter(known).map(name).collect()
    };
    if order(old, new) != order(new, old) {
        lines.tell("routes: tried in another order");
    }
}

fn upstream_name(config: &Config, index: usize) -> &str {
    config.upstreams.get(index).map_or("", |upstream| upstream.name.as_str())
}

fn policy_names(config: &Config, indexes: &[usize]) -> Vec<String> {
    indexes.iter().filter_map(|&index| config.policies.get(index)).map(|policy| policy.name.clone()).collect()
}
