import pandas as pd
import pytest

from icml24.common.tables import show

FRAME = pd.DataFrame({"name": ["a<b", "c"], "value": [1.25, float("nan")]})


def test_html_escapes_formats_and_names_itself():
    html = show(FRAME, {"value": "{:.1f}"}, caption="What & why")._repr_html_()
    assert "a&lt;b" in html
    assert "<caption>What &amp; why</caption>" in html
    assert '<td style="text-align:right">1.2</td>' in html
    assert '<td style="text-align:right">–</td>' in html  # a missing number is a dash, not "nan"
    assert html.count('scope="col"') == 2


def test_text_lines_up_and_shows_a_named_index_only():
    text = repr(show(FRAME, {"value": lambda v: f"{v:.2f}"}))
    assert text.splitlines() == ["name  value", "a<b    1.25", "c         –"]
    assert repr(show(FRAME.set_index("name"))).splitlines()[0].startswith("name")
    assert "0" not in repr(show(pd.DataFrame({"k": ["x"]})))


def test_unknown_format_is_an_error():
    with pytest.raises(ValueError, match=r"\['valeu'\]"):
        show(FRAME, {"valeu": "{:.1f}"})
