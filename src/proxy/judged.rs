//! What the policies of a request said, for the access log and the trace.

use crate::telemetry::{access_log::Verdict, metrics::Source};

/// What is known so far. Nothing, where no policy had a say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Judged {
    verdict: Option<Verdict>,
    /// The index of the policy that held the request back.
    limited: Option<usize>,
    /// The index of the shadow policy that would have.
    shadow_limited: Option<usize>,
    source: Option<Source>,
}

impl Judged {
    /// A policy held it back.
    pub(super) fn deny(&mut self, policy: usize) {
        (self.verdict, self.limited) = (Some(Verdict::Denied), Some(policy));
    }

    /// A shadow policy would have.
    pub(super) fn deny_in_shadow(&mut self, policy: usize) {
        self.shadow_limited = Some(policy);
        if matches!(self.verdict, None | Some(Verdict::Allowed)) {
            self.verdict = Some(Verdict::ShadowDenied);
        }
    }

    /// All that were asked admitted it.
    pub(super) fn allow(&mut self) {
        self.verdict.get_or_insert(Verdict::Allowed);
    }

    /// The store could not be asked.
    pub(super) fn undecided(&mut self) {
        self.verdict = Some(Verdict::Undecided);
    }

    /// Notes where it was decided.
    pub(super) fn by(&mut self, source: Source) {
        self.source = Some(source);
    }

    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// The index of the policy that the verdict comes from.
    pub(super) fn policy(&self) -> Option<usize> {
        self.limited.or(self.shadow_limited)
    }

    pub(super) fn shadow_policy(&self) -> Option<usize> {
        self.shadow_limited
    }

    pub(super) fn source(&self) -> Option<Source> {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_back_says_more_than_what_would_have() {
        let mut judged = Judged::default();
        assert_eq!((judged.verdict(), judged.policy()), (None, None));
        judged.allow();
        assert_eq!(judged.verdict(), Some(Verdict::Allowed));
        judged.deny_in_shadow(1);
        assert_eq!((judged.verdict(), judged.policy()), (Some(Verdict::ShadowDenied), Some(1)));
        judged.allow();
        assert_eq!(judged.verdict(), Some(Verdict::ShadowDenied));
        judged.deny(0);
        judged.deny_in_shadow(2);
        assert_eq!((judged.verdict(), judged.policy()), (Some(Verdict::Denied), Some(0)));
        assert_eq!(judged.shadow_policy(), Some(2));
    }
}
