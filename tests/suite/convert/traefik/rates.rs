//! `rateLimit` beside Traefik. A request gets its place back after twelve minutes at the earliest: one that Traefik lets
//! wait, at most for half a second, there is none.

use std::path::Path;

use super::{
    super::{
        counts,
        dice::Dice,
        sent::{Body, Sent},
        source::{Generated, Listener, Noted, Places, Source},
    },
    Traefik,
};
use crate::harness::Running;

/// How many requests, each of which is sent several times.
const REQUESTS: usize = 14;

/// Traefik with limits and little else.
struct Rates;

impl Source for Rates {
    const NAME: &'static str = Traefik::NAME;
    const FIRST_SEED: u64 = 1;
    const TO_BE_MET: &'static [&'static str] = &[
        "admitted none",
        "admitted some",
        "admitted all",
        "a limit of two routers",
        "a limit of an entry point",
        "settings of an entry point",
        "average: 0",
        "a number by template",
        "by header",
        "by host",
        "by X-Forwarded-For",
        "two limits",
        "chain",
    ];
    const NOTED: &'static [Noted] = &[];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generate(seed, places)
    }

    fn start(directory: &Path, generated: &Generated) -> Running {
        Traefik::start(directory, generated)
    }

    fn is_installed() -> bool {
        Traefik::is_installed()
    }
}

#[test]
fn traefik_admits_no_fewer_at_once() {
    counts::run::<Rates>();
}

const RULES: [&str; 8] = [
    "PathPrefix(`/app`)",
    "Host(`a.test`)",
    "Host(`b.test`) && PathPrefix(`/app`)",
    "Method(`POST`)",
    "Host(`a.test`) || Host(`b.test`)",
    "PathPrefix(`/app`) && !Header(`X-Key`, `k1`)",
    "ClientIP(`127.0.0.1`) && PathPrefix(`/`)",
    "PathRegexp(`^/(app|api)/`)",
];
const SETTINGS: [(u32, &str); 8] = [
    (12, "average: 1, period: 1h, burst: BURST"),
    (3, "average: 5, period: 60m, burst: BURST"),
    (3, "average: 1, period: 3600"),
    (2, "average: 24, period: 24h, burst: BURST"),
    (2, "average: 0, burst: BURST"),
    (2, "burst: BURST"),
    (1, "average: '{{ env \"LIMIT\" }}', period: 1h, burst: BURST"),
    (1, "average: 1, period: 1h, burst: '{{ env \"LIMIT\" }}'"),
];
const CRITERIA: [(u32, &str); 7] = [
    (8, ""),
    (2, "requestHost: true"),
    (2, "requestHeaderName: X-Key"),
    (1, "ipStrategy: { depth: 0 }"),
    (2, "ipStrategy: { depth: 1 }"),
    (1, "ipStrategy: { excludedIPs: [10.0.0.1, 127.0.0.0/8] }"),
    (1, "ipStrategy: { ipv6Subnet: 64 }"),
];
const OTHERS: [(&str, &str); 4] = [
    ("strip", "stripPrefix: { prefixes: [/app] }"),
    ("allow", "ipAllowList: { sourceRange: [127.0.0.0/30] }"),
    ("fields", "headers: { customRequestHeaders: { X-Key: k1 } }"),
    ("none", "headers: { customRequestHeaders: { X-Key: \"\" } }"),
];

fn limit(dice: &mut Dice, criterion: &str, words: &mut Vec<&'static str>) -> String {
    let burst = dice.pick(&["1", "2", "3", "5", "8"]);
    let settings = dice.weighted(&SETTINGS).replace("BURST", burst);
    let met = [
        (!settings.contains("average") || settings.contains("average: 0"), "average: 0"),
        (settings.contains("{{"), "a number by template"),
        (criterion.contains("Header"), "by header"),
        (criterion.contains("Host"), "by host"),
        (criterion.contains("depth: 1") || criterion.contains("excluded"), "by X-Forwarded-For"),
    ];
    words.extend(met.into_iter().filter(|(is_met, _)| *is_met).map(|(_, word)| word));
    match criterion {
        "" => format!("rateLimit: {{ {settings} }}"),
        criterion => format!("rateLimit: {{ {settings}, sourceCriterion: {{ {criterion} }} }}"),
    }
}

fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let mut dice = Dice::new(seed);
    let mut words = Vec::new();
    let address = |nth: usize, ip: &str| format!("{ip}:{}", places.ports[nth]);
    let listeners: Vec<String> = match dice.chance(40) {
        true => vec![address(0, "127.0.0.1"), address(1, "127.0.0.2")],
        false => vec![address(0, "127.0.0.1")],
    };
    let limits = dice.number(1..4);
    let mut names: Vec<String> = (1..=limits).map(|nth| format!("limit{nth}")).collect();
    // A request may have several limits only if they count by the same. Otherwise, the first may have counted what the
    // second denies: a standing difference.
    let one_for_all = dice.chance(50).then(|| dice.weighted(&CRITERIA));
    let mut middleware = |name: &String| {
        let criterion = one_for_all.unwrap_or_else(|| dice.weighted(&CRITERIA));
        format!("    {name}: {{ {} }}\n", limit(&mut dice, criterion, &mut words))
    };
    let mut middlewares: Vec<String> = names.iter().map(&mut middleware).collect();
    if dice.chance(25) {
        words.push("chain");
        middlewares.push("    both: { chain: { middlewares: [allow, limit1] } }\n".to_owned());
        names.push("both".to_owned());
    }
    let mut of_program = "entryPoints:\n".to_owned();
    for (nth, address) in listeners.iter().enumerate() {
        of_program += &format!("  entry{nth}:\n    address: \"{address}\"\n");
        if one_for_all.is_some() && dice.chance(25) {
            words.push("a limit of an entry point");
            of_program += &format!("    http: {{ middlewares: [{}@file] }}\n", dice.pick(&names));
        } else if dice.chance(20) {
            // Routers are copied for such an entry point: counts of its own.
            words.push("settings of an entry point");
            of_program += "    http: { middlewares: [allow@file] }\n";
        }
    }
    of_program += "providers: { file: { filename: dynamic.yml } }\n";
    let (routers, mut used) = routers(&mut dice, &names, one_for_all.is_some(), &mut words);
    let has_chain = names.iter().any(|name| name == "both");
    let is_used =
        |name: &str| routers.contains(name) || has_chain || of_program.contains(&format!("{name}@file"));
    let others = OTHERS.iter().filter(|(name, _)| is_used(name));
    middlewares.extend(others.map(|(name, text)| format!("    {name}: {{ {text} }}\n")));
    used.sort();
    if used.windows(2).any(|two| two[0] == two[1]) {
        words.push("a limit of two routers");
    }
    let dynamic = format!(
        "http:\n  routers:\n{routers}  middlewares:\n{}  services:\n    one: {{ loadBalancer: {{ servers: \
         [{{ url: \"http://{}\" }}] }} }}\n",
        middlewares.concat(),
        places.origins[0]
    );
    let listener = |address: &String| Listener { address: address.parse().unwrap(), is_tls: false };
    let listeners: Vec<Listener> = listeners.iter().map(listener).collect();
    let requests = (0..REQUESTS).map(|_| request(&mut dice, listeners.len())).collect();
    let files = vec![("traefik.yml".to_owned(), of_program), ("dynamic.yml".to_owned(), dynamic)];
    Generated { files, listeners, requests, words, ..Generated::default() }
}

/// Routers, and which limits they have.
fn routers(
    dice: &mut Dice,
    names: &[String],
    may_have_several: bool,
    words: &mut Vec<&'static str>,
) -> (String, Vec<String>) {
    let (mut routers, mut used) = (String::new(), Vec::new());
    let count = dice.number(1..4);
    let mut rules: Vec<&str> = dice.some(count - 1, &RULES);
    rules.push("PathPrefix(`/`)");
    for (nth, rule) in rules.iter().enumerate() {
        let count = if may_have_several { dice.weighted(&[(2, 1), (3, 2)]) } else { 1 };
        let mut own = dice.some(count, names);
        if own.len() > 1 {
            words.push("two limits");
        }
        used.extend(own.clone());
        if let Some((other, _)) = dice.maybe(30, &OTHERS) {
            own.insert(dice.number(..=own.len()), other.to_owned());
        }
        let priority = rules.len() - nth;
        routers += &format!(
            "    r{nth}: {{ rule: '{rule}', priority: {priority}, middlewares: [{}], service: one }}\n",
            own.join(", ")
        );
    }
    (routers, used)
}

/// Few clients, so that limits are reached.
fn request(dice: &mut Dice, listeners: usize) -> Sent {
    let host = dice.weighted(&[(6, "a.test"), (2, "b.test"), (1, "c.test")]);
    let mut headers = vec![("host".to_owned(), host.to_owned())];
    if let Some(key) = dice.maybe(50, &["k1", "k2", "K1"]) {
        headers.push(("x-key".to_owned(), key.to_owned()));
    }
    if let Some(addresses) = dice.maybe(40, &["10.0.0.1", "10.0.0.2", "10.0.0.2, 10.0.0.1"]) {
        headers.push(("x-forwarded-for".to_owned(), addresses.to_owned()));
    }
    let path = dice.weighted(&[(4, "/app/x"), (2, "/app"), (2, "/"), (1, "/api/x"), (1, "/app/y?a=1")]);
    Sent {
        listener: dice.number(..listeners),
        peer: dice.weighted(&[(6, "127.0.0.1"), (2, "127.0.0.2"), (1, "127.0.0.9")]).parse().unwrap(),
        to: None,
        tls_name: "a.test".to_owned(),
        has_certificate: false,
        method: dice.weighted(&[(4, "GET"), (1, "POST")]).to_owned(),
        target: path.to_owned(),
        headers,
        body: Body::None,
    }
}
