//! What people are told of such costs: by commands, the admin port and its page.

use serde_json::json;

use super::{ask, chunk, chunked_head, one_policy, path_of, start};
use crate::harness::{Client, Origin, becomes};

#[test]
fn reserved_and_charged_units_are_shown_everywhere() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.send(&chunked_head("content-type: application/json\r\n"))?;
            conn.send(&chunk("{\"cost\":"))?;
            conn.pause()?;
            conn.send(&chunk(format!("{}}}", &path_of(&head)[1..])))?;
            conn.send(b"0\r\n\r\n")?;
        }
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(1_000, "response: { json: cost }, reserve: 300"));
    let of_policy = || {
        let policies = tollgate.admin("GET", "/v1/policies").json();
        let policies = policies["policies"].as_array().unwrap_or_else(|| panic!("{policies}")).clone();
        policies[0]["response_cost"].clone()
    };
    assert_eq!(of_policy(), json!({"reserved": 0, "charged": 0}));

    let mut client = Client::sending(tollgate.address, "GET /41 HTTP/1.1\r\nhost: a\r\nx-user: ann\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.chunk().unwrap();
    assert_eq!(of_policy(), json!({"reserved": 300, "charged": 0}));
    let page = tollgate.admin("GET", "/policies").text();
    assert!(page.contains("Units reserved now") && page.contains("300"), "{page}");

    let explained = tollgate.command(&["explain", "-H", "x-user: ann", "http://a/41"]);
    assert!(
        explained.stdout.contains("reserved until the response tells the cost"),
        "{}{}",
        explained.stdout,
        explained.stderr
    );
    assert!(explained.stdout.contains("300"), "{}", explained.stdout);

    origin.resume();
    while client.chunk().unwrap().is_some() {}
    client.trailers().unwrap();
    becomes(true, || of_policy() == json!({"reserved": 0, "charged": 41}));
    origin.resume();
    ask(&mut client, "/700", "ann");
    becomes(true, || of_policy() == json!({"reserved": 0, "charged": 741}));
    let table = tollgate.command(&["policies"]);
    assert!(table.stdout.contains("tokens"), "{}", table.stdout);
    let denied = tollgate.command(&["explain", "-H", "x-user: ann", "http://a/41"]);
    assert!(denied.stdout.contains("429"), "{}", denied.stdout);
    assert!(!denied.stdout.contains("reserved until"), "{}", denied.stdout);
}
