//! Lines that nginx knows and the converter does not: what they do is unknown, so that it closes, or has no equal.

use super::{super::dice::Dice, generator::Level};

const LINES: [(Level, &str); 20] = [
    (Level::Http, "limit_rate 100k;"),
    (Level::Http, "add_after_body /x;"),
    (Level::Http, "server_name_in_redirect on;"),
    (Level::Http, "proxy_method POST;"),
    (Level::Http, "proxy_pass_request_headers off;"),
    (Level::Server, "auth_request /exact;"),
    (Level::Server, "sub_filter origin proxy;"),
    (Level::Server, "limit_rate 100k;"),
    (Level::Server, "proxy_set_body replaced;"),
    (Level::Server, "proxy_cookie_path / /app/;"),
    (Level::Location, "auth_request /exact;"),
    (Level::Location, "secure_link $arg_md5,$arg_expires;"),
    (Level::Location, "sub_filter origin proxy;"),
    (Level::Location, "proxy_method POST;"),
    (Level::Location, "proxy_set_body replaced;"),
    (Level::Location, "proxy_pass_request_body off;"),
    (Level::Location, "proxy_redirect / /app/;"),
    (Level::Location, "proxy_cookie_domain origin.test a.test;"),
    (Level::Location, "add_before_body /x;"),
    (Level::Location, "dav_methods PUT;"),
];

pub fn line(dice: &mut Dice) -> (Level, &'static str) {
    dice.pick(&LINES)
}
