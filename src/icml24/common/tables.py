"""Tables of results: one way to show a frame, readable on a page and in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

import pandas as pd

__all__ = ["Table", "show"]

Format = str | Callable[[object], str]


class Table:
    """A frame with formats and a caption, shown as HTML on a page and as text elsewhere.

    Parameters
    ----------
    frame : pandas.DataFrame
        Its index is shown only when it carries a name.
    formats : mapping of column to format, optional
        A format string such as ``"{:.3f}"`` or a function of one value.
    caption : str, optional
        What the reader should see; also the table's accessible name.
    """

    def __init__(
        self, frame: pd.DataFrame, formats: Mapping[str, Format] | None = None, caption: str | None = None
    ) -> None:
        unknown = sorted(set(formats or {}) - set(map(str, frame.columns)))
        if unknown:
            raise ValueError(
                f"formats for columns that the table lacks: {unknown}; it has {list(frame.columns)}"
            )
        self.frame = frame
        self.formats = dict(formats or {})
        self.caption = caption

    def _cells(self) -> tuple[list[str], list[list[str]], list[bool]]:
        frame = self.frame.reset_index() if self.frame.index.name else self.frame
        head = [str(column) for column in frame.columns]
        numeric = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns]
        rows = [
            [self._one(name, value) for name, value in zip(head, row, strict=True)]
            for row in frame.itertuples(index=False, name=None)
        ]
        return head, rows, numeric

    def _one(self, column: str, value: object) -> str:
        form = self.formats.get(column)
        if value is None or (isinstance(value, float) and value != value):
            return "–"
        if form is None:
            return str(value)
        return form(value) if callable(form) else form.format(value)

    def _repr_html_(self) -> str:
        head, rows, numeric = self._cells()
        align = ["right" if flag else "left" for flag in numeric]
        out = ['<div class="table-scroll" tabindex="0"><table class="results">']
        if self.caption:
            out.append(f"<caption>{escape(self.caption)}</caption>")
        cells = (
            f'<th scope="col" style="text-align:{a}">{escape(h)}</th>'
            for h, a in zip(head, align, strict=True)
        )
        out.append("<thead><tr>" + "".join(cells) + "</tr></thead><tbody>")
        for row in rows:
            cells = (f'<td style="text-align:{a}">{escape(c)}</td>' for c, a in zip(row, align, strict=True))
            out.append("<tr>" + "".join(cells) + "</tr>")
        out.append("</tbody></table></div>")
        return "\n".join(out)

    def __repr__(self) -> str:
        head, rows, numeric = self._cells()
        widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]

        def line(cells: list[str]) -> str:
            padded = (
                c.rjust(w) if right else c.ljust(w)
                for c, w, right in zip(cells, widths, numeric, strict=True)
            )
            return "  ".join(padded).rstrip()

        caption = [self.caption] if self.caption else []
        return "\n".join([*caption, line(head), *(line(row) for row in rows)])


def show(
    frame: pd.DataFrame, formats: Mapping[str, Format] | None = None, caption: str | None = None
) -> Table:
    """Wrap a frame for display as the last value of a cell (see `Table`)."""
    return Table(frame, formats, caption)
