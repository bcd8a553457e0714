//! `values` and `allow_values`: the settings in the file, and the types that the crate reads.

use std::sync::Arc;

use serde::{Serialize, Serializer, ser::SerializeMap};
use tollgate_derive::{Settings, Word};

use crate::{
    config::reader::Cursor,
    request_values::{FoundValue, FoundValues, RequestValue},
};

/// A value of requests, where it is, and how it is counted.
#[derive(Settings)]
#[settings(written, page = "tasks/limit-by-model.md", sample = "json: model")]
#[settings(rules(One(&["json", "form", "path", "from"]), With("if", "json")))]
pub(in crate::config) struct RequestValueSettings<'t> {
    #[setting(flatten)]
    pub(in crate::config) place: ValueSourceSettings<'t>,
    /// Several places where a request may have the value. The first where it is counts.
    #[setting(either(list(mapping(ValueSourceSettings), Some), mapping(ValueSourceSettings)))]
    #[setting(example = "[{ json: username }, { form: username }]")]
    pub(in crate::config) from: Option<Cursor<'t>>,
    /// Names for texts that count as one value. `*` is any text, the longest text that matches counts, and all others are
    /// in the group `other`.
    #[setting(names(RESOURCE, either(text = ANY, list(text = ANY, SomeUnique)), Some), unset = "each text is a value")]
    #[setting(example = "{ big: [\"gpt-4o*\"], mini: [\"gpt-4o-mini*\"] }", beside = "json: model")]
    pub(in crate::config) groups: Option<Cursor<'t>>,
    /// Whether texts are one value that differ only in case, accents, Unicode's compatibility forms, characters that can't be seen, or
    /// blanks around them, such as `Ann` and `ann`. Without `groups`, such texts are taken for names of people: they are recorded
    /// as the users of denied requests that have none, and counted for hints.
    #[setting(default = "false", example = "true", beside = "form: username")]
    pub(in crate::config) fold: bool,
    /// What happens to a request whose value can't be read, where it is needed: `refuse` answers 400, 413 or 415; `count`
    /// lets it pass, and counts it as `value:NAME=`.
    #[setting(default = "refuse", example = "count", beside = "form: username")]
    pub(in crate::config) unreadable: Unreadable,
}

/// What happens to a request whose value can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Unreadable {
    Refuse,
    Count,
}

/// One place where a request has the value.
#[derive(Clone, Copy, Settings)]
#[settings(written, page = "tasks/limit-by-model.md", sample = "json: model")]
#[settings(rules(One(&["json", "form", "path"]), With("if", "json")))]
pub(in crate::config) struct ValueSourceSettings<'t> {
    /// The names that lead to it in the JSON of the body, with dots between them.
    #[setting(text = JSON_PATH, example = "model")]
    pub(in crate::config) json: Option<Cursor<'t>>,
    /// The name of a field of a form (`application/x-www-form-urlencoded`).
    #[setting(text = NAME, example = "username")]
    pub(in crate::config) form: Option<Cursor<'t>>,
    /// A path with a placeholder. `*` at its end is any text. Such a value needs no body.
    #[setting(text = VALUE_PATH, example = "\"/v1beta/models/{model}:*\"")]
    pub(in crate::config) path: Option<Cursor<'t>>,
    /// Members of the same JSON, and the texts that they must be.
    #[setting(key = "if", names(JSON_PATH, text = ANY, Some), unset = "whatever else the body says")]
    #[setting(example = "{ method: tools/call }", beside = "json: params.name")]
    pub(in crate::config) conditions: Option<Cursor<'t>>,
}

impl ValueSourceSettings<'_> {
    pub(in crate::config) fn is_empty(self) -> bool {
        let Self { json, form, path, conditions } = self;
        [json, form, path, conditions].iter().all(Option::is_none)
    }
}

/// The only texts that a value may be.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowedValues {
    pub value: Arc<RequestValue>,
    /// Never empty.
    pub allowed: Vec<String>,
}

impl AllowedValues {
    /// Whether a request with these values is allowed. `None`: it does not have the value.
    pub fn allows(&self, values: &FoundValues) -> Option<bool> {
        match values.get(&self.value.name) {
            FoundValue::Absent => None,
            FoundValue::Text(text) => Some(self.allowed.iter().any(|allowed| *allowed == **text)),
            FoundValue::Unreadable => Some(false),
        }
    }
}

/// Serializes as the file has them.
pub(in crate::config) fn allowed_values<S: Serializer>(
    all: &[AllowedValues],
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(all.len()))?;
    for AllowedValues { value, allowed } in all {
        map.serialize_entry(&value.name, allowed)?;
    }
    map.end()
}

/// A plan of API keys. Its limits are overrides of policies.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub name: String,
    /// Where it is absent, the plan says nothing.
    pub allow_values: Vec<AllowedValues>,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.allow_values.is_empty() {
            return to.serialize_str(&self.name);
        }
        #[derive(Serialize)]
        struct Restricted<'a> {
            name: &'a str,
            #[serde(serialize_with = "allowed_values")]
            allow_values: &'a [AllowedValues],
        }
        Restricted { name: &self.name, allow_values: &self.allow_values }.serialize(to)
    }
}
