//! Values that have names: where they are, and their groups.

use std::sync::Arc;

use tollgate::{
    config::{self, Config, SystemLookup},
    request_values::{
        AskedMembers, Form, FoundValue, FoundValues, QueryFields, ReadBody, RequestTarget, RequestValue,
    },
};

/// The value that this line configures.
fn value(line: &str) -> Arc<RequestValue> {
    let text = format!("values: {{ v: {line} }}\nroutes: [{{ path: /*, reply: {{ status: 200 }} }}]");
    let Config { values, .. } = config::parse("proxy.yaml", &text, &SystemLookup).unwrap();
    values[0].clone()
}

/// What it is in a request, or the status of the refusal.
fn found(value: &Arc<RequestValue>, body: ReadBody<'_, '_>, path: &str) -> Result<Option<String>, u16> {
    let path = RequestTarget { sent: path, loosest: path, query: QueryFields::NONE };
    let found = FoundValues::read([value], body, path).map_err(|refusal| refusal.status.as_u16())?;
    Ok(match found.get("v") {
        FoundValue::Absent => None,
        FoundValue::Text(text) => Some(text.to_string()),
        FoundValue::Unreadable => Some("?".to_owned()),
    })
}

fn in_json(value: &Arc<RequestValue>, body: &str) -> Result<Option<String>, u16> {
    let asked = AskedMembers::new(value.paths());
    let uses = asked.read(body.as_bytes()).map_err(|refusal| refusal.status.as_u16())?;
    found(value, ReadBody::Json(&uses[0]), "/")
}

fn in_path(value: &Arc<RequestValue>, path: &str) -> Result<Option<String>, u16> {
    found(value, ReadBody::Nothing, path)
}

