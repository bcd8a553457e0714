//! The routes of a server: of its own rewrites, and of each location.

use super::{
    Converter, Scope,
    keys::is_network,
    locations::{Location, Matcher, Ordered, exact_path, prefix_path, within},
    number_or_text,
    policies::LocationPolicy,
    syntax::Directive,
    unconverted,
    values::{Part, expression, has_variable, header_text, parts, size, with_named_groups},
};
use crate::convert::{
    covers,
    draft::is_field_name,
    yaml::{Comment, Map, Node, Value},
};

/// Methods of HTTP that services know.
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// Which requests a route is for, and the comments that belong to the next route.
struct Target {
    hosts: Vec<String>,
    /// The path of a route.
    path: String,
    /// The beginning of all paths; `/` if there is none.
    prefix: String,
    /// What the location of the route matches; `None` for a whole server.
    matcher: Option<Matcher>,
    comments: Vec<Comment>,
}

/// The condition of an `if`.
#[derive(Default)]
struct Condition {
    hosts: Vec<String>,
    methods: Vec<String>,
    /// `headers`, `query` or `cookie`, the name, and the value.
    value: Option<(&'static str, String, String)>,
}

impl Target {
    fn note(&mut self, directive: &Directive, text: impl std::fmt::Display) {
        self.comments.push(unconverted(&directive.place, format!("`{}`: {text}", directive.shown())));
    }

