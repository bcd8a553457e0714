//! The whole demo: an origin, the proxy as shipped, traffic, and the clients that were limited.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write, stdout},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::{Duration, Instant},
};

use http::Method;
use tempfile::TempDir;
use tokio::runtime;

use super::{
    configuration::{DemoSources, configuration},
    customers,
    origin::{self, PASSWORD},
    traffic::{self, ClientScript, ScriptedUsers},
};
use crate::{
    app,
    cli::{
        blocked,
        client::Options,
        failure::{print_error, report_config_errors},
        handover::Succession,
        run::{Process, to_configuration_errors},
        usage, why,
    },
    config::{
        self, Lookup, SystemLookup,
        model::{ListenAddress, Log, LogLevel, ProcessLogFormat},
    },
    telemetry::log,
};

/// Many people behind one address.
const OFFICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 13);
/// A machine that copies everything, using several accounts.
const SCRAPER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// A machine that guesses the passwords of a few users.
const GUESSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 67);
/// A machine that tries leaked passwords.
const STUFFER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 68);
/// A machine that sends as much as it can.
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 69);
/// Maximum time until denials are listed at the admin port.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time until the history has what customers have sent.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(15);

/// Arguments of `tollgate demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 at its end, 1 if it cannot serve (a port is taken), 2 if an argument is wrong, 78 (EX_CONFIG) if \
        the configuration has errors."
)]
pub(in crate::cli) struct Args {
    /// Exit after the tour instead of serving until Ctrl-C
    #[arg(long)]
    once: bool,
}

const SCRIPTS: [ClientScript; 7] = [
    ClientScript {
        name: "a mobile app",
        address: Ipv4Addr::new(127, 0, 0, 11),
        users: ScriptedUsers::Of(&["alice"]),
        requests: &[(1, Method::POST, "/api/login"), (10, Method::GET, "/api/orders")],
        password: PASSWORD,
    },
    ClientScript {
        name: "a shop's backend",
        address: Ipv4Addr::new(127, 0, 0, 12),
        users: ScriptedUsers::Of(&["shop"]),
        requests: &[(20, Method::GET, "/api/stock?page=1")],
        password: PASSWORD,
    },
    ClientScript {
        name: "an office",
        address: OFFICE,
        users: ScriptedUsers::Of(&[
            "ada",
            "alan",
            "barbara",
            "claude",
            "donald",
            "edsger",
            "frances",
            "grace",
            "hedy",
            "ivan",
            "jean",
            "john",
            "katherine",
            "ken",
            "leslie",
            "linus",
            "margaret",
            "niklaus",
            "radia",
            "tony",
        ]),
        // Each user sends few requests, all together too many.
        requests: &[(80, Method::GET, "/api/orders")],
        password: PASSWORD,
    },
    ClientScript {
        name: "a scraper",
        address: SCRAPER,
        users: ScriptedUsers::Of(&["trial-1", "trial-2", "trial-3"]),
        // Slow enough for one second's limit, not for ten seconds'.
        requests: &[
            (40, Method::GET, "/api/prices?page={}"),
            (40, Method::GET, "/api/prices?page={}"),
            (40, Method::GET, "/api/prices?page={}"),
            (40, Method::GET, "/api/prices?page={}"),
            (40, Method::GET, "/api/prices?page={}"),
            (40, Method::GET, "/api/prices?page={}"),
        ],
        password: PASSWORD,
    },
    ClientScript {
        name: "a password guesser",
        address: GUESSER,
        users: ScriptedUsers::Of(&["carol", "dave"]),
        requests: &[(12, Method::POST, "/api/login")],
        password: "123456",
    },
    ClientScript {
        name: "a credential stuffer",
        address: STUFFER,
        users: ScriptedUsers::Endless("leaked-"),
        requests: &[(60, Method::POST, "/api/login")],
        password: "hunter2",
    },
    ClientScript {
        name: "a flood",
        address: FLOODER,
        users: ScriptedUsers::None,
        requests: &[(300, Method::GET, "/api/search?q=shoes")],
        password: PASSWORD,
    },
];

