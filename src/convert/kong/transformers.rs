//! `request-transformer` and `response-transformer`.

use crate::convert::{
    document::{Fields, Item},
    route_draft::{HeaderChanges, PathChange, RouteDraft, literal},
    yaml::Comment,
};

/// Applies `request-transformer`.
pub(super) fn request(
    config: &Fields<'_>,
    route: &mut RouteDraft,
    plugin: Item<'_>,
    comments: &mut Vec<Comment>,
) {
    if let Some(uri) = config.fields("replace").take("uri").filter(|item| !item.is_null()) {
        match uri.text() {
            Some(path) if path.starts_with('/') && !path.contains('$') => {
                route.path = PathChange::Whole(path.to_owned());
            }
            other => comments.push(uri.note(format!(
                "`replace.uri: {}`: write `rewrite: {{ path: … }}`, \
                with `{{name}}` for a part of the route's path",
                other.unwrap_or_default()
            ))),
        }
    }
    if let Some(method) = config.take("http_method").filter(|item| !item.is_null()) {
        comments.push(method.note("`http_method`: the method is not changed"));
    }
    change(config, &mut route.request_headers, plugin, comments);
}

/// Applies `response-transformer`.
pub(super) fn response(
    config: &Fields<'_>,
    route: &mut RouteDraft,
    plugin: Item<'_>,
    comments: &mut Vec<Comment>,
) {
    change(config, &mut route.response_headers, plugin, comments);
}

fn change(config: &Fields<'_>, changes: &mut HeaderChanges, plugin: Item<'_>, comments: &mut Vec<Comment>) {
    for action in ["remove", "replace", "rename", "add", "append", "allow"] {
        let Some(item) = config.take(action).filter(|item| !item.is_null()) else { continue };
        let fields = item.fields();
        fields.ignore(&["uri"]);
        for header in fields.texts("headers") {
            let pair =
                header.split_once(':').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()));
            let name = header.split(':').next().unwrap_or(header).trim().to_ascii_lowercase();
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() || name == "host" {
                comments.push(
                    item.note(format!("`{action}` of the header `{header}`: it cannot be changed here")),
                );
                continue;
            }
            match (action, pair) {
                ("remove", _) => changes.remove.push(name),
                (_, Some((_, value))) if value.contains("$(") || value.starts_with('$') => {
                    comments.push(item.note(format!(
                        "`{action}` of `{header}`: no placeholder is equal \
                        to this variable; {{user}} and {{client_address}} are some that there are"
                    )));
                }
                ("append", Some((name, value))) => changes.add.push((name, literal(value))),
                ("add" | "replace", Some((name, value))) if !value.is_empty() => {
                    changes.set.push((name, literal(value)));
                }
                _ => comments.push(item.note(format!("`{action}` of the header `{header}` has no equal"))),
            }
        }
        if matches!(action, "add" | "replace") && !fields.texts("headers").is_empty() {
            let when = if action == "add" { "only where it is missing" } else { "only where it is there" };
            comments.push(Comment::Plain(format!(
                "{}: `{action}` sets a header {when}; `set` sets it always.",
                plugin.place()
            )));
        }
        for (key, part) in fields.rest() {
            if !part.items().is_empty() {
                comments.push(part.note(format!("`{action}.{key}`: only headers are changed")));
            }
        }
    }
}
