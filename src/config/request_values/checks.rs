//! Values that make limits without effect, or that no upstream could be chosen by.

use std::sync::Arc;

use crate::{
    config::{
        FileLocation,
        policies::settings::{Mode, Policy},
        reader::{Cursor, NameTable},
        resolved::Config,
        routes::{coverage::DraftRoute, settings::Route},
        telemetry::settings::AccessLogFormat,
        value::key::{Condition, KeyPart, KeyRecipe},
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
        let Some(counted) = policies.iter().flat_map(|policy| policy.value_names()).find(counts) else {
            continue;
        };
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
