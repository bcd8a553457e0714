//! The event of a stream that only tells the usage, taken out again.

use bytes::Bytes;
use proptest::prelude::*;
use tollgate::response_cost::UsageEventFilter;

use super::{pieces, providers::OPENAI_STREAM_WITH_USAGE};

fn filter(body: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut filter = UsageEventFilter::new();
    let mut passed = Vec::new();
    for piece in pieces(body, lengths) {
        passed.extend(filter.filter(&Bytes::copy_from_slice(piece)));
    }
    passed.extend(filter.finish());
    passed
}

#[test]
fn only_the_event_with_the_usage_is_taken_out() {
    let events: Vec<&str> = OPENAI_STREAM_WITH_USAGE.split_inclusive("\n\n").collect();
    let expected = [&events[..3], &events[4..]].concat().concat();
    assert!(events[3].contains("\"choices\":[]"));
    let body = OPENAI_STREAM_WITH_USAGE.as_bytes();
    for at in 1..=body.len() {
        assert_eq!(filter(body, &[at, usize::MAX]), expected.as_bytes(), "split at {at}");
    }
    assert_eq!(filter(body, &[1]), expected.as_bytes(), "byte by byte");
}

#[test]
fn an_event_passes_when_it_is_complete() {
    let mut filter = UsageEventFilter::new();
    for event in [
        "data: {\"choices\":[1]}\n\n",
        "data: [DONE]\r\n\r\n",
        ": alive\n",
        "\n",
        ": a\n: b\n\n",
        "id: 1\r\r",
    ] {
        let event = Bytes::from_static(event.as_bytes());
        let passed = filter.filter(&event);
        assert_eq!(passed, event);
        assert_eq!(passed.as_ptr(), event.as_ptr(), "it was copied");
    }
    assert_eq!(filter.filter(&Bytes::from_static(b"data: 1\n\ndata")), "data: 1\n\n");
    assert_eq!(filter.filter(&Bytes::from_static(b": 2\n")), "");
    assert_eq!(filter.filter(&Bytes::from_static(b"\ndata: 3\n\nda")), "data: 2\n\ndata: 3\n\n");
    assert_eq!(filter.filter(&Bytes::new()), "");
    assert_eq!(filter.finish(), "da");
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"total_tokens\":5}}";

#[test]
fn a_line_break_is_taken_out_with_its_event() {
    let passed = |chunks: &[&'static str]| {
        let mut filter = UsageEventFilter::new();
        let mut passed: Vec<_> =
            chunks.iter().map(|chunk| filter.filter(&Bytes::from_static(chunk.as_bytes()))).collect();
        passed.push(filter.finish());
        passed.concat()
    };
    assert_eq!(passed(&[USAGE, "\r\n\r", "\ndata: 1\n\n"]), b"data: 1\n\n");
    assert_eq!(passed(&[USAGE, "\r\n\r", "", "\n", "\n"]), b"\n");
    assert_eq!(passed(&["data: 1\r\n\r", "\n", USAGE, "\r\n\r\n"]), b"data: 1\r\n\r\n");
    // At the end of the body too, where its empty line is missing.
    assert_eq!(passed(&["data: 1\n\n", USAGE, "\n"]), b"data: 1\n\n");
    assert_eq!(passed(&["data: 1\n\n", USAGE]), b"data: 1\n\n");
}

#[test]
fn a_long_event_passes_and_little_is_held_back() {
    let padding = "x".repeat(1 << 20);
    let long = format!("data: {{\"choices\":[],\"usage\":{{\"x\":\"{padding}\"}}}}\n\n");
    let body = format!("{long}{USAGE}\n\n{long}");
    let mut filter = UsageEventFilter::new();
    let (mut read, mut passed) = (0, Vec::new());
    for chunk in body.as_bytes().chunks(1_000) {
        read += chunk.len();
        passed.extend(filter.filter(&Bytes::copy_from_slice(chunk)));
        assert!(read - passed.len() <= 64 << 10, "{read} bytes were read, {} passed", passed.len());
    }
    passed.extend(filter.finish());
    assert_eq!(passed, format!("{long}{long}").as_bytes());
    assert_eq!(self::filter(body.as_bytes(), &[usize::MAX]), passed);
    let other_field = format!("id: {}\n{USAGE}\n\n", &padding[..40_000]);
    for length in [1_000, 30_000, usize::MAX] {
        assert_eq!(self::filter(other_field.as_bytes(), &[length]), other_field.as_bytes(), "{length}");
    }
}

/// An event, and whether it is taken out.
fn event() -> impl Strategy<Value = (String, bool)> {
    let kept = prop::sample::select(&[
        "data: {\"choices\":[{}],\"usage\":{\"total_tokens\":5}}\n",
        "data: {\"choices\":[],\"usage\":null}\n",
        "data: {\"choices\":[]}\n",
        "data: {\"usage\":{}}\n",
        "data: {\"choices\":null,\"usage\":{}}\n",
        "data: {\"choices\":{},\"usage\":{}}\n",
        "data: {\"choices\":[[]],\"usage\":{}}\n",
        "data: {\"x\":{\"choices\":[],\"usage\":{}}}\n",
        "data: [[],{}]\n",
        "data: [DONE]\n",
        "datum: {\"choices\":[],\"usage\":{}}\n",
        "data: {\"choices\":[],\"usage\":{}\n",
        "data: {\"choices\":[],\"usage\":{}}}\n",
        "data: {\"choices\":[],\"usage\":1\ndata:2}\n",
        "event: x\nid: 5\n: {\"choices\":[],\"usage\":{}}\n",
        ": alive\n",
        "data\n",
        "",
    ]);
    let removed = prop::sample::select(&[
        "data: {\"choices\":[],\"usage\":{\"total_tokens\":5}}\n",
        "data:{\"usage\" : {},\ndata:\"\\u0063hoices\":[ ],\"id\":\"x\"}\n",
        "event: x\ndata: \ndata: {\"choices\":[],\n: comment\ndata: \"usage\":5}\nid: 1\n",
    ]);
    prop_oneof![
        3 => kept.prop_map(|event| (event.to_owned() + "\n", false)),
        1 => removed.prop_map(|event| (event.to_owned() + "\n", true)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn all_else_passes_byte_for_byte(
        events in prop::collection::vec(event(), 0..8),
        end in prop::sample::select(&["\n", "\r\n", "\r"]),
        has_mark in any::<bool>(),
        unfinished in prop::sample::select(&["", "data: {\"choices\":[]", "data", ": x", "\u{feff}"]),
        lengths in prop::collection::vec(1..60_usize, 1..6),
    ) {
        // A byte order mark belongs to the first event.
        let mut events = events;
        if has_mark && let Some((first, _)) = events.first_mut() {
            first.insert(0, '\u{feff}');
        }
        let (mut body, mut expected) = (String::new(), String::new());
        for (event, is_removed) in events.into_iter().chain([(unfinished.to_owned(), false)]) {
            let event = event.replace('\n', end);
            body += &event;
            expected += if is_removed { "" } else { &event };
        }
        prop_assert_eq!(String::from_utf8(filter(body.as_bytes(), &lengths)).unwrap(), expected);
    }

    #[test]
    fn anything_passes(bytes in prop::collection::vec(prop_oneof![
        any::<u8>(), prop::sample::select(b"\r\n:data {}".as_slice())
    ], 0..300), lengths in prop::collection::vec(1..60_usize, 1..6)) {
        prop_assert_eq!(filter(&bytes, &lengths), bytes);
    }
}
