//! The verdict of limits and bans on one request, for the access log and the trace.

use crate::telemetry::{access_log::LogVerdict, metrics::SourceLabel};

/// The verdict so far: none if no policy applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestVerdict {
    verdict: Option<LogVerdict>,
    /// The index of the policy that denied the request. Ban rules' indexes follow the policies'.
    denied_by: Option<u32>,
    /// The index of the shadow policy that would have denied it.
    shadow_denied_by: Option<u32>,
    source: Option<SourceLabel>,
    /// Milliseconds.
    delay: u32,
    shadow_delay: u32,
}

impl RequestVerdict {
    /// A policy denied it.
    pub(super) fn deny(&mut self, policy: usize) {
        (self.verdict, self.denied_by) = (Some(LogVerdict::Denied), Some(policy as u32));
    }

    /// A ban denied it. `rule`: its index, after the policies'.
    pub(super) fn ban(&mut self, rule: usize) {
        (self.verdict, self.denied_by) = (Some(LogVerdict::Banned), Some(rule as u32));
    }

    /// `deny` or `allow` refuses its address. `setting`: its index, after the policies' and bans'.
    pub(super) fn forbid(&mut self, setting: usize) {
        (self.verdict, self.denied_by) = (Some(LogVerdict::Forbidden), Some(setting as u32));
    }

    /// It lacks a valid credential. `is_known`: it has one that is not valid any more, or not here.
    pub(super) fn reject_credential(&mut self, is_known: bool) {
        self.verdict = Some(if is_known { LogVerdict::Expired } else { LogVerdict::Unauthorized });
    }

    /// A shadow policy would have denied it.
    pub(super) fn deny_in_shadow(&mut self, policy: usize) {
        self.shadow_denied_by = Some(policy as u32);
        if matches!(self.verdict, None | Some(LogVerdict::Allowed)) {
            self.verdict = Some(LogVerdict::ShadowDenied);
        }
    }

    /// Its policies admitted it.
    pub(super) fn allow(&mut self) {
        self.verdict.get_or_insert(LogVerdict::Allowed);
    }

    /// It waits for its slot, for this number of microseconds.
    pub(super) fn delay(&mut self, delay: i64) {
        self.delay = millis(delay);
    }

    /// A shadow policy would delay it by this number of microseconds.
    pub(super) fn delay_in_shadow(&mut self, delay: i64) {
        self.shadow_delay = self.shadow_delay.max(millis(delay));
    }

    /// The store was not available.
    pub(super) fn set_undecided(&mut self) {
        self.verdict = Some(LogVerdict::Undecided);
    }

    /// Sets the source of the decision.
    pub(super) fn set_source(&mut self, source: SourceLabel) {
        self.source = Some(source);
    }

    pub(super) fn verdict(&self) -> Option<LogVerdict> {
        self.verdict
    }

    /// The index of the policy that determined the verdict.
    pub(super) fn policy(&self) -> Option<usize> {
        self.denied_by.or(self.shadow_denied_by).map(|policy| policy as usize)
    }

    pub(super) fn shadow_policy(&self) -> Option<usize> {
        self.shadow_denied_by.map(|policy| policy as usize)
    }

    /// How long it waited for its slot, in milliseconds.
    pub(super) fn delay_millis(&self) -> u32 {
        self.delay
    }

    pub(super) fn shadow_delay_millis(&self) -> u32 {
        self.shadow_delay
    }

    pub(super) fn source(&self) -> Option<SourceLabel> {
        self.source
    }
}

/// Microseconds as milliseconds, rounded up so that any delay is shown.
fn millis(micros: i64) -> u32 {
    u32::try_from(micros.max(0).unsigned_abs().div_ceil(1_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_overrides_a_shadow_denial() {
        let mut verdict = RequestVerdict::default();
        assert_eq!((verdict.verdict(), verdict.policy()), (None, None));
        verdict.allow();
        assert_eq!(verdict.verdict(), Some(LogVerdict::Allowed));
        verdict.deny_in_shadow(1);
        assert_eq!((verdict.verdict(), verdict.policy()), (Some(LogVerdict::ShadowDenied), Some(1)));
        verdict.allow();
        assert_eq!(verdict.verdict(), Some(LogVerdict::ShadowDenied));
        verdict.deny(0);
        verdict.deny_in_shadow(2);
        assert_eq!((verdict.verdict(), verdict.policy()), (Some(LogVerdict::Denied), Some(0)));
        assert_eq!(verdict.shadow_policy(), Some(2));
    }
}
