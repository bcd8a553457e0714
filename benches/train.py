#!/usr/bin/env python3
"""Trains a build of Tollgate with typical requests, for profile-guided optimisation (scripts/release).

    train.py BINARY [--requests 40000]

Each configuration of benches/peers/ runs once, on free ports, in front of nginx and Redis: HTTP/1.1 with and without a body, HTTP/1.1 and
HTTP/2 over TLS on kept and on new connections, limits in memory and in Redis that admit and that deny.
Debian packages used: nginx-light nghttp2-client redis-server openssl
"""
import argparse, pathlib, shutil, signal, socket, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
LISTENER, ORIGIN, REDIS = 28080, 28081, 28079  # the ports in the configurations
KEYS = 8

# Configuration -> how it is loaded: the arguments of h2load, and the share of the requests.
PLAIN = [
    (["--h1", "-c32"], 1.0),
    (["--h1", "-c8", "-H", "accept: application/json", "-H", "authorization: Bearer 0123456789abcdef", "-H", "cookie: a=b; c=d"], 0.5),
    (["--h1", "-c8", "-d", "{body}"], 0.3),
    (["-c4", "-m8"], 0.3),
]
TLS = [
    (["--h1", "-c32"], 0.5),
    (["-c8", "-m16"], 0.5),
    *[(["--h1", "-c50", "-n50"], 0)] * 20,  # a new connection for each request
    *[(["-c50", "-n50"], 0)] * 10,
]
KEYED = [(["--h1", "-c32", "-H", f"x-api-key: k{key}"], 1 / KEYS) for key in range(KEYS)]
WORKLOADS = {
    "plain": PLAIN,
    "local-allow": PLAIN[:2],
    "deny-flood": PLAIN[:1],
    "shared-counter": KEYED,
    "shared-log": KEYED,
    "shared-deny-flood": PLAIN[:1],
    "tls": TLS,
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(directory, port, process):
    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} ended with {process.returncode}: {(directory / 'stderr').read_text()}")
        time.sleep(0.1)
    sys.exit(f"{process.args[0]} does not listen at port {port}")


def stop(process):
    process.send_signal(signal.SIGTERM)
    if process.wait(60) != 0:
        sys.exit(f"{process.args[0]} ended with {process.returncode}")


def start(directory, args, port):
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(directory / "stderr").open("w"))
    wait_for(directory, port, process)
    return process


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=40_000, help="of a workload")
    options = parser.parse_args()
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    directory = pathlib.Path(tempfile.mkdtemp())
    ports = {LISTENER: free_port(), ORIGIN: free_port(), REDIS: free_port()}
    body = directory / "body"
    body.write_text("x" * 2048)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", directory / "key.pem", "-out", directory / "cert.pem"], check=True, stderr=subprocess.DEVNULL)
    temporary = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (directory / "origin.conf").write_text(
        f"daemon off; pid {directory}/pid; error_log {directory}/log error; events {{}} http {{ access_log off; keepalive_requests 1000000000; {temporary}"
        f" server {{ listen 127.0.0.1:{ports[ORIGIN]}; location / {{ return 200 '{'x' * 1024}'; }} }} }}")
    others = []
    try:
        others.append(start(directory, [nginx, "-c", str(directory / "origin.conf")], ports[ORIGIN]))
        others.append(start(directory, ["redis-server", "--port", str(ports[REDIS]), "--bind", "127.0.0.1", "--save", ""], ports[REDIS]))
        for name, loads in WORKLOADS.items():
            configuration = (HERE / "peers" / f"{name}.yaml").read_text().replace("${PEERS_CERTS}", str(directory))
            for written, port in ports.items():
                configuration = configuration.replace(str(written), str(port))
            file = directory / f"{name}.yaml"
            file.write_text(configuration + 'admin: { address: "127.0.0.1:0" }\n')
            proxy = start(directory, [str(options.binary), "run", "--config", str(file)], ports[LISTENER])
            scheme = "https" if name == "tls" else "http"
            for arguments, share in loads:
                arguments = [argument.format(body=body) for argument in arguments]
                if share > 0:
                    arguments.append(f"-n{int(options.requests * share)}")
                subprocess.run(["h2load", *arguments, f"{scheme}://127.0.0.1:{ports[LISTENER]}/"], check=True, stdout=subprocess.DEVNULL)
            stop(proxy)
            print(f"train.py: {name}", flush=True)
    finally:
        for process in others:
            process.terminate()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


main()
