//! Turns the rules of a site into routes: one for every set of rules that can hold for one request together, the most
//! specific first.
//!
//! The rules are run on sets of requests. Where a rule tests what only a part of the requests has, that part is run by
//! itself first, and becomes routes before those of the others. Client addresses do not choose a route in Tollgate: the
//! requests of a route are run for each set of addresses that rules tell apart, and its `allow`, its `deny` and the
//! `exempt` of its policies say what differs.

use std::collections::BTreeSet;

use super::{
    Note, SourceLine,
    condition::{Doubt, RequestCondition, Test, Truth, ValueKind},
    networks::Networks,
    requests::{Requests, TestSplit},
    site::{Edit, Effect, HeaderRule, RuleResponse, Site, SiteRule, path_after},
    yaml::Comment,
};

/// The most routes that one configuration becomes.
const MAX_ROUTES: usize = 10_000;

/// A route, before it is written.
#[derive(Debug, Clone)]
pub(super) struct RouteDraft {
    pub(super) requests: Requests,
    pub(super) name: Option<String>,
    pub(super) end: RouteEnd,
    /// The names of policies, and the addresses that each of them does not limit here.
    pub(super) limits: Vec<(String, Networks)>,
    /// The addresses that may send requests.
    pub(super) admitted: Networks,
    /// In the order in which the source makes them.
    pub(super) edits: Vec<Edit>,
    pub(super) comments: Vec<Comment>,
    /// Of the rule that ends its requests.
    pub(super) place: SourceLine,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RouteEnd {
    Act(RuleResponse),
    /// The source refuses it with this status.
    Refused(u16),
    /// Tollgate cannot do the same as the source: 501.
    Closed,
}

/// The routes of a site, and how they were found.
pub(super) fn routes(site: &Site, is_by_address: &dyn Fn(&str) -> bool) -> Vec<RouteDraft> {
    let mut lowering = Lowering { routes: Vec::new(), is_by_address };
    let listeners = (!site.listeners.is_empty()).then(|| site.listeners.clone());
    let requests = Requests { listeners, ..Requests::default() };
    let region = Region { requests, met: Vec::new(), unmet: Vec::new() };
    let base = region.clone();
    let world = World {
        addresses: Networks::all(),
        rules: &site.rules,
        state: RuleEffects::default(),
        end: None,
        base,
        told_by: None,
        last: None,
    };
    lowering.run(region, vec![world], &mut Vec::new());
    lowering.reached()
}

/// A set of requests that is run by itself.
#[derive(Debug, Clone)]
struct Region {
    requests: Requests,
    /// Tests that all of them meet.
    met: Vec<Test>,
    /// Tests that none of them meets.
    unmet: Vec<Test>,
}

/// The requests of a region from some addresses, and how far they got.
#[derive(Clone)]
struct World<'r> {
    addresses: Networks,
    /// The rules that are still to be run.
    rules: &'r [SiteRule],
    state: RuleEffects,
    end: Option<RouteEnd>,
    /// The requests for which the present list of rules began.
    base: Region,
    /// The rule that told these addresses from others.
    told_by: Option<&'r SiteRule>,
    /// The last rule that had an effect.
    last: Option<&'r SiteRule>,
}

/// The effects of rules on a request so far.
#[derive(Debug, Clone, Default)]
struct RuleEffects {
    name: Option<String>,
    limits: Vec<String>,
    edits: Vec<Edit>,
    comments: Vec<Comment>,
}

struct Lowering<'a> {
    routes: Vec<RouteDraft>,
    is_by_address: &'a dyn Fn(&str) -> bool,
}

/// A question that must be decided before a rule can run.
enum Need {
    Test(Test),
    Addresses(Networks),
}

impl Region {
    /// The result of a test for all of these requests, after these edits.
    fn truth(&self, test: &Test, addresses: &Networks, edits: &[Edit]) -> Option<Truth> {
        if edits.iter().any(|edit| changes(edit, test)) {
            if let (Test::Path(path), Some(after)) = (test, path_after(&self.requests.path, edits)) {
                match after.and(path) {
                    Ok(None) => return Some(Truth::False),
                    Ok(Some(both)) if both == after => return Some(Truth::True),
                    _ => {}
                }
            }
            let text = "a rule before changes what it compares".to_owned();
            return Some(Truth::Unknown(Doubt { text, is_of_place: !matches!(test, Test::Value { .. }) }));
        }
        if let Test::Addresses(networks) = test {
            let both = networks.and(addresses);
            return match (both == *addresses, both.is_empty()) {
                (true, _) => Some(Truth::True),
                (_, true) => Some(Truth::False),
                _ => None,
            };
        }
        if self.unmet.contains(test) || self.met.contains(test) {
            return Some(self.met.contains(test).into());
        }
        match self.requests.split(test) {
            Ok(TestSplit::All) => Some(Truth::True),
            Ok(TestSplit::None) => Some(Truth::False),
            Ok(TestSplit::Parts(_)) => None,
            Err(_) => {
                let text = "Tollgate cannot join the two conditions on the path".to_owned();
                Some(Truth::Unknown(Doubt { text, is_of_place: true }))
            }
        }
    }

