//! What a block inherits from the blocks around it.

use std::collections::HashMap;

use super::syntax::Directive;

/// Directives of which a block that has its own inherits none.
const LISTS: [&str; 8] = [
    "limit_req",
    "limit_conn",
    "allow",
    "deny",
    "proxy_set_header",
    "add_header",
    "proxy_hide_header",
    "grpc_set_header",
];
/// Directives of which the innermost holds. Those that begin with `proxy_ssl_` are among them.
const SINGLE: [&str; 24] = [
    "limit_req_status",
    "limit_conn_status",
    "limit_req_dry_run",
    "limit_conn_dry_run",
    "client_max_body_size",
    "proxy_read_timeout",
    "proxy_connect_timeout",
    "proxy_send_timeout",
    "grpc_read_timeout",
    "grpc_connect_timeout",
    "grpc_send_timeout",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_jwt",
    "default_type",
    "root",
    "alias",
    "index",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "set_real_ip_from",
    "real_ip_header",
    "real_ip_recursive",
];

/// The directives that apply in a block.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope<'d> {
    lists: HashMap<&'static str, Vec<&'d Directive>>,
    single: HashMap<&'d str, &'d Directive>,
    /// Variables that `set` gives a constant.
    variables: HashMap<&'d str, &'d str>,
}

impl<'d> Scope<'d> {
    /// Whether inner blocks may inherit a directive of this name.
    pub(super) fn is_inherited(name: &str) -> bool {
        LISTS.contains(&name) || SINGLE.contains(&name) || name.starts_with("proxy_ssl_")
    }

    /// The scope of a block with these directives.
    pub(super) fn enter(&self, directives: impl Iterator<Item = &'d Directive> + Clone) -> Self {
        let mut scope = self.clone();
        // One list: a block with an `allow` does not inherit a `deny` either.
        let access = |name: &str| matches!(name, "allow" | "deny");
        if directives.clone().any(|directive| access(&directive.name)) {
            scope.lists.remove("allow");
        }
        for name in LISTS {
            if !access(name) && directives.clone().any(|directive| directive.name == name) {
                scope.lists.remove(name);
            }
        }
        for directive in directives {
            let name = directive.name.as_str();
            if let Some(list) = LISTS.into_iter().find(|known| *known == name) {
                let list = if access(list) { "allow" } else { list };
                scope.lists.entry(list).or_default().push(directive);
            } else if Self::is_inherited(name) {
                scope.single.insert(name, directive);
            } else if name == "set" {
                let variable = directive.argument(0).trim_start_matches('$');
                scope.variables.insert(variable, directive.argument(1));
            }
        }
        scope
    }

    /// The directives of this name that apply. `allow` also has those of `deny`, in their order.
    pub(super) fn list(&self, name: &str) -> &[&'d Directive] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// The directive of this name that applies.
    pub(super) fn single(&self, name: &str) -> Option<&'d Directive> {
        self.single.get(name).copied()
    }

    /// The first argument of the directive of this name that applies.
    pub(super) fn value(&self, name: &str) -> Option<&'d str> {
        self.single(name).map(|directive| directive.argument(0))
    }

    /// Replaces variables that `set` has given a constant.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Longer names first: `$a` is the beginning of `$ab`.
        let mut variables: Vec<_> = self.variables.iter().collect();
        variables.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in variables {
            if !value.contains('$') {
                text = text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
            }
        }
        text
    }
}