pub(in crate::cli) fn run(args: &Args) -> ExitCode {
    let _messages = log::init(Log { level: LogLevel::Warn, format: ProcessLogFormat::Text });
    match tour() {
        Ok(Tour { mut app, .. }) if args.once => {
            app.drain();
            app.close();
            ExitCode::SUCCESS
        }
        Ok(Tour { app, customers, sources, directory: _directory }) => {
            keep_sending(proxy(&app), customers);
            let process = match Process::new() {
                Ok(process) => process,
                Err(error) => return fail(error),
            };
            let start = move || {
                // Printed once Ctrl-C is handled. A closed stdout is ignored.
                let _unread = print_line(format_args!(
                    "The clients keep sending requests. Press Ctrl-C to end the demo."
                ));
                Ok(app)
            };
            let served =
                process.serve_until_signal(start, move || reload(&sources), Succession::none("it is a demo"));
            served.unwrap_or_else(|failed| failed.1.fail(failed.0))
        }
        Err(DemoError::Configuration(errors)) => report_config_errors(&errors),
        Err(DemoError::Start(error)) => {
            print_error(format_args!(
                "tollgate demo: {error}\nTo use other ports: LISTEN=127.0.0.1:8081 ADMIN=127.0.0.1:9901 tollgate \
                    demo\n"
            ));
            ExitCode::FAILURE
        }
        Err(DemoError::Io(error)) => fail(error),
    }
}

fn fail(error: impl Display) -> ExitCode {
    print_error(format_args!("tollgate demo: {error}\n"));
    ExitCode::FAILURE
}

/// The demo as it runs on after the tour.
struct Tour {
    app: app::App,
    customers: Vec<ClientScript>,
    sources: DemoSources,
    /// Has the API keys and the history. It is removed when this is dropped.
    directory: TempDir,
}

/// Why the tour ended early.
enum DemoError {
    Configuration(config::Errors),
    Start(app::StartError),
    Io(io::Error),
}

impl From<io::Error> for DemoError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Where the demo serves clients.
fn proxy(app: &app::App) -> SocketAddr {
    let tcp = app.addresses.iter().find_map(|address| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Unix(_) => None,
    });
    // The configuration always has one.
    tcp.unwrap_or_else(|| app.admin())
}

