"""Data sets: looked up where the user put them, trusted by hash, fetched on request only and whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from icml24 import datasets
from icml24.datasets import DataFile, DataSet, FetchFailed, HashMismatch, MissingData

CONTENT = {"table.csv": b"a,b\n1,2\n", "notes.txt": b"measured on a Monday\n", "crops.npz": b"\x00\x01\x02"}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Empty folders for ICML24_DATA and the cache; a hash is never remembered from another test."""
    given, cache = tmp_path / "given", tmp_path / "cache"
    given.mkdir()
    monkeypatch.setenv("ICML24_DATA", str(given))
    monkeypatch.setenv("ICML24_CACHE", str(cache))
    monkeypatch.setattr(datasets, "_digests", {})
    return given, cache


@pytest.fixture
def server(tmp_path):
    """A web server on this machine for the files below `public`, and a log of what was asked of it."""
    public = tmp_path / "public"
    public.mkdir()
    for name, content in CONTENT.items():
        (public / name).write_bytes(content)
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(public))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", public, asked
        running.shutdown()


def register(monkeypatch, base="http://127.0.0.1:9"):
    """A data set `toy` of chapter `paper`: a table in two formats, a text, and a derived file."""

    def entry(name, url=True, variant_of=None):
        content = CONTENT.get(name, name.encode())
        digest = hashlib.sha256(content).hexdigest()
        return DataFile(name, digest, len(content), f"{base}/{name}" if url else None, variant_of)

    files = (
        entry("table.csv"),
        entry("table.json", url=False, variant_of="table.csv"),
        entry("notes.txt"),
        entry("crops.npz", url=False),
    )
    data = DataSet("toy", "A toy", "paper", files, "MIT", "here", "")
    monkeypatch.setitem(datasets.REGISTRY, "toy", data)
    return data


def put(folder, name, content=None):
    path = folder / "paper" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT.get(name, name.encode()) if content is None else content)
    return path


def files_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_folder_given_comes_before_the_cache(places, monkeypatch):
    given, cache = places
    register(monkeypatch)
    with pytest.raises(MissingData):
        datasets.locate("toy", "table.csv")
    in_cache = put(cache, "table.csv")
    assert datasets.locate("toy", "table.csv") == in_cache
    in_given = put(given, "table.csv")
    assert datasets.locate("toy", "table.csv") == in_given
    monkeypatch.delenv("ICML24_DATA")
    assert datasets.locate("toy", "table.csv") == in_cache


def test_a_missing_file_names_the_command(places, monkeypatch):
    register(monkeypatch)
    cases = {
        "table.csv": "toy/table.csv is not on this machine: run `icml24 data fetch toy`",
        "table.json": "`icml24 data fetch toy` gets the same content as table.csv",
        "crops.npz": "it has no public address; put it into $ICML24_DATA/paper/",
    }
    for file, words in cases.items():
        with pytest.raises(FileNotFoundError, match=re.escape(words)):
            datasets.locate("toy", file)


def test_unknown_names_list_the_known_ones(places, monkeypatch):
    register(monkeypatch)
    for call in (datasets.available, datasets.fetch, datasets.verify, datasets.how_to_get):
        with pytest.raises(KeyError, match="no data set 'tyo' in the registry; it has"):
            call("tyo")
    with pytest.raises(KeyError, match=r"no file 'tabel\.csv'; it has"):
        datasets.locate("toy", "tabel.csv")


def test_a_wrong_file_is_refused_wherever_it_is_asked_for(places, monkeypatch):
    given, _ = places
    register(monkeypatch)
    path = put(given, "table.csv", b"a,b\n1,3\n")
    for call in (partial(datasets.locate, "toy", "table.csv"), partial(datasets.available, "toy")):
        with pytest.raises(HashMismatch, match=r"table\.csv is not the registered .* expected"):
            call()
    with pytest.raises(HashMismatch, match=str(path)):
        datasets.found(["paper"])


