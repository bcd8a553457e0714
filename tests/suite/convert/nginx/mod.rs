//! nginx.

mod cases;
mod generator;
mod inherited;
mod limits;
mod locations;
mod requests;
mod servers;
mod steps;
mod unknown;

use std::{path::Path, process::Stdio};

use super::{
    agreement,
    sent::Sent,
    source::{Generated, Noted, Places, Source},
    standing,
};
use crate::harness::{Running, program};

struct Nginx;

const fn noted(word: &'static str, what: &'static str) -> Noted {
    Noted { word, what, is_of_errors: false }
}

const fn of_errors(word: &'static str, what: &'static str) -> Noted {
    Noted { word, what, is_of_errors: true }
}

/// What is not a matter of the configuration.
const GLOBAL: &str = "daemon off; master_process off; pid nginx.pid; error_log log;";

impl Source for Nginx {
    const NAME: &'static str = "nginx";
    const FIRST_SEED: u64 = 56;
    const TO_BE_MET: &'static [&'static str] = &[
        "same: refused",
        "same: redirected",
        "same: answered",
        "same: forwarded",
        "standing: refused",
        "stricter with a note: answered",
        "stricter with a note: forwarded",
        "stricter with a note: redirected",
        "changed with a note: forwarded",
        "add_header",
        "add_header in if",
        "allow, deny",
        "an address beside all addresses",
        "an expression that looks around",
        "an icon",
        "another host for a service",
        "auth_basic",
        "client_max_body_size",
        "default_server",
        "error_page",
        "files",
        "gzip, expires",
        "if",
        "include",
        "internal",
        "limit_except",
        "limit_req",
        "nested location",
        "preflight",
        "proxy_hide_header",
        "proxy_pass in if",
        "proxy_pass with a path",
        "proxy_pass with a variable",
        "proxy_set_header",
        "real_ip",
        "return",
        "rewrite",
        "satisfy",
        "set",
        "ssl",
        "ssl_verify_client",
        "try_files",
    ];
    const NOTED: &'static [Noted] = &[
        of_errors("error_page", "text"),
        of_errors("error_page", "body"),
        of_errors("error_page", "status"),
        of_errors("error_page", "service"),
        of_errors("error_page", "method"),
        of_errors("error_page", "length of the body"),
        of_errors("error_page", "target"),
        of_errors("error_page", "host"),
        of_errors("error_page", "field"),
        of_errors("error_page", "response field"),
        noted("expires", "response field expires"),
        noted("expires", "response field cache-control"),
        noted("gzip", "response field content-encoding"),
        noted("gzip", "response field vary"),
        noted("sub_filter", "body"),
        noted("proxy_cookie_path", "response field set-cookie"),
        noted("proxy_cookie_domain", "response field set-cookie"),
        noted("proxy_redirect", "response field location"),
    ];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generator::generate(seed, places)
    }

    fn start(directory: &Path, _: &Generated) -> Running {
        let mut command = program("nginx", "nginx-light");
        command.arg("-p").arg(directory).args(["-c", "nginx.conf", "-e", "log", "-g", GLOBAL]);
        Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn alike(sent: &Sent) -> Option<Sent> {
        Some(standing::plain(sent))
    }
}

#[test]
fn nginx_and_its_conversion_agree() {
    agreement::run::<Nginx>();
}
