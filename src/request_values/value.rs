//! The values of a request that have names in the configuration: its model, its tool, the login name.

use std::{cmp::Reverse, sync::Arc};

use compact_str::CompactString;
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, GeneralCategory},
};
use percent_encoding::percent_decode_str;
use regex::Regex;
use serde::{Serialize, Serializer, ser::SerializeMap};
use smallvec::SmallVec;

use super::{BodyRefusal, Members, form::Form};
use crate::json_path::JsonPath;

/// The group of a value that is in none of the value's groups.
pub const OTHER_GROUP: &str = "other";

/// A part of requests that has a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestValue {
    pub name: String,
    /// Never empty. The first that is there counts.
    pub from: Vec<ValueSource>,
    /// Empty: each text counts for itself.
    pub groups: Vec<ValueGroup>,
    /// Whether texts that differ in case, in Unicode's compatibility forms or in outer blanks alone are one.
    pub fold: bool,
    /// Whether a value that can't be read is one of its own. If not, its request is refused.
    #[serde(rename = "unreadable", serialize_with = "count_or_refuse")]
    pub counts_unreadable: bool,
}

fn count_or_refuse<S: Serializer>(counts: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *counts { "count" } else { "refuse" })
}

/// A group of texts that count as one value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValueGroup {
    pub name: String,
    pub patterns: Vec<TextPattern>,
}

/// Where a request has a value.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueSource {
    pub place: SourcePlace,
    /// Members of the same JSON that must be these texts.
    pub conditions: Vec<(JsonPath, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SourcePlace {
    /// A member of its JSON.
    Json(JsonPath),
    /// A field of its form (`application/x-www-form-urlencoded`).
    Form(String),
    /// A part of its path.
    Path(PathSource),
}

impl Serialize for ValueSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match &self.place {
            SourcePlace::Json(path) => map.serialize_entry("json", &path.to_string())?,
            SourcePlace::Form(name) => map.serialize_entry("form", name)?,
            SourcePlace::Path(path) => map.serialize_entry("path", &path.written)?,
        }
        if !self.conditions.is_empty() {
            let conditions = self.conditions.iter().map(|(path, text)| (path.to_string(), text));
            map.serialize_entry("if", &conditions.collect::<std::collections::BTreeMap<_, _>>())?;
        }
        map.end()
    }
}

/// A text in which `*` is any text.
#[derive(Debug, Clone)]
pub struct TextPattern {
    written: String,
    regex: Regex,
}

impl TextPattern {
    /// # Errors
    /// It is too long.
    pub fn new(written: &str) -> Result<Self, &'static str> {
        let any: Vec<String> = written.split('*').map(regex::escape).collect();
        Ok(Self { written: written.to_owned(), regex: compiled(&any.join("(?s:.*)"))? })
    }

    /// As the configuration has it.
    pub fn written(&self) -> &str {
        &self.written
    }
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Serialize for TextPattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.written)
    }
}

/// A path with a placeholder for a value: `/v1beta/models/{model}:*`.
#[derive(Debug, Clone)]
pub struct PathSource {
    written: String,
    /// With the shortest text for each placeholder, and with the longest. Where these differ, a path can be read in two ways.
    expressions: [Regex; 2],
}

impl PartialEq for PathSource {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl PathSource {
    /// Parses a path. `{name}` is a part of a segment, and `*` at the end is any text. Of several placeholders, the one called
    /// `name` is the value.
    ///
    /// # Errors
    /// It has no placeholder, or is malformed.
    pub fn parse(written: &str, name: &str) -> Result<Self, &'static str> {
        const FORM: &str = "is no path with a placeholder, such as /v1beta/models/{model}:*";
        if !written.starts_with('/') {
            return Err(FORM);
        }
        let (path, end) = match written.strip_suffix('*') {
            Some(path) => (path, "(?s:.*)"),
            None => (written, "/?"),
        };
        let mut pieces = path.split('{');
        // Case is ignored by lower case on both sides: the crate is built without the tables for it.
        let escaped = |literal: &str| regex::escape(&literal.to_ascii_lowercase());
        let mut shortest = escaped(pieces.next().unwrap_or_default());
        let mut longest = shortest.clone();
        let mut names = Vec::new();
        for piece in pieces {
            let (placeholder, literal) = piece.split_once('}').ok_or(FORM)?;
            let is_word = !placeholder.is_empty()
                && placeholder.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_word || names.contains(&placeholder) {
                return Err(FORM);
            }
            names.push(placeholder);
            let literal = escaped(literal);
            shortest += &format!("(?P<{0}>[^/]+?){literal}", group_name(names.len()));
            longest += &format!("(?P<{0}>[^/]+){literal}", group_name(names.len()));
        }
        let nth = match *names {
            [] => return Err(FORM),
            [_] => 0,
            _ => names
                .iter()
                .position(|placeholder| *placeholder == name)
                .ok_or("has several placeholders, and none with the name of the value")?,
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%*".contains(&byte);
        let literals: Vec<&str> = path.split(['{', '}']).step_by(2).collect();
        // Between a placeholder and what follows, something has to stand.
        let (last, between) = literals.split_last().ok_or(FORM)?;
        let is_separated = between.iter().skip(1).all(|literal| !literal.is_empty())
            && !(last.is_empty() && written.ends_with('*'));
        let is_balanced = path.matches('{').count() == path.matches('}').count();
        if !is_separated || !is_balanced || !path.bytes().all(is_plain) || path.contains("//") {
            return Err(FORM);
        }
        let named = |text: &str| text.replace(&format!("<{}>", group_name(nth + 1)), "<value>");
        let whole = |text: &str| compiled(&format!("{}{end}", named(text)));
        Ok(Self { written: written.to_owned(), expressions: [whole(&shortest)?, whole(&longest)?] })
    }

