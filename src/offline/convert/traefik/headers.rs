//! `headers`: fields of requests and responses, CORS, and fields that protect browsers.

use super::middlewares::{Context, Middleware};
use crate::offline::convert::{
    condition::RequestCondition,
    document::{Fields, Item},
    draft::{duration, is_field_name, literal},
    site::{Edit, Effect, HeaderRule, SiteRule},
    yaml::{Map, YamlNode},
};

/// Fields that a route cannot change.
const FIXED: &str = " host connection content-length expect http2-settings keep-alive proxy-connection \
                     sec-websocket-accept sec-websocket-key te trailer transfer-encoding upgrade ";

pub(super) fn rules(middleware: &Middleware<'_>, context: &mut Context<'_, '_>) -> Vec<SiteRule> {
    let fields = &middleware.fields;
    let mut rules = cors(middleware, context);
    let custom = |key: &str| {
        fields.fields(key).each().into_iter().map(|(name, item)| change(name, item)).collect::<Vec<_>>()
    };
    let protection = protection(fields, context.is_tls).into_iter();
    let protection = protection.map(|(name, value)| Ok(HeaderRule::Set(name.to_owned(), literal(&value))));
    let requests = custom("customRequestHeaders").into_iter().map(|change| change.map(Edit::Request));
    let responses = custom("customResponseHeaders").into_iter().chain(protection);
    for edit in requests.chain(responses.map(|change: Result<_, String>| change.map(Edit::Response))) {
        match edit {
            // The middleware before sees the response later.
            Ok(Edit::Response(change)) if !context.changed.insert(change.name().to_owned()) => {}
            Ok(edit) => rules.push(middleware.always(Effect::Edit(edit))),
            Err(text) => rules.push(middleware.close(text)),
        }
    }
    rules
}

fn change(name: &str, item: Item<'_>) -> Result<HeaderRule, String> {
    let (name, value) = (name.to_ascii_lowercase(), item.text().unwrap_or_default());
    if !is_field_name(&name) || FIXED.contains(&format!(" {name} ")) {
        return Err(format!("`{name}` cannot be changed; for Host see `host` of upstreams"));
    }
    if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') || value.trim() != value {
        return Err(format!("the value of `{name}` is none that a header can have"));
    }
    Ok(match value {
        "" => HeaderRule::Remove(name),
        _ => HeaderRule::Set(name, literal(value)),
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
        let value = fields.text(custom).or(is_on.then_some(value));
        set.extend(value.map(|value| (header, value.to_owned())));
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

fn cors(middleware: &Middleware<'_>, context: &mut Context<'_, '_>) -> Vec<SiteRule> {
    let fields = &middleware.fields;
    let origins = fields.texts("accessControlAllowOriginList");
    let has_patterns = fields.take("accessControlAllowOriginListRegex").is_some();
    let [methods, headers, exposed] =
        ["accessControlAllowMethods", "accessControlAllowHeaders", "accessControlExposeHeaders"]
            .map(|key| fields.texts(key));
    let age = fields.take("accessControlMaxAge");
    let has_credentials = fields.is_true("accessControlAllowCredentials");
    let lists = [&origins, &methods, &headers, &exposed];
    let has_vary = fields.is_true("addVaryHeader");
    let is_set = has_patterns || has_credentials || age.is_some() || has_vary;
    if context.has_cors || !is_set && lists.iter().all(|list| list.is_empty()) {
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
        let text = "list the origins in `cors.origins`, with `https://*.example.org` for names below. Others get no \
                    `access-control-allow-origin`, `access-control-allow-credentials`, \
                    `access-control-expose-headers` and `vary`";
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
        rules.push(middleware.rule(RequestCondition::method("OPTIONS"), Effect::Close(text.to_owned())));
        return rules;
    }
    let list =
        |values: &[&str]| if is_any(values) { YamlNode::from("*") } else { YamlNode::from(values.to_vec()) };
    let mut setting = Map::new().with("origins", list(&known));
    for (key, values) in [("methods", &methods), ("headers", &headers)] {
        setting.extend_some(key, (!values.is_empty()).then(|| list(values)));
    }
    setting.extend_some("expose", (!exposed.is_empty() && !is_any(&exposed)).then_some(exposed));
    setting.extend_some("credentials", (has_credentials && !is_any(&known)).then_some(true));
    let age = age.and_then(|item| item.text()?.parse().ok()).filter(|seconds: &u64| *seconds > 0);
    setting.extend_some("max_age", age.map(|seconds| duration(seconds.min(31_622_400) * 1000)));
    rules.push(middleware.always(Effect::Edit(Edit::Setting("cors", setting.into()))));
    rules
}
