from __future__ import annotations

import pytest
import toybook

from icml24.pipeline import equations

PAGE = r"""
```{math}
:label: eq-toy-one
x
```
$$ y = 1 $$ (eq-toy-two)

- item
  ```{math}
  :label: eq-toy-three
  z
  ```

See {eq}`eq-toy-one`; ```{prf:theorem}``` has `:label: thm-toy`; $x$ (eq-not-one) is text.
"""

TESTS = '''
import pytest
from pytest import mark

pytestmark = [pytest.mark.slow, pytest.mark.equation("eq-toy-module")]

@pytest.mark.equation("eq-toy-one", "eq-toy-two")
@pytest.mark.parametrize("n", [1, 2])
def test_first(n):
    """E1: the first line
    goes on here.

    Not this one.
    """

class TestThings:
    @mark.equation("eq-toy-three")
    def test_third_thing(self): ...

@pytest.mark.equation("eq-toy-not")
def helper(): ...
'''


def test_labels_in_order():
    assert equations.labels_in(PAGE) == ["eq-toy-one", "eq-toy-two", "eq-toy-three"]


def test_marks_at_functions_classes_and_modules(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    found = [(t.label, t.name, t.says) for t in equations.tests_in(path)]
    first = "E1: the first line goes on here."
    assert found == [
        ("eq-toy-module", "test_first", first),
        ("eq-toy-one", "test_first", first),
        ("eq-toy-two", "test_first", first),
        ("eq-toy-module", "test_third_thing", "third thing"),
        ("eq-toy-three", "test_third_thing", "third thing"),
    ]


def test_a_file_that_is_no_python_is_an_error(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text("def test_x(:\n")
    with pytest.raises(SyntaxError, match="invalid syntax"):
        equations.tests_in(path)


def test_tests_of_the_book_by_label(book):
    for name in ("test_b.py", "deep/test_a.py"):
        path = book.root / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('import pytest\n@pytest.mark.equation("eq-alpha-squares")\ndef test_squares(): ...\n')
    toybook.append(book, "tests/helper.py", '@pytest.mark.equation("eq-beta-mean")\ndef test_no(): ...\n')
    found = equations.tests_by_label(book)
    assert list(found) == ["eq-alpha-squares"]
    assert [t.path.name for t in found["eq-alpha-squares"]] == ["test_a.py", "test_b.py"]


def test_assertions_are_found_in_helpers_too(tmp_path):
    path = tmp_path / "test_some.py"
    mark = '@pytest.mark.equation("eq-toy-x")\n'
    path.write_text(
        "import pytest\n\ndef inner(x):\n    assert x\n\ndef outer(x):\n    inner(x)\n\n"
        + mark + "def test_own():\n    assert 1\n\n"
        + mark + "def test_helper():\n    outer(1)\n\n"
        + mark + "def test_library():\n    torch.testing.assert_close(1, 1)\n\n"
        + mark + "def test_raises():\n    with pytest.raises(ValueError):\n        int('x')\n\n"
        + mark + "def test_nothing():\n    print(outer)\n",
        encoding="utf-8",
    )  # fmt: skip
    verdicts = {test.name: test.asserts for test in equations.tests_in(path)}
    assert [name for name, asserts in verdicts.items() if not asserts] == ["test_nothing"]
    assert len(verdicts) == 5