def test_a_file_is_hashed_once_until_it_changes(places, monkeypatch):
    given, _ = places
    register(monkeypatch)
    hashed = []
    real = datasets._hash
    monkeypatch.setattr(datasets, "_hash", lambda path: hashed.append(path) or real(path))
    path = put(given, "table.csv")
    for _ in range(3):
        datasets.locate("toy", "table.csv")
    assert len(hashed) == 1
    os.utime(path, ns=(1, 1))
    datasets.locate("toy", "table.csv")
    assert len(hashed) == 2
    path.write_bytes(b"other")
    with pytest.raises(HashMismatch):
        datasets.locate("toy", "table.csv")


def test_available_needs_what_is_public_and_takes_a_variant(places, monkeypatch):
    given, cache = places
    register(monkeypatch)
    assert not datasets.available("toy")
    put(given, "table.json")  # stands for table.csv
    assert not datasets.available("toy")
    put(cache, "notes.txt")
    assert datasets.available("toy")
    assert datasets.available("toy", "table.csv")
    assert not datasets.available("toy", "crops.npz")
    assert not datasets.available("toy/crops.npz")
    put(given, "crops.npz")
    assert datasets.available("toy/crops.npz")


def test_found_gives_the_hashes_of_the_chapters_asked_for(places, monkeypatch):
    given, _ = places
    data = register(monkeypatch)
    assert datasets.found(["paper"]) == {}
    put(given, "crops.npz")
    put(given, "table.csv")
    expected = {f"toy/{name}": data.file(name).sha256 for name in ("table.csv", "crops.npz")}
    assert datasets.found(["paper"]) == datasets.found("paper") == expected
    assert datasets.found(["another", "nanomorphology"]) == {}


def test_fetch_brings_what_is_public_and_nothing_else(places, server, monkeypatch):
    _, cache = places
    base, _, asked = server
    register(monkeypatch, base)
    paths = datasets.fetch("toy")
    assert [p.name for p in paths] == ["table.csv", "notes.txt"]
    assert [p.read_bytes() for p in paths] == [CONTENT["table.csv"], CONTENT["notes.txt"]]
    assert files_below(cache) == ["paper/notes.txt", "paper/table.csv"]
    assert datasets.locate("toy", "table.csv") == cache / "paper" / "table.csv"
    assert asked == ["/table.csv", "/notes.txt"]
    assert datasets.fetch("toy") == paths
    assert len(asked) == 2  # nothing is fetched twice


def test_fetch_leaves_alone_what_the_user_supplied(places, server, monkeypatch):
    given, cache = places
    base, _, asked = server
    register(monkeypatch, base)
    own = put(given, "table.csv")
    assert datasets.fetch("toy")[0] == own
    assert asked == ["/notes.txt"]
    assert files_below(cache) == ["paper/notes.txt"]


def test_a_download_with_another_hash_is_an_error_and_nothing_is_kept(places, server, monkeypatch):
    _, cache = places
    base, public, _ = server
    register(monkeypatch, base)
    (public / "table.csv").write_bytes(b"a,b\n9,9\n")
    with pytest.raises(HashMismatch, match=r"did not deliver the registered table\.csv"):
        datasets.fetch("toy")
    assert files_below(cache) == []
    assert not datasets.available("toy")


def test_a_download_that_stops_half_way_leaves_nothing(places, monkeypatch):
    _, cache = places

    class Broken(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"a,b\n")
            self.close_connection = True

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        register(monkeypatch, f"http://127.0.0.1:{running.server_port}")
        with pytest.raises((FetchFailed, HashMismatch), match=r"table\.csv"):
            datasets.fetch("toy")
        running.shutdown()
    assert files_below(cache) == []


def test_no_server_and_a_missing_page_say_what_to_do(places, server, monkeypatch):
    base, public, _ = server
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    register(monkeypatch, f"http://127.0.0.1:{port}")
    with pytest.raises(FetchFailed, match=r"check the connection.*\$ICML24_DATA/paper/"):
        datasets.fetch("toy")
    register(monkeypatch, base)
    (public / "table.csv").unlink()
    with pytest.raises(FetchFailed, match="404"):
        datasets.fetch("toy")
    assert files_below(places[1]) == []


