from __future__ import annotations

import pytest

from icml24.pipeline import markup


@pytest.mark.parametrize(
    ("docname", "target", "expected"),
    [
        ("book/index", "book/one/alpha.html", "one/alpha.html"),
        ("book/one/alpha", "downloads/a.md", "../../downloads/a.md"),
        ("index", "figures/a.png", "figures/a.png"),
        ("index", 'a"b', "a&quot;b"),
    ],
)
def test_href(docname, target, expected):
    assert markup.href(docname, target) == expected


def test_markdown_is_escaped_and_code_is_kept():
    text = markup.escape_markdown("x_1 *y* [z] <t> $u$ | `v_w` ``q``\n  end")
    assert text == r"x\_1 \*y\* \[z\] \<t\> \$u\$ \| `v_w` `q` end"


def test_an_address_is_linked_whole():
    assert markup.escape_markdown("see https://x.org/a_b/c_d. And (https://y.org/)") == (
        "see <https://x.org/a_b/c_d>. And (<https://y.org/>)"
    )


def test_escaped_text_renders_as_itself():
    from markdown_it import MarkdownIt

    text = r"a_b_c * d * [e](f) <g> #h ~~i~~ j@k.l \ m | n"
    html = MarkdownIt("commonmark").render(markup.escape_markdown(text))
    from html import unescape

    assert unescape(html) == f"<p>{text}</p>\n"


def test_list_table_has_a_head_and_rows():
    table = markup.list_table(["a", "b"], [["1", "2"]])
    assert table.splitlines() == ["```{list-table}", ":header-rows: 1", ":widths: auto", "", "* - a", "  - b", "* - 1",
                                  "  - 2", "```"]  # fmt: skip
