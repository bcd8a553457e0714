//! `tollgate convert` for Traefik and Kong: the text of conversions, and what a Tollgate does that runs them.

use std::{env, fs, net::SocketAddr, path::Path};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::harness::{Config, Origin, Reply, Tollgate, get, get_from, tollgate_in};

/// Converts `text`, and returns the result and what was said about it.
#[track_caller]
fn converted(name: &str, text: &str) -> (String, String) {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join(name), text).unwrap();
    let ended = tollgate_in(directory.path(), &[], &["convert", name]);
    assert!(matches!(ended.code, Some(0 | 3)), "{ended:?}");
    assert!(!ended.stderr.contains("defect"), "{ended:?}");
    (ended.stdout, ended.stderr)
}

/// Runs a conversion, on a free port in place of `address`.
fn started(yaml: &str, address: &str) -> Tollgate {
    assert!(yaml.contains(address), "{yaml}");
    Tollgate::start(Config::yaml(yaml.replacen(address, "\"127.0.0.1:0\"", 1)))
}

fn saying(text: &str) -> Origin {
    Origin::saying(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()))
}

#[track_caller]
fn body(tollgate: SocketAddr, host: &str, path: &str) -> (u16, String) {
    let reply = get(tollgate, path, &[("host", host)]);
    (reply.status, text(&reply))
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// What conversions look like. `UPDATE_GOLDEN=1` rewrites them.
#[test]
fn conversions_are_as_shown() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/convert");
    for name in ["traefik", "kong"] {
        let ended = tollgate_in(&directory, &[], &["convert", &format!("{name}.yml")]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(!ended.stderr.contains("defect"), "{ended:?}");
        let expected = directory.join(format!("{name}.converted"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &ended.stdout).unwrap();
        }
        assert_eq!(ended.stdout, fs::read_to_string(&expected).unwrap(), "{name}");
        // Secrets stay where they are.
        for secret in ["hunter2", "8b1a9953c4611296a827abf8c47804d7", "$apr1$"] {
            assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{secret}");
        }
        // What nobody knows is named.
        assert!(ended.stderr.contains("surprise"), "{ended:?}");
    }
}

#[test]
fn traefik_routes_and_limits_hold() {
    let (api, web) = (saying("api"), saying("web"));
    let traefik = format!(
        "http:
  routers:
    api:
      rule: Host(`a.org`) && PathPrefix(`/api`) && !Path(`/api/status`)
      middlewares: [few@file, strip]
      service: api@file
    web: {{ rule: Host(`a.org`) || Host(`b.org`), service: web, middlewares: [parallel] }}
    staff: {{ rule: Host(`c.org`), service: web, middlewares: [password] }}
    first: {{ rule: Host(`a.org`) && Path(`/api/first`), service: web, priority: 1000 }}
  middlewares:
    few: {{ rateLimit: {{ average: 1, period: 1h, burst: 3 }} }}
    parallel: {{ inFlightReq: {{ amount: 5 }} }}
    strip: {{ stripPrefix: {{ prefixes: [/api] }} }}
    password: {{ basicAuth: {{ users: [x] }} }}
  services:
    api: {{ loadBalancer: {{ servers: [{{ url: \"http://{}\" }}] }} }}
    web: {{ loadBalancer: {{ servers: [{{ url: \"http://{}/\" }}] }} }}
",
        api.address, web.address
    );
    let (yaml, said) = converted("dynamic.yml", &traefik);
    assert!(
        said.contains("dynamic.yml:14: `middlewares.password.basicAuth`: Tollgate checks no passwords"),
        "{said}"
    );
    let tollgate = started(&yaml, "0.0.0.0:80");
    let ask = |host, path| body(tollgate.address, host, path);
    assert_eq!(ask("a.org", "/api/first"), (200, "web".to_owned()));
    // A negation leads to the next router.
    assert_eq!(ask("a.org", "/api/status"), (200, "web".to_owned()));
    assert_eq!(ask("b.org", "/api/x"), (200, "web".to_owned()));
    assert_eq!(ask("d.org", "/").0, 404);
    // The burst, and then none for an hour.
    let statuses: Vec<u16> = (0..5).map(|_| ask("a.org", "/api/users").0).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429], "{yaml}");
    assert!(api.heads()[0].starts_with("GET /users HTTP/1.1"), "{:?}", api.heads());
    // What asked for a password is closed, also to this machine.
    assert_eq!(get_from("127.0.0.5", tollgate.address, "/", &[("host", "c.org")]).status, 501);
    assert_eq!(ask("c.org", "/").0, 501);
}

#[test]
fn traefiks_static_file_tells_the_listeners() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "traefik.yml",
        "entryPoints:
  web: { address: ':8000', forwardedHeaders: { trustedIPs: [10.0.0.0/8] }, http: { redirections: { entryPoint: { to: ':8443', scheme: https } } } }
  secure: { address: ':8443', forwardedHeaders: { trustedIPs: [10.0.0.0/8] } }
  unused: { address: ':9000', forwardedHeaders: { trustedIPs: [10.0.0.0/8] } }
providers: { file: { filename: /etc/traefik/dynamic.yml } }
",
    );
    write(
        "dynamic.yml",
        "http:
  routers: { a: { rule: Host(`a.org`), service: a, entryPoints: [secure], tls: {} } }
  services: { a: { loadBalancer: { servers: [{ url: 'http://10.0.0.1' }] } } }
tls: { certificates: [{ certFile: a.pem, keyFile: a.key }] }
",
    );
    let ended = tollgate_in(directory.path(), &[], &["convert", "traefik.yml"]);
    // What services get as X-Real-Ip differs behind another proxy.
    assert_eq!(ended.code, Some(3), "{ended:?}");
    for line in [
        "- { address: 0.0.0.0:8000, name: web, redirect: { to: https, port: 8443 } }",
        "- { address: 0.0.0.0:8443, name: secure, tls: { certificates: [{ cert: a.pem, key: a.key }] } }",
        "trusted_proxies: [10.0.0.0/8]",
    ] {
        assert!(ended.stdout.contains(line), "{line}\n{}", ended.stdout);
    }
}

#[test]
fn kong_routes_keys_and_limits_hold() {
    let (orders, shop) = (saying("orders"), saying("shop"));
    let key = "8b1a9953c4611296a827abf8c47804d7";
    let kong = format!(
        "_format_version: '3.0'
services:
- name: orders
  url: http://{}/v2
  plugins: [{{ name: key-auth, config: {{ hide_credentials: true }} }}]
  routes:
  - name: orders
    paths: [/orders]
    plugins: [{{ name: rate-limiting, config: {{ hour: 2, limit_by: consumer }} }}]
  - {{ name: items, paths: ['~/orders/[0-9]+$'], strip_path: false, methods: [GET] }}
- name: shop
  url: http://{}
  routes:
  - {{ name: shop, paths: [/] }}
  - name: closed
    paths: [/closed]
    plugins: [{{ name: request-termination, config: {{ message: Back soon }} }}]
  - {{ name: staff, paths: [/staff], plugins: [{{ name: basic-auth }}] }}
  - name: office
    paths: [/office]
    plugins: [{{ name: basic-auth }}, {{ name: ip-restriction, config: {{ deny: [127.0.0.1] }} }}]
consumers:
- {{ username: acme, keyauth_credentials: [{{ key: {key} }}] }}
- username: globex
  keyauth_credentials: [{{ key: {key}2 }}]
  plugins: [{{ name: rate-limiting, config: {{ hour: 4 }} }}]
",
        orders.address, shop.address
    );
    let (yaml, _) = converted("kong.yml", &kong);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("keys.yaml");
    let entry = |key: &str, customer: &str| {
        let hash: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("  - {{ id: \"{}\", hash: \"sha256:{hash}\", customer: {customer} }}\n", &hash[..10])
    };
    fs::write(&file, format!("keys:\n{}{}", entry(key, "acme"), entry(&format!("{key}2"), "globex")))
        .unwrap();
    let yaml = yaml.replace("file: keys.yaml", &format!("file: {}", file.display()));
    let tollgate = started(&yaml, "0.0.0.0:8000");
    let ask = |path: &str, key: &str| get(tollgate.address, path, &[("apikey", key)]).status;
    assert_eq!(get(tollgate.address, "/orders/a", &[]).status, 401);
    assert_eq!([(); 3].map(|()| ask("/orders/a", key)), [200, 200, 429], "{yaml}");
    // The consumer's own plugin precedes the route's.
    assert_eq!([(); 5].map(|()| ask("/orders/a", &format!("{key}2"))), [200, 200, 200, 200, 429], "{yaml}");
    // The regular expression is tried first, and its path is not stripped. The service's path comes before.
    assert_eq!(ask("/orders/17", key), 200);
    let heads = orders.heads();
    let lines: Vec<_> = heads.iter().filter_map(|head| head.lines().next()).collect();
    assert!(
        lines.contains(&"GET /v2/a HTTP/1.1") && lines.contains(&"GET /v2/orders/17 HTTP/1.1"),
        "{lines:?}"
    );
    assert!(!heads[0].to_ascii_lowercase().contains("apikey"), "{heads:?}");
    assert_eq!(text(&get(tollgate.address, "/any", &[])), "shop");
    let closed = get(tollgate.address, "/closed", &[]);
    assert_eq!((closed.status, text(&closed).as_str()), (503, "{\"message\":\"Back soon\"}"));
    // What asks for a password is closed, and a lock before it stays.
    let statuses = ["/staff", "/office"].map(|path| get(tollgate.address, path, &[]).status);
    assert_eq!(statuses, [501, 403]);
}

#[test]
fn a_file_of_traefik_that_cannot_be_read_is_an_error_with_its_line() {
    let directory = TempDir::new().unwrap();
    for (name, text, error) in [
        ("a.yml", "http:\n  routers:\n    a: [\n", "a.yml:"),
        ("a.toml", "[http.routers.a]\nrule = \"Host(`a`)\"\n", "Convert it to YAML first"),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
        let ended = tollgate_in(directory.path(), &[], &["convert", "--from", "traefik", name]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(error), "{ended:?}");
    }
    let rule = "http: { routers: { a: { rule: \"Host(`a`\", service: a } } }\n";
    let (_, said) = converted("rule.yml", rule);
    assert!(said.contains("rule.yml:1: the router `a`: its rule cannot be read"), "{said}");
}
