//! The changes of a route to the messages that it forwards.

use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;
use tollgate_derive::Settings;

use crate::config::{
    reader::{Cursor, MappingCursor},
    redact::has_no_credentials,
    routes::placeholder_text::TextReader,
    settings::{Read, Settings as _},
    value::{
        editable_field_name, editable_fields,
        http::FieldPattern,
        path_matching::{PathCase, fold_case},
        patterns::PathPattern,
        placeholders::{FieldText, PlaceholderText},
        stripped_prefix,
    },
    written::serialize,
};

/// The path that the upstream gets instead of the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewrite {
    /// Without these segments at its start: `/api`, which neither is `/` nor ends in it.
    StripPrefix(String),
    Path(PlaceholderText),
}

impl Rewrite {
    /// `path`: that of the route, and as it is in the file.
    pub(in crate::config) fn read(
        value: Cursor<'_>,
        reader: TextReader<'_>,
        path: (&PathPattern, &str),
        case: PathCase,
    ) -> Option<Self> {
        if let Some(written) = value.scalar() {
            let help = format!("write `{}`", suggest_rewrite(written));
            value.report("expected a mapping, not a single value", help);
            return None;
        }
        let mut mapping = value.mapping()?.of(RewriteSettings::mapping());
        let RewriteSettings { strip_prefix, path: target } = RewriteSettings::fields(&mut mapping)?;
        let is_misspelled = mapping.has_or_misspells("strip_prefix") || mapping.has_or_misspells("path");
        let rewrite = match (strip_prefix, target) {
            (Some(_), Some(_)) => {
                mapping
                    .report("`rewrite` has both `strip_prefix` and `path`", "write one of them".to_owned());
                None
            }
            (Some(value), None) => value.parse(stripped_prefix).map(|prefix| {
                check_prefix(value, path, case, &prefix);
                Self::StripPrefix(prefix)
            }),
            (None, Some(value)) => reader.path(value).map(Self::Path),
            (None, None) if is_misspelled => None,
            (None, None) => {
                let help =
                    "write `rewrite: { strip_prefix: /api }` or `rewrite: { path: /new/path }`".to_owned();
                mapping.report("`rewrite` has neither `strip_prefix` nor `path`", help);
                None
            }
        };
        mapping.finish();
        rewrite
    }
}

/// The path that the upstream gets. Set exactly one of the two.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].rewrite", rules(One(&["strip_prefix", "path"])))]
pub(in crate::config) struct RewriteSettings<'t> {
    /// The prefix to remove from the beginning of the path.
    #[setting(text = PLAIN_PATH, example = "/api")]
    strip_prefix: Option<Cursor<'t>>,
    /// The new path. It may have placeholders such as `{rest}`.
    #[setting(text = PLACEHOLDERS, example = "\"/v2/{rest}\"")]
    path: Option<Cursor<'t>>,
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

/// The line for `rewrite` of nginx, or for a path without a key.
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

/// Changes of the header of a message, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HeaderEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldPattern>,
    /// Each replaces all lines of its field.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::fields")]
    pub set: Vec<(HeaderName, FieldText)>,
    /// Each is one more line.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::fields")]
    pub add: Vec<(HeaderName, FieldText)>,
}

impl HeaderEdits {
    /// Reads `request_headers` or `response_headers`, whose name is `setting`.
    pub(in crate::config) fn read(
        value: Cursor<'_>,
        setting: &'static str,
        reader: TextReader<'_>,
    ) -> Option<Arc<Self>> {
        let mapping = value.mapping_such_as("{ set: { NAME: VALUE } }")?;
        let mut mapping = mapping.of(HeaderEditsSettings::mapping());
        let HeaderEditsSettings { remove, set, add } = HeaderEditsSettings::fields(&mut mapping)?;
        let set =
            set.and_then(|fields| fields.entries_by_name(editable_field_name, |value| reader.field(value)));
        let add = add.map(|fields| added_fields(fields, reader));
        explain_fields(&mut mapping, setting);
        mapping.finish();
        Some(Arc::new(Self { remove, set: set.unwrap_or_default(), add: add.unwrap_or_default() }))
    }
}

/// Changes of headers. `remove` comes first, then `set`, then `add`.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].request_headers")]
pub(in crate::config) struct HeaderEditsSettings<'t> {
    /// Sets headers, and replaces those of the same name.
    #[setting(names(FIELD, text = PLACEHOLDERS, Any), unset = "none", example = "{ x-from: tollgate }")]
    set: Option<Cursor<'t>>,
    /// Adds headers, and keeps those of the same name. Each has a value, or a list of values.
    #[setting(names(FIELD, either(text = PLACEHOLDERS, list(text = PLACEHOLDERS, Any)), Any), unset = "none")]
    #[setting(example = "{ x-tag: [a, b] }")]
    add: Option<Cursor<'t>>,
    /// Removes headers. `x-internal-*` removes all whose names begin with `x-internal-`.
    #[setting(list(text = FIELDS, Unique), parse = editable_fields, unset = "none")]
    #[setting(example = "[x-internal, \"x-debug-*\"]")]
    remove: Vec<FieldPattern>,
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
