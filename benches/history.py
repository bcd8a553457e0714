#!/usr/bin/env python3
"""Whether usage equals what an origin has counted, to the unit, whatever happens meanwhile.

    history.py target/release/tollgate                                  2 million requests of 10,000 customers
    history.py target/release/tollgate --requests 10000000 --away 600   10 million, and PostgreSQL stopped for 10 minutes
    history.py target/release/tollgate --thread                         what the history's threads take of a core

Three instances share Redis (a primary, a replica and three Sentinels) and keep their history in one PostgreSQL. h2load sends them
requests with the keys of all customers. Meanwhile they are reloaded, replaced by new processes (SIGUSR2), and the primary of Redis is
killed twice; PostgreSQL is stopped for `--away` seconds. The origin is nginx, whose log has the customer of each request that has
arrived. Printed are the customers whose usage differs from it. A request that an instance has admitted, and the origin has not got,
because its client left, is counted by Tollgate alone; such a difference is at most what `unforwarded` says.

With `--thread`, one instance serves 5,000 customers in each second, each of them, under one policy; printed is the share of a core that each
thread of the history has taken.

Debian packages used: nginx-light redis-server postgresql nghttp2-client. To be run as root.
"""
import argparse, collections, glob, hashlib, json, os, pathlib, random, re, shutil, signal, socket, subprocess, tempfile, threading, time, urllib.request

CONFIG = """
listeners: [{{ address: 127.0.0.1:{port} }}]
admin: {{ address: 127.0.0.1:{admin} }}
workers: 1
log: {{ level: warn }}
access_log: off
api_keys: {{ from: [{{ query: key }}], file: {directory}/keys.yaml, headers: {{ customer: x-customer }} }}
{store}
history: {history}
policies: {{ monthly: {{ algorithm: fixed_window, key: customer, limit: 1000000000/month }} }}
upstreams: {{ api: {{ endpoints: ["http://127.0.0.1:{origin}"], policies: [monthly] }} }}
routes: [{{ path: /*, upstream: api }}]
"""

