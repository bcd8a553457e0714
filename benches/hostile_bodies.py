#!/usr/bin/env python3
"""Whether a client can stream tokens that it does not pay for, by a body that a lenient server reads otherwise than Tollgate.

    hostile_bodies.py target/release/tollgate [--requests 10000] [--seed 1]

The server reads JSON as Python does, and of members that come twice, or differ in case, in each way that there is: it takes the one by
which it streams most. It takes `"5"`, `5.5` and `true` for numbers, any content type, UTF-16 and gzip. It streams at most 3,000 tokens of
four letters, and reports them only if it finds that it is asked to. No request that reaches it may cost less than what it streamed, nor may
an honest one cost anything else than what it reported.
"""
import argparse, collections, gzip, http.client, itertools, json, pathlib, random, socket, subprocess, sys, tempfile, threading, time, unicodedata, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = """
listeners: [{ address: 127.0.0.1:%(port)d }]
admin: { address: 127.0.0.1:%(admin)d }
trusted_proxies: [127.0.0.1] # so that its log has the IDs of requests
access_log: { format: json, to: %(log)s, values: [model] }
values:
  model: { json: model }
policies:
  tokens:
    algorithm: sliding_window
    key: ip
    limit: 1000000000/1h
    cost: { response: { preset: openai, ask: true }, reserve: { json: [max_completion_tokens, max_tokens], default: 500 } }
  models: { algorithm: sliding_window, key: "value:model", limit: 1000000000/1h }
upstreams: { origin: { endpoints: ["http://127.0.0.1:%(origin)d"] } }
routes: [{ path: /*, upstream: origin, policies: [tokens, models] }]
"""
MOST, UNASKED = 3_000, 500
NAMES = ["max_tokens", "max_completion_tokens", "stream", "include_usage", "model"]


class Pairs(list):
    """An object with all its members."""


