//! The trace context that services propagate (W3C Trace Context).

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

/// The trace, the parent span, and whether it is sampled.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendor-specific data of tracing systems.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// `00-TRACE-SPAN-FLAGS`
const LENGTH: usize = 55;
/// Maximum number of members of a `tracestate` (3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// A position in a trace. Neither ID is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) sampled: bool,
}

impl TraceContext {
    /// A new trace, at its first span.
    pub(super) fn begin(sampled: bool) -> Self {
        let trace = TraceId::from(fastrand::u128(1..));
        Self { trace, span: new_span(), sampled }
    }

    /// The context in the headers of a request. `None` if there is none or it is invalid (3.2.2.3): then a new trace
    /// begins.
    pub fn extract(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(&TRACEPARENT).iter();
        let line = lines.next()?;
        if lines.next().is_some() {
            return None;
        }
        Self::parse(line.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let [v1, v2, b'-', rest @ ..] = text else { return None };
        let version = hex(&[*v1, *v2])?;
        // The known part of later versions is parsed (4.2); the rest begins with a dash.
        let is_whole = match text.get(LENGTH) {
            None => text.len() == LENGTH,
            Some(next) => version > 0 && *next == b'-',
        };
        if version == 0xff || !is_whole {
            return None;
        }
        let (trace, rest) = rest.split_at_checked(32)?;
        let (span, rest) = rest.strip_prefix(b"-")?.split_at_checked(16)?;
        let flags = rest.strip_prefix(b"-")?.get(..2)?;
        let trace = TraceId::from(hex(trace)?);
        let span = SpanId::from(u64::try_from(hex(span)?).ok()?);
        let sampled = hex(flags)? & 1 == 1;
        (trace != TraceId::INVALID && span != SpanId::INVALID).then_some(Self { trace, span, sampled })
    }

    /// The `traceparent` for the next service.
    pub(super) fn value(&self) -> HeaderValue {
        let flags = if self.sampled { "01" } else { "00" };
        let text = format!("00-{}-{}-{flags}", self.trace, self.span);
        // Digits and dashes are valid in a field.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    pub(super) fn flags(&self) -> TraceFlags {
        TraceFlags::default().with_sampled(self.sampled)
    }
}

pub(super) fn new_span() -> SpanId {
    SpanId::from(fastrand::u64(1..))
}

/// Whether `tracestate` may be forwarded: it has no more members than allowed.
pub(super) fn is_tracestate_valid(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(&TRACESTATE).iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    // Empty members are allowed (3.3.1.2) and do not count.
    members.filter(|member| !member.trim_ascii().is_empty()).count() <= MAX_MEMBERS
}

/// Lower case only (3.2.2).
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_parsed_as_it_was_written() {
        let context = TraceContext::parse(SAMPLED.as_bytes()).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.sampled);
        assert_eq!(context.value(), SAMPLED);
        for sampled in [true, false] {
            let begun = TraceContext::begin(sampled);
            assert_eq!(TraceContext::parse(begun.value().as_bytes()), Some(begun));
        }
    }

    /// The cases of the specification's own test suite.
    #[test]
    fn invalid_contexts_are_ignored() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let known = |flags: &str| TraceContext::parse(format!("00-{trace}-{span}-{flags}").as_bytes());
        assert!(!known("00").unwrap().sampled);
        assert!(known("ff").unwrap().sampled);
        assert!(!known("fe").unwrap().sampled);
        for text in
            [format!("cc-{trace}-{span}-01"), format!("cc-{trace}-{span}-01-what-the-future-will-be-like")]
        {
            assert!(TraceContext::parse(text.as_bytes()).unwrap().sampled, "{text}");
        }
        for text in [
            String::new(),
            "00".into(),
            "00-".into(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-"),
            format!("00-{trace}-{span}-0"),
            format!("00-{trace}-{span}-01-"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{trace}-{span}-011"),
            format!("cc-{trace}-{span}-01.more"),
            format!("ff-{trace}-{span}-01"),
            format!("0-{trace}-{span}-01"),
            format!(".0-{trace}-{span}-01"),
            format!("00-{trace}-{span}-.0"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-{}-01", span.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}_{span}-01"),
            format!("00-{}-{span}-01", &trace[1..]),
            format!(" 00-{trace}-{span}-01"),
        ] {
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_repeated_field_is_ignored() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceContext::extract(&headers), None);
        headers.append(&TRACEPARENT, HeaderValue::from_static(SAMPLED));
        assert!(TraceContext::extract(&headers).is_some());
        headers.append(&TRACEPARENT, HeaderValue::from_static(SAMPLED));
        assert_eq!(TraceContext::extract(&headers), None);
    }

    #[test]
    fn the_members_of_all_lines_are_counted() {
        let mut headers = HeaderMap::new();
        assert!(is_tracestate_valid(&headers));
        let members = |count: usize| HeaderValue::try_from(vec!["a=1"; count].join(",")).unwrap();
        headers.append(&TRACESTATE, members(31));
        headers.append(&TRACESTATE, members(1));
        headers.append(&TRACESTATE, HeaderValue::from_static(", ,"));
        headers.append(&TRACESTATE, HeaderValue::from_static(""));
        assert!(is_tracestate_valid(&headers));
        headers.append(&TRACESTATE, members(1));
        assert!(!is_tracestate_valid(&headers));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _read = TraceContext::parse(&bytes);
        }
    }
}