NGINX = """
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.err;
events {{ worker_connections 4096; }}
http {{
    log_format customer "$http_x_customer";
    access_log {directory}/customers.log customer buffer=1m flush=1s;
    keepalive_requests 1000000000;
    server {{ listen 127.0.0.1:{origin}; location / {{ return 200 "ok"; }} }}
}}
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_open(port):
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"never came true: {what}")
        time.sleep(0.1)


def get(admin, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}{path}", timeout=60) as response:
        return response.read().decode()


class World:
    """The servers, in a directory."""

    def __init__(self, tollgate, customers, redis=True, instances=3, file=False):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="history-"))
        self.directory.chmod(0o755)
        self.tollgate, self.customers = tollgate.resolve(), customers
        self.started = []
        self.origin, self.postgres_port = free_port(), free_port()
        self.names = names = [f"customer-{nth}" for nth in range(customers)]
        digest = lambda key: hashlib.sha256(key.encode()).hexdigest()
        (self.directory / "keys.yaml").write_text("keys:\n" + "".join(
            f'  - {{ id: {name}, hash: "sha256:{digest(name + "-secret-of-it")}", customer: {name} }}\n' for name in names))
        (self.directory / "nginx.conf").write_text(NGINX.format(directory=self.directory, origin=self.origin))
        self.run("nginx", "-c", self.directory / "nginx.conf", "-g", "daemon off;")
        self.start_postgres(first=True)
        store = self.start_redis() if redis else ""
        self.instances = []
        for nth in range(instances):
            port, admin = free_port(), free_port()
            config = self.directory / f"proxy{nth}.yaml"
            history = f"{{ store: {{ file: {self.directory}/history.db }} }}" if file else (
                f'{{ store: {{ postgres: "postgres://tollgate@127.0.0.1:{self.postgres_port}/tollgate" }}, '
                f"spool_directory: {self.directory}/spool{nth} }}")
            config.write_text(CONFIG.format(port=port, admin=admin, directory=self.directory, store=store, history=history,
                                            origin=self.origin))
            process = self.run(self.tollgate, "run", "--config", config, log=f"tollgate{nth}.log")
            self.instances.append({"port": port, "admin": admin, "nth": nth, "pid": process.pid})
        for instance in self.instances:
            wait("an instance serves", lambda: is_open(instance["admin"]))

    def run(self, *command, log=None, user=None):
        out = open(self.directory / log, "ab") if log else subprocess.DEVNULL
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out, cwd=self.directory, user=user,
                                   stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def start_postgres(self, first=False):
        programs = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        data = self.directory / "data"
        if first:
            data.mkdir()
            shutil.chown(data, "postgres")
            subprocess.run([programs / "initdb", "-D", data, "-U", "tollgate", "--auth=trust"], check=True, user="postgres",
                           stdout=subprocess.DEVNULL, cwd="/")
        self.postgres = self.run(programs / "postgres", "-D", data, "-p", self.postgres_port, "-c", "listen_addresses=127.0.0.1",
                                 "-c", "unix_socket_directories=", user="postgres")
        wait("PostgreSQL listens", lambda: is_open(self.postgres_port))
        if first:
            wait("its database", lambda: self.psql("SELECT 1", "postgres") == "1")
            self.psql("CREATE DATABASE tollgate", "postgres")

    def psql(self, query, database="tollgate"):
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.postgres_port), "-U", "tollgate", "-d", database, "-At", "-c", query]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def start_redis(self):
        self.redis = [free_port(), free_port()]
        for nth, port in enumerate(self.redis):
            self.start_server(port, self.redis[0] if nth else None)
        sentinels = [free_port() for _ in range(3)]
        for port in sentinels:
            config = self.directory / f"sentinel{port}.conf"
            config.write_text(f"port {port}\nsentinel monitor main 127.0.0.1 {self.redis[0]} 2\n"
                              "sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 6000\n")
            self.run("redis-server", config, "--sentinel")
        time.sleep(5)
        nodes = ", ".join(f'"redis://127.0.0.1:{port}"' for port in sentinels)
        return f"store: {{ redis: {{ sentinel: {{ master: main, nodes: [{nodes}] }} }} }}"

    def start_server(self, port, primary=None):
        replica = ["--replicaof", "127.0.0.1", primary] if primary else []
        self.servers = getattr(self, "servers", {})
        self.servers[port] = self.run("redis-server", "--port", port, "--save", "", "--dir", self.directory, *replica)
        wait("Redis listens", lambda: is_open(port))

    def role(self, port):
        said = subprocess.run(["redis-cli", "-p", str(port), "role"], capture_output=True, text=True).stdout.split("\n")[0]
        return said

    def fail_over(self):
        primary = next(port for port in self.redis if self.role(port) == "master")
        other = next(port for port in self.redis if port != primary)
        self.servers[primary].kill()
        self.servers[primary].wait()
        wait("the replica is the primary", lambda: self.role(other) == "master")
        self.start_server(primary, other)
        print(f"  Redis has failed over from {primary} to {other}", flush=True)

    def reload(self, instance):
        request = urllib.request.Request(f"http://127.0.0.1:{instance['admin']}/v1/reload", method="POST",
                                         headers={"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=60).read()

    def hand_over(self, instance):
        """A new process takes over. It is the old one's child."""
        os.kill(instance["pid"], signal.SIGUSR2)
        old = instance["pid"]

        def newest():
            found = subprocess.run(["pgrep", "-f", f"proxy{instance['nth']}.yaml"], capture_output=True, text=True).stdout.split()
            return [int(pid) for pid in found if int(pid) != old]
        wait("a new process", newest)
        instance["pid"] = newest()[0]
        print(f"  a new process serves {instance['port']}", flush=True)

    def load(self, instance, requests, clients=16):
        # Each client begins with the first.
        names = random.sample(self.names, len(self.names))
        targets = self.directory / f"targets{instance['nth']}"
        targets.write_text("".join(f"http://127.0.0.1:{instance['port']}/?key={name}-secret-of-it\n" for name in names))
        command = ["h2load", "--h1", "-n", str(requests), "-c", str(clients), "-i", str(targets)]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def counted(self):
        """The requests that the origin has got, by customer."""
        time.sleep(3)
        with open(self.directory / "customers.log") as log:
            return collections.Counter(line.rstrip("\n") for line in log)

    def usage(self):
        """Requests and units by customer."""
        rows = json.loads(get(self.instances[0]["admin"], "/v1/usage?limit=50000"))["rows"]
        of = lambda row: (row["requests"], sum(units["units"] for units in row["units"]), row["denied"])
        return {row["customer"]: of(row) for row in rows}

    def end(self):
        # Processes that have taken over are no children of this one.
        subprocess.run(["pkill", "-f", str(self.directory)])
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def equal(arguments):
    world = World(arguments.tollgate, arguments.customers)
    try:
        is_over, begun = threading.Event(), time.monotonic()

        def faults():
            nth = 0
            while not is_over.wait(arguments.pause):
                nth += 1
                instance = world.instances[nth // 3 % 3]
                if nth % 7 == 3:
                    world.fail_over()
                elif nth % 3 == 2:
                    world.hand_over(instance)
                else:
                    world.reload(instance)

        def away():
            if arguments.away and not is_over.wait(20):
                world.postgres.send_signal(signal.SIGINT)
                world.postgres.wait()
                print(f"  PostgreSQL is away for {arguments.away} s", flush=True)
                is_over.wait(arguments.away)
                spooled = [float(re.search(r"(?m)^tollgate_history_spooled_bytes (\S+)", get(of["admin"], "/metrics"))[1]) for of in world.instances]
                print(f"  spooled: {', '.join(f'{bytes / 2**20:.1f} MiB' for bytes in spooled)}", flush=True)
                world.start_postgres()

        def clients(instance):
            left = arguments.requests // 3
            while left > 0:
                world.load(instance, min(left, 50_000))
                left -= 50_000

        threads = [threading.Thread(target=clients, args=(instance,)) for instance in world.instances]
        others = [threading.Thread(target=faults), threading.Thread(target=away)]
        for thread in threads + others:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        is_over.set()
        for thread in others:
            thread.join()
        counted = world.counted()
        total = sum(counted.values())
        wait("all of it is in the history", lambda: sum(row[0] for row in world.usage().values()) >= total, 300)
        time.sleep(15)
        usage = world.usage()
        wrong = {name: (counted[name], usage.get(name)) for name in counted if (counted[name],) * 2 != usage.get(name, (0, 0, 0))[:2]}
        requests, units = (sum(row[nth] for row in usage.values()) for nth in (0, 1))
        dropped = [re.search(r"(?m)^tollgate_history_dropped_total (\S+)", get(of["admin"], "/metrics"))[1] for of in world.instances]
        print(f"{took:.0f} s, {total / took:.0f} requests/s")
        print(f"the origin has got {total} requests of {len(counted)} customers; the history has {requests} requests and {units} units")
        print(f"unforwarded: {requests - total}; batches that were dropped: {', '.join(dropped)}")
        print(f"customers that differ: {len(wrong)} {dict(list(wrong.items())[:5])}")
    finally:
        world.end()


def thread_share(arguments):
    world = World(arguments.tollgate, 5_000, redis=False, instances=1, file=arguments.file)
    try:
        instance = world.instances[0]
        is_over = threading.Event()

        def clients():
            while not is_over.is_set():
                begun = time.monotonic()
                world.load(instance, 5_000, clients=1)
                is_over.wait(max(0, begun + 1 - time.monotonic()))

        client = threading.Thread(target=clients)
        client.start()
        time.sleep(10)

        def times():
            found = {}
            for task in pathlib.Path(f"/proc/{instance['pid']}/task").iterdir():
                name = (task / "comm").read_text().strip()
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                found[name] = found.get(name, 0) + int(fields[11]) + int(fields[12])
            return found
        before, begun, count = times(), time.monotonic(), len(open(world.directory / "customers.log").readlines())
        time.sleep(60)
        after, took = times(), time.monotonic() - begun
        sent = len(open(world.directory / "customers.log").readlines()) - count
        is_over.set()
        client.join()
        print(f"{sent / took:.0f} requests/s of 5,000 customers")
        for name in sorted(after):
            share = (after[name] - before.get(name, 0)) / os.sysconf("SC_CLK_TCK") / took
            print(f"{name:16}{share:8.2%} of a core")
    finally:
        world.end()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tollgate", type=pathlib.Path)
    arguments.add_argument("--requests", type=int, default=2_000_000)
    arguments.add_argument("--customers", type=int, default=10_000)
    arguments.add_argument("--away", type=int, default=60, help="seconds for which PostgreSQL is stopped; 0: it is not")
    arguments.add_argument("--pause", type=float, default=15, help="seconds between two faults")
    arguments.add_argument("--thread", action="store_true", help="what the threads take, and nothing else")
    arguments.add_argument("--file", action="store_true", help="with --thread: the history is in a file")
    arguments = arguments.parse_args()
    thread_share(arguments) if arguments.thread else equal(arguments)


if __name__ == "__main__":
    main()
