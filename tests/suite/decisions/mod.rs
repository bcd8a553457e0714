//! Decisions for other proxies: the real ones ask, as the recipes in `docs/fronts/` set them up.

mod calls;
mod fronts;
mod questions;
mod trace;

use std::{
    env, fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    guide::{Page, replace},
    harness::{
        Client, Config, Origin, Running, Tollgate, eventually, file_name, free_port, new_caddy, nginx, nobody,
    },
};

/// The proxy that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    Nginx,
    IngressNginx,
    Traefik,
    Caddy,
    /// Envoy's `ext_authz` by gRPC.
    ExtAuthz,
    /// Envoy's `ext_authz` by HTTP.
    Envoy,
    /// Envoy's rate limits.
    RateLimits,
}

impl Front {
    fn page(self) -> Page {
        Page::open(match self {
            Self::Nginx => "fronts/decisions-nginx.md",
            Self::IngressNginx => "fronts/decisions-ingress-nginx.md",
            Self::Traefik => "fronts/decisions-traefik.md",
            Self::Caddy => "fronts/decisions-caddy.md",
            Self::ExtAuthz | Self::Envoy | Self::RateLimits => "fronts/decisions-envoy.md",
        })
    }

    /// The listener of Tollgate in the recipe.
    fn listener(self) -> &'static str {
        match self {
            Self::Nginx => "[{ address: 10.0.0.3:8081, serves: decisions, front: nginx }]",
            Self::IngressNginx => "[{ address: 0.0.0.0:8081, serves: decisions, front: ingress-nginx }]",
            Self::Traefik => "[{ address: 10.0.0.3:8081, serves: decisions, front: traefik }]",
            Self::Caddy => "[{ address: 10.0.0.3:8081, serves: decisions, front: caddy }]",
            Self::ExtAuthz | Self::RateLimits => "[{ address: 10.0.0.3:8081, serves: decisions }]",
            Self::Envoy => {
                "[{ address: 10.0.0.3:8081, serves: decisions, front: envoy, path_prefix: /decide }]"
            }
        }
    }

    /// The configuration of Tollgate in the recipe, on a free port, for a front at 127.0.0.1.
    fn yaml(self) -> String {
        let mark = match self {
            Self::RateLimits => "domain: edge",
            Self::ExtAuthz => {
                "serves: decisions }]\ntrusted_proxies: [10.0.0.2]\n\npolicies:\n  per-address: { algorithm: sliding_window"
            }
            _ => self.listener(),
        };
        let yaml = self.page().block("yaml", mark);
        let (listens, trusted) = match self {
            Self::IngressNginx => ("0.0.0.0:8081", "10.244.0.0/16"),
            _ => ("10.0.0.3:8081", "10.0.0.2"),
        };
        replace(&yaml, &[(listens, "\"127.0.0.1:0\""), (trusted, "127.0.0.1")])
    }

    /// Whether the program is there.
    fn is_installed(self) -> bool {
        let variable = match self {
            Self::Nginx | Self::IngressNginx | Self::Caddy => return true,
            Self::Traefik => "TRAEFIK",
            Self::ExtAuthz | Self::Envoy | Self::RateLimits => "ENVOY",
        };
        let is_there = env::var_os(variable).is_some();
        if !is_there {
            eprintln!("left out: `scripts/test` installs {self:?}, and says where in {variable}");
        }
        is_there
    }

    /// Starts it before `api`, with questions for `tollgate`. `is_open`: requests pass while Tollgate is away.
    fn start(
        self,
        directory: &Path,
        tollgate: SocketAddr,
        api: SocketAddr,
        is_open: bool,
    ) -> (Running, SocketAddr) {
        let page = self.page();
        let (api_at, asked_at) = (api.to_string(), tollgate.to_string());
        let address = nobody();
        match self {
            Self::Nginx => {
                let mut block = page.block("nginx", "listen 80;");
                if is_open {
                    let open = page.block("nginx", "X-User-Id       \"\";");
                    let closed = "    location @undecided {\n        internal;\n        if ($tollgate_code ~ \"4\\d\\d$\") { return 400; }     # the request is none that Tollgate could read\n        return 503;\n    }\n";
                    block = replace(&block, &[(closed, &open)]);
                }
                let listen = format!("listen {address};");
                let changes =
                    [("listen 80;", &*listen), ("10.0.0.3:8081", &asked_at), ("10.0.0.5:3000", &api_at)];
                let (running, _) = nginx(directory, &replace(&block, &changes), "");
                (running, address)
            }
            Self::IngressNginx => {
                // As the controller's template writes it for these annotations.
                let server = format!(
                    "location / {{
                        auth_request /_external-auth;
                        auth_request_set $tollgate_status $upstream_http_x_tollgate_status;
                        auth_request_set $retry_after     $upstream_http_retry_after;
                        error_page 403 = @tollgate_refused;
                        proxy_http_version 1.1;
                        proxy_set_header Host $http_host;
                        proxy_pass http://{api_at};
                    }}
                    location = /_external-auth {{
                        internal;
                        proxy_pass_request_body off;
                        proxy_set_header Content-Length \"\";
                        proxy_set_header X-Forwarded-Proto \"\";
                        proxy_set_header X-Request-ID $request_id;
                        proxy_set_header Host {tollgate};
                        proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
                        proxy_set_header X-Original-Method $request_method;
                        proxy_set_header X-Sent-From \"nginx-ingress-controller\";
                        proxy_set_header X-Real-IP $remote_addr;
                        proxy_set_header X-Forwarded-For $remote_addr;
                        proxy_http_version 1.1;
                        proxy_set_header Connection \"\";
                        proxy_pass http://{asked_at};
                    }}
                    {}",
                    {
                        let annotations = page.block("yml", "server-snippet");
                        let snippet = annotations.split("server-snippet: |\n").nth(1).unwrap();
                        snippet.to_owned()
                    }
                );
                let (running, address) = nginx(directory, "", &server);
                (running, address)
            }
            Self::Traefik => {
                let block = page.block("yml", "forwardAuth");
                let dynamic = replace(&block, &[("10.0.0.3:8081", &asked_at), ("10.0.0.5:3000", &api_at)]);
                let fixed = format!(
                    "entryPoints:\n  web: {{ address: \"{address}\" }}\nproviders: {{ file: {{ filename: dynamic.yml }} }}\n"
                );
                (traefik(directory, &fixed, &dynamic), address)
            }
            Self::Caddy => {
                let mark =
                    if is_open { "vars decided yes" } else { "\tforward_auth 10.0.0.3:8081 {\n\t\turi" };
                let block = page.block("caddyfile", mark);
                let changes = [
                    ("http://api.example.com {", "http:// {"),
                    ("10.0.0.3:8081", &*asked_at),
                    ("10.0.0.5:3000", &api_at),
                ];
                (new_caddy(directory, &replace(&block, &changes), "http", address), address)
            }
            Self::ExtAuthz | Self::Envoy | Self::RateLimits => {
                let mark = if self == Self::RateLimits { "port_value: 81 }" } else { "port_value: 80 }" };
                let mut block = page.block("yml", mark);
                if self == Self::Envoy {
                    let http = page.block("yml", "http_service:");
                    let grpc = "                      encode_raw_headers: true
                      grpc_service:
                        envoy_grpc: { cluster_name: tollgate }
                        timeout: 0.1s                    # Tollgate may wait 50 ms for Redis\n";
                    let protocol = block.split("      typed_extension_protocol_options:").nth(1).unwrap();
                    let protocol = protocol.split("      load_assignment").next().unwrap().to_owned();
                    let protocol = format!("      typed_extension_protocol_options:{protocol}");
                    block = replace(&block, &[(grpc, &http), (&protocol, "")]);
                }
                if is_open {
                    let closed = if self == Self::RateLimits {
                        "failure_mode_deny: false"
                    } else {
                        "failure_mode_allow: false"
                    };
                    let open = if self == Self::RateLimits { closed } else { "failure_mode_allow: true" };
                    block = replace(&block, &[(closed, open)]);
                } else if self == Self::RateLimits {
                    block = replace(&block, &[("failure_mode_deny: false", "failure_mode_deny: true")]);
                }
                let at = |address: SocketAddr| {
                    format!("address: {}, port_value: {}", address.ip(), address.port())
                };
                let listens = if self == Self::RateLimits { "port_value: 81" } else { "port_value: 80" };
                let mut changes = vec![
                    (format!("address: 0.0.0.0, {listens}"), at(address)),
                    ("address: 10.0.0.3, port_value: 8081".to_owned(), at(tollgate)),
                    ("address: 10.0.0.5, port_value: 3000".to_owned(), at(api)),
                    // A debug build of Tollgate on a busy machine takes its time.
                    ("timeout: 0.1s".to_owned(), "timeout: 5s".to_owned()),
                ];
                if self == Self::Envoy {
                    changes.push(("http://10.0.0.3:8081".to_owned(), format!("http://{tollgate}")));
                    // What the policies of the tests count by.
                    let named = "{ exact: cookie }";
                    let more = format!(
                        "{named}, {{ exact: x-api-key }}, {{ exact: x-version }}, {{ exact: x-key }}"
                    );
                    changes.push((named.to_owned(), more));
                }
                let changes: Vec<(&str, &str)> =
                    changes.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
                (envoy(directory, &replace(&block, &changes), address), address)
            }
        }
    }
}

