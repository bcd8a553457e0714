//! What comes behind the rewrite phase of a location: limits, access, and the content.

use super::{
    NginxReader,
    locations::{At, LocationBlock, Matcher},
    rule,
    scope::BlockScope,
    state::{RewriteState, Seen},
    steps::KEEPS_QUERY,
    syntax::Directive,
    values::size,
    words::{DirectiveTreatment, NO_PASSWORDS, class, said},
};
use crate::offline::convert::{
    condition::RequestCondition,
    networks::Networks,
    path::encoded,
    site::{Edit, Effect, PathEdit, RuleResponse, SiteRule},
    yaml::{YamlNode, YamlValue},
};

const FILES: &str = "nginx serves files here, and Tollgate serves none: forward to a file server";
const NO_HTTP: &str = "Tollgate speaks HTTP to services: put their own HTTP server here as an upstream";

impl<'d> NginxReader<'d> {
    /// The rules of a location that was found, or of the server where none is.
    pub(super) fn location(&mut self, at: At<'_, 'd>, state: &RewriteState<'d>) -> Vec<SiteRule> {
        let mut rules = self.notes(at);
        let scope = at.scope();
        if let Some(internal) = scope.last("internal").filter(|_| !state.is_internal) {
            rules.push(rule(internal, RequestCondition::ALWAYS, Effect::Refuse(404)));
            return rules;
        }
        rules.extend(self.body_limit(scope, &RequestCondition::ALWAYS));
        let Some(location) = at.location else {
            rules.extend(self.content(at, state));
            return rules;
        };
        for block in location.directive.children().iter().filter(|child| child.name == "limit_except") {
            let mut methods: Vec<&str> = block.arguments.iter().map(String::as_str).collect();
            if methods.contains(&"GET") {
                methods.push("HEAD");
            }
            let others: Vec<RequestCondition> =
                methods.iter().map(|method| RequestCondition::method(method).not()).collect();
            // The steps of the location are not for these.
            let found = self.content(at, &RewriteState { block: Some(block), ..state.clone() });
            rules.push(rule(block, RequestCondition::All(others), Effect::Enter(found)));
        }
        rules.extend(self.steps(at, &at.directives(), state.clone()));
        rules
    }

    /// The rule for the longest body, if it is not that of all servers.
    pub(super) fn body_limit(&self, scope: &BlockScope<'d>, when: &RequestCondition) -> Option<SiteRule> {
        let most = scope.last("client_max_body_size")?;
        let effect = match size(most.argument(0)) {
            Some(text) if text == self.max_body => return None,
            Some(text) => Effect::Edit(Edit::Setting("max_body", number_or_text(&text))),
            None => Effect::Close("its size cannot be read".to_owned()),
        };
        Some(rule(most, when.clone(), effect))
    }

    /// What is noted of the directives of a location, and of those around it.
    pub(super) fn notes(&self, at: At<'_, 'd>) -> Vec<SiteRule> {
        let is_elsewhere =
            |directive: &&Directive| self.at_head.iter().any(|known| std::ptr::eq(*known, *directive));
        let noted = at.scope().effective().into_iter().filter(|directive| !is_elsewhere(directive));
        noted
            .filter(|directive| matches!(class(directive), DirectiveTreatment::Noted(_)))
            .filter_map(|directive| said(directive, &RequestCondition::ALWAYS))
            .collect()
    }

    /// The rules behind the rewrite phase.
    pub(super) fn content(&mut self, at: At<'_, 'd>, state: &RewriteState<'d>) -> Vec<SiteRule> {
        let scope = self.scope_at(at, state);
        let mut rules = Vec::new();
        rules.extend(self.limits(&scope, state));
        rules.extend(self.access(&scope));
        let closes = |directive: &&Directive| matches!(class(directive), DirectiveTreatment::Closes(_));
        let closing = scope.effective().into_iter().filter(closes);
        rules.extend(closing.filter_map(|directive| said(directive, &RequestCondition::ALWAYS)));
        rules.extend(self.handler(at, &scope, state));
        rules
    }

