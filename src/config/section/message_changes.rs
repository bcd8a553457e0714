//! `rewrite`, `request_headers` and `response_headers`: what a route changes in the messages that it passes on.

use std::sync::Arc;

use http::HeaderName;

use super::user::IdentitySources;
use crate::config::{
    model::{
        FieldText, HeaderEdits, PathCase, PathPattern, Placeholder, PlaceholderText, Rewrite, fold_case,
    },
    reader::{Cursor, MappingCursor},
    redact::has_no_credentials,
    settings,
    value::{Invalid, Placeholders, editable_field_name, editable_fields, stripped_prefix},
};

/// What a route changes.
#[derive(Default)]
pub(super) struct MessageChanges {
    pub(super) rewrite: Option<Rewrite>,
    pub(super) request_headers: Option<Arc<HeaderEdits>>,
    pub(super) response_headers: Option<Arc<HeaderEdits>>,
}

impl MessageChanges {
    /// Those of the route `mapping`, whose path is `path`; `None`: it is invalid, and so may be what refers to it.
    pub(super) fn read(
        mapping: &mut MappingCursor<'_>,
        path: Option<&PathPattern>,
        case: PathCase,
        identity: IdentitySources,
    ) -> Self {
        let [rewritten, of_request, of_response] = KEYS.map(|key| mapping.take(key));
        if ["reply", "redirect"].iter().any(|key| mapping.peek(key).is_some()) {
            for key in ["rewrite", "request_headers"] {
                if let Some(location) = mapping.key_location(key) {
                    let help = "remove it: Tollgate itself replies to the requests of this route".to_owned();
                    mapping.report_at(location, format!("`{key}` works only with an upstream"), help);
                }
            }
        }
        let Some(path) = path else { return Self::default() };
        let captures = path.captures();
        let reader = TextReader { placeholders: Placeholders { captures: &captures }, identity };
        let [_, request, response] = KEYS;
        let written = mapping.peek("path").and_then(Cursor::scalar).unwrap_or_default();
        Self {
            rewrite: rewritten.and_then(|value| rewrite(value, reader, (path, written), case)),
            request_headers: of_request.and_then(|value| header_edits(value, request, reader)),
            response_headers: of_response.and_then(|value| header_edits(value, response, reader)),
        }
    }
}

const KEYS: [&str; 3] = ["rewrite", "request_headers", "response_headers"];

/// `path`: that of the route, and as it is in the file.
fn rewrite(
    value: Cursor<'_>,
    reader: TextReader<'_>,
    path: (&PathPattern, &str),
    case: PathCase,
) -> Option<Rewrite> {
    if let Some(written) = value.scalar() {
        let help = format!("write `{}`", suggest_rewrite(written));
        value.report("expected a mapping, not a single value", help);
        return None;
    }
    let mut mapping = value.mapping()?.of(&settings::REWRITE).knowing("routes[].rewrite");
    let strip = mapping.take("strip_prefix");
    let target = mapping.take("path");
    let is_misspelled = mapping.has_or_misspells("strip_prefix") || mapping.has_or_misspells("path");
    let rewrite = match (strip, target) {
        (Some(_), Some(_)) => {
            mapping.report("`rewrite` has both `strip_prefix` and `path`", "write one of them".to_owned());
            None
        }
        (Some(value), None) => value.parse(stripped_prefix).map(|prefix| {
            check_prefix(value, path, case, &prefix);
            Rewrite::StripPrefix(prefix)
        }),
        (None, Some(value)) => reader.path(value).map(Rewrite::Path),
        (None, None) if is_misspelled => None,
        (None, None) => {
            let help = "write `rewrite: { strip_prefix: /api }` or `rewrite: { path: /new/path }`".to_owned();
            mapping.report("`rewrite` has neither `strip_prefix` nor `path`", help);
            None
        }
    };
    mapping.finish();
    rewrite
}

/// Reports a prefix that no request of the route has.
fn check_prefix(value: Cursor<'_>, (path, written): (&PathPattern, &str), case: PathCase, prefix: &str) {
    let fold = |path: &str| match case {
        PathCase::Sensitive => format!("{path}/"),
        PathCase::Insensitive => format!("{}/", fold_case(path)),
    };
    let stripped = fold(prefix);
    let may_begin_so = match path {
        PathPattern::Exact(path) => fold(path).starts_with(&stripped),
        PathPattern::Prefix(start) => {
            let start = fold(start.trim_end_matches('/'));
            start.starts_with(&stripped) || stripped.starts_with(&start)
        }
        PathPattern::Template(_) | PathPattern::Regex(_) => true,
    };
    if !may_begin_so {
        value.report(
            format!("no path of this route begins with `{}`", value.scalar().unwrap_or_default()),
            format!("the path of the route is `{written}`"),
        );
    }
}

/// The line for `rewrite` of nginx, or for a path that stands alone.
fn suggest_rewrite(written: &str) -> String {
    let mut words = written.split_whitespace();
    let (from, to) = (words.next().unwrap_or_default(), words.next());
    let Some(to) = to else {
        return match from.starts_with('/') && has_no_credentials(from) {
            true => format!("rewrite: {{ path: \"{from}\" }}"),
            false => "rewrite: { path: /new/path }".to_owned(),
        };
    };
    let prefix =
        from.trim_start_matches('^').trim_end_matches('$').trim_end_matches("(.*)").trim_end_matches('/');
    match to {
        "/$1" if prefix.starts_with('/') => format!("rewrite: {{ strip_prefix: {prefix} }}"),
        _ => format!("rewrite: {{ path: \"{}\" }}", to.replace("$1", "{rest}")),
    }
}

