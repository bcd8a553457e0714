//! The middlewares of a router in their order, and then its service.

#![expect(clippy::result_large_err, reason = "the error is the rule that closes a route, and few are made")]

use std::collections::BTreeSet;

use super::{
    Traefik,
    entry_points::{EntryPoint, encoded_characters},
    headers, paths, plain_name, redirects,
    routers::Router,
    rule::TEMPLATE,
};
use crate::convert::{
    condition::Condition,
    document::{Fields, Item},
    draft::size,
    site::{Action, Edit, Effect, Rule},
    yaml::{Map, Node},
};

/// The deepest nesting of chains.
const MAX_DEPTH: usize = 8;

/// Middlewares that neither open nor break anything if they are left out, and what takes their place.
const NOTED: [(&str, &str); 6] = [
    ("compress", "Tollgate does not compress; let the service or a CDN do it"),
    ("contenttype", "Tollgate does not guess the type of a response"),
    ("circuitbreaker", "endpoints whose requests fail are left out for a while: see `outlier` of upstreams"),
    (
        "errors",
        "responses of the service pass as they are; Tollgate's own 502, 503 and 504 cannot have another body",
    ),
    ("grpcweb", "let the service speak gRPC-Web"),
    ("buffering", "see `request_buffering` of upstreams"),
];

/// Middlewares that check who asks, or that services rely on.
const CLOSED: [(&str, &str); 5] = [
    ("basicauth", PASSWORDS),
    ("digestauth", PASSWORDS),
    (
        "forwardauth",
        "the service or a gateway in front must check who asks, or `require: user` with tokens (`user: [{ jwt: … }]`)",
    ),
    ("plugin", "Tollgate has no plugins, and this one may check who asks"),
    ("passtlsclientcert", "see `forward_client_certificate`"),
];

const PASSWORDS: &str = "Tollgate checks no passwords. Use API keys (`api_keys`), tokens (`user: [{ jwt: … }]`), or check \
                         them in the service";

/// A middleware where a router uses it.
pub(super) struct Middleware<'d> {
    pub(super) name: &'d str,
    pub(super) kind: &'d str,
    pub(super) item: Item<'d>,
    pub(super) fields: Fields<'d>,
}

/// What a middleware does.
pub(super) enum Step {
    Rules(Vec<Rule>),
    /// Under each condition, this rule precedes what follows the middleware. The first that holds counts.
    Branches(Vec<(Condition, Rule)>),
}

/// What is known of a router and its requests on an entry point.
#[derive(Clone)]
pub(super) struct Context<'r, 'd> {
    pub(super) router: &'r Router<'d>,
    pub(super) entry_point: &'r EntryPoint<'d>,
    pub(super) is_tls: bool,
    /// The fields of responses that a middleware before changes: it sees responses later, and its value stays.
    pub(super) changed: BTreeSet<String>,
    pub(super) has_cors: bool,
    /// Whether the path is another one by now.
    is_moved: bool,
    /// What cannot be converted. Only locks follow it.
    closed: Option<Rule>,
}

impl<'d> Middleware<'d> {
    pub(super) fn rule(&self, when: Condition, effect: Effect) -> Rule {
        Rule::new(when, effect, &self.item.place(), format!("middlewares.{}.{}", self.name, self.kind))
    }

    pub(super) fn always(&self, effect: Effect) -> Rule {
        self.rule(Condition::ALWAYS, effect)
    }

    pub(super) fn close(&self, text: impl Into<String>) -> Rule {
        self.always(Effect::Close(text.into()))
    }

    pub(super) fn note(&self, text: impl Into<String>) -> Rule {
        self.always(Effect::Note(text.into()))
    }

    /// A number; without it, `default`.
    ///
    /// # Errors
    /// The rule that closes, if it cannot be read.
    pub(super) fn number(&self, key: &str, default: i64) -> Result<i64, Rule> {
        match self.fields.take(key) {
            None => Ok(default),
            Some(item) => item
                .text()
                .and_then(|text| text.replace('_', "").parse().ok())
                .ok_or_else(|| self.close(format!("`{key}` is no number that can be read"))),
        }
    }
}

