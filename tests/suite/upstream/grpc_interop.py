"""The cases of gRPC's interoperability tests that need no generated code, by grpcio on both sides.

    grpc_interop.py serve                 a service; prints its port, and serves until its input ends
    grpc_interop.py call TARGET           all cases through TARGET; prints the names of those that hold
    grpc_interop.py limited TARGET        calls for what limits do; prints a line each
"""

import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "grpc.testing.TestService"
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
CANCELLED = threading.Event()


def empty(request, context):
    return b""


def unary(request, context):
    for key, value in context.invocation_metadata():
        if key == "x-grpc-test-echo-initial":
            context.send_initial_metadata(((key, value),))
        if key == "x-grpc-test-echo-trailing-bin":
            context.set_trailing_metadata(((key, value),))
    words = request.split(b" ", 2)
    if words[0] == b"status":
        context.abort(grpc.StatusCode(next(c.value for c in grpc.StatusCode if c.value[0] == int(words[1]))), words[2].decode())
    if words[0] == b"length":
        return bytes(int(words[1]))
    if words[0] == b"sleep":
        time.sleep(float(words[1]))
    return request


def collect(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def spread(request, context):
    for length in request.split():
        yield bytes(int(length))


def echo(requests, context):
    context.add_callback(lambda: CANCELLED.set() if not context.is_active() and context.code() is None else None)
    for key, value in context.invocation_metadata():
        if key == "x-grpc-test-echo-initial":
            context.send_initial_metadata(((key, value),))
        if key == "x-grpc-test-echo-trailing-bin":
            context.set_trailing_metadata(((key, value),))
    for request in requests:
        if request.startswith(b"status "):
            _, code, message = request.split(b" ", 2)
            context.abort(grpc.StatusCode(next(c.value for c in grpc.StatusCode if c.value[0] == int(code))), message.decode())
        yield bytes(int(request)) if request.isdigit() else request


def was_cancelled(request, context):
    return b"yes" if CANCELLED.wait(15) else b"no"


def login(request, context):
    if request != b"right":
        # In the trailers behind a message, or in the head alone.
        context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        context.set_details("wrong password")
    return b""


def login_stream(request, context):
    yield b"checking"
    if request != b"right":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong password")


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(64), options=[("grpc.max_receive_message_length", -1)])
    methods = {
        "EmptyCall": grpc.unary_unary_rpc_method_handler(empty),
        "UnaryCall": grpc.unary_unary_rpc_method_handler(unary),
        "StreamingInputCall": grpc.stream_unary_rpc_method_handler(collect),
        "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(spread),
        "FullDuplexCall": grpc.stream_stream_rpc_method_handler(echo),
        "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
        "Login": grpc.unary_unary_rpc_method_handler(login),
        "LoginStream": grpc.unary_stream_rpc_method_handler(login_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


def channel(target):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    return grpc.insecure_channel(target, options=options)


def path(method):
    return f"/{SERVICE}/{method}"


def code_of(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details()


class Cases:
    def __init__(self, channel):
        self.channel = channel
        self.unary = channel.unary_unary(path("UnaryCall"))
        self.duplex = channel.stream_stream(path("FullDuplexCall"))

    def empty_unary(self):
        assert self.channel.unary_unary(path("EmptyCall"))(b"", timeout=20) == b""

    def large_unary(self):
        assert self.unary(b"length 314159", timeout=20) == bytes(314159)

    def messages_of_16_mib(self):
        message = b"m" * (16 << 20)
        assert self.unary(message, timeout=60) == message

    def client_streaming(self):
        collect = self.channel.stream_unary(path("StreamingInputCall"))
        assert collect(iter(bytes(length) for length in (27182, 8, 1828, 45904)), timeout=20) == b"74922"

    def server_streaming(self):
        spread = self.channel.unary_stream(path("StreamingOutputCall"))
        lengths = [len(message) for message in spread(b"31415 9 2653 58979", timeout=20)]
        assert lengths == [31415, 9, 2653, 58979], lengths

    def ping_pong(self):
        turn = threading.Semaphore(1)

        def requests():
            for length in (31415, 9, 2653, 58979):
                turn.acquire()
                yield str(length).encode()

        lengths = []
        for message in self.duplex(requests(), timeout=20):
            lengths.append(len(message))
            turn.release()
        assert lengths == [31415, 9, 2653, 58979], lengths

    def empty_stream(self):
        assert list(self.duplex(iter(()), timeout=20)) == []

    def timeout_on_sleeping_server(self):
        code, _ = code_of(self.unary, b"sleep 5", timeout=0.5)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED, code

    def cancel_after_begin(self):
        call = self.channel.stream_unary(path("StreamingInputCall")).future(iter(lambda: time.sleep(60), 0))
        call.cancel()
        assert call.code() == grpc.StatusCode.CANCELLED, call.code()

    def cancel_after_first_response(self):
        held = threading.Event()

        def requests():
            yield b"31415"
            held.wait(60)

        call = self.duplex(requests(), timeout=60)
        assert len(next(call)) == 31415
        call.cancel()
        assert call.code() == grpc.StatusCode.CANCELLED, call.code()
        assert self.channel.unary_unary(path("WasCancelled"))(b"", timeout=30) == b"yes"
        held.set()

    def status_code_and_message(self):
        expected = (grpc.StatusCode.UNKNOWN, "test status message")
        assert code_of(self.unary, b"status 2 test status message", timeout=20) == expected
        call = self.duplex(iter([b"status 2 test status message"]), timeout=20)
        assert code_of(lambda: list(call)) == expected

    def special_status_message(self):
        code, message = code_of(self.unary, b"status 2 " + SPECIAL.encode(), timeout=20)
        assert (code, message) == (grpc.StatusCode.UNKNOWN, SPECIAL), repr(message)

    def unimplemented_method(self):
        code, _ = code_of(self.channel.unary_unary(path("UnimplementedCall")), b"", timeout=20)
        assert code == grpc.StatusCode.UNIMPLEMENTED, code

    def unimplemented_service(self):
        code, _ = code_of(self.channel.unary_unary("/grpc.testing.Unimplemented/Call"), b"", timeout=20)
        assert code == grpc.StatusCode.UNIMPLEMENTED, code

    def custom_metadata(self):
        sent = (("x-grpc-test-echo-initial", "test_initial_metadata_value"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"))
        _, call = self.unary.with_call(b"hello", metadata=sent, timeout=20)
        assert sent[0] in [tuple(pair) for pair in call.initial_metadata()], call.initial_metadata()
        assert sent[1] in [tuple(pair) for pair in call.trailing_metadata()], call.trailing_metadata()
        call = self.duplex(iter([b"9"]), metadata=sent, timeout=20)
        assert [len(message) for message in call] == [9]
        assert sent[0] in [tuple(pair) for pair in call.initial_metadata()]
        assert sent[1] in [tuple(pair) for pair in call.trailing_metadata()]


def call(target):
    with channel(target) as open_channel:
        cases = Cases(open_channel)
        for name in [name for name in dir(cases) if callable(getattr(cases, name)) and not name.startswith("_") and name not in ("unary", "duplex", "channel")]:
            getattr(cases, name)()
            print(name, flush=True)


def limited(target):
    with channel(target) as open_channel:
        for name in ("Login", "LoginStream"):
            unary = open_channel.unary_unary(path(name))
            stream = open_channel.unary_stream(path(name))
            log_in = (lambda *a, **k: list(stream(*a, **k))) if name == "LoginStream" else unary
            for user, password in [("a", b"right")] * 4 + [("a", b"wrong")] * 3 + [("a", b"right"), ("b", b"right")]:
                code, _ = code_of(log_in, password, metadata=(("x-user", user + name),), timeout=20)
                print(name, user, password.decode(), code.name, flush=True)


if __name__ == "__main__":
    {"serve": lambda: serve(), "call": lambda: call(sys.argv[2]), "limited": lambda: limited(sys.argv[2])}[sys.argv[1]]()
