//! What the decision on a request needs of its body and of its path: members of JSON, and the values that have names.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{
    checks::{CheckInputs, Checks},
    request_context::RequestContext,
    steps::RefusedBy,
};
use crate::{
    config::model::{AllowedValues, Config, Route},
    limit::Policy,
    request_values::{
        AskedMembers, BodyContent, BodyRefusal, Form, FoundValues, Members, ReadBody, RequestValue,
        ask_for_usage,
    },
};

/// What a route asks of its requests.
#[derive(Debug, Default)]
pub(super) struct AskedOfRoute {
    /// The members of a JSON body, also for the values that plans restrict.
    pub(super) members: AskedMembers,
    /// The values that its policies count by, and those that it restricts.
    values: Vec<Arc<RequestValue>>,
}

impl AskedOfRoute {
    pub(super) fn new(config: &Config, policies: &[Policy], route: &Route) -> Self {
        let of_route = route.variants().iter().flat_map(|route| &route.policies);
        let of_route: Vec<&Policy> = of_route.filter_map(|of| policies.get(of.policy)).collect();
        let counted = of_route.iter().flat_map(|policy| &policy.value_names);
        let restricted = route.allow_values.iter().map(|allowed| &allowed.value.name);
        let mut names: Vec<&String> = counted.chain(restricted).collect();
        names.sort_unstable();
        names.dedup();
        let named = |name: &&String| config.values.iter().find(|value| value.name == **name);
        let values: Vec<_> = names.iter().filter_map(named).cloned().collect();
        let of_plans = config.plans.iter().flat_map(|plan| &plan.allow_values).map(|allowed| &allowed.value);
        let of_values = values.iter().chain(of_plans).flat_map(|value| value.paths());
        let of_costs = of_route.iter().filter_map(|policy| policy.cost.of_response());
        let members = AskedMembers::new(of_costs.flat_map(|cost| cost.asked_paths()).chain(of_values));
        Self { members, values }
    }
}

/// The part of a request's body that was received.
#[derive(Clone, Copy)]
pub(super) struct ReceivedPart<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) is_whole: bool,
    /// The least bytes that the body has.
    pub(super) least_length: u64,
}

/// What a request says that decides on it.
pub(super) struct ReadRequest<'m, 'b> {
    /// One, or one for each call of a batch. Never empty.
    pub(super) uses: SmallVec<[RequestUse<'m, 'b>; 1]>,
}

/// A request, or a call of a batch.
pub(super) struct RequestUse<'m, 'b> {
    pub(super) members: Members<'m, 'b>,
    pub(super) values: FoundValues,
}

