//! Listeners that no route is for.

use crate::config::{
    reader::Cursor,
    routes::{coverage::DraftRoute, settings::Route},
};

/// A listener in the file, as routes refer to it.
pub(in crate::config) struct DraftListener<'t> {
    pub(in crate::config) cursor: Cursor<'t>,
    /// Its name, valid or not: a route that refers to an invalid name is not reported as well.
    pub(in crate::config) name: Option<String>,
    /// Whether it redirects requests itself.
    pub(in crate::config) is_redirecting: bool,
    /// Whether it serves decisions.
    pub(in crate::config) decides: bool,
    /// The names of its certificates. `None`: clients connect without TLS, or a certificate is invalid.
    pub(in crate::config) certified: Option<Vec<String>>,
}

impl<'t> DraftListener<'t> {
    /// The listener at `cursor`, of which only the name is known yet.
    pub(in crate::config) fn new(cursor: Cursor<'t>) -> Self {
        let name = cursor.entry("name").and_then(Cursor::interpolated);
        Self { cursor, name, is_redirecting: false, decides: false, certified: None }
    }

    /// Whether requests that come in here may take `route`.
    pub(in crate::config) fn may_take(&self, route: &Route) -> bool {
        let is_named = || self.name.as_ref().is_some_and(|name| route.listeners.contains(name));
        (route.domain.is_none() || self.decides) && (route.listeners.is_empty() || is_named())
    }
}

/// Warns about every listener that no route is for. One that redirects needs none.
pub(in crate::config) fn warn(listeners: &[DraftListener<'_>], drafts: &[DraftRoute<'_>]) {
    for listener in listeners.iter().filter(|listener| !listener.is_redirecting) {
        if drafts.iter().any(|draft| listener.may_take(&draft.route)) {
            continue;
        }
        let help = match &listener.name {
            Some(_) => "add its name to the `listeners` of a route, or add a route without `listeners`",
            None => {
                "give it a `name` and add that to the `listeners` of a route, or add a route without `listeners`"
            }
        };
        let message = match listener.decides {
            true => {
                "no route is for this listener, so every request that another proxy asks about is allowed"
            }
            false => "no route is for this listener, so every request on it gets 404",
        };
        listener.cursor.warn(message, help.to_owned());
    }
}
