//! Why a word is not what it should be.

use std::borrow::Cow;

/// What is wrong with a word, as the end of a sentence that begins with it: `is not a duration`.
/// It never holds the word, which may be a secret; only a guess may.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Invalid {
    pub(in crate::config) what: Cow<'static, str>,
    form: Option<Cow<'static, str>>,
    guess: Option<String>,
}

impl Invalid {
    pub(in crate::config) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), form: None, guess: None }
    }

    /// With the form that is right.
    pub(in crate::config) fn form(self, form: impl Into<Cow<'static, str>>) -> Self {
        Self { form: Some(form.into()), ..self }
    }

    /// With a help that is made of the word itself. It is shown before the form, if at all.
    pub(in crate::config) fn guess(self, guess: impl Into<String>) -> Self {
        Self { guess: Some(guess.into()), ..self }
    }

    /// The help to show; `secret` if the word may not be.
    pub(in crate::config) fn help(self, secret: bool) -> Option<String> {
        self.guess.filter(|_| !secret).or(self.form.map(Cow::into_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_not_made_of_a_secret() {
        let invalid = || Invalid::new("is wrong").form("like this").guess("hunter2s");
        assert_eq!(invalid().help(false).as_deref(), Some("hunter2s"));
        assert_eq!(invalid().help(true).as_deref(), Some("like this"));
    }
}