def test_a_cache_that_cannot_be_written(places, server, monkeypatch):
    _, cache = places
    register(monkeypatch, server[0])
    cache.write_text("a file where the folder should be")
    with pytest.raises(FetchFailed, match="could not be stored in"):
        datasets.fetch("toy")


def test_fetch_of_a_data_set_without_addresses(places, monkeypatch):
    data = register(monkeypatch)
    only = DataSet("own", "t", "paper", data.files[3:], "none", "s", "")
    monkeypatch.setitem(datasets.REGISTRY, "own", only)
    with pytest.raises(MissingData, match=r"'own' cannot be fetched: it has no public address"):
        datasets.fetch("own")


def test_nothing_but_fetch_opens_a_connection(places, monkeypatch):
    register(monkeypatch)

    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert not datasets.available("toy")
    assert datasets.found(["paper"]) == {}
    assert {s.state for s in datasets.verify("toy")} == {"missing"}
    with pytest.raises(MissingData):
        datasets.locate("toy", "table.csv")


def test_verify_hashes_anew_and_reports_each_file(places, monkeypatch):
    given, cache = places
    register(monkeypatch)
    path = put(given, "table.csv")
    datasets.locate("toy", "table.csv")
    stamp = path.stat().st_mtime_ns
    path.write_bytes(CONTENT["table.csv"][::-1])  # same size and time stamp: only a new hash sees it
    os.utime(path, ns=(stamp, stamp))
    put(cache, "notes.txt")
    states = {s.file: s for s in datasets.verify("toy")}
    assert {name: s.state for name, s in states.items()} == {
        "table.csv": "corrupt",
        "table.json": "missing",
        "notes.txt": "ok",
        "crops.npz": "missing",
    }
    assert "not the registered" in states["table.csv"].detail
    assert states["notes.txt"].path == cache / "paper" / "notes.txt"
    assert "no public address" in states["crops.npz"].detail


def test_the_cache_folder_is_the_users_unless_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("ICML24_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / "icml24"


def test_every_entry_of_the_registry_is_in_order():
    for name, data in datasets.REGISTRY.items():
        assert data.name == name
        assert all((data.title, data.licence, data.source)), name
        names = [entry.name for entry in data.files]
        assert len(set(names)) == len(names) > 0
        for entry in data.files:
            assert re.fullmatch("[0-9a-f]{64}", entry.sha256), entry
            assert entry.size > 0
            assert entry.url is None or entry.url.startswith("https://"), entry
            assert entry.variant_of is None or data.file(entry.variant_of).variant_of is None


def test_the_first_entries():
    entry = datasets.REGISTRY["nanomorphology"].file("dataset_labeled.xlsx")
    assert entry.size == 43568
    assert entry.sha256.startswith("3cacdfd9ffa801f6")
    assert datasets.REGISTRY["nanomorphology"].file("particles_64.npz").url is None


def test_the_data_here_are_the_registered_ones(monkeypatch):
    """Runs where ``ICML24_TEST_DATA`` names a folder laid out like ``ICML24_DATA``."""
    folder = os.environ.get("ICML24_TEST_DATA")
    if not folder:
        pytest.skip("the original data are no part of the repository; set ICML24_TEST_DATA to check a copy")
    monkeypatch.setenv("ICML24_DATA", folder)
    states = [state for name in datasets.REGISTRY for state in datasets.verify(name)]
    assert {state.state for state in states} == {"ok"}, [s for s in states if s.state != "ok"]


def test_importing_the_registry_is_light():
    """A chapter's key is computed often: no numerics and no download library at import."""
    code = "import sys, icml24.datasets; print(sorted({'torch', 'numpy', 'pooch', 'requests'} & set(sys.modules)))"
    src = Path(datasets.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": str(src)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert out.stdout.strip() == "[]"