    /// Some of these requests: all of them meet a test, or none does.
    fn part(&self, requests: Requests, test: &Test, is_met: bool) -> Self {
        let mut part = Self { requests, ..self.clone() };
        if is_met {
            part.met.push(test.clone());
        } else {
            part.unmet.push(test.clone());
        }
        part
    }

    /// Whether a condition may hold for some of these requests. Addresses are not looked at.
    fn may_meet(&self, condition: &RequestCondition, edits: &[Edit]) -> bool {
        match condition.truth(&|test| self.truth(test, &Networks::all(), edits)) {
            Ok(truth) => truth != Truth::False,
            Err(Test::Addresses(_)) => true,
            Err(test) => {
                let mut rest = self.clone();
                rest.unmet.push(test.clone());
                let Ok(TestSplit::Parts(parts)) = self.requests.split(test) else { return true };
                parts
                    .into_iter()
                    .map(|(requests, is_met)| self.part(requests, test, is_met))
                    .chain([rest])
                    .any(|part| part.may_meet(condition, edits))
            }
        }
    }
}

/// Whether an edit changes the value that a test compares.
fn changes(edit: &Edit, test: &Test) -> bool {
    match (edit, test) {
        (Edit::Path(_), Test::Path(_)) => true,
        (Edit::Request(change), Test::Value { kind: ValueKind::Header, name, .. }) => change.is_of(name),
        (Edit::Request(change), Test::Value { kind: ValueKind::Cookie, .. }) => change.name() == "cookie",
        (Edit::Request(change), Test::Hosts(_)) => change.name() == "host",
        _ => false,
    }
}

impl<'r> World<'r> {
    /// Whether a condition holds for all requests of this world.
    fn truth(&self, region: &Region, condition: &RequestCondition) -> Result<Truth, Need> {
        let known = |test: &Test| region.truth(test, &self.addresses, &self.state.edits);
        condition.truth(&known).map_err(|test| match test {
            Test::Addresses(networks) => Need::Addresses(networks.clone()),
            test => Need::Test(test.clone()),
        })
    }

    /// Runs the next rule.
    fn step(&mut self, region: &Region, rule: &'r SiteRule, is_by_address: bool) -> Result<(), Need> {
        let truth = match &rule.effect {
            Effect::Limit { counted, .. } => self.limited(region, rule, counted, is_by_address)?,
            // An edit is the same for all addresses of a route.
            Effect::Edit(_) | Effect::Note(_) | Effect::Name(_) => match self.truth(region, &rule.when) {
                Err(Need::Addresses(_)) => {
                    let text = "routes do not choose by address".to_owned();
                    Truth::Unknown(Doubt { text, is_of_place: false })
                }
                other => other?,
            },
            _ => self.truth(region, &rule.when)?,
        };
        self.settle(region, rule, truth);
        Ok(())
    }

    /// Whether a limit holds for these requests. It counts those that meet `counted`, and denies those of them that
    /// meet the condition of the rule. A policy counts what it denies: it is widened to all requests that count, within
    /// their host and path.
    fn limited(
        &mut self,
        region: &Region,
        rule: &SiteRule,
        counted: &RequestCondition,
        is_by_address: bool,
    ) -> Result<Truth, Need> {
        let outer = |condition: &RequestCondition| match is_by_address {
            true => condition.clone(),
            false => condition.of_any_address(),
        };
        let counts = self.truth(region, &outer(counted))?;
        if counts == Truth::False {
            return Ok(Truth::False);
        }
        let of_place = outer(&rule.when).of_place();
        let denies = self.truth(region, &of_place)?;
        if denies == Truth::False {
            return Ok(Truth::False);
        }
        let elsewhere = counted.of_any_address().and(of_place.of_any_address().not());
        let elsewhere = elsewhere.of_place();
        if rule.when != *counted && self.base.may_meet(&elsewhere, &self.state.edits) {
            let text = "it also counts requests to other hosts or paths, which it does not deny".to_owned();
            return Ok(Truth::Unknown(Doubt { text, is_of_place: true }));
        }
        let is_exact = matches!(self.truth(region, &rule.when), Ok(Truth::True)) || rule.when == *counted;
        Ok(match (counts, denies) {
            (unknown @ Truth::Unknown(_), _) | (_, unknown @ Truth::Unknown(_)) => unknown,
            _ if is_exact => Truth::True,
            _ => {
                let text = "a policy counts what it denies".to_owned();
                Truth::Unknown(Doubt { text, is_of_place: false })
            }
        })
    }

