//! Shared by all cursors of one tree: the sources of `${…}`, and the errors and warnings found so far.

use std::{cell::RefCell, collections::BTreeSet};

use crate::config::{Location, Lookup, Problem, redact::Secrets};

/// What a configuration is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To find what is wrong with it, or soon will be.
    Check,
    /// To begin to serve. A certificate that has expired, or is not valid yet, is no error: to serve nobody because of one
    /// of several would be worse, when a machine restarts at night.
    Start,
    /// To replace the one in force, which stays if anything is wrong.
    Reload,
}

/// What reading one configuration needs and collects: the lookup for `${…}`, its purpose, its secrets, and what is found.
pub(in crate::config) struct ReadContext<'a> {
    pub(super) lookup: &'a dyn Lookup,
    pub(super) purpose: Purpose,
    pub(super) secrets: &'a Secrets,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) warnings: RefCell<Vec<Problem>>,
    pub(super) inserted: RefCell<BTreeSet<Location>>,
}

/// What was found in a configuration.
pub(in crate::config) struct Findings {
    pub(in crate::config) problems: Vec<Problem>,
    pub(in crate::config) warnings: Vec<Problem>,
    /// The scalars of which a part came from the environment or from a file.
    pub(in crate::config) inserted: BTreeSet<Location>,
}

impl<'a> ReadContext<'a> {
    pub(in crate::config) fn new(lookup: &'a dyn Lookup, purpose: Purpose, secrets: &'a Secrets) -> Self {
        let (problems, warnings, inserted) = Default::default();
        Self { lookup, purpose, secrets, problems, warnings, inserted }
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
        }
    }
}