    /// The value in the path of a request. One with an encoded slash is in the path as it was sent alone.
    ///
    /// # Errors
    /// It can be read in several ways, or is not UTF-8.
    fn find(&self, path: RequestTarget<'_>) -> Result<Option<CompactString>, BodyRefusal> {
        let [sent, loosest] = [self.find_in(path.sent)?, self.find_in(path.loosest)?];
        match (sent, loosest) {
            (Some(sent), Some(loosest)) if sent != loosest => Err(self.unclear()),
            (sent, loosest) => Ok(sent.or(loosest)),
        }
    }

    /// The value in `path`, which is percent-encoded.
    fn find_in(&self, path: &str) -> Result<Option<CompactString>, BodyRefusal> {
        let lower = path.to_ascii_lowercase();
        let value = |regex: &Regex| Some(regex.captures(&lower)?.name("value")?.range());
        let [shortest, longest] = self.expressions.each_ref().map(value);
        if shortest != longest {
            return Err(self.unclear());
        }
        let Some(encoded) = shortest.and_then(|range| path.get(range)) else { return Ok(None) };
        let decoded = percent_decode_str(encoded).decode_utf8().map_err(|_| self.unclear())?;
        Ok(Some(decoded.into()))
    }

    fn unclear(&self) -> BodyRefusal {
        BodyRefusal::unclear(format!("The path can't be read in one way alone as `{}`.", self.written))
    }
}

fn group_name(nth: usize) -> String {
    format!("part{nth}")
}

/// An expression for a whole text.
fn compiled(expression: &str) -> Result<Regex, &'static str> {
    Regex::new(&format!("^(?:{expression})$")).map_err(|_| "is too long")
}

/// The target of a request: its path, percent-encoded, as it was sent and in the loosest interpretation; and fields of forms in
/// its query.
#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'a> {
    pub sent: &'a str,
    pub loosest: &'a str,
    pub query: &'a QueryFields,
}

/// Fields of forms in the query, by name: many frameworks add them to those of the body.
#[derive(Debug, Default)]
pub struct QueryFields(Vec<(String, Result<Option<CompactString>, BodyRefusal>)>);

impl QueryFields {
    pub const NONE: &'static Self = &Self(Vec::new());

    /// Reads the fields of these `values`.
    pub fn read<'v>(values: impl IntoIterator<Item = &'v Arc<RequestValue>>, query: &str) -> Self {
        let form = Form::new(query.as_bytes());
        let names = values.into_iter().flat_map(|value| value.form_fields());
        Self(names.map(|name| (name.to_owned(), form.field(name))).collect())
    }

    fn get(&self, name: &str) -> Result<Option<CompactString>, BodyRefusal> {
        self.0.iter().find(|(of, _)| of == name).map_or(Ok(None), |(_, found)| found.clone())
    }
}

