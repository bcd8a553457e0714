//! The pages as browsers request them.

use super::super::testing::{Harness, NOW};
use crate::{
    api_keys::operations,
    telemetry::{
        metrics::{StoreFacts, StoreTopology},
        testing::cluster,
    },
};

#[test]
fn pages_load_nothing_from_elsewhere_and_have_no_inline_code() {
    let harness = Harness::with_shared_address(None);
    for path in ["/", "/blocked", "/blocked/203.0.113.7", "/bans", "/policies", "/explain", "/audit"] {
        let page = harness.get(path);
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.head.contains("content-type: text/html; charset=utf-8"));
        assert!(page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"));
        assert!(
            page.head.contains("referrer-policy: no-referrer")
                && page.head.contains("cache-control: no-store")
        );
        assert!(
            !page.body.contains("style=")
                && !page.body.contains("onclick")
                && !page.body.contains("<script>")
        );
        for external in ["src=\"http", "href=\"http", "action=\"http", "=\"//"] {
            assert!(!page.body.contains(external), "{external} in {}", page.body);
        }
        assert!(page.body.contains("<h1") && page.body.contains("aria-current=\"page\""));
    }
}

#[test]
fn assets_are_cached_until_their_content_changes() {
    let harness = Harness::start(Some("s3cret"));
    let login = harness.get("/login");
    assert_eq!(login.status, 200, "{login:?}");
    let mut found = 0;
    for part in login.body.split('"').filter(|part| part.starts_with("/assets/")) {
        let asset = harness.get(part);
        assert_eq!(asset.status, 200, "{part}");
        assert!(asset.head.contains("cache-control: public, max-age=31536000, immutable"), "{asset:?}");
        assert!(asset.head.contains("x-content-type-options: nosniff"));
        let other = part.split('?').next().unwrap();
        assert!(harness.get(&format!("{other}?v=0")).head.contains("cache-control: no-cache"));
        found += 1;
    }
    assert!(found >= 3);
    harness.get("/assets/secrets.txt").is_problem(404);
}

#[test]
fn no_page_turns_the_direction_of_text_around() {
    let harness = Harness::start(None);
    let fields = operations::KeyFields {
        customer: "acme\u{202e}".into(),
        name: "CI\u{202e}".into(),
        plan: Some("pro\u{202e}".into()),
        ..<_>::default()
    };
    let (key, _) = operations::create(fields, "tgk", NOW).unwrap();
    harness.api_keys.put(operations::revoke(&key, "leaked\u{202e}", NOW).unwrap()).unwrap();
    for target in [
        "/keys",
        "/keys?customer=X",
        "/keys?plan=X",
        "/blocked?prefix=X",
        "/blocked?policy=X",
        "/blocked/X",
        "/explain?url=http://a/&peer=X",
        "/explain?url=http://X/",
        "/explain?url=X",
        "/policies/X",
        "/policies/per-ip?limit=X",
        "/X",
    ] {
        let page = harness.send("GET", &target.replace('X', "%E2%80%AEevil"), "accept: text/html\r\n").body;
        assert!(page.contains("<h1") && !page.contains('\u{202e}'), "{target}: {page}");
    }
}

#[test]
fn client_chosen_text_is_escaped() {
    let harness = Harness::start(None);
    let names =
        ["<script>alert(1)</script>", "\"><img src=x>", "\u{202e}evil", "tab\tline\n", &"x".repeat(120)];
    for (ago, name) in names.into_iter().enumerate() {
        harness.deny("203.0.113.9", 0, "ip:203.0.113.9", name, -1_000 - i64::try_from(ago).unwrap());
    }
    harness.settle("203.0.113.9");
    let page = harness.get("/blocked/203.0.113.9").body;
    assert!(!page.contains("<script>") && !page.contains("<img src=x") && !page.contains('\u{202e}'));
    for shown in ["&lt;script&gt;alert(1)&lt;/script&gt;", "&quot;&gt;&lt;img", "\\u{202e}evil", "tab␉line␊"]
    {
        assert!(page.contains(shown), "no {shown} in {page}");
    }
    assert!(page.contains("<bdi class=\"foreign\""));
    assert!(page.contains("/users/%3Cscript%3Ealert%281%29%3C%2Fscript%3E"));
}

