#!/usr/bin/env python3
"""What a budget of tokens holds against parallel requests: Tollgate beside LiteLLM's proxy, in front of the same provider.

    token_budget.py --tollgate PATH              every contestant, every case
    token_budget.py                              LiteLLM alone
    token_budget.py --only reserved --case left  one contestant, one case

A key may use 1,000 tokens a minute. Each response costs 100 (see provider.py), so ten fit. 200 clients ask at the same moment with a key
that is new in each round. Printed is how many were admitted, how many tokens they used at the provider, and what the limiter says is used
two seconds after the last response; of all rounds, the least and the most. Other statuses than 200 and 429 are printed beside the refusals.
LiteLLM never says more than a key's budget. Of a deployment it tells only in refusals: `untold` if it still admitted a request then.

`left` is another attempt: ten clients at a time, 60 in all, read eight of a stream's ten events and leave. Each used 82 tokens or more at
the provider, so 12 of them are the budget.

`into the next minute` tells where the difference goes between what was reserved and what was used. A request begins a minute. In the last
moments of it come three that reserve 290 tokens each, and end in the next minute with 100. That is begun by a request before they end;
then come 199 at once. Counted are the requests of the second minute, and what they used. Tollgate's window slides, so it counts those
before as well.

LiteLLM is installed from PyPI into a virtual environment (--venv) as VERSION says. Its contestants:

- `reserved`: `tpm_limit` of the key, which reserves tokens before the call (its default since 2026). Virtual keys are rows in Postgres, so
  `custom_auth` says the limit in place of the row: the same object, and the same limiter. To requests without `max_tokens`, it adds a
  quarter of such a small limit, and reserves that.
- `reserved-redis`: the same on two instances that share Redis (`coordination_redis`); requests alternate.
- `afterwards`: `reserved` with LITELLM_TPM_TOKEN_RESERVATION_ENABLED=false, which is how it was before.
- `deployment`: `tpm` of a deployment with `enforce_model_rate_limits`, and a deployment of its own for each round. LiteLLM derives a limit
  of parallel requests from it, 6 for each 1,000 tokens a minute, in each process.
- `deployment-parallel`: the same with `max_parallel_requests: 200`, as its refusals advise.

Tollgate's: `memory`, and `redis` with two instances that share Redis.

The CPU time of a request is that of all processes of the contestant by the kernel's accounting, without Redis: of 2,000 requests over 50
clients with a key that has used up its budget, and of 200 at once with a budget that suffices. Each comes over a new connection.

Debian packages used: redis-server
"""
import argparse, asyncio, contextlib, itertools, json, os, pathlib, re, secrets, subprocess, sys, tempfile, time
from typing import NamedTuple

from provider import Provider

VERSION = "1.108.7"
ORIGIN, REDIS, FIRST, ADMIN = 28081, 28079, 28082, 28092
BUDGET, CLIENTS, LEAVERS = 1000, 200, 60
AMPLE = 10**9  # the budget of keys that begin with `ample`

CASES = {
    "whole": {"max_tokens": 100},
    "stream": {"max_tokens": 100, "stream": True, "stream_options": {"include_usage": True}},
    "stream, usage not asked for": {"max_tokens": 100, "stream": True},
    "no max_tokens": {},
    "left": {"max_tokens": 100, "stream": True},
    "into the next minute": {"max_tokens": 100},
}

COST = "{ response: { preset: openai, ask: true }, reserve: { json: [max_tokens], default: 100 } }"

AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

async def check(request, api_key):
    budget = %d if api_key.startswith("sk-ample") else %d
    return UserAPIKeyAuth(api_key=api_key, tpm_limit=budget)
