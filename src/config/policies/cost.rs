//! `cost`: the settings of the units that a request takes, and the cost that they become.

use std::sync::Arc;

use http::HeaderName;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tollgate_derive::{Settings, Word};

use crate::{
    config::{reader::Cursor, value::MAX_LIMIT, written::serialize},
    json_path::JsonPath,
    request_values::{OutputBounds, background_path, usage_paths},
    response_cost::{JsonNumber, JsonSum},
};

/// The units that a request takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cost {
    /// At least 1.
    Fixed(u64),
    /// The value of a trusted proxy's header, at least 1 and at most `max`; without it `default`.
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        default: u64,
        max: u64,
    },
    /// What the response says. Until then, units are reserved.
    #[serde(serialize_with = "response")]
    Response(Arc<ResponseCost>),
}

impl Cost {
    /// The most units that a request takes for certain: a reservation is never more than a limit.
    pub fn max(&self) -> u64 {
        match self {
            Self::Fixed(units) => *units,
            Self::Header { max, .. } => *max,
            Self::Response(_) => 1,
        }
    }

    /// The part that waits for the response.
    pub fn of_response(&self) -> Option<&Arc<ResponseCost>> {
        match self {
            Self::Response(cost) => Some(cost),
            Self::Fixed(_) | Self::Header { .. } => None,
        }
    }
}

fn response<S: Serializer>(cost: &ResponseCost, to: S) -> Result<S::Ok, S::Error> {
    cost.serialize(to)
}

/// A cost that the response tells.
#[derive(Debug, PartialEq, Serialize)]
pub struct ResponseCost {
    #[serde(rename = "response")]
    pub measure: Measure,
    /// The part of the sum that its body has; `None`: its bytes are the cost, or its header and trailers have it.
    #[serde(skip)]
    pub body: Option<Arc<JsonSum>>,
    pub reserve: Reserve,
    /// The most units that a request may ask for.
    pub most: Option<u64>,
    pub missing: MissingCost,
    /// The longest request body that is read before the decision, in bytes.
    #[serde(serialize_with = "serialize::size")]
    pub max_request: usize,
}

impl ResponseCost {
    /// The part of `numbers` that the body has.
    ///
    /// # Errors
    /// They have too many paths.
    pub(in crate::config) fn in_body(measure: &Measure) -> Result<Option<Arc<JsonSum>>, &'static str> {
        let Measure::Sum(numbers) = measure else { return Ok(None) };
        let (mut in_json, mut texts) = (Vec::new(), Vec::new());
        for ResponseNumber { source, times } in numbers {
            let found = match source {
                NumberSource::Preset { preset, .. } => {
                    let sum = preset.sum();
                    texts.extend_from_slice(sum.text_paths());
                    sum.numbers().to_vec()
                }
                NumberSource::Json(path) => {
                    vec![JsonNumber { paths: vec![path.clone()], times: 1, is_total: false }]
                }
                NumberSource::Header(_) | NumberSource::Trailer(_) => Vec::new(),
            };
            in_json
                .extend(found.into_iter().map(|number| JsonNumber { times: number.times * times, ..number }));
        }
        if in_json.is_empty() {
            return Ok(None);
        }
        JsonSum::new(in_json).map(|sum| Some(Arc::new(sum.with_texts(texts))))
    }

    /// Whether the request's body is received before the decision.
    pub fn reads_request(&self) -> bool {
        self.reads_members() || self.reserve.prompt
    }

    /// Whether members of the request's body are read.
    pub fn reads_members(&self) -> bool {
        self.reserve.bounds.is_some() || self.asks()
    }

    /// The paths of these members.
    pub fn asked_paths(&self) -> impl Iterator<Item = &JsonPath> {
        let of_usage = if self.asks() { usage_paths() } else { &[] };
        let background = self.is_of_openai().then(background_path);
        self.reserve.bounds.iter().flat_map(OutputBounds::paths).chain(of_usage).chain(background)
    }

    /// Whether OpenAI's streams are asked for their usage.
    pub fn asks(&self) -> bool {
        self.numbers().iter().any(|number| matches!(number.source, NumberSource::Preset { ask: true, .. }))
    }

    /// Whether the units are tokens of a language model, of which about four bytes make one.
    pub fn counts_tokens(&self) -> bool {
        self.reserve.prompt || self.has_preset()
    }

    /// Whether OpenAI's tokens are counted.
    pub fn is_of_openai(&self) -> bool {
        let is_openai =
            |source: &NumberSource| matches!(source, NumberSource::Preset { preset: Preset::OpenAi, .. });
        self.numbers().iter().any(|number| is_openai(&number.source))
    }

    /// Whether a provider's tokens are counted.
    pub fn has_preset(&self) -> bool {
        self.numbers().iter().any(ResponseNumber::is_of_preset)
    }

    /// Whether the header of the response tells the whole cost.
    pub fn is_told_by_header(&self) -> bool {
        let numbers = self.numbers();
        !numbers.is_empty() && numbers.iter().all(|number| matches!(number.source, NumberSource::Header(_)))
    }

    /// The numbers of the response whose sum is the cost. Empty: its bytes are.
    pub fn numbers(&self) -> &[ResponseNumber] {
        match &self.measure {
            Measure::Bytes => &[],
            Measure::Sum(numbers) => numbers,
        }
    }
}

