//! What the decision on a request needs of its body and of its path: members of JSON, and the values that have names.

use std::sync::Arc;

use http::{HeaderValue, header::CONTENT_TYPE};
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
        AskedMembers, BodyContent, BodyRefusal, Form, FoundValues, Members, QueryFields, ReadBody,
        RequestTarget, RequestValue, ask_for_usage, content,
    },
};

/// What a route asks of its requests.
#[derive(Debug, Default)]
pub(super) struct AskedOfRoute {
    /// The members of a JSON body.
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
        let of_values = values.iter().flat_map(|value| value.paths());
        let of_costs = of_route.iter().filter_map(|policy| policy.cost.of_response());
        let members = AskedMembers::new(of_costs.flat_map(|cost| cost.asked_paths()).chain(of_values));
        Self { members, values }
    }
}

/// How the body of a request is read. `json`: whether a member of JSON may be needed, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyReading {
    /// Nothing of it is needed but perhaps its length.
    Length,
    Json,
    Form {
        json: bool,
        is_utf8: bool,
    },
    /// Servers may take it for a form, though its content type does not say so. `json`: what it is, if a member may be needed.
    PerhapsForm {
        json: Option<BodyContent>,
    },
    /// It is neither, but some servers take what begins as JSON for that.
    Begin(BodyContent),
    /// It can't be read, and passes.
    Unreadable,
}

impl BodyReading {
    /// Whether all of it is needed.
    pub(super) fn needs_whole(self) -> bool {
        matches!(self, Self::Json | Self::Form { .. } | Self::PerhapsForm { .. })
    }

    /// Whether something of it is read.
    pub(super) fn needs_bytes(self) -> bool {
        self.needs_whole() || matches!(self, Self::Begin(_))
    }
}

/// What a body says.
enum ParsedBody<'m, 'b> {
    Nothing,
    /// Of each call of a batch.
    Json(SmallVec<[Members<'m, 'b>; 1]>),
    Form(Form<'b>),
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
    pub(crate) fn asked_values(&self) -> &'r [Arc<RequestValue>] {
        &self.asked().values
    }

