#!/usr/bin/env python3
"""Compares `tollgate replay` with a computation of its own, key by key.

    benches/replay_truth.py --binary target/release/tollgate              # a generated log of 1,000,000 lines
    benches/replay_truth.py --binary … --lines 10000000
    benches/replay_truth.py --binary … --log NASA_access_log_Jul95.gz     # a log in the common or combined format

Each algorithm is written here from docs/limits.md, as simply as it can be: lists of times, no state that is packed or
pruned. All policies are shadow policies, so that each decides by itself. The two must agree on the number of checks and
denials of every single key. Exit code 1 if they do not.
"""

import argparse
import collections
import datetime
import gzip
import heapq
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

SECOND = 1_000_000


class FixedWindow:
    """At most so many in each calendar window, for several windows at once."""

    def __init__(self, *tiers):
        self.tiers = [(limit, window * SECOND) for limit, window in tiers]
        self.counts = collections.Counter()

    def admits(self, now):
        keys = [(window, now // window) for _, window in self.tiers]
        if any(self.counts[key] >= limit for (limit, _), key in zip(self.tiers, keys)):
            return False
        self.counts.update(keys)
        return True

    def refund(self, now, taken):
        for _, window in self.tiers:
            if now // window == taken // window:
                self.counts[(window, now // window)] -= 1


class FirstRequestWindow:
    """At most so many in a window that begins with the first request: single_counter and metadata_list."""

    def __init__(self, limit, window):
        self.limit, self.window, self.end, self.count = limit, window * SECOND, None, 0

    def admits(self, now):
        if self.end is None or now >= self.end:
            self.end, self.count = now + self.window, 0
        self.count += 1
        if self.count > self.limit:
            self.count = self.limit
            return False
        return True


class SlidingLog:
    """At most so many in (now − window, now]."""

    def __init__(self, limit, window):
        self.limit, self.window, self.times = limit, window * SECOND, collections.deque()

    def admits(self, now):
        while self.times and self.times[0] <= now - self.window:
            self.times.popleft()
        if len(self.times) >= self.limit:
            return False
        self.times.append(now)
        return True


class SlidingWindow:
    """At most so many in the bucket of now and the ten before it, for several windows at once."""

    def __init__(self, *tiers):
        self.tiers = [(limit, window * SECOND, collections.Counter()) for limit, window in tiers]

    def admits(self, now):
        for limit, window, counts in self.tiers:
            bucket = now * 10 // window
            if sum(counts[bucket - back] for back in range(11)) >= limit:
                return False
        for _, window, counts in self.tiers:
            counts[now * 10 // window] += 1
        return True


class SlidingCounter:
    """This window's count, and the share of the previous one's that the last window covers, rounded up."""

    def __init__(self, limit, window):
        self.limit, self.window, self.counts = limit, window * SECOND, collections.Counter()

    def admits(self, now):
        index, passed = divmod(now, self.window)
        share = -(-self.counts[index - 1] * (self.window - passed) // self.window)
        if share + self.counts[index] + 1 > self.limit:
            return False
        self.counts[index] += 1
        return True


class Gcra:
    """A bucket of `burst` from which `limit` leak in each window. Its level is in units of 1 / window."""

    def __init__(self, limit, window, burst):
        self.limit, self.window, self.burst, self.level, self.at = limit, window * SECOND, burst, 0, 0

    def admits(self, now):
        self.level = max(0, self.level - (now - self.at) * self.limit)
        self.at = now
        if self.level + self.window > self.burst * self.window:
            return False
        self.level += self.window
        return True


class Distinct:
    """At most so many different values in (now − window, now]. One that is known is always admitted."""

    def __init__(self, limit, window):
        self.limit, self.window, self.seen = limit, window * SECOND, {}

    def admits(self, now, value):
        self.seen = {known: at for known, at in self.seen.items() if at > now - self.window}
        if value not in self.seen and len(self.seen) >= self.limit:
            return False
        self.seen[value] = now
        return True


def plain(make):
    """The number of denials of one key: `make()` decides over each request."""

    def denials(requests):
        limit = make()
        return sum(not limit.admits(request[0]) for request in requests)

    return denials


def concurrency(requests, most):
    open_until, denied = [], 0
    for at, duration, *_ in requests:
        while open_until and open_until[0] <= at:
            heapq.heappop(open_until)
        if len(open_until) >= most:
            denied += 1
        else:
            heapq.heappush(open_until, at + duration)
    return denied


def distinct(requests):
    limit = Distinct(4, 60)
    return sum(not limit.admits(at, user) for at, _, user, *_ in requests)


def failures(requests):
    """Only responses of 401 count: the others are refunded when they end."""
    limit, ends, denied = FixedWindow((3, 600)), [], 0
    for nth, (at, duration, _, status, _) in enumerate(requests):
        while ends and ends[0][0] <= at:
            end, _, taken = heapq.heappop(ends)
            limit.refund(end, taken)
        if not limit.admits(at):
            denied += 1
        elif status != 401:
            heapq.heappush(ends, (at + duration, nth, at))
    return denied


def traffic(requests):
    """The bytes of responses, by minute: 1,024 are reserved. The difference counts when a response ends."""
    reserve, limit, minute = 1_024, 200 << 10, 60 * SECOND
    used, ends, denied = collections.Counter(), [], 0
    for nth, (at, duration, _, _, size) in enumerate(requests):
        while ends and ends[0][0] <= at:
            end, _, taken, actual = heapq.heappop(ends)
            if actual > reserve:
                used[end // minute] += actual - reserve
            elif end // minute == taken // minute:
                used[end // minute] -= reserve - actual
        if used[at // minute] + reserve <= limit:
            used[at // minute] += reserve
            heapq.heappush(ends, (at + duration, nth, at, size))
        else:
            denied += 1
    return denied


POLICIES = {
    "single-counter": ("algorithm: single_counter, limit: 20/10s", plain(lambda: FirstRequestWindow(20, 10))),
    "fixed-window": ("algorithm: fixed_window, limits: [4/1s, 60/1m]", plain(lambda: FixedWindow((4, 1), (60, 60)))),
    "metadata-list": ("algorithm: metadata_list, limit: 30/20s", plain(lambda: FirstRequestWindow(30, 20))),
    "sliding-window": (
        "algorithm: sliding_window, limits: [5/1s, 70/1m]",
        plain(lambda: SlidingWindow((5, 1), (70, 60))),
    ),
    "sliding-log": ("algorithm: sliding_log, limit: 12/5s", plain(lambda: SlidingLog(12, 5))),
    "sliding-counter": ("algorithm: sliding_counter, limit: 50/1m", plain(lambda: SlidingCounter(50, 60))),
    "gcra": ("algorithm: gcra, limit: 1/1s, burst: 7", plain(lambda: Gcra(1, 1, 7))),
}
WITH_DURATIONS = {
    "concurrency": ("algorithm: concurrency, limit: 2", lambda requests: concurrency(requests, 2)),
    "distinct": ("algorithm: distinct, value: user, limit: 4/1m", distinct),
    "failures": ("algorithm: fixed_window, limit: 3/10m, count: { statuses: [401] }", failures),
    "traffic": (
        "algorithm: fixed_window, limit: 200KiB/1m, cost: { response: bytes, reserve: 1KiB }",
        traffic,
    ),
}


def generate(path, lines):
    """A log in Tollgate's own format, with durations, users, statuses and sizes."""
    draw = random.Random(41)
    clients = [f"203.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in range(max(100, lines // 500))]
    weights, total = [], 0.0
    for rank in range(len(clients)):
        total += 1 / (rank + 20)
        weights.append(total)
    now = 1_783_080_000 * SECOND
    with open(path, "w") as out:
        for _ in range(0, lines, 10_000):
            for client in draw.choices(clients, cum_weights=weights, k=min(10_000, lines)):
                now += draw.randrange(1, 4_000)
                at = datetime.datetime.fromtimestamp(now // SECOND, datetime.timezone.utc)
                user, status = draw.randrange(12), draw.choice((200, 200, 200, 401, 404))
                out.write(
                    f'{{"time":"{at:%Y-%m-%dT%H:%M:%S}.{now % SECOND:06d}Z","client":"{client}","method":"GET",'
                    f'"path":"/items/{draw.randrange(1000)}","status":{status},"bytes":{draw.randrange(20_000)},'
                    f'"duration_ms":{draw.randrange(1, 900_000) / 1000:.3f},"route":"/*","upstream":"127.0.0.1:1",'
                    f'"user":"u{user}","host":"example.com","user_agent":"curl/8","verdict":"allowed","policy":null}}\n'
                )


def generated_requests(path):
    """Per address: the requests in their order, as (time, duration, user, status, bytes)."""
    keys = collections.defaultdict(list)
    with open(path) as lines:
        for line in lines:
            row = json.loads(line)
            at = datetime.datetime.fromisoformat(row["time"].replace("Z", "+00:00"))
            micros = int(at.timestamp()) * SECOND + at.microsecond
            duration = round(row["duration_ms"] * 1000)
            keys[row["client"]].append((micros, duration, row["user"], row["status"], row["bytes"]))
    return keys


LINE = re.compile(
    rb'(\S+) \S+ \S.*? \[(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d\d)(\d\d)\] '
    rb'"([!#$%&\'*+.^_`|~0-9A-Za-z-]+) +([^ ]+) +HTTP/\d[^"]*" (\d{3}) (\d+|-)'
)
MONTHS = {month: nth for nth, month in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}


def logged_requests(path):
    """The lines by address; a client that the log names instead gets an address. Those of one second are spread evenly
    over it."""
    opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
    seconds, kept, named = collections.defaultdict(list), [], {}
    with opened as lines:
        for line in lines:
            found = LINE.match(line)
            if not found or b":" in found[1]:
                continue
            client = found[1]
            if not re.fullmatch(rb"\d+(\.\d+){3}", client):
                nth = named.setdefault(client, len(named))
                client = b"240.%d.%d.%d" % (nth >> 16, nth >> 8 & 255, nth & 255)
            kept.append(client + line[found.end(1):])
            _, day, month, year, hour, minute, second, zone_hours, zone_minutes = found.groups()[:9]
            zone = datetime.timedelta(hours=int(zone_hours), minutes=int(zone_hours[:1] + zone_minutes))
            at = datetime.datetime(
                int(year), MONTHS[month], int(day), int(hour), int(minute), int(second),
                tzinfo=datetime.timezone(zone),
            )
            seconds[int(at.timestamp())].append(client.decode())
    keys = collections.defaultdict(list)
    for second in sorted(seconds):
        clients = seconds[second]
        for nth, client in enumerate(clients):
            keys[client].append((second * SECOND + nth * SECOND // len(clients),))
    return keys, kept


def replay(binary, directory, log, policies):
    """The report, and the time in seconds."""
    lines = [f"  {name}: {{ key: ip, mode: shadow, {settings} }}" for name, (settings, _) in policies.items()]
    (directory / "proxy.yaml").write_text(
        "listeners: [{ address: 127.0.0.1:0 }]\nuser: [{ header: x-user-id, from: anyone }]\npolicies:\n"
        + "\n".join(lines)
        + "\nupstreams: { api: { endpoints: [http://127.0.0.1:1] } }\n"
        + f"routes: [{{ path: /*, upstream: api, policies: [{', '.join(policies)}] }}]\n"
    )
    began = time.monotonic()
    command = [binary, "replay", "--json", "--config", str(directory / "proxy.yaml"), str(log)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout), time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/tollgate")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--log", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        log, policies = directory / "access.log", dict(POLICIES)
        if args.log:
            keys, kept = logged_requests(args.log)
            log.write_bytes(b"".join(kept))
        else:
            policies |= WITH_DURATIONS
            generate(log, args.lines)
            keys = generated_requests(log)
        requests = sum(map(len, keys.values()))
        report, seconds = replay(args.binary, directory, log, policies)
        print(f"{requests} requests of {len(keys)} addresses, replayed in {seconds:.1f} s")
        wrong = int(report["requests"] != requests)
        if wrong:
            print(f"tollgate has read {report['requests']} requests: {report['unreadable']}")
        found = {(key["policy"], key["key"].removeprefix("ip:")): key for key in report["keys"]}
        for name, (_, denials) in policies.items():
            checked = next(policy["checked"] for policy in report["policies"] if policy["policy"] == name)
            differ, denied = [], 0
            for key, of_key in keys.items():
                expected = denials(of_key)
                denied += expected
                reported = found.get((name, key), {}).get("denied", 0)
                if reported != expected:
                    differ.append(f"{key}: {reported}, not {expected} of {len(of_key)}")
            wrong += len(differ) + (checked != requests)
            print(f"{name:16} {denied:9} denied, {len(differ)} keys differ {differ[:3] or ''}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
