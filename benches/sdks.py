#!/usr/bin/env python3
"""Whether the requests of real clients of language models and agents pass unchanged, and are counted right, where their bodies are read.

    python3 -m venv venv && venv/bin/pip install openai anthropic google-genai langchain-openai mcp
    venv/bin/python benches/sdks.py target/release/tollgate

Each call is made twice: to a small server that records what it gets, and through Tollgate, whose policies reserve by the body, ask for
usage, and count by model, by tool and by login name. Printed is each call with the model or the tool that Tollgate logs for it, and the
tokens that it charges. A call fails if the server gets another method, path or body than without Tollgate (but for the usage that streams are
asked for), if its client raises an error, or if the log tells something else than the server did.
"""
import argparse, asyncio, io, json, os, pathlib, socket, subprocess, sys, tempfile, threading, time, urllib.parse, urllib.request, wave
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = """
listeners: [{ address: 127.0.0.1:%(port)d }]
admin: { address: 127.0.0.1:%(admin)d }
access_log: { format: json, to: %(log)s, values: [model, tool, login] }
values:
  model: [{ path: "/v1beta/models/{model}:*" }, { path: "/v1/models/{model}:*" }, { json: model }]
  tool: { json: params.name, if: { method: tools/call } }
  login: { from: [{ form: username }, { json: username }], fold: true }
policies:
  models: { algorithm: sliding_window, key: "value:model", limit: 1000000/1h }
  tools: { algorithm: sliding_window, key: "value:tool", limit: 1000000/1h }
  logins: { algorithm: sliding_window, key: "value:login", limit: 1000000/1h }
  openai: &tokens
    algorithm: sliding_window
    key: "ip+value:model"
    limit: 100000000/1h
    cost: { response: { preset: openai, ask: true }, reserve: { json: [max_completion_tokens, max_tokens, max_output_tokens], default: 1000, prompt: estimate } }
  anthropic: { <<: *tokens, cost: { response: anthropic, reserve: { json: max_tokens, default: 1000 } } }
  gemini: { <<: *tokens, cost: { response: gemini, reserve: { json: generationConfig.maxOutputTokens, default: 1000 } } }
upstreams: { origin: { endpoints: ["http://127.0.0.1:%(origin)d"] } }
routes:
  - { path: /v1/models/*, methods: [POST], upstream: origin, policies: [models, gemini] }
  - { path: /v1/messages/*, upstream: origin, policies: [models, anthropic] }
  - { path: /v1/*, upstream: origin, policies: [models, openai] }
  - { path: /v1beta/*, upstream: origin, policies: [models, gemini] }
  - { path: /mcp, upstream: origin, policies: [tools] }
  - { path: /*, upstream: origin, policies: [logins] }
"""

USAGE = {"prompt_tokens": 20, "completion_tokens": 100, "total_tokens": 120}
MESSAGE = {"role": "assistant", "content": "Hello"}
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082")


