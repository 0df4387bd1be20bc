"""Atomic files: whole or absent, also when the disk is full."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
import threading

import pytest

from icml24.pipeline.errors import BookError, WriteFailed
from icml24.pipeline.files import sha256_bytes, sha256_file, write_atomic


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_writes_text_and_bytes_and_makes_folders(tmp_path):
    path = tmp_path / "a" / "b.txt"
    assert write_atomic(path, "naïve\n") is True
    assert path.read_bytes() == "naïve\n".encode()
    assert write_atomic(path, b"\x00\xff") is True
    assert path.read_bytes() == b"\x00\xff"
    assert names(path.parent) == ["b.txt"]


def test_equal_bytes_leave_the_file_alone(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, "same")
    os.utime(path, ns=(1, 1))
    assert write_atomic(path, "same") is False
    assert path.stat().st_mtime_ns == 1
    assert write_atomic(path, "Same") is True


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path, monkeypatch, code):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def full(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteFailed, match=os.strerror(code)) as caught:
        write_atomic(path, "new content")
    assert str(path) in str(caught.value)
    assert "11 bytes" in str(caught.value)
    assert isinstance(caught.value, BookError)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_system_that_takes_no_more_leaves_nothing_behind(tmp_path):
    code = (
        "import resource, sys\n"
        "from icml24.pipeline.files import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "write_atomic(sys.argv[1], 'x' * 4000)\n"
        "try:\n    write_atomic(sys.argv[1], 'y' * 6000)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    path = tmp_path / "a.txt"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"WriteFailed cannot write {path}: {os.strerror(errno.EFBIG)}")
    assert path.read_text() == "x" * 4000
    assert names(tmp_path) == ["a.txt"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 5000  # the limit was the subprocess's own


def test_a_folder_in_the_way_is_an_error_not_a_traceback(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(WriteFailed, match="cannot write"):
        write_atomic(tmp_path / "a", "x")
    assert names(tmp_path) == ["a"]


def test_readers_never_see_a_part(tmp_path):
    path = tmp_path / "a.txt"
    contents = {letter * 200_000 for letter in "abcd"}
    write_atomic(path, "a" * 200_000)
    stop = threading.Event()
    seen = set()

    def read():
        while not stop.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    writers = [
        threading.Thread(target=lambda c=c: [write_atomic(path, c) for _ in range(15)]) for c in contents
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert seen <= contents
    assert names(tmp_path) == ["a.txt"]


def test_hashes_agree_with_hashlib(tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    assert sha256_file(tmp_path / "a") == sha256_bytes(data) == hashlib.sha256(data).hexdigest()
    assert sha256_bytes("é") == hashlib.sha256("é".encode()).hexdigest()
