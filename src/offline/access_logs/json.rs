//! One line of an access log with a JSON object: of Tollgate, Caddy, Traefik and Cloudflare, and of nginx and Envoy, for
//! which operators choose the names of fields, usually the servers' variables.

use std::{borrow::Cow, fmt};

use http::HeaderName;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    field::{Field, LogFields, Meaning, WantedHeaders},
    value::{LogValue, TimeCache},
};

/// Members of an object whose meaning is remembered.
const REMEMBERED: usize = 128;

/// Reads JSON objects. It remembers the names of the members by their position, since most lines of a log have the same.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonReader {
    wanted: WantedHeaders,
    members: Vec<(String, Member)>,
    /// The members of `request`, in Caddy's log.
    request_members: Vec<(String, Member)>,
}

/// What a member tells.
#[derive(Debug, Clone)]
enum Member {
    Told(Meaning),
    /// `request`: a request line, or Caddy's object.
    Request(Meaning),
}

impl JsonReader {
    pub(super) fn new(wanted: WantedHeaders) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Takes in the members of a line.
    ///
    /// # Errors
    /// The line is not a JSON object: the column from which on it is not.
    pub(super) fn read<'l>(
        &mut self,
        line: &'l [u8],
        told: &mut LogFields<'l>,
        times: &mut TimeCache,
    ) -> Result<(), usize> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let object = Object { reader: self, told, times, is_request: false };
        deserializer
            .deserialize_map(object)
            .and_then(|()| deserializer.end())
            .map_err(|error| error.column().saturating_sub(1))
    }
}

/// Makes a line valid JSON that nginx has written with its default escapes, `\xHH`, or with bytes that are not UTF-8.
/// `None`: it has neither.
pub(super) fn repaired(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    if !text.contains("\\x") && matches!(text, Cow::Borrowed(_)) {
        return None;
    }
    let mut repaired = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        repaired.push_str(before);
        repaired.push('\\');
        let mut escaped = escaped.chars();
        match escaped.next() {
            Some('x') => repaired.push_str("u00"),
            Some(other) => repaired.push(other),
            None => {}
        }
        rest = escaped.as_str();
    }
    repaired.push_str(rest);
    Some(repaired)
}

/// Reads the members of an object.
struct Object<'a, 'l> {
    reader: &'a mut JsonReader,
    told: &'a mut LogFields<'l>,
    times: &'a mut TimeCache,
    /// Whether it is Caddy's `request`.
    is_request: bool,
}

