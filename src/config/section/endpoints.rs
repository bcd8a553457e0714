//! `endpoints` of an upstream: a list here, or in a file of its own.

use std::collections::HashSet;

use crate::config::{
    Problem, Purpose,
    interpolate::ImpatientLookup,
    model::{Endpoint, EndpointsFile},
    reader::{Cursor, ReadContext},
    redact::Secrets,
    settings::{self, Place},
    value::{Invalid, boolean, count, endpoint_url, foreign_value},
    yaml,
};

/// Where the endpoints of an upstream are.
pub(super) enum Endpoints {
    /// Here. Without those that are wrong, which were reported.
    Listed(Vec<Endpoint>),
    /// In this file, whose contents are right.
    File(EndpointsFile),
}

pub(super) fn endpoints(value: Cursor<'_>) -> Option<Endpoints> {
    let mut mapping = match value.is_mapping().then(|| value.mapping()).flatten() {
        Some(mapping) if mapping.has_or_misspells("file") => mapping.of(&settings::ENDPOINTS_FILE),
        _ => return Some(Endpoints::Listed(list(value))),
    };
    let file = mapping.require("file", "such as `file: endpoints.yaml`");
    mapping.finish();
    let read = |bytes: &[u8]| {
        read_file(bytes)
            .map_err(|error| Invalid::new(format!("lists no endpoints that can be used: {error}")))
    };
    let (path, _) = file?.file(read)?;
    Some(Endpoints::File(EndpointsFile { path, read: read_file }))
}

fn list(value: Cursor<'_>) -> Vec<Endpoint> {
    if value.is_empty_list() {
        value.report("an upstream needs an endpoint", "such as [http://127.0.0.1:3000]".to_owned());
    }
    let mut known = HashSet::new();
    let endpoints = value.items(|item| {
        let endpoint = endpoint(item)?;
        // Another spelling of the same place is the same endpoint.
        if !known.insert(endpoint.url.clone()) {
            let word = item.scalar().map_or("this endpoint".to_owned(), |word| format!("`{word}`"));
            let help = "remove it; an endpoint that shall get more requests has a weight: `{ url: http://HOST:PORT, weight: 2 }`";
            item.report(format!("{word} is in this list twice"), help.to_owned());
            return None;
        }
        Some(endpoint)
    });
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.drain) {
        let message = "every endpoint is drained, so each request to this upstream gets 503";
        value.warn(message, "remove `drain: true` from an endpoint".to_owned());
    }
    endpoints
}

fn endpoint(item: Cursor<'_>) -> Option<Endpoint> {
    if item.scalar().is_some() {
        return item.parse(endpoint_url);
    }
    let mut mapping = item.mapping()?.of(&settings::ENDPOINT).knowing("upstreams.*.endpoints[]");
    let url = mapping.require("url", "such as `url: http://127.0.0.1:3000`");
    let weight = mapping.parse_or("weight", 1, |text| {
        let weight = count(1..=1000)(text)?;
        u32::try_from(weight).map_err(|_| Invalid::new("is too large"))
    });
    let drain = mapping.parse_or("drain", false, boolean);
    mapping.finish();
    Some(Endpoint { weight, drain, ..url?.parse(endpoint_url)? })
}

/// Reads a file that is a list of endpoints. JSON is YAML, too.
///
/// # Errors
/// What is wrong with it first, in one line, and how much else.
fn read_file(bytes: &[u8]) -> Result<Vec<Endpoint>, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = yaml::parse(text).map_err(|problem| told(&problem))?;
    let lookup = ImpatientLookup::default();
    let secrets = Secrets::of_tree(text, &tree.root, Place::of_setting(&settings::UPSTREAM, "endpoints"));
    let context = ReadContext::new(&lookup, Purpose::Reload, &secrets, foreign_value);
    for duplicate in tree.duplicates {
        context.report(duplicate);
    }
    let root = Cursor::root(&tree.root, &context);
    if root.is_null() {
        return Err("it is empty".to_owned());
    }
    let endpoints = list(root);
    let mut problems = context.into_findings().problems;
    problems.sort();
    match problems.split_first() {
        None => Ok(endpoints),
        Some((first, [])) => Err(told(first)),
        Some((first, others)) => Err(format!("{} (and {} more)", told(first), others.len())),
    }
}

/// A problem in one line.
fn told(problem: &Problem) -> String {
    let line = problem.location.map(|location| format!("line {}: ", location.line)).unwrap_or_default();
    let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    format!("{line}{}{help}", problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, u32)>, String> {
        let endpoints = read_file(text.as_bytes())?;
        Ok(endpoints.into_iter().map(|endpoint| (endpoint.url.to_string(), endpoint.weight)).collect())
    }

    #[test]
    fn a_file_lists_endpoints_as_a_configuration_does() {
        let expected = Ok(vec![("http://10.0.0.1:3000/".to_owned(), 1), ("https://b/".to_owned(), 2)]);
        assert_eq!(
            read("# made by a script\n- http://10.0.0.1:3000\n- { url: https://b, weight: 2 }\n"),
            expected
        );
        assert_eq!(read(r#"["http://10.0.0.1:3000", {"url": "https://b", "weight": 2}]"#), expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = [
            ("", "it is empty"),
            ("[]", "line 1: an upstream needs an endpoint"),
            ("- http://a\n- ftp://b\n", "line 2: `ftp://b` "),
            ("- http://a\n- { url: http://b, wieght: 2 }\n- x y\n", "line 2: "),
            ("- http://a\n- [", "line "),
            ("upstreams: {}", "line 1: expected a list"),
            (
                "- http://a\n- { url: http://A:80, weight: 2 }\n",
                "line 2: this endpoint is in this list twice",
            ),
        ];
        for (text, error) in wrong {
            let told = read(text).unwrap_err();
            assert!(told.starts_with(error), "{text}: {told}");
        }
        assert!(
            read("- http://a\n- { url: http://b, wieght: 2 }\n- x y\n")
                .unwrap_err()
                .ends_with("(and 1 more)")
        );
    }
}
