//! The suggestion as YAML, with its evidence in comments.

use std::fmt::Write;

use super::{
    distribution::{HistogramRow, Knee},
    evidence::{Appearance, MAX_VALUES},
    path_groups::PathGroup,
    suggestion::{
        ClientAbove, MeasuredWindow, ReplayedSuggestion, SuggestedOverride, SuggestedPolicy, SuggestedRoute,
        Suggestion,
    },
};
use crate::{
    config::model::{KeyPart, KeyRecipe},
    text::yaml_quoted,
};

/// The width of the longest bar of a histogram.
const BAR: usize = 40;
/// With fewer clients, nothing is usual.
const FEW_CLIENTS: usize = 30;

/// The upstream and the routes of a configuration: one for each group, with these policies, and one for all other
/// requests, with the policies `general`. Policies are written `a, b`.
pub(super) fn routes<'g>(groups: impl Iterator<Item = (&'g PathGroup, String)>, general: &str) -> String {
    let mut out = "upstreams:\n  # Replace this by the address of your service.\n  \
                   service: { endpoints: [\"http://127.0.0.1:3000\"] }\n\nroutes:\n"
        .to_owned();
    let policies =
        |names: &str| if names.is_empty() { String::new() } else { format!(", policies: [{names}]") };
    for (PathGroup { method, path }, names) in groups {
        let path = quoted(path);
        out +=
            &format!("  - {{ path: {path}, methods: [{method}], upstream: service{} }}\n", policies(&names));
    }
    out += &format!("  - {{ path: /*, upstream: service{} }}\n", policies(general));
    out
}

/// Text that YAML takes for a string in a flow mapping.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/*-_.".contains(c);
    match text.starts_with('/') && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => yaml_quoted(text),
    }
}

