//! `tollgate explain URL`: explains the decision on a request.

use std::{collections::BTreeMap, fs, io, process::ExitCode};

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, Options},
    failure::WRONG_ARGUMENTS,
    format::wait,
    terminal::{has_colours, moment, printable, table},
};
use crate::admin::dto::{
    AssumedCertificate, AssumedHost, AssumedListener, ExplainedBodyLimit, ExplainedCertificate,
    ExplainedCheck, ExplainedEndpoint, ExplainedListener, ExplainedReply, ExplainedRequest, ExplainedRoute,
    ExplainedUser, Explanation, HeaderChange, HeaderValues,
};

/// What would become of a request, and why; nothing is consumed
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit code: 0 if the request would be allowed, 1 if not, 2 if there is no answer or an argument is wrong."
)]
pub(super) struct Args {
    /// The URL of the request, such as http://api.example.com/orders?page=2; or its path alone, for the host of the first
    /// route that could match
    #[arg(value_hint = ValueHint::Url)]
    pub url: String,
    /// The method of the request
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET", value_hint = ValueHint::Other)]
    pub method: String,
    /// A header of the request, such as 'x-api-key: k1'; repeat it for more
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header, value_hint = ValueHint::Other)]
    pub headers: Vec<(String, String)>,
    /// An API key of the request; it goes where `api_keys.from` first looks for one
    #[arg(long = "key", value_name = "KEY", value_hint = ValueHint::Other)]
    pub api_key: Option<String>,
    /// A file with the body of the request; `-` reads it from the standard input. Without it, policies that count by the body are
    /// not decided
    #[arg(long, value_name = "FILE", value_parser = body, value_hint = ValueHint::FilePath)]
    pub body: Option<String>,
    /// The address that the connection comes from [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_hint = ValueHint::Other)]
    pub peer: Option<String>,
    /// A file of PEM with the certificate that the client would prove to hold; it is taken for verified
    #[arg(long, value_name = "FILE", value_parser = certificates, value_hint = ValueHint::FilePath)]
    pub client_cert: Option<String>,
    /// The listener on which the request comes in, by its name or one of its addresses [default: any; if the route depends
    /// on it, the first that serves the request]
    #[arg(long, value_name = "NAME|ADDRESS", value_hint = ValueHint::Other)]
    pub listener: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// Parses a header as curl does: the value follows the first colon, without surrounding spaces.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    match name.trim() {
        "" => Err("it has no name; write it as NAME: VALUE".to_owned()),
        name => Ok((name.to_owned(), value.trim().to_owned())),
    }
}

/// Reads the file of a body.
fn body(file: &str) -> Result<String, String> {
    let read = match file {
        "-" => io::read_to_string(io::stdin()),
        file => fs::read_to_string(file),
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            "it is not UTF-8: where such a body has to be read, its request gets 400".to_owned()
        }
        _ => error.to_string(),
    })
}

/// Reads the certificates of a PEM file. A private key in it is not sent.
fn certificates(file: &str) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let sections = text.split_inclusive("-----END CERTIFICATE-----");
    let found: Vec<&str> =
        sections.filter_map(|text| text.get(text.rfind("-----BEGIN CERTIFICATE-----")?..)).collect();
    if found.is_empty() { Err("it has no certificate in PEM".to_owned()) } else { Ok(found.join("\n")) }
}

/// Sends the request and prints the response. The exit code says whether the request would be allowed; without a
/// response it is that of wrong arguments.
pub(super) fn run(args: &Args) -> ExitCode {
    match output(args, has_colours()) {
        Ok((text, true)) => client::print_result(Ok(text)),
        Ok((text, false)) => {
            client::print_result(Ok(text));
            ExitCode::FAILURE
        }
        Err(failure) => {
            client::print_result(Err(failure));
            ExitCode::from(WRONG_ARGUMENTS)
        }
    }
}

/// The output, and whether the request would be allowed.
fn output(args: &Args, colour: bool) -> Result<(String, bool), AdminError> {
    let mut headers: BTreeMap<String, HeaderValues> = BTreeMap::new();
    for (name, value) in &args.headers {
        let lines =
            headers.entry(name.to_ascii_lowercase()).or_insert_with(|| HeaderValues::Many(Vec::new()));
        if let HeaderValues::Many(lines) = lines {
            lines.push(value.clone());
        }
    }
    let Args { method, url, api_key, peer, listener, body, .. } = args.clone();
    let client_certificate =
        args.client_cert.clone().map(|pem| AssumedCertificate { pem: Some(pem), ..Default::default() });
    let request =
        ExplainedRequest { method, url, headers, api_key, peer, client_certificate, listener, body };
    let mut allowed = false;
    let text = client::post_json(
        &args.options,
        Method::POST,
        "/v1/explain",
        &request,
        |explanation: &Explanation| {
            allowed = explanation.verdict == "allowed";
            page(explanation, colour)
        },
    )?;
    Ok((text, allowed))
}

