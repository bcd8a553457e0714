#!/usr/bin/env python3
"""What a decision costs that another proxy asks for, beside an nginx that decides by Lua and Redis itself, and forwards.

    decisions.py                       CPU of Tollgate and Redis for a decision; the time of an answer at 1,000 a second; 10,000 a second
    decisions.py --binary PATH         another build than target/dist/tollgate

In all rows, a counter in Redis for each API key is never reached, as in *shared-counter* of peers.py. By HTTP, wrk asks as nginx does,
about 10,000 API keys over 64 connections; by gRPC, h2load asks about one key over 8 connections with 16 calls each. Tollgate and nginx have
the first core; Redis and the load, the second. The front's own work is not in it.

Debian packages used: nginx-light libnginx-mod-http-lua lua-nginx-redis wrk nghttp2-client redis-server
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile

from contestants import ADMIN, LISTENER, LOAD_CORE, LUA, PEERS, PROXY_CORE, REDIS, Work, command, cpu, need, origin, running

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXT_AUTHZ = "/envoy.service.auth.v3.Authorization/Check"
RATE_LIMITS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def field(number, value):
    """A field of a protobuf message: a text, or bytes."""
    value = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(value)]) + value


def framed(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


def messages():
    key = field(3, field(1, "x-api-key") + field(2, "key-1"))
    http = field(2, "GET") + key + field(4, "/") + field(5, "api.example.org")
    peer = field(1, field(1, field(2, "203.0.113.7")))
    descriptor = field(1, field(1, "header.x-api-key") + field(2, "key-1"))
    return {EXT_AUTHZ: framed(field(1, field(1, peer) + field(4, field(2, http)))), RATE_LIMITS: framed(field(1, "edge") + field(2, descriptor))}


def configuration(front):
    return "\n".join([
        f'listeners: [{{ address: "127.0.0.1:{LISTENER}", serves: decisions{front} }}]', "trusted_proxies: [127.0.0.1]", "workers: 1",
        "access_log: off", f'admin: {{ address: "127.0.0.1:{ADMIN}" }}', f"store: {{ redis: {{ url: redis://127.0.0.1:{REDIS} }} }}",
        'policies: { per-key: { algorithm: fixed_window, key: "header:x-api-key", limit: 1000000000/60s } }',
        "routes:", "  - { domain: edge, policies: [per-key] }" if not front else "", "  - { path: /*, policies: [per-key] }", ""])


def on_load_core(args):
    return subprocess.run(["taskset", "-c", LOAD_CORE, *map(str, args)], capture_output=True, text=True).stdout


def wrk(kind, seconds):
    out = on_load_core(["wrk", "-t1", "-c64", f"-d{seconds}s", "--latency", "-s", PEERS / "lua/load.lua", f"http://127.0.0.1:{LISTENER}/", "--", kind])
    result = json.loads(re.search(r"^RESULT (.*)$", out, re.M)[1])
    if result["errors"] or result["denied"]:
        sys.exit(f"not all were allowed: {result}")
    return result["requests"]


def h2load(args):
    """The times of all answers, in microseconds. All have to be 200."""
    out = on_load_core(["h2load", "-t1", "--log-file=/dev/stdout", *args])
    lines = [line.split("\t") for line in out.splitlines() if re.fullmatch(r"\d+\t-?\d+\t\d+", line)]
    if not lines or any(status != "200" for _, status, _ in lines):
        sys.exit(f"not all were answered\n{out[-2000:]}")
    return sorted(int(micros) for *_, micros in lines)


def calls(path, directory, seconds):
    data = pathlib.Path(directory, "message")
    data.write_bytes(messages()[path])
    headers = [part for header in ("content-type: application/grpc", "te: trailers") for part in ("-H", header)]
    return len(h2load(["-c8", "-m16", f"-D{seconds}", "-d", data, *headers, f"http://127.0.0.1:{LISTENER}{path}"]))


def measure(args, load):
    """Microseconds of CPU a request: of the contestant, and of Redis."""
    redis = ["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(redis, LOAD_CORE, REDIS) as redis, running(args, PROXY_CORE, LISTENER) as contestant:
        load(2)
        before = cpu(contestant), cpu(redis)
        requests = load(6)
        return (cpu(contestant) - before[0]) / requests, (cpu(redis) - before[1]) / requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/dist/tollgate", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    need(["nginx", "wrk", "h2load", "redis-server", "taskset", "pgrep"])
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)

        def tollgate(front):
            file = pathlib.Path(directory, "tollgate.yaml")
            file.write_text(configuration(front))
            return [str(options.binary), "run", "--config", str(file)]

        nginx = lambda: command(LUA, Work(script=("counter", 10**9, 60)), directory, None)
        rows = {
            "nginx + Lua + Redis, which forwards": (nginx, lambda seconds: wrk("keys", seconds)),
            "a decision by HTTP": (lambda: tollgate(", front: nginx"), lambda seconds: wrk("questions", seconds)),
            "a decision by ext_authz (gRPC)": (lambda: tollgate(""), lambda seconds: calls(EXT_AUTHZ, directory, seconds)),
            "a decision by the rate limit service (gRPC)": (lambda: tollgate(""), lambda seconds: calls(RATE_LIMITS, directory, seconds)),
        }
        figures = {name: [] for name in rows}
        with origin(directory):
            for _ in range(options.rounds):
                for name, (args, load) in rows.items():
                    figures[name].append(measure(args(), load))
        base = [sum(pair) for pair in figures["nginx + Lua + Redis, which forwards"]]
        print("| what | proxy + Redis, µs of CPU | ratio |\n| --- | --- | --- |")
        for name, rounds in figures.items():
            own, redis = (statistics.median(values) for values in zip(*rounds))
            ratio = statistics.median(sum(pair) / other for pair, other in zip(rounds, base))
            print(f"| {name} | {own:.1f} + {redis:.1f} | {ratio:.2f} |")

        redis = ["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with running(redis, LOAD_CORE, REDIS), running(tollgate(", front: nginx"), PROXY_CORE, LISTENER):
            ask = ["-H", "x-original-uri: /", "-H", "x-forwarded-for: 203.0.113.7", "-H", "x-api-key: key-1", f"http://127.0.0.1:{LISTENER}/"]
            times = h2load(["--h1", "-c10", "--rps=100", "-D10", *ask])
            print(f"at 1,000 a second: {len(times)} answers, p50 {times[len(times) // 2]} µs, p99 {times[len(times) * 99 // 100]} µs")
            times = h2load(["--h1", "-c64", "--rps=157", "-D10", *ask])
            print(f"at 10,000 a second over 64 connections: {len(times)} answers, all 200; p99 {times[len(times) * 99 // 100]} µs")


main()