impl<'d> Traefik<'d> {
    /// The rules that a router enters, but for its name. `closed`: what of it cannot be converted.
    pub(super) fn chain(
        &mut self,
        entry_point: &EntryPoint<'d>,
        router: &Router<'d>,
        is_tls: bool,
        closed: Vec<Rule>,
    ) -> Vec<Rule> {
        let mut context = Context {
            router,
            entry_point,
            is_tls,
            changed: BTreeSet::new(),
            has_cors: false,
            is_moved: false,
            closed: None,
        };
        let mut rules = Vec::new();
        closed.into_iter().for_each(|rule| context.add(rule, &mut rules));
        let mut uses = Vec::new();
        let of_service = self.service_middlewares(router);
        for named in entry_point.middlewares.iter().chain(&router.middlewares).chain(&of_service) {
            self.flatten(*named, &mut uses, 0);
        }
        rules.extend(self.walk(&uses, context));
        rules
    }

    /// Adds a middleware, or those of a chain.
    fn flatten(&mut self, named: Item<'d>, uses: &mut Vec<Item<'d>>, depth: usize) {
        let name = plain_name(named.text().unwrap_or_default());
        let chain = self.middlewares.get(name).and_then(|item| item.fields().take("chain"));
        match chain {
            Some(chain) if depth < MAX_DEPTH => {
                self.used.insert(format!("middleware {name}"));
                for named in chain.fields().items("middlewares") {
                    self.flatten(named, uses, depth + 1);
                }
            }
            _ => uses.push(named),
        }
    }

    fn walk(&mut self, uses: &[Item<'d>], mut context: Context<'_, 'd>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (nth, named) in uses.iter().enumerate() {
            match self.step(*named, &mut context) {
                Step::Rules(new) => new.into_iter().for_each(|rule| context.add(rule, &mut rules)),
                Step::Branches(_) if context.closed.is_some() => {}
                Step::Branches(branches) => {
                    let rest = &uses[nth + 1..];
                    for (when, rule) in branches {
                        let mut context = context.clone();
                        let mut inner = Vec::new();
                        context.add(rule.clone(), &mut inner);
                        inner.extend(self.walk(rest, context));
                        rules.push(Rule { when, effect: Effect::Enter(inner), ..rule });
                    }
                    rules.extend(self.walk(rest, context));
                    return rules;
                }
            }
        }
        let last = match &context.router.redirect {
            None => self.service_rules(context.router),
            Some(redirection) => {
                let item = context.router.item;
                let middleware =
                    Middleware { name: "redirections", kind: "entryPoint", item, fields: item.fields() };
                let mut last = self.to_scheme(&middleware, &context, redirection);
                last.push(middleware.always(Effect::Refuse(404)));
                last
            }
        };
        if context.closed.is_none() {
            last.into_iter().for_each(|rule| context.add(rule, &mut rules));
        }
        rules.extend(context.closed);
        rules
    }

    fn step(&mut self, named: Item<'d>, context: &mut Context<'_, 'd>) -> Step {
        let name = named.text().unwrap_or_default();
        let close = |text: String| {
            Step::Rules(vec![Rule::new(
                Condition::ALWAYS,
                Effect::Close(text),
                &named.place(),
                format!("middlewares.{name}"),
            )])
        };
        let plain = plain_name(name);
        let Some((plain, item)) = self.middlewares.get_key_value(plain).map(|(name, item)| (*name, *item))
        else {
            return close(format!(
                "the middleware `{name}` is not in this file, and it may be one that asks for a password"
            ));
        };
        self.used.insert(format!("middleware {plain}"));
        let kinds = item.fields().each();
        let [(kind, item)] = kinds.as_slice() else {
            return close(format!(
                "the middleware `{name}` is not of one kind: Traefik does not make its router"
            ));
        };
        let middleware = Middleware { name: plain, kind, item: *item, fields: item.fields() };
        if has_template(*item) {
            return Step::Rules(vec![middleware.close(TEMPLATE)]);
        }
        let mut step = self.converted(&middleware, context);
        let is_known = CLOSED.iter().chain(&NOTED).any(|(known, _)| known.eq_ignore_ascii_case(kind))
            || kind.eq_ignore_ascii_case("retry");
        if !is_known && let Some((key, _)) = middleware.fields.rest().first() {
            let close = middleware.close(format!("`{key}` has no equal"));
            match &mut step {
                Step::Rules(rules) => rules.push(close),
                Step::Branches(_) => step = Step::Rules(vec![close]),
            }
        }
        step
    }

