//! The numbers of a request that bound what its response can cost.

use std::sync::LazyLock;

use super::{BodyRefusal, members::Members};
use crate::json_path::JsonPath;

/// The bounds of the output that providers of language models know.
const OF_PROVIDERS: [&str; 4] =
    ["max_completion_tokens", "max_tokens", "max_output_tokens", "generationConfig.maxOutputTokens"];
/// How many responses a request asks for, by the names of OpenAI and Gemini.
static RESPONSES: LazyLock<Vec<JsonPath>> = LazyLock::new(|| {
    spelled(["n", "best_of", "candidateCount", "generationConfig.candidateCount"].map(JsonPath::known))
});
/// A list of prompts has responses for each of them.
static PROMPT: LazyLock<JsonPath> = LazyLock::new(|| JsonPath::known("prompt"));
/// A request of OpenAI's Responses API with it gets a response without usage, whose tokens come later.
static BACKGROUND: LazyLock<JsonPath> = LazyLock::new(|| JsonPath::known("background"));

/// The path of the member that [`is_in_background`] reads.
pub fn background_path() -> &'static JsonPath {
    &BACKGROUND
}

/// Whether the response to a request comes later, and does not tell its tokens.
pub fn is_in_background(members: &Members<'_, '_>) -> bool {
    members.written(&BACKGROUND) == Some("true")
}

/// Numbers of a request that bound the output of its response, for example `max_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputBounds(Vec<JsonPath>);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedOutput {
    /// The greatest of the bounds, since the upstream may obey any of them. `None`: it has no number, or a negative one.
    pub bound: Option<u64>,
    /// How many responses it gets; at least one.
    pub responses: u64,
    /// Whether the bound holds: to some servers, 0 and negative numbers are no bound.
    pub is_bounded: bool,
}

impl OutputBounds {
    /// The numbers at `paths`, and those of all providers, if one of them responds: it may obey another than the one that is
    /// named. Gemini takes each name in either form, so one of `maxOutputTokens` is also looked for at `max_output_tokens`.
    pub fn new(paths: &[JsonPath], is_of_provider: bool) -> Self {
        let of_providers = OF_PROVIDERS.map(JsonPath::known).into_iter().filter(|_| is_of_provider);
        Self(spelled(paths.iter().cloned().chain(of_providers)))
    }

    /// The paths of all members that [`OutputBounds::asked`] reads.
    pub fn paths(&self) -> impl Iterator<Item = &JsonPath> {
        self.0.iter().chain(&*RESPONSES).chain([&*PROMPT])
    }

    /// What a request with these members asks for.
    ///
    /// # Errors
    /// A member is no whole number.
    pub fn asked(&self, members: &Members<'_, '_>) -> Result<AskedOutput, BodyRefusal> {
        let mut asked = AskedOutput { bound: None, responses: 1, is_bounded: true };
        for path in &self.0 {
            let Some(member) = members.get(path) else { continue };
            let number = member.whole_number(path)?;
            asked.bound = asked.bound.max(number);
            asked.is_bounded &= number.is_some_and(|number| number > 0);
        }
        asked.is_bounded &= asked.bound.is_some();
        for path in &*RESPONSES {
            if let Some(member) = members.get(path) {
                asked.responses = asked.responses.max(member.whole_number(path)?.unwrap_or(1));
            }
        }
        let prompts = members.get(&PROMPT).map_or(Ok(1), |prompt| prompt.prompts())?.max(1);
        Ok(AskedOutput { responses: asked.responses.saturating_mul(prompts), ..asked })
    }
}

/// Each path once, in all its spellings.
fn spelled(paths: impl IntoIterator<Item = JsonPath>) -> Vec<JsonPath> {
    let mut all: Vec<JsonPath> = Vec::new();
    for path in paths.into_iter().flat_map(|path| path.spellings()) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}