def answer(method, path, body):
    """The status, the content type and the body of the response, as the provider documents them."""
    try:
        request = json.loads(body) if body else {}
    except ValueError:
        request = {}
    if not isinstance(request, dict):
        request = {}
    model = request.get("model", "m")

    def events(all, done=True, named=False):
        lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in all]
        return 200, "text/event-stream", "".join(lines) + ("data: [DONE]\n\n" if done else "")

    if path == "/v1/chat/completions":
        base = {"id": "c", "created": 1, "model": model}
        if request.get("stream"):
            chunk = lambda delta, reason=None: base | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
            all = [chunk(MESSAGE), chunk({}, "stop")]
            if (request.get("stream_options") or {}).get("include_usage"):
                all.append(base | {"object": "chat.completion.chunk", "choices": [], "usage": USAGE})
            return events(all)
        return 200, "application/json", base | {"object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}], "usage": USAGE}
    if path == "/v1/completions":
        return 200, "application/json", {"id": "c", "object": "text_completion", "created": 1, "model": model, "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}], "usage": USAGE}
    if path == "/v1/responses":
        usage = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 100, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120}
        response = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": model, "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
        if request.get("stream"):
            return events([{"type": "response.completed", "sequence_number": 0, "response": response}], done=False, named=True)
        return 200, "application/json", response
    if path == "/v1/embeddings":
        return 200, "application/json", {"object": "list", "model": model, "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 120, "total_tokens": 120}}
    if path.startswith("/v1/audio/"):
        return (200, "audio/mpeg", b"ID3") if path.endswith("speech") else (200, "application/json", {"text": "x"})
    if path == "/v1/images/generations":
        return 200, "application/json", {"created": 1, "data": [{"b64_json": "eA=="}]}
    if path == "/v1/files":
        return 200, "application/json", {"id": "f", "object": "file", "bytes": 1, "created_at": 1, "filename": "a", "purpose": "batch", "status": "processed"}
    if path.startswith("/v1/models") and method == "GET":
        return 200, "application/json", {"object": "list", "data": [{"id": "gpt-4o", "object": "model", "created": 1, "owned_by": "o"}]}
    if path == "/v1/moderations":
        return 200, "application/json", {"id": "m", "model": "m", "results": []}
    if path == "/v1/messages/count_tokens":
        return 200, "application/json", {"input_tokens": 20}
    if path == "/v1/messages":
        usage = {"input_tokens": 20, "output_tokens": 100}
        message = {"id": "m", "type": "message", "role": "assistant", "model": model, "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        if request.get("stream"):
            start = message | {"content": [], "stop_reason": None, "usage": {"input_tokens": 20, "output_tokens": 1}}
            return events([
                {"type": "message_start", "message": start},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 100}},
                {"type": "message_stop"},
            ], done=False, named=True)
        return 200, "application/json", message
    if path.startswith(("/v1beta/models/", "/v1/models/")):
        usage = {"promptTokenCount": 20, "candidatesTokenCount": 100, "totalTokenCount": 120}
        response = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}], "usageMetadata": usage}
        if path.endswith(":streamGenerateContent"):
            return 200, "text/event-stream", f"data: {json.dumps(response)}\n\n"
        if path.endswith(":countTokens"):
            return 200, "application/json", {"totalTokens": 20}
        if path.endswith(":batchEmbedContents"):
            return 200, "application/json", {"embeddings": [{"values": [0.5]}]}
        return 200, "application/json", response
    if path == "/mcp":
        if method != "POST" or "id" not in request:
            return (405, "text/plain", "no") if method == "GET" else (202 if method == "POST" else 200, "application/json", b"")
        results = {
            "initialize": {"protocolVersion": request.get("params", {}).get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": [{"name": "search", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "found"}]},
            "prompts/get": {"messages": []},
        }
        return 200, "application/json", {"jsonrpc": "2.0", "id": request["id"], "result": results.get(request["method"], {})}
    return 200, "text/plain", "ok"


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    received = []

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def serve(self):
        body = self.body()
        path = self.path.split("?")[0]
        Origin.received.append((self.command, self.path, self.headers.get("content-type"), body))
        status, kind, content = answer(self.command, path, body)
        content = json.dumps(content).encode() if isinstance(content, dict) else content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = serve

    def log_message(self, *_):
        pass


def deep(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"model": schema}}
    return schema