    /// A route for these requests with a path of its own, without an action.
    fn route(&mut self, path: &str, condition: &Condition) -> Node {
        let mut map = Map::new();
        let hosts = if condition.hosts.is_empty() { &self.hosts } else { &condition.hosts };
        if !hosts.is_empty() {
            map.set("hosts", hosts.clone());
        }
        map.set("path", path);
        if !condition.methods.is_empty() {
            map.set("methods", condition.methods.clone());
        }
        if let Some((kind, name, value)) = &condition.value {
            map.set(kind, Map::new().with(name, value.as_str()));
        }
        Node { comments: std::mem::take(&mut self.comments), ..Node::from(map) }
    }
}

/// Sets a key of a route.
fn set(route: &mut Node, key: &str, node: impl Into<Node>) {
    if let Value::Map(map) = &mut route.value {
        map.set(key, node);
    }
}

impl<'d> Converter<'d> {
    /// Adds the routes of a server for these hosts; none for all.
    pub(super) fn server_routes(
        &mut self,
        directives: &[&'d Directive],
        hosts: &[String],
        scope: &Scope<'d>,
        ordered: &Ordered<'d>,
        has_others: bool,
    ) {
        let mut target = Target {
            hosts: hosts.to_vec(),
            path: "/*".to_owned(),
            prefix: "/".to_owned(),
            matcher: None,
            comments: Vec::new(),
        };
        let (is_done, rewrites) = self.steps(directives, scope, &mut target);
        for rewrite in rewrites {
            target.note(rewrite, "write `rewrite` into the routes for these paths");
        }
        if is_done {
            self.draft.head.append(&mut target.comments);
            return;
        }
        let mut has_root = false;
        for location in &ordered.locations {
            has_root |= location.matcher == Matcher::Prefix("/".to_owned());
            self.location(location, scope, ordered, &mut target);
        }
        let has_files = find_in(directives, "root").or_else(|| find_in(directives, "try_files"));
        if !has_root && (has_others || has_files.is_some()) {
            target.path = "/*".to_owned();
            target.matcher = None;
            match has_files {
                Some(files) => self.files(files, scope, ordered, &mut target),
                None => self.reply(&mut target, 404),
            }
        }
        self.draft.head.append(&mut target.comments);
    }

    /// Adds a route that replies with a status.
    fn reply(&mut self, target: &mut Target, status: u64) {
        let path = target.path.clone();
        let mut route = target.route(&path, &Condition::default());
        set(&mut route, "reply", Map::new().with("status", status));
        self.push(route, target);
    }

    /// Adds a route, unless an earlier one takes all of its requests.
    fn push(&mut self, route: Node, target: &mut Target) {
        let key = |node: &Node| {
            let Value::Map(map) = &node.value else { return Vec::new() };
            ["hosts", "path", "methods", "headers", "query", "cookie"]
                .map(|key| map.get(key).map(|node| node.value.clone()))
                .to_vec()
        };
        let is_taken = self.draft.routes.iter().any(|earlier| key(earlier) == key(&route));
        match is_taken {
            true => target.comments.extend(route.comments),
            false => self.draft.routes.push(route),
        }
    }

    /// Follows `return`, `rewrite` and `if` in their order. Returns whether a `return` ends it, and the `rewrite`s that
    /// only change the path.
    fn steps(
        &mut self,
        directives: &[&'d Directive],
        scope: &Scope<'d>,
        target: &mut Target,
    ) -> (bool, Vec<&'d Directive>) {
        let mut rewrites = Vec::new();
        for directive in directives {
            match directive.name.as_str() {
                "return" => {
                    self.returned(directive, &Condition::default(), scope, target);
                    return (true, rewrites);
                }
                "rewrite" => match self.redirecting_rewrite(directive, &Condition::default(), target) {
                    Ok(true) => {}
                    Ok(false) => rewrites.push(*directive),
                    Err(reason) => target.note(directive, reason),
                },
                "if" => self.conditional(directive, scope, target),
                "set" if has_variable(directive.argument(1)) => {
                    target.note(directive, "Tollgate has no variables");
                }
                "break" => return (false, rewrites),
                _ => {}
            }
        }
        (false, rewrites)
    }

    /// Adds a route for `return`.
    fn returned(
        &mut self,
        directive: &'d Directive,
        condition: &Condition,
        scope: &Scope<'d>,
        target: &mut Target,
    ) {
        let (key, action) = match action(directive, scope) {
            Ok(action) => action,
            Err(reason) => {
                target.note(directive, format!("{reason}. Tollgate answers 501"));
                ("reply", Map::new().with("status", 501))
            }
        };
        if directive.argument(0) == "444" {
            target.note(directive, "Tollgate cannot close the connection without a response: it answers 403");
        }
        // Without `always`, nginx adds headers to these alone.
        let is_usual = matches!(
            directive.argument(0).parse().unwrap_or(302),
            200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308
        );
        let mut added = Map::new();
        for header in scope.list("add_header") {
            let is_always = header.arguments.iter().any(|argument| argument == "always");
            if (is_usual || is_always) && !header.argument(0).eq_ignore_ascii_case("content-length") {
                // `reply` has it already.
                let is_type = header.argument(0).eq_ignore_ascii_case("content-type");
                if !(is_type && action.has("content_type")) {
                    add_header(header, scope, &mut added, target);
                }
            }
        }
        let path = target.path.clone();
        let mut route = target.route(&path, condition);
        set(&mut route, key, action);
        if !added.is_empty() {
            set(&mut route, "response_headers", Map::new().with("add", added));
        }
        self.push(route, target);
    }

    /// Adds a route if a `rewrite` redirects. `Ok(false)`: it only changes the path.
    fn redirecting_rewrite(
        &mut self,
        directive: &'d Directive,
        condition: &Condition,
        target: &mut Target,
    ) -> Result<bool, String> {
        let (pattern, replacement) = (directive.argument(0), directive.argument(1));
        let is_url = ["http://", "https://", "$scheme"].iter().any(|begin| replacement.starts_with(begin));
        let status = match directive.argument(2) {
            "permanent" => 301,
            "redirect" => 302,
            _ if is_url => 302,
            _ => return Ok(false),
        };
        let named = within(&target.prefix, &with_named_groups(pattern), false)?;
        let path = expression(&named, false)?;
        let drops_query = replacement.ends_with('?');
        let replacement = replacement.trim_end_matches('?');
        let mut redirect = redirect(status, &placeholders(replacement)?)?;
        // Unlike `return`, it keeps the query.
        if !drops_query {
            redirect.remove("query");
        }
        let mut route = target.route(&path, condition);
        set(&mut route, "redirect", redirect);
        self.push(route, target);
        Ok(true)
    }

    /// Adds the routes of an `if`.
    fn conditional(&mut self, directive: &'d Directive, scope: &Scope<'d>, target: &mut Target) {
        let text = directive.arguments.join(" ");
        let is_of_scheme = text.starts_with("($scheme ") || text.starts_with("($https ");
        let children: Vec<&Directive> = directive.children().iter().collect();
        if is_of_scheme && children.iter().any(|child| child.argument(1).starts_with("https://")) {
            // The listener does this: see `servers`.
            if !self.redirects_plain {
                target.note(directive, "set `redirect: https` on the listener in clear text");
            }
            return;
        }
        let condition = match condition(&text, &target.hosts) {
            Ok(condition) => condition,
            Err(reason) => {
                let what: Vec<String> = children.iter().map(|child| child.shown()).collect();
                return target.note(directive, format!("{reason}; not done: `{}`", what.join("; ")));
            }
        };
        if text.starts_with("($request_method !") {
            let methods = condition.methods.join(", ");
            let text = format!("Tollgate does this for {methods}; other methods take the routes below");
            target.note(directive, text);
        }
        let scope = &scope.enter(directive.children().iter());
        for child in &children {
            match child.name.as_str() {
                "return" => return self.returned(child, &condition, scope, target),
                "rewrite" => match self.redirecting_rewrite(child, &condition, target) {
                    Ok(true) => return,
                    Ok(false) => target.note(child, "write a route of its own with `rewrite`"),
                    Err(reason) => target.note(child, reason),
                },
                "add_header" | "default_type" | "break" => {}
                _ => target.note(child, "write a route of its own for this condition"),
            }
        }
    }

    /// Adds the routes of a location.
    fn location(
        &mut self,
        location: &Location<'d>,
        scope: &Scope<'d>,
        ordered: &Ordered<'d>,
        target: &mut Target,
    ) {
        let directive = location.directive;
        match location.path() {
            Ok(path) => target.path = path,
            Err(reason) => {
                return target
                    .note(directive, format!("{reason}. Its requests take the routes of other locations"));
            }
        }
        target.prefix = match &location.matcher {
            Matcher::Exact(path) | Matcher::Prefix(path) => path.clone(),
            Matcher::Regex { .. } => "/".to_owned(),
        };
        target.matcher = Some(location.matcher.clone());
        if let Some(doubt) = &location.doubt {
            target.note(directive, doubt);
        }
        let mut inner = scope.clone();
        for outer in location.outer.iter().copied().chain([directive]) {
            inner = inner.enter(outer.children().iter());
        }
        let children: Vec<&Directive> = directive.children().iter().collect();
        self.content(directive, &children, Some(location), &inner, ordered, target);
    }

    /// Adds the routes for the directives of a location, or of a named one that takes its place.
    fn content(
        &mut self,
        block: &'d Directive,
        children: &[&'d Directive],
        location: Option<&Location<'d>>,
        scope: &Scope<'d>,
        ordered: &Ordered<'d>,
        target: &mut Target,
    ) {
        for child in children {
            let name = child.name.as_str();
            let is_known = matches!(
                name,
                "location"
                    | "return"
                    | "rewrite"
                    | "if"
                    | "set"
                    | "break"
                    | "proxy_pass"
                    | "grpc_pass"
                    | "internal"
                    | "try_files"
                    | "fastcgi_pass"
                    | "uwsgi_pass"
                    | "scgi_pass"
                    | "memcached_pass"
            ) || Scope::is_inherited(name);
            if !is_known {
                target.comments.extend(self.note_for(child));
            }
        }
        let (is_done, rewrites) = self.steps(children, scope, target);
        if is_done {
            return;
        }
        if find_in(children, "internal").is_some() {
            target.comments.push(Comment::Plain(format!("{}: `internal`.", block.place)));
            return self.reply(target, 404);
        }
        let access = match access(scope) {
            Access::None => return self.reply(target, 403),
            access => access,
        };
        for name in ["auth_basic", "auth_request", "auth_jwt"] {
            let Some(auth) = scope.single(name).filter(|auth| auth.argument(0) != "off") else { continue };
            let how = if name == "auth_jwt" {
                "`user: [{ jwt: … }]` and `require: user`"
            } else {
                "`api_keys` or tokens"
            };
            let text = format!(
                "Tollgate checks no passwords and asks no other service: let the service do it, or use {how}. Until then, the \
                 route answers 501"
            );
            target.note(auth, text);
            return self.reply(target, 501);
        }
        let pass = find_in(children, "proxy_pass").or_else(|| find_in(children, "grpc_pass"));
        let Some(pass) = pass else {
            let other = children.iter().find(|child| child.name.ends_with("_pass")).copied();
            return match other {
                Some(other) => {
                    target.note(other, "Tollgate speaks HTTP to services: put their own HTTP server here as an upstream. Until then, the route answers 501");
                    self.reply(target, 501);
                }
                None => self.files(find_in(children, "try_files").unwrap_or(block), scope, ordered, target),
            };
        };
        let destination = match self.destination(pass, scope) {
            Ok(destination) => destination,
            Err(reason) => {
                target.note(pass, format!("{reason}. Until then, the route answers 501"));
                return self.reply(target, 501);
            }
        };
        // Each is a path and its rewrite; the first that matches is taken.
        let mut variants: Vec<(String, Option<Map>)> = Vec::new();
        for rewrite in rewrites {
            match rewritten(rewrite, target) {
                Ok(variant) => {
                    if rewrite.argument(2) != "break" {
                        target.note(
                            rewrite,
                            "nginx searches a location for the new path; Tollgate sends it to this upstream",
                        );
                    }
                    variants.push(variant);
                }
                Err(reason) => target.note(rewrite, reason),
            }
        }
        if !variants.iter().any(|(path, _)| *path == target.path) {
            let changed = destination.path.as_deref().filter(|_| location.is_some() && variants.is_empty());
            match changed
                .map(|uri| replaced_prefix(uri, location.map(|location| &location.matcher)))
                .transpose()
            {
                Ok(variant) => match variant.flatten() {
                    Some((path, rewrite)) => {
                        variants.push((path.unwrap_or_else(|| target.path.clone()), Some(rewrite)));
                    }
                    None => variants.push((target.path.clone(), None)),
                },
                Err(reason) => {
                    target.note(pass, reason);
                    variants.push((target.path.clone(), None));
                }
            }
        }
        let (policies, comments) = self.policies(scope);
        target.comments.extend(comments);
        for (path, rewrite) in variants {
            for (methods, policies) in by_method(&policies) {
                let condition = Condition { methods, ..Condition::default() };
                let headers = self.headers(scope, pass.name == "grpc_pass", target);
                let mut route = target.route(&path, &condition);
                set(&mut route, "upstream", destination.upstream.as_str());
                if !policies.is_empty() {
                    set(&mut route, "policies", policies);
                }
                if let Some(rewrite) = &rewrite {
                    set(&mut route, "rewrite", rewrite.clone());
                }
                for (key, changes) in headers {
                    if !changes.is_empty() {
                        set(&mut route, key, changes);
                    }
                }
                if let Access::Some { allow, deny, comments } = &access {
                    route.comments.extend(comments.iter().cloned());
                    for (key, networks) in [("allow", allow), ("deny", deny)] {
                        if !networks.is_empty() {
                            set(&mut route, key, networks.clone());
                        }
                    }
                }
                if let Some(most) = scope.value("client_max_body_size").and_then(size) {
                    let node = number_or_text(&most);
                    let general = self.draft.settings.get("client_limits");
                    let is_general = general.is_some_and(|limits| match &limits.value {
                        Value::Map(map) => map.get("max_body") == Some(&node),
                        _ => false,
                    });
                    if !is_general {
                        set(&mut route, "max_body", node);
                    }
                }
                self.push(route, target);
            }
        }
    }

    /// Adds the route of a location that serves files: to the location that `try_files` names, or a reply.
    fn files(&mut self, files: &'d Directive, scope: &Scope<'d>, ordered: &Ordered<'d>, target: &mut Target) {
        let fallback = files.arguments.last().filter(|_| files.name == "try_files").and_then(|name| {
            ordered.named.iter().copied().find(|named| name.starts_with('@') && named.argument(0) == name)
        });
        match fallback {
            Some(named) => {
                target.note(files, "Tollgate serves no files: all requests go to the service");
                let has_own =
                    named.children().iter().any(|child| matches!(child.name.as_str(), "allow" | "deny"));
                match access(scope) {
                    // nginx asks the rules of both.
                    Access::None => return self.reply(target, 403),
                    Access::Some { .. } if has_own => {
                        let text = "its `allow` and `deny` hold beside those of the location before it. Until they are \
                                    one list, the route answers 501";
                        target.note(named, text);
                        return self.reply(target, 501);
                    }
                    _ => {}
                }
                let scope = scope.enter(named.children().iter());
                let children: Vec<&Directive> = named.children().iter().collect();
                self.content(named, &children, None, &scope, ordered, target);
            }
            None => {
                target.note(files, "nginx serves files here, and Tollgate serves none: forward to a file server. Until then, the route answers 501");
                self.reply(target, 501);
            }
        }
    }

    /// `request_headers` and `response_headers`.
    fn headers(&mut self, scope: &Scope<'d>, is_grpc: bool, target: &mut Target) -> [(&'static str, Map); 2] {
        let (mut set_request, mut remove_request) = (Map::new(), Vec::new());
        let list = if is_grpc { "grpc_set_header" } else { "proxy_set_header" };
        for header in scope.list(list) {
            let name = header.argument(0).to_ascii_lowercase();
            let value = scope.expand(header.argument(1));
            // Tollgate does these itself.
            let is_own = matches!(
                name.as_str(),
                "host"
                    | "connection"
                    | "upgrade"
                    | "x-forwarded-for"
                    | "x-forwarded-proto"
                    | "x-forwarded-host"
                    | "te"
                    | "keep-alive"
                    | "transfer-encoding"
                    | "content-length"
                    | "expect"
                    | "trailer"
            );
            let as_it_came = value == format!("$http_{}", name.replace('-', "_"));
            match header_text(&value) {
                _ if is_own || as_it_came => {}
                _ if !is_field_name(&name) => target.note(header, "this is not the name of a header"),
                Ok(text) if text.is_empty() => remove_request.push(name),
                Ok(text) => set_request.set(&name, text),
                Err(variable) => {
                    let text = format!(
                        "Tollgate has no placeholder for `${variable}`: the header is removed, so that no client can write it"
                    );
                    target.note(header, text);
                    remove_request.push(name);
                }
            }
        }
        let (mut add, mut remove) = (Map::new(), Vec::new());
        for header in scope.list("add_header") {
            add_header(header, scope, &mut add, target);
        }
        for header in scope.list("proxy_hide_header") {
            remove.push(header.argument(0).to_ascii_lowercase());
        }
        let changes = |set: Map, add: Map, remove: Vec<String>| {
            let mut changes = Map::new();
            for (key, map) in [("set", set), ("add", add)] {
                if !map.is_empty() {
                    changes.set(key, map);
                }
            }
            if !remove.is_empty() {
                changes.set("remove", remove);
            }
            changes
        };
        [
            ("request_headers", changes(set_request, Map::new(), remove_request)),
            ("response_headers", changes(Map::new(), add, remove)),
        ]
    }
}

/// The `reply` or `redirect` for `return`.
fn action(directive: &Directive, scope: &Scope<'_>) -> Result<(&'static str, Map), String> {
    let (status, text) = match directive.arguments.as_slice() {
        [url] if url.parse::<u16>().is_err() => (302, url.as_str()),
        [status] => (status.parse().map_err(|_| "its status cannot be read")?, ""),
        [status, text] => (status.parse().map_err(|_| "its status cannot be read")?, text.as_str()),
        _ => return Err("its arguments cannot be read".to_owned()),
    };
    let text = scope.expand(text);
    match status {
        301 | 302 | 303 | 307 | 308 => Ok(("redirect", redirect(status, &text)?)),
        444 => Ok(("reply", Map::new().with("status", 403))),
        200..=299 | 400..=599 => {
            if has_variable(&text) {
                return Err("its text has variables".to_owned());
            }
            let mut reply = Map::new().with("status", status);
            let of_header = |header: &&&Directive| header.argument(0).eq_ignore_ascii_case("content-type");
            let header = scope.list("add_header").iter().rfind(of_header).map(|header| header.argument(1));
            let content_type = header.or_else(|| scope.value("default_type"));
            if !text.is_empty() {
                if let Some(content_type) = content_type.filter(|text| !has_variable(text)) {
                    reply.set("content_type", content_type);
                }
                reply.set("body", text);
            }
            Ok(("reply", reply))
        }
        _ => Err(format!("Tollgate cannot reply with {status}")),
    }
}

/// Adds a header of `add_header`. Several of one name become a list.
fn add_header(header: &Directive, scope: &Scope<'_>, add: &mut Map, target: &mut Target) {
    let name = header.argument(0).to_ascii_lowercase();
    match header_text(&scope.expand(header.argument(1))) {
        _ if !is_field_name(&name) => target.note(header, "this is not the name of a header"),
        Ok(text) if text.is_empty() => {}
        Ok(text) => match add.get_mut(&name) {
            Some(Node { value: Value::List(values), .. }) => values.push(Node::from(text)),
            Some(node) => {
                let first = std::mem::replace(node, Node::from(""));
                *node = Node::from(vec![first, Node::from(text)]);
            }
            None => add.set(&name, text),
        },
        Err(variable) => target.note(header, format!("Tollgate has no placeholder for `${variable}`")),
    }
}

/// The last directive of this name.
fn find_in<'d>(directives: &[&'d Directive], name: &str) -> Option<&'d Directive> {
    directives.iter().rfind(|directive| directive.name == name).copied()
}

