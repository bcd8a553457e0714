//! Stick tables: policies.

use std::ptr;

use super::{
    Output,
    conditions::{AclScope, RateTest, fetched},
    rules::RuleCollector,
    syntax::{ConfigLine, Section, milliseconds},
};
use crate::offline::convert::{
    condition::{RequestCondition, Truth},
    draft::{duration, is_field_name, resource_name},
    site::{Edit, Effect, SiteRule},
    yaml::{Comment, Map, YamlNode},
};

/// The longest key that a stick table has if it does not say so.
const USUAL_LENGTH: u64 = 32;

/// A `track-sc` rule.
#[derive(Clone)]
pub(super) struct Tracker<'c> {
    /// The number of its counter.
    index: Option<u8>,
    key: &'c str,
    /// The section with the stick table.
    table: &'c Section,
    /// The requests that it counts.
    counted: RequestCondition,
    pub(super) line: &'c ConfigLine,
    /// Before which rule of the section it counts. `None`: it has not been run yet.
    pub(super) at: Option<usize>,
    /// It is one of the frontend, in a backend.
    pub(super) is_of_frontend: bool,
}

impl<'c> Tracker<'c> {
    /// The rule of a line, if it is one. `earlier`: those that ran before it in the section. A request counts once for
    /// each counter.
    pub(super) fn of(
        line: &'c ConfigLine,
        section: &'c Section,
        scope: &AclScope<'c>,
        earlier: &[Self],
    ) -> Option<Self> {
        let at = line.words.iter().take(3).position(|word| word.starts_with("track-sc"))?;
        let index = line.word(at)["track-sc".len()..].parse().ok();
        let table = line.after("table").and_then(|name| scope.source.section(name)).unwrap_or(section);
        let same = earlier.iter().filter(|other| other.index == index);
        let counted = same.fold(scope.condition(line), |when, other| when.and(other.counted.clone().not()));
        let key = line.words.get(at + 1).map_or("", String::as_str);
        Some(Self { index, key, table, counted, line, at: None, is_of_frontend: false })
    }

    fn is_of_connections(&self) -> bool {
        matches!(self.line.word(1), "connection" | "session")
    }
}

/// `deny if …` by a rate: requests that meet `when` as well get `status`. The policy stands where the requests are
/// counted, since those that a rule between the two refuses count as well.
pub(super) fn limit<'c>(
    run: &mut RuleCollector<'c>,
    out: &mut Output,
    line: &'c ConfigLine,
    when: &RequestCondition,
    rate: &RateTest,
    denial: &Effect,
) {
    let source = run.scope.source;
    let named = rate.table.as_deref().and_then(|name| source.section(name));
    let reads = |tracker: &&Tracker<'c>| {
        named.is_none_or(|table| ptr::eq(table, tracker.table))
            && match rate.tracked {
                Some(_) => tracker.index == rate.tracked && (tracker.at.is_some() || tracker.is_of_frontend),
                // The entry of the address, whoever tracks it.
                None => tracker.key == "src" && (named.is_some() || ptr::eq(tracker.table, run.section)),
            }
    };
    let trackers: Vec<Tracker<'c>> = run.trackers.iter().filter(reads).cloned().collect();
    if trackers.is_empty() {
        return match rate.tracked {
            Some(_) => {
                run.note(line, when.clone(), "no rule before tracks this counter, so that it never denies");
            }
            None => run.close(line, when.clone(), "nothing in this section counts for it: write a policy"),
        };
    }
    for tracker in trackers {
        let counted = tracker.counted.clone();
        let both = when.clone().and(counted.clone());
        if rate.tracked.is_none() && counted != RequestCondition::ALWAYS {
            let others = when.clone().and(counted.clone().not());
            run.close(line, others, "it also denies requests that do not count");
        }
        let edits = |rule: &SiteRule| matches!(rule.effect, Effect::Edit(Edit::Path(_) | Edit::Request(_)));
        let is_edited = tracker.at.is_some_and(|at| run.rules[at..].iter().any(edits));
        if is_edited && *when != RequestCondition::ALWAYS {
            run.close(line, both, "requests count before a rule changes what this one compares");
            continue;
        }
        match policy(run, out, line, &tracker, rate, denial, &both) {
            Ok(Some(policy)) => run.insert(tracker.at, line, both, Effect::Limit { policy, counted }),
            // `client_limits` does it.
            Ok(None) => {}
            Err(text) => run.close(line, both, &text),
        }
    }
}

