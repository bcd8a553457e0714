//! Reads members of a JSON body (RFC 8259) strictly.
//!
//! Of a member that comes twice, some parsers take the first, others the last. Some take `Stream` for `stream`, or `1e3`
//! for a number that others refuse. Here, what is asked has one meaning: on the levels of the body that an asked path
//! walks, each name comes once, and none is like an asked one. Deeper levels are only checked for syntax.

use std::{borrow::Cow, fmt};

use compact_str::{CompactString, format_compact};
use icu_normalizer::ComposingNormalizerBorrowed;
use memchr::memchr2;
use serde::de::{self, Deserialize, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use super::BodyRefusal;
use crate::json_path::{JsonPath, PathTree};

/// Most levels of arrays and objects.
const MAX_DEPTH: usize = 1_000;
/// Most members of an object on an asked path.
const MAX_MEMBERS: usize = 1_024;
/// Most uses in one body: JSON-RPC calls of a batch.
const MAX_USES: usize = 64;
/// The most characters of a name that an error shows.
const SHOWN: usize = 64;

/// Members of JSON bodies that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedMembers {
    paths: Vec<JsonPath>,
    tree: PathTree,
}

/// The asked members of a body, or of an element of a batch.
#[derive(Debug)]
pub struct Members<'a, 'b> {
    asked: &'a AskedMembers,
    /// As the body has them, one for each path.
    values: Vec<Option<&'b str>>,
}

/// The value of a member, as the body has it.
#[derive(Debug, Clone, Copy)]
pub struct JsonMember<'b>(&'b str);

impl AskedMembers {
    /// Asks for the members at `paths`.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p JsonPath>) -> Self {
        let mut asked = Self::default();
        for path in paths {
            if !asked.paths.contains(path) {
                asked.tree.add(path, asked.paths.len());
                asked.paths.push(path.clone());
            }
        }
        asked
    }

    /// The members of `body`: of an object, or of each element of an array, as JSON-RPC's batches are. Where the body is
    /// empty or something else, nothing is there.
    ///
    /// # Errors
    /// The body is not UTF-8 or no JSON, or parsers may read it in different ways.
    pub fn read<'b>(&self, body: &'b [u8]) -> Result<SmallVec<[Members<'_, 'b>; 1]>, BodyRefusal> {
        if body.is_empty() {
            return Ok(smallvec![self.nothing()]);
        }
        let text = str::from_utf8(body).map_err(|error| {
            BodyRefusal::malformed(format!("is not UTF-8 at byte {}", error.valid_up_to()))
        })?;
        check_depth(text.as_bytes())?;
        // All of its syntax: names of members are not checked for control characters below.
        let IgnoredAny = parsed(text)?;
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'[') => {
                let Elements(elements) = parsed(text)?;
                if elements.len() > MAX_USES {
                    return Err(BodyRefusal::too_large(format!(
                        "is an array of more than {MAX_USES} elements"
                    )));
                }
                elements.into_iter().map(|element| self.read_value(element.get())).collect()
            }
            Some(b'{') => Ok(smallvec![self.read_value(text)?]),
            _ => Ok(smallvec![self.nothing()]),
        }
    }

    /// The members of a body that has none of them.
    pub fn nothing(&self) -> Members<'_, 'static> {
        Members { asked: self, values: vec![None; self.paths.len()] }
    }

    fn read_value<'b>(&self, text: &'b str) -> Result<Members<'_, 'b>, BodyRefusal> {
        let mut members = self.nothing();
        self.read_level(text, PathTree::ROOT, &mut members.values)?;
        Ok(members)
    }

    /// Reads the value `text` at a node of the paths.
    fn read_level<'b>(
        &self,
        text: &'b str,
        node: usize,
        found: &mut [Option<&'b str>],
    ) -> Result<(), BodyRefusal> {
        if !text.trim_ascii_start().starts_with('{') {
            return Ok(());
        }
        let Level(members) = parsed(text)?;
        self.check_names(node, &members)?;
        for (name, value) in members {
            let Some(child) = self.tree.child(node, &name) else { continue };
            self.tree.sought_at(child).iter().for_each(|sought| found[*sought] = Some(value.get()));
            if self.tree.has_children(child) {
                self.read_level(value.get(), child, found)?;
            }
        }
        Ok(())
    }

    /// Checks that each name means one thing to all parsers.
    fn check_names(&self, node: usize, members: &[(Cow<'_, [u8]>, &RawValue)]) -> Result<(), BodyRefusal> {
        let mut names: Vec<&[u8]> = members.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
            return Err(BodyRefusal::malformed(format!("has the member {} twice", shown(twice))));
        }
        let asked: Vec<(&str, String)> =
            self.tree.children(node).map(|(asked, _)| (asked, folded(asked))).collect();
        let alike = names.into_iter().find_map(|name| {
            let asked = alike_to(name, asked.iter().map(|(asked, folded)| (*asked, &**folded)))?;
            Some(format!("has a member {}, which some servers take for `{asked}`", shown(name)))
        });
        alike.map_or(Ok(()), |what| Err(BodyRefusal::malformed(what)))
    }
}

