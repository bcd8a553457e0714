//! What a request says of the tokens that its response may have.

use tollgate::response_cost::{JsonPath, RequestNumber};

fn read(body: &str) -> Option<u64> {
    let paths =
        ["max_completion_tokens", "max_tokens", "max_output_tokens", "generationConfig.maxOutputTokens"];
    let paths = paths.map(|path| JsonPath::parse(path).unwrap()).to_vec();
    RequestNumber::new(paths).unwrap().read(body.as_bytes())
}

#[test]
fn the_first_name_counts_times_the_number_of_responses() {
    assert_eq!(read(r#"{"messages":[{"max_tokens":1}],"max_tokens":100}"#), Some(100));
    assert_eq!(read(r#"{"max_tokens":100,"max_completion_tokens":7}"#), Some(7));
    assert_eq!(read(r#"{"max_tokens":100,"max_completion_tokens":null}"#), Some(100));
    assert_eq!(read(r#"{"max_tokens":100,"n":3}"#), Some(300));
    assert_eq!(read(r#"{"n":null,"max_output_tokens":100}"#), Some(100));
    assert_eq!(read(r#"{"n":0,"max_output_tokens":100}"#), Some(100));
    let gemini = r#"{"contents":[],"generationConfig":{"candidateCount":2,"maxOutputTokens":256}}"#;
    assert_eq!(read(gemini), Some(512));
    assert_eq!(read(r#"{"max_tokens":1000000000,"n":1000000000}"#), Some(1_000_000_000_000_000_000));
}

#[test]
fn bodies_without_a_valid_number_have_no_cost() {
    for body in
        ["", "{}", "[]", "5", "{\"n\":3}", "max_tokens=5", "{\"max_tokens\":\"5\"}", "{\"max_tokens\":null}"]
    {
        assert_eq!(read(body), None, "{body}");
    }
    for body in [
        r#"{"max_tokens":-1}"#,
        r#"{"max_tokens":1.5}"#,
        r#"{"max_tokens":5,"n":-1}"#,
        r#"{"max_tokens":5,"max_completion_tokens":-1}"#,
        r#"{"max_tokens":1e10}"#,
    ] {
        assert_eq!(read(body), None, "{body}");
    }
}
