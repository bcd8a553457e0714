//! The number of a request that bounds what its response can cost.

use std::sync::Arc;

use super::{
    json_scanner::JsonScanner,
    json_sum::{FoundNumber, JsonNumber, JsonPath, JsonSum},
};

/// The number of alternative responses that a request asks for: OpenAI's `n`, Gemini's `candidateCount`.
const COUNTS: [&str; 2] = ["n", "generationConfig.candidateCount"];

/// The most output tokens that a request asks for: the number at the first of several paths that it has, times the
/// number of alternative responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestNumber {
    /// A number for each path, and then one for the counts.
    numbers: Arc<JsonSum>,
}

impl RequestNumber {
    /// `paths`, for example `max_completion_tokens` and `max_tokens`, in the order of preference. At most 62.
    pub fn new(paths: Vec<JsonPath>) -> Result<Self, &'static str> {
        let counts = COUNTS.iter().map(|path| JsonPath::parse(path)).collect::<Result<Vec<_>, _>>()?;
        let numbers = paths.into_iter().map(|path| vec![path]).chain([counts]);
        let numbers = JsonSum::new(numbers.map(|paths| JsonNumber { paths, times: 1 }).collect())?;
        Ok(Self { numbers: Arc::new(numbers) })
    }

    /// The number of the request with this body. `None`: it has none, or one that is not a number from 0 to
    /// [`MAX_NUMBER`](super::MAX_NUMBER).
    pub fn read(&self, body: &[u8]) -> Option<u64> {
        self.choose(body, |numbers| numbers.iter().find(|found| **found != FoundNumber::Nothing)?.number())
    }

    /// The greatest of all numbers that the request has at these paths. `None`: it has none.
    pub fn greatest(&self, body: &[u8]) -> Option<u64> {
        self.choose(body, |numbers| numbers.iter().filter_map(|found| found.number()).max())
    }

    /// The chosen number, times the responses that the request asks for.
    fn choose(&self, body: &[u8], choose: impl FnOnce(&[FoundNumber]) -> Option<u64>) -> Option<u64> {
        let mut json = JsonScanner::new(self.numbers.clone());
        json.read(body);
        let (count, numbers) = json.found().split_last()?;
        let number = choose(numbers)?;
        match count {
            FoundNumber::Nothing => Some(number),
            FoundNumber::Number(count) => Some(number.saturating_mul((*count).max(1))),
            FoundNumber::Unusable => None,
        }
    }
}
