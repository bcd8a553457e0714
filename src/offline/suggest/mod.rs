//! `tollgate suggest`: limits for the traffic in access logs, with their evidence.
//!
//! [`suggest`] measures the peaks of all clients (`measure.rs`), finds a limit in their distribution for each window
//! (`limits.rs`), replays the policies over the same logs (`verify.rs`) and writes them (`document.rs`).

mod distribution;
mod document;
mod draft;
mod evidence;
mod limits;
mod measure;
mod path_groups;
mod peaks;
mod suggestion;
mod verify;
mod walk;

use std::time::Duration;

pub use distribution::{HistogramRow, Knee};
pub use evidence::Appearance;
pub use suggestion::{
    ClientAbove, MeasuredWindow, ReplayedSuggestion, SuggestedOverride, SuggestedPolicy, SuggestedRoute,
    Suggestion,
};

use distribution::PeakDistribution;
use draft::PolicyDraft;
use evidence::KeyEvidence;
use limits::counted_time;
use measure::{Measured, measure};
use path_groups::{PathGroup, survey};
use peaks::KeyPeaks;
use verify::{MAX_WATCHED, Verified, verify};

use crate::{
    config::{
        self, SystemLookup,
        model::{Config, DEFAULT_BUCKETS, KeyPart, KeyRecipe, format_duration},
    },
    offline::{
        access_logs::{LogReader, ReadError},
        replay::ReplayError,
    },
    telemetry::time::rfc3339,
};

/// Replays: the first tells which addresses many people share, and the second is of the policies that spare these.
const MAX_REPLAYS: usize = 3;
/// A group of paths with fewer clients gets no limits of its own.
const MIN_CLIENTS: usize = 20;
/// A group of unsafe requests gets limits of its own if they are at most the general ones divided by this.
const TIGHTER: u64 = 4;
/// Groups of paths with limits of their own.
const MAX_GROUPS: usize = 5;

/// The options of a suggestion.
#[derive(Debug)]
pub struct SuggestOptions {
    pub key: KeyRecipe,
    /// In ascending order, each once; not empty.
    pub windows: Vec<Duration>,
    /// The share of the clients that a limit spares, 0 to 1.
    pub spare: f64,
    /// Clients that are listed for each policy.
    pub listed: usize,
}

/// Why there is no suggestion.
#[derive(Debug, thiserror::Error)]
pub enum SuggestError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("--key {0} needs the configuration that says where it comes from: add --config FILE")]
    NeedsConfig(String),
    #[error("no request in the logs has the key {key}: {hint}")]
    NotInLog { key: String, hint: &'static str },
    #[error("no request in the logs reaches a route: try without --config")]
    NoRequests,
    #[error(
        "the logs have more than {0} different keys, which do not fit into the memory: give fewer logs, or another --key"
    )]
    TooManyKeys(usize),
    #[error(
        "the requests of the longest window do not fit into the memory: give a shorter one with --window"
    )]
    TooManyRequests,
    /// A defect of Tollgate.
    #[error("the configuration for the measurement has an error: {0}")]
    Template(String),
}

impl From<ReadError> for SuggestError {
    fn from(error: ReadError) -> Self {
        Self::Replay(error.into())
    }
}