/// The policy for a rate of requests that meet `both`. `None`: it is another setting.
///
/// # Errors
/// Why no policy can do it, and the alternative for the operator.
fn policy<'c>(
    run: &mut RuleCollector<'c>,
    out: &mut Output,
    line: &'c ConfigLine,
    tracker: &Tracker<'c>,
    rate: &RateTest,
    denial: &Effect,
    both: &RequestCondition,
) -> Result<Option<String>, String> {
    let most = rate.most.ok_or("Tollgate compares rates with `gt` and `ge` only")?;
    let Effect::Refuse(status) = *denial else {
        return Err("a policy answers with a status from 400 to 599".to_owned());
    };
    if tracker.is_of_frontend {
        return Err("requests to other backends count, too, and are not denied there".to_owned());
    }
    if let Some(section) = counts_elsewhere(run, tracker, rate) {
        let name = section.head.shown();
        return Err(format!("requests of `{name}` count, too, and are not denied there"));
    }
    let (key, note) = key_of(tracker.key)?;
    let lengths = tracker.table.lines.iter().filter(|line| line.word(0) == "stick-table");
    let is_cut = |length: &str| length.parse().map_or(true, |length: u64| length < USUAL_LENGTH);
    if key != "ip" && lengths.filter_map(|line| line.after("len")).any(is_cut) {
        return Err("the stick table cuts its keys off, so that several clients count as one".to_owned());
    }
    if rate.counter == "conn_cur" && tracker.is_of_connections() {
        if key != "ip" || *both != RequestCondition::ALWAYS {
            return Err("Tollgate limits connections by address, and for all requests alike".to_owned());
        }
        out.client_limit(line, "connections_per_address", most.clamp(1, 10_000_000));
        return Ok(None);
    }
    let map = rate_map(tracker, rate, &key, most)?;
    let comments = note.into_iter().map(|text| tracker.line.note(text)).collect();
    let (name, of) = named(out, tracker, map, status, comments);
    if of != status {
        run.note(line, RequestCondition::ALWAYS, &format!("the policy of this table answers {of}"));
    }
    Ok(Some(name))
}

/// The name of a policy for a table, and its status: one table has one count.
fn named(
    out: &mut Output,
    tracker: &Tracker<'_>,
    map: Map,
    status: u16,
    comments: Vec<Comment>,
) -> (String, u16) {
    let table = &tracker.table.head.place;
    let known = out.policies.iter().find(|(known, one, ..)| known == table && *one == map);
    if let Some((.., of, name)) = known {
        return (name.clone(), *of);
    }
    let name = resource_name(tracker.table.name(), |name| out.draft.policies.has(name));
    out.policies.push((table.clone(), map.clone(), status, name.clone()));
    let mut map = map;
    map.extend_some("reply", (status != 429).then(|| Map::new().with("status", u64::from(status))));
    out.draft.policies.set(&name, YamlNode { comments, ..YamlNode::from(map) });
    (name, status)
}

