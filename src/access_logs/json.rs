//! Access logs with one JSON object per line: of Tollgate, Caddy and Traefik, and of nginx and Envoy, for which
//! operators choose the names of fields, usually the servers' variables.

use http::StatusCode;
use serde_json::{Map, Value};

use super::log_line::{Fields, LogTime, LoggedRequestLine, TimeCache, address, user};
use super::{LoggedKey, LoggedProgress, LoggedUser};

type Object = Map<String, Value>;

/// The possible names of a field; `request.uri` is a nested one. The first that the line contains is used.
type FieldNames = &'static [&'static str];

/// When the request arrived.
const START: FieldNames = &["StartUTC", "start_time"];
/// In Tollgate's log, when the request arrived; in others, when the line was written.
const TIME: FieldNames = &["time", "timestamp", "@timestamp"];
/// When the response ended, the most precise field first.
const END: FieldNames = &["msec", "ts", "time_iso8601", "time_local"];
const CLIENT: FieldNames = &[
    "client",
    "request.client_ip",
    "request.remote_ip",
    "ClientHost",
    "remote_addr",
    "client_ip",
    "remote_ip",
    "clientip",
    "downstream_remote_address_without_port",
    "downstream_remote_address",
];
const USER: FieldNames = &["user", "user_id", "remote_user", "ClientUsername"];
const METHOD: FieldNames = &["method", "request.method", "RequestMethod", "request_method"];
const TARGET: FieldNames = &["path", "request.uri", "RequestPath", "request_uri"];
/// `GET / HTTP/1.1`
const REQUEST_LINE: FieldNames = &["request", "request_line"];
/// nginx' `uri` is decoded, rewritten and without the query.
const DECODED_TARGET: FieldNames = &["uri", "url"];
const HOST: FieldNames = &["host", "request.host", "RequestHost", "http_host", "authority"];
const STATUS: FieldNames = &["status", "DownstreamStatus", "response_code"];
const GRPC_STATUS: FieldNames = &["grpc_status"];
/// Bytes of the response: Tollgate's, Caddy's, Traefik's, nginx' and Envoy's.
const BYTES: FieldNames = &["bytes", "size", "DownstreamContentSize", "body_bytes_sent", "bytes_sent"];
const CHARGED: FieldNames = &["charged"];
/// Field names with their units in microseconds.
const DURATIONS: [(&str, f64); 4] =
    [("duration_ms", 1e3), ("request_time", 1e6), ("duration", 1e6), ("Duration", 1e-3)];
/// Header fields with special names.
const HEADERS: [(&str, &str); 3] =
    [("user_agent", "user-agent"), ("referer", "referer"), ("referrer", "referer")];
/// Prefixes of the names of other header fields, with the separator of words: nginx' variables, and Traefik's fields.
const HEADER_PREFIXES: [(&str, char); 2] = [("http_", '_'), ("request_", '-')];

