//! The cost of a response: a sum of numbers in its JSON.

use std::fmt;

/// The greatest number that counts.
pub const MAX_NUMBER: u64 = 1_000_000_000;

/// Bounds of a path: names, and bytes with the dots.
const MAX_NAMES: usize = 32;
const MAX_PATH_BYTES: usize = 256;
/// Most paths of a sum.
const MAX_PATHS: usize = 64;

/// The place of a value in a JSON text: the names of nested objects, joined by dots, as in `usage.total_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Box<str>);

impl JsonPath {
    /// Parses names joined by dots: at most 32 names, and at most 256 bytes.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_PATH_BYTES {
            return Err("a path has at most 256 bytes");
        }
        if text.split('.').count() > MAX_NAMES {
            return Err("a path has at most 32 names");
        }
        if text.split('.').any(str::is_empty) {
            return Err("a path is names joined by dots, for example usage.total_tokens");
        }
        Ok(Self(text.into()))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number of a JSON text, and the factor by which it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber {
    /// Its alternative paths. The last number at any of them counts.
    pub paths: Vec<JsonPath>,
    pub times: u64,
}

/// A sum of numbers of one JSON text, or of a stream of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonSum {
    numbers: Vec<JsonNumber>,
    /// The tree of all paths. The first node is the root.
    nodes: Vec<PathNode>,
    /// The most bytes that JSON may take to write a name of a path.
    longest_name: usize,
}

/// A name on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PathNode {
    children: Vec<(Box<[u8]>, usize)>,
    /// The indexes of the numbers whose paths end here.
    numbers: Vec<usize>,
}

impl JsonSum {
    pub(super) const ROOT: usize = 0;

    /// Sums up `numbers`, which have at most 64 paths together.
    pub fn new(numbers: Vec<JsonNumber>) -> Result<Self, &'static str> {
        if numbers.iter().any(|number| number.paths.is_empty()) {
            return Err("a number needs a path");
        }
        if numbers.iter().map(|number| number.paths.len()).sum::<usize>() > MAX_PATHS {
            return Err("the numbers of a sum have at most 64 paths together");
        }
        Ok(Self::build(numbers))
    }

    /// OpenAI: all tokens, of a chat completion or of the Responses API, whose stream has them in its last event.
    pub fn openai() -> Self {
        Self::preset(&[&["usage.total_tokens", "response.usage.total_tokens"]])
    }

    /// Anthropic: all tokens, those of its cache too. A stream begins with `message.usage`, and its later events have
    /// `usage`, whose numbers are totals so far.
    pub fn anthropic() -> Self {
        Self::preset(&[
            &["usage.input_tokens", "message.usage.input_tokens"],
            &["usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"],
            &["usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"],
            &["usage.output_tokens", "message.usage.output_tokens"],
        ])
    }

    /// Gemini: all tokens. In a stream, the numbers are totals so far.
    pub fn gemini() -> Self {
        Self::preset(&[&["usageMetadata.totalTokenCount"]])
    }

    fn preset(numbers: &[&[&str]]) -> Self {
        let paths = |paths: &&[&str]| paths.iter().map(|path| JsonPath((*path).into())).collect();
        Self::build(numbers.iter().map(|number| JsonNumber { paths: paths(number), times: 1 }).collect())
    }

    fn build(numbers: Vec<JsonNumber>) -> Self {
        let mut sum = Self { numbers: Vec::new(), nodes: vec![PathNode::default()], longest_name: 0 };
        for (index, number) in numbers.iter().enumerate() {
            for path in &number.paths {
                let end = path.names().fold(Self::ROOT, |node, name| sum.child_or_new(node, name));
                sum.nodes[end].numbers.push(index);
            }
        }
        Self { numbers, ..sum }
    }

    fn child_or_new(&mut self, node: usize, name: &str) -> usize {
        if let Some(child) = self.child(node, name.as_bytes()) {
            return child;
        }
        let child = self.nodes.len();
        self.nodes.push(PathNode::default());
        self.nodes[node].children.push((name.as_bytes().into(), child));
        // At most `\uXXXX` for each byte.
        self.longest_name = self.longest_name.max(6 * name.len());
        child
    }

    pub fn numbers(&self) -> &[JsonNumber] {
        &self.numbers
    }

    /// The node below `node` that is called `name`.
    pub(super) fn child(&self, node: usize, name: &[u8]) -> Option<usize> {
        let children = &self.nodes[node].children;
        children.iter().find(|(known, _)| **known == *name).map(|(_, child)| *child)
    }

    /// Whether a path goes on below `node`.
    pub(super) fn has_children(&self, node: usize) -> bool {
        !self.nodes[node].children.is_empty()
    }

    /// The indexes of the numbers whose paths end at `node`.
    pub(super) fn numbers_at(&self, node: usize) -> &[usize] {
        &self.nodes[node].numbers
    }

    /// The most bytes that JSON may take to write a name of a path.
    pub(super) fn longest_name(&self) -> usize {
        self.longest_name
    }

    /// Adds up the numbers that were found. One that is unusable makes the sum unusable.
    pub(super) fn total(&self, found: &[FoundNumber]) -> FoundNumber {
        let mut total = FoundNumber::Nothing;
        for (number, found) in self.numbers.iter().zip(found) {
            total = match (total, found) {
                (_, FoundNumber::Unusable) => return FoundNumber::Unusable,
                (total, FoundNumber::Nothing) => total,
                (total, FoundNumber::Number(found)) => {
                    let sum = total.number().unwrap_or(0);
                    FoundNumber::Number(sum.saturating_add(found.saturating_mul(number.times)))
                }
            };
        }
        total
    }
}

/// The result of the search for a number, or for the cost of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoundNumber {
    /// No number. `null` is none, and a string neither.
    #[default]
    Nothing,
    Number(u64),
    /// A number that is negative, not whole, or above [`MAX_NUMBER`]; or a body that cannot be decoded.
    Unusable,
}

impl FoundNumber {
    /// Parses a number of JSON.
    pub(super) fn parse(text: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(text) else { return Self::Unusable };
        let whole = text.parse::<u64>().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            // Up to 2^53, each whole number is exact.
            (number.fract() == 0.0 && (0.0..=MAX_NUMBER as f64).contains(&number)).then_some(number as u64)
        });
        whole.filter(|number| *number <= MAX_NUMBER).map_or(Self::Unusable, Self::Number)
    }

    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Nothing | Self::Unusable => None,
        }
    }
}