def calls(base, proxied):
    """Each call: its name, what it does, and the values and the tokens that the log has to tell."""
    import anthropic, openai
    from google import genai
    from google.genai import types
    from langchain_openai import ChatOpenAI

    client = openai.OpenAI(api_key="k", base_url=base + "/v1", max_retries=0)
    claude = anthropic.Anthropic(api_key="k", base_url=base, max_retries=0)
    gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=base))
    user = [{"role": "user", "content": "Hello, wörld \U0001f30d\ud83d".encode("utf-8", "ignore").decode()}]
    image = "data:image/png;base64," + "A" * (3 << 20)
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setparams((1, 2, 8000, 8000, "NONE", ""))
        writer.writeframes(bytes(16000))
    tool = {"type": "function", "function": {"name": "search", "parameters": deep(55), "strict": True}}
    create = client.chat.completions.create
    drain = lambda stream: [event for event in stream]

    def curl(path, *arguments):
        out = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *arguments, base + path], capture_output=True, text=True, check=True)
        assert out.stdout in ("200", "202", "204", "405"), out.stdout

    async def agent():
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client
        async with streamable_http_client(base + "/mcp") as (read, write, *_):
            async with ClientSession(read, write) as session:
                await session.initialize()
                await session.list_tools()
                await session.call_tool("search", {"name": "x", "method": "y", "params": {"name": "z"}})

    yield "openai chat", lambda: create(model="gpt-4o", messages=user), "gpt-4o", 120
    yield "openai chat, all of it", lambda: create(model="gpt-4o", messages=user, max_completion_tokens=50, n=2, stop=None, temperature=1e-3, seed=10**15, logit_bias={"5": -100}, metadata={"stream": "x"}, extra_body={"top_k": None}), "gpt-4o", 120
    yield "openai chat, stream", lambda: drain(create(model="gpt-4o-mini", messages=user, stream=True)), "gpt-4o-mini", 120
    yield "openai chat, stream with usage", lambda: drain(create(model="gpt-4o-mini", messages=user, stream=True, stream_options={"include_usage": True})), "gpt-4o-mini", 120
    yield "openai tools 55 deep", lambda: create(model="gpt-4o", messages=user, tools=[tool]), "gpt-4o", 120
    yield "openai image of 3 MiB", lambda: create(model="gpt-4o", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}]), "gpt-4o", 120
    yield "openai completions", lambda: client.completions.create(model="davinci", prompt=["a", "b"], max_tokens=5), "davinci", 120
    yield "openai responses", lambda: client.responses.create(model="gpt-5", input="Hello", max_output_tokens=50), "gpt-5", 120
    yield "openai responses, stream", lambda: drain(client.responses.create(model="gpt-5", input="Hello", stream=True)), "gpt-5", 120
    # It names no model, so no limit by model holds for it.
    yield "openai responses, prompt by ID", lambda: client.responses.create(prompt={"id": "pmpt_1", "variables": {"model": "x"}}), None, None
    yield "openai embeddings", lambda: client.embeddings.create(model="text-embedding-3", input=["a"] * 2000, encoding_format="float"), "text-embedding-3", 120
    yield "openai transcription", lambda: client.audio.transcriptions.create(model="whisper-1", file=("a.wav", sound.getvalue())), None, None
    yield "openai speech", lambda: client.audio.speech.create(model="tts-1", voice="alloy", input="Hello"), "tts-1", None
    yield "openai image generation", lambda: client.images.generate(model="gpt-image-1", prompt="a cat", n=1), "gpt-image-1", None
    yield "openai upload", lambda: client.files.create(file=("a.jsonl", b'{"model":"x"}\n{"model":"y"}\n'), purpose="batch"), None, None
    yield "openai models", lambda: client.models.list(), None, None
    yield "openai moderation", lambda: client.moderations.create(model="omni", input="x"), "omni", None
    yield "langchain", lambda: ChatOpenAI(model="gpt-4o", api_key="k", base_url=base + "/v1", max_retries=0).invoke("Hello"), "gpt-4o", 120
    yield "langchain, stream", lambda: drain(ChatOpenAI(model="gpt-4o", api_key="k", base_url=base + "/v1", max_retries=0).stream("Hello")), "gpt-4o", 120
    yield "anthropic messages", lambda: claude.messages.create(model="claude-opus", max_tokens=50, messages=user), "claude-opus", 120
    yield "anthropic messages, stream", lambda: drain(claude.messages.create(model="claude-opus", max_tokens=50, messages=user, stream=True)), "claude-opus", 120
    yield "anthropic tools and system", lambda: claude.messages.create(model="claude-opus", max_tokens=50, messages=user, system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}], tools=[{"name": "search", "input_schema": deep(55)}], metadata={"user_id": "model"}), "claude-opus", 120
    yield "anthropic count_tokens", lambda: claude.messages.count_tokens(model="claude-opus", messages=user), "claude-opus", None
    yield "gemini", lambda: gemini.models.generate_content(model="gemini-2.5-pro", contents="Hello", config={"max_output_tokens": 50, "candidate_count": 1}), "gemini-2.5-pro", 120
    yield "gemini, stream", lambda: drain(gemini.models.generate_content_stream(model="gemini-2.5-pro", contents="Hello")), "gemini-2.5-pro", 120
    yield "gemini count_tokens", lambda: gemini.models.count_tokens(model="gemini-2.5-pro", contents="Hello"), "gemini-2.5-pro", None
    yield "gemini embeddings", lambda: gemini.models.embed_content(model="embedding-001", contents="Hello"), "embedding-001", None
    yield "mcp", lambda: asyncio.run(agent()), {"tool": "search"}, None
    login = ("-d", "username=Ann+B&password=x%26y&csrf=%3B&next=/")
    yield "curl, form", lambda: curl("/login", *login), {"login": "ann b"}, None
    yield "curl, Rails' form", lambda: curl("/session", "-d", "utf8=%E2%9C%93&authenticity_token=a%2Bb%3D%3D&user%5Blogin%5D=ann&user%5Bpassword%5D=x&commit=Sign+in"), {"login": None}, None
    yield "curl, JSON", lambda: curl("/login", "--json", '{"username": "Ann", "password": "x", "remember": true}'), {"login": "ann"}, None
    yield "curl, empty POST", lambda: curl("/login", "-X", "POST"), {"login": None}, None
    yield "curl, upload", lambda: curl("/files/a.png", "-H", "content-type: image/png", "--data-binary", "@" + png()), {"login": None}, None
    yield "curl, 1e3", lambda: curl("/v1/chat/completions", "--json", '{"model":"gpt-4o","max_tokens":1e3,"messages":[],"stream":false}'), "gpt-4o", 120
    yield "curl, chunked", lambda: curl("/v1/chat/completions", "-H", "transfer-encoding: chunked", "--json", '{"model":"gpt-4o","max_tokens":1000.0,"messages":[]}'), "gpt-4o", 120
    http2 = ["--http2-prior-knowledge"] if proxied else []
    yield "curl, HTTP/2", lambda: curl("/v1/chat/completions", *http2, "--json", '{"model":"gpt-4o","messages":[]}'), "gpt-4o", 120


