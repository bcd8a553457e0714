//! What became of a request, as far as policies had a say.

/// What the policies of a request said together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All admitted it.
    Allowed,
    /// One held it back.
    Denied,
    /// None held it back, but a shadow policy would have.
    ShadowDenied,
    /// The store could not be asked, and a policy says that then nobody passes.
    Undecided,
}

impl Verdict {
    /// The word for it: `shadow_denied`
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Undecided => "undecided",
        }
    }
}