/// Suggests policies for the routes of `config`, or without it for all requests and for groups of paths.
///
/// `open`: opens the logs, once for each reading. `is_rereadable`: whether they can be read again. If not, there are no
/// groups of paths, and no replay.
///
/// # Errors
/// A log can't be read, has no request or none with the key, or does not fit into the memory.
pub async fn suggest(
    config: Option<Config>,
    request: &SuggestOptions,
    open: &dyn Fn() -> Result<LogReader, ReadError>,
    is_rereadable: bool,
) -> Result<Suggestion, SuggestError> {
    let existing: Vec<_> =
        config.iter().flat_map(|config| &config.policies).map(|of| of.name.clone()).collect();
    let MeasuredRoutes { mut config, mut routes, is_whole } = match config {
        Some(config) => MeasuredRoutes::of_config(config),
        None => {
            check_key(&request.key)?;
            let groups = if is_rereadable { survey(open()?)? } else { Vec::new() };
            MeasuredRoutes::of_groups(groups)?
        }
    };
    let uses: Vec<_> = routes.iter().map(|route| route.uses.clone()).collect();
    let counted = request.windows.iter().map(|window| counted_time(*window, DEFAULT_BUCKETS));
    let windows: Vec<_> = request.windows.iter().copied().chain(counted).collect();
    let Measured { scopes, requests, first, last, refused, unknown, without_host, notes } =
        measure(config.clone(), &uses, &request.key, &windows, open()?).await?;
    if requests == 0 {
        return Err(SuggestError::NoRequests);
    }
    if scopes.iter().all(|scope| scope.keys.is_empty()) {
        return Err(SuggestError::NotInLog { key: request.key.to_string(), hint: hint(&request.key) });
    }
    let mut names = existing;
    let mut drafts: Vec<_> = scopes
        .into_iter()
        .zip(routes.drain(..))
        .filter(|(scope, _)| !scope.keys.is_empty() || scope.not_in_log > 0)
        .map(|(scope, route)| {
            let name = unique_name(&route.name(&request.key), &mut names);
            let of_route = (route.path, route.methods, route.uses);
            PolicyDraft::new(
                name,
                of_route,
                (&request.key, &request.windows),
                scope,
                request.spare,
                notes.is_spread,
            )
        })
        .collect();
    let mut others = Vec::new();
    let mut verified = None;
    for replays in 1..=MAX_REPLAYS {
        if is_whole {
            others.extend(remove_needless(&mut drafts));
            // The suggested configuration has no other routes than those with policies of their own.
            let plan = MeasuredRoutes::of_groups(drafts.iter().skip(1).map(PolicyDraft::group).collect())?;
            for (draft, planned) in drafts.iter_mut().zip(plan.routes) {
                draft.uses = planned.uses;
            }
            config = plan.config;
        }
        if !is_rereadable {
            break;
        }
        let (policies, replayed) = verify(config.clone(), &drafts, open()?).await?;
        let is_last = replays == MAX_REPLAYS;
        let changes = !is_last
            && drafts.iter_mut().zip(&policies).fold(false, |any, (draft, of)| draft.spare_shared(of) || any);
        verified = Some((policies, replayed));
        if !changes {
            break;
        }
    }
    let (policies, replayed) = verified.unzip();
    let of_route = |(nth, draft): (usize, &PolicyDraft)| {
        let verified = policies.as_ref().and_then(|policies| policies.get(nth));
        route_of(draft, verified, Some(&draft.name))
    };
    let mut routes: Vec<_> = drafts.iter().enumerate().map(of_route).collect();
    routes.extend(others.iter().map(|draft| route_of(draft, None, None)));
    let mut suggestion = Suggestion {
        requests,
        first: rfc3339(first),
        last: rfc3339(last),
        key: request.key.to_string(),
        spare: percentage(request.spare),
        routes,
        replayed,
        refused: refused + notes.not_http,
        unknown,
        unreadable: notes.unreadable,
        without_requests: notes.without_requests,
        late: notes.late,
        without_host,
        spread: notes.is_spread,
        yaml: String::new(),
    };
    suggestion.yaml = document::write(&suggestion, &request.key, request.listed, is_whole);
    Ok(suggestion)
}

/// The routes whose requests are measured.
struct MeasuredRoutes {
    config: Config,
    routes: Vec<PlannedRoute>,
    /// Whether the suggestion is a whole configuration.
    is_whole: bool,
}

struct PlannedRoute {
    path: String,
    methods: Vec<http::Method>,
    /// The indices of the routes whose requests are counted.
    uses: Vec<usize>,
    is_everything: bool,
}

impl MeasuredRoutes {
    fn of_config(config: Config) -> Self {
        let planned = |(index, route): (usize, &config::model::Route)| PlannedRoute {
            path: route.name.clone(),
            methods: Vec::new(),
            uses: vec![index],
            is_everything: false,
        };
        let routes = config.routes.iter().enumerate().map(planned).collect();
        Self { config, routes, is_whole: false }
    }