def png():
    path = pathlib.Path(tempfile.gettempdir(), "sdks.png")
    path.write_bytes(PNG)
    return str(path)


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shape(requests):
    """Requests, without what differs from call to call by itself, and without the usage that streams are asked for."""
    all = []
    for method, path, kind, body in requests:
        if kind and kind.startswith("multipart/"):
            boundary = kind.split("boundary=")[1].strip('"').encode()
            kind, body = kind.split(";")[0], body.replace(boundary, b"-")
        elif b"stream_options" in body:
            request = json.loads(body)
            request.pop("stream_options")
            body = json.dumps(request).encode()
        elif b'"stream":true' in body.replace(b" ", b""):
            body = json.dumps(json.loads(body)).encode()
        elif body.startswith(b'{"method"') or b'"jsonrpc"' in body:
            request = json.loads(body)
            request.pop("id", None)
            body = json.dumps(request).encode()
        all.append((method, path, kind, body))
    return sorted(all, key=repr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    a = parser.parse_args()
    origin = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{origin.server_port}"
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory, "access.log")
        ports = {"port": free(), "admin": free(), "origin": origin.server_port, "log": log}
        config = pathlib.Path(directory, "proxy.yaml")
        config.write_text(CONFIG % ports)
        proxy = subprocess.Popen([a.binary, "run", str(config)], stderr=subprocess.DEVNULL)
        through = f"http://127.0.0.1:{ports['port']}"
        try:
            for _ in range(100):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{ports['admin']}/readyz")
                    break
                except OSError:
                    time.sleep(0.05)
            for (name, direct, _, _), (_, proxied, value, tokens) in zip(calls(here, False), calls(through, True)):
                problems = []
                Origin.received.clear()
                try:
                    direct()
                except Exception as error:
                    problems.append(f"without Tollgate: {error!r:.200}")
                sent = shape(Origin.received)
                Origin.received.clear()
                lines = len(log.read_text().splitlines()) if log.exists() else 0
                try:
                    proxied()
                except Exception as error:
                    problems.append(f"{error!r:.300}")
                if shape(Origin.received) != sent:
                    problems.append(f"the server gets {len(Origin.received)} requests, {shape(Origin.received)!r:.300} in place of {sent!r:.300}")
                for _ in range(100):
                    logged = [json.loads(line) for line in log.read_text().splitlines()[lines:]]
                    if len(logged) >= len(sent):
                        break
                    time.sleep(0.05)
                wanted = value if isinstance(value, dict) else {"model": value}
                told = {name: [line["values"][name] for line in logged if line.get("values", {}).get(name)] for name in wanted}
                if told != {name: [text] if text else [] for name, text in wanted.items()}:
                    problems.append(f"the log has {told} in place of {wanted}")
                charged = [line["charged"] for line in logged if "charged" in line]
                if tokens is not None and charged != [tokens]:
                    problems.append(f"charged {charged} in place of {tokens}")
                if problems:
                    problems.append(f"sent: {[(method, path) for method, path, _, _ in sent]}")
                failed += bool(problems)
                print(f"{'FAILED' if problems else 'ok':7}{name:32}{told}  {charged}", *problems, sep="\n       " if problems else "")
        finally:
            proxy.terminate()
            proxy.wait()
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
