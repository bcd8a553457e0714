//! Small cases that the comparison with Traefik has found.

use std::path::Path;

/// Converts this file. Services `one` and `two` exist.
fn converted(text: &str) -> String {
    let services = "  services:\n    one: { loadBalancer: { servers: [{ url: 'http://10.0.0.1' }] } }\n    two: { loadBalancer: { \
                    servers: [{ url: 'http://10.0.0.2' }] } }\n";
    let draft = super::convert(&format!("{text}{services}"), Path::new("t.yml")).unwrap();
    draft.finish("", None).yaml
}

/// The routes of these routers and middlewares on one entry point, without comments and the settings that all have.
fn routes(routers: &str, middlewares: &str) -> String {
    let yaml = converted(&format!("http:\n  routers:\n{routers}  middlewares:\n{middlewares}"));
    let address = r#"request_headers: { set: { x-real-ip: "{client_address}" } }"#;
    let routes = yaml.split("routes:\n").nth(1).unwrap().replace(&format!(", {address}"), "");
    let lines = routes.lines().map(str::trim).filter(|line| !line.starts_with('#') && *line != address);
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_proxy_may_say_that_a_request_came_without_tls() {
    let redirected = |trusted: &str| {
        converted(&format!(
            "entryPoints: {{ web: {{ address: ':443', http: {{ tls: {{}} }}{trusted} }} }}\nhttp:\n  middlewares: {{ s: {{ \
             redirectScheme: {{ scheme: https }} }} }}\n  routers: {{ r: {{ rule: 'PathPrefix(`/`)', middlewares: [s], \
             service: one }} }}\n"
        ))
    };
    assert!(redirected("").contains("upstream: one"));
    let closed = redirected(", forwardedHeaders: { trustedIPs: [10.0.0.0/8] }");
    assert!(closed.contains("reply: { status: 501 }") && !closed.contains("upstream: one"), "{closed}");
}

#[test]
fn nothing_of_a_router_without_its_middleware_or_service_is_done() {
    let middlewares = "    s: { redirectScheme: { scheme: https } }\n";
    for router in ["middlewares: [s, absent], service: one", "middlewares: [s], service: absent"] {
        let found = routes(&format!("    r: {{ rule: 'Host(`a.org`)', {router} }}\n"), middlewares);
        assert!(found.contains("status: 501") && !found.contains("redirect"), "{found}");
    }
}

#[test]
fn a_middleware_that_closes_some_requests_leaves_the_others() {
    let found = routes(
        "    r: { rule: 'Host(`a.org`)', middlewares: [cors], service: one }\n",
        "    cors: { headers: { accessControlAllowOriginListRegex: ['^https://.*$'] } }\n",
    );
    assert!(found.contains("methods: [OPTIONS], reply: { status: 501 }"), "{found}");
    assert!(found.contains("upstream: one"), "{found}");
}

#[test]
fn cors_answers_no_preflight_that_the_router_does_not_get() {
    let cors = "    cors: { headers: { accessControlAllowOriginList: ['https://a.org'] } }\n";
    let of = |rule: &str| {
        routes(&format!("    r: {{ rule: '{rule}', middlewares: [cors], service: one }}\n"), cors)
    };
    assert!(of("Host(`a.org`)").contains("cors: { origins: [https://a.org] }"));
    let found = of("Host(`a.org`) && Method(`POST`)");
    assert!(found.contains("upstream: one") && !found.contains("cors"), "{found}");
    let found = of("Host(`a.org`) && Method(`OPTIONS`)");
    assert!(found.contains("status: 501") && !found.contains("upstream"), "{found}");
}

#[test]
fn a_redirection_to_another_port_is_closed() {
    let web = "entryPoints: { web: { address: ':80', http: { redirections: { entryPoint: { to: ':8080', scheme: http } } } } }";
    let found = converted(&format!("{web}\nhttp:\n"));
    assert!(found.contains("status: 501") && !found.contains("status: 404"), "{found}");
}

#[test]
fn changes_of_the_path_follow_each_other() {
    let middlewares = "    strip: { stripPrefix: { prefixes: [/x] } }\n    add: { addPrefix: { prefix: /base } }\n    \
                       slash: { addPrefix: { prefix: /base/ } }\n    \
                       all: { replacePathRegex: { regex: '^/(.*)', replacement: '/pre/$1' } }\n    \
                       replace: { replacePathRegex: { regex: '^/app/(.*)', replacement: '/new/$1' } }\n";
    let of = |names: &str| {
        let router = format!("    r: {{ rule: 'Host(`a.org`)', middlewares: [{names}], service: one }}\n");
        routes(&router, middlewares)
    };
    let found = of("strip, add");
    assert!(found.contains("path: /x\nupstream: one\nrewrite: { path: /base }"), "{found}");
    assert!(found.contains("rewrite: { path: \"/base/{rest}\" }"), "{found}");
    assert!(of("replace, add").contains("rewrite: { path: \"/base/new/{rest}\" }"));
    // Traefik refuses two slashes.
    assert!(of("slash, all").contains("status: 501"));
}

#[test]
fn other_options_of_tls_close_their_hosts() {
    let options = "tls: { options: { strict: { clientAuth: { caFiles: [ca.pem] } } } }\n";
    let of = |rule: &str| {
        let routers = format!(
            "    a: {{ rule: '{rule}', service: one, tls: {{ options: strict }} }}\n    b: {{ rule: 'Host(`b.org`)', service: \
             two, tls: {{}} }}\n"
        );
        converted(&format!("{options}http:\n  routers:\n{routers}"))
    };
    let found = of("Host(`a.org`)");
    assert!(found.contains("hosts: [a.org], path: /*, reply: { status: 501 }"), "{found}");
    assert!(found.contains("upstream: two") && !found.contains("client_ca"), "{found}");
}

#[test]
fn paths_that_traefik_itself_answers_are_closed_and_noted() {
    let found = converted(
        "entryPoints: { web: { address: ':80' } }\nping: { entryPoint: web }\nhttp:\n  routers: { r: { rule: \
         'Host(`a.org`)', service: one } }\n",
    );
    assert!(
        found.contains("`ping`") && found.contains("{ path: \"~^/ping\", reply: { status: 501 } }"),
        "{found}"
    );
    let found = converted(
        "entryPoints: { web: { address: ':80' } }\ntcp: { routers: { t: { rule: 'HostSNI(`*`)', entryPoints: [web] } } \
         }\nhttp:\n  routers: { r: { rule: 'Host(`a.org`)', service: one } }\n",
    );
    assert!(!found.contains("upstream: one"), "{found}");
}

#[test]
fn a_redirect_by_its_url_is_one_of_the_host_and_the_path() {
    let redirect = |regex: &str, to: &str| {
        routes(
            "    r: { rule: 'PathPrefix(`/`)', middlewares: [m], service: one }\n",
            &format!("    m: {{ redirectRegex: {{ regex: '{regex}', replacement: '{to}' }} }}\n"),
        )
    };
    let found = redirect("^https?://a.org/(.*)", "https://b.org/${1}");
    assert!(found.contains("redirect: { scheme: https, host: b.org, status: 307 }"), "{found}");
    let found = redirect("^https?://[^/]+/old/(.*)$", "https://b.org/new/$1");
    assert!(found.contains("path: \"~^/old/(?P<rest>.*)$\""), "{found}");
    assert!(
        found.contains("redirect: { scheme: https, host: b.org, path: \"/new/{rest}\", status: 307 }"),
        "{found}"
    );
    // The rest is not closed.
    assert!(redirect("^https?://([^/:]+)(:[0-9]+)?/app$", "https://$1/x").contains("upstream: one"));
}