/// The settings of a policy for a rate that denies beyond `most`.
///
/// # Errors
/// Why no policy can count it.
fn rate_map(tracker: &Tracker<'_>, rate: &RateTest, key: &str, most: u64) -> Result<Map, String> {
    let is_first = tracker.at.is_some();
    let (statuses, extra) = match rate.counter.as_str() {
        "http_req_rate" => (None, u64::from(!is_first)),
        // A request is one of them when it is counted.
        "conn_cur" => (None, 0),
        // An error counts when the response is there, so that one more than the number passes.
        "http_err_rate" => (Some("4xx"), 1),
        "http_fail_rate" => (Some("5xx"), 1),
        counter => {
            return Err(format!("`{counter}` counts no requests in a time: see docs/bans.md for marks"));
        }
    };
    let most = most.saturating_add(extra);
    if !(1..=1_000_000_000).contains(&most) {
        return Err("a policy has a limit from 1 to 1000000000".to_owned());
    }
    let map = |algorithm: &str| Map::new().with("algorithm", algorithm).with("key", key);
    if rate.counter == "conn_cur" {
        return Ok(map("concurrency").with("limit", most));
    }
    let window = period(tracker.table, &rate.counter).filter(|window| *window > 0).ok_or_else(|| {
        format!("the stick table of `{}` does not store `{}`", tracker.table.name(), rate.counter)
    })?;
    let map = map("sliding_window").with("limit", format!("{most}/{}", duration(window)));
    Ok(match statuses {
        Some(statuses) => map.with("count", Map::new().with("statuses", vec![statuses])),
        None if is_first => map.with("count_denied", true),
        None => map,
    })
}

/// Another section whose requests count in the same table, and are not denied by the same number.
fn counts_elsewhere<'c>(
    run: &RuleCollector<'c>,
    tracker: &Tracker<'c>,
    rate: &RateTest,
) -> Option<&'c Section> {
    let source = run.scope.source;
    source.sections.iter().find(|section| {
        let lines = source.lines(section);
        if ptr::eq(*section, run.section) || super::is_disabled(&lines) {
            return false;
        }
        let scope = AclScope::new(source, &lines);
        let counts = |line: &&'c ConfigLine| {
            let other = Tracker::of(line, section, &scope, &[]);
            other.is_some_and(|other| ptr::eq(other.table, tracker.table) && other.key == tracker.key)
        };
        let denies = |line: &&'c ConfigLine| {
            let (_, rates) = scope.limits(line);
            let is_whole = |rest: &RequestCondition| {
                rest.of_any_address().of_place().truth(&|_| None) == Ok(Truth::True)
            };
            let same = |one: &RateTest| one.counter == rate.counter && one.most == rate.most;
            line.has("deny") && rates.iter().any(|(rest, one)| same(one) && is_whole(rest))
        };
        lines.iter().any(counts) && !lines.iter().any(denies)
    })
}

/// The window of a counter in the stick table of a section, in milliseconds.
fn period(section: &Section, counter: &str) -> Option<u64> {
    let tables = section.lines.iter().filter(|line| line.word(0) == "stick-table" && !line.is_in_doubt);
    let stored = tables.flat_map(|line| line.words.iter()).flat_map(|word| word.split(','));
    stored
        .filter_map(|word| word.strip_prefix(counter)?.strip_prefix('(')?.strip_suffix(')'))
        .find_map(milliseconds)
}

/// The key of a policy for the tracked value, and the differences.
pub(super) fn key_of(fetch: &str) -> Result<(String, Option<&'static str>), String> {
    const OPTIONAL: &str =
        "HAProxy does not track a request without this value; Tollgate limits it by its address";
    let (name, arguments, converters) = fetched(fetch);
    let argument = arguments.split(',').next().unwrap_or_default();
    let of_name = match (name, argument.to_ascii_lowercase().as_str()) {
        _ if !converters.is_empty() => String::new(),
        ("src", _) => return Ok(("ip".to_owned(), None)),
        ("hdr" | "fhdr", "host") => return Ok(("host".to_owned(), None)),
        ("path", _) => return Ok(("path".to_owned(), None)),
        ("base32+src", _) => return Ok(("ip+host+path".to_owned(), None)),
        ("hdr_ip", _) | ("hdr" | "fhdr", "x-forwarded-for") => {
            return Err("list the proxies in front in `trusted_proxies`, and limit by `key: ip`: any client can write \
                        this header"
                .to_owned());
        }
        ("hdr" | "fhdr", name) => format!("header:{name}"),
        ("cook", _) => format!("cookie:{argument}"),
        ("url_param" | "urlp", _) => format!("query:{argument}"),
        _ => String::new(),
    };
    match !of_name.is_empty() && is_field_name(argument) {
        true => Ok((of_name, Some(OPTIONAL))),
        false => Err(format!("Tollgate has no key for `{fetch}`")),
    }
}