/// The default of `max_request`. Values are read from bodies up to this length, too.
pub const DEFAULT_MAX_REQUEST: usize = 16 << 20;

/// What of a response is its cost.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The bytes of its body.
    Bytes,
    /// Never empty.
    #[serde(untagged)]
    Sum(Vec<ResponseNumber>),
}

/// A number in a response, and by what it is multiplied.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ResponseNumber {
    #[serde(flatten)]
    pub source: NumberSource,
    pub times: u64,
}

impl ResponseNumber {
    pub fn is_of_preset(&self) -> bool {
        matches!(self.source, NumberSource::Preset { .. })
    }
}

/// Where a response has a number.
#[derive(Debug, PartialEq, Eq)]
pub enum NumberSource {
    /// Where this provider puts the tokens. `ask`: streams are asked for it.
    Preset {
        preset: Preset,
        ask: bool,
    },
    /// The names to follow from the root of its JSON, with dots between them.
    Json(JsonPath),
    Header(HeaderName),
    Trailer(HeaderName),
}

impl Serialize for NumberSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Preset { preset, ask } => {
                map.serialize_entry("preset", preset)?;
                map.serialize_entry("ask", ask)?;
            }
            Self::Json(path) => map.serialize_entry("json", &path.to_string())?,
            Self::Header(name) => map.serialize_entry("header", name.as_str())?,
            Self::Trailer(name) => map.serialize_entry("trailer", name.as_str())?,
        }
        map.end()
    }
}

/// A provider of language models, by the form of its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Preset {
    #[word("openai")]
    OpenAi,
    Anthropic,
    Gemini,
}

impl Preset {
    /// The tokens of its responses.
    fn sum(self) -> JsonSum {
        match self {
            Self::OpenAi => JsonSum::openai(),
            Self::Anthropic => JsonSum::anthropic(),
            Self::Gemini => JsonSum::gemini(),
        }
    }
}

/// What is taken until the response tells the cost.
#[derive(Debug, PartialEq, Serialize)]
pub struct Reserve {
    /// Paths in the request's JSON: the greatest number at any of them counts.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub json: Vec<JsonPath>,
    /// The numbers at these paths.
    #[serde(skip)]
    pub bounds: Option<OutputBounds>,
    /// Without such a number.
    pub default: u64,
    pub max: u64,
    /// Whether a quarter of the request's bytes is added.
    #[serde(serialize_with = "prompt")]
    pub prompt: bool,
}

impl Reserve {
    /// The units of a request of which nothing is known: `max`, or without one `default`.
    pub fn of_unknown(&self) -> u64 {
        if self.max < MAX_LIMIT { self.max } else { self.default }
    }
}

fn prompt<S: Serializer>(is_estimated: &bool, to: S) -> Result<S::Ok, S::Error> {
    if *is_estimated { to.serialize_str("estimate") } else { to.serialize_none() }
}

/// The cost of a response without a number.
#[derive(Debug, PartialEq, Eq)]
pub enum MissingCost {
    /// What was reserved.
    Reserved,
    Units(u64),
}

impl Serialize for MissingCost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Reserved => to.serialize_str("reserved"),
            Self::Units(units) => to.serialize_u64(*units),
        }
    }
}

/// A cost that a header of a trusted proxy tells, or the response.
#[derive(Settings)]
#[settings(written, page = "policies.md#let-some-requests-cost-more", sample = "header: x-cost, max: 100")]
#[settings(rules(
    One(&["header", "response"]),
    With("max", "header"),
    With("header", "max"),
    With("default", "header"),
    With("response", "reserve"),
    With("reserve", "response"),
    With("missing", "response"),
    With("most", "response"),
    With("max_request", "response")
))]
pub(in crate::config) struct CostSettings<'t> {
    /// The header in which trusted proxies send the cost.
    #[setting(text = FIELD, example = "x-cost", beside = "max: 100", see = ["trusted_proxies"])]
    pub(in crate::config) header: Option<Cursor<'t>>,
    /// The cost of a request without the header.
    #[setting(count = "1..=1000000000", default = "1", example = "2", beside = "header: x-cost, max: 100")]
    pub(in crate::config) default: Option<Cursor<'t>>,
    /// The highest cost. A higher value in the header counts as `max`.
    #[setting(count = "1..=1000000000", unset = "required with `header`", example = "100")]
    #[setting(beside = "header: x-cost")]
    pub(in crate::config) max: Option<Cursor<'t>>,
    /// What of the response is the cost: the tokens of `openai`, `anthropic` or `gemini`, the `bytes` of its body, or
    /// numbers in its JSON, headers or trailers. Those of a list are added up.
    #[setting(either(
        word("openai", "anthropic", "gemini", "bytes"),
        mapping(ResponseNumberSettings),
        list(mapping(ResponseNumberSettings), Some)
    ))]
    #[setting(example = "openai", beside = "reserve: 1000")]
    pub(in crate::config) response: Option<Cursor<'t>>,
    /// The units that a request takes until its response has ended. Then the difference to its cost is refunded, or
    /// charged. For `bytes`, a size.
    #[setting(either(count = "1..=1000000000", text = SIZE, mapping(ReserveSettings)))]
    #[setting(unset = "required with `response`", example = "1000", beside = "response: openai")]
    pub(in crate::config) reserve: Option<Cursor<'t>>,
    /// What a response costs that does not say it. One with a status from 400 on costs nothing then.
    #[setting(either(word("reserved"), count = "0..=1000000000"), default = "reserved", example = "0")]
    #[setting(beside = "response: openai, reserve: 1000")]
    pub(in crate::config) missing: Option<Cursor<'t>>,
    /// The most units that a request may ask for by `reserve`. One that asks for more gets 400: it would never be worth
    /// another try.
    #[setting(count = "1..=1000000000", unset = "a request may ask for any number", example = "8000")]
    #[setting(beside = "response: openai, reserve: { json: max_tokens, default: 1000 }")]
    pub(in crate::config) most: Option<Cursor<'t>>,
    /// The longest request body that is read before the decision, for `reserve.json` and `ask`. A longer one gets 413.
    #[setting(size = "1KiB..=64MiB", default = "16MiB", example = "4MiB", see = ["body_memory"])]
    #[setting(beside = "response: openai, reserve: 1000")]
    pub(in crate::config) max_request: Option<Cursor<'t>>,
}

