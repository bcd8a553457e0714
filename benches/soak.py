#!/usr/bin/env python3
"""Whether anything grows in a day of churn. A day of windows passes in 24 minutes: a minute is a second here, an hour a minute.

    soak.py target/release/tollgate                   24 minutes, and two more for what is left
    soak.py target/release/tollgate --minutes 6
    soak.py target/release/tollgate --write           draws docs/pictures/soak.svg

Two instances share one Redis. Each second, 400 requests come with ever new keys, from addresses that change, under policies of every
algorithm, with slots of `concurrency` and costs that are reserved and then told by the response. Some clients
leave before the response. Every ten seconds, customers leave and new ones come with keys of other plans; every thirty, an instance is
reloaded, and every two minutes one of them, always the same, hands over to a new process (SIGUSR2).

Printed are the medians of the second quarter of the time and of the last. What has grown by more than a tenth and 2 MiB (or 8 of what is
counted) is marked, and the command ends with 1. After the load, no slot and no reservation may be left, and no key without expiry but one.

That one has when each API key was last used, at most as many as there may be keys.

Debian packages used: redis-server procps
"""
import argparse, asyncio, glob, hashlib, json, os, pathlib, random, re, signal, socket, statistics, subprocess, sys, tempfile, time, urllib.request

CONFIG = """
listeners: [{{ address: "127.0.0.1:{port}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
trusted_proxies: [127.0.0.1]
workers: 1
log: {{ level: warn }}
access_log: off
store: {{ redis: {{ url: "redis://127.0.0.1:{redis}" }} }}
abuse: {{ retain: 1m }}
api_keys: {{ file: {directory}/keys.yaml, required: false, headers: {{ customer: x-customer }} }}
plans:
  small: {{ tokens: 2000/1s, daily: 100000/24m }}
  large: {{ tokens: 20000/1s, daily: 10000000/24m }}
policies:
  tokens: {{ algorithm: sliding_window, key: customer, limit: 1000/1s, cost: {cost} }}
  daily: {{ algorithm: fixed_window, key: customer, limit: 50000/24m, cost: {cost} }}
  counter: {{ algorithm: single_counter, key: "header:x-key", limit: 5/1m }}
  fixed: {{ algorithm: fixed_window, key: "header:x-key", limit: 500/1m, slice: 4% }}
  window: {{ algorithm: sliding_window, key: "header:x-key", limit: 5/1m }}
  log: {{ algorithm: sliding_log, key: "header:x-key", limit: 5/1m }}
  approximate: {{ algorithm: sliding_counter, key: "header:x-key", limit: 5/1m }}
  bucket: {{ algorithm: gcra, key: "header:x-key", limit: 5/1m }}
  list: {{ algorithm: metadata_list, key: ip, limit: 20/1m }}
  slots: {{ algorithm: concurrency, key: ip, limit: 3, lease: 30s }}
  values: {{ algorithm: distinct, key: ip, value: "header:x-key", limit: 50/1m }}
upstreams:
  origin: {{ endpoints: ["http://127.0.0.1:{origin}"] }}
routes:
  - {{ path: /v1/*, require: api_key, policies: [tokens, daily], upstream: origin }}
{routes}
"""
COST = "{ response: { preset: openai }, reserve: { json: [max_tokens], default: 100 } }"
PATHS = ("counter", "fixed", "window", "log", "approximate", "bucket", "list", "slots", "values")
RATE, CLIENTS, CUSTOMERS, EVERY = 400, 40, 200, 5


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never came true: {what}")
        time.sleep(0.1)


