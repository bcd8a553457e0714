//! The rewrite phase: `return`, `rewrite`, `if`, `set` and `break`, in their order.

use super::{
    NginxReader,
    locations::{At, uses_groups},
    rule,
    state::RewriteState,
    syntax::Directive,
    variables::{TextTest, VariableCases},
    words::{DirectiveTreatment, class, said},
};
use crate::offline::convert::{
    condition::RequestCondition,
    site::{Effect, SiteRule},
};

pub(super) const KEEPS_QUERY: &str = "a rewrite of Tollgate keeps the query as it came";

impl<'d> NginxReader<'d> {
    /// The rules of these steps, and of all that comes behind them: of the search for a location if they are the server's,
    /// or else of the location's content.
    pub(super) fn steps(
        &mut self,
        at: At<'_, 'd>,
        steps: &[&'d Directive],
        mut state: RewriteState<'d>,
    ) -> Vec<SiteRule> {
        if !self.has_budget() {
            return self.given_up(at);
        }
        let mut rules = Vec::new();
        if !self.run(at, &RequestCondition::ALWAYS, (steps, &[]), &mut state, &mut rules) {
            rules.extend(self.arrive(at, state));
        }
        rules
    }

    /// Adds the rules of steps under a condition, with others that come behind them. Returns whether they end there.
    fn run(
        &mut self,
        at: At<'_, 'd>,
        guard: &RequestCondition,
        (steps, behind): (&[&'d Directive], &[&'d Directive]),
        state: &mut RewriteState<'d>,
        rules: &mut Vec<SiteRule>,
    ) -> bool {
        for (nth, step) in steps.iter().enumerate() {
            let rest = || [&steps[nth + 1..], behind].concat();
            let has_ended = match step.name.as_str() {
                "return" => {
                    rules.extend(self.returned(step, guard, at, state));
                    true
                }
                "break" => {
                    let found = self.arrive(at, state.clone());
                    self.enter(step, guard.clone(), found, rules);
                    true
                }
                "rewrite" => self.rewrite(step, guard, at, state, &rest(), rules),
                "if" => self.conditional(step, at, state, &rest(), rules),
                "set" => {
                    self.set(step, &RequestCondition::ALWAYS, state);
                    false
                }
                _ => false,
            };
            if has_ended {
                return true;
            }
        }
        false
    }

    /// What follows the rewrite phase.
    fn arrive(&mut self, at: At<'_, 'd>, state: RewriteState<'d>) -> Vec<SiteRule> {
        match at.location {
            Some(_) if !state.is_moved => self.content(at, &state),
            _ => self.search(at, state),
        }
    }

    fn set(&self, step: &'d Directive, when: &RequestCondition, state: &mut RewriteState<'d>) {
        let name = step.argument(0).trim_start_matches('$');
        let text = step.argument(1);
        let known = state.variables.get(name).cloned().unwrap_or(VariableCases::of(""));
        // These change before it is used.
        let is_of_path = text.split('$').skip(1).any(|name| {
            let name = name.trim_start_matches('{');
            name.starts_with("uri")
                || name.starts_with("document_uri")
                || name.starts_with(|c: char| c.is_ascii_digit())
        });
        let new = match is_of_path {
            true => VariableCases::unknown(),
            false => self.texts(text, state),
        };
        state.variables.insert(name, new.under(when, known));
    }

    /// Adds the rules of a `rewrite` under a condition. Returns whether nothing comes behind it.
    fn rewrite(
        &mut self,
        step: &'d Directive,
        guard: &RequestCondition,
        at: At<'_, 'd>,
        state: &RewriteState<'d>,
        rest: &[&'d Directive],
        rules: &mut Vec<SiteRule>,
    ) -> bool {
        let (pattern, text, flag) = (step.argument(0), step.argument(1), step.argument(2));
        let is_url = ["http://", "https://", "$scheme://"].iter().any(|begin| text.starts_with(begin));
        let status = match flag {
            "permanent" => Some(301),
            "redirect" => Some(302),
            _ => is_url.then_some(302),
        };
        let found = match (status, self.text(text, state)) {
            (Some(_), _) => state.found(pattern, false, uses_groups(step)),
            (None, None) => Err("its new path has variables".to_owned()),
            (None, Some(text)) if text.contains('?') => Err(KEEPS_QUERY.to_owned()),
            (None, Some(text)) => state.rewritten(pattern, &text),
        };
        let (when, mut new) = match found {
            Ok(None) => return false,
            Ok(Some((when, new))) => (guard.clone().and(when), new),
            Err(why) => {
                let when = guard.clone().and(state.finds(pattern, false));
                rules.push(rule(step, when.clone(), Effect::Close(why)));
                return when == RequestCondition::ALWAYS;
            }
        };
        if let Some(status) = status {
            rules.extend(self.redirected(step, (status, text, true), &when, at, &new));
            return when == RequestCondition::ALWAYS;
        }
        new.is_moved = flag != "break";
        new.is_broken |= flag == "break";
        let inner = match flag {
            "last" | "break" => self.arrive(at, new),
            _ => self.steps(at, rest, new),
        };
        self.enter(step, when, inner, rules)
    }

    /// Adds the rules of an `if`. Returns whether nothing comes behind it.
    fn conditional(
        &mut self,
        step: &'d Directive,
        at: At<'_, 'd>,
        state: &mut RewriteState<'d>,
        rest: &[&'d Directive],
        rules: &mut Vec<SiteRule>,
    ) -> bool {
        let when = self.condition(step, state);
        if when == RequestCondition::NEVER {
            return false;
        }
        let children: Vec<&'d Directive> = step.children().iter().collect();
        let is_step =
            |child: &Directive| matches!(child.name.as_str(), "return" | "rewrite" | "break" | "set" | "if");
        let others =
            || children.iter().filter(|child| !is_step(child) && class(child) != DirectiveTreatment::Nothing);
        if at.location.is_none() {
            rules.extend(others().filter_map(|child| said(child, &when)));
        }
        let mut inner = RewriteState { block: at.location.and(Some(step)), ..state.clone() };
        if self.run(at, &when, (&children, rest), &mut inner, rules) {
            return when == RequestCondition::ALWAYS;
        }
        // The last block that is met takes the place of the location's directives.
        if at.location.is_some() && (state.block.is_some() || others().next().is_some()) {
            let found = self.steps(at, rest, inner);
            return self.enter(step, when, found, rules);
        }
        for child in children.iter().filter(|child| child.name == "set") {
            self.set(child, &when, state);
        }
        false
    }

    /// Adds rules under a condition. Returns whether nothing comes behind them.
    fn enter(
        &mut self,
        step: &'d Directive,
        when: RequestCondition,
        inner: Vec<SiteRule>,
        rules: &mut Vec<SiteRule>,
    ) -> bool {
        if when == RequestCondition::ALWAYS {
            rules.extend(inner);
            return true;
        }
        if when != RequestCondition::NEVER {
            rules.push(rule(step, when, Effect::Enter(inner)));
        }
        false
    }

    /// The condition of an `if`.
    fn condition(&self, step: &'d Directive, state: &RewriteState<'d>) -> RequestCondition {
        let unknown = || RequestCondition::unknown("Tollgate has no such condition");
        let last = step.arguments.len().saturating_sub(1);
        let word = |(nth, word): (usize, &'d String)| {
            let word = word.strip_prefix('(').filter(|_| nth == 0).unwrap_or(word);
            word.strip_suffix(')').filter(|_| nth == last).unwrap_or(word)
        };
        let words: Vec<&str> = step.arguments.iter().enumerate().map(word).collect();
        match words.strip_prefix(&[""]).unwrap_or(&words) {
            [variable] | [variable, ""] => self.holds(variable, TextTest::IsSet, state),
            [variable, operator @ ("=" | "!="), value] | [variable, operator @ ("=" | "!="), value, ""] => {
                let Some(value) = self.text(value, state).filter(|text| !text.contains('$')) else {
                    return unknown();
                };
                let holds = self.holds(variable, TextTest::Equals(&value), state);
                if *operator == "=" { holds } else { holds.not() }
            }
            [variable, operator @ ("~" | "~*" | "!~" | "!~*"), pattern, ..] => {
                let is_insensitive = operator.ends_with('*');
                let holds = self.holds(variable, TextTest::Matches { pattern, is_insensitive }, state);
                if operator.starts_with('!') { holds.not() } else { holds }
            }
            _ => unknown(),
        }
    }
}
