from __future__ import annotations

import json

import pytest
import toybook

from icml24 import datasets
from icml24.pipeline import appendix
from icml24.pipeline.errors import BookError

BENCHMARK = {
    "name": "toy",
    "title": "A toy step",
    "peer": "a_peer",
    "rows": [
        {
            "what": "n = 10",
            "ours": 1.234,
            "peer": 20_612.4,
            "ratio": 5.267,
            "low": 5.0,
            "high": 5.5,
            "unit": "ms",
        }
    ],
    "versions": {"a_peer": "1.0"},
    "threads": 1,
    "machine": "Linux, 2 cores",
    "date": "2026-11-30",
}


def test_equations_say_what_their_tests_check(book):
    path = book.root / "tests" / "test_alpha.py"
    path.parent.mkdir()
    path.write_text(
        "import pytest\n"
        '@pytest.mark.equation("eq-alpha-squares")\ndef test_a():\n    """E1: `total` is |x|_2."""\n'
        '@pytest.mark.equation("eq-alpha-squares")\ndef test_small_cases(): ...\n'
    )
    text = appendix.equation_table(book)
    assert "1 of 2 labelled equations have at least one test." in text
    assert "## Alpha rays" in text
    assert "* - {eq}`eq-alpha-squares`\n  - `eq-alpha-squares`" in text
    assert "E1: `total` is \\|x\\|\\_2; small cases (`tests/test_alpha.py`)." in text
    assert "- `eq-beta-mean`\n  - **no test**" in text


def test_a_book_without_equations_says_so(book):
    for name in ("book/one/alpha.md", "book/two/beta.md"):
        path = book.root / name
        path.write_text(path.read_text().replace(":label: eq-", ":name: eq-"))
    assert appendix.equation_table(book) == "No chapter has a labelled equation yet.\n"


def test_errata_are_the_prose_of_the_marked_sections(book):
    path = book.root / "book/one/alpha.md"
    path.write_text(
        path.read_text()
        + "\n(errata-alpha)=\n## Errata and reproducibility notes\n\n- A sign, in {eq}`eq-alpha-squares`.\n\n"
        "```{math}\n:label: eq-alpha-more\nx = 1\n```\n\n(sec-alpha-sub)=\n### Closer\n\nStill errata.\n"
        "\n## Exercises\n\nNot errata.\n"
    )
    assert appendix.errata(book) == (
        "## Alpha rays\n\n{ref}`In the chapter <errata-alpha>`\n\n"
        "- A sign, in {eq}`eq-alpha-squares`.\n\nStill errata.\n"
    )


def test_a_book_without_errata_says_so(book):
    assert appendix.errata(book) == "No chapter has errata yet.\n"


@pytest.fixture
def data(monkeypatch):
    files = (
        datasets.DataFile("x.csv", "ab" * 32, 1500, url="https://example.org/x.csv"),
        datasets.DataFile("y.npz", "cd" * 32, 2_500_000),
    )
    entry = datasets.DataSet("toydata", "Toy data", "alpha", files, "CC-BY", "A lab", "Two files.")
    monkeypatch.setattr(datasets, "REGISTRY", {"toydata": entry})
    return entry


def test_data_sets_say_what_runs_without_them(book, data):
    toybook.edit(
        book,
        "src/toybook/papers/alpha/claims.toml",
        'profile = "quick"',
        'dataset = "toydata"\nprofile = "quick"',
    )
    text = appendix.data_sets(book)
    assert "claims C1, C2 read *not testable here*, the other 0 do not need it" in text
    for part in (
        "[Alpha rays](/book/one/alpha)",
        "CC-BY",
        "ab" * 32,
        "1.5 kB",
        "2.5 MB",
        "`icml24 data fetch toydata`",
    ):
        assert part in text
    assert "Put `y.npz` into `$ICML24_DATA/alpha/`" in text


def test_data_without_bound_claims(book, data):
    assert "every claim is tested" in appendix.data_sets(book)


def test_only_data_of_the_books_chapters_is_listed(book):
    assert datasets.REGISTRY, "the real registry has entries"
    assert appendix.data_sets(book) == "No chapter of this book needs an original data set.\n"


def store_benchmark(book, content):
    path = book.root / "bench" / "results" / "toy.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)


def test_benchmarks_show_both_sides(book):
    store_benchmark(book, json.dumps(BENCHMARK))
    text = appendix.benchmark_tables(book)
    assert "* - n = 10\n  - 1.23 ms\n  - 20,612 ms\n  - 5.27 \\[5.00, 5.50\\]" in text
    assert "a\\_peer 1.0" in text


@pytest.mark.parametrize("content", ["{", json.dumps({"title": "x"}), json.dumps([1])])
def test_a_broken_benchmark_is_named(book, content):
    store_benchmark(book, content)
    with pytest.raises(BookError, match=r"bench/results/toy\.json .* run its benchmark again"):
        appendix.benchmark_tables(book)


def test_no_benchmark_yet(book):
    assert "make bench" in appendix.benchmark_tables(book)


def test_api_pages_cover_papers_and_shared_modules(book):
    (book.package_dir / "common" / "_private.py").write_text("")
    pages = appendix.api_pages(book)
    assert list(pages) == [f"{appendix.API}/{name}" for name in ("alpha", "beta", "common")]
    assert ".. automodule:: toybook.papers.alpha\n   :members:" in pages[f"{appendix.API}/alpha"]
    shared = pages[f"{appendix.API}/common"]
    assert [name in shared for name in ("common.numbers", "common.extra", "_private", "__init__")] == [
        True,
        True,
        False,
        False,
    ]
