"""How figures look: one palette that colour-blind readers can tell apart, both axes labelled.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chiaroscuro import ChiaroError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "animate", "available", "canvas", "drawn", "label", "save"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, in the order we use it."""
GREY = "#8c8c8c"

_HOUSE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "svg.hashsalt": "chiaroscuro",
    "svg.fonttype": "none",
    "savefig.dpi": 130,
}


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def drawn(figure: Callable[[Any], Figure]) -> Callable[[Any], Figure]:
    """A lab's `figure(result)`, drawn in the house style."""

    @functools.wraps(figure)
    def inside(result: Any) -> Figure:
        if not available():
            raise ChiaroError("a figure needs matplotlib: `pip install chiaroscuro[plots]`.")
        import matplotlib

        with matplotlib.rc_context({**_HOUSE, **_cycle()}):
            return figure(result)

    return inside


def _cycle() -> Any:
    from cycler import cycler

    return {"axes.prop_cycle": cycler(color=list(COLOURS))}


def canvas(rows: int = 1, columns: int = 1, width: float = 3.2, height: float = 2.7) -> Any:
    """A figure and its axes, (rows, columns), each axis `width` by `height` inches.

    Without `pyplot`: nothing global is opened that must be closed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def label(axis: Axes, x: str, y: str, title: str = "") -> None:
    """Name both axes, and the panel."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if title:
        axis.set_title(title, loc="left")


def save(figure: Figure, stem: Path) -> list[Path]:
    """The figure as PNG and SVG beside each other; the same numbers give the same bytes."""
    import matplotlib
    from PIL import Image

    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with matplotlib.rc_context(_HOUSE):
        figure.savefig(paths[0], metadata={"Software": None})
        with Image.open(paths[0]) as picture:  # a palette makes it a third of the size
            few = _few_colours(picture)
        few.save(paths[0], optimize=True)
        figure.set_layout_engine("none")  # the places just found serve both
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def _few_colours(picture: Any) -> Any:
    """The picture in tints of our own colours and greys, no matter how few pixels have them."""
    from PIL import Image

    palette = []
    for colour in (*COLOURS, GREY):
        red_green_blue = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        for share in range(1, 21):
            palette += [round(255 + (x - 255) * share / 20) for x in red_green_blue]
    for grey in range(0, 256, 3):
        palette += [grey] * 3
    board = Image.new("P", (1, 1))
    board.putpalette(palette[: 3 * 255] + [255] * 3)
    return picture.convert("RGB").quantize(palette=board, dither=Image.Dither.NONE)


def animate(frames: Iterable[Figure], path: Path, milliseconds: int = 120) -> None:
    """Figures of one size as an animated GIF that starts again, with a pause at the end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    pictures = []
    with matplotlib.rc_context(_HOUSE):
        for frame in frames:
            canvas = FigureCanvasAgg(frame)
            canvas.draw()
            size, pixels = canvas.get_width_height(), bytes(canvas.buffer_rgba())
            pictures.append(_few_colours(Image.frombytes("RGBA", size, pixels)))
    pauses = [milliseconds] * (len(pictures) - 1) + [20 * milliseconds]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=pauses, loop=0, optimize=True
    )
