//! `headers`: fields of requests and responses, CORS and what protects browsers.

use super::middlewares::{Context, Middleware};
use crate::convert::{
    condition::{Condition, Host, Test},
    document::{Fields, Item},
    draft::{duration, is_field_name, literal},
    site::{Action, Edit, Effect, HeaderChange, Rule},
    yaml::{Map, Node},
};

/// Fields that a route cannot change.
const FIXED: [&str; 13] = [
    "host",
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "sec-websocket-accept",
    "sec-websocket-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What nobody outside can see: `Vary` is set with `cors`.
const NEEDS_NOTHING: [&str; 1] = ["addVaryHeader"];

pub(super) fn rules(middleware: &Middleware<'_>, context: &mut Context<'_, '_>) -> Vec<Rule> {
    let fields = &middleware.fields;
    let mut rules = cors(middleware, context);
    for (name, item) in fields.fields("customRequestHeaders").each() {
        rules.push(match change(name, item) {
            Ok(change) => middleware.always(Effect::Edit(Edit::Request(change))),
            Err(text) => middleware.close(text),
        });
    }
    let mut responses = Vec::new();
    for (name, item) in fields.fields("customResponseHeaders").each() {
        match change(name, item) {
            Ok(change) => responses.push(change),
            Err(text) => rules.push(middleware.close(text)),
        }
    }
    for (name, value) in protection(fields, context.is_tls) {
        responses.push(HeaderChange::Set(name.to_owned(), literal(&value)));
    }
    for change in responses {
        // The middleware before sees the response later.
        if context.changed.insert(change.name().to_owned()) {
            rules.push(middleware.always(Effect::Edit(Edit::Response(change))));
        }
    }
    rules.extend(allowed_hosts(middleware));
    rules.extend(to_https(middleware, context));
    fields.ignore(&NEEDS_NOTHING);
    rules
}

fn change(name: &str, item: Item<'_>) -> Result<HeaderChange, String> {
    let (name, value) = (name.to_ascii_lowercase(), item.text().unwrap_or_default());
    if FIXED.contains(&name.as_str()) || !is_field_name(&name) {
        return Err(format!("`{name}` cannot be changed; for Host see `host` of upstreams"));
    }
    if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') || value.trim() != value {
        return Err(format!("the value of `{name}` is none that a header can have"));
    }
    Ok(match value {
        "" => HeaderChange::Remove(name),
        _ => HeaderChange::Set(name, literal(value)),
    })
}

/// Fields that protect browsers.
fn protection(fields: &Fields<'_>, is_tls: bool) -> Vec<(&'static str, String)> {
    let mut set = Vec::new();
    let seconds = fields.number("stsSeconds").filter(|seconds| *seconds > 0);
    let (has_subdomains, is_preload) = (fields.is_true("stsIncludeSubdomains"), fields.is_true("stsPreload"));
    let has_proxy = fields.take("sslProxyHeaders").is_some();
    if let Some(seconds) = seconds.filter(|_| fields.is_true("forceSTSHeader") || is_tls || has_proxy) {
        let subdomains = if has_subdomains { "; includeSubDomains" } else { "" };
        let preload = if is_preload { "; preload" } else { "" };
        set.push(("strict-transport-security", format!("max-age={seconds}{subdomains}{preload}")));
    }
    fields.ignore(&["forceSTSHeader"]);
    for (key, custom, header, value) in [
        ("frameDeny", "customFrameOptionsValue", "x-frame-options", "DENY"),
        ("contentTypeNosniff", "", "x-content-type-options", "nosniff"),
        ("browserXssFilter", "customBrowserXSSValue", "x-xss-protection", "1; mode=block"),
    ] {
        let is_on = fields.is_true(key);
        let custom = Some(custom).filter(|custom| !custom.is_empty()).and_then(|custom| fields.text(custom));
        set.extend(custom.or(is_on.then_some(value)).map(|value| (header, value.to_owned())));
    }
    for (key, header) in [
        ("contentSecurityPolicy", "content-security-policy"),
        ("contentSecurityPolicyReportOnly", "content-security-policy-report-only"),
        ("referrerPolicy", "referrer-policy"),
        ("permissionsPolicy", "permissions-policy"),
        ("featurePolicy", "feature-policy"),
    ] {
        set.extend(fields.text(key).map(|value| (header, value.to_owned())));
    }
    set
}