/// A name for an error.
pub(super) fn shown(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let begin: String = name.chars().take(SHOWN).collect();
    let dots = if begin.len() < name.len() { "…" } else { "" };
    format!("`{}{dots}`", begin.escape_debug())
}

/// The asked name for which some parsers take `name`: the names differ in case, in Unicode's compatibility, in blanks around them, or
/// in what follows a NUL, where strings of C end. `asked`: each name, and what it is folded.
fn alike_to<'a>(name: &[u8], asked: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let whole = name;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    let mut folded_name = None;
    let mut is_alike = |asked: &str, folded_asked: &str| {
        if name.is_ascii() && asked.is_ascii() {
            return name.eq_ignore_ascii_case(asked.as_bytes());
        }
        // No letter that is taken for another one has more than four bytes.
        name.len() <= 4 * asked.len() + 8
            && folded_name.get_or_insert_with(|| str::from_utf8(name).map(folded).ok()).as_deref()
                == Some(folded_asked)
    };
    let mut others = asked.filter(|(asked, _)| whole != asked.as_bytes());
    others.find(|(asked, folded)| is_alike(asked, folded)).map(|(asked, _)| asked)
}

/// Whether `name` is `asked`, or some parsers take it for that.
pub(super) fn is_alike(name: &[u8], asked: &str) -> bool {
    let folded = if name.is_ascii() && asked.is_ascii() { String::new() } else { folded(asked) };
    name == asked.as_bytes() || alike_to(name, [(asked, &*folded)].into_iter()).is_some()
}

/// By NFKC, and in both cases: `ı` is an i in upper case alone, and `İ` has a dot of its own in lower case.
fn folded(name: &str) -> String {
    let composed = ComposingNormalizerBorrowed::new_nfkc().normalize(name);
    composed.to_uppercase().to_lowercase().replace('\u{307}', "")
}

impl<'b> Members<'_, 'b> {
    /// The member at an asked path. `None`: it is not there, or `null`.
    pub fn get(&self, path: &JsonPath) -> Option<JsonMember<'b>> {
        self.written(path).filter(|text| *text != "null").map(JsonMember)
    }

    /// The member at an asked path as the body has it, `null` too.
    pub(super) fn written(&self, path: &JsonPath) -> Option<&'b str> {
        let at = self.asked.paths.iter().position(|asked| asked == path)?;
        *self.values.get(at)?
    }
}

