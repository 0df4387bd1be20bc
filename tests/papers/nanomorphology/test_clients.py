"""Prompts and clients; the chat server is a local one with canned answers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from icml24.papers.nanomorphology import NearestExampleClient, OpenAIChatClient, build_messages, clients

KEY = "sk-not-a-real-key"
GOOD = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Cube, Stick"}}]})


@pytest.fixture
def server():
    """Server whose answers are a list of (status, headers, body, delay); it records what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            self.server.seen.append((self.path, dict(self.headers), body))
            status, headers, text, delay = self.server.answers.pop(0)
            time.sleep(delay)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())
            except (BrokenPipeError, ConnectionResetError):
                pass

        def log_message(self, *args):
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    web.answers, web.seen = [], []
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield web
    web.shutdown()
    web.server_close()


@pytest.fixture
def waits(monkeypatch):
    asked: list[float] = []
    monkeypatch.setattr(clients, "time", SimpleNamespace(sleep=asked.append))
    return asked


def client(server, **options) -> OpenAIChatClient:
    options = {"api_key": KEY} | options
    return OpenAIChatClient("toy", base_url=f"http://127.0.0.1:{server.server_port}/v1/", **options)


def test_messages():
    messages = build_messages([("text a", "Cube"), ("text b", "Stick, Flat")], "query")
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [m["content"] for m in messages][1:] == ["text a", "Cube", "text b", "Stick, Flat", "query"]
    for shape in ("Cube", "Stick", "Sphere", "Flat", "Amorphous"):
        assert shape in messages[0]["content"]
    assert build_messages([], "q", system="be brief") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q"},
    ]


def test_success_sends_what_the_dialect_asks(server, waits):
    server.answers = [(200, {}, GOOD, 0)]
    messages = build_messages([("a", "Cube")], "q")
    assert client(server).complete(messages) == "Cube, Stick"
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {"model": "toy", "messages": messages, "temperature": 0.0, "max_tokens": 16}
    assert waits == []


def test_white_space_around_the_key_is_dropped(server, waits, monkeypatch):
    """A key read from a file ends in a newline, which no header may carry."""
    server.answers = [(200, {}, GOOD, 0)] * 3
    client(server, api_key=f"  {KEY}\n").complete([])
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\r\n")
    client(server, api_key=None).complete([])
    assert [headers["Authorization"] for _, headers, _ in server.seen] == [f"Bearer {KEY}"] * 2
    client(server, api_key=" ").complete([])
    assert "Authorization" not in server.seen[2][1]


@pytest.mark.parametrize("key", [f"{KEY}\nX-Other: 1", f"{KEY}\u20ac", f"{KEY}\x00"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key):
    with pytest.raises(ValueError, match="api_key") as caught:
        OpenAIChatClient("toy", base_url="http://localhost", api_key=key)
    assert KEY not in str(caught.value)


def test_an_error_whose_body_breaks_off_is_still_that_error(server, waits):
    """The server promises more bytes than it sends: the status is reported, retries go on."""
    promise = {"Content-Length": "4000"}
    server.answers = [(401, promise, "partial", 0)]
    with pytest.raises(RuntimeError, match="401"):
        client(server).complete([])
    server.answers = [(503, promise, "partial", 0), (200, {}, GOOD, 0)]
    assert client(server).complete([]) == "Cube, Stick"
    assert waits == [1.0]


def test_no_key_no_header(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.answers = [(200, {}, GOOD, 0), (200, {}, GOOD, 0)]
    client(server, api_key=None).complete([], temperature=0.5, max_tokens=3)
    assert "Authorization" not in server.seen[0][1]
    assert (server.seen[0][2]["temperature"], server.seen[0][2]["max_tokens"]) == (0.5, 3)
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    client(server, api_key=None).complete([])
    assert server.seen[1][1]["Authorization"] == "Bearer from the environment"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({}, 1.0), ({"Retry-After": "7"}, 7.0), ({"Retry-After": "900"}, 30.0), ({"Retry-After": "soon"}, 1.0)],
)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_retries_and_waits(server, waits, status, headers, wait):
    server.answers = [(status, headers, "busy", 0), (200, {}, GOOD, 0)]
    assert client(server).complete([]) == "Cube, Stick"
    assert waits == [wait]


