//! What files of vectors must say, and what they can't.

use super::data::{Case, Limits, Name, Source, Step, Vectors};

impl Vectors {
    /// # Errors
    /// What is not as it should be: a field that is unknown or missing, or a part that says nothing.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let vectors: Self = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        let Source { project, repository, version, commit, licence, files, taken } = &vectors.source;
        all_say_something([project, repository, version, commit, licence, taken].into_iter().chain(files))?;
        all_say_something(vectors.left_out.iter().flat_map(|left_out| [&left_out.what, &left_out.why]))?;
        if files.is_empty() || vectors.cases.is_empty() {
            return Err("no files or no cases".into());
        }
        vectors.cases.iter().try_for_each(Case::examine)?;
        Ok(vectors)
    }
}

impl Case {
    fn examine(&self) -> Result<(), String> {
        all_say_something([&self.name, &self.from, &self.maps])?;
        let faults = [
            (self.algorithms.is_empty() || self.policies.is_empty(), "no algorithms or no policies"),
            (self.policies.values().any(Limits::are_none), "a policy without limits"),
            (!self.all_fit(), "what the algorithm does not have"),
            (!self.steps.iter().any(|step| step.admitted.is_some()), "nothing is told"),
            (!self.steps.is_sorted_by_key(|step| step.at), "steps that are not in their order"),
            (self.steps.iter().any(|step| !self.knows(step)), "a check of an unknown policy"),
            (self.steps.iter().any(|step| self.says_too_much(step)), "more is told than can be compared"),
        ];
        match faults.iter().find(|(is_so, _)| *is_so) {
            Some((_, fault)) => Err(format!("{}: {fault}", self.name)),
            None => Ok(()),
        }
    }

    /// Whether each algorithm has what its policies and steps say.
    fn all_fit(&self) -> bool {
        let described = || self.policies.values().chain(self.steps.iter().map(|step| &step.with));
        let all = |name| self.algorithms.iter().all(|algorithm| *algorithm == name);
        (all(Name::Gcra) || !described().any(|limits| limits.burst.is_some() || limits.delay.is_some()))
            && (all(Name::SlidingWindow) || !described().any(|limits| limits.buckets.is_some()))
            && (all(Name::Concurrency) || !self.steps.iter().any(Step::has_a_lease))
    }

    fn knows(&self, step: &Step) -> bool {
        step.checks.iter().all(|check| self.policies.contains_key(check))
    }

    fn says_too_much(&self, step: &Step) -> bool {
        let checks = if step.checks.is_empty() { self.policies.len() } else { step.checks.len() };
        let is_no_request = step.clear || step.release.is_some();
        is_no_request && step.admitted.is_some()
            || step.tells_of_the_check() && (checks != 1 || step.admitted.is_none())
    }
}

impl Limits {
    fn are_none(&self) -> bool {
        self.limits.as_ref().is_none_or(Vec::is_empty)
    }
}

impl Step {
    fn has_a_lease(&self) -> bool {
        self.lease.or(self.release).is_some()
    }

    fn tells_of_the_check(&self) -> bool {
        self.check_admits.is_some()
            || self.limit.is_some()
            || self.remaining.is_some()
            || self.reset.is_some()
            || self.full_after.is_some()
            || self.retry_after.is_some()
            || self.delay.is_some()
    }
}

fn all_say_something<'a>(parts: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    match parts.into_iter().any(|part| part.trim().is_empty()) {
        true => Err("a part says nothing".into()),
        false => Ok(()),
    }
}
