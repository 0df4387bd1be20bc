"""What a run shows while it works."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from icml24.pipeline.progress import failure_table, following, stepping
from icml24.pipeline.runner import Event, Outcome

DONE = Outcome("alpha", "ran", Path("/b/alpha.ipynb"), 2.0, 60.0, name="alpha")
FAILED = Outcome(
    "beta", "failed", Path("/b/beta.failed.ipynb"), 1.0, 50.0, "[2] x[0]", "IndexError: [none]", "beta"
)


def shown(terminal, use):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, color_system=None, legacy_windows=False)
    use(console)
    return text.getvalue()


def follow(console):
    with following(console, 2) as tell:
        tell(Event("queued", "alpha"))
        tell(Event("cell", "alpha", 1, 3))
        tell(Event("cell", "alpha", 2, 3))
        tell(Event("finished", "alpha", outcome=DONE))
        tell(Event("finished", "beta", outcome=FAILED))


def test_lines_without_a_terminal():
    lines = [line.split() for line in shown(False, follow).splitlines()]
    assert lines == [["ran", "alpha", "2.0", "s", "60", "MB"], ["failed", "beta"]]


def test_bars_on_a_terminal():
    text = shown(True, follow)
    assert "chapters" in text
    assert "ran alpha" in " ".join(text.split())


def test_a_step_of_unknown_length():
    def step(console):
        with stepping(console, "rendering"):
            pass

    assert shown(False, step) == ""
    assert "rendering" in shown(True, step)


def test_failure_table_prints_brackets_as_they_are():
    text = shown(False, lambda console: console.print(failure_table([DONE, FAILED], Path("/b"))))
    assert "[2] x[0]" in text
    assert "IndexError: [none]" in text
    assert "beta.failed.ipynb" in text
    assert "/b/" not in text
    assert "alpha" not in text
