//! The admin port's description of itself, and whether it keeps to it whatever it is asked.

use std::{collections::BTreeSet, process::Command};

use crate::harness::{Client, Config, Origin, Tollgate, eventually, program, request};

const TOKEN: &str = "s3cret";

/// An instance with everything that operators ask for: limited addresses, users, bans.
fn instance(origin: &Origin) -> Tollgate {
    Tollgate::start(
        Config::new(
            &[origin.address],
            "
admin: { address: 127.0.0.1:0, token: s3cret }
user: [{ header: x-user-id, from: anyone }]
policies: { one: { algorithm: metadata_list, key: [ip, user], limit: 1/1h } }
bans: { hammering: { key: ip, after: 20/1m, for: 5m } }
",
        )
        .with_policy("one"),
    )
}

fn authorized(tollgate: &Tollgate, method: &str, path: &str) -> crate::harness::Reply {
    request(tollgate.admin, method, path, &[("authorization", "Bearer s3cret")], b"")
}

/// Each method of each path that is described.
fn described(tollgate: &Tollgate) -> BTreeSet<String> {
    let description = authorized(tollgate, "GET", "/v1/openapi.json").json();
    let paths = description["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &serde_json::Value)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

#[test]
fn every_page_of_the_api_is_described() {
    let origin = Origin::ok();
    let tollgate = instance(&origin);
    let all = [
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /v1/status",
        "GET /v1/routes",
        "GET /v1/upstreams",
        "GET /v1/policies",
        "GET /v1/blocked",
        "GET /v1/blocked/{ip}",
        "DELETE /v1/blocked/{ip}",
        "GET /v1/users/{user}",
        "GET /v1/limits",
        "DELETE /v1/limits",
        "GET /v1/bans",
        "POST /v1/bans",
        "DELETE /v1/bans",
        "POST /v1/explain",
        "POST /v1/reload",
        "GET /v1/config",
        "GET /v1/audit",
        "GET /v1/events",
    ];
    assert_eq!(described(&tollgate), all.into_iter().map(str::to_owned).collect());
}

#[test]
fn whatever_it_is_asked_it_answers_as_it_is_described() {
    let Ok(directory) = std::env::var("SCHEMATHESIS") else {
        println!("left out: `scripts/test` installs schemathesis and says where in SCHEMATHESIS");
        return;
    };
    let origin = Origin::ok();
    let tollgate = instance(&origin);
    let mut client = Client::connect(tollgate.address);
    for user in ["ann", "bob", "ann", "bob"] {
        client.request("GET", "/", &[("x-user-id", user)], b"");
    }
    eventually("somebody is limited", || authorized(&tollgate, "GET", "/v1/blocked/127.0.0.1").status == 200);
    let mut schemathesis: Command = program("python3", "python3");
    let output = schemathesis
        .env("PYTHONPATH", &directory)
        .current_dir(tollgate.directory())
        .arg(format!("{directory}/bin/schemathesis"))
        .arg("--config-file")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis.toml"))
        .args(["run", "--checks", "all", "--max-time", "25", "--request-timeout", "10"])
        .args(["--no-color", "--header", &format!("authorization: Bearer {TOKEN}")])
        // It never ends, which is what it is for.
        .args(["--exclude-path", "/v1/events"])
        .arg(format!("http://{}/v1/openapi.json", tollgate.admin))
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{:#?}", tollgate.log());
    assert!(said.contains("Fuzzing"), "{said}");
    assert_eq!(authorized(&tollgate, "GET", "/readyz").status, 200);
}
