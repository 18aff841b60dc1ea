"""A scripted model server on loopback: it speaks four providers' protocols and checks requests.

    with Server([call("read_file", path="a.py"), say("Done.")]) as server:
        litellm.completion(**route("openai", server.url), messages=…, tools=…, stream=True)

One server speaks all four, told apart by path: OpenAI, Anthropic, Gemini, Ollama. What a request
does wrong (an unanswered tool call, a bad schema, …) is answered with 400, kept in `errors`, and
fails the `with` block. Alone: `python -m tests.server --script FILE.yaml` prints its URL; the file
is a list of what `from_yaml` describes.
"""

import argparse
import base64
import hashlib
import itertools
import json
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

# What the model says


class Tokens(NamedTuple):
    """What a reply claims to have cost; `input` includes `cached`, `output` the thought."""

    input: int
    output: int
    cached: int = 0


DERIVED = Tokens(-1, -1)  # a quarter of the characters that went each way


class Call(NamedTuple):
    """A tool call; `arguments` is the text the model wrote, not necessarily JSON."""

    name: str
    arguments: str


class Break(NamedTuple):
    """What interrupts a reply, and where.

    after: "start" (before the first byte), "thought", "text" or "call" (the last piece of it is
    missing), or a number of characters of text (0: only the headers came).
    how: "drop" the connection, "end" as if complete, report an "error", "wait" and then go on.
    """

    after: str | int
    how: str
    gate: float | threading.Event = 0.0
    message: str = ""


class Reply(NamedTuple):
    """One answer of the model, streamed in pieces of `chunk` characters, `delay` seconds apart."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    chunk: int = 4
    delay: float = 0.0
    usage: Tokens | None = DERIVED  # None: the server sends none
    length: bool = False  # stopped by the token limit
    broken: Break | None = None


class Failure(NamedTuple):
    """An HTTP error in the provider's own form; status 0, message "": the provider's usual."""

    kind: str
    status: int = 0
    message: str = ""
    retry_after: float | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Page(NamedTuple):
    """A plain 200 that is no answer at all."""

    media: str
    body: bytes


Answer = Reply | Failure | Page
Script = Iterable[Answer] | Callable[[dict], Answer | None]


def answer(*parts: str | Reply, **options: Any) -> Reply:
    """Text and calls as one reply: answer("I read.", call("read_file", path="a"), thought="Hm")."""
    replies = [Reply(text=part) if isinstance(part, str) else part for part in parts]
    text = "".join(reply.text for reply in replies)
    calls = tuple(one for reply in replies for one in reply.calls)
    return Reply(text=text, calls=calls, **options)


def say(text: str, chunk: int = 4, **options: Any) -> Reply:
    """A text answer."""
    return Reply(text=text, chunk=chunk, **options)


def call(name: str, /, **args: Any) -> Reply:
    """A tool call."""
    return raw_call(name, json.dumps(args))


def raw_call(name: str, arguments: str) -> Reply:
    """A tool call with its arguments as given, valid JSON or not."""
    return Reply(calls=(Call(name, arguments),))


def truncated(*parts: str | Reply, **options: Any) -> Reply:
    """An answer stopped by the token limit; give a raw_call to stop it in the middle of a call."""
    return answer(*parts, length=True, **options)


def empty() -> Reply:
    """A stream with no content."""
    return Reply()


def html() -> Page:
    """A login page where JSON was expected, as from a captive portal or a wrong api_base."""
    return Page("text/html", b"<!doctype html><html><body>Please log in.</body></html>")


EXAMPLE = answer("I will read the file.", call("read_file", path="README.md"))


def cut(after: str | int, reply: Reply = EXAMPLE) -> Reply:
    """The connection drops in the middle."""
    return reply._replace(broken=Break(after, "drop"))


def end_early(after: str | int, reply: Reply = EXAMPLE) -> Reply:
    """The response ends in order, but the stream lacks its end, as behind a careless proxy."""
    return reply._replace(broken=Break(after, "end"))


def fail_midway(after: str | int, reply: Reply = EXAMPLE, message: str = "") -> Reply:
    """The provider reports in the stream that it is overloaded."""
    return reply._replace(broken=Break(after, "error", message=message))


def stall(
    gate: float | threading.Event, reply: Reply = EXAMPLE, after: str | int = "text"
) -> Reply:
    """The stream stops for so many seconds, or until the event is set, then goes on."""
    return reply._replace(broken=Break(after, "wait", gate))


def error(
    status: int,
    message: str = "",
    retry_after: float | None = None,
    headers: dict[str, str] | None = None,
) -> Failure:
    """An HTTP error with exactly this status."""
    kind = KINDS.get(status, "server" if status >= 500 else "request")
    return Failure(kind, status, message, retry_after, tuple((headers or {}).items()))


def bad_key() -> Failure:
    """What this provider says to a wrong API key (Gemini: 400)."""
    return Failure("key")


def context_exceeded() -> Failure:
    """What this provider says to a conversation that is too long."""
    return Failure("context")


def overloaded() -> Failure:
    """What this provider says when it is overloaded (Anthropic: 529)."""
    return Failure("overloaded")


# The server


@dataclass
class Request:
    """One request for an answer, as it arrived; times are of the monotonic clock."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: dict
    protocol: str
    time: float  # when its last byte was read
    size: int  # of the body, in bytes
    answered: float | None = None  # when the last piece of the answer was sent
    gone: threading.Event = field(default_factory=threading.Event)  # the client left before that