#[test]
fn a_member_is_a_text_or_a_whole_number() {
    let model = value("{ json: a.model }");
    for (body, text) in [
        (r#"{"a":{"model":"gpt-4o"}}"#, Some("gpt-4o")),
        (r#"{"a":{"model":"\u0067pt"}}"#, Some("gpt")),
        (r#"{"a":{"model":17}}"#, Some("17")),
        (r#"{"a":{"model":17.0}}"#, Some("17")),
        (r#"{"a":{"model":-5}}"#, Some("-5")),
        (r#"{"a":{"model":1e2}}"#, Some("100")),
        (r#"{"a":{"model":""}}"#, None),
        (r#"{"a":{"model":null}}"#, None),
        (r#"{"a":[{"model":"x"}]}"#, None),
        (r#"{"model":"x"}"#, None),
        ("{}", None),
        ("\"model\"", None),
    ] {
        assert_eq!(in_json(&model, body), Ok(text.map(str::to_owned)), "{body}");
    }
    for body in [
        r#"{"a":{"model":true}}"#,
        r#"{"a":{"model":["gpt"]}}"#,
        r#"{"a":{"model":{}}}"#,
        r#"{"a":{"model":1.5}}"#,
        r#"{"a":{"model":"\ud800"}}"#,
        r#"{"a":{"model":"x","model":"y"}}"#,
        r#"{"a":{"model":"x","Model":"y"}}"#,
        r#"{"A":{"model":"x"}}"#,
    ] {
        assert_eq!(in_json(&model, body), Err(400), "{body}");
    }
}

#[test]
fn a_condition_is_another_text_of_the_same_json() {
    let tool = value("{ json: params.name, if: { method: tools/call, jsonrpc: \"2.0\" } }");
    let call =
        |method: &str| format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{{"name":"search"}}}}"#);
    assert_eq!(in_json(&tool, &call(r#""tools/call""#)), Ok(Some("search".to_owned())));
    for method in [r#""tools/list""#, "null", "7", r#"["tools/call"]"#, r#""Tools/Call""#] {
        assert_eq!(in_json(&tool, &call(method)), Ok(None), "{method}");
    }
    assert_eq!(in_json(&tool, r#"{"method":"tools/call","params":{"name":"search"}}"#), Ok(None));
    assert_eq!(in_json(&tool, &call(r#""\ud800""#)), Err(400));
    // Some servers take a number or a word for the text of it.
    let stream = value("{ json: model, if: { stream: true, version: 2 } }");
    for (flag, version, is_met) in [
        ("true", "2", true),
        (r#""true""#, r#""2""#, true),
        ("true", "2.0", true),
        ("false", "2", false),
        ("[true]", "2", false),
    ] {
        let body = format!(r#"{{"model":"x","stream":{flag},"version":{version}}}"#);
        assert_eq!(in_json(&stream, &body), Ok(is_met.then(|| "x".to_owned())), "{body}");
    }
}

#[test]
fn the_longest_pattern_that_matches_names_the_group() {
    let model = value(
        "{ json: model, groups: { big: [\"gpt-4o*\", \"o?(1)\"], mini: [\"gpt-4o-mini*\", \"*-tiny\"], all: \"b*r*z\" } }",
    );
    for (text, group) in [
        ("gpt-4o", "big"),
        ("gpt-4o-2026", "big"),
        ("gpt-4o-mini", "mini"),
        ("gpt-4o-mini-x", "mini"),
        ("gpt-4o-tiny", "big"),
        ("x-tiny", "mini"),
        ("o?(1)", "big"),
        ("o1", "other"),
        ("bar\\nbaz", "all"),
        ("GPT-4o", "other"),
        (" gpt-4o", "other"),
    ] {
        assert_eq!(
            in_json(&model, &format!(r#"{{"model":"{text}"}}"#)),
            Ok(Some(group.to_owned())),
            "{text}"
        );
    }
}

#[test]
fn folded_texts_are_one() {
    let login = value("{ json: login, fold: true, groups: { admins: [root, strasse] } }");
    for text in [
        "root",
        "ROOT",
        " Root\\t",
        "\\uff32oot",
        "STRASSE",
        "strasse",
        "root\\u0000",
        "\\u200bro\\u00adot\\ufeff",
        "ro\u{301}ót\u{fe0f}",
    ] {
        let body = format!(r#"{{"login":"{text}"}}"#);
        assert_eq!(in_json(&login, &body), Ok(Some("admins".to_owned())), "{text}");
    }
    assert_eq!(in_json(&login, r#"{"login":"  "}"#), Ok(None));
    let any = value("{ json: login, fold: true }");
    for text in ["ΝΙΚΟΣ", "νικος", "νικοσ"] {
        assert_eq!(
            in_json(&any, &format!(r#"{{"login":"{text}"}}"#)),
            Ok(Some("νικοσ".to_owned())),
            "{text}"
        );
    }
    let long = format!(r#"{{"login":"{}"}}"#, "x".repeat(1_025));
    assert_eq!(in_json(&any, &long), Err(400));
}

#[test]
fn a_part_of_the_path_is_a_value() {
    let model = value("{ path: \"/v1beta/models/{model}:*\" }");
    for (path, text) in [
        ("/v1beta/models/gemini-pro:generateContent", Some("gemini-pro")),
        ("/V1BETA/models/gemini-pro:", Some("gemini-pro")),
        ("/v1beta/models/gemini%20pro:x/y", Some("gemini pro")),
        ("/v1beta/models/:x", None),
        ("/v1beta/models/a/b:x", None),
        ("/v1beta/models/gemini-pro", None),
        ("/x/v1beta/models/gemini-pro:x", None),
    ] {
        assert_eq!(in_path(&model, path), Ok(text.map(str::to_owned)), "{path}");
    }
    for path in ["/v1beta/models/a:b:c", "/v1beta/models/%ff:x"] {
        assert_eq!(in_path(&model, path), Err(400), "{path}");
    }
    let both = |sent, loosest| {
        let path = RequestTarget { sent, loosest, query: QueryFields::NONE };
        FoundValues::read([&model], ReadBody::Nothing, path)
            .map(|found| found.key_text("v").map(str::to_owned))
            .ok()
    };
    let slash = both("/v1beta/models/meta%2Fllama:x", "/v1beta/models/meta/llama:x");
    assert_eq!(slash, Some(Some("meta/llama".to_owned())));
    assert_eq!(both("/v1beta/models/a;b:x", "/v1beta/models/a:x"), None);
    let vertex = value("{ path: \"/v1/projects/{project}/models/{v}:*\" }");
    assert_eq!(in_path(&vertex, "/v1/projects/p/models/m:predict"), Ok(Some("m".to_owned())));
    let exact = value("{ path: \"/users/{id}/orders\" }");
    for path in ["/users/7/orders", "/users/7/orders/"] {
        assert_eq!(in_path(&exact, path), Ok(Some("7".to_owned())), "{path}");
    }
    assert_eq!(in_path(&exact, "/users/7/orders/8"), Ok(None));
}

#[test]
fn the_first_place_that_has_it_counts() {
    let model = value("[{ json: model }, { form: model }, { path: \"/models/{model}\" }]");
    assert_eq!(in_path(&model, "/models/a"), Ok(Some("a".to_owned())));
    let form = |body: &'static str| found(&model, ReadBody::Form(Form::new(body.as_bytes())), "/models/a");
    assert_eq!(form("model=b"), Ok(Some("b".to_owned())));
    assert_eq!(form("model="), Ok(Some("a".to_owned())));
    let at = |path| RequestTarget { sent: path, loosest: path, query: QueryFields::NONE };
    let query = QueryFields::read([&model], "a=1&model=c");
    let in_query = |body| {
        let target = RequestTarget { sent: "/", loosest: "/", query: &query };
        let found = FoundValues::read([&model], body, target);
        found.map(|found| found.key_text("v").map(str::to_owned)).ok()
    };
    assert_eq!(in_query(ReadBody::Nothing), Some(Some("c".to_owned())));
    assert_eq!(in_query(ReadBody::Form(Form::new(b"model=c"))), Some(Some("c".to_owned())));
    assert_eq!(in_query(ReadBody::Form(Form::new(b"model=b"))), None);
    assert!(model.needs_body(at("/models/a")));
    let path_first = value("[{ path: \"/models/{model}\" }, { json: model }]");
    assert!(!path_first.needs_body(at("/models/a")) && path_first.needs_body(at("/models")));
}
