//! The look of pages: both themes, narrow screens, hostile names.

use super::{ban, is_content, limit, start};
use crate::harness::{Browser, Origin, Tollgate, eventually, get};

const PAGES: [&str; 14] = [
    "/",
    "/incidents",
    "/blocked",
    "/bans",
    "/keys",
    "/upstreams",
    "/policies",
    "/policies/inspect?limit=2",
    "/policies/trial",
    "/explain",
    "/explain?url=http%3A%2F%2Fa%2Forders%2F7&headers=x-user-id%3A+%3Cb%3E&peer=127.0.0.5",
    "/audit",
    "/users/plain",
    "/blocked/127.0.0.5",
];
const HOSTILE: [&str; 5] = [
    "<script>window.hacked = 1</script>",
    "\"><img src=x onerror=window.hacked=1>",
    "a-name-without-any-place-to-break-it-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on",
    "\u{5d0}\u{5d1}\u{5d2}",
    "plain",
];

fn hostile(origin: &Origin) -> Tollgate {
    let tollgate = start(origin, "");
    limit(&tollgate, "127.0.0.5", &HOSTILE);
    // A banned address, an unblocked address, and a banned user.
    limit(&tollgate, "127.0.0.6", &HOSTILE);
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/127.0.0.6").status, 200);
    ban(&tollgate, "ip:127.0.0.5");
    ban(&tollgate, "user:plain");
    tollgate
}

#[test]
fn no_page_does_what_its_policy_forbids_and_no_name_becomes_code() {
    let origin = Origin::ok();
    let tollgate = hostile(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    for page in PAGES {
        let policy = get(tollgate.admin, page, &[]);
        let policy = policy.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"),
            "{policy}"
        );
        browser.go(page);
        browser.shows("#live", "Live");
        assert_eq!(browser.script("return window.hacked ?? null"), serde_json::Value::Null, "{page}");
        is_content(&browser);
    }
    browser.shows("main", "<script>window.hacked = 1</script>");
}

#[test]
fn no_page_is_wider_than_a_narrow_screen() {
    let origin = Origin::ok();
    let tollgate = hostile(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    browser.resize(360);
    for page in PAGES {
        browser.go(page);
        browser.shows("#live", "Live");
        let wide = browser.script(
            "const wide = [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest('.scroll, .hidden'));
             return [document.scrollingElement.scrollWidth, wide.map((e) => e.outerHTML.slice(0, 120))]",
        );
        assert!(wide[0].as_u64().unwrap() <= 360, "{page}: {wide:#}");
    }
}

#[test]
fn a_theme_is_chosen_and_kept() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let browser = Browser::open(tollgate.admin, "/");
    let colour = || browser.script("return getComputedStyle(document.body).backgroundColor").to_string();
    let choose = |theme: &str| {
        for _ in 0..3 {
            if browser.text("#theme").ends_with(theme) {
                return;
            }
            browser.click("#theme");
        }
        panic!("there is no theme {theme}");
    };
    choose("dark");
    let dark = colour();
    choose("light");
    assert_ne!(colour(), dark);
    choose("dark");
    browser.go("/blocked");
    assert_eq!((colour(), browser.text("#theme")), (dark, "Theme: dark".to_owned()));
    // The server renders the theme, so nothing flashes.
    assert_eq!(browser.script("return document.documentElement.dataset.theme"), "dark");
    is_content(&browser);
}

#[test]
fn both_themes_can_be_read() {
    let origin = Origin::ok();
    let tollgate = hostile(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    for theme in ["light", "dark"] {
        browser.script(&format!("document.cookie = 'tollgate_theme={theme}; Path=/'"));
        for page in PAGES {
            browser.go(page);
            let faint = browser.script(include_str!("contrast.js"));
            assert_eq!(faint.as_array().map(Vec::len), Some(0), "{theme} {page}: {faint:#}");
        }
    }
}

#[test]
fn the_keyboard_is_enough() {
    let origin = Origin::ok();
    let tollgate = hostile(&origin);
    let browser = Browser::open(tollgate.admin, "/blocked/127.0.0.5");
    browser.press("\u{e004}");
    assert_eq!(browser.script("return document.activeElement.className"), "skip");
    browser.press("\u{e007}");
    eventually("the content is reached", || browser.script("return document.activeElement.id") == "main");
    browser.script("document.querySelector('[data-dialog=unblock]').focus()");
    browser.press("\u{e007}");
    assert_eq!(browser.script("return document.querySelector('#unblock').open"), true);
    assert_eq!(browser.script("return document.activeElement.closest('dialog')?.id"), "unblock");
    browser.press("\u{e00c}");
    assert_eq!(browser.script("return document.querySelector('#unblock').open"), false);
    assert_eq!(browser.script("return document.activeElement.dataset.dialog"), "unblock");
    is_content(&browser);
}
