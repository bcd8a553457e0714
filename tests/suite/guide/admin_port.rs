//! TLS in front of the admin port, as its page shows it.

use std::net::SocketAddr;

use tempfile::TempDir;

use super::{Page, replace};
use crate::{
    admin::behind_proxy::{OPERATOR, TOKEN, operates_in_a_browser, session_by_curl},
    harness::{
        Authority, Config, Issued, Running, Tollgate, caddy, file_name, nginx, nobody, printed, program,
    },
};

struct AdminPort {
    page: Page,
    tollgate: Tollgate,
    authority: Authority,
    certificate: Issued,
    directory: TempDir,
    front: SocketAddr,
}

impl AdminPort {
    fn start() -> Self {
        let page = Page::open("admin.md");
        let yaml = page.block("yaml", "trusted_proxies: [127.0.0.1]");
        let changes = [("127.0.0.1:9900", "\"127.0.0.1:0\""), ("${TOLLGATE_ADMIN_TOKEN}", TOKEN)];
        let tollgate = Tollgate::start(Config::new(&[nobody()], &replace(&yaml, &changes)));
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost"]);
        Self { page, tollgate, authority, certificate, directory: TempDir::new().unwrap(), front: nobody() }
    }

    /// What curl prints of a request from the operator's address with the token, and with a forged address.
    fn curl(&self, path: &str, arguments: &[&str]) -> String {
        let (mut curl, authority) = (program("curl", "curl"), self.authority.file());
        curl.args([
            "-sS",
            "--max-time",
            "60",
            "--cacert",
            file_name(&authority),
            "--interface",
            OPERATOR,
            "-4",
        ]);
        curl.args(["-H", &format!("authorization: Bearer {TOKEN}"), "-H", "x-forwarded-for: 6.6.6.6"]);
        curl.args(["-H", "content-type: application/json", "-w", "%{http_code}"]).args(arguments);
        printed(curl.arg(format!("https://localhost:{}{path}", self.front.port())))
    }

    #[track_caller]
    fn operators_work(&self, _running: Running) {
        assert!(session_by_curl(self.front, &self.authority).ends_with("; Secure"));
        let banned = self.curl("/v1/bans", &["-d", r#"{"key": "ip:203.0.113.9", "for": "1h"}"#]);
        assert!(banned.ends_with("201"), "{banned}");
        let audit = self.curl("/v1/audit?limit=1", &[]);
        assert!(audit.contains(&format!("operator at {OPERATOR}")), "{audit}");
        // As long as an import may be.
        let (import, body) = (self.directory.path().join("import.json"), "x".repeat(20 << 20));
        std::fs::write(&import, body).unwrap();
        let imported = self.curl("/v1/keys/import", &["--data-binary", &format!("@{}", file_name(&import))]);
        assert!(imported.ends_with("400"), "{imported}");
        operates_in_a_browser(self.front, &self.tollgate);
    }
}

#[test]
fn operators_work_behind_nginx() {
    let port = AdminPort::start();
    let changes = [
        ("listen 443 ssl", &*format!("listen {} ssl", port.front)),
        ("127.0.0.1:9900", &port.tollgate.admin.to_string()),
        ("/etc/ssl/admin.pem", file_name(&port.certificate.cert)),
        ("/etc/ssl/admin.key", file_name(&port.certificate.key)),
    ];
    let block = replace(&port.page.block("nginx", "listen 443"), &changes);
    let (nginx, _) = nginx(port.directory.path(), &block, "");
    port.operators_work(nginx);
}

#[test]
fn operators_work_behind_caddy() {
    let port = AdminPort::start();
    let [cert, key] = [&port.certificate.cert, &port.certificate.key].map(|file| file_name(file));
    let changes = [
        ("admin.example.com {", &*format!("https://localhost {{\n\ttls {cert} {key}")),
        ("127.0.0.1:9900", &port.tollgate.admin.to_string()),
    ];
    let block = replace(&port.page.block("caddyfile", "admin.example.com"), &changes);
    let caddy = caddy(port.directory.path(), &block, "https", port.front);
    port.operators_work(caddy);
}
