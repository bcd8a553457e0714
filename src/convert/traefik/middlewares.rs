//! Middlewares become policies, and settings of routes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Traefik, leftovers, milliseconds, redirects,
    routers::{Router, Use},
};
use crate::convert::{
    conditions::{Host, Path},
    document::{Fields, Item},
    draft::resource_name,
    route_draft::{Action, NoRewrite, PathChange, RouteDraft, duration, speaks_of_credentials},
    yaml::{Comment, Map, Node},
};

impl<'d> Traefik<'d> {
    /// Adds the policies of all middlewares that limit. Traefik counts for each router apart.
    pub(super) fn name_policies(&mut self, routers: &[Router<'d>], routes: &BTreeMap<usize, usize>) {
        let mut users: Vec<(String, BTreeSet<usize>)> = Vec::new();
        for (nth, router) in routers.iter().enumerate().filter(|(nth, _)| routes.contains_key(nth)) {
            for used in &router.middlewares {
                match users.iter_mut().find(|(name, _)| *name == used.name) {
                    Some((_, routers)) => {
                        routers.insert(nth);
                    }
                    None => users.push((used.name.clone(), [nth].into())),
                }
            }
        }
        for (name, users) in users {
            let Some((written, item)) = self.middlewares.get(&name).copied() else { continue };
            let is_single = users.iter().all(|nth| routes.get(nth) == Some(&1));
            let by_route = users.len() > 1 && is_single;
            if users.len() == 1 || is_single {
                self.add_policy(&name, written, item, by_route, None);
            } else {
                for router in users.iter().filter_map(|nth| routers.get(*nth)) {
                    self.add_policy(&name, written, item, false, Some(router.name));
                }
            }
        }
    }

    /// The name of the policy of a middleware for a router.
    fn policy(&self, middleware: &str, router: &str) -> Option<String> {
        let one = self.policies.get(&(middleware.to_owned(), Some(router.to_owned())));
        one.or_else(|| self.policies.get(&(middleware.to_owned(), None))).cloned()
    }

    fn add_policy(
        &mut self,
        middleware: &str,
        written: &str,
        item: Item<'d>,
        by_route: bool,
        router: Option<&str>,
    ) {
        let Some((policy, comments)) = self.limit(item, by_route) else { return };
        let text = match router {
            Some(router) => format!("{written}-{router}"),
            None => written.to_owned(),
        };
        let name =
            resource_name(text.split('@').next().unwrap_or(&text), |name| self.draft.policies.has(name));
        let mut node = Node::from(policy);
        node.comments = comments;
        self.draft.policies.set(&name, node);
        self.policies.insert((middleware.to_owned(), router.map(str::to_owned)), name);
    }

    /// Adds the policy of a middleware that no router here uses. Returns whether it limits.
    pub(super) fn unused_policy(&mut self, name: &str, item: Item<'d>) -> bool {
        let Some((policy, mut comments)) = self.limit(item, false) else { return false };
        comments.push(
            item.note("no router of this file uses this middleware: add it to `policies` of its routes"),
        );
        let name = resource_name(name, |name| self.draft.policies.has(name));
        let mut node = Node::from(policy);
        node.comments = comments;
        self.draft.policies.set(&name, node);
        true
    }

    /// The policy of `rateLimit` or `inFlightReq`.
    fn limit(&mut self, item: Item<'d>, by_route: bool) -> Option<(Map, Vec<Comment>)> {
        let kinds = item.fields();
        let mut comments = Vec::new();
        let policy = if let Some(limit) = kinds.take("rateLimit") {
            let fields = limit.fields();
            let average = fields.number("average").unwrap_or(0);
            let period =
                fields.text("period").and_then(milliseconds).filter(|period| *period > 0).unwrap_or(1000);
            let burst = fields.number("burst").unwrap_or(1).max(1);
            let key = self.key(&fields, "ip", by_route, &mut comments);
            if let Some(redis) = fields.take("redis") {
                comments.push(redis.note("counts are in Redis: set `store: { redis: { url: … } }`"));
            }
            comments.extend(leftovers(&fields, "rateLimit"));
            if average == 0 {
                // No limit.
                return None;
            }
            let mut policy = Map::new()
                .with("algorithm", "gcra")
                .with("key", key)
                .with("limit", format!("{average}/{}", duration(period)))
                .with("burst", burst);
            // A request waits for up to half of the time between two, and at most for 500 ms.
            let rate = u64::try_from(u128::from(average) * 1000 / u128::from(period)).unwrap_or(u64::MAX);
            let delay = if rate < 1 { 500 } else { 1000 / (rate.saturating_mul(2)) };
            if delay > 0 {
                policy.set("delay", duration(delay));
            }
            policy
        } else {
            let limit = kinds.take("inFlightReq")?;
            let fields = limit.fields();
            let amount = fields.number("amount").unwrap_or(0);
            let key = self.key(&fields, "host", by_route, &mut comments);
            comments.extend(leftovers(&fields, "inFlightReq"));
            if amount == 0 {
                comments.push(
                    limit.note("`amount: 0` denies every request; the least that a policy admits is 1"),
                );
            }
            Map::new().with("algorithm", "concurrency").with("key", key).with("limit", amount.max(1))
        };
        Some((policy, comments))
    }

    fn key(
        &mut self,
        limit: &Fields<'d>,
        default: &str,
        by_route: bool,
        comments: &mut Vec<Comment>,
    ) -> String {
        let criterion = limit.fields("sourceCriterion");
        let mut key = default.to_owned();
        if let Some(strategy) = criterion.take("ipStrategy") {
            "ip".clone_into(&mut key);
            self.ip_strategy(&strategy.fields(), comments);
        }
        if let Some(name) = criterion.text("requestHeaderName") {
            key = format!("header:{}", name.to_ascii_lowercase());
            comments.push(Comment::Plain(format!(
                "Requests without {name} are limited by their address. Traefik has one limit for all of \
                    them."
            )));
        }
        if criterion.is_true("requestHost") {
            "host".clone_into(&mut key);
        }
        comments.extend(leftovers(&criterion, "sourceCriterion"));
        if by_route { format!("{key}+route") } else { key }
    }

    fn ip_strategy(&mut self, strategy: &Fields<'d>, comments: &mut Vec<Comment>) {
        let excluded = strategy.texts("excludedIPs");
        let depth = strategy.take("depth").filter(|item| item.text().is_some_and(|depth| depth != "0"));
        if let Some(depth) = depth.filter(|_| excluded.is_empty()) {
            comments.push(depth.note(format!(
                "`depth: {}`: list the networks of the proxies in front in `trusted_proxies`; until \
                    then, the address of the last proxy counts",
                depth.text().unwrap_or_default()
            )));
        }
        self.trusted.extend(excluded.into_iter().map(str::to_owned));
        if let Some(subnet) = strategy.number("ipv6Subnet").filter(|bits| *bits != 64) {
            self.draft.settings.set("client_address", Map::new().with("ipv6_prefix", subnet));
        }
        comments.extend(leftovers(strategy, "ipStrategy"));
    }

    /// The route with all middlewares of its router, and before it those that they split off. `is_first`: comments are
    /// told at the first route of a router.
    pub(super) fn applied(
        &mut self,
        router: &Router<'d>,
        mut route: RouteDraft,
        is_first: bool,
    ) -> Vec<RouteDraft> {
        let mut routes = Vec::new();
        for used in &router.middlewares {
            let mut comments = Vec::new();
            let split = self.apply(used, router.name, &mut route, &mut comments);
            if is_first {
                route.comments.append(&mut comments);
            }
            let mut is_whole = false;
            for (conditions, redirect) in split {
                is_whole |= conditions == route.conditions;
                let comments =
                    if routes.is_empty() { std::mem::take(&mut route.comments) } else { Vec::new() };
                routes.push(RouteDraft {
                    conditions,
                    comments,
                    action: Action::Redirect(redirect),
                    ..route.clone()
                });
            }
            if is_whole {
                return routes;
            }
        }
        routes.push(route);
        routes
    }

    /// Applies a middleware. Returns requests that it redirects.
    fn apply(
        &mut self,
        used: &Use<'d>,
        router: &str,
        route: &mut RouteDraft,
        comments: &mut Vec<Comment>,
    ) -> Vec<redirects::Redirected> {
        let Some((name, item)) = self.middlewares.get(&used.name).copied() else {
            comments.push(used.named.note(format!(
                "the middleware `{}` is not in this file, and it may be one that asks for a password: \
                    this route serves only this \
                 machine until you remove `allow`",
                used.named.text().unwrap_or(&used.name)
            )));
            route.is_closed = true;
            return Vec::new();
        };
        let kinds = item.fields();
        for (kind, middleware) in kinds.each() {
            let fields = middleware.fields();
            match kind.to_ascii_lowercase().as_str() {
                "ratelimit" | "inflightreq" => route.policies.extend(self.policy(&used.name, router)),
                "stripprefix" => {
                    let prefixes = fields.texts("prefixes");
                    fields.ignore(&["forceSlash"]);
                    strip(&prefixes, route, middleware, comments);
                }
                "addprefix" => {
                    let prefix = fields.text("prefix").unwrap_or_default();
                    match route.path.prepend(prefix, &route.conditions.path) {
                        Ok(change) => route.path = change,
                        Err(NoRewrite) => comments.push(middleware.note(format!(
                            "`addPrefix: {prefix}` needs a path such as /api/* here; the upstream gets \
                                the path without the prefix"
                        ))),
                    }
                }
                "replacepath" => {
                    if let Some(path) = fields.text("path") {
                        route.path = PathChange::Whole(path.to_owned());
                    }
                }
                "replacepathregex" => redirects::replace_path(&fields, route, middleware, comments),
                "redirectscheme" => {
                    let scheme = fields.text("scheme").unwrap_or("https");
                    let status = redirects::status(&fields);
                    // To HTTPS: where it is HTTPS, nothing is redirected, and the listener redirects the rest.
                    if scheme != "https" {
                        let mut redirect = Map::new().with("scheme", scheme);
                        redirect.set("status", status);
                        return vec![(route.conditions.clone(), redirect)];
                    }
                    fields.ignore(&["port"]);
                }
                "redirectregex" => return redirects::redirected(&fields, route, middleware, comments),
                "ipallowlist" | "ipwhitelist" => {
                    if !route.admit_only(&fields.texts("sourceRange")) {
                        comments.push(middleware.note(
                            "no client is in this list and in those before. This route serves only this \
                                machine until you correct `allow`",
                        ));
                    }
                    if let Some(strategy) = fields.take("ipStrategy") {
                        self.ip_strategy(&strategy.fields(), comments);
                    }
                    if let Some(status) =
                        fields.take("rejectStatusCode").filter(|item| item.text() != Some("403"))
                    {
                        comments.push(status.note("clients that are not listed get 403"));
                    }
                }
                "headers" => headers(&fields, route, comments),
                "buffering" => {
                    route.max_body =
                        fields.number("maxRequestBodyBytes").filter(|bytes| *bytes > 0).or(route.max_body);
                    fields.ignore(&["memRequestBodyBytes", "memResponseBodyBytes"]);
                }
                "retry" => {
                    let attempts = fields.number("attempts").unwrap_or(1);
                    route.retry = Some(Map::new().with("max", attempts.saturating_sub(1).min(10)));
                    fields.ignore(&["initialInterval"]);
                }
                "basicauth" | "digestauth" | "forwardauth" => {
                    let hint = match kind.to_ascii_lowercase().as_str() {
                        "forwardauth" => {
                            "the service or a gateway in front must check who asks, or `require: user` \
                                with tokens (`user: [{ jwt: … }]`)"
                        }
                        _ => {
                            "Tollgate checks no passwords. Use API keys (`api_keys`), tokens (`user: [{ \
                                jwt: … }]`), or check them in the service"
                        }
                    };
                    comments.push(middleware.note(format!(
                        "`{kind}` ({name}): {hint}. This route serves \
                        only this machine until you remove `allow`"
                    )));
                    route.is_closed = true;
                    continue;
                }
                other => {
                    let hint = match other {
                        "compress" => "Tollgate does not compress; let the service or a CDN do it",
                        "circuitbreaker" => {
                            "endpoints whose requests fail are left out for a while: see `outlier` of \
                                upstreams"
                        }
                        "errors" => {
                            "error pages of the service pass as they are; Tollgate's own 502, 503 and \
                                504 cannot have another body"
                        }
                        "plugin" => {
                            let kinds = fields.each();
                            let mut names = kinds.iter().map(|(name, _)| *name).chain([name]);
                            if names.any(speaks_of_credentials) {
                                route.is_closed = true;
                                "Tollgate has no plugins, and this one may check who asks: this route \
                                    serves only this machine until you remove `allow`"
                            } else {
                                "Tollgate has no plugins"
                            }
                        }
                        "passtlsclientcert" => "see `forward_client_certificate`",
                        "contenttype" => continue,
                        "stripprefixregex" => {
                            "write one route for each prefix, with `rewrite: { strip_prefix: … }`"
                        }
                        "grpcweb" => "let the service speak gRPC-Web",
                        _ => "it has no equal",
                    };
                    comments.push(middleware.note(format!("`{kind}` ({name}): {hint}")));
                    continue;
                }
            }
            if !matches!(kind.to_ascii_lowercase().as_str(), "ratelimit" | "inflightreq") {
                comments.extend(leftovers(&fields, kind));
            }
        }
        Vec::new()
    }
}

fn strip(prefixes: &[&str], route: &mut RouteDraft, middleware: Item<'_>, comments: &mut Vec<Comment>) {
    let text = match &route.conditions.path {
        Path::Exact(path) | Path::Prefix(path) | Path::Below(path) => path.as_str(),
        Path::Any | Path::Regex(_) => "",
    };
    // Traefik takes the first that the path begins with.
    let known = prefixes.iter().find(|prefix| text.starts_with(**prefix));
    let prefix = match (known, prefixes) {
        (Some(prefix), _) => *prefix,
        (None, [only]) => *only,
        (None, _) => {
            comments.push(middleware.note(
                "several prefixes: write one route for each, with `rewrite: { strip_prefix: … \
                        }`",
            ));
            return;
        }
    };
    match route.path.strip(prefix, &route.conditions.path) {
        Ok(change) => route.path = change,
        Err(NoRewrite) => comments.push(middleware.note(format!(
            "`{prefix}` cannot be removed after another change of the \
                path"
        ))),
    }
}

fn headers(fields: &Fields<'_>, route: &mut RouteDraft, comments: &mut Vec<Comment>) {
    for (key, changes) in [
        ("customRequestHeaders", &mut route.request_headers),
        ("customResponseHeaders", &mut route.response_headers),
    ] {
        for (name, item) in fields.fields(key).each() {
            let value = item.text().unwrap_or_default();
            let is_fixed = [
                "host",
                "connection",
                "content-length",
                "transfer-encoding",
                "te",
                "trailer",
                "upgrade",
                "keep-alive",
                "expect",
            ]
            .contains(&name.to_ascii_lowercase().as_str());
            if is_fixed {
                comments.push(item.note(format!(
                    "`{name}` cannot be changed; for Host see `host` of \
                        upstreams"
                )));
            } else if value.is_empty() {
                changes.remove.push(name.to_ascii_lowercase());
            } else {
                changes.set.push((name.to_ascii_lowercase(), crate::convert::route_draft::literal(value)));
            }
        }
    }
    let mut set = |name: &str, value: &str| {
        route.response_headers.set.push((name.to_owned(), crate::convert::route_draft::literal(value)));
    };
    if let Some(seconds) = fields.number("stsSeconds").filter(|seconds| *seconds > 0) {
        let subdomains = if fields.is_true("stsIncludeSubdomains") { "; includeSubDomains" } else { "" };
        let preload = if fields.is_true("stsPreload") { "; preload" } else { "" };
        set("strict-transport-security", &format!("max-age={seconds}{subdomains}{preload}"));
    }
    fields.ignore(&["stsIncludeSubdomains", "stsPreload", "forceSTSHeader"]);
    match (fields.text("customFrameOptionsValue"), fields.is_true("frameDeny")) {
        (Some(value), _) => set("x-frame-options", value),
        (None, true) => set("x-frame-options", "DENY"),
        (None, false) => {}
    }
    if fields.is_true("contentTypeNosniff") {
        set("x-content-type-options", "nosniff");
    }
    match (fields.text("customBrowserXSSValue"), fields.is_true("browserXssFilter")) {
        (Some(value), _) => set("x-xss-protection", value),
        (None, true) => set("x-xss-protection", "1; mode=block"),
        (None, false) => {}
    }
    for (key, header) in [
        ("contentSecurityPolicy", "content-security-policy"),
        ("contentSecurityPolicyReportOnly", "content-security-policy-report-only"),
        ("referrerPolicy", "referrer-policy"),
        ("permissionsPolicy", "permissions-policy"),
        ("featurePolicy", "feature-policy"),
    ] {
        if let Some(value) = fields.text(key) {
            set(header, value);
        }
    }
    cors(fields, route, comments);
    for key in ["sslRedirect", "sslForceHost", "sslHost", "sslTemporaryRedirect"] {
        if let Some(item) = fields.take(key).filter(|item| item.text().is_some_and(|text| text != "false")) {
            comments.push(item.note(format!("`{key}`: see `redirect: https` of the listener")));
        }
    }
    // They say how Traefik knows that a request came by HTTPS, or have no effect without the settings above.
    fields.ignore(&["sslProxyHeaders", "hostsProxyHeaders"]);
    if let Some(hosts) = fields.take("allowedHosts") {
        let listed: Vec<_> = hosts.texts().into_iter().map(str::to_ascii_lowercase).collect();
        let is_met = route.conditions.hosts.as_ref().is_some_and(|hosts| {
            hosts.iter().all(|host| matches!(host, Host::Exact(name) if listed.contains(name)))
        });
        if !is_met {
            comments.push(hosts.note("`allowedHosts`: write these hosts into `hosts` of the route"));
        }
    }
    for (key, item) in fields.rest() {
        if item.text() != Some("false") {
            comments.push(item.note(format!("`headers.{key}` has no equal")));
        }
    }
}

fn cors(fields: &Fields<'_>, route: &mut RouteDraft, comments: &mut Vec<Comment>) {
    let origins = fields.texts("accessControlAllowOriginList");
    let patterns = fields.take("accessControlAllowOriginListRegex");
    let methods = fields.texts("accessControlAllowMethods");
    let headers = fields.texts("accessControlAllowHeaders");
    let exposed = fields.texts("accessControlExposeHeaders");
    let age = fields.number("accessControlMaxAge").filter(|seconds| *seconds > 0);
    let credentials = fields.is_true("accessControlAllowCredentials");
    fields.ignore(&["addVaryHeader"]);
    if let Some(patterns) = patterns {
        comments.push(patterns.note(
            "`accessControlAllowOriginListRegex`: list the origins in \
            `cors.origins`, with `https://*.example.org` for names below",
        ));
    }
    if origins.is_empty() {
        return;
    }
    route.cors =
        Some(cors_setting(&origins, &methods, &headers, &exposed, credentials, age, fields, comments));
}

/// `cors` of a route.
#[allow(clippy::too_many_arguments, reason = "they are the fields of one setting")]
fn cors_setting(
    origins: &[&str],
    methods: &[&str],
    headers: &[&str],
    exposed: &[&str],
    credentials: bool,
    age: Option<u64>,
    fields: &Fields<'_>,
    comments: &mut Vec<Comment>,
) -> Map {
    let all = |values: &[&str]| values.contains(&"*");
    let list =
        |values: &[&str]| -> Node { if all(values) { Node::from("*") } else { Node::from(values.to_vec()) } };
    let mut cors = Map::new().with("origins", list(origins));
    if !methods.is_empty() {
        cors.set("methods", list(methods));
    }
    if !headers.is_empty() {
        cors.set("headers", list(headers));
    }
    if !exposed.is_empty() && !all(exposed) {
        cors.set("expose", exposed.to_vec());
    }
    match (credentials, all(origins)) {
        (true, true) => comments.push(fields.note(
            "credentials with every origin: browsers refuse this, and so does Tollgate. List the origins",
        )),
        (true, false) => cors.set("credentials", true),
        (false, _) => {}
    }
    if let Some(seconds) = age {
        cors.set("max_age", duration(seconds * 1000));
    }
    cors
}
