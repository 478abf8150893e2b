"""How the figures of labs are drawn: in the look of all figures, both axes labelled, some moving.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chiaroscuro import ChiaroError, figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "animate", "available", "canvas", "drawn", "label", "patch", "save"]

COLOURS, GREY = figures.COLOURS, figures.GREY
available, canvas, save = figures.available, figures.canvas, figures.save


def drawn(figure: Callable[[Any], Figure]) -> Callable[[Any], Figure]:
    """A lab's `figure(result)`, drawn in the house style."""

    @functools.wraps(figure)
    def inside(result: Any) -> Figure:
        if not available():
            raise ChiaroError("a figure needs matplotlib: `pip install chiaroscuro[plots]`.")
        import matplotlib

        with matplotlib.rc_context({**figures.LOOK, **_cycle()}):
            return figure(result)

    return inside


def _cycle() -> Any:
    from cycler import cycler

    return {"axes.prop_cycle": cycler(color=list(COLOURS))}


def label(axis: Axes, x: str, y: str, title: str = "") -> None:
    """Name both axes, and the panel."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if title:
        axis.set_title(title, loc="left")


def patch(colour: str, text: str) -> Any:
    """Return an entry of a legend: a filled square and its text."""
    from matplotlib.patches import Patch

    return Patch(color=colour, alpha=0.6, label=text)


def animate(frames: Iterable[Figure], path: Path, milliseconds: int = 120) -> None:
    """Figures of one size as an animated GIF that starts again, with a pause at the end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    pictures = []
    with matplotlib.rc_context(figures.LOOK):
        for frame in frames:
            canvas = FigureCanvasAgg(frame)
            canvas.draw()
            size, pixels = canvas.get_width_height(), bytes(canvas.buffer_rgba())
            pictures.append(figures.few_colours(Image.frombytes("RGBA", size, pixels)))
    pauses = [milliseconds] * (len(pictures) - 1) + [20 * milliseconds]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=pauses, loop=0, optimize=True
    )
