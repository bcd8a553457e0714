//! The `proxy.yaml` that a converter fills.

use super::{
    Conversion, Note,
    yaml::{Comment, Map, Node, Value, document},
};

/// The sections of a file in the order in which they are written. Others come behind them.
const ORDER: [&str; 16] = [
    "listeners",
    "trusted_proxies",
    "trusted_headers",
    "client_address",
    "deny",
    "allow",
    "user",
    "api_keys",
    "plans",
    "store",
    "policies",
    "bans",
    "upstreams",
    "match",
    "paths",
    "routes",
];

/// A configuration of Tollgate that is being written. Comments may be attached to the whole, and to each entry.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Comments at the head of the file: what belongs to no entry.
    pub(super) head: Vec<Comment>,
    pub(super) listeners: Vec<Node>,
    pub(super) policies: Map,
    pub(super) upstreams: Map,
    /// In the order in which they are tried.
    pub(super) routes: Vec<Node>,
    /// All other sections: `trusted_proxies`, `client_address`, `client_limits`, …
    pub(super) settings: Map,
}

impl Draft {
    /// Writes the file. Its first comment is `title`. Sections without entries are left out.
    pub(super) fn finish(self, title: &str) -> Conversion {
        let Self { head, listeners, policies, upstreams, routes, settings } = self;
        let (route_count, policy_count) = (routes.len(), policies.len());
        let mut sections = settings;
        for (name, list) in [("listeners", listeners), ("routes", routes)] {
            if !list.is_empty() {
                sections.set(name, Node::from(Value::List(list)));
            }
        }
        for (name, map) in [("policies", policies), ("upstreams", upstreams)] {
            if !map.is_empty() {
                sections.set(name, Node::from(map));
            }
        }
        sections.sort_by_key(|name| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len()));
        let mut unconverted: Vec<Note> = head.iter().filter_map(Comment::note).cloned().collect();
        sections.collect_notes(&mut unconverted);
        unconverted.sort();
        unconverted.dedup();
        let comments: Vec<_> = [Comment::Plain(title.to_owned())].into_iter().chain(head).collect();
        Conversion {
            yaml: document(&comments, &sections),
            unconverted,
            routes: route_count,
            policies: policy_count,
        }
    }
}

/// A name for a policy or an upstream: `text` with `-` in place of other characters than letters, digits, and `. _ -`,
/// and with a number if `taken` has it already.
pub(super) fn resource_name(text: &str, taken: impl Fn(&str) -> bool) -> String {
    const MOST_CHARACTERS: usize = 100;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = text.chars().take(MOST_CHARACTERS).map(|c| if allowed(c) { c } else { '-' }).collect();
    let name = match name.trim_matches('-') {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    };
    let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
    [name.clone()].into_iter().chain(numbered).find(|name| !taken(name)).unwrap_or(name)
}

/// Whether this can be the name of a header.
pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Place;

    #[test]
    fn names_are_valid_and_unique() {
        assert_eq!(resource_name("api", |_| false), "api");
        assert_eq!(resource_name("a b/é", |_| false), "a-b");
        assert_eq!(resource_name("$$", |_| false), "unnamed");
        assert_eq!(resource_name("api", |name| ["api", "api-2"].contains(&name)), "api-3");
    }

    #[test]
    fn sections_are_in_order_and_notes_are_both_comments_and_items() {
        let note = |line| Note { place: Place { file: "a".into(), line }, text: format!("t{line}") };
        let mut draft = Draft::default();
        draft.settings.set("client_limits", Map::new().with("max_body", "1MiB"));
        draft.routes.push(Node::from(Map::new().with("path", "/*")).commented(Comment::Unconverted(note(7))));
        draft.policies.set("a", Map::new().with("algorithm", "gcra"));
        draft.head.push(Comment::Unconverted(note(9)));
        let conversion = draft.finish("Title");
        assert_eq!(
            conversion.yaml,
            "# Title\n# a:9: t9\n\npolicies:\n  a: { algorithm: gcra }\n\nroutes:\n  # a:7: t7\n  - { path: /* }\n\n\
             client_limits: { max_body: 1MiB }\n"
        );
        assert_eq!(conversion.unconverted, [note(7), note(9)]);
        assert_eq!((conversion.routes, conversion.policies), (1, 1));
    }
}
