//! Customers: their plans, limits and usage, and their move to another plan.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{has_requests, keys_file, prints, send, start};
use crate::harness::{Client, Origin, Tollgate, eventually, request};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Makes a key for `customer`, and returns it.
fn make_key(tollgate: &Tollgate, customer: &str, plan: &str) -> String {
    let body = json!({ "customer": customer, "plan": plan }).to_string();
    let made = request(tollgate.admin, "POST", "/v1/keys", &JSON, body.as_bytes());
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}

fn customer(tollgate: &Tollgate, name: &str) -> Value {
    let reply = tollgate.admin("GET", &format!("/v1/customers?customer={name}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["customers"][0].clone()
}

#[test]
fn a_customer_is_moved_to_another_plan_with_all_its_keys() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let file = keys_file(directory.path(), &[("acme", Some("free"))]);
    let data = directory.path().join("keys.json");
    let rest = format!(
        "api_keys: {{ file: {file}, store: true, data: {} }}
plans: {{ free: {{ monthly: 20/month }}, pro: {{ monthly: 200/month }} }}
policies:
  monthly: {{ algorithm: fixed_window, key: customer, limit: 5/month, time_zone: Europe/Berlin }}
routes: [{{ path: /*, upstream: api, policies: [monthly] }}]",
        data.display()
    );
    let tollgate = start(origin.address, "{ store: { file: history.db } }", &rest);
    let keys = [make_key(&tollgate, "acme", "free"), make_key(&tollgate, "acme", "pro")];
    make_key(&tollgate, "globex", "pro");
    assert_eq!(send(tollgate.address, "acme", "/", 22)[&429], 2);
    has_requests(&tollgate, 22);

    let acme = customer(&tollgate, "acme");
    assert_eq!((&acme["plans"], &acme["keys"]), (&json!(["free", "pro"]), &json!(3)), "{acme}");
    assert_eq!((&acme["requests"], &acme["denied"], &acme["share"]), (&json!(22), &json!(2), &json!(100)));
    assert_eq!(acme["units"], json!([{ "policy": "monthly", "units": 20 }]));
    assert!(acme["last_denied"].is_string(), "{acme}");
    let limits: Vec<_> =
        acme["limits"].as_array().unwrap().iter().map(|limit| limit["limit"].clone()).collect();
    assert_eq!(limits, [json!(20), json!(200)]);
    let listed = tollgate.command(&["customers"]);
    prints(
        &listed,
        &["CUSTOMER", "acme      free, pro  3     100%  22        2", "globex    pro        1     0%    0"],
    );

    // The key in the file keeps its plan, which is said and told by the exit code.
    let moved = tollgate.command(&["customers", "set", "acme", "--plan", "pro"]);
    assert_eq!(moved.code, Some(1), "{}{}", moved.stdout, moved.stderr);
    for part in [
        "1 key of acme has plan pro now",
        "These had it already",
        "These are in the file, and keep the plan that it says: acme",
    ] {
        assert!(moved.stdout.contains(part), "{part:?}: {}", moved.stdout);
    }
    let mut client = Client::connect(tollgate.address);
    for key in &keys {
        assert_eq!(client.request("GET", "/", &[("x-api-key", key)], b"").status, 200);
    }
    assert_eq!(send(tollgate.address, "acme", "/", 1)[&429], 1);
    let audit = tollgate.admin("GET", "/v1/audit").json();
    let entry =
        audit["entries"].as_array().unwrap().iter().find(|entry| entry["action"] == "move_customer").unwrap();
    assert_eq!(entry["target"], "customer:acme");
    assert!(entry["detail"].as_str().unwrap().starts_with("plan free to pro: keys "), "{entry}");

    let moved = tollgate.command(&["customers", "set", "globex", "--no-plan"]);
    prints(&moved, &["1 key of globex has no plan now"]);
    assert_eq!(customer(&tollgate, "globex")["limits"][0]["limit"], 5);
    let moved = tollgate.command(&["customers", "set", "globex", "--plan", "gold"]);
    prints(&moved, &["warning: no plan is named gold"]);
    let unknown = tollgate.command(&["customers", "set", "initech", "--plan", "pro"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no valid key is of customer initech"), "{}", unknown.stderr);
    eventually("the change is in the history", || {
        tollgate.command(&["why", "--customer", "acme"]).stdout.contains("move_customer customer:acme")
    });
}

#[test]
fn the_pages_show_what_the_commands_do() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let keys = keys_file(directory.path(), &[("acme", Some("free")), ("globex", None)]);
    let rest = format!(
        "api_keys: {{ file: {keys} }}
plans: {{ free: {{ monthly: 20/month }} }}
policies: {{ monthly: {{ algorithm: fixed_window, key: customer, limit: 100/month }} }}
routes: [{{ path: /*, upstream: api, policies: [monthly] }}]"
    );
    let tollgate = start(origin.address, "{ store: { file: history.db } }", &rest);
    send(tollgate.address, "acme", "/<b>".replace('<', "%3C").replace('>', "%3E").as_str(), 23);
    send(tollgate.address, "globex", "/", 4);
    has_requests(&tollgate, 27);
    for (path, parts) in [
        ("/usage", &["acme", "globex", "Export CSV", "Requests by day"][..]),
        ("/usage?by=policy", &["monthly"]),
        ("/usage?by=day&customer=acme&month=", &["23"]),
        (
            "/history",
            &["3 requests of acme, such as GET /%3Cb%3E, were denied by monthly (20/month (UTC), plan free)"],
        ),
        ("/history?customer=globex", &["No request was denied."]),
        ("/customers", &["acme", "monthly: 20 of 20", "globex"]),
    ] {
        let page = tollgate.admin("GET", path);
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        for part in parts {
            assert!(page.text().contains(part), "{path}: {part:?} is not in {}", page.text());
        }
    }
    let csv = tollgate.admin("GET", "/usage.csv?by=customer");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(csv.text().lines().count(), 5, "{}", csv.text());
    let csv = tollgate.admin("GET", "/history.csv?customer=acme");
    assert!(
        csv.text().lines().nth(1).unwrap().contains(",acme,acme,free,limit,monthly,20/month (UTC),/*,GET,3,"),
        "{}",
        csv.text()
    );
}