#[test]
fn a_list_is_filtered_sorted_and_paged_by_links() {
    let harness = Harness::start(None);
    for n in 1..=120 {
        harness.deny(&format!("198.51.100.{n}"), 0, "ip:x", "acme", -n);
    }
    harness.deny("203.0.113.9", 1, "user:eve", "eve", -200);
    harness.settle("203.0.113.9");
    let first = harness.get("/blocked?sort=address&prefix=&policy=").body;
    assert!(first.contains("aria-sort=\"ascending\"") && !first.contains("203.0.113.9"));
    let next = first.split('"').find(|part| part.contains("cursor=")).unwrap().replace("&amp;", "&");
    let second = harness.get(&next).body;
    assert!(second.contains("203.0.113.9") && second.contains("First page") && !second.contains("Next page"));
    let searched = harness.get("/blocked?prefix=203.0.113.0%2F24&policy=per-user").body;
    assert!(searched.contains("/blocked/203.0.113.9") && !searched.contains("198.51.100."));
    assert!(harness.get("/blocked?prefix=10.0.0.0%2F8").body.contains("No matches"));
    let wrong = harness.get("/blocked?prefix=%3Cb%3E");
    assert_eq!(wrong.status, 400);
    assert!(wrong.head.contains("text/html") && wrong.body.contains("not an address or a prefix: &lt;b&gt;"));
    assert_eq!(harness.get("/blocked?sort=user").status, 400);
}

#[test]
fn an_address_that_is_not_limited_has_a_page_too() {
    let harness = Harness::start(None);
    let page = harness.get("/blocked/10.0.0.1");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Not limited recently"));
    assert_eq!(harness.get("/blocked/nonsense").status, 400);
    let body = r#"{"key":"ip:10.0.0.0/8","for":"1h","reason":"<i>"}"#;
    let head =
        format!("host: {}\r\n{JSON}content-length: {}\r\nconnection: close", harness.address, body.len());
    assert_eq!(harness.raw(&format!("POST /v1/bans HTTP/1.1\r\n{head}\r\n\r\n{body}")).status, 201);
    let page = harness.get("/blocked/10.0.0.1").body;
    assert!(
        page.contains("Banned") && page.contains("ip:10.0.0.0/8") && page.contains("&lt;i&gt;"),
        "{page}"
    );
    assert!(harness.get("/bans").body.contains("ip:10.0.0.0/8"));
    let audit = harness.get("/audit").body;
    assert!(audit.contains("ip:10.0.0.0/8") && audit.contains("operator at 127.0.0.1"), "{audit}");
    let by_operators = harness.get("/audit?by=operator").body;
    assert!(
        by_operators.contains("ip:10.0.0.0/8")
            && by_operators.contains(r#"aria-current="true">By operators<"#)
    );
    assert!(harness.get("/audit?by=rule").body.contains("No matches"));
}

#[test]
fn each_redis_server_of_several_has_a_row() {
    let page = Harness::with_store(cluster()).get("/").body;
    let (_, table) = page.split_once("id=\"nodes\"").unwrap();
    let rows: Vec<_> = table.split("<tr data-key=").skip(1).collect();
    assert_eq!(rows.len(), 4, "{table}");
    for text in ["primary", "0-8192", "badge good", ">up<", "0.3 ms", "40/s"] {
        assert!(rows[0].contains(text), "no {text} in {}", rows[0]);
    }
    for text in ["8193-16382, 16383", "badge bad", "breaker open", "Connection refused"] {
        assert!(rows[1].contains(text), "no {text} in {}", rows[1]);
    }
    assert!(rows[2].contains("unknown") && rows[3].contains("4,096 B"), "{table}");
    assert!(rows[3].contains("10.0.0.1:6379"), "whose replica: {}", rows[3]);
    assert!(page.contains("Redis Cluster") && page.contains("Degraded") && page.contains("1 of 4"), "{page}");

    let alone =
        StoreFacts { topology: StoreTopology::Single, nodes: cluster().nodes[..1].into(), ..cluster() };
    let page = Harness::with_store(alone).get("/").body;
    assert!(!page.contains("id=\"nodes\"") && page.contains("Healthy"), "{page}");
}

#[test]
fn a_user_page_lists_the_addresses_it_was_limited_from() {
    let harness = Harness::with_shared_address(None);
    let address = harness.get("/blocked/203.0.113.7").body;
    let link = address.split('"').find(|part| part.starts_with("/users/")).expect("a link to a user");
    let page = harness.get(link);
    assert_eq!(page.status, 200, "{link}");
    assert!(page.body.contains("/blocked/203.0.113.7"), "{}", page.body);
    let unknown = harness.get("/users/nobody");
    assert_eq!(unknown.status, 200);
    assert!(unknown.body.contains("Not limited recently"), "{}", unknown.body);
}

#[test]
fn unknown_paths_are_answered_in_the_accepted_format() {
    let harness = Harness::start(None);
    harness.get("/nothing").is_problem(404);
    let page = harness.send("GET", "/%3Ci%3E", "accept: text/html,*/*\r\n");
    assert_eq!(page.status, 404);
    assert!(
        page.head.contains("text/html") && page.head.contains("content-security-policy: default-src 'none'")
    );
    assert!(page.body.contains("there is no resource at /%3Ci%3E"), "{page:?}");
}

#[test]
fn without_the_token_pages_redirect_to_the_login_and_data_does_not() {
    let harness = Harness::with_shared_address(Some("s3cret"));
    for (path, to) in [("/", "/login"), ("/blocked?sort=denied", "/login?next=%2Fblocked%3Fsort%3Ddenied")] {
        let reply = harness.get(path);
        assert_eq!(reply.status, 303, "{reply:?}");
        assert!(reply.head.contains(&format!("location: {}\r\n", to.to_lowercase())), "{reply:?}");
    }
    for path in ["/v1/events", "/v1/status", "/metrics", "/nothing", "/blockedness"] {
        harness.get(path).is_problem(401);
    }
    harness.send("POST", "/logout", "").is_problem(401);
    assert_eq!(harness.send("GET", "/", "authorization: Bearer s3cret\r\n").status, 200);
}

fn log_in(harness: &Harness, token: &str, fields: &str) -> super::super::testing::Reply {
    let body = serde_json::json!({"token": token}).to_string();
    harness.raw(&format!(
        "POST /login HTTP/1.1\r\nhost: {}\r\n{fields}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        harness.address,
        body.len()
    ))
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn a_login_sets_a_cookie_that_authenticates() {
    let harness = Harness::with_shared_address(Some("s3cret"));
    log_in(&harness, "s3cre7", JSON).is_problem(403);
    let reply = log_in(&harness, "s3cret", JSON);
    assert_eq!(reply.status, 204, "{reply:?}");
    let cookie = reply.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(
        cookie.contains("httponly; samesite=strict")
            && !cookie.contains("secure")
            && !cookie.contains("s3cret")
    );
    // The harness converts the head to lower case, which breaks the cookie's MAC, so this uses another cookie.
    let issued = crate::admin::session::issue(
        &crate::config::model::Secret::new("s3cret"),
        crate::admin::testing::NOW,
        false,
    );
    let cookie = format!("cookie: a=b; {}\r\n", issued.split(';').next().unwrap());
    assert_eq!(harness.send("GET", "/", &cookie).status, 200);
    assert_eq!(harness.send("GET", "/login", &cookie).status, 303, "there is nothing to ask for");
    let own = format!("{cookie}origin: http://{}\r\n", harness.address);
    let foreign = format!("{cookie}origin: https://evil.example\r\n");
    harness.send("DELETE", "/v1/blocked/203.0.113.7", &foreign).is_problem(403);
    harness
        .send("DELETE", "/v1/blocked/203.0.113.7", &format!("{own}content-type: text/plain\r\n"))
        .is_problem(415);
    assert_eq!(harness.send("DELETE", "/v1/blocked/203.0.113.7", &own).status, 200);
    let out = harness.send("POST", "/logout", &own);
    assert_eq!(out.status, 204);
    assert!(out.head.contains("set-cookie: tollgate_token=; path=/; max-age=0"));
}

#[test]
fn a_login_from_a_foreign_origin_is_refused() {
    let harness = Harness::start(Some("s3cret"));
    log_in(&harness, "s3cret", "content-type: text/plain\r\n").is_problem(415);
    log_in(&harness, "s3cret", &format!("{JSON}origin: https://evil.example\r\n")).is_problem(403);
    let secure = log_in(&harness, "s3cret", &format!("{JSON}origin: https://{}\r\n", harness.address));
    assert!(secure.status == 204 && secure.head.contains("; secure"), "{secure:?}");
    log_in(&harness, &"x".repeat(100_000), JSON).is_problem(413);
}

#[test]
fn failed_logins_are_throttled() {
    let harness = Harness::start(Some("s3cret"));
    let statuses: Vec<_> = (0..40).map(|_| log_in(&harness, "wrong", JSON).status).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 403 | 429)), "{statuses:?}");
    // Failed logins do not throttle bearer tokens.
    assert_eq!(harness.send("GET", "/v1/status", "authorization: Bearer s3cret\r\n").status, 200);
}