    /// A route for each group behind one for all of them, which is the first of the plan.
    fn of_groups(groups: Vec<PathGroup>) -> Result<Self, SuggestError> {
        let text = document::routes(groups.iter().map(|group| (group, String::new())), "");
        let config = config::parse("suggestion", &text, &SystemLookup)
            .map_err(|errors| SuggestError::Template(errors.to_string()))?;
        let everything = PlannedRoute {
            path: "/*".to_owned(),
            methods: Vec::new(),
            uses: (0..=groups.len()).collect(),
            is_everything: true,
        };
        let planned = |(index, PathGroup { method, path }): (usize, PathGroup)| PlannedRoute {
            path,
            methods: vec![method],
            uses: vec![index],
            is_everything: false,
        };
        let routes = std::iter::once(everything).chain(groups.into_iter().enumerate().map(planned)).collect();
        Ok(Self { config, routes, is_whole: true })
    }
}

impl PlannedRoute {
    /// A name for its policy: `per-ip`, `post-login`, `api-per-ip`.
    fn name(&self, key: &KeyRecipe) -> String {
        let key = match key.0.as_slice() {
            [KeyPart::Ip] => "per-ip",
            [KeyPart::User] => "per-user",
            _ => "per-client",
        };
        if self.is_everything {
            return key.to_owned();
        }
        let methods = self.methods.iter().map(|method| method.as_str().to_ascii_lowercase() + "-");
        let path =
            self.path.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
        let path = path.collect::<String>().split_whitespace().collect::<Vec<_>>().join("-");
        let path: String = if path.is_empty() { "all".to_owned() } else { path.chars().take(40).collect() };
        format!("{}{}-{key}", methods.collect::<String>(), path.trim_end_matches('-'))
    }
}

impl PolicyDraft {
    fn group(&self) -> PathGroup {
        let method = self.methods.first().cloned().unwrap_or_default();
        PathGroup { method, path: self.route.clone() }
    }
}

/// # Errors
/// Without a configuration, nothing says where a part of the key comes from.
fn check_key(key: &KeyRecipe) -> Result<(), SuggestError> {
    let is_of_config = |part: &KeyPart| matches!(part, KeyPart::Jwt(_) | KeyPart::Tls(_) | KeyPart::OfKey(_));
    if key.0.iter().any(is_of_config) { Err(SuggestError::NeedsConfig(key.to_string())) } else { Ok(()) }
}

/// How a log gets the parts of the key.
fn hint(key: &KeyRecipe) -> &'static str {
    let has = |of: fn(&KeyPart) -> bool| key.0.iter().any(of);
    if has(|part| matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_))) {
        "log it, as JSON; nginx' variable for the header X-API-Key is $http_x_api_key, and the one for all cookies \
         is $http_cookie"
    } else if has(|part| matches!(part, KeyPart::User)) {
        "nginx and Apache log the users of Basic authentication only; other users are in the JSON log of Tollgate"
    } else if has(|part| matches!(part, KeyPart::Host)) {
        "log the host; nginx' variable is $host"
    } else {
        "the JSON log of Tollgate has customers, plans and IDs of API keys; no other log has them"
    }
}

fn unique_name(name: &str, taken: &mut Vec<String>) -> String {
    let numbered = (2..).map(|nth| format!("{name}-{nth}"));
    let unique = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let unique = unique.unwrap_or_default();
    taken.push(unique.clone());
    unique
}

/// Removes the groups of paths that need no limits of their own, and returns them. The first draft is the general policy.
fn remove_needless(drafts: &mut Vec<PolicyDraft>) -> Vec<PolicyDraft> {
    let Some(general) = drafts.first() else { return Vec::new() };
    let mut room = MAX_GROUPS;
    let is_needed = |group: &PolicyDraft| {
        let is_needed = room > 0 && stands_out(group, general);
        room -= usize::from(is_needed);
        is_needed
    };
    let needed: Vec<_> = drafts.iter().skip(1).map(is_needed).collect();
    let groups = drafts.split_off(1).into_iter().zip(needed);
    let (needed, needless): (Vec<_>, Vec<_>) = groups.partition(|(_, is_needed)| *is_needed);
    drafts.extend(needed.into_iter().map(|(group, _)| group));
    needless.into_iter().map(|(group, _)| group).collect()
}

