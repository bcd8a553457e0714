//! `POST /v1/explain` of requests for routes with `usage`: what it says is what becomes of them.

use serde_json::json;

use super::keys::send;
use crate::harness::{Config, Origin, Tollgate, get};

#[test]
fn usage_is_explained_as_it_is_served() {
    let origin = Origin::ok();
    for (required, statuses) in [(true, [401, 401, 200]), (false, [403, 401, 200])] {
        let tollgate = Tollgate::start(Config::yaml(format!(
            "
api_keys: {{ store: true, data: keys.json, required: {required} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes: [{{ path: /usage, usage: true }}, {{ path: /*, upstream: a }}]
",
            origin.address
        )));
        let made = send(&tollgate, "POST", "/v1/keys", &json!({ "customer": "acme" })).json();
        let key = made["key"].as_str().unwrap();
        let keys: [&[(&str, &str)]; 3] =
            [&[], &[("x-api-key", "wrong-key-of-nobody")], &[("x-api-key", key)]];
        for (headers, status) in keys.into_iter().zip(statuses) {
            assert_eq!(get(tollgate.address, "/usage", headers).status, status);
            let headers: serde_json::Map<_, _> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            let asked = json!({ "method": "GET", "url": "/usage", "headers": headers });
            let explained = send(&tollgate, "POST", "/v1/explain", &asked).json();
            assert_eq!(explained["status"], status, "{explained:#}");
            assert_eq!(explained["verdict"] == "allowed", status == 200, "{explained:#}");
        }
    }
}
