#!/usr/bin/env python3
"""Whether the time of a response tells why an API key is not valid.

    wrong_keys.py target/release/tollgate                  100,000 requests of each kind
    wrong_keys.py --count 10000 target/release/tollgate    fewer

Sends, over one kept connection and one at a time, keys of four kinds in random order: of an ID that does not exist, of one that does
with another secret, of one that is revoked, and of one that has expired. There are 100 keys of each kind, all of the same length.

Printed are the quantiles of each kind, and how far its median is from the first kind's: the mean over 100 parts of the run, with the
interval that has it with 95 % certainty. If the interval has 0, the time tells nothing. Also whether all responses were the same, but
for their date and the ID of the request.
"""
import argparse, gc, http.client, json, pathlib, random, re, socket, statistics, string, subprocess, tempfile, time

KINDS = ["unknown ID", "wrong secret", "revoked", "expired"]
KEYS, PARTS = 100, 100
CONFIG = """
listeners: [{{ address: "127.0.0.1:{port}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
access_log: off
workers: 1
api_keys: {{ store: true, data: keys.json, attempts: 1000000000/1m }}
upstreams: {{ api: {{ endpoints: ["http://127.0.0.1:9"] }} }}
routes: [{{ path: /*, upstream: api }}]
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(admin, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", admin)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status not in (200, 201):
        raise SystemExit(f"{path}: {response.status} {answer!r}")
    return json.loads(answer)


def letters(count):
    return "".join(random.choices(string.ascii_letters + string.digits, k=count))


def with_secret(key, secret):
    prefix, identifier, _, check = key.split("_")
    return "_".join([prefix, identifier, secret, check])


def make_keys(admin):
    """The keys of each kind."""
    def made(nth, **fields):
        return ask(admin, "/v1/keys", {"customer": f"customer-{nth}", **fields})
    valid = [made(nth)["key"] for nth in range(KEYS)]
    revoked = [made(nth) for nth in range(KEYS)]
    for key in revoked:
        ask(admin, f"/v1/keys/{key['id']}/revoke", {"reason": "leaked"})
    expired = [made(nth, expires="1s")["key"] for nth in range(KEYS)]
    time.sleep(2)
    unknown = [f"tgk_{letters(10)}_{letters(32)}_{letters(6)}" for _ in range(KEYS)]
    wrong = [with_secret(key, letters(32)) for key in valid]
    return [unknown, wrong, [key["key"] for key in revoked], expired]


def without_own(response):
    return re.sub(rb"(?m)^(date|x-request-id): .*\r\n", b"", response)


def exchange(client, request):
    client.sendall(request)
    response = client.recv(65536)
    return response


def measure(port, keys, count):
    """The times of each kind in microseconds, in the order of the run, and the responses."""
    head = "GET /orders HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\n\r\n"
    requests = [[head.format(key).encode() for key in of_kind] for of_kind in keys]
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for of_kind in requests:
        for request in of_kind * 20:
            exchange(client, request)
    times, responses, order = [[] for _ in KINDS], set(), list(range(len(KINDS)))
    gc.disable()
    for _ in range(count):
        random.shuffle(order)
        for kind in order:
            request = requests[kind][random.randrange(KEYS)]
            begun = time.perf_counter_ns()
            response = exchange(client, request)
            times[kind].append((time.perf_counter_ns() - begun) / 1000)
            responses.add(without_own(response))
    gc.enable()
    return times, responses


def difference(times, others):
    """How far the median is from that of `others`, with the half of the interval."""
    size = len(times) // PARTS
    parts = [slice(nth * size, (nth + 1) * size) for nth in range(PARTS)]
    apart = [statistics.median(times[part]) - statistics.median(others[part]) for part in parts]
    return statistics.mean(apart), 1.96 * statistics.stdev(apart) / len(apart) ** 0.5


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tollgate", type=pathlib.Path)
    arguments.add_argument("--count", type=int, default=100_000, help="requests of each kind")
    arguments = arguments.parse_args()
    count = max(arguments.count, 2 * PARTS)
    port, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory, "proxy.yaml")
        config.write_text(CONFIG.format(port=port, admin=admin))
        command = [arguments.tollgate.resolve(), "run", "--config", config]
        tollgate = subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", admin)) == 0:
                        break
                time.sleep(0.1)
            times, responses = measure(port, make_keys(admin), count)
        finally:
            tollgate.kill()
            tollgate.wait()
    print(f"{count} of each kind, {len(responses)} different response{'s' * (len(responses) != 1)}: {min(responses)[:12].decode()}")
    print(f"{'':14}{'p25':>9}{'p50':>9}{'p75':>9}{'p90':>9}{'p99':>9}   median beside the first kind's")
    for kind, of_kind in zip(KINDS, times):
        quantiles = statistics.quantiles(of_kind, n=100)
        columns = "".join(f"{quantiles[at - 1]:9.2f}" for at in (25, 50, 75, 90, 99))
        apart, half = difference(of_kind, times[0])
        print(f"{kind:14}{columns}   {apart:+.3f} ± {half:.3f} µs" if kind != KINDS[0] else f"{kind:14}{columns}")


if __name__ == "__main__":
    main()
