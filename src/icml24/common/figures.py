"""One look for every figure: colour-blind safe, legible on light and dark pages.

Colours are Okabe and Ito's palette; no meaning hangs on colour alone, so `MARKERS`
and line styles go with it. Backgrounds are opaque white: a dark page shows the same
figure, not black text on black.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

__all__ = ["COLORS", "MARKERS", "new", "use_style"]

#: Okabe-Ito colours by name, in the order in which a figure should use them.
COLORS: dict[str, str] = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "purple": "#AA4499",
    "amber": "#B07D00",
    "sky": "#3C93C2",
    "black": "#1A1A1A",
    "grey": "#6B6B6B",
}

#: Markers in the same order as `COLORS`.
MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X", "*")


def use_style() -> None:
    """Apply the book's matplotlib style to the running process (a chapter does it once)."""
    import matplotlib.pyplot as plt

    with as_file(files("icml24.common") / "icml24.mplstyle") as path:
        plt.style.use(path)


def new(width: float = 7.0, height: float = 4.0, **kwargs: Any) -> tuple[Any, Any]:
    """Figure and axes of a fixed size in inches, in the book's style.

    Parameters
    ----------
    width, height : float
        Inches; 7 inches is the width of the text column.
    **kwargs
        Passed to ``matplotlib.pyplot.subplots`` (``nrows``, ``ncols``, ``sharex`` ...).

    Returns
    -------
    (Figure, Axes or array of Axes)
    """
    import matplotlib.pyplot as plt

    use_style()
    return plt.subplots(figsize=(width, height), layout="constrained", **kwargs)