class Server:
    """Serves a script on a free port of 127.0.0.1 for the length of a `with` block.

    script: replies in order, or a function from the request's body to a reply.
    protocol: if given, requests by any other are errors.
    Leaving the block raises AssertionError with everything in `errors`.
    """

    def __init__(
        self,
        script: Script = (),
        protocol: str | None = None,
        models: tuple[str, ...] = ("test-model",),
        port: int = 0,
    ):
        self.requests: list[Request] = []
        self.errors: list[str] = []
        self.models = models
        self.closing = threading.Event()
        self._protocol = protocol
        self._lock = threading.Lock()
        self._count = itertools.count(1)
        self._next = script if callable(script) else _one_by_one(script)
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.owner = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "Server":
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None and self.errors:
            raise AssertionError("\n".join(self.errors))

    def close(self) -> None:
        """Let go of stalled replies and open connections."""
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()

    def take(self, request: Request) -> Answer:
        """Keep and check a request; the next reply of the script, or what is wrong."""
        faults = list(_faults(request, self._protocol))
        with self._lock:
            self.requests.append(request)
            self.errors += [f"request {len(self.requests)}: {fault}" for fault in faults]
            if faults:
                return Failure("request", 400, "; ".join(faults))
            reply = self._next(request.body)
            if reply is not None:
                return reply
            self.errors.append(f"request {len(self.requests)}: script exhausted")
            return Failure("server", 500, "script exhausted")

    def new_id(self) -> int:
        """A number no other call or response of this server has."""
        return next(self._count)


def _one_by_one(script: Iterable[Answer]) -> Callable[[dict], Answer | None]:
    replies = iter(script)
    return lambda body: next(replies, None)


def _faults(request: Request, protocol: str | None) -> Iterator[str]:
    if protocol and request.protocol != protocol:
        yield f"{request.path} is not a request of {protocol}"
    yield from PROTOCOLS[request.protocol].faults(request.body)
    if request.protocol == "gemini":
        if ":streamGenerateContent" not in request.path or "alt=sse" not in request.path:
            yield "not streamed"
    elif request.body.get("stream") is not True:
        yield "stream is not true"


class _Http(ThreadingHTTPServer):
    owner: Server
    request_queue_size = 64

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.connections: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A mistake of the script or of this file must fail the test, not only be shown."""
        problem = sys.exc_info()[1]
        if not isinstance(problem, ConnectionError):
            self.owner.errors.append(f"the server failed: {problem!r}")

    def hang_up(self) -> None:
        """End the connections that clients keep open for later."""
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed in the meantime


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each small piece waits 40 ms for the client's ACK

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        """The requests are kept, not logged."""

    def do_GET(self) -> None:
        facts = _facts(self.path, self.server.owner.models)
        if facts is None:
            self.server.owner.errors.append(f"{self.command} {self.path}: no such path")
            return self._whole(404, "application/json", b'{"error": "no such path"}')
        self._whole(200, "application/json", _json(facts))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        arrived = time.monotonic()
        protocol = _protocol(self.path)
        if protocol is None:
            return self.do_GET()
        body = _object(raw)
        if body is None:
            self.server.owner.errors.append(f"POST {self.path}: the body is not a JSON object")
            return self._fail(protocol, Failure("request", 400, "not a JSON object"), "")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._answer(Request(self.path, headers, body, protocol, arrived, len(raw)))

    def _answer(self, request: Request) -> None:
        reply = self.server.owner.take(request)
        if not isinstance(reply, Reply):
            request.answered = time.monotonic()
        try:
            match reply:
                case Failure():
                    self._fail(request.protocol, reply, _model(request))
                case Page(media, body):
                    self._whole(200, media, body)
                case _:
                    self._stream(request, reply)
        except ConnectionError:
            self.close_connection = True
            request.gone.set()

    def _fail(self, protocol: str, failure: Failure, model: str) -> None:
        status, body = PROTOCOLS[protocol].fault(failure, model)
        headers = dict(failure.headers)
        if failure.retry_after is not None:
            headers["Retry-After"] = f"{failure.retry_after:g}"
        self._whole(status, "application/json", _json(body), headers)

    def _whole(
        self, status: int, media: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": media, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request: Request, reply: Reply) -> None:
        protocol = PROTOCOLS[request.protocol]
        turn = _turn(request, reply, self.server.owner)
        first, rest = _halves(list(protocol.pieces(turn)), reply.broken)
        started = not reply.broken or reply.broken.after != "start"
        if started:
            self._begin(protocol.media)
        self._send(request, first, reply.delay)
        match reply.broken:
            case Break(how="drop"):
                return self._drop()
            case Break(how="error", message=message):
                fault = protocol.fault(Failure("overloaded", message=message), turn.model)
                rest = [protocol.frame(fault[1])]
            case Break(how="wait", gate=gate):
                self._wait(gate)
        if not started:
            self._begin(protocol.media)
        self._send(request, rest, reply.delay)
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, media: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, request: Request, pieces: list[bytes], delay: float) -> None:
        for data in pieces:
            request.answered = time.monotonic()  # before the write: the client may be quicker
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if delay:
                self._wait(delay)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _wait(self, gate: float | threading.Event) -> None:
        """Until the gate opens or the server closes; ConnectionError if the client leaves first."""
        until = None if isinstance(gate, threading.Event) else time.monotonic() + gate
        while not self.server.owner.closing.is_set():
            left = 0.02 if until is None else min(0.02, until - time.monotonic())
            if left <= 0 or (isinstance(gate, threading.Event) and gate.is_set()):
                return
            readable = select.select([self.connection], [], [], left)[0]
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionError("the client left")


def _protocol(path: str) -> str | None:
    path = path.partition("?")[0]
    for name, protocol in PROTOCOLS.items():
        if re.search(protocol.path, path):
            return name
    return None


def _facts(path: str, models: tuple[str, ...]) -> dict | None:
    """What is answered without the script: the models there are, and the server's version."""
    match path.partition("?")[0]:
        case "/v1/models" | "/models":
            cards = [{"id": name, "object": "model", "owned_by": "test"} for name in models]
            return {"object": "list", "data": cards}
        case "/api/tags":
            return {"models": [{"name": name, "model": name, "size": 1} for name in models]}
        case "/api/show":
            info = {"general.architecture": "llama", "llama.context_length": 32768}
            return {"capabilities": ["completion", "tools"], "model_info": info, "details": {}}
        case "/api/version":
            return {"version": "0.12.0"}
    return None


