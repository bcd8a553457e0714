//! Why a scalar is invalid.

use std::borrow::Cow;

/// Why a scalar is invalid. The reason is the end of a sentence that begins with the scalar: `is not a duration`.
///
/// Reason and expected form never contain the scalar, which may be a secret; only the suggestion may.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Invalid {
    pub(in crate::config) reason: Cow<'static, str>,
    expected: Option<Cow<'static, str>>,
    suggestion: Option<String>,
}

impl Invalid {
    pub(in crate::config) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), expected: None, suggestion: None }
    }

    /// Adds the expected form.
    pub(in crate::config) fn expected(self, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Adds a suggestion, which is made from the scalar itself. It is preferred to the expected form, unless the scalar is
    /// a secret.
    pub(in crate::config) fn suggestion(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }

    /// The help to show. `secret`: whether the scalar must not be shown.
    pub(in crate::config) fn help(self, secret: bool) -> Option<String> {
        self.suggestion.filter(|_| !secret).or(self.expected.map(Cow::into_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_not_made_of_a_secret() {
        let invalid = || Invalid::new("is wrong").expected("like this").suggestion("hunter2s");
        assert_eq!(invalid().help(false).as_deref(), Some("hunter2s"));
        assert_eq!(invalid().help(true).as_deref(), Some("like this"));
    }
}
