//! The action of a route: `upstream`, `upstreams`, `reply`, `redirect` or `usage`.

use tollgate_derive::Settings;

use crate::config::{
    model::{KeyRecipe, PathPattern, Redirect, RouteAction, RouteReply, TextReader},
    reader::{Cursor, MappingCursor, NameTable},
    redact::has_no_credentials,
    settings::Read,
    value::{Invalid, count},
};

/// Reads `upstream`, `reply` or `redirect` of the route `mapping`. `is_usage`: it has `usage: true`. `path`: its path, and the reader of texts that refer to it.
/// `None`: the action is invalid, or the path is.
pub(super) fn action(
    mapping: &MappingCursor<'_>,
    [upstream, reply, redirect]: [Option<Cursor<'_>>; 3],
    is_usage: bool,
    upstreams: &NameTable<'_>,
    path: Option<(&PathPattern, TextReader<'_>)>,
) -> Option<RouteAction> {
    if is_usage {
        return Some(RouteAction::Usage);
    }
    if let Some(value) = reply {
        return RouteReply::read(value).map(|reply| RouteAction::Reply(Box::new(reply)));
    }
    if let Some(value) = redirect {
        let (path, reader) = path?;
        return Redirect::read(value, path, reader).map(|redirect| RouteAction::Redirect(Box::new(redirect)));
    }
    if !["upstream", "upstreams", "reply", "redirect"].into_iter().any(|key| mapping.has_or_misspells(key)) {
        mapping.report("`upstream` is missing", MISSING.to_owned());
    }
    self::upstream(upstream?, upstreams).map(RouteAction::Upstream)
}

const MISSING: &str = "the name of one of `upstreams`; or write `reply: { status: 200, body: ok }` or `redirect: { path: /new }` \
                       to do without one";

/// Several upstreams of a route.
pub(super) struct Shares {
    /// The key that requests are split by.
    pub(super) by: Option<KeyRecipe>,
    /// Each upstream, by its index, and its weight. Never empty.
    pub(super) upstreams: Vec<(usize, u32)>,
}

impl Shares {
    /// The upstream that takes most of the requests.
    pub(super) fn heaviest(&self) -> Option<usize> {
        // Of equals the first.
        let heaviest = self.upstreams.iter().rev().max_by_key(|(_, weight)| *weight)?;
        Some(heaviest.0)
    }
}

/// An upstream, and its share of the requests.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].upstreams[]", sample = "name: api")]
#[settings(such_as = "{ name: VALUE, weight: 50 }")]
pub(super) struct ShareSettings<'t> {
    /// The name of the upstream.
    #[setting(text = RESOURCE, example = "api")]
    #[setting(missing = "the name of one of `upstreams` at the top level")]
    name: Cursor<'t>,
    /// Its share, relative to the other weights. With `0`, it gets no requests.
    #[setting(count = "0..=1000000", parse = weight, default = "1", example = "95")]
    weight: u32,
}

/// Reads `upstreams` of a route. `by`: its `split_by`, if it has one; the inner `None`: it is invalid.
pub(super) fn shares(
    list: Cursor<'_>,
    by: Option<Option<KeyRecipe>>,
    names: &NameTable<'_>,
) -> Option<Shares> {
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
            let ShareSettings { name, weight } = ShareSettings::read(*item)?;
            Some((names.resolve(name)?, weight))
        })
        .collect();
    if shares.len() < items.len() {
        return None;
    }
    for (nth, (upstream, _)) in shares.iter().enumerate() {
        if shares[..nth].iter().any(|(earlier, _)| earlier == upstream) {
            let name = names.name(*upstream).unwrap_or_default();
            items[nth].report(format!("`{name}` is in this list twice"), "add up its weights".to_owned());
            return None;
        }
    }
    if shares.iter().all(|(_, weight)| *weight == 0) {
        list.report("no upstream would take the requests: every weight is 0", None);
        return None;
    }
    let by = match by {
        Some(by) => Some(by?),
        None => None,
    };
    Some(Shares { by, upstreams: shares })
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

/// Explains the directives of nginx for a reply, a redirect or CORS.
pub(super) fn explain_foreign(mapping: &mut MappingCursor<'_>) {
    let written = |mapping: &MappingCursor<'_>, key| {
        let text = mapping.peek(key)?.scalar()?.trim_end_matches(';').trim();
        (has_no_credentials(text) && text.len() <= 200).then(|| text.to_owned())
    };
    if let Some(text) = written(mapping, "return") {
        let (ours, line) = suggest_for_return(&text);
        mapping.explain("return", ours, format!("did you mean `{line}`?"));
    }
    for key in ["add_header", "more_set_headers", "header"] {
        let is_cors = |text: &String| text.to_ascii_lowercase().contains("access-control-");
        if let Some(text) = written(mapping, key).filter(is_cors) {
            let origin = text.split([' ', ':']).find(|word| word.starts_with("http") || *word == "*");
            let origin = origin.map_or("https://app.example.com".to_owned(), |_| {
                let at = text.find("http").or_else(|| text.find('*')).unwrap_or_default();
                text[at..].split([' ', '"', '\'']).next().unwrap_or_default().to_owned()
            });
            mapping.explain(key, "cors", format!("did you mean `cors: {{ origins: [\"{origin}\"] }}`?"));
        }
    }
}

/// Our setting for `return` of nginx, and its line.
fn suggest_for_return(text: &str) -> (&'static str, String) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim().trim_matches(['"', '\'']);
    let (status, target) = match first.parse::<u16>() {
        Ok(status) => (status, rest),
        Err(_) => (302, first),
    };
    if !(300..=399).contains(&status) {
        return (
            "reply",
            match rest {
                "" => format!("reply: {{ status: {status} }}"),
                body => format!("reply: {{ status: {status}, body: {body:?} }}"),
            },
        );
    }
    let named = target.replace("$request_uri", "/{rest}").replace("$uri", "/{rest}").replace("$1", "{rest}");
    let line = match named.split_once("://") {
        Some((scheme, rest)) if rest.starts_with("$host") || rest.starts_with("$server_name") => {
            format!("redirect: {{ scheme: {scheme}, status: {status} }}")
        }
        Some(_) => format!("redirect: {{ to: \"{named}\", status: {status} }}"),
        None => format!("redirect: {{ path: \"{named}\", status: {status} }}"),
    };
    ("redirect", line)
}

fn upstream(value: Cursor<'_>, upstreams: &NameTable<'_>) -> Option<usize> {
    let Some(url) = value.scalar().filter(|text| text.contains("://")) else {
        return upstreams.resolve(value);
    };
    let help = "give the URL a name: `upstreams: { api: { endpoints: [URL] } }`, and here `upstream: api`"
        .to_owned();
    let help = if has_no_credentials(url) { help.replace("URL]", &format!("{url}]")) } else { help };
    value.report("this is a URL, not the name of an upstream", help);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_a_return_of_nginx() {
        for (text, line) in [
            ("200 ok", "reply: { status: 200, body: \"ok\" }"),
            ("403", "reply: { status: 403 }"),
            (
                "301 https://new.example.com$request_uri",
                "redirect: { to: \"https://new.example.com/{rest}\", status: 301 }",
            ),
            ("301 https://$host$request_uri", "redirect: { scheme: https, status: 301 }"),
            ("302 /new", "redirect: { path: \"/new\", status: 302 }"),
            ("https://new.example.com/", "redirect: { to: \"https://new.example.com/\", status: 302 }"),
        ] {
            assert_eq!(suggest_for_return(text).1, line);
        }
    }
}