impl<'l> Visitor<'l> for Object<'_, 'l> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { reader, told, times, is_request } = self;
        for position in 0.. {
            let name = MemberName { reader: &mut *reader, is_request, position: position.min(REMEMBERED) };
            let Some(member) = map.next_key_seed(name)? else { break };
            match member {
                Member::Told(Meaning { field: Field::Ignored, .. }) => {
                    map.next_value::<IgnoredAny>()?;
                }
                Member::Told(Meaning { field: Field::Headers, .. }) => {
                    map.next_value_seed(Headers { wanted: &reader.wanted, told: &mut *told, name: None })?;
                }
                Member::Told(Meaning { field: Field::Values, .. }) => {
                    told.tell_values(&map.next_value()?);
                }
                Member::Told(meaning) => {
                    if let Some(value) = map.next_value_seed(Scalar { object: None })? {
                        // A value that can't be read counts as missing: another member may tell the same.
                        told.set(&meaning, value, times);
                    }
                }
                Member::Request(meaning) => {
                    let object = Object {
                        reader: &mut *reader,
                        told: &mut *told,
                        times: &mut *times,
                        is_request: true,
                    };
                    if let Some(value) = map.next_value_seed(Scalar { object: Some(object) })? {
                        told.set(&meaning, value, times);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads the name of a member.
struct MemberName<'a> {
    reader: &'a mut JsonReader,
    is_request: bool,
    position: usize,
}

impl<'l> DeserializeSeed<'l> for MemberName<'_> {
    type Value = Member;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Member, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberName<'_> {
    type Value = Member;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Member, E> {
        let Self { reader: JsonReader { wanted, members, request_members }, is_request, position } = self;
        let members = if is_request { request_members } else { members };
        if let Some((known, member)) = members.get(position)
            && known == name
        {
            return Ok(member.clone());
        }
        let meaning =
            if is_request { Meaning::by_name(&format!("request.{name}")) } else { Meaning::by_name(name) };
        let meaning = meaning.only(wanted);
        let member =
            if name == "request" && !is_request { Member::Request(meaning) } else { Member::Told(meaning) };
        members.truncate(position);
        if members.len() < REMEMBERED {
            members.push((name.to_owned(), member.clone()));
        }
        Ok(member)
    }
}

/// Reads a value. `None`: it is a list, an object or a truth value.
struct Scalar<'a, 'l> {
    /// The object that it may be instead.
    object: Option<Object<'a, 'l>>,
}

impl<'l> DeserializeSeed<'l> for Scalar<'_, 'l> {
    type Value = Option<LogValue<'l>>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Scalar<'_, 'l> {
    type Value = Option<LogValue<'l>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'l str) -> Result<Self::Value, E> {
        Ok(Some(LogValue::Text(text.as_bytes().into())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(LogValue::Text(text.as_bytes().to_vec().into())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(LogValue::Integer(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(i64::try_from(number).map_or(LogValue::Float(number as f64), LogValue::Integer)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(LogValue::Float(number)))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Some(LogValue::Null))
    }

    fn visit_bool<E: Error>(self, _value: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match self.object {
            Some(object) => object.visit_map(map)?,
            None => while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {},
        }
        Ok(None)
    }
}

/// Reads an object of header fields, each with a value or a list of them.
struct Headers<'a, 'l> {
    wanted: &'a WantedHeaders,
    told: &'a mut LogFields<'l>,
    /// The field whose values are read.
    name: Option<HeaderName>,
}

impl<'l> DeserializeSeed<'l> for Headers<'_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Headers<'_, 'l> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("header fields")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'l, str>>()? {
            let name = name.parse().ok().filter(|name| *name != http::header::HOST && self.wanted.has(name));
            match name {
                Some(name) if self.name.is_none() => {
                    map.next_value_seed(Headers {
                        wanted: self.wanted,
                        told: &mut *self.told,
                        name: Some(name),
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element_seed(Scalar { object: None })? {
            if let (Some(value), Some(name)) = (value, &self.name) {
                self.told.tell_header(name, value);
            }
        }
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'l str) -> Result<(), E> {
        if let Some(name) = &self.name {
            self.told.tell_header(name, LogValue::Text(text.as_bytes().into()));
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if let Some(name) = &self.name {
            self.told.tell_header(name, LogValue::Text(text.as_bytes().to_vec().into()));
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, _value: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _number: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _number: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _number: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::StatusCode;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        limit::GrpcOutcome,
        offline::access_logs::{
            LoggedUser,
            field::{Lack, LogLine},
            line_format::{
                LineFault,
                tests::{headers, read_as, request_of, times, who_and_what},
            },
        },
    };

    fn read(line: &str) -> LogLine {
        read_as("json", line).unwrap()
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
        let line = read(line);
        assert_eq!(times(&line), (SECOND + 250_000, false, Some(12_034)));
        let status = line.request.status;
        assert_eq!((status.http, status.grpc), (StatusCode::UNAUTHORIZED, GrpcOutcome::Known(Some(8))));
        assert_eq!(headers(&line), ["host: api.example.com", "user-agent: curl/8"]);
        assert_eq!(who_and_what(&line), ["203.0.113.7", "acme", "GET", "/a?b=c", "api.example.com"]);
    }

    #[test]
    fn tollgate_tells_that_there_was_no_user() {
        let line = r#"{"time":"2026-07-03T12:00:01.250Z","client":"::1","method":"GET","path":"/","duration_ms":1,"user":null}"#;
        assert_eq!(read(line).request.user, LoggedUser::Absent);
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
        let line = read(line);
        assert_eq!(times(&line), (SECOND + 250_000, false, Some(500_000)), "it is logged at the end");
        let all = ["host: api.example.com", "user-agent: curl/8", "x-api-key: k1", "x-api-key: k2"];
        assert_eq!(headers(&line), all);
        assert_eq!(who_and_what(&line), ["203.0.113.7", "Unknown", "POST", "/a", "api.example.com"]);
    }

    #[test]
    fn lines_of_traefik_are_read() {
        let line = concat!(
            r#"{"ClientAddr":"203.0.113.7:5010","ClientHost":"203.0.113.7","ClientUsername":"ann","#,
            r#""DownstreamStatus":404,"Duration":1500000,"RequestHost":"api.example.com","RequestMethod":"GET","#,
            r#""RequestPath":"/a","RequestProtocol":"HTTP/1.1","StartUTC":"2026-07-03T12:00:01.000000001Z","#,
            r#""request_User-Agent":"curl/8","level":"info","time":"2026-07-03T12:00:09Z"}"#,
        );
        let line = read(line);
        assert_eq!(times(&line), (SECOND, false, Some(1_500)));
        assert_eq!(line.request.status.http, 404);
        assert_eq!(headers(&line), ["host: api.example.com", "user-agent: curl/8"]);
        assert_eq!(who_and_what(&line), ["203.0.113.7", "ann", "GET", "/a", "api.example.com"]);
    }

    #[test]
    fn lines_with_variables_of_nginx_are_read() {
        let line = concat!(
            r#"{"time_iso8601":"2026-07-03T14:00:03+02:00","remote_addr":"203.0.113.7","remote_user":"-","#,
            r#""request":"GET /a HTTP/1.1","request_time":"2.345","status":"200","http_host":"api.example.com","#,
            r#""http_x_api_key":"k1","http_referer":"-"}"#,
        );
        let line = read(line);
        assert_eq!(times(&line), (SECOND, true, Some(2_345_000)), "a whole second stays one");
        assert_eq!(headers(&line), ["host: api.example.com", "x-api-key: k1"]);
        assert_eq!(who_and_what(&line), ["203.0.113.7", "Unknown", "GET", "/a", "api.example.com"]);

        let with_both = read(concat!(
            r#"{"time_iso8601":"2026-07-03T14:00:01+02:00","msec":"1783080001.250","remote_addr":"::1","#,
            r#""uri":"/a b","request_method":"GET","request":"GET /a%20b?c HTTP/1.1"}"#,
        ));
        assert_eq!(times(&with_both), (SECOND + 250_000, false, None), "the more exact one counts");
        assert_eq!(who_and_what(&with_both)[2..4], ["GET", "/a%20b?c"], "as it was sent");
        let named_freely = r#"{"time":"2026-07-03T12:00:03Z","request_time":2.0,"remote_addr":"::1","request":"GET / HTTP/1.1"}"#;
        assert_eq!(times(&read(named_freely)), (SECOND, true, Some(2_000_000)), "it is logged at the end");
    }

    #[test]
    fn lines_of_envoy_are_read() {
        let line = concat!(
            r#"{"start_time":"2026-07-03T12:00:01.250Z","method":"GET","path":"/a","response_code":503,"#,
            r#""duration":12,"authority":"api.example.com","user_agent":"curl/8","#,
            r#""downstream_remote_address":"203.0.113.7:61000"}"#,
        );
        let line = read(line);
        assert_eq!(times(&line), (SECOND + 250_000, false, Some(12_000)), "in milliseconds");
        let request = &line.request;
        assert_eq!(
            (request.client, request.status.http.as_u16()),
            (Ipv4Addr::new(203, 0, 113, 7).into(), 503)
        );
    }

    #[test]
    fn a_line_without_a_request_is_another_fault_than_no_line() {
        let refused = r#"{"time":"2026-07-03T12:00:01Z","client":"203.0.113.7","method":null,"path":null,"status":400}"#;
        assert_eq!(request_of("json", refused).unwrap_err(), LineFault::Lack(Lack::Http));
        for line in [
            "{",
            "{}",
            "[]",
            "1",
            r#"{"time":"2026-07-03T12:00:01Z","client":"203.0.113.7","message":"started"}"#,
            r#"{"time":"2026-07-03T12:00:01Z","method":"GET","path":"/"}"#,
            r#"{"time":"noon","client":"203.0.113.7","method":"GET","path":"/"}"#,
            r#"{"client":"203.0.113.7","method":"GET","path":"/"}"#,
            r#"{"time":"2026-07-03T12:00:01Z","client":"203.0.113.7","method":"GET","path":"/"} {}"#,
        ] {
            let fault = request_of("json", line).unwrap_err();
            assert!(fault != LineFault::Lack(Lack::Http), "{line}");
        }
    }

    #[test]
    fn lines_of_cloudflare_are_read() {
        for (start, end) in [
            (r#""2026-07-03T12:00:01.25Z""#, r#""2026-07-03T12:00:01.75Z""#),
            ("1783080001250000000", "1783080001750000000"),
            ("1783080001250", "1783080001750"),
        ] {
            let text = format!(
                r#"{{"ClientIP":"2001:db8::7","ClientRequestHost":"api.example.com","ClientRequestMethod":"GET","ClientRequestURI":"/a?b","EdgeEndTimestamp":{end},"EdgeResponseBytes":69045,"EdgeResponseStatus":200,"EdgeStartTimestamp":{start},"RayID":"3a6050bcbe121a87","ClientRequestUserAgent":"curl/8","RequestHeaders":{{"x-api-key":"k1"}},"JA3Hash":null,"BotTags":["api"]}}"#
            );
            let line = read(&text);
            assert_eq!(times(&line), (SECOND + 250_000, false, Some(500_000)), "{start}");
            assert_eq!((line.request.status.http.as_u16(), line.request.bytes), (200, Some(69_045)));
            let all = ["host: api.example.com", "user-agent: curl/8", "x-api-key: k1"];
            assert_eq!(headers(&line), all);
            assert_eq!(who_and_what(&line), ["2001:db8::7", "Unknown", "GET", "/a?b", "api.example.com"]);
        }
    }

    #[test]
    fn members_may_change_from_line_to_line() {
        let lines = [
            r#"{"msec":1783080001.5,"remote_addr":"::1","request":"GET / HTTP/1.1","request_time":0.5}"#,
            r#"{"remote_addr":"::2","msec":1783080001.5,"request":"GET / HTTP/1.1"}"#,
            r#"{"remote_addr":"::2","request_time":0.5,"request":"GET / HTTP/1.1","msec":1783080001.5,"x":[{}],"y":{"z":1}}"#,
        ];
        let mut reader = JsonReader::default();
        for (line, (client, lasted)) in
            lines.iter().zip([("::1", Some(500_000)), ("::2", None), ("::2", Some(500_000))])
        {
            let (mut told, mut times) = (LogFields::default(), TimeCache::default());
            reader.read(line.as_bytes(), &mut told, &mut times).unwrap();
            let request = told.into_line(&mut times).unwrap().request;
            assert_eq!((request.client.to_string().as_str(), request.duration), (client, lasted));
        }
    }

    #[test]
    fn escapes_that_are_not_json_are_repaired() {
        let default_escapes =
            r#"{"msec":1783080001.5,"remote_addr":"::1","request":"GET /\x22a\\xb HTTP/1.1"}"#;
        let default_escapes = default_escapes.replace("\\\\", "\\");
        assert_eq!(repaired(default_escapes.as_bytes()).unwrap().matches("u0022").count(), 1);
        let line = r#"{"msec":1783080001.5,"remote_addr":"::1","request":"GET /a\x27 HTTP/1.1"}"#
            .replace("\\\\", "\\");
        assert_eq!(who_and_what(&read(&line))[3], "/a'");
        let bytes = b"{\"msec\":1783080001.5,\"remote_addr\":\"::1\",\"request\":\"GET / HTTP/1.1\",\"http_x\":\"\xff\"}";
        assert!(repaired(bytes).unwrap().contains('\u{fffd}'));
        assert_eq!(repaired(br#"{"a":"b"}"#), None);
    }

    proptest! {
        #[test]
        fn any_json_is_read_without_a_panic(
            name in "[a-z_@A-Z]{0,12}|request|headers|time|duration|status|bytes|msec",
            value in r#"-?[0-9]{1,30}(\.[0-9]{1,30})?(e[0-9]{1,3})?|"[ -!#-\[\]-~é]{0,20}"|null|true|\[1,"a"\]|\{"uri":1,"headers":\{"a":["b",1],"c":"d"\}\}"#,
        ) {
            let line = format!(r#"{{"msec":1783080001.5,"{name}":{value},"remote_addr":"::1","request_uri":"/","method":"GET"}}"#);
            let _any = request_of("json", &line);
        }
    }
}
