"""A language model's API in the format of OpenAI, of which each response costs exactly 100 tokens and takes half a second.

    async with Provider(port) as provider:     POST /v1/chat/completions
        provider.requests, provider.tokens      what it served since provider.reset()

A stream has ten events of nine words. Each says `usage: null`; an event with the usage comes last where `stream_options.include_usage`
asks for it, as OpenAI does. Who leaves in between stops it: what it generated until then counts.
"""
import asyncio, json

PROMPT, EVENTS, WORDS, SECONDS = 10, 10, 9, 0.5  # tokens: 10 + 10 × 9
USAGE = {"prompt_tokens": PROMPT, "completion_tokens": EVENTS * WORDS, "total_tokens": PROMPT + EVENTS * WORDS}
BASE = {"id": "chatcmpl-1", "created": 1, "model": "m"}


def whole():
    message = {"role": "assistant", "content": " the" * EVENTS * WORDS}
    return {**BASE, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}


def event(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**BASE, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


class Provider:
    def __init__(self, port):
        self.port = port
        self.reset()

    def reset(self):
        self.requests = self.tokens = self.open = 0
        self.bodies = []  # the settings with which requests came, each once

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, backlog=1024)
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
                request = json.loads(await reader.readexactly(int(fields.get(b"content-length", 0))) or b"{}")
                settings = {name: value for name, value in request.items() if name not in ("messages", "model")}
                if settings not in self.bodies:
                    self.bodies.append(settings)
                self.requests += 1
                self.open += 1
                try:
                    await (self.stream if request.get("stream") else self.answer)(writer, request)
                finally:
                    self.open -= 1
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, writer, _):
        await asyncio.sleep(SECONDS)
        self.tokens += USAGE["total_tokens"]
        body = json.dumps(whole()).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async def stream(self, writer, request):
        async def send(text):
            data = b"data: " + text.encode() + b"\n\n"
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            if writer.transport.is_closing():
                raise ConnectionResetError

        self.tokens += PROMPT
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(EVENTS):
            await asyncio.sleep(SECONDS / EVENTS)
            self.tokens += WORDS
            await send(json.dumps(event({"role": "assistant", "content": " the" * WORDS})))
        await send(json.dumps(event({}, "stop")))
        if (request.get("stream_options") or {}).get("include_usage"):
            await send(json.dumps({**BASE, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}))
        await send("[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
