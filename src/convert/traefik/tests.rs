//! Routes choose as Traefik's routers do.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, Method, Uri, Version, header::HOST};
use proptest::prelude::*;

use super::rule::{Matcher, Rule};
use crate::{
    config::{self, SystemLookup},
    convert::{
        conditions::{Term, ordered},
        draft::Draft,
        yaml::Map,
    },
    router::{Router, Target},
};

#[derive(Debug, Clone)]
struct Request {
    host: String,
    path: String,
    method: String,
    headers: BTreeMap<String, String>,
    query: Vec<(String, String)>,
}

/// Traefik's semantics, as its documentation has them.
fn matches(rule: &Rule, request: &Request) -> bool {
    match rule {
        Rule::And(rules) => rules.iter().all(|rule| matches(rule, request)),
        Rule::Or(rules) => rules.iter().any(|rule| matches(rule, request)),
        Rule::Not(rule) => !matches(rule, request),
        Rule::Matcher(Matcher { name, arguments }) => {
            let first = arguments[0].as_str();
            let found = |text: &str| regex::Regex::new(first).unwrap().is_match(text);
            match name.as_str() {
                "Host" => arguments.contains(&request.host),
                "HostRegexp" => found(&request.host),
                "Path" => request.path == first,
                "PathPrefix" => request.path.starts_with(first),
                "PathRegexp" => found(&request.path),
                "Method" => request.method == first,
                "Header" => request.headers.get(&first.to_ascii_lowercase()) == Some(&arguments[1]),
                "Query" => request.query.iter().any(|(name, value)| name == first && *value == arguments[1]),
                other => panic!("{other}"),
            }
        }
    }
}

fn write(rule: &Rule) -> String {
    let join =
        |rules: &[Rule], by: &str| format!("({})", rules.iter().map(write).collect::<Vec<_>>().join(by));
    match rule {
        Rule::And(rules) => join(rules, " && "),
        Rule::Or(rules) => join(rules, "||"),
        Rule::Not(rule) => format!("!{}", write(rule)),
        Rule::Matcher(Matcher { name, arguments }) => {
            let arguments: Vec<_> = arguments.iter().map(|argument| format!("`{argument}`")).collect();
            format!("{name}({})", arguments.join(", "))
        }
    }
}

const HOSTS: [&str; 4] = ["a.org", "b.a.org", "c.b.a.org", "d.net"];
const PATHS: [&str; 9] = ["/", "/a", "/a/", "/A", "/ab", "/a/b", "/a/b/c", "/b", "/ab/c"];

fn matcher() -> impl Strategy<Value = Rule> {
    let one = |name: &'static str, values: &'static [&'static str]| {
        prop::sample::select(values).prop_map(move |value| (name, vec![value.to_owned()]))
    };
    let two = |name: &'static str, key: &'static str| {
        prop::sample::select(&["1", "2"][..])
            .prop_map(move |value| (name, vec![key.to_owned(), value.to_owned()]))
    };
    prop_oneof![
        4 => one("Host", &HOSTS),
        1 => Just(("Host", vec!["a.org".to_owned(), "d.net".to_owned()])),
        2 => one("HostRegexp", &[r"^.+\.a\.org$", r"^(b\.a|d)\.(org|net)$", r"^.*$"]),
        3 => one("Path", &PATHS),
        4 => one("PathPrefix", &PATHS),
        1 => one("PathRegexp", &["^/a/[a-z]+$", "^/(a|b)", "^/ab"]),
        2 => one("Method", &["GET", "POST"]),
        1 => two("Header", "X-V"),
        1 => two("Query", "q"),
    ]
    .prop_map(|(name, arguments)| Rule::Matcher(Matcher { name: name.to_owned(), arguments }))
}

fn rule() -> impl Strategy<Value = Rule> {
    matcher().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(Rule::And),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(Rule::Or),
            1 => inner.prop_map(|rule| Rule::Not(Box::new(rule))),
        ]
    })
}