/// The policies for each method that some policy is for, and last for all others.
fn by_method(policies: &[LocationPolicy]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut sets: Vec<Vec<String>> = Vec::new();
    for policy in policies.iter().filter(|policy| !policy.methods.is_empty()) {
        for method in &policy.methods {
            let set = vec![method.clone()];
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
    }
    sets.push(Vec::new());
    let of = |methods: Vec<String>| {
        let fits = |policy: &&LocationPolicy| {
            policy.methods.is_empty() || methods.iter().any(|method| policy.methods.contains(method))
        };
        let names = policies.iter().filter(fits).map(|policy| policy.name.clone()).collect();
        (methods, names)
    };
    sets.into_iter().map(of).collect()
}

/// Who may use a location.
enum Access {
    All,
    None,
    Some { allow: Vec<String>, deny: Vec<String>, comments: Vec<Comment> },
}

/// `allow` and `deny`, of which the first that fits decides.
fn access(scope: &Scope<'_>) -> Access {
    let (mut allow, mut deny, mut comments) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_closed = false;
    for rule in scope.list("allow") {
        let network = rule.argument(0);
        match (rule.name.as_str(), network) {
            ("allow", "all") => break,
            ("deny", "all") => {
                is_closed = true;
                break;
            }
            (_, network) if !is_network(network) => {
                let text = format!("`{}`: write an address or a network", rule.shown());
                comments.push(unconverted(&rule.place, text));
            }
            ("allow", network) => allow.push(network.to_owned()),
            (_, network) => {
                // The earlier `allow` wins in nginx, `deny` in Tollgate.
                let earlier =
                    allow.iter().find(|allowed| covers(network, allowed) || covers(allowed, network));
                if let Some(allowed) = earlier {
                    let text = format!(
                        "`{}`: in nginx, `allow {allowed}` before it wins; in Tollgate, `deny` wins",
                        rule.shown()
                    );
                    comments.push(unconverted(&rule.place, text));
                }
                deny.push(network.to_owned());
            }
        }
    }
    match (is_closed, allow.is_empty(), deny.is_empty()) {
        (true, true, _) => Access::None,
        (false, _, true) if comments.is_empty() => Access::All,
        (false, _, _) => Access::Some { allow: Vec::new(), deny, comments },
        (true, false, _) => Access::Some { allow, deny, comments },
    }
}

/// The condition of an `if`, as a condition of a route.
fn condition(text: &str, hosts: &[String]) -> Result<Condition, String> {
    let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text).trim();
    let words: Vec<&str> = inner.split_whitespace().collect();
    let [variable, operator, value] = words.as_slice() else {
        return Err("Tollgate has no such condition".to_owned());
    };
    let value = value.trim_matches(['"', '\'']);
    let mut condition = Condition::default();
    match (*variable, *operator) {
        ("$request_method", "=") => condition.methods = vec![value.to_owned()],
        ("$request_method", "!=") => condition.methods = others(&[value]),
        ("$request_method", operator @ ("~" | "~*" | "!~" | "!~*")) => {
            let list = value.trim_start_matches('^').trim_end_matches('$');
            let list: Vec<&str> = list.trim_start_matches('(').trim_end_matches(')').split('|').collect();
            if !list
                .iter()
                .all(|method| method.chars().all(|c| c.is_ascii_alphabetic()) && !method.is_empty())
            {
                return Err("its methods cannot be read".to_owned());
            }
            condition.methods = match operator.starts_with('!') {
                true => others(&list),
                false => list.into_iter().map(str::to_ascii_uppercase).collect(),
            };
        }
        ("$host" | "$http_host", "=") => {
            let host = value.to_ascii_lowercase();
            if !hosts.is_empty() && !hosts.contains(&host) {
                return Err("this host has another server".to_owned());
            }
            condition.hosts = vec![host];
        }
        (variable, "=") if !value.is_empty() && !has_variable(value) => {
            let kinds = [("$http_", "headers"), ("$cookie_", "cookie"), ("$arg_", "query")];
            let found =
                kinds.into_iter().find_map(|(begin, kind)| Some((kind, variable.strip_prefix(begin)?)));
            let Some((kind, name)) = found else {
                return Err(format!("Tollgate has no condition for `{variable}`"));
            };
            let name = if kind == "headers" { name.replace('_', "-") } else { name.to_owned() };
            condition.value = Some((kind, name, value.to_owned()));
        }
        _ => return Err(format!("Tollgate has no condition for `{variable} {operator}`")),
    }
    if condition.methods.len() == METHODS.len() {
        return Err("it is for all methods".to_owned());
    }
    Ok(condition)
}

