//! Signing in with the token.

use super::{is_content, start};
use crate::harness::{Browser, Origin};

#[test]
fn a_wrong_token_is_reported_and_the_right_one_leads_to_the_page_asked_for() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "admin: { address: \"127.0.0.1:0\", token: s3cret-token }\n");
    let browser = Browser::open(tollgate.admin, "/blocked?sort=denied");
    browser.comes_to("/login?next=%2Fblocked%3Fsort%3Ddenied");
    is_content(&browser);
    browser.write("[name=token]", "s3cret-tokem");
    browser.click("button[type=submit]");
    browser.shows("#wrong", "wrong token");
    // The browser logs the response 403.
    assert!(browser.logged().iter().all(|line| line.contains("403")));
    browser.write("[name=token]", "s3cret-token");
    browser.click("button[type=submit]");
    browser.comes_to("/blocked?sort=denied");
    browser.shows("#live", "Live");
    assert_eq!(browser.script("return document.cookie"), "", "no script can read it");
    is_content(&browser);

    browser.click("#logout");
    browser.comes_to("/login");
    browser.go("/");
    browser.comes_to("/login");
}

#[test]
fn a_link_on_another_site_works_for_a_signed_in_operator() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "admin: { address: \"127.0.0.1:0\", token: s3cret-token }\n");
    let browser = Browser::open(tollgate.admin, "/login");
    browser.write("[name=token]", "s3cret-token");
    browser.click("button[type=submit]");
    browser.comes_to("/");
    // Another name is another site, so the browser does not send the cookie.
    browser.script(&format!("location.href = 'http://localhost:{}/login'", tollgate.admin.port()));
    browser.shows("h1", "Sign in to Tollgate");
    browser.script(&format!("location.href = 'http://{}/blocked?sort=users'", tollgate.admin));
    browser.comes_to("/blocked?sort=users");
    browser.shows("#live", "Live");
    is_content(&browser);
}

#[test]
fn the_sign_in_leads_to_no_other_site() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "admin: { address: \"127.0.0.1:0\", token: s3cret-token }\n");
    for next in
        ["https%3A%2F%2Fevil.example%2F", "%2F%2Fevil.example", "%5C%5Cevil.example", "javascript%3Aalert(1)"]
    {
        let browser = Browser::open(tollgate.admin, &format!("/login?next={next}"));
        browser.write("[name=token]", "s3cret-token");
        browser.click("button[type=submit]");
        browser.comes_to("/");
    }
}
