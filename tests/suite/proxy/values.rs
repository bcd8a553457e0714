//! Limits by values of the request: its model, its tool, its login name.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Deployment, Origin, Reply, Tollgate, becomes, eventually, on_each_store, tollgate_in,
};

on_each_store!(each_group_has_a_count_of_its_own, each_call_of_a_batch_counts, an_override_is_for_a_value);

const JSON: (&str, &str) = ("content-type", "application/json");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A Tollgate in front of the upstream `api` at `origin`. `rest`: its values, policies and routes.
fn start(redis: Option<&Deployment>, origin: SocketAddr, rest: &str) -> Tollgate {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 10s }} }}\n", redis.settings())
    });
    Tollgate::start(Config::yaml(format!(
        "user: [{{ header: x-user, from: anyone }}]\n\
         upstreams: {{ api: {{ endpoints: [\"http://{origin}\"] }} }}\n{store}{rest}\n"
    )))
}

/// The statuses of POSTs by `user`, one after the other.
#[track_caller]
fn statuses(tollgate: &Tollgate, user: &str, bodies: &[&str]) -> Vec<u16> {
    let mut client = Client::connect(tollgate.address);
    bodies
        .iter()
        .map(|body| client.request("POST", "/", &[("x-user", user), JSON], body.as_bytes()).status)
        .collect()
}

/// The units that are used of a limit of `policy`, by `key`.
fn used(tollgate: &Tollgate, policy: &str, key: &str) -> u64 {
    let reply = tollgate.admin("GET", &format!("/v1/limits?policy={policy}&key={key}"));
    let limits = reply.json()["limits"].as_array().cloned().unwrap_or_default();
    limits.iter().map(|limit| limit["used"].as_u64().unwrap()).sum()
}

const MODELS: &str = r#"
values:
  model:
    json: model
    groups: { big: ["gpt-4o*", "o3*"], mini: ["gpt-4o-mini*"] }
"#;

fn model(name: &str) -> String {
    json!({ "model": name, "messages": [] }).to_string()
}

