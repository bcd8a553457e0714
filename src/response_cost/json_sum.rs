//! The cost of a response: a sum of numbers in its JSON.

use crate::json_path::{JsonPath, PathTree};

/// The greatest number that counts.
pub const MAX_NUMBER: u64 = 1_000_000_000;

/// Most paths of a sum.
const MAX_PATHS: usize = 64;

/// A number of a JSON text, and the factor by which it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber {
    /// Its alternative paths. The last number at any of them counts.
    pub paths: Vec<JsonPath>,
    pub times: u64,
    /// Whether the elements of an array are one stream, whose numbers are totals so far, and not each a response.
    pub is_total: bool,
}

/// A sum of numbers of one JSON text, or of a stream of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonSum {
    numbers: Vec<JsonNumber>,
    /// The paths of all. At their ends are indexes of numbers.
    pub(super) paths: PathTree,
    /// The paths of the texts that a response consists of, through objects and arrays.
    text_paths: Vec<JsonPath>,
    pub(super) texts: PathTree,
}

/// Texts of OpenAI's responses: of chat completions, completions, and the Responses API, whose streams repeat their texts at
/// the end beside the usage.
const OPENAI_TEXTS: [&str; 22] = [
    "choices.delta.content",
    "choices.delta.reasoning",
    "choices.delta.reasoning_content",
    "choices.delta.refusal",
    "choices.delta.tool_calls.function",
    "choices.delta.function_call",
    "choices.message.content",
    "choices.message.reasoning",
    "choices.message.reasoning_content",
    "choices.message.refusal",
    "choices.message.tool_calls.function",
    "choices.message.function_call",
    "choices.delta.audio.transcript",
    "choices.message.audio.transcript",
    "choices.text",
    "delta",
    "output.content.text",
    "output.content.refusal",
    "output.summary.text",
    "output.arguments",
    "output.input",
    "output.code",
];
const ANTHROPIC_TEXTS: [&str; 7] = [
    "delta.text",
    "delta.thinking",
    "delta.partial_json",
    "content_block.text",
    "content.text",
    "content.thinking",
    "content.input",
];
const GEMINI_TEXTS: [&str; 3] = [
    "candidates.content.parts.text",
    "candidates.content.parts.functionCall",
    "candidates.content.parts.executableCode",
];

impl JsonSum {
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
        Self::preset(&[&["usage.total_tokens", "response.usage.total_tokens"]], &OPENAI_TEXTS)
    }

    /// Anthropic: all tokens, those of its cache too. A stream begins with `message.usage`, and its later events have
    /// `usage`, whose numbers are totals so far.
    pub fn anthropic() -> Self {
        let numbers: [&[&str]; 4] = [
            &["usage.input_tokens", "message.usage.input_tokens"],
            &["usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"],
            &["usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"],
            &["usage.output_tokens", "message.usage.output_tokens"],
        ];
        Self::preset(&numbers, &ANTHROPIC_TEXTS)
    }

    /// Gemini: all tokens. In a stream, which may be an array, the numbers are totals so far.
    pub fn gemini() -> Self {
        let mut sum = Self::preset(&[&["usageMetadata.totalTokenCount"]], &GEMINI_TEXTS);
        sum.numbers.iter_mut().for_each(|number| number.is_total = true);
        sum
    }

    fn preset(numbers: &[&[&'static str]], texts: &[&'static str]) -> Self {
        let known =
            |paths: &[&'static str]| paths.iter().map(|path| JsonPath::known(path)).collect::<Vec<_>>();
        let number = |paths: &&[&'static str]| JsonNumber { paths: known(paths), times: 1, is_total: false };
        Self::build(numbers.iter().map(number).collect()).with_texts(known(texts))
    }

    /// The same sum, which also finds the texts at these paths.
    #[must_use]
    pub fn with_texts(mut self, paths: Vec<JsonPath>) -> Self {
        paths.iter().for_each(|path| self.texts.add(path, 0));
        Self { text_paths: paths, ..self }
    }

    /// The paths of the texts that a response consists of.
    pub fn text_paths(&self) -> &[JsonPath] {
        &self.text_paths
    }

    fn build(numbers: Vec<JsonNumber>) -> Self {
        let mut tree = PathTree::default();
        for (index, number) in numbers.iter().enumerate() {
            number.paths.iter().for_each(|path| tree.add(path, index));
        }
        Self { numbers, paths: tree, text_paths: Vec::new(), texts: PathTree::default() }
    }

    pub fn numbers(&self) -> &[JsonNumber] {
        &self.numbers
    }

    /// Adds up the numbers that were found. One that is unusable makes the sum unusable.
    pub(super) fn total(&self, found: &[FoundNumber]) -> FoundNumber {
        let found = self.numbers.iter().zip(found).map(|(number, found)| found.times(number.times));
        found.fold(FoundNumber::Nothing, FoundNumber::plus)
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
    /// The sum of two results. One that is unusable makes it unusable.
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unusable, _) | (_, Self::Unusable) => Self::Unusable,
            (Self::Nothing, found) | (found, Self::Nothing) => found,
            (Self::Number(one), Self::Number(other)) => Self::Number(one.saturating_add(other)),
        }
    }

    fn times(self, factor: u64) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.saturating_mul(factor)),
            other => other,
        }
    }

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
