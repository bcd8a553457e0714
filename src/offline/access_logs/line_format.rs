//! The formats of access logs, and how a line is read in each.

use super::{
    field::{Lack, LogFields, LogLine, WantedHeaders},
    json::{JsonReader, repaired},
    nginx_conf, notation,
    template::{FormatError, FormatMismatch, FormatPart, Template},
    value::{Escape, TimeCache},
};

/// A format of an access log.
#[derive(Debug, Clone)]
pub struct LogFormat {
    /// `combined`, or as the operator has written it.
    name: String,
    kind: FormatKind,
}

#[derive(Debug, Clone)]
enum FormatKind {
    Template(Template),
    Json,
    /// The extended format of W3C: the log itself names its fields.
    W3c,
}

/// A format of text in the notation of its server. A line may end behind each part.
struct BuiltIn {
    name: &'static str,
    parts: &'static [&'static str],
    escape: Escape,
    /// Whether anything may follow.
    is_open: bool,
}

/// `%r` and `$request` in quotes, as nginx and Apache have it.
const COMMON: &str = "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent";
const AGENT: &str = " \"$http_referer\" \"$http_user_agent\"";
/// Words that Tollgate appends.
const VERDICT: &str = " $verdict $policy $source";

/// Those that have more come before those that begin alike.
const BUILT_INS: [BuiltIn; 7] = [
    BuiltIn {
        name: "traefik",
        parts: &[
            "$remote_addr $ident $remote_user [$start_time] \"$request\" $status $bytes_sent \"$http_referer\" \
             \"$http_user_agent\" $number \"$router\" \"$server\" ${milliseconds}ms",
        ],
        escape: Escape::Backslash,
        is_open: false,
    },
    BuiltIn { name: "combined", parts: &[COMMON, AGENT, VERDICT], escape: Escape::Backslash, is_open: true },
    BuiltIn {
        name: "vhost-combined",
        parts: &[
            "$server_name:$port $remote_addr $ident $remote_user [$time_local] \"$request\" $status $bytes_sent",
            AGENT,
        ],
        escape: Escape::Backslash,
        is_open: true,
    },
    BuiltIn {
        name: "haproxy",
        parts: &[
            "$client_and_port [$start_time] $frontend $backend $received/$queued/$connected/$responded/$milliseconds \
             $status $bytes_sent $cookie $set_cookie $termination_state $connections $queues \"$request_with_url\"",
        ],
        escape: Escape::Hash,
        is_open: true,
    },
    BuiltIn {
        name: "alb",
        parts: &[
            "$type $time_iso8601 $elb $client_and_port $target $processing_time $processing_time $processing_time \
             $status $target_status $received_bytes $bytes_sent \"$request_with_url\" \"$http_user_agent\"",
            " $cipher $protocol $group \"$trace\" \"$domain\" \"$certificate\" $priority $request_creation_time",
        ],
        escape: Escape::Backslash,
        is_open: true,
    },
    BuiltIn {
        name: "envoy",
        parts: &[
            "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
             %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \
             \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \
             \"%UPSTREAM_HOST%\"",
        ],
        escape: Escape::None,
        is_open: false,
    },
    BuiltIn {
        name: "istio",
        parts: &[
            "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
             %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \
             \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
             %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
             \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% \
             %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS%",
        ],
        escape: Escape::None,
        is_open: true,
    },
];

const JSON: &str = "json";
const CLOUDFRONT: &str = "cloudfront";
/// Other names of formats.
const ALIASES: [(&str, &str); 3] = [("common", "combined"), ("caddy", JSON), ("cloudflare", JSON)];

impl BuiltIn {
    fn compile(&self) -> Result<LogFormat, FormatError> {
        let mut parts = Vec::new();
        for (nth, text) in self.parts.iter().enumerate() {
            if nth > 0 {
                parts.push(FormatPart::MayEnd);
            }
            parts.extend(if notation::is_envoy(text) {
                notation::envoy(text)?
            } else {
                notation::nginx(text)?
            });
        }
        let kind = FormatKind::Template(Template::compile(parts, self.escape, self.is_open)?);
        Ok(LogFormat { name: self.name.to_owned(), kind })
    }
}

