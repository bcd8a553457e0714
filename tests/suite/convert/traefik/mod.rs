//! Traefik, with a static configuration and the file provider.

mod entry_points;
mod generator;
mod in_flight;
mod middlewares;
mod rates;
mod requests;
mod routers;
mod rules;
mod services;
mod unknown;

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    agreement,
    sent::Sent,
    source::{Generated, Noted, Places, Source},
    standing,
};
use crate::harness::{Client, Running, eventually, free_port};

struct Traefik;

impl Source for Traefik {
    const NAME: &'static str = "traefik";
    const FIRST_SEED: u64 = 1;
    const TO_BE_MET: &'static [&'static str] = &[
        "same: refused",
        "same: redirected",
        "same: answered",
        "same: forwarded",
        "stricter with a note: forwarded",
        "ClientIP",
        "Header",
        "HeaderRegexp",
        "HostRegexp",
        "Method",
        "Path",
        "PathRegexp",
        "Query",
        "QueryRegexp",
        "a rule of two routers",
        "addPrefix",
        "asDefault",
        "based",
        "basicAuth",
        "buffering",
        "chain",
        "clientAuth",
        "compress",
        "entryPoints",
        "forwardedHeaders",
        "headers",
        "inFlightReq",
        "ipAllowList",
        "ipWhiteList",
        "middlewares of an entry point",
        "own-host",
        "pool",
        "priority",
        "rateLimit",
        "redirectRegex",
        "redirectScheme",
        "redirections",
        "replacePath",
        "replacePathRegex",
        "retry",
        "ruleSyntax",
        "sticky",
        "stripPrefix",
        "tls",
        "tls of a router",
        "tls options of a router",
        "weighted",
    ];
    const NOTED: &'static [Noted] = &[
        Noted { word: "compress", what: "response field content-encoding", is_of_errors: false },
        Noted { word: "sticky", what: "response field set-cookie", is_of_errors: false },
        Noted { word: "forwardedheaders", what: "field x-forwarded-", is_of_errors: false },
        Noted { word: "forwardedheaders", what: "field x-real-ip", is_of_errors: false },
    ];
    const ADDED: &'static [&'static str] =
        &["x-forwarded-port", "x-forwarded-server", "x-replaced-path", "accept-encoding", "x-real-ip"];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generator::generate(seed, places)
    }

    fn start(directory: &Path, generated: &Generated) -> Running {
        start(directory, generated)
    }

    fn alike(sent: &Sent) -> Option<Sent> {
        Some(standing::plain(sent))
    }

    fn is_installed() -> bool {
        let is_there = env::var_os("TRAEFIK").is_some();
        if !is_there {
            eprintln!("left out: `scripts/test` installs Traefik, and says where in TRAEFIK");
        }
        is_there
    }
}

/// Starts it with an API, and waits until that knows a service of the dynamic file: Traefik reads it after it listens.
fn start(directory: &Path, generated: &Generated) -> Running {
    let port = free_port();
    let [(name, text), (dynamic, routers)] = generated.files.as_slice() else { panic!("two files") };
    let entry_point = format!("entryPoints:\n  traefik: {{ address: \"127.0.0.1:{port}\" }}\n");
    let text = text.replacen("entryPoints:\n", &entry_point, 1) + "api: { insecure: true }\n";
    fs::write(directory.join(name), &text).unwrap();
    let service = "ready: { loadBalancer: { servers: [{ address: \"127.0.0.1:9\" }] } }";
    fs::write(directory.join(dynamic), format!("{routers}udp: {{ services: {{ {service} }} }}\n")).unwrap();
    let log_file = directory.join("log");
    let log = fs::File::create(&log_file).unwrap();
    let mut command = Command::new(env::var_os("TRAEFIK").unwrap());
    command.current_dir(directory).arg(format!("--configFile={name}")).env(LIMIT.0, LIMIT.1);
    command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
    let mut running = Running(command.spawn().unwrap());
    let is_read = || {
        let client = Client::try_connect(([127, 0, 0, 1], port).into());
        client.is_some_and(|mut client| {
            client.request("GET", "/api/rawdata", &[], b"").text().contains("ready@file")
        })
    };
    // It goes on with what it does not take, and without a static file that is none.
    let is_bad =
        || fs::read_to_string(&log_file).is_ok_and(|log| log.contains("Error while building configuration"));
    let has_api = text.contains(&entry_point) && text.contains("filename");
    eventually("Traefik reads the dynamic file", || {
        if !has_api || is_bad() {
            let _ = running.0.kill();
        }
        running.0.try_wait().unwrap().is_some() || is_read()
    });
    running
}

/// `{{ env "LIMIT" }}` in the dynamic file has a value for Traefik, and none for who reads the file.
const LIMIT: (&str, &str) = ("LIMIT", "3");

#[test]
fn traefik_and_its_conversion_agree() {
    agreement::run::<Traefik>();
}