/// Reads a line. `None`: it is not JSON, or lacks the time, the client or the request.
pub(super) fn read(line: &[u8], times: &mut TimeCache) -> Option<Fields> {
    let object: Object = serde_json::from_slice(line).ok()?;
    let text = |names: FieldNames| names.iter().find_map(|name| text_at(&object, name));
    let duration = duration(&object);
    let is_tollgate = object.contains_key("duration_ms");
    let start = text(START).or_else(|| text(TIME).filter(|_| is_tollgate));
    let time = match start {
        Some(start) => read_time(&start, times)?,
        None => {
            let end = read_time(&text(END).or_else(|| text(TIME))?, times)?;
            let lasted = duration.unwrap_or(0);
            // Keep whole seconds whole.
            let lasted = if end.is_whole_second { lasted - lasted % 1_000_000 } else { lasted };
            LogTime { micros: end.micros.saturating_sub(lasted), ..end }
        }
    };
    let method = text(METHOD);
    let of_target = |names| {
        let (method, target) = (method.clone()?, text(names)?);
        Some(LoggedRequestLine { method: method.into(), target: target.into() })
    };
    let line = text(REQUEST_LINE);
    let request = of_target(TARGET)
        .or_else(|| line.as_deref().and_then(|line| LoggedRequestLine::of(line.as_bytes())))
        .or_else(|| of_target(DECODED_TARGET));
    let status = text(STATUS).and_then(|status| status.parse().ok()).unwrap_or(StatusCode::OK);
    let has_request = line.is_some() || [TARGET, DECODED_TARGET].iter().any(|names| has_any(&object, names));
    Some(Fields {
        time,
        duration,
        client: address(&text(CLIENT)?)?,
        user: match text(USER) {
            Some(name) => user(&name),
            // The name is null.
            None if is_tollgate && has_any(&object, USER) => LoggedUser::Absent,
            None => LoggedUser::Unknown,
        },
        key: api_key(&object).filter(|_| is_tollgate),
        request: has_request.then_some(request)?,
        host: text(HOST).filter(|host| !matches!(host.as_str(), "" | "-")).map(String::into_bytes),
        headers: headers(&object),
        status,
        grpc_status: text(GRPC_STATUS).and_then(|status| status.parse().ok()),
        bytes: text(BYTES).and_then(|bytes| bytes.parse().ok()),
        charged: text(CHARGED).filter(|_| is_tollgate).and_then(|units| units.parse().ok()),
        progress: progress(&object, status).filter(|_| is_tollgate).unwrap_or(LoggedProgress::Responded),
    })
}

/// The request's valid API key, as Tollgate logs it.
fn api_key(object: &Object) -> Option<LoggedKey> {
    let text = |name| Some(object.get(name)?.as_str()?.into());
    Some(LoggedKey { id: text("api_key")?, customer: text("customer")?, plan: text("plan") })
}

/// How far the request was processed. `None`: the line is not Tollgate's.
fn progress(object: &Object, status: StatusCode) -> Option<LoggedProgress> {
    let [verdict, route, upstream] = [object.get("verdict")?, object.get("route")?, object.get("upstream")?];
    Some(match (verdict.as_str(), status.as_u16()) {
        _ if !upstream.is_null() => LoggedProgress::Responded,
        (Some("banned" | "unauthorized"), _) => LoggedProgress::Unchecked,
        // Another configuration may have a route for it.
        (None, 404) if route.is_null() => LoggedProgress::Unforwarded,
        (None, _) if route.is_null() => LoggedProgress::Unrouted,
        (None, 413) => LoggedProgress::Unchecked,
        // The client gave it up, or the response was too late.
        (None | Some("allowed" | "shadow_denied"), 499 | 504) => LoggedProgress::NoResponse,
        // Includes denied requests: the replayed policies decide on them again.
        _ => LoggedProgress::Unforwarded,
    })
}

fn has_any(object: &Object, names: FieldNames) -> bool {
    names.iter().any(|name| value_at(object, name).is_some())
}

fn value_at<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    match path.split_once('.') {
        None => object.get(path),
        Some((outer, inner)) => object.get(outer)?.as_object()?.get(inner),
    }
}