impl LogFormat {
    /// All formats that need not be given: `combined`, `json`, …
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        let w3c = Self { name: CLOUDFRONT.to_owned(), kind: FormatKind::W3c };
        let json = Self { name: JSON.to_owned(), kind: FormatKind::Json };
        // The tests compile them.
        BUILT_INS.iter().filter_map(|built_in| built_in.compile().ok()).chain([json, w3c]).collect()
    }

    /// A built-in format by its name, or formats as a server's configuration has them: `$remote_addr …` or a whole
    /// `log_format` of nginx, `%h …` of Apache, `%START_TIME% …` of Envoy.
    ///
    /// # Errors
    /// It can't be used.
    pub fn parse(text: &str) -> Result<Vec<Self>, FormatError> {
        let text = text.trim();
        let name = ALIASES.iter().find(|(alias, _)| *alias == text).map_or(text, |(_, name)| name);
        let built_in = Self::built_in();
        if let Some(named) = built_in.iter().find(|format| format.name == name) {
            return Ok(vec![named.clone()]);
        }
        if text.starts_with("log_format") {
            return nginx_conf::formats(text).into_iter().collect();
        }
        if !text.contains(['$', '%']) {
            let mut names: Vec<_> = built_in.into_iter().map(|format| format.name).collect();
            names.extend(ALIASES.map(|(alias, _)| alias.to_owned()));
            names.sort_unstable();
            return Err(FormatError::Unknown { name: text.to_owned(), names: names.join(", ") });
        }
        Ok(vec![Self::of_template("--format".to_owned(), notation::compile(text)?)])
    }

    /// `name`: for errors.
    pub(super) fn of_template(name: String, template: Template) -> Self {
        Self { name, kind: FormatKind::Template(template) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The number of values that tell something: of two formats that both fit a line, the one with more is right.
    pub(super) fn telling(&self) -> usize {
        if let FormatKind::Template(template) = &self.kind { template.telling() } else { 0 }
    }
}

/// Why a line has no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    Mismatch(FormatMismatch),
    /// It is no JSON object from this column on.
    Json(usize),
    /// No `#Fields` came before it.
    NoFields,
    /// It begins like none of several formats.
    Unlike,
    Lack(Lack),
}

/// Reads lines of one format.
pub(super) enum LineReader {
    Template { name: String, template: Template },
    Json(JsonReader),
    W3c(W3cReader),
}

/// Reads lines whose fields the log itself names.
#[derive(Default)]
pub(super) struct W3cReader {
    wanted: WantedHeaders,
    /// The value of the last `#Fields`.
    fields: String,
    template: Option<Template>,
}

impl LineReader {
    pub(super) fn new(format: &LogFormat, wanted: &WantedHeaders) -> Self {
        match &format.kind {
            FormatKind::Template(template) => {
                Self::Template { name: format.name.clone(), template: template.clone().only(wanted) }
            }
            FormatKind::Json => Self::Json(JsonReader::new(wanted.clone())),
            FormatKind::W3c => Self::W3c(W3cReader { wanted: wanted.clone(), ..W3cReader::default() }),
        }
    }

    /// Reads a line that is not empty.
    ///
    /// # Errors
    /// It has another format, or the client did not send HTTP.
    pub(super) fn read(&mut self, line: &[u8], times: &mut TimeCache) -> Result<LogLine, LineFault> {
        match self {
            Self::Template { template, .. } => read(template, line, times),
            Self::Json(reader) => read_json(reader, line, times),
            Self::W3c(reader) => reader.read(line, times),
        }
    }

    /// Takes in a line that begins with `#`. Returns whether it names the fields of the lines that follow.
    pub(super) fn names_fields(&mut self, line: &[u8]) -> bool {
        let (Self::W3c(reader), Some(fields)) = (self, line.strip_prefix(b"#Fields:")) else { return false };
        reader.fields = String::from_utf8_lossy(fields).into_owned();
        reader.template = None;
        true
    }

