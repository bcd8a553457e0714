//! `user`: where the user ID of a request comes from.

use crate::config::{
    model::{HeaderFrom, UserSource},
    value::{Invalid, choice, cookie_name, field_name},
    walk::Cursor,
};

/// The sources, in the order in which they are tried. `trusts` if there are trusted proxies.
pub(super) fn sources(value: Option<Cursor<'_>>, trusts: bool) -> Vec<UserSource> {
    let Some(list) = value else { return Vec::new() };
    list.distinct(|item| source(item, trusts))
}

fn source(item: Cursor<'_>, trusts: bool) -> Option<UserSource> {
    let help = "one of `header: NAME`, `cookie: NAME`, or the word `basic`";
    if item.written().is_some() {
        return item.parse(|text| match text {
            "basic" => Ok(UserSource::Basic),
            _ => Err(Invalid::new("is no source of user IDs").form(help)),
        });
    }
    let mut at = item.mapping()?;
    let (header, cookie, from) = (at.take("header"), at.take("cookie"), at.take("from"));
    if header.is_some() && cookie.is_some() || !at.means("header") && !at.means("cookie") {
        at.report("a source of user IDs is exactly one header or one cookie", help.to_owned());
        at.finish();
        return None;
    }
    let words = choice(&[("trusted_proxies", HeaderFrom::TrustedProxies), ("anyone", HeaderFrom::Anyone)]);
    let believed = from.map_or(Some(HeaderFrom::TrustedProxies), |from| from.parse(words));
    if let Some(cookie) = cookie {
        if let Some(place) = at.place_of("from") {
            at.report_at(place, "`from` is for headers: a cookie always comes from the client", None);
        }
        at.finish();
        return cookie.parse(cookie_name).map(UserSource::Cookie);
    }
    at.finish();
    let name = header?.parse(field_name)?;
    let from = believed?;
    if from == HeaderFrom::TrustedProxies && !trusts {
        let help = "list the gateway that sets it in `trusted_proxies`, or write `from: anyone`";
        item.report("there are no trusted_proxies, so this header is never believed", help.to_owned());
    }
    Some(UserSource::Header { name, from })
}
