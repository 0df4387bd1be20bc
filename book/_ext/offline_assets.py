"""Copy the few MathJax files the pages need into the site: mathematics without a foreign request.

The package ``sphinx-mathjax-offline`` carries the whole of MathJax, 24 MB; a page needs the one
combined component, its fonts and the TeX extensions it may load on demand: 2 MB.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "sphinx-mathjax-offline"
FILES = ("tex-mml-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions")


def mathjax_folder() -> Path:
    """Folder of MathJax 3 inside its carrier package."""
    from sphinx.errors import ExtensionError

    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "static" / "mathjax"
        if folder.is_dir():
            return folder
    raise ExtensionError(
        f"the package {PACKAGE} is not installed, or holds no static/mathjax: formulas could not be shown "
        "offline. Install the book's requirements again."
    )


def copy_mathjax(app, exception):
    """Lay the files under ``_static/mathjax``; files already there with the same size are left alone."""
    if exception is not None or app.builder.format != "html":
        return
    source, target = mathjax_folder(), Path(app.outdir) / "_static" / "mathjax"
    for name in FILES:
        start = source / name
        for path in [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file()):
            copy = target / path.relative_to(source)
            if copy.is_file() and copy.stat().st_size == path.stat().st_size:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def setup(app):
    """Register the copy at the end of a build."""
    mathjax_folder()
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
