//! The catalogue of statuses, messages and warnings, and the table of metrics: what they have is taken from the code.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::deploy::dashboards;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn catalogue() -> String {
    fs::read_to_string(root().join("docs/statuses.md")).unwrap()
}

/// The sources of a module, without its tests.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if !matches!(path.file_stem().and_then(|name| name.to_str()), Some("tests" | "testing")) {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    let path = root().join("src").join(directory);
    if path.is_dir() {
        collect(&path, &mut files);
    } else {
        files.push(path);
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let code = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        (path, code)
    };
    files.into_iter().map(code).collect()
}

/// The texts in a piece of code, in which `…` stands for what is filled in.
fn texts(code: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (begin, from) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = match begin {
            b'/' if from.starts_with('/') => from.split_once('\n').map_or("", |(_, rest)| rest),
            // A character, not a lifetime.
            b'\'' if from.starts_with("\\\"'") => &from[3..],
            b'\'' if from.starts_with("\"'") => &from[2..],
            b'"' => {
                let mut escaped = false;
                let end = from.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                let (text, behind) = from.split_at(end.unwrap_or(from.len()));
                found.push(filled_in(text));
                behind.get(1..).unwrap_or_default()
            }
            _ => from,
        };
    }
    found
}

/// `a {b} c` as `a … c`, in one line.
fn filled_in(text: &str) -> String {
    let lines: Vec<_> = text.split("\\\n").collect();
    let text = lines.iter().enumerate().map(|(at, line)| if at == 0 { line } else { line.trim_start() });
    let text: String = text.collect::<String>().replace("\\\"", "\"");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, from)) = rest.split_once('{') {
        plain += before;
        plain.push('…');
        rest = from.split_once('}').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// Fails with what the catalogue lacks.
#[track_caller]
fn has_all(texts: Vec<(PathBuf, String)>, least: usize) {
    let catalogue = catalogue();
    assert!(texts.len() >= least, "only {} were found", texts.len());
    let missing: Vec<_> = texts
        .into_iter()
        .filter(|(_, text)| !catalogue.contains(text.as_str()))
        .map(|(file, text)| format!("{}: {text}", file.strip_prefix(root()).unwrap().display()))
        .collect();
    assert!(missing.is_empty(), "docs/statuses.md lacks:\n{}", missing.join("\n"));
}

/// Whether it says something by itself.
fn is_sentence(text: &str) -> bool {
    text.contains(' ') && text.chars().filter(char::is_ascii_alphabetic).count() > 8
}

#[test]
fn every_detail_of_a_response_is_in_the_catalogue() {
    let mut all = Vec::new();
    for directory in ["proxy", "router", "listener"] {
        for (file, code) in sources(directory) {
            let texts = texts(&code).into_iter();
            let details = texts.filter(|text| {
                is_sentence(text) && text.starts_with(|c: char| c.is_ascii_uppercase()) && text.ends_with('.')
            });
            all.extend(details.map(|text| (file.clone(), text)));
        }
    }
    has_all(all, 50);
}

#[test]
fn every_problem_type_is_in_the_catalogue() {
    let mut all = Vec::new();
    for directory in ["proxy", "admin"] {
        for (file, code) in sources(directory) {
            let types = texts(&code).into_iter().filter(|text| {
                *text == "about:blank"
                    || text.starts_with("urn:tollgate:problem:")
                    || text.contains("http-problem-types#")
            });
            all.extend(types.map(|text| (file.clone(), text)));
        }
    }
    has_all(all, 5);
}

#[test]
fn every_status_of_a_refusal_is_in_the_catalogue() {
    let catalogue = catalogue();
    let (_, refusals) = sources("telemetry/metrics/refusals.rs").remove(0);
    let statuses: Vec<_> = refusals
        .split("StatusCode::")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(statuses.len() >= 9, "{statuses:?}");
    let codes = [
        ("BAD_REQUEST", "400"),
        ("UNAUTHORIZED", "401"),
        ("FORBIDDEN", "403"),
        ("REQUEST_TIMEOUT", "408"),
        ("PAYLOAD_TOO_LARGE", "413"),
        ("URI_TOO_LONG", "414"),
        ("UNSUPPORTED_MEDIA_TYPE", "415"),
        ("EXPECTATION_FAILED", "417"),
        ("REQUEST_HEADER_FIELDS_TOO_LARGE", "431"),
        ("NOT_IMPLEMENTED", "501"),
        ("HTTP_VERSION_NOT_SUPPORTED", "505"),
    ];
    for name in statuses {
        let (_, code) =
            codes.into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
        assert!(
            catalogue.contains(&format!("| {code} |")) || catalogue.contains(&format!("\n## {code} ")),
            "{code}"
        );
    }
}

/// The messages that this code logs.
fn messages(code: &str) -> Vec<String> {
    let calls = ["error!(", "warn!(", "info!(", "debug!(", "self.warn(format_args!("];
    let mut found = Vec::new();
    for call in calls {
        for (at, _) in code.match_indices(call) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' {
                continue;
            }
            let body = &code[at + call.len()..];
            let body = &body[..end_of_call(body)];
            found.extend(texts(body).into_iter().next());
        }
    }
    found
}

