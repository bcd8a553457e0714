//! One JSON object per line.

use std::io::Write;

use super::{Line, RetriedTry, escape, timestamp::TimestampCache};

/// Appends `line` and a newline.
pub(super) fn write(out: &mut Vec<u8>, line: &Line<'_>, timestamps: &mut TimestampCache) {
    out.extend_from_slice(b"{\"time\":\"");
    timestamps.rfc3339(out, line.time);
    // Writing to a vector can't fail; an address needs no escaping.
    let _ok = write!(out, "\",\"client\":\"{}\"", line.client);
    for (name, value) in
        [(r#","method":"#, line.method), (r#","path":"#, line.path), (r#","protocol":"#, line.protocol)]
    {
        text(out, name, Some(value).filter(|value| !value.is_empty()));
    }
    number(out, r#","status":"#, u64::from(line.status.as_u16()));
    number(out, r#","bytes":"#, line.bytes);
    if let Some(received) = line.received {
        number(out, r#","bytes_received":"#, received);
    }
    millis(out, line);
    text(out, r#","route":"#, line.route.map(str::as_bytes));
    text(out, r#","upstream":"#, line.upstream.map(str::as_bytes));
    text(out, r#","request_id":"#, line.request_id);
    text(out, r#","user":"#, line.user);
    if line.api_key.is_some() {
        text(out, r#","customer":"#, line.customer);
        text(out, r#","plan":"#, line.plan);
        text(out, r#","api_key":"#, line.api_key);
    }
    text(out, r#","host":"#, line.host);
    text(out, r#","referer":"#, line.referer);
    text(out, r#","user_agent":"#, line.user_agent);
    text(out, r#","verdict":"#, line.verdict.map(|verdict| verdict.name().as_bytes()));
    text(out, r#","policy":"#, line.policy.map(str::as_bytes));
    text(out, r#","shadow_policy":"#, line.shadow_policy.map(str::as_bytes));
    text(out, r#","source":"#, line.source.map(|source| source.name().as_bytes()));
    if line.delay_millis > 0 {
        number(out, r#","delay_ms":"#, line.delay_millis.into());
    }
    if line.shadow_delay_millis > 0 {
        number(out, r#","shadow_delay_ms":"#, line.shadow_delay_millis.into());
    }
    if !line.retried.is_empty() {
        number(out, r#","tries":"#, line.retried.len() as u64 + 1);
        retried(out, line.retried);
    }
    if let Some(status) = line.grpc_status {
        number(out, r#","grpc_status":"#, status.into());
    }
    if let Some(front) = line.front {
        out.extend_from_slice(br#","front":""#);
        out.extend_from_slice(front.as_bytes());
        out.push(b'"');
    }
    if let Some(values) = line.values {
        out.extend_from_slice(br#","values":"#);
        out.extend_from_slice(values.as_bytes());
    }
    if let Some(side) = line.aborted_by {
        text(out, r#","aborted_by":"#, Some(side.name().as_bytes()));
    }
    if let Some(trace) = line.trace_id {
        let _ok = write!(out, r#","trace_id":"{trace}""#);
    }
    if let Some(version) = line.tls_version {
        text(out, r#","tls_version":"#, Some(version.as_bytes()));
    }
    if let Some(subject) = line.tls_subject {
        text(out, r#","tls_subject":"#, Some(subject));
    }
    end(out, line.cost);
}

/// Ends a line with the units that its request had reserved, and the cost of its response.
fn end(out: &mut Vec<u8>, cost: Option<(u64, u64)>) {
    if let Some((reserved, charged)) = cost {
        number(out, r#","reserved":"#, reserved);
        number(out, r#","charged":"#, charged);
    }
    out.extend_from_slice(b"}\n");
}

/// Adds the cost to a line that has none.
pub(super) fn add_cost(line: &mut Vec<u8>, cost: (u64, u64)) {
    line.truncate(line.len().saturating_sub(b"}\n".len()));
    end(line, Some(cost));
}

// `name` includes the comma before it, its quotes and the colon after it, so that it is copied at once.

fn text(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    out.extend_from_slice(name.as_bytes());
    match value {
        None => out.extend_from_slice(b"null"),
        Some(value) => {
            out.push(b'"');
            escape::json(out, value);
            out.push(b'"');
        }
    }
}

fn retried(out: &mut Vec<u8>, tries: &[RetriedTry]) {
    let mut name = r#","retried":[{"upstream":"#;
    for RetriedTry { upstream, reason } in tries {
        text(out, name, Some(upstream.as_bytes()));
        text(out, r#","reason":"#, Some(reason.name().as_bytes()));
        name = r#"},{"upstream":"#;
    }
    out.extend_from_slice(b"}]");
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Milliseconds with microsecond precision: `12.034`.
fn millis(out: &mut Vec<u8>, line: &Line<'_>) {
    // In 64 bits, because 128-bit division is many times slower.
    let micros = u64::try_from(line.elapsed.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(b",\"duration_ms\":");
    out.extend_from_slice(itoa::Buffer::new().format(micros / 1_000).as_bytes());
    let digit = |unit: u64| b'0' + (micros / unit % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

#[cfg(test)]
mod tests {
    use super::{
        super::{AbortedBy, line::sample},
        *,
    };
    use crate::config::model::RetryReason;

    fn formatted(line: &Line<'_>) -> String {
        let mut out = Vec::new();
        write(&mut out, line, &mut TimestampCache::new());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_field_has_its_place() {
        assert_eq!(
            formatted(&sample::line()),
            concat!(
                r#"{"time":"2026-07-03T12:00:01.250Z","client":"203.0.113.7","method":"GET","path":"/a?b=c","#,
                r#""protocol":"HTTP/1.1","status":200,"bytes":512,"duration_ms":12.034,"route":"all","#,
                r#""upstream":"127.0.0.1:3000","request_id":"4f1c","user":"acme","host":"api.example.com","#,
                r#""referer":null,"user_agent":"curl/8","verdict":"allowed","policy":null,"#,
                r#""shadow_policy":null,"source":"store"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_trace_is_named_where_there_is_one() {
        let trace_id = Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.into());
        let text = formatted(&Line { trace_id, ..sample::line() });
        assert!(text.ends_with(",\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\"}\n"), "{text}");
    }

    #[test]
    fn the_status_of_a_call_is_told_beside_that_of_http() {
        let text = formatted(&Line { grpc_status: Some(8), ..sample::line() });
        assert!(text.contains("\"status\":200,") && text.ends_with(",\"grpc_status\":8}\n"), "{text}");
    }

    #[test]
    fn the_side_that_broke_off_is_told() {
        let text = formatted(&Line { aborted_by: Some(AbortedBy::Upstream), ..sample::line() });
        assert!(text.ends_with(",\"aborted_by\":\"upstream\"}\n"), "{text}");
    }

    #[test]
    fn tries_that_were_repeated_are_told_in_their_order() {
        let tried = |upstream: &str, reason| RetriedTry { upstream: upstream.to_owned(), reason };
        let retried =
            [tried("10.0.0.5:3000", RetryReason::Connect), tried("a:1", RetryReason::ServiceUnavailable)];
        let text = formatted(&Line { retried: &retried, ..sample::line() });
        let told = concat!(
            r#","tries":3,"retried":[{"upstream":"10.0.0.5:3000","reason":"connect"},"#,
            r#"{"upstream":"a:1","reason":"503"}]}"#,
            "\n"
        );
        assert!(text.ends_with(told), "{text}");
    }

    #[test]
    fn tls_is_named_where_there_is_some() {
        let line = Line { tls_version: Some("TLSv1.3"), tls_subject: Some(b"CN=a\\\"b"), ..sample::line() };
        let text = formatted(&line);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["tls_version"], &read["tls_subject"]), (&"TLSv1.3".into(), &"CN=a\\\"b".into()));
        let without_certificate = formatted(&Line { tls_version: Some("TLSv1.2"), ..sample::line() });
        assert!(without_certificate.ends_with(",\"tls_version\":\"TLSv1.2\"}\n"), "{without_certificate}");
    }

    #[test]
    fn text_of_clients_stays_in_its_field() {
        let line = Line { user_agent: Some(b"\"}\n{\"status\":200"), ..sample::line() };
        let text = formatted(&line);
        assert_eq!(text.lines().count(), 1);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["user_agent"], "\"}\n{\"status\":200");
        assert_eq!(read["status"], 200);
    }
}