/// The text of a string or a number.
fn text_at(object: &Object, path: &str) -> Option<String> {
    match value_at(object, path)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn read_time(text: &str, times: &mut TimeCache) -> Option<LogTime> {
    LogTime::rfc3339(text).or_else(|| LogTime::number(text)).or_else(|| times.common(text.as_bytes()))
}

/// The duration in microseconds.
fn duration(object: &Object) -> Option<i64> {
    let (text, unit) =
        DURATIONS.iter().find_map(|(name, unit)| Some((text_at(object, name)?, (*name, *unit))))?;
    let number: f64 = text.parse().ok()?;
    let unit = match unit {
        // Envoy logs milliseconds, Caddy seconds.
        ("duration", _) if !object.contains_key("logger") => 1e3,
        (_, unit) => unit,
    };
    (0.0..1e12).contains(&number).then_some((number * unit) as i64)
}

fn headers(object: &Object) -> Vec<(String, Vec<u8>)> {
    let mut headers = Vec::new();
    let mut push = |name: &str, value: &Value| {
        // Caddy redacts credentials.
        if let Some(value) = value.as_str().filter(|value| !matches!(*value, "" | "-" | "REDACTED")) {
            headers.push((name.to_owned(), value.as_bytes().to_vec()));
        }
    };
    for (name, value) in object {
        let own = HEADERS.iter().find(|(field, _)| field == name).map(|(_, header)| (*header).to_owned());
        let prefixed = || {
            HEADER_PREFIXES.iter().find_map(|(prefix, separator)| {
                let rest = name.strip_prefix(prefix)?;
                // Excludes variables of nginx that are not headers: `request_uri`.
                (*separator == '_' || rest.starts_with(|first: char| first.is_ascii_uppercase()))
                    .then(|| rest.replace(*separator, "-").to_ascii_lowercase())
            })
        };
        match own.or_else(prefixed) {
            Some(header) if header != "host" => push(&header, value),
            _ => {}
        }
    }
    // Caddy's headers, each a list.
    if let Some(Value::Object(all)) = value_at(object, "request.headers") {
        for (name, values) in all.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            values.as_array().into_iter().flatten().for_each(|value| push(&name.to_ascii_lowercase(), value));
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn fields(line: &str) -> Fields {
        read(line.as_bytes(), &mut TimeCache::default()).unwrap()
    }

    /// The time in microseconds, whether it is a whole second, and the duration.
    fn times(fields: &Fields) -> (i64, bool, Option<i64>) {
        (fields.time.micros, fields.time.is_whole_second, fields.duration)
    }

    /// The client, the user, the request and the host.
    fn who_and_what(fields: Fields) -> [String; 5] {
        let request = fields.request.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let user = match fields.user {
            LoggedUser::Named(name) => name.to_string(),
            other => format!("{other:?}"),
        };
        let host = text(fields.host.unwrap_or_default());
        [fields.client.to_string(), user, text(request.method), text(request.target), host]
    }

    /// 2026-07-03T12:00:01Z
    const SECOND: i64 = 1_783_080_001_000_000;

    #[test]
    fn lines_of_tollgate_are_read() {
        let line = concat!(
            r#"{"time":"2026-07-03T12:00:01.250Z","client":"203.0.113.7","method":"GET","path":"/a?b=c","#,
            r#""protocol":"HTTP/1.1","status":401,"bytes":512,"duration_ms":12.034,"route":"all","#,
            r#""upstream":"127.0.0.1:3000","request_id":"4f1c","user":"acme","host":"api.example.com","#,
            r#""referer":null,"user_agent":"curl/8","verdict":"allowed","policy":null,"grpc_status":8}"#,
        );
        let read = fields(line);
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(12_034)));
        assert_eq!((read.status, read.grpc_status), (StatusCode::UNAUTHORIZED, Some(8)));
        assert_eq!(read.headers, [("user-agent".to_owned(), b"curl/8".to_vec())]);
        assert_eq!(who_and_what(read), ["203.0.113.7", "acme", "GET", "/a?b=c", "api.example.com"]);
    }

    #[test]
    fn tollgate_tells_that_there_was_no_user() {
        let line = r#"{"time":"2026-07-03T12:00:01.250Z","client":"::1","method":"GET","path":"/","duration_ms":1,"user":null}"#;
        assert_eq!(fields(line).user, LoggedUser::Absent);
    }

    #[test]
    fn lines_of_caddy_are_read() {
        let line = concat!(
            r#"{"level":"info","ts":1783080001.75,"logger":"http.log.access","msg":"handled request","#,
            r#""request":{"remote_ip":"10.0.0.1","remote_port":"41342","client_ip":"203.0.113.7","#,
            r#""proto":"HTTP/2.0","method":"POST","host":"api.example.com","uri":"/a","#,
            r#""headers":{"User-Agent":["curl/8"],"X-Api-Key":["k1","k2"],"Host":["x"],"Cookie":["REDACTED"]}},"#,
            r#""bytes_read":0,"user_id":"","duration":0.5,"size":10900,"status":200}"#,
        );
        let read = fields(line);
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(500_000)), "it is logged at the end");
        let mut headers: Vec<_> = read.headers.iter().map(|(name, _)| name.as_str()).collect();
        headers.sort_unstable();
        assert_eq!(headers, ["user-agent", "x-api-key", "x-api-key"]);
        assert_eq!(who_and_what(read), ["203.0.113.7", "Unknown", "POST", "/a", "api.example.com"]);
    }

    #[test]
    fn lines_of_traefik_are_read() {
        let line = concat!(
            r#"{"ClientAddr":"203.0.113.7:5010","ClientHost":"203.0.113.7","ClientUsername":"ann","#,
            r#""DownstreamStatus":404,"Duration":1500000,"RequestHost":"api.example.com","RequestMethod":"GET","#,
            r#""RequestPath":"/a","RequestProtocol":"HTTP/1.1","StartUTC":"2026-07-03T12:00:01.000000001Z","#,
            r#""request_User-Agent":"curl/8","level":"info","time":"2026-07-03T12:00:09Z"}"#,
        );
        let read = fields(line);
        assert_eq!(times(&read), (SECOND, false, Some(1_500)));
        assert_eq!(read.status, 404);
        assert_eq!(read.headers, [("user-agent".to_owned(), b"curl/8".to_vec())]);
        assert_eq!(who_and_what(read), ["203.0.113.7", "ann", "GET", "/a", "api.example.com"]);
    }

    #[test]
    fn lines_with_variables_of_nginx_are_read() {
        let line = concat!(
            r#"{"time_iso8601":"2026-07-03T14:00:03+02:00","remote_addr":"203.0.113.7","remote_user":"-","#,
            r#""request":"GET /a HTTP/1.1","request_time":"2.345","status":"200","http_host":"api.example.com","#,
            r#""http_x_api_key":"k1","http_referer":"-"}"#,
        );
        let read = fields(line);
        assert_eq!(times(&read), (SECOND, true, Some(2_345_000)), "a whole second stays one");
        assert_eq!(read.headers, [("x-api-key".to_owned(), b"k1".to_vec())]);
        assert_eq!(who_and_what(read), ["203.0.113.7", "Unknown", "GET", "/a", "api.example.com"]);

        let with_both = fields(concat!(
            r#"{"time_iso8601":"2026-07-03T14:00:01+02:00","msec":"1783080001.250","remote_addr":"::1","#,
            r#""uri":"/a b","request_method":"GET","request":"GET /a%20b?c HTTP/1.1"}"#,
        ));
        assert_eq!(times(&with_both), (SECOND + 250_000, false, None), "the more exact one counts");
        assert_eq!(who_and_what(with_both)[2..4], ["GET", "/a%20b?c"], "as it was sent");
        let named_freely = r#"{"time":"2026-07-03T12:00:03Z","request_time":2.0,"remote_addr":"::1","request":"GET / HTTP/1.1"}"#;
        assert_eq!(times(&fields(named_freely)), (SECOND, true, Some(2_000_000)), "it is logged at the end");
    }

    #[test]
    fn lines_of_envoy_are_read() {
        let line = concat!(
            r#"{"start_time":"2026-07-03T12:00:01.250Z","method":"GET","path":"/a","response_code":503,"#,
            r#""duration":12,"authority":"api.example.com","user_agent":"curl/8","#,
            r#""downstream_remote_address":"203.0.113.7:61000"}"#,
        );
        let read = fields(line);
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(12_000)), "in milliseconds");
        assert_eq!((read.client, read.status.as_u16()), (Ipv4Addr::new(203, 0, 113, 7).into(), 503));
    }

    #[test]
    fn what_is_no_request_is_told_from_what_is_no_line() {
        let refused = r#"{"time":"2026-07-03T12:00:01Z","client":"203.0.113.7","method":null,"path":null,"status":400}"#;
        assert!(fields(refused).request.is_none());
        for line in [
            "{",
            "{}",
            "[]",
            r#"{"time":"2026-07-03T12:00:01Z","client":"203.0.113.7","message":"started"}"#,
            r#"{"time":"2026-07-03T12:00:01Z","method":"GET","path":"/"}"#,
            r#"{"time":"noon","client":"203.0.113.7","method":"GET","path":"/"}"#,
            r#"{"client":"203.0.113.7","method":"GET","path":"/"}"#,
        ] {
            assert!(read(line.as_bytes(), &mut TimeCache::default()).is_none(), "{line}");
        }
    }
}
