//! A name for each route. It is a label in metrics and logs, and a part of keys, so no two are the same.

use std::collections::HashMap;

use super::routes::Draft;
use crate::config::model::Route;

/// Reports names that were given twice, and tells apart what is named after its path:
/// the second route for `/a` that has no name is `/a#2`, as long as no other is named so.
pub(super) fn distinct(drafts: Vec<Draft<'_>>) -> Vec<Route> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    for draft in &drafts {
        let Some(cursor) = draft.name else { continue };
        if let Some(line) = lines.get(&draft.route.name) {
            let help = format!("the route in line {line} has it already; metrics tell routes apart by name");
            cursor.report(format!("the name `{}` is taken", cursor.written().unwrap_or_default()), help);
        } else {
            lines.insert(draft.route.name.clone(), cursor.place().line);
        }
    }
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::with_capacity(drafts.len());
    for Draft { cursor, name, mut route } in drafts {
        if name.is_none() {
            let path = route.name.clone();
            let time = times.entry(path.clone()).or_insert(0);
            while *time == 0 || lines.contains_key(&route.name) {
                *time += 1;
                route.name = if *time == 1 { path.clone() } else { format!("{path}#{time}") };
            }
            lines.insert(route.name.clone(), cursor.place().line);
        }
        routes.push(route);
    }
    routes
}
