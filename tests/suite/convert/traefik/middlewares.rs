//! Middlewares.

use super::generator::Writer;

/// A middleware, with what it is set to.
#[derive(Debug, Clone)]
pub struct Middleware {
    pub name: String,
    pub text: String,
}

const NETWORKS: [&str; 8] = [
    "127.0.0.1",
    "127.0.0.2/32",
    "127.0.0.0/30",
    "127.0.0.0/24",
    "127.1.0.0/16",
    "127.0.0.0/8",
    "10.0.0.0/8",
    "::1",
];
const STRIPPED: [&str; 7] = ["/app", "/api", "/app/admin", "/app/", "/x", "/api, /api/v1", "/app, /x"];
const ADDED: [&str; 4] = ["/base", "/app", "/base/", "/v1"];
/// `regex` and `replacement` of `replacePathRegex`. Those that are more than a text at the beginning are rare: where they
/// match is closed.
const REPLACED: [(u32, (&str, &str)); 8] = [
    (4, ("^/app/(.*)", "/$1")),
    (4, ("^/app/(.*)", "/new/$1")),
    (4, ("^/app/?(.*)$", "/new/$1")),
    (1, ("^/api/v([0-9]+)/(.*)$", "/v$1/$2")),
    (4, ("^/(.*)", "/pre/$1")),
    (1, ("/x", "/y")),
    (1, ("^/(app|api)(.*)", "/both$2")),
    (1, ("(?i)^/app", "/new")),
];
/// `regex` and `replacement` of `redirectRegex`. Likewise.
const REDIRECTED: [(u32, (&str, &str)); 7] = [
    (4, ("^http://(.*)$", "https://${1}")),
    (4, ("^https?://a.test/(.*)", "https://new.test/${1}")),
    (4, (r"^https?://[^/]+/app/(.*)$", "https://new.test/$1")),
    (1, (r"^https?://([^/:]+)(:[0-9]+)?/app$", "https://$1/app/")),
    (1, (r"^(https?://[^/]+)/x$", "${1}/y")),
    (4, (".*", "https://new.test/there")),
    (1, ("/api/", "/app/")),
];
/// Settings of `headers`.
const HEADERS: [&str; 28] = [
    "customRequestHeaders: { X-User: \"\" }",
    "customRequestHeaders: { X-User: admin }",
    "customRequestHeaders: { X-Added: \"one, two\", X-Plan: \"\" }",
    "customRequestHeaders: { Host: internal.test }",
    "customRequestHeaders: { X-Forwarded-Proto: https }",
    "customRequestHeaders: { X-Real-Ip: \"\" }",
    "customRequestHeaders: { Authorization: \"\" }",
    "customResponseHeaders: { X-Powered-By: \"\" }",
    "customResponseHeaders: { X-Origin-A: mine, X-Added: \"1\" }",
    "customResponseHeaders: { Set-Cookie: \"\" }",
    "customResponseHeaders: { Cache-Control: no-store }",
    "customResponseHeaders: { Server: \"\", X-Origin-B: \"\" }",
    "stsSeconds: 31536000",
    "stsSeconds: 600, stsIncludeSubdomains: true, stsPreload: true",
    "stsSeconds: 600, forceSTSHeader: true",
    "frameDeny: true",
    "customFrameOptionsValue: SAMEORIGIN",
    "contentTypeNosniff: true",
    "browserXssFilter: true",
    "contentSecurityPolicy: \"default-src 'self'\"",
    "referrerPolicy: no-referrer",
    "permissionsPolicy: \"geolocation=()\"",
    "allowedHosts: [a.test, b.test]",
    "accessControlAllowOriginList: [\"https://a.test\"], accessControlAllowMethods: [GET, PUT]",
    "accessControlAllowOriginList: [\"*\"], accessControlAllowMethods: [GET], accessControlMaxAge: 60",
    "accessControlAllowOriginList: [\"https://a.test\", \"https://b.test\"], accessControlAllowCredentials: true, \
     addVaryHeader: true",
    "accessControlAllowOriginListRegex: [\"^https://[a-z]+.test$\"], accessControlAllowHeaders: [X-Key]",
    "accessControlExposeHeaders: [X-Origin-A], accessControlAllowOriginList: [\"https://a.test\"]",
];
const KINDS: [(u32, &str); 16] = [
    (7, "stripPrefix"),
    (4, "addPrefix"),
    (2, "replacePath"),
    (4, "replacePathRegex"),
    (3, "redirectScheme"),
    (3, "redirectRegex"),
    (11, "headers"),
    (8, "ipAllowList"),
    (2, "ipWhiteList"),
    (2, "basicAuth"),
    (4, "chain"),
    (4, "buffering"),
    (2, "inFlightReq"),
    (2, "rateLimit"),
    (2, "compress"),
    (2, "retry"),
];