def parsed(body, coding):
    """Every value that the server might take for the body."""
    if coding == "gzip":
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError):
            pass
    for decode in (lambda: body.decode(json.detect_encoding(body), "surrogatepass"), lambda: body.decode("utf-8", "replace")):
        try:
            return json.loads(decode().lstrip("\ufeff\xa0"), object_pairs_hook=Pairs, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def all_of(value, name):
    """The members that some server takes for `name`."""
    fold = lambda text: unicodedata.normalize("NFKC", text).casefold().split("\0")[0].strip()
    return [member for key, member in value if fold(key) == name] if isinstance(value, Pairs) else []


def numbers(value, name):
    for member in all_of(value, name):
        try:
            number = float(member) if isinstance(member, (int, float, str)) else None
            if number is not None and number == number and number > 0:
                yield min(int(min(number, 1e9)), 10**9)
        except ValueError:
            pass


def is_true(member):
    return member in (True, 1, "true", "True", "1")


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served = {}

    def do_POST(self):
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        value = parsed(body, self.headers.get("content-encoding"))
        asked = [number for name in NAMES[:2] for number in numbers(value, name)]
        tokens = min(max(asked), MOST) if asked else UNASKED
        streams = any(is_true(member) for member in all_of(value, "stream"))
        options = [member for of in all_of(value, "stream_options") for member in all_of(of, "include_usage")]
        reports = not streams or bool(options) and is_true(options[-1])
        Origin.served[self.headers["x-request"]] = (tokens, reports)
        usage = {"usage": {"total_tokens": tokens}}
        piece = {"choices": [{"delta": {"content": "tok "}}]} if streams else None
        if streams:
            events = [json.dumps(piece)] * tokens + ([json.dumps({"choices": [], **usage})] if reports else []) + ["[DONE]"]
            content, kind = "".join(f"data: {event}\n\n" for event in events), "text/event-stream"
        else:
            content, kind = json.dumps({"choices": [{"message": {"content": "tok " * tokens}}], **usage}), "application/json"
        content = content.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def hostile(rng):
    """A body and its fields."""
    spelled = lambda name: rng.choice([name] * 6 + [name.title(), name.upper(), name.replace("s", "ſ", 1), name.replace("k", "\u212a", 1), name + "\\u0000", f"\\u{ord(name[0]):04x}{name[1:]}", " " + name])
    bound = lambda: rng.choice(["1", "10", "2999", "3000", "5000", "0", "-1", "null", '"5000"', "5e3", "5000.0", "2999.9", "true", "[5000]", "NaN", "Infinity", "1e400", "0x10", "99999999999999999999"])
    flag = lambda: rng.choice(["true"] * 4 + ["false", "1", "0", '"true"', "null", "True", "[]"])
    members = []
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(8)
        if kind < 3:
            members.append(f'"{spelled(rng.choice(NAMES[:2]))}":{bound()}')
        elif kind < 5:
            members.append(f'"{spelled("stream")}":{flag()}')
        elif kind < 6:
            members.append(f'"{spelled("stream_options")}":{rng.choice(["{}", "null", "[]", "1", chr(123) + chr(34) + spelled("include_usage") + chr(34) + ":" + flag() + "}"])}')
        else:
            members.append(rng.choice(['"messages":[]', '"prompt":"x"', '"prompt":["a","b"]', '"input":"x"', '"n":2', '"model":"gpt"', '"Model":"gpt"', '"model":null', '"max_tokens ":9']))
    if rng.random() < 0.7:
        members.insert(rng.randrange(len(members) + 1), '"messages":[]')
    text = "{" + rng.choice([",", ", ", ",\n"]).join(members) + "}"
    text = rng.choice([lambda t: t] * 12 + [lambda t: "\ufeff" + t, lambda t: " " * 70_000 + t, lambda t: f"[{t}]", lambda t: f"[{t},{t}]", lambda t: "/**/" + t, lambda t: t + "//", lambda t: t + "\0", lambda t: t[:-1]])(text)
    body = text.encode(rng.choice(["utf-8"] * 12 + ["utf-16", "utf-16-le", "utf-32"]), "surrogatepass")
    fields = {}
    kind = rng.choice(["application/json"] * 8 + [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "application/grpc", "multipart/form-data; boundary=a", "application/json, text/plain", "application/octet-stream", "APPLICATION/JSON;charset=UTF-8"])
    if kind:
        fields["content-type"] = kind
    coding = rng.choice([None] * 10 + ["gzip", "identity", "br"])
    if coding:
        fields["content-encoding"] = coding
        body = gzip.compress(body) if coding == "gzip" else body
    elif rng.random() < 0.03:
        body = gzip.compress(body)
    return body, fields


def honest(rng):
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": rng.choice([None, 1, 400, 3000, 1e3])}
    if rng.random() < 0.5:
        request["stream"] = rng.random() < 0.8
        if rng.random() < 0.3:
            request["stream_options"] = {"include_usage": True}
    return json.dumps(request).encode(), {"content-type": "application/json"}


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    origin = Server(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    statuses, sent = collections.Counter(), {}
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory, "access.log")
        ports = {"port": free(), "admin": free(), "origin": origin.server_port, "log": log}
        config = pathlib.Path(directory, "proxy.yaml")
        config.write_text(CONFIG % ports)
        proxy = subprocess.Popen([a.binary, "run", str(config)], stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{ports['admin']}/readyz")
                    break
                except OSError:
                    time.sleep(0.05)
            rng = random.Random(a.seed)
            connection = http.client.HTTPConnection("127.0.0.1", ports["port"])
            for nth in range(a.requests):
                is_honest = nth % 4 == 0
                body, fields = honest(rng) if is_honest else hostile(rng)
                sent[str(nth)] = (is_honest, body, fields)
                chunks = (body[at:at + 1000] for at in range(0, len(body), 1000)) if rng.random() < 0.2 else None
                headers = fields | {"x-request": str(nth), "x-request-id": str(nth)}
                for attempt in range(2):
                    try:
                        connection.request("POST", "/v1/chat/completions", body if chunks is None or attempt else chunks, headers, encode_chunked=chunks is not None and not attempt)
                        response = connection.getresponse()
                        response.read()
                        break
                    except (http.client.HTTPException, OSError):
                        connection.close()
                statuses["honest" if is_honest else "hostile", response.status] += 1
                if response.getheader("connection") == "close":
                    connection.close()
            time.sleep(1)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        finally:
            proxy.terminate()
            proxy.wait()
    wrong = []
    charged = {line["request_id"]: line.get("charged", 0) for line in lines if line["upstream"]}
    served = [(key, *found) for key, found in Origin.served.items()]
    assert charged.keys() == Origin.served.keys(), charged.keys() ^ Origin.served.keys()
    for key, tokens, reports in served:
        units = charged[key]
        is_honest, body, fields = sent[key]
        if units < tokens or is_honest and units != tokens:
            wrong.append(f"{units} charged for {tokens} tokens{'' if reports else ', unreported'}: {fields} {body[:200]!r}")
    for (kind, status), count in sorted(statuses.items()):
        print(f"{kind:8} {status} {count}")
    print(f"{len(served)} served, {sum(tokens for _, tokens, _ in served)} tokens; {len(wrong)} charged wrongly")
    print(*itertools.islice(wrong, 20), sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