fn request() -> impl Strategy<Value = Request> {
    let value = prop::sample::select(&["1", "2"][..]);
    (
        prop::sample::select(&HOSTS[..]),
        prop::sample::select(&PATHS[..]),
        prop::sample::select(&["GET", "POST", "PUT"][..]),
        prop::option::of(value.clone()),
        prop::option::of(value),
    )
        .prop_map(|(host, path, method, header, query)| Request {
            host: host.to_owned(),
            path: path.to_owned(),
            method: method.to_owned(),
            headers: header.map(|value| ("x-v".to_owned(), value.to_owned())).into_iter().collect(),
            query: query.map(|value| ("q".to_owned(), value.to_owned())).into_iter().collect(),
        })
}

/// The rule whose route takes the request.
fn chosen(router: &Router, targets: &[Option<usize>], request: &Request) -> Option<usize> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, request.host.parse().unwrap());
    for (name, value) in &request.headers {
        headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let query: Vec<_> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let uri: Uri = format!("{}?{}", request.path, query.join("&")).parse().unwrap();
    let method: Method = request.method.parse().unwrap();
    let target = Target::parse(&method, &uri, Version::HTTP_11, &headers).unwrap();
    router.find(&method, &target, &headers).ok().and_then(|nth| targets[nth])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn routes_choose_as_routers_do(
        rules in prop::collection::vec(rule(), 1..5),
        requests in prop::collection::vec(request(), 30),
    ) {
        let texts: Vec<String> = rules.iter().map(write).collect();
        let mut terms: Vec<(Term, usize)> = Vec::new();
        let mut is_whole = true;
        for (nth, text) in texts.iter().enumerate() {
            let parsed = Rule::parse(text).unwrap();
            let alternatives = parsed.alternatives();
            is_whole &= alternatives.lost.is_empty();
            prop_assert!(alternatives.wider.is_empty());
            terms.extend(alternatives.terms.into_iter().map(|term| (term, nth)));
        }
        let (routes, lost) = ordered(&terms);
        // What is lost is told to the user; here, only whole conversions are compared.
        if is_whole && lost.is_empty() && !routes.is_empty() {
            let mut draft = Draft::default();
            draft.settings.set("match", Map::new().with("case", "sensitive").with("trailing_slash", "exact"));
            for (nth, route) in routes.iter().enumerate() {
                let mut map = Map::new().with("name", format!("r{nth}"));
                route.conditions.write(&mut map);
                draft.routes.push(map.with("reply", Map::new().with("status", 200)).into());
            }
            let yaml = draft.finish("test").yaml;
            let config = config::parse("proxy.yaml", &yaml, &SystemLookup);
            let config = config.map_err(|errors| TestCaseError::fail(format!("{errors}\n{texts:#?}\n{yaml}")))?;
            let router = Router::new(&config.routes);
            let targets: Vec<_> = routes.iter().map(|route| route.target).collect();
            for request in &requests {
                let expected = rules.iter().position(|rule| matches(rule, request));
                let found = chosen(&router, &targets, request);
                prop_assert_eq!(found, expected, "{:?}\n{:#?}\n{}", request, texts, yaml);
            }
        }
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in "[A-Za-z`(){}&|!,.*+^$\\[\\]\\\\ \"'/]{0,60}") {
        if let Ok(rule) = Rule::parse(&text) {
            rule.alternatives();
        }
    }

    #[test]
    fn any_argument_is_a_condition_or_a_reason(argument in "[a-z{}:.*+?^$()|\\[\\]\\\\/=-]{0,30}") {
        for name in ["Host", "HostRegexp", "Path", "PathPrefix", "PathRegexp", "Query", "ClientIP"] {
            let matcher = Matcher { name: name.to_owned(), arguments: vec![argument.clone()] };
            Rule::Not(Box::new(Rule::Matcher(matcher))).alternatives();
        }
    }
}

fn routes_of(rules: &[&str]) -> Vec<(String, Option<usize>)> {
    let parsed = rules.iter().map(|text| Rule::parse(text).unwrap().alternatives());
    let terms: Vec<_> = parsed
        .enumerate()
        .flat_map(|(nth, rule)| rule.terms.into_iter().map(move |term| (term, nth)))
        .collect();
    let (routes, lost) = ordered(&terms);
    assert!(lost.is_empty());
    routes.into_iter().map(|route| (route.conditions.path.written().0, route.target)).collect()
}