/// The whole output. `listed`: the clients above a limit that are listed. `is_whole`: whether it is a whole configuration.
pub(super) fn write(suggestion: &Suggestion, key: &KeyRecipe, listed: usize, is_whole: bool) -> String {
    let mut out = head(suggestion);
    if is_whole && key.0.contains(&KeyPart::User) {
        out += "\nuser:\n  # Replace this by what names your users: see docs/identity.md.\n  - basic\n";
    }
    out += "\npolicies:\n";
    let suggested = suggestion.routes.iter().filter_map(|route| Some((route, route.policy.as_ref()?)));
    for (nth, (route, policy)) in suggested.clone().enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        for line in evidence(suggestion, route, policy, key, listed).lines() {
            let line = format!("  # {line}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out += &policy_text(policy, key);
    }
    out.push('\n');
    if is_whole {
        let groups: Vec<_> = suggested
            .clone()
            .skip(1)
            .map(|(route, policy)| {
                let method = route.methods.first().and_then(|method| method.parse().ok()).unwrap_or_default();
                (PathGroup { method, path: route.route.clone() }, policy.name.clone())
            })
            .collect();
        let general = suggested.clone().next().map(|(_, policy)| policy.name.clone()).unwrap_or_default();
        let groups = groups.iter().map(|(group, name)| (group, format!("{general}, {name}")));
        out += &routes(groups, &general);
        out += &others(suggestion);
    } else {
        out += "# Add these policies to those of your file, and their names to the routes:\n";
        let name = |route: &SuggestedRoute, policy: &SuggestedPolicy| {
            format!("#   route {}: policies: [{}]\n", route.route, policy.name)
        };
        out.extend(suggested.map(|(route, policy)| name(route, policy)));
        for route in suggestion.routes.iter().filter(|route| route.policy.is_none()) {
            let lacking = number(route.not_in_log, "request");
            out += &format!(
                "#   route {}: none, because the log does not have the {key} of its {lacking}\n",
                route.route
            );
        }
    }
    out
}

/// About the logs, and the whole suggestion.
fn head(suggestion: &Suggestion) -> String {
    let Suggestion { requests, first, last, spare, refused, unknown, late, without_host, spread, .. } =
        suggestion;
    let mut lines = vec![format!(
        "Suggested by tollgate suggest, from {} between {} and {} UTC.",
        number(*requests, "request"),
        moment(first),
        moment(last)
    )];
    match &suggestion.replayed {
        Some(ReplayedSuggestion { requests, denied, denied_clients }) => lines.push(format!(
            "Replayed over the same log, these policies deny {} of {} ({}), from {}.",
            thousands(*denied),
            number(*requests, "request"),
            share(*denied, *requests),
            number(*denied_clients as u64, "client"),
        )),
        None => lines.push(
            "Not replayed, and not measured by path: standard input can be read only once. Give the log as a file.".to_owned(),
        ),
    }
    lines.push(format!(
        "Each limit is above the peaks of {spare} of the clients, or below a knee, above those of all clients there."
    ));
    if *spread {
        lines.push("The log has whole seconds: the requests of a second were spread evenly over it. Peaks in windows up to 1s are".into());
        lines
            .push("estimates, so those limits have twice the room. For exact ones, log milliseconds.".into());
    }
    if *refused > 0 {
        lines.push(format!(
            "{} reached no policy: without a route, malformed, or refused before.",
            number(*refused, "request")
        ));
    }
    if *unknown > 0 {
        lines.push(format!(
            "{} not measured: the route depends on the listener, which no log has.",
            number(*unknown, "request")
        ));
    }
    if *late > 0 {
        lines.push(format!(
            "{} too far out of order, and taken to have come later. Give each log as an argument of its own.",
            number(*late, "request")
        ));
    }
    if *without_host > 0 {
        lines.push(format!(
            "{} without a host in the log. Each was taken to be for the host of the first route that matches.",
            number(*without_host, "request")
        ));
    }
    if !suggestion.without_requests.is_empty() {
        lines.push(format!("Without requests: {}.", suggestion.without_requests.join(", ")));
    }
    let unreadable = &suggestion.unreadable;
    if unreadable.count > 0 {
        let lines_of = number(unreadable.count, "line");
        lines.push(format!("{lines_of} could not be read, such as {}.", unreadable.examples.join(", ")));
    }
    lines.into_iter().map(|line| format!("# {}\n", line.replace(['\n', '\r'], " "))).collect()
}

/// About one policy.
fn evidence(
    suggestion: &Suggestion,
    route: &SuggestedRoute,
    policy: &SuggestedPolicy,
    key: &KeyRecipe,
    listed: usize,
) -> String {
    let SuggestedRoute { requests, clients, not_in_log, windows, .. } = route;
    let what = match route.methods.as_slice() {
        [] => format!("Route {}", route.route),
        methods => format!("{} {}", methods.join(", "), route.route),
    };
    let mut out = format!(
        "{what}: {} of {} by {key}. The most that a client sends in any window:\n",
        number(*requests, "request"),
        number(*clients as u64, "client"),
    );
    if *not_in_log > 0 {
        let lacking = number(*not_in_log, "request");
        let _ = writeln!(out, "{lacking} not counted: the log does not have their {key}.");
    }
    let head = ["WINDOW", "HALF", "90%", "99%", "99.9%", "MOST", "LIMIT", "CLIENTS ABOVE"];
    out.push('\n');
    out += &table(&head.map(str::to_owned), windows.iter().map(window_row));
    out.push('\n');
    if *clients < FEW_CLIENTS {
        let _ = writeln!(
            out,
            "Only {}: too few to tell what is usual. Take a longer log before you enforce this.",
            number(*clients as u64, "client")
        );
    }
    for MeasuredWindow { window, knee, .. } in windows {
        if let Some(Knee { below, above, clients_above }) = knee {
            let below_knee = number((*clients - clients_above) as u64, "client");
            let _ = writeln!(
                out,
                "Knee in {window}: {below_knee} at most {}, then {} at {} or more.",
                thousands((*below).into()),
                thousands(*clients_above as u64),
                thousands((*above).into())
            );
        }
    }
    if windows.iter().all(|window| window.knee.is_none()) {
        out += "No knee: no client stands apart from the others.\n";
    }
    let shown = windows.iter().find(|window| window.knee.is_some()).or(windows.last());
    if let Some(MeasuredWindow { window, histogram, .. }) = shown {
        let _ = writeln!(out, "\nClients by their peak in {window}:\n\n{}", bars(histogram));
    }
    if !policy.above.is_empty() {
        let _ = writeln!(out, "{} above a limit:\n", are(policy.clients_above));
        out += &clients_table(windows, policy.above.iter().take(listed), suggestion.replayed.is_some());
        let more = policy.clients_above - policy.above.len().min(listed);
        if more > 0 {
            let _ = writeln!(out, "  and {}", number(more as u64, "more client"));
        }
        out.push('\n');
        if policy.above.iter().take(listed).any(|client| client.looks_like == Appearance::Shared) {
            out += "Many people seem to share an address above: consider a key for each of them, such as --key user.\n";
        }
    }
    if let (Some(denied), Some(clients)) = (policy.denied, policy.denied_clients) {
        let _ = writeln!(
            out,
            "In the replay, this policy denies {} of these requests ({}), from {}.",
            thousands(denied),
            share(denied, *requests),
            number(clients as u64, "client")
        );
    }
    let unneeded: Vec<_> = windows.iter().filter(|window| !window.is_needed).map(|of| &*of.window).collect();
    if !unneeded.is_empty() {
        let _ = writeln!(out, "Without a limit for {}: the others imply it.", unneeded.join(" and "));
    }
    out
}

fn policy_text(policy: &SuggestedPolicy, key: &KeyRecipe) -> String {
    let mut out = format!(
        "  {}:\n    algorithm: sliding_window\n    key: {}\n    limits: [{}]\n",
        policy.name,
        quoted_key(key),
        policy.limits.join(", ")
    );
    if !policy.overrides.is_empty() {
        out += "    overrides:\n";
    }
    for SuggestedOverride { ip, limits, client } in &policy.overrides {
        out += &format!("      # {}: many people seem to share this address.\n", traits(client));
        out += &format!("      - {{ ip: \"{ip}\", limits: [{}] }}\n", limits.join(", "));
    }
    out
}

/// `60 user agents, 400 paths`
fn traits(client: &ClientAbove) -> String {
    let counts = [(client.user_agents, "user agent"), (client.users, "user"), (client.paths, "path")];
    let counts =
        counts.into_iter().filter_map(|(count, what)| Some((count.filter(|&count| count > 0)?, what)));
    counts.map(|(count, what)| number(count as u64, what)).collect::<Vec<_>>().join(", ")
}

fn quoted_key(key: &KeyRecipe) -> String {
    let text = key.to_string();
    match text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'+' || byte == b'_') {
        true => text,
        false => serde_json::to_string(&text).unwrap_or_default(),
    }
}

