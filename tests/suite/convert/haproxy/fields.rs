//! Rules that set and remove fields.

use super::generator::{For, Writer};

/// Fields for services.
const SET: [&str; 26] = [
    "Host internal.test",
    "X-Real-IP %[src]",
    "X-Forwarded-For %[src]",
    "X-Forwarded-Proto https",
    "X-Forwarded-Proto http",
    "X-Forwarded-Host %[req.hdr(host)]",
    "X-Forwarded-Host a.test",
    "X-Forwarded-Port %[dst_port]",
    "X-Forwarded-Port 443",
    "X-User admin",
    "X-User %[req.hdr(x-key)]",
    "X-Plan gold",
    "X-Plan \"gold plus\"",
    "X-Key secret",
    "X-Host %[req.hdr(host)]",
    "X-Host %[hdr(Host),lower]",
    "X-Method %[method]",
    "X-Path %[path]",
    "X-Client %[ssl_c_s_dn(cn)]",
    "X-Verified %[ssl_c_verify]",
    "X-Query %[url_param(debug)]",
    "X-Tls %[ssl_fc]",
    "X-Ip %ci",
    "X-Percent 100%%",
    "X-Quoted a\\ b",
    "Authorization \"Basic YW5uOnNlY3JldA==\"",
];
/// Those behind the sixth are odd.
const REMOVED: [&str; 8] = [
    "X-User",
    "X-Key",
    "Cookie",
    "Authorization",
    "User-Agent",
    "x- -m beg",
    "key -m end",
    "^x-(key|plan)$ -m reg",
];
/// Fields for clients.
const RESPONSE: [&str; 10] = [
    "Strict-Transport-Security \"max-age=31536000; includeSubDomains\"",
    "Content-Security-Policy \"default-src 'self'\"",
    "X-Frame-Options DENY",
    "X-Content-Type-Options nosniff",
    "Access-Control-Allow-Origin *",
    "Access-Control-Allow-Origin https://a.test",
    "Set-Cookie \"proxy=1; Path=/\"",
    "Cache-Control no-store",
    "X-Served-By haproxy",
    "X-Origin-A %[src]",
];
const REMOVED_RESPONSE: [&str; 5] =
    ["X-Powered-By", "X-Origin-A", "Set-Cookie", "Server", "x-origin- -m beg"];

impl Writer<'_> {
    pub fn set_header(&mut self) {
        self.met("set-header");
        let field = self.dice.pick(&SET);
        let condition = match field.starts_with("X-Forwarded-Proto https") {
            true => self.dice.pick(&[" if { ssl_fc }", " if { ssl_fc }", ""]).to_owned(),
            false => self.maybe_condition(25, For::Choosing),
        };
        self.line(format!("http-request set-header {field}{condition}"));
    }

    pub fn add_header(&mut self) {
        self.met("add-header");
        let field = self.dice.pick(&SET[1..]);
        let condition = self.maybe_condition(25, For::Choosing);
        self.line(format!("http-request add-header {field}{condition}"));
    }

    pub fn del_header(&mut self) {
        self.met("del-header");
        let name = self.dice.pick(if self.is_odd { &REMOVED } else { &REMOVED[..6] });
        // Where it is in doubt, a note names what is removed more often: not each of several.
        let percent = if name.contains(" -m ") { 0 } else { 15 };
        let condition = self.maybe_condition(percent, For::Choosing);
        self.line(format!("http-request del-header {name}{condition}"));
    }

    pub fn response(&mut self) {
        let rule = self.dice.weighted(&[(8, "http-response"), (1, "http-after-response")]);
        self.met(rule);
        let what = match self.dice.weighted(&[(6, "set"), (2, "add"), (3, "del")]) {
            "set" => format!("set-header {}", self.dice.pick(&RESPONSE)),
            "add" => format!("add-header {}", self.dice.pick(&RESPONSE)),
            _ => format!("del-header {}", self.dice.pick(&REMOVED_RESPONSE)),
        };
        let odd = u32::from(self.is_odd);
        let condition = self.dice.weighted(&[
            (12, ""),
            (2, " if { ssl_fc }"),
            (odd, " if { status 404 }"),
            (odd, " unless { res.hdr(x-powered-by) -m found }"),
            (odd, " if { src 127.0.0.0/30 }"),
        ]);
        self.line(format!("{rule} {what}{condition}"));
    }
}