    /// Decides what a rule does where its condition holds, and where Tollgate cannot tell: the only place where the
    /// result could be laxer than the source.
    fn settle(&mut self, region: &Region, rule: &'r SiteRule, truth: Truth) {
        let doubt = match truth {
            Truth::False => return,
            Truth::True => None,
            Truth::Unknown(doubt) => Some(doubt),
        };
        self.last = Some(rule);
        self.state.comments.extend(rule.comments.iter().cloned());
        match (&rule.effect, doubt) {
            (Effect::Refuse(status), doubt) => {
                self.doubted(rule, doubt, "all of these requests are refused");
                self.end = Some(RouteEnd::Refused(*status));
            }
            (Effect::Act(action), None) => self.end = Some(RouteEnd::Act(action.clone())),
            (Effect::Enter(rules), None) => {
                self.rules = rules;
                self.base = region.clone();
            }
            (Effect::Limit { .. }, Some(doubt)) if doubt.is_of_place => self.close(rule, &doubt.text),
            (Effect::Limit { policy, .. }, doubt) => {
                self.doubted(rule, doubt, "the policy limits all of these requests");
                if !self.state.limits.contains(policy) {
                    self.state.limits.push(policy.clone());
                }
            }
            (Effect::Edit(Edit::Request(HeaderRule::Undo(name))), doubt) => self.undo(rule, name, doubt),
            // It may be there for all already.
            (Effect::Edit(Edit::Response(HeaderRule::Add(name, value))), None)
                if self.state.edits.contains(&protection(name, value)) => {}
            (Effect::Edit(edit), None) => self.state.edits.push(edit.clone()),
            (Effect::Edit(edit), Some(doubt)) => self.edit_in_doubt(rule, edit, doubt),
            (Effect::Close(text), _) => self.close(rule, text),
            (Effect::Act(_) | Effect::Enter(_), Some(doubt)) => self.close(rule, &doubt.text),
            (Effect::Note(text), _) => self.state.comments.push(rule.note(text)),
            (Effect::Name(name), None) => self.state.name = Some(name.clone()),
            (Effect::Name(_), Some(_)) => {}
        }
    }

    fn edit_in_doubt(&mut self, rule: &SiteRule, edit: &Edit, doubt: Doubt) {
        const PROTECTING: [&str; 5] = [
            "strict-transport-security",
            "content-security-policy",
            "x-frame-options",
            "x-content-type-options",
            "referrer-policy",
        ];
        match edit {
            // A service may trust it.
            Edit::Request(HeaderRule::Set(name, _) | HeaderRule::Add(name, _)) => {
                self.doubted(rule, Some(doubt), "the header is removed from all of these requests");
                self.state.edits.push(Edit::Request(HeaderRule::Remove(name.clone())));
            }
            Edit::Request(HeaderRule::Remove(_) | HeaderRule::Undo(_))
            | Edit::Response(HeaderRule::Remove(_) | HeaderRule::Undo(_))
            | Edit::Setting("max_body" | "require", _) => {
                self.doubted(rule, Some(doubt), "it holds for all of these requests");
                self.state.edits.push(edit.clone());
            }
            Edit::Response(HeaderRule::Set(name, value) | HeaderRule::Add(name, value))
                if PROTECTING.contains(&name.as_str()) =>
            {
                self.doubted(rule, Some(doubt), "it holds for all of these requests");
                self.state.edits.push(protection(name, value));
            }
            Edit::Response(_) | Edit::Setting(..) => {
                self.doubted(rule, Some(doubt), "it is left out");
            }
            Edit::Path(_) => self.close(rule, &doubt.text),
        }
    }

    /// Takes back the changes of a header.
    fn undo(&mut self, rule: &SiteRule, name: &str, doubt: Option<Doubt>) {
        let is_of = |edit: &Edit| matches!(edit, Edit::Request(change) if change.name() == name);
        let is_changed = self.state.edits.iter().any(is_of);
        self.state.edits.retain(|edit| !is_of(edit));
        // It may be as it was set, or not.
        if doubt.is_some() && is_changed {
            self.doubted(rule, doubt, "the header is removed from all of these requests");
            self.state.edits.push(Edit::Request(HeaderRule::Remove(name.to_owned())));
        }
    }

    /// Notes the treatment where Tollgate cannot tell whether a condition holds.
    fn doubted(&mut self, rule: &SiteRule, doubt: Option<Doubt>, what: &str) {
        if let Some(Doubt { text, .. }) = doubt {
            self.state.comments.push(rule.note(&format!("{text}: {what}")));
        }
    }

    fn close(&mut self, rule: &SiteRule, text: &str) {
        self.state.comments.push(rule.note(&format!("{text}. Until you decide, the route answers 501")));
        self.end = Some(RouteEnd::Closed);
    }
}

/// The change that gives all responses a header.
fn protection(name: &str, value: &str) -> Edit {
    Edit::Response(HeaderRule::Set(name.to_owned(), value.to_owned()))
}

