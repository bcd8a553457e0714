//! Values that make limits without effect, or that no upstream could be chosen by.

use std::sync::Arc;

use crate::{
    config::{
        FileLocation,
        policies::settings::{Mode, Policy},
        reader::{Cursor, NameTable},
        resolved::Config,
        routes::{coverage::DraftRoute, message_changes::Rewrite, settings::Route},
        telemetry::settings::AccessLogFormat,
        value::{
            key::{Condition, KeyPart, KeyRecipe},
            placeholders::{Placeholder, PlaceholderText},
        },
    },
    request_values::RequestValue,
};

impl Policy {
    /// The names of the values that it asks requests for, with repetitions.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        let conditions = self.overrides.iter().filter_map(|other| match &other.condition {
            Condition::Value { name, .. } => Some(&**name),
            _ => None,
        });
        self.keys.iter().chain(&self.value).flat_map(KeyRecipe::value_names).chain(conditions)
    }
}

impl KeyRecipe {
    /// The names of its values.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            KeyPart::Value(name) => Some(&**name),
            _ => None,
        })
    }
}

/// Reports values in a key by which an upstream or an endpoint is chosen: that happens before the body is read.
pub(in crate::config) fn report_in_choice(item: Cursor<'_>, key: &KeyRecipe) {
    if key.value_names().next().is_some() {
        let help = "use a part of the request's header, such as `ip` or `header:NAME`".to_owned();
        item.report("upstreams and endpoints are not chosen by what a body says", help);
    }
}

/// Reports values that plans restrict, and that no route reads. `plans`: the setting.
pub(in crate::config) fn report_unread_of_plans(plans: Cursor<'_>, config: &Config) {
    let of_policies = config.routes.iter().flat_map(Route::all_policies);
    let of_policies = of_policies.filter_map(|index| config.policies.get(index));
    let counted = of_policies.flat_map(|policy| policy.value_names());
    let restricted = config.routes.iter().flat_map(|route| &route.allow_values).map(|of| &*of.value.name);
    let read: Vec<&str> = counted.chain(restricted).collect();
    for (plan, of) in config.plans.iter().flat_map(|plan| plan.allow_values.iter().map(move |of| (plan, of)))
    {
        let name = &of.value.name;
        let at = plans.entry(&plan.name).and_then(|plan| plan.entry("allow_values")?.entry(name));
        if let Some(at) = at.filter(|_| !read.contains(&&**name)) {
            let help = format!("a plan restricts it on routes with a policy whose `key` has `value:{name}`");
            at.report(format!("no route reads `{name}`, so this would never apply"), help);
        }
    }
}

/// Reports placeholders of values that no policy of their route reads. `list`: the routes.
pub(in crate::config) fn report_unknown_placeholders(list: Cursor<'_>, config: &Config) {
    for (item, route) in list.list().unwrap_or_default().into_iter().zip(&config.routes) {
        let policies = route.all_policies().into_iter().filter_map(|index| config.policies.get(index));
        let policies: Vec<&Policy> = policies.map(|policy| &**policy).collect();
        let is_read = |name: &str| {
            let is_allowed = route.allow_values.iter().any(|allowed| allowed.value.name == name);
            is_allowed || policies.iter().any(|policy| policy.value_names().any(|of| of == name))
        };
        let rewrite = route.rewrite.iter().filter_map(|rewrite| match rewrite {
            Rewrite::Path(text) => Some(text),
            Rewrite::StripPrefix(_) => None,
        });
        let edits = route.request_headers.iter().flat_map(|edits| edits.set.iter().chain(&edits.add));
        let texts: Vec<&PlaceholderText> = rewrite.chain(edits.map(|(_, field)| &field.text)).collect();
        for (index, value) in config.values.iter().enumerate() {
            if texts.iter().any(|text| text.has(Placeholder::Value(index))) && !is_read(&value.name) {
                let name = &value.name;
                let help = format!("add a policy whose `key` has `value:{name}`, or `allow_values`");
                item.report(format!("{{value:{name}}} is not known: no policy of this route reads it"), help);
            }
        }
    }
}

/// Reports logged values that do not exist, or that the format of the log has no place for. `list`: their names.
pub(in crate::config) fn check_logged(list: Cursor<'_>, config: &Config) {
    if config.access_log.format == AccessLogFormat::Combined {
        let help = "write `format: json`, or remove `values`".to_owned();
        list.report("a log in the combined format has no place for values", help);
    }
    let names = NameTable::new("value", config.values.iter().map(|value| &*value.name).collect());
    for item in list.list().unwrap_or_default() {
        let _known = names.resolve(item);
    }
}

/// Warns of each policy whose clients get a new count for each text that they make up.
pub(in crate::config) fn warn_of_made_up(
    drafts: &[DraftRoute<'_>],
    values: &[Arc<RequestValue>],
    policies: &[Arc<Policy>],
    cursors: &[(FileLocation, Cursor<'_>)],
) {
    for (index, (policy, (_, cursor))) in policies.iter().zip(cursors).enumerate() {
        // Failed logins are counted for each name, made up or not.
        if policy.mode != Mode::Enforce || policy.count.is_some() {
            continue;
        }
        let is_open = |name: &&str| {
            let is_grouped = values.iter().any(|value| value.name == **name && !value.groups.is_empty());
            let routes = drafts.iter().map(|draft| &draft.route);
            let mut used = routes.filter(|route| route.all_policies().contains(&index));
            let is_restricted =
                |route: &Route| route.allow_values.iter().any(|allowed| allowed.value.name == **name);
            !is_grouped && used.any(|route| !is_restricted(route))
        };
        let mut names = policy.keys.iter().flat_map(KeyRecipe::value_names);
        if let (Some(name), Some(at)) = (names.find(is_open), cursor.entry("key")) {
            let message = format!("each text that a client makes up for `{name}` has this limit for itself");
            let help =
                format!("give `{name}` some `groups`, or the routes an `allow_values: {{ {name}: […] }}`");
            at.warn(message, help);
        }
    }
}

/// Reports routes on which a body that can't be read passes and is counted, though it has to be read. `list`: the routes.
pub(in crate::config) fn report_unread(list: Cursor<'_>, config: &Config) {
    for (item, route) in list.list().unwrap_or_default().into_iter().zip(&config.routes) {
        let variants = route.variants().iter();
        let policies =
            variants.flat_map(|route| &route.policies).filter_map(|of| config.policies.get(of.policy));
        let policies: Vec<&Policy> = policies.map(|policy| &**policy).collect();
        let counts = |name: &&str| config.values.iter().any(|of| of.name == **name && of.counts_unreadable);
        let restricted = route.allow_values.iter().map(|allowed| &*allowed.value.name);
        let mut asked = policies.iter().flat_map(|policy| policy.value_names()).chain(restricted);
        let Some(counted) = asked.find(counts) else { continue };
        let reads = |policy: &&&Policy| policy.cost.of_response().is_some_and(|cost| cost.reads_members());
        let why = match policies.iter().find(reads) {
            Some(policy) => format!("the cost of `{}` needs the body", policy.name),
            None if !route.allow_values.is_empty() => "`allow_values` needs it".to_owned(),
            None if config.plans.iter().any(|plan| !plan.allow_values.is_empty()) => {
                "`allow_values` of a plan needs it".to_owned()
            }
            None => continue,
        };
        let message =
            format!("bodies that can't be read pass here, since `{counted}` counts them, but {why}");
        item.report(message, format!("remove `unreadable: count` of `{counted}`, or use another route"));
    }
}