/// The methods that are not among these. HEAD follows GET.
fn others(methods: &[&str]) -> Vec<String> {
    METHODS.iter().filter(|known| !methods.contains(known)).map(|method| (*method).to_owned()).collect()
}

/// A redirect to `url`, which may have placeholders, and variables for the whole host or path.
fn redirect(status: u64, url: &str) -> Result<Map, String> {
    let mut map = Map::new();
    let (scheme, rest) = match url.split_once("://") {
        Some(("$scheme", rest)) => (None, rest),
        Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
        Some(_) => return Err("its scheme cannot be read".to_owned()),
        None if url.starts_with('/') => (None, url),
        None => return Err("its URL cannot be read".to_owned()),
    };
    let is_path = url.starts_with('/');
    let at = rest
        .find('/')
        .or_else(|| rest.find("$request_uri"))
        .or_else(|| rest.find("$uri"))
        .unwrap_or(rest.len());
    let (authority, path) = if is_path { ("", rest) } else { rest.split_at(at) };
    let path = path.strip_suffix("$is_args$args").unwrap_or(path);
    let keeps_query = rest.ends_with("$is_args$args") || path.ends_with("$request_uri");
    let (path, keeps_path) = match path {
        "$request_uri" | "$uri" => ("", true),
        "/$request_uri" | "/$uri" => ("", true),
        path => (path, false),
    };
    if has_variable(path) {
        return Err("its path has variables".to_owned());
    }
    let host = match authority {
        "" | "$host" | "$server_name" | "$http_host" => None,
        authority if has_variable(authority) => return Err("its host has variables".to_owned()),
        authority => Some(authority),
    };
    let (bare, port) = match host.and_then(|host| host.rsplit_once(':')) {
        Some((bare, port)) => (Some(bare), port.parse::<u64>().ok()),
        None => (host, None),
    };
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    match (scheme, bare) {
        // A query of its own needs a whole URL.
        _ if query.is_some() => {
            let (Some(scheme), Some(host)) = (scheme, host) else {
                return Err("a query needs a whole URL: write `to`".to_owned());
            };
            map.set("to", format!("{scheme}://{host}{path}?{}", query.unwrap_or_default()));
        }
        (Some(scheme), Some(_)) if !keeps_path => {
            let path = if path.is_empty() { "/" } else { path };
            map.set("to", format!("{scheme}://{}{path}", host.unwrap_or_default()));
        }
        _ => {
            if let Some(scheme) = scheme {
                map.set("scheme", scheme);
            }
            if let Some(bare) = bare {
                map.set("host", bare);
            }
            if let Some(port) = port {
                map.set("port", port);
            }
            if !keeps_path {
                map.set("path", if path.is_empty() { "/" } else { path });
            }
        }
    }
    if status != 308 {
        map.set("status", status);
    }
    if !keeps_query {
        map.set("query", "drop");
    }
    Ok(map)
}

