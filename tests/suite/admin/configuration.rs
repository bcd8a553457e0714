//! The configuration in force: routes, upstreams, policies, and its text with masked secrets.

use serde_json::{Value, json};

use crate::harness::{Config, Origin, Tollgate, command, eventually, free_port, get, request};

fn ask(tollgate: &Tollgate, path: &str) -> Value {
    let reply = request(tollgate.admin, "GET", path, &[("authorization", "Bearer s3cret-token")], b"");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn config(origin: &Origin, dead: u16) -> Config {
    Config::yaml(format!(
        "
admin: {{ address: \"127.0.0.1:0\", token: s3cret-token }}
policies:
  per-ip: {{ algorithm: fixed_window, key: [ip, ip+path], limits: [2/30d, 9/60d], overrides: [{{ ip: 10.0.0.0/8, limits: [3/30d] }}] }}
  watched: {{ algorithm: gcra, key: \"header:x-api-key\", limit: 1/1h, mode: shadow }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [per-ip] }}
  gone: {{ endpoints: [\"http://127.0.0.1:{dead}\"] }}
routes:
  - {{ name: gone, path: /gone, upstream: gone }}
  - {{ path: \"/users/{{id}}\", hosts: [\"*.example.org\"], methods: [POST], upstream: origin, policies: [watched] }}
  - {{ name: all, path: /*, upstream: origin }}
",
        origin.address
    ))
}

#[test]
fn the_configuration_in_force_is_shown_with_its_counters() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, free_port()));
    let statuses = [(); 3].map(|()| get(tollgate.address, "/a", &[]).status);
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(get(tollgate.address, "/gone", &[]).status, 502);

    eventually("all are counted", || ask(&tollgate, "/v1/routes")["routes"][2]["requests"] == 3);
    let routes = ask(&tollgate, "/v1/routes")["routes"].clone();
    assert_eq!(routes[1]["path"], "/users/{id}");
    assert_eq!((&routes[1]["hosts"], &routes[1]["methods"]), (&json!(["*.example.org"]), &json!(["POST"])));
    assert_eq!(
        (&routes[1]["policies"], &routes[1]["latency"]),
        (&json!(["per-ip", "watched"]), &Value::Null)
    );
    assert_eq!((&routes[2]["path"], &routes[2]["statuses"]), (&json!("/*"), &json!([0, 2, 0, 1, 0])));
    assert_eq!((&routes[2]["denied"], &routes[2]["upstream"]), (&json!(1), &json!("origin")));
    let latency = |name: &str| routes[2]["latency"][name].as_f64().unwrap();
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p90") && latency("p90") <= latency("p99"));

    let upstreams = ask(&tollgate, "/v1/upstreams")["upstreams"].clone();
    assert_eq!((&upstreams[0]["attempts"]["ok"], &upstreams[1]["attempts"]["ok"]), (&json!(2), &json!(0)));
    assert_eq!(upstreams[0]["endpoints"][0]["healthy"], true);
    assert_eq!(upstreams[1]["endpoints"][0]["healthy"], false, "{upstreams:#}");
    assert_eq!(upstreams[0]["endpoints"][0]["url"], format!("http://{}", origin.address));

    let policies = ask(&tollgate, "/v1/policies")["policies"].clone();
    assert_eq!(
        (&policies[0]["keys"], &policies[0]["limits"]),
        (&json!(["ip", "ip+path"]), &json!(["2/30d", "9/60d"]))
    );
    assert_eq!((&policies[0]["algorithm"], &policies[0]["overrides"]), (&json!("fixed_window"), &json!(1)));
    // A request is counted once for each of its keys.
    assert_eq!((&policies[0]["allowed"], &policies[0]["denied"]), (&json!(4), &json!(2)));
    assert_eq!((&policies[1]["mode"], &policies[1]["routes"]), (&json!("shadow"), &json!(["/users/{id}"])));
}

#[test]
fn the_configuration_is_shown_without_its_secrets() {
    let origin = Origin::ok();
    let yaml = format!(
        "
admin: {{ address: \"127.0.0.1:0\", token: \"${{TOKEN}}\" }}
store: {{ redis: {{ url: \"redis://user:pa55word@127.0.0.1:{}\" }} }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes: [{{ path: /*, upstream: origin }}]
",
        free_port(),
        origin.address
    );
    let mut with_token = command(std::path::Path::new("."));
    with_token.args(["run", "--config", "proxy.yaml"]).env("TOKEN", "s3cret-token");
    let tollgate = Tollgate::launch(with_token, Config::yaml(yaml));
    let config = ask(&tollgate, "/v1/config");
    let status = ask(&tollgate, "/v1/status");
    assert_eq!((&config["hash"], &config["path"]), (&status["configuration"]["hash"], &json!("proxy.yaml")));
    let shown = config["yaml"].as_str().unwrap();
    assert!(shown.contains("${TOKEN}") && shown.contains("redis://***@127.0.0.1"), "{shown}");
    assert!(!config.to_string().contains("s3cret") && !config.to_string().contains("pa55word"), "{config}");
    assert_eq!(tollgate.admin("GET", "/v1/config").status, 401);
}
