//! Makes the values of their settings.

use std::sync::Arc;

use crate::{
    config::{
        reader::{Cursor, MappingCursor, NameTable},
        request_values::settings::{AllowedValues, RequestValueSettings, Unreadable, ValueSourceSettings},
        settings::{Read, opened},
        value::{
            Invalid, json_path,
            key::{KeyPart, KeyRecipe},
            printable_text, resource_name,
        },
    },
    request_values::{
        OTHER_GROUP, PathSource, RequestValue, SourcePlace, TextPattern, ValueGroup, ValueSource,
    },
};

/// All values.
pub(in crate::config) struct ReadValues<'t> {
    names: NameTable<'t>,
    /// In the order of the names. `None`: it is invalid.
    read: Vec<Option<Arc<RequestValue>>>,
}

/// Reads all values.
pub(in crate::config) fn values(value: Option<Cursor<'_>>) -> ReadValues<'_> {
    let entries = value.and_then(Cursor::named_entries).unwrap_or_default();
    let names = NameTable::new("value", entries.iter().map(|(_, name, _)| *name).collect());
    let read = entries.into_iter().map(|(location, name, value)| {
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        request_value(name, value).map(Arc::new)
    });
    ReadValues { read: read.collect(), names }
}

impl ReadValues<'_> {
    /// All of them. `None`: one is invalid.
    pub(in crate::config) fn resolved(&self) -> Option<Vec<Arc<RequestValue>>> {
        self.read.iter().cloned().collect()
    }

    /// Their placeholders, in the order of the names.
    pub(in crate::config) fn placeholders(&self) -> Vec<String> {
        (0..self.read.len()).filter_map(|index| Some(format!("value:{}", self.names.name(index)?))).collect()
    }

    /// The value of this name.
    ///
    /// # Errors
    /// There is none.
    fn find(&self, name: &str) -> Result<Option<&Arc<RequestValue>>, Invalid> {
        self.names.find(name).map(|index| self.read.get(index).and_then(Option::as_ref))
    }

    /// Reports values in the `key` at `item` that do not exist.
    pub(in crate::config) fn check_key(&self, item: Cursor<'_>, key: &KeyRecipe) {
        for part in &key.0 {
            if let KeyPart::Value(name) = part
                && let Err(invalid) = self.find(name)
            {
                let message = format!("`{name}` {}", invalid.reason);
                let help = invalid.help(false);
                item.report(
                    message,
                    help.or_else(|| Some(format!("such as `values: {{ {name}: {{ json: {name} }} }}`"))),
                );
            }
        }
    }

    /// Reports that the value called `name` does not exist, or never is `text`.
    pub(in crate::config) fn check_text(&self, item: Cursor<'_>, name: &str, text: &str) -> bool {
        match self.find(name) {
            Err(invalid) => item.report(format!("`{name}` {}", invalid.reason), invalid.help(false)),
            Ok(Some(value)) if !value.may_be(text) => {
                let groups: Vec<&str> = value.group_names().collect();
                let help = format!("the groups of `{name}`: {}", groups.join(", "));
                item.report(format!("`{text}` is no group of `{name}`"), help);
            }
            Ok(Some(value)) if value.groups.is_empty() && text.contains('*') => {
                let help = format!("give `{name}` `groups`, and name one of them");
                item.report("`*` is no other text here: only patterns of groups have it", help);
            }
            Ok(Some(value)) if value.folded(text) != *text => {
                let help = format!("write `{}`", value.folded(text));
                item.report(format!("no value of `{name}` is written so, because of `fold: true`"), help);
            }
            Ok(_) => return true,
        }
        false
    }

    /// Reads `allow_values` of a route or a plan.
    pub(in crate::config) fn allowed(&self, value: Option<Cursor<'_>>) -> Vec<AllowedValues> {
        let mut all = Vec::new();
        for (location, name, list) in value.and_then(Cursor::named_entries).unwrap_or_default() {
            let allowed = list.unique_items(|item| {
                let text = item.parse(printable_text)?;
                // The name is reported once.
                (self.names.find(name).is_err() || self.check_text(item, name, &text)).then_some(text)
            });
            if list.is_empty_list() {
                list.report("no request would be allowed", "such as `[mini]`".to_owned());
            }
            match self.find(name) {
                Err(invalid) => {
                    list.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
                }
                Ok(None) => {}
                Ok(Some(value)) => all.push(AllowedValues { value: Arc::clone(value), allowed }),
            }
        }
        all
    }
}

const FORMS: &str =
    "such as `{ json: model }`, `{ form: username }` or `{ path: \"/v1beta/models/{model}:*\" }`";

