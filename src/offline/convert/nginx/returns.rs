//! `return` and redirects of `rewrite`.

use super::{
    NginxReader,
    locations::At,
    rule,
    scope::BlockScope,
    state::{RewriteState, Seen},
    syntax::Directive,
    upstreams::is_authority,
    values::has_variable,
    words::{may_change_bodies, said},
};
use crate::offline::convert::{
    condition::{RequestCondition, Test},
    site::{Effect, RuleResponse, SiteRule},
    yaml::Map,
};

impl<'d> NginxReader<'d> {
    /// The scope of a location, or of the `if` in it that was met.
    pub(super) fn scope_at(&self, at: At<'_, 'd>, state: &RewriteState<'d>) -> BlockScope<'d> {
        match state.block {
            Some(block) => at.scope().enter(block.children()),
            None => at.scope().clone(),
        }
    }

    /// The rules of a `return`.
    pub(super) fn returned(
        &mut self,
        step: &'d Directive,
        when: &RequestCondition,
        at: At<'_, 'd>,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let (status, text): (Option<u16>, &str) = match step.arguments.as_slice() {
            [url] if url.parse::<u16>().is_err() => (Some(302), url.as_str()),
            [status] => (status.parse().ok(), ""),
            [status, text, ..] => (status.parse().ok(), text.as_str()),
            [] => (None, ""),
        };
        match status {
            Some(status @ (301 | 302 | 303 | 307 | 308)) if !text.is_empty() => {
                self.redirected(step, (status, text, false), when, at, state)
            }
            Some(444) => {
                let mut refused = rule(step, when.clone(), Effect::Refuse(403));
                let text = "Tollgate cannot close the connection without a response: it answers 403";
                refused.comments.push(refused.note(text));
                vec![refused]
            }
            Some(status @ (200..=299 | 400..=599)) => self.replied(step, status, text, when, at, state),
            _ => {
                let text = format!("Tollgate cannot reply with {}", step.argument(0));
                vec![rule(step, when.clone(), Effect::Close(text))]
            }
        }
    }

    fn replied(
        &mut self,
        step: &'d Directive,
        status: u16,
        text: &str,
        when: &RequestCondition,
        at: At<'_, 'd>,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let scope = self.scope_at(at, state);
        // Where routes do not choose by address, `allow` and `deny` refuse.
        if status >= 400 && (text.is_empty() || compares_addresses(when)) {
            let mut refused = rule(step, when.clone(), Effect::Refuse(status));
            if !text.is_empty() {
                let text = "its text is left out, since routes do not choose by address";
                refused.comments.push(refused.note(text));
            }
            return vec![refused];
        }
        let mut rules = self.response_edits(&scope, Some(status), when, state);
        if status == 200 && !text.is_empty() {
            let filters = scope.effective().into_iter().filter(|directive| may_change_bodies(directive));
            rules.extend(filters.filter_map(|filter| said(filter, when)));
        }
        for (case, text) in self.texts(text, state).0 {
            let when = when.clone().and(case);
            let effect = match text.filter(|text| !has_variable(text)) {
                None => Effect::Close("its text has variables".to_owned()),
                Some(text) => {
                    let mut reply = Map::new().with("status", u64::from(status));
                    if !text.is_empty() && status != 204 {
                        reply.set("content_type", Self::content_type(&scope, state));
                        reply.set("body", text);
                    }
                    Effect::Act(RuleResponse::Reply(reply))
                }
            };
            rules.push(rule(step, when, effect));
        }
        rules
    }

    /// The type of texts.
    fn content_type(scope: &BlockScope<'d>, state: &RewriteState<'d>) -> String {
        let headers = scope.all(&["add_header"]);
        let own = headers.iter().rfind(|header| header.argument(0).eq_ignore_ascii_case("content-type"));
        let text = own.map_or(scope.value("default_type"), |header| header.argument(1));
        match &state.seen {
            // Without a table of types, nginx has a small one.
            Seen::Original(path) | Seen::Whole { path, .. } if path.ends_with(".html") => {
                "text/html".to_owned()
            }
            _ if text.is_empty() || has_variable(text) => "text/plain".to_owned(),
            _ => text.to_owned(),
        }
    }

    /// The rules of a redirect: its status, its URL, and whether it is that of a `rewrite`, which keeps the query.
    pub(super) fn redirected(
        &mut self,
        step: &'d Directive,
        (status, url, is_rewrite): (u16, &str, bool),
        when: &RequestCondition,
        at: At<'_, 'd>,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let mut rules = self.response_edits(&self.scope_at(at, state), Some(status), when, state);
        for (case, text) in self.texts(url, state).0 {
            let redirect = text.ok_or("its URL has variables".to_owned());
            let redirect = redirect.and_then(|text| redirect_to(status, &text, is_rewrite, state));
            let effect = redirect.map_or_else(Effect::Close, |map| Effect::Act(RuleResponse::Redirect(map)));
            rules.push(rule(step, when.clone().and(case), effect));
        }
        rules
    }
}

/// Whether a condition tells addresses apart, by which routes do not choose.
fn compares_addresses(condition: &RequestCondition) -> bool {
    match condition {
        RequestCondition::Test(test) => matches!(test, Test::Addresses(_)),
        RequestCondition::Not(inner) => compares_addresses(inner),
        RequestCondition::All(all) | RequestCondition::Any(all) => all.iter().any(compares_addresses),
        RequestCondition::Between { inner, outer, .. } => {
            compares_addresses(inner) || compares_addresses(outer)
        }
    }
}

/// A redirect to `url`, in which variables of the request are left.
fn redirect_to(status: u16, url: &str, is_rewrite: bool, state: &RewriteState<'_>) -> Result<Map, String> {
    let unreadable = |what: &str| format!("its {what} cannot be read");
    let (url, mut keeps_query) = match url.strip_suffix('?').filter(|_| is_rewrite) {
        Some(url) => (url, false),
        None => (url, is_rewrite),
    };
    let queries = ["${is_args}${args}", "?${args}", "${is_args}${query_string}"];
    let without_query = queries.into_iter().find_map(|query| url.strip_suffix(query));
    keeps_query |= without_query.is_some();
    let url = without_query.unwrap_or(url);
    let (scheme, authority, path) = match url.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let at = ["/", "?", "${request_uri}", "${uri}"].into_iter().filter_map(|begin| rest.find(begin));
            let (authority, path) = rest.split_at(at.min().unwrap_or(rest.len()));
            (Some(scheme), authority, path)
        }
        None if url.starts_with('/') => (None, "${host}", url),
        _ => return Err(unreadable("URL")),
    };
    let host = Some(authority).filter(|host| !matches!(*host, "${host}" | "${http_host}"));
    if host.is_some_and(|host| !is_authority(host) || host.starts_with('[')) {
        return Err(unreadable("host"));
    }
    let (path, query) = path.split_once('?').map_or((path, ""), |(path, query)| (path, query));
    let path = match (path.trim_start_matches('/'), &state.seen) {
        ("${request_uri}", _) => {
            keeps_query = true;
            None
        }
        ("${uri}", Seen::Original(_) | Seen::Whole { is_new: false, .. }) => None,
        ("${uri}", Seen::Whole { path, .. }) => Some(path.clone()),
        _ => Some(state.path_text(if path.is_empty() { "/" } else { path })?),
    };
    let has_dots = |path: &String| path.split('/').any(|part| matches!(part, "." | ".."));
    if path.as_ref().is_some_and(|path| path.starts_with("//") || !path.starts_with('/') || has_dots(path)) {
        return Err(unreadable("path"));
    }
    let mut map = Map::new();
    match (scheme, host, path) {
        _ if has_variable(query) || !query.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(unreadable("query"));
        }
        (Some(scheme), Some(host), Some(path)) => {
            let query = query.replace('{', "{{").replace('}', "}}");
            let mark = if query.is_empty() { "" } else { "?" };
            map.set("to", format!("{scheme}://{host}{path}{mark}{query}"));
        }
        _ if !query.is_empty() => return Err("a query needs a whole URL: write `to`".to_owned()),
        (scheme, host, path) => {
            let (bare, port) = host.map_or((None, None), |host| match host.split_once(':') {
                Some((bare, port)) => (Some(bare), port.parse::<u64>().ok()),
                None => (Some(host), None),
            });
            map.extend_some("scheme", scheme);
            map.extend_some("host", bare);
            map.extend_some("port", port);
            map.extend_some("path", path);
        }
    }
    if map.is_empty() {
        return Err("it leads to the same URL again".to_owned());
    }
    if status != 308 {
        map.set("status", u64::from(status));
    }
    if !keeps_query {
        map.set("query", "drop");
    }
    Ok(map)
}
