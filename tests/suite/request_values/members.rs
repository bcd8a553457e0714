//! Members of bodies: what has one meaning, and what is refused.

use proptest::prelude::*;
use serde_json::Value;

use super::{asking, path};

const PATHS: [&str; 4] = ["stream", "params.name", "params.arguments.city", "max_tokens"];

/// The text of what is wrong with this body, and the status.
#[track_caller]
fn refused(body: impl AsRef<[u8]>) -> (u16, String) {
    let body = body.as_ref();
    let Err(unreadable) = asking(&PATHS).read(body) else { panic!("{}", String::from_utf8_lossy(body)) };
    (unreadable.status.as_u16(), unreadable.detail)
}

/// Whether `max_tokens` is read as 5.
fn reads_five(body: &str) -> bool {
    let asked = asking(&PATHS);
    let members = asked.read(body.as_bytes()).unwrap_or_else(|unreadable| panic!("{body}: {unreadable:?}"));
    let found = members[0].get(&path("max_tokens"));
    found.map(|found| found.whole_number(&path("max_tokens"))) == Some(Ok(Some(5)))
}

#[test]
fn what_parsers_read_alike_is_read() {
    for body in [
        r#"{"max_tokens":5}"#,
        " \r\n\t{ \"max_tokens\" : 5 } \n",
        r#"{"m\u0061x_tokens":5}"#,
        r#"{"tools":[{"stream":1,"stream":2,"Stream":3}],"max_tokens":5}"#,
        r#"{"params":{"arguments":{"x":{"a":1,"a":2}}},"max_tokens":5}"#,
        r#"{"text":"\ud800","max_tokens":5}"#,
        r#"{"\ud800":1,"max_tokens":5}"#,
        r#"{"params":"text","max_tokens":5}"#,
        r#"{"params":[{"name":1}],"max_tokens":5}"#,
        r#"{"mäx_tokens":6,"max_tokens":5}"#,
    ] {
        assert!(reads_five(body), "{body}");
    }
    let deep = format!("{{\"tools\":{}{},\"max_tokens\":5}}", "[".repeat(999), "]".repeat(999));
    assert!(reads_five(&deep));
    // Brackets in texts are no levels.
    assert!(reads_five(&format!("{{\"a\":\"{}\\\"{{\",\"max_tokens\":5}}", "[".repeat(5_000))));
    let many: String = (0..1_023).map(|n| format!("\"m{n}\":0,")).collect();
    assert!(reads_five(&format!("{{{many}\"max_tokens\":5}}")));
}

#[test]
fn a_name_that_comes_twice_is_refused_where_a_path_walks() {
    for body in [
        r#"{"max_tokens":5,"max_tokens":5}"#,
        r#"{"max_tokens":5,"m\u0061x_tokens":6}"#,
        r#"{"other":1,"other":1}"#,
        r#"{"params":{"a":1,"a":1}}"#,
        r#"{"params":{"arguments":{"city":1,"city":2}}}"#,
        r#"{"\ud800":1,"\ud800":2}"#,
        r#"[{"params":{"name":1,"name":1}}]"#,
    ] {
        let (status, detail) = refused(body);
        assert!(
            status == 400
                && detail.starts_with("The request's body has the member `")
                && detail.ends_with("` twice."),
            "{body}: {detail}"
        );
    }
}

