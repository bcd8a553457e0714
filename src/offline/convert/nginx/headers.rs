//! Changes of headers: `proxy_set_header`, `add_header`, `expires` and `proxy_hide_header`.

use super::{
    NginxReader, rule,
    scope::BlockScope,
    state::RewriteState,
    syntax::Directive,
    values::{header_text, milliseconds},
};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition},
    draft::is_field_name,
    site::{Edit, Effect, HeaderRule, SiteRule},
};

/// Headers of messages and connections, which each proxy makes itself.
const OWN: &str = "connection content-length expect host keep-alive proxy-connection te trailer transfer-encoding upgrade \
                   sec-websocket-key";

impl<'d> NginxReader<'d> {
    /// The rules that change the headers of responses. `status`: that of a response of nginx' own; `None`: that of the
    /// service.
    pub(super) fn response_edits(
        &self,
        scope: &BlockScope<'d>,
        status: Option<u16>,
        when: &RequestCondition,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        let mut add = |directive: &Directive, case: RequestCondition, effect: Effect| {
            rules.push(rule(directive, when.clone().and(case), effect));
        };
        let edit = |change: HeaderRule| Effect::Edit(Edit::Response(change));
        let is_usual = status
            .is_none_or(|status| matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308));
        for header in scope.all(&["proxy_hide_header", "grpc_hide_header"]) {
            let name = header.argument(0).to_ascii_lowercase();
            if status.is_none() && is_editable(&name) {
                add(header, RequestCondition::ALWAYS, edit(HeaderRule::Remove(name)));
            }
        }
        for header in scope.all(&["add_header"]) {
            let is_always = header.arguments.iter().skip(2).any(|argument| argument == "always");
            let name = header.argument(0).to_ascii_lowercase();
            if !is_usual && !is_always || status.is_some() && name == "content-type" {
                continue;
            }
            for (case, text) in self.texts(header.argument(1), state).apart() {
                let text = text.and_then(|text| header_text(&text).ok()).filter(|_| is_editable(&name));
                let effect = match text {
                    Some(text) if text.is_empty() => continue,
                    Some(text) => edit(HeaderRule::Add(name.clone(), text)),
                    None => Effect::Note(
                        "Tollgate has no equal of it, or of its variable: it is left out".to_owned(),
                    ),
                };
                add(header, case, effect);
            }
        }
        if let Some(expires) =
            scope.last("expires").filter(|expires| is_usual && expires.argument(0) != "off")
        {
            let control = match expires.argument(0) {
                "max" => Some("max-age=315360000".to_owned()),
                time if time == "epoch" || time.starts_with('-') => Some("no-cache".to_owned()),
                time => milliseconds(time).map(|time| format!("max-age={}", time / 1000)),
            };
            if let Some(control) = control {
                add(
                    expires,
                    RequestCondition::ALWAYS,
                    edit(HeaderRule::Set("cache-control".to_owned(), control)),
                );
            }
            let text = "Tollgate sets no `Expires`, and `Cache-Control` on errors, too";
            add(expires, RequestCondition::ALWAYS, Effect::Note(text.to_owned()));
        }
        rules
    }

    /// The rules that change the headers of requests.
    pub(super) fn request_edits(
        &self,
        scope: &BlockScope<'d>,
        is_grpc: bool,
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        for header in scope.all(&[if is_grpc { "grpc_set_header" } else { "proxy_set_header" }]) {
            let (name, value) = (header.argument(0).to_ascii_lowercase(), header.argument(1));
            if is_own(&name) || is_same(&name, value) {
                continue;
            }
            let mut add = |when: RequestCondition, effect: Effect| rules.push(rule(header, when, effect));
            if scope.value("underscores_in_headers") == "on" && name.contains('-') {
                let own = name.replace('-', "_");
                let text = format!("Tollgate takes `{own}` of clients for the same, and removes it");
                add(RequestCondition::ALWAYS, Effect::Note(text));
            }
            let edit = |change: HeaderRule| Effect::Edit(Edit::Request(change));
            for (case, text) in self.texts(value, state).apart() {
                let found = text.ok_or(value.to_owned()).and_then(|text| header_text(&text));
                match found {
                    _ if !is_field_name(&name) => {
                        add(case, Effect::Note("this is not the name of a header".to_owned()));
                    }
                    Ok(text) if !text.is_empty() => add(case, edit(HeaderRule::Set(name.clone(), text))),
                    Ok(_) => add(case, edit(HeaderRule::Remove(name.clone()))),
                    Err(variable) => {
                        let text = format!(
                            "Tollgate has no placeholder for `${}`: the header is removed, so that no client can write it",
                            variable.trim_start_matches('$')
                        );
                        add(case.clone(), edit(HeaderRule::Remove(name.clone())));
                        add(case, Effect::Note(text));
                    }
                }
            }
        }
        rules
    }

    /// The rules for the host that services get, and whether it is that of the endpoint.
    pub(super) fn host_rules(
        &self,
        scope: &BlockScope<'d>,
        authority: &str,
        is_grpc: bool,
        state: &RewriteState<'d>,
    ) -> (bool, Vec<SiteRule>) {
        let headers = scope.all(&[if is_grpc { "grpc_set_header" } else { "proxy_set_header" }]);
        let header = headers.into_iter().rfind(|header| header.argument(0).eq_ignore_ascii_case("host"));
        // By default, nginx sends the one of `proxy_pass`.
        let Some(header) = header else { return (true, Vec::new()) };
        let text = self.text(header.argument(1), state).unwrap_or_default();
        let text = text.replace(['{', '}'], "");
        match text.as_str() {
            "$host" | "$http_host" | "$host:$server_port" | "$host:$proxy_port" => (false, Vec::new()),
            "$proxy_host" | "$proxy_host:$proxy_port" => (true, Vec::new()),
            text if text == authority || authority.split(':').next() == Some(text) => (true, Vec::new()),
            text => {
                let why = format!("Tollgate sends the client's `Host` or that of the endpoint, not `{text}`");
                let own = HostCondition::Exact(text.to_ascii_lowercase());
                let when = if super::variables::is_host(text) {
                    RequestCondition::host(own).not()
                } else {
                    RequestCondition::ALWAYS
                };
                (false, vec![rule(header, when, Effect::Close(why))])
            }
        }
    }
}

/// Whether Tollgate sends this itself, or as it came.
fn is_same(name: &str, value: &str) -> bool {
    let value = value.replace(['{', '}'], "");
    match name {
        "x-forwarded-for" => matches!(value.as_str(), "$proxy_add_x_forwarded_for" | "$remote_addr"),
        "x-forwarded-proto" => value == "$scheme",
        "x-forwarded-host" => matches!(value.as_str(), "$host" | "$http_host"),
        name => value == format!("$http_{}", name.replace('-', "_")),
    }
}

fn is_own(name: &str) -> bool {
    OWN.split_whitespace().any(|own| own == name)
}

fn is_editable(name: &str) -> bool {
    is_field_name(name) && !is_own(name) && name != "date"
}
