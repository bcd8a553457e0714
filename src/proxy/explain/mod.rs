//! What would become of a request, and why: by the rules that hold for real ones, consuming nothing.

mod checks;
mod who;

use std::net::IpAddr;

use compact_str::CompactString;
use http::{StatusCode, request};

pub use checks::{Standing, Stood};

use super::{
    checks::Asked,
    reply::Reply,
    rules::{Rules, target},
    tokens::Tokens,
};
use crate::{
    config::model::Route,
    identity::{Identity, address_text},
    limit::Store,
    router::{Misfit, Refused, Target},
};

/// What would become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The client's address as it identifies a client, and why it is that.
    pub address: (CompactString, String),
    /// Who is asking, and who says so; or why nobody does.
    pub user: (Option<CompactString>, String),
    /// `None`: it can't be read what the request is for.
    pub route: Option<Routed>,
    pub upstream: Option<String>,
    pub verdict: Verdict,
    /// What the proxy answers itself; `None`: it asks the upstream.
    pub status: Option<StatusCode>,
    pub because: String,
    /// In the order of the route's policies.
    pub checks: Vec<Standing>,
}

/// How it came to its route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// `None`: there is none for it.
    pub name: Option<String>,
    pub because: String,
    /// The routes before it, and why it is none of them.
    pub passed_over: Vec<(String, String)>,
}

/// What the proxy would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied,
    /// The store can't be asked, and a policy says that then nobody passes.
    Undecided,
    /// There is no route for it, or it is no request that would be forwarded.
    Refused,
}

/// What would become of a `request` that `peer` sends at the time `now`, in microseconds since the Unix epoch.
pub async fn explain<S: Store>(
    rules: &Rules,
    store: &S,
    request: &request::Parts,
    peer: IpAddr,
    now: i64,
) -> Explained {
    let is_peer_trusted = rules.trusted_proxies.contains(peer);
    let (address, why_address) = who::address(rules, peer, is_peer_trusted, &request.headers);
    let (identity, why_user) = who::user(rules, is_peer_trusted, &request.headers);
    let identifying = address_text(address, rules.config.client_address.ipv6_prefix);
    let mut explained = Explained {
        address: (identifying.clone(), why_address),
        user: (identity.user.clone(), why_user),
        route: None,
        upstream: None,
        verdict: Verdict::Allowed,
        status: None,
        because: String::new(),
        checks: Vec::new(),
    };
    let (target, route) = match destination(rules, request, &mut explained) {
        Ok(found) => found,
        Err(Refused { status, detail }) => {
            (explained.verdict, explained.status) = (Verdict::Refused, Some(status));
            detail.clone_into(&mut explained.because);
            return explained;
        }
    };
    let identity: &Identity = &identity;
    let asked = Asked { request, target: &target, route, address, identity, is_peer_trusted };
    checks::explain(rules, store, &asked, &identifying, (&Tokens::new(), now), &mut explained).await;
    explained
}

/// Where the request goes.
fn destination<'r>(
    rules: &'r Rules,
    request: &request::Parts,
    explained: &mut Explained,
) -> Result<(Target, &'r Route), Refused> {
    let target = target(request)?;
    let found = rules.router.find(&request.method, &target, &request.headers);
    let account = rules.router.account(&request.method, &target, &request.headers);
    let named = |index: usize| rules.config.routes.get(index);
    let passed_over = account.passed_over.iter().filter_map(|&(index, misfit)| {
        let route = named(index)?;
        Some((route.name.clone(), misfitting(route, misfit)))
    });
    let route = found.ok().and_then(named);
    explained.route = Some(Routed {
        name: route.map(|route| route.name.clone()),
        because: route.map(fitting).unwrap_or_else(|| "no route is for it".to_owned()),
        passed_over: passed_over.collect(),
    });
    found?;
    let route = route.ok_or(Refused { status: StatusCode::NOT_FOUND, detail: "No route matches." })?;
    explained.upstream = rules.config.upstreams.get(route.upstream).map(|upstream| upstream.name.clone());
    Ok((target, route))
}

/// All that the route asks for.
fn fitting(route: &Route) -> String {
    let mut why = format!("the path matches {}", route.path);
    for (of, asked) in [("the host is one of", hosts(route)), ("the method is one of", methods(route))] {
        if !asked.is_empty() {
            why += &format!(", {of} {asked}");
        }
    }
    for (name, _) in &route.headers {
        why += &format!(", {name} is as it asks");
    }
    why
}

fn misfitting(route: &Route, misfit: Misfit) -> String {
    match misfit {
        Misfit::Path => format!("the path does not match {}", route.path),
        Misfit::Host => format!("the host is none of {}", hosts(route)),
        Misfit::Method => format!("the method is none of {}", methods(route)),
        Misfit::Header(index) => match route.headers.get(index) {
            Some((name, value)) => format!("{name} is not {}", String::from_utf8_lossy(value.as_bytes())),
            None => "a header differs".to_owned(),
        },
    }
}

fn hosts(route: &Route) -> String {
    route.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn methods(route: &Route) -> String {
    route.methods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Explained {
    fn undecided(&mut self) {
        (self.verdict, self.status) = (Verdict::Undecided, Some(Reply::undecided().status));
        "the store can't be asked, and a policy says on_store_error: deny".clone_into(&mut self.because);
    }

    fn denied(&mut self, by: &str, status: StatusCode, because: String) {
        (self.verdict, self.status) = (Verdict::Denied, Some(status));
        self.because = format!("denied by {by}: {because}");
    }
}
