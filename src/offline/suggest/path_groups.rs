//! The groups of paths in a log that may need limits of their own, such as POST /login.

use http::Method;
use indexmap::IndexMap;

use crate::offline::access_logs::{LogReader, LoggedRequest, ReadError};

/// Groups that are counted. Those of a log with more are not complete: a scanner has tried paths at random.
const MAX_GROUPS: usize = 10_000;
/// The busiest groups of methods that change something, and of the others.
const MOST_OF_EACH: usize = 10;
/// Segments of a path that tell groups of unsafe methods apart. Paths with more are left out.
const MAX_SEGMENTS: usize = 4;
/// Longer segments are IDs.
const LONGEST_WORD: usize = 40;

/// A group of requests, as a route matches them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PathGroup {
    pub(super) method: Method,
    /// In the syntax of routes: `/login`, `/files/*`, `/users/{id}`.
    pub(super) path: String,
}

impl PathGroup {
    /// Whether requests of its method change something (RFC 9110, 9.2.1).
    pub(super) fn is_unsafe(&self) -> bool {
        !self.method.is_safe()
    }
}

/// The busiest groups of the requests in `logs`, in an order in which no route hides another.
///
/// Unsafe methods are grouped by their paths, with IDs as `{id}`, and the others by the first segment. Requests for what
/// does not exist count in no group.
///
/// # Errors
/// A log can't be read, or no log contains a request.
pub(super) fn survey(mut logs: LogReader) -> Result<Vec<PathGroup>, ReadError> {
    // With the number of requests, and whether all are for the path itself, without a further segment.
    let mut groups: IndexMap<PathGroup, (u64, bool)> = IndexMap::new();
    while let Some(request) = logs.next_request()? {
        if let Some((group, is_itself)) = group(&request) {
            let is_full = groups.len() >= MAX_GROUPS;
            match groups.get_mut(&group) {
                Some((count, all)) => (*count, *all) = (*count + 1, *all && is_itself),
                None if is_full => {}
                None => drop(groups.insert(group, (1, is_itself))),
            }
        }
    }
    let groups = groups.into_iter().map(|(mut group, (count, is_itself))| {
        if is_itself && let Some(path) = group.path.strip_suffix("/*") {
            group.path = path.to_owned();
        }
        (group, count)
    });
    let (mut changing, mut reading): (Vec<_>, Vec<_>) = groups.partition(|(group, _)| group.is_unsafe());
    let mut busiest = Vec::new();
    for of_kind in [&mut changing, &mut reading] {
        // A stable sort: of equally busy ones, the first in the log.
        of_kind.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        busiest.extend(of_kind.drain(..).take(MOST_OF_EACH).map(|(group, _)| group));
    }
    // Routes with parameters behind those that are more exact.
    busiest.sort_by_key(|group| (group.path.contains('{'), group.path.ends_with('*')));
    Ok(busiest)
}

