//! Certificates that are seen: in the status, on the page, in metrics and in warnings.

use std::{fs, process::Command};

use crate::{
    harness::{Authority, Config, Issued, Origin, Tollgate, eventually, file_name, get, printed, program},
    store::redis_audit::warnings,
};

/// A plain listener, and one with these certificates.
fn listeners(certificates: &[&Issued]) -> String {
    let files = |Issued { cert, key }: &&Issued| {
        format!("{{ cert: \"{}\", key: \"{}\" }}", file_name(cert), file_name(key))
    };
    let certificates = certificates.iter().map(files).collect::<Vec<_>>().join(", ");
    format!(
        "listeners:\n  - {{ address: \"127.0.0.1:0\" }}\n  - {{ address: \"127.0.0.1:0\", tls: {{ certificates: [{certificates}] }} }}\n"
    )
}

fn start(origin: &Origin, certificates: &[&Issued]) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], &listeners(certificates)))
}

/// The TLS of the only listener that speaks it.
fn tls(tollgate: &Tollgate) -> serde_json::Value {
    let status = tollgate.admin("GET", "/v1/status").json();
    assert_eq!(status["tls"].as_array().unwrap().len(), 1);
    status["tls"][0].clone()
}

fn address(tollgate: &Tollgate) -> String {
    tls(tollgate)["addresses"][0].as_str().unwrap().to_owned()
}

/// What `openssl x509` says of the certificate that a client gets who asks for `name`.
fn shown(tollgate: &Tollgate, name: &str, what: &[&str]) -> String {
    let script = "echo | openssl s_client -connect \"$0\" -servername \"$1\" 2>/dev/null | openssl x509 -noout \"${@:2}\"";
    program("openssl", "openssl");
    let mut bash = Command::new("bash");
    printed(bash.args(["-c", script, &address(tollgate), name]).args(what))
}

/// Puts the files of `new` in the place of `old`.
fn replace(old: &Issued, new: &Issued) {
    fs::copy(&new.cert, &old.cert).unwrap();
    fs::copy(&new.key, &old.key).unwrap();
}

/// It is in the log, or will be soon.
#[track_caller]
fn is_logged_once(tollgate: &Tollgate, level: &str, text: &str) {
    let count = || tollgate.log().iter().filter(|line| line.contains(level) && line.contains(text)).count();
    eventually(text, || count() > 0);
    assert_eq!(count(), 1, "{:#?}", tollgate.log());
}

#[test]
fn served_certificates_are_in_the_status_on_the_page_and_in_metrics() {
    let (origin, authority) = (Origin::ok(), Authority::new("an authority"));
    let api = authority.issue_for_days("api", &["API.example.com", "*.example.org", "192.0.2.7"], 100);
    let soon = authority.issue_for_days("soon", &["soon.example.com"], 10);
    let tollgate = start(&origin, &[&api, &soon]);
    let tls = tls(&tollgate);
    assert!(tls["client_ca"].is_null(), "{tls}");
    let served = &tls["certificates"][0];
    let names = serde_json::json!(["api.example.com", "*.example.org", "192.0.2.7"]);
    assert_eq!((&served["names"], &served["file"]), (&names, &file_name(&api.cert).into()));
    assert_eq!((&served["subject"], &served["issuer"]), (&"CN=api".into(), &"CN=an authority".into()));
    assert_eq!((&served["key_type"], &served["days_left"]), (&"ECDSA P-256".into(), &99.into()));
    assert_eq!((&served["state"], &served["reload_error"]), (&"valid".into(), &serde_json::Value::Null));
    let soon = &tls["certificates"][1];
    assert_eq!((&soon["state"], &soon["days_left"]), (&"expiring".into(), &9.into()));
    // As others read it.
    let fingerprint =
        shown(&tollgate, "API.example.com", &["-fingerprint", "-sha256"]).replace(':', "").to_lowercase();
    assert!(fingerprint.contains(served["fingerprint"].as_str().unwrap()), "{fingerprint} {served}");
    let expiry = shown(&tollgate, "soon.example.com", &["-enddate", "-dateopt", "iso_8601"]);
    let not_after = soon["not_after"].as_str().unwrap();
    assert!(expiry.replace(' ', "T").contains(&not_after.replace(".000Z", "Z")), "{expiry} {not_after}");
    // On the page.
    let page = tollgate.admin("GET", "/").text();
    let (_, section) = page.split_once("id=\"certificates\"").unwrap();
    for part in [
        "api.example.com, *.example.org, 192.0.2.7",
        "badge good\">valid",
        "soon.example.com",
        "badge warn\">expires soon",
    ] {
        assert!(section.contains(part), "no {part} in {section}");
    }
    // By the command.
    let listener = address(&tollgate);
    let status = tollgate.command(&["status"]).stdout;
    let mut rows = status.lines().skip_while(|line| !line.starts_with("LISTENER"));
    let columns = ["LISTENER", "NAMES", "FILE", "EXPIRES", "DAYS LEFT", "STATE"];
    assert!(columns.iter().all(|column| rows.clone().next().unwrap().contains(column)), "{status}");
    rows.next();
    for (name, end) in
        [("api.example.com, *", "99         valid"), ("soon.example.com", "9          expiring")]
    {
        let row = rows.next().unwrap();
        assert!(row.starts_with(&format!("{listener}  {name}")) && row.ends_with(end), "{status}");
    }
    // In metrics.
    let expiry = format!(
        "tollgate_tls_certificate_expiry_timestamp_seconds{{listener=\"{listener}\",name=\"soon.example.com\"}}"
    );
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let days = (tollgate.metric(&expiry) - now) / 86_400.0;
    assert!((9.9..10.0).contains(&days), "{days}");
    assert!(
        tollgate.metric(&format!("tollgate_tls_last_reload_successful{{listener=\"{listener}\"}}")) == 1.0
    );
}

