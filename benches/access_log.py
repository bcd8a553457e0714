#!/usr/bin/env python3
"""Writes an access log with known truth: the same for the same arguments.

    access_log.py combined 1000000 > access.log
    access_log.py json 1000000 > access.json

Each of K clients sends at a rate of its own: client 0 half of all requests, client 1 a quarter of the rest, and so on down to a
floor, so that few clients send most. 5,000 requests a second on average. The last line on stderr tells the number of requests of
each of the first clients.
"""

import random
import sys
import time

PATHS = ["/", "/api/v1/items", "/api/v1/items/{}", "/api/v1/search?q=term{}&page={}", "/login", "/assets/app.{}.js", "/api/v1/users/{}"]
AGENTS = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148",
    "curl/8.5.0",
    "python-requests/2.32.3",
]
STATUSES = [200] * 17 + [304, 404, 500]
START = 1_783_080_000
A_SECOND = 5_000


def clients(count: int) -> tuple[list[str], list[float]]:
    names = [f"203.0.{nth >> 8}.{nth & 255}" if nth % 10 else f"2001:db8:{nth:x}::1" for nth in range(count)]
    weights = [max(0.5 ** (nth / 8 + 1), 1e-4) for nth in range(count)]
    return names, weights


def main() -> None:
    form, lines = sys.argv[1], int(sys.argv[2])
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    rng = random.Random(7)
    names, weights = clients(number)
    sent = dict.fromkeys(names, 0)
    out, now = [], float(START)
    for begin in range(0, lines, 10_000):
        for client in rng.choices(names, weights, k=min(10_000, lines - begin)):
            now += rng.random() * 2 / A_SECOND
            sent[client] += 1
            path = rng.choice(PATHS).format(rng.randrange(100_000), rng.randrange(50))
            status, size, agent = rng.choice(STATUSES), rng.randrange(100, 60_000), rng.choice(AGENTS)
            if form == "json":
                millis = int(now * 1000)
                moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(millis // 1000)) + f".{millis % 1000:03}Z"
                out.append(
                    f'{{"time":"{moment}","client":"{client}","method":"GET","path":"{path}","protocol":"HTTP/1.1",'
                    f'"status":{status},"bytes":{size},"duration_ms":{rng.randrange(1, 90_000) / 1000},"route":"all",'
                    f'"upstream":"127.0.0.1:3000","request_id":"{rng.getrandbits(128):032x}","user":null,'
                    f'"host":"api.example.com","referer":null,"user_agent":"{agent}","verdict":"allowed","policy":null,'
                    f'"source":"store"}}\n'
                )
            else:
                moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now))
                out.append(f'{client} - - [{moment}] "GET {path} HTTP/1.1" {status} {size} "-" "{agent}"\n')
        sys.stdout.write("".join(out))
        out.clear()
    print({name: sent[name] for name in names[:10]}, file=sys.stderr)


main()
