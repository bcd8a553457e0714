//! The page of API keys.

use super::is_content;
use crate::{
    admin::keys::keyed,
    harness::{Browser, Origin, get},
};

#[test]
fn a_key_is_made_shown_once_rotated_and_revoked() {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, None, "");
    let browser = Browser::open(tollgate.admin, "/");
    browser.click("a[href='/keys']");
    browser.comes_to("/keys");
    browser.shows("main", "No keys");
    browser.write("form.stack [name=customer]", "acme <b>");
    browser.script("document.querySelector('form.stack [name=plan]').value = 'pro'");
    browser.click("form.stack [type=submit]");
    browser.shows("#made-key", "it can't be shown again");
    browser.shows("#new-key", "tgk_");
    let key = browser.text("#new-key");
    let status = |key: &str| get(tollgate.address, "/", &[("x-api-key", key)]).status;
    assert_eq!(status(&key), 200);
    // As on plain http: there is no clipboard.
    browser.script("Object.defineProperty(navigator, 'clipboard', { value: undefined })");
    browser.click("#copy-key");
    browser.shows("#made-key", "the text is selected");
    assert_eq!(browser.script("return getSelection().toString()"), key.as_str());
    browser.click("#made-key [type=submit]");
    browser.shows("main table", "acme <b>");
    browser.shows("main table", "monthly: 1 of 5");
    assert_eq!(browser.script("return document.body.innerHTML.includes('tgk_')"), false);
    assert!(!tollgate.admin("GET", "/keys").text().contains(&key));

    browser.click("[data-dialog=rotate-key]");
    browser.shows("#rotate-key", "The old key is valid for another");
    browser.script("document.querySelector('#rotate-key [name=overlap]').value = '0s'");
    browser.click("#rotate-key [type=submit]");
    browser.shows("#new-key", "tgk_");
    let newer = browser.text("#new-key");
    assert_eq!([&key, &newer].map(|key| status(key)), [401, 200]);
    browser.click("#made-key [type=submit]");

    browser.click("[data-dialog=revoke-key]");
    browser.shows("#revoke-key", "It can't be made valid again.");
    browser.click("#revoke-key [data-close]");
    assert_eq!(status(&newer), 200, "nothing was changed yet");
    browser.click("[data-dialog=revoke-key]");
    browser.write("#revoke-key [name=reason]", "leaked");
    browser.click("#revoke-key [type=submit]");
    browser.shows("#said", "of acme <b> is revoked.");
    browser.shows("main table", "revoked");
    browser.shows("main table", "leaked");
    assert_eq!(status(&newer), 401);
    browser.go("/keys?state=active");
    browser.shows("main", "No matches");
    browser.go("/audit");
    browser.shows("table", "revoke_key");
    is_content(&browser);
}
