#!/usr/bin/env python3
"""The same faults of Redis under Tollgate, under nginx with Lua, and beside an Envoy with a limit of its own.

    outages.py target/release/tollgate
    outages.py target/release/tollgate --rounds 10

One instance of each forwards 400 requests a second; each key may be used six times a day, and is asked for some twenty times within 400 ms.
The origin counts. Each fault lasts two seconds, between steady ones. nginx has the script of benches/peers/lua/limit.lua, which answers 500
if Redis fails, and waits a second for it. Envoy (if ENVOY names its binary) has no limit by key that it keeps itself, so its limit is one of
1,500 requests in the ten seconds, for all: Redis does not matter to it, and neither do other instances.

Printed are the most requests that one key got through, how many got neither 200 nor 429, and how long they took: 99.9 %, and the longest.

Debian packages used: nginx-light libnginx-mod-http-lua lua-nginx-redis redis-server
"""
import argparse, asyncio, collections, pathlib, re, subprocess, sys, tempfile, time

from contestants import ENVOY, LISTENER, LUA, ORIGIN, REDIS, TOLLGATE, Work, command, need, present, running

RATE, CLIENTS, KEYS, GENERATION, LASTS = 400, 32, 8, 0.4, 2
CONFIG = f"""
listeners: [{{ address: "127.0.0.1:{LISTENER}" }}]
log: {{ level: error }}
access_log: off
store: {{ redis: {{ url: "redis://127.0.0.1:{REDIS}" }} }}
policies: {{ daily: {{ algorithm: fixed_window, key: "header:x-api-key", limit: 6/1d }} }}
upstreams: {{ origin: {{ endpoints: ["http://127.0.0.1:{ORIGIN}"], policies: [daily] }} }}
routes: [{{ path: /*, upstream: origin }}]
"""


class Redis:
    def __init__(self, directory):
        self.directory = directory
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(REDIS), "--save", "", "--appendonly", "no", "--loglevel", "warning"], cwd=self.directory,
                                        stdout=subprocess.DEVNULL)
        while self.cli("PING") != "PONG":
            time.sleep(0.01)

    def cli(self, *arguments):
        return subprocess.run(["redis-cli", "-p", str(REDIS), *arguments], capture_output=True, text=True).stdout.strip()

    def signal(self, name):
        subprocess.run(["kill", f"-{name}", str(self.process.pid)], check=True)

    def kill(self):
        self.process.kill()
        self.process.wait()


# Each: what begins it, and what ends it.
FAULTS = {
    "loses its scripts (`SCRIPT FLUSH`)": (lambda redis: redis.cli("SCRIPT", "FLUSH"), lambda redis: None),
    "stands still (SIGSTOP)": (lambda redis: redis.signal("STOP"), lambda redis: redis.signal("CONT")),
    "is killed, and comes back empty": (lambda redis: redis.kill(), lambda redis: redis.start()),
    "is full (`maxmemory`, noeviction)": (lambda redis: redis.cli("CONFIG", "SET", "maxmemory", "1"), lambda redis: redis.cli("CONFIG", "SET", "maxmemory", "0")),
}


class Seen:
    def __init__(self):
        self.admitted, self.statuses, self.waits = collections.Counter(), collections.Counter(), []

    async def origin(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.admitted[re.search(rb"(?i)x-api-key: (\S+)", head)[1]] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()

    async def client(self, number, until, first):
        reader = writer = None
        begun, turn = time.monotonic(), 0
        while (now := time.monotonic()) < until:
            turn += 1
            due = begun + (turn + number / CLIENTS) * CLIENTS / RATE
            await asyncio.sleep(max(0, due - now))
            key = f"{first}-{int((due - begun) / GENERATION)}-{(number + turn) % KEYS}"
            sent = time.monotonic()
            try:
                if not writer:
                    reader, writer = await asyncio.open_connection("127.0.0.1", LISTENER)
                writer.write(f"GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                self.statuses[int(head[9:12])] += 1
                if b"connection: close" in head.lower():
                    writer.close()
                    writer = None
            except (OSError, asyncio.IncompleteReadError):
                self.statuses[0] += 1
                writer = None
            self.waits.append(time.monotonic() - sent)


async def measure(seen, redis, fault, turn):
    server = await asyncio.start_server(seen.origin, "127.0.0.1", ORIGIN)
    until = time.monotonic() + 3 * LASTS
    clients = [asyncio.create_task(seen.client(number, until, turn)) for number in range(CLIENTS)]
    begin, end = fault
    await asyncio.sleep(LASTS)
    await asyncio.to_thread(begin, redis)
    await asyncio.sleep(LASTS)
    await asyncio.to_thread(end, redis)
    await asyncio.gather(*clients)
    server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tollgate", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    need(["nginx", "redis-server"])
    print("| Redis … | limited by | most of one limit | failed | wait: 99.9 %, longest |\n| --- | --- | ---: | ---: | ---: |")
    for name, fault in FAULTS.items():
        for contestant in present([TOLLGATE, LUA, ENVOY]):
            seen = Seen()
            for turn in range(arguments.rounds):
                with tempfile.TemporaryDirectory() as directory:
                    redis = Redis(directory)
                    try:
                        if contestant == TOLLGATE:
                            file = pathlib.Path(directory, "proxy.yaml")
                            file.write_text(CONFIG)
                            args = [str(arguments.tollgate.resolve()), "run", "--config", str(file)]
                        elif contestant == LUA:
                            args = command(LUA, Work(script=("counter", 6, 86400)), directory, None)
                        else:
                            args = command(ENVOY, Work(limit=(1500, 10)), directory, None)
                        with running(args, "0,1", LISTENER):
                            asyncio.run(measure(seen, redis, fault, turn))
                    finally:
                        redis.signal("CONT")
                        redis.kill()
            waits = sorted(seen.waits)
            failed = sum(count for status, count in seen.statuses.items() if status not in (200, 429))
            most = f"{max(seen.admitted.values(), default=0)} of 6" if contestant != ENVOY else "no limit by key"
            print(f"| {name} | {contestant} | {most} | {failed} of {len(waits)} | {1e3 * waits[int(0.999 * len(waits))]:.0f} / {1e3 * waits[-1]:.0f} ms |",
                  flush=True)


main()