fn page(explanation: &Explanation, colour: bool) -> String {
    let mut text = String::new();
    if let Some(AssumedHost { host, because }) = &explanation.assumed_host {
        text += &format!("host      {}: {}\n", printable(host), printable(because));
    }
    if let Some(AssumedListener { listener, because }) = &explanation.assumed_listener {
        text += &format!("listener  {}: {}\n", printable(listener), printable(because));
    }
    let address = &explanation.client_address;
    text += &format!("address   {}: {}\n", printable(&address.address), printable(&address.because));
    let ExplainedUser { user, because } = &explanation.user;
    text += &format!("user      {}: {}\n", printable(user.as_deref().unwrap_or("-")), printable(because));
    if let Some(ExplainedCertificate { subject, fingerprint, because }) = &explanation.client_certificate {
        let shown = subject.as_deref().or(fingerprint.as_deref()).unwrap_or("-");
        text += &format!("cert      {}: {}\n", printable(shown), printable(because));
    }
    for ExplainedListener { listener, reply, because } in &explanation.listeners {
        let status = reply.status;
        text += &format!("listener  {} answers with {status}: {}\n", printable(listener), printable(because));
    }
    if let Some(ExplainedRoute { name, because, passed_over, others }) = &explanation.route {
        text += &format!("route     {}: {}\n", printable(name.as_deref().unwrap_or("-")), printable(because));
        for route in passed_over {
            text += &format!("          not {}: {}\n", printable(&route.name), printable(&route.because));
        }
        if *others > 0 {
            text += &format!("          nor {others} others\n");
        }
    }
    if let Some(upstream) = &explanation.upstream {
        text += &format!("upstream  {}\n", printable(upstream));
    }
    if let Some(ExplainedEndpoint { url, because }) = &explanation.endpoint {
        text += &format!("endpoint  {}: {}\n", printable(url), printable(because));
    }
    match &explanation.reply {
        Some(ExplainedReply { status, location: Some(location) }) => {
            text += &format!("redirect  {status} to {}\n", printable(location));
        }
        Some(ExplainedReply { status, location: None }) => {
            text += &format!("reply     {status}: by the route\n");
        }
        None => {}
    }
    if let Some(cors) = &explanation.cors {
        text += &format!("cors      {}\n", printable(cors));
    }
    if let Some(path) = &explanation.rewritten_path {
        text += &format!("path      {}, rewritten\n", printable(path));
    }
    for (title, changes) in
        [("request", &explanation.request_headers), ("response", &explanation.response_headers)]
    {
        for (nth, HeaderChange { change, name, value }) in changes.iter().enumerate() {
            let title = if nth == 0 { title } else { "" };
            let value = value.as_deref().map(|value| format!(": {}", printable(value))).unwrap_or_default();
            text += &format!("{title:<10}{} {}{value}\n", printable(change), printable(name));
        }
    }
    if let Some(ExplainedBodyLimit { max, because }) = &explanation.body_limit {
        let max = max.map_or_else(|| "-".to_owned(), |max| format!("{max} bytes at most"));
        text += &format!("body      {max}: {}\n", printable(because));
    }
    if !explanation.checks.is_empty() {
        let head = [
            "POLICY",
            "KEY",
            "ALGORITHM",
            "COST",
            "USED",
            "LIMIT",
            "REMAINING",
            "RETRY AFTER",
            "VERDICT",
            "NOTE",
        ];
        text += &format!("\n{}", table(head, explanation.checks.iter().map(row)));
    }
    for ban in &explanation.bans {
        let mode = if ban.mode == "shadow" { ", shadow" } else { "" };
        let until = moment(&ban.until);
        let reason = if ban.reason.is_empty() { "" } else { ": " };
        text += &format!(
            "\nban       {} until {} UTC, by {}{mode}{reason}{}\n",
            printable(&ban.key),
            printable(&until),
            printable(&ban.by),
            printable(&ban.reason)
        );
    }
    let status = explanation.status.map(|status| format!(" with {status}")).unwrap_or_default();
    let verdict = colored(&explanation.verdict, colour);
    text + &format!("\n{verdict}{status}: {}\n", printable(&explanation.because))
}

fn row(check: &ExplainedCheck) -> [String; 10] {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let verdict = match check.mode.as_str() {
        "shadow" => format!("{} (shadow)", check.verdict),
        _ => check.verdict.clone(),
    };
    [
        check.policy.clone(),
        check.key.clone(),
        check.algorithm.clone(),
        check.cost.to_string(),
        number(check.used),
        check.limit.to_string(),
        number(check.remaining),
        check.retry_after.as_deref().map_or_else(|| "-".to_owned(), wait),
        verdict,
        check.because.clone(),
    ]
}