impl<'a> Lowering<'a> {
    /// Adds routes for the requests of a region, which worlds divide by address. `before`: requests that earlier routes
    /// take.
    fn run<'r>(&mut self, mut region: Region, mut worlds: Vec<World<'r>>, before: &mut Vec<Requests>) {
        if before.iter().any(|earlier| earlier.covers(&region.requests)) {
            return;
        }
        let depth = before.len();
        while let Some(at) = worlds.iter().position(|world| world.end.is_none()) {
            let world = &mut worlds[at];
            let Some((rule, rest)) = world.rules.split_first() else {
                world.end = Some(RouteEnd::Refused(404));
                continue;
            };
            if self.routes.len() >= MAX_ROUTES {
                world.close(rule, &format!("the rules make more than {MAX_ROUTES} routes"));
                continue;
            }
            let is_by_address = match &rule.effect {
                Effect::Limit { policy, .. } => (self.is_by_address)(policy),
                _ => true,
            };
            let rules = std::mem::replace(&mut world.rules, rest);
            match world.step(&region, rule, is_by_address) {
                Ok(()) => {}
                Err(Need::Addresses(networks)) => {
                    world.rules = rules;
                    world.told_by = Some(rule);
                    let mut others = world.clone();
                    others.addresses = world.addresses.without(&networks);
                    world.addresses = world.addresses.and(&networks);
                    worlds.insert(at + 1, others);
                }
                Err(Need::Test(test)) => {
                    world.rules = rules;
                    if let Ok(TestSplit::Parts(parts)) = region.requests.split(&test) {
                        for (requests, is_met) in parts {
                            self.run(region.part(requests.clone(), &test, is_met), worlds.clone(), before);
                            before.push(requests);
                        }
                    }
                    region.unmet.push(test);
                }
            }
        }
        before.truncate(depth);
        self.routes.push(joined(region.requests, worlds));
    }

    /// The routes without those that an earlier route takes all requests of, and with those that follow each other and
    /// differ in one list as one.
    fn reached(self) -> Vec<RouteDraft> {
        let mut reached: Vec<RouteDraft> = Vec::new();
        for mut route in self.routes {
            if let Some(at) = reached.iter().position(|earlier| earlier.requests.covers(&route.requests)) {
                // Notes on its requests are kept.
                reached[at].comments.append(&mut route.comments);
                continue;
            }
            if let Some(last) = reached.last_mut()
                && last.is_alike(&route)
                && let Some(requests) = last.requests.merged(&route.requests)
            {
                last.requests = requests;
                last.comments.append(&mut route.comments);
                continue;
            }
            reached.push(route);
        }
        // A route says nothing new if the next one takes its requests, too, and does the same.
        let mut kept: Vec<RouteDraft> = Vec::new();
        for mut route in reached.into_iter().rev() {
            match kept.last_mut() {
                Some(next) if next.requests.covers(&route.requests) && next.is_alike(&route) => {
                    next.comments.append(&mut route.comments);
                }
                _ => kept.push(route),
            }
        }
        kept.reverse();
        kept
    }
}

impl RouteDraft {
    fn is_alike(&self, other: &Self) -> bool {
        self.name == other.name
            && self.end == other.end
            && self.limits == other.limits
            && self.admitted == other.admitted
            && self.edits == other.edits
    }
}

/// The route of requests whose addresses are told apart.
fn joined(requests: Requests, worlds: Vec<World<'_>>) -> RouteDraft {
    let last = worlds.iter().find_map(|world| world.last);
    let place = last.map_or_else(|| SourceLine { file: String::new(), line: 0 }, |rule| rule.place.clone());
    let mut comments = Vec::new();
    for comment in worlds.iter().flat_map(|world| &world.state.comments) {
        if !comments.contains(comment) {
            comments.push(comment.clone());
        }
    }
    let (refused, others): (Vec<_>, Vec<_>) =
        worlds.into_iter().partition(|world| matches!(world.end, Some(RouteEnd::Refused(_))));
    let mut statuses: Vec<u16> = Vec::new();
    for world in &refused {
        if let Some(RouteEnd::Refused(status)) = world.end
            && !statuses.contains(&status)
        {
            statuses.push(status);
        }
    }
    let Some(first) = others.first() else {
        let (status, told_by) = (statuses[0], refused.first().and_then(|world| world.told_by));
        if let (Some(rule), [_, _, ..]) = (told_by, statuses.as_slice()) {
            comments.push(rule.note(&format!("all addresses are refused with {status}")));
        }
        let names: BTreeSet<_> = refused.iter().flat_map(|world| &world.state.limits).collect();
        return RouteDraft {
            requests,
            name: None,
            end: RouteEnd::Refused(status),
            limits: names.into_iter().map(|name| (name.clone(), Networks::default())).collect(),
            admitted: Networks::all(),
            edits: Vec::new(),
            comments,
            place,
        };
    };
    let told_by = refused.iter().chain(&others).find_map(|world| world.told_by);
    if let (Some(rule), Some(status)) = (told_by, statuses.iter().find(|status| **status != 403)) {
        comments
            .push(rule.note(&format!("it answers {status}, and `allow` and `deny` of a route answer 403")));
    }
    let admitted = others.iter().fold(Networks::default(), |all, world| all.or(&world.addresses));
    let mut limits: Vec<(String, Networks)> = Vec::new();
    for name in others.iter().flat_map(|world| &world.state.limits) {
        if limits.iter().any(|(known, _)| known == name) {
            continue;
        }
        let is_exempt = |world: &&World<'_>| !world.state.limits.contains(name);
        let exempt = others.iter().filter(is_exempt);
        limits.push((name.clone(), exempt.fold(Networks::default(), |all, world| all.or(&world.addresses))));
    }
    let mut route = RouteDraft {
        requests,
        name: first.state.name.clone(),
        end: first.end.clone().unwrap_or(RouteEnd::Closed),
        limits,
        admitted,
        edits: first.state.edits.clone(),
        comments,
        place,
    };
    let is_same = |world: &World<'_>| world.end == first.end && world.state.edits == first.state.edits;
    if !others.iter().all(is_same) {
        if let Some(rule) = told_by {
            let text = "some addresses get another response, and routes do not choose by address. Until you decide, the \
                        route answers 501";
            route.comments.push(rule.note(text));
        }
        route.end = RouteEnd::Closed;
    }
    route
}

