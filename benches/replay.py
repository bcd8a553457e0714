#!/usr/bin/env python3
"""Lines per second of `tollgate replay`, beside goaccess on the same file.

    replay.py                                 2 million lines, combined and JSON, five rounds
    replay.py --lines 10000000 --rounds 3
    replay.py --binary PATH                   another build than target/release/tollgate

benches/access_log.py writes the logs. The programs take turns, and the median counts. CPU is that of all threads.

Debian package used: goaccess
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIGURATION = """policies:
  per-ip: { algorithm: sliding_window, key: ip, limit: 100/1m }
upstreams: { api: { endpoints: ["http://127.0.0.1:1"] } }
routes: [{ path: /*, upstream: api, policies: [per-ip] }]
"""


def measured(command: list[str]) -> tuple[float, float, int]:
    """The seconds that it takes, those of the CPU, and the peak of memory in MiB."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begin
    if status:
        sys.exit(f"{command[0]} failed: {process.stderr.read().decode()}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(HERE.parent / "target/release/tollgate"))
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "proxy.yaml").write_text(CONFIGURATION)
        for form in ["combined", "json"]:
            log = directory / f"{form}.log"
            with log.open("wb") as out:
                generator = [sys.executable, str(HERE / "access_log.py"), form, str(arguments.lines)]
                subprocess.run(generator, stdout=out, stderr=subprocess.DEVNULL, check=True)
            contestants = {
                "tollgate": [arguments.binary, "replay", "--json", "--config", str(directory / "proxy.yaml"), str(log)]
            }
            if form == "combined" and shutil.which("goaccess"):
                report = str(directory / "report.json")
                contestants["goaccess"] = ["goaccess", str(log), "--log-format=COMBINED", "--no-progress", "-o", report]
            results = {name: [] for name in contestants}
            for _ in range(arguments.rounds):
                for name, command in contestants.items():
                    results[name].append(measured(command))
            for name, runs in results.items():
                took, cpu, memory = (statistics.median(column) for column in zip(*runs))
                rate, micros = arguments.lines / took, cpu * 1e6 / arguments.lines
                print(f"{form:8}  {name:8}  {rate:>9,.0f} lines/s  {micros:.2f} µs CPU a line  {memory:.0f} MiB")


main()
