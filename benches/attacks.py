#!/usr/bin/env python3
"""What one client address can do to all others: attacks with slow bodies and idle connections, side by side with nginx and HAProxy.

    attacks.py target/release/tollgate                     every attack, every contestant
    attacks.py --only slow-uploads OLD NEW                 one attack, two builds beside nginx and HAProxy

The attacker has the address 127.0.0.2. Meanwhile a client at 127.0.0.3 opens a new connection for each request, 25 requests a second.
Printed is what that client sees: how many of its requests failed, and how long the others took. All contestants run on two workers
with their default limits; Tollgate with the shipped proxy.yaml, and a ban of the attacker in `banned-idle`. Peers have no such ban:
they `deny` the address.

Debian packages used: nginx-light haproxy. The limit of open files (ulimit -n) has to be above 12,000.
"""
import argparse, os, pathlib, resource, selectors, shutil, socket, subprocess, tempfile, threading, time, urllib.request

ATTACKER, CLIENT = "127.0.0.2", "127.0.0.3"
ATTACKS = {
    # name: (connections, what each sends first, what each sends or reads every second)
    "slow-uploads": (1030, b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx", "send"),
    "slow-readers": (1030, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "read"),
    "idle": (10000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "request"),
    "banned-idle": (10000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "request"),
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


class Attack(threading.Thread):
    """Holds its connections open, and opens each again when it is closed."""

    def __init__(self, port, attack):
        super().__init__(daemon=True)
        self.port, (self.count, self.first, self.then) = port, ATTACKS[attack]
        self.ended, self.open, self.most = threading.Event(), {}, 0

    def connect(self, selector):
        s = socket.socket()
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # The port is chosen when the connection is made, so that many are left (ip(7)).
        s.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        s.bind((ATTACKER, 0))
        s.connect_ex(("127.0.0.1", self.port))
        self.open[s] = False
        selector.register(s, selectors.EVENT_WRITE)

    def run(self):
        selector, due, allowance, last = selectors.EpollSelector(), time.monotonic() + 1, 0.0, time.monotonic()
        while not self.ended.is_set():
            now = time.monotonic()
            # 2,000 connections a second, so that the attack is under way after some seconds and costs little itself.
            allowance, last = min(allowance + (now - last) * 2000, 200), now
            while len(self.open) < self.count and allowance >= 1:
                self.connect(selector)
                allowance -= 1
            for key, _ in selector.select(0.02):
                s = key.fileobj
                try:
                    if not self.open[s]:
                        s.send(self.first)
                        self.open[s] = True
                        # A slow reader reads nothing but what the clock allows.
                        selector.modify(s, selectors.EVENT_READ) if self.then != "read" else selector.unregister(s)
                    elif not s.recv(65536):
                        raise OSError("closed")
                except OSError:
                    selector.unregister(s)
                    del self.open[s]
                    s.close()
            self.most = max(self.most, sum(self.open.values()))
            if now >= due:
                due = now + 1
                for s in [s for s, is_sent in self.open.items() if is_sent]:
                    try:
                        if self.then == "send":
                            s.send(b"x")
                        elif self.then == "read" and not s.recv(1):
                            raise OSError("closed")
                        elif self.then == "request" and hash(s) % 20 == int(now) % 20:
                            s.send(self.first)  # once in 20 s, before any idle timeout
                    except BlockingIOError:
                        pass
                    except OSError:
                        if self.then != "read":
                            selector.unregister(s)
                        del self.open[s]
                        s.close()
        for s in self.open:
            s.close()


def others(port):
    """What another client sees for SECONDS: the number of requests, how many failed and how, and the times of the others."""
    times, failures = [], {}
    end = time.monotonic() + SECONDS
    while (begun := time.monotonic()) < end:
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE, (CLIENT, 0)) as s:
                s.settimeout(PATIENCE)
                s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
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
  server {{ listen 127.0.0.1:{port} backlog=4096; {server} }} }}"""


def start_origin(d):
    port = free_port()
    pathlib.Path(d, "html").mkdir()
    with open(f"{d}/html/large", "wb") as large:
        large.truncate(64 << 20)
    pathlib.Path(d, "html/index.html").write_text("ok")
    # Reads the whole upload, as an application does.
    sink = free_port()
    pathlib.Path(d, "origin.conf").write_text(NGINX.format(
        d=d, n="origin", connections=20000, port=port, http=f"server {{ listen 127.0.0.1:{sink}; location / {{ return 200 ok; }} }}",
        server=f"root {d}/html; location /upload {{ proxy_pass http://127.0.0.1:{sink}; }}"))
    origin = subprocess.Popen(["nginx", "-c", f"{d}/origin.conf"])
    wait_for(port)
    return origin, port


def start(contestant, d, origin, attack):
    port, deny = free_port(), attack == "banned-idle"
    if contestant == "nginx":
        # Debian's number of connections.
        server = f"location / {{ {f'deny {ATTACKER};' if deny else ''} proxy_pass http://127.0.0.1:{origin}; }}"
        pathlib.Path(d, "peer.conf").write_text(NGINX.format(d=d, n="peer", connections=768, port=port, http="", server=server))
        process = subprocess.Popen(["nginx", "-c", f"{d}/peer.conf"])
    elif contestant == "haproxy":
        # Debian's timeouts.
        pathlib.Path(d, "haproxy.cfg").write_text(f"""global
  nbthread 2
  maxconn 9900
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
frontend f
  bind 127.0.0.1:{port}
  {f'http-request deny if {{ src {ATTACKER} }}' if deny else ''}
  default_backend o
