//! The middlewares of a router in their order, and then its service.

#![expect(clippy::result_large_err, reason = "the error is the rule that closes a route, and few are made")]

use std::collections::BTreeSet;

use super::{
    Traefik,
    entry_points::EntryPoint,
    headers, paths, plain_name, redirects,
    routers::{RouterEnd, TraefikRouter},
    rule::TEMPLATE,
};
use crate::offline::convert::{
    condition::RequestCondition,
    document::{Fields, Item},
    draft::size,
    site::{Edit, Effect, PathEdit, RuleResponse, SiteRule},
    yaml::{Map, YamlNode},
};

/// The deepest nesting of chains.
const MAX_DEPTH: usize = 8;

/// Middlewares that neither open nor break anything if they are left out, and their replacements.
const NOTED: [(&str, &str); 5] = [
    ("compress", "Tollgate does not compress; let the service or a CDN do it"),
    ("contenttype", "Tollgate does not guess the type of a response"),
    ("circuitbreaker", "endpoints whose requests fail are left out for a while: see `outlier` of upstreams"),
    ("errors", "responses of the service, and Tollgate's own, pass as they are"),
    ("grpcweb", "let the service speak gRPC-Web"),
];

/// Middlewares that check who asks, or that services rely on.
const CLOSED: [(&str, &str); 4] = [
    ("basicauth", PASSWORDS),
    ("digestauth", PASSWORDS),
    ("forwardauth", "the service must check who asks, or `require: user` with tokens (`user: [{ jwt: … }]`)"),
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

/// The effect of a middleware.
pub(super) enum MiddlewareStep {
    Rules(Vec<SiteRule>),
    /// Under each condition, this rule comes before the steps after the middleware. The first that holds counts.
    Branches(Vec<(RequestCondition, SiteRule)>),
}

/// The known facts about a router and its requests on an entry point.
#[derive(Clone)]
pub(super) struct Context<'r, 'd> {
    pub(super) router: &'r TraefikRouter<'d>,
    pub(super) entry_point: &'r EntryPoint<'d>,
    pub(super) is_tls: bool,
    /// The fields of responses that a middleware before changes: it sees responses later, and its value stays.
    pub(super) changed: BTreeSet<String>,
    pub(super) has_cors: bool,
    /// Whether the path is another one by now.
    is_moved: bool,
    /// Whether it may have two slashes in a row.
    has_slashes: bool,
    /// Whether one of the middlewares is `addPrefix`.
    has_prefix: bool,
    /// A part that cannot be converted. Only locks follow it.
    closed: Option<SiteRule>,
}

impl<'d> Middleware<'d> {
    pub(super) fn rule(&self, when: RequestCondition, effect: Effect) -> SiteRule {
        SiteRule::new(when, effect, &self.item.place(), format!("middlewares.{}.{}", self.name, self.kind))
    }

    pub(super) fn always(&self, effect: Effect) -> SiteRule {
        self.rule(RequestCondition::ALWAYS, effect)
    }

    pub(super) fn close(&self, text: impl Into<String>) -> SiteRule {
        self.always(Effect::Close(text.into()))
    }

    pub(super) fn note(&self, text: impl Into<String>) -> SiteRule {
        self.always(Effect::Note(text.into()))
    }

    /// A number; without it, `default`. One below zero is none.
    ///
    /// # Errors
    /// The rule that closes, if it cannot be read.
    pub(super) fn number(&self, key: &str, default: u64) -> Result<u64, SiteRule> {
        let Some(item) = self.fields.take(key) else { return Ok(default) };
        let number = item.text().and_then(|text| text.replace('_', "").parse::<i64>().ok());
        let error = || self.close(format!("`{key}` is no number that can be read"));
        number.map(|number| u64::try_from(number).unwrap_or(0)).ok_or_else(error)
    }
}

impl<'d> Traefik<'d> {
    /// The rules that a router enters, but for its name.
    pub(super) fn chain(
        &mut self,
        entry_point: &EntryPoint<'d>,
        router: &TraefikRouter<'d>,
        is_tls: bool,
    ) -> Vec<SiteRule> {
        let mut context = Context {
            router,
            entry_point,
            is_tls,
            changed: BTreeSet::new(),
            has_cors: false,
            is_moved: false,
            has_slashes: false,
            has_prefix: false,
            closed: None,
        };
        let (mut rules, mut uses) = (Vec::new(), Vec::new());
        for (key, _) in &router.unknown {
            context.add(router.always(Effect::Close(format!("`{key}` has no equal"))), &mut rules);
        }
        for named in entry_point.middlewares.iter().chain(&router.middlewares) {
            self.flatten(*named, &mut uses, 0);
        }
        // Traefik does not make a router with one, or a service, that is not there.
        if let RouterEnd::Service(named) = &router.end
            && let name = plain_name(named.text().unwrap_or_default())
            && !name.ends_with("@internal")
            && !self.services.contains_key(name)
        {
            self.service_rules(*named).into_iter().for_each(|rule| context.add(rule, &mut rules));
        }
        let (found, missing): (Vec<_>, Vec<_>) = uses.into_iter().partition(Result::is_ok);
        missing.into_iter().filter_map(Result::err).for_each(|rule| context.add(rule, &mut rules));
        let found: Vec<_> = found.into_iter().filter_map(Result::ok).collect();
        context.has_prefix = found.iter().any(|one| one.kind.eq_ignore_ascii_case("addPrefix"));
        rules.extend(self.walk(&found, context));
        rules
    }

    /// Adds a middleware, or those of a chain; or the rule that closes, if it is not there.
    fn flatten(&mut self, named: Item<'d>, uses: &mut Vec<Result<Middleware<'d>, SiteRule>>, depth: usize) {
        let name = named.text().unwrap_or_default();
        let close = |text: &str| {
            let effect = Effect::Close(format!("the middleware `{name}` {text}"));
            let shown = format!("middlewares.{name}");
            Err(SiteRule::new(RequestCondition::ALWAYS, effect, &named.place(), shown))
        };
        let found = self.middlewares.get_key_value(plain_name(name)).map(|(name, item)| (*name, *item));
        let Some((name, item)) = found else {
            uses.push(close("is not in this file, and it may be one that asks for a password"));
            return;
        };
        self.used.insert(("middleware", name));
        match item.fields().each().as_slice() {
            [(kind, chain)] if kind.eq_ignore_ascii_case("chain") && depth < MAX_DEPTH => {
                for named in chain.fields().items("middlewares") {
                    self.flatten(named, uses, depth + 1);
                }
            }
            [(kind, item)] => {
                let middleware = Middleware { name, kind, item: *item, fields: item.fields() };
                uses.push(match kind.eq_ignore_ascii_case("plugin") {
                    true => Err(middleware.close("Tollgate has no plugins, and this one may check who asks")),
                    false => Ok(middleware),
                });
            }
            _ => uses.push(close("is not of one kind: Traefik does not make its router")),
        }
    }

    fn walk(&mut self, uses: &[Middleware<'d>], mut context: Context<'_, 'd>) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        for (nth, middleware) in uses.iter().enumerate() {
            match self.step(middleware, &mut context) {
                MiddlewareStep::Rules(new) => new.into_iter().for_each(|rule| context.add(rule, &mut rules)),
                MiddlewareStep::Branches(_) if context.closed.is_some() => {}
                MiddlewareStep::Branches(branches) => {
                    let rest = &uses[nth + 1..];
                    for (when, rule) in branches {
                        let mut context = context.clone();
                        let mut inner = Vec::new();
                        context.add(rule.clone(), &mut inner);
                        inner.extend(self.walk(rest, context));
                        rules.push(SiteRule { when, effect: Effect::Enter(inner), ..rule });
                    }
                    rules.extend(self.walk(rest, context));
                    return rules;
                }
            }
        }
        let last = match &context.router.end {
            RouterEnd::Service(named) => self.service_rules(*named),
            RouterEnd::Redirect(redirection) => {
                let item = context.router.item;
                let middleware =
                    Middleware { name: "redirections", kind: "entryPoint", item, fields: item.fields() };
                self.to_scheme(&middleware, &context, redirection)
            }
        };
        let closed = context.closed.clone();
        let is_said = |rule: &SiteRule| {
            closed.as_ref().is_none_or(|closed| closed != rule && matches!(rule.effect, Effect::Close(_)))
        };
        last.into_iter().filter(is_said).for_each(|rule| context.add(rule, &mut rules));
        rules.extend(context.closed);
        rules
    }

    fn step(&mut self, middleware: &Middleware<'d>, context: &mut Context<'_, 'd>) -> MiddlewareStep {
        if has_template(middleware.item) {
            return MiddlewareStep::Rules(vec![middleware.close(TEMPLATE)]);
        }
        let mut step =
            self.converted(middleware, context).unwrap_or_else(|rule| MiddlewareStep::Rules(vec![rule]));
        for (key, _) in middleware.fields.rest() {
            let text = format!("`{key}` has no equal");
            match (&mut step, middleware.kind.to_ascii_lowercase().as_str()) {
                // They neither open nor break anything.
                (MiddlewareStep::Rules(rules), "buffering" | "retry") => rules.push(middleware.note(text)),
                (MiddlewareStep::Rules(rules), _) => rules.push(middleware.close(text)),
                (MiddlewareStep::Branches(_), _) => {
                    step = MiddlewareStep::Rules(vec![middleware.close(text)]);
                }
            }
        }
        step
    }

    /// # Errors
    /// The rule that closes, if it has no equal.
    fn converted(
        &mut self,
        middleware: &Middleware<'d>,
        context: &mut Context<'_, 'd>,
    ) -> Result<MiddlewareStep, SiteRule> {
        let kind = middleware.kind.to_ascii_lowercase();
        Ok(MiddlewareStep::Rules(match kind.as_str() {
            "ratelimit" | "inflightreq" => {
                let own = if context.entry_point.has_own { context.entry_point.name } else { "" };
                self.limits(middleware, context.router.name, own)?.into_iter().collect()
            }
            "ipallowlist" | "ipwhitelist" => self.allow_list(middleware)?,
            "headers" => headers::rules(middleware, context),
            "buffering" => buffering(middleware)?,
            "retry" => retry(middleware)?,
            "stripprefix" => return Ok(paths::strip_prefix(middleware, context.has_prefix)),
            "addprefix" => paths::add_prefix(middleware),
            "replacepath" => paths::replace_path(middleware),
            "replacepathregex" => return paths::replace_path_regex(middleware),
            "redirectscheme" => self.redirect_scheme(middleware, context),
            "redirectregex" => redirects::redirect_regex(middleware, context),
            kind => {
                let text = |table: &[(&str, &'static str)]| {
                    table.iter().find(|(known, _)| *known == kind).map(|(_, text)| *text)
                };
                middleware.fields.each();
                match text(&NOTED) {
                    Some(text) => vec![middleware.note(text)],
                    None => return Err(middleware.close(text(&CLOSED).unwrap_or("it has no equal"))),
                }
            }
        }))
    }
}

impl Context<'_, '_> {
    /// Adds a rule. Behind one that closes, only locks and notes are added: whoever opens the route must not lose them.
    fn add(&mut self, mut rule: SiteRule, rules: &mut Vec<SiteRule>) {
        match &rule.effect {
            Effect::Edit(Edit::Path(PathEdit::Replace { .. })) if self.has_slashes => {
                let text =
                    "a middleware before makes two slashes of one, which Traefik refuses here".to_owned();
                rule.effect = Effect::Close(text);
            }
            Effect::Edit(Edit::Path(edit)) => {
                self.is_moved = true;
                self.has_slashes |= matches!(edit, PathEdit::Prepend(text) if text.ends_with('/'));
            }
            Effect::Act(RuleResponse::Redirect(_)) if self.is_moved => {
                let text = "a middleware before changes the path that it redirects to".to_owned();
                rule.effect = Effect::Close(text);
            }
            _ => {}
        }
        if self.has_cors && matches!(rule.effect, Effect::Refuse(_)) {
            let text = "preflights, too, which Traefik answers before".to_owned();
            rules.push(SiteRule {
                when: RequestCondition::ALWAYS,
                effect: Effect::Note(text),
                ..rule.clone()
            });
        }
        match (&rule.effect, &self.closed) {
            (Effect::Close(_), None) if rule.when == RequestCondition::ALWAYS => self.closed = Some(rule),
            (Effect::Close(text), Some(_)) => {
                let effect = Effect::Note(text.clone());
                rules.push(SiteRule { effect, ..rule.clone() });
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

fn buffering(middleware: &Middleware<'_>) -> Result<Vec<SiteRule>, SiteRule> {
    let bytes = middleware.number("maxRequestBodyBytes", 0)?;
    // Where bodies are kept.
    middleware.fields.ignore(&["memRequestBodyBytes", "memResponseBodyBytes"]);
    let limit = Edit::Setting("max_body", YamlNode::from(size(bytes.min(1 << 50))));
    Ok((bytes > 0).then(|| middleware.always(Effect::Edit(limit))).into_iter().collect())
}

fn retry(middleware: &Middleware<'_>) -> Result<Vec<SiteRule>, SiteRule> {
    let attempts = middleware.number("attempts", 1)?;
    // How long it waits.
    middleware.fields.ignore(&["initialInterval"]);
    let retry = Map::new().with("max", attempts.saturating_sub(1).min(10));
    Ok(vec![middleware.always(Effect::Edit(Edit::Setting("retry", YamlNode::from(retry))))])
}