    /// The rules of `allow`, `deny` and `auth_basic`.
    fn access(&self, scope: &BlockScope<'d>) -> Vec<SiteRule> {
        let list = scope.all(&["allow", "deny"]);
        let has_auth = scope.effective().into_iter().find(|directive| {
            let is_auth = directive.name.starts_with("auth_") || directive.name.starts_with("access_by_lua");
            directive.name == "auth_basic" && directive.argument(0) != "off"
                || is_auth && matches!(class(directive), DirectiveTreatment::Closes(_))
        });
        let mut rules = Vec::new();
        // An address that is allowed needs no password, or the other way round.
        let is_either = scope.value("satisfy") == "any" && has_auth.is_some();
        if let (Some(first), false) = (list.iter().find(|one| one.name == "deny"), is_either) {
            let when = match permitted(&list) {
                Ok(networks) if networks.is_all() => RequestCondition::NEVER,
                Ok(networks) if networks.is_empty() => RequestCondition::ALWAYS,
                Ok(networks) => self.is_from(networks).not(),
                Err(text) => RequestCondition::unknown(format!("`{text}` is not an address")),
            };
            if when != RequestCondition::NEVER {
                rules.push(rule(first, when, Effect::Refuse(403)));
            }
        }
        if let Some(auth) = has_auth.filter(|auth| auth.name == "auth_basic") {
            rules.push(rule(auth, RequestCondition::ALWAYS, Effect::Close(NO_PASSWORDS.to_owned())));
        }
        rules
    }

    /// The rules of the content itself.
    fn handler(&mut self, at: At<'_, 'd>, scope: &BlockScope<'d>, state: &RewriteState<'d>) -> Vec<SiteRule> {
        let own: Vec<&'d Directive> = at.directives();
        let of_block: Vec<&'d Directive> = state.block.iter().flat_map(|block| block.children()).collect();
        // The block of an `if` does not inherit it.
        let files = own.iter().rfind(|child| child.name == "try_files");
        if let Some(files) = files.filter(|_| state.block.is_none()) {
            return self.try_files(files, at, scope, state);
        }
        let is_pass = |child: &&&Directive| child.name.ends_with("_pass");
        let pass = of_block.iter().rfind(is_pass).or_else(|| own.iter().rfind(is_pass)).copied();
        let is_all = |location: &LocationBlock<'_>| matches!(&location.matcher, Matcher::Prefix { text, .. } if text == "/");
        let of_server = || scope.last("root").filter(|_| !at.server.locations.iter().any(is_all));
        let files = at.location.map(|location| location.directive).or_else(of_server);
        let close = |directive: &Directive, text: &str| {
            vec![rule(directive, RequestCondition::ALWAYS, Effect::Close(text.to_owned()))]
        };
        match pass {
            Some(pass) if matches!(pass.name.as_str(), "proxy_pass" | "grpc_pass") => {
                self.proxied(pass, at, scope, state)
            }
            Some(pass) => close(pass, NO_HTTP),
            None => files.map_or(Vec::new(), |files| close(files, FILES)),
        }
    }

    /// The rules of `try_files`: those of what is served where no file is.
    fn try_files(
        &mut self,
        files: &'d Directive,
        at: At<'_, 'd>,
        scope: &BlockScope<'d>,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let last = files.arguments.last().map_or("", String::as_str);
        let queries = ["?$args", "?$query_string", "$is_args$args"];
        let path = queries.into_iter().find_map(|query| last.strip_suffix(query)).unwrap_or(last);
        let counted = scope.all(&["limit_req"]).into_iter().chain(scope.all(&["limit_conn"]));
        let counted = counted.map(|limit| limit.name.as_str()).chain(state.counted.iter().copied()).collect();
        let mut state = RewriteState { block: None, is_internal: true, counted, ..state.clone() };
        let found = if last.starts_with('@') {
            let is_it = |location: &&LocationBlock<'_>| location.matcher == Matcher::Named(last.to_owned());
            let named = at.server.locations.iter().find(is_it);
            named.map(|location| self.location(At { location: Some(location), ..at }, &state))
        } else if path.starts_with('/') && !path.contains(['$', '?', '=']) {
            state.seen = Seen::Whole { path: path.to_owned(), is_new: true };
            Some(self.search(at, state))
        } else {
            None
        };
        match found {
            Some(found) => {
                let text = "Tollgate serves no files: all requests go where nginx sends those without a file";
                let note = rule(files, RequestCondition::ALWAYS, Effect::Note(text.to_owned()));
                [note].into_iter().chain(found).collect()
            }
            None => vec![rule(files, RequestCondition::ALWAYS, Effect::Close(FILES.to_owned()))],
        }
    }

