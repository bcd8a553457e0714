//! `upstreams` of a route: several that take its requests by weight.

use super::{policies::key, upstreams::Upstreams, user::IdentitySources};
use crate::config::{
    model::KeyRecipe,
    reader::{Cursor, MappingCursor},
    settings,
    value::{Invalid, count},
};

/// Where the requests of a route go.
pub(super) struct Split {
    pub(super) by: Option<KeyRecipe>,
    /// Each upstream, by its index, and its weight. Never empty.
    pub(super) upstreams: Vec<(usize, u32)>,
}

impl Split {
    /// The upstream that takes most of the requests.
    pub(super) fn heaviest(&self) -> Option<usize> {
        // Of equals the first.
        let heaviest = self.upstreams.iter().rev().max_by_key(|(_, weight)| *weight)?;
        Some(heaviest.0)
    }
}

/// Reads `upstreams` and `split_by`. The outer `None`: the route has none.
pub(super) fn split(
    mapping: &mut MappingCursor<'_>,
    upstreams: &Upstreams<'_>,
    identity: IdentitySources,
) -> Option<Option<Split>> {
    let list = mapping.take("upstreams");
    let by_location = mapping.key_location("split_by");
    let by = mapping.take("split_by").map(|value| key(value, identity));
    let Some(list) = list else {
        let has_list = mapping.key_location("upstreams").is_some();
        if let Some(location) = by_location.filter(|_| !has_list) {
            let help = "write `upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]` beside it, or remove it";
            mapping.report_at(location, "`split_by` works only with `upstreams`", help.to_owned());
        }
        return has_list.then_some(None);
    };
    if let Some(location) = mapping.key_location("upstream") {
        let help = "keep `upstream` to send every request to one, or `upstreams` to split them".to_owned();
        mapping.report_at(location, "a route has either `upstream` or `upstreams`", help);
    }
    let shares = shares(list, upstreams);
    Some(match by {
        Some(None) => None,
        by => shares.map(|upstreams| Split { by: by.flatten(), upstreams }),
    })
}

fn shares(list: Cursor<'_>, upstreams: &Upstreams<'_>) -> Option<Vec<(usize, u32)>> {
    if list.is_mapping() {
        let entries = list.named_entries()?;
        let shares = entries.iter().map(|(_, name, weight)| {
            format!("{{ name: {name}, weight: {} }}", weight.scalar().unwrap_or("1"))
        });
        let help = format!("write [{}]", shares.collect::<Vec<_>>().join(", "));
        list.report("expected a list, not a mapping", help);
        return None;
    }
    if list.is_empty_list() {
        let help = "such as [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]".to_owned();
        list.report("no upstream would take the requests", help);
        return None;
    }
    let items = list.list()?;
    let shares: Vec<(usize, u32)> = items
        .iter()
        .filter_map(|item| {
            let mut mapping = item
                .mapping_such_as("{ name: VALUE, weight: 50 }")?
                .of(&settings::SHARE)
                .knowing("routes[].upstreams[]");
            let name = mapping.require("name", "the name of one of `upstreams` at the top level");
            let weight = mapping.parse_or("weight", 1, weight);
            mapping.finish();
            Some((upstreams.names.resolve(name?)?, weight))
        })
        .collect();
    if shares.len() < items.len() {
        return None;
    }
    for (nth, (upstream, _)) in shares.iter().enumerate() {
        if shares[..nth].iter().any(|(earlier, _)| earlier == upstream) {
            let name = upstreams.names.name(*upstream).unwrap_or_default();
            items[nth].report(format!("`{name}` is in this list twice"), "add up its weights".to_owned());
            return None;
        }
    }
    if shares.iter().all(|(_, weight)| *weight == 0) {
        list.report("no upstream would take the requests: every weight is 0", None);
        return None;
    }
    Some(shares)
}

fn weight(text: &str) -> Result<u32, Invalid> {
    let weight = count(0..=1_000_000)(text).map_err(|invalid| match text.trim().strip_suffix('%') {
        Some(number) if number.trim().parse::<u32>().is_ok() => {
            Invalid::new("has a unit; weights are compared with each other")
                .suggestion(format!("did you mean `{}`?", number.trim()))
        }
        _ => invalid,
    })?;
    u32::try_from(weight).map_err(|_| Invalid::new("is too large"))
}
