//! `cors` of a route: which pages of other origins may read what it answers.

use std::{fmt::Display, time::Duration};

use http::{HeaderName, Method};

use crate::config::{
    model::{AllowedNames, AllowedOrigins, Cors},
    reader::Cursor,
    settings,
    value::{Invalid, MAX_DURATION, boolean, duration, field_name, method, origin},
};

/// Reads `cors` of a route that has these `methods` (empty: all). `unsent`: what its conditions ask for that browsers do not send
/// with a preflight.
pub(super) fn cors(value: Cursor<'_>, route_methods: &[Method], unsent: Option<&str>) -> Option<Cors> {
    let mut mapping = value
        .mapping_such_as("cors: { origins: [\"https://app.example.com\"] }")?
        .of(&settings::CORS)
        .knowing("routes[].cors");
    let written = mapping.require("origins", "such as `origins: [\"https://app.example.com\"]`");
    let origins = written.and_then(origins);
    let methods = mapping.take("methods").map(|value| names(value, method));
    let headers = mapping.take("headers").map(|value| names(value, field_name));
    let credentials = mapping.take("credentials").map(|value| (value, value.parse(boolean)));
    let max_age = mapping.take("max_age").map(|value| value.parse(duration(Duration::ZERO..=MAX_DURATION)));
    let expose = mapping.take("expose").map(|value| value.unique_items(|item| item.parse(exposed_field)));
    mapping.finish();
    let with_credentials = matches!(credentials, Some((_, Some(true))));
    if let (Some((value, _)), Some(AllowedOrigins::Any)) = (&credentials, &origins)
        && with_credentials
    {
        let help =
            "name the origins: browsers refuse credentials for \"*\", and any page could act in the name of \
                    its visitors"
                .to_owned();
        value.report("`credentials` can't be allowed to every origin", help);
    }
    if let Some(unsent) = unsent {
        let message = format!(
            "browsers send no {unsent} with a preflight, so preflights for this route take another one, which needs \
             `cors`, too"
        );
        value.warn(message, None);
    }
    let default = || match route_methods {
        [] => vec![Method::GET, Method::HEAD, Method::POST],
        methods => methods.to_vec(),
    };
    Some(Cors {
        origins: origins?,
        methods: methods.unwrap_or_else(|| Some(AllowedNames::Listed(default())))?,
        headers: headers.unwrap_or(Some(AllowedNames::Listed(Vec::new())))?,
        credentials: with_credentials,
        max_age: max_age.flatten(),
        expose: expose.unwrap_or_default(),
    })
}

fn origins(list: Cursor<'_>) -> Option<AllowedOrigins> {
    if is_any(list) {
        return Some(AllowedOrigins::Any);
    }
    let items = list.list()?;
    if items.is_empty() {
        list.report(
            "an empty list allows no origin",
            "remove `cors`, or name the origins of your pages".to_owned(),
        );
        return None;
    }
    if items.iter().any(|item| is_any(*item)) {
        if let Some(other) = items.iter().find(|item| !is_any(**item)) {
            other.report("`*` allows every origin, so the others say nothing", "keep either".to_owned());
        }
        return Some(AllowedOrigins::Any);
    }
    let count = items.len();
    let all = list.unique_items(|item| item.parse(origin));
    (all.len() == count).then_some(AllowedOrigins::Listed(all))
}

fn is_any(item: Cursor<'_>) -> bool {
    item.interpolated().as_deref() == Some("*")
}

/// A list of names, or `*`.
fn names<T: PartialEq + Display>(
    list: Cursor<'_>,
    read: impl Fn(&str) -> Result<T, Invalid>,
) -> Option<AllowedNames<T>> {
    if is_any(list) {
        return Some(AllowedNames::Any);
    }
    let items = list.list()?;
    if let [only] = items[..]
        && is_any(only)
    {
        return Some(AllowedNames::Any);
    }
    let count = items.len();
    let all = list.unique_items(|item| item.parse(&read));
    (all.len() == count).then_some(AllowedNames::Listed(all))
}

fn exposed_field(text: &str) -> Result<HeaderName, Invalid> {
    match text {
        "*" => Err(Invalid::new("is not taken here, since browsers ignore it beside credentials")
            .expected("name the headers that pages may read, such as [x-total-count, ratelimit]")),
        _ => field_name(text),
    }
}
