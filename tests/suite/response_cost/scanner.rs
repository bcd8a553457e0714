//! The scanner against serde_json on the whole text, and against whatever an upstream may send.

use std::{collections::HashMap, fmt, io::Write, sync::Arc};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use proptest::prelude::*;
use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use tollgate::{
    json_path::JsonPath,
    response_cost::{FoundNumber, JsonNumber, JsonSum, MAX_NUMBER, Unscannable},
};

use super::{EVENTS, JSON, LINES, gzip, pieces, read_all, scan, scanner};

/// Paths that share names, one that begins another, and names that JSON has to escape.
const NUMBERS: [(&[&str], u64); 3] =
    [(&["usage.total", "message.usage.total"], 1), (&["usage.out", "a.b"], 4), (&["a.b.\"c\\", "é"], 10)];

fn sum() -> Arc<JsonSum> {
    let numbers = NUMBERS.map(|(paths, times)| JsonNumber {
        paths: paths.iter().map(|path| JsonPath::parse(path).unwrap()).collect(),
        times,
        is_total: false,
    });
    Arc::new(JsonSum::new(numbers.to_vec()).unwrap())
}

/// The numbers that serde_json finds, in their order in the text.
#[derive(Default)]
struct Oracle {
    last: HashMap<usize, FoundNumber>,
    /// In an array of texts: the sums of its elements, and those without the current one.
    array: HashMap<usize, FoundNumber>,
    before: HashMap<usize, FoundNumber>,
}

impl Oracle {
    /// Reads a text, up to its first error.
    fn read(&mut self, text: &str) {
        let walk = Walk { oracle: self, place: Place::Outermost };
        let _ended = walk.deserialize(&mut serde_json::Deserializer::from_str(text));
    }

    fn total(&self) -> FoundNumber {
        if self.last.values().any(|found| *found == FoundNumber::Unusable) {
            return FoundNumber::Unusable;
        }
        let numbers = self.last.iter().filter_map(|(index, found)| Some(found.number()? * NUMBERS[*index].1));
        if self.last.is_empty() { FoundNumber::Nothing } else { FoundNumber::Number(numbers.sum()) }
    }
}

struct Walk<'o> {
    oracle: &'o mut Oracle,
    place: Place,
}

/// Where a value is.
#[derive(Clone)]
enum Place {
    Outermost,
    /// In the array of all texts.
    Text,
    Path(Vec<String>),
    /// In another array.
    Elsewhere,
}

impl Walk<'_> {
    fn number<E>(self, number: f64) -> Result<(), E> {
        let is_usable = number.fract() == 0.0 && (0.0..=MAX_NUMBER as f64).contains(&number);
        let found = if is_usable { FoundNumber::Number(number as u64) } else { FoundNumber::Unusable };
        for (index, (paths, _)) in NUMBERS.iter().enumerate() {
            if let Place::Path(names) = &self.place
                && paths.iter().any(|path| path.split('.').eq(names))
            {
                let before = self.oracle.before.get(&index).copied().unwrap_or_default();
                self.oracle.last.insert(index, before.plus(found));
                self.oracle.array.insert(index, before.plus(found));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(number as f64)
    }
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(number as f64)
    }
    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(number)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        if !matches!(self.place, Place::Outermost) {
            while values.next_element_seed(Walk { oracle: self.oracle, place: Place::Elsewhere })?.is_some() {
            }
            return Ok(());
        }
        (self.oracle.array, self.oracle.before) = Default::default();
        while values.next_element_seed(Walk { oracle: self.oracle, place: Place::Text })?.is_some() {
            self.oracle.before = self.oracle.array.clone();
        }
        self.oracle.before.clear();
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            let place = match &self.place {
                Place::Outermost | Place::Text => Place::Path(vec![name]),
                Place::Path(names) => Place::Path([&names[..], &[name]].concat()),
                Place::Elsewhere => Place::Elsewhere,
            };
            members.next_value_seed(Walk { oracle: self.oracle, place })?;
        }
        Ok(())
    }
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z\"\\\\{}\\[\\],:0-9 é\u{1}\n]{0,12}".prop_map(|text| Value::from(text).to_string()),
        Just(r#""{\"usage\":{\"total\":7}}""#.to_owned()),
        Just("\"\\ud83d\\ude00\"".to_owned()),
    ]
}