/// What of a request's body is read.
#[derive(Clone, Copy)]
pub enum ReadBody<'m, 'b> {
    /// It has none, or one of another type.
    Nothing,
    Json(&'m Members<'m, 'b>),
    Form(Form<'b>),
}

/// A value of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundValue {
    Absent,
    /// Its group, or the text itself. Never empty.
    Text(CompactString),
    /// It can't be read, and counts as such.
    Unreadable,
}

impl FoundValue {
    /// `None`: it is absent, or can't be read.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// The values of a request, or of one of the calls in its batch.
#[derive(Debug, Clone, Default)]
pub struct FoundValues(SmallVec<[NamedValue; 1]>);

#[derive(Debug, Clone)]
struct NamedValue {
    value: Arc<RequestValue>,
    found: FoundValue,
    /// What stands for it in keys and in logs, if names of people must not be stored.
    pseudonym: Option<CompactString>,
}

/// The most bytes of a value.
const MAX_VALUE: usize = 1_024;

impl RequestValue {
    /// Whether the body says what it is: `path` does not.
    pub fn needs_body(&self, path: RequestTarget<'_>) -> bool {
        let first = self.from.iter().find(|source| match &source.place {
            SourcePlace::Path(place) => place.find(path) != Ok(None),
            SourcePlace::Json(_) | SourcePlace::Form(_) => true,
        });
        first.is_some_and(|source| !matches!(source.place, SourcePlace::Path(_)))
    }

    /// The fields of forms that can have it.
    pub fn form_fields(&self) -> impl Iterator<Item = &str> {
        self.from.iter().filter_map(|source| match &source.place {
            SourcePlace::Form(name) => Some(&**name),
            _ => None,
        })
    }

    /// Whether its texts are taken for names of people: they are folded, and have no groups.
    fn names_people(&self) -> bool {
        self.fold && self.groups.is_empty()
    }

    /// The members of JSON that [`FoundValues::read`] asks for.
    pub fn paths(&self) -> impl Iterator<Item = &JsonPath> {
        self.from.iter().flat_map(|source| {
            let path = match &source.place {
                SourcePlace::Json(path) => Some(path),
                SourcePlace::Form(_) | SourcePlace::Path(_) => None,
            };
            path.into_iter().chain(source.conditions.iter().map(|(path, _)| path))
        })
    }

    fn read(&self, body: ReadBody<'_, '_>, path: RequestTarget<'_>) -> Result<FoundValue, BodyRefusal> {
        for source in &self.from {
            let found = match (&source.place, body) {
                (SourcePlace::Path(place), _) => place.find(path)?,
                (SourcePlace::Json(place), ReadBody::Json(members)) if source.is_met(members)? => {
                    members.get(place).map(|member| member.text(place)).transpose()?
                }
                (SourcePlace::Form(name), body) => {
                    let in_body = if let ReadBody::Form(form) = body { form.field(name)? } else { None };
                    match (in_body, path.query.get(name)?) {
                        (Some(one), Some(other)) if one != other => return Err(BodyRefusal::in_query(name)),
                        (one, other) => one.or(other),
                    }
                }
                _ => None,
            };
            if found.as_ref().is_some_and(|text| text.len() > MAX_VALUE) {
                let message = format!("The request's `{}` has more than {MAX_VALUE} bytes.", self.name);
                return Err(BodyRefusal::unclear(message));
            }
            let found = found.map(|text| self.folded(&text)).filter(|text| !text.is_empty());
            if let Some(text) = found {
                return Ok(FoundValue::Text(self.group(&text).map_or(text, Into::into)));
            }
        }
        Ok(FoundValue::Absent)
    }

    /// `text` as it is compared. With `fold`, letters have no case and no accents, and characters that can't be seen are left out,
    /// as in names that databases take for the same.
    pub fn folded(&self, text: &str) -> CompactString {
        if !self.fold {
            return text.into();
        }
        let nfkd = DecomposingNormalizerBorrowed::new_nfkd();
        let (categories, ignorable) = (
            CodePointMapData::<GeneralCategory>::new(),
            CodePointSetData::new::<DefaultIgnorableCodePoint>(),
        );
        let is_seen = |letter: &char| {
            let category = categories.get(*letter);
            !matches!(
                category,
                GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::NonspacingMark
            ) && !ignorable.contains(*letter)
        };
        let upper = nfkd.normalize(text).to_uppercase();
        // Letter by letter: a sigma at the end of a word is the same letter.
        let lower: String = upper.chars().flat_map(char::to_lowercase).collect();
        let plain: String = nfkd.normalize(&lower).chars().filter(is_seen).collect();
        plain.trim().into()
    }

    /// The group of a text in a log: itself, if it is a group already. `None`: nobody knows.
    pub fn group_of_logged<'t>(&'t self, text: &'t str) -> Option<&'t str> {
        if self.may_be(text) {
            return Some(text);
        }
        self.group(&self.folded(text)).filter(|group| *group != OTHER_GROUP)
    }

    /// The group of `text`: the one with the longest pattern that matches. `None`: the value has no groups.
    fn group(&self, text: &str) -> Option<&str> {
        if self.groups.is_empty() {
            return None;
        }
        let patterns = self.groups.iter().flat_map(|of| of.patterns.iter().map(move |pattern| (of, pattern)));
        let matching = patterns.filter(|(_, pattern)| pattern.regex.is_match(text));
        let longest = matching.min_by_key(|(_, pattern)| Reverse(pattern.written.len()));
        Some(longest.map_or(OTHER_GROUP, |(of, _)| &of.name))
    }