backend o
  server o 127.0.0.1:{origin} maxconn 1024
""")
        process = subprocess.Popen(["haproxy", "-db", "-q", "-f", f"{d}/haproxy.cfg"])
    else:
        admin = free_port()
        pathlib.Path(d, "proxy.yaml").write_text(f"""listeners: [{{ address: "127.0.0.1:{port}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
workers: 2
access_log: off
upstreams: {{ origin: {{ endpoints: ["http://127.0.0.1:{origin}"] }} }}
routes: [{{ path: /*, upstream: origin }}]
""")
        process = subprocess.Popen([contestant, "run", "--config", f"{d}/proxy.yaml"], stderr=open(f"{d}/tollgate.log", "w"))
        if deny:
            wait_for(port)
            ban = urllib.request.Request(f"http://127.0.0.1:{admin}/v1/bans", method="POST", headers={"content-type": "application/json"},
                                         data=f'{{"key": "ip:{ATTACKER}", "for": "1h", "reason": "attack"}}'.encode())
            urllib.request.urlopen(ban).close()
    wait_for(port)
    return process, port


def memory(pid):
    """Resident memory of a process and its children in MiB."""
    pids = [pid, *map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())]
    return sum(int(line.split()[1]) for p in pids for line in open(f"/proc/{p}/status") if line.startswith("VmRSS")) / 1024


def measure(attack, contestant):
    d = tempfile.mkdtemp()
    os.chmod(d, 0o755)
    processes = []
    try:
        origin, origin_port = start_origin(d)
        processes.append(origin)
        proxy, port = start(contestant, d, origin_port, attack)
        processes.append(proxy)
        attacker = Attack(port, attack)
        attacker.start()
        time.sleep(attacker.count / 2000 + 2)
        times, failures = others(port)
        held = memory(proxy.pid)
        attacker.ended.set()
        attacker.join()
        times.sort()
        at = lambda part: f"{times[min(int(len(times) * part), len(times) - 1)] * 1000:9.1f}" if times else "        -"
        failed = sum(failures.values())
        name = pathlib.Path(contestant).name
        print(f"{attack:14}{name:16}{len(times) + failed:8}{failed:8}{at(.5)}{at(.99)}{attacker.most:8}{held:8.0f}   {failures or ''}", flush=True)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
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
    print(f"{'attack':14}{'proxy':16}{'requests':>8}{'failed':>8}{'p50 ms':>9}{'p99 ms':>9}{'held':>8}{'MiB':>8}   failures")
    for attack in arguments.only or ATTACKS:
        for contestant in [*([] if arguments.no_peers else ["nginx", "haproxy"]), *arguments.binary]:
            measure(attack, contestant)


main()
