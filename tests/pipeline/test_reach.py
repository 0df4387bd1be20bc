"""Which modules code reaches, without running it."""

from __future__ import annotations

import pytest

from icml24.pipeline.reach import reach

FILES = {
    "__init__.py": "",
    "a.py": "import pkg.b\n",
    "b.py": "",
    "c.py": "raise RuntimeError('never imported')\nfrom . import d\n",
    "d.py": "def f():\n    from .sub.leaf import x\n",
    "cycle.py": "from pkg import cycle2\n",
    "cycle2.py": "from pkg import cycle\n",
    "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pkg.d\nelse:\n    import pkg.a\n",
    "lazy.py": "import importlib\nTABLE = {'x': 'pkg.b'}\nimportlib.import_module('pkg.sub')\n'see pkg.a for more'\n",
    "star.py": "from pkg.sub import *\n",
    "broken.py": "import pkg.b\ndef (:\n",
    "sub/__init__.py": "from .. import b\n",
    "sub/leaf.py": "import numpy.linalg, torch\n",
    "sub/other.py": "",
    "papers/__init__.py": "",
    "papers/x/__init__.py": "from .core import *\n",
    "papers/x/core.py": "from ...sub import other\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"pkg": tmp_path / "pkg"}


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        ("import pkg.a", "pkg pkg.a pkg.b"),
        ("from pkg import a", "pkg pkg.a pkg.b"),
        ("from pkg.a import anything", "pkg pkg.a pkg.b"),
        ("import pkg", "pkg"),
        ("import numpy", ""),
        ("def f():\n    if x:\n        import pkg.b", "pkg pkg.b"),
        ("from pkg import c", "pkg pkg.c pkg.d pkg.sub pkg.sub.leaf pkg.b"),
        ("import pkg.sub.leaf", "pkg pkg.sub pkg.sub.leaf pkg.b"),
        ("import pkg.cycle", "pkg pkg.cycle pkg.cycle2"),
        ("import pkg.typed", "pkg pkg.typed pkg.a pkg.b"),
        ("import pkg.lazy", "pkg pkg.lazy pkg.b pkg.sub"),
        ("import pkg.star", "pkg pkg.star pkg.sub pkg.sub.leaf pkg.sub.other pkg.b"),
        (
            "from pkg.papers import x",
            "pkg pkg.papers pkg.papers.x pkg.papers.x.core pkg.sub pkg.sub.other pkg.b",
        ),
        ("import pkg.broken", "pkg pkg.broken pkg.b"),
        ("%load_ext autoreload\n!ls\nif x:\n    %time pass\nimport pkg.b", "pkg pkg.b"),
        ("%%time\nimport pkg.b", "pkg pkg.b"),
        ("import pkg.b\nthis is not python", "pkg pkg.b"),
        ("import pkg.missing", "pkg"),
        ("import pkgother.b", ""),
        ("from . import a", ""),
    ],
)
def test_what_is_reached(package, code, reached):
    found = reach([code], package)
    assert set(found.modules) == set(reached.split())
    assert all(path.is_file() for path in found.modules.values())


def test_foreign_names_are_top_level_and_of_all_cells(package):
    found = reach(["import pkg.sub.leaf", "from scipy.stats import norm\nimport os.path"], package)
    assert found.foreign == {"numpy", "torch", "scipy", "os"}


def test_an_edited_module_is_read_again(package):
    assert set(reach(["import pkg.b"], package).modules) == {"pkg", "pkg.b"}
    path = package["pkg"] / "b.py"
    path.write_text("import pkg.a\n")
    assert set(reach(["import pkg.b"], package).modules) == {"pkg", "pkg.a", "pkg.b"}