fn each_group_has_a_count_of_its_own(redis: Option<&Deployment>) {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  models: {{ algorithm: sliding_log, key: \"user+value:model\", limit: 2/1h }}
  all: {{ algorithm: sliding_log, key: user, limit: 100/1h }}
routes: [{{ path: /*, upstream: api, policies: [models, all] }}]"
    );
    let tollgate = start(redis, origin.address, &rest);
    let [big, o3, mini, other] = ["gpt-4o", "o3-pro", "gpt-4o-mini-2026", "llama"].map(model);
    assert_eq!(
        statuses(&tollgate, "ann", &[&big, &mini, &o3, &mini, &big, &mini]),
        [200, 200, 200, 200, 429, 429]
    );
    assert_eq!(statuses(&tollgate, "ann", &[&other, &other, &other]), [200, 200, 429]);
    assert_eq!(statuses(&tollgate, "bob", &[&big]), [200]);
    // A request without the value is not held against its policy.
    assert_eq!(
        statuses(&tollgate, "ann", &["{}", r#"{"model":null}"#, r#"{"model":""}"#, "[]", "7"]),
        [200; 5]
    );
    let mut client = Client::connect(tollgate.address);
    for method in ["GET", "POST"] {
        assert_eq!(client.request(method, "/", &[("x-user", "ann")], b"").status, 200);
    }
    becomes(2, || used(&tollgate, "models", "user:ann%2Bvalue:model=big"));
    becomes(2, || used(&tollgate, "models", "user:ann%2Bvalue:model=other"));
    becomes(13, || used(&tollgate, "all", "user:ann"));
}

fn each_call_of_a_batch_counts(redis: Option<&Deployment>) {
    let origin = Origin::echo();
    let tollgate = start(
        redis,
        origin.address,
        r#"
values:
  tool: { json: params.name, if: { method: tools/call } }
policies:
  tools: { algorithm: sliding_log, key: "user+value:tool", limit: 5/1h }
routes: [{ path: /*, upstream: api, policies: [tools] }]"#,
    );
    let call = |name: &str| json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": name } });
    let start = json!({ "jsonrpc": "2.0", "method": "initialize", "params": { "name": "search" } });
    let batch = |calls: &[&Value]| json!(calls).to_string();
    let [search, fetch] = ["search", "fetch"].map(call);
    let first = batch(&[&search, &search, &start, &fetch, &search]);
    assert_eq!(statuses(&tollgate, "ann", &[&first, &start.to_string()]), [200, 200]);
    becomes(3, || used(&tollgate, "tools", "user:ann%2Bvalue:tool=search"));
    becomes(1, || used(&tollgate, "tools", "user:ann%2Bvalue:tool=fetch"));
    // Nothing of a batch counts if a part of it is too much.
    let too_many = batch(&[&fetch, &search, &search, &search]);
    assert_eq!(
        statuses(&tollgate, "ann", &[&too_many, &search.to_string(), &search.to_string()]),
        [429, 200, 200]
    );
    assert_eq!(statuses(&tollgate, "ann", &[&search.to_string(), &fetch.to_string()]), [429, 200]);
    becomes(2, || used(&tollgate, "tools", "user:ann%2Bvalue:tool=fetch"));
    let all = batch(&[&search; 65]);
    assert_eq!(statuses(&tollgate, "bob", &[&all]), [413]);
}

fn an_override_is_for_a_value(redis: Option<&Deployment>) {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  models:
    algorithm: sliding_window
    key: \"ip+value:model\"
    limit: 3/1h
    overrides:
      - {{ ip: 127.0.0.1, \"value:model\": mini, limit: 2/1h }}
      - {{ \"value:model\": big, limit: 1/1h }}
routes: [{{ path: /*, upstream: api, policies: [models] }}]"
    );
    let tollgate = start(redis, origin.address, &rest);
    let [big, mini, other] = ["gpt-4o", "gpt-4o-mini", "llama"].map(model);
    assert_eq!(statuses(&tollgate, "", &[&big, &big]), [200, 429]);
    assert_eq!(statuses(&tollgate, "", &[&mini, &mini, &mini]), [200, 200, 429]);
    assert_eq!(statuses(&tollgate, "", &[&other, &other, &other, &other]), [200, 200, 200, 429]);
}

#[test]
fn only_allowed_values_pass() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  requests: {{ algorithm: fixed_window, key: user, limit: 100/1h }}
routes: [{{ path: /*, upstream: api, policies: [requests], allow_values: {{ model: [mini] }} }}]"
    );
    let tollgate = start(None, origin.address, &rest);
    let [big, mini] = ["gpt-4o", "gpt-4o-mini"].map(model);
    assert_eq!(statuses(&tollgate, "ann", &[&mini, &big, "{}", "not json"]), [200, 403, 403, 400]);
    let mut client = Client::connect(tollgate.address);
    let refused = client.request("POST", "/", &[JSON], big.as_bytes());
    assert_eq!(
        refused.json()["detail"],
        "Only some values of `model` are allowed: `mini`. The request's is `big`."
    );
    assert_eq!(client.request("GET", "/", &[], b"").status, 403);
    assert_eq!(origin.heads().len(), 1, "the origin sees none of the others");
    becomes(4, || used(&tollgate, "requests", "user:ann"));
}

#[test]
fn a_plan_allows_only_some_values() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}api_keys: {{ store: true, data: keys.json, required: false }}
plans: {{ small: {{ models: 5/1h, allow_values: {{ model: [mini] }} }}, large: {{}} }}
policies:
  models: {{ algorithm: sliding_log, key: \"customer+value:model\", limit: 2/1h }}
routes:
  - {{ path: /models/*, upstream: api, policies: [models] }}
  - {{ path: /*, upstream: api }}"
    );
    let tollgate = start(None, origin.address, &rest);
    let key = |customer: &str, plan: &str| {
        let new = json!({ "customer": customer, "plan": plan });
        let made = crate::admin::keys::send(&tollgate, "POST", "/v1/keys", &new);
        made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned()
    };
    let (small, large) = (key("acme", "small"), key("globex", "large"));
    let [big, mini] = ["gpt-4o", "gpt-4o-mini"].map(model);
    let send = |key: &str, path: &str, body: &str| {
        let mut client = Client::connect(tollgate.address);
        client.request("POST", path, &[("x-api-key", key), JSON], body.as_bytes()).status
    };
    // A request without a model is none of the plan's business, nor is a route that does not read it.
    let sent = [big.as_str(), &mini, "{}", "{"].map(|body| send(&small, "/models/a", body));
    assert_eq!(sent, [403, 200, 200, 400]);
    assert_eq!([send(&large, "/models/a", &big), send(&small, "/elsewhere", &big)], [200; 2]);
    assert_eq!(send(&small, "/elsewhere", "{"), 200);
    let more: Vec<u16> = (0..5).map(|_| send(&small, "/models/a", &mini)).collect();
    assert_eq!(more, [200, 200, 200, 200, 429], "the plan's limit, not the policy's");
    becomes(5, || used(&tollgate, "models", "customer:acme%2Bvalue:model=mini"));
}

#[test]
fn a_value_of_the_path_needs_no_body() {
    let origin = Origin::echo();
    let tollgate = start(
        None,
        origin.address,
        r#"
values:
  model: [{ path: "/v1beta/models/{model}:*" }, { json: model }]
policies:
  models: { algorithm: sliding_log, key: "value:model", limit: 2/1h }
routes: [{ path: /*, upstream: api, policies: [models] }]"#,
    );
    let mut client = Client::connect(tollgate.address);
    let mut post = |path: &str, body: &str| client.request("POST", path, &[JSON], body.as_bytes()).status;
    // The body is the upstream's, whatever it is.
    assert_eq!(post("/v1beta/models/gemini-pro:generateContent", "{{{"), 200);
    assert_eq!(post("/V1beta/models/gemini%2Dpro:streamGenerateContent", "{}"), 200);
    assert_eq!(post("/v1beta/models/gemini-pro:countTokens", "{}"), 429);
    assert_eq!(post("/v1beta/models/a:b:c", "{}"), 400, "it can be read in two ways");
    assert_eq!(post("/v1/chat", &model("gemini-pro")), 429, "the same value, by the body");
    assert_eq!(post("/v1/chat", &model("llama")), 200);
    assert_eq!(post("/v1/chat", "{{{"), 400);
}

const LOGINS: &str = r#"
values:
  login: { from: [{ form: username }, { json: username }], fold: true }
policies:
  logins: { algorithm: sliding_log, key: "value:login", limit: 2/1h }
  names: { algorithm: distinct, key: ip, value: "value:login", limit: 4/1h }
routes: [{ path: /*, upstream: api, policies: [logins, names] }]"#;

#[test]
fn a_login_name_is_one_however_it_is_written() {
    let origin = Origin::echo();
    let tollgate = start(None, origin.address, LOGINS);
    let mut client = Client::connect(tollgate.address);
    let mut post =
        |field: (&str, &str), body: &str| client.request("POST", "/login", &[field], body.as_bytes()).status;
    assert_eq!(post(FORM, "username=Ann&password=x"), 200);
    assert_eq!(post(JSON, r#"{"username":" \uff21nn "}"#), 200);
    assert_eq!(post(FORM, "password=y&username=ann"), 429);
    assert_eq!(post(FORM, "username=ann&username=bob"), 400);
    assert_eq!(post(FORM, "username=bob&Username=ann"), 400);
    assert_eq!(post(FORM, "username=bob;username=ann"), 400);
    assert_eq!(post(("content-type", "multipart/form-data; boundary=a"), "--a\r\n"), 415);
    assert_eq!(post(("content-type", "text/csv"), "username=bob"), 200, "no form");
    assert_eq!(post(("content-type", "text/plain"), "username=bob"), 415);
    assert_eq!(post(("content-type", "text/plain"), "Hello"), 200);
    assert_eq!(
        post(("content-type", "application/x-www-form-urlencoded; charset=ISO-8859-1"), "username=%E4"),
        400
    );
    assert_eq!(
        post(("content-type", "application/x-www-form-urlencoded; charset=ISO-8859-1"), "username=ann"),
        429
    );
    assert_eq!(post(("content-type", "application/x-www-form-urlencoded,x"), "username=bob"), 415);
    assert_eq!(post(("content-type", ""), "username=bob"), 415);
    assert_eq!(post(("content-type", ""), r#"{"a":"&username=ann&b="}"#), 415);
    assert_eq!(post(FORM, &format!("username={}", "x".repeat(1_025))), 400);
    // Five names from one address are too many.
    for (name, status) in [("bob", 200), ("cem", 200), ("dora", 200), ("emil", 429), ("DORA", 200)] {
        assert_eq!(post(FORM, &format!("username={name}&password=x")), status, "{name}");
    }
    for (body, is_refused) in [(&br#"{"username":"ann"}"#[..], true), (b"\0\0\0\0{", false)] {
        let reply = client.request("POST", "/login", &[("content-type", "application/grpc")], body);
        assert_eq!(reply.header("grpc-status").is_some(), is_refused, "{reply:?}");
    }
    assert_eq!(client.request("GET", "/login", &[], b"").status, 200);
    assert_eq!(client.request("GET", "/login?username=ann", &[], b"").status, 200);
    // Rails, PHP and others take it for a field.
    let mut query =
        |body: &str| client.request("POST", "/login?username=ann", &[FORM], body.as_bytes()).status;
    assert_eq!([query("password=x"), query("username=ann"), query("username=bob")], [429, 429, 400]);
}

#[test]
fn json_that_says_nothing_that_is_asked_is_not_read() {
    let origin = Origin::echo();
    let tollgate = start(
        None,
        origin.address,
        r#"
values:
  login: { form: username }
policies:
  logins: { algorithm: sliding_log, key: "value:login", limit: 1/1h }
routes: [{ path: /*, upstream: api, policies: [logins] }]"#,
    );
    let list = format!("[{}]", vec!["1"; 100].join(","));
    let mut client = Client::connect(tollgate.address);
    let mut post =
        |field: (&str, &str), body: &str| client.request("POST", "/", &[field], body.as_bytes()).status;
    for body in [list.as_str(), "{", &"x".repeat(17 << 20)] {
        assert_eq!(post(JSON, body), 200, "{body:.20}");
    }
    assert_eq!([post(FORM, "username=ann"), post(FORM, "username=ann")], [200, 429]);
}

#[test]
fn a_preflight_has_no_values() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}routes: [{{ path: /*, upstream: api, allow_values: {{ model: [mini] }}, cors: {{ origins: [\"https://a.example\"] }} }}]"
    );
    let tollgate = start(None, origin.address, &rest);
    let mut client = Client::connect(tollgate.address);
    let origin_field = ("origin", "https://a.example");
    let preflight = [origin_field, ("access-control-request-method", "POST")];
    assert_eq!(client.request("OPTIONS", "/", &preflight, b"").status, 204);
    assert_eq!(client.request("OPTIONS", "/", &[origin_field], b"").status, 403);
}

#[test]
fn a_body_of_unknown_length_costs_as_one_with_a_length() {
    let origin = Origin::echo();
    let tollgate = start(
        None,
        origin.address,
        r#"
values:
  model: { path: "/models/{model}:*" }
policies:
  models: { algorithm: sliding_log, key: "value:model", limit: 100/1h }
  tokens:
    algorithm: sliding_window
    key: user
    limit: 100000/1h
    cost: { response: gemini, reserve: { default: 1000, prompt: estimate } }
  each:
    algorithm: sliding_window
    key: "user+value:model"
    limit: 100000/1h
    cost: { response: gemini, reserve: 500 }
routes: [{ path: /*, upstream: api, policies: [models, tokens, each] }]"#,
    );
    let body = "x".repeat(4_000);
    let chunked = format!(
        "POST /models/a:x HTTP/1.1\r\nhost: a\r\nx-user: bob\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    assert_eq!(Client::sending(tollgate.address, chunked).reply().status, 200);
    let fields = [("x-user", "ann"), ("content-type", "text/plain")];
    let whole = Client::connect(tollgate.address).request("POST", "/models/a:x", &fields, body.as_bytes());
    assert_eq!(whole.status, 200);
    for user in ["ann", "bob"] {
        becomes(2_000, || used(&tollgate, "tokens", &format!("user:{user}")));
        becomes(500, || used(&tollgate, "each", &format!("user:{user}%2Bvalue:model=a")));
    }
    let none = Client::connect(tollgate.address).request("POST", "/models/a:x", &[("x-user", "cem")], b"");
    assert_eq!(none.status, 200);
    assert_eq!(
        used(&tollgate, "tokens", "user:cem") + used(&tollgate, "each", "user:cem%2Bvalue:model=a"),
        0
    );
}

#[test]
fn a_batch_is_one_value_to_a_limit_of_different_ones() {
    let origin = Origin::echo();
    let tollgate = start(
        None,
        origin.address,
        r#"
values:
  tool: { json: tool }
policies:
  tools: { algorithm: distinct, key: user, value: "value:tool", limit: 3/1h }
routes: [{ path: /*, upstream: api, policies: [tools] }]"#,
    );
    let two = r#"[{"tool":"a"},{"tool":"b"}]"#;
    let same = r#"[{"tool":"a"},{"tool":"a"},{}]"#;
    assert_eq!(statuses(&tollgate, "ann", &[two, same, r#"{"tool":"b"}"#]), [400, 200, 200]);
    becomes(2, || used(&tollgate, "tools", "user:ann"));
}

#[test]
fn what_can_not_be_read_may_pass_and_count() {
    let origin = Origin::echo();
    let tollgate = start(
        None,
        origin.address,
        r#"
values:
  login: { form: username, unreadable: count }
policies:
  logins: { algorithm: sliding_log, key: "value:login", limit: 3/1h }
routes: [{ path: /*, upstream: api, policies: [logins] }]"#,
    );
    let mut client = Client::connect(tollgate.address);
    let mut post =
        |fields: &[(&str, &str)], body: &str| client.request("POST", "/login", fields, body.as_bytes());
    let twice = "username=ann&username=bob";
    assert_eq!(post(&[FORM], twice).json()["body"], twice, "it passes unchanged");
    assert_eq!(post(&[("content-type", "multipart/form-data; boundary=a")], "--a\r\n").status, 200);
    assert_eq!(post(&[FORM, ("content-encoding", "gzip")], "zip").status, 200);
    assert_eq!(post(&[FORM], "username=%ff").status, 429);
    assert_eq!(post(&[FORM], "username=ann").status, 200);
    becomes(3, || used(&tollgate, "logins", "value:login="));
}

#[test]
fn values_that_are_missing_are_denied_where_a_policy_asks_for_them() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  models: {{ algorithm: sliding_log, key: \"value:model\", limit: 2/1h, missing: deny }}
  either: {{ algorithm: sliding_log, key: [\"value:model\", user], limit: 2/1h }}
  by-address: {{ algorithm: sliding_log, key: \"value:model\", limit: 1/1h, missing: ip }}
routes:
  - {{ path: /denied, upstream: api, policies: [models] }}
  - {{ path: /either, upstream: api, policies: [either] }}
  - {{ path: /address, upstream: api, policies: [by-address] }}"
    );
    let tollgate = start(None, origin.address, &rest);
    let mut client = Client::connect(tollgate.address);
    let mut post = |path: &str, user: &[(&str, &str)], body: &str| {
        client.request("POST", path, &[&[JSON], user].concat(), body.as_bytes()).status
    };
    assert_eq!([post("/denied", &[], "{}"), post("/denied", &[], &model("o3"))], [429, 200]);
    let ann = [("x-user", "ann")];
    assert_eq!([(); 3].map(|()| post("/either", &ann, "{}")), [200, 200, 429], "by the user");
    // A request without a user is limited by its address.
    assert_eq!([(); 3].map(|()| post("/either", &[], "{}")), [200, 200, 429]);
    assert_eq!([(); 2].map(|()| post("/address", &[], "{}")), [200, 429]);
}

#[test]
fn the_log_has_the_values_that_it_is_to_have_and_a_replay_decides_by_them() {
    let origin = Origin::echo();
    let rest = format!(
        "access_log: {{ format: json, values: [model] }}
{MODELS}policies:
  models: {{ algorithm: sliding_log, key: \"user+value:model\", limit: 2/1h }}
routes: [{{ path: /*, upstream: api, policies: [models] }}]"
    );
    let tollgate = start(None, origin.address, &rest);
    let [big, mini] = ["gpt-4o", "gpt-4o-mini"].map(model);
    let batch = format!("[{mini},{{}},{big}]");
    assert_eq!(
        statuses(&tollgate, "ann", &[&big, &mini, "{}", &big, &big, "{", &batch]),
        [200, 200, 200, 200, 429, 400, 429]
    );
    let logged = || {
        tollgate.stdout().iter().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Value>>()
    };
    eventually("all requests are logged", || logged().len() == 7);
    let values: Vec<Value> = logged().iter().map(|line| line["values"]["model"].clone()).collect();
    let known = [json!("big"), json!("mini"), Value::Null, json!("big"), json!("big"), Value::Null];
    assert_eq!(values[..6], known);
    assert_eq!(values[6], json!(["mini", null, "big"]));
    std::fs::write(tollgate.directory().join("access.log"), tollgate.stdout().join("\n")).unwrap();
    let replayed =
        tollgate_in(tollgate.directory(), &[], &["replay", "--config", "proxy.yaml", "access.log"]);
    let text = replayed.stdout;
    assert!(
        text.contains("models") && text.contains("user:ann+value:model=big"),
        "{text}{}",
        replayed.stderr
    );
}

#[test]
fn explain_decides_by_a_body() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  models: {{ algorithm: sliding_log, key: \"value:model\", limit: 2/1h }}
routes:
  - {{ path: /mini, upstream: api, policies: [models], allow_values: {{ model: [mini] }} }}
  - {{ path: /*, upstream: api, policies: [models] }}"
    );
    let tollgate = start(None, origin.address, &rest);
    std::fs::write(tollgate.directory().join("body.json"), model("gpt-4o")).unwrap();
    let explain = |path: &str, more: &[&str]| {
        let arguments =
            [&["explain", path, "-X", "POST", "-H", "content-type: application/json"], more].concat();
        tollgate.command(&arguments)
    };
    let body = tollgate.directory().join("body.json").display().to_string();
    let known = explain("/", &["--body", &body]);
    assert!(known.stdout.contains("value:model=big"), "{known:?}");
    let no_body = tollgate.command(&["explain", "/mini"]);
    assert!(no_body.stdout.contains("The request has none."), "{no_body:?}");
    let refused = explain("/mini", &["--body", &body]);
    assert!(refused.stdout.contains("Only some values of `model` are allowed: `mini`."), "{refused:?}");
    let unknown = explain("/", &[]);
    assert!(unknown.stdout.contains("it counts by the body"), "{unknown:?}");
    std::fs::write(tollgate.directory().join("body.json"), "{").unwrap();
    let unreadable = explain("/", &["--body", &body]);
    assert!(unreadable.stdout.contains("is no JSON"), "{unreadable:?}");
    assert_eq!(used(&tollgate, "models", "value:model=big"), 0, "nothing is taken");
}

#[test]
fn a_value_is_told_to_the_upstream() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}policies:
  models: {{ algorithm: sliding_log, key: \"value:model\", limit: 100/1h }}
routes:
  - path: /*
    upstream: api
    policies: [models]
    rewrite: {{ path: \"/of/{{value:model}}\" }}
    request_headers: {{ set: {{ x-group: \"<{{value:model}}>\" }} }}"
    );
    let tollgate = start(None, origin.address, &rest);
    let mut client = Client::connect(tollgate.address);
    let mut post =
        |body: &str| client.request("POST", "/v1/chat", &[JSON, ("x-group", "mini")], body.as_bytes());
    let group = |reply: &Reply| {
        let headers = reply.json()["headers"].as_array().cloned().unwrap_or_default();
        let sent: Vec<Value> = headers.into_iter().filter(|field| field[0] == "x-group").collect();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0][1].as_str().unwrap().to_owned()
    };
    let reply = post(&model("gpt-4o"));
    assert_eq!((group(&reply).as_str(), reply.json()["target"].as_str()), ("<big>", Some("/of/big")));
    let batch = format!("[{},{},{}]", model("o3"), model("gpt-4o-mini"), model("gpt-4o-mini"));
    assert_eq!(group(&post(&batch)), "<big,mini>");
    assert_eq!(post("{}").status, 400, "a path needs the value");
}

#[test]
fn the_holder_of_a_key_sees_each_group() {
    let origin = Origin::echo();
    let rest = format!(
        "{MODELS}api_keys: {{ store: true, data: keys.json }}
policies:
  models:
    algorithm: fixed_window
    key: \"customer+value:model\"
    limit: 10/1h
    overrides: [{{ \"value:model\": big, limit: 3/1h }}]
routes:
  - {{ path: /usage, usage: true }}
  - {{ path: /*, upstream: api, policies: [models] }}"
    );
    let tollgate = start(None, origin.address, &rest);
    let made = crate::admin::keys::send(&tollgate, "POST", "/v1/keys", &json!({ "customer": "acme" }));
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let mut client = Client::connect(tollgate.address);
    let fields = [("x-api-key", key.as_str()), JSON];
    for name in ["gpt-4o", "o3", "gpt-4o-mini"] {
        assert_eq!(client.request("POST", "/", &fields, model(name).as_bytes()).status, 200);
    }
    let usage = client.request("GET", "/usage", &fields[..1], b"").json();
    let limits = usage["limits"].as_array().unwrap();
    let shown: Vec<(&str, u64, u64)> = limits
        .iter()
        .map(|of| (of["key"].as_str().unwrap(), of["limit"].as_u64().unwrap(), of["used"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("customer:acme+value:model=big", 3, 2),
        ("customer:acme+value:model=mini", 10, 1),
        ("customer:acme+value:model=other", 10, 0),
    ];
    assert_eq!(shown, expected, "{usage}");
}

#[test]
fn login_names_of_a_form_are_the_users_behind_an_address() {
    let origin = Origin::saying("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let tollgate = Tollgate::start(Config::yaml(format!(
        "values: {{ login: {{ form: username, fold: true }} }}
policies: {{ failed: {{ algorithm: fixed_window, key: [ip, \"value:login\"], limit: 5/1h, count: {{ statuses: [401] }} }} }}
upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}
routes: [{{ path: /login, upstream: api, policies: [failed] }}]",
        origin.address
    )));
    let mut client = Client::connect(tollgate.address);
    for nth in 0..40 {
        let body = format!("username=User{nth}&password=x");
        let status = client.request("POST", "/login", &[FORM], body.as_bytes()).status;
        assert_eq!(status, if nth < 5 { 401 } else { 429 });
    }
    let blocked = || tollgate.admin("GET", "/v1/blocked").json()["blocked"][0].clone();
    eventually("the hint is drawn", || blocked()["hint"] == "credential stuffing");
    let users = tollgate.admin("GET", "/v1/blocked/127.0.0.1").json();
    assert!(users.to_string().contains("user39"), "{users}");
}

#[test]
fn a_reload_brings_values() {
    let reply = |tollgate: &Tollgate, body: &str| -> Reply {
        Client::connect(tollgate.address).request("POST", "/", &[JSON], body.as_bytes())
    };
    let origin = Origin::echo();
    let tollgate = start(None, origin.address, "routes: [{ path: /*, upstream: api }]");
    assert_eq!(reply(&tollgate, "{").status, 200);
    let file = tollgate.directory().join("proxy.yaml");
    let old = std::fs::read_to_string(&file).unwrap();
    let new = old.replace("routes: [{ path: /*,", "routes: [{ path: /*, allow_values: { model: [mini] },");
    std::fs::write(&file, format!("{new}{MODELS}")).unwrap();
    tollgate.signal("HUP");
    eventually("the new routes are in force", || reply(&tollgate, "{").status == 400);
    assert_eq!(reply(&tollgate, &model("gpt-4o")).status, 403);
}
