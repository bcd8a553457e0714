//! `paths`: what becomes of dot segments, and that they lead around no route.

use crate::harness::{Client, Config, Origin, Tollgate, by_http2, eventually, get};

/// Two areas, of which the one is limited, and nothing else.
fn start(origin: &Origin, settings: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
policies: {{ one: {{ algorithm: sliding_log, key: ip, limit: 1/1h }} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ name: admin, path: /admin/*, upstream: a, policies: [one] }}
  - {{ name: public, path: /public/*, upstream: a }}
access_log: {{ format: json, to: stdout }}
{settings}
",
        origin.address
    )))
}

/// The targets that the origin saw.
fn targets(origin: &Origin) -> Vec<String> {
    origin.heads().iter().map(|head| head.split(' ').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn they_are_resolved_passed_on_or_refused_as_is_set() {
    for (settings, sent) in [
        ("", ["/public/b?c=/./", "/public/", "/public/a%2fb", "/public/.x"].map(Some)),
        ("paths: normalise", ["/public/b?c=/./", "/public/", "/public/a%2fb", "/public/.x"].map(Some)),
        ("paths: pass", [Some("/public/a/../b?c=/./"), Some("/public/a/%2E%2e"), None, Some("/public/.x")]),
        ("paths: refuse", [None, None, None, Some("/public/.x")]),
    ] {
        let origin = Origin::ok();
        let tollgate = start(&origin, settings);
        let asked = ["/public/a/../b?c=/./", "/public/a/%2E%2e", "/public/./a%2fb", "/public/.x"];
        let check = |target: &str, sent: Option<&str>, status, body: String| {
            assert_eq!(status, if sent.is_some() { 200 } else { 400 }, "{settings} {target}: {body}");
            assert_eq!(
                targets(&origin).pop().as_deref().filter(|_| sent.is_some()),
                sent,
                "{settings} {target}"
            );
        };
        for (target, sent) in asked.iter().zip(sent) {
            let reply = get(tollgate.address, target, &[]);
            check(target, sent, reply.status, reply.text());
        }
        by_http2(tollgate.address, async |mut client| {
            for (target, sent) in asked.iter().zip(sent) {
                let reply = client.get(target, &[]).await.unwrap();
                check(target, sent, reply.status(), reply.text());
            }
        });
        let expected = sent.iter().filter(|sent| sent.is_some()).count() * 2;
        assert_eq!(origin.heads().len(), expected, "{settings}: {:?}", targets(&origin));
    }
}

#[test]
fn a_refused_path_is_answered_logged_and_counted() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "paths: refuse");
    let mut client = Client::connect(tollgate.address);
    let reply = client.request("GET", "/public/a/../b", &[], b"");
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert!(reply.text().contains("The path has dot segments"), "{}", reply.text());
    assert_eq!(client.request("GET", "/public/b", &[], b"").status, 200, "the connection goes on");
    let line = || tollgate.stdout().into_iter().find(|line| line.contains("/public/a/../b"));
    eventually("it is logged", || line().is_some());
    let line: serde_json::Value = serde_json::from_str(&line().unwrap()).unwrap();
    assert_eq!(line["status"], 400);
    let status = "tollgate_requests_total{route=\"\",status=\"4xx\"}";
    eventually("it is counted", || tollgate.metric(status) == 1.0);
}

#[test]
fn no_way_leads_around_a_route_or_to_none() {
    const TO_ADMIN: [&str; 22] = [
        "/admin/.",
        "/admin/./x",
        "/admin/x/..",
        "/admin/../admin/x",
        "/./admin/x",
        "/../admin",
        "/public/../admin",
        "/public/../ADMIN/",
        "/PUBLIC/%2e%2e/admin/x",
        "/public/.%2E/admin/x",
        "/public/x/../../admin/x",
        "/public/../../admin/x",
        "/public/x/%2e%2e/../%61dmin/x",
        "//../admin/x",
        "/public//../../admin/x",
        "/public/..//admin/x",
        "/public/..%2fadmin/x",
        "/public/..;/admin/x",
        "/public/..\\admin/x",
        "/public/%2e%2e%5cadmin/x",
        "/public/x;/../../admin/x",
        "/public/a%2fb/../../admin/x",
    ];
    const TO_NONE: [&str; 5] =
        ["/public/../private", "/public/%2e%2e/private", "/public/../", "/admin/../private", "/x/../private"];
    for settings in ["", "paths: pass", "paths: refuse"] {
        let origin = Origin::ok();
        let tollgate = start(&origin, settings);
        assert_eq!(get(tollgate.address, "/admin/first", &[]).status, 200);
        for path in TO_ADMIN {
            let status = get(tollgate.address, path, &[]).status;
            assert!(matches!(status, 400 | 404 | 429), "{settings} {path}: {status}");
        }
        for path in TO_NONE {
            assert_eq!(get(tollgate.address, path, &[]).status, 404, "{settings} {path}");
        }
        // What only a part of the origins would take for an area that has a route.
        for path in ["/admin/../public/x", "/private/../public/x", "/private/%2e%2E/public/x"] {
            let status = get(tollgate.address, path, &[]).status;
            assert_eq!(status, if settings.is_empty() { 200 } else { 400 }, "{settings} {path}");
        }
        let mut expected = vec!["/admin/first"];
        expected.extend([("/public/x"); 3].iter().filter(|_| settings.is_empty()));
        assert_eq!(targets(&origin), expected, "{settings}");
    }
}

#[test]
fn a_route_has_a_setting_of_its_own() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
paths: refuse
routes:
  - {{ path: /objects/*, upstream: a, paths: pass }}
  - {{ path: /files/*, upstream: a, paths: normalise }}
  - {{ path: /*, upstream: a }}
",
        origin.address
    )));
    let status = |path| get(tollgate.address, path, &[]).status;
    assert_eq!(["/objects/a/../b", "/files/a/../b", "/a/../b"].map(status), [200, 200, 400]);
    assert_eq!(targets(&origin), ["/objects/a/../b", "/files/b"]);
    // The route is that of the resolved path, and its setting counts.
    assert_eq!(["/objects/../files/x", "/files/../objects/x", "/objects/../x"].map(status), [200, 400, 400]);
    assert_eq!(targets(&origin).pop().unwrap(), "/files/x");
}

#[test]
fn limits_by_path_count_them_as_one() {
    for settings in ["", "paths: pass"] {
        let origin = Origin::ok();
        let tollgate = Tollgate::start(Config::yaml(format!(
            "
policies: {{ one: {{ algorithm: sliding_log, key: path, limit: 1/1h }} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"], policies: [one] }} }}
routes: [{{ path: /files/*, upstream: a }}]
{settings}
",
            origin.address
        )));
        assert_eq!(get(tollgate.address, "/files/b", &[]).status, 200);
        for path in ["/files/a/../b", "/files/./b", "/files/a/%2e%2E/%62", "/files/b/."] {
            assert_eq!(get(tollgate.address, path, &[]).status, 429, "{settings} {path}");
        }
    }
}

#[test]
fn explain_agrees() {
    let origin = Origin::ok();
    for (settings, path, status, says) in [
        (
            "",
            "/public/a/../b?c",
            None,
            "the path matches /public/* without its dot segments, and is sent as /public/b?c",
        ),
        (
            "paths: pass",
            "/public/a/../b?c",
            None,
            "the path matches /public/* without its dot segments, and is sent as /public/a/../b?c",
        ),
        ("paths: pass", "/admin/../public/b", Some(400), "The path is ambiguous"),
        ("paths: pass", "/public//../public/b", Some(400), "is ambiguous besides"),
        ("paths: refuse", "/public/a/../b", Some(400), "The path has dot segments"),
        ("paths: refuse", "/public/../x", Some(404), "No route matches."),
    ] {
        let tollgate = start(&origin, settings);
        let asked = serde_json::json!({ "url": path, "headers": { "host": "a" } }).to_string();
        let answer = Client::connect(tollgate.admin).request(
            "POST",
            "/v1/explain",
            &[("content-type", "application/json")],
            asked.as_bytes(),
        );
        assert!(answer.text().contains(says), "{settings} {path}: {}", answer.text());
        assert_eq!(get(tollgate.address, path, &[]).status, status.unwrap_or(200), "{settings} {path}");
    }
}
