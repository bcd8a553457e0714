//! `cors` (kong/plugins/cors/handler.lua).

use std::collections::BTreeSet;

use super::{
    Effects, always,
    values::{flag, given, number},
};
use crate::offline::convert::{
    document::Fields,
    draft::{duration, is_field_name},
    site::{Edit, Effect},
    yaml::Map,
};

/// Methods that pages may use.
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"];

/// `cors` of a route, and notes on what pages are not allowed here.
///
/// # Errors
/// A setting cannot be read.
pub(super) fn cors(config: &Fields<'_>) -> Result<Effects, String> {
    let (mut map, mut notes) = (Map::new(), Vec::new());
    let written = config.texts("origins");
    let is_any = written.is_empty() || written.contains(&"*");
    let origins: BTreeSet<_> = written.iter().filter_map(|text| origin(text)).collect();
    match is_any {
        true => map.set("origins", "*"),
        // A list cannot be empty.
        false if origins.is_empty() => map.set("origins", vec!["https://example.invalid"]),
        false => map.set("origins", origins.into_iter().collect::<Vec<_>>()),
    }
    if !is_any && written.iter().any(|text| origin(text).is_none()) {
        notes.push("origins that are expressions are not compared: list them".to_owned());
    }
    let methods = config.texts("methods");
    let is_allowed = |method: &&str| methods.is_empty() || methods.contains(method);
    map.set("methods", METHODS.into_iter().filter(is_allowed).collect::<Vec<_>>());
    for (key, setting) in [("headers", "headers"), ("exposed_headers", "expose")] {
        let names = config.texts(key);
        if names.contains(&"*") && setting == "expose" {
            notes.push("`exposed_headers`: list the names".to_owned());
        } else if names.contains(&"*") || (names.is_empty() && setting == "headers") {
            map.set(setting, "*");
        } else if !names.is_empty() {
            let names: BTreeSet<_> = names.into_iter().map(str::to_ascii_lowercase).collect();
            map.set(setting, names.into_iter().filter(|name| is_field_name(name)).collect::<Vec<_>>());
        }
    }
    match (flag(config, "credentials", false)?, is_any) {
        (true, true) => notes.push("`credentials` with every origin: list the origins".to_owned()),
        (true, false) => map.set("credentials", true),
        (false, _) => {}
    }
    if let Some(seconds) = number(config, "max_age")? {
        map.set("max_age", duration(seconds.min(366 * 86_400) * 1000));
    }
    for key in ["preflight_continue", "private_network"] {
        notes.extend(given(config, key).map(|_| format!("`{key}`: Tollgate answers preflights itself")));
    }
    // Responses to requests without an origin are read by no page.
    config.ignore(&["allow_origin_absent"]);
    let edit = Effect::Edit(Edit::Setting("cors", map.into()));
    Ok(always(notes.into_iter().map(Effect::Note).chain([edit])))
}

/// An origin as browsers send it. `None`: Kong reads it as an expression, or it is none.
fn origin(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:/-".contains(c);
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    text.chars().all(is_plain).then(|| url.origin().ascii_serialization())
}
