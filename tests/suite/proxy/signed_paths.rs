//! Paths that clients sign, as they do by AWS' Signature Version 4: they reach the origin byte for byte.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::harness::{Client, Config, Origin, Reply, Tollgate, by_http2};

const TARGETS: [&str; 32] = [
    "/bucket/a%2Fb%2fc",
    "/bucket/a%5Cb%5cc",
    "/a+b/c%20d/e%2Bf",
    "/~u/%7Eu/%7eu",
    "/caf%C3%A9/caf%c3%a9/%e4%B8%ad",
    "/a;v=1;w/b;x",
    "/a%3Bb%3bc",
    "/@me/%40me",
    "/a:b/c%3Ad/urn:isbn:1",
    "//a//b/",
    "/a?",
    "/?",
    "/a??",
    "/a?x=%2f&y=+%20~%7E&&=",
    "/a?X-Amz-Credential=K%2F20261122%2Fus-east-1%2Fs3%2Faws4_request&x=/../%2e%2e//",
    "/%41%5A%61%7a%30/%2D%2d%5F%5f%2Eb",
    "/a%3Fb%23c%25d",
    "/!$&'()*+,=-._~",
    "/a%252Fb/%252e%252e/c",
    "/.hidden/..x/...//%2ex/x%2e%2e/x.",
    "/a\\b",
    "/a%22%3C%3E%5E%60%7B%7C%7D",
    "/a\"{}|^b",
    "/API/Users/",
    "/fetch/https://example.org/x?y=http://z",
    "/%E2%82%AC",
    "/%FF%fe",
    "/a%2F",
    "/%2Fa",
    "/a%20/%20",
    "/a=b&c=d",
    "/a%2B%2b",
];

const KEY: &[u8] = b"AWS4wJalrXUtnFEMI";

/// The signature over method, path and query as they stand in the request line.
fn signature(method: &str, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
    mac.update(format!("{method}\n{path}\n{query}\n").as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers 200 to requests whose signature is right, and 403 to others.
fn verifying() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let mut line = head.lines().next().unwrap_or_default().split(' ');
            let (method, target) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
            let is_right = head.contains(&format!("\r\nauthorization: {}", signature(method, target)));
            conn.answer(if is_right { "200 OK" } else { "403 Forbidden" }, &[], target.as_bytes())?;
        }
        Ok(())
    })
}

fn ask(tollgate: &Tollgate, target: &str, signature: &str) -> Reply {
    Client::connect(tollgate.address).request("GET", target, &[("authorization", signature)], b"")
}

#[test]
fn signatures_over_paths_are_right_at_the_origin() {
    let origin = verifying();
    for settings in ["", "paths: pass", "paths: refuse"] {
        let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
        for target in TARGETS {
            let reply = ask(&tollgate, target, &signature("GET", target));
            assert_eq!((reply.status, reply.text()), (200, target.to_owned()), "{settings}");
        }
        by_http2(tollgate.address, async |mut client| {
            for target in TARGETS {
                let signature = signature("GET", target);
                let reply = client.get(target, &[("authorization", &signature)]).await.unwrap();
                assert_eq!((reply.status(), reply.text()), (200, target.to_owned()), "{settings}");
            }
        });
        assert_eq!(ask(&tollgate, "/a", &signature("GET", "/b")).status, 403, "others are wrong");
    }
}

#[test]
fn the_absolute_form_of_a_target_changes_nothing_in_its_path() {
    let origin = verifying();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    for target in TARGETS {
        let reply = ask(&tollgate, &format!("http://h.example{target}"), &signature("GET", target));
        assert_eq!((reply.status, reply.text()), (200, target.to_owned()));
    }
}

/// What a path is without its dot segments, by RFC 3986, 5.2.4, word for word.
fn without_dot_segments(path: &str) -> String {
    let is = |segment: &str, dots: &str| segment.to_ascii_lowercase().replace("%2e", ".") == dots;
    let (mut kept, mut is_directory) = (Vec::new(), false);
    for segment in path.split('/').skip(1) {
        is_directory = is(segment, ".") || is(segment, "..");
        if is(segment, "..") {
            kept.pop();
        } else if !is(segment, ".") {
            kept.push(segment);
        }
    }
    if is_directory {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Seeds are fixed, so that a failure can be seen again.
#[test]
fn any_path_reaches_the_origin_as_it_came_or_not_at_all() {
    const PARTS: [&str; 24] = [
        "/", "/", "/", ".", "..", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", ";", ";x=", "a", "B", "%61",
        "%c3%a9", "~", "%7E", "@", "%40", "+", "%20", "%25",
    ];
    for (settings, resolves) in [("", true), ("paths: pass", false)] {
        let origin = Origin::ok();
        let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
        let (mut random, mut served) = (fastrand::Rng::with_seed(7), 0);
        let mut client = Client::connect(tollgate.address);
        for _ in 0..600 {
            let path: String = (0..random.usize(0..9)).map(|_| PARTS[random.usize(..PARTS.len())]).collect();
            let (path, query) = (format!("/{path}"), ["", "?", "?a=%2F..//"][random.usize(..3)]);
            let reply = client.request("GET", &format!("{path}{query}"), &[], b"");
            if reply.status == 200 {
                served += 1;
                let sent = if resolves { without_dot_segments(&path) } else { path };
                let heads = origin.heads();
                let target = heads.last().unwrap().split(' ').nth(1).unwrap();
                assert_eq!(target, format!("{sent}{query}"));
            } else {
                assert_eq!(reply.status, 400, "{path}");
                client = Client::connect(tollgate.address);
            }
            assert_eq!(origin.heads().len(), served);
        }
        assert!((100..600).contains(&served), "{served}");
    }
}
