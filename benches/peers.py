#!/usr/bin/env python3
"""The table of the README: Tollgate beside nginx, HAProxy, and nginx with Lua and Redis, on the same work.

    peers.py                                  every workload; says what differs from the README
    peers.py --write                          the same, and writes the table into the README
    peers.py --only plain --rounds 1          one workload, once
    peers.py --binary PATH                    another build than target/dist/tollgate

Each contestant has one worker, which is pinned to the first core, in front of the same nginx. That, Redis, and wrk with 64 connections (or
h2load) have the second. Measured is the CPU time of the contestant and of Redis by the kernel's accounting, a request; contestants take
turns, and the median of all rounds counts. Tollgate's configurations are benches/peers/WORKLOAD.yaml.

Debian packages used: nginx-light libnginx-mod-http-lua lua-nginx-redis haproxy wrk nghttp2-client redis-server openssl
"""
import argparse, contextlib, json, os, pathlib, re, socket, statistics, subprocess, sys, tempfile, time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "benches/peers"
README = ROOT / "README.md"
LISTENER, ORIGIN, REDIS = 28080, 28081, 28079  # the ports in the configurations
NGINX, HAPROXY, LUA = "nginx", "HAProxy", "nginx + Lua + Redis"
TOLERANCE = 0.03  # the most by which a ratio may differ from the README
BEGIN, END = "<!-- benches/peers.py writes this table -->\n", "<!-- end of the table -->\n"


class Workload(NamedTuple):
    what: str
    peers: list
    load: str = "same"  # of benches/peers/lua/load.lua, or h2load
    configuration: str = ""  # whose configuration it shares
    limit: tuple = ()  # of the script of nginx with Lua: its name, the limit, seconds


WORKLOADS = {
    "plain": Workload("forward, no limit", [NGINX, HAPROXY]),
    "plain-fields": Workload("the same, all adding the fields that Tollgate adds", [NGINX, HAPROXY], configuration="plain"),
    "local-allow": Workload("a limit per address, never reached", [NGINX, HAPROXY]),
    "deny-flood": Workload("a denied flood", [NGINX, HAPROXY]),
    "tls": Workload("forward over TLS 1.3, kept connections", [NGINX, HAPROXY]),
    "tls-new": Workload("a full TLS handshake for each request", [NGINX, HAPROXY], "close", "tls"),
    "h2": Workload("forward, HTTP/2 over TLS", [NGINX, HAPROXY], "h2load", "tls"),
    "shared-counter": Workload("in Redis: a counter for each of 10,000 API keys, never reached", [LUA], "keys", limit=("counter", 10**9, 60)),
    "shared-log": Workload("in Redis: an exact log for each of 10,000 API keys, rarely reached", [LUA], "keys", limit=("log", 100, 1)),
    "shared-deny-flood": Workload("in Redis: a denied flood from one address", [LUA], limit=("counter", 10, 60)),
}


def is_tls(name):
    return "tls" in (name, WORKLOADS[name].configuration)


def nginx_configuration(name, directory):
    modules = zone = limit = fields = ""
    listen = f"listen 127.0.0.1:{LISTENER} backlog=4096;"
    if is_tls(name):
        listen = (f"listen 127.0.0.1:{LISTENER} ssl {'http2' if name == 'h2' else ''} backlog=4096; ssl_protocols TLSv1.2 TLSv1.3;"
                  f" ssl_certificate {directory}/cert.pem; ssl_certificate_key {directory}/key.pem;")
    if name == "plain-fields":
        fields = """proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host; proxy_set_header Via "1.1 nginx";
            proxy_set_header X-Request-Id $request_id; add_header Via "1.1 nginx"; add_header X-Request-Id $request_id;"""
    if name == "local-allow":
        zone, limit = "limit_req_zone $binary_remote_addr zone=a:10m rate=1000000r/s;", "limit_req zone=a burst=1000000 nodelay;"
    if name == "deny-flood":
        zone, limit = "limit_req_zone $binary_remote_addr zone=a:10m rate=10r/m;", "limit_req zone=a burst=10 nodelay; limit_req_status 429;"
    if WORKLOADS[name].limit:
        modules = "".join(f"load_module /usr/lib/nginx/modules/{module}.so;" for module in ("ndk_http_module", "ngx_http_lua_module"))
        zone = f"lua_package_path '{PEERS}/lua/?.lua;/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua;;';"
        script, units, window = WORKLOADS[name].limit
        limit = f"access_by_lua_block {{ require('limit').{script}(ngx.var.http_x_api_key or ngx.var.remote_addr, {units}, {window}) }}"
    return f"""{modules} {nginx_global(directory, "proxy")}
        upstream origin {{ server 127.0.0.1:{ORIGIN}; keepalive 128; keepalive_requests 1000000000; }}
        {zone}
        server {{ {listen} location / {{ {limit} {fields}
            proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }} }}"""