    /// The rules of `proxy_pass`.
    fn proxied(
        &mut self,
        pass: &'d Directive,
        at: At<'_, 'd>,
        scope: &BlockScope<'d>,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let mut rules = self.response_edits(scope, None, &RequestCondition::ALWAYS, state);
        rules.extend(self.request_edits(scope, pass.name == "grpc_pass", state));
        let cases = self.texts(pass.argument(0), state).0;
        let is_one = cases.len() == 1;
        for (case, text) in cases {
            let found = match text.ok_or("it has variables: write a route for each value".to_owned()) {
                Ok(text) => self.forwarded(pass, &text, at, scope, state),
                Err(why) => Err(why),
            };
            let inner =
                found.unwrap_or_else(|why| vec![rule(pass, RequestCondition::ALWAYS, Effect::Close(why))]);
            match is_one || case == RequestCondition::ALWAYS {
                true => rules.extend(inner),
                false => rules.push(rule(pass, case, Effect::Enter(inner))),
            }
        }
        rules
    }

    /// The rules for one URL of `proxy_pass`.
    fn forwarded(
        &mut self,
        pass: &'d Directive,
        text: &str,
        at: At<'_, 'd>,
        scope: &BlockScope<'d>,
        state: &RewriteState<'d>,
    ) -> Result<Vec<SiteRule>, String> {
        let (destination, path) = self.destination(pass, text)?;
        let has_variables = pass.argument(0).contains('$');
        let edit = match path.as_deref() {
            None => state.edit(),
            Some(_) if state.is_broken && !has_variables => state.edit(),
            Some("${request_uri}") => None,
            Some(path) if has_variables => with_variables(path, state)?,
            Some(path) => self.with_path(path, at, state)?,
        };
        let (is_rewritten, mut rules) =
            self.host_rules(scope, &destination.authority, pass.name == "grpc_pass", state);
        let upstream = self.upstream(pass, &destination, scope, is_rewritten)?;
        rules.extend(edit.map(|edit| rule(pass, RequestCondition::ALWAYS, Effect::Edit(Edit::Path(edit)))));
        rules.push(rule(pass, RequestCondition::ALWAYS, Effect::Act(RuleResponse::Upstream(upstream))));
        Ok(rules)
    }

    /// The change of the path for a `proxy_pass` with a path, which takes the place of the location's.
    fn with_path(
        &self,
        by: &str,
        at: At<'_, 'd>,
        state: &RewriteState<'d>,
    ) -> Result<Option<PathEdit>, String> {
        let own = at.location.and_then(LocationBlock::path).ok_or("its path has no place here")?;
        if by.contains('?') {
            return Err(KEEPS_QUERY.to_owned());
        }
        let edit = match &state.seen {
            Seen::Whole { path, is_new } => {
                let new = format!("{by}{}", path.strip_prefix(own).unwrap_or_default());
                (*is_new || new != *path).then(|| PathEdit::Whole(encoded(&new)))
            }
            Seen::Template(_) => return Err("a `rewrite` before changes its path".to_owned()),
            Seen::Original(_) if own == by => None,
            seen => RewriteState { seen: seen.replaced(own, by)?, ..state.clone() }.edit(),
        };
        Ok(edit)
    }
}

/// The change of the path for a `proxy_pass` with variables, which sends its path as it is.
fn with_variables(path: &str, state: &RewriteState<'_>) -> Result<Option<PathEdit>, String> {
    match path.strip_suffix("${is_args}${args}").or_else(|| path.strip_suffix("?${args}")) {
        Some("${uri}") => Ok(state.edit()),
        Some(path) => Ok(Some(PathEdit::Template(state.path_text(path)?))),
        None => Err("with variables, nginx sends this path for all requests, without their query".to_owned()),
    }
}

/// The addresses that `allow` and `deny` let in: the first that an address is in decides.
fn permitted(list: &[&Directive]) -> Result<Networks, String> {
    let mut permitted = Networks::all();
    for one in list.iter().rev() {
        let network = match one.argument(0) {
            "all" => Networks::all(),
            "unix:" => continue,
            text => Networks::parse([text])?,
        };
        permitted = if one.name == "allow" { permitted.or(&network) } else { permitted.without(&network) };
    }
    Ok(permitted)
}

/// A node for a size: a number without a unit is written as one.
pub(super) fn number_or_text(text: &str) -> YamlNode {
    match text.parse::<u64>() {
        Ok(_) => YamlValue::Bare(text.to_owned()).into(),
        Err(_) => text.into(),
    }
}