"""


class Contestant(NamedTuple):
    what: str
    instances: int = 1
    environment: dict = {}
    deployment: dict = {}  # its limits
    tollgate: bool = False


CONTESTANTS = {
    "reserved": Contestant("LiteLLM, limit of the key"),
    "reserved-redis": Contestant("LiteLLM, limit of the key, two instances, Redis", 2),
    "afterwards": Contestant("LiteLLM, limit of the key, no reservation", environment={"LITELLM_TPM_TOKEN_RESERVATION_ENABLED": "false"}),
    "deployment": Contestant("LiteLLM, limit of the deployment", deployment={"tpm": BUDGET}),
    "deployment-parallel": Contestant("LiteLLM, limit of the deployment, 200 in parallel", deployment={"tpm": BUDGET, "max_parallel_requests": 200}),
    "memory": Contestant("Tollgate", tollgate=True),
    "redis": Contestant("Tollgate, two instances, Redis", 2, tollgate=True),
}


def litellm(contestant, directory, venv):
    """The command of an instance, but for its port."""
    model = {"model": "openai/m", "api_base": f"http://127.0.0.1:{ORIGIN}/v1", "api_key": "none"}
    models = [{"model_name": "m", "litellm_params": model}]
    general, router = {"master_key": f"sk-{secrets.token_hex(32)}", "custom_auth": "auth.check"}, {"num_retries": 0, "disable_cooldowns": True}
    if contestant.deployment:
        limit = {**model, **contestant.deployment}
        models = [{"model_name": f"m{n}", "litellm_params": limit, "model_info": {"id": f"d{n}"}} for n in range(100)]
        models.append({"model_name": "ample", "litellm_params": {**model, "tpm": AMPLE}})
        router["optional_pre_call_checks"] = ["enforce_model_rate_limits"]
    if contestant.instances > 1:
        general["coordination_redis"] = {"host": "127.0.0.1", "port": REDIS}
    budget = AMPLE if contestant.deployment else BUDGET
    pathlib.Path(directory, "auth.py").write_text(AUTH % (AMPLE, budget))
    configuration = {"model_list": models, "general_settings": general, "router_settings": router, "litellm_settings": {"num_retries": 0}}
    pathlib.Path(directory, "litellm.yaml").write_text(json.dumps(configuration, indent=2))
    return lambda n: [f"{venv}/bin/litellm", "--config", f"{directory}/litellm.yaml", "--host", "127.0.0.1", "--port", str(FIRST + n)]


def tollgate(contestant, directory, binary):
    store = f'store: {{ redis: {{ url: "redis://127.0.0.1:{REDIS}" }} }}\n' if contestant.instances > 1 else ""
    for n in range(contestant.instances):
        pathlib.Path(directory, f"tollgate{n}.yaml").write_text(f"""{store}
listeners: [{{ address: "127.0.0.1:{FIRST + n}" }}]
admin: {{ address: "127.0.0.1:{ADMIN + n}" }}
access_log: off
policies:
  tokens: {{ algorithm: sliding_window, key: "header:x-api-key", limit: {BUDGET}/1m, cost: &cost {COST} }}
  ample: {{ algorithm: sliding_window, key: "header:x-api-key", limit: {AMPLE}/1m, cost: *cost }}