#[test]
fn a_negation_leads_to_the_next_router() {
    let routes = routes_of(&["Host(`a.org`) && !PathPrefix(`/a/`)", "PathPrefix(`/a/b/`)", "Host(`a.org`)"]);
    let expected = [("/a/b/*", Some(1)), ("/a/*", Some(2)), ("/*", Some(0)), ("/a/b/*", Some(1))];
    assert_eq!(routes, expected.map(|(path, target)| (path.to_owned(), target)));
}

#[test]
fn alternatives_that_differ_in_their_hosts_are_one_route() {
    let routes =
        routes_of(&["(Host(`a.org`) || Host(`b.org`) || HostRegexp(`^(c|d)\\.org$`)) && Path(`/x`)"]);
    assert_eq!(routes, [("/x".to_owned(), Some(0))]);
}

#[test]
fn a_prefix_and_the_same_expression_are_one_route() {
    let routes = routes_of(&["(PathRegexp(`^/ab`) || PathPrefix(`/ab`)) && Host(`a.org`)"]);
    assert_eq!(routes, [("~^/ab".to_owned(), Some(0))]);
}

#[test]
fn the_syntax_of_traefik_2_is_read() {
    for (rule, path) in [
        ("Path(`/users/{id:[0-9]{1,3}}`)", "~^/users/(?:[0-9]{1,3})$"),
        ("PathPrefix(`/users/{id}`)", "~^/users/(?:[^/]+)"),
        ("Host(`a`, `b`) && Method(`GET`, `POST`) && Query(`a=b`)", "/*"),
        ("HostRegexp(`{any:.+}`)", "/*"),
    ] {
        assert_eq!(routes_of(&[rule]), [(path.to_owned(), Some(0))], "{rule}");
    }
    assert!(!Rule::parse("HeaderRegexp(`a`, `b.*`)").unwrap().alternatives().lost.is_empty());
    assert!(!Rule::parse("!ClientIP(`10.0.0.0/8`)").unwrap().alternatives().lost.is_empty());
    assert!(!Rule::parse("HostRegexp(`^[a-z]+\\.a\\.org$`)").unwrap().alternatives().wider.is_empty());
}

#[test]
fn durations_are_gos() {
    let read = ["10", "1m30s", "500ms", "1.5s", "1h", "x", "10d"].map(super::milliseconds);
    assert_eq!(read, [Some(10_000), Some(90_000), Some(500), Some(1_500), Some(3_600_000), None, None]);
}

#[test]
fn what_admits_requests_is_not_lost() {
    let converted = |rule: &str, service: &str, middlewares: &str| {
        let text = format!(
            "http:
  routers: {{ r: {{ rule: '{rule}', service: {service}, middlewares: [a, b] }} }}
  middlewares: {{ {middlewares} }}
  services: {{ s: {{ loadBalancer: {{ servers: [{{ url: 'http://10.0.0.5' }}] }} }} }}
"
        );
        super::convert(&text, std::path::Path::new("t.yml")).unwrap().finish("test").yaml
    };
    let lists = "a: { ipAllowList: { sourceRange: [10.0.0.0/8] } }, b: { ipAllowList: { sourceRange: [10.1.0.0/16, \
                 192.168.0.0/16] } }";
    let yaml = converted("Path(`/a`)", "s", lists);
    assert!(
        yaml.contains("10.1.0.0/16") && !yaml.contains("10.0.0.0/8") && !yaml.contains("192.168"),
        "{yaml}"
    );
    let yaml = converted("Path(`/a`) && ClientIP(`10.1.2.0/24`)", "s", lists);
    assert!(yaml.contains("10.1.2.0/24") && !yaml.contains("10.1.0.0/16"), "{yaml}");
    let yaml = converted("Path(`/a`) && ClientIP(`172.16.0.0/12`)", "s", lists);
    assert!(yaml.contains("127.0.0.1") && !yaml.contains("172.16"), "{yaml}");
    for (plugins, closed) in [
        ("a: { plugin: { my-oidc: {} } }, b: { compress: {} }", true),
        ("a: { compress: {} }, b: { plugin: { rewrite: {} } }", false),
    ] {
        assert_eq!(converted("Path(`/a`)", "s", plugins).contains("127.0.0.1"), closed, "{plugins}");
    }
    let yaml = converted("Path(`/a`)", "api@internal", "a: { compress: {} }, b: { compress: {} }");
    assert!(yaml.contains("status: 501") && yaml.contains("path: /a"), "{yaml}");
}