class World:
    def __init__(self, tollgate):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
        self.origin, self.redis = free_port(), free_port()
        self.started = [subprocess.Popen(["redis-server", "--port", str(self.redis), "--save", "", "--appendonly", "no", "--loglevel", "warning"],
                                         stdout=subprocess.DEVNULL)]
        wait("Redis", lambda: self.cli("PING") == "PONG")
        self.made, self.customers = 0, []
        self.change_customers(CUSTOMERS)
        self.instances = []
        routes = "\n".join(f"  - {{ path: /{name}, policies: [{name}], upstream: origin }}" for name in PATHS)
        for nth in range(2):
            port, admin = free_port(), free_port()
            config = self.directory / f"proxy{nth}.yaml"
            config.write_text(CONFIG.format(port=port, admin=admin, directory=self.directory, redis=self.redis, origin=self.origin, cost=COST,
                                            routes=routes))
            log = open(self.directory / f"{nth}.log", "ab")
            self.started.append(subprocess.Popen([tollgate.resolve(), "run", "--config", config], stdout=log, stderr=log, start_new_session=True))
            self.instances.append((port, admin, nth))
        for instance in self.instances:
            wait("an instance serves", lambda: self.metrics(instance[1]))

    def cli(self, *arguments):
        return subprocess.run(["redis-cli", "-p", str(self.redis), *arguments], capture_output=True, text=True).stdout.strip()

    def metrics(self, admin):
        """The sum of each metric over its labels. {} if nobody answers, as between two processes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as response:
                lines = response.read().decode().splitlines()
        except OSError:
            return {}
        sums = {}
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", "\n".join(lines), re.MULTILINE):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def pid(self, nth):
        """The process that serves now, or is about to."""
        return int(subprocess.run(["pgrep", "-n", "-f", f"run --config {self.directory}/proxy{nth}.yaml"], capture_output=True, text=True).stdout)

    def change_customers(self, count):
        new = [f"customer-{self.made + nth}" for nth in range(count)]
        self.made += count
        self.customers = (self.customers + new)[-CUSTOMERS:]
        lines = ["keys:"]
        for name in self.customers:
            plan = random.choice(["small", "large"])
            digest = hashlib.sha256(f"{name}-and-its-secret".encode()).hexdigest()
            lines.append(f'  - {{ id: {name}, hash: "sha256:{digest}", customer: {name}, plan: {plan} }}')
        next_file = self.directory / "keys.next"
        next_file.write_text("\n".join(lines) + "\n")
        next_file.rename(self.directory / "keys.yaml")

    def sample(self):
        """What is held now, of both instances together. None while one hands over."""
        seen = {}
        for _, admin, nth in self.instances:
            metrics, pid = self.metrics(admin), self.pid(nth)
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                files = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                return None
            if not metrics:
                return None
            parts = {"memory of Tollgate, MiB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,
                     "file descriptors": files, "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
                     "slots in use": metrics.get("tollgate_leases", 0), "units reserved": metrics.get("tollgate_cost_units_open", 0),
                     "limits in memory": metrics.get("tollgate_memory_keys", 0),
                     "limits and evidence, MiB": metrics.get("tollgate_memory_held_bytes", 0) / 2**20,
                     "connections to the origin": metrics.get("tollgate_upstream_connections", 0)}
            seen = {name: seen.get(name, 0) + value for name, value in parts.items()}
        info = dict(re.findall(r"(\w+):(.*)", self.cli("INFO")))
        keyspace = dict(re.findall(r"(\w+)=(\d+)", info.get("db0", "")))
        seen["memory of Redis, MiB"] = int(info["used_memory"]) / 2**20
        seen["keys in Redis"] = int(keyspace.get("keys", 0))
        seen["keys without expiry"] = int(keyspace.get("keys", 0)) - int(keyspace.get("expires", 0))
        return seen

    def end(self):
        for nth in range(2):
            os.killpg(self.started[1 + nth].pid, signal.SIGKILL)
        self.started[0].kill()


async def origin(reader, writer):
    """Answers each request, a little later, with the tokens that it has used."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            await asyncio.sleep(random.uniform(0, 0.04))
            body = json.dumps({"usage": {"prompt_tokens": 10, "completion_tokens": random.randrange(90), "total_tokens": 100}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


async def client(world, number, until, statuses):
    """Sends its share of the requests, on a connection that it makes anew now and then."""
    reader = writer = None
    begun, turn = time.monotonic() + number / RATE, 0
    while time.monotonic() < until:
        turn += 1
        await asyncio.sleep(max(0, begun + turn * CLIENTS / RATE - time.monotonic()))
        key, address = f"{number}-{turn // 8}", f"10.{random.randrange(4)}.{number}.{turn // 50 % 250}"
        fields = f"host: a\r\nx-forwarded-for: {address}\r\nx-key: {key}\r\n"
        if turn % 4 == 0:
            body = json.dumps({"max_tokens": random.randrange(20, 300)})
            request = (f"POST /v1/chat/completions HTTP/1.1\r\n{fields}x-api-key: {random.choice(world.customers)}-and-its-secret\r\n"
                       f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}")
        else:
            request = f"GET /{PATHS[turn // 8 % len(PATHS)]} HTTP/1.1\r\n{fields}\r\n"
        try:
            if not writer:
                reader, writer = await asyncio.open_connection("127.0.0.1", world.instances[number % 2][0])
            writer.write(request.encode())
            if random.random() < 0.02:  # leaves
                writer.transport.abort()
                writer = None
                continue
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            status = int(head[9:12])
            statuses[status] = statuses.get(status, 0) + 1
            if b"connection: close" in head.lower() or random.random() < 0.01:
                writer.close()
                writer = None
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            statuses["no response"] = statuses.get("no response", 0) + 1
            writer = None


async def churn(world, until):
    """Customers, configurations and processes change."""
    turn = 0
    while time.monotonic() < until:
        await asyncio.sleep(10)
        turn += 1
        world.change_customers(10)
        nth = turn % 2
        if turn % 12 == 0:
            os.kill(world.pid(nth), signal.SIGUSR2)
        elif turn % 3 == 0:
            os.kill(world.pid(nth), signal.SIGHUP)


async def soak(world, minutes):
    server = await asyncio.start_server(origin, "127.0.0.1", world.origin)
    begun, statuses, samples = time.monotonic(), {}, []
    until = begun + 60 * minutes
    tasks = [asyncio.create_task(client(world, number, until, statuses)) for number in range(CLIENTS)] + [asyncio.create_task(churn(world, until))]
    while time.monotonic() < until:
        await asyncio.sleep(EVERY)
        if seen := await asyncio.to_thread(world.sample):
            samples.append((time.monotonic() - begun, seen))
    await asyncio.gather(*tasks)
    # All windows but the day's end within two minutes.
    for _ in range(24):
        await asyncio.sleep(EVERY)
        if last := await asyncio.to_thread(world.sample):
            samples.append((time.monotonic() - begun, last))
    server.close()
    return until - begun, statuses, samples, last


def draw(file, ends, samples):
    """Each as a share of its own highest."""
    names = ["memory of Tollgate, MiB", "memory of Redis, MiB", "keys in Redis", "file descriptors"]
    colors = ["#2e8b57", "#1d3557", "#e8a393", "#be1e2d"]
    width, height, left, top = 720, 300, 46, 16
    x = lambda seconds: left + (width - left - 16) * seconds / samples[-1][0]
    y = lambda share: top + (height - top - 70) * (1 - share)
    out = [f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for share in (0, 0.5, 1):
        out.append(f'<line x1="{left}" x2="{width - 16}" y1="{y(share):.0f}" y2="{y(share):.0f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(share) + 4:.0f}" text-anchor="end">{share:.0%}</text>')
    for minute in range(0, int(samples[-1][0] // 60) + 1, 4):
        out.append(f'<text x="{x(60 * minute):.0f}" y="{height - 52}" text-anchor="middle">{minute} min</text>')
    out.append(f'<line x1="{x(ends):.0f}" x2="{x(ends):.0f}" y1="{top}" y2="{height - 70}" stroke="#999" stroke-dasharray="4"/>')
    for nth, (name, color) in enumerate(zip(names, colors)):
        most = max(seen[name] for _, seen in samples)
        points = " ".join(f"{x(at):.1f},{y(seen[name] / most):.1f}" for at, seen in samples)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        at = left + nth % 2 * 330
        out.append(f'<text x="{at}" y="{height - 28 + nth // 2 * 18}" fill="{color}">{name}: 100% is {most:,.0f}</text>')
    file.write_text("\n".join([*out, "</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tollgate", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=24)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    world = World(arguments.tollgate)
    try:
        ends, statuses, samples, last = asyncio.run(soak(world, arguments.minutes))
        said = "".join(file.read_text() for file in sorted(world.directory.glob("*.log")))
    finally:
        world.end()
    under_load = [(at, seen) for at, seen in samples if at < ends]
    quarter = lambda nth: [seen for at, seen in under_load if nth * ends / 4 <= at < (nth + 1) * ends / 4]
    print(f"responses: {statuses}\n\n| | second quarter | last quarter | after the load |\n| --- | ---: | ---: | ---: |")
    grown = []
    for name in last:
        early, late = (statistics.median(seen[name] for seen in quarter(nth)) for nth in (1, 3))
        # A few more or less of what is counted one by one are no growth.
        is_grown = late > 1.1 * early + (2 if "MiB" in name else 8)
        grown += [name] * is_grown
        print(f"| {name} | {early:,.1f} | {late:,.1f} | {last[name]:,.1f} |{' grows' if is_grown else ''}")
    left = [name for name, most in (("slots in use", 0), ("units reserved", 0), ("keys without expiry", 1)) if last[name] > most]
    print(f"\nlogged: {len(said.splitlines())} lines\n{said[:2000]}")
    if arguments.write:
        draw(pathlib.Path(__file__).resolve().parent.parent / "docs/pictures/soak.svg", ends, samples)
    if grown or left:
        sys.exit(f"grown: {grown}; left: {left}")


main()