upstreams:
  provider: {{ endpoints: [http://127.0.0.1:{ORIGIN}] }}
routes:
  - {{ hosts: [ample], path: /*, upstream: provider, policies: [ample] }}
  - {{ path: /*, upstream: provider, policies: [tokens] }}
""")
    return lambda n: [binary, "run", "--config", f"{directory}/tollgate{n}.yaml"]


@contextlib.asynccontextmanager
async def running(commands, ports, directory, environment):
    """These processes, each of which listens at its port; what they print goes to a file."""
    processes = []
    try:
        for command, port in zip(commands, ports):
            log = open(f"{directory}/{port}.log", "wb")
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env={**os.environ, **environment}))
        end = time.monotonic() + 180
        for process, port in zip(processes, ports):
            while not await listens(port):
                if time.monotonic() > end or process.poll() is not None:
                    sys.exit(f"does not listen at port {port}:\n{pathlib.Path(directory, f'{port}.log').read_text()[-3000:]}")
                await asyncio.sleep(0.2)
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


async def listens(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    except OSError:
        return False


def cpu(pids):
    """Microseconds of CPU time of these processes and their children."""
    found = list(pids)
    for pid in found:
        found += map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())
    threads = [thread for pid in found for thread in pathlib.Path("/proc", str(pid), "task").glob("*/schedstat")]
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e3


def request(key, model, settings):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": f"Say it, {key}"}], **settings}).encode()
    host = "ample" if key.startswith("sk-ample") else "provider"
    return (f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\nx-api-key: {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n").encode() + body


async def ask(port, data, start=None, leave=None):
    """The status, and the whole response as text. `leave` is the number of events after which the client goes away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if start:
            await start.wait()
        writer.write(data)
        text = b""
        while chunk := await reader.read(65536):
            text += chunk
            if leave and len(re.findall(rb'"content": ?" the', text)) >= leave:
                break
        return int(text[9:12] or 0), text.decode(errors="replace")
    finally:
        writer.close()


async def parallel(ports, data, clients):
    """All connect, and then all ask at the same moment."""
    start = asyncio.Event()
    ports = itertools.cycle(ports)
    tasks = [asyncio.create_task(ask(next(ports), data, start)) for _ in range(clients)]
    await asyncio.sleep(0.5)
    start.set()
    return await asyncio.gather(*tasks)


async def leaving(ports, data):
    slots = asyncio.Semaphore(10)
    async def one(port):
        async with slots:
            return await ask(port, data, leave=8)
    ports = itertools.cycle(ports)
    return await asyncio.gather(*(one(next(ports)) for _ in range(LEAVERS)))


async def into_next_minute(ports, data, ask_for_more, provider):
    """A minute begins with a request. Three that reserve much end in the next one, which another request has begun before."""
    await asyncio.sleep(1.1 - time.time() % 1)
    began = int(time.time())
    await ask(ports[0], data)
    await asyncio.sleep(began + 59.7 - time.time())
    long = [asyncio.create_task(ask(ports[0], ask_for_more)) for _ in range(3)]
    await asyncio.sleep(began + 60.1 - time.time())
    first = asyncio.create_task(ask(ports[-1], data))
    admitted = [status for status, _ in await asyncio.gather(*long)].count(200)
    replies = [await first]
    await asyncio.sleep(1)
    replies += await parallel(ports, data, CLIENTS - 1)
    provider.tokens -= (1 + admitted) * 100  # those of the minute before
    return replies


async def says(contestant, ports, key, model, binary):
    """How many tokens the limiter says are used."""
    if contestant.tollgate:
        command = [binary, "limits", f"header:x-api-key={key}", "--json", "--admin", f"127.0.0.1:{ADMIN}"]
        shown = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r'"used":\s*(\d+)', shown.stdout)
        return int(found[1]) if found else None
    if contestant.deployment:
        # Told only where it is spent: it stands in the refusal.
        _, text = await ask(ports[0], request(key, model, {"max_tokens": 1}))
        found = re.search(r"current usage=(\d+)", text)
        return int(found[1]) if found else None
    # A request that cannot fit is refused with what is left.
    _, text = await ask(ports[0], request(key, model, {"max_tokens": 100 * BUDGET}))
    found = re.search(r"Remaining: (\d+)", text)
    return BUDGET - int(found[1]) if found else None


class Round(NamedTuple):
    admitted: int
    refused: int
    others: dict
    tokens: int
    says: int


async def play(contestant, ports, provider, case, number, binary):
    key, model = f"sk-{os.getpid()}-{number}", f"m{number}" if contestant.deployment else "m"
    provider.reset()
    data = request(key, model, CASES[case])
    if case == "left":
        replies = await leaving(ports, data)
    elif case == "into the next minute":
        replies = await into_next_minute(ports, data, request(key, model, {"max_tokens": 290}), provider)
    else:
        replies = await parallel(ports, data, CLIENTS)
    await asyncio.sleep(2)
    while provider.open:
        await asyncio.sleep(0.1)
    statuses = [status for status, _ in replies]
    others = {status: statuses.count(status) for status in set(statuses) - {200, 429}}
    if others:
        print(next(text for status, text in replies if status in others)[:600], file=sys.stderr)
    tokens = provider.tokens
    return Round(statuses.count(200), statuses.count(429), others, tokens, await says(contestant, ports, key, model, binary))


async def costs(contestant, ports, pids, provider):
    """Microseconds of CPU time of a request that is denied, and of one that is admitted; and denied requests a second."""
    spent, model = f"sk-spent-{os.getpid()}", "m99" if contestant.deployment else "m"
    await parallel(ports, request(spent, model, {"max_tokens": 100}), 50)
    await asyncio.sleep(2)
    data, count = request(spent, model, {"max_tokens": 1000}), 0

    async def client(port):
        nonlocal count
        for _ in range(40):
            status, _ = await ask(port, data)
            count += status == 429

    before, began = cpu(pids), time.monotonic()
    await asyncio.gather(*(client(ports[n % len(ports)]) for n in range(50)))
    denied, rate = (cpu(pids) - before) / 2000, 2000 / (time.monotonic() - began)
    if count < 1990:
        print(f"only {count} of 2,000 were denied", file=sys.stderr)
    model = "ample" if contestant.deployment else "m"
    before = cpu(pids)
    replies = await parallel(ports, request("sk-ample", model, {"max_tokens": 100}), CLIENTS)
    await asyncio.sleep(2)
    if any(status != 200 for status, _ in replies):
        print(f"ample: {[status for status, _ in replies if status != 200]}", file=sys.stderr)
    return denied, rate, (cpu(pids) - before) / CLIENTS


def span(values):
    values = sorted({value for value in values if value is not None})
    return "untold" if not values else f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,}–{values[-1]:,}"


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tollgate", type=pathlib.Path, help="the binary")
    parser.add_argument("--venv", default="/tmp/litellm", type=pathlib.Path, help="where LiteLLM is, or is put")
    parser.add_argument("--only", action="append", choices=CONTESTANTS)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=os.path.abspath, help="a directory for configurations and logs")
    options = parser.parse_args()
    chosen = [name for name in options.only or CONTESTANTS if options.tollgate or not CONTESTANTS[name].tollgate]
    if any(not CONTESTANTS[name].tollgate for name in chosen) and not (options.venv / "bin/litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", options.venv], check=True)
        subprocess.run([options.venv / "bin/pip", "install", "-q", f"litellm[proxy]=={VERSION}", "redis"], check=True)

    print("| limiter | 200 requests at once | admitted | refused | tokens used | the limiter says |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    cost = []
    with contextlib.ExitStack() as stack:
        directory = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(directory, exist_ok=True)
        redis = ["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        async with Provider(ORIGIN) as provider, running([redis], [REDIS], directory, {}):
            for name in chosen:
                contestant = CONTESTANTS[name]
                ports = [FIRST + n for n in range(contestant.instances)]
                of = (tollgate(contestant, directory, options.tollgate.absolute()) if contestant.tollgate else litellm(contestant, directory, options.venv.absolute()))
                async with running([of(n) for n in range(contestant.instances)], ports, directory, contestant.environment) as pids:
                    warm = "ample" if contestant.deployment else "m"
                    for case in CASES:
                        await parallel(ports, request("sk-ample", warm, CASES[case]), 4 * len(ports))
                    numbers = itertools.count()
                    for case in options.case or CASES:
                        rounds = [await play(contestant, ports, provider, case, next(numbers), options.tollgate) for _ in range(options.rounds)]
                        others = "".join(f", {status}: {count}" for figures in rounds for status, count in figures.others.items())
                        columns = [span(column) for column in zip(*((r.admitted, r.refused, r.tokens, r.says) for r in rounds))]
                        print(f"| {contestant.what} | {case} | {columns[0]} | {columns[1]}{others} | {columns[2]} | {columns[3]} |", flush=True)
                        print(f"  {name}, {case}: the provider got {json.dumps(provider.bodies)[:300]}", file=sys.stderr)
                    if not options.case:
                        cost.append((contestant.what, *await costs(contestant, ports, pids, provider)))
    if cost:
        print("\n| limiter | CPU of a denied request (µs) | denied a second | CPU of an admitted one (µs) |\n| --- | --- | --- | --- |")
        for what, denied, rate, admitted in cost:
            print(f"| {what} | {denied:,.0f} | {rate:,.0f} | {admitted:,.0f} |")


asyncio.run(main())
