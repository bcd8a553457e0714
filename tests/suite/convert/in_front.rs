//! *Move without a risk* of docs/migration/README.md, step by step: Tollgate before an nginx that also serves files and
//! an admin path. Clients and services see no difference, and the limits only count.

use std::{fs, net::SocketAddr, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    Client, Config, Ended, Origin, Reply, Running, Tollgate, becomes, nobody, start_nginx, tollgate_in,
};

/// The nginx that is there, on its public address.
fn old_configuration(listen: &str, origin: SocketAddr) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{ }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    limit_req_zone $binary_remote_addr zone=login:1m rate=1r/m;
    server {{
        {listen}
        server_name shop.test;
        add_header X-Frame-Options DENY always;
        location / {{ proxy_pass http://{origin}; proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; }}
        location /static/ {{ root .; expires 1h; }}
        location /admin/ {{ allow 127.0.0.2; deny all; proxy_pass http://{origin}/internal/; }}
        location = /old {{ return 301 https://shop.test/new; }}
        location /login {{
            limit_req zone=login burst=2 nodelay;
            limit_req_status 429;
            proxy_pass http://{origin};
        }}
        location /health {{ return 200 'ok'; }}
    }}
}}
"
    )
}

/// What a client and the service see of a request.
fn seen(source: &str, address: SocketAddr, method: &str, target: &str) -> String {
    let mut conn = Client::connect_from(source.parse().unwrap(), address);
    let reply = conn.request(method, target, &[("host", "shop.test"), ("x-mine", "1")], b"");
    let fields = ["location", "x-frame-options", "cache-control", "content-type"];
    // nginx names the port that it listens on.
    let port = format!(":{}/", address.port());
    let fields = fields.map(|name| reply.header(name).unwrap_or_default().replace(&port, "/"));
    format!("{} {fields:?} {}", reply.status, of_service(&reply))
}

/// What the service got, without fields that each proxy adds for itself; or the body.
fn of_service(reply: &Reply) -> String {
    let text = reply.text();
    let Ok(said) = serde_json::from_str::<Value>(&text) else { return text };
    if said["target"].is_null() {
        return text;
    }
    let is_kept = |name: &str| ["host", "x-real-ip", "x-mine"].contains(&name.to_ascii_lowercase().as_str());
    let mut fields: Vec<String> = said["headers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|field| field[0].as_str().is_some_and(is_kept))
        .map(|field| field.to_string().to_ascii_lowercase())
        .collect();
    fields.sort_unstable();
    format!("{} {} {fields:?}", said["method"], said["target"])
}

const REQUESTS: [(&str, &str, &str); 11] = [
    ("127.0.0.1", "GET", "/"),
    ("127.0.0.1", "POST", "/orders?a=1&b=%20x"),
    ("127.0.0.9", "GET", "/static/a.txt"),
    ("127.0.0.1", "GET", "/static/missing.txt"),
    ("127.0.0.1", "GET", "/admin/users"),
    ("127.0.0.2", "GET", "/admin/users"),
    ("127.0.0.1", "GET", "/admin"),
    ("127.0.0.1", "GET", "/old?x=1"),
    ("127.0.0.1", "GET", "/health"),
    ("127.0.0.1", "DELETE", "/a%2Cb/"),
    ("127.0.0.1", "GET", "/static/../health"),
];

fn nginx(directory: &Path, configuration: &str, address: SocketAddr) -> Running {
    fs::write(directory.join("nginx.conf"), configuration).unwrap();
    start_nginx(directory, address)
}

#[test]
fn tollgate_in_front_of_nginx_changes_nothing_and_counts() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("static")).unwrap();
    fs::write(directory.path().join("static/a.txt"), "a file").unwrap();
    let (public, moved) = (nobody(), nobody());
    let old =
        nginx(directory.path(), &old_configuration(&format!("listen {public};"), origin.address), public);
    let before = REQUESTS.map(|(source, method, target)| seen(source, public, method, target));
    assert!(before[2].contains("a file") && before[4].starts_with("403"), "{before:#?}");
    drop(old);

    // 1. Convert.
    let url = format!("http://{moved}");
    let arguments = ["convert", "nginx.conf", "--in-front-of", url.as_str(), "--output", "proxy.yaml"];
    let Ended { code, stderr, .. } = tollgate_in(directory.path(), &[], &arguments);
    assert!(matches!(code, Some(0 | 3)), "{stderr}");
    let yaml = fs::read_to_string(directory.path().join("proxy.yaml")).unwrap();
    assert!(yaml.contains("mode: shadow") && yaml.contains("set_real_ip_from 127.0.0.1"), "{yaml}");
    assert!(!yaml.contains("reply: ") && !yaml.contains("allow:") && !yaml.contains("deny:"), "{yaml}");

    // 2. Let nginx listen elsewhere, and take the client's address from Tollgate.
    let listen = format!(
        "listen {moved}; set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; port_in_redirect off;"
    );
    let _old = nginx(directory.path(), &old_configuration(&listen, origin.address), moved);
    let tollgate = Tollgate::start(Config::yaml(yaml.replace(&public.to_string(), "127.0.0.1:0")));

    // 3. Compare.
    let after = REQUESTS.map(|(source, method, target)| seen(source, tollgate.address, method, target));
    assert_eq!(before, after);
    let statuses = [(); 6].map(|()| seen("127.0.0.1", tollgate.address, "GET", "/login")[..3].to_owned());
    assert_eq!(statuses, ["200", "200", "200", "429", "429", "429"], "nginx' own limit stays on");
    // The policy has counted what it would have denied.
    becomes(Some(3), || {
        let listed = tollgate.command(&["policies", "--json"]).stdout;
        listed.split("\"shadow_denied\":").nth(1)?.split([',', '}']).next()?.trim().parse().ok()
    });

    // 4. Nothing but the shadow is taken away.
    let yaml = yaml.replace(", mode: shadow", "").replace(&public.to_string(), "127.0.0.1:0");
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let after = REQUESTS.map(|(source, method, target)| seen(source, tollgate.address, method, target));
    assert_eq!(before, after);
}
