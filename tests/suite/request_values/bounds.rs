//! What a request says of the tokens that its response may have.

use tollgate::request_values::{AskedMembers, AskedOutput, BodyRefusal, OutputBounds};

use super::path;

fn asked(body: &str) -> Result<AskedOutput, BodyRefusal> {
    let bounds = OutputBounds::new(&["max_tokens", "limits.outputTokens"].map(path), true);
    let asked = AskedMembers::new(bounds.paths());
    bounds.asked(&asked.read(body.as_bytes())?[0])
}

/// The most tokens that it asks for.
fn read(body: &str) -> Result<Option<u64>, BodyRefusal> {
    asked(body).map(|asked| asked.bound.map(|bound| bound.saturating_mul(asked.responses)))
}

#[test]
fn the_greatest_number_counts_times_the_responses() {
    for (body, tokens) in [
        (r#"{"messages":[{"max_tokens":1}],"max_tokens":100}"#, 100),
        (r#"{"max_tokens":100,"max_completion_tokens":7}"#, 100),
        (r#"{"max_completion_tokens":0,"max_tokens":5000}"#, 5_000),
        (r#"{"max_tokens":100,"max_completion_tokens":null}"#, 100),
        (r#"{"max_tokens":100,"max_completion_tokens":-1}"#, 100),
        (r#"{"max_tokens":100.0,"n":3e0}"#, 300),
        (r#"{"max_tokens":1e3}"#, 1_000),
        (r#"{"max_tokens":1E+3}"#, 1_000),
        (r#"{"max_tokens":-0}"#, 0),
        (r#"{"max_tokens":18446744073709551616}"#, u64::MAX),
        (r#"{"n":null,"max_output_tokens":100}"#, 100),
        (r#"{"n":0,"max_output_tokens":100}"#, 100),
        (r#"{"n":-5,"max_output_tokens":100}"#, 100),
        (r#"{"max_tokens":100,"n":1,"best_of":20}"#, 2_000),
        (r#"{"candidateCount":1,"n":128,"max_tokens":1}"#, 128),
        (r#"{"contents":[],"generationConfig":{"candidateCount":2,"maxOutputTokens":256}}"#, 512),
        (r#"{"contents":[],"generation_config":{"candidate_count":2,"max_output_tokens":256}}"#, 512),
        (r#"{"generationConfig":{"max_output_tokens":256,"candidate_count":3}}"#, 768),
        (r#"{"generation_config":{"maxOutputTokens":256,"candidateCount":3}}"#, 768),
        (r#"{"maxTokens":256,"max_tokens":1}"#, 256),
        (r#"{"limits":{"output_tokens":9}}"#, 9),
        (r#"{"max_tokens":1000000000,"n":1000000000}"#, 1_000_000_000_000_000_000),
        (r#"{"max_tokens":10,"prompt":"a"}"#, 10),
        (r#"{"max_tokens":10,"prompt":["a","b","c"]}"#, 30),
        (r#"{"max_tokens":10,"prompt":[[1,2],[3]],"n":2}"#, 40),
        (r#"{"max_tokens":10,"prompt":[1,2,3]}"#, 10),
        (r#"{"max_tokens":10,"prompt":[]}"#, 10),
        (r#"{"max_tokens":10,"prompt":{"id":"p"}}"#, 10),
    ] {
        assert_eq!(read(body), Ok(Some(tokens)), "{body}");
    }
}

#[test]
fn bodies_without_a_number_have_none() {
    for body in [
        "",
        "{}",
        "[{}]",
        "5",
        "\"a\"",
        "{\"n\":3}",
        "{\"max_tokens\":null}",
        "{\"max_tokens\":-1}",
        "{\"max_tokens\":-1e3}",
    ] {
        assert_eq!(read(body), Ok(None), "{body}");
    }
}

#[test]
fn what_is_no_whole_number_is_unreadable() {
    for body in [
        r#"{"max_tokens":1.5}"#,
        r#"{"max_tokens":"5"}"#,
        r#"{"max_tokens":true}"#,
        r#"{"max_tokens":[5]}"#,
        r#"{"max_tokens":{}}"#,
        r#"{"max_tokens":1e999}"#,
        r#"{"max_tokens":1e-1}"#,
        r#"{"max_tokens":5,"n":0.5}"#,
        r#"{"max_tokens":5,"best_of":"2"}"#,
    ] {
        let unreadable = read(body).unwrap_err();
        assert!(
            unreadable.status == 400 && unreadable.detail.contains("no whole number at `"),
            "{body}: {unreadable:?}"
        );
    }
}

#[test]
fn responses_count_without_a_bound_and_a_bound_of_zero_is_none() {
    for (body, bound, responses, is_bounded) in [
        (r#"{"n":128}"#, None, 128, false),
        (r#"{"prompt":["a","b"],"best_of":3}"#, None, 6, false),
        (r#"{"max_tokens":5}"#, Some(5), 1, true),
        (r#"{"max_tokens":0}"#, Some(0), 1, false),
        (r#"{"max_tokens":-1,"max_completion_tokens":5}"#, Some(5), 1, false),
        ("{}", None, 1, false),
    ] {
        assert_eq!(asked(body), Ok(AskedOutput { bound, responses, is_bounded }), "{body}");
    }
    assert_eq!(asked(r#"{"n":"128"}"#).unwrap_err().status, 400);
}