#[test]
fn wrong_bearer_tokens_are_throttled_and_logins_are_not() {
    let harness = Harness::start(Some("s3cret"));
    let cookie = log_in(&harness, "s3cret", JSON).head;
    let cookie = cookie.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let name = cookie.split(['=', ';']).next().unwrap().to_owned();
    assert_eq!(name, "tollgate_token");
    let guess = || harness.send("GET", "/v1/status", "authorization: Bearer wrong\r\n");
    let replies: Vec<_> = (0..60).map(|_| guess()).collect();
    let limited = replies.iter().find(|reply| reply.status == 429).expect("it may guess without end");
    assert!(limited.is_problem(429).head.contains("retry-after: 1"));
    assert!(replies.iter().all(|reply| matches!(reply.status, 401 | 429)), "{replies:?}");
    // Wrong bearer tokens do not throttle logins.
    assert_eq!(log_in(&harness, "s3cret", JSON).status, 204);
    assert_eq!(harness.get("/login").status, 200);
    assert_eq!(harness.get("/healthz").status, 200);
}

#[test]
fn without_a_token_there_is_no_login() {
    let harness = Harness::start(None);
    assert_eq!(harness.get("/login").status, 303);
    log_in(&harness, "x", JSON).is_problem(404);
    harness.send("GET", "/", "origin: https://evil.example\r\n").is_problem(403);
}
