//! Warns about policies that limit nothing, because no route uses them.

use super::{policies::Policies, routes::DraftRoute, upstreams::Upstreams};

pub(super) fn warn(drafts: &[DraftRoute<'_>], policies: &Policies<'_>, upstreams: &Upstreams<'_>) {
    for (index, (location, value)) in policies.cursors.iter().enumerate() {
        if drafts.iter().any(|draft| draft.route.policies.contains(&index)) {
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