#[test]
fn a_certificate_that_expires_soon_is_warned_of_until_it_is_renewed() {
    let (origin, authority) = (Origin::ok(), Authority::new("an authority"));
    let served = authority.issue_for_days("served", &["api.example.com"], 10);
    let tollgate = start(&origin, &[&served]);
    let warning =
        format!("the certificate of api.example.com in {} expires in 9 days, on ", file_name(&served.cert));
    let is_warned = || warnings(&tollgate).iter().any(|text| text.starts_with(&warning));
    eventually("it is warned", is_warned);
    is_logged_once(&tollgate, "WARN", &warning);
    assert!(tollgate.admin("GET", "/").text().contains("expires in 9 days"));
    replace(&served, &authority.issue_for_days("renewed", &["api.example.com"], 90));
    eventually("the warning ends", || !is_warned());
    assert_eq!(tls(&tollgate)["certificates"][0]["days_left"], 89);
    assert!(shown(&tollgate, "api.example.com", &["-subject"]).contains("renewed"));
    is_logged_once(&tollgate, "INFO", ".pem was reloaded");
}

#[test]
fn files_that_do_not_fit_are_told_once_and_the_old_ones_are_kept() {
    let (origin, authority) = (Origin::ok(), Authority::new("an authority"));
    let served = authority.issue("served", &["api.example.com"]);
    let tollgate = start(&origin, &[&served]);
    let other = authority.issue("other", &["api.example.com"]);
    fs::copy(&other.cert, &served.cert).unwrap();
    let error = format!("{} is not the private key of `cert`", file_name(&served.key));
    let warning = format!("{error}: what was read before is still in use");
    eventually("it is warned", || warnings(&tollgate).contains(&warning));
    let certificate = tls(&tollgate)["certificates"][0].clone();
    assert_eq!(
        (&certificate["reload_error"], &certificate["subject"]),
        (&error.clone().into(), &"CN=served".into())
    );
    assert!(shown(&tollgate, "api.example.com", &["-subject"]).contains("served"));
    let listener = address(&tollgate);
    assert!(
        tollgate.metric(&format!("tollgate_tls_last_reload_successful{{listener=\"{listener}\"}}")) == 0.0
    );
    assert!(tollgate.admin("GET", "/").text().contains("badge bad\">not reloaded"));
    assert!(tollgate.command(&["status"]).stdout.contains("valid, not reloaded\n"));
    fs::copy(&other.key, &served.key).unwrap();
    eventually("the warning ends", || warnings(&tollgate).is_empty());
    assert!(shown(&tollgate, "api.example.com", &["-subject"]).contains("other"));
    assert!(tls(&tollgate)["certificates"][0]["reload_error"].is_null());
    is_logged_once(&tollgate, "ERROR", &error);
}

#[test]
fn one_certificate_that_has_expired_keeps_nobody_from_being_served() {
    let (origin, authority) = (Origin::ok(), Authority::new("an authority"));
    let (api, expired) = (
        authority.issue("api", &["api.example.com"]),
        authority.issue_expired("expired", &["old.example.com"]),
    );
    let tollgate = start(&origin, &[&api, &expired]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert!(shown(&tollgate, "api.example.com", &["-subject"]).contains("api"));
    assert!(shown(&tollgate, "old.example.com", &["-subject"]).contains("expired"));
    let warning = format!(
        "the certificate of old.example.com in {} expired on 2021-01-01 00:00:00 UTC",
        file_name(&expired.cert)
    );
    eventually("it is warned", || warnings(&tollgate).iter().any(|text| text.starts_with(&warning)));
    is_logged_once(&tollgate, "ERROR", &warning);
    let served = &tls(&tollgate)["certificates"][1];
    assert_eq!((&served["state"], &served["days_left"]), (&"expired".into(), &serde_json::Value::Null));
    // Who checks or reloads is told, and the old configuration stays.
    let reply = tollgate.admin("POST", "/v1/reload");
    let error = format!("`{}` expired on 2021-01-01 00:00:00 UTC", file_name(&expired.cert));
    assert!(reply.status == 422 && reply.text().contains(&error), "{} {}", reply.status, reply.text());
    replace(&expired, &authority.issue("renewed", &["old.example.com"]));
    eventually("the warning ends", || !warnings(&tollgate).iter().any(|text| text.starts_with(&warning)));
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
}
