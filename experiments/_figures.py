"""Figures as pictures: in light and dark colours for the page, and as a file."""

from __future__ import annotations

import io
from typing import Any

from experiments._paper import PaperError
from experiments._section import Figure

_SHARED: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "experiments",  # the same bytes in every run
}
# The eight colours of Okabe & Ito, which people with colour blindness can tell apart; those that
# are too pale or too dark for the background are left out.
_THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "text": "#1f2328",
        "ground": "#ffffff",
        "grid": "#d8dee4",
        "lines": ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"],
    },
    "dark": {
        "text": "#e6edf3",
        "ground": "#0d1117",
        "grid": "#30363d",
        "lines": ["#56B4E9", "#E69F00", "#2fc49a", "#CC79A7", "#F0E442", "#ff8a4c", "#ffffff"],
    },
}


def draw(figure: Figure, theme: str, form: str) -> bytes:
    """A figure as the bytes of a picture; the same bytes each time.

    Args:
        figure: the figure.
        theme: "light" or "dark".
        form: "svg" or "png".

    Raises:
        PaperError: when the figure's own code fails.
        ValueError: without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise ValueError(
            "figures need matplotlib, which is not installed: pip install 'jaxseq[experiments]'"
        ) from None
    output = io.BytesIO()
    # Only defaults of matplotlib stand below these, so that a person's own style changes nothing.
    style: Any = {**matplotlib.rcParamsDefault, **_style(theme)}
    with matplotlib.rc_context(style):
        canvas = Canvas(figsize=figure.size, layout="constrained")
        FigureCanvasAgg(canvas)  # by hand: pyplot would keep state, and want a display
        try:
            figure.draw(canvas)
        except Exception as error:
            raise PaperError(f"figure {figure.name} failed: {error}") from error
        # The date and the version would make other bytes of the same picture.
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        canvas.savefig(output, format=form, dpi=160, metadata=metadata)
    return output.getvalue()


def _style(theme: str) -> dict[str, Any]:
    from cycler import cycler

    colours = _THEMES[theme]
    text, ground, grid = colours["text"], colours["ground"], colours["grid"]
    return {
        **_SHARED,
        "axes.edgecolor": text,
        "axes.facecolor": ground,
        "axes.labelcolor": text,
        "axes.prop_cycle": cycler(color=colours["lines"]),
        "axes.titlecolor": text,
        "figure.facecolor": ground,
        "grid.color": grid,
        "legend.labelcolor": text,
        "patch.edgecolor": text,
        "savefig.facecolor": ground,
        "text.color": text,
        "xtick.color": text,
        "ytick.color": text,
    }