#[test]
fn a_name_that_some_take_for_an_asked_one_is_refused() {
    for name in [
        "Stream",
        "STREAM",
        "ſtream",
        "ｓｔｒｅａｍ",
        "\u{ff33}tream",
        "Max_Tokens",
        "maX_toKens",
        "max_to\u{212a}ens",
        "Params",
        " stream",
        "stream\\t",
        "max_tokens\\u0000x",
    ] {
        let (status, detail) = refused(format!("{{\"{name}\":5}}"));
        assert!(status == 400 && detail.contains("which some servers take for `"), "{name}: {detail}");
    }
    for (body, asked) in [
        (r#"{"params":{"Name":1}}"#, "name"),
        (r#"{"params":{"arguments":{"cıty":1}}}"#, "city"),
        (r#"{"params":{"arguments":{"cİty":1}}}"#, "city"),
    ] {
        let (_, detail) = refused(body);
        assert!(detail.contains(&format!("for `{asked}`")), "{body}: {detail}");
    }
}

#[test]
fn what_is_no_json_is_refused_with_its_place() {
    for body in [
        "{",
        "[",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "[1,]",
        "{} {}",
        "{}x",
        "NaN",
        "{\"a\":NaN}",
        "{\"a\":-Infinity}",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u00g0\"}",
        "// c\n{}",
        "{\"a\":1/**/}",
        "\u{feff}{}",
        "  ",
        "\u{a0}{}",
        "tru",
        "{\"max_tokens\":5",
        "{\"a\":\u{2028}1}",
    ] {
        let (status, detail) = refused(body);
        assert!(
            status == 400
                && detail.starts_with("The request's body is no JSON: ")
                && detail.contains("line "),
            "{body}: {detail}"
        );
    }
    let (status, detail) = refused(b"{\"a\":\"\xFF\"}");
    assert_eq!((status, detail.as_str()), (400, "The request's body is not UTF-8 at byte 6."));
    for utf16 in [&b"{\x00\"\x00a\x00\"\x00:\x001\x00}\x00"[..], b"\x00{\x00}", b"\xFF\xFE{\x00}\x00"] {
        assert_eq!(refused(utf16).0, 400);
    }
}

#[test]
fn what_would_take_much_memory_is_refused() {
    let (status, detail) = refused("[".repeat(16 << 20));
    assert_eq!((status, detail.as_str()), (400, "The request's body is nested more than 1000 levels deep."));
    let many: String = (0..1_025).map(|n| format!("\"m{n}\":0,")).collect();
    let (_, detail) = refused(format!("{{{many}\"max_tokens\":5}}"));
    assert!(detail.contains("an object has more than 1024 members"), "{detail}");
    let batch = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    assert_eq!(asking(&PATHS).read(batch(64).as_bytes()).unwrap().len(), 64);
    let (status, detail) = refused(batch(65));
    assert_eq!((status, detail.as_str()), (413, "The request's body is an array of more than 64 elements."));
}

#[test]
fn a_long_name_is_shown_in_part() {
    let name = "n".repeat(100_000);
    let (_, detail) = refused(format!("{{\"{name}\":1,\"{name}\":1}}"));
    assert!(detail.len() < 200 && detail.contains('…'), "{detail}");
    let (_, detail) = refused("{\"\u{202e}\":1,\"\u{202e}\":1}");
    assert!(!detail.contains('\u{202e}'), "{detail}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Whatever is read is what serde_json reads, which takes the last of members that come twice.
    #[test]
    fn what_is_read_is_what_is_there(pieces in prop::collection::vec(prop::sample::select(&[
        "{", "}", "[", "]", ",", ":", " ", "\"params\"", "\"name\"", "\"stream\"", "\"max_tokens\"", "\"Name\"", "5", "1e3", "-1",
        "null", "true", "\"a\"", "\"\\u006eame\"", "{\"name\":1}", "{\"params\":{\"name\":\"x\"}}",
    ][..]), 0..14)) {
        let body = pieces.concat();
        let asked = asking(&PATHS);
        if let Ok(found) = asked.read(body.as_bytes()) && !body.is_empty() {
            let whole: Value = match serde_json::from_str(&body) {
                Ok(whole) => whole,
                // It has no form for 1e355.
                Err(error) => {
                    prop_assert!(error.to_string().contains("out of range"), "{}: {}", body, error);
                    return Ok(());
                }
            };
            let uses = if let Value::Array(uses) = &whole { uses.as_slice() } else { std::slice::from_ref(&whole) };
            prop_assert_eq!(found.len(), uses.len());
            for (members, of) in found.iter().zip(uses) {
                for text in PATHS {
                    let expected = text.split('.').try_fold(of, |value, name| value.get(name)).filter(|value| !value.is_null());
                    prop_assert_eq!(members.get(&path(text)).is_some(), expected.is_some(), "{} in {}", text, body);
                }
            }
        }
    }
}
