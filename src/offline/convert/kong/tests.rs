use std::path::Path;

use serde_json::Value as Json;

use crate::offline::convert::Conversion;

fn converted(text: &str) -> Conversion {
    super::convert(text, Path::new("kong.yml")).unwrap().finish("test", None)
}

fn json(conversion: &Conversion) -> Json {
    let options = serde_yaml::options! { strict_booleans: true };
    serde_yaml::from_str_with_options(&conversion.yaml, options).unwrap()
}

/// Each route as its conditions, what happens, and other keys.
fn routes(text: &str) -> Vec<String> {
    let json = json(&converted(text));
    let shown = |value: &Json| value.to_string().replace('"', "").replace("\\\\", "\\");
    let route = |route: &Json| {
        let keys =
            ["listeners", "hosts", "path", "methods", "headers", "upstream", "reply", "redirect", "rewrite"];
        let others = ["policies", "allow", "deny", "require"];
        let keys = keys.iter().chain(&others).filter_map(|key| Some((key, route.get(key)?)));
        let words = keys.map(|(key, value)| match *key {
            "path" => shown(value),
            "upstream" => format!("to {}", shown(value)),
            key => format!("{key} {}", shown(value)),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    json["routes"].as_array().into_iter().flatten().map(route).collect()
}

fn notes(text: &str) -> Vec<String> {
    converted(text).unconverted.into_iter().map(|note| note.text).collect()
}

/// A file with routes of one service, and other sections.
fn file(routes: &str, others: &str) -> String {
    format!(
        "_format_version: '3.0'\nservices: [{{ name: a, url: 'http://10.0.0.5', routes: [{routes}] }}]\n{others}\n"
    )
}

/// What happens to requests of the only route, when these plugins are global.
fn with_plugins(plugins: &str) -> Vec<String> {
    routes(&file("{ name: r, paths: [/] }", &format!("plugins: [{plugins}]\n{CONSUMERS}")))
}

const CONSUMERS: &str = "consumers:
- { username: b, keyauth_credentials: [{ key: 8b1a9953c4611296a827abf8c47804d7 }], acls: [{ group: staff }] }";

const OPEN: &str = "/* to a";
const CLOSED: &str = "/* reply {status:501}";

#[test]
fn routes_are_tried_in_the_order_of_kong() {
    let found = routes(&file(
        "{ paths: [/a] }, { paths: [/a/longer] }, { paths: ['~/a/\\d+$'], strip_path: false },
         { paths: ['~/a/1'], strip_path: false, regex_priority: 5 }, { hosts: [x.com] },
         { hosts: ['*.x.com'], paths: [/] }, { hosts: [y.x.com], paths: [/] }, { paths: [/a], methods: [POST] }",
        "",
    ));
    let conditions: Vec<_> = found.iter().map(|route| route.split(" to ").next().unwrap()).collect();
    assert_eq!(
        conditions,
        [
            "hosts [y.x.com] /*",
            "~^/a/?(?P<rest>.*)$ methods [POST]",
            "hosts [*.x.com] ~^/a",
            "hosts [x.com] ~^/a",
            "~^/a/1",
            "~^/a/\\d+$",
            "~^/a/longer/?(?P<rest>.*)$",
            "~^/a/?(?P<rest>.*)$",
            "hosts [*.x.com] /*",
            "hosts [x.com] /*",
        ]
    );
}

#[test]
fn routes_that_kong_does_not_order_are_closed_where_they_meet() {
    let tied = |plugins: &str| {
        let text = format!(
            "{{ name: one, paths: ['~/a/.*'], strip_path: false }},
             {{ name: two, paths: [~/a/b$], strip_path: false, plugins: [{plugins}] }}"
        );
        routes(&file(&text, ""))
    };
    assert_eq!(tied(""), ["~^/a/.* to a", "/a/b to a"][..1]);
    let limited = tied("{ name: ip-restriction, config: { allow: [10.0.0.0/8] } }");
    assert_eq!(limited, ["/a/b reply {status:501}", "~^/a/.* to a"]);
    // Before 3.0, expressions have no tilde.
    let text = file("{ paths: ['/a/\\d'], strip_path: false }", "");
    assert_eq!(routes(&text.replace("3.0", "2.1")), ["~^/a/\\d to a"]);
}

#[test]
fn services_get_paths_as_kong_joins_them() {
    for (url, route, expected) in [
        ("http://a", "paths: [/api]", &["~^/api/?(?P<rest>.*)$ to a rewrite {path:/{rest}}"][..]),
        ("http://a", "paths: [/api/]", &["/api/* to a rewrite {strip_prefix:/api}"]),
        (
            "http://a/v1",
            "paths: [/api]",
            &["/api to a rewrite {path:/v1}", "~^/api/?(?P<rest>.*)$ to a rewrite {path:/v1/{rest}}"],
        ),
        ("http://a/v1/", "paths: [/api/]", &["/api/* to a rewrite {path:/v1/{rest}}"]),
        ("http://a/v1", "paths: [/]", &["/ to a rewrite {path:/v1}", "/* to a rewrite {path:/v1/{rest}}"]),
        (
            "http://a/v1",
            "hosts: [b]",
            &["hosts [b] / to a rewrite {path:/v1}", "hosts [b] /* to a rewrite {path:/v1/{rest}}"],
        ),
        (
            "http://a/v1",
            "paths: [/api], strip_path: false",
            &["~^/api(?P<rest>.*)$ to a rewrite {path:/v1/api{rest}}"],
        ),
        ("http://a", "paths: ['~/api/v\\d']", &["~^/api/v\\d/?(?P<rest>.*)$ to a rewrite {path:/{rest}}"]),
        ("http://a/v1", "paths: ['~/api/v\\d']", &["~^/api/v\\d/?(?P<rest>.*)$ reply {status:501}"]),
        (
            "http://a/v1",
            "paths: ['~/api/v\\d'], strip_path: false",
            &["~^(?P<rest>/api/v\\d.*)$ to a rewrite {path:/v1{rest}}"],
        ),
        ("http://a/v1", "paths: [/api], path_handling: v1", &["~^/api reply {status:501}"]),
    ] {
        let found = routes(&format!("services: [{{ name: a, url: '{url}', routes: [{{ {route} }}] }}]"));
        assert_eq!(found, expected, "{url} {route}");
    }
}

#[test]
fn routes_that_kong_reads_in_several_ways_are_closed() {
    let found = routes(&file("{ paths: ['~/pub|/open'], strip_path: false }, { paths: [/] }", ""));
    assert_eq!(found, ["~^(?:/pub|/open) to a", "~^/pub|/open reply {status:501}", OPEN]);
    let found = routes(&file("{ headers: { x-v: ['2', Beta] } }, { paths: [/] }", ""));
    let headers = ["2", "BETA", "Beta", "beta"].map(|value| format!("/* headers {{x-v:{value}}} to a"));
    assert_eq!(found[..4], headers);
    assert_eq!(found[4..], [CLOSED]);
    for route in [
        "paths: [/], headers: { x-v: ['~*a'] }",
        "paths: [/], hosts: ['a.com:8080']",
        "paths: [/], hosts: ['a.*']",
        "paths: [/], hosts: ['${{ env \"DECK_HOST\" }}']",
        "paths: ['${{ env \"DECK_PATH\" }}']",
        "paths: ['~/(?!a)']",
        "paths: [/], methods: [TRACK]",
        "paths: [/], expression: 'http.path == \"/a\"'",
        "paths: [/], sources: [{ ip: 10.0.0.0/8 }]",
        "paths: [/], strip_path: '${{ env \"X\" }}'",
        "paths: [/], surprise: 1",
    ] {
        let found = routes(&file(&format!("{{ {route} }}, {{ paths: [/] }}"), ""));
        assert!(found.iter().any(|route| route.contains("501")), "{route}: {found:?}");
    }
    // Hosts of the file are known to meet it or not.
    let found = routes(&file("{ hosts: ['a.*'] }, { hosts: [a.com, b.com], paths: [/] }", ""));
    assert_eq!(found, ["hosts [a.com,b.com] /* to a", CLOSED]);
}

#[test]
fn routes_for_https_answer_426_on_http() {
    let text = file(
        "{ paths: [/], protocols: [https] }, { paths: [/b], https_redirect_status_code: 301, protocols: [https] }",
        "",
    );
    assert_eq!(
        routes(&text),
        [
            "listeners [http] ~^/b redirect {scheme:https,status:301}",
            "~^/b/?(?P<rest>.*)$ to a rewrite {path:/{rest}}",
            "listeners [http] /* reply {status:426}",
            OPEN,
        ]
    );
    let text = file("{ paths: [/], protocols: [grpc], strip_path: false }", "");
    assert_eq!(routes(&text).last().unwrap(), "/* reply {status:415}");
}

#[test]
fn plugins_that_nobody_knows_close() {
    for plugin in [
        "basic-auth",
        "jwt",
        "oauth2",
        "openid-connect",
        "mtls-auth",
        "opa",
        "my-auth",
        "request-validator",
        "pre-function",
        "bot-detection",
        "response-ratelimiting",
        "acl",
        "session",
        "surprise",
    ] {
        assert_eq!(with_plugins(&format!("{{ name: {plugin} }}")), [CLOSED], "{plugin}");
    }
    for plugin in ["prometheus", "proxy-cache", "file-log", "correlation-id", "surprise, enabled: false"] {
        assert_eq!(with_plugins(&format!("{{ name: {plugin} }}")), [OPEN], "{plugin}");
    }
    // Locks and limits are kept.
    let found = with_plugins(
        "{ name: basic-auth }, { name: ip-restriction, config: { allow: [10.0.0.0/8] } },
         { name: rate-limiting, config: { minute: 5, limit_by: ip } }",
    );
    assert_eq!(found, ["/* reply {status:501} policies [rate] allow [10.0.0.0/8]"]);
}

#[test]
fn plugins_that_cannot_be_read_close_their_routes() {
    const ENV: &str = "'${{ env \"DECK_X\" }}'";
    for plugin in [
        "rate-limiting, config: { minute: ENV }",
        "rate-limiting, config: {}",
        "rate-limiting, config: { second: 9999999999 }",
        "rate-limiting, config: { day: 5, year: 100 }",
        "rate-limiting, config: { minute: 5, limit_by: consumer-group }",
        "rate-limiting, config: { minute: 5, limit_by: path, path: /login }",
        "rate-limiting, config: { minute: 5, surprise: 1 }",
        "rate-limiting, _config: shared",
        "rate-limiting, ordering: { before: { access: [key-auth] } }, config: { minute: 5 }",
        "rate-limiting-advanced, config: { limit: [ENV], window_size: [60] }",
        "rate-limiting-advanced, config: { limit: [5, 6], window_size: [60] }",
        "rate-limiting-advanced, config: { limit: [5, 6], window_size: [60, 60] }",
        "ip-restriction, config: { allow: [ENV] }",
        "ip-restriction, config: { deny: [10.0.0.0/8], surprise: 1 }",
        "request-size-limiting, config: { allowed_payload_size: ENV }",
        "request-size-limiting, config: { require_content_length: true }",
        "request-termination, config: { status_code: 700 }",
        "request-termination, config: { trigger: x-maintenance }",
        "request-transformer, config: { add: { querystring: ['a:b'] } }",
        "request-transformer, config: { replace: { headers: ['host:a'] } }",
        "request-transformer, config: { add: { headers: ['x-a:$(headers.b)'] } }",
        "request-transformer, config: { replace: { uri: \"/users/$(uri_captures['id'])\" } }",
        "response-transformer, config: { remove: { json: [a] } }",
    ] {
        assert_eq!(
            with_plugins(&format!("{{ name: {} }}", plugin.replace("ENV", ENV))),
            [CLOSED],
            "{plugin}"
        );
    }
    for section in [
        "filter_chains: [{ filters: [] , name: a }]",
        "_info: { defaults: { route: { strip_path: false } } }",
        "surprise: 1",
    ] {
        assert_eq!(routes(&file("{ paths: [/] }", section)), [CLOSED], "{section}");
    }
    for service in [
        "url: 'http://${{ env \"DECK_HOST\" }}'",
        "url: 'http://a', retries: ENV",
        "host: a, port: ENV",
        "url: 'http://a', surprise: 1",
    ] {
        let text =
            format!("services: [{{ name: a, {}, routes: [{{ paths: [/] }}] }}]", service.replace("ENV", ENV));
        assert_eq!(routes(&text), [CLOSED], "{service}");
    }
    assert_eq!(
        routes("services: [{ name: a, url: 'http://a', enabled: false, routes: [{ paths: [/] }] }]"),
        ["/* reply {status:404}"]
    );
}

#[test]
fn the_most_specific_plugin_applies() {
    let text = "services:
- { name: a, url: 'http://a', routes: [{ name: r, paths: [/r] }, { name: s, paths: [/s] }],
    plugins: [{ name: rate-limiting, config: { minute: 2 } }] }
- { name: b, url: 'http://b', routes: [{ name: t, paths: [/t] }] }
plugins:
- { name: rate-limiting, config: { minute: 1 } }
- { name: rate-limiting, route: r, config: { minute: 3 } }
- { name: ip-restriction, service: b, config: { deny: [192.0.2.0/24], status: 404 } }
- { name: rate-limiting, service: elsewhere, config: { minute: 9 } }";
    let found: Vec<_> = routes(text)
        .into_iter()
        .map(|route| {
            route.split(" rewrite").next().unwrap().to_owned()
                + route.split("policies").nth(1).unwrap_or_default()
        })
        .collect();
    assert_eq!(
        found,
        [
            "~^/r/?(?P<rest>.*)$ to a [r-rate]",
            "~^/s/?(?P<rest>.*)$ to a [a-rate]",
            "~^/t/?(?P<rest>.*)$ to b [rate] deny [192.0.2.0/24]",
        ]
    );
    let policies = json(&converted(text))["policies"].to_string();
    for limit in ["1/1m", "2/1m", "3/1m"] {
        assert!(policies.contains(limit), "{policies}");
    }
    assert!(!policies.contains("9/1m") && notes(text).iter().any(|note| note.contains("404")));
}

#[test]
fn limits_are_what_policies_take() {
    let policy = |config: &str| {
        let text = file("{ name: r, paths: [/] }", &format!("plugins: [{{ name: {config} }}]"));
        json(&converted(&text))["policies"].clone()
    };
    assert_eq!(policy("rate-limiting, config: { hour: 0.5 }")["rate"]["limit"], "1/1h");
    let by_header = policy("rate-limiting, config: { day: 5, limit_by: header, header_name: X-Key }");
    assert_eq!(
        (&by_header["rate"]["key"], &by_header["rate"]["missing"]),
        (&"header:x-key".into(), &"ip".into())
    );
    let advanced = policy(
        "rate-limiting-advanced, config: { limit: [5, 50], window_size: [10, 60], identifier: ip, error_code: 503 }",
    );
    assert_eq!(advanced["rate"]["algorithm"], "sliding_counter");
    assert_eq!(
        (&advanced["rate-2"]["limit"], &advanced["rate-2"]["count_denied"]),
        (&"50/1m".into(), &true.into())
    );
    assert_eq!(advanced["rate"]["reply"]["status"], 503);
    // Preflights count, unless `cors` answers them.
    assert_eq!(policy("rate-limiting, config: { minute: 5 }")["rate"]["preflight"], true);
    assert_eq!(policy("cors }, { name: rate-limiting, config: { minute: 5 }")["rate"].get("preflight"), None);
}

#[test]
fn consumers_have_their_own_limits() {
    let text = |plugins: &str| {
        file(
            "{ name: r, paths: [/r] }, { name: s, paths: [/s] }",
            &format!("plugins:\n{plugins}\n{CONSUMERS}"),
        )
    };
    let own = "- { name: key-auth }\n- { name: rate-limiting, config: { minute: 10 } }\n";
    let found = json(&converted(&text(&format!(
        "{own}- {{ name: rate-limiting, consumer: b, config: {{ minute: 7 }} }}"
    ))));
    assert_eq!(found["policies"]["rate"]["exempt"][0], "customer:b");
    assert_eq!(found["policies"]["consumers"]["overrides"][0]["limit"], "7/1m");
    // On one route alone: elsewhere, the general limit holds.
    let on_route =
        text(&format!("{own}- {{ name: rate-limiting, consumer: b, route: r, config: {{ minute: 7 }} }}"));
    let found = json(&converted(&on_route));
    assert_eq!(found["policies"]["rate"].get("exempt"), None);
    assert_eq!(found["routes"][0]["policies"], serde_json::json!(["rate", "r-consumers"]));
    assert_eq!(found["routes"][1]["policies"], serde_json::json!(["rate"]));
    for plugin in [
        "{ name: rate-limiting, consumer_group: gold, config: { minute: 7 } }",
        "{ name: ip-restriction, consumer: b, config: { deny: [10.0.0.0/8] } }",
        "{ name: rate-limiting, consumer: b, config: { year: 7 } }",
    ] {
        let found = routes(&text(&format!("{own}- {plugin}")));
        assert!(found.iter().all(|route| route.contains("501")), "{plugin}: {found:?}");
    }
    let nested = format!(
        "{own}consumer_groups: [{{ name: gold, plugins: [{{ name: rate-limiting, config: {{ minute: 7 }} }}] }}]"
    );
    assert!(routes(&text(&nested)).iter().all(|route| route.contains("501")));
    // Without a key, nobody knows the consumer: Kong counts by address.
    let found = json(&converted(&text("- { name: rate-limiting, config: { minute: 10 } }")));
    assert_eq!(found["policies"]["rate"]["key"], "ip");
}

#[test]
fn keys_are_asked_for_and_hidden() {
    let two = |first: bool, second: bool| {
        let text = format!(
            "services:
- {{ name: a, url: 'http://a', routes: [{{ paths: [/a] }}], plugins: [{{ name: key-auth, config: {{ hide_credentials: {first} }} }}] }}
- {{ name: b, url: 'http://b', routes: [{{ paths: [/b] }}] }}
- {{ name: c, url: 'http://c', routes: [{{ paths: [/c] }}], plugins: [{{ name: key-auth, config: {{ hide_credentials: {second} }} }}] }}
{CONSUMERS}"
        );
        let found = routes(&text);
        assert!(!found[0].contains("require") && found[1].contains("require none"), "{found:?}");
        json(&converted(&text))["api_keys"]["forward"].clone()
    };
    assert_eq!([two(true, true), two(true, false), two(false, true)], [Json::Null, Json::Null, Json::Null]);
    assert_eq!(two(false, false), true);
    // A global plugin that another one replaces everywhere does not count.
    let text = file(
        "{ paths: [/] }",
        "plugins: [{ name: key-auth }, { name: key-auth, service: a, config: { hide_credentials: true } }]",
    );
    assert_eq!(json(&converted(&text))["api_keys"].get("forward"), None);
    assert_eq!(with_plugins("{ name: key-auth, config: { anonymous: b } }"), [CLOSED]);
    assert_eq!(with_plugins("{ name: key-auth }, { name: jwt }"), [CLOSED]);
}

#[test]
fn headers_and_paths_are_changed() {
    let text = file(
        "{ name: r, paths: [/u] }",
        "plugins:
- { name: request-transformer, config: { remove: { headers: [X-A] }, append: { headers: ['x-b:{1}'] },
    replace: { uri: /users } } }
- { name: response-transformer, config: { add: { headers: ['x-c:1'] } } }",
    );
    let route = json(&converted(&text))["routes"][0].clone();
    assert_eq!(route["rewrite"]["path"], "/users");
    assert_eq!(route["request_headers"]["remove"][0], "x-a");
    assert_eq!(route["request_headers"]["add"]["x-b"], "{{1}}");
    assert_eq!(route["response_headers"]["set"]["x-c"], "1");
}

#[test]
fn upstreams_are_balanced_and_checked() {
    let upstream = |upstream: &str| {
        let text = format!(
            "services: [{{ name: a, host: up, retries: 0, routes: [{{ paths: [/] }}] }}]
upstreams: [{{ name: up, {upstream} }}]"
        );
        (routes(&text), json(&converted(&text))["upstreams"]["a"].clone())
    };
    let (_, found) = upstream(
        "hash_on: header, hash_on_header: X-Id, targets: [{ target: '10.0.0.1:80', weight: 100 }, { target: 10.0.0.2, weight: 0 }],
         healthchecks: { active: { http_path: /up, headers: { Host: [a.org] }, healthy: { interval: 5, http_statuses: [200] } } }",
    );
    assert_eq!(
        found["endpoints"],
        serde_json::json!(["http://10.0.0.1:80", { "url": "http://10.0.0.2:8000", "drain": true }])
    );
    assert_eq!(found["balance"]["hash"], "header:x-id");
    assert_eq!((&found["health"]["host"], &found["health"]["statuses"][0]), (&"a.org".into(), &200.into()));
    assert_eq!((&found["retry"]["max"], &found["host"]), (&0.into(), &"rewrite".into()));
    for closing in
        ["targets: []", "targets: [{ target: 'a b' }]", "host_header: a.org, targets: [{ target: a }]"]
    {
        assert_eq!(upstream(closing).0, [CLOSED], "{closing}");
    }
}