/// A replacement of `rewrite` with Tollgate's placeholders for `$1`, …: see [`with_named_groups`].
fn placeholders(replacement: &str) -> Result<String, String> {
    let mut out = String::new();
    for part in parts(replacement) {
        match part {
            Part::Literal(text) => out += &text.replace('{', "{{").replace('}', "}}"),
            Part::Variable(name) if name.chars().all(|c| c.is_ascii_digit()) => {
                out += &format!("{{p{name}}}");
            }
            Part::Variable(name)
                if matches!(
                    name.as_str(),
                    "host" | "scheme" | "server_name" | "http_host" | "request_uri"
                ) =>
            {
                out += &format!("${name}");
            }
            Part::Variable(name) => {
                return Err(format!("Tollgate has no placeholder for `${name}` in a path"));
            }
        }
    }
    Ok(out)
}

/// The path of a route, and its `rewrite`, for a `rewrite` that changes the path.
fn rewritten(rewrite: &Directive, target: &Target) -> Result<(String, Option<Map>), String> {
    let (pattern, replacement) = (rewrite.argument(0), rewrite.argument(1));
    if replacement.contains('?') {
        return Err("a rewrite of Tollgate keeps the query as it came".to_owned());
    }
    if let Some(Matcher::Exact(path)) = &target.matcher {
        return match applied(pattern, replacement, path)? {
            Some(new) => Ok((target.path.clone(), Some(Map::new().with("path", new)))),
            None => Ok((target.path.clone(), None)),
        };
    }
    let literal = pattern.trim_start_matches('^').trim_end_matches('$');
    let stripped = match replacement {
        "/$1" => literal.strip_suffix("/(.*)").or_else(|| literal.strip_suffix("/?(.*)")),
        "$1" => literal.strip_suffix("(/.*)"),
        _ => None,
    };
    let is_literal = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "/-_".contains(c));
    if let Some(stripped) =
        stripped.filter(|text| pattern.starts_with('^') && is_literal(text) && text.starts_with('/'))
    {
        let below = format!("{stripped}/");
        if let Some(Matcher::Regex { pattern, is_insensitive: false }) = &target.matcher {
            if pattern.strip_prefix('^').is_some_and(|rest| rest.starts_with(&below)) {
                return Ok((target.path.clone(), Some(Map::new().with("strip_prefix", stripped))));
            }
        } else if below.starts_with(&target.prefix)
            || target.prefix.starts_with(&below) && target.prefix != below
        {
            let path =
                if below.starts_with(&target.prefix) { prefix_path(&below) } else { target.path.clone() };
            return Ok((path, Some(Map::new().with("strip_prefix", stripped))));
        }
    }
    if let Some(Matcher::Regex { pattern: location, .. }) = &target.matcher
        && location != pattern
    {
        return Err("Tollgate cannot combine it with the regular expression of its location".to_owned());
    }
    let named = within(&target.prefix, &with_named_groups(pattern), false)?;
    let path = expression(&named, false)?;
    let new = placeholders(replacement)?;
    let new = if new.starts_with('/') { new } else { format!("/{new}") };
    Ok((path, Some(Map::new().with("path", new))))
}