impl RouteDraft {
    /// The notes on parts without an equal.
    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.comments.iter().filter_map(Comment::note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::convert::{
        condition::HostCondition, draft::ConfigDraft, path::Path, site::SiteListener, yaml::Map,
    };

    fn rule(when: RequestCondition, effect: Effect) -> SiteRule {
        SiteRule::new(when, effect, &SourceLine { file: "f".into(), line: 1 }, "rule")
    }

    fn to(upstream: &str) -> Effect {
        Effect::Act(RuleResponse::Upstream(upstream.into()))
    }

    /// A limit on the requests that it counts.
    fn limit(when: RequestCondition, policy: &str) -> SiteRule {
        rule(when.clone(), Effect::Limit { policy: policy.into(), counted: when })
    }

    fn host(name: &str) -> RequestCondition {
        RequestCondition::host(HostCondition::Exact(name.into()))
    }

    fn prefix(path: &str) -> RequestCondition {
        RequestCondition::path(Path::prefix(path).unwrap())
    }

    fn from(network: &str) -> RequestCondition {
        Test::Addresses(Networks::parse([network]).unwrap()).into()
    }

    fn get() -> RequestCondition {
        RequestCondition::method("GET")
    }

    /// The items of `routes`, without notes.
    fn written(rules: Vec<SiteRule>) -> Vec<String> {
        let (routes, _) = with_notes(rules);
        routes
    }

    fn with_notes(rules: Vec<SiteRule>) -> (Vec<String>, Vec<String>) {
        let listener =
            |name: &str| SiteListener { name: name.into(), settings: Map::new(), comments: Vec::new() };
        let mut draft =
            ConfigDraft { listeners: vec![listener("a"), listener("b")], ..ConfigDraft::default() };
        draft.policies.set("per-ip", Map::new().with("key", "ip"));
        draft.policies.set("all", Map::new().with("key", "global"));
        draft.sites.push(Site { listeners: ["a".to_owned(), "b".to_owned()].into(), rules });
        let conversion = draft.finish("", None);
        let routes = conversion.yaml.split("routes:\n").nth(1).unwrap_or_default();
        let routes = routes.lines().map(str::trim).filter_map(|line| line.strip_prefix("- "));
        let routes = routes.map(|line| line.replace("\"~", "~").replace("\",", ","));
        let notes = conversion.unconverted.into_iter().map(|note| note.text).collect();
        (routes.collect(), notes)
    }

    #[test]
    fn rules_that_overlap_hold_together() {
        let admin = host("admin.a.com").and(from("10.0.0.0/8").not());
        let found = written(vec![
            rule(admin, Effect::Refuse(403)),
            limit(prefix("/login"), "per-ip"),
            rule(RequestCondition::ALWAYS, to("web")),
        ]);
        assert_eq!(
            found,
            [
                "{ hosts: [admin.a.com], path: ~^/login, upstream: web, policies: [per-ip], allow: [10.0.0.0/8] }",
                "{ hosts: [admin.a.com], path: /*, upstream: web, allow: [10.0.0.0/8] }",
                "{ path: ~^/login, upstream: web, policies: [per-ip] }",
                "{ path: /*, upstream: web }",
            ]
        );
    }

    #[test]
    fn hosts_are_compared_as_hosts() {
        let below = RequestCondition::host(HostCondition::Below("a.com".into()));
        let found = written(vec![
            rule(below.and(from("10.0.0.0/8")), Effect::Refuse(403)),
            rule(host("x.a.com"), to("x")),
            rule(RequestCondition::ALWAYS, to("web")),
        ]);
        assert_eq!(
            found,
            [
                "{ hosts: [x.a.com], path: /*, upstream: x, deny: [10.0.0.0/8] }",
                "{ hosts: [\"*.a.com\"], path: /*, upstream: web, deny: [10.0.0.0/8] }",
                "{ path: /*, upstream: web }",
            ]
        );
    }

    #[test]
    fn expressions_in_a_prefix_stay_in_it() {
        let ends = |pattern: &str| RequestCondition::path(Path::regex(pattern, false).unwrap());
        let inner = vec![
            rule(ends("/x$"), Effect::Refuse(403)),
            rule(ends(r"\.(png|css)$"), to("files")),
            rule(RequestCondition::ALWAYS, to("a")),
        ];
        let found = written(vec![rule(prefix("/a/"), Effect::Enter(inner)), rule(ends("/x$"), to("x"))]);
        assert_eq!(
            found[..3],
            [
                "{ path: ~^/a/(?:x$|.*/x$), reply: { status: 403 } }",
                r"{ path: '~^/a/.*\.(png|css)$', upstream: files }",
                "{ path: /a/*, upstream: a }",
            ]
        );
    }

    #[test]
    fn alike_routes_are_one() {
        let found = written(vec![rule(host("a.com"), to("web")), rule(host("b.com"), to("web"))]);
        assert_eq!(found, ["{ hosts: [a.com, b.com], path: /*, upstream: web }"]);
        let found = written(vec![rule(host("a.com"), to("web")), rule(RequestCondition::ALWAYS, to("web"))]);
        assert_eq!(found, ["{ path: /*, upstream: web }"]);
    }

    #[test]
    fn get_is_not_head() {
        let found = written(vec![rule(get(), to("a")), rule(RequestCondition::ALWAYS, to("b"))]);
        assert_eq!(
            found,
            [
                "{ path: /*, methods: [HEAD], upstream: b }",
                "{ path: /*, methods: [GET], upstream: a }",
                "{ path: /*, upstream: b }"
            ]
        );
        let found =
            written(vec![rule(get().not(), Effect::Refuse(405)), rule(RequestCondition::ALWAYS, to("b"))]);
        assert_eq!(
            found,
            [
                "{ path: /*, methods: [HEAD], reply: { status: 405 } }",
                "{ path: /*, methods: [GET], upstream: b }",
                "{ path: /*, reply: { status: 405 } }"
            ]
        );
    }

    #[test]
    fn a_route_that_says_nothing_new_is_left_out() {
        let one = host("a.com").and(prefix("/x")).and(get());
        let found = written(vec![rule(one, to("a")), rule(host("a.com"), to("web"))]);
        assert_eq!(
            found,
            [
                "{ hosts: [a.com], path: ~^/x, methods: [HEAD], upstream: web }",
                "{ hosts: [a.com], path: ~^/x, methods: [GET], upstream: a }",
                "{ hosts: [a.com], path: /*, upstream: web }",
            ]
        );
    }

    #[test]
    fn conditions_that_cannot_be_converted_open_nothing() {
        let unknown = || RequestCondition::unknown("no such test");
        let of_host = || RequestCondition::unknown_place("no such host");
        let last = || rule(RequestCondition::ALWAYS, to("web"));
        let in_doubt = |effect: Effect| with_notes(vec![rule(unknown(), effect), last()]);
        assert_eq!(in_doubt(Effect::Refuse(403)).0, ["{ path: /*, reply: { status: 403 } }"]);
        assert_eq!(in_doubt(to("other")).0, ["{ path: /*, reply: { status: 501 } }"]);
        let limited = written(vec![limit(unknown(), "per-ip"), last()]);
        assert_eq!(limited, ["{ path: /*, upstream: web, policies: [per-ip] }"]);
        let set = HeaderRule::Set("x-user".into(), "a".into());
        let (routes, notes) = in_doubt(Effect::Edit(Edit::Request(set)));
        assert_eq!(routes, ["{ path: /*, upstream: web, request_headers: { remove: [x-user] } }"]);
        assert_eq!(notes, ["`rule`: no such test: the header is removed from all of these requests"]);
        let limited = with_notes(vec![limit(of_host(), "per-ip"), last()]);
        assert_eq!((limited.0[0].as_str(), limited.1.len()), ("{ path: /*, reply: { status: 501 } }", 1));
        // Behind the inner form, the outer one is closed.
        let between = RequestCondition::between(get(), prefix("/a"), "why");
        let found = written(vec![rule(prefix("/a").and(between), to("a")), last()]);
        assert_eq!(
            found,
            [
                "{ path: ~^/a, methods: [HEAD], reply: { status: 501 } }",
                "{ path: ~^/a, methods: [GET], upstream: a }",
                "{ path: ~^/a, reply: { status: 501 } }",
                "{ path: /*, upstream: web }"
            ]
        );
    }

    #[test]
    fn closed_routes_keep_their_locks() {
        let rules = vec![
            rule(from("10.0.0.0/8").not(), Effect::Refuse(403)),
            limit(RequestCondition::ALWAYS, "per-ip"),
            rule(RequestCondition::ALWAYS, Effect::Close("passwords".into())),
        ];
        let found = written(rules);
        assert_eq!(found, ["{ path: /*, reply: { status: 501 }, policies: [per-ip], allow: [10.0.0.0/8] }"]);
    }

    #[test]
    fn addresses_do_not_choose_routes() {
        let (routes, notes) = with_notes(vec![
            rule(from("10.0.0.0/8"), to("inner")),
            rule(RequestCondition::ALWAYS, to("web")),
        ]);
        assert_eq!(routes, ["{ path: /*, reply: { status: 501 } }"]);
        assert_eq!(notes.len(), 1);
        let exempt = from("10.0.0.0/8").not();
        let limited = vec![
            rule(
                exempt.clone(),
                Effect::Limit { policy: "per-ip".into(), counted: RequestCondition::ALWAYS },
            ),
            rule(exempt, Effect::Limit { policy: "all".into(), counted: RequestCondition::ALWAYS }),
            rule(RequestCondition::ALWAYS, to("web")),
        ];
        assert_eq!(written(limited), ["{ path: /*, upstream: web, policies: [all, per-ip] }"]);
    }

    #[test]
    fn limits_deny_at_least_what_counts() {
        let on = |when: RequestCondition, counted: RequestCondition| {
            let effect = Effect::Limit { policy: "per-ip".into(), counted };
            written(vec![rule(when, effect), rule(RequestCondition::ALWAYS, to("web"))])
        };
        // All methods count, and only GET is denied: all are limited.
        assert_eq!(on(get(), RequestCondition::ALWAYS), ["{ path: /*, upstream: web, policies: [per-ip] }"]);
        // All paths count: denied requests are closed, and nothing else is limited.
        assert_eq!(
            on(prefix("/api"), RequestCondition::ALWAYS),
            ["{ path: ~^/api, reply: { status: 501 } }", "{ path: /*, upstream: web }"]
        );
        assert_eq!(
            on(RequestCondition::ALWAYS, prefix("/api")),
            ["{ path: ~^/api, upstream: web, policies: [per-ip] }", "{ path: /*, upstream: web }"]
        );
    }

    #[test]
    fn listeners_are_named_where_routes_differ() {
        let on_b: RequestCondition = Test::Listeners(["b".to_owned()].into()).into();
        let redirect = Effect::Act(RuleResponse::Redirect(Map::new().with("scheme", "https")));
        assert_eq!(
            written(vec![rule(on_b, redirect), rule(RequestCondition::ALWAYS, to("web"))]),
            ["{ listeners: [b], path: /*, redirect: { scheme: https } }", "{ path: /*, upstream: web }"]
        );
    }

    /// A request, as rules and routes see it.
    #[derive(Debug, Clone)]
    struct Request {
        host: &'static str,
        path: &'static str,
        method: &'static str,
        header: &'static str,
        address: &'static str,
        listener: &'static str,
        /// The truth of conditions that Tollgate cannot compare.
        secret: bool,
    }

    impl Request {
        fn meets(&self, test: &Test) -> bool {
            match test {
                Test::Hosts(hosts) => hosts.iter().any(|host| self.is_host(host)),
                Test::Path(path) => path.covers(&Path::Exact(self.path.into())),
                Test::Methods(methods) => methods.contains(self.method),
                Test::Value { value, .. } => self.header == value,
                Test::Addresses(networks) => {
                    !networks.and(&Networks::parse([self.address]).unwrap()).is_empty()
                }
                Test::Listeners(names) => names.contains(self.listener),
            }
        }

        fn is_host(&self, host: &HostCondition) -> bool {
            match host {
                HostCondition::Exact(name) => self.host == name,
                HostCondition::Below(name) => self.host.ends_with(&format!(".{name}")),
            }
        }

        fn holds(&self, condition: &RequestCondition) -> bool {
            match condition {
                RequestCondition::Test(test) => self.meets(test),
                RequestCondition::Not(inner) => !self.holds(inner),
                RequestCondition::All(all) => all.iter().all(|one| self.holds(one)),
                RequestCondition::Any(any) => any.iter().any(|one| self.holds(one)),
                RequestCondition::Between { inner, outer, .. } => {
                    self.holds(inner) || self.secret && self.holds(outer)
                }
            }
        }

        /// The behaviour of the source: the names of its limits, and the upstream, or `None` if it refuses the request.
        fn in_source(&self, rules: &[SiteRule]) -> (Vec<String>, Option<String>) {
            let mut limits = Vec::new();
            for rule in rules.iter().filter(|rule| self.holds(&rule.when)) {
                match &rule.effect {
                    Effect::Act(RuleResponse::Upstream(name)) => return (limits, Some(name.clone())),
                    Effect::Limit { policy, .. } => limits.push(policy.clone()),
                    Effect::Enter(rules) => {
                        let (inner, end) = self.in_source(rules);
                        return ([limits, inner].concat(), end);
                    }
                    _ => return (limits, None),
                }
            }
            (limits, None)
        }

        /// The behaviour of the first route that matches.
        fn in_result(&self, routes: &[RouteDraft]) -> (Vec<String>, Option<String>, bool) {
            let is_selected = |route: &&RouteDraft| {
                let Requests { listeners, hosts, path, methods, values } = &route.requests;
                let follows_get =
                    |methods: &BTreeSet<String>| self.method == "HEAD" && methods.contains("GET");
                listeners.as_ref().is_none_or(|names| names.contains(self.listener))
                    && hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|host| self.is_host(host)))
                    && self.meets(&Test::Path(path.clone()))
                    && methods.as_ref().is_none_or(|all| all.contains(self.method) || follows_get(all))
                    && values.values().all(|value| self.header == value)
            };
            let Some(route) = routes.iter().find(is_selected) else { return (Vec::new(), None, false) };
            let address = Networks::parse([self.address]).unwrap();
            let limits = route.limits.iter().filter(|(_, exempt)| exempt.and(&address).is_empty());
            let limits = limits.map(|(name, _)| name.clone()).collect();
            let upstream = match &route.end {
                RouteEnd::Act(RuleResponse::Upstream(name)) if !route.admitted.and(&address).is_empty() => {
                    Some(name.clone())
                }
                _ => None,
            };
            (limits, upstream, route.notes().next().is_some())
        }
    }

    mod agreement {
        use proptest::prelude::*;

        use super::*;

        fn tests() -> impl Strategy<Value = RequestCondition> {
            let exact = prop::sample::select(vec![
                host("a.com"),
                host("x.a.com"),
                RequestCondition::host(HostCondition::Below("a.com".into())),
                prefix("/a"),
                prefix("/a/"),
                RequestCondition::path(Path::exact("/a/b").unwrap()),
                RequestCondition::path(Path::regex("b$", false).unwrap()),
                RequestCondition::path(Path::regex("^/[ab]/", false).unwrap()),
                get(),
                RequestCondition::method("HEAD"),
                Test::Methods(["GET".to_owned(), "POST".to_owned()].into()).into(),
                RequestCondition::value(ValueKind::Header, "x", "1"),
                from("10.0.0.0/8"),
                from("10.1.0.0/16"),
                Test::Listeners(["b".to_owned()].into()).into(),
                RequestCondition::ALWAYS,
            ]);
            let unknown = Just(RequestCondition::unknown("unknown"));
            let leaf = prop_oneof![12 => exact, 1 => unknown];
            leaf.prop_recursive(3, 8, 3, |inner| {
                prop_oneof![
                    inner.clone().prop_map(RequestCondition::not),
                    prop::collection::vec(inner.clone(), 1..3).prop_map(RequestCondition::All),
                    prop::collection::vec(inner.clone(), 1..3).prop_map(RequestCondition::Any),
                    (inner.clone(), inner).prop_map(|(one, other)| {
                        RequestCondition::between(
                            one.clone(),
                            RequestCondition::Any(vec![one, other]),
                            "between",
                        )
                    }),
                ]
            })
        }

        fn rules() -> impl Strategy<Value = Vec<SiteRule>> {
            let effect = prop_oneof![
                2 => Just(Effect::Refuse(403)),
                3 => prop::sample::select(vec!["web", "other"]).prop_map(to),
                2 => prop::sample::select(vec!["per-ip", "all"]).prop_map(|policy| Effect::Limit {
                    policy: policy.into(),
                    counted: RequestCondition::ALWAYS,
                }),
            ];
            let one = (tests(), effect).prop_map(|(when, effect)| match effect {
                Effect::Limit { policy, .. } => limit(when, &policy),
                effect => rule(when, effect),
            });
            let one = one.boxed();
            let inner = prop::collection::vec(one.clone(), 1..4);
            let entered = (tests(), inner).prop_map(|(when, rules)| rule(when, Effect::Enter(rules)));
            prop::collection::vec(prop_oneof![4 => one, 1 => entered], 1..6)
        }

        fn requests() -> impl Strategy<Value = Request> {
            let one_of = |texts: &'static [&'static str]| prop::sample::select(texts);
            (
                one_of(&["a.com", "x.a.com", "y.x.a.com", "b.com"]),
                one_of(&["/", "/a", "/a/", "/a/b", "/ab", "/b/b", "/c"]),
                one_of(&["GET", "HEAD", "POST", "PUT"]),
                one_of(&["1", "2"]),
                one_of(&["10.1.2.3", "10.2.3.4", "192.0.2.1", "2001:db8::1"]),
                one_of(&["a", "b"]),
                any::<bool>(),
            )
                .prop_map(|(host, path, method, header, address, listener, secret)| Request {
                    host,
                    path,
                    method,
                    header,
                    address,
                    listener,
                    secret,
                })
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(256))]

            /// A request that the source refuses is refused, one that it limits is limited, and any other gets to the
            /// same upstream, or is refused by a route with a note.
            #[test]
            fn nothing_is_laxer(rules in rules(), sent in prop::collection::vec(requests(), 20)) {
                let site = Site { listeners: ["a".to_owned(), "b".to_owned()].into(), rules: rules.clone() };
                let routes = routes(&site, &|policy| policy == "per-ip");
                for request in sent {
                    let (limits, expected) = request.in_source(&rules);
                    let (found_limits, found, is_noted) = request.in_result(&routes);
                    match (&expected, &found) {
                        (_, None) if expected.is_some() => prop_assert!(is_noted, "silent: {request:?}"),
                        _ => prop_assert_eq!(&expected, &found, "{:?}", request),
                    }
                    let is_limited = limits.iter().all(|name| found_limits.contains(name));
                    prop_assert!(found.is_none() || is_limited, "{request:?}: {limits:?}, {found_limits:?}");
                }
            }
        }
    }
}
