//! What a walk carries along: where `${…}` is looked up, and what was wrong so far.

use std::cell::RefCell;

use super::Cursor;
use crate::config::{Problem, Sources, yaml::Node};

/// One reading of one configuration.
pub(in crate::config) struct Reader<'a> {
    pub(super) sources: &'a dyn Sources,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl<'a> Reader<'a> {
    pub(in crate::config) fn new(sources: &'a dyn Sources) -> Self {
        Self { sources, problems: RefCell::default(), warnings: RefCell::default() }
    }

    /// Where a walk begins.
    pub(in crate::config) fn root<'t>(&'t self, root: &'t Node) -> Cursor<'t> {
        Cursor::new(root, self)
    }

    /// Notes an error; the walk goes on.
    pub(in crate::config) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Notes what is right and yet may not be what was meant.
    pub(super) fn warn(&self, problem: Problem) {
        self.warnings.borrow_mut().push(problem);
    }

    /// The errors, and the warnings.
    pub(in crate::config) fn into_problems(self) -> (Vec<Problem>, Vec<Problem>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}
