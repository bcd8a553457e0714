//! Why a word is not what it should be.

use std::borrow::Cow;

/// What is wrong with a word, as the end of a sentence that begins with it: `is not a duration`.
/// It never holds the word, which may be a secret; only a guess may.
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

    /// With the form that is right.
    pub(in crate::config) fn expected(self, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// With a help that is made of the word itself. It is shown before the form, if at all.
    pub(in crate::config) fn suggestion(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }

    /// The help to show; `secret` if the word may not be.
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
