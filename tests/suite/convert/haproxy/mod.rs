//! HAProxy.

mod backends;
mod cases;
mod checks;
mod conditions;
mod fields;
mod frontends;
mod generator;
mod limits;
mod requests;
mod rules;
mod tables;
mod unknown;

use std::{fs::File, path::Path, process::Stdio};

use super::{
    agreement,
    sent::Sent,
    source::{Generated, Noted, Places, Source},
    standing,
};
use crate::harness::{Running, program};

const fn noted(word: &'static str, what: &'static str) -> Noted {
    Noted { word, what, is_of_errors: false }
}

struct Haproxy;

impl Source for Haproxy {
    const NAME: &'static str = "haproxy";
    const FIRST_SEED: u64 = 1;
    const TO_BE_MET: &'static [&'static str] = &[
        "same: refused",
        "same: redirected",
        "same: answered",
        "same: forwarded",
        "stricter with a note: forwarded",
        "changed with a note: forwarded",
        "a named ACL",
        "an ACL of several lines",
        "negation",
        "alternatives",
        "unless",
        "a file of addresses",
        "deny",
        "reject",
        "tarpit",
        "auth",
        "allow",
        "return",
        "redirect",
        "path edit",
        "set-header",
        "add-header",
        "del-header",
        "http-response",
        "http-after-response",
        "use_backend",
        "rules of a backend",
        "rules of defaults",
        "option forwardfor",
        "disabled",
        "ssl",
        "verify required",
        "verify optional",
        "monitor-uri",
        "stats",
        "errorfile",
        "compression",
        "backup",
    ];
    const NOTED: &'static [Noted] = &[
        noted("compression", "body"),
        noted("compression", "response field content-encoding"),
        noted("compression", "response field vary"),
        // What an error looks like.
        noted("errorfile", "text"),
        noted("errorfile", "response field cache-control"),
        noted("replace-header", "response field set-cookie"),
    ];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generator::generate(seed, places)
    }

    fn start(directory: &Path, generated: &Generated) -> Running {
        let log = File::create(directory.join("log")).unwrap();
        let mut command = program("haproxy", "haproxy");
        command.args(["-db", "-f", &generated.files[0].0]).current_dir(directory);
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn alike(sent: &Sent) -> Option<Sent> {
        let plain = standing::plain(sent);
        let target = if standing::is_ambiguous(sent) {
            plain.target
        } else {
            standing::comparable(&plain.target, sent)
        };
        Some(Sent { target, ..plain })
    }
}

#[test]
fn haproxy_and_its_conversion_agree() {
    agreement::run::<Haproxy>();
}
