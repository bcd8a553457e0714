//! The context that all cursors of one tree share.

use std::{cell::RefCell, collections::BTreeSet};

use crate::config::{FileLocation, Lookup, Problem, redact::Secrets};

/// The reason to read a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To find its errors, and problems that lie ahead.
    Check,
    /// To start serving. A certificate that has expired, or is not valid yet, is not an error: when a machine restarts
    /// at night, it should not serve nobody because of one certificate of several.
    Start,
    /// To replace the configuration in force. Any error keeps the old one.
    Reload,
}

/// The inputs of reading one configuration, and the errors and warnings found so far.
pub(in crate::config) struct ReadContext<'a> {
    pub(super) lookup: &'a dyn Lookup,
    pub(super) purpose: Purpose,
    pub(super) secrets: &'a Secrets,
    /// Rewrites a value of other software. The first argument is its mark in `foreign_names.txt`.
    pub(super) rewrite_foreign: fn(&str, &str) -> String,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) warnings: RefCell<Vec<Problem>>,
    pub(super) inserted: RefCell<BTreeSet<FileLocation>>,
    pub(super) secret_values: RefCell<Vec<String>>,
}

/// The results of reading a configuration, besides its values.
pub(in crate::config) struct Findings {
    pub(in crate::config) problems: Vec<Problem>,
    pub(in crate::config) warnings: Vec<Problem>,
    /// The scalars with text from the environment or from files.
    pub(in crate::config) inserted: BTreeSet<FileLocation>,
    /// The values of secret settings, interpolated.
    pub(in crate::config) secret_values: Vec<String>,
}

impl<'a> ReadContext<'a> {
    pub(in crate::config) fn new(
        lookup: &'a dyn Lookup,
        purpose: Purpose,
        secrets: &'a Secrets,
        rewrite_foreign: fn(&str, &str) -> String,
    ) -> Self {
        let (problems, warnings, inserted, secret_values) = Default::default();
        Self { lookup, purpose, secrets, rewrite_foreign, problems, warnings, inserted, secret_values }
    }

    /// Collects an error.
    pub(in crate::config) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(self.with_masked_keys(problem));
    }

    /// Collects a warning.
    pub(super) fn warn(&self, problem: Problem) {
        self.warnings.borrow_mut().push(self.with_masked_keys(problem));
    }

    fn with_masked_keys(&self, problem: Problem) -> Problem {
        let masked = |text| self.secrets.mask_keys(text);
        Problem { message: masked(problem.message), help: problem.help.map(masked), ..problem }
    }

    pub(in crate::config) fn into_findings(self) -> Findings {
        Findings {
            problems: self.problems.into_inner(),
            warnings: self.warnings.into_inner(),
            inserted: self.inserted.into_inner(),
            secret_values: self.secret_values.into_inner(),
        }
    }
}