def test_gives_up_after_its_retries(server, waits):
    server.answers = [(503, {}, "busy", 0)] * 4
    with pytest.raises(RuntimeError, match=r"503.*busy.*4 attempts"):
        client(server).complete([])
    assert waits == [1.0, 2.0, 4.0]
    assert len(server.seen) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_other_statuses_fail_at_once_without_the_key(server, waits, status):
    body = f"bad key {KEY} " + "x" * 500
    server.answers = [(status, {"Location": "http://127.0.0.1:9/elsewhere"}, body, 0)]
    with pytest.raises(RuntimeError, match=str(status)) as caught:
        client(server).complete([])
    assert KEY not in str(caught.value)
    assert "x" * 150 in str(caught.value)
    assert "x" * 201 not in str(caught.value)
    assert caught.value.__cause__ is None
    assert (waits, len(server.seen)) == ([], 1)


@pytest.mark.parametrize(
    "body",
    ["no json", "{}", '{"choices": []}', '{"choices": [{"message": {"content": null}}]}', "[1]", "null"],
)
def test_malformed_answers(server, waits, body):
    server.answers = [(200, {}, body, 0)]
    with pytest.raises(RuntimeError, match="choices"):
        client(server).complete([])


def test_time_out(server, monkeypatch):
    server.answers = [(200, {}, GOOD, 0.5)]
    with pytest.raises(RuntimeError, match="no answer"):
        client(server, timeout=0.1, max_retries=0).complete([])


def test_nobody_listens(waits):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lost = OpenAIChatClient("toy", base_url=f"http://127.0.0.1:{port}", api_key=KEY, max_retries=1)
    with pytest.raises(RuntimeError, match="no answer") as caught:
        lost.complete([])
    assert KEY not in str(caught.value)
    assert waits == [1.0]


def test_the_key_is_not_shown():
    assert KEY not in repr(OpenAIChatClient("toy", base_url="http://localhost", api_key=KEY))


@pytest.mark.parametrize(
    "options",
    [{"base_url": "localhost:8000"}, {"base_url": "file:///etc"}, {"timeout": 0}, {"max_retries": -1}],
)
def test_bad_options(options):
    with pytest.raises(ValueError, match=r"base_url|timeout"):
        OpenAIChatClient("toy", **({"base_url": "http://localhost"} | options))


def test_nearest_example_by_hand():
    """Standardised distance: 30 C counts more than 900 s where temperatures spread less."""
    examples = [("20 C, 1000 s", "Cube"), ("30 C, 3000 s", "Stick"), ("25 C, 9000 s", "Flat")]
    reply = NearestExampleClient().complete(build_messages(examples, "29 C, 2000 s"))
    assert reply == "Stick"
    assert NearestExampleClient().complete(build_messages(examples, "21 C, 900 s")) == "Cube"


def test_digits_in_names_are_no_numbers():
    examples = [
        ("5 mM CaCl2 with Triton X-100 in 1-Hexanol at 20 C.", "Cube"),
        ("5 mM CaCl2 with nan in nan at 60 C.", "Stick"),
    ]
    for text, reply in (
        ("5 mM CaCl2 with nan in nan at 25 C.", "Cube"),
        ("5 mM CaCl2 in 1-Hexanol at 59.5 C.", "Stick"),
    ):
        assert NearestExampleClient().complete(build_messages(examples, text)) == reply


def test_nearest_example_edge_cases():
    nearest = NearestExampleClient()
    assert nearest.name == "nearest-example (no LLM)"
    assert nearest.complete(build_messages([("no number", "Flat")], "none here")) == "Flat"
    with pytest.raises(ValueError, match="at least one example"):
        nearest.complete(build_messages([], "q"))
    with pytest.raises(ValueError, match="user's query"):
        nearest.complete([{"role": "assistant", "content": "Cube"}])
