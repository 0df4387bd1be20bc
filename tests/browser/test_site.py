"""The published site in a real browser, with the network cut: complete, quiet, legible, accessible."""

from __future__ import annotations

import json
import re

import pytest
import visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def pages_of(site):
    """Every page below ``book/``, and the search page."""
    return [*sorted(path.relative_to(site).as_posix() for path in site.glob("book/**/*.html")), "search.html"]


@pytest.fixture(scope="module")
def served(context, address, site):
    """Every page as a server gives it, with axe."""
    return [visit.look(context, address, page, axe=True) for page in pages_of(site)]


@pytest.fixture(scope="module")
def from_disk(context, site):
    """Every page opened as a file."""
    return [visit.look(context, f"{site.as_uri()}/", page, axe=False) for page in pages_of(site)]


@pytest.fixture(scope="module", params=["served", "from_disk"])
def visits(request):
    return request.getfixturevalue(request.param)


def test_pages_were_seen(site, served):
    """Guards every test below against an empty site."""
    assert {"book/index.html", "book/appendix/rerun.html", "search.html"} <= {seen.page for seen in served}
    assert len(list(site.glob("downloads/*/*.md"))) >= 2


def test_no_request_leaves_the_machine(visits):
    assert {seen.page: seen.foreign for seen in visits if seen.foreign} == {}


def test_nothing_is_missing(visits):
    assert {seen.page: seen.missing for seen in visits if seen.missing} == {}
    assert {seen.page: seen.broken_images for seen in visits if seen.broken_images} == {}


def test_the_console_is_silent(visits):
    assert {seen.page: seen.logged for seen in visits if seen.logged} == {}


def test_mathematics_is_rendered(visits):
    shown = {seen.page: seen.mathematics for seen in visits}
    bad = {p: m for p, m in shown.items() if m["shown"] < m["wanted"] or m["wrong"] or m["raw"]}
    assert bad == {}
    assert sum(m["shown"] for m in shown.values()) > 10


def test_displayed_equations_fit_their_column(visits):
    """On a wide screen; a telephone scrolls inside the equation."""
    assert {seen.page: seen.cut for seen in visits if seen.cut} == {}


def test_no_horizontal_scroll_on_a_telephone(visits):
    assert {s.page: s.overflow for s in visits if s.overflow["page"] > 0 or s.overflow["wide"]} == {}


def test_axe_finds_nothing_serious(served):
    """Light and dark, every folded box open."""
    assert {seen.page: seen.axe for seen in served if seen.axe} == {}


def test_macros_are_typeset(served):
    """A macro spelt with two backslashes would print its own name, without any error."""
    names = re.compile(r"mathbb|lVert|lvert|operatorname|mathcal|boldsymbol")
    assert {seen.page: names.findall(seen.typeset) for seen in served if names.search(seen.typeset)} == {}


@pytest.mark.parametrize("where", ["served", "from disk"])
def test_search_finds_a_chapter(context, address, site, where):
    base = address if where == "served" else f"{site.as_uri()}/"
    tab = context.new_page()
    errors = []
    tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    try:
        tab.goto(f"{base}search.html?q=claims")
        tab.wait_for_selector("#search-results li a", timeout=15_000)
        assert tab.locator("#search-results li a").count() >= 2
        assert errors == []
    finally:
        tab.close()


def test_every_chapter_offers_its_three_downloads(context, address, site):
    slugs = sorted(path.name for path in (site / "downloads").iterdir())
    tab = context.new_page()
    try:
        for slug in slugs:
            page = next(site.glob(f"book/*/{slug}.html")).relative_to(site).as_posix()
            tab.goto(address + page)
            box = tab.evaluate("[...document.querySelectorAll('.downloads a')].map(a => a.href)")
            menu = tab.evaluate(
                "[...document.querySelectorAll('.dropdown-download-buttons a')].map(a => a.href)"
            )
            assert box == menu, page
            names = [url.rpartition("/")[2] for url in box]
            assert names == [f"{slug}.ipynb", f"{slug}-clean.ipynb", f"{slug}.md"]
            executed, clean = (json.loads(context.request.get(url).text()) for url in box[:2])
            assert any(cell.get("outputs") for cell in executed["cells"])
            assert not any(cell.get("outputs") for cell in clean["cells"])
            assert "install" in "".join(clean["cells"][0]["source"])
    finally:
        tab.close()


def test_links_from_the_scoreboard_reach_each_ledger(context, address):
    tab = context.new_page()
    try:
        tab.goto(f"{address}book/index.html")
        targets = sorted(set(tab.evaluate("[...document.querySelectorAll('a.chip')].map(a => a.href)")))
        assert targets
        for target in targets:
            tab.goto(target)
            assert tab.locator(f"[id='{target.rpartition('#')[2]}'] table.ledger").count() == 1, target
    finally:
        tab.close()
