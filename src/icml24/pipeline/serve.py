"""Show the built site on this machine: a static server on the loopback address."""

from __future__ import annotations

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError

__all__ = ["HOST", "serve", "server"]

HOST = "127.0.0.1"


class _Handler(SimpleHTTPRequestHandler):
    """Files only, never cached, nothing logged."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".ipynb": "application/x-ipynb+json",
        ".md": "text/markdown; charset=utf-8",
        ".js": "text/javascript",
        ".woff2": "font/woff2",
    }

    def end_headers(self) -> None:
        """Ask the browser to check for a newer page each time."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        """Refuse a folder without an index page."""
        self.send_error(404, "No such page")

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Bound server of the files in `folder`, on the loopback address only.

    Parameters
    ----------
    folder : Path
        Holds ``index.html``.
    port : int
        0 lets the system choose one; it is in ``server_address``.

    Raises
    ------
    BookError
        No site there, or the port is taken or not allowed.
    """
    if not (folder / "index.html").is_file():
        raise BookError(
            f"there is no site in {folder}: expected index.html. Build it first with `icml24 build`."
        )
    try:
        return ThreadingHTTPServer((HOST, port), partial(_Handler, directory=str(folder)))
    except OverflowError as error:
        raise BookError(f"port {port} does not exist; expected 0 to 65535.") from error
    except OSError as error:
        reason = {
            errno.EADDRINUSE: "is in use",
            errno.EACCES: "needs rights that this user does not have",
        }.get(error.errno or 0, f"cannot be opened ({error.strerror})")
        raise BookError(f"port {port} {reason}; choose another one with --port.") from error


def serve(book: Book, port: int = 8000) -> None:
    """Serve ``_build/html`` until interrupted, printing the address first (see `server` for errors)."""
    with server(book.html, port) as running:
        print(f"{book.title}: http://{HOST}:{running.server_address[1]}/  (Ctrl-C ends it)", flush=True)
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()