    /// Whether a line with this fault is probably one of this format.
    pub(super) fn is_alike(&self, fault: LineFault) -> bool {
        match (self, fault) {
            (_, LineFault::Lack(_)) | (Self::Json(_), LineFault::Json(1..)) => true,
            (Self::Template { template, .. }, LineFault::Mismatch(mismatch)) => template.is_alike(mismatch),
            (Self::W3c(reader), LineFault::Mismatch(mismatch)) => {
                reader.template.as_ref().is_some_and(|template| template.is_alike(mismatch))
            }
            _ => false,
        }
    }

    /// What a line lacks to be read, for the operator.
    pub(super) fn describe(&self, fault: LineFault, line: &[u8]) -> String {
        let name = match self {
            Self::Template { name, .. } => name,
            Self::Json(_) => JSON,
            Self::W3c(_) => CLOUDFRONT,
        };
        match fault {
            LineFault::Mismatch(mismatch) => {
                let template = match self {
                    Self::Template { template, .. } => Some(template),
                    Self::W3c(reader) => reader.template.as_ref(),
                    Self::Json(_) => None,
                };
                let differs = template.map(|template| template.describe(mismatch, line));
                format!("it differs from {name} {}", differs.unwrap_or_default())
            }
            LineFault::Json(column) => format!("it is not a JSON object: see column {}", column + 1),
            LineFault::Unlike => "it begins like no format that is tried".to_owned(),
            LineFault::NoFields => "no line that begins with #Fields comes before it".to_owned(),
            LineFault::Lack(Lack::Http) => "it is not HTTP".to_owned(),
            LineFault::Lack(Lack::Field(what)) => format!("it has no {what} that Tollgate knows"),
        }
    }
}

impl W3cReader {
    fn read(&mut self, line: &[u8], times: &mut TimeCache) -> Result<LogLine, LineFault> {
        if self.template.is_none() {
            let separator = if line.contains(&b'\t') { '\t' } else { ' ' };
            let template = notation::w3c(&self.fields, separator).map_err(|_| LineFault::NoFields)?;
            self.template = Some(template.only(&self.wanted));
        }
        let template = self.template.as_ref().ok_or(LineFault::NoFields)?;
        read(template, line, times)
    }
}

fn read(template: &Template, line: &[u8], times: &mut TimeCache) -> Result<LogLine, LineFault> {
    let mut told = LogFields::default();
    template.read(line, &mut told, times).map_err(LineFault::Mismatch)?;
    told.into_line(times).map_err(LineFault::Lack)
}

