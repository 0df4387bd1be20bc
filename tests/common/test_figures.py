import matplotlib as mpl
import numpy as np
import pytest

from icml24.common.figures import COLORS, new, use_style


@pytest.fixture(autouse=True)
def _agg():
    with mpl.rc_context():
        mpl.use("Agg")
        yield
    import matplotlib.pyplot as plt

    plt.close("all")


def _luminance(color: str) -> float:
    rgb = np.asarray(mpl.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_figures_are_opaque_so_that_a_dark_page_shows_them_unchanged():
    fig, ax = new(7, 3)
    assert fig.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert ax.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert tuple(fig.get_size_inches()) == (7, 3)
    assert mpl.rcParams["savefig.transparent"] is False


@pytest.mark.parametrize("name", sorted(COLORS))
def test_colours_stand_out_from_the_white_ground(name):
    assert 1.05 / (_luminance(COLORS[name]) + 0.05) >= 3.0  # WCAG's bar for graphical objects


def test_style_cycle_is_the_palette():
    use_style()
    cycle = [c["color"].lower() for c in mpl.rcParams["axes.prop_cycle"]]
    assert [c.lstrip("#") for c in cycle] == [c.lstrip("#").lower() for c in COLORS.values()]