    fn converted(&mut self, middleware: &Middleware<'d>, context: &mut Context<'_, 'd>) -> Step {
        let kind = middleware.kind.to_ascii_lowercase();
        Step::Rules(match kind.as_str() {
            "ratelimit" | "inflightreq" => {
                let entry_point = context.entry_point;
                let own = if entry_point.has_own { &entry_point.name } else { "" };
                self.limits(middleware, context.router.name, own)
            }
            "ipallowlist" | "ipwhitelist" => self.allow_list(middleware),
            "headers" => headers::rules(middleware, context),
            "buffering" => buffering(middleware),
            "retry" => retry(middleware),
            "encodedcharacters" => encoded_characters(&middleware.fields),
            "stripprefix" => return paths::strip_prefix(middleware),
            "stripprefixregex" => return paths::strip_prefix_regex(middleware),
            "addprefix" => paths::add_prefix(middleware),
            "replacepath" => paths::replace_path(middleware),
            "replacepathregex" => return paths::replace_path_regex(middleware),
            "redirectscheme" => self.redirect_scheme(middleware, context),
            "redirectregex" => redirects::redirect_regex(middleware, context),
            _ => match (known(&CLOSED, &kind), known(&NOTED, &kind)) {
                (Some(text), _) => vec![middleware.close(text)],
                (None, Some(text)) => vec![middleware.note(text)],
                (None, None) => vec![middleware.close("it has no equal")],
            },
        })
    }
}

fn known(table: &[(&str, &'static str)], kind: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == kind).map(|(_, text)| *text)
}

impl Context<'_, '_> {
    /// Adds a rule. Behind one that closes, only locks and notes are added: whoever opens the route must not lose them.
    fn add(&mut self, mut rule: Rule, rules: &mut Vec<Rule>) {
        match &rule.effect {
            Effect::Edit(Edit::Path(_)) => self.is_moved = true,
            Effect::Act(Action::Redirect(_)) if self.is_moved => {
                let text = "a middleware before changes the path that it redirects to".to_owned();
                rule.effect = Effect::Close(text);
            }
            _ => {}
        }
        match (&rule.effect, &self.closed) {
            (Effect::Close(_), None) => self.closed = Some(rule),
            (Effect::Close(text), Some(_)) => {
                let effect = Effect::Note(text.clone());
                rules.push(Rule { effect, ..rule.clone() });
            }
            (_, None) | (Effect::Refuse(_) | Effect::Limit { .. } | Effect::Note(_), Some(_)) => {
                rules.push(rule);
            }
            _ => {}
        }
    }
}

/// Whether a value, or one in it, is filled in by Traefik.
pub(super) fn has_template(item: Item<'_>) -> bool {
    let is_template = |item: Item<'_>| item.text().is_some_and(|text| text.contains("{{"));
    let inner = item.fields().each().into_iter().map(|(_, item)| item);
    is_template(item)
        || inner
            .chain(item.items().into_iter().filter(|_| item.text().is_none() && !item.is_mapping()))
            .any(has_template)
}

fn buffering(middleware: &Middleware<'_>) -> Vec<Rule> {
    let bytes = match middleware.number("maxRequestBodyBytes", 0) {
        Ok(bytes) => u64::try_from(bytes).unwrap_or(0),
        Err(close) => return vec![close],
    };
    // Where bodies are kept.
    middleware.fields.ignore(&["memRequestBodyBytes", "memResponseBodyBytes"]);
    let mut rules = Vec::new();
    if bytes > 0 {
        rules.push(
            middleware.always(Effect::Edit(Edit::Setting("max_body", Node::from(size(bytes.min(1 << 50)))))),
        );
    }
    rules.extend(noted_rest(middleware));
    rules
}

/// Notes on settings without an equal, which neither open nor break anything.
fn noted_rest(middleware: &Middleware<'_>) -> Vec<Rule> {
    let rest = middleware.fields.rest();
    rest.into_iter().map(|(key, _)| middleware.note(format!("`{key}` has no equal"))).collect()
}

fn retry(middleware: &Middleware<'_>) -> Vec<Rule> {
    let attempts = match middleware.number("attempts", 1) {
        Ok(attempts) => u64::try_from(attempts).unwrap_or(1),
        Err(close) => return vec![close],
    };
    // How long it waits.
    middleware.fields.ignore(&["initialInterval"]);
    let retry = Map::new().with("max", attempts.saturating_sub(1).min(10));
    let mut rules = vec![middleware.always(Effect::Edit(Edit::Setting("retry", Node::from(retry))))];
    rules.extend(noted_rest(middleware));
    rules
}