def _model(request: Request) -> str:
    """The model asked for; Gemini has it in the path."""
    found = re.search(r"/models/([^/:?]+):", request.path)
    return found[1] if found else str(request.body.get("model"))


# How each provider streams it


class Piece(NamedTuple):
    """Some bytes of the stream and what they carry: "thought", "text", "call" or "" (the frame)."""

    kind: str
    data: bytes
    chars: int = 0  # of text


class Turn(NamedTuple):
    """A reply with what depends on the request."""

    reply: Reply
    model: str
    number: int
    ids: tuple[int, ...]  # one a call
    usage: Tokens | None
    body: dict


def _turn(request: Request, reply: Reply, server: Server) -> Turn:
    usage = reply.usage
    if usage == DERIVED:
        spoken = reply.text + reply.thought + "".join(map("".join, reply.calls))
        usage = Tokens(request.size // 4, max(1, len(spoken) // 4))
    ids = tuple(server.new_id() for _ in reply.calls)
    return Turn(reply, _model(request), server.new_id(), ids, usage, request.body)


def _halves(pieces: list[Piece], broken: Break | None) -> tuple[list[bytes], list[bytes]]:
    """What is sent before the break and what after it; a lone piece is cut in two."""
    data = [piece.data for piece in pieces]
    if broken is None:
        return data, []
    if broken.after == "start":
        return [], data
    if isinstance(broken.after, int):
        sent = itertools.accumulate((piece.chars for piece in pieces), initial=0)
        return _or_end(
            data, next(i for i, chars in enumerate(sent) if chars >= broken.after), broken
        )
    marked = [i for i, piece in enumerate(pieces) if piece.kind == broken.after]
    if not marked:
        raise ValueError(f"the reply has no {broken.after} to break in")
    at = marked[-1]
    if len(marked) > 1:
        return _or_end(data, at, broken)
    middle = len(data[at]) // 2
    return _or_end(
        [*data[:at], data[at][:middle], data[at][middle:], *data[at + 1 :]], at + 1, broken
    )


def _or_end(data: list[bytes], at: int, broken: Break) -> tuple[list[bytes], list[bytes]]:
    return data[:at], [] if broken.how == "end" else data[at:]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _sse(value: dict) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _cut_up(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _signature(text: str) -> str:
    """What a provider puts under a thought, and wants back unchanged with it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _finish(reply: Reply, stop: str, calls: str, length: str) -> str:
    if reply.length:
        return length
    return calls if reply.calls else stop


def _openai_pieces(turn: Turn) -> Iterator[Piece]:
    reply, size = turn.reply, turn.reply.chunk
    yield Piece("", _openai_chunk(turn, {"role": "assistant", "content": ""}))
    for part in _cut_up(reply.thought, size):
        yield Piece("thought", _openai_chunk(turn, {"reasoning_content": part}))
    for part in _cut_up(reply.text, size):
        yield Piece("text", _openai_chunk(turn, {"content": part}), len(part))
    for index, (id_, one) in enumerate(zip(turn.ids, reply.calls, strict=True)):
        head = {"index": index, "id": f"call_{id_}", "type": "function"}
        name = {"name": one.name, "arguments": ""}
        yield Piece("call", _openai_chunk(turn, {"tool_calls": [{**head, "function": name}]}))
        for part in _cut_up(one.arguments, size):
            delta = {"index": index, "function": {"arguments": part}}
            yield Piece("call", _openai_chunk(turn, {"tool_calls": [delta]}))
    yield Piece("", _openai_chunk(turn, {}, _finish(reply, "stop", "tool_calls", "length")))
    if turn.usage and (turn.body.get("stream_options") or {}).get("include_usage"):
        yield Piece("", _openai_usage(turn, turn.usage))
    yield Piece("", b"data: [DONE]\n\n")


def _openai_frame(turn: Turn) -> dict:
    kind = {"id": f"chatcmpl-{turn.number}", "object": "chat.completion.chunk"}
    return {**kind, "created": 1_700_000_000, "model": turn.model}


def _openai_chunk(turn: Turn, delta: dict, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _sse({**_openai_frame(turn), "choices": [choice]})


def _openai_usage(turn: Turn, usage: Tokens) -> bytes:
    counts = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": len(turn.reply.thought) // 4},
    }
    return _sse({**_openai_frame(turn), "choices": [], "usage": counts})


def _anthropic_event(value: dict) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" + _sse(value)


def _anthropic_pieces(turn: Turn) -> Iterator[Piece]:
    reply, usage = turn.reply, turn.usage or Tokens(0, 0)
    yield Piece("", _anthropic_event(_anthropic_start(turn, usage)))
    yield Piece("", _anthropic_event({"type": "ping"}))
    index = itertools.count()
    if reply.thought:
        block: dict = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": part}
            for part in _cut_up(reply.thought, reply.chunk)
        ]
        signed = {"type": "signature_delta", "signature": _signature(reply.thought)}
        yield from _anthropic_block("thought", next(index), block, [*deltas, signed])
    if reply.text:
        block = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": p} for p in _cut_up(reply.text, reply.chunk)]
        yield from _anthropic_block("text", next(index), block, deltas)
    for id_, one in zip(turn.ids, reply.calls, strict=True):
        block = {"type": "tool_use", "id": f"toolu_{id_}", "name": one.name, "input": {}}
        # The first delta of a call is empty on the real wire, and the only one without arguments.
        parts = ["", *([] if one.arguments == "{}" else _cut_up(one.arguments, reply.chunk))]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        yield from _anthropic_block("call", next(index), block, deltas)
    stop = {"stop_reason": _finish(reply, "end_turn", "tool_use", "max_tokens")}
    end = {"type": "message_delta", "delta": stop, "usage": {"output_tokens": usage.output}}
    yield Piece("", _anthropic_event(end))
    yield Piece("", _anthropic_event({"type": "message_stop"}))


def _anthropic_start(turn: Turn, usage: Tokens) -> dict:
    counts = {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{turn.number}", "type": "message", "role": "assistant", "content": []}
    rest: dict = {"model": turn.model, "stop_reason": None, "stop_sequence": None, "usage": counts}
    return {"type": "message_start", "message": {**message, **rest}}


def _anthropic_block(kind: str, index: int, block: dict, deltas: list[dict]) -> Iterator[Piece]:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    yield Piece("", _anthropic_event(start))
    for delta in deltas:
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        yield Piece(kind, _anthropic_event(event), len(delta.get("text", "")))
    yield Piece("", _anthropic_event({"type": "content_block_stop", "index": index}))


def _gemini_event(value: dict) -> bytes:
    return b"data: " + _json(value) + b"\r\n\r\n"


def _gemini_pieces(turn: Turn) -> Iterator[Piece]:
    reply = turn.reply
    for part in _cut_up(reply.thought, reply.chunk):
        yield Piece("thought", _gemini_chunk(turn, {"text": part, "thought": True}))
    for part in _cut_up(reply.text, reply.chunk):
        yield Piece("text", _gemini_chunk(turn, {"text": part}), len(part))
    finish = _finish(reply, "STOP", "STOP", "MAX_TOKENS")
    for index, one in enumerate(reply.calls):
        args = _object(one.arguments)
        if args is None:
            finish = "MAX_TOKENS" if reply.length else "MALFORMED_FUNCTION_CALL"
            break
        signed = bool(reply.thought) and index == 0
        yield Piece("call", _gemini_chunk(turn, _gemini_call(one.name, args, signed)))
    last = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": finish}
    yield Piece("", _gemini_event(_gemini_body(turn, {**last, "index": 0})))


def _object(text: str | bytes) -> dict | None:
    """The JSON object written here, or None; some wires cannot carry other arguments."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _gemini_call(name: str, args: dict, signed: bool) -> dict:
    part: dict = {"functionCall": {"name": name, "args": args}}
    if signed:
        part["thoughtSignature"] = _signature(name + json.dumps(args, sort_keys=True))
    return part


def _gemini_chunk(turn: Turn, part: dict) -> bytes:
    content = {"parts": [part], "role": "model"}
    return _gemini_event(_gemini_body(turn, {"content": content, "index": 0}))


def _gemini_body(turn: Turn, candidate: dict) -> dict:
    body: dict = {"candidates": [candidate], "modelVersion": turn.model}
    if turn.usage:
        body["usageMetadata"] = _gemini_usage(turn.usage, len(turn.reply.thought) // 4)
    return {**body, "responseId": f"resp-{turn.number}"}


def _gemini_usage(usage: Tokens, thought: int) -> dict:
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - thought,
        "totalTokenCount": usage.input + usage.output,
    }
    optional = {"cachedContentTokenCount": usage.cached, "thoughtsTokenCount": thought}
    return {**counts, **{name: count for name, count in optional.items() if count}}


def _line(value: dict) -> bytes:
    return _json(value) + b"\n"


def _ollama_pieces(turn: Turn) -> Iterator[Piece]:
    reply = turn.reply
    for part in _cut_up(reply.thought, reply.chunk):
        yield Piece("thought", _ollama_line(turn, {"thinking": part, "content": ""}))
    for part in _cut_up(reply.text, reply.chunk):
        yield Piece("text", _ollama_line(turn, {"content": part}), len(part))
    for one in reply.calls:
        args = _object(one.arguments)
        if args is None:  # what the server cannot parse as a call it passes on as text
            yield Piece("call", _ollama_line(turn, {"content": f"{one.name} {one.arguments}"}))
            continue
        function = {
            "name": one.name,
            "arguments": args,
        }  # every call in its own line, no id, no index
        yield Piece(
            "call", _ollama_line(turn, {"content": "", "tool_calls": [{"function": function}]})
        )
    end: dict = {"done": True, "done_reason": _finish(reply, "stop", "stop", "length")}
    if turn.usage:
        end |= {"prompt_eval_count": turn.usage.input, "eval_count": turn.usage.output}
    yield Piece("", _ollama_line(turn, {"content": ""}, end))


def _ollama_line(turn: Turn, message: dict, end: dict | None = None) -> bytes:
    head = {"model": turn.model, "created_at": "2025-01-01T00:00:00.000000Z"}
    said = {"role": "assistant", **message}
    return _line({**head, "message": said, **(end or {"done": False})})


# How each provider says no

KINDS = {
    400: "request",
    401: "auth",
    403: "permission",
    404: "model",
    429: "rate",
    500: "server",
    503: "overloaded",
    529: "overloaded",
}
STATUS = {
    "request": 400,
    "auth": 401,
    "key": 401,
    "permission": 403,
    "model": 404,
    "context": 400,
    "rate": 429,
    "server": 500,
    "overloaded": 503,
}

OPENAI_ERRORS = {  # kind: type, code, message
    "request": ("invalid_request_error", None, "Invalid request."),
    "auth": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: test-key."),
    "key": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: test-key."),
    "permission": ("invalid_request_error", None, "You have insufficient permissions."),
    "model": (
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    "context": (
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "130000 tokens. Please reduce the length of the messages.",
    ),
    "rate": ("requests", "rate_limit_exceeded", "Rate limit reached for {model}."),
    "server": ("server_error", None, "The server had an error while processing your request."),
    "overloaded": ("server_error", None, "The engine is currently overloaded."),
}
ANTHROPIC_ERRORS = {  # kind: type, message
    "request": ("invalid_request_error", "Invalid request."),
    "auth": ("authentication_error", "invalid x-api-key"),
    "key": ("authentication_error", "invalid x-api-key"),
    "permission": ("permission_error", "Your API key may not use this resource."),
    "model": ("not_found_error", "model: {model}"),
    "context": ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    "rate": ("rate_limit_error", "This request would exceed your rate limit."),
    "server": ("api_error", "Internal server error"),
    "overloaded": ("overloaded_error", "Overloaded"),
}
GEMINI_ERRORS = {  # kind: status, message
    "request": ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    "auth": ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    "key": ("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "permission": ("PERMISSION_DENIED", "The caller does not have permission."),
    "model": ("NOT_FOUND", "models/{model} is not found for API version v1beta."),
    "context": (
        "INVALID_ARGUMENT",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "rate": ("RESOURCE_EXHAUSTED", "You exceeded your current quota."),
    "server": ("INTERNAL", "An internal error has occurred."),
    "overloaded": ("UNAVAILABLE", "The model is overloaded. Please try again later."),
}
OLLAMA_ERRORS = {
    "request": "invalid request",
    "auth": "unauthorized",
    "key": "unauthorized",
    "permission": "forbidden",
    "model": "model '{model}' not found",
    "context": '{{"error":{{"code":400,"message":"request (9000 tokens) exceeds the available '
    'context size (4096 tokens), try increasing it","type":"exceed_context_size_error"}}}}',
    "rate": "too many requests",
    "server": "llama runner process has terminated",
    "overloaded": "server busy, please try again. maximum pending requests exceeded",
}


def _openai_fault(failure: Failure, model: str) -> tuple[int, dict]:
    type_, code, usual = OPENAI_ERRORS[failure.kind]
    told = {"message": failure.message or usual.format(model=model), "type": type_}
    return failure.status or STATUS[failure.kind], {"error": {**told, "param": None, "code": code}}


def _anthropic_fault(failure: Failure, model: str) -> tuple[int, dict]:
    type_, usual = ANTHROPIC_ERRORS[failure.kind]
    told = {"type": type_, "message": failure.message or usual.format(model=model)}
    status = 529 if failure.kind == "overloaded" else STATUS[failure.kind]
    return failure.status or status, {"type": "error", "error": told, "request_id": "req_1"}


def _gemini_fault(failure: Failure, model: str) -> tuple[int, dict]:
    word, usual = GEMINI_ERRORS[failure.kind]
    code = failure.status or (400 if failure.kind == "key" else STATUS[failure.kind])
    told = {"code": code, "message": failure.message or usual.format(model=model), "status": word}
    return code, {"error": {**told, "details": list(_gemini_details(failure))}}


def _gemini_details(failure: Failure) -> Iterator[dict]:
    if failure.kind == "key":
        reason = {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        yield {"@type": "type.googleapis.com/google.rpc.ErrorInfo", **reason}
    if failure.retry_after is not None:
        delay = {"retryDelay": f"{failure.retry_after:g}s"}
        yield {"@type": "type.googleapis.com/google.rpc.RetryInfo", **delay}


def _ollama_fault(failure: Failure, model: str) -> tuple[int, dict]:
    message = failure.message or OLLAMA_ERRORS[failure.kind].format(model=model)
    return failure.status or STATUS[failure.kind], {"error": message}


# What is wrong with a request


def _unpaired(turns: Iterable[tuple[str, list, list]]) -> Iterator[str]:
    """Turns, (where, calls, answers) each, that do not answer the calls of the turn before."""
    asked: list = []
    for where, calls, answers in turns:
        if sorted(answers) != sorted(asked):
            yield f"{where}: answers {answers} to the calls {asked}"
        asked = calls
    if asked:
        yield f"the last calls have no answer: {asked}"


def _schema_faults(schema: Any, where: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{where}: not a schema"
        return
    kind = str(schema.get("type", "")).lower()  # Gemini writes OBJECT
    properties = schema.get("properties", {})
    if kind == "object" and not isinstance(properties, dict):
        yield f"{where}: properties are not an object"
        return
    unknown = set(schema.get("required", [])) - set(properties)
    if unknown:
        yield f"{where}: requires {sorted(unknown)}, which are not properties"
    if kind == "array" and "items" not in schema:
        yield f"{where}: an array without items"
    for name, part in properties.items():
        yield from _schema_faults(part, f"{where}.{name}")
    if "items" in schema:
        yield from _schema_faults(schema["items"], f"{where}[]")


def _tool_faults(tools: list[tuple[Any, Any]]) -> Iterator[str]:
    """tools: (name, schema of the parameters) each."""
    names = [name for name, _ in tools]
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"tool {name}: defined twice"
    for name, schema in tools:
        if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            yield f"tool {name!r}: not a valid name"
        if not isinstance(schema, dict) or str(schema.get("type")).lower() != "object":
            yield f"tool {name}: parameters are not of type object"
        elif "properties" not in schema:
            yield f"tool {name}: parameters without properties"
        yield from _schema_faults(schema, f"tool {name}")


OPENAI_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}


def _openai_faults(body: dict) -> Iterator[str]:
    messages = body.get("messages") or []
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        if role not in OPENAI_KEYS:
            yield f"{where}: unknown role {role!r}"
            continue
        extra = sorted(set(message) - OPENAI_KEYS[role])
        if extra:
            yield f"{where}: unknown keys {extra}"
        if role in ("system", "developer") and at:
            yield f"{where}: a system message that is not the first"
        yield from (f"{where}: {fault}" for fault in _openai_content_faults(message))
        yield from (f"{where}: {fault}" for fault in _openai_call_faults(message))
    if not messages or messages[-1].get("role") not in ("user", "tool"):
        yield "the last message is neither the user's nor a tool's"
    yield from _unpaired(_openai_turns(messages))
    tools = [tool.get("function") or {} for tool in body.get("tools") or []]
    yield from _tool_faults([(tool.get("name"), tool.get("parameters")) for tool in tools])


def _openai_content_faults(message: dict) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, list):
        allowed = {"text", "image_url"} if message["role"] == "user" else {"text"}
        unknown = sorted({str(part.get("type")) for part in content} - allowed)
        if unknown or not content:
            yield f"content parts {unknown or 'missing'}"
    elif content is None:
        if not message.get("tool_calls"):
            yield "neither content nor tool calls"
    elif not isinstance(content, str):
        yield f"content is {type(content).__name__}"


def _openai_call_faults(message: dict) -> Iterator[str]:
    if message.get("tool_calls") == []:
        yield "an empty list of tool calls"
    for one in message.get("tool_calls") or []:
        function = one.get("function") or {}
        if one.get("type") != "function" or not one.get("id") or not function.get("name"):
            yield f"not a whole tool call: {one}"
        if _object(str(function.get("arguments"))) is None:
            yield f"call {one.get('id')}: arguments are not a JSON object"


def _openai_turns(messages: list[dict]) -> Iterator[tuple[str, list, list]]:
    """A run of tool messages is one turn, so the calls before it are answered at once or not."""
    for is_tool, group in itertools.groupby(
        enumerate(messages), lambda m: m[1].get("role") == "tool"
    ):
        if is_tool:
            run = list(group)
            ids = [str(message.get("tool_call_id")) for _, message in run]
            yield f"messages[{run[0][0]}]", [], ids
            continue
        for at, message in group:
            yield f"messages[{at}]", [c.get("id") for c in message.get("tool_calls") or []], []


def _ollama_faults(body: dict) -> Iterator[str]:
    messages = body.get("messages") or []
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        if role not in ("system", "user", "assistant", "tool"):
            yield f"{where}: unknown role {role!r}"
        if role == "system" and at:
            yield f"{where}: a system message that is not the first"
        if not isinstance(message.get("content", ""), str):
            yield f"{where}: content is not a string"
        for one in message.get("tool_calls") or []:
            function = one.get("function") or {}
            if not function.get("name") or not isinstance(function.get("arguments"), dict):
                yield f"{where}: not a whole tool call: {one}"
    if not messages or messages[-1].get("role") not in ("user", "tool"):
        yield "the last message is neither the user's nor a tool's"
    yield from _unpaired(_ollama_turns(messages))
    tools = [tool.get("function") or {} for tool in body.get("tools") or []]
    yield from _tool_faults([(tool.get("name"), tool.get("parameters")) for tool in tools])


def _ollama_turns(messages: list[dict]) -> Iterator[tuple[str, list, list]]:
    """Ollama knows no ids: answers count, in order."""
    for where, calls, answers in _openai_turns(messages):
        yield where, ["call"] * len(calls), ["call"] * len(answers)


def _anthropic_faults(body: dict) -> Iterator[str]:
    messages = body.get("messages") or []
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens is missing"
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", ("user", "assistant")[at % 2]
        if message.get("role") != role:
            yield f"{where}: the role is {message.get('role')!r} where {role!r} is due"
        yield from (f"{where}: {fault}" for fault in _anthropic_content_faults(_blocks(message)))
    if not messages or messages[-1].get("role") != "user":
        yield "the last message is not the user's"
    yield from _unpaired(_anthropic_turns(messages))
    if json.dumps(body).count('"cache_control"') > 4:
        yield "more than four cache_control marks"
    tools = body.get("tools") or []
    yield from _tool_faults([(tool.get("name"), tool.get("input_schema")) for tool in tools])


def _blocks(message: dict) -> list[dict]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _anthropic_content_faults(blocks: list[dict]) -> Iterator[str]:
    kinds = [block.get("type") for block in blocks]
    unknown = {str(kind) for kind in kinds} - {
        "text",
        "image",
        "thinking",
        "tool_use",
        "tool_result",
    }
    if unknown:
        yield f"unknown blocks {sorted(unknown)}"
    if "tool_result" in kinds and set(kinds[: kinds.count("tool_result")]) != {"tool_result"}:
        yield "tool results are not first"
    for block in blocks:
        match block:
            case {"type": "text"} if not str(block.get("text") or "").strip():
                yield "an empty text block"
            case {"type": "tool_use"} if not isinstance(block.get("input"), dict):
                yield f"call {block.get('id')}: input is not an object"
            case {"type": "thinking", "thinking": thought, "signature": signature}:
                if signature != _signature(thought):
                    yield "a thinking block was changed"
            case {"type": "thinking"}:
                yield "a thinking block without its signature"


def _anthropic_turns(messages: list[dict]) -> Iterator[tuple[str, list, list]]:
    for at, message in enumerate(messages):
        blocks = _blocks(message)
        calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        answers = [b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"]
        yield f"messages[{at}]", calls, answers


def _gemini_faults(body: dict) -> Iterator[str]:
    contents = body.get("contents") or []
    for at, content in enumerate(contents):
        where = f"contents[{at}]"
        if content.get("role") not in ("user", "model", "function"):
            yield f"{where}: unknown role {content.get('role')!r}"
        if not content.get("parts"):
            yield f"{where}: no parts"
        yield from (f"{where}: {fault}" for fault in _gemini_part_faults(content))
    if not contents or contents[-1].get("role") == "model":
        yield "the last content is the model's"
    yield from _unpaired(_gemini_turns(contents))
    tools = itertools.chain(*map(_declarations, body.get("tools") or []))
    # What has no parameters is declared without properties here, and only here.
    full = [(tool.get("name"), {**NO_PARAMETERS, **tool.get("parameters", {})}) for tool in tools]
    yield from _tool_faults(full)


NO_PARAMETERS = {"type": "object", "properties": {}}


def _declarations(tool: dict) -> list[dict]:
    return tool.get("functionDeclarations") or tool.get("function_declarations") or []


def _gemini_part(part: dict, *names: str) -> dict | None:
    """The API takes both spellings of every field."""
    return next((part[name] for name in names if name in part), None)


def _gemini_part_faults(content: dict) -> Iterator[str]:
    for part in content.get("parts") or []:
        one = _gemini_part(part, "functionCall", "function_call")
        signature = _gemini_part(part, "thoughtSignature", "thought_signature")
        if one is None:
            continue
        if not isinstance(one.get("args", {}), dict):
            yield f"call {one.get('name')}: args are not an object"
        said = str(one.get("name")) + json.dumps(one.get("args", {}), sort_keys=True)
        if signature is not None and signature != _signature(said):
            yield f"call {one.get('name')}: the thought signature belongs to another call"


def _gemini_turns(contents: list[dict]) -> Iterator[tuple[str, list, list]]:
    for at, content in enumerate(contents):
        parts = content.get("parts") or []
        calls = [_gemini_part(part, "functionCall", "function_call") for part in parts]
        answers = [_gemini_part(part, "functionResponse", "function_response") for part in parts]
        yield (
            f"contents[{at}]",
            [str(one.get("name")) for one in calls if one is not None],
            [str(one.get("name")) for one in answers if one is not None],
        )


class Protocol(NamedTuple):
    """Everything in which providers differ."""

    path: str  # a regular expression
    media: str
    pieces: Callable[[Turn], Iterator[Piece]]
    frame: Callable[[dict], bytes]
    fault: Callable[[Failure, str], tuple[int, dict]]
    faults: Callable[[dict], Iterator[str]]
    model: str  # as litellm wants it
    api_base: str  # what litellm wants after the URL


PROTOCOLS = {
    "openai": Protocol(
        r"/chat/completions$",
        "text/event-stream",
        _openai_pieces,
        _sse,
        _openai_fault,
        _openai_faults,
        "openai/test-model",
        "/v1",
    ),
    "anthropic": Protocol(
        r"/v1/messages$",
        "text/event-stream",
        _anthropic_pieces,
        _anthropic_event,
        _anthropic_fault,
        _anthropic_faults,
        "anthropic/claude-sonnet-4-5",
        "",
    ),
    "gemini": Protocol(
        r"/models/[^/]+:(stream)?[gG]enerateContent$",
        "text/event-stream",
        _gemini_pieces,
        _gemini_event,
        _gemini_fault,
        _gemini_faults,
        "gemini/gemini-2.5-flash",
        "/v1beta",
    ),
    "ollama": Protocol(
        r"/api/chat$",
        "application/x-ndjson",
        _ollama_pieces,
        _line,
        _ollama_fault,
        _ollama_faults,
        "ollama_chat/test-model",
        "",
    ),
}


def route(protocol: str, url: str) -> dict[str, str]:
    """The arguments with which litellm.completion() reaches the server at this URL."""
    one = PROTOCOLS[protocol]
    return {"model": one.model, "api_base": url + one.api_base, "api_key": "test-key"}


# On its own


def from_yaml(entry: dict) -> Answer:
    """A reply from a mapping.

    - {say: Hello., thought: Hm., chunk: 4, delay: 0.02, usage: [1000, 20, 900], length: false}
    - {say: I will look., calls: [{read_file: {path: a.py}}]}
    - {cut: call}, {end_early: text}, {fail_midway: 10}, {stall: 2}: of the reply beside it, if any
    - {error: 429, retry_after: 2, message: …}
    - {context_exceeded: }, {bad_key: }, {overloaded: }, {html: }, {empty: }
    """
    first, value = next(iter(entry.items()))
    rest = {key: entry[key] for key in entry if key != first}
    if first in BREAKS:
        return BREAKS[first](value, _reply(rest) if rest else EXAMPLE)
    if first in PLAIN:
        return PLAIN[first]()
    return error(value, **rest) if first == "error" else _reply(entry)


BREAKS: dict[str, Callable[..., Reply]] = {
    "cut": cut,
    "end_early": end_early,
    "fail_midway": fail_midway,
    "stall": stall,
}
PLAIN: dict[str, Callable[[], Answer]] = {
    "context_exceeded": context_exceeded,
    "bad_key": bad_key,
    "overloaded": overloaded,
    "html": html,
    "empty": empty,
}


def _reply(entry: dict) -> Reply:
    options = {key: value for key, value in entry.items() if key not in ("say", "calls")}
    if options.get("usage"):
        options["usage"] = Tokens(*options["usage"])
    calls = [call(name, **args) for one in entry.get("calls", []) for name, args in one.items()]
    return answer(entry.get("say", ""), *calls, **options)


def main() -> int:
    """Serve a script until stopped; 1 if there was anything wrong with the requests."""
    options = _options()
    import yaml

    with open(options.script, encoding="utf-8") as file:
        replies = [from_yaml(entry) for entry in yaml.safe_load(file)]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server = Server(itertools.cycle(replies) if options.repeat else replies, port=options.port)
    with server:
        print(server.url, flush=True)
        stop.wait()
        if options.log:
            _log(server, options.log)
        errors, server.errors = server.errors, []
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    return 1 if errors else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.server", description=__doc__)
    parser.add_argument("--script", required=True, help="YAML: a list of replies")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument(
        "--repeat", action="store_true", help="begin again at the end of the script"
    )
    parser.add_argument("--log", help="write the requests here when stopped, a JSON line each")
    return parser.parse_args()


def _log(server: Server, path: str) -> None:
    names = ("path", "protocol", "time", "answered", "size", "body")
    with open(path, "w", encoding="utf-8") as file:
        for request in server.requests:
            file.write(json.dumps({name: getattr(request, name) for name in names}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