fn read_json(reader: &mut JsonReader, line: &[u8], times: &mut TimeCache) -> Result<LogLine, LineFault> {
    let mut told = LogFields::default();
    match reader.read(line, &mut told, times) {
        Ok(()) => told.into_line(times).map_err(LineFault::Lack),
        Err(column) => {
            let Some(repaired) = repaired(line) else { return Err(LineFault::Json(column)) };
            let mut told = LogFields::default();
            reader.read(repaired.as_bytes(), &mut told, times).map_err(|_| LineFault::Json(column))?;
            told.into_line(times).map_err(LineFault::Lack)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::offline::access_logs::{LoggedProgress, LoggedUser};

    /// 2026-07-03T12:00:01Z
    const SECOND: i64 = 1_783_080_001_000_000;

    fn reader(format: &str) -> LineReader {
        LineReader::new(&LogFormat::parse(format).unwrap()[0], &WantedHeaders::default())
    }

    /// Reads a line in the first format that `format` stands for.
    pub(in crate::offline::access_logs) fn request_of(
        format: &str,
        line: &str,
    ) -> Result<LogLine, LineFault> {
        reader(format).read(line.as_bytes(), &mut TimeCache::default())
    }

    /// The same, or why it can't be read.
    pub(in crate::offline::access_logs) fn read_as(format: &str, line: &str) -> Result<LogLine, String> {
        let mut reader = reader(format);
        let read = reader.read(line.as_bytes(), &mut TimeCache::default());
        read.map_err(|fault| reader.describe(fault, line.as_bytes()))
    }

    /// The time in microseconds, whether it is a whole second, and the duration.
    pub(in crate::offline::access_logs) fn times(line: &LogLine) -> (i64, bool, Option<i64>) {
        (line.request.time, line.is_whole_second, line.request.duration)
    }

    /// The client, the user, the request and the host.
    pub(in crate::offline::access_logs) fn who_and_what(line: &LogLine) -> [String; 5] {
        let request = &line.request;
        let user = match &request.user {
            LoggedUser::Named(name) => name.to_string(),
            other => format!("{other:?}"),
        };
        let host = request.request.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
        let parts = &request.request;
        [
            request.client.to_string(),
            user,
            parts.method.to_string(),
            parts.uri.to_string(),
            host.unwrap_or_default(),
        ]
    }

    /// The header fields, sorted.
    pub(in crate::offline::access_logs) fn headers(line: &LogLine) -> Vec<String> {
        let headers = line.request.request.headers.iter();
        let mut all: Vec<_> =
            headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        all.sort();
        all
    }

    /// The status, the bytes and how far the request got.
    fn outcome(line: &LogLine) -> (u16, Option<u64>, LoggedProgress) {
        (line.request.status.http.as_u16(), line.request.bytes, line.request.progress)
    }

    #[test]
    fn each_built_in_format_compiles() {
        assert_eq!(LogFormat::built_in().len(), BUILT_INS.len() + 2);
    }

    #[test]
    fn lines_of_apache_and_nginx_are_read() {
        let line = concat!(
            r#"203.0.113.7 - ann lee [03/Jul/2026:14:00:01 +0200] "GET /a?b=%20c HTTP/1.1" 200 512 "-" "curl/8 \"x\"""#,
            r#" "10.0.0.1" 0.003"#
        );
        let line = read_as("combined", line).unwrap();
        assert_eq!(times(&line), (SECOND, true, None));
        assert_eq!(who_and_what(&line), ["203.0.113.7", "ann lee", "GET", "/a?b=%20c", ""]);
        assert_eq!(outcome(&line), (200, Some(512), LoggedProgress::Responded));
        assert_eq!(headers(&line), [r#"user-agent: curl/8 "x""#]);
    }

    #[test]
    fn a_client_may_send_a_whole_url() {
        for (url, host, path) in [
            ("http://example.com/x?y", "example.com", "/x?y"),
            ("HTTPS://Example.com:443", "Example.com", "/"),
            ("http://[::1]:8080?y", "[::1]:8080", "/?y"),
            ("http://example.com#x", "example.com", "/"),
        ] {
            let line =
                format!(r#"203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] "GET {url} HTTP/1.1" 200 2 "-" "-""#);
            let line = read_as("combined", &line).unwrap();
            assert_eq!(who_and_what(&line), ["203.0.113.7", "Unknown", "GET", path, host]);
        }
    }

    #[test]
    fn the_common_format_has_less() {
        for rest in ["302 -", "302 - 0.5", r#"302 - x "y""#] {
            let line = format!(r#"2001:db8::1 - - [03/Jul/2026:12:00:01 +0000] "POST / HTTP/1.0" {rest}"#);
            let line = read_as("common", &line).unwrap();
            assert_eq!(who_and_what(&line), ["2001:db8::1", "Unknown", "POST", "/", ""]);
            assert_eq!(outcome(&line), (302, Some(0), LoggedProgress::Responded));
            assert!(headers(&line).is_empty());
        }
    }

    #[test]
    fn tollgate_appends_its_verdict() {
        for (verdict, progress) in [
            ("allowed - store", LoggedProgress::Responded),
            ("denied per-ip store", LoggedProgress::Unforwarded),
            ("banned bans.hammering -", LoggedProgress::Unchecked),
            ("- - -", LoggedProgress::Responded),
        ] {
            let line = format!(
                r#"203.0.113.7 - acme [03/Jul/2026:12:00:01 +0000] "GET /a?b HTTP/1.1" 429 187 "-" "curl/8" {verdict}"#
            );
            assert_eq!(read_as("combined", &line).unwrap().request.progress, progress, "{verdict}");
        }
    }

    #[test]
    fn the_host_comes_first_where_apache_has_virtual_hosts() {
        let line = r#"api.example.com:80 203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8""#;
        let line = read_as("vhost-combined", line).unwrap();
        assert_eq!(who_and_what(&line), ["203.0.113.7", "Unknown", "GET", "/", "api.example.com"]);
    }

    #[test]
    fn lines_of_traefik_are_read() {
        let line = concat!(
            r#"203.0.113.7 - ann [03/Jul/2026:12:00:01 +0000] "GET /a HTTP/2.0" 502 11 "-" "curl/8" 42 "api@docker" "#,
            r#""http://10.0.0.2:80" 1500ms"#
        );
        let line = read_as("traefik", line).unwrap();
        assert_eq!(times(&line), (SECOND, true, Some(1_500_000)), "it logs when the request arrived");
        assert_eq!(outcome(&line), (502, Some(11), LoggedProgress::Responded));
    }

    #[test]
    fn lines_of_haproxy_are_read() {
        let line = concat!(
            r#"10.0.1.2:33317 [03/Jul/2026:12:00:01.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- "#,
            r#"1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html?a=#22 HTTP/1.1""#
        );
        let line = read_as("haproxy", line).unwrap();
        assert_eq!(times(&line), (SECOND + 655_000, false, Some(109_000)));
        assert_eq!(who_and_what(&line), ["10.0.1.2", "Unknown", "GET", "/index.html?a=%22", ""]);
        assert_eq!(outcome(&line), (200, Some(2_750), LoggedProgress::Responded));
        for (state, status, progress) in [
            ("PR--", "403", LoggedProgress::Unforwarded),
            ("LR--", "302", LoggedProgress::Unforwarded),
            ("SC--", "503", LoggedProgress::Unforwarded),
            ("sH--", "504", LoggedProgress::NoResponse),
            ("CH--", "-1", LoggedProgress::NoResponse),
            ("CD--", "200", LoggedProgress::Responded),
        ] {
            let line = format!(
                r#"2001:db8::1:80 [03/Jul/2026:12:00:01.655] fe~ be/<NOSRV> 0/-1/-1/-1/+0 {status} +188 - - {state} 1/1/0/0/0 0/0 "GET https://api.example.com/a HTTP/2.0""#
            );
            let line = read_as("haproxy", &line).unwrap();
            assert_eq!(who_and_what(&line), ["2001:db8::1", "Unknown", "GET", "/a", "api.example.com"]);
            let status = if status == "-1" { 499 } else { status.parse().unwrap() };
            assert_eq!(outcome(&line), (status, Some(188), progress), "{state}");
        }
        let refused = r#"10.0.1.2:33317 [03/Jul/2026:12:00:01.655] fe fe/<NOSRV> -1/-1/-1/-1/0 400 0 - - CR-- 1/1/0/0/0 0/0 "<BADREQ>""#;
        assert_eq!(request_of("haproxy", refused).unwrap_err(), LineFault::Lack(Lack::Http));
    }

    #[test]
    fn lines_of_an_aws_load_balancer_are_read() {
        let begin = "h2 2026-07-03T12:00:01.750000Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817";
        let request = r#""GET https://www.example.com:443/a?b HTTP/2.0" "curl/7.46.0""#;
        let rest = r#"ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:x "Root=1-58337262" "www.example.com" "-" 1 2026-07-03T12:00:01.250000Z "forward" "-" "-""#;
        let line = format!("{begin} 10.0.0.1:80 0.001 0.400 0.000 200 200 34 366 {request} {rest}");
        let line = read_as("alb", &line).unwrap();
        assert_eq!(times(&line), (SECOND + 250_000, false, Some(401_000)));
        assert_eq!(who_and_what(&line), ["192.168.131.39", "Unknown", "GET", "/a?b", "www.example.com"]);
        assert_eq!(outcome(&line), (200, Some(366), LoggedProgress::Responded));
        for (status, progress) in [
            ("403", LoggedProgress::Unforwarded),
            ("504", LoggedProgress::NoResponse),
            ("460", LoggedProgress::NoResponse),
        ] {
            let line = format!("{begin} - -1 -1 -1 {status} - 34 366 {request} {rest}");
            assert_eq!(read_as("alb", &line).unwrap().request.progress, progress, "{status}");
        }
        let short = format!("{begin} 10.0.0.1:80 0.100 0.200 0.200 200 200 34 366 {request}");
        assert_eq!(times(&read_as("alb", &short).unwrap()), (SECOND + 250_000, false, Some(500_000)));
    }

    #[test]
    fn lines_of_cloudfront_are_read() {
        let mut reader = reader("cloudfront");
        assert!(!reader.names_fields(b"#Version: 1.0"));
        assert!(reader.names_fields(b"#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for"));
        let line = "2026-07-03\t12:00:03\tLAX1\t2390282\t192.0.2.202\tGET\td1.cloudfront.net\t/a%20b\t200\t-\tMozilla/4.0%20(x)\ta=b&c=d\t-\tHit\tMRVMF7==\twww.example.com\thttps\t65\t2.001\t-";
        let line = reader.read(line.as_bytes(), &mut TimeCache::default()).unwrap();
        assert_eq!(times(&line), (SECOND, true, Some(2_001_000)), "it is logged at the end");
        assert_eq!(
            who_and_what(&line),
            ["192.0.2.202", "Unknown", "GET", "/a%20b?a=b&c=d", "www.example.com"]
        );
        assert_eq!(headers(&line), ["host: www.example.com", "user-agent: Mozilla/4.0 (x)"]);
        assert_eq!(outcome(&line), (200, Some(2_390_282), LoggedProgress::Responded));

        // IIS, with spaces and milliseconds.
        assert!(reader.names_fields(b"#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status time-taken"));
        let line = "2026-07-03 12:00:01 10.0.0.1 GET /a - 80 - 203.0.113.7 curl/8 404 250";
        let line = reader.read(line.as_bytes(), &mut TimeCache::default()).unwrap();
        assert_eq!(times(&line), (SECOND, true, Some(250_000)));
        assert_eq!(who_and_what(&line), ["203.0.113.7", "Unknown", "GET", "/a", ""]);
    }

    #[test]
    fn lines_of_envoy_are_read() {
        let line = |flags: &str| {
            format!(
                r#"[2026-07-03T12:00:01.310Z] "POST /api/v1/locations HTTP/2" 204 {flags} 154 0 226 100 "203.0.113.9, 10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#
            )
        };
        let read = read_as("envoy", &line("-")).unwrap();
        assert_eq!(times(&read), (SECOND + 310_000, false, Some(226_000)));
        assert_eq!(who_and_what(&read), ["10.0.35.28", "Unknown", "POST", "/api/v1/locations", "locations"]);
        assert_eq!(outcome(&read), (204, Some(0), LoggedProgress::Responded));
        for (flags, progress) in [("RL", LoggedProgress::Unforwarded), ("UT,URX", LoggedProgress::NoResponse)]
        {
            assert_eq!(read_as("envoy", &line(flags)).unwrap().request.progress, progress);
        }
        let istio = r#"[2026-07-03T12:00:01.310Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0" "84961386-6d84" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin default"#;
        let read = read_as("istio", istio).unwrap();
        assert_eq!(who_and_what(&read), ["10.44.1.23", "Unknown", "GET", "/status/418", "httpbin:8000"]);
    }

    #[test]
    fn formats_of_nginx_are_read_as_its_configuration_has_them() {
        let format = r#"$http_host $remote_addr [$time_iso8601] $msec "$request_method $scheme://$host$request_uri" ${status} rt=$request_time $cookie_session "$http_x_api_key" $limit_req_status $pipe"#;
        let line = r#"api.example.com 203.0.113.7 [2026-07-03T12:00:02+00:00] 1783080001.750 "GET https://x/a?b" 429 rt=0.500 abc "k\x22" REJECTED ."#;
        let read = read_as(format, line).unwrap();
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(500_000)), "the more exact one counts");
        assert_eq!(who_and_what(&read), ["203.0.113.7", "Unknown", "GET", "/a?b", "x"]);
        assert_eq!(headers(&read), ["cookie: session=abc", "host: x", r#"x-api-key: k""#]);
        assert_eq!(outcome(&read), (429, None, LoggedProgress::Unforwarded));

        let json = r#"{"at":"$time_iso8601","who":"$remote_addr","what":"$request","code":$status}"#;
        let line =
            r#"{"at":"2026-07-03T12:00:01+00:00","who":"::1","what":"GET /\u0022\"a HTTP/1.1","code":200}"#;
        assert_eq!(who_and_what(&read_as(json, line).unwrap())[3], "/\"\"a");

        let decoded = "$remote_addr $msec $request_method $uri$is_args$args\t";
        let read = read_as(decoded, "::1 1783080001.750 GET /a b%?c=%20").unwrap();
        assert_eq!(who_and_what(&read)[3], "/a%20b%25?c=%20");
    }

    #[test]
    fn formats_of_apache_are_read_as_its_configuration_has_them() {
        let format =
            r#"%v %h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%!200,304{User-Agent}i\" %{X-Api-Key}i %D"#;
        let line = r#"api.example.com 203.0.113.7 - ann [03/Jul/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 - "-" "curl/8" k1 2500"#;
        let read = read_as(format, line).unwrap();
        assert_eq!(times(&read), (SECOND, true, Some(2_500)), "%t is when the request arrived");
        assert_eq!(who_and_what(&read), ["203.0.113.7", "ann", "GET", "/a", "api.example.com"]);
        assert_eq!(headers(&read), ["host: api.example.com", "user-agent: curl/8", "x-api-key: k1"]);

        let format = "%a %{usec}t %m %U%q %s %{ms}T";
        let read = read_as(format, "203.0.113.7 1783080001250000 GET /a%?c 404 12").unwrap();
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(12_000)));
        assert_eq!(who_and_what(&read)[3], "/a%25?c");
    }

    #[test]
    fn formats_of_envoy_are_read_as_its_configuration_has_them() {
        let format = "%START_TIME(%s.%3f)% %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH):100% %RESPONSE_CODE% %DURATION%\\n";
        let read = read_as(format, "1783080001.250 203.0.113.7:100 GET /a 0 3").unwrap();
        assert_eq!(times(&read), (SECOND + 250_000, false, Some(3_000)));
        assert_eq!(outcome(&read), (499, None, LoggedProgress::NoResponse), "the response never began");
    }

    #[test]
    fn formats_that_do_not_tell_enough_are_errors() {
        for (format, words) in [
            ("$remote_addr \"$request\"", "does not tell the time"),
            ("$msec \"$request\"", "does not tell the client"),
            ("$msec $remote_addr $request_method", "does not tell the request"),
            ("$remote_addr$msec \"$request\"", "nothing separates $remote_addr from $msec"),
            ("$msec ${remote_addr \"$request\"", "`${` is not closed"),
            ("%h %{Referer i", "`%{` is not closed"),
            ("%START_TIME% %REQ(:METHOD)", "`%` is not closed"),
            ("combinde", "no format is named `combinde`: choose alb, "),
            (
                "log_format main '$msec $remote_addr';",
                "log_format main: the format does not tell the request",
            ),
        ] {
            let error = LogFormat::parse(format).unwrap_err().to_string();
            assert!(error.contains(words), "{format}: {error}");
        }
    }

    #[test]
    fn the_place_where_a_line_differs_from_its_format_is_named() {
        for (line, words) in [
            (
                "",
                "it differs from combined at column 1: expected ` ` after $remote_addr, found the end of the line",
            ),
            (
                "host.example - - [",
                "at column 1: expected an IP address for $remote_addr, found `host.example - - [`",
            ),
            ("::1 - - [yesterday] ", "at column 10: expected `] \"` after $time_local, found `yesterday] `"),
            (
                "::1 - - [yesterday] \"GET",
                "at column 10: expected a time for $time_local, found `yesterday] \"GET`",
            ),
            (
                "::1 - - [03/Jul/2026:12:00:01 +0000] \"GET / HTTP/1.1\" OK 1",
                "at column 55: expected a status for $status",
            ),
        ] {
            let error = read_as("combined", line).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let error = read_as("$remote_addr $msec \"$request\"", "::1 1.0 \"GET / HTTP/1.1\" 200").unwrap_err();
        assert!(error.contains("at column 25: expected the end of the line, found ` 200`"), "{error}");
        assert!(read_as("json", "{\"a\":1").unwrap_err().contains("see column 6"));
        assert!(read_as("cloudfront", "x").unwrap_err().contains("#Fields"));
    }

    #[test]
    fn a_line_without_a_request_is_another_fault_than_no_line() {
        for request in ["-", "", r"\x16\x03\x01", "GET /", "hello there"] {
            let line = format!("203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] \"{request}\" 400 0");
            assert_eq!(request_of("combined", &line).unwrap_err(), LineFault::Lack(Lack::Http), "{request}");
        }
    }

    /// A template, and a value for each of its variables.
    const ROUND_TRIP: &str = r#"{"t":$msec,"c":"$remote_addr","u":"$remote_user","m":"$request_method","p":"$request_uri","s":$status,"b":$bytes_sent,"d":$request_time,"h":"$host","x":"$unknown","k":"$http_x_key"}"#;

    proptest! {
        #[test]
        fn a_line_that_a_format_writes_it_reads(
            millis in 0..4_000_000_000_000_i64,
            client: std::net::IpAddr,
            user in "[a-zA-Z0-9 .@]{1,20}",
            path in "/[a-z0-9/?&=%._~-]{0,40}",
            status in 100..600_u16,
            bytes in 0..u64::from(u32::MAX),
            duration in 0..100_000_i64,
            key in r#"[!#-\[\]-~]{2,20}"#,
        ) {
            let LineReader::Template { template, .. } = reader(ROUND_TRIP) else { unreachable!() };
            let line = template.render(|name| match name {
                "$msec" => format!("{}.{:03}", millis / 1_000, millis % 1_000),
                "$remote_addr" => client.to_string(),
                "$remote_user" => user.clone(),
                "$request_method" => "GET".to_owned(),
                "$request_uri" => path.clone(),
                "$status" => status.to_string(),
                "$bytes_sent" => bytes.to_string(),
                "$request_time" => format!("{}.{:03}", duration / 1_000, duration % 1_000),
                "$host" => "api.example.com".to_owned(),
                "$http_x_key" => key.clone(),
                _ => "any \\\" thing".to_owned(),
            });
            let line = read_as(ROUND_TRIP, &line).unwrap();
            prop_assert_eq!(times(&line), ((millis - duration) * 1_000, false, Some(duration * 1_000)));
            let expected = [client.to_canonical().to_string(), user, "GET".into(), path, "api.example.com".into()];
            prop_assert_eq!(who_and_what(&line), expected);
            prop_assert_eq!(outcome(&line), (status, Some(bytes), LoggedProgress::Responded));
            prop_assert_eq!(line.request.request.headers["x-key"].to_str().unwrap(), key);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(line: Vec<u8>, cut in 0..400_usize, nth in 0..9_usize, fields: String) {
            let formats = LogFormat::built_in();
            let lines = [
                &br#"203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "c" 1 "a" "b" 3ms"#[..],
                br#"10.0.1.2:1 [03/Jul/2026:12:00:01.655] a b/c 1/0/3/6/9 200 2 - - PR-- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#,
                br#"h2 2026-07-03T12:00:01.75Z a 1.1.1.1:2 - -1 -1 -1 403 - 3 3 "GET https://w:443/ HTTP/2.0" "c" "#,
                br#"[2026-07-03T12:00:01.310Z] "POST /a HTTP/2" 204 UT 1 0 2 1 "::1" "n" "c" "l" "t""#,
            ];
            for format in &formats {
                let mut reader = LineReader::new(format, &WantedHeaders::default());
                reader.names_fields(format!("#Fields: date time c-ip cs-method cs-uri-stem {fields}").as_bytes());
                for known in lines {
                    // A known line, with any bytes in the middle.
                    let cut = cut.min(known.len());
                    let line = [&known[..cut], &line, &known[cut..][(nth * 3).min(known.len() - cut)..]].concat();
                    if let Err(fault) = reader.read(&line, &mut TimeCache::default()) {
                        reader.describe(fault, &line);
                    }
                }
            }
        }

        #[test]
        fn any_format_is_compiled_without_a_panic(format in "[$%a-zA-Z_{}() \"?:]{0,60}|\\PC{0,40}", line: String) {
            if let Ok(formats) = LogFormat::parse(&format) {
                for format in formats {
                    let mut reader = LineReader::new(&format, &WantedHeaders::default());
                    let _any = reader.read(line.as_bytes(), &mut TimeCache::default());
                }
            }
            let _any = LogFormat::parse(&format!("log_format {format}"));
        }
    }
}