/// The groups of paths without limits of their own.
fn others(suggestion: &Suggestion) -> String {
    let others: Vec<_> = suggestion.routes.iter().filter(|route| route.policy.is_none()).collect();
    let Some(first) = others.first() else { return String::new() };
    let mut head = vec!["PATHS".to_owned(), "REQUESTS".to_owned(), "CLIENTS".to_owned()];
    head.extend(first.windows.iter().map(|window| format!("99.9% IN {}", window.window)));
    let rows = others.iter().map(|route| {
        let mut row = vec![
            format!("{} {}", route.methods.join(", "), route.route),
            thousands(route.requests),
            thousands(route.clients as u64),
        ];
        row.extend(route.windows.iter().map(|window| thousands(window.p999.into())));
        row
    });
    let mut out =
        "\n# No limits of their own, since the general policy seems to be enough for these paths:\n#\n"
            .to_owned();
    for line in table(&head, rows).lines() {
        let _ = writeln!(out, "#   {line}");
    }
    out
}

fn window_row(of: &MeasuredWindow) -> Vec<String> {
    let peaks = [of.p50, of.p90, of.p99, of.p999, of.max].map(|peak| thousands(peak.into()));
    let limit = if of.is_needed { thousands(of.limit) } else { "-".to_owned() };
    let mut row = vec![of.window.clone()];
    row.extend(peaks);
    row.extend([limit, thousands(of.clients_above as u64)]);
    row
}

fn clients_table<'c>(
    windows: &[MeasuredWindow],
    clients: impl Iterator<Item = &'c ClientAbove>,
    is_replayed: bool,
) -> String {
    let mut head = vec!["KEY".to_owned()];
    head.extend(windows.iter().map(|window| format!("IN {}", window.window)));
    head.push("REQUESTS".to_owned());
    if is_replayed {
        head.extend(["DENIED", "USER AGENTS", "PATHS", "LOOKS LIKE"].map(str::to_owned));
    }
    let count = |count: Option<usize>| match count {
        Some(0) | None => "-".to_owned(),
        Some(count @ MAX_VALUES..) => format!("{}+", thousands(count as u64)),
        Some(count) => thousands(count as u64),
    };
    let rows = clients.map(|client| {
        let mut row = vec![client.key.replace(['\n', '\r'], " ")];
        row.extend(client.peaks.iter().map(|&peak| thousands(peak.into())));
        row.push(thousands(client.requests));
        if is_replayed {
            let looks_like = match client.looks_like {
                Appearance::Script => "a script",
                Appearance::Shared => "many people",
                Appearance::Unknown => "-",
            };
            row.push(client.denied.map_or_else(|| "-".to_owned(), thousands));
            row.extend([count(client.user_agents), count(client.paths), looks_like.to_owned()]);
        }
        row
    });
    table(&head, rows)
}

fn bars(rows: &[HistogramRow]) -> String {
    let most = rows.iter().map(|row| row.clients).max().unwrap_or(1).max(1);
    let cells = rows.iter().map(|HistogramRow { from, to, clients }| {
        let range = if from == to { from.to_string() } else { format!("{from}-{to}") };
        vec![range, clients.to_string(), "#".repeat((clients * BAR).div_ceil(most))]
    });
    table(&[], cells)
}

/// Columns two spaces apart, indented by two. Numbers are aligned to the right.
fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<_> = std::iter::once(head.to_vec()).chain(rows).collect();
    lines.retain(|line| !line.is_empty());
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (nth, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let is_number = cell.bytes().all(|byte| byte.is_ascii_digit() || b",-+".contains(&byte));
            let is_left = nth == 0 || !is_number && line != head;
            text += &if is_left { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

/// `1 client is`, `2 clients are`
fn are(clients: usize) -> String {
    format!("{} {}", number(clients as u64, "client"), if clients == 1 { "is" } else { "are" })
}

/// `1 request`, `1,234 requests`
fn number(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// `1,234,567`
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// `2026-07-03 12:00:01` for a time in RFC 3339.
fn moment(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}