/// Other hosts than `allowedHosts` are refused.
fn allowed_hosts(middleware: &Middleware<'_>) -> Option<Rule> {
    let hosts = middleware.fields.texts("allowedHosts");
    let is_forwarded =
        middleware.fields.take("hostsProxyHeaders").is_some_and(|item| !item.texts().is_empty());
    let listed = hosts.iter().map(|host| Host::Exact(host.to_ascii_lowercase())).collect();
    let when = match is_forwarded {
        true => Condition::unknown("it compares a host that the proxy in front tells"),
        false => Condition::from(Test::Hosts(listed)).not(),
    };
    (!hosts.is_empty()).then(|| middleware.rule(when, Effect::Refuse(500)))
}

/// `sslRedirect` and what belongs to it, of Traefik 2.
fn to_https(middleware: &Middleware<'_>, context: &Context<'_, '_>) -> Option<Rule> {
    let fields = &middleware.fields;
    let [is_on, is_temporary, is_forced] =
        ["sslRedirect", "sslTemporaryRedirect", "sslForceHost"].map(|key| fields.is_true(key));
    let host = fields.text("sslHost");
    if is_forced {
        return Some(middleware.close("`sslForceHost`: write a route with `redirect`"));
    }
    let mut redirect =
        Map::new().with("scheme", "https").with("status", if is_temporary { 307 } else { 308 });
    redirect.extend_some("host", host);
    (is_on && !context.is_tls).then(|| middleware.always(Effect::Act(Action::Redirect(redirect))))
}

fn cors(middleware: &Middleware<'_>, context: &mut Context<'_, '_>) -> Vec<Rule> {
    let fields = &middleware.fields;
    let origins = fields.texts("accessControlAllowOriginList");
    let has_patterns = fields.take("accessControlAllowOriginListRegex").is_some();
    let [methods, headers, exposed] =
        ["accessControlAllowMethods", "accessControlAllowHeaders", "accessControlExposeHeaders"]
            .map(|key| fields.texts(key));
    let age = fields.number("accessControlMaxAge").filter(|seconds| *seconds > 0);
    let has_credentials = fields.is_true("accessControlAllowCredentials");
    let has_more = ["accessControlMaxAge", "addVaryHeader"].iter().any(|key| fields.take(key).is_some());
    let lists = [&origins, &methods, &headers, &exposed];
    let is_set = has_patterns || has_credentials || has_more || lists.iter().any(|list| !list.is_empty());
    if !is_set || context.has_cors {
        return Vec::new();
    }
    context.has_cors = true;
    let is_any = |values: &[&str]| values.contains(&"*");
    let is_origin = |origin: &&&str| {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*'])) || **origin == "*"
    };
    let known: Vec<&str> = origins.iter().filter(is_origin).copied().collect();
    let mut rules = Vec::new();
    if has_patterns || known.len() < origins.len() || known.is_empty() {
        let text = "list the origins in `cors.origins`, with `https://*.example.org` for names below";
        rules.push(middleware.note(text));
    }
    if has_credentials && is_any(&known) {
        let text = "credentials with every origin: Tollgate refuses this, since any page could read what a user can. List \
                    the origins";
        rules.push(middleware.note(text));
    }
    if known.is_empty() {
        // Traefik answers preflights by itself.
        let text = "without a list of origins, Tollgate does not answer preflights";
        rules.push(middleware.rule(Condition::method("OPTIONS"), Effect::Close(text.to_owned())));
        return rules;
    }
    let list = |values: &[&str]| if is_any(values) { Node::from("*") } else { Node::from(values.to_vec()) };
    let mut setting = Map::new().with("origins", list(&known));
    for (key, values) in [("methods", &methods), ("headers", &headers)] {
        setting.extend_some(key, (!values.is_empty()).then(|| list(values)));
    }
    setting.extend_some("expose", (!exposed.is_empty() && !is_any(&exposed)).then(|| exposed.clone()));
    setting.extend_some("credentials", (has_credentials && !is_any(&known)).then_some(true));
    setting.extend_some("max_age", age.map(|seconds| duration(seconds.min(31_622_400) * 1000)));
    rules.push(middleware.always(Effect::Edit(Edit::Setting("cors", setting.into()))));
    rules
}