/// Green if the request is allowed, otherwise red.
fn colored(verdict: &str, colour: bool) -> String {
    let code = if verdict == "allowed" { 32 } else { 31 };
    let verdict = printable(verdict);
    if colour { format!("\x1b[1;{code}m{verdict}\x1b[0m") } else { verdict.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verdict: &str, mode: &str) -> ExplainedCheck {
        ExplainedCheck {
            policy: "per-ip".into(),
            key: "ip:203.0.113.7".into(),
            algorithm: "gcra".into(),
            cost: 1,
            limit: 5,
            used: Some(5),
            remaining: Some(0),
            retry_after: Some("2s".into()),
            verdict: verdict.into(),
            mode: mode.into(),
            because: "override for user:\x1bacme".into(),
        }
    }

    fn explanation() -> Explanation {
        Explanation {
            assumed_host: Some(AssumedHost { host: "api.example.com".into(), because: "assumed".into() }),
            assumed_listener: Some(AssumedListener {
                listener: "internal".into(),
                because: "assumed".into(),
            }),
            client_address: crate::admin::dto::ExplainedAddress {
                address: "203.0.113.7".into(),
                because: "from x-forwarded-for, sent by the trusted proxy 10.0.0.1".into(),
            },
            user: ExplainedUser { user: None, because: "cookie session: not sent".into() },
            client_certificate: Some(ExplainedCertificate {
                subject: Some("CN=acme".into()),
                fingerprint: None,
                because: "assumed".into(),
            }),
            listeners: vec![ExplainedListener {
                listener: "0.0.0.0:80".into(),
                reply: ExplainedReply { status: 308, location: Some("https://api.example.com/".into()) },
                because: "it redirects to HTTPS".into(),
            }],
            route: Some(ExplainedRoute {
                name: Some("all".into()),
                because: "the path matches /*".into(),
                others: 0,
                passed_over: vec![crate::admin::dto::PassedOver {
                    name: "login".into(),
                    because: "the method is not one of POST".into(),
                }],
            }),
            upstream: Some("api".into()),
            endpoint: Some(ExplainedEndpoint {
                url: "http://10.0.0.5:3000".into(),
                because: "the hash of ip:203.0.113.7, while it is healthy".into(),
            }),
            cors: None,
            reply: None,
            rewritten_path: Some("/v2?a\x1b".into()),
            request_headers: vec![
                HeaderChange { change: "remove".into(), name: "x-internal-*".into(), value: None },
                HeaderChange { change: "set".into(), name: "x-user".into(), value: Some("ac\x1bme".into()) },
            ],
            response_headers: vec![HeaderChange {
                change: "remove".into(),
                name: "server".into(),
                value: None,
            }],
            body_limit: Some(ExplainedBodyLimit { max: Some(1024), because: "max_body of the route".into() }),
            verdict: "denied".into(),
            status: Some(429),
            because: "denied by per-ip: the limit is reached".into(),
            checks: vec![check("denied", "enforce"), check("denied", "shadow")],
            bans: Vec::new(),
        }
    }

    #[test]
    fn a_page_says_what_becomes_of_the_request_and_why() {
        assert_eq!(
            page(&explanation(), false),
            "\
host      api.example.com: assumed
listener  internal: assumed
address   203.0.113.7: from x-forwarded-for, sent by the trusted proxy 10.0.0.1
user      -: cookie session: not sent
cert      CN=acme: assumed
listener  0.0.0.0:80 answers with 308: it redirects to HTTPS
route     all: the path matches /*
          not login: the method is not one of POST
upstream  api
endpoint  http://10.0.0.5:3000: the hash of ip:203.0.113.7, while it is healthy
path      /v2?a\\u{1b}, rewritten
request   remove x-internal-*
          set x-user: ac\\u{1b}me
response  remove server
body      1024 bytes at most: max_body of the route

POLICY  KEY             ALGORITHM  COST  USED  LIMIT  REMAINING  RETRY AFTER  VERDICT          NOTE
per-ip  ip:203.0.113.7  gcra       1     5     5      0          2s           denied           override for user:\\u{1b}acme
per-ip  ip:203.0.113.7  gcra       1     5     5      0          2s           denied (shadow)  override for user:\\u{1b}acme

denied with 429: denied by per-ip: the limit is reached
"
        );
    }

    #[test]
    fn only_a_terminal_sees_colours() {
        assert!(page(&explanation(), true).contains("\x1b[1;31mdenied\x1b[0m with 429"));
        assert!(!page(&explanation(), false).contains('\x1b'));
    }

    #[test]
    fn only_certificates_are_taken_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("client.pem");
        let section = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----");
        let [certificate, key] = ["CERTIFICATE", "PRIVATE KEY"].map(section);
        fs::write(&file, format!("{key}\nsubject=CN = a\n{certificate}\n{certificate}\n{key}\n")).unwrap();
        let read = || certificates(file.to_str().unwrap());
        assert_eq!(read(), Ok(format!("{certificate}\n{certificate}")));
        fs::write(&file, key).unwrap();
        assert!(read().is_err());
        assert!(certificates("/nonexistent").is_err());
    }

    #[test]
    fn headers_are_taken_as_curl_takes_them() {
        assert_eq!(header("X-A:  b: c "), Ok(("X-A".to_owned(), "b: c".to_owned())));
        assert_eq!(header("x-a:"), Ok(("x-a".to_owned(), String::new())));
        assert!(header("x-a").is_err() && header(": b").is_err());
    }
}
