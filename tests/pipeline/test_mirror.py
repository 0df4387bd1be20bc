from __future__ import annotations

import os

from icml24.pipeline.mirror import differs, mirror, prune

PLAN = {"a.txt": b"a", "deep/er/b.txt": b"b"}


def times(folder):
    return {p.relative_to(folder).as_posix(): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def test_unchanged_files_keep_their_time(tmp_path):
    assert mirror(tmp_path, PLAN).written == ("a.txt", "deep/er/b.txt")
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, ns=(10**18, 10**18))
    changes = mirror(tmp_path, PLAN | {"a.txt": b"new"})
    assert changes.written == ("a.txt",)
    assert changes.removed == ()
    assert times(tmp_path)["deep/er/b.txt"] == 10**18
    assert (tmp_path / "a.txt").read_bytes() == b"new"


def test_what_is_not_planned_goes_with_its_folder(tmp_path):
    mirror(tmp_path, PLAN)
    assert differs(tmp_path, {"a.txt": b"a"})
    assert mirror(tmp_path, {"a.txt": b"a"}).removed == ("deep/er/b.txt",)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert not differs(tmp_path, {"a.txt": b"a"})


def test_a_file_may_become_a_folder(tmp_path):
    mirror(tmp_path, {"a": b"file"})
    mirror(tmp_path, {"a/b": b"inside"})
    assert (tmp_path / "a" / "b").read_bytes() == b"inside"


def test_prune_by_suffix_leaves_the_rest(tmp_path):
    mirror(tmp_path, {"x.html": b"", "y.html": b"", "y.png": b""})
    assert prune(tmp_path, ["x.html"], suffix=".html") == ("y.html",)
    assert times(tmp_path).keys() == {"x.html", "y.png"}
    assert prune(tmp_path / "absent", []) == ()
