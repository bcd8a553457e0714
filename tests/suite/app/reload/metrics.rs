//! Counters go on from one configuration to the next.

use super::{HEAD, reload, start};
use crate::harness::{Client, Origin, Tollgate, becomes, eventually, get};

fn requests(tollgate: &Tollgate, route: &str) -> f64 {
    tollgate.metric(&format!("tollgate_requests_total{{route=\"{route}\",status=\"2xx\"}}"))
}

#[test]
fn a_name_counts_on_whatever_its_place_and_what_is_gone_stays() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /a/slow") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let yaml = |routes: &[&str]| {
        let routes: String =
            routes.iter().map(|path| format!("  - {{ path: {path}, upstream: origin }}\n")).collect();
        format!(
            "{HEAD}upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nroutes:\n{routes}",
            origin.address
        )
    };
    let tollgate = start(&yaml(&["/a/*", "/b/*"]));
    for path in ["/a/1", "/a/2", "/b/1"] {
        assert_eq!(get(tollgate.address, path, &[]).status, 200);
    }
    let mut slow = Client::sending(tollgate.address, "GET /a/slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || origin.heads().len() == 4);
    eventually("all others are counted", || requests(&tollgate, "/a/*") + requests(&tollgate, "/b/*") == 3.0);

    reload(&tollgate, &yaml(&["/c/*", "/b/*"]));
    assert_eq!((requests(&tollgate, "/a/*"), requests(&tollgate, "/b/*")), (2.0, 1.0));
    eventually("the slow one's connection is counted", || tollgate.metric("tollgate_connections ") >= 1.0);
    for path in ["/b/2", "/c/1", "/c/2", "/c/3"] {
        assert_eq!(get(tollgate.address, path, &[]).status, 200);
    }
    origin.resume();
    assert_eq!(slow.reply().status, 200);
    let all = || ["/a/*", "/b/*", "/c/*"].map(|route| requests(&tollgate, route));
    eventually("each where it belongs", || all() == [3.0, 2.0, 3.0]);
    for n in 0..20 {
        reload(&tollgate, &yaml(if n % 2 == 0 { &["/b/*", "/a/*"] } else { &["/c/*"] }));
        assert_eq!(all(), [3.0, 2.0, 3.0]);
    }
    let page = tollgate.admin("GET", "/metrics").text();
    let series = |line: &&str| line.starts_with("tollgate_requests_total{") && line.contains("/a/*");
    assert_eq!(page.lines().filter(series).count(), 5, "each is told once");
    becomes(8.0, || tollgate.metric("tollgate_upstream_requests_total{upstream=\"origin\",result=\"ok\"}"));
}
