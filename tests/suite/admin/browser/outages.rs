//! Outages are shown on every page, at any width.

use super::is_content;
use crate::harness::{Browser, Client, Config, Origin, Tollgate, eventually, get, nobody};

const PAGES: [(&str, &str); 12] = [
    ("overview", "/"),
    ("blocked", "/blocked"),
    ("blocked-filtered", "/blocked?prefix=10.0.0.0%2F8&policy=inspect"),
    ("blocked-wrong", "/blocked?prefix=foo-bar-and-so-on-and-on-without-an-end-that-anybody-could-see"),
    ("bans", "/bans"),
    ("upstreams", "/upstreams"),
    ("policies", "/policies"),
    ("explain", "/explain?url=http%3A%2F%2Fa%2Forders%2F7&headers=x-user-id%3A+%3Cb%3E&peer=127.0.0.5"),
    ("audit", "/audit"),
    ("address", "/blocked/127.0.0.5"),
    ("user", "/users/a-name-without-any-place-to-break-it-that-goes-on-and-on-and-on-and-on"),
    ("unknown", "/nothing"),
];

/// One upstream responds, another does not; names are long, and there are bans of both kinds.
fn troubled(origin: &Origin) -> (Tollgate, String) {
    let down = nobody();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
policies:
  inspect: {{ algorithm: metadata_list, key: ip, limit: 3/1h }}
  a-policy-with-quite-a-long-name-of-its-own: {{ algorithm: gcra, key: user, limit: 1/1m, mode: shadow }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [inspect, a-policy-with-quite-a-long-name-of-its-own] }}
  reports-and-statistics-of-the-european-branch: {{ endpoints: [\"http://{down}\"] }}
routes:
  - {{ name: reports, path: /reports/*, upstream: reports-and-statistics-of-the-european-branch }}
  - {{ name: orders-of-all-customers-of-the-european-branch, path: /orders/*, methods: [GET, POST], upstream: origin }}
  - {{ name: all, path: /*, upstream: origin }}
",
        origin.address
    )));
    (tollgate, format!("http://{down}"))
}

fn bring_about(tollgate: &Tollgate) {
    for _ in 0..5 {
        assert_eq!(get(tollgate.address, "/reports/7", &[]).status, 502);
    }
    let mut client = Client::connect_from("127.0.0.5".parse().unwrap(), tollgate.address);
    let long = "a-name-without-any-place-to-break-it-that-goes-on-and-on-and-on-and-on";
    let path = format!("/orders/{}", "and-on-".repeat(20));
    for user in ["ann", long, "bob", long, long, "eve"] {
        client.request("GET", &path, &[("x-user-id", user)], b"");
    }
    eventually("it is listed", || tollgate.admin("GET", "/v1/blocked/127.0.0.5").status == 200);
    for key in ["203.0.113.9", "2001:db8:1234:5678::/64", &format!("user:{long}")] {
        let banned = tollgate.command(&["ban", key, "--for", "1h", "--reason", &"scrapes-".repeat(12)]);
        assert_eq!(banned.code, Some(0), "{banned:?}");
    }
}

#[test]
fn an_outage_shows_by_itself_on_every_page_and_goes() {
    let origin = Origin::ok();
    let (tollgate, down) = troubled(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    browser.shows("#live", "Live");
    browser.shows(".head .badge.good", "Ready");
    assert_eq!(browser.text(".outages"), "");
    assert_eq!(get(tollgate.address, "/reports/7", &[]).status, 502);
    browser.shows(".outages", &format!("endpoint {down} of upstream reports-and-statistics"));
    browser.shows(".head .badge.bad", "Outage");
    assert_eq!(browser.text(".head .badge.good"), "");
    is_content(&browser);
    bring_about(&tollgate);
    browser.shows(
        ".outages",
        "route reports fails: 6 of its last 6 requests got 5xx, all from Tollgate itself (6 × 502)",
    );
    for (name, page) in PAGES {
        browser.go(page);
        assert!(browser.text(".outages").contains(&down), "{name}");
    }
}

#[test]
fn nothing_is_cut_off_and_everything_can_be_read_at_any_width_in_both_themes() {
    let origin = Origin::ok();
    let (tollgate, down) = troubled(&origin);
    bring_about(&tollgate);
    let browser = Browser::open(tollgate.admin, "/");
    browser.shows(".outages", &down);
    for theme in ["light", "dark"] {
        browser.script(&format!("document.cookie = 'tollgate_theme={theme}; Path=/'"));
        for width in [360, 1280] {
            browser.resize(width);
            for (name, page) in PAGES {
                browser.go(page);
                browser.shows("#live", "Live");
                browser.picture(&format!("{name}-{theme}"), width);
                let faint = browser.script(include_str!("contrast.js"));
                assert_eq!(faint.as_array().map(Vec::len), Some(0), "{theme} {page}: {faint:#}");
                let cut_off = browser.script(include_str!("cut_off.js"));
                assert_eq!(cut_off.as_array().map(Vec::len), Some(0), "{width} {page}: {cut_off:#}");
            }
        }
    }
}

#[test]
fn an_invalid_prefix_is_an_error_beside_its_field_and_the_list_stays() {
    let origin = Origin::ok();
    let (tollgate, _) = troubled(&origin);
    bring_about(&tollgate);
    let browser = Browser::open(tollgate.admin, "/blocked");
    browser.write("[name=prefix]", "foo");
    browser.click(".filter [type=submit]");
    browser.shows(".filter label:has([name=prefix]) .error", "not an address or a prefix: foo");
    browser.shows("main table", "127.0.0.5");
    let field = browser.script(
        "const field = document.querySelector('[name=prefix]'); return [field.value, field.ariaInvalid]",
    );
    assert_eq!(field, serde_json::json!(["foo", "true"]));
    assert_eq!(browser.text("h1"), "Blocked addresses");
    browser.write("[name=prefix]", "127.0.0.0/8");
    browser.click(".filter [type=submit]");
    browser.comes_to("/blocked?prefix=127.0.0.0%2F8&policy=");
    browser.shows("main table", "127.0.0.5");
    assert_eq!(browser.text(".filter .error"), "");
    browser.go("/blocked?policy=gone");
    browser.shows(".filter label:has([name=policy]) .error", "no policy is named gone");
    browser.shows("main table", "127.0.0.5");
}

#[test]
fn no_zero_is_red_all_rates_are_of_one_window_and_times_name_their_zone() {
    let origin = Origin::ok();
    let (tollgate, _) = troubled(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    let red = "const red = getComputedStyle(document.documentElement).getPropertyValue('--bad').trim();
        const probe = document.createElement('i'); probe.style.color = red; document.body.append(probe);
        const colour = getComputedStyle(probe).color; probe.remove();
        return [...document.querySelectorAll('main *')].filter((e) => !e.children.length && /^[0–-]/.test(e.textContent.trim())
            && parseFloat(e.textContent) === 0 && getComputedStyle(e).color === colour).map((e) => e.outerHTML)";
    for page in ["/", "/policies", "/users/nobody", "/blocked"] {
        browser.go(page);
        assert_eq!(browser.script(red), serde_json::json!([]), "{page}");
    }
    browser.go("/");
    for section in ["traffic", "routes"] {
        let heading = browser.text(&format!("#{section}"));
        assert!(heading.ends_with("last 10 s, this instance"), "{heading}");
    }
    bring_about(&tollgate);
    for page in ["/", "/blocked", "/blocked/127.0.0.5", "/bans", "/audit"] {
        browser.go(page);
        let unnamed = browser.script(
            "return [...document.querySelectorAll('main time')].filter((e) => !/ UTC$/.test(e.title)).map((e) => e.outerHTML)",
        );
        assert_eq!(unnamed, serde_json::json!([]), "{page}");
    }
}

#[test]
fn a_sample_without_neighbours_is_drawn() {
    let origin = Origin::ok();
    let (tollgate, _) = troubled(&origin);
    let browser = Browser::open(tollgate.admin, "/");
    for _ in 0..3 {
        assert_eq!(get(tollgate.address, "/anything", &[]).status, 200);
    }
    // Drawn with the next sample, the only one with a latency.
    let width =
        "const path = [...document.querySelectorAll('[data-key=\"route all\"] path.point.slow')].at(-1);
        return path?.getAttribute('d') ? parseFloat(getComputedStyle(path).strokeWidth) : 0";
    eventually("there is a point", || browser.script(width).as_f64().is_some_and(|width| width > 3.0));
    is_content(&browser);
}