/// The group of a request, and whether the request is for the path of the group itself. `None`: it is in no group.
fn group(logged: &LoggedRequest) -> Option<(PathGroup, bool)> {
    let request = &logged.request;
    let exists = !matches!(logged.status.http.as_u16(), 400 | 404 | 405 | 410);
    let method = if request.method == Method::HEAD { Method::GET } else { request.method.clone() };
    let is_grouped =
        matches!(method, Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    if !exists || !is_grouped {
        return None;
    }
    let path = request.uri.path().trim_end_matches('/');
    let segments: Vec<_> = path.strip_prefix('/').unwrap_or_default().split('/').collect();
    if segments == [""] {
        return Some((PathGroup { method, path: "/".to_owned() }, true));
    }
    if !segments.iter().all(|segment| is_plain(segment)) || is_id(segments[0]) {
        return None;
    }
    let path = match (method.is_safe(), segments.as_slice()) {
        (true, [first, ..]) => format!("/{}/*", first.to_ascii_lowercase()),
        (false, all) if all.len() <= MAX_SEGMENTS => all
            .iter()
            .map(|segment| {
                if is_id(segment) { "/{id}".to_owned() } else { format!("/{}", segment.to_ascii_lowercase()) }
            })
            .collect(),
        _ => return None,
    };
    Some((PathGroup { method, path: with_distinct_names(&path) }, segments.len() == 1))
}

/// Numbers the parameters of a path, since their names must differ: `/users/{id}/orders/{id2}`.
fn with_distinct_names(path: &str) -> String {
    let mut parts = path.split("{id}");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (nth, part) in parts.enumerate() {
        out += &if nth == 0 { "{id}".to_owned() } else { format!("{{id{}}}", nth + 1) };
        out += part;
    }
    out
}

/// Whether a route can match the segment as it is written.
fn is_plain(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    !segment.is_empty() && segment.bytes().all(is_plain) && !segment.bytes().all(|byte| byte == b'.')
}

/// Whether the segment is a number, a UUID, a hash or a token.
fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    digits == segment.len()
        || is_hex && digits > 0 && segment.len() >= 12
        || digits * 4 >= segment.len() && segment.len() >= 20
        || segment.len() > LONGEST_WORD
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::offline::access_logs::{InputLog, ReadOptions};

    fn groups(lines: &[(&str, u16)]) -> Vec<String> {
        let line = |(request, status): &(&str, u16)| {
            format!("::1 - - [03/Jul/2026:12:00:01 +0000] \"{request} HTTP/1.1\" {status} 1\n")
        };
        let text: String = lines.iter().map(line).collect();
        let reader = Box::new(Cursor::new(text.into_bytes()));
        let logs = LogReader::new(
            vec![InputLog { name: "log".to_owned(), reader, size: None }],
            ReadOptions::default(),
        )
        .unwrap();
        survey(logs)
            .unwrap()
            .into_iter()
            .map(|PathGroup { method, path }| format!("{method} {path}"))
            .collect()
    }

    #[test]
    fn paths_are_grouped_by_what_tells_them_apart() {
        let found = groups(&[
            ("POST /login", 200),
            ("POST /Login/?next=/a", 401),
            ("POST /users/17/orders/0aF3-4711-00ff", 200),
            ("GET /users/17", 200),
            ("HEAD /users", 200),
            ("GET /favicon.ico", 200),
            ("GET /", 200),
            ("GET http://example.org/a/b", 200),
        ]);
        let expected = [
            "POST /login",
            "GET /favicon.ico",
            "GET /",
            "GET /users/*",
            "GET /a/*",
            "POST /users/{id}/orders/{id2}",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_that_the_service_does_not_have_are_left_out() {
        for (request, status) in [
            ("POST /wp-login.php", 404),
            ("GET /0123456789", 200),
            ("POST /a/b/c/d/e", 200),
            ("POST /a//b", 200),
            ("POST /a%20b", 200),
            ("POST /{x}", 200),
            ("POST /a/../b", 200),
            ("OPTIONS /a", 200),
        ] {
            assert_eq!(groups(&[(request, status)]), [""; 0], "{request}");
        }
    }

    #[test]
    fn ids_are_told_from_words() {
        for id in ["1", "0123456789abcdef", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "ck9x1y2z3a4b5c6d7e8f"] {
            assert!(is_id(id), "{id}");
        }
        for word in ["login", "v1", "wp-login.php", "feedface", "style2.css", "a-long-name-of-a-page-in-2026"]
        {
            assert!(!is_id(word), "{word}");
        }
    }

    #[test]
    fn the_busiest_of_each_kind_are_kept() {
        let lines: Vec<_> = (0..30).map(|nth| (format!("GET /page-{nth}x"), 30 - nth)).collect();
        let all: Vec<_> = lines.iter().flat_map(|(line, count)| vec![(line.as_str(), 200); *count]).collect();
        let found = groups(&[&all[..], &[("POST /rare", 200)]].concat());
        assert_eq!(found.len(), MOST_OF_EACH + 1);
        assert!(found.contains(&"POST /rare".to_owned()) && !found.contains(&"GET /page-10x".to_owned()));
    }
}