def nginx_global(directory, name):
    temporary = " ".join(f"{kind}_temp_path {directory}/{name}-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""worker_processes 1; daemon off; pid {directory}/{name}.pid; error_log {directory}/{name}.log error;
        events {{ worker_connections 4096; }} http {{ access_log off; keepalive_requests 1000000000; {temporary}"""


def haproxy_configuration(name, directory):
    rules = []
    bind = f"ssl crt {directory}/both.pem alpn {'h2,' if name == 'h2' else ''}http/1.1" if is_tls(name) else ""
    if name == "plain-fields":
        rules = ["unique-id-format %{+X}o\\ %ci%cp%ts%rt%pid", "http-request set-header X-Forwarded-Proto http",
                 "http-request set-header X-Forwarded-Host %[req.hdr(host)]"]
        for message in ("request", "response"):
            rules += [f'http-{message} set-header Via "1.1 haproxy"', f"http-{message} set-header X-Request-Id %[unique-id]"]
    if name in ("local-allow", "deny-flood"):
        window, limit = {"local-allow": ("1s", 100_000_000), "deny-flood": ("60s", 10)}[name]
        rules = [f"stick-table type ip size 100k expire {window} store http_req_rate({window})", "http-request track-sc0 src",
                 f"http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit} }}"]
    return "\n".join(["global", "  nbthread 1", "  maxconn 4096", "defaults", "  mode http", "  timeout connect 5s", "  timeout client 30s",
                      "  timeout server 30s", "  http-reuse always", "  option forwardfor", "frontend f",
                      f"  bind 127.0.0.1:{LISTENER} backlog 4096 {bind}", *("  " + rule for rule in rules), "  default_backend b", "backend b",
                      f"  server s 127.0.0.1:{ORIGIN} pool-max-conn 128", ""])


@contextlib.contextmanager
def running(args, core, port):
    """A process on this core that listens at this port."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"port {port} is taken: what listens there would be measured instead")
    process = subprocess.Popen(["taskset", "-c", core, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        else:
            sys.exit(f"does not listen at port {port}: {' '.join(args)}")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def cpu(pid):
    """Microseconds of CPU time of a process and its children."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    threads = [thread for process in [str(pid), *children] for thread in pathlib.Path("/proc", process, "task").glob("*/schedstat")]
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e3


def load(name, seconds):
    """Requests, and the 99th percentile of their time in ms."""
    url = f"{'https' if is_tls(name) else 'http'}://127.0.0.1:{LISTENER}/"
    if WORKLOADS[name].load == "h2load":
        command = ["h2load", "-t1", "-c8", "-m16", f"-D{seconds}", "--log-file=/dev/stdout", url]
        out = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True).stdout
        # Of each request: when it began, its status, its time in microseconds.
        lines = [line.split("\t") for line in out.splitlines() if re.fullmatch(r"\d+\t-?\d+\t\d+", line)]
        if not lines or any(status != "200" for _, status, _ in lines):
            sys.exit(f"{name}: not all requests were answered\n{out[-2000:]}")
        times = sorted(int(micros) for _, _, micros in lines)
        return len(times), times[len(times) * 99 // 100] / 1e3
    command = ["wrk", "-t1", "-c64", f"-d{seconds}s", "--latency", "-s", PEERS / "lua/load.lua", url, "--", WORKLOADS[name].load]
    out = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True).stdout
    result = re.search(r"^RESULT (.*)$", out, re.M)
    result = json.loads(result[1]) if result else sys.exit(f"{name}: wrk gave no result\n{out}")
    if result["errors"] or ("deny" in name) != (result["denied"] > 0.9 * result["requests"]):
        sys.exit(f"{name}: this is other work: {result}")
    return result["requests"], result["p99"]


class Figures(NamedTuple):
    proxy: float  # microseconds of CPU a request
    redis: float
    p99: float  # milliseconds

    @property
    def cpu(self):
        return self.proxy + self.redis


def measure(contestant, name, binary, seconds, directory):
    file = pathlib.Path(directory, "configuration")
    if contestant == "Tollgate":
        args = [binary, "run", "--config", PEERS / f"{WORKLOADS[name].configuration or name}.yaml"]
    elif contestant == HAPROXY:
        file.write_text(haproxy_configuration(name, directory))
        args = ["haproxy", "-db", "-f", file]
    else:
        file.write_text(nginx_configuration(name, directory))
        args = ["nginx", "-c", file]
    origin = pathlib.Path(directory, "origin.conf")
    origin.write_text(f"{nginx_global(directory, 'origin')} server {{ listen 127.0.0.1:{ORIGIN} backlog=4096; location / {{ return 200 '{'x' * 1024}'; }} }} }}")
    redis = ["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(redis, "1", REDIS) as redis, running(["nginx", "-c", str(origin)], "1", ORIGIN), running(map(str, args), "0", LISTENER) as proxy:
        load(name, 2)
        before = cpu(proxy), cpu(redis)
        requests, p99 = load(name, seconds)
        return Figures((cpu(proxy) - before[0]) / requests, (cpu(redis) - before[1]) / requests, p99)


def show(name, rounds):
    figures = Figures(*(statistics.median(values) for values in zip(*rounds)))
    return f"{figures.proxy:.1f} + {figures.redis:.1f}" if WORKLOADS[name].limit else f"{figures.proxy:.1f}"


def row(name, rounds):
    """A line of the table. A ratio is the median of the ratios of all rounds: a slower machine slows both."""
    def ratio(peer):
        return f"{statistics.median(ours.cpu / theirs.cpu for ours, theirs in zip(rounds['Tollgate'], rounds[peer])):.2f}"

    nginx = WORKLOADS[name].peers[0]
    haproxy = [show(name, rounds[HAPROXY]), ratio(nginx), ratio(HAPROXY)] if HAPROXY in rounds else ["", ratio(nginx), ""]
    p99 = " / ".join(f"{statistics.median(figures.p99 for figures in all_rounds):.1f}" for all_rounds in rounds.values())
    return [WORKLOADS[name].what, show(name, rounds["Tollgate"]), show(name, rounds[nginx]), *haproxy, p99]


def version(program):
    out = subprocess.run([program, "-v"], capture_output=True, text=True)
    return re.search(r"(\d+\.\d+)", out.stdout + out.stderr)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/dist/tollgate", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--write", action="store_true", help="writes the table into the README")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if not options.binary.exists():
        sys.exit(f"{options.binary} is missing: run scripts/release, or name another one with --binary")
    if options.write and options.only:
        sys.exit("--write needs all workloads")
    if options.write and BEGIN not in README.read_text():
        sys.exit(f"README.md has no place for the table: write {BEGIN.strip()} and {END.strip()} where it belongs")

    nginx, haproxy = version("nginx"), version("haproxy")
    head = ["workload", "Tollgate", f"nginx {nginx}", f"HAProxy {haproxy}", "÷ nginx", "÷ HAProxy", "p99 (ms)"]
    table = [head, ["---"] * len(head)]
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        os.environ["PEERS_CERTS"] = directory
        key, cert = f"{directory}/key.pem", f"{directory}/cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
        pathlib.Path(directory, "both.pem").write_text(pathlib.Path(cert).read_text() + pathlib.Path(key).read_text())
        for name in options.only or WORKLOADS:
            rounds = {contestant: [] for contestant in ["Tollgate", *WORKLOADS[name].peers]}
            for _ in range(options.rounds):
                for contestant, figures in rounds.items():
                    figures.append(measure(contestant, name, options.binary, options.seconds, directory))
            table.append(row(name, rounds))
            print(f"| {' | '.join(table[-1])} |", flush=True)

    readme = README.read_text()
    written = readme.partition(BEGIN)[2].partition(END)[0]
    ratios = {cells[0]: cells[4] for line in written.splitlines() if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == len(head)}
    for line in table[2:]:
        says = ratios.get(line[0])
        if says is None or abs(float(line[4]) / float(says) - 1) > TOLERANCE:
            print(f"README.md says {says or 'nothing'} ÷ nginx of: {line[0]}; now {line[4]}")
    if options.write:
        text = "".join(f"| {' | '.join(line)} |\n" for line in table)
        README.write_text(readme.replace(BEGIN + written + END, BEGIN + text + END))


main()
