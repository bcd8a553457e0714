//! Why a scalar is invalid.

use std::borrow::Cow;

/// Why a scalar is invalid. The reason is the end of a sentence that begins with the scalar: `is not a duration`.
///
/// Reason and expected form never contain the scalar, which may be a secret; only the suggestion may.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Invalid {
    pub(in crate::config) reason: Cow<'static, str>,
    /// The reason to give if the scalar may be shown. It may quote a part of it.
    quoting: Option<String>,
    /// The beginning of a sentence that ends with the scalar: `no upstream is named`.
    unknown_name: Option<String>,
    expected: Option<Cow<'static, str>>,
    suggestion: Option<String>,
}

impl Invalid {
    pub(in crate::config) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), quoting: None, unknown_name: None, expected: None, suggestion: None }
    }

    /// Sets the reason to give if the scalar may be shown. It may quote a part of it.
    pub(in crate::config) fn quoting(self, reason: String) -> Self {
        Self { quoting: Some(reason), ..self }
    }

    /// The scalar should be the name of a `kind`, such as `upstream`, but none has this name.
    pub(in crate::config) fn unknown_name(kind: &str) -> Self {
        Self {
            unknown_name: Some(format!("no {kind} is named")),
            ..Self::new(format!("does not name any {kind}"))
        }
    }

    /// The whole sentence about the scalar `written`, the text in the file.
    pub(in crate::config) fn about_written(&self, written: &str) -> String {
        match (&self.unknown_name, &self.quoting) {
            (Some(beginning), _) => format!("{beginning} `{written}`"),
            (None, Some(reason)) => format!("`{written}` {reason}"),
            (None, None) => self.about(&format!("`{written}`")),
        }
    }

    /// The whole sentence about a scalar that must not be shown. `stand_in`: a name for it.
    pub(in crate::config) fn about(&self, stand_in: &str) -> String {
        format!("{stand_in} {}", self.reason)
    }

    /// Adds the expected form.
    pub(in crate::config) fn expected(self, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Adds a suggestion, which is made from the scalar itself. It is preferred to the expected form, unless the scalar
    /// is a secret.
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