/// Where the parenthesis closes that is open at the beginning.
fn end_of_call(code: &str) -> usize {
    let (mut depth, mut is_text, mut escaped) = (1, false, false);
    for (at, c) in code.char_indices() {
        match c {
            '"' if !escaped => is_text = !is_text,
            '(' if !is_text => depth += 1,
            ')' if !is_text => depth -= 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

#[test]
fn every_log_message_is_in_the_catalogue() {
    let mut all = Vec::new();
    for (file, code) in sources("") {
        let found = messages(&code).into_iter().filter(|text| is_sentence(text));
        all.extend(found.map(|text| (file.clone(), text)));
    }
    has_all(all, 130);
}

#[test]
fn every_warning_of_a_running_tollgate_is_in_the_catalogue() {
    let mut all = Vec::new();
    for file in ["rules", "outages", "floods"] {
        for (file, code) in sources(&format!("telemetry/diagnostics/{file}.rs")) {
            let found = texts(&code).into_iter().filter(|text| is_sentence(text) && text.len() > 24);
            all.extend(found.map(|text| (file.clone(), text)));
        }
    }
    for (file, code) in
        sources("store/redis/server_check.rs").into_iter().chain(sources("peers/server_status.rs"))
    {
        let found = texts(&code).into_iter().filter(|text| is_sentence(text) && text.len() > 34);
        all.extend(found.map(|text| (file.clone(), text)));
    }
    has_all(all, 30);
}

#[test]
fn every_warning_of_the_check_is_in_the_catalogue() {
    let catalogue = catalogue();
    let (_, known) = catalogue.split_once("## Warnings of `tollgate check`").unwrap();
    let known: Vec<&str> =
        known.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let mut count = 0;
    for entry in fs::read_dir(root().join("tests/golden/warnings")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "stderr") {
            let text = fs::read_to_string(&path).unwrap();
            for warning in
                text.lines().filter_map(|line| line.split_once("warning: ")).map(|(_, warning)| warning)
            {
                count += 1;
                assert!(
                    known.iter().any(|pattern| matches(pattern, warning)),
                    "docs/statuses.md lacks: {warning}"
                );
            }
        }
    }
    assert!(count > 60, "{count}");
}

/// Whether `text` is what `pattern` says, with anything in place of each `…`.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = "";
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = part;
    }
    rest.is_empty() || last.is_empty() && pattern.ends_with('…')
}

#[test]
fn every_metric_is_in_the_guide_and_no_other() {
    let page = fs::read_to_string(root().join("docs/observability.md")).unwrap();
    let metrics = dashboards::metric_names();
    assert!(metrics.len() > 50, "{metrics:?}");
    // A histogram has three.
    let name = |metric: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric).to_owned()
    };
    let missing: Vec<_> = metrics
        .iter()
        .map(|metric| name(metric))
        .filter(|metric| !page.contains(&format!("`{metric}`")))
        .collect();
    assert!(missing.is_empty(), "docs/observability.md lacks {missing:?}");
    let (_, table) = page.split_once("## Metrics").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let described =
        table.split('`').filter(|word| word.starts_with("tollgate_") && !word.contains(['{', '*', ' ']));
    let gone: Vec<_> = described.filter(|word| !metrics.iter().any(|metric| name(metric) == *word)).collect();
    assert!(gone.is_empty(), "docs/observability.md has metrics that do not exist: {gone:?}");
}
