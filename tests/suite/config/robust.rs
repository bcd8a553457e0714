//! Whatever a configuration holds, it is read or answered, never a panic.

use proptest::prelude::*;
use tollgate::config::{self, Config, Errors};

use super::environment::Environment;

fn parse(text: &str) -> Result<Config, Errors> {
    config::parse("proxy.yaml", text, &Environment)
}

/// An answer has an error, and each stands somewhere in the file.
fn check(text: &str) {
    let Err(errors) = parse(text) else { return };
    assert!(!errors.problems().is_empty(), "refused without a reason");
    let text = text.replace("\r\n", "\n");
    let lines: Vec<_> = text.split(['\n', '\r']).collect();
    for problem in errors.problems() {
        // A configuration of another proxy is refused as a whole.
        let Some(location) = problem.location else {
            assert!(errors.problems().len() == 1 && problem.message.starts_with("this is a"), "{errors}");
            continue;
        };
        let length = lines.get(location.line - 1).map(|line| line.chars().count());
        assert!(
            length.is_some_and(|length| (1..=length + 1).contains(&location.column)),
            "{location:?} in {text:?}"
        );
    }
    assert!(errors.to_string().starts_with("proxy.yaml:"));
}

/// Words that a configuration is made of, so that some of what is tried gets far.
fn word() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "listeners",
        "admin",
        "policies",
        "upstreams",
        "routes",
        "user",
        "store",
        "redis",
        "url",
        "redis://:hunter2@h/0",
        "redis://:hunter2",
        "tls",
        "tls/ca.pem",
        "breaker",
        "token",
        "key",
        "limit",
        "limits",
        "path",
        "algorithm",
        "upstream",
        "endpoints",
        "timeouts",
        "sliding_log",
        "gcra",
        "concurrency",
        "distinct",
        "value",
        "overrides",
        "exempt",
        "user:a",
        "reply",
        "body",
        "'{{policy}}'",
        "'{{'",
        "count",
        "statuses",
        "4xx",
        "jwt",
        "file",
        "keys/set.json",
        "ip",
        "100/1s",
        "1s",
        "/*",
        "\"/{id}\"",
        "http://a:1",
        "${TOKEN}",
        "\"${EMPTY}\"",
        "${",
        "&a",
        "*a",
        "<<",
        "~",
        "off",
        "0x10",
        "1e999",
        "é",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "!!int",
        "!x",
        "|",
        ">",
        "'",
        "\"",
        "#",
        "---",
        "...",
        "? ",
        "%",
        "@",
    ];
    prop_oneof![4 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => any::<String>()]
}

fn glue() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[": ", "\n", "\n  ", "\n    ", ", ", " [", "]", " {", "}", "\n- ", " ", "\r\n", "\t", ""][..],
    )
}

/// YAML cuts the URL at the comma: what is left of it looks like a host without a port, and a path.
#[test]
fn a_password_that_yaml_has_cut_is_not_shown() {
    let text = "store: { redis: { url: redis://a:/hunter2,(@host, timout: 1s } }\n";
    let answer = parse(text).unwrap_err().to_string();
    assert!(!answer.contains("hunter2"), "{answer}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text: String) {
        check(&text);
    }

    #[test]
    fn nearly_yaml(parts in prop::collection::vec((word(), glue()), 0..40)) {
        check(&parts.into_iter().map(|(word, glue)| word + glue).collect::<String>());
    }

    #[test]
    fn a_password_is_not_shown(
        before in "[a-z:/ ]{0,4}", after in "[^\\r\\n\"\\\\]{0,8}", scheme in "(redis|redi)://(:|a:)", quote in "\"?",
    ) {
        let url = format!("{quote}{scheme}{before}hunter2{after}@host{quote}");
        let text = format!("store: {{ redis: {{ url: {url}, timout: 1s }} }}\nadmin: {{ token: {quote}hunter2{after}{quote}, x: 1 }}\n");
        let answer = parse(&text).unwrap_err().to_string();
        prop_assert!(!answer.contains("hunter2"), "{answer}");
    }

    #[test]
    fn the_shipped_file_with_a_slip(at in 0..2000_usize, length in 0..20_usize, instead in word()) {
        let shipped: Vec<char> = include_str!("../../../proxy.yaml").chars().collect();
        let at = at.min(shipped.len());
        let rest = &shipped[(at + length).min(shipped.len())..];
        let text: String = shipped[..at].iter().copied().chain(instead.chars()).chain(rest.iter().copied()).collect();
        check(&text);
    }
}