/// A number in a response.
#[derive(Settings)]
#[settings(
    written,
    page = "policies.md#let-the-response-tell-the-cost",
    sample = "json: usage.total_tokens",
    rules(
        One(&["preset", "json", "header", "trailer"]),
        With("ask", "preset"),
        NotWhere("ask", "preset", &["anthropic", "gemini"])
    )
)]
pub(in crate::config) struct ResponseNumberSettings<'t> {
    /// The provider whose tokens are counted.
    #[setting(word("openai", "anthropic", "gemini"), example = "openai")]
    pub(in crate::config) preset: Option<Cursor<'t>>,
    /// The names that lead to a number in the JSON, with dots between them. In a stream, the last number counts.
    #[setting(text = JSON_PATH, example = "usage.total_tokens")]
    pub(in crate::config) json: Option<Cursor<'t>>,
    /// A header of the response that holds a number.
    #[setting(text = FIELD, example = "x-cost")]
    pub(in crate::config) header: Option<Cursor<'t>>,
    /// A trailer of the response that holds a number.
    #[setting(text = FIELD, example = "x-cost")]
    pub(in crate::config) trailer: Option<Cursor<'t>>,
    /// By what the number is multiplied.
    #[setting(count = "1..=1000000", default = "1", example = "4", beside = "json: usage.output_tokens")]
    pub(in crate::config) times: u64,
    /// Whether streams of chat completions are asked for their usage, which they leave out otherwise. The event with the
    /// usage is taken out again for clients that had not asked.
    #[setting(default = "false", example = "true", beside = "preset: openai")]
    pub(in crate::config) ask: bool,
}

/// What a request takes until its response has ended.
#[derive(Settings)]
#[settings(
    written,
    page = "policies.md#let-the-response-tell-the-cost",
    sample = "json: max_tokens, default: 1000"
)]
pub(in crate::config) struct ReserveSettings<'t> {
    /// Names that lead to the number in the request's JSON. Of several, the greatest counts. It is multiplied by `n`,
    /// `best_of` or `candidateCount`, the number of answers, and by the length of a `prompt` that is a list.
    #[setting(either(text = JSON_PATH, list(text = JSON_PATH, SomeUnique)), unset = "`default` alone")]
    #[setting(example = "[max_completion_tokens, max_tokens]", beside = "default: 1000")]
    pub(in crate::config) json: Option<Cursor<'t>>,
    /// The units for a request without such a number.
    #[setting(count = "1..=1000000000", missing = RESERVE_DEFAULT, example = "1000")]
    pub(in crate::config) default: Option<u64>,
    /// The most units that a request reserves. It is never more than the smallest limit of the policy.
    #[setting(count = "1..=1000000000", default = "1000000000", example = "32000", beside = "default: 1000")]
    pub(in crate::config) max: u64,
    /// `estimate` adds a quarter of the bytes in the request's body, as an estimate of the tokens of the prompt.
    #[setting(word("estimate"), unset = "only the tokens of the answer are reserved", example = "estimate")]
    #[setting(beside = "default: 1000")]
    pub(in crate::config) prompt: Option<Cursor<'t>>,
}

const RESERVE_DEFAULT: &str = "the units for a request without a number, such as `default: 1000`";

/// Whether `cost` is the bytes of responses, so that the limits are sizes.
pub(in crate::config) fn counts_bytes(cost: Option<Cursor<'_>>) -> bool {
    cost.and_then(|cost| cost.entry("response")).and_then(Cursor::scalar) == Some(BYTES)
}

pub(in crate::config) const BYTES: &str = "bytes";