    /// The values to which the plan of the request's key is restricted, of those that the route asks for.
    fn plan_values(&self) -> impl Iterator<Item = &'r AllowedValues> {
        let plan = match self.rules.has_restricted_plans {
            true => self.found.identity.valid_key().and_then(|key| key.plan.as_deref()),
            false => None,
        };
        let plan = plan.and_then(|name| self.rules.config.plans.iter().find(|plan| plan.name == name));
        let asked = self.asked_values();
        let is_asked = |of: &&AllowedValues| asked.iter().any(|value| value.name == of.value.name);
        plan.into_iter().flat_map(|plan| &plan.allow_values).filter(is_asked)
    }

    /// `query`: the fields of forms in it.
    fn value_target<'q>(&self, query: &'q QueryFields) -> RequestTarget<'q>
    where
        'a: 'q,
    {
        let target = &self.found.target;
        RequestTarget { sent: target.path(), loosest: target.loosest_path(), query }
    }

    /// Whether the body says one of these values.
    pub(super) fn values_need_body(&self) -> bool {
        self.facts.has_body && self.values_of_body().next().is_some()
    }

    fn values_of_body(&self) -> impl Iterator<Item = &'r Arc<RequestValue>> {
        let target = self.value_target(QueryFields::NONE);
        self.asked_values().iter().filter(move |value| value.needs_body(target))
    }

    /// Whether `policy` needs more than the head of the request: what another proxy that asks can't tell.
    pub(super) fn needs_more_than_head(&self, policy: &Policy) -> bool {
        let is_of_body = |value: &Arc<RequestValue>| policy.value_names.contains(&value.name);
        policy.may_refund() || !policy.value_names.is_empty() && self.values_of_body().any(is_of_body)
    }

    /// Whether a body that can't be read passes, and is counted as such. `reads_costs`: whether its members say how much to
    /// reserve.
    fn counts_unreadable(&self, reads_costs: bool) -> bool {
        let is_restricted = !self.route.allow_values.is_empty() || self.plan_values().next().is_some();
        let are_counted = || {
            let mut of_body = self.values_of_body().peekable();
            of_body.peek().is_some() && of_body.all(|value| value.counts_unreadable)
        };
        !reads_costs && !is_restricted && are_counted()
    }

    /// Whether a form may say one of the values.
    fn reads_forms(&self) -> bool {
        self.values_of_body().any(|value| value.form_fields().next().is_some())
    }

    /// Whether JSON may say something that is needed.
    fn reads_json(&self, reads_costs: bool) -> bool {
        reads_costs || self.values_of_body().any(|value| value.paths().next().is_some())
    }

    /// How the body is read for these `checks`.
    ///
    /// # Errors
    /// It can't be, by the header of the request.
    pub(super) fn body_reading(&self, checks: &Checks<'_>) -> Result<BodyReading, BodyRefusal> {
        if !checks.reads_members() || !self.facts.has_body {
            return Ok(BodyReading::Length);
        }
        let headers = &self.request().headers;
        let (json, forms) = (self.reads_json(checks.reads_costs), self.reads_forms());
        let is_untyped = headers.get(CONTENT_TYPE).is_none_or(HeaderValue::is_empty);
        let reading = content(headers).and_then(|kind| match kind {
            BodyContent::Multipart if forms => Err(BodyRefusal::multipart()),
            BodyContent::Json if is_untyped && forms => {
                Ok(BodyReading::PerhapsForm { json: json.then_some(kind) })
            }
            BodyContent::PerhapsForm if forms => Ok(BodyReading::PerhapsForm { json: json.then_some(kind) }),
            BodyContent::Json if json => Ok(BodyReading::Json),
            BodyContent::Form | BodyContent::LatinForm if forms => {
                Ok(BodyReading::Form { json, is_utf8: kind == BodyContent::Form })
            }
            BodyContent::Json => Ok(BodyReading::Length),
            kind if json => Ok(BodyReading::Begin(kind)),
            _ => Ok(BodyReading::Length),
        });
        match reading {
            Err(_) if self.counts_unreadable(checks.reads_costs) => Ok(BodyReading::Unreadable),
            reading => reading,
        }
    }

    /// Completes the `checks` by the body. `limit`: the most bytes that are read. Returns the body with which the upstream is asked
    /// for its usage, if that is another one.
    ///
    /// # Errors
    /// It can't be read, or says something that is not allowed.
    pub(super) fn complete(
        &self,
        checks: &mut Checks<'r>,
        received: ReceivedPart<'_>,
        (reading, limit): (BodyReading, usize),
        inputs: &CheckInputs<'_>,
    ) -> Result<Option<Vec<u8>>, BodyRefusal> {
        let members = &self.asked().members;
        // Many frameworks add the query to the fields of a form, unless the method is safe.
        let query = self.found.target.query().filter(|_| !self.request().method.is_safe());
        let query =
            query.map_or_else(QueryFields::default, |query| QueryFields::read(self.asked_values(), query));
        let read = match self.parse(reading, received, limit) {
            Err(_) if self.counts_unreadable(checks.reads_costs) => self.unreadable()?,
            Err(refusal) => return Err(refusal),
            Ok(_) if reading == BodyReading::Unreadable => self.unreadable()?,
            Ok(ParsedBody::Json(uses)) if !uses.is_empty() => {
                let uses = uses.into_iter().map(|members| {
                    let values = self.read_values(ReadBody::Json(&members), &query)?;
                    Ok(RequestUse { members, values })
                });
                ReadRequest { uses: uses.collect::<Result<_, BodyRefusal>>()? }
            }
            Ok(ParsedBody::Json(_) | ParsedBody::Nothing) => {
                self.read_use(members.nothing(), ReadBody::Nothing, &query)?
            }
            Ok(ParsedBody::Form(form)) => self.read_use(members.nothing(), ReadBody::Form(form), &query)?,
        };
        let values = read.uses.iter().map(|of| of.values.clone()).collect();
        let _first = self.found.values.set(values);
        self.check_values(&read)?;
        checks.complete(&read, received, inputs, self)?;
        match &*read.uses {
            [only] if received.is_whole && checks.asks_for_usage() => {
                ask_for_usage(&only.members, self.found.target.path(), received.bytes)
            }
            _ => Ok(None),
        }
    }

    fn parse<'b>(
        &self,
        reading: BodyReading,
        ReceivedPart { bytes, is_whole, .. }: ReceivedPart<'b>,
        limit: usize,
    ) -> Result<ParsedBody<'r, 'b>, BodyRefusal> {
        let members = &self.asked().members;
        match reading {
            BodyReading::Length | BodyReading::Unreadable => Ok(ParsedBody::Nothing),
            BodyReading::Begin(kind) => kind.check(bytes, is_whole).map(|()| ParsedBody::Nothing),
            _ if !is_whole => Err(BodyRefusal::too_long(limit)),
            BodyReading::Json => members.read(bytes).map(ParsedBody::Json),
            BodyReading::Form { json, is_utf8 } => {
                if json {
                    BodyContent::Form.check(bytes, true)?;
                }
                Ok(ParsedBody::Form(if is_utf8 { Form::new(bytes) } else { Form::in_latin(bytes) }))
            }
            BodyReading::PerhapsForm { json } => {
                let form = Form::new(bytes);
                let mut fields = self.values_of_body().flat_map(|value| value.form_fields());
                if fields.any(|name| !matches!(form.field(name), Ok(None))) {
                    return Err(BodyRefusal::perhaps_form());
                }
                match json {
                    Some(BodyContent::Json) => members.read(bytes).map(ParsedBody::Json),
                    Some(kind) => kind.check(bytes, true).map(|()| ParsedBody::Nothing),
                    None => Ok(ParsedBody::Nothing),
                }
            }
        }
    }

    /// The values in a `body`, with what stands for names of people that must not be stored.
    fn read_values(&self, body: ReadBody<'_, '_>, query: &QueryFields) -> Result<FoundValues, BodyRefusal> {
        let mut values = FoundValues::read(self.asked_values(), body, self.value_target(query))?;
        values.conceal_names(|name| self.rules.names.pseudonym(name));
        Ok(values)
    }

    fn read_use<'b>(
        &self,
        members: Members<'r, 'b>,
        body: ReadBody<'_, '_>,
        query: &QueryFields,
    ) -> Result<ReadRequest<'r, 'b>, BodyRefusal> {
        let values = self.read_values(body, query)?;
        Ok(ReadRequest { uses: smallvec![RequestUse { members, values }] })
    }

    /// A request whose body can't be read, and passes.
    fn unreadable<'b>(&self) -> Result<ReadRequest<'r, 'b>, BodyRefusal> {
        let values = FoundValues::unreadable(self.asked_values(), self.value_target(QueryFields::NONE))?;
        Ok(ReadRequest { uses: smallvec![RequestUse { members: self.asked().members.nothing(), values }] })
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
        checks.add_awaiting(&read, inputs, self).map(|_uses| ()).map_err(RefusedBy::of_body)
    }

    /// Checks the values against `allow_values` of the route, and of the plan.
    ///
    /// # Errors
    /// One is not allowed, or the route restricts it and it is absent.
    fn check_values(&self, read: &ReadRequest<'_, '_>) -> Result<(), BodyRefusal> {
        let of_route = self.route.allow_values.iter().map(|allowed| (allowed, true));
        let of_plan = self.plan_values().map(|allowed| (allowed, false));
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