/// Reads `request_headers` or `response_headers`, whose name is `setting`.
pub(super) fn header_edits(
    value: Cursor<'_>,
    setting: &'static str,
    reader: TextReader<'_>,
) -> Option<Arc<HeaderEdits>> {
    let mut mapping = value
        .mapping_such_as("{ set: { NAME: VALUE } }")?
        .of(&settings::HEADER_EDITS)
        .knowing("routes[].request_headers");
    let remove = mapping.take("remove").map(|list| list.unique_items(|item| item.parse(editable_fields)));
    let set = mapping.take("set").map(|fields| set_fields(fields, reader));
    let add = mapping.take("add").map(|fields| added_fields(fields, reader));
    explain_fields(&mut mapping, setting);
    mapping.finish();
    let edits = HeaderEdits {
        remove: remove.unwrap_or_default(),
        set: set.unwrap_or_default(),
        add: add.unwrap_or_default(),
    };
    Some(Arc::new(edits))
}

/// Fields that stand where `set`, `add` and `remove` belong.
fn explain_fields(mapping: &mut MappingCursor<'_>, setting: &str) {
    for (_, name, value) in mapping.entries_with_prefix(&[""]) {
        let is_field = !["set", "add", "remove"].contains(&name) && name.contains('-');
        if let Some(content) = value.scalar().filter(|_| is_field) {
            let help = format!("did you mean `{setting}: {{ set: {{ {name}: {content} }} }}`?");
            mapping.explain(name, "set", help);
        }
    }
}

fn set_fields(value: Cursor<'_>, reader: TextReader<'_>) -> Vec<(HeaderName, FieldText)> {
    let mut all: Vec<(HeaderName, FieldText)> = Vec::new();
    for (location, name, value) in value.named_entries().unwrap_or_default() {
        let content = reader.field(value);
        match editable_field_name(name) {
            Err(invalid) => {
                value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            }
            Ok(name) if all.iter().any(|(other, _)| *other == name) => {
                value.report_at(
                    location,
                    format!("`{name}` is set twice; header names are case-insensitive"),
                    None,
                );
            }
            Ok(name) => all.extend(content.map(|content| (name, content))),
        }
    }
    all
}

/// Each field with one value, or with a list of them.
fn added_fields(value: Cursor<'_>, reader: TextReader<'_>) -> Vec<(HeaderName, FieldText)> {
    let mut all = Vec::new();
    for (location, name, value) in value.named_entries().unwrap_or_default() {
        let contents = match value.is_list() {
            true => value.items(|item| reader.field(item)),
            false => reader.field(value).into_iter().collect(),
        };
        match editable_field_name(name) {
            Err(invalid) => {
                value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            }
            Ok(name) => all.extend(contents.into_iter().map(|content| (name.clone(), content))),
        }
    }
    all
}

/// Reads text with placeholders of one route, or of all.
#[derive(Clone, Copy)]
pub(super) struct TextReader<'a> {
    pub(super) placeholders: Placeholders<'a>,
    pub(super) identity: IdentitySources,
}

impl TextReader<'_> {
    /// A path with placeholders.
    pub(super) fn path(self, value: Cursor<'_>) -> Option<PlaceholderText> {
        let mut text = self.read(value, |written| self.placeholders.path(written))?;
        self.warn_of_user(value, &text);
        text.is_secret = value.is_hidden();
        Some(text)
    }

    /// The value of a header field.
    pub(super) fn field(self, value: Cursor<'_>) -> Option<FieldText> {
        let read = |written: &str| self.placeholders.field(written);
        // An error quotes nothing of a credential.
        let mut field = match value.is_secret() {
            true => value.parse_secret(read)?,
            false => self.read(value, read)?,
        };
        self.warn_of_user(value, &field.text);
        field.text.is_secret = value.is_hidden();
        if let Some(constant) = &mut field.constant {
            constant.set_sensitive(field.text.is_secret);
        }
        Some(field)
    }

    /// Warns where the user is never known.
    fn warn_of_user(self, value: Cursor<'_>, text: &PlaceholderText) {
        if !text.has(Placeholder::User) || self.identity.has_verified_users {
            return;
        }
        match self.identity.has_users {
            false => value.warn(
                "{user} is always empty, because no request has a user",
                "set `user`, such as `user: [{ header: x-user-id }]`; see docs/identity.md".to_owned(),
            ),
            true => value.warn(
                "{user} is always empty, because no source of `user` is verified",
                "use a token, a client certificate, or a header from trusted_proxies; see docs/identity.md"
                    .to_owned(),
            ),
        }
    }

    /// `${name}` reads the environment, and is a slip where a placeholder was meant.
    pub(super) fn read<T>(
        self,
        value: Cursor<'_>,
        read: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        let written = value.scalar().unwrap_or_default();
        for (at, _) in written.match_indices("${").filter(|(at, _)| !written[..*at].ends_with('$')) {
            let name = written[at + 2..].split('}').next().unwrap_or_default();
            if let Some(meant) = self.placeholders.meant(name).filter(|_| !value.has_variable(name)) {
                let help =
                    format!("did you mean `\"{}\"`?", written.replace(&format!("${{{name}}}"), &meant));
                value.report(format!("`${{{name}}}` is an environment variable, and it is not set"), help);
                return None;
            }
        }
        value.parse(read)
    }
}
