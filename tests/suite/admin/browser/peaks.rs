//! The page of a policy: how close clients come, and what another limit would do.

use super::{ask_as, is_content, start};
use crate::harness::{Browser, Origin, eventually, get};

#[test]
fn a_policy_shows_how_close_clients_come_and_what_another_limit_would_do() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    // Three of these are allowed: the peaks are 1 to 5.
    for client in 1..=5 {
        ask_as(&tollgate, &format!("127.0.0.{client}"), &["ann"; 5][..client]);
    }
    eventually("all are counted", || {
        let limits = tollgate.admin("GET", "/v1/policies/inspect/peaks").json();
        limits["limits"][0]["quantiles"]["max"] == 5 && limits["limits"][0]["keys"] == 5
    });
    let browser = Browser::open(tollgate.admin, "/policies");
    browser.click(".more a[href='/policies/inspect']");
    browser.comes_to("/policies/inspect");
    browser.shows("main h1", "inspect");
    browser.shows("main section", "3/1h on orders");
    browser.shows("main section .tiles", "5 of 3");
    browser.shows("main section table", "above 100 %");
    browser.shows("#unseen + p + .chips", "3/1h on all");
    browser.shows("main", "ip:127.0.0.5");
    browser.write("form.filter [name=limit]", "4");
    browser.click("form.filter [type=submit]");
    browser.comes_to("/policies/inspect?limit=4");
    browser.shows(
        ".effect",
        "A limit of 4 per 1h would have denied 1 client (20 %), and spared 1 client that is denied now.",
    );
    browser.shows("main section .columns", "would be spared");
    is_content(&browser);
    browser.go("/policies/inspect?limit=many");
    browser.shows("#wrong-limit", "limit: expected a number from 1 to 1000000000");
    browser.shows("main section .tiles", "5 of 3");
    // Without a script, the form works alike.
    let page = get(tollgate.admin, "/policies/inspect?limit=2", &[]).text();
    assert!(
        page.contains("of them not denied now") || page.contains("would have denied <strong>3 clients"),
        "{page}"
    );
    assert_eq!(get(tollgate.admin, "/policies/none", &[]).status, 404);
}