impl<'r: 'a, 'a> RequestContext<'r, 'a> {
    /// The values that decide on the request.
    pub(crate) fn asked_values(&self) -> impl Iterator<Item = &'r Arc<RequestValue>> + Clone {
        let of_route = &self.asked().values;
        let of_plan = self.plan_values().iter().map(|allowed| &allowed.value);
        let is_new = move |value: &&Arc<RequestValue>| !of_route.iter().any(|other| other.name == value.name);
        of_route.iter().chain(of_plan.filter(is_new))
    }

    /// Whether there are any.
    pub(super) fn asks_values(&self) -> bool {
        !self.asked().values.is_empty() || !self.plan_values().is_empty()
    }

    /// The values to which the plan of the request's key is restricted.
    fn plan_values(&self) -> &'r [AllowedValues] {
        let plans = &self.rules.config.plans;
        if !self.rules.has_restricted_plans {
            return &[];
        }
        let plan = self.found.identity.valid_key().and_then(|key| key.plan.as_deref());
        let plan = plan.and_then(|name| plans.iter().find(|plan| plan.name == name));
        plan.map_or(&[], |plan| &plan.allow_values)
    }

    /// The values in a `body`, with the names of people in the form in which they may be stored.
    fn read_values(&self, body: ReadBody<'_, '_>) -> Result<FoundValues, BodyRefusal> {
        let mut values = FoundValues::read(self.asked_values(), body, self.path())?;
        values.replace_names(|name| self.rules.names.pseudonym(name));
        Ok(values)
    }

    /// Whether the body says one of these values.
    pub(super) fn values_need_body(&self) -> bool {
        self.facts.has_body && self.asked_values().any(|value| value.needs_body(self.path()))
    }

    fn path(&self) -> &'a str {
        self.found.target.loosest_path()
    }

    /// Whether a body that can't be read passes, and is counted as such. `reads_costs`: whether its members say how much to
    /// reserve.
    pub(super) fn counts_unreadable(&self, reads_costs: bool) -> bool {
        let is_restricted = !self.route.allow_values.is_empty() || !self.plan_values().is_empty();
        let mut of_body = self.asked_values().filter(|value| value.needs_body(self.path()));
        !reads_costs && !is_restricted && of_body.all(|value| value.counts_unreadable)
    }

    /// Whether a form may say one of the values.
    fn reads_forms(&self) -> bool {
        self.asked_values().any(|value| value.is_in_forms())
    }

    /// Whether a body of this kind is read as a whole.
    pub(super) fn reads_whole(&self, kind: BodyContent) -> bool {
        kind == BodyContent::Json || kind == BodyContent::Form && self.reads_forms()
    }

    /// Reads a request without a body, or one whose body says nothing.
    ///
    /// # Errors
    /// A value in its path can't be read.
    pub(super) fn read_head<'b>(&self) -> Result<ReadRequest<'r, 'b>, BodyRefusal> {
        self.read_use(self.asked().members.nothing(), ReadBody::Nothing)
    }

    /// Completes the `checks` by the body. `kind`: of the body, if something of it is needed. `limit`: the most bytes that are
    /// read. Returns the body with which the upstream is asked for its usage, if that is another one.
    ///
    /// # Errors
    /// It can't be read, or says something that is not allowed.
    pub(super) fn complete(
        &self,
        checks: &mut Checks<'r>,
        received: ReceivedPart<'_>,
        (kind, limit): (Option<BodyContent>, usize),
        inputs: &CheckInputs<'_>,
    ) -> Result<Option<Vec<u8>>, BodyRefusal> {
        let read = match kind {
            None => self.read_head(),
            Some(kind) => self.read(kind, received, limit),
        };
        let read = match read {
            Err(_) if self.counts_unreadable(checks.reads_costs) => self.unreadable(),
            read => read?,
        };
        self.complete_by(checks, &read, received.least_length, inputs)?;
        match &*read.uses {
            [only] if received.is_whole && checks.asks_for_usage() => {
                ask_for_usage(&only.members, self.found.target.path(), received.bytes)
            }
            _ => Ok(None),
        }
    }

    /// Completes the `checks` by what was `read` of a request whose body has this `length`.
    ///
    /// # Errors
    /// It says something that is not allowed.
    pub(super) fn complete_by(
        &self,
        checks: &mut Checks<'r>,
        read: &ReadRequest<'_, '_>,
        length: u64,
        inputs: &CheckInputs<'_>,
    ) -> Result<(), BodyRefusal> {
        let values = read.uses.iter().map(|of| of.values.clone()).collect();
        let _first = self.found.values.set(values);
        self.check_values(read)?;
        checks.complete(read, length, inputs, self)
    }

    /// Completes the `checks` by values that a log has. `are_known`: whether it has all of them.
    ///
    /// # Errors
    /// One is not allowed.
    pub(crate) fn complete_by_log(
        &self,
        checks: &mut Checks<'r>,
        values: FoundValues,
        are_known: bool,
        inputs: &CheckInputs<'_>,
    ) -> Result<(), RefusedBy> {
        let _first = self.found.values.set(smallvec![values.clone()]);
        let members = self.asked().members.nothing();
        let read = ReadRequest { uses: smallvec![RequestUse { members, values }] };
        if are_known {
            self.check_values(&read).map_err(RefusedBy::of_body)?;
        }
        checks.add_awaiting(&read, inputs, self);
        Ok(())
    }

    /// Reads a request with a body of this `kind`.
    fn read<'b>(
        &self,
        kind: BodyContent,
        ReceivedPart { bytes: begin, is_whole, .. }: ReceivedPart<'b>,
        limit: usize,
    ) -> Result<ReadRequest<'r, 'b>, BodyRefusal> {
        let members = &self.asked().members;
        match kind {
            BodyContent::Grpc => self.read_head(),
            _ if !is_whole && self.reads_whole(kind) => Err(BodyRefusal::too_long(limit)),
            BodyContent::Json => {
                let uses = members.read(begin)?.into_iter().map(|members| {
                    let values = self.read_values(ReadBody::Json(&members))?;
                    Ok(RequestUse { members, values })
                });
                let mut uses = uses.collect::<Result<SmallVec<_>, _>>()?;
                if uses.is_empty() {
                    uses = self.read_head()?.uses;
                }
                Ok(ReadRequest { uses })
            }
            BodyContent::Multipart if !begin.is_empty() && self.reads_forms() => {
                Err(BodyRefusal::multipart())
            }
            BodyContent::Form | BodyContent::Multipart | BodyContent::Other => {
                kind.check(begin, is_whole)?;
                let is_form = kind == BodyContent::Form && is_whole;
                let body = if is_form { ReadBody::Form(Form::new(begin)) } else { ReadBody::Nothing };
                self.read_use(members.nothing(), body)
            }
        }
    }

    fn read_use<'b>(
        &self,
        members: Members<'r, 'b>,
        body: ReadBody<'_, '_>,
    ) -> Result<ReadRequest<'r, 'b>, BodyRefusal> {
        let values = self.read_values(body)?;
        Ok(ReadRequest { uses: smallvec![RequestUse { members, values }] })
    }

    /// A request whose body can't be read, and passes.
    pub(super) fn unreadable<'b>(&self) -> ReadRequest<'r, 'b> {
        let (members, values) =
            (self.asked().members.nothing(), FoundValues::unreadable(self.asked_values(), self.path()));
        ReadRequest { uses: smallvec![RequestUse { members, values }] }
    }

    /// Checks the values against `allow_values` of the route, and of the plan.
    ///
    /// # Errors
    /// One is not allowed, or the route restricts it and it is absent.
    fn check_values(&self, read: &ReadRequest<'_, '_>) -> Result<(), BodyRefusal> {
        let of_route = self.route.allow_values.iter().map(|allowed| (allowed, true));
        let of_plan = self.plan_values().iter().map(|allowed| (allowed, false));
        for (allowed, is_required) in of_route.chain(of_plan) {
            let AllowedValues { value, allowed: texts } = allowed;
            for RequestUse { values, .. } in &read.uses {
                if allowed.allows(values).unwrap_or(!is_required) {
                    continue;
                }
                return Err(BodyRefusal::forbidden(&value.name, values.get(&value.name), texts));
            }
        }
        Ok(())
    }
}