impl JsonMember<'_> {
    /// A whole number in any form: `1000`, `1000.0`, `1e3`. `None`: it is negative. One above [`u64::MAX`] is that. `path`:
    /// for the error.
    ///
    /// # Errors
    /// It is no whole number.
    pub fn whole_number(self, path: &JsonPath) -> Result<Option<u64>, BodyRefusal> {
        if let Ok(number) = self.0.parse() {
            return Ok(Some(number));
        }
        let number = if is_number(self.0) { self.0.parse().unwrap_or(f64::NAN) } else { f64::NAN };
        match number.fract() == 0.0 {
            true if number < 0.0 => Ok(None),
            true => Ok(Some(number as u64)),
            false => Err(BodyRefusal::malformed(format!("has no whole number at `{path}`"))),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// It is neither.
    pub fn boolean(self, path: &JsonPath) -> Result<bool, BodyRefusal> {
        match self.0 {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(BodyRefusal::malformed(format!("has neither true nor false at `{path}`"))),
        }
    }

    /// A text, or a whole number as one: to some servers, `"17"` and `17` are the same. `path`: for the error.
    ///
    /// # Errors
    /// It is something else, or a text with a surrogate alone.
    pub fn text(self, path: &JsonPath) -> Result<CompactString, BodyRefusal> {
        let unreadable = || BodyRefusal::malformed(format!("has no text at `{path}`"));
        if self.is_text() {
            let text: Cow<'_, str> = serde_json::from_str(self.0).map_err(|_| unreadable())?;
            return Ok(text.into());
        }
        if let Ok(number) = self.0.parse::<i64>() {
            return Ok(format_compact!("{number}"));
        }
        match self.whole_number(path) {
            Ok(Some(number)) => Ok(format_compact!("{number}")),
            _ => Err(unreadable()),
        }
    }

    /// Whether it is `wanted`: as a text, or as a number, `true` or `false` that is written so.
    ///
    /// # Errors
    /// It is a text with a surrogate alone.
    pub fn is_scalar(self, wanted: &str, path: &JsonPath) -> Result<bool, BodyRefusal> {
        match self.0.as_bytes().first() {
            Some(b'"') => Ok(self.text(path)? == *wanted),
            Some(b'{' | b'[') | None => Ok(false),
            Some(_) => Ok(self.0 == wanted || self.text(path).is_ok_and(|number| number == *wanted)),
        }
    }

    fn is_text(self) -> bool {
        self.0.starts_with('"')
    }

    /// Whether it is a text or an array.
    pub fn is_text_or_array(self) -> bool {
        self.0.starts_with(['"', '['])
    }

    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// The number of prompts that it is: the elements of an array, but one if they are numbers, the tokens of one.
    ///
    /// # Errors
    /// None: its syntax was checked.
    pub fn prompts(self) -> Result<u64, BodyRefusal> {
        if !self.0.starts_with('[') {
            return Ok(1);
        }
        let Prompts { elements, numbers } = parsed(self.0)?;
        Ok(if elements == numbers { 1 } else { elements })
    }
}

/// Parses a whole text.
fn parsed<'b, T: Deserialize<'b>>(text: &'b str) -> Result<T, BodyRefusal> {
    serde_json::from_str(text).map_err(|error| BodyRefusal::malformed(format!("is no JSON: {error}")))
}

/// Checks how deep arrays and objects are nested, before anything keeps a record of each level.
fn check_depth(text: &[u8]) -> Result<(), BodyRefusal> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => {
                while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
                    at += found + 1;
                    if text[at - 1] == b'"' {
                        break;
                    }
                    at += 1;
                }
            }
            b'{' | b'[' if depth == MAX_DEPTH => {
                return Err(BodyRefusal::malformed(format!("is nested more than {MAX_DEPTH} levels deep")));
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// The members of an object, in their order.
struct Level<'b>(Vec<(Cow<'b, [u8]>, &'b RawValue)>);

/// The elements of an array: at most one more than [`MAX_USES`].
struct Elements<'b>(SmallVec<[&'b RawValue; 1]>);

/// How many elements an array has, and how many of them are numbers.
#[derive(Default)]
struct Prompts {
    elements: u64,
    numbers: u64,
}

/// A name. A surrogate alone is kept as its three bytes.
struct Name<'b>(Cow<'b, [u8]>);

/// Collects a value of JSON into another one.
struct Collector<T>(T);

impl<'de: 'b, 'b> Deserialize<'de> for Level<'b> {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Collector(Level(Vec::new())))
    }
}

impl<'de: 'b, 'b> Visitor<'de> for Collector<Level<'b>> {
    type Value = Level<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some((Name(name), value)) = map.next_entry()? {
            if self.0.0.len() == MAX_MEMBERS {
                return Err(de::Error::custom(format_args!("an object has more than {MAX_MEMBERS} members")));
            }
            self.0.0.push((name, value));
        }
        Ok(self.0)
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Elements<'b> {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Collector(Elements(SmallVec::new())))
    }
}

impl<'de: 'b, 'b> Visitor<'de> for Collector<Elements<'b>> {
    type Value = Elements<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Self::Value, A::Error> {
        while let Some(element) = elements.next_element()? {
            if self.0.0.len() <= MAX_USES {
                self.0.0.push(element);
            }
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Collector(Self::default()))
    }
}

impl<'de> Visitor<'de> for Collector<Prompts> {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Self::Value, A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            self.0.elements += 1;
            self.0.numbers += u64::from(is_number(element.get()));
        }
        Ok(self.0)
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Name<'b> {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_bytes<E>(self, name: &'de [u8]) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_bytes<E>(self, name: &[u8]) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_vec())))
            }
        }

        from.deserialize_bytes(NameVisitor)
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}