impl Writer<'_> {
    pub fn middlewares(&mut self) {
        for nth in 1..=self.dice.number(2..7) {
            let kind = self.dice.weighted(&KINDS);
            // A chain names some of those before.
            if kind == "chain" && self.middlewares.is_empty() {
                continue;
            }
            self.met(kind);
            let (name, text) = (format!("{kind}{nth}"), self.middleware(kind));
            self.middlewares.push(Middleware { name, text });
        }
    }

    fn middleware(&mut self, kind: &str) -> String {
        let settings = match kind {
            "stripPrefix" => format!("prefixes: [{}]", self.dice.pick(&STRIPPED)),
            "addPrefix" => format!("prefix: {}", self.dice.pick(&ADDED)),
            "replacePath" => format!("path: {}", self.dice.pick(&["/fixed", "/fixed/", "/app/x"])),
            "replacePathRegex" => {
                let (regex, by) = self.dice.weighted(&REPLACED);
                format!("regex: '{regex}', replacement: '{by}'")
            }
            "redirectScheme" => {
                let permanent = self.dice.pick(&["", ", permanent: true"]);
                let port = self.dice.weighted(&[(8, ""), (1, ", port: \"8443\""), (1, ", port: \"443\"")]);
                let scheme = self.dice.weighted(&[(6, "https"), (1, "http")]);
                format!("scheme: {scheme}{permanent}{port}")
            }
            "redirectRegex" => {
                let (regex, by) = self.dice.weighted(&REDIRECTED);
                let permanent = self.dice.pick(&["", ", permanent: true"]);
                format!("regex: '{regex}', replacement: '{by}'{permanent}")
            }
            "headers" => self.headers(),
            "ipAllowList" | "ipWhiteList" => {
                let count = self.dice.number(1..4);
                let networks: Vec<_> = self.dice.some(count, &NETWORKS);
                let networks: Vec<_> = networks.iter().map(|network| format!("\"{network}\"")).collect();
                let more = match kind {
                    "ipAllowList" => self.dice.weighted(&[
                        (12, ""),
                        (1, ", rejectStatusCode: 404"),
                        (1, ", ipStrategy: { depth: 1 }"),
                        (1, ", ipStrategy: { depth: 0 }"),
                    ]),
                    _ => "",
                };
                format!("sourceRange: [{}]{more}", networks.join(", "))
            }
            // secret
            "basicAuth" => "users: [\"ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\"]".to_owned(),
            "chain" => {
                let count = self.dice.number(1..3);
                format!("middlewares: [{}]", self.some_middlewares(count).join(", "))
            }
            "buffering" => {
                let bytes = self.dice.pick(&["10", "100", "10", "1000", "0"]);
                format!("maxRequestBodyBytes: {bytes}")
            }
            "inFlightReq" => "amount: 1000".to_owned(),
            "rateLimit" => "average: 100000, burst: 100000".to_owned(),
            "retry" => "attempts: 3".to_owned(),
            _ => String::new(),
        };
        match settings.as_str() {
            "" => format!("{kind}: {{}}"),
            settings => format!("{kind}: {{ {settings} }}"),
        }
    }

    fn headers(&mut self) -> String {
        let count = self.dice.weighted(&[(3, 1), (3, 2), (2, 3)]);
        let mut settings: Vec<&str> = Vec::new();
        for setting in self.dice.some(HEADERS.len(), &HEADERS) {
            let key = |setting: &str| setting.split([':', ' ']).next().unwrap_or_default().to_owned();
            let is_cors = |setting: &str| setting.contains("accessControl");
            let is_known =
                settings.iter().any(|known| key(known) == key(setting) || is_cors(known) && is_cors(setting));
            if !is_known && settings.len() < count {
                settings.push(setting);
            }
        }
        settings.join(", ")
    }

    /// Names of so many middlewares, or fewer.
    pub fn some_middlewares(&mut self, count: usize) -> Vec<String> {
        let names: Vec<_> = self.middlewares.iter().map(|one| one.name.clone()).collect();
        self.dice.some(count, &names)
    }
}
