//! Where a request stands in a trace, as services tell each other (W3C Trace Context).

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

/// Tells the trace, the span that asks, and whether it is sampled.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What tracing systems have to tell themselves.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// `00-TRACE-SPAN-FLAGS`
const LENGTH: usize = 55;
/// Members of a `tracestate` (3.3.1.1).
const MOST_MEMBERS: usize = 32;

/// A place in a trace. Neither ID is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) sampled: bool,
}

impl Context {
    /// A new trace, at its first span.
    pub(super) fn begin(sampled: bool) -> Self {
        let trace = TraceId::from(fastrand::u128(1..));
        Self { trace, span: new_span(), sampled }
    }

    /// What the headers of a request say. `None` where they say nothing, or what no one may say (3.2.2.3): then a trace
    /// begins as if nothing had been said.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
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
        // Of later versions the part that is known is read (4.2): whatever follows it begins with a dash.
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

    /// As the next service is told.
    pub(super) fn value(&self) -> HeaderValue {
        let flags = if self.sampled { "01" } else { "00" };
        let text = format!("00-{}-{}-{flags}", self.trace, self.span);
        // Digits and dashes may stand in a field.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    pub(super) fn flags(&self) -> TraceFlags {
        TraceFlags::default().with_sampled(self.sampled)
    }
}

/// An ID for a span.
pub(super) fn new_span() -> SpanId {
    SpanId::from(fastrand::u64(1..))
}

/// Whether the next service may be handed what is in `tracestate`.
pub(super) fn is_state_sound(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(&TRACESTATE).iter();
    let members = lines.map(|line| 1 + line.as_bytes().iter().filter(|&&byte| byte == b',').count());
    members.sum::<usize>() <= MOST_MEMBERS
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
    fn what_is_told_is_read_as_it_was_meant() {
        let context = Context::parse(SAMPLED.as_bytes()).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.sampled);
        assert_eq!(context.value(), SAMPLED);
        for sampled in [true, false] {
            let begun = Context::begin(sampled);
            assert_eq!(Context::parse(begun.value().as_bytes()), Some(begun));
        }
    }

    /// The cases of the specification's own test suite.
    #[test]
    fn what_nobody_may_say_is_as_if_unsaid() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let known = |flags: &str| Context::parse(format!("00-{trace}-{span}-{flags}").as_bytes());
        assert!(!known("00").unwrap().sampled);
        assert!(known("ff").unwrap().sampled);
        assert!(!known("fe").unwrap().sampled);
        for text in
            [format!("cc-{trace}-{span}-01"), format!("cc-{trace}-{span}-01-what-the-future-will-be-like")]
        {
            assert!(Context::parse(text.as_bytes()).unwrap().sampled, "{text}");
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
            assert_eq!(Context::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn it_is_told_once() {
        let mut headers = HeaderMap::new();
        assert_eq!(Context::of(&headers), None);
        headers.append(&TRACEPARENT, HeaderValue::from_static(SAMPLED));
        assert!(Context::of(&headers).is_some());
        headers.append(&TRACEPARENT, HeaderValue::from_static(SAMPLED));
        assert_eq!(Context::of(&headers), None);
    }

    #[test]
    fn a_state_has_so_many_members_on_all_its_lines() {
        let mut headers = HeaderMap::new();
        assert!(is_state_sound(&headers));
        let members = |count: usize| HeaderValue::try_from(vec!["a=1"; count].join(",")).unwrap();
        headers.append(&TRACESTATE, members(31));
        headers.append(&TRACESTATE, members(1));
        assert!(is_state_sound(&headers));
        headers.append(&TRACESTATE, members(1));
        assert!(!is_state_sound(&headers));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let _read = Context::parse(&bytes);
        }
    }
}
