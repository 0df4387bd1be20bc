"""A headless Chromium and the site it looks at; both made once, or skipped with the reason."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import samplebook

from icml24.pipeline import build, serve
from icml24.pipeline.book import Book

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # the network is cut
]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Folder of the book's own site when it is built and fresh, else of a sample with the same settings."""
    book = Book.load(samplebook.REPOSITORY)
    if book.chapters and build.is_published(book):
        return book.html
    return build.build(samplebook.make(tmp_path_factory.mktemp("sample") / "book"))


@pytest.fixture(scope="session")
def address(site):
    """Address of the site served on the loopback interface, with a slash at the end."""
    with serve.server(site) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(
            f"no browser here: none of {', '.join(BROWSERS)} is on the PATH (Debian: apt install chromium)"
        )
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def context(browser):
    """One browser window's memory for all pages: styles and MathJax are read once."""
    return browser.new_context()