/// A name, as JSON or with each character escaped whose bit is set.
fn name() -> impl Strategy<Value = String> {
    const NAMES: [&str; 10] = ["usage", "total", "out", "message", "a", "b", "\"c\\", "é", "usag", "totals"];
    prop_oneof![
        6 => (prop::sample::select(&NAMES), prop_oneof![3 => Just(0_u8), 1 => any::<u8>()]).prop_map(|(name, escaped)| {
            let escape = |(at, c): (usize, char)| match c {
                _ if escaped >> (at % 8) & 1 == 1 => format!("\\u{:04x}", u32::from(c)),
                '"' | '\\' => format!("\\{c}"),
                _ => c.to_string(),
            };
            format!("\"{}\"", name.chars().enumerate().map(escape).collect::<String>())
        }),
        1 => string(),
    ]
}

/// JSON, with names that come twice, in any order.
fn text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        4 => (0..2_000_u64).prop_map(|number| number.to_string()),
        1 => (0..3_000_000_000_u64).prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => prop::sample::select(&[
            "0", "-0", "-1", "7.0", "7.5", "1e3", "12E+2", "500e-2", "5e-1", "1e9", "1000000001", "-0.0", "1e300",
            "123456789012345678901234567890", "18446744073709551615",
        ]).prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        2 => prop::sample::select(&["null", "true", "false"]).prop_map(str::to_owned),
        4 => number,
        1 => string(),
    ];
    let space = || prop::sample::select(&["", "", " ", "\n", "\t \n"]);
    leaf.prop_recursive(6, 40, 5, move |inner| {
        let values = prop::collection::vec(inner.clone(), 0..4);
        let members = prop::collection::vec((name(), inner), 0..6);
        prop_oneof![
            1 => (values, space()).prop_map(|(values, space)| {
                format!("[{space}{}{space}]", values.join(&format!("{space},")))
            }),
            4 => (members, space(), space()).prop_map(|(members, a, b)| {
                let member = |(name, value): &(String, String)| format!("{a}{name}{b}:{a}{value}{b}");
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![prop::collection::vec(1..9_usize, 1..6), prop::collection::vec(1..200_usize, 1..6)]
}

/// What is found in these pieces, also if they are compressed.
#[track_caller]
fn found(content_type: &str, body: &[u8], lengths: &[usize]) -> FoundNumber {
    let found = scan(&sum(), content_type, None, pieces(body, lengths));
    assert_eq!(scan(&sum(), content_type, Some("gzip"), pieces(&gzip(body), lengths)), found, "with gzip");
    found
}

fn no_break(text: &str) -> String {
    // Outside of strings only: in strings, they are escaped.
    text.replace('\n', " ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn finds_in_a_text_what_a_parser_finds(text in text(), lengths in lengths()) {
        let mut oracle = Oracle::default();
        oracle.read(&text);
        prop_assert_eq!(found(JSON, text.as_bytes(), &lengths), oracle.total());
    }

    #[test]
    fn finds_in_a_torn_text_what_a_parser_finds_before_its_end(text in text(), keep in 0.0..1.0, lengths in lengths()) {
        let torn = &text[..text.floor_char_boundary((text.len() as f64 * keep) as usize)];
        // A number that ends with the text may be the beginning of another one.
        let torn = torn.trim_end_matches(|c: char| c.is_ascii_digit() || "+-.eE".contains(c));
        let mut oracle = Oracle::default();
        oracle.read(torn);
        prop_assert_eq!(found(JSON, torn.as_bytes(), &lengths), oracle.total());
    }

    #[test]
    fn finds_in_lines_and_in_events_the_last_numbers_of_all(
        texts in prop::collection::vec(text(), 1..5),
        lengths in lengths(),
        end in prop::sample::select(&["\n", "\r\n", "\r"]),
        space in prop::sample::select(&["", " "]),
    ) {
        let mut oracle = Oracle::default();
        texts.iter().for_each(|text| oracle.read(text));
        let lines: String = texts.iter().map(|text| no_break(text) + "\n").collect();
        prop_assert_eq!(found(LINES, lines.as_bytes(), &lengths), oracle.total());
        let events: String = texts.iter().map(|text| {
            let data: String = text.split('\n').map(|line| format!("data:{space}{line}{end}")).collect();
            format!(": comment{end}event: data{end}{data}id: 5{end}datum: {{}}{end}{end}")
        }).collect();
        let events = format!("\u{feff}data: {{}}{end}{end}{events}data: [DONE]{end}{end}");
        prop_assert_eq!(found(EVENTS, events.as_bytes(), &lengths), oracle.total());
    }

    #[test]
    fn takes_anything(
        text in text(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), prop_oneof![
            any::<u8>(), prop::sample::select(b"{}[]\",:\\\n\rdata0123456789.eu".as_slice())
        ]), 0..8),
        bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\\n\rdatusage0123456789.".as_slice()), 0..200),
        lengths in lengths(),
    ) {
        let mut edited = text.into_bytes();
        for (at, is_inserted, byte) in edits {
            let at = at.index(edited.len() + 1);
            if is_inserted || at == edited.len() { edited.insert(at, byte) } else { edited[at] = byte }
        }
        for body in [edited, bytes] {
            for content_type in [JSON, LINES, EVENTS] {
                prop_assert_eq!(found(content_type, &body, &[10_000]), found(content_type, &body, &lengths));
            }
        }
    }

    #[test]
    fn gzip_tells_at_each_flush_what_its_text_tells(
        texts in prop::collection::vec((text(), any::<bool>()), 1..5), lengths in lengths(), level in 0..=9_u32
    ) {
        let mut plain = scanner(&sum(), JSON, None).unwrap();
        let mut zipped = scanner(&sum(), JSON, Some("x-gzip")).unwrap();
        let fields = || GzBuilder::new().extra(*b"extra").filename("name").comment("comment");
        let mut encoder: GzEncoder<Vec<u8>> = fields().write(Vec::new(), Compression::new(level));
        for (text, is_member) in texts {
            read_all(&mut plain, text.as_bytes());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.flush().unwrap();
            if is_member {
                encoder.try_finish().unwrap();
            }
            let body = std::mem::take(encoder.get_mut());
            pieces(&body, &lengths).into_iter().for_each(|piece| read_all(&mut zipped, piece));
            prop_assert_eq!(zipped.found(), plain.found());
            if is_member {
                encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            }
        }
    }

    #[test]
    fn takes_anything_for_gzip(
        texts in prop::collection::vec(text(), 1..4),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        lengths in lengths(),
    ) {
        let mut body: Vec<u8> = texts.iter().flat_map(|text| gzip(text.as_bytes())).collect();
        for (at, byte) in edits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let whole = scan(&sum(), JSON, Some("gzip"), [&body[..]]);
        prop_assert_eq!(scan(&sum(), JSON, Some("gzip"), pieces(&body, &lengths)), whole);
    }
}

/// What is found in a text.
#[track_caller]
fn assert_finds(text: &str, expected: FoundNumber) {
    for lengths in [&[usize::MAX][..], &[1], &[3]] {
        assert_eq!(found(JSON, text.as_bytes(), lengths), expected, "{text}");
    }
}

#[test]
fn numbers_are_whole_and_not_too_great() {
    let number = |text: &str, found| assert_finds(&format!("{{\"usage\":{{\"total\":{text}}}}}"), found);
    for (text, expected) in
        [("0", 0), ("1000000000", MAX_NUMBER), ("1e9", MAX_NUMBER), ("12.00", 12), ("1.5e1", 15)]
    {
        number(text, FoundNumber::Number(expected));
    }
    for text in ["-1", "1.5", "1000000001", "1e10", "1e400", "99999999999999999999999", "1-2", "--1", "1e"] {
        number(text, FoundNumber::Unusable);
    }
    number(&format!("{}1", "0".repeat(63)), FoundNumber::Number(1));
    number(&format!("{}1", "0".repeat(64)), FoundNumber::Unusable);
    for text in ["null", "\"5\"", "true", "{}", "[5]", "{\"total\":5}"] {
        number(text, FoundNumber::Nothing);
    }
}

#[test]
fn numbers_add_up_by_their_factors() {
    assert_finds(r#"{"usage":{"total":5,"out":7},"é":1}"#, FoundNumber::Number(5 + 4 * 7 + 10));
    assert_finds(r#"{"usage":{"out":7}}"#, FoundNumber::Number(28));
    assert_finds(r#"{"usage":{"total":5,"out":-7}}"#, FoundNumber::Unusable);
    assert_finds(r#"{"usage":{"total":-5},"message":{"usage":{"total":6}}}"#, FoundNumber::Number(6));
    let max =
        vec![JsonNumber { paths: vec![JsonPath::parse("n").unwrap()], times: u64::MAX, is_total: false }; 2];
    let max = Arc::new(JsonSum::new(max).unwrap());
    assert_eq!(scan(&max, JSON, None, [&b"{\"n\":1000000000}"[..]]), FoundNumber::Number(u64::MAX));
}

#[test]
fn names_count_however_they_are_escaped() {
    let escape = |name: &str| name.bytes().map(|byte| format!("\\u{byte:04X}")).collect::<String>();
    let [message, usage, total] = ["message", "usage", "total"].map(escape);
    assert_finds(&format!(r#"{{"{message}":{{"{usage}":{{"{total}":5}}}}}}"#), FoundNumber::Number(5));
    assert_finds(&format!(r#"{{"{message}s":{{"{usage}":{{"{total}":5}}}}}}"#), FoundNumber::Nothing);
}

#[test]
fn texts_follow_each_other_or_are_in_one_array() {
    let text = r#"{"usage":{"total":5}}"#;
    assert_finds(&format!("[{{}},{text}]"), FoundNumber::Number(5));
    assert_finds(&format!("{{}}{text}"), FoundNumber::Number(5));
    assert_finds(&format!("{{}}\n[{text}]"), FoundNumber::Number(5));
    assert_finds(&format!("[[{text}]]"), FoundNumber::Nothing);
    assert_finds(&format!("{{\"message\":[{text}]}}"), FoundNumber::Nothing);
}

#[test]
fn depth_and_length_cost_no_memory() {
    let open = "{\"usage\":[".repeat(1_000_000);
    assert_eq!(scan(&sum(), JSON, None, [format!("{{\"x\":{open}").as_bytes()]), FoundNumber::Nothing);
    assert_eq!(scan(&sum(), JSON, None, [open.as_bytes()]), FoundNumber::Nothing);
    let nested =
        format!("{{\"x\":{}{},\"usage\":{{\"total\":3}}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    assert_eq!(scan(&sum(), JSON, None, [nested.as_bytes()]), FoundNumber::Number(3));
    let long = format!("{{\"{}\":1,\"usage\":{{\"total\":3}}}}", "usage".repeat(1_000_000));
    assert_eq!(scan(&sum(), JSON, None, pieces(long.as_bytes(), &[1_000])), FoundNumber::Number(3));
    let escaped = format!("{{\"{}\":1,\"usage\":{{\"total\":3}}}}", "\\u0075".repeat(1_000_000));
    assert_eq!(scan(&sum(), JSON, None, pieces(escaped.as_bytes(), &[1_000])), FoundNumber::Number(3));
}

#[test]
fn a_torn_line_or_event_does_not_spoil_the_next() {
    let torn = "{\"usage\":{\"total\":5,\"x\":\"";
    let whole = "[{\"usage\":{\"total\":6}}]";
    assert_eq!(found(LINES, format!("{torn}\n{whole}\n").as_bytes(), &[1]), FoundNumber::Number(6));
    assert_eq!(
        found(EVENTS, format!("data: {torn}\n\ndata: {whole}\n\n").as_bytes(), &[1]),
        FoundNumber::Number(6)
    );
}

#[test]
fn a_byte_order_mark_may_precede_the_first_event_alone() {
    let event = "data: {\"usage\":{\"total\":6}}\n\n";
    assert_eq!(found(EVENTS, format!("\u{feff}{event}").as_bytes(), &[1]), FoundNumber::Number(6));
    assert_eq!(found(EVENTS, format!("\n\u{feff}{event}").as_bytes(), &[1]), FoundNumber::Nothing);
    assert_eq!(found(EVENTS, &[b"\xEF\xBB", event.as_bytes()].concat(), &[1]), FoundNumber::Nothing);
}

#[test]
fn only_json_in_gzip_or_as_it_is_can_be_scanned() {
    let of = |content_type, coding| scanner(&sum(), content_type, coding).map(|_| ());
    for content_type in [
        JSON,
        LINES,
        EVENTS,
        "Application/JSON;charset=utf-8",
        "application/problem+json",
        "text/event-stream ; x",
    ] {
        for coding in [
            None,
            Some("gzip"),
            Some("GZIP"),
            Some("x-gzip"),
            Some("identity"),
            Some(""),
            Some("identity, gzip"),
        ] {
            assert_eq!(of(content_type, coding), Ok(()), "{content_type} {coding:?}");
        }
        for coding in ["br", "zstd", "deflate", "gzip, gzip", "gzip, br"] {
            assert_eq!(
                of(content_type, Some(coding)),
                Err(Unscannable::ContentCoding),
                "{content_type} {coding}"
            );
        }
    }
    for content_type in ["text/html", "", "application/jsonx", "image/svg+xml", "application/octet-stream"] {
        assert_eq!(of(content_type, Some("br")), Err(Unscannable::MediaType), "{content_type}");
    }
}

#[test]
fn gzip_is_decoded_however_much_comes_at_once() {
    let mut random = fastrand::Rng::with_seed(1);
    // It shrinks to a half, to a quarter, and hardly at all.
    let body: String = [2, 26, 95]
        .map(|letters| {
            let text: String = (0..200_000).map(|_| char::from(b' ' + random.u8(..letters))).collect();
            Value::from(text).to_string() + ","
        })
        .concat();
    let body = gzip(format!("{{\"x\":[{body}0],\"usage\":{{\"total\":5}}}}").as_bytes());
    for length in [1, 7, 100, 1_000, 4_096, 10_000, 100_000, usize::MAX] {
        assert_eq!(
            scan(&sum(), JSON, Some("gzip"), pieces(&body, &[length])),
            FoundNumber::Number(5),
            "{length}"
        );
    }
}

#[test]
fn gzip_may_have_a_checksum_of_its_header() {
    let mut body = gzip(br#"{"usage":{"total":5}}"#);
    body[3] = 2;
    // Not the beginning of a block.
    body.splice(10..10, [0x07, 0xFF]);
    assert_eq!(scan(&sum(), JSON, Some("gzip"), body.chunks(1)), FoundNumber::Number(5));
}

#[test]
fn a_number_in_flushed_output_is_found_at_once() {
    for padding in (300_000..340_000).step_by(5_000) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        write!(encoder, "{}{{\"usage\":{{\"total\":5}}}}", " ".repeat(padding)).unwrap();
        encoder.flush().unwrap();
        let flushed = scan(&sum(), JSON, Some("gzip"), [&encoder.get_ref()[..]]);
        assert_eq!(flushed, FoundNumber::Number(5), "after {padding} bytes");
    }
}

#[test]
fn a_stream_that_repeats_itself_is_not_taken_for_a_bomb() {
    let event =
        |nth| format!("data: {{\"object\":\"chat.completion.chunk\",\"usage\":{{\"total\":{nth}}}}}\n\n");
    let body: String = (0..40_000).map(|nth| event(nth % 10) + &event(nth % 1_000)).collect();
    let zipped = gzip(body.as_bytes());
    let ratio = body.len() / zipped.len();
    assert!(body.len() > 4 << 20 && (25..64).contains(&ratio), "{} bytes, {ratio}", body.len());
    assert_eq!(scan(&sum(), EVENTS, Some("gzip"), pieces(&zipped, &[1_400])), FoundNumber::Number(999));
}

#[test]
fn gzip_that_is_broken_is_unusable() {
    let body = br#"{"usage":{"total":5}}"#;
    assert_eq!(scan(&sum(), JSON, Some("gzip"), [&body[..]]), FoundNumber::Unusable);
    let mut broken = gzip(body);
    broken[10] = 0xFF;
    assert_eq!(scan(&sum(), JSON, Some("gzip"), [&broken[..]]), FoundNumber::Unusable);
    // What follows the last member is ignored.
    let padded = [gzip(body), vec![0; 100]].concat();
    assert_eq!(scan(&sum(), JSON, Some("gzip"), [&padded[..]]), FoundNumber::Number(5));
    assert_eq!(
        scan(&sum(), JSON, Some("gzip"), [&gzip(padding(1 << 20).as_bytes())[..]]),
        FoundNumber::Number(5)
    );
}

fn padding(bytes: usize) -> String {
    format!("{{\"x\":\"{}\",\"usage\":{{\"total\":5}}}}", "x".repeat(bytes))
}

#[test]
fn gzip_that_expands_far_is_read_step_by_step() {
    let bomb = gzip(padding(100 << 20).as_bytes());
    assert!(bomb.len() < 110_000, "{}", bomb.len());
    assert_eq!(scan(&sum(), JSON, Some("gzip"), bomb.chunks(1_400)), FoundNumber::Number(5));
    let (mut scanner, mut steps, mut rest) = (scanner(&sum(), JSON, Some("gzip")).unwrap(), 0, &bomb[..]);
    while !rest.is_empty() {
        rest = &rest[scanner.read(rest)..];
        steps += 1;
    }
    assert!(steps > 300 && scanner.found() == FoundNumber::Number(5), "{steps}");
}

#[test]
fn paths_are_names_joined_by_dots() {
    for text in ["a", "usage.total_tokens", "a b.ü", &vec!["n"; 32].join("."), &"n".repeat(256)] {
        assert_eq!(JsonPath::parse(text).map(|path| path.to_string()), Ok(text.to_owned()));
    }
    for text in ["", ".", "a.", ".a", "a..b", &vec!["n"; 33].join("."), &"n".repeat(257)] {
        assert!(JsonPath::parse(text).is_err(), "{text}");
    }
    let paths = |count| {
        vec![JsonNumber { paths: vec![JsonPath::parse("a").unwrap(); count], times: 1, is_total: false }]
    };
    assert!(JsonSum::new(paths(64)).is_ok());
    assert!(JsonSum::new(paths(65)).is_err() && JsonSum::new(paths(0)).is_err());
}