fn tour() -> Result<Tour, DemoError> {
    let (origin, directory) = (origin::start()?, tempfile::tempdir()?);
    let sources = DemoSources { origin, directory: directory.path().to_owned() };
    let config = configuration(&sources).map_err(DemoError::Configuration)?;
    let app = app::start(config, Vec::new(), app::InheritedSockets::none(), &[]).map_err(DemoError::Start)?;
    let (proxy, admin) = (proxy(&app), app.admin());

    print_line(format_args!(
        "An API is running at http://{origin}. Tollgate is in front of it at http://{proxy}, with the \
            proxy.yaml of this release and two plans for customers with API keys.\n"
    ))?;
    let customers = customers::with_new_keys(&options(admin))?;
    print_line(format_args!(
        "{:<20} {:<12} {:>5} {:>9} {:>8}",
        "CLIENT", "ADDRESS", "SENT", "ANSWERED", "LIMITED"
    ))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut limited = BTreeMap::<Ipv4Addr, u64>::new();
    let mut sent = BTreeMap::<Ipv4Addr, u64>::new();
    for script in SCRIPTS.iter().chain(&customers) {
        let summary = runtime.block_on(traffic::play(script, proxy))?;
        *limited.entry(script.address).or_default() += summary.limited as u64;
        *sent.entry(script.address).or_default() += summary.sent as u64;
        print_line(format_args!(
            "{:<20} {:<12} {:>5} {:>9} {:>8}",
            script.name, script.address, summary.sent, summary.answered, summary.limited
        ))?;
    }
    let left = runtime.block_on(customers::usage_table(&customers, proxy))?;
    print_line(format_args!("\nWhat is left of the two customers' plans? (/usage)\n{}", left.trim_end()))?;
    let of_customers = |counts: &BTreeMap<Ipv4Addr, u64>| -> u64 {
        customers.iter().filter_map(|script| counts.get(&script.address)).sum()
    };
    let (sent, denied) = (of_customers(&sent), of_customers(&limited));
    wait_until(HISTORY_TIMEOUT, || customers::are_in_history(&options(admin), sent, denied));
    let admin_option = admin_option(admin);
    print_line(format_args!(
        "\nWhat did they use this month, for the invoice?\n$ tollgate usage --by customer,plan{admin_option}"
    ))?;
    usage::run(&usage::Args::this_month("customer,plan", options(admin)));
    print_line(format_args!(
        "\nWhy was acme denied? This can be asked tomorrow, too: with --at\n$ tollgate why --customer \
            acme{admin_option}"
    ))?;
    why::run(&why::Args::now("acme", options(admin)));
    let is_listed = |(&address, &count): (&Ipv4Addr, &u64)| {
        blocked::denial_count(IpAddr::V4(address), &options(admin)) >= count
    };
    wait_until(LIST_TIMEOUT, || limited.iter().all(is_listed));

    show(admin, None, "Which addresses are limited?")?;
    show(admin, Some(SCRAPER), "Which users were behind the scraper's address?")?;
    show(admin, Some(GUESSER), "And behind the password guesser's?")?;
    print_line(format_args!(
        "\nTry it:   curl -i http://{proxy}/api/orders -H 'X-User-Id: me'\nQuota:    curl \
            http://{proxy}/usage -H 'X-API-Key: {}'\nLook:     open http://{admin}/ \
            in a browser to see all of this live\nBan:      tollgate ban {SCRAPER} --for 10m --reason \
            scraping{admin_option}\nUnblock:  tollgate unblock {SCRAPER}{admin_option}\nMetrics:  curl \
            http://{admin}/metrics",
        customers.iter().filter_map(ClientScript::key).next().unwrap_or_default()
    ))?;
    Ok(Tour { app, customers, sources, directory })
}

/// Makes the clients keep sending as long as the demo runs.
fn keep_sending(proxy: SocketAddr, customers: Vec<ClientScript>) {
    let send = move || -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        for script in SCRIPTS.iter().chain(&customers).cycle() {
            runtime.block_on(traffic::play(script, proxy))?;
            std::thread::sleep(traffic::PAUSE);
        }
        Ok(())
    };
    // It ends with the proxy. Without it, the demo shows the traffic of the tour.
    let spawned = std::thread::Builder::new().name("traffic".into()).spawn(send);
    if let Err(error) = spawned {
        tracing::warn!("the demo's clients could not be restarted: {error}");
    }
}

/// A reload uses the same configuration.
fn reload(sources: &DemoSources) -> app::Loaded {
    configuration(sources)
        .map(|config| (config, Vec::new()))
        .map_err(|errors| to_configuration_errors(&errors))
}

/// Waits until what is recorded in the background can be shown, at most for `limit`.
fn wait_until(limit: Duration, can_be_shown: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !can_be_shown() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn show(admin: SocketAddr, address: Option<Ipv4Addr>, question: &str) -> io::Result<()> {
    let ip = address.map(|address| address.to_string());
    let argument = ip.as_ref().map_or(String::new(), |ip| format!(" {ip}"));
    print_line(format_args!("\n{question}\n$ tollgate blocked{argument}{}", admin_option(admin)))?;
    blocked::run(&blocked::Args::new(ip, options(admin)));
    Ok(())
}

/// The option with the address of the admin port, if it is not the default.
fn admin_option(admin: SocketAddr) -> String {
    if admin.port() == 9900 { String::new() } else { format!(" --admin http://{admin}") }
}

fn options(admin: SocketAddr) -> Options {
    let token = SystemLookup.variable("TOLLGATE_ADMIN_TOKEN").filter(|token| !token.is_empty());
    Options { admin: admin.into(), token, json: false }
}

fn print_line(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(stdout(), "{line}")
}
