from __future__ import annotations

import http.client
import socket
import threading

import pytest

from icml24.pipeline import serve
from icml24.pipeline.errors import BookError


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "html"
    (folder / "empty").mkdir(parents=True)
    (folder / "index.html").write_text("<p>start</p>")
    (folder / "a.ipynb").write_text("{}")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def get(site):
    with serve.server(site) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()

        def ask(path):
            connection = http.client.HTTPConnection(*running.server_address)
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer, body

        assert running.server_address[0] == "127.0.0.1"
        yield ask
        running.shutdown()


def test_pages_and_notebooks_are_served(get):
    answer, body = get("/")
    assert (answer.status, body) == (200, b"<p>start</p>")
    assert answer.headers["Cache-Control"] == "no-cache"
    assert get("/a.ipynb")[0].headers["Content-Type"] == "application/x-ipynb+json"


@pytest.mark.parametrize("path", ["/empty/", "/nothing.html", "/../secret.txt", "/%2e%2e/secret.txt"])
def test_nothing_else_is(get, path):
    answer, body = get(path)
    assert answer.status == 404
    assert b"secret" not in body.replace(path.encode(), b"")


def test_without_a_site_the_remedy_is_named(tmp_path):
    with pytest.raises(BookError, match="icml24 build"):
        serve.server(tmp_path)


def test_a_taken_port_is_named(site):
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BookError, match=f"port {port} is in use; choose another"):
            serve.server(site, port)


def test_a_port_out_of_range_is_named(site):
    with pytest.raises(BookError, match="port 70000 does not exist"):
        serve.server(site, 70_000)


def test_serve_says_where_and_ends_at_an_interrupt(book, capsys, monkeypatch):
    book.html.mkdir(parents=True)
    (book.html / "index.html").write_text("")
    monkeypatch.setattr(serve.ThreadingHTTPServer, "serve_forever", _interrupt)
    serve.serve(book, 0)
    assert "A toy book: http://127.0.0.1:" in capsys.readouterr().out


def _interrupt(self):
    raise KeyboardInterrupt