/// Envoy with this configuration, one of whose listeners is at `address`.
fn envoy(directory: &Path, yaml: &str, address: SocketAddr) -> Running {
    let (file, said) = (directory.join("envoy.yaml"), directory.join("envoy.log"));
    fs::write(&file, yaml).unwrap();
    let mut command = Command::new(env::var_os("ENVOY").unwrap());
    command.args(["-c", file_name(&file), "--concurrency", "1", "--use-dynamic-base-id"]);
    let log = fs::File::create(&said).unwrap();
    let mut running = Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    eventually("Envoy listens", || {
        assert!(running.0.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&said).unwrap());
        TcpStream::connect(address).is_ok()
    });
    running
}

/// Traefik with these configurations: the static one, and `dynamic.yml`, which has a router `api`.
fn traefik(directory: &Path, fixed: &str, dynamic: &str) -> Running {
    let port = free_port();
    let entry_point = format!("entryPoints:\n  traefik: {{ address: \"127.0.0.1:{port}\" }}\n");
    let fixed = replace(fixed, &[("entryPoints:\n", &entry_point)]) + "api: { insecure: true }\n";
    fs::write(directory.join("dynamic.yml"), dynamic).unwrap();
    fs::write(directory.join("traefik.yml"), fixed).unwrap();
    let mut command = Command::new(env::var_os("TRAEFIK").unwrap());
    command.current_dir(directory).arg("--configFile=traefik.yml");
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // It listens before it has read the dynamic file.
    eventually("Traefik reads the recipe", || {
        let client = Client::try_connect(([127, 0, 0, 1], port).into());
        client.is_some_and(|mut client| {
            client.request("GET", "/api/rawdata", &[], b"").text().contains("api@file")
        })
    });
    running
}

/// An API behind a front that asks Tollgate.
struct Asking {
    tollgate: Tollgate,
    origin: Origin,
    /// Of the front.
    address: SocketAddr,
    _running: Running,
    _directory: TempDir,
}

impl Asking {
    /// `None`: the front is not installed.
    fn start(front: Front, yaml: &str, is_open: bool) -> Option<Self> {
        if !front.is_installed() {
            return None;
        }
        let (origin, directory) = (Origin::echo(), TempDir::new().unwrap());
        let tollgate = Tollgate::start(Config::yaml(yaml));
        let (running, address) = front.start(directory.path(), tollgate.address, origin.address, is_open);
        Some(Self { tollgate, origin, address, _running: running, _directory: directory })
    }
}
