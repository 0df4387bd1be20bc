"""Claims of a chapter in a package of the test's own, and a registered data set to bind them to."""

from __future__ import annotations

import hashlib
import json
from itertools import count

import pytest

from icml24 import datasets

BASE = {
    "id": "C1",
    "statement": "It works.",
    "paper_value": "0.9",
    "source": "Table 1",
    "metric": "mean accuracy",
    "scale": "fewer seeds",
}
_numbers = count()


def toml(value):
    """The TOML form of a claim's field (JSON strings, numbers and lists are TOML too)."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture
def claims(tmp_path, monkeypatch):
    """Write claims of a chapter `demo` into a new package and make it the ledger's."""

    def write(*entries, raw=None):
        package = f"toy_claims_{next(_numbers)}"
        folder = tmp_path / package / "papers" / "demo"
        folder.mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
        text = raw
        if raw is None:
            rows = [BASE | {"id": f"C{n}"} | entry for n, entry in enumerate(entries, 1)]
            text = "\n".join(
                "[[claim]]\n" + "\n".join(f"{k} = {toml(v)}" for k, v in row.items() if v is not None)
                for row in rows
            )
        (folder / "claims.toml").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("ICML24_PACKAGE", package)
        return package

    return write


@pytest.fixture
def one_file(tmp_path, monkeypatch):
    """A registered data set of two files, one of them without address, and where to put them."""

    def entry(name, url):
        content = name.encode()
        return datasets.DataFile(name, hashlib.sha256(content).hexdigest(), len(content), url)

    data = datasets.DataSet(
        "measurements",
        "t",
        "demo",
        (entry("a.csv", "http://127.0.0.1:9/a.csv"), entry("b.csv", None)),
        "MIT",
        "s",
        "n",
    )
    monkeypatch.setitem(datasets.REGISTRY, "measurements", data)
    folder = tmp_path / "data" / "demo"
    folder.mkdir(parents=True)
    monkeypatch.setenv("ICML24_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path / "cache"))
    return folder