/// The new path for `path` by a `rewrite`, in which `{` is written `{{`. `None`: it does not match.
fn applied(pattern: &str, replacement: &str, path: &str) -> Result<Option<String>, String> {
    let text = expression(pattern, false)?;
    let regex = regex::bytes::RegexBuilder::new(&text[1..]).unicode(false).build();
    let regex = regex.map_err(|_| "its regular expression cannot be used".to_owned())?;
    let Some(captures) = regex.captures(path.as_bytes()) else { return Ok(None) };
    let mut new = String::new();
    for part in parts(replacement) {
        match part {
            Part::Literal(text) => new += &text,
            Part::Variable(name) => {
                let number: usize = name
                    .parse()
                    .map_err(|_| format!("Tollgate has no placeholder for `${name}` in a path"))?;
                new += &String::from_utf8_lossy(captures.get(number).map_or(b"", |found| found.as_bytes()));
            }
        }
    }
    let new = new.replace('{', "{{").replace('}', "}}");
    Ok(Some(if new.starts_with('/') { new } else { format!("/{new}") }))
}

/// The path of a route, if it is another one, and its `rewrite`, for a `proxy_pass` with a path. `None` if the path stays.
fn replaced_prefix(uri: &str, matcher: Option<&Matcher>) -> Result<Option<(Option<String>, Map)>, String> {
    if uri.contains('?') {
        return Err("a rewrite of Tollgate keeps the query as it came".to_owned());
    }
    let literal = uri.replace('{', "{{").replace('}', "}}");
    Ok(match matcher {
        Some(Matcher::Exact(path)) if path == uri => None,
        Some(Matcher::Exact(path)) => Some((Some(exact_path(path)), Map::new().with("path", literal))),
        Some(Matcher::Prefix(prefix)) if prefix == uri => None,
        Some(Matcher::Prefix(prefix)) if prefix.ends_with('/') && uri == "/" => {
            Some((None, Map::new().with("strip_prefix", prefix.trim_end_matches('/'))))
        }
        Some(Matcher::Prefix(prefix)) if prefix.ends_with('/') => {
            Some((None, Map::new().with("path", format!("{literal}{{rest}}"))))
        }
        Some(Matcher::Prefix(prefix)) => {
            let path = format!("~^{}(?P<rest>.*)$", super::escaped(prefix));
            Some((Some(path), Map::new().with("path", format!("{literal}{{rest}}"))))
        }
        Some(Matcher::Regex { .. }) | None => None,
    })
}