fn request_value(name: &str, value: Cursor<'_>) -> Option<RequestValue> {
    if value.scalar().is_some() {
        value.report("expected where a request has the value, not a single value", FORMS.to_owned());
        return None;
    }
    if value.is_list() {
        let (from, groups) = (sources(name, value)?, Vec::new());
        return Some(RequestValue {
            name: name.to_owned(),
            from,
            groups,
            fold: false,
            counts_unreadable: false,
        });
    }
    let mut mapping = opened::<RequestValueSettings<'_>>(value)?;
    let RequestValueSettings { place, from, groups, fold, unreadable } =
        RequestValueSettings::fields(&mut mapping)?;
    let from = match from {
        Some(list) if place.is_empty() => sources(name, list),
        Some(list) => {
            list.report(
                "`from` does not go with a place beside it",
                "list all places under `from`".to_owned(),
            );
            None
        }
        None => source(name, value, &mapping, place).map(|source| vec![source]),
    };
    mapping.finish();
    let counts_unreadable = unreadable == Unreadable::Count;
    let value =
        RequestValue { name: name.to_owned(), from: from?, groups: Vec::new(), fold, counts_unreadable };
    let groups = groups.map_or(Some(Vec::new()), |groups| self::groups(groups, &value))?;
    Some(RequestValue { groups, ..value })
}

/// The most places of a value.
const MAX_SOURCES: usize = 16;

fn sources(name: &str, value: Cursor<'_>) -> Option<Vec<ValueSource>> {
    let items = if value.is_mapping() { vec![value] } else { value.list()? };
    if items.is_empty() {
        value.report("no place is listed", FORMS.to_owned());
    }
    if items.len() > MAX_SOURCES {
        value.report(format!("a value has at most {MAX_SOURCES} places"), "remove some".to_owned());
    }
    let count = items.len();
    let read = |item: Cursor<'_>| {
        let mut mapping = opened::<ValueSourceSettings<'_>>(item)?;
        let settings = ValueSourceSettings::fields(&mut mapping)?;
        let source = source(name, item, &mapping, settings);
        mapping.finish();
        source
    };
    let read: Vec<ValueSource> = items.into_iter().filter_map(read).collect();
    (read.len() == count && count > 0).then_some(read)
}

/// The place that `settings` of the `mapping` at `item` describe.
fn source(
    name: &str,
    item: Cursor<'_>,
    mapping: &MappingCursor<'_>,
    settings: ValueSourceSettings<'_>,
) -> Option<ValueSource> {
    let ValueSourceSettings { json, form, path, conditions } = settings;
    let place = match (json, form, path) {
        (Some(value), None, None) => value.parse(json_path).map(SourcePlace::Json),
        (None, Some(value), None) => value.parse(printable_text).map(SourcePlace::Form),
        (None, None, Some(value)) => value
            .parse(|text| {
                PathSource::parse(text, name).map_err(|reason| {
                    Invalid::new(reason)
                        .expected("`{name}` is a part of a segment, and `*` at the end is any text")
                })
            })
            .map(SourcePlace::Path),
        _ => {
            let keys = ["json", "form", "path", "from"];
            if !keys.into_iter().any(|key| mapping.peek(key).is_none() && mapping.has_or_misspells(key)) {
                item.report("each place is exactly one of json, form and path", FORMS.to_owned());
            }
            None
        }
    };
    if json.is_none()
        && let Some(location) = mapping.key_location("if")
    {
        mapping.report_at(location, "`if` works only beside `json`", "remove it".to_owned());
    }
    let read =
        |value: Cursor<'_>| value.entries_by_name(json_path, |text| text.parse(|text| Ok(text.to_owned())));
    let conditions = conditions.map_or(Some(Vec::new()), read)?;
    Some(ValueSource { place: place?, conditions })
}

/// `folding`: the value, without its groups.
fn groups(value: Cursor<'_>, folding: &RequestValue) -> Option<Vec<ValueGroup>> {
    let (mut all, mut is_valid) = (Vec::<ValueGroup>::new(), true);
    for (location, name, texts) in value.named_entries()? {
        if let Err(invalid) = resource_name(name) {
            texts.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            is_valid = false;
        }
        if name == OTHER_GROUP {
            let help = "choose another name, or leave it out".to_owned();
            texts.report_at(location, "`other` is the group of all texts that are in no group", help);
            is_valid = false;
        }
        let pattern = |item: Cursor<'_>| {
            let pattern = item.parse(|text| {
                let text = printable_text(text)?;
                let folded = folding.folded(&text);
                if folded != text {
                    return Err(Invalid::new("is not written as values are with `fold: true`")
                        .suggestion(format!("did you mean `{folded}`?")));
                }
                TextPattern::new(&text).map_err(Invalid::new)
            })?;
            if let Some(other) = all.iter().find(|group| group.patterns.contains(&pattern)) {
                let message = format!("`{}` is in the group `{}`, too", pattern.written(), other.name);
                item.report(message, "keep one of the two".to_owned());
                return None;
            }
            Some(pattern)
        };
        let patterns = match texts.scalar() {
            Some(_) => pattern(texts).into_iter().collect(),
            None => texts.unique_items(pattern),
        };
        if texts.is_empty_list() {
            texts.report("the group has no texts", "such as `[\"gpt-4o*\"]`".to_owned());
        }
        is_valid &= !patterns.is_empty();
        all.push(ValueGroup { name: name.to_owned(), patterns });
    }
    is_valid.then_some(all)
}
