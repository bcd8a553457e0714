//! Warns about policies that limit nothing, because no route uses them.

use std::collections::HashSet;

use super::{policies::Policies, routes::DraftRoute, upstreams::Upstreams};

pub(super) fn warn(drafts: &[DraftRoute<'_>], policies: &Policies<'_>, upstreams: &Upstreams<'_>) {
    let variants = drafts.iter().flat_map(|draft| draft.route.variants());
    let used: HashSet<usize> = variants.flat_map(|route| route.policies.iter().copied()).collect();
    for (index, (location, value)) in policies.cursors.iter().enumerate() {
        if used.contains(&index) {
            continue;
        }
        let help = match upstreams.first_with(index) {
            Some(upstream) => {
                format!("no route leads to its upstream, `{upstream}`: add one, or remove both")
            }
            None => "add it to the `policies` of a route or of an upstream, or remove it".to_owned(),
        };
        value.warn_at(*location, "no route uses this policy, so it limits nothing", help);
    }
}
