"""A real Jupyter server opens a chapter's source as a notebook, runs it, and saves it without changing a byte."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import nbformat
import pytest
import requests
import toybook
import websocket

from icml24.pipeline.book import Book

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "_toc.yml").is_file())
START_S, CELL_S = 60, 60


class Server:
    """The server's address, and requests that carry its token."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def call(self, method: str, path: str, **options):
        headers = {"Authorization": f"token {self.token}"}
        reply = requests.request(method, self.url + path, headers=headers, timeout=START_S, **options)
        reply.raise_for_status()
        return reply.json() if reply.content else None

    def notebook(self, path: str):
        """What the contents manager makes of a file, as a browser asks for it."""
        return self.call("GET", f"api/contents/{path}?type=notebook&content=1")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with the toy book and a copy of this book's own pages."""
    root = tmp_path_factory.mktemp("served") / "books"
    toybook.make(root)
    shutil.copy(ROOT / "jupytext.toml", root / "jupytext.toml")
    shutil.copytree(ROOT / "book", root / "real", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    return root


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    """A server on this machine only, with a token and nobody's settings, ended whatever happens."""
    private = tmp_path_factory.mktemp("jupyter")
    token = secrets.token_hex(16)
    env = os.environ | {
        "JUPYTER_TOKEN": token,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(ROOT / "src")]),
        "ICML24_PACKAGE": "toybook",
        "ICML24_DATA": "",
        "IPYTHONDIR": str(private / "ipython"),
        **{f"JUPYTER_{name}_DIR": str(private / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
    }
    command = [
        sys.executable,
        "-m",
        "jupyter_server",
        "--ip=127.0.0.1",
        "--port=0",
        "--no-browser",
        "--allow-root",
    ]
    log = private / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, f"--ServerApp.root_dir={root}"],
            stdout=stream,
            stderr=stream,
            env=env,
            start_new_session=True,
        )
    try:
        yield Server(_address(process, private / "runtime", log), token)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(process, runtime, log):
    """Address that the server wrote beside its process id once it was listening."""
    deadline = time.monotonic() + START_S
    path = runtime / f"jpserver-{process.pid}.json"
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError, ValueError):
            url = json.loads(path.read_text())["url"]
            requests.get(url + "api", timeout=5).raise_for_status()
            return url
        time.sleep(0.1)
    raise AssertionError(f"the server did not start in {START_S} s:\n{log.read_text()}")


@contextlib.contextmanager
def kernel(server, folder):
    """Start a kernel through the server; yield a function that runs code in it and returns its messages."""
    started = server.call("POST", "api/kernels", json={"name": "python3", "path": folder})
    address = server.url.replace("http", "ws", 1) + f"api/kernels/{started['id']}/channels"
    channel = websocket.create_connection(
        address, header=[f"Authorization: token {server.token}"], timeout=CELL_S, suppress_origin=True
    )

    def run(code):
        request = {
            "header": {
                "msg_id": uuid.uuid4().hex,
                "msg_type": "execute_request",
                "username": "",
                "session": "test",
                "version": "5.3",
            },
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False, "allow_stdin": False},
            "channel": "shell",
        }
        channel.send(json.dumps(request))
        messages = []
        while True:
            message = json.loads(channel.recv())
            if message.get("parent_header", {}).get("msg_id") != request["header"]["msg_id"]:
                continue
            messages.append(message)
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", content
            if kind == "status" and content["execution_state"] == "idle":
                return messages

    try:
        yield run
    finally:
        channel.close()
        server.call("DELETE", f"api/kernels/{started['id']}")


def test_the_server_wants_its_token(server):
    reply = requests.get(server.url + "api/contents/book/one/alpha.md?type=notebook", timeout=10)
    assert reply.status_code == 403


def test_a_chapter_opens_as_a_notebook(server, root):
    model = server.notebook("book/one/alpha.md")
    assert (model["type"], model["format"]) == ("notebook", "json")
    notebook = nbformat.from_dict(model["content"])
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sources == Book.load(root).chapter("alpha").code_cells()
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.metadata.tags == ["parameters"]
    assert notebook.metadata.kernelspec.name == "python3"


def test_a_kernel_of_the_server_executes_its_first_cells(server, root):
    from icml24 import ledger

    cells = [
        c["source"]
        for c in server.notebook("book/one/alpha.md")["content"]["cells"]
        if c["cell_type"] == "code"
    ]
    with kernel(server, "book/one") as run:
        assert [m["msg_type"] for m in run(cells[0])].count("stream") == 0
        printed = [m["content"]["text"] for m in run(cells[1]) if m["msg_type"] == "stream"]
        assert printed == ["seed 0: 102 [1, 2] None (3, 4) False\n"]
        (shown,) = [m["content"]["data"] for m in run(cells[2]) if m["msg_type"] == "display_data"]
        assert [row["verdict"] for row in shown[ledger.MIME]["rows"]] == ["reproduced", "reproduced"]
        assert "<table" in shown["text/html"]
    assert server.call("GET", "api/kernels") == []


def test_saving_what_was_opened_changes_no_byte(server, root):
    path = root / "book" / "one" / "alpha.md"
    before = path.read_bytes()
    model = server.notebook("book/one/alpha.md")
    cell = next(cell for cell in model["content"]["cells"] if cell["cell_type"] == "code")
    cell["execution_count"] = 1  # as after running it: outputs belong to no source
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1\n"}]
    saved = {"type": "notebook", "format": "json", "content": model["content"]}
    server.call("PUT", "api/contents/book/one/alpha.md", json=saved)
    assert path.read_bytes() == before
    cell["source"] += "\nadded: int = 1  # by a reader"
    server.call("PUT", "api/contents/book/one/alpha.md", json=saved)
    assert path.read_bytes() == before.replace(b"\n```\n", b"\nadded: int = 1  # by a reader\n```\n", 1)
    path.write_bytes(before)


@pytest.mark.parametrize("slug", Book.load(ROOT).slugs)
def test_each_chapter_of_this_book_opens(server, slug):
    chapter = Book.load(ROOT).chapter(slug)
    model = server.notebook(f"real/{chapter.source.relative_to(ROOT / 'book').as_posix()}")
    assert model["type"] == "notebook"
    cells = [cell["source"] for cell in model["content"]["cells"] if cell["cell_type"] == "code"]
    assert cells == chapter.code_cells()