    /// The names of its groups, `other` last. None, if it has none.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        let other = (!self.groups.is_empty()).then_some(OTHER_GROUP);
        self.groups.iter().map(|group| &*group.name).chain(other)
    }

    /// Whether the value may be `text`: without groups, any text.
    pub fn may_be(&self, text: &str) -> bool {
        self.groups.is_empty() || self.group_names().any(|group| group == text)
    }
}

impl ValueSource {
    fn is_met(&self, members: &Members<'_, '_>) -> Result<bool, BodyRefusal> {
        for (path, wanted) in &self.conditions {
            let Some(member) = members.get(path) else { return Ok(false) };
            if !member.is_scalar(wanted, path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl FoundValues {
    /// Of a request without any.
    pub const NONE: &'static Self = &Self(SmallVec::new_const());

    /// Reads these values of a request with this `body` and `path`.
    ///
    /// # Errors
    /// One of them can't be read.
    pub fn read<'v>(
        values: impl IntoIterator<Item = &'v Arc<RequestValue>>,
        body: ReadBody<'_, '_>,
        path: RequestTarget<'_>,
    ) -> Result<Self, BodyRefusal> {
        Self::with(values, |value| value.read(body, path))
    }

    /// The values of a request whose body can't be read.
    ///
    /// # Errors
    /// One in its path can't be read either.
    pub fn unreadable<'v>(
        values: impl IntoIterator<Item = &'v Arc<RequestValue>>,
        path: RequestTarget<'_>,
    ) -> Result<Self, BodyRefusal> {
        Self::with(values, |value| match value.needs_body(path) {
            true => Ok(FoundValue::Unreadable),
            false => value.read(ReadBody::Nothing, path),
        })
    }

    fn with<'v>(
        values: impl IntoIterator<Item = &'v Arc<RequestValue>>,
        read: impl Fn(&RequestValue) -> Result<FoundValue, BodyRefusal>,
    ) -> Result<Self, BodyRefusal> {
        let named = |value: &Arc<RequestValue>| {
            let found = match read(value) {
                Err(_) if value.counts_unreadable => FoundValue::Unreadable,
                found => found?,
            };
            Ok(NamedValue { value: Arc::clone(value), found, pseudonym: None })
        };
        values.into_iter().map(named).collect::<Result<_, _>>().map(Self)
    }

    /// Values that are known from elsewhere.
    pub fn known(values: impl IntoIterator<Item = (Arc<RequestValue>, FoundValue)>) -> Self {
        let named = |(value, found)| NamedValue { value, found, pseudonym: None };
        Self(values.into_iter().map(named).collect())
    }

    /// Sets what stands for names of people in keys and in logs.
    pub fn conceal_names(&mut self, pseudonym: impl Fn(&str) -> Option<CompactString>) {
        for of in &mut self.0 {
            if of.value.names_people() {
                of.pseudonym = of.found.text().and_then(&pseudonym);
            }
        }
    }

    /// The first name of a person.
    pub fn person(&self) -> Option<&str> {
        self.0.iter().filter(|of| of.value.names_people()).find_map(|of| of.found.text())
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> &FoundValue {
        self.find(name).map_or(&FoundValue::Absent, |of| &of.found)
    }

    /// The text of this value as keys have it: empty, if it can't be read. `None`: it is absent.
    pub fn key_text(&self, name: &str) -> Option<&str> {
        let of = self.find(name)?;
        match &of.found {
            FoundValue::Absent => None,
            FoundValue::Unreadable => Some(""),
            FoundValue::Text(text) => Some(of.pseudonym.as_ref().unwrap_or(text)),
        }
    }

    /// Whether the value was looked for.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&NamedValue> {
        self.0.iter().find(|of| of.value.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests' dependencies switch the tables of Unicode on, and the binary that users get has none: there, such an expression would
    /// be refused.
    #[test]
    fn expressions_need_no_tables_of_unicode() {
        let pattern = TextPattern::new("gpt-4o*-Mini é").unwrap();
        let path = PathSource::parse("/v1/{a}/Models/{model}:*", "model").unwrap();
        for regex in path.expressions.iter().chain([&pattern.regex]) {
            for needs_tables in ["\\s", "\\S", "\\d", "\\w", "\\b", "\\p", "(?i", "[[:"] {
                assert!(!regex.as_str().contains(needs_tables), "{regex}");
            }
        }
    }
}
