//! Chat completion requests that are edited to ask for their usage.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate::request_values::{AskedMembers, BodyRefusal, ask_for_usage, usage_paths};

/// The edited body, as text.
fn edited(body: &str) -> Result<Option<String>, BodyRefusal> {
    let asked = AskedMembers::new(usage_paths());
    let members = asked.read(body.as_bytes())?;
    let edited = ask_for_usage(&members[0], "/v1/completions", body.as_bytes())?;
    Ok(edited.map(|body| String::from_utf8(body).unwrap()))
}

fn asked(body: &str) -> Option<String> {
    edited(body).unwrap_or_else(|unreadable| panic!("{body}: {unreadable:?}"))
}

#[test]
fn the_option_is_added_and_all_else_stays() {
    for (body, edited) in [
        (
            r#"{"model":"m","messages":[],"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","messages":[],"stream":true}"#,
        ),
        (
            " \r\n{ \"messages\" : [ ] , \"stream\" : true }\n",
            " \r\n{\"stream_options\":{\"include_usage\":true}, \"messages\" : [ ] , \"stream\" : true }\n",
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options":{}}"#,
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options": null }"#,
            r#"{"messages":[],"stream":true,"stream_options": {"include_usage":true} }"#,
        ),
        (
            r#"{"messages":[],"stream_options": { "include_obfuscation":false }, "stream":true}"#,
            r#"{"messages":[],"stream_options": {"include_usage":true, "include_obfuscation":false }, "stream":true}"#,
        ),
        (
            r#"{"stream_options":{"x":{"include_usage":1},"include_usage" :false},"messages":[],"stream":true}"#,
            r#"{"stream_options":{"x":{"include_usage":1},"include_usage" :true},"messages":[],"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"include_usage":null},"messages":[],"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"messages":[],"stream":true}"#,
        ),
        (
            r#"{"str\u0065am_options":{"include_us\u0061ge":false},"messages":[],"stre\u0061m":true}"#,
            r#"{"str\u0065am_options":{"include_us\u0061ge":true},"messages":[],"stre\u0061m":true}"#,
        ),
    ] {
        assert_eq!(asked(body).as_deref(), Some(edited));
        assert_eq!(asked(edited), None, "asked again");
    }
}

#[test]
fn bodies_that_do_not_stream_stay() {
    for body in [
        "",
        "{}",
        "null",
        r#"[{"messages":[],"stream":true}]"#,
        r#"{"messages":[]}"#,
        r#"{"messages":[],"stream":false}"#,
        r#"{"messages":[],"stream":null}"#,
        r#"{"messages":[],"options":{"stream":true}}"#,
        r#"{"messages":null,"stream":true}"#,
        // The Responses API
        r#"{"input":"a","stream":true}"#,
        r#"{"prompt":{"id":"a"},"stream":true}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
    ] {
        assert_eq!(asked(body), None, "{body}");
    }
    for prompt in ["\"a\"", "[\"a\"]", "[1,2]"] {
        let rest = format!("\"prompt\":{prompt},\"stream\":true}}");
        let expected = format!("{{\"stream_options\":{{\"include_usage\":true}},{rest}");
        assert_eq!(asked(&format!("{{{rest}")), Some(expected), "completions");
    }
}

#[test]
fn requests_that_servers_read_in_different_ways_are_refused() {
    for body in [
        r#"{"messages":[],"stream":"true"}"#,
        r#"{"messages":[],"stream":1}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":"no"}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":0}}"#,
        r#"{"messages":[],"stream":true,"stream_options":[false]}"#,
        r#"{"messages":[],"stream":true,"stream_options":5}"#,
        r#"{"messages":[],"Stream":true}"#,
        r#"{"messages":[],"stream":true,"stream":true}"#,
        r#"{"messages":[],"stream":true,"stream_options":{},"stream_options":null}"#,
        r#"{"messages":[],"stream":true,"stream_options":{},"stream\u005foptions":{}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false,"include_usage":false}}"#,
        r#"{"messages":[],"stream":true"#,
        r#"{"messages":[],"stream":true,}"#,
        r#"{"messages":[],"stream":true}}"#,
        "\u{feff}{\"messages\":[],\"stream\":true}",
    ] {
        assert_eq!(edited(body).unwrap_err().status, 400, "{body}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\],: é\n]{0,12}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        prop::sample::select(&["stream", "stream_options", "include_usage", "messages"])
            .prop_map(str::to_owned),
        "[a-z\"{}]{0,4}",
    ];
    leaf.prop_recursive(4, 30, 5, move |inner| {
        let members = prop::collection::vec((name.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_request_is_the_same_but_for_the_option(
        members in prop::collection::vec(("[a-z\"{}]{0,4}", value()), 0..5),
        options in prop::option::of(prop_oneof![
            prop::sample::select(&["null", "{}", "{\"include_usage\":false}", "{\"include_usage\":null}"])
                .prop_map(|options| serde_json::from_str::<Value>(options).unwrap()),
            value(),
        ]),
        is_pretty in any::<bool>(),
    ) {
        let mut request = Map::from_iter(members);
        request.insert("messages".to_owned(), json!([{ "role": "user", "content": "\"stream\":true" }]));
        request.insert("stream".to_owned(), json!(true));
        if let Some(options) = options {
            request.insert("stream_options".to_owned(), options);
        }
        let request = Value::Object(request);
        let text = if is_pretty { serde_json::to_string_pretty(&request).unwrap() } else { request.to_string() };
        let options = &request["stream_options"];
        let include = options.get("include_usage").unwrap_or(&Value::Null);
        let is_readable = (options.is_null() || options.is_object()) && (include.is_null() || include.is_boolean());
        let found = edited(&text);
        prop_assert_eq!(found.is_ok(), is_readable, "{}", text);
        prop_assert_eq!(matches!(found, Ok(None)), is_readable && *include == json!(true), "{}", text);
        if let Ok(Some(edited)) = found {
            let mut expected = request.clone();
            if expected["stream_options"].is_null() {
                expected["stream_options"] = json!({});
            }
            expected["stream_options"]["include_usage"] = json!(true);
            prop_assert_eq!(serde_json::from_str::<Value>(&edited).unwrap(), expected);
            // All else is there byte for byte, before and after the edit. Only `null` or `false` is lost.
            let before = text.bytes().zip(edited.bytes()).take_while(|(a, b)| a == b).count();
            let after = text.bytes().rev().zip(edited.bytes().rev()).take_while(|(a, b)| a == b).count();
            prop_assert!(before + after + 5 >= text.len(), "{} {}", text, edited);
        }
    }

    #[test]
    fn a_body_that_is_edited_was_json_and_is_json(body in "[\\[\\]{}:,\" truefalsn]{0,20}", at in 0..100_usize) {
        let text = r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false,"x":1}}"#;
        let mut text = text.to_owned();
        text.insert_str(at.min(text.len()), &body);
        if let Ok(Some(edited)) = edited(&text) {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            let edited: Value = serde_json::from_str(&edited).unwrap();
            prop_assert_eq!(&edited["stream_options"]["include_usage"], &json!(true));
        }
    }
}