/// Whether a group of paths needs limits of its own: its clients need far fewer requests than the general policy admits,
/// and it changes something; or a client stands out in it that does not stand out in general.
fn stands_out(group: &PolicyDraft, general: &PolicyDraft) -> bool {
    if group.scope.keys.len() < MIN_CLIENTS {
        return false;
    }
    let is_unsafe = group.group().is_unsafe();
    let of_longest = group.limits.last().zip(general.limits.last());
    let is_tighter = of_longest.is_some_and(|(own, general)| own.saturating_mul(TIGHTER) <= *general);
    let has_knee = group.knees.iter().any(Option::is_some);
    let is_hidden = || {
        let stopped: std::collections::HashSet<_> = general.above().into_iter().map(|(key, _)| key).collect();
        group.above().into_iter().any(|(key, _)| !stopped.contains(key))
    };
    is_unsafe && is_tighter || has_knee && is_hidden()
}

/// Summarizes the peaks of `draft`. `name`: of its policy, if it is suggested.
fn route_of(draft: &PolicyDraft, verified: Option<&Verified>, name: Option<&str>) -> SuggestedRoute {
    let tiers = draft.tiers(&draft.limits);
    let windows = draft.windows.iter().zip(&draft.peaks).zip(&draft.knees).zip(&draft.limits).zip(&tiers);
    let windows = windows.map(|((((window, peaks), knee), &limit), tier)| {
        let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| peaks.quantile(share));
        let (histogram, clients_above) = (PeakDistribution::histogram(peaks), peaks.above(limit));
        let window = format_duration(*window);
        let (knee, is_needed) = (*knee, tier.is_some());
        MeasuredWindow { window, p50, p90, p99, p999, max, histogram, knee, limit, is_needed, clients_above }
    });
    SuggestedRoute {
        route: draft.route.clone(),
        methods: draft.methods.iter().map(ToString::to_string).collect(),
        policy: name.filter(|_| !draft.scope.keys.is_empty()).map(|name| policy_of(draft, verified, name)),
        requests: draft.scope.requests(),
        clients: draft.scope.keys.len(),
        not_in_log: draft.scope.not_in_log,
        windows: windows.collect(),
    }
}

fn policy_of(draft: &PolicyDraft, verified: Option<&Verified>, name: &str) -> SuggestedPolicy {
    let above = draft.above();
    let texts = |limits: &[u64]| draft.tiers(limits).iter().flatten().map(ToString::to_string).collect();
    let overrides = draft.overrides.iter().filter_map(|other| {
        let peaks = draft.scope.keys.get(&other.key)?;
        Some(SuggestedOverride {
            ip: other.key.strip_prefix("ip:")?.to_owned(),
            limits: texts(&other.limits),
            client: client_above(&other.key, peaks, draft.windows.len(), verified),
        })
    });
    SuggestedPolicy {
        name: name.to_owned(),
        limits: texts(&draft.limits),
        overrides: overrides.collect(),
        clients_above: above.len(),
        above: above
            .into_iter()
            .take(MAX_WATCHED)
            .map(|(key, peaks)| client_above(key, peaks, draft.windows.len(), verified))
            .collect(),
        denied: verified.map(|verified| verified.denied.values().sum()),
        denied_clients: verified.map(|verified| verified.denied.len()),
    }
}

/// `windows`: the number of windows.
fn client_above(key: &str, peaks: &KeyPeaks, windows: usize, verified: Option<&Verified>) -> ClientAbove {
    let evidence = verified.and_then(|verified| verified.evidence.get(key));
    ClientAbove {
        key: key.to_owned(),
        requests: peaks.requests,
        peaks: peaks.peaks().take(windows).collect(),
        denied: verified.map(|verified| verified.denied.get(key).copied().unwrap_or(0)),
        user_agents: evidence.map(KeyEvidence::agents),
        paths: evidence.map(KeyEvidence::paths),
        users: evidence.map(KeyEvidence::users),
        looks_like: evidence.map_or(Appearance::Unknown, KeyEvidence::appearance),
    }
}

/// `99.9%`
fn percentage(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
